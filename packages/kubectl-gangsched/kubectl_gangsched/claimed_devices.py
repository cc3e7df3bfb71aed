"""Devices of ResourceSlices by node and driver, and whose ResourceClaims have them.

Invariant: a device counts once. Devices that share counters, as the partitions of a GPU do, count
as far as they fit beside each other, the largest first. Devices that no node has alone, and those
that are tainted and not in use, do not count: no place on a map is theirs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias

from gangsched.model.devices import Counter as SharedCounter
from gangsched.model.devices import Device, DeviceId, ResourceSlice
from gangsched.model.storage import ResourceClaim

Pool: TypeAlias = tuple[str, str]
"""Driver and name."""
UserOf: TypeAlias = Callable[[str], str | None]
"""The id of the gang or pod of a pod's uid; None if the pod is not known."""


class DriverUse(NamedTuple):
    """Devices of one driver on a node: all that can be had, and how many each user has."""

    total: int
    users: Counter[str]


class ClaimedDevices:
    """What is known of slices and claims, as they come."""

    def __init__(self) -> None:
        """Nothing is known."""
        self._slices: dict[str, ResourceSlice] = {}
        self._pools: dict[Pool, dict[str, ResourceSlice]] = {}
        self._pools_of: defaultdict[str, set[Pool]] = defaultdict(set)
        self._claims: dict[str, ResourceClaim] = {}
        #: Claims that have a device, by key; several if they share it.
        self._holders: defaultdict[DeviceId, set[str]] = defaultdict(set)
        #: Claims with devices that a pod may use, by its uid.
        self._claims_of_pod: defaultdict[str, set[str]] = defaultdict(set)

    def put_slice(
        self,
        name: str,
        part: ResourceSlice | None,
    ) -> set[str]:
        """Add or replace a slice, or forget it; the nodes that this touches."""
        before = self._slices.pop(name, None)
        touched: set[str] = set()
        if before is not None:
            pool = before.driver, before.pool
            touched |= self._nodes(pool)
            del self._pools[pool][name]
            if not self._pools[pool]:
                del self._pools[pool]

        if part is not None:
            self._slices[name] = part
            pool = part.driver, part.pool
            self._pools.setdefault(pool, {})[name] = part
            touched |= self._nodes(pool)
            for node in nodes_of(part):
                self._pools_of[node].add(pool)

        return touched

    def put_claim(
        self,
        key: str,
        claim: ResourceClaim | None,
    ) -> set[str]:
        """Add or replace a claim, or forget it; the nodes whose devices it had or has."""
        touched: set[str] = set()
        before = self._claims.pop(key, None)
        for uid in _pods_of(before):
            self._claims_of_pod[uid].discard(key)
            if not self._claims_of_pod[uid]:
                del self._claims_of_pod[uid]

        for device in devices_of(before):
            self._holders[device].discard(key)
            touched |= self._nodes(device[:2])

        if claim is not None:
            self._claims[key] = claim
            for uid in _pods_of(claim):
                self._claims_of_pod[uid].add(key)

            for device in devices_of(claim):
                self._holders[device].add(key)
                touched |= self._nodes(device[:2])

        return touched

    def on_node(
        self,
        node: str,
        user_of: UserOf,
    ) -> dict[str, DriverUse]:
        """The devices of a node, by driver."""
        uses: dict[str, DriverUse] = {}
        for pool in sorted(self._pools_of.get(node, ())):
            use = self._use(pool, node, user_of)
            if not use.total:
                continue

            driver, _ = pool
            before = uses.get(driver)
            if before is not None:
                total = before.total + use.total
                use = DriverUse(total, before.users + use.users)

            uses[driver] = use

        return uses

    def has(self, uid: str) -> bool:
        """Whether a pod uses a device."""
        return uid in self._claims_of_pod

    def nodes_of_pod(self, uid: str) -> set[str]:
        """The nodes with devices of a pod, whose name may be known later than its claims."""
        nodes: set[str] = set()
        for key in self._claims_of_pod.get(uid, ()):
            for device in devices_of(self._claims[key]):
                nodes |= self._nodes(device[:2])

        return nodes

    def _current(self, pool: Pool) -> list[ResourceSlice]:
        """The slices of the newest generation."""
        slices = self._pools.get(pool, {}).values()
        newest = max((part.generation for part in slices), default=0)

        current = []
        for part in slices:
            if part.generation == newest and not part.ignored:
                current.append(part)

        return current

    def _use(
        self,
        pool: Pool,
        node: str,
        user_of: UserOf,
    ) -> DriverUse:
        slices = self._current(pool)
        left = _counters(slices)
        free: list[Device] = []
        users: Counter[str] = Counter()

        for part in slices:
            for device in _on(part, node):
                holders = self._holders.get((*pool, device.name))
                if holders:
                    user = self._user(min(holders), user_of)
                    users[user] += 1
                    left.subtract(dict(device.counters))
                elif not device.taints:
                    free.append(device)

        room = 0
        for device in sorted(free, key=_largest_first):
            needs = Counter(dict(device.counters))
            if needs <= left:
                left.subtract(needs)
                room += 1

        return DriverUse(users.total() + room, users)

    def _user(
        self,
        key: str,
        user_of: UserOf,
    ) -> str:
        claim = self._claims[key]
        for uid in claim.reserved:
            user = user_of(uid)
            if user is not None:
                return user

        return f"claim {claim.namespace}/{claim.name}"

    def _nodes(self, pool: Pool) -> set[str]:
        nodes: set[str] = set()
        for part in self._pools.get(pool, {}).values():
            nodes.update(nodes_of(part))

        return nodes


def devices_of(claim: ResourceClaim | None) -> Iterator[DeviceId]:
    """The devices that a claim has; an administrator's access takes nothing from others."""
    if claim is not None and claim.asks is not None:
        for result in claim.asks.results or ():
            if not result.admin:
                yield result.id


def _pods_of(claim: ResourceClaim | None) -> tuple[str, ...]:
    if claim is None or not any(devices_of(claim)):
        return ()

    return claim.reserved


def nodes_of(part: ResourceSlice) -> set[str]:
    """The nodes that have devices of a slice for themselves."""
    if part.per_device:
        return {device.scope.node for device in part.devices if device.scope.node}

    return {part.scope.node} if part.scope.node else set()


def _on(part: ResourceSlice, node: str) -> Iterator[Device]:
    for device in part.devices:
        scope = device.scope if part.per_device else part.scope
        if scope.node == node:
            yield device


def _counters(slices: Iterable[ResourceSlice]) -> Counter[SharedCounter]:
    """What there is of each shared counter."""
    left: Counter[SharedCounter] = Counter()
    for part in slices:
        for counter_set, values in part.counters:
            for name, value in values:
                left[counter_set, name] += value

    return left


def _largest_first(device: Device) -> tuple[int, str]:
    return -sum(amount for _, amount in device.counters), device.name
