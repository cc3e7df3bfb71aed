"""Two replicas under load: whoever is killed, stopped or told to go, one binds and only one, and
soon.

`make leader-trials N=20` runs the long form: the lease's default times, 20 trials of each kind.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from random import Random
from typing import TypeVar

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api
from control_plane.checks import Checks
from control_plane.daemon import Daemon
from control_plane.following import Following

from tests.crowd import GPUS, Crowd, Made
from tests.faults.recording import RecordingProxy, Write, by_non_holders
from tests.kwok_plane import plane_with_nodes

pytestmark = pytest.mark.e2e

T = TypeVar("T")
TRIALS = int(os.environ.get("LEADER_TRIALS", "0"))
KINDS = os.environ.get("LEADER_KINDS", "killed,stopped,told_to_go").split(",")
DURATION_S = 15.0 if TRIALS else 5.0
LEASE = "/apis/coordination.k8s.io/v1/namespaces/gangsched-system/leases/gangsched"
NODES = 4
GANGS, RUN_S = 8, 0.3
WITHIN_S = 2 * DURATION_S + 20.0


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane whose nodes have a kubelet of kwok's, so that deleted pods go."""
    with plane_with_nodes(NODES, gpus=GPUS) as plane:
        yield plane


def of_four(name: str, _random: Random, _nodes: int) -> Made:
    """Gangs that are alike, so that take-overs can be compared."""
    return make.gang(name, members=4, gpus=2), {name: 4}


class Load:
    """Gangs of four that run for a moment and are replaced, in a thread, so that there is always
    something to bind.
    """

    def __init__(self, plane: ControlPlane, checks: Checks) -> None:
        self._api = Api.of(plane)
        self.crowd = Crowd(self._api, checks, Random(1), "load", NODES, kinds=(of_four,))
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self.failed: BaseException | None = None

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        self._api.close()

    def _run(self) -> None:
        try:
            while not self._ends.wait(0.05):
                self.crowd.refill(GANGS)
                self.crowd.take_away(self.crowd.started(ran_s=RUN_S))

            deadline_s = time.monotonic() + WITHIN_S
            while self.crowd.jobs:  # nothing is lost: all that were created start
                assert time.monotonic() < deadline_s, (
                    f"these gangs never started: {sorted(self.crowd.jobs)}"
                )
                self.crowd.take_away(self.crowd.started(ran_s=RUN_S))
                time.sleep(0.05)
        except BaseException as error:
            self.failed = error


class Pair:
    """Two replicas, "a" and "b", each behind a proxy of its own."""

    def __init__(self, plane: ControlPlane, *, extra_args: Sequence[str] = ()) -> None:
        self.plane = plane
        self._extra_args = extra_args
        self.writes: list[Write] = []
        self.replicas: dict[str, Daemon] = {}
        self.log_lines: list[dict[str, object]] = []
        self._stack = ExitStack()

    def __enter__(self) -> Pair:
        for name in ("a", "b"):
            proxy = self._stack.enter_context(RecordingProxy(self.plane, name, self.writes))
            environment = {
                "GANGSCHED_IDENTITY": name,
                "GANGSCHED_LEASE_DURATION_S": str(DURATION_S),
            }
            self.replicas[name] = Daemon(
                self.plane,
                url=proxy.url,
                extra_args=["--leader-elect", *self._extra_args],
                environment=environment,
                log_path=self.plane.logs / f"replica-{name}.log",
            )
            self.replicas[name].start()
            self.await_leader()
        return self

    def __exit__(self, *_: object) -> None:
        for replica in self.replicas.values():
            replica.kill()
        self._stack.close()

    def role(self, name: str) -> str:
        """What /readyz says; "" when nobody answers."""
        try:
            return str(json.loads(self.replicas[name].http("/readyz")[1])["role"])
        except OSError:
            return ""

    def await_leader(self, *names: str) -> str:
        """Until one of these leads, by default of all that run."""
        running = names or [name for name, replica in self.replicas.items() if replica.pid]
        return wait(
            lambda: next((name for name in running if self.role(name) == "leader"), None),
            "a leader",
        )

    def first_bind_s(self, name: str, after_s: float) -> float:
        """When a replica's first successful bind after a moment was answered."""

        def look() -> float | None:
            binds = (
                w
                for w in list(self.writes)
                if w.client == name and w.asked.subresource == "binding"
            )
            return next(
                (w.answered_s for w in binds if w.arrived_s > after_s and w.status < 300), None
            )

        return wait(look, f"a bind by {name}")


def wait(look: Callable[[], T | None], what: str, within_s: float = WITHIN_S) -> T:
    """The first result that is not None."""
    deadline_s = time.monotonic() + within_s
    while (found := look()) is None:
        assert time.monotonic() < deadline_s, f"not within {within_s:g} s: {what}"
        time.sleep(0.01)
    return found


def other(name: str) -> str:
    return "b" if name == "a" else "a"


def killed(pair: Pair, leader: str) -> float:
    """SIGKILL; the seconds until the other binds."""
    began_s = time.monotonic()
    pair.replicas[leader].kill()
    took_s = pair.first_bind_s(other(leader), began_s) - began_s
    pair.replicas[leader].start()
    return took_s


def stopped(pair: Pair, leader: str) -> float:
    """SIGSTOP, and SIGCONT when the other has been binding for a moment."""
    replica, began_s = pair.replicas[leader], time.monotonic()
    os.kill(replica.pid, signal.SIGSTOP)
    try:
        took_s = pair.first_bind_s(other(leader), began_s) - began_s
        pair.first_bind_s(other(leader), time.monotonic() + 0.2)
    finally:
        os.kill(replica.pid, signal.SIGCONT)
    went_on_s = time.monotonic()
    wait(lambda: pair.role(leader) == "standby" or None, "the stopped replica to stand by")
    pair.first_bind_s(other(leader), went_on_s)
    replica.check()  # it stands by, and is the same process
    return took_s


def told_to_go(pair: Pair, leader: str) -> float:
    """SIGTERM; it releases the lease and ends with 0."""
    began_s = time.monotonic()
    assert pair.replicas[leader].stop() == 0
    took_s = pair.first_bind_s(other(leader), began_s) - began_s
    events = [
        line.get("event")
        for line in pair.replicas[leader].log_lines()
        if line.get("event") != "planned"
    ]
    assert "released the lease" in events, events
    pair.replicas[leader].start()
    return took_s


#: In the short form others may use the machine: there it is enough that nobody waits for the lease
#: to run out.
LIMITS = {
    killed: DURATION_S + 1.0,
    stopped: DURATION_S + 1.0,
    told_to_go: 0.5 if TRIALS else DURATION_S / 2,
}


def test_one_binds_and_only_one_whatever_becomes_of_the_leader(plane: ControlPlane) -> None:
    """No write of a replica without the lease, no over-commit, nothing lost; take-overs as fast as
    promised.
    """
    checks = Checks(limit_s=DURATION_S + 5.0)
    api = Api.of(plane)
    times: dict[str, list[float]] = {}
    with (
        Following(api, "/api/v1/nodes", on_change=checks.node_changed),
        Following(api, "/api/v1/pods", on_change=checks.pod_changed),
        Pair(plane) as pair,
    ):
        with Load(plane, checks) as load:
            for trial, limit_s in (
                (trial, LIMITS[trial]) for trial in LIMITS if trial.__name__ in KINDS
            ):
                for _ in range(TRIALS or (2 if trial is told_to_go else 1)):
                    leader = pair.await_leader()
                    pair.first_bind_s(leader, time.monotonic())
                    times.setdefault(trial.__name__, []).append(trial(pair, leader))
                    print(
                        f"{trial.__name__} {leader}: {times[trial.__name__][-1]:.2f} s", flush=True
                    )
                    assert load.failed is None, load.failed
                found = sorted(times[trial.__name__])
                print(
                    f"{trial.__name__}: {len(found)} trials, take-over median"
                    f" {statistics.median(found):.2f} s, {found[0]:.2f}–{found[-1]:.2f} s, limit"
                    f" {limit_s:g} s"
                )
        assert load.failed is None, load.failed
        leader = pair.await_leader()
        assert sorted(pair.role(name) for name in pair.replicas) == ["leader", "standby"]
        status = {name: replica.metrics() for name, replica in pair.replicas.items()}
        for name in pair.replicas:
            assert status[name]['leader_election_master_status{name="gangsched"}'] == (
                name == leader
            )
            assert pair.replicas[name].complaints() == []
        pair.replicas[other(leader)].stop()
        pair.replicas[leader].stop()
        assert api.get(LEASE)["spec"]["holderIdentity"] == ""
        binds = sum(
            each.asked.subresource == "binding" and each.status < 300 for each in pair.writes
        )
        wrong = by_non_holders(pair.writes)
        print(
            f"{load.crowd.created} gangs, {binds} binds, {len(pair.writes)} writes,"
            f" {len(wrong)} by a non-holder"
        )
    api.close()
    assert wrong == []
    assert checks.violations == []
    assert {
        name for name, found in times.items() if statistics.median(found) >= LIMITS[globals()[name]]
    } == set()
