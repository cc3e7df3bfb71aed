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
CounterId: TypeAlias = tuple[PoolId, Counter]
"""A counter of a pool."""


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
        self._asked: dict[int, list[list[Asked]]] = {}
        self._requests: list[tuple[DeviceClaim, Asked]] = []
        self._attributes: list[str] = []
        for key, claim in distinct.items():
            self._asked[key] = questions.asked(claim)
            self._add(claim)

        number = len(self._requests)
        if number > MOST_REQUESTS:
            raise DevicesUnsupported(
                f"{number} requests and alternatives are more than {MOST_REQUESTS}"
            )

        self.admin = any(asked.request.admin for _, asked in self._requests)

        # Devices that no request may use do not matter, so nodes that differ only in them have
        # equal states.
        kinds: dict[int, Hashable] = {}
        for at, device in enumerate(questions.devices):
            kind = self._kind(questions, at, device)
            if kind is not None:
                kinds[at] = kind

        self._units = _units(questions.devices, list(kinds))
        self._counters: list[tuple[CounterId, ...]] = []
        self._unchanging: list[Hashable] = []
        self.place: dict[int, tuple[int, int]] = {}
        """Unit and position in it of each device that some request may have."""
        for number, unit in enumerate(self._units):
            for position, at in enumerate(unit):
                self.place[at] = (number, position)

            counters, consumed = _consumed([questions.devices[at] for at in unit])
            kinds_of_unit = tuple(kinds[at] for at in unit)
            self._counters.append(counters)
            self._unchanging.append((kinds_of_unit, consumed))

        self.states = [self._state(number) for number in range(len(self._units))]

    def _add(self, claim: DeviceClaim) -> None:
        """Take the requests of a claim and the attributes that its constraints name."""
        for alternatives in self.asked(claim):
            for asked in alternatives:
                self._requests.append((claim, asked))

        for constraint in claim.constraints:
            self._attributes.append(constraint.attribute)

    def update(self, at: int) -> None:
        """Recompute the state of the unit that contains the device."""
        if at in self.place:
            unit, _ = self.place[at]
            self.states[unit] = self._state(unit)

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
        requests = len(self._requests)
        devices = len(self.questions.devices)
        return requests * devices // _QUESTIONS_A_STEP

    def at_most(self, claims: Iterable[DeviceClaim], pods: int) -> int:
        """Upper bound of the number of pods with these claims for which the devices suffice,
        assuming that each device is used once. It is at least 1 if a selector cannot be evaluated,
        because kube-scheduler reports that error rather than a lack of devices.
        """
        places = []
        for unit in self._units:
            places += unit

        # One device may serve many pods then, so the number of devices is no bound.
        is_shared = any(self.use.devices[at].device.shared for at in places)
        if self.admin or is_shared:
            return pods

        fewest = 0
        for claim in claims:
            for alternatives in self.asked(claim):
                counts = [asked.count for asked in alternatives]
                fewest += min(counts)

        free = 0
        for at in places:
            if not self.use.is_taken(at):
                free += 1

        suffice = free // max(1, fewest)
        if self.faulty:
            suffice = max(1, suffice)

        return min(pods, suffice)

    def _kind(
        self,
        questions: Questions,
        at: int,
        pool_device: PoolDevice,
    ) -> Hashable:
        """The part of a device's state that taking devices does not change; None if no request may
        use it.
        """
        satisfied: list[Hashable] = []
        for claim, asked in self._requests:
            amounts = None
            try:
                if questions.matches(asked, at, claim):
                    amounts = questions.amounts(asked, at)
            except DeviceFault:
                self.faulty = True
                # Unlike any other device: which one is met first decides whether the pod is in
                # error.
                return ("fault", at)

            tolerations = asked.request.tolerations
            closed = any(prevents(taint, tolerations) for taint in pool_device.taints)
            every = asked.every is not None and at in asked.every
            usable = amounts is not None and not closed

            if every or usable:
                by_name = amounts or {}
                satisfied.append((every, closed, tuple(by_name.items())))
            else:
                satisfied.append(None)

        if not any(satisfied):
            return None

        device = pool_device.device
        values = tuple(attribute_of(pool_device, attribute) for attribute in self._attributes)
        capacity = tuple((name, limits.value) for name, limits in device.capacity.items())
        overdrawn = bool(device.counters) and pool_device.pool in self.use.overdrawn

        return (tuple(satisfied), values, device.shared, capacity, overdrawn)

    def _state(self, number: int) -> int:
        use = self.use
        states: list[Hashable] = []
        for at in self._units[number]:
            if use.devices[at].device.shared:
                is_shared = bool(use.shares[at])
                amounts = tuple(use.used[at].items())
                states.append((is_shared, amounts))
            else:
                states.append(use.is_taken(at))

        counters = self._counters[number]
        left = tuple([use.left[counter] for counter in counters])

        # Small numbers compare and hash faster than the nested tuples, which the search does at
        # each step.
        state = (self._unchanging[number], tuple(states), left)
        return self._ids.setdefault(state, len(self._ids))


def _consumed(
    devices: Sequence[PoolDevice],
) -> tuple[tuple[CounterId, ...], Hashable]:
    """The counters that these devices consume, and by device how much of which, by position."""
    # Positions instead of names: GPU 0 and GPU 1 have counter sets of different names and are
    # alike.
    index: dict[CounterId, int] = {}
    consumed = []

    for device in devices:
        amounts = []
        for counter, amount in device.device.counters:
            counter_id = (device.pool, counter)
            position = index.setdefault(counter_id, len(index))
            amounts.append((position, amount))

        consumed.append(tuple(amounts))

    return tuple(index), tuple(consumed)


def _units(
    devices: Sequence[PoolDevice],
    places: list[int],
) -> list[list[int]]:
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
        sets = set()
        device = devices[at]
        for (set_name, _), _ in device.device.counters:
            sets.add((device.pool, set_name))

        for counter_set in sets:
            earlier = of_set.setdefault(counter_set, [])
            for other in earlier[:1]:
                # The smaller place becomes the root, so units are in the order of their first
                # device.
                smaller, larger = sorted((find(at), find(other)))
                root[larger] = smaller

            earlier.append(at)

    for at in places:
        units[find(at)].append(at)

    return list(units.values())
