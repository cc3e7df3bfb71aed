"""Devices, their classes and the claims for them, as in resource.k8s.io/v1.

Amounts are billionths, so that all quantities are exact. `unknown` names the part of the object
that gangsched does not support, or is "". A device with such a part is never allocated; a claim
with one is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeAlias

import msgspec

from gangsched.model.objects import NodeSelectorTerm, Taint, Toleration

DeviceId: TypeAlias = tuple[str, str, str]
"""Driver, pool and name."""
Attribute: TypeAlias = tuple[str, bool | int | str]
"""Kind (bool, int, string or version) and value, so that 1 and true differ."""
Counter: TypeAlias = tuple[str, str]
"""Counter set and name of the counter, within a pool."""

MOST_DEVICES_OF_A_CLAIM = 32  # the API server's limit of results (AllocationResultsMaxSize)
CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
"""Each class serves the extended resource with this prefix and the name of the class."""
EXTENDED_CLAIM = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of a claim that a scheduler created for a pod's extended resources; its value is
"true".
"""
ALL = "All"


class DeviceScope(StrEnum):
    """The setting `devices`: whether gangsched allocates devices itself (all), or only schedules
    pods whose claims are already allocated (allocated). `auto` is the first where gangsched has the
    permissions, else the second.
    """

    AUTO = "auto"
    ALLOCATED = "allocated"
    ALL = "all"


class NodeScope(msgspec.Struct, frozen=True, gc=False):
    """The nodes that can use a device: the one named `node` if set, else all nodes if `everywhere`,
    else the nodes that match `terms`.
    """

    node: str = ""
    everywhere: bool = False
    terms: tuple[NodeSelectorTerm, ...] | None = None

    @property
    def given(self) -> bool:
        """Whether the object states any of the three fields."""
        return bool(self.node) or self.everywhere or self.terms is not None


class RequestPolicy(msgspec.Struct, frozen=True, gc=False):
    """Amounts of a capacity that may be requested: those in `values`, or from `least` to `most` in
    steps of `step`.
    """

    default: int | None = None
    values: tuple[int, ...] = ()
    least: int | None = None
    most: int | None = None
    step: int | None = None


class Capacity(msgspec.Struct, frozen=True, gc=False):
    """An amount that a device has. If the device allows several allocations, their shares add up to
    at most this amount.
    """

    value: int
    policy: RequestPolicy | None = None


class Device(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A device of a slice.

    Names of attributes and capacities may omit the driver's domain. `shared`: the device allows
    several allocations. `binds_to_node`: a claim that uses the device is usable only on the node
    for which it was allocated. `conditional`: the device is usable only once some conditions hold;
    gangsched does not wait for them.
    """

    name: str
    attributes: Mapping[str, Attribute] = msgspec.field(default_factory=dict)
    capacity: Mapping[str, Capacity] = msgspec.field(default_factory=dict)
    counters: tuple[tuple[Counter, int], ...] = ()
    scope: NodeScope = NodeScope()
    taints: tuple[Taint, ...] = ()
    shared: bool = False
    binds_to_node: bool = False
    conditional: bool = False
    unknown: str = ""


class ResourceSlice(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A part of a pool of devices. `slices` is the number of slices in this generation of the pool.

    `per_device`: each device has its own scope. `ignored`: kube-scheduler ignores the slice, so
    that its pool is incomplete.
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
    """A taint on all devices with this driver, pool and name. A field that is None matches any
    value.
    """

    name: str
    taint: Taint
    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    unknown: str = ""


class DeviceClass(msgspec.Struct, frozen=True, gc=False):
    """Selectors that all devices of the class match. `extended_resource` is the resource that the
    class provides, "" for none.

    `configs` are driver configs as JSON, copied into each allocation. `creation_s`: creation time
    in seconds since the epoch.
    """

    name: str
    selectors: tuple[str, ...] = ()
    extended_resource: str = ""
    unknown: str = ""
    configs: tuple[str, ...] = ()
    creation_s: int = 0


class DeviceRequest(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A request, or one alternative of a request, whose name is then `parent`.

    `mode` is ExactCount, or All for every device that matches. `amounts` are requested capacities,
    by the name used in the request.
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
        """The request's name as used in results and constraints."""
        if self.parent:
            return f"{self.parent}/{self.name}"

        return self.name


class DeviceConstraint(msgspec.Struct, frozen=True, gc=False):
    """All devices of these requests (() for all requests) must have the same value of the attribute
    or, if `distinct`, different values.
    """

    attribute: str
    distinct: bool = False
    requests: tuple[str, ...] = ()

    def concerns(self, request: DeviceRequest) -> bool:
        """Whether the constraint applies to devices of the request."""
        return (
            not self.requests
            or request.full_name in self.requests
            or request.parent in self.requests
        )


class DeviceResult(msgspec.Struct, frozen=True, gc=False):
    """A device that is allocated to a claim. `share` is the id of the allocated share, "" unless
    the device is shared; `amounts` are the capacities that the share uses.
    """

    request: str
    id: DeviceId
    admin: bool = False
    share: str = ""
    amounts: tuple[tuple[str, int], ...] = ()


class DeviceClaim(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Requests of a ResourceClaim. Each request is a list of alternatives; the first one that can
    be allocated is used.

    `results` are the allocated devices, None for an unallocated claim.
    """

    namespace: str = ""
    name: str = ""
    uid: str = ""
    requests: tuple[tuple[DeviceRequest, ...], ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    results: tuple[DeviceResult, ...] | None = None
    unknown: str = ""


class MadeClaim(msgspec.Struct, frozen=True, gc=False):
    """The claim that gangsched creates for a pod's extended resources, unless an earlier attempt
    has created it.

    `users` are containers, each with a resource and the name of the request whose devices it uses.
    """

    requests: tuple[DeviceRequest, ...] = ()
    users: tuple[tuple[str, str, str], ...] = ()


class DeviceAllocation(msgspec.Struct, frozen=True, gc=False):
    """The devices that were chosen for a claim.

    `configs` are the configs of the device classes as JSON, each with the requests it applies to.
    `reads`: the claim has configs or tolerations, which must be read when the allocation is
    written.
    """

    results: tuple[DeviceResult, ...]
    configs: tuple[tuple[tuple[str, ...], str], ...] = ()
    reads: bool = False
