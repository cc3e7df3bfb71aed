"""Devices of claims on the map: one unit each, whoever shares them, and no more than fit."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from gangsched.kube.read import resources
from gangsched.kube.read.storage_wire import WireDeviceObject, WireResourceClaim
from kubectl_gangsched.claimed_devices import ClaimedDevices, DriverUse
from tests.page_truth import DRIVER, device_claim, device_slice


def known(*bodies: dict[str, Any]) -> ClaimedDevices:
    """The slices and claims among these objects."""
    devices = ClaimedDevices()
    for body in bodies:
        if "driver" in body["spec"]:
            part = resources.RESOURCE_SLICES.convert(msgspec.convert(body, WireDeviceObject))
            assert part is not None
            devices.put_slice(part.name, part)
        else:
            claim = resources.RESOURCE_CLAIMS.convert(msgspec.convert(body, WireResourceClaim))
            assert claim is not None
            devices.put_claim(claim.key, claim)

    return devices


def use(devices: ClaimedDevices, node: str = "n0") -> DriverUse:
    """What the driver has on a node; pods are called by their uids."""
    return devices.on_node(node, lambda uid: uid).get(DRIVER, DriverUse(0, Counter()))


def test_a_device_is_its_claims_and_the_others_are_free() -> None:
    """A claim that no pod uses is called by its own name."""
    devices = known(
        device_slice("n0", 4),
        device_claim("a", "n0", "d0", "pod-a"),
        device_claim("b", "n0", "d1"),
        device_claim("elsewhere", "n1", "d0", "pod-x"),
    )
    assert use(devices) == DriverUse(4, Counter({"pod-a": 1, "claim team/b": 1}))
    assert devices.has("pod-a")
    assert not devices.has("pod-b")


def test_a_device_that_is_shared_counts_once() -> None:
    """Two claims have shares of it."""
    devices = known(
        device_slice("n0", 1),
        device_claim("a", "n0", "d0", "pod-a"),
        device_claim("b", "n0", "d0", "pod-b"),
    )
    assert use(devices).total == 1
    assert use(devices).users.total() == 1


def test_only_the_newest_generation_counts() -> None:
    """A driver that publishes anew leaves older slices for a moment."""
    newer = device_slice("n0", 2, generation=2)
    newer["metadata"]["name"] = "newer"
    devices = known(device_slice("n0", 4), newer)
    assert use(devices).total == 2
    devices.put_slice("newer", None)
    assert use(devices).total == 4


def test_partitions_count_as_far_as_they_fit() -> None:
    """A whole GPU and its halves share counters: it is one while nobody has a half."""
    body = device_slice("n0", 0)
    counters = {"memory": {"value": "2"}}
    body["spec"]["sharedCounters"] = [{"name": "gpu", "counters": counters}]

    def partition(name: str, amount: str) -> dict[str, Any]:
        consumed = {"counterSet": "gpu", "counters": {"memory": {"value": amount}}}
        return {"name": name, "consumesCounters": [consumed]}

    body["spec"]["devices"] = [partition("d0", "2"), partition("d1", "1"), partition("d2", "1")]
    assert use(known(body)).total == 1
    half = device_claim("a", "n0", "d1", "pod-a")
    assert use(known(body, half)) == DriverUse(2, Counter({"pod-a": 1}))


def test_a_tainted_device_is_not_free() -> None:
    """It counts while it is used."""
    body = device_slice("n0", 2)
    body["spec"]["devices"][1]["taints"] = [{"key": "broken", "effect": "NoSchedule"}]
    assert use(known(body)).total == 1
    used = device_claim("a", "n0", "d1", "pod-a")
    assert use(known(body, used)).total == 2


def test_what_is_forgotten_touches_its_nodes() -> None:
    """So that only their rows are made again."""
    devices = known(device_slice("n0", 2), device_claim("a", "n0", "d0", "pod-a"))
    assert devices.put_claim("resourceclaims/team/a", None) == {"n0"}
    assert use(devices) == DriverUse(2, Counter())
    assert not devices.has("pod-a")
    assert devices.put_slice("slice-n0", None) == {"n0"}
    assert use(devices).total == 0
