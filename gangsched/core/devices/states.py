"""The devices of a node reduced to states without names, which contain only the facts that some
claims depend on.

A *unit* is the set of devices that share counters, or one device without counters. Its state
consists of the remaining counters and, for each device, the requests that it satisfies, the
attributes that constraints name, and its use. Two units with equal states can be swapped in any
solution, and nodes with equal states have equal room.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import Final, TypeAlias

from gangsched.core.devices.device_faults import DeviceFault, DevicesUnsupported
from gangsched.core.devices.held import Use
from gangsched.core.devices.pools import PoolDevice, PoolId, attribute_of, prevents
from gangsched.core.devices.questions import Asked, Questions
from gangsched.model.devices import Counter, DeviceClaim

StateIds: TypeAlias = dict[Hashable, int]
"""Numbers of unit states, so that they are compared and sorted fast."""


# Each request asks each of 128 devices: 3,072 evaluations are the costliest node (decision 0085).
MOST_REQUESTS: Final = 24
"""Requests and alternatives of claims that are searched together: each is asked about
each device.
"""
_QUESTIONS_A_STEP: Final = 4


class States:
    """The units of one node and their states; `update` is called when a device is allocated or
    released.

    `faulty`: a selector cannot be evaluated for some device, so the order of the devices matters.
    """

    def __init__(
        self,
        questions: Questions,
        use: Use,
        claims: Iterable[DeviceClaim],
        ids: StateIds,
    ) -> None:
        """Raises DeviceFault for a claim that cannot be allocated anywhere."""
        self.questions = questions
        self.use = use
        self._ids = ids
        self.faulty = False

        # By identity: members with equal claims have claims of their own.
        distinct = {id(claim): claim for claim in claims}
        self._asked = {key: questions.asked(claim) for key, claim in distinct.items()}

        self._requests = [
            (claim, asked)
            for key, claim in distinct.items()
            for group in self._asked[key]
            for asked in group
        ]
        if len(self._requests) > MOST_REQUESTS:
            raise DevicesUnsupported(
                f"{len(self._requests)} requests and alternatives are more than {MOST_REQUESTS}"
            )

        self._attributes = [
            device_constraint.attribute
            for claim in distinct.values()
            for device_constraint in claim.constraints
        ]
        self.admin = any(each.request.admin for _, each in self._requests)
        kinds = [self._kind(questions, at, each) for at, each in enumerate(questions.devices)]

        # Devices that no request may use do not matter, so nodes that differ only in them have
        # equal states.
        places = [at for at, kind in enumerate(kinds) if kind is not None]
        self._units = _units(questions.devices, places)
        self._counters: list[tuple[tuple[PoolId, Counter], ...]] = []
        self._unchanging: list[Hashable] = []
        self.place: dict[int, tuple[int, int]] = {}
        """Unit and position in it of each device that some request may have."""
        for number, unit in enumerate(self._units):
            self.place.update({at: (number, position) for position, at in enumerate(unit)})
            needed = []

            for device in (questions.devices[at] for at in unit):
                needed.append(
                    [((device.pool, counter), amount) for counter, amount in device.device.counters]
                )

            counters = tuple(dict.fromkeys(counter for each in needed for counter, _ in each))
            # Positions instead of names: GPU 0 and GPU 1 have counter sets of different names and
            # are alike.
            index = {counter: position for position, counter in enumerate(counters)}
            self._counters.append(counters)
            consumed = tuple(
                tuple((index[counter], amount) for counter, amount in each) for each in needed
            )
            self._unchanging.append((tuple(kinds[at] for at in unit), consumed))

        self.states = [self._state(number) for number in range(len(self._units))]

    def update(self, at: int) -> None:
        """Recompute the state of the unit that contains the device."""
        if at in self.place:
            number = self.place[at][0]
            self.states[number] = self._state(number)

    def key(self) -> Hashable:
        """The states of all units, sorted, unless a fault makes the order of the devices matter."""
        # Sorted, so that nodes with the same units in another order share the answer.
        if self.faulty:
            return tuple(self.states)

        return tuple(sorted(self.states))

    def asked(self, claim: DeviceClaim) -> list[list[Asked]]:
        """The requests of a claim, each with its alternatives."""
        return self._asked[id(claim)]

    @property
    def steps(self) -> int:
        """Search steps to compute the states: one per request and device."""
        return len(self._requests) * len(self.questions.devices) // _QUESTIONS_A_STEP

    def at_most(self, claims: Iterable[DeviceClaim], pods: int) -> int:
        """Upper bound of the number of pods with these claims for which the devices suffice,
        assuming that each device is used once. It is at least 1 if a selector cannot be evaluated,
        because kube-scheduler reports that error rather than a lack of devices.
        """
        places = [at for unit in self._units for at in unit]
        # One device may serve many pods then, so the number of devices is no bound.
        if self.admin or any(self.use.devices[at].device.shared for at in places):
            return pods

        fewest = sum(
            min(asked.count for asked in group) for claim in claims for group in self.asked(claim)
        )
        suffice = sum(not self.use.is_taken(at) for at in places) // max(1, fewest)
        return min(pods, max(1, suffice) if self.faulty else suffice)

    def _kind(self, questions: Questions, at: int, found: PoolDevice) -> Hashable:
        """The part of a device's state that taking devices does not change; None if no request may
        use it.
        """
        may: list[Hashable] = []
        for claim, asked in self._requests:
            try:
                amounts = (
                    questions.amounts(asked, at) if questions.matches(asked, at, claim) else None
                )
            except DeviceFault:
                self.faulty = True
                # Unlike any other device: which one is met first decides whether the pod is in
                # error.
                return ("fault", at)

            closed = any(prevents(taint, asked.request.tolerations) for taint in found.taints)
            every = asked.every is not None and at in asked.every
            usable = amounts is not None and not closed
            may.append((every, closed, tuple((amounts or {}).items())) if every or usable else None)

        if not any(may):
            return None

        device = found.device
        values = tuple(attribute_of(found, attribute) for attribute in self._attributes)
        capacity = tuple((name, each.value) for name, each in device.capacity.items())
        overdrawn = bool(device.counters) and found.pool in self.use.overdrawn

        return (tuple(may), values, device.shared, capacity, overdrawn)

    def _state(self, number: int) -> int:
        use = self.use
        taken = tuple(
            (
                (bool(use.shares[at]), tuple(use.used[at].items()))
                if use.devices[at].device.shared
                else use.is_taken(at)
            )
            for at in self._units[number]
        )
        left = tuple(use.left[counter] for counter in self._counters[number])

        # Small numbers compare and hash faster than the nested tuples, which the search does at
        # each step.
        return self._ids.setdefault((self._unchanging[number], taken, left), len(self._ids))


def _units(devices: Sequence[PoolDevice], places: list[int]) -> list[list[int]]:
    """The places, in order, by the counter sets that they share."""
    of_set: dict[tuple[PoolId, str], list[int]] = {}
    units: dict[int, list[int]] = defaultdict(list)
    root: dict[int, int] = {}

    def find(at: int) -> int:
        while root[at] != at:
            at = root[at]

        return at

    for at in places:
        root[at] = at
        # Union-find: devices that share a counter set, directly or through others, are one unit.
        sets = {(devices[at].pool, counter[0]) for counter, _ in devices[at].device.counters}
        for each in sets:
            for other in of_set.setdefault(each, [])[:1]:
                # The smaller place becomes the root, so units are in the order of their first
                # device.
                one, two = sorted((find(at), find(other)))
                root[two] = one

            of_set[each].append(at)

    for at in places:
        units[find(at)].append(at)

    return list(units.values())
