"""The variable `device` of selectors, for devices as ResourceSlices state them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubernetes_cel.operators import DomainMap
from kubernetes_cel.versions import quantity, version


def device_variable(device: Mapping[str, Any], driver: str) -> dict[str, Any]:
    """The variable for the JSON of a device of `driver`. Raises SelectorError for a version or a
    quantity that is none.
    """
    attributes = {}
    for name, attribute in device.get("attributes", {}).items():
        ((kind, value),) = attribute.items()
        if kind == "version":
            value = version(value)

        attributes[name] = value

    capacity = {}
    for name, stated in device.get("capacity", {}).items():
        capacity[name] = quantity(stated["value"])

    shared = device.get("allowMultipleAllocations", False)

    return {
        "driver": driver,
        "allowMultipleAllocations": shared,
        "attributes": by_domain(attributes, driver),
        "capacity": by_domain(capacity, driver),
    }


def by_domain(values: Mapping[str, Any], driver: str) -> DomainMap:
    """Values by domain and then by identifier; a name without a domain is the driver's."""
    domains = DomainMap()
    for name, value in values.items():
        domain, _, identifier = name.rpartition("/")
        of_domain = domains.setdefault(domain or driver, {})
        of_domain[identifier] = value

    return domains
