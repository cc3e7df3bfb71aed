"""The bulkhead: what is raised for one group sets that group aside, and no other (semantics I10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from gangsched.api import keys
from gangsched.model.devices import DeviceClaim, DeviceClass, DeviceTaintRule, ResourceSlice
from gangsched.model.objects import ClaimUse, Pod
from gangsched.model.protocol import Replaced
from gangsched.model.reservation import ReservationLimits
from gangsched.model.storage import ResourceClaim
from gangsched.state.bulkhead import LONGEST_RETRY_S
from gangsched.state.rule_set import Rules
from tests.builders import members, node, pod, running
from tests.unit.state.planting import Plant
from tests.unit.state.test_device_binding import ASKS, slice_of
from tests.world import World

RACK = "example.com/rack"
TOLD = "gangsched could not plan this gang because of an internal error (reference "


# --- what the group that raises does ----------------------------------------------------------------------------------


def starts(world: World) -> list[Pod]:
    """A gang that fits."""
    return world.create(members("g", 2, gpus=4, namespace="bad"))


def states_a_rack(world: World) -> list[Pod]:
    """A gang in a rack that has the room for it in sum, though not on its nodes: every way is tried."""
    world.create(running(pod(f"low-{name}", gpus=4, namespace="low"), name) for name in "ab")
    world.settle()
    stated: dict[str, Any] = {"namespace": "bad", "topology": RACK, "min_member": 3}
    sizes = (members("g", 1, first=number, gpus=gpus, **stated) for number, gpus in enumerate((3, 3, 2)))
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
    asked = (DeviceClaim(namespace="bad", name=each.name, uid=each.name, requests=ASKS) for each in made)
    world.say(
        Replaced(
            ResourceClaim,
            tuple(
                ResourceClaim(namespace="bad", name=each.name, uid=each.name, resource_version="1", asks=each)
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
    "release": ("core.cycle:_end_holds", starts),
    "refuse": ("core.pre_filter:refusals", starts),
    "arithmetic": ("core.pre_filter:arithmetic", starts),
    "decide": ("core.cycle:decide", starts),
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
    "chosen devices": ("core.cycle:with_devices", claims_devices),
    "work for members to come": ("core.cycle:Plan", starts),
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
    world = World(*(node(name, 8, labels={RACK: "r"}) for name in "ab"), rules=rules, preempts=True, **fields)
    world.has_faults = True
    return world


def arrive(world: World, name: str) -> list[Pod]:
    """A gang of another namespace, which always fits."""
    return world.create(members(name, 2, gpus=0, cpu_milli=100, namespace="good", priority=1))


@pytest.mark.parametrize("place", PLACES)
def test_others_go_on_while_one_group_raises(place: str) -> None:
    """I10: gangs beside the one that raises start at once, it is told, and it starts once the fault is gone."""
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
    number = len(world.faults)
    world.advance(LONGEST_RETRY_S)
    assert len(world.faults) == number
    assert not any(group.aside for group in world.state.registry.groups.values())
