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
            self._holders[result.id].pop(claim, None)
            if not self._holders[result.id]:
                del self._holders[result.id]

        self._results.pop(claim, None)
        if results:
            self._results[claim] = results

        for each in results:
            # A claim may hold several shares of one device, each with amounts of its own.
            self._holders[each.id][claim] = tuple(other for other in results if other.id == each.id)

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

    def rival(self, claim: str, results: Sequence[DeviceResult], pools: Sequence[Pool]) -> str:
        """Describe the first of these devices of a claim, in these pools, that another claim holds
        as well; "" if there is none.
        """
        use = Use(pools, self.held(pools))
        index = {each.id: at for at, each in enumerate(use.devices)}

        for result in results:
            name = "/".join(result.id)
            at = index.get(result.id)
            holders = self._holders.get(result.id, {})

            # Two claims with administrator access may share a device with anybody.
            others = [
                key
                for key, had in holders.items()
                if key != claim and not all(result.admin for result in had)
            ]
            if others and not result.share:
                # A claim of another namespace is not for this one to know (I4).
                near = [key for key in others if key.rpartition("/")[0] == claim.rpartition("/")[0]]
                return (
                    f"device {name} is also allocated to {min(near) if near else 'another claim'}"
                )

            # The slice is gone, or not read: whether its device has enough left cannot be told.
            if at is None:
                continue

            # The claim's own amounts are part of `use` already, so it asks for nothing more.
            nothing = dict.fromkeys(use.devices[at].device.capacity, 0)
            if use.devices[at].pool in use.overdrawn or not use.has_amounts(at, nothing):
                return f"device {name} is allocated beyond its capacity"

        return ""
