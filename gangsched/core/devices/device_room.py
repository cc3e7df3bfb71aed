"""Number of pods of one kind that a node has devices for at the same time, cached by the state of
the node's devices.

Invariant: a node is searched once for each state, in at most `MOST_STEPS` steps, so the result
depends neither on time nor on earlier calls.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gangsched.core.devices.device_faults import DeviceFault
from gangsched.core.devices.held import Use
from gangsched.core.devices.questions import Questions
from gangsched.core.devices.search import MOST_STEPS, DeviceSearch, SearchEnded
from gangsched.core.devices.states import StateIds, States
from gangsched.model.devices import DeviceClaim

_MOST_KINDS: Final = 1_000
# States are numbered per kind of pod; the numbers are dropped together, since keys consist of them.
_MOST_STATES: Final = 100_000


class DeviceRoom(NamedTuple):
    """`pods` pods of one kind can have devices at the same time. `ended`: the search ended early,
    so more pods may be possible. The search took `steps` steps.
    """

    pods: int
    ended: bool
    steps: int


@dataclass(slots=True)
class _RoomsOfKind:
    ids: StateIds = field(default_factory=dict)
    rooms: dict[Hashable, DeviceRoom] = field(default_factory=dict)


@dataclass(slots=True)
class DeviceRooms:
    """Cache, by kind of pod, of the number of pods for which a node has devices. It is cleared when
    full.
    """

    _kinds: dict[Hashable, _RoomsOfKind] = field(default_factory=dict)

    def room(
        self,
        questions: Questions,
        use: Use,
        claims: Sequence[DeviceClaim],
        most: int,
    ) -> DeviceRoom:
        """Find for how many pods with these claims the devices suffice, up to `most`. `use` must
        not be used afterwards. Raises DeviceFault if the first pod already fails with an error.
        """
        kind = self._kind(questions, claims)
        states = States(questions, use, claims, kind.ids)

        # Part of the key: the same state searched for fewer pods may end with a smaller room.
        most = states.at_most(claims, most)
        key = (states.key(), most)

        known = kind.rooms.get(key)
        if known is not None:
            # Computing the state was work, the search was not.
            return known._replace(steps=states.steps)

        found = kind.rooms[key] = _searched(DeviceSearch(states, [claims] * most, alike=True))
        return found._replace(steps=found.steps + states.steps)

    def _kind(self, questions: Questions, claims: Sequence[DeviceClaim]) -> _RoomsOfKind:
        asked = tuple((claim.requests, claim.constraints) for claim in claims)
        names = set()

        for requests, _ in asked:
            for group in requests:
                for request in group:
                    names.add(request.class_name)

        # The classes themselves, not their names: a class that changes gives new answers for the
        # same request.
        key = (asked, tuple(questions.classes.get(name) for name in sorted(names)))
        kind = self._kinds.get(key)
        if kind is None or len(kind.ids) > _MOST_STATES:
            if len(self._kinds) >= _MOST_KINDS:
                self._kinds.clear()

            kind = self._kinds[key] = _RoomsOfKind()

        return kind


def _searched(search: DeviceSearch) -> DeviceRoom:
    try:
        if search.found():
            # The room of a node only counts pods; the devices of each are chosen at the end of the
            # plan.
            search.give_back()
    except SearchEnded:
        return DeviceRoom(search.deepest, True, MOST_STEPS)
    except DeviceFault:
        if not search.deepest:
            raise

        # Alternatives of a later pod are in error; an earlier one does not need them, as
        # kube-scheduler finds.
        return DeviceRoom(search.deepest, True, MOST_STEPS - search.left)

    return DeviceRoom(search.deepest, False, MOST_STEPS - search.left)
