"""Devices on one node: kube-scheduler's choice, refusals by name, and the bound of a search."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gangsched.core.devices.device_faults import DeviceFault, DevicesUnsupported
from gangsched.core.devices.held import Held, Use
from gangsched.core.devices.pools import SliceIndex
from gangsched.core.devices.questions import Questions
from gangsched.core.devices.search import DeviceSearch, SearchEnded
from gangsched.core.devices.states import States
from gangsched.model.devices import (
    ALL,
    Capacity,
    Device,
    DeviceClaim,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceResult,
    DeviceTaintRule,
    NodeScope,
    ResourceSlice,
)
from gangsched.model.objects import Node, Taint
from kubernetes_cel.selectors import SelectorAnswers
from tests.device_answers.allocations import Case

KUBE_ALLOCATIONS = Path(__file__).with_name("kube_allocations.jsonl")
"""Seeds of random cases, with the devices that k8s.io/dynamic-resource-allocation 0.37.2 chose."""
NODE = Node(name="n")
CLASSES = {"gpu": DeviceClass("gpu")}


def search(
    *devices: Device, claims: list[DeviceClaim], rules: tuple[DeviceTaintRule, ...] = ()
) -> DeviceSearch:
    part = ResourceSlice(
        name="s", driver="d", pool="p", scope=NodeScope(everywhere=True), devices=devices
    )
    pools = SliceIndex([part], rules).pools(NODE)
    return DeviceSearch(
        States(Questions(pools, CLASSES, SelectorAnswers()), Use(pools, Held()), claims, {}),
        [claims],
    )


def claim(*requests: DeviceRequest, constraints: tuple[DeviceConstraint, ...] = ()) -> DeviceClaim:
    return DeviceClaim(
        namespace="ns",
        name="c",
        uid="u",
        requests=tuple((r,) for r in requests),
        constraints=constraints,
    )


def request(count: int = 1, **more: object) -> DeviceRequest:
    return DeviceRequest(**{"name": "r", "class_name": "gpu", "count": count, **more})  # type: ignore[arg-type]


def test_devices_are_those_of_kube_scheduler() -> None:
    """A2: pools, partitions, shares, constraints, taints, alternatives and errors, as its module
    has them.
    """
    rows = [json.loads(line) for line in KUBE_ALLOCATIONS.read_text(encoding="utf-8").splitlines()]
    assert len(rows) > 300
    assert sum(isinstance(expected, list) and expected != [] for _, expected in rows) > 50
    assert [seed for seed, expected in rows if Case(seed).ours() != expected] == []


def test_a_claim_may_ask_for_nothing() -> None:
    """A2: it is allocated with no device."""
    found = search(claims=[claim(), claim()])
    assert found.found()
    assert found.results() == ((), ())


def test_a_share_is_named_by_claim_request_and_number() -> None:
    """A2: nothing about a share is random."""
    found = search(
        Device(name="g", shared=True, capacity={"m": Capacity(80)}),
        claims=[claim(request(amounts=(("m", 30),)))],
    )
    assert found.found()
    assert found.results() == (
        (DeviceResult("r", ("d", "p", "g"), share="u/r/0", amounts=(("m", 30),)),),
    )


@pytest.mark.parametrize(
    ("named", "found"), [("r", False), ("r/s", False), ("r/t", True), ("q", True)]
)
def test_a_constraint_names_a_request_or_one_of_its_alternatives(named: str, found: bool) -> None:
    """A2: devices of the alternative count in both cases."""
    devices = [
        Device(name=f"g{number}", attributes={"link": ("int", number)}) for number in range(2)
    ]
    alternatives = (request(2, name="s", parent="r"),)
    constraint = DeviceConstraint("d/link", requests=(named,))
    asked = DeviceClaim(
        namespace="ns", name="c", requests=(alternatives,), constraints=(constraint,)
    )
    assert search(*devices, claims=[asked]).found() is found


def test_a_rule_taints_devices() -> None:
    """A2: a DeviceTaintRule keeps new allocations off."""
    rule = DeviceTaintRule("bad", Taint("k", "", "NoSchedule"), pool="p", device="g")
    assert not search(Device(name="g"), claims=[claim(request())], rules=(rule,)).found()
    assert search(Device(name="h"), claims=[claim(request())], rules=(rule,)).found()


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (
            claim(request(selectors=('ip("a")',))),
            "selector #0 of request r uses ip(), which gangsched does not support",
        ),
        (
            claim(request(unknown="derivedAttributes")),
            "request r uses derivedAttributes, which gangsched does not support",
        ),
        (
            DeviceClaim(namespace="ns", name="c", unknown="priority"),
            "claim ns/c uses priority, which gangsched does not support",
        ),
        (
            claim(request(mode=ALL)),
            (
                "claim ns/c, request r: asks for all devices, but device d/p/g uses attribute list,"
                " which gangsched does not support"
            ),
        ),
    ],
)
def test_what_is_not_known_is_named(asked: DeviceClaim, told: str) -> None:
    """A2: such a claim is `Unsupported`, and such a device makes it so where all are asked for."""
    with pytest.raises(DevicesUnsupported) as unsupported:
        search(Device(name="g", unknown="attribute list"), claims=[asked])
    assert str(unsupported.value) == told


def test_a_device_of_which_something_is_not_known_is_no_candidate() -> None:
    """A2: the others can be had."""
    assert not search(Device(name="g", unknown="list"), claims=[claim(request())]).found()
    assert not search(Device(name="g", conditional=True), claims=[claim(request())]).found()


def test_an_error_of_a_selector_names_device_and_key() -> None:
    """A5: it refuses the pod, and is met where the search comes to the device."""
    asked = claim(request(selectors=('device.attributes["d"].index == 1',)))
    good = Device(name="g", attributes={"index": ("int", 1)})
    assert search(good, Device(name="h"), claims=[asked]).found()
    with pytest.raises(
        DeviceFault, match="claim ns/c, request r, selector #0 on device d/p/h: no such key: index"
    ):
        search(Device(name="h"), good, claims=[asked]).found()
    # as for kube-scheduler, which waits
    with pytest.raises(DeviceFault, match="on device d/p/h: no such key: index"):
        search(Device(name="h", conditional=True), good, claims=[asked]).found()


def test_a_search_has_bounded_steps_and_depth() -> None:
    """A12: it ends after as many steps, which are counted; nothing is taken then."""
    devices = [
        Device(name=f"g{number}", attributes={"link": ("int", number)}) for number in range(24)
    ]
    alike = (DeviceConstraint("d/link"),)
    with pytest.raises(SearchEnded):
        search(
            *devices, claims=[*[claim(request())] * 8, claim(request(2), constraints=alike)]
        ).found()
    with pytest.raises(SearchEnded):
        search(Device(name="g", shared=True), claims=[claim(request())] * 250).found()
