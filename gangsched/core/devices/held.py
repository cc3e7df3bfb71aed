"""The devices of one node that claims hold, and the devices that a search uses in addition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gangsched.core.devices.capacities import has_left
from gangsched.core.devices.pools import Pool, PoolDevice, PoolId
from gangsched.model.devices import Counter, DeviceId, DeviceResult


class Held:
    """The devices and shares of devices that claims hold in the whole cluster, and the amounts of
    these shares.
    """

    def __init__(self, results: Iterable[DeviceResult] = ()) -> None:
        self.whole: set[DeviceId] = set()
        self.shared: set[DeviceId] = set()
        self.amounts: dict[DeviceId, dict[str, int]] = {}

        for result in results:
            # Administrator access neither takes a device nor needs it to be free.
            if result.admin:
                continue

            if not result.share:
                self.whole.add(result.id)
                continue

            self.shared.add(result.id)
            amounts = self.amounts.setdefault(result.id, {})

            for name, amount in result.amounts:
                before = amounts.get(name, 0)
                amounts[name] = before + amount

    def any_of(self, device: DeviceId) -> bool:
        """Whether any claim holds the device, or a share of it."""
        return device in self.whole or device in self.shared


class Use:
    """Allocations of one node's devices, indexed by position in `devices`.

    `holders[at]` are the claims of the search that use the whole device, `shares[at]` counts the
    allocated shares, and `used[at]` sums their amounts by capacity. `left` is the remaining value
    of each counter. Invariant: `give_back` undoes `take`.
    """

    def __init__(self, pools: Sequence[Pool], held: Held) -> None:
        self.devices: list[PoolDevice] = []
        for pool in pools:
            self.devices += pool.devices

        self.held: list[bool] = []
        self.holders: list[set[int]] = []
        # At most 1 of those that claims hold: only the step from no share to the first one consumes
        # counters.
        self.shares: list[int] = []
        self.used: list[dict[str, int]] = []
        for device in self.devices:
            self._add(device, held)

        self.left: dict[tuple[PoolId, Counter], int] = {}
        for pool in pools:
            self._add_counters(pool, held)

        self.overdrawn: set[PoolId] = set()
        """Pools of which a counter is below nothing: none of their devices with counters can be
        had.
        """
        for (pool_id, _), amount in self.left.items():
            if amount < 0:
                self.overdrawn.add(pool_id)

    def _add(self, device: PoolDevice, held: Held) -> None:
        is_held = device.id in held.whole
        is_shared = device.id in held.shared
        nothing = dict.fromkeys(device.device.capacity, 0)
        amounts = held.amounts.get(device.id, {})

        self.held.append(is_held)
        self.holders.append(set())
        self.shares.append(int(is_shared))
        self.used.append(nothing | amounts)

    def _add_counters(self, pool: Pool, held: Held) -> None:
        for counter, amount in pool.counters.items():
            self.left[pool.id, counter] = amount

        # Devices that this node cannot use consume the same counters, so they count as well.
        for device in (*pool.devices, *pool.elsewhere):
            if held.any_of(device.id):
                self._consume(device, 1)

    def is_taken(self, at: int) -> bool:
        """Whether a claim uses the whole device."""
        if self.held[at]:
            return True

        return bool(self.holders[at])

    def consumes(self, at: int) -> bool:
        """Whether allocating the device, or a share of it, consumes its counters. Only its first
        share does.
        """
        device = self.devices[at].device
        if not device.counters:
            return False

        return not (device.shared and self.shares[at])

    def has_counters(self, at: int) -> bool:
        """Whether the counters that the device consumes have enough left for it."""
        device = self.devices[at]
        pool = device.pool
        if pool in self.overdrawn:
            return False

        for counter, amount in device.device.counters:
            left = self.left[pool, counter]
            if left < amount:
                return False

        return True

    def has_amounts(self, at: int, amounts: Mapping[str, int]) -> bool:
        """Whether the device's capacities have enough left for these amounts."""
        device = self.devices[at].device
        return has_left(device, self.used[at], amounts)

    def take(
        self,
        at: int,
        claim: int,
        amounts: Mapping[str, int],
    ) -> None:
        """Allocate the device to a claim; if the device is shared, allocate a share with these
        amounts.
        """
        device = self.devices[at]
        # Before the share is counted, and in `give_back` after it was removed: both must see the
        # first share.
        if self.consumes(at):
            self._consume(device, 1)

        if not device.device.shared:
            self.holders[at].add(claim)
            return

        self.shares[at] += 1
        used = self.used[at]
        for name, amount in amounts.items():
            before = used.get(name, 0)
            used[name] = before + amount

    def give_back(
        self,
        at: int,
        claim: int,
        amounts: Mapping[str, int],
    ) -> None:
        """Undo `take`."""
        device = self.devices[at]
        if device.device.shared:
            self.shares[at] -= 1
            used = self.used[at]
            for name, amount in amounts.items():
                used[name] -= amount
        else:
            self.holders[at].discard(claim)

        if self.consumes(at):
            self._consume(device, -1)

    def _consume(self, device: PoolDevice, sign: int) -> None:
        for counter, amount in device.device.counters:
            self.left[device.pool, counter] -= sign * amount
