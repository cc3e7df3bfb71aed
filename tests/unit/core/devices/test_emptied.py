"""Devices of the empty cluster: which gangs have a reservation, and what later pods may use beside
it.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from gangsched.api import keys
from gangsched.core.devices.device_index import DeviceIndex
from gangsched.core.devices.emptied import emptied
from gangsched.core.devices.views import ClaimPlace
from gangsched.model.devices import CLASS_PREFIX, DeviceClaim, DeviceRequest, DeviceResult
from gangsched.model.objects import Pod
from gangsched.model.protocol import Applied, Replaced
from gangsched.model.reservation import NotEntitled, ReservationLimits
from gangsched.model.storage import ResourceClaim
from gangsched.state.rule_set import Rules
from tests.builders import node, pod
from tests.sizes import of_size
from tests.unit.core.filter.volumes.test_extended_claims import holding
from tests.unit.state.test_served import CLASSES, devices_of, gang_of, placed, wanting, world_of
from tests.world import EPOCH_S, World

RULES = Rules(allocates=True, reservations=ReservationLimits(share=1.0))


def waiting(models: str, *, wanted: int = 2, **of_pod: Any) -> World:
    """A gang waits for `wanted` devices of a node of which a pod has the first two."""
    low, claim = holding("low", "a0", "a1", **of_pod)
    world = world_of([node("n0", gpus=0)], [devices_of("n0", models)], rules=RULES)
    world.say(Replaced(ResourceClaim, (claim,)))
    world.create([msgspec.structs.replace(low, start_s=EPOCH_S + 1_000)])
    world.create(gang_of(wanting(wanted)))
    return world.settle()


def lasting(seconds: int) -> dict[str, Any]:
    """Fields of a pod that is expected to run for so long."""
    return {"run_time_metadata": ((keys.EXPECTED_RUNTIME, f"{seconds}s"),)}


def test_a_gang_has_a_reservation_when_the_devices_in_use_become_free() -> None:
    """H3, H5: the gang starts once they are, before others."""
    world = waiting("aab", **lasting(100))
    (reserved,) = world.state.reservations.standing
    assert (reserved.group, reserved.nodes, reserved.at_s) == ("ns/g", ("n0",), EPOCH_S + 1_100)
    world.delete(world.pods["low"])
    world.create([pod("late", uid="late", of=wanting(1), creation_s=10**9)])
    world.settle()
    assert placed(world) == {}, "the devices are still allocated to the claim"
    world.say(Replaced(ResourceClaim, ()))
    world.settle()
    assert set(placed(world)) == {"u0"}


@pytest.mark.parametrize(
    ("late", "starts"),
    [
        (pod("late", uid="late", of=wanting(1)), False),
        (pod("late", uid="late", of=wanting(1), **lasting(60)), True),
        (pod("late", uid="late", of=wanting(1), **lasting(600)), False),
        (pod("late", uid="late", of=wanting(1), priority=1), True),
        (pod("late", uid="late"), True),
    ],
)
def test_later_pods_leave_the_devices_of_reserved_nodes(late: Pod, starts: bool) -> None:
    """H8: sums would let a pod have one of four devices beside three, though only three are of the
    gang's model.
    """
    world = waiting("aaab", wanted=3, **lasting(100))
    world.create([late])
    world.settle()
    started = "late" in placed(world) or "late" in world.bound()
    assert started is starts, world.verdict("pod:ns/late").told


def test_devices_of_daemons_are_never_free() -> None:
    """H3: a gang that needs them is no head, though sums would let it; if others use them without
    an end, it has a fence.
    """
    world = waiting("aabb", controller_kind="DaemonSet")
    assert world.state.reservations.standing == ()
    (why,) = [
        each.ineligible.why
        for each in world.state.registry.groups.values()
        if each.ineligible is not None
    ]
    assert why.why is NotEntitled.IMPOSSIBLE
    (reserved,) = waiting("aab").state.reservations.standing
    assert reserved.nodes == ("n0",)
    assert reserved.at_s == float("inf")


@pytest.mark.long
def test_it_follows_the_slices() -> None:
    """Rooms are those of an index to which only the claims of daemons were told, whatever changes
    in whatever order.
    """
    claim = DeviceClaim(
        name="c", requests=((DeviceRequest(name="r", class_name="class-a", count=1),),)
    )
    for seed in range(of_size(30, 100)):
        rng, index, slices = Random(seed), DeviceIndex(), dict[str, str]()
        for each in CLASSES:
            index.apply(each)
        daemons: dict[str, tuple[DeviceResult, ...]] = {}
        for _ in range(20):
            name = rng.choice(["n0", "n1"])
            held = (DeviceResult("r", ("d", name, f"a{rng.randrange(3)}")),)
            match rng.randrange(4):
                case 0:
                    slices[name] = "".join(rng.choices("ab", k=rng.randrange(4)))
                    index.apply(devices_of(name, slices[name]))
                case 1:
                    is_lasting = rng.random() < 0.5
                    index.hold(f"claim-{name}", held, is_lasting=is_lasting)
                    daemons[name] = held if is_lasting else ()
                case 2:
                    index.hold(f"claim-{name}", ())
                    daemons[name] = ()
                case _:
                    index.search(index.kind((claim,)), ClaimPlace(name))
            alone = DeviceIndex()
            for of_class in CLASSES:
                alone.apply(of_class)
            for item in slices.items():
                alone.apply(devices_of(*item))
            for name, results in daemons.items():
                alone.hold(name, results)
            kind = index.kind((claim,))
            for name in slices:
                place, made = ClaimPlace(name), emptied(index)
                found = made.known(kind, place) or made.search(kind, place)[0]
                assert found == alone.search(alone.kind((claim,)), place)[0], seed
            assert made.extended.keys() >= {CLASS_PREFIX + "class-a"} if slices else True


def test_a_reservation_for_devices_of_many_nodes_takes_several_plans() -> None:
    """A plan has the work for about 50 nodes; the next ones go on, and the gang is
    told meanwhile.
    """
    nodes = [f"n{n}" for n in range(60)]
    world = world_of(
        [node(each, gpus=0) for each in nodes],
        [devices_of(each, "aaaa") for each in nodes],
        rules=RULES,
    )
    for number, name in enumerate(nodes):
        low, claim = holding(f"low{number}", "a0", "a1", "a2", "a3", **lasting(100 + number))
        assert claim.asks is not None
        results = tuple(
            msgspec.structs.replace(each, id=("d", name, each.id[2]))
            for each in claim.asks.results or ()
        )
        asks = msgspec.structs.replace(claim.asks, results=results)
        world.say(Applied(msgspec.structs.replace(claim, asks=asks)))
        world.create([msgspec.structs.replace(low, node_name=name, start_s=EPOCH_S + 1_000)])
    world.create(gang_of(*[wanting(4)] * 30))
    world.settle()
    whys = [
        each.not_reserved.why
        for each in world.state.registry.groups.values()
        if each.not_reserved is not None
    ]
    assert whys == [NotEntitled.SEARCHING]
    before = len(world.plans)
    world.advance(10)
    starts_s = [each.at_s for each in world.state.reservations.standing]
    assert starts_s == [EPOCH_S + 1_129], "when the devices of 30 nodes are free"
    assert len(world.plans) - before < 10
