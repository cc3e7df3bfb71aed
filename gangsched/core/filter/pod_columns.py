"""The pods of all nodes as columns, so that a question about a hundred thousand pods is a few
operations on arrays.

Invariant: a row is a pod on a node, and never changes. What a column has read stays for all further
questions. Pods of a node that changed get new rows; what nodes do not show any more is counted
nowhere. Whoever is out of work while columns are read goes on with those read so far in the next
plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set, Sized
from contextlib import suppress
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gangsched.core.filter.port_column import PortColumn
from gangsched.core.filter.term_columns import Kind, TermColumns
from gangsched.core.work import OutOfWork, Work
from gangsched.model.inter_pod import Requirement
from gangsched.model.objects import Pod
from gangsched.model.pods_by_node import (
    Addressee,
    Ints,
    OwnedBy,
    OwnedByAny,
    PodsByNode,
    Question,
    ResolvedTerm,
    Selected,
    TermsAbout,
    UsingPort,
)
from gangsched.model.snapshot import Bools

Codes: TypeAlias = npt.NDArray[np.int32]

FEW = 500
"""Pods that are looked at one by one, without a column of their labels."""
LABELS_A_UNIT = 4
"""Pods of which a label or the host ports are read in a unit."""
NAMESPACES_A_UNIT = 3
"""Pods of which the namespace is read, a text of its own for each."""
NUMBERS_A_UNIT = 20
"""Pods of which the shape, or whether they go, is read."""
NEW_A_UNIT = 8
"""Pods that become rows: each is far away in memory."""
PORTS_A_UNIT = 1
"""Host ports that are read."""
VALUES_A_UNIT = 12
"""Values of a label that are compared with those of a selector in a unit."""
OWNERS_A_UNIT = 4
"""Owners of terms that are looked up in a unit."""
ROWS_A_STEP = 1_000
"""Rows that are read at a time: as many are done, if there is no more work."""
ROWS_A_UNIT = 200
"""Rows of which numbers are compared."""
READ_A_STEP = 1_000
"""Units of reading that are a step of progress."""
KEPT_A_UNIT = 5
"""Rows that are kept when others are dropped."""
CELLS_A_UNIT = 1_000
"""Numbers of other columns that are kept with them."""
ANEW_AT_ONCE = 1_000
"""Work of one question on reading the terms of all rows anew."""
MOST_CELLS = 4_000_000
"""Labels that are kept; beyond it the column that was not used for longest is dropped."""
FEW_ROWS = 4_096
"""Rows of which the dead ones may stay."""

NO_ROWS: Bools = np.zeros(0, dtype=np.bool_)


class NamespaceColumn:
    """The namespace of each row as a code."""

    def __init__(self) -> None:
        self.codes: Codes = np.zeros(0, dtype=np.int32)
        self.code_of: dict[str, int] = {}

    def read(self, names: Sequence[str]) -> None:
        """Add rows in these namespaces."""
        code_of = self.code_of
        for name in set(names) - code_of.keys():
            code_of[name] = len(code_of)

        codes = map(code_of.__getitem__, names)
        more = np.fromiter(codes, dtype=np.int32)
        self.codes = np.concatenate((self.codes, more))

    def among(self, rows: Ints, names: Iterable[str]) -> Ints:
        """Those of these rows that are in one of these namespaces."""
        is_meant = np.zeros(len(self.code_of), dtype=np.bool_)
        for name in names:
            code = self.code_of.get(name)
            if code is not None:
                is_meant[code] = True

        codes = self.codes[rows]
        meant: Ints = rows[is_meant[codes]]
        return meant


class PodColumns:
    """Rows of pods, and what was read of them."""

    def __init__(self) -> None:
        self._units_read = 0

        self._shown: PodsByNode | None = None
        self._pods: list[Pod] = []

        # The pods of a node came together: they are a block, on that node or on none any more.
        self._block: Ints = np.zeros(0, dtype=np.int64)
        #: By identity of the mapping of pods, which never changes once it was shown.
        self._block_of: dict[int, int] = {}
        self._blocks = 0

        #: By row its node, -1 if none has it any more; and the rows that a node has.
        self._node: Ints = np.zeros(0, dtype=np.int64)
        self._live: Ints = np.zeros(0, dtype=np.int64)

        self._namespaces = NamespaceColumn()
        #: By key, the value of the label of each row; the one that was used last is the last.
        self._labels: dict[str, list[str | None]] = {}
        #: By requirement, whether each row meets it.
        self._met: dict[Requirement, Bools] = {}
        #: The identity of the shape of each row, and whether it goes.
        self._shapes: Ints = np.zeros(0, dtype=np.int64)
        self._going: Bools = NO_ROWS
        self._ports = PortColumn()

        self._terms = TermColumns()
        #: Those that are read to take their place, if most of what is known there is gone.
        self._next_terms: TermColumns | None = None
        self._units_of_terms = 0

    def __len__(self) -> int:
        return len(self._pods)

    @property
    def owners(self) -> int:
        """Owners of terms that are known, of which some may be gone."""
        return len(self._terms)

    @property
    def read(self) -> int:
        """Steps of reading that were done so far."""
        units = self._units_read + self._units_of_terms + self._terms.units_read
        return units // READ_A_STEP

    def counts(
        self,
        question: Question,
        pods: PodsByNode,
        work: Work,
    ) -> Ints:
        """`counts[node]`: the number of pods that the question counts. Raises OutOfWork."""
        nodes = len(pods.residents)
        self._begin(pods, work)

        weights = None
        match question:
            case Selected():
                rows = self._selected(question, work)
            case OwnedBy():
                rows = self._owned(question, work)
            case OwnedByAny():
                rows, weights = self._weighed(question, work)
            case TermsAbout():
                terms = self._read_terms(work)
                rows, weights = terms.weights(question, self._live, work)
            case UsingPort():
                rows = self._using_port(question, work)

        node = self._node[rows]
        counts = np.bincount(node, weights, minlength=nodes)
        return counts.astype(np.int64)

    def kinds(
        self,
        addressee: Addressee,
        topology_keys: Set[str],
        pods: PodsByNode,
        work: Work,
    ) -> Sequence[Kind]:
        """The kinds, of some topology keys, of the terms of these pods that mean one pod.
        Raises OutOfWork.
        """
        self._begin(pods, work)
        terms = self._read_terms(work)
        return terms.kinds(addressee, topology_keys, self._live, work)

    def _begin(self, pods: PodsByNode, work: Work) -> None:
        """Have these pods as rows before they are asked about."""
        if pods is not self._shown:
            work.charge(20 + len(pods.residents) // 4)

        before = len(self)
        self.follow(pods)
        # Afterwards: what was put into rows stays, and how many they are is not known before.
        new = len(self) - before
        units = new // NEW_A_UNIT
        self._units_read += units
        work.charge(units)
        self._forget(work)
        work.charge(20 + len(self) // ROWS_A_UNIT)

    # --- rows ------------------------------------------------------------------------------------

    def follow(self, pods: PodsByNode) -> None:
        """Have the pods of these nodes, and no others, on nodes."""
        if pods is self._shown:
            return

        before = self._block_of
        block_of: dict[int, int] = {}
        first = self._blocks
        sizes: list[int] = []
        nodes: list[int] = []
        blocks: list[int] = []

        for node, there in enumerate(pods.residents):
            if not there:
                continue

            identity = id(there)
            block = before.get(identity)
            if block is None or identity in block_of:
                block = first + len(sizes)
                self._pods.extend(there.values())
                sizes.append(len(there))

            block_of[identity] = block
            nodes.append(node)
            blocks.append(block)

        # It keeps the mappings, so that their identities stay theirs.
        self._shown = pods
        self._block_of = block_of
        self._blocks = first + len(sizes)

        numbers = np.arange(first, self._blocks)
        new = np.repeat(numbers, sizes)
        self._block = np.concatenate((self._block, new))

        node_of_block = np.full(self._blocks, -1, dtype=np.int64)
        node_of_block[blocks] = nodes
        self._node = node_of_block[self._block]
        self._live = np.flatnonzero(self._node >= 0)

    def _forget(self, work: Work) -> None:
        """Drop the rows of no node, if they are most of all."""
        kept = self._live
        if len(self) <= max(FEW_ROWS, 2 * kept.size):
            return

        units = kept.size // KEPT_A_UNIT + kept.size * len(self._met) // CELLS_A_UNIT
        work.charge(units)
        pods = self._pods
        self._pods = [pods[row] for row in kept.tolist()]

        # To copy those lists would take longer than to read one again that is asked for.
        self._labels = {}
        for requirement, met in self._met.items():
            self._met[requirement] = met[_read(kept, met)]

        codes = self._namespaces.codes
        self._namespaces.codes = codes[_read(kept, codes)]
        self._shapes = self._shapes[_read(kept, self._shapes)]
        self._going = self._going[_read(kept, self._going)]
        self._ports.keep(kept)

        for terms in self._all_terms():
            terms.owner = terms.owner[_read(kept, terms.owner)]

        block_of_kept = self._block[kept]
        numbers, self._block = np.unique(block_of_kept, return_inverse=True)
        self._blocks = numbers.size
        number_of: dict[int, int] = {}
        for number, block in enumerate(numbers.tolist()):
            number_of[block] = number

        for identity, block in self._block_of.items():
            self._block_of[identity] = number_of[block]

        self._node = self._node[kept]
        self._live = np.arange(len(self))

    # --- columns ---------------------------------------------------------------------------------

    def _unread(
        self,
        read: int,
        work: Work,
        pods_a_unit: int = LABELS_A_UNIT,
    ) -> Iterator[Sequence[Pod]]:
        """The pods after the first `read` ones, some at a time, each charged before a column reads
        it. Raises OutOfWork; what was read until then stays.
        """
        for first in range(read, len(self), ROWS_A_STEP):
            pods = self._pods[first : first + ROWS_A_STEP]
            self._charge(len(pods), pods_a_unit, work)
            yield pods

    def _charge(
        self,
        rows: int,
        rows_a_unit: int,
        work: Work,
    ) -> None:
        """Charge the reading of so many rows, before it is done."""
        units = 1 + rows // rows_a_unit
        work.charge(units)
        self._units_read += units

    def _namespace(self, work: Work) -> NamespaceColumn:
        column = self._namespaces
        for pods in self._unread(column.codes.size, work, NAMESPACES_A_UNIT):
            column.read([*map(attrgetter("namespace"), pods)])

        return column

    def _label(self, key: str, work: Work) -> list[str | None]:
        # Put last; the first are those that were not used for longest.
        values = self._labels.pop(key, [])
        while self._is_full(self._labels):
            oldest = next(iter(self._labels))
            del self._labels[oldest]

        self._labels[key] = values
        for pods in self._unread(len(values), work):
            values += [pod.labels.get(key) for pod in pods]

        return values

    def _is_full(self, columns: Sized) -> bool:
        """Whether there is no place for one more of these columns."""
        columns_then = len(columns) + 1
        cells = columns_then * len(self)
        return len(columns) > 0 and cells > MOST_CELLS

    def _shape(self, work: Work) -> Ints:
        for pods in self._unread(self._shapes.size, work, NUMBERS_A_UNIT):
            shapes = map(attrgetter("shape"), pods)
            read = np.fromiter(map(id, shapes), dtype=np.int64)
            self._shapes = np.concatenate((self._shapes, read))

        return self._shapes

    def _deleting(self, work: Work) -> Bools:
        for pods in self._unread(self._going.size, work, NUMBERS_A_UNIT):
            going = map(attrgetter("deleting"), pods)
            read = np.fromiter(going, dtype=np.bool_)
            self._going = np.concatenate((self._going, read))

        return self._going

    def _using_port(self, question: UsingPort, work: Work) -> Ints:
        column = self._ports
        for pods in self._unread(column.size, work):
            before = len(column)
            column.read(pods)
            # Afterwards: what was read stays, and how many they are is not known before.
            self._charge(len(column) - before, PORTS_A_UNIT, work)

        work.charge(len(column) // ROWS_A_UNIT)
        rows = self._live
        return rows[column.conflicting(question.port)[rows]]

    # --- terms -----------------------------------------------------------------------------------

    def _all_terms(self) -> Sequence[TermColumns]:
        if self._next_terms is None:
            return (self._terms,)

        return (self._terms, self._next_terms)

    def _read_terms(self, work: Work) -> TermColumns:
        """The terms of all rows."""
        before = self._terms.units_read
        self._terms.read(self._pods, work)
        new = self._terms.units_read - before
        if self._next_terms is None and self._terms.is_mostly_gone(self._live):
            self._next_terms = TermColumns()

        if self._next_terms is not None:
            # Faster than others come, so that it ends.
            self._read_anew(self._next_terms, ANEW_AT_ONCE + 2 * new, work)

        return self._terms

    def _read_anew(
        self,
        terms: TermColumns,
        units: int,
        work: Work,
    ) -> None:
        """Read some more rows into what will take the place of the terms that are known."""
        with suppress(OutOfWork), work.at_most(units):
            terms.read(self._pods, work)

        if terms.owner.size == len(self):
            self._units_of_terms += self._terms.units_read
            self._terms = terms
            self._next_terms = None

    # --- questions -------------------------------------------------------------------------------

    def _selected(self, question: Selected, work: Work) -> Ints:
        rows = self._live
        if question.staying:
            rows = rows[~self._deleting(work)[rows]]

        for term in question.terms:
            rows = self._meant(term, rows, work)

        return rows

    def _meant(
        self,
        term: ResolvedTerm,
        rows: Ints,
        work: Work,
    ) -> Ints:
        """Those of these rows that a term selects."""
        if term.selector is None:
            return rows[:0]

        if term.namespaces is not None:
            rows = self._namespace(work).among(rows, term.namespaces)

        for requirement in term.selector:
            # A namespace of few pods, or a value that few have: it would take longer to read that
            # label of all pods.
            if rows.size <= FEW:
                return self._one_by_one(term, rows, work)

            met = self._meets(requirement, work)
            rows = rows[met[rows]]

        return rows

    def _meets(self, requirement: Requirement, work: Work) -> Bools:
        """By row, whether its pod meets a requirement."""
        # Put last; the first are those that were not used for longest.
        met = self._met.pop(requirement, NO_ROWS)
        while self._is_full(self._met):
            oldest = next(iter(self._met))
            del self._met[oldest]

        self._met[requirement] = met
        unread = len(self) - met.size
        if not unread:
            return met

        of_column: Sequence[str | None] | None = None
        if unread > len(self) // 8:
            of_column = self._label(requirement.key, work)

        key = requirement.key
        for start in range(met.size, len(self), ROWS_A_STEP):
            end = start + ROWS_A_STEP
            pods = self._pods[start:end]
            self._charge(len(pods), LABELS_A_UNIT if of_column is None else VALUES_A_UNIT, work)
            if of_column is None:
                values: Sequence[str | None] = [pod.labels.get(key) for pod in pods]
            else:
                values = of_column[start:end]

            met = np.concatenate((met, _meeting(requirement, values)))
            self._met[requirement] = met

        return met

    def _one_by_one(
        self,
        term: ResolvedTerm,
        rows: Ints,
        work: Work,
    ) -> Ints:
        for requirement in term.selector or ():
            work.charge(1 + rows.size // LABELS_A_UNIT + len(requirement.values) // VALUES_A_UNIT)
            values = [self._pods[row].labels.get(requirement.key) for row in rows.tolist()]
            rows = rows[_meeting(requirement, values)]
            if not rows.size:
                break

        return rows

    def _owned(self, question: OwnedBy, work: Work) -> Ints:
        shape, namespace = question.owner
        rows = self._live
        rows = rows[self._shape(work)[rows] == id(shape)]
        return self._namespace(work).among(rows, (namespace,))

    def _weighed(self, question: OwnedByAny, work: Work) -> tuple[Ints, Ints]:
        """The rows of the owners, and the weight of each."""
        shapes = self._shape(work)
        column = self._namespace(work)
        units = len(question.weight_of) // OWNERS_A_UNIT
        work.charge(units)

        # An owner is a shape and a namespace: as one number, to be looked up in order.
        code_of = column.code_of
        nowhere = len(code_of)
        known = np.unique([shape for shape, _ in question.weight_of])
        number_of: dict[int, int] = {}
        for number, shape in enumerate(known.tolist()):
            number_of[shape] = number * (nowhere + 1)

        owners = []
        for shape, namespace in question.weight_of:
            code = code_of.get(namespace, nowhere)
            owners.append(number_of[shape] + code)

        order = np.argsort(owners)
        in_order = np.array(owners, dtype=np.int64)[order]
        weight_of = list(question.weight_of.values())
        weights = np.array(weight_of, dtype=np.int64)
        weights = weights[order]

        # Rows of other shapes get the number of some owner, and go.
        rows = self._live
        place = _place(known, shapes[rows])
        is_known = known[place] == shapes[rows]
        rows = rows[is_known]
        asked = place[is_known] * (nowhere + 1) + column.codes[rows]

        place = _place(in_order, asked)
        is_owned = in_order[place] == asked
        return rows[is_owned], weights[place[is_owned]]


def _read(kept: Ints, column: npt.NDArray[Any]) -> Ints:
    """Those of the rows that a column has read."""
    return kept[kept < column.size]


def _place(ordered: Ints, values: Ints) -> Ints:
    """The place of each value in an ascending array, if it is there."""
    place = np.searchsorted(ordered, values)
    return np.minimum(place, ordered.size - 1)


def _meeting(requirement: Requirement, values: Sequence[str | None]) -> Bools:
    """Whether labels with these values, None without one, meet a requirement; see
    `model.inter_pod.selects`.
    """
    asked: frozenset[str | None] = frozenset((None,))
    match requirement.operator:
        case "In" | "NotIn":
            asked = frozenset(requirement.values)
        case "Exists" | "DoesNotExist":
            pass
        case _:
            return np.zeros(len(values), dtype=np.bool_)

    holds = map(asked.__contains__, values)
    is_asked = np.fromiter(holds, dtype=np.bool_)
    if requirement.operator in {"NotIn", "Exists"}:
        return ~is_asked

    return is_asked
