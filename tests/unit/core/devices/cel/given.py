"""Devices as selectors see them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gangsched.core.devices.cel.operators import DomainMap
from gangsched.core.devices.cel.versions import quantity, version

DRIVER = "gpu.x"


def seen(device: Mapping[str, Any]) -> dict[str, Any]:
    """`device` of CEL for the JSON of a device of `DRIVER`."""
    attributes, capacity = DomainMap(), DomainMap()
    for name, value in device.get("attributes", {}).items():
        domain, _, key = name.rpartition("/")
        ((kind, content),) = value.items()
        attributes.setdefault(domain or DRIVER, {})[key] = (
            version(content) if kind == "version" else content
        )
    for name, value in device.get("capacity", {}).items():
        domain, _, key = name.rpartition("/")
        capacity.setdefault(domain or DRIVER, {})[key] = quantity(value["value"])
    shared = device.get("allowMultipleAllocations", False)
    return {
        "driver": DRIVER,
        "allowMultipleAllocations": shared,
        "attributes": attributes,
        "capacity": capacity,
    }
