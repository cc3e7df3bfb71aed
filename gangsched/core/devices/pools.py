"""Pools of devices that one node can use: only the newest generation, and only if it is complete
and valid.

Invariant: the order and the results are kube-scheduler's: pools by driver and name, slices by name,
devices as published. Pools with devices that wait for conditions come last.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeAlias

from gangsched.core.node_terms import any_term_met
from gangsched.model.devices import (
    Attribute,
    Counter,
    Device,
    DeviceId,
    DeviceTaintRule,
    NodeScope,
    ResourceSlice,
)
from gangsched.model.objects import Node, Taint, Toleration
from kubernetes_cel.devices import by_domain
from kubernetes_cel.faults import SelectorError
from kubernetes_cel.versions import Quantity, version

PoolId: TypeAlias = tuple[str, str]
# Large enough to never limit anything, small enough that sums over nodes stay far below 2^63.
MANY: Final = 10**6
"""Allocations of devices of which each can be shared: more than the pods of a node have."""


@dataclass(frozen=True, eq=False)
class PoolDevice:
    """A device of a pool. `here`: the node can use it. `scope`: the nodes that can use it.
    `taints`: from its ResourceSlice and from DeviceTaintRules.
    """

    id: DeviceId
    device: Device
    here: bool
    taints: tuple[Taint, ...]
    scope: NodeScope

    @property
    def pool(self) -> PoolId:
        """Driver and name of the device's pool."""
        return self.id[:2]

    # Selectors are the only reader; most devices are never asked about.
    @cached_property
    def seen(self) -> Mapping[str, Any] | str:
        """The variable `device` of selectors, or the error message if one of its versions cannot be
        parsed.
        """
        driver = self.id[0]
        device = self.device

        try:
            attributes = {name: _value(each) for name, each in device.attributes.items()}
        except SelectorError as error:
            return str(error)

        capacity = {name: Quantity(each.value) for name, each in device.capacity.items()}
        return {
            "driver": driver,
            "allowMultipleAllocations": device.shared,
            "attributes": by_domain(attributes, driver),
            "capacity": by_domain(capacity, driver),
        }


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """A pool on a node; an incomplete or invalid pool has no devices.

    `elsewhere` are devices that this node cannot use but that consume the same counters. If it
    `is_cut`, `elsewhere` also has devices that the node could use.
    """

    id: PoolId
    incomplete: bool = False
    invalid: str = ""
    devices: tuple[PoolDevice, ...] = ()
    elsewhere: tuple[PoolDevice, ...] = ()
    counters: Mapping[Counter, int] = field(default_factory=dict)
    is_cut: bool = False

    @property
    def content(self) -> tuple[object, ...]:
        """The content of the pool that a search on its node depends on."""
        devices = [(device.device, device.taints) for device in self.devices]
        return (self.id, self.incomplete, self.invalid, devices, self.counters)


class SliceIndex:
    """All slices, by node and by pool; `apply` and `drop` return the nodes whose pools changed."""

    def __init__(
        self,
        slices: Iterable[ResourceSlice] = (),
        rules: Iterable[DeviceTaintRule] = (),
    ) -> None:
        self.rules = tuple(rules)
        self._slices: dict[str, ResourceSlice] = {}
        self._local: dict[str, dict[str, ResourceSlice]] = defaultdict(dict)
        self._joint: dict[str, ResourceSlice] = {}
        self._pools: dict[PoolId, dict[str, ResourceSlice]] = defaultdict(dict)

        # slices by the node that they name
        self._named: dict[PoolId, Counts[str]] = defaultdict(Counts)
        self.joint: set[PoolId] = set()  # pools that belong to several nodes
        self._devices: Counts[PoolId] = Counts()  # by pool, their number

        # devices of slices that name no node, and those of them that can be shared
        self._unhomed = [0, 0]
        for resource_slice in slices:
            self.apply(resource_slice)

    def apply(self, item: ResourceSlice) -> set[str]:
        """Add or replace a slice."""
        # A slice may move to another pool or node, so the old one is removed as if it had been
        # deleted.
        changed = self.drop(item.name)
        self._slices[item.name] = item
        pool = (item.driver, item.pool)
        changed.add(self.home(pool))
        self._pools[pool][item.name] = item
        self._devices[pool] += len(item.devices)
        self._named[pool][item.scope.node] += 1
        (self._local[item.scope.node] if item.scope.node else self._joint)[item.name] = item
        self._count_unhomed(item, +1)

        # One slice that names another node, or none, makes the whole pool joint: its counters are
        # shared.
        (self.joint.discard if self.home(pool) else self.joint.add)(pool)
        # "" is not a node: it stands for pools of several nodes, which `DeviceIndex` handles by
        # itself.
        return (changed | {self.home(pool)}) - {""}

    def drop(self, name: str) -> set[str]:
        """Remove a slice, if it is known."""
        item = self._slices.pop(name, None)
        if item is None:
            return set()

        pool = (item.driver, item.pool)
        node = item.scope.node
        changed = {self.home(pool)}
        del (self._local[node] if node else self._joint)[name]
        del self._pools[pool][name]
        self._devices[pool] -= len(item.devices)
        self._count_unhomed(item, -1)

        if not self._devices[pool]:
            del self._devices[pool]

        self._named[pool][node] -= 1
        if not self._named[pool][node]:
            del self._named[pool][node]

        if not self._pools[pool]:
            del self._pools[pool], self._named[pool]

        (self.joint.discard if self.home(pool) or pool not in self._pools else self.joint.add)(pool)
        if node and not self._local[node]:
            del self._local[node]

        return (changed | {self.home(pool)}) - {""}

    def pool_of(self, name: str) -> PoolId:
        """The pool of a slice, ("", "") if it is not known."""
        item = self._slices.get(name)
        if item is not None:
            return (item.driver, item.pool)

        return ("", "")

    def names(self) -> Collection[str]:
        """Names of the slices."""
        return self._slices.keys()

    def nodes(self) -> Collection[str]:
        """Names of the nodes that slices name."""
        return self._local.keys()

    def home(self, pool: PoolId) -> str:
        """The node that all slices of the pool name; "" if they name several nodes or none."""
        named = self._named.get(pool)
        if named is not None and len(named) == 1:
            return next(iter(named))

        return ""

    def offered(self, node: str) -> int:
        """Upper bound of the number of device allocations on a node."""
        # Not only the newest generation: an upper limit may be too large, and this is asked for
        # every node.
        devices = [
            device
            for resource_slice in self._local.get(node, {}).values()
            for device in resource_slice.devices
        ]
        if any(device.shared for device in devices):
            return MANY

        return len(devices) + self.offered_anywhere

    @property
    def offered_anywhere(self) -> int:
        """The part of `offered` that comes from slices without a node name.

        It is added for every node, because only plans work out which nodes can use such a slice.
        """
        devices, shared = self._unhomed
        return MANY if shared else devices

    def _count_unhomed(self, item: ResourceSlice, sign: int) -> None:
        if not item.scope.node:
            self._unhomed[0] += sign * len(item.devices)
            self._unhomed[1] += sign * sum(device.shared for device in item.devices)

    def _joint_slices(self) -> Iterator[ResourceSlice]:
        """Slices of pools that belong to several nodes."""
        return (
            resource_slice
            for pool in sorted(self.joint)
            for resource_slice in self._pools[pool].values()
        )

    def joint_scopes(self) -> dict[NodeScope, set[PoolId]]:
        """The scopes of slices and devices of joint pools (those that several nodes can use), each
        with its pools.
        """
        scopes: dict[NodeScope, set[PoolId]] = defaultdict(set)
        for resource_slice in self._joint_slices():
            for scope in {
                resource_slice.scope,
                *(device.scope for device in resource_slice.devices if resource_slice.per_device),
            }:
                if scope.given:
                    scopes[scope].add((resource_slice.driver, resource_slice.pool))

        return scopes

    @property
    def joint_devices(self) -> int:
        """Number of devices in pools that several nodes can use."""
        return sum(self._devices[pool] for pool in self.joint)

    def with_counters(self) -> set[PoolId]:
        """The pools that several nodes can use and that have counters."""
        result: set[PoolId] = set()
        for resource_slice in self._joint_slices():
            if resource_slice.counters:
                result.add((resource_slice.driver, resource_slice.pool))

        return result

    def local_pools(self, name: str) -> tuple[Pool, ...]:
        """The pools that belong only to the node with this name."""
        reached: dict[PoolId, list[ResourceSlice]] = defaultdict(list)
        for resource_slice in self._local.get(name, {}).values():
            if not resource_slice.ignored:
                reached[resource_slice.driver, resource_slice.pool].append(resource_slice)

        # Joint pools are seen through views, so that thousands of equal nodes share one search.
        own = {pool: slices for pool, slices in reached.items() if self.home(pool)}
        return self._sorted(own, Node(name=name))

    def pools(self, node: Node) -> tuple[Pool, ...]:
        """The pools with a slice that the node can use."""
        return self._sorted(self._reached(node), node)

    def joint_pools(self, node: Node) -> tuple[Pool, ...]:
        """The pools that the node can use together with other nodes."""
        joint = {}
        for pool, slices in self._reached(node).items():
            if not self.home(pool):
                joint[pool] = slices

        return self._sorted(joint, node)

    def entire(self, pool: PoolId) -> Pool:
        """The pool with all its devices, whichever nodes can use them."""
        slices = [
            resource_slice
            for resource_slice in self._pools.get(pool, {}).values()
            if not resource_slice.ignored
        ]
        # Older generations are leftovers of a driver's update; kube-scheduler ignores them as well.
        newest = max((resource_slice.generation for resource_slice in slices), default=0)
        here = sorted(
            (resource_slice for resource_slice in slices if resource_slice.generation == newest),
            key=lambda each: each.name,
        )

        return self._built(pool, here, [], Node(name=""))

    def _reached(self, node: Node) -> dict[PoolId, list[ResourceSlice]]:
        """By pool, the slices that the node can use."""
        reached: dict[PoolId, list[ResourceSlice]] = defaultdict(list)
        for resource_slice in (*self._local.get(node.name, {}).values(), *self._joint.values()):
            if not resource_slice.ignored and _reaches(resource_slice, node):
                reached[resource_slice.driver, resource_slice.pool].append(resource_slice)

        return reached

    def _sorted(
        self,
        reached: Mapping[PoolId, list[ResourceSlice]],
        node: Node,
    ) -> tuple[Pool, ...]:
        return in_order(
            pool
            for key, slices in reached.items()
            if (pool := self._pool(key, slices, node)) is not None
        )

    def _pool(
        self,
        key: PoolId,
        slices: list[ResourceSlice],
        node: Node,
    ) -> Pool | None:
        generation = max(resource_slice.generation for resource_slice in slices)
        here = [
            resource_slice for resource_slice in slices if resource_slice.generation == generation
        ]
        count = here[0].slices
        others: list[ResourceSlice] = []

        # The node reaches only some of the slices: whether the pool is complete depends on the
        # others.
        if len(here) != count:
            pool = self._pools[key].values()
            if any(resource_slice.generation > generation for resource_slice in pool):
                return None  # the newer one has nothing for this node

            whole = [
                resource_slice
                for resource_slice in pool
                if resource_slice.generation == generation and not resource_slice.ignored
            ]
            if len(whole) != count:
                return Pool(key, incomplete=True)

            names = {resource_slice.name for resource_slice in here}
            others = [
                resource_slice for resource_slice in whole if resource_slice.name not in names
            ]

        return self._built(key, sorted(here, key=lambda each: each.name), others, node)

    def _built(
        self,
        key: PoolId,
        here: list[ResourceSlice],
        others: list[ResourceSlice],
        node: Node,
    ) -> Pool:
        counters: dict[Counter, int] = {}
        sets: Counts[str] = Counts()

        for resource_slice in (*here, *others):
            for name, amounts in resource_slice.counters:
                sets[name] += 1
                counters.update({(name, counter): amount for counter, amount in amounts})

        devices = [
            (resource_slice, device)
            for resource_slice in here
            if not resource_slice.counters
            for device in resource_slice.devices
        ]
        # Since Kubernetes 1.35 a slice has either counter sets or devices.
        shared = (resource_slice for resource_slice in others if not resource_slice.counters)
        elsewhere = [
            (resource_slice, device)
            for resource_slice in shared
            for device in resource_slice.devices
            if device.counters
        ]
        names = Counts(device.name for _, device in devices)

        # The order of these checks is kube-scheduler's: the first message is the one that users
        # see.
        invalid = next(
            (f"duplicate device name {name}" for name, count in names.items() if count > 1), ""
        )
        invalid = invalid or next(
            (f"duplicate counter set name {name}" for name, count in sets.items() if count > 1), ""
        )
        consumed = (
            counter for _, device in (*devices, *elsewhere) for counter, _ in device.counters
        )

        invalid = invalid or next(
            (
                f"counter {name} not found in counter set {group}"
                for group, name in consumed
                if (group, name) not in counters
            ),
            "",
        )
        if invalid:
            return Pool(key, invalid=invalid)

        return Pool(
            key,
            devices=tuple(self._device(key, each, device, node) for each, device in devices),
            elsewhere=tuple(self._device(key, each, device, node) for each, device in elsewhere),
            counters=counters,
        )

    def _device(
        self,
        key: PoolId,
        part: ResourceSlice,
        device: Device,
        node: Node,
    ) -> PoolDevice:
        driver, pool = key
        ruled = tuple(
            rule.taint
            for rule in self.rules
            if rule.driver in {None, driver}
            and rule.pool in {None, pool}
            and rule.device in {None, device.name}
        )
        here = not part.per_device or _matches(device.scope, node)
        scope = device.scope if part.per_device else part.scope

        return PoolDevice(
            (driver, pool, device.name),
            device,
            here,
            (*device.taints, *ruled),
            scope,
        )


def in_order(pools: Iterable[Pool]) -> tuple[Pool, ...]:
    """Pools in the order in which kube-scheduler tries them."""
    # False sorts first: devices with binding conditions are the last resort of kube-scheduler 1.37.
    return tuple(sorted(pools, key=lambda pool: (_conditional(pool), pool.id)))


def _conditional(pool: Pool) -> bool:
    return any(device.device.conditional for device in pool.devices)


def _reaches(part: ResourceSlice, node: Node) -> bool:
    # With per-device scopes, the slice is reached if any of its devices is.
    if part.scope.given:
        return _matches(part.scope, node)

    return part.per_device and any(_matches(device.scope, node) for device in part.devices)


def _matches(scope: NodeScope, node: Node) -> bool:
    if scope.node:
        return scope.node == node.name

    return scope.everywhere or (scope.terms is not None and any_term_met(scope.terms, node))


def attribute_of(each: PoolDevice, attribute: str) -> Attribute | None:
    """The value of the attribute with this fully qualified name. The device may omit the domain of
    its own driver.
    """
    found = each.device.attributes.get(attribute)
    domain, _, name = attribute.partition("/")
    if found is None and domain == each.id[0]:
        return each.device.attributes.get(name)

    return found


def prevents(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    """Whether the taint prevents new allocations."""
    return taint.effect in {"NoSchedule", "NoExecute"} and not any(
        toleration.effect in {"", taint.effect}
        and toleration.key in {"", taint.key}
        and (
            toleration.operator == "Exists"
            or (toleration.operator in {"", "Equal"} and toleration.value == taint.value)
        )
        for toleration in tolerations
    )


def _value(attribute: Attribute) -> Any:
    kind, value = attribute
    return version(str(value)) if kind == "version" else value
