"""Decoding of slices, classes, claims and taint rules."""

from __future__ import annotations

from typing import Any

import pytest

from gangsched.kube.read.decode import DecodeFault
from gangsched.kube.read.devices import (
    decode_device_claim,
    decode_device_class,
    decode_slice,
    decode_taint_rule,
)
from gangsched.model.devices import DeviceResult
from gangsched.model.objects import Taint

NO_SELECTORS: tuple[dict[str, Any], ...] = ({}, {"deviceSelector": {}})
POOL = {"name": "p", "generation": 2, "resourceSliceCount": 1}


def part(**device: Any) -> dict[str, Any]:
    spec = {"driver": "d", "pool": POOL, "nodeName": "n", "devices": [{"name": "g", **device}]}
    return {"metadata": {"name": "s"}, "spec": spec}


def claim(exactly: dict[str, Any], **devices: Any) -> dict[str, Any]:
    requests = [{"name": "r", "exactly": {"deviceClassName": "gpu", **exactly}}]
    return {
        "metadata": {"name": "c", "namespace": "ns", "uid": "u"},
        "spec": {"devices": {"requests": requests, **devices}},
    }


@pytest.mark.parametrize(
    ("device", "unknown"),
    [
        ({"attributes": {"a": {"string": "x"}}, "bindsToNode": True, "nodeName": "n"}, ""),
        ({"attributes": {"a": {"strings": ["x"]}}}, "attribute a of kind strings"),
        ({"nodeAllocatableResources": {"cpu": {}}}, "nodeAllocatableResources"),
        (
            {
                "capacity": {
                    "m": {"value": "1", "requestPolicy": {"validRange": {"min": "1", "odd": True}}}
                }
            },
            "odd",
        ),
        ({"colour": "red"}, "colour"),
        (
            {"consumesCounters": [{"counterSet": "c", "counters": {}, "exclusive": True}]},
            "exclusive",
        ),
    ],
)
def test_what_is_not_known_of_a_device_is_named(device: dict[str, Any], unknown: str) -> None:
    """A2: list attributes, node-allocatable and unknown fields."""
    assert decode_slice(part(**device)).devices[0].unknown == unknown


def test_what_is_not_known_of_a_slice_is_not_known_of_its_devices() -> None:
    """A2: fields of the future may say how the devices may be used."""
    wire = part()
    wire["spec"]["skipNodeOperations"] = ["NodePrepareResources"]
    assert decode_slice(wire).devices[0].unknown == "skipNodeOperations"
    groups = [{"counterSet": "c", "counters": {}, "compatibilityGroups": ["a"]}]
    assert decode_slice(part(consumesCounters=groups)).ignored


@pytest.mark.parametrize(
    ("wire", "unknown"),
    [
        (claim({"count": 2}, config=[{"opaque": {}}]), ""),
        (claim({}, later=1), "later"),
        (claim({}, constraints=[{"sameAttribute": "a"}]), "constraint #0 of kind sameAttribute"),
        (claim({}, constraints=[{"requests": ["r"]}]), "constraint #0 of kind none"),
    ],
)
def test_what_is_not_known_of_a_claim_is_named(wire: dict[str, Any], unknown: str) -> None:
    """A2: such a claim is refused."""
    assert decode_device_claim(wire).unknown == unknown


@pytest.mark.parametrize(
    ("exactly", "unknown"),
    [
        ({"derivedAttributes": [{"name": "a"}]}, "derivedAttributes"),
        ({"selectors": [{"rego": {}}]}, "selector #0 of kind none"),
        (
            {"selectors": [{"cel": {"expression": "true", "version": 2}}]},
            "selector #0 of kind version",
        ),
        ({"allocationMode": "Most"}, "allocation mode Most"),
        ({"capacity": {"requests": {}, "limits": {"m": "1"}}}, "limits"),
    ],
)
def test_what_is_not_known_of_a_request_is_named(exactly: dict[str, Any], unknown: str) -> None:
    """A2: such a claim is refused, also where the field is one of an alternative."""
    assert decode_device_claim(claim(exactly)).requests[0][0].unknown == unknown
    wire = claim({})
    wire["spec"]["devices"]["requests"] = [
        {"name": "r", "firstAvailable": [{"name": "s", **exactly}]}
    ]
    (alternative,) = decode_device_claim(wire).requests[0]
    assert (alternative.full_name, alternative.unknown) == ("r/s", unknown)


def test_results_and_rules() -> None:
    """A2: allocated devices; a rule without a selector taints nothing, an empty one everything."""
    wire = claim({})
    result = {
        "request": "r",
        "driver": "d",
        "pool": "p",
        "device": "g",
        "shareID": "x",
        "consumedCapacity": {"m": "1m"},
    }
    wire["status"] = {"allocation": {"devices": {"results": [result]}}}
    assert decode_device_claim(wire).results == (
        DeviceResult("r", ("d", "p", "g"), share="x", amounts=(("m", 1_000_000),)),
    )
    taint = {"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
    none, every = (
        decode_taint_rule({"metadata": {"name": "t"}, "spec": {"taint": taint, **more}})
        for more in NO_SELECTORS
    )
    assert (none.driver, every.driver, every.taint) == ("", None, Taint("k", "", "NoSchedule"))
    spec = {
        "selectors": [{"cel": {"expression": "true"}}],
        "config": [{}],
        "extendedResourceName": "x/gpu",
    }
    found = decode_device_class({"metadata": {"name": "gpu"}, "spec": spec})
    assert (found.selectors, found.extended_resource, found.unknown) == (("true",), "x/gpu", "")


def test_what_cannot_be_read_names_the_object() -> None:
    """A2: bad input is a sentence."""
    with pytest.raises(DecodeFault, match="The resource slice s cannot be understood"):
        decode_slice(part(capacity={"m": {"value": "much"}}))
    with pytest.raises(DecodeFault, match="The resource claim c cannot be understood"):
        decode_device_claim(
            {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "r"}]}}}
        )
