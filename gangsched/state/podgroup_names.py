"""Names of PodGroups that exist or are missing, and similar names for the messages about missing
ones (semantics E1).

Invariant: a name is compared with a bounded number of other names in its namespace: its neighbours
when sorted by beginning or by end, in the API groups in which the PodGroup may be.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator

from gangsched.api.dialects import DIALECTS
from gangsched.model.gang import Refusal
from gangsched.model.reasons import Reason
from gangsched.model.verdict_facts import Worded

NEIGHBOURS = 8
"""Names looked at on each side of a name."""
EDITS = 2
"""Letters by which alike names differ at most."""


class _Names:
    """Gang ids by namespace, sorted by name and by the name read backwards."""

    def __init__(self) -> None:
        self._sorted: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))

    def __contains__(self, gang_id: str) -> bool:
        namespace, _, name = gang_id.partition("/")
        names = self._names(namespace)
        place = bisect_left(names, name)

        return names[place : place + 1] == [name]

    def _names(self, namespace: str) -> list[str]:
        """The names of a namespace, sorted; read-only."""
        if namespace not in self._sorted:
            return []

        forwards, _ = self._sorted[namespace]
        return forwards

    def add(self, gang_id: str) -> None:
        if gang_id in self:
            return

        namespace, _, name = gang_id.partition("/")
        forwards, backwards = self._sorted[namespace]
        insort(forwards, name)
        insort(backwards, name[::-1])

    def discard(self, gang_id: str) -> None:
        if gang_id not in self:
            return

        namespace, _, name = gang_id.partition("/")
        forwards, backwards = self._sorted[namespace]
        for names, key in ((forwards, name), (backwards, name[::-1])):
            place = bisect_left(names, key)
            del names[place]

        if not forwards:
            del self._sorted[namespace]

    def alike(self, gang_id: str) -> list[tuple[int, str]]:
        """PodGroup names of the namespace within edit distance `EDITS` of this gang's name, as
        (distance, id), closest first.
        """
        namespace, _, name = gang_id.partition("/")
        if namespace not in self._sorted:
            return []

        forwards, backwards = self._sorted[namespace]
        # A typo near the end leaves the beginning alike, and the other way round, so that one of
        # both orders has the names side by side. Comparing with all names would cost more the more
        # gangs a namespace has.
        near = {*_around(forwards, name)}
        for reversed_name in _around(backwards, name[::-1]):
            near.add(reversed_name[::-1])

        alike = []
        for other in near - {name}:
            distance = edits(name, other)
            if distance <= EDITS:
                alike.append((distance, f"{namespace}/{other}"))

        return sorted(alike)

    def of(self, namespace: str) -> list[str]:
        """The gang ids of a namespace."""
        return [f"{namespace}/{name}" for name in self._names(namespace)]

    def __iter__(self) -> Iterator[str]:
        for namespace in self._sorted:
            yield from self.of(namespace)


class PodGroupNames:
    """Event handlers add existing names, the registry adds missing ones."""

    def __init__(self) -> None:
        self.unserved: set[str] = set()
        #: Those among them that are served, and that we have no right to read.
        self.forbidden: set[str] = set()

        #: API groups whose changes are not received at the moment.
        self.unfollowed: set[str] = set()
        #: By API group; a missing name is in each in which it may come.
        self._present: defaultdict[str, _Names] = defaultdict(_Names)
        self._missing: defaultdict[str, _Names] = defaultdict(_Names)
        self._waiting: dict[str, tuple[str, ...]] = {}

    def add(
        self,
        gang_id: str,
        api_group: str,
    ) -> list[str]:
        """Record that a PodGroup exists; return the gangs whose message may change."""
        self._present[api_group].add(gang_id)
        return self._waiting_for(gang_id, api_group)

    def remove(
        self,
        gang_id: str,
        api_group: str,
    ) -> list[str]:
        """Record that a PodGroup was deleted; return the gangs whose message may change."""
        self._present[api_group].discard(gang_id)
        return self._waiting_for(gang_id, api_group)

    def serve(
        self,
        api_group: str,
        *,
        served: bool,
    ) -> list[str]:
        """Record whether the API server serves PodGroups of an API group; return the gangs whose
        message may change.
        """
        return self._note(self.unserved, api_group, is_in=not served)

    def forbid(
        self,
        api_group: str,
        *,
        forbidden: bool,
    ) -> list[str]:
        """Record whether PodGroups of an API group may be read; return the gangs whose message may
        change.
        """
        return self._note(self.forbidden, api_group, is_in=forbidden)

    def follow(
        self,
        api_group: str,
        *,
        live: bool,
    ) -> list[str]:
        """Record whether PodGroups of an API group can be watched; return the gangs whose message
        may change.
        """
        return self._note(self.unfollowed, api_group, is_in=not live)

    def _note(
        self,
        among: set[str],
        api_group: str,
        *,
        is_in: bool,
    ) -> list[str]:
        # Said again with every list; only a change concerns the gangs that wait.
        if is_in == (api_group in among):
            return []

        if is_in:
            among.add(api_group)
        else:
            among.discard(api_group)

        return list(self._missing[api_group])

    def found(self, gang_id: str) -> None:
        """Record that a gang no longer lacks its PodGroup."""
        for api_group in self._waiting.pop(gang_id, ()):
            self._missing[api_group].discard(gang_id)

    def missing(
        self,
        gang_id: str,
        api_groups: tuple[str, ...],
    ) -> Refusal:
        """Record that a gang lacks its PodGroup; return the message."""
        if self._waiting.get(gang_id) != api_groups:
            self.found(gang_id)
            # Its pods may name other API groups later, so what it was entered under is kept for
            # `found`.
            self._waiting[gang_id] = api_groups

            for api_group in api_groups:
                self._missing[api_group].add(gang_id)

        kinds = ""
        if api_groups:
            dialect = DIALECTS[api_groups[0]]
            kinds = f"{dialect.kind}s"

        forbidden = [api_group for api_group in api_groups if api_group in self.forbidden]
        if forbidden:
            text = f"gangsched has no permission to read {kinds} of {' or '.join(forbidden)}"
            return Refusal(Reason.UNSUPPORTED, Worded(text))

        if self.unserved.issuperset(api_groups):
            absent = (
                f"the API server does not serve {kinds} of {' or '.join(api_groups)}, and gang"
                f" {gang_id} needs one"
            )
            return Refusal(Reason.POD_GROUP_MISSING, Worded(absent))

        unfollowed = [api_group for api_group in api_groups if api_group in self.unfollowed]
        if unfollowed:
            unknown = (
                f"gangsched cannot read {kinds} of {' or '.join(unfollowed)} at the moment, so it"
                f" is unknown whether PodGroup {gang_id} exists; its log has the reason"
            )
            return Refusal(Reason.POD_GROUPS_UNREADABLE, Worded(unknown))

        alike: list[tuple[int, str]] = []
        for api_group in api_groups:
            alike += self._present[api_group].alike(gang_id)

        nearest = ""
        if alike:
            _, closest = min(alike)
            _, _, name = closest.partition("/")
            nearest = f"; there is one named {name}"

        text = f"PodGroup {gang_id} does not exist{nearest}"
        return Refusal(Reason.POD_GROUP_MISSING, Worded(text))

    def missing_in(
        self,
        namespace: str,
        api_group: str,
    ) -> list[str]:
        """The gangs of a namespace that lack a PodGroup of an API group."""
        return self._missing[api_group].of(namespace)

    def _waiting_for(
        self,
        gang_id: str,
        api_group: str,
    ) -> list[str]:
        alike = self._missing[api_group].alike(gang_id)
        return [other for _, other in alike]


def edits(
    one: str,
    other: str,
) -> int:
    """Levenshtein distance of two names, up to `EDITS`."""
    # Most neighbours end here, without a table.
    if abs(len(one) - len(other)) > EDITS:
        return EDITS + 1

    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, start=1):
        before = row[0]
        row[0] = i

        for j, wanted in enumerate(other, start=1):
            changed = before + (letter != wanted)
            before = row[j]
            row[j] = min(before + 1, row[j - 1] + 1, changed)

        # No later row can be less than the least of this one.
        if min(row) > EDITS:
            return EDITS + 1

    return row[-1]


def _around(
    names: list[str],
    name: str,
) -> list[str]:
    place = bisect_left(names, name)
    return names[max(0, place - NEIGHBOURS) : place + NEIGHBOURS + 1]
