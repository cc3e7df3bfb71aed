"""The pods of all nodes as columns, so that a question about a hundred thousand pods is a few
operations on arrays.

Invariant: a row is a pod on a node, and never changes. What a column has read stays for all further
questions. Pods of a node that changed get new rows; what nodes do not show any more is counted
nowhere. Whoever is out of work while columns are read goes on with those read so far in the next
plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gangsched.core.work import Work
from gangsched.model.inter_pod import Requirement
from gangsched.model.objects import Pod
from gangsched.model.pods_by_node import (
    Ints,
    OwnedBy,
    OwnedByAny,
    PodsByNode,
    Question,
    ResolvedTerm,
    Selected,
    UsingPort,
)
from gangsched.model.snapshot import Bools

Codes: TypeAlias = npt.NDArray[np.int32]

FEW = 500
"""Pods that are looked at one by one, without a column of their labels."""
LABELS_A_UNIT = 10
"""Pods of which a label, the namespace or the host ports are read in a unit."""
NUMBERS_A_UNIT = 20
"""Pods of which the shape, or whether they go, is read."""
NEW_A_UNIT = 8
"""Pods that become rows: each is far away in memory."""
VALUES_A_UNIT = 25
"""Values of a label that are compared with those of a selector in a unit."""
OWNERS_A_UNIT = 4
"""Owners of terms that are looked up in a unit."""
ROWS_A_UNIT = 200
"""Rows of which numbers are compared."""
MOST_WORK_ON_A_COLUMN = 10_000
"""Work that is charged for reading a column, which is read once: more than a plan may do would
never be done.
"""
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
        #: Columns that were read so far, of which most was not known.
        self.read = 0

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
        #: The identity of the shape of each row, whether it goes, and whether it uses host ports.
        self._shapes: Ints = np.zeros(0, dtype=np.int64)
        self._going: Bools = NO_ROWS
        self._with_ports: Bools = NO_ROWS

    def __len__(self) -> int:
        return len(self._pods)

    def counts(
        self,
        question: Question,
        pods: PodsByNode,
        work: Work,
    ) -> Ints:
        """`counts[node]`: the number of pods that the question counts. Raises OutOfWork."""
        nodes = len(pods.residents)
        work.charge(20 + nodes // 4)

        before = len(self)
        self.follow(pods)
        # Afterwards: what was put into rows stays, and how many they are is not known before.
        new = max(0, len(self) - before)
        self._charge(new, NEW_A_UNIT, work)
        work.charge(len(self) // ROWS_A_UNIT)

        weights = None
        match question:
            case Selected():
                rows = self._selected(question, work)
            case OwnedBy():
                rows = self._owned(question, work)
            case OwnedByAny():
                rows, weights = self._weighed(question, work)
            case UsingPort():
                rows = self._using_port(question, work)

        node = self._node[rows]
        counts = np.bincount(node, weights, minlength=nodes)
        return counts.astype(np.int64)

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

        if len(self) > max(FEW_ROWS, 2 * self._live.size):
            self._forget()

    def _forget(self) -> None:
        """Drop the rows of no node, which are most of all."""
        kept = self._live
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
        self._with_ports = self._with_ports[_read(kept, self._with_ports)]

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
    ) -> Sequence[Pod]:
        """The pods after the first `read` ones, charged before a column reads them."""
        unread = len(self) - read
        if not unread:
            return ()

        self._charge(unread, pods_a_unit, work)
        if not read:
            return self._pods

        return self._pods[read:]

    def _charge(
        self,
        rows: int,
        rows_a_unit: int,
        work: Work,
    ) -> None:
        """Charge the reading of so many rows, before it is done."""
        units = 1 + rows // rows_a_unit
        work.charge(min(units, MOST_WORK_ON_A_COLUMN))
        if rows > len(self) // 2:
            self.read += 1

    def _namespace(self, work: Work) -> NamespaceColumn:
        column = self._namespaces
        unread = self._unread(column.codes.size, work)
        if unread:
            column.read([*map(attrgetter("namespace"), unread)])

        return column

    def _label(self, key: str, work: Work) -> list[str | None]:
        values = self._labels.get(key, [])
        unread = self._unread(len(values), work)
        values += [pod.labels.get(key) for pod in unread]

        # Put last; the first are those that were not used for longest.
        self._labels.pop(key, None)
        while self._is_full(self._labels):
            first = next(iter(self._labels))
            del self._labels[first]

        self._labels[key] = values
        return values

    def _is_full(self, columns: Sized) -> bool:
        """Whether there is no place for one more of these columns."""
        columns_then = len(columns) + 1
        cells = columns_then * len(self)
        return len(columns) > 0 and cells > MOST_CELLS

    def _shape(self, work: Work) -> Ints:
        unread = self._unread(self._shapes.size, work, NUMBERS_A_UNIT)
        if unread:
            shapes = map(attrgetter("shape"), unread)
            read = np.fromiter(map(id, shapes), dtype=np.int64)
            self._shapes = np.concatenate((self._shapes, read))

        return self._shapes

    def _deleting(self, work: Work) -> Bools:
        unread = self._unread(self._going.size, work, NUMBERS_A_UNIT)
        if unread:
            going = map(attrgetter("deleting"), unread)
            read = np.fromiter(going, dtype=np.bool_)
            self._going = np.concatenate((self._going, read))

        return self._going

    def _ports(self, work: Work) -> Bools:
        unread = self._unread(self._with_ports.size, work)
        if unread:
            terms = map(attrgetter("shape.inter_pod"), unread)
            has_ports = [inter_pod is not None and bool(inter_pod.ports) for inter_pod in terms]
            read = np.array(has_ports, dtype=np.bool_)
            self._with_ports = np.concatenate((self._with_ports, read))

        return self._with_ports

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
        met = self._met.get(requirement, NO_ROWS)
        unread = len(self) - met.size
        if unread:
            if unread > len(self) // 8:
                values: Sequence[str | None] = self._label(requirement.key, work)
                values = values[met.size :] if met.size else values
            else:
                pods = self._unread(met.size, work)
                values = [pod.labels.get(requirement.key) for pod in pods]

            self._charge(unread, VALUES_A_UNIT, work)
            met = np.concatenate((met, _meeting(requirement, values)))

        # Put last; the first are those that were not used for longest.
        while self._is_full(self._met):
            first = next(iter(self._met))
            del self._met[first]

        self._met.pop(requirement, None)
        self._met[requirement] = met
        return met

    def _one_by_one(
        self,
        term: ResolvedTerm,
        rows: Ints,
        work: Work,
    ) -> Ints:
        units = rows.size * term.cost
        work.charge(min(units, MOST_WORK_ON_A_COLUMN))

        meant = []
        for row in rows.tolist():
            pod = self._pods[row]
            if term.matches(pod):
                meant.append(row)

        return np.array(meant, dtype=np.int64)

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
        work.charge(min(units, MOST_WORK_ON_A_COLUMN))

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

    def _using_port(self, question: UsingPort, work: Work) -> Ints:
        rows = self._live
        rows = rows[self._ports(work)[rows]]
        shapes, first, of = np.unique(
            self._shape(work)[rows],
            return_index=True,
            return_inverse=True,
        )
        work.charge(min(shapes.size * question.cost, MOST_WORK_ON_A_COLUMN))
        conflicts = []
        for row in rows[first].tolist():
            conflicts.append(question.counts(self._pods[row]))

        is_in_conflict = np.array(conflicts, dtype=np.bool_)
        return rows[is_in_conflict[of]]


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
