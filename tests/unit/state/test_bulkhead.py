"""The bulkhead: what is raised for one group sets that group aside, and no other
(semantics I10).
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from msgspec import structs

from gangsched.api import keys
from gangsched.core import cycle
from gangsched.model.devices import (
    DeviceClaim,
    DeviceClass,
    DeviceScope,
    DeviceTaintRule,
    ResourceSlice,
)
from gangsched.model.fault import FaultPlace, InternalFault
from gangsched.model.objects import ClaimUse, Pod, Service
from gangsched.model.protocol import Replaced
from gangsched.model.reservation import ReservationLimits
from gangsched.model.storage import ResourceClaim
from gangsched.settings import Settings
from gangsched.snapshots import file, kept
from gangsched.snapshots.playing import ReplayedVerdict, decide
from gangsched.state.bulkhead import LONGEST_PAUSE_S, LONGEST_RETRY_S
from gangsched.state.gangs import GangRecord
from gangsched.state.groups import Registry
from gangsched.state.rule_set import Rules
from tests.builders import members, node, pod, running
from tests.unit.state.planting import Plant, PlantedError
from tests.unit.state.test_device_binding import ASKS, slice_of
from tests.world import WALL, World

RACK = "example.com/rack"
SETTINGS = Settings(devices=DeviceScope.ALL)
TOLD = "gangsched could not plan this gang because of an internal error (reference "


# --- what the group that raises does ------------------------------------------------------------


def starts(world: World) -> list[Pod]:
    """A gang that fits."""
    return world.create(members("g", 2, gpus=4, namespace="bad"))


def states_a_rack(world: World) -> list[Pod]:
    """A gang in a rack that has the room for it in sum, though not on its nodes: every way is
    tried.
    """
    world.create(running(pod(f"low-{name}", gpus=4, namespace="low"), name) for name in "ab")
    world.settle()
    stated: dict[str, Any] = {"namespace": "bad", "topology": RACK, "min_member": 3}
    sizes = (
        members("g", 1, first=number, gpus=gpus, **stated) for number, gpus in enumerate((3, 3, 2))
    )
    return world.create(*sizes)


def is_a_tree(world: World) -> list[Pod]:
    """Two gangs of one parent."""
    both = (members(name, 1, gpus=4, namespace="bad", parent="whole") for name in ("g", "h"))
    return world.create(*both)


def holds(world: World) -> list[Pod]:
    """A gang that holds room for one of its members."""
    world.create(running(pod("low-b", gpus=8, namespace="low"), "b"))
    world.settle()
    return world.create(members("g", 2, gpus=8, namespace="bad", mode="NonStrict"))


def preempts(world: World) -> list[Pod]:
    """A gang for which others have to leave."""
    low = [pod(f"low-{name}", gpus=8, namespace="low") for name in "ab"]
    world.create(running(each, each.name[-1]) for each in low)
    world.settle()
    return world.create(members("g", 2, gpus=8, namespace="bad", priority=1_000))


def waits(world: World) -> list[Pod]:
    """A gang that waits for pods to end, and gets a reservation."""
    stated = ((keys.EXPECTED_RUNTIME, "100s"),)
    both = [pod(f"run-{name}", gpus=8, namespace="low", run_time_metadata=stated) for name in "ab"]
    world.create(running(each, each.name[-1]) for each in both)
    world.settle()
    return world.create(members("g", 2, gpus=8, namespace="bad"))


def claims_devices(world: World) -> list[Pod]:
    """Two pods, each with a device of its own."""
    world.controller = False
    world.say(
        Replaced(ResourceSlice, (slice_of("a", "d0", "d1"),)),
        Replaced(DeviceClass, (DeviceClass("gpu"),)),
        Replaced(DeviceTaintRule, ()),
    )
    made = members("g", 2, gpus=0, namespace="bad")
    uses = [structs.replace(each, claims=(ClaimUse(each.name, device=True),)) for each in made]
    asked = (
        DeviceClaim(namespace="bad", name=each.name, uid=each.name, requests=ASKS) for each in made
    )
    world.say(
        Replaced(
            ResourceClaim,
            tuple(
                ResourceClaim(
                    namespace="bad", name=each.name, uid=each.name, resource_version="1", asks=each
                )
                for each in asked
            ),
        )
    )
    return world.create(uses)


Scene = Callable[[World], list[Pod]]
PLACES: dict[str, tuple[str, Scene]] = {
    "read the run time": ("state.gangs:GangRecord.read_run_time", starts),
    "read the declaration": ("state.gangs:GangRecord.read_spec", starts),
    "the view of a gang": ("state.groups:gang_view", starts),
    "form a group": ("state.groups:Registry._resolve", starts),
    "the view of a group": ("state.groups:heals", starts),
    "the minimum of a tree": ("core.tree_choices:needed", is_a_tree),
    "follow a changed group": ("state.holds:Holds.follow", starts),
    "the order of the queue": ("core.cycle:group_key", starts),
    "release": ("core.decision:_end_holds", starts),
    "refuse": ("core.pre_filter:refusals", starts),
    "arithmetic": ("core.pre_filter:arithmetic", starts),
    "decide": ("core.decision:decide", starts),
    "a round": ("core.rounds:run_round", starts),
    "filter": ("core.reserve:room", starts),
    "score": ("core.score:choose", starts),
    "reserve": ("core.reserve:Ledger.reserve", starts),
    "permit": ("core.rounds:permitted", starts),
    "a tree": ("core.trees:TreeDecision._choose", is_a_tree),
    "search": ("core.rounds:find", states_a_rack),
    "preempt": ("core.preemption.attempt:Attempt.make_room", preempts),
    "choose victims": ("core.preemption.selection:Region.cheapest", preempts),
    "stand": ("core.reservations.standing:Standing.turn", waits),
    "a new reservation": ("core.reservations.new_reservation:find_time", waits),
    "devices": ("core.devices.device_use:DeviceUse.solve", claims_devices),
    "chosen devices": ("core.extensions:with_devices", claims_devices),
    "work for members to come": ("core.pipeline:Plan", starts),
    "commit": ("state.committer:Committer.commit", starts),
    "commit a bind": ("state.committer:Committer._bind", starts),
    "halfway through a commit": ("state.committer:Committer._after", starts),
    "commit a hold": ("state.committer:Committer._place", holds),
    "after a commit": ("state.preemption.nominations:Nominations.planned", starts),
    "begin a nomination": ("state.preemption.nominations:Nominations.begin", preempts),
    "settle a reservation": ("state.reserving.reservations:StandingReservations.settled", waits),
    "the answer to a bind": ("state.scheduling:SchedulingState._answer", starts),
    "conditions": ("state.reporting.reports:pod_conditions", waits),
    "events": ("state.reporting.reports:Reports._tell_gang", waits),
}


def clusters(**fields: Any) -> World:
    """Two nodes in two racks, where internal errors are expected."""
    rules = Rules(allocates=True, reservations=ReservationLimits(share=1.0))
    world = World(
        *(node(name, 8, labels={RACK: "r"}) for name in "ab"), rules=rules, preempts=True, **fields
    )
    world.has_faults = True
    return world


def arrive(world: World, name: str) -> list[Pod]:
    """A gang of another namespace, which always fits."""
    return world.create(members(name, 2, gpus=0, cpu_milli=100, namespace="good", priority=1))


def replay_of(world: World, directory: Path) -> list[ReplayedVerdict]:
    """What `kubectl gangsched replay` says of the file that the daemon keeps about the
    last fault.
    """
    path = kept.keep(
        directory, world.faults[-1], [*world.known(), *world.others.values()], SETTINGS, WALL
    )
    assert path is not None
    return decide(file.read(path), SETTINGS)


@pytest.mark.parametrize("place", PLACES)
def test_others_go_on_while_one_group_raises(place: str, tmp_path: Path) -> None:
    """I10: gangs beside the one that raises start at once, it is told, and it starts once the fault
    is gone.
    """
    target, scene = PLACES[place]
    world = clusters()
    plant = Plant(target, lambda namespace: namespace == "bad")
    with plant.planted(world):
        beside = arrive(world, "beside")
        bad = scene(world)
        world.advance(1)
        after = arrive(world, "after")
        world.advance(1)
        assert plant.hits, "the plant is never reached"
        assert {each.name for each in (*beside, *after)} <= world.bound().keys()
        assert {fault.group.partition("/")[0].split(":")[-1] for fault in world.faults} == {"bad"}
        waiting = [each for each in bad if each.name not in world.bound()]
        assert [world.condition(each)[0] for each in waiting] == ["InternalError"] * len(waiting)
        assert all(world.condition(each)[1].startswith(TOLD) for each in waiting)
        tried = plant.hits
        world.advance(100)
        assert plant.hits - tried < 200, "it is tried again and again"
        replayed = {each.gang: each.reason for each in replay_of(world, tmp_path)}
        if target.startswith("core."):
            assert {replayed[gang] for gang in replayed if gang.startswith("bad/")} == {
                "InternalError"
            }
    number = len(world.faults)
    world.advance(LONGEST_RETRY_S)
    assert len(world.faults) == number
    assert not any(group.aside for group in world.state.registry.groups.values())


@pytest.mark.parametrize("place", [each for each in PLACES if each != "the answer to a bind"])
def test_a_fault_of_all_groups_ends_with_its_cause(place: str) -> None:
    """I10: everybody who waits is told, nothing spins, and all start once the fault is gone."""
    target, scene = PLACES[place]
    world = clusters()
    plant = Plant(target, lambda namespace: namespace in {"bad", "good"})
    with plant.planted(world):
        bad = scene(world)
        others = arrive(world, "beside")
        world.advance(2)
        assert plant.hits, "the plant is never reached"
        for each in (*bad, *others):
            assert each.name in world.bound() or world.condition(each)[0] == "InternalError"
        tried = plant.hits
        world.advance(100)
        assert plant.hits - tried < 500, "it is tried again and again"
    world.advance(LONGEST_RETRY_S)
    assert {each.name for each in others} <= world.bound().keys()
    assert not any(group.aside for group in world.state.registry.groups.values())


def test_hundreds_of_groups_that_raise_keep_nobody_waiting() -> None:
    """I10: of 300 groups of one namespace a few are tried in a turn, and the others are decided in
    the first ones.
    """
    world = clusters()
    plant = Plant("core.decision:decide", lambda namespace: namespace == "bad")
    with plant.planted(world):
        bad = [world.create(members(f"g{n}", 1, namespace="bad", priority=9)) for n in range(300)]
        beside = arrive(world, "beside")
        for _ in range(3):
            world.turn()
        world.answer()
        assert {each.name for each in beside} <= world.bound().keys()
        world.advance(1)
        assert all(world.condition(each)[0] == "InternalError" for (each,) in bad)


def test_a_fault_outside_of_any_step_is_found_by_halves() -> None:
    """I10: of 40 groups the one without which the plan succeeds, whatever its place in
    the order.
    """
    for place in (0, 1, 17, 38, 39):
        world = clusters()
        plant = Plant("core.pipeline:Plan", lambda namespace: namespace == f"n{place}")  # noqa: B023
        with plant.planted(world):
            made = [
                world.create(members(f"g{n}", 1, gpus=0, cpu_milli=1, namespace=f"n{n}"))
                for n in range(40)
            ]
            world.advance(1)
        waiting = world.pending()
        assert waiting == {f"g{place}-0"}
        assert world.condition(made[place][0])[0] == "InternalError"


def test_a_fault_that_is_nobodys_pauses_planning() -> None:
    """I10: attempts come after 1, 2, 4 s and so on, no group is blamed, and the first one that
    succeeds ends it.
    """
    world = clusters()
    pods = arrive(world, "g")
    with patch.object(cycle, "Ledger", side_effect=PlantedError) as ledger:
        world.advance(60)
        assert len({fault.reference for fault in world.faults}) * ledger.call_count >= 5
        assert len(world.faults) < 10
        assert {fault.group for fault in world.faults} == {""}
        assert world.state.bulkhead.pause.failures >= 3
        number = len(world.faults)
        for index in range(5):
            arrive(world, f"more-{index}")
            world.turn()
        assert len(world.faults) == number, "messages do not end the pause"
    world.advance(LONGEST_PAUSE_S)
    assert {each.name for each in pods} <= world.bound().keys()
    assert world.state.bulkhead.pause.fault is None


def test_a_change_is_tried_at_once_and_time_ever_more_rarely() -> None:
    """I10: a second after the last failure at the earliest; else after back-offs that double up to
    an hour.
    """
    world = clusters()
    plant = Plant("core.decision:decide", lambda namespace: namespace == "bad")
    with plant.planted(world):
        first, *_ = starts(world)
        world.advance(100)
        assert plant.hits == 7  # at 0, 1, 3, 7, 15, 31 and 63 s
        world.update(first, priority=7)
        world.advance(0)
        assert plant.hits == 8
        for priority in range(50):
            world.update(first, priority=priority)
            world.advance(0.01)
        assert plant.hits == 8
        world.advance(1)
        assert plant.hits == 9
        world.advance(20 * LONGEST_RETRY_S)
        assert plant.hits < 40
    world.update(first, priority=11)
    world.advance(2)
    assert "g-0" in world.bound()


def test_a_group_that_is_set_aside_holds_and_promises_nothing() -> None:
    """I10: its holds are free for others at once."""
    world = clusters()
    bad = holds(world)
    world.advance(1)
    assert world.held()
    plant = Plant("core.decision:decide", lambda namespace: namespace == "bad")
    with plant.planted(world):
        world.update(bad[0], priority=3)
        world.advance(1)
        assert not world.held()
        world.create(members("other", 1, gpus=8, namespace="good"))
        world.advance(1)
        assert world.bound()["other-0"] == "a"


def test_a_suspect_is_set_aside_before_it_is_planned() -> None:
    """I10: neither a restart nor its return under the same name has it planned within the hour;
    others are.
    """
    world = clusters()
    world.state.bulkhead.suspect("bad/g")
    plant = Plant("core.decision:decide", lambda namespace: namespace == "bad")
    with plant.planted(world):
        bad = starts(world)
        beside = arrive(world, "beside")
        world.advance(10)
        assert plant.hits == 0
        assert world.state.bulkhead.is_suspect("bad/g")
    assert {each.name for each in beside} <= world.bound().keys()
    assert all(world.condition(each)[1].startswith(TOLD) for each in bad)
    world.advance(LONGEST_RETRY_S)
    assert {each.name for each in bad} <= world.bound().keys()
    assert not world.state.bulkhead.is_suspect("bad/g")


def test_no_fault_is_swallowed_where_nobody_hears() -> None:
    """Simulations, tests and benchmarks fail with the exception itself."""
    world = clusters()
    world.has_faults = False
    plant = Plant("core.decision:decide", lambda namespace: True)
    with plant.planted(world):
        starts(world)
        with pytest.raises(PlantedError):
            world.advance(1)


def test_a_kept_file_has_no_label_and_no_message_that_is_not_read(tmp_path: Path) -> None:
    """As confidential as a snapshot: what nothing selects stays in the cluster, and files are few
    and private.
    """
    world = clusters()
    labels = {"team": "secret", "app": "selected"}
    each, *_ = world.create(pod("p", namespace="bad", labels=labels, rejection="quoted"))
    world.say(
        Replaced(
            Service,
            (Service(namespace="bad", name="s", selector=frozenset({("app", "selected")})),),
        )
    )
    paths = []
    for number in range(8):
        fault = InternalFault(f"{number:04x}", FaultPlace.PLAN, "", "")
        known = [*world.known(), *world.others.values()]
        path = kept.keep(tmp_path / "kept", fault, known, SETTINGS, WALL)
        assert path is not None
        os.utime(path, ns=(number, number))
        paths.append(path)
    assert sorted((tmp_path / "kept").iterdir()) == paths[3:]
    assert {path.stat().st_mode & 0o777 for path in paths[3:]} == {0o600}
    text = gzip.decompress(paths[-1].read_bytes()).decode()
    assert "selected" in text
    assert "secret" not in text
    assert "quoted" not in text
    assert file.read(paths[-1]).decoded
    assert each.name in text


@pytest.mark.parametrize("raises", ["bad/g", "bad/h"])
def test_gangs_of_one_group_are_never_in_two(raises: str) -> None:
    """I10: if one of them cannot be grouped, each is in a group of its own, and together again
    afterwards.
    """
    world = clusters()
    listed = ("bad/g", "bad/h")
    real = Registry._resolve

    def resolve(self: Registry, record: GangRecord) -> Any:
        if record.id == raises:
            raise PlantedError
        return real(self, record)

    registry = world.state.registry
    with patch.object(Registry, "_resolve", resolve):
        for name in ("g", "h"):
            world.create(members(name, 2, namespace="bad", groups=listed))
        world.advance(1)
        for group in registry.groups.values():
            assert {registry.group_of[gang] for gang in group.gangs} == {group.id}
        assert world.pending() == {"g-0", "g-1", "h-0", "h-1"}
    world.advance(LONGEST_RETRY_S)
    assert not world.pending()
    assert registry.group_of == {"bad/g": "bad/g", "bad/h": "bad/g"}
