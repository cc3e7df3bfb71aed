"""Extended resources that devices serve, beside pods that have the devices: preemption and
reservations.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gangsched.model.objects import ClaimUse, Pod
from gangsched.model.protocol import BindClaims, Gone, Replaced
from gangsched.model.storage import ResourceClaim
from gangsched.state.validate import validate
from tests.builders import node, pod, running
from tests.unit.state.test_served import (
    device,
    devices_of,
    gang_of,
    made,
    orders,
    wanting,
    world_of,
)


def holding(name: str, *devices: str, **fields: Any) -> tuple[Pod, ResourceClaim]:
    """A pod that runs on n0 with these devices, and its claim."""
    claim = made(name, name, *devices, count=len(devices))
    use = ClaimUse(claim.name, ephemeral=True, device=True, extended=True)
    return (
        running(pod(name, uid=name, of=wanting(len(devices)), claims=(use,), **fields), "n0"),
        claim,
    )


def test_a_gang_preempts_for_extended_resources() -> None:
    """A22: the devices of victims count; they are had once the victim's claim is gone, and not
    before.
    """
    low, claim = holding("low", "a0", "a1")
    other, kept = holding("other", "a2", priority=5_000)
    world = world_of(
        [node("n0", gpus=0), node("n1", gpus=0)], [devices_of("n0", "aaa")], preempts=True
    )
    world.fate = lambda order: "later" if isinstance(order, BindClaims) else "bound"
    world.say(Replaced(ResourceClaim, (claim, kept)))
    world.create([low, other])
    gang = [
        msgspec.structs.replace(each, priority=1_000) for each in gang_of(wanting(1), wanting(1))
    ]
    world.create(gang)
    world.settle()
    world.advance(40)
    assert "other" in world.pods
    assert "low" not in world.pods, "it is evicted"
    assert orders(world) == {}
    assert validate(world.state) == []
    world.say(Gone(ResourceClaim, claim.key))
    world.settle()
    assert sorted(each for order in orders(world).values() for each in device(order)) == [
        "a0",
        "a1",
    ]


def test_nobody_is_evicted_for_devices_that_no_victim_has() -> None:
    """A22: the sums would do, since a device of another model counts in them, but no choice of
    victims helps.
    """
    low, claim = holding("low", "a0")
    world = world_of([node("n0", gpus=0)], [devices_of("n0", "ab")], preempts=True)
    world.say(Replaced(ResourceClaim, (claim,)))
    world.create([low])
    world.create([msgspec.structs.replace(each, priority=1_000) for each in gang_of(wanting(2))])
    world.settle()
    world.advance(40)
    assert "low" in world.pods
    assert orders(world) == {}
