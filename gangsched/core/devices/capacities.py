"""The amounts of a device's capacities that a request uses, and whether the device has them left.

Invariant: amounts are rounded as by kube-scheduler 1.37. Amounts are billionths; a range is
computed in thousandths, or in whole numbers if its bounds do not fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gangsched.core.devices.device_faults import DeviceFault
from gangsched.model.devices import Capacity, Device, DeviceRequest, RequestPolicy
from kubernetes_cel.amounts import NANOS

_LARGEST: Final = 2**63 - 1
_MILLI: Final = NANOS // 1000


def taken_amounts(request: DeviceRequest, device: Device) -> dict[str, int] | None:
    """The amount of each capacity that the request uses; None if the device lacks a capacity or
    does not permit the amount.

    Raises DeviceFault for an amount that kube-scheduler cannot represent.
    """
    asked = dict(request.amounts)
    if not asked.keys() <= device.capacity.keys():
        return None

    # A shared device consumes an amount of every capacity, also of those that the request does not
    # name.
    taken = {name: _taken(asked.get(name), capacity) for name, capacity in device.capacity.items()}
    for name, amount in taken.items():
        if amount < 0:
            raise DeviceFault(f'capacity "{name}": capacity value is negative')

    for name, amount in taken.items():
        if _forbidden(amount, device.capacity[name].policy):
            return None

    return taken


def has_left(device: Device, used: Mapping[str, int], taken: Mapping[str, int]) -> bool:
    """Whether the amounts `taken` fit in addition to those already `used`."""
    for name, capacity in device.capacity.items():
        if used.get(name, 0) + taken[name] > capacity.value:
            return False

    return True


def _taken(asked: int | None, capacity: Capacity) -> int:
    policy = capacity.policy
    if asked is None:
        if policy is None or policy.default is None:
            return capacity.value

        return policy.default

    if policy is None:
        return asked
    if policy.least is not None:
        return _in_range(asked, policy.least, policy)

    # The smallest valid value that suffices; a larger request stays as it is, and `_forbidden`
    # rejects it.
    return next((value for value in policy.values if asked <= value), asked)


def _in_range(asked: int, least: int, policy: RequestPolicy) -> int:
    if asked < least:
        return least
    if policy.step is None:
        return asked

    unit = _unit(policy)
    if (unit == _MILLI and asked % unit) or asked > _LARGEST * unit:
        raise DeviceFault(
            "the requested capacity is too large or too fine for the device's validRange"
        )

    step = _up(policy.step, unit)
    first = _up(least, unit)

    # -(-a // b) rounds up; floats would lose exactness above 2^53.
    rounded = first + -(-(_up(asked, unit) - first) // step) * step
    if rounded > _LARGEST:
        raise DeviceFault(
            "the requested capacity is too large or too fine for the device's validRange"
        )

    return rounded * unit


def _forbidden(amount: int, policy: RequestPolicy | None) -> bool:
    # The default is always permitted, even outside the range.
    if policy is None or amount == policy.default:
        return False
    if policy.least is None:
        return bool(policy.values) and amount not in policy.values
    if policy.most is not None and amount > policy.most:
        return True
    if policy.step is None:
        return False

    unit = _unit(policy)
    if unit == _MILLI and amount % unit:
        return True

    return (_up(amount, unit) - _up(policy.least, unit)) % _up(policy.step, unit) != 0


def _unit(policy: RequestPolicy) -> int:
    # Thousandths if all bounds then fit into an int64, otherwise whole numbers, as kube-scheduler
    # computes ranges.
    for bound in (policy.least, policy.most, policy.step):
        if bound is None:
            continue
        if bound % _MILLI or abs(bound) // _MILLI > _LARGEST:
            return NANOS

    return _MILLI


def _up(amount: int, unit: int) -> int:
    return -(-amount // unit)
