"""Gangs that have changed since they were last read, and the order in which they are read.

Invariant: no plan is made while a gang that was read before has changed, since its view is
outdated. A new gang has no view yet, so no decision can depend on it: plans continue while new
gangs wait for their turn, one namespace after the other. A new gang with a member on a node is read
like a known one: preemption and reservations count such members. A gang that only another object
concerns, such as its owner, or a claim that any number of pods name, is read like a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from itertools import chain
from math import inf

from gangsched.api.keys import PARENT
from gangsched.model.gang import TREE, namespace_of
from gangsched.state.companions import ALONE, Companions
from gangsched.state.gangs import GangRecord
from gangsched.state.namespace_turns import NamespaceTurns

UNITS_A_GANG = 32
"""Cost of reading a gang without its members, in units of reading one member, about 5 µs: mostly
its values (I3).
"""
UNITS_IN_A_TREE = 16
"""Further cost if the gang has a parent: the other parts of its tree are looked up before and
after.
"""
UNITS_A_COMPANION = 4
"""Further cost of each gang that is decided with one that changed: all of them are grouped anew,
once however many of them have changed. The parents of 20 trees of 100 gangs took one turn 129 ms.
"""
UNITS_A_COMPANION_IN_A_TREE = 16
"""The same in a tree, of which also what its minimum needs is found, and which is then planned and
told as a whole: with 45 trees of four levels edited 200 times a second, a turn took 25 ms with a
quarter of this and 8 ms with it, and a pod of another namespace waited twice as long.
"""


class ChangedGangs:
    """Ids of changed gangs among `gangs`; `views` has the gangs that were read."""

    def __init__(
        self,
        gangs: Mapping[str, GangRecord],
        views: Container[str],
        companions: Companions,
    ) -> None:
        self._gangs = gangs
        self._views = views
        self._companions = companions
        self._known: dict[str, None] = {}

        self._new = NamespaceTurns()
        #: All gangs were read once since the start: from then on plans do not wait for new ones.
        #: Before, a plan would see the work of some namespaces only, and serve it out of order
        #: (H16).
        self.is_caught_up = False

    @property
    def any_new(self) -> bool:
        """Whether gangs wait to be read for which plans do not wait."""
        return bool(self._new)

    def add(self, gang_id: str) -> None:
        """Record that a gang is new or has changed."""
        # As most are: each member that comes or changes says so.
        if gang_id in self._known:
            return

        if gang_id in self._views:
            # It is never in both: what is read may be forgotten.
            if self._new:
                self._new.discard(namespace_of(gang_id), gang_id)

            self._known[gang_id] = None
        else:
            self._new.add(namespace_of(gang_id), gang_id)

    def add_unhurried(self, gang_ids: Iterable[str]) -> None:
        """Record that what these gangs wait for has changed: plans do not wait for them."""
        for gang_id in gang_ids:
            if gang_id not in self._known:
                self._new.add(namespace_of(gang_id), gang_id)

    def add_all(self, gang_ids: Iterable[str]) -> None:
        """Record that these gangs have changed and must be read before the next plan."""
        for gang_id in gang_ids:
            self.add(gang_id)

    def must_read(self, gang_id: str) -> None:
        """Read a gang before the next plan, if plans would not wait for it."""
        if gang_id in self._known or not self._new:
            return

        namespace = namespace_of(gang_id)
        if self._new.has(namespace, gang_id):
            self._new.discard(namespace, gang_id)
            self._known[gang_id] = None

    def is_disjoint(self, gang_ids: Iterable[str]) -> bool:
        """Whether none of these gangs has changed."""
        return self._known.keys().isdisjoint(gang_ids)

    def exceeds(self, units: float, *, with_new: bool) -> bool:
        """Whether reading all changed gangs takes more than `units`, each about the time for one
        member; without `with_new`, gangs for which plans do not wait are left out.
        """
        gang_ids: Iterable[str] = self._known
        if with_new or not self.is_caught_up:
            gang_ids = chain(self._known, self._new)

        total = 0
        counted: set[str] = set()
        for gang_id in gang_ids:
            total += self._cost(gang_id, counted)
            if total > units:
                return True

        return False

    def take(
        self,
        most: float = inf,
        most_new: float = inf,
        *,
        is_enough: Callable[[], bool] = lambda: False,
    ) -> Iterator[str]:
        """Remove and return ids that together cost less than `most` units; among them, those for
        which plans do not wait cost at most `most_new`.

        None follow once what was read so far `is_enough`; without `most` a plan comes next, and
        those for which it waits do follow.
        """
        units = 0
        counted: set[str] = set()
        for gang_id in list(self._known):
            if units >= most or (most < inf and is_enough()):
                return

            units += self._cost(gang_id, counted)
            del self._known[gang_id]
            yield gang_id

        left = most_new if self.is_caught_up else inf
        while units < most:
            first = self._new.first()
            if first is None:
                break
            if (most < inf or self.is_caught_up) and is_enough():
                return

            cost = self._cost(first, counted)
            if cost > left:
                return

            units = units + cost
            left = left - cost
            yield from self._new.take()

        self.is_caught_up = self.is_caught_up or not self._new

    def _cost(self, gang_id: str, counted: set[str]) -> int:
        """The cost of a gang, and of its companions unless they are `counted`."""
        record = self._gangs[gang_id]
        units = UNITS_A_GANG + len(record.members)
        if _is_in_tree(record):
            units += UNITS_IN_A_TREE

        name = self._companions.name(gang_id)
        if name != ALONE and name not in counted:
            counted.add(name)
            is_tree = name.startswith(TREE)
            each_takes = UNITS_A_COMPANION_IN_A_TREE if is_tree else UNITS_A_COMPANION
            units += each_takes * self._companions.number(name)

        return units


def _is_in_tree(record: GangRecord) -> bool:
    """Whether the gang names a parent; of a gang that was not read yet a pod says so, or its
    PodGroup.
    """
    if record.spec is not None:
        return bool(record.spec.parent)

    stated: list[tuple[str, str]] = []
    for pod_group in record.pod_groups.values():
        if pod_group.parent:
            return True

        stated += pod_group.gang_metadata

    first = next(iter(record.members.values()), None)
    if first is not None:
        stated += first.pod.gang_metadata

    return any(key in PARENT for key, _ in stated)
