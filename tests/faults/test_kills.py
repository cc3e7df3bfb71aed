"""kill -9 at every API call of scheduling a gang, and the process that follows.

A few run with the other tests; `make kills` runs all: KILLS=file for a line of JSON each,
KILL_SIZES=1,2,8,32, KILL_CALLS=binds,reads, KILL_FIRST=20 to go on at the 20th call,
KILL_STRIDES={"32 other writes": 3} for every third of those only.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
from control_plane import ControlPlane, ControlPlaneError
from control_plane import objects as make
from control_plane.api import Object

from gangsched.api.timestamps import parse_timestamp
from tests.faults.deaths import Hurt, Point, at_call
from tests.faults.requests import ApiRequest
from tests.faults.site import Site
from tests.kwok_plane import plane_with_nodes

pytestmark = pytest.mark.e2e

REPORT = os.environ.get("KILLS", "")
SIZES = [int(size) for size in os.environ.get("KILL_SIZES", "1,2,8,32").split(",")]
FIRST = int(os.environ.get("KILL_FIRST", "1"))
STRIDES: dict[str, int] = json.loads(os.environ.get("KILL_STRIDES", "{}"))
#: Nodes and GPUs of each in the room of a gang of that size, one GPU for each member.
ROOMS = {1: (1, 1), 2: (2, 1), 8: (2, 4), 32: (4, 8)}
COMPLETE_WITHIN_S = 5.0
WITHIN_S = 120.0
QUIET_S = 3.5
"""Longer than statuses wait for a pause between binds."""

numbers = itertools.count(1)


CALLS: dict[str, Callable[[ApiRequest], bool]] = {
    "binds": lambda asked: asked.subresource == "binding",
    # Conditions, statuses and Events.
    "other writes": lambda asked: asked.is_write and asked.subresource != "binding",
    # Discovery, lists, watches, reads of pods, and questions about rights.
    "reads": lambda asked: not asked.is_write,
}


SORTS = [
    calls for calls in CALLS if calls in os.environ.get("KILL_CALLS", ",".join(CALLS)).split(",")
]


@dataclass(frozen=True)
class Kill:
    """One kill: at which call, what it was, what stood then, and how long the rest took from the
    restart on.
    """

    size: int
    calls: str
    number: int
    point: str
    call: str = "none: there were fewer calls"
    bound: int = 0
    ready_s: float = 0.0
    whole_s: float = 0.0
    #: What the new process had spent of a core once the gang was whole and told so; it does not
    #: depend on the load.
    cpu_s: float = 0.0

    @property
    def is_partial(self) -> bool:
        """Whether the gang was bound in part."""
        return 0 < self.bound < self.size

    @property
    def is_late(self) -> bool:
        """Whether the gang was completed too late after the new process was ready, for as busy as
        the machine is.
        """
        shared_by = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        return self.whole_s - self.ready_s > COMPLETE_WITHIN_S * shared_by


class Gang(NamedTuple):
    """A gang and its rival, not created yet."""

    name: str
    size: int
    rivals: int
    pod_groups: list[Object]
    pods: list[Object]


class Killing(Site):
    """Gangs of the sizes, each with room for itself alone, and what is killed under them."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane)
        self.kills: list[Kill] = []
        #: The gang of the next trial, whose PodGroups a process finds at its start.
        self._prepared: Gang | None = None

    def gang(self, size: int) -> Gang:
        """A gang that fills its room, and a younger rival that wants whole nodes there."""
        name, (nodes, gpus), where = f"k{next(numbers)}", ROOMS[size], {"room": str(size)}
        members = make.gang(name, members=size, gpus=1, node_selector=where)
        rival = make.gang(f"{name}-rival", members=nodes, gpus=gpus, node_selector=where)
        return Gang(name, size, nodes, [members[0], rival[0]], [*members[1:], *rival[1:]])

    def _create(self, gang: Gang) -> None:
        self.expect({f"default/{gang.name}": gang.size, f"default/{gang.name}-rival": gang.rivals})
        own, rival = gang.pod_groups
        self.create([own, *gang.pods[: gang.size]])
        self.create([rival, *gang.pods[gang.size :]])  # after it, lest it be a second older

    def cpu_s(self) -> float:
        """The seconds of CPU that the daemon has spent."""
        fields = Path(f"/proc/{self.daemon.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def is_settled(self, name: str) -> bool:
        """Whether the gang is bound and told so."""
        return self.is_whole(f"default/{name}") and self.is_told(f"default/{name}")

    def calls(self, size: int) -> dict[str, int]:
        """How many calls of each sort one gang takes, from the start of a process until it has no
        more to say.
        """
        gang = self.gang(size)
        self.daemon.kill()
        self._create(gang)
        before = len(self.proxy.asked)
        self.start()
        self.wait_until(lambda: self.is_settled(gang.name), within_s=WITHIN_S, what="the gang")
        self.quiet_for(QUIET_S)
        asked = self.proxy.asked[before:]
        self.clean()
        return {calls: sum(map(counts, asked)) for calls, counts in CALLS.items()}

    def trial(self, size: int, calls: str, number: int, point: Point) -> Kill:
        """Kill at a call; then everything must be as if nothing had been."""
        known, self._prepared = self._prepared, None
        gang = known if known is not None and known.size == size else self.gang(size)
        hurt = Hurt(lambda: self.daemon.pid, point)
        rules = at_call(number, hurt, CALLS[calls])
        try:
            if calls == "reads":  # most are those of a start, so the gang is there before
                self.daemon.kill()
                self._create(gang)
                self.proxy.rules[:] = rules
                self._start_to_die(hurt)
            else:
                if gang is not known:
                    make.create_all(self.api, gang.pod_groups, connections=1)
                # else the rival may be heard of first
                names = [each["metadata"]["name"] for each in gang.pod_groups]
                self.wait_until(
                    lambda: all(map(self.knows, names)), within_s=WITHIN_S, what="news of PodGroups"
                )
                self.proxy.rules[:] = rules
                self._create(gang)
            kill = self._after(Kill(size, calls, number, point.value), gang.name, hurt)
            assert self.wrongs() == []
            assert self.checks.bound(f"default/{gang.name}-rival") == 0
        finally:
            self.clean()
            self.quiet_for(0.2)
        self.kills.append(kill)
        return kill

    def _start_to_die(self, hurt: Hurt) -> None:
        try:
            self.start()
        except ControlPlaneError:
            assert hurt.done.wait(1.0), "it died, and not by our hand"

    def _after(self, kill: Kill, name: str, hurt: Hurt) -> Kill:
        """Wait for the kill, or for the end of all calls, and for what follows."""
        idle_s = time.monotonic() + WITHIN_S
        asked = -1
        while not hurt.done.is_set() and time.monotonic() < idle_s:
            if asked != len(self.proxy.asked) or not self.is_settled(name):
                asked, idle_s = len(self.proxy.asked), time.monotonic() + QUIET_S
            time.sleep(0.005)
        if not hurt.done.is_set():
            return kill
        # What was under way is carried out, as in a network; then the next process begins.
        self.wait_until(
            lambda: not self.proxy.carrying, within_s=WITHIN_S, what="answers to the dead process"
        )
        (call,) = hurt.met
        self.proxy.rules.clear()
        bound = sum(
            each.asked.subresource == "binding"
            and each.status < 300
            and each.asked.name.startswith(f"{name}-")
            for each in list(self.proxy.answered)
        )
        # kopf, which hears of new PodGroups, starts last: those of the next trial are there before
        # it.
        self._prepared = self.gang(kill.size)
        make.create_all(self.api, self._prepared.pod_groups, connections=1)
        began_s = time.monotonic()
        self.start()
        ready_s = time.monotonic() - began_s
        self.wait_until(
            lambda: self.is_settled(name), within_s=WITHIN_S, what="the gang after the restart"
        )
        cpu_s = self.cpu_s()
        whole_s = max(0.0, (self.checks.started_s(f"default/{name}") or 0.0) - began_s)
        return Kill(
            kill.size,
            kill.calls,
            kill.number,
            kill.point,
            f"{call.verb} {call.resource} {call.subresource}".strip(),
            bound,
            round(ready_s, 3),
            round(whole_s, 3),
            cpu_s,
        )


@pytest.fixture(scope="module")
def killing() -> Iterator[Killing]:
    """A daemon on a cluster with a room for each size of gang."""
    with plane_with_nodes(0, gpus=0) as plane, Killing(plane) as killing:
        for size, (nodes, gpus) in ROOMS.items():
            made = [
                make.node(f"room{size}-{i}", gpus=gpus, labels={"room": str(size)})
                for i in range(nodes)
            ]
            make.create_all(killing.api, made)
        killing.start()
        yield killing
        if REPORT:
            print("\n".join(summary(killing.kills)))


def summary(kills: list[Kill]) -> list[str]:
    """A Markdown table: one row for each size and sort of calls."""
    lines = [
        "| pods | calls | kills | gangs halved | complete after, median | at most |",
        "|---|---|---|---|---|---|",
    ]
    for size, calls in itertools.product(ROOMS, CALLS):
        of_size = [
            kill
            for kill in kills
            if (kill.size, kill.calls) == (size, calls) and not kill.call.startswith("none")
        ]
        halved = sorted(kill.whole_s for kill in of_size if kill.is_partial)
        if of_size:
            took = f"{statistics.median(halved):.2f} s | {halved[-1]:.2f} s" if halved else "– | –"
            lines.append(f"| {size} | {calls} | {len(of_size)} | {len(halved)} | {took} |")
    return lines


SHORT = [
    (1, "binds", 1, Point.BEFORE),
    (2, "binds", 1, Point.APPLIED),
    (8, "binds", 3, Point.APPLIED),
    (8, "binds", 6, Point.ANSWERED),
    (32, "binds", 2, Point.ANSWERED),
    (32, "binds", 31, Point.BEFORE),
    (8, "other writes", 4, Point.APPLIED),
    (2, "reads", 25, Point.APPLIED),
]


@pytest.mark.skipif(bool(REPORT), reason="the long form has all of these")
@pytest.mark.parametrize(("size", "calls", "number", "point"), SHORT)
def test_a_kill_leaves_no_gang_halved(
    killing: Killing, size: int, calls: str, number: int, point: Point
) -> None:
    """B4: the next process completes the gang soon; its rival gets nothing, and nothing is bound
    twice.
    """
    kill = killing.trial(size, calls, number, point)
    print(kill)
    assert kill.call != Kill.call, "there were fewer calls"
    assert not kill.is_late


@pytest.mark.parametrize("point", [Point.BEFORE, Point.APPLIED])
def test_a_kill_between_two_children_leaves_no_tree_halved(killing: Killing, point: Point) -> None:
    """B3, B4: an older rival, which may start from then on, gets none of the room that the rest of
    the tree needs.
    """
    name, where = f"t{next(numbers)}", {"room": "tree"}
    nodes = [make.node(f"{name}-{at}", gpus=4, labels={"room": "tree"}) for at in range(2)]
    gates = {"schedulingGates": [{"name": "example.com/later"}]}
    rival = make.gang(f"{name}-rival", members=1, gpus=4, node_selector=where, spec=gates)
    children = [
        make.gang(f"{name}-{child}", members=4, gpus=1, node_selector=where) for child in "ab"
    ]
    for group, *_ in children:
        group["metadata"]["annotations"] = {
            "gangsched.dev/parent": name,
            "gangsched.dev/min-children": "2",
        }
    wholes = {f"default/{group['metadata']['name']}": 4 for group, *_ in children}
    killing.wait_until(
        lambda: time.time() > guarded_since_s(killing) + 11,
        within_s=WITHIN_S,
        what="guarded stamps",
    )
    killing.expect({**wholes, f"default/{name}-rival": 1})
    killing.create([*nodes, *rival, *(group for group, *_ in children)])
    hurt = Hurt(lambda: killing.daemon.pid, point)
    try:
        killing.wait_until(
            lambda: all(map(killing.knows, names_of(children))), within_s=WITHIN_S, what="PodGroups"
        )
        killing.proxy.rules[:] = at_call(5, hurt, CALLS["binds"])
        killing.create([pod for _, *pods in children for pod in pods])
        assert hurt.done.wait(WITHIN_S), "it was not killed"
        killing.wait_until(
            lambda: not killing.proxy.carrying,
            within_s=WITHIN_S,
            what="answers to the dead process",
        )
        killing.proxy.rules.clear()
        path = f"/api/v1/namespaces/default/pods/{name}-rival-0"
        killing.api.patch(path, {"spec": {"schedulingGates": None}})
        killing.start()
        killing.wait_until(
            lambda: all(map(killing.is_whole, wholes)), within_s=WITHIN_S, what="the whole tree"
        )
        assert killing.checks.bound(f"default/{name}-rival") == 0
    finally:
        killing.clean()


def guarded_since_s(killing: Killing) -> int:
    """Since when only gangsched may write stamps."""
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/gangsched-stamp"
    created = killing.api.get(path)["metadata"]["creationTimestamp"]
    return parse_timestamp(created) or 0


def names_of(gangs: list[list[Object]]) -> list[str]:
    """The names of the PodGroups of these gangs."""
    return [group["metadata"]["name"] for group, *_ in gangs]


@pytest.mark.skipif(not REPORT, reason="make kills")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("calls", SORTS)
def test_every_call(killing: Killing, size: int, calls: str) -> None:
    """Every call of a gang, at three points each."""
    last = killing.calls(size)[calls]
    numbers = range(FIRST, last + 1, STRIDES.get(f"{size} {calls}", 1))
    print(
        f"{size} pods: {last} {calls}, killed at {len(numbers)} of them, thrice each; load"
        f" {os.getloadavg()[0]:.1f}"
    )
    wrong: list[str] = []
    for number, point in itertools.product(numbers, Point):
        try:
            kill = killing.trial(size, calls, number, point)
        # the other calls are tried all the same
        except (AssertionError, TimeoutError, ControlPlaneError) as error:
            wrong.append(f"{number} {point.value}: {error}")
            print(wrong[-1], flush=True)
            killing.start()
            continue
        with Path(REPORT).open("a") as report:
            report.write(json.dumps(asdict(kill)) + "\n")
        wrong += [f"late: {kill}"] * kill.is_late
    assert wrong == []
