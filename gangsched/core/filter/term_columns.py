"""The terms of running pods as columns, so that which of a hundred thousand terms mean a pod is a
few operations on arrays.

Invariant: what was read of a row of pods stays, and is read once. Owners that no row has any more
are counted nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import product
from typing import TypeAlias

import numpy as np

from gangsched.core.filter.selector_table import Column, ScopeTable, SelectorTable
from gangsched.core.work import Work
from gangsched.model.objects import Pod
from gangsched.model.pods_by_node import Addressee, Ints, TermsAbout
from gangsched.model.snapshot import Bools
from gangsched.model.term_index import TermOwner, entries_of

ROWS_A_STEP = 500
"""Rows that are charged at a time: as many are done, if there is no more work."""
ROWS_A_UNIT = 4
"""Rows of which the owner of terms is read in a unit."""
UNITS_AN_OWNER = 3
"""Units of an owner that is new, and of each of its terms."""
TERMS_A_UNIT = 250
"""Terms, or requirements of their selectors, that are compared with a pod in a unit."""
FEW_OWNERS = 1_000
"""Owners of which those without a row may stay."""
MOST_REMEMBERED = 8
"""Pods for which it is remembered which terms mean them."""

Kind: TypeAlias = tuple[str, bool]
"""The topology key of a term, and whether it is required anti-affinity."""


class TermColumns:
    """The owner of terms of each row of pods, and the terms of each owner."""

    def __init__(self) -> None:
        #: By row its owner, -1 without terms; of the rows that were read.
        self.owner: Ints = np.zeros(0, dtype=np.int64)
        self._owner_of: dict[TermOwner, int] = {}
        self.units_read = 0

        # By term.
        self._of_owner = Column()
        self._selector = Column()
        self._scope = Column()
        self._kind = Column()
        self._weight = Column()

        self._selectors = SelectorTable()
        self._scopes = ScopeTable()
        self._kind_of: dict[Kind, int] = {}
        #: By pod the terms that mean it, of so many.
        self._meant: dict[Addressee, tuple[int, Ints]] = {}

    def __len__(self) -> int:
        return len(self._owner_of)

    def is_mostly_gone(self, live: Ints) -> bool:
        """Whether most owners have none of these rows."""
        if len(self._owner_of) <= FEW_OWNERS:
            return False

        is_live = self._live_owners(live)
        number = int(is_live[:-1].sum())
        return len(self) > 2 * number

    # --- reading ---------------------------------------------------------------------------------

    def read(self, pods: Sequence[Pod], work: Work) -> None:
        """Read the rows of `pods` that were not read so far. Raises OutOfWork; what was read until
        then stays.
        """
        while self.owner.size < len(pods):
            first = self.owner.size
            unread = pods[first : first + ROWS_A_STEP]
            self._charge(1 + len(unread) // ROWS_A_UNIT, work)

            owners: list[int] = []
            try:
                for pod in unread:
                    owners.append(self._owner(pod, work))
            finally:
                more = np.array(owners, dtype=np.int64)
                self.owner = np.concatenate((self.owner, more))

    def _charge(self, units: int, work: Work) -> None:
        work.charge(units)
        self.units_read += units

    def _owner(self, pod: Pod, work: Work) -> int:
        inter_pod = pod.shape.inter_pod
        if inter_pod is None or not inter_pod.has_terms:
            return -1

        owner = (pod.shape, pod.namespace)
        number = self._owner_of.get(owner)
        if number is not None:
            return number

        entries = list(entries_of(owner))
        units = UNITS_AN_OWNER
        for entry in entries:
            units += UNITS_AN_OWNER + entry.size

        self._charge(units, work)

        number = self._owner_of[owner] = len(self._owner_of)
        for _, term, weight in entries:
            if term.selector is None:  # selects nothing
                continue

            selector = self._selectors.number(term.selector)
            scope = self._scopes.number(term, pod.namespace)
            kind = (term.topology_key, weight is None)
            kind_number = self._kind_of.setdefault(kind, len(self._kind_of))

            self._of_owner.append(number)
            self._selector.append(selector)
            self._scope.append(scope)
            self._kind.append(kind_number)
            self._weight.append(1 if weight is None else weight)

        return number

    # --- questions -------------------------------------------------------------------------------

    def kinds(
        self,
        addressee: Addressee,
        topology_keys: Set[str],
        live: Ints,
        work: Work,
    ) -> Sequence[Kind]:
        """The kinds of the terms of these rows that mean a pod, in order; only those of some keys,
        since any number may be of keys that no node has.
        """
        meant = self._terms_about(addressee, work)
        is_live = self._live_owners(live)
        owners = self._of_owner.numbers[meant]
        meant = meant[is_live[owners]]

        work.charge(len(topology_keys) // 4)
        terms_of_kind = np.bincount(self._kind.numbers[meant], minlength=len(self._kind_of))
        kinds = []
        for kind in product(topology_keys, (False, True)):
            number = self._kind_of.get(kind)
            if number is not None and terms_of_kind[number]:
                kinds.append(kind)

        return sorted(kinds)

    def weights(
        self,
        question: TermsAbout,
        live: Ints,
        work: Work,
    ) -> tuple[Ints, Ints]:
        """Those of these rows that the question counts, and the weight of each."""
        kind = (question.topology_key, question.is_required)
        number = self._kind_of.get(kind, -1)
        meant = self._terms_about(question.addressee, work)
        meant = meant[self._kind.numbers[meant] == number]

        # One more, of the rows without terms: -1 is the last one.
        owners = self._of_owner.numbers[meant]
        weights = self._weight.numbers[meant]
        of_owner = np.bincount(owners, weights, minlength=len(self._owner_of) + 1)
        of_row = of_owner[self.owner[live]].astype(np.int64)
        counts = of_row != 0
        return live[counts], of_row[counts]

    def _terms_about(self, addressee: Addressee, work: Work) -> Ints:
        """The terms that mean a pod."""
        number = len(self._of_owner)
        known = self._meant.get(addressee)
        if known is not None and known[0] == number:
            return known[1]

        size = number + self._selectors.size + self._scopes.size
        work.charge(2 + size // TERMS_A_UNIT + len(addressee.labels) // 4)
        is_met = self._selectors.met_by(addressee.labels)[self._selector.numbers]
        is_met &= self._scopes.with_addressee(addressee)[self._scope.numbers]
        meant = np.flatnonzero(is_met)

        if len(self._meant) >= MOST_REMEMBERED:
            self._meant.clear()

        self._meant[addressee] = (number, meant)
        return meant

    def _live_owners(self, live: Ints) -> Bools:
        """By owner whether one of these rows has it; -1, the last one, is that of no terms."""
        is_live = np.zeros(len(self._owner_of) + 1, dtype=np.bool_)
        is_live[self.owner[live]] = True
        return is_live
