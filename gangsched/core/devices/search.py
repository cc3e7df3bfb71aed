"""Devices for claims on one node, in the order of kube-scheduler 1.37's structured allocator.

Claims, their requests and the alternatives of a request are tried in the given order, and the
devices for one request in the order of the pools. The first solution is used, so a plain pod gets
the devices that kube-scheduler would allocate to it on that node.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import Enum, auto
from itertools import accumulate
from typing import Final

from gangsched.core.devices.device_faults import DeviceFault
from gangsched.core.devices.pools import attribute_of, prevents
from gangsched.core.devices.questions import Asked
from gangsched.core.devices.states import States
from gangsched.model.devices import MOST_DEVICES_OF_A_CLAIM, Attribute, DeviceClaim, DeviceResult

# 5 to 19 ms for hostile claims, once 45 ms with 3,072 evaluations of selectors (decision 0085).
MOST_STEPS: Final = 2_000
"""Steps of one search."""
# Passing over a device costs a comparison, a step a whole level of the search.
_SKIPPED_A_STEP: Final = 16
"""Devices that are passed over without a question."""
_DEEPEST: Final = 150
"""Devices that are taken at once: each is four levels of recursion."""


class SearchEnded(Exception):  # noqa: N818 - not an error: the bound of a search
    """The search took too many steps or became too deep."""


class Status(Enum):
    """How a part of the search ended."""

    FOUND = auto()
    NOT_FOUND = auto()
    TOO_MANY = auto()
    """The devices of a claim would be more than a claim may have: no other devices for its earlier
    requests help.
    """


class DeviceSearch:
    """One search for devices of all claims of `pods`, in this order. `use` has the devices if the
    search finds them; otherwise it is restored.

    `deepest` is the largest number of pods that had devices together. Each pod has a claim. Nothing
    is tried twice: neither two interchangeable devices, nor the same remaining pods with units in
    the same states. The solution is still the first in kube-scheduler's order: if it used the later
    of two such devices, swapping their units would give an earlier solution. `alike`: all pods have
    equal requests; then only the number of pods is found, not all devices.
    """

    def __init__(
        self,
        states: States,
        pods: Sequence[Sequence[DeviceClaim]],
        *,
        alike: bool = False,
        most_steps: int = MOST_STEPS,
    ) -> None:
        self._states = states
        self._questions = states.questions
        self._use = states.use
        self._claims = [claim for claims in pods for claim in claims]
        self._pods = len(pods)
        self._first_of_pod = dict(
            zip(accumulate(map(len, pods), initial=0), range(len(pods) + 1), strict=True)
        )
        self._alike = alike
        self._asked = [states.asked(claim) for claim in self._claims]
        self.left = most_steps
        self.deepest = 0

        # Pods that are left with a state that was tried before end as they did then (decision
        # 0085).
        self._more: dict[Hashable, int | None] = {}
        """How many more pods had devices with units of these states; None while that
        is searched.
        """
        self._depth = 0
        self._results: list[list[tuple[Asked, int, dict[str, int]]]] = [[] for _ in self._claims]
        self._values: list[list[list[Attribute]]] = [
            [[] for _ in claim.constraints] for claim in self._claims
        ]

    def found(self) -> bool:
        """Whether there is a solution; if so, its devices are taken in `use`. Raises DeviceFault
        and SearchEnded.
        """
        return self._pod(0) is Status.FOUND

    def give_back(self) -> None:
        """Undo the solution, which ends the search."""
        for claim in reversed(range(len(self._claims))):
            for _, at, amounts in reversed(self._results[claim]):
                self._use.give_back(at, claim, amounts)
                self._states.update(at)

            self._results[claim].clear()

    def results(self) -> tuple[tuple[DeviceResult, ...], ...]:
        """The devices of each claim."""
        return tuple(
            tuple(self._result(claim, number, *each) for number, each in enumerate(found))
            for claim, found in zip(self._claims, self._results, strict=True)
        )

    def _result(
        self,
        claim: DeviceClaim,
        number: int,
        asked: Asked,
        at: int,
        amounts: dict[str, int],
    ) -> DeviceResult:
        device = self._questions.devices[at]
        request = asked.request

        if not device.device.shared:
            return DeviceResult(request.full_name, device.id, request.admin)

        share = f"{claim.uid}/{request.full_name}/{number}"
        return DeviceResult(
            request.full_name,
            device.id,
            request.admin,
            share,
            tuple(sorted(amounts.items())),
        )

    def _charge(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0 or self._depth > _DEEPEST:
            raise SearchEnded

    def _pod(self, claim: int) -> Status:
        """Take the devices of the pod of which this is the first claim, and of all pods
        after it.
        """
        number = self._first_of_pod[claim]
        self.deepest = max(self.deepest, number)
        if number == self._pods:
            return Status.FOUND

        # Pods that ask the same are interchangeable, so for them only the state matters and not how
        # many came before.
        key = (0 if self._alike else number, self._states.key())
        if key in self._more:
            more = self._more[key]
            # None: the pods before this one took nothing, so that all can do as they did.
            reached = self._pods if more is None else min(self._pods, number + more)

            self.deepest = max(self.deepest, reached)
            if reached == self._pods:
                return Status.FOUND

            return Status.NOT_FOUND

        # Set before the descent: a pod that takes nothing reaches the same state again, and must
        # not recurse forever.
        self._more[key] = None
        # `deepest` measures the descent below; the maximum of both is restored afterwards.
        before = self.deepest
        self.deepest = number

        try:
            status = self._request(claim, 0)
        finally:
            self._more[key] = self.deepest - number
            self.deepest = max(before, self.deepest)

        return status

    def _request(self, claim: int, number: int) -> Status:
        """Take the devices of this request, and of all requests and claims after it."""
        begins = number == len(self._asked[claim])
        while number == len(self._asked[claim]):
            claim = claim + 1
            number = 0

            # A pod begins: remembering works per pod, since constraints and limits are within one
            # claim.
            if claim in self._first_of_pod:
                status = self._pod(claim)
                if status is Status.TOO_MANY:
                    return Status.NOT_FOUND

                return status

        alternatives = self._asked[claim][number]
        # Unless some alternative fails for lack of devices, the reason is the limit of the claim.
        status = Status.TOO_MANY

        for asked in alternatives:
            is_found = self._devices(claim, number, asked, 0, 0)
            if is_found is Status.FOUND:
                return is_found

            status = status if is_found is Status.TOO_MANY else Status.NOT_FOUND

        # fewer devices for the claim before would not help this one
        return Status.NOT_FOUND if begins else status

    def _devices(
        self,
        claim: int,
        number: int,
        asked: Asked,
        index: int,
        start: int,
    ) -> Status:
        """Take the remaining devices of a request, from the place `start` on, and all after it."""
        self._charge(1)
        # Mode All requires at least one device.
        if asked.every is not None and not asked.every:
            return Status.NOT_FOUND
        if asked.count - index > MOST_DEVICES_OF_A_CLAIM - len(self._results[claim]):
            return Status.TOO_MANY
        if asked.every is not None:
            return self._with(claim, number, asked, index, asked.every[index])

        skipped = 0
        tried = set()

        for at in range(start, len(self._questions.devices)):
            if self._is_taken(claim, asked, at) or not self._questions.matches(
                asked,
                at,
                self._claims[claim],
            ):
                skipped += 1
                continue

            # With administrator access a device can be taken twice, so equal units are no longer
            # interchangeable.
            if not self._states.admin and at in self._states.place:
                unit, position = self._states.place[at]
                like = (self._states.states[unit], position)
                if like in tried:
                    skipped += 1
                    continue

                tried.add(like)

            status = self._with(claim, number, asked, index, at)
            if status is not Status.NOT_FOUND:
                return status

        # Also in vain: a node with thousands of taken devices must not be free of charge.
        self._charge(skipped // _SKIPPED_A_STEP)
        return Status.NOT_FOUND

    def _is_taken(
        self,
        claim: int,
        asked: Asked,
        at: int,
    ) -> bool:
        if asked.request.admin:
            return claim in self._use.holders[at]

        return self._use.is_taken(at)

    def _with(
        self,
        claim: int,
        number: int,
        asked: Asked,
        index: int,
        at: int,
    ) -> Status:
        """Take this device and all after it."""
        self._charge(1)
        amounts = self._amounts(claim, asked, at)
        if amounts is None:
            return Status.NOT_FOUND

        values = self._new_values(claim, asked, at)
        if values is None:
            return Status.NOT_FOUND

        self._use.take(at, claim, amounts)
        self._states.update(at)
        self._results[claim].append((asked, at, amounts))

        for kept, value in values:
            kept.append(value)

        self._depth += 1
        status = Status.NOT_FOUND

        try:
            if index + 1 == asked.count:
                status = self._request(claim, number + 1)
            else:
                status = self._devices(claim, number, asked, index + 1, at + 1)
        finally:
            if status is not Status.FOUND:
                self._depth -= 1
                for kept, _ in values:
                    kept.pop()

                self._results[claim].pop()
                self._use.give_back(at, claim, amounts)
                self._states.update(at)

        return status

    def _amounts(
        self,
        claim: int,
        asked: Asked,
        at: int,
    ) -> dict[str, int] | None:
        """Amounts that the request takes of the device's capacities; None if it cannot use the
        device now.
        """
        device = self._questions.devices[at]
        if self._is_taken(claim, asked, at):
            return None

        amounts = self._questions.amounts(asked, at)
        # Order of the checks as in kube-scheduler: which of them fails first decides the pod's
        # message.
        if asked.every is None and (amounts is None or not self._use.has_amounts(at, amounts)):
            return None
        if self._use.consumes(at) and not self._use.has_counters(at):
            return None
        if any(prevents(taint, asked.request.tolerations) for taint in device.taints):
            return None
        if asked.every is None:
            return amounts

        # for kube-scheduler an error of the claim, before amounts are
        if self._new_values(claim, asked, at) is None:
            who = (
                f"claim {self._claims[claim].namespace}/{self._claims[claim].name}, request"
                f" {asked.request.name}"
            )
            name = "/".join(device.id)
            raise DeviceFault(
                f"{who}: cannot add device {name} because a claim constraint would not be satisfied"
            )

        if amounts is not None and self._use.has_amounts(at, amounts):
            return amounts

        return None

    def _new_values(
        self,
        claim: int,
        asked: Asked,
        at: int,
    ) -> list[tuple[list[Attribute], Attribute]] | None:
        """The values so far and the device's value, for each constraint on the request; None if one
        is violated.
        """
        values = []
        for kept, constraint in zip(
            self._values[claim],
            self._claims[claim].constraints,
            strict=True,
        ):
            if constraint.concerns(asked.request):
                value = attribute_of(self._questions.devices[at], constraint.attribute)
                if value is None or (
                    value in kept if constraint.distinct else kept and kept[0] != value
                ):
                    return None

                values.append((kept, value))

        return values
