"""Devices of claims while pods leave their nodes and come back within one plan."""

from __future__ import annotations

import numpy as np
import pytest

from gangsched.core.reserve import Ledger
from gangsched.model.devices import (
    Device,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    DeviceResult,
    DeviceTaintRule,
    NodeScope,
    ResourceSlice,
)
from gangsched.model.objects import ClaimUse, Pod
from gangsched.model.protocol import Applied, Replaced
from gangsched.model.storage import ResourceClaim
from gangsched.state.rule_set import Rules
from tests.builders import node, pod, running
from tests.world import World

ASKS = ((DeviceRequest(name="r", class_name="gpu"),),)
HERE = np.array([0])


def claim(name: str, *devices: str) -> ResourceClaim:
    """The claim of the pod of this name, with these devices."""
    results = tuple(DeviceResult("r", ("d", "n0", each)) for each in devices)
    asks = DeviceClaim(namespace="ns", name=name, uid=name, requests=ASKS, results=results or None)
    return ResourceClaim(
        namespace="ns",
        name=name,
        uid=name,
        owner_uid=name,
        resource_version="1",
        allocated=bool(devices),
        reserved=(name,) if devices else (),
        asks=asks,
    )


def using(name: str) -> Pod:
    """A pod with a claim of its own."""
    return pod(name, uid=name, claims=(ClaimUse(name, ephemeral=True, device=True),))


def one_device() -> tuple[Ledger, Pod, Pod]:
    """A node whose only device `there` has, and which `new` wants."""
    world = World(node("n0"), rules=Rules(allocates=True))
    device = ResourceSlice(
        name="n0", driver="d", pool="n0", scope=NodeScope("n0"), devices=(Device(name="g0"),)
    )
    world.say(Replaced(ResourceSlice, (device,)), Replaced(DeviceClass, (DeviceClass("gpu"),)))
    world.say(Replaced(DeviceTaintRule, ()))
    world.say(Replaced(ResourceClaim, (claim("there", "g0"), claim("new"))))
    there = running(using("there"), "n0")
    world.say(Applied(there))
    return Ledger(world.state.snapshot()), there, using("new")


def test_who_comes_back_has_its_devices_again() -> None:
    """As when preemption looks who is in the way: all leave, and then one after the other is put
    back.
    """
    ledger, there, new = one_device()
    assert not ledger.fits_still(new, "n0")

    ledger.reserve((there,), HERE, np.array([-1]))
    assert ledger.fits_still(new, "n0")

    ledger.reserve((there,), HERE, np.array([1]))
    assert not ledger.fits_still(new, "n0")

    ledger.reserve((there,), HERE, np.array([-1]))
    assert ledger.fits_still(new, "n0")


@pytest.mark.parametrize("moves", [(-1,), (-1, 1), (-1, 1, -1), (-1, 1, -1, 1)])
def test_a_rollback_restores_devices_however_often_they_moved(moves: tuple[int, ...]) -> None:
    """Each move is undone by itself: what a later one noted is not what an earlier one needs."""
    ledger, there, new = one_device()
    fitted = []
    checkpoints = []

    for move in moves:
        checkpoints.append(ledger.checkpoint())
        fitted.append(ledger.fits_still(new, "n0"))
        ledger.reserve((there,), HERE, np.array([move]))

    while checkpoints:
        ledger.rollback(checkpoints.pop())
        assert ledger.fits_still(new, "n0") is fitted.pop()


def test_a_pod_that_did_not_come_is_not_taken_back() -> None:
    """Work that runs out between two pods of one move: what undoes the move is for both of them."""
    ledger, there, new = one_device()
    storage = ledger.occupancy.storage
    key = new.claims[0].key(new.namespace)
    storage.take_back(new, 0)
    assert not storage.in_use(key)

    ledger.reserve((there,), HERE, np.array([-1]))
    storage.come(new, 0)
    storage.take_back(new, 0)
    storage.take_back(new, 0)
    assert ledger.fits_still(new, "n0")
