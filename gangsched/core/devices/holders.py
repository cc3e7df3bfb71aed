"""The claims that hold devices in the whole cluster, indexed by claim and by device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from gangsched.core.devices.held import Held, Use
from gangsched.core.devices.pools import Pool
from gangsched.model.devices import DeviceId, DeviceResult


class Holders:
    """Devices by claim, and claims by device; state changes only by `hold`."""

    def __init__(self) -> None:
        self._results: dict[str, tuple[DeviceResult, ...]] = {}  # by claim
        self._holders: dict[DeviceId, dict[str, tuple[DeviceResult, ...]]] = defaultdict(dict)

    def hold(self, claim: str, results: tuple[DeviceResult, ...]) -> tuple[DeviceResult, ...]:
        """Record the devices that a claim holds, () for none; return the devices that it held
        before.
        """
        before = self._results.get(claim, ())
        if results == before:
            return before

        for result in before:
            holders = self._holders[result.id]
            holders.pop(claim, None)
            if not holders:
                del self._holders[result.id]

        self._results.pop(claim, None)
        if results:
            self._results[claim] = results

        for result in results:
            # A claim may hold several shares of one device, each with amounts of its own.
            shares = tuple(other for other in results if other.id == result.id)
            self._holders[result.id][claim] = shares

        return before

    def has(self, device: DeviceId) -> bool:
        """Whether any claim holds the device or a share of it."""
        return device in self._holders

    def held(self, pools: Sequence[Pool], without: frozenset[str] = frozenset()) -> Held:
        """The devices of these pools that claims hold; the claims in `without` count as holding
        none.
        """
        holders = self._holders
        return Held(
            result
            for pool in pools
            for device in (*pool.devices, *pool.elsewhere)
            if device.id in holders
            for claim, results in holders[device.id].items()
            if claim not in without
            for result in results
        )

    def rival(
        self,
        claim: str,
        results: Sequence[DeviceResult],
        pools: Sequence[Pool],
    ) -> str:
        """Describe the first of these devices of a claim, in these pools, that another claim holds
        as well; "" if there is none.
        """
        held = self.held(pools)
        use = Use(pools, held)
        index = {device.id: at for at, device in enumerate(use.devices)}

        for result in results:
            name = "/".join(result.id)
            at = index.get(result.id)
            holders = self._holders.get(result.id, {})

            # Two claims with administrator access may share a device with anybody.
            others = []
            for key, had in holders.items():
                if key != claim and not all(share.admin for share in had):
                    others.append(key)

            if others and not result.share:
                # A claim of another namespace is not for this one to know (I4).
                namespace = claim.rpartition("/")[0]
                near = [key for key in others if key.rpartition("/")[0] == namespace]
                rival = min(near, default="another claim")
                return f"device {name} is also allocated to {rival}"

            # The slice is gone, or not read: whether its device has enough left cannot be told.
            if at is None:
                continue

            # The claim's own amounts are part of `use` already, so it asks for nothing more.
            device = use.devices[at]
            nothing = dict.fromkeys(device.device.capacity, 0)
            if device.pool in use.overdrawn:
                return f"device {name} is allocated beyond its capacity"
            if not use.has_amounts(at, nothing):
                return f"device {name} is allocated beyond its capacity"

        return ""
