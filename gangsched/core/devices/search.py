"""Devices for claims on one node, in the order of kube-scheduler's structured allocator of 1.37 (A2).

Claims, their requests and the devices of a request are tried in order, and alternatives as listed; the devices of one
request only in their own order. The first solution is taken, so a plain pod has the devices that kube-scheduler would
give it on that node.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import Final

from gangsched.core.devices.capacities import taken_amounts
from gangsched.core.devices.device_faults import DeviceFault
from gangsched.core.devices.held import Use
from gangsched.core.devices.pools import PoolDevice
from gangsched.core.devices.questions import Asked, Questions
from gangsched.model.devices import MOST_DEVICES_OF_A_CLAIM, Attribute, DeviceClaim, DeviceConstraint, DeviceResult
from gangsched.model.objects import Taint, Toleration

MOST_STEPS: Final = 2_000
"""Steps of one search (A12)."""
_SKIPPED_A_STEP: Final = 16
"""Devices that are passed over without a question."""
_DEEPEST: Final = 150
"""Devices that are taken at once: each is four levels of recursion."""


class SearchEnded(Exception):  # noqa: N818 - not an error: the bound of a search
    """The search took too many steps or went too deep."""


class Status(Enum):
    """How a part of the search ended."""

    FOUND = auto()
    NOT_FOUND = auto()
    TOO_MANY = auto()
    """The devices of a claim would be more than a claim may have: no other devices for its earlier requests help."""


class DeviceSearch:
    """One search for devices of `claims`, in this order; `use` is restored when it finds none."""

    def __init__(
        self, questions: Questions, use: Use, claims: Sequence[DeviceClaim], most_steps: int = MOST_STEPS
    ) -> None:
        self._questions = questions
        self._use = use
        self._claims = claims
        self._asked = [questions.asked(claim) for claim in claims]
        self._left = most_steps
        self._depth = 0
        self._results: list[list[tuple[Asked, int, dict[str, int]]]] = [[] for _ in claims]
        self._values: list[list[list[Attribute]]] = [[[] for _ in claim.constraints] for claim in claims]

    def found(self) -> bool:
        """Whether there is a solution, which is taken then. Raises DeviceFault and SearchEnded."""
        return not self._claims or self._request(0, 0) is Status.FOUND

    def results(self) -> tuple[tuple[DeviceResult, ...], ...]:
        """The devices of each claim."""
        return tuple(
            tuple(self._result(claim, number, *each) for number, each in enumerate(found))
            for claim, found in zip(self._claims, self._results, strict=True)
        )

    def _result(self, claim: DeviceClaim, number: int, asked: Asked, at: int, amounts: dict[str, int]) -> DeviceResult:
        each, request = self._questions.devices[at], asked.request
        if not each.device.shared:
            return DeviceResult(request.full_name, each.id, request.admin)
        share = f"{claim.uid}/{request.full_name}/{number}"
        return DeviceResult(request.full_name, each.id, request.admin, share, tuple(sorted(amounts.items())))

    def _charge(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0 or self._depth > _DEEPEST:
            raise SearchEnded

    def _request(self, claim: int, number: int) -> Status:
        """Take the devices of this request, and of all requests and claims after it."""
        begins = number == len(self._asked[claim])
        while number == len(self._asked[claim]):
            claim, number = claim + 1, 0
            if claim == len(self._claims):
                return Status.FOUND
        alternatives = self._asked[claim][number]
        status = Status.TOO_MANY
        for asked in alternatives:
            found = self._devices(claim, number, asked, 0, 0)
            if found is Status.FOUND:
                return found
            status = status if found is Status.TOO_MANY else Status.NOT_FOUND
        return Status.NOT_FOUND if begins else status  # fewer devices for the claim before would not help this one

    def _devices(self, claim: int, number: int, asked: Asked, index: int, start: int) -> Status:
        """Take the remaining devices of a request, from the place `start` on, and all after it."""
        self._charge(1)
        if asked.every is not None and not asked.every:
            return Status.NOT_FOUND
        if asked.count - index > MOST_DEVICES_OF_A_CLAIM - len(self._results[claim]):
            return Status.TOO_MANY
        if asked.every is not None:
            return self._with(claim, number, asked, index, asked.every[index])
        skipped = 0
        for at in range(start, len(self._questions.devices)):
            if self._is_taken(claim, asked, at) or not self._questions.matches(asked, at, self._claims[claim]):
                skipped += 1
                continue
            status = self._with(claim, number, asked, index, at)
            if status is not Status.NOT_FOUND:
                return status
        self._charge(skipped // _SKIPPED_A_STEP)
        return Status.NOT_FOUND

    def _is_taken(self, claim: int, asked: Asked, at: int) -> bool:
        return claim in self._use.holders[at] if asked.request.admin else self._use.is_taken(at)

    def _with(self, claim: int, number: int, asked: Asked, index: int, at: int) -> Status:
        """Take this device and all after it."""
        self._charge(1)
        amounts = self._amounts(claim, asked, at)
        if amounts is None:
            return Status.NOT_FOUND
        values = self._new_values(claim, asked, at)
        if values is None:
            return Status.NOT_FOUND
        self._use.take(at, claim, amounts)
        self._results[claim].append((asked, at, amounts))
        for kept, value in values:
            kept.append(value)
        self._depth += 1
        if index + 1 == asked.count:
            status = self._request(claim, number + 1)
        else:
            status = self._devices(claim, number, asked, index + 1, at + 1)
        self._depth -= 1
        if status is not Status.FOUND:
            for kept, _ in values:
                kept.pop()
            self._results[claim].pop()
            self._use.give_back(at, claim, amounts)
        return status

    def _amounts(self, claim: int, asked: Asked, at: int) -> dict[str, int] | None:
        """What is taken of the device's capacities, None if the device cannot be had as it is."""
        each = self._questions.devices[at]
        if self._is_taken(claim, asked, at):
            return None
        amounts = taken_amounts(asked.request, each.device)
        if asked.every is None and (amounts is None or not self._use.has_amounts(at, amounts)):
            return None
        if self._use.consumes(at) and not self._use.has_counters(at):
            return None
        if any(prevents(taint, asked.request.tolerations) for taint in each.taints):
            return None
        if asked.every is None:
            return amounts
        if self._new_values(claim, asked, at) is None:  # for kube-scheduler an error of the claim, before amounts are
            who = f"claim {self._claims[claim].namespace}/{self._claims[claim].name}, request {asked.request.name}"
            name = "/".join(each.id)
            raise DeviceFault(f"{who}: cannot add device {name} because a claim constraint would not be satisfied")
        return amounts if amounts is not None and self._use.has_amounts(at, amounts) else None

    def _new_values(self, claim: int, asked: Asked, at: int) -> list[tuple[list[Attribute], Attribute]] | None:
        """What the device adds to each constraint that concerns the request, None if one would not hold."""
        found = []
        for kept, constraint in zip(self._values[claim], self._claims[claim].constraints, strict=True):
            if constraint.concerns(asked.request):
                value = attribute_of(self._questions.devices[at], constraint)
                if value is None or (value in kept if constraint.distinct else kept and kept[0] != value):
                    return None
                found.append((kept, value))
        return found


def attribute_of(each: PoolDevice, constraint: DeviceConstraint) -> Attribute | None:
    """The value of the attribute that the constraint names, fully qualified or as one of the driver."""
    found = each.device.attributes.get(constraint.attribute)
    domain, _, name = constraint.attribute.partition("/")
    return each.device.attributes.get(name) if found is None and domain == each.id[0] else found


def prevents(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    """Whether the taint keeps new allocations off."""
    return taint.effect in {"NoSchedule", "NoExecute"} and not any(
        toleration.effect in {"", taint.effect}
        and toleration.key in {"", taint.key}
        and (
            toleration.operator == "Exists"
            or (toleration.operator in {"", "Equal"} and toleration.value == taint.value)
        )
        for toleration in tolerations
    )
