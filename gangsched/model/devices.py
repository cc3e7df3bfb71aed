"""Devices, their classes and the claims for them, as resource.k8s.io/v1 has them.

Amounts are billionths, so that all quantities are exact. `unknown` names what of an object gangsched does not know or
support, "" for nothing: such a device is no candidate, such a claim is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from gangsched.model.objects import NodeSelectorTerm, Taint, Toleration

DeviceId: TypeAlias = tuple[str, str, str]
"""Driver, pool and name."""
Attribute: TypeAlias = tuple[str, bool | int | str]
"""Kind (bool, int, string or version) and value, so that 1 and true differ."""
Counter: TypeAlias = tuple[str, str]
"""Counter set and name of the counter, within a pool."""

MOST_DEVICES_OF_A_CLAIM = 32
ALL = "All"


class NodeScope(msgspec.Struct, frozen=True, gc=False):
    """Nodes that can use a device: the one of this name, else all, else those that match `terms`; else none."""

    node: str = ""
    everywhere: bool = False
    terms: tuple[NodeSelectorTerm, ...] | None = None

    @property
    def given(self) -> bool:
        """Whether any of them is."""
        return bool(self.node) or self.everywhere or self.terms is not None


class RequestPolicy(msgspec.Struct, frozen=True, gc=False):
    """Which amounts of a capacity may be requested: `values`, or from `least` to `most` in steps."""

    default: int | None = None
    values: tuple[int, ...] = ()
    least: int | None = None
    most: int | None = None
    step: int | None = None


class Capacity(msgspec.Struct, frozen=True, gc=False):
    """An amount that a device has; shares of a device that allows several allocations add up to it."""

    value: int
    policy: RequestPolicy | None = None


class Device(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A device of a slice.

    Names of attributes and capacities may lack the driver's domain. `shared` allows several allocations.
    `conditional`: it is bound once conditions hold, for which gangsched does not wait.
    """

    name: str
    attributes: Mapping[str, Attribute] = msgspec.field(default_factory=dict)
    capacity: Mapping[str, Capacity] = msgspec.field(default_factory=dict)
    counters: tuple[tuple[Counter, int], ...] = ()
    scope: NodeScope = NodeScope()
    taints: tuple[Taint, ...] = ()
    shared: bool = False
    conditional: bool = False
    unknown: str = ""


class ResourceSlice(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A part of a pool. `slices` is the number of the pool's slices of this generation.

    `per_device`: the devices have scopes of their own. `ignored`: kube-scheduler leaves it out, so that its pool is
    incomplete.
    """

    name: str
    driver: str
    pool: str
    generation: int = 0
    slices: int = 1
    scope: NodeScope = NodeScope()
    per_device: bool = False
    devices: tuple[Device, ...] = ()
    counters: tuple[tuple[str, tuple[tuple[str, int], ...]], ...] = ()
    ignored: bool = False


class DeviceTaintRule(msgspec.Struct, frozen=True, gc=False):
    """A taint on the devices that have this driver, pool and name; None for any."""

    name: str
    taint: Taint
    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    unknown: str = ""


class DeviceClass(msgspec.Struct, frozen=True, gc=False):
    """Selectors that all devices of the class match; `extended_resource` is served by it, "" for none."""

    name: str
    selectors: tuple[str, ...] = ()
    extended_resource: str = ""
    unknown: str = ""


class DeviceRequest(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A request, or one alternative of a request: `parent` is the request's name then.

    `mode` is ExactCount, or All for every device that matches. `amounts` are of capacities, by the name as requested.
    """

    name: str
    class_name: str
    parent: str = ""
    selectors: tuple[str, ...] = ()
    mode: str = "ExactCount"
    count: int = 1
    admin: bool = False
    tolerations: tuple[Toleration, ...] = ()
    amounts: tuple[tuple[str, int], ...] = ()
    unknown: str = ""

    @property
    def full_name(self) -> str:
        """The name in results and constraints."""
        return f"{self.parent}/{self.name}" if self.parent else self.name


class DeviceConstraint(msgspec.Struct, frozen=True, gc=False):
    """Devices of these requests, () for all, have one value of the attribute, or `distinct` ones."""

    attribute: str
    distinct: bool = False
    requests: tuple[str, ...] = ()

    def concerns(self, request: DeviceRequest) -> bool:
        """Whether devices of the request count."""
        return not self.requests or request.full_name in self.requests or request.parent in self.requests


class DeviceResult(msgspec.Struct, frozen=True, gc=False):
    """A device that a claim has. `share` is "" unless the device is shared, `amounts` is what the share takes of it."""

    request: str
    id: DeviceId
    admin: bool = False
    share: str = ""
    amounts: tuple[tuple[str, int], ...] = ()


class DeviceClaim(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a ResourceClaim asks for: each request is its alternatives, of which the first that can be had is taken.

    `results` are the allocated devices, None for an unallocated claim.
    """

    namespace: str = ""
    name: str = ""
    uid: str = ""
    requests: tuple[tuple[DeviceRequest, ...], ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    results: tuple[DeviceResult, ...] | None = None
    unknown: str = ""
