"""The running pods as columns, with one entry per pod.

Invariant: the columns are cached across plans as a table, and only changed pods are read again. A
table depends on the pods only; the previous table only saves work. All preemptors of a plan use the
same columns, except that each decision adds its victims to the leaving pods. `units` decides which
pods may be victims of a preemptor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import count, islice
from operator import itemgetter
from typing import NamedTuple, TypeVar
from zlib import crc32

import numpy as np

from gangsched.core.preemption.budgets import Budgets
from gangsched.core.preemption.numbers import NONE, PLAIN, UNKNOWN, bools, highest, ints, lookup
from gangsched.core.reserve import Ledger
from gangsched.model.objects import Pod, Shape
from gangsched.model.preemption import (
    STUCK_S,
    SYSTEM_CRITICAL,
    WAIT_STEP_S,
    BudgetRule,
    PreemptionSettings,
    Running,
    RunningGang,
    RunningPod,
    VictimScope,
)
from gangsched.model.resources import CPU
from gangsched.model.snapshot import Bools, Ints

Name = TypeVar("Name", bound=Hashable)
# asked of every pod in every plan that preempts
_MARK = itemgetter(RunningPod._fields.index("mark"))
UNREAD = -1
LONGEST_GRACE_S = 2**40
"""A pod may state any int64; this leaves room for adding a time."""
NAMES_MORE = 100
"""Names beyond twice those at first at which a table is made from nothing, so that old ones are
forgotten.
"""


class PodRows(NamedTuple):
    """Columns read from the pods: `row[i]` is from pod `i`. Nodes, gangs, schedulers, shapes are
    numbers of `Names`.
    """

    node: Ints
    gang: Ints
    """`NONE` for plain pods."""
    scheduler: Ints
    shape: Ints
    priority: Ints
    start: Ints
    deletion: Ints
    grace: Ints
    created: Ints
    fixed: Ints
    """1 for pods that are never victims under any settings."""
    going: Ints
    """1 for terminating pods."""
    ordinal: Ints
    """The number at the end of the name; ask `PodTable.ordinals`, which reads it on demand."""
    key: Ints
    """Breaks ties between otherwise equal pods, identically in every process."""


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """Names seen so far, numbered, and the requests of the shapes for each resource looked up so
    far.
    """

    nodes: dict[str, int] = field(default_factory=dict)
    gangs: dict[str, int] = field(default_factory=dict)
    schedulers: dict[str, int] = field(default_factory=dict)
    shapes: dict[Shape, int] = field(default_factory=dict)
    _requests: dict[str, list[int]] = field(default_factory=dict)

    def requests(self, name: str) -> Ints:
        """`requests[s]`: request of a pod of shape `s` for the resource `name`, 0 for none. A shape
        is read once.
        """
        known = self._requests.setdefault(name, [])
        for shape in islice(self.shapes, len(known), None):
            amounts = dict(shape.requests)
            known.append(amounts.get(name, 0))

        return np.array(known, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.nodes) + len(self.gangs) + len(self.schedulers) + len(self.shapes)


@dataclass(frozen=True, slots=True, eq=False)
class PodTable:
    """The `rows` of `pods`, whose names are numbers of `names`.

    `marks` are the pods' versions. The table for the next plan has only the marks and no pods, so
    that it keeps no deleted pod alive. `names_at_first` is the number of names when a table was
    last built from scratch.
    """

    pods: Sequence[RunningPod]
    marks: Ints
    names: Names
    names_at_first: int
    rows: PodRows

    def ordinals(self, of: Ints) -> Ints:
        """Numbers at the end of these pods' names, as in indexed Jobs; 0 for a name without one."""
        # Read on demand, since few pods' ordinals are ever needed; the row keeps them for later
        # plans.
        column = self.rows.ordinal
        unread = of[column[of] == UNREAD]
        ordinals = []
        for i in unread.tolist():
            name = self.pods[i].pod.name
            digits = name[len(name.rstrip("0123456789")) :]
            ordinals.append(int(digits[-9:]) if digits else 0)

        column[unread] = ordinals
        result: Ints = column[of]

        return result


class PodTableCache:
    """The table of the last plan, without its pods, as the starting point of the next table."""

    def __init__(self) -> None:
        self.last: PodTable | None = None

    def table(self, running: Running) -> PodTable:
        """The table of the running pods; pods whose rows are in the last table are not
        read again.
        """
        pods = running.pods
        marks = np.fromiter(map(_MARK, pods), dtype=np.int64, count=len(pods))

        table = None
        if self.last is not None:
            table = _after(self.last, pods, marks)

        if table is None:
            names = Names()
            rows = _read(pods, names)
            table = PodTable(pods, marks, names, len(names), rows)

        # While the input is read in parts its names grow because more is read, not because old ones
        # are left.
        at_first = table.names_at_first if running.whole else len(table.names)
        self.last = replace(table, pods=(), names_at_first=at_first)
        return table


@dataclass(frozen=True, slots=True, eq=False)
class Departed:
    """Pods that count as gone: `pods[i]` on node `nodes[i]`, and their total `amounts[r][n]`.

    `claiming` are the indices of the pods with claims.
    """

    pods: tuple[Pod, ...]
    nodes: Ints
    amounts: Ints
    claiming: tuple[int, ...]


@dataclass(slots=True, eq=False)
class RunningColumns:
    """Running pods as columns, one entry per pod."""

    #: `running[i]` is pod `i`; `gangs[g]` are the gangs that its `gang` is an index into.
    running: Sequence[RunningPod]
    gangs: Sequence[RunningGang]
    budgets: Budgets
    table: PodTable
    #: Index of the pod's node; NONE, and not `on_node`, if that node is gone.
    node: Ints
    on_node: Bools
    priority: Ints
    #: Index of the gang where `in_gang`, PLAIN for a `plain` pod, UNKNOWN for a pod of an unknown
    #: gang.
    gang: Ints
    in_gang: Bools
    plain: Bools
    shape: Ints
    #: Terminating pods, which are never victims. Those that are `leaving` count as gone: they are
    #: not stuck, and terminate within the time that the settings allow (V4).
    going: Bools
    leaving: Bools
    #: Pods that are never victims, whatever the settings.
    spared: Bools
    #: Of the others: pods that have run for less than the setting, that belong to other schedulers,
    #: and whose grace period is longer than the settings allow.
    young: Bools
    foreign: Bools
    slow: Bools
    #: Work that is lost if the pod is evicted, in thousandths of accelerator-seconds, or of
    #: core-seconds (V8).
    work: Ints
    #: Steps of `WAIT_STEP_S` until the pod, and everything that leaves its node, would be gone.
    wait: Ints
    start: Ints
    #: `whole[g]`: all bound members of gang `g` are included.
    whole: Bools
    _gone: Departed | None = None

    @classmethod
    def of(
        cls,
        running: Running,
        settings: PreemptionSettings,
        wall_s: int,
        ledger: Ledger,
        cache: PodTableCache | None = None,
    ) -> RunningColumns:
        """Build the columns of running pods under the administrator's settings."""
        table = (cache or PodTableCache()).table(running)
        names = table.names
        rows = table.rows
        budgets = Budgets(running)

        # The table's numbers are those of names; here they become indices of this plan's gangs and
        # nodes.
        gang_index = {gang.id: g for g, gang in enumerate(running.gangs)}
        gang = lookup(
            ints([gang_index.get(name, UNKNOWN) for name in names.gangs]),
            rows.gang,
            none=PLAIN,
        )
        node = lookup(
            ints([ledger.table.index.get(name, NONE) for name in names.nodes]),
            rows.node,
            none=NONE,
        )
        others = bools(
            [
                settings.scope is VictimScope.OWN and name not in settings.names
                for name in names.schedulers
            ]
        )
        start = np.where(rows.start > 0, rows.start, wall_s)
        going = rows.going > 0

        # Who should be gone already, or goes later than anybody waits for, counts as staying (V4).
        stuck = (rows.deletion > 0) & (rows.deletion < wall_s - STUCK_S)
        leaving = going & ~stuck & (rows.deletion <= wall_s + settings.max_wait_s)
        left = np.where(leaving & (node != NONE), rows.deletion - wall_s, 0)
        spared = (rows.fixed > 0) | going | (rows.priority >= SYSTEM_CRITICAL) | (gang == UNKNOWN)

        if settings.budgets is BudgetRule.RESPECT:
            # The eviction API refuses every pod that more than one budget covers, whatever they
            # allow.
            spared[[i for i, keys in budgets.covering.items() if len(keys) > 1]] = True

        bound = np.bincount(gang[(gang >= 0) & ~going], minlength=len(running.gangs))
        return cls(
            running=running.pods,
            gangs=running.gangs,
            budgets=budgets,
            table=table,
            node=node,
            on_node=node != NONE,
            priority=rows.priority,
            gang=gang,
            in_gang=gang >= 0,
            plain=gang == PLAIN,
            shape=rows.shape,
            going=going,
            leaving=leaving,
            spared=spared,
            young=wall_s - start < settings.min_run_s,
            foreign=lookup(others, rows.scheduler, none=False),
            slow=rows.grace > settings.max_wait_s,
            work=_worth(names, ledger)[rows.shape]
            * np.clip(wall_s - start, 0, settings.work_cap_s),
            # One entry more than there are nodes, since NONE reads the last one.
            wait=np.maximum(rows.grace, highest(left, node, len(ledger.table) + 1)[node])
            // WAIT_STEP_S,
            start=start,
            whole=bound == ints([len(gang.uids) for gang in running.gangs]),
        )

    def inside(self, region: Bools) -> Bools:
        """`inside[i]`: pod `i` runs on a node of `region`."""
        inside = self.on_node.copy()
        inside[inside] = region[self.node[inside]]
        return inside

    def requests(self, names: Sequence[str], of: Ints | slice = slice(None)) -> Ints:
        """`requests[r][i]`: requests of each pod, or of the pods numbered `of`, for the resources
        `names`.
        """
        shape = self.shape[of]
        requests: Ints = np.array(
            [self.table.names.requests(name)[shape] for name in names],
            dtype=np.int64,
        )
        return requests.reshape(len(names), len(shape))

    def gone(self, ledger: Ledger) -> Departed:
        """The leaving pods, which every attempt first removes from the `ledger`."""
        # Summed once per plan; each decision then adds its victims, since a wave makes a hundred
        # decisions per plan.
        if self._gone is None:
            nothing = np.zeros((len(ledger.resources), len(ledger.table)), dtype=np.int64)
            self._gone = Departed((), ints([]), nothing, ())
            self._count_gone(self._gone, np.flatnonzero(self.leaving & self.on_node), ledger)

        return self._gone

    def _count_gone(
        self,
        before: Departed,
        numbers: Ints,
        ledger: Ledger,
    ) -> None:
        nodes = self.node[numbers]
        amounts = before.amounts.copy()

        for row, asked in zip(
            ledger.resources.values(),
            self.requests(tuple(ledger.resources), numbers),
            strict=True,
        ):
            np.add.at(amounts[row], nodes, asked)

        pods = []
        for i in numbers.tolist():
            pods.append(self.running[i].pod)

        claiming = []
        for i, pod in enumerate(pods, len(before.pods)):
            if pod.claims:
                claiming.append(i)

        self._gone = Departed(
            (*before.pods, *pods),
            np.concatenate((before.nodes, nodes)),
            amounts,
            (*before.claiming, *claiming),
        )

    def leaving_on(self, nodes: Set[int]) -> defaultdict[int, list[int]]:
        """The leaving pods on each of the `nodes`."""
        there: defaultdict[int, list[int]] = defaultdict(list)
        leaving = np.flatnonzero(self.leaving)
        for i, node in zip(leaving.tolist(), self.node[leaving].tolist(), strict=True):
            if node in nodes:
                there[node].append(i)

        return there

    def mask(self, pods: Sequence[int]) -> Bools:
        """`mask[i]`: pod `i` is one of `pods`."""
        mask = np.zeros(len(self.running), dtype=np.bool_)
        mask[list(pods)] = True
        return mask

    def leave(self, victims: Sequence[int], ledger: Ledger) -> None:
        """Mark the victims of a decision as leaving for later decisions."""
        chosen = ints(victims)
        if self._gone is not None:
            self._count_gone(
                self._gone,
                chosen[~self.leaving[chosen] & self.on_node[chosen]],
                ledger,
            )

        for column in (self.going, self.leaving, self.spared):
            column[chosen] = True

        if self.budgets.covering:
            self.budgets.spend(victims)


def _worth(names: Names, ledger: Ledger) -> Ints:
    """By shape the use of a pod in thousandths of accelerators, or of cores if it requests none
    (V8).
    """
    cores = names.requests(CPU)
    accelerators = []
    for name in ledger.resources:
        if ledger.policy.is_accelerator(name):
            accelerators.append(name)

    used = sum(
        (names.requests(name) * 1000 // ledger.unit(name) for name in accelerators),
        np.zeros_like(cores),
    )

    return np.where(used > 0, used, cores)


def _after(last: PodTable, pods: Sequence[RunningPod], marks: Ints) -> PodTable | None:
    """The table of `pods` made from the last one, if those that are in both come first and in the
    same order.
    """
    if len(last.names) > 2 * last.names_at_first + NAMES_MORE:
        return None

    # Rows are reused by position, which is right only if all that stay come first and in the order
    # of the last table. Mark 0 says that a pod has no version: it is read again each time.
    stays = np.isin(last.marks, marks[marks != 0])
    kept = int(stays.sum())
    if not np.array_equal(last.marks[stays], marks[:kept]):
        return None
    if kept == len(last.marks) == len(pods):
        return replace(last, pods=pods)

    new = _read(pods[kept:], last.names)
    rows = PodRows(
        *(np.concatenate((row[stays], more)) for row, more in zip(last.rows, new, strict=True))
    )
    return replace(last, pods=pods, marks=marks, rows=rows)


def _read(running: Sequence[RunningPod], names: Names) -> PodRows:
    """The rows of these pods; `names` learns new ones."""
    pods = [running_pod.pod for running_pod in running]
    # A field of all pods at a time: a pod at a time takes three times as long, and the first look
    # stalls a plan.
    read: tuple[list[int] | list[bool], ...] = (
        _numbers([running_pod.node for running_pod in running], names.nodes),
        _numbers([running_pod.gang for running_pod in running], names.gangs, none=""),
        _numbers([pod.scheduler_name for pod in pods], names.schedulers),
        _numbers([pod.shape for pod in pods], names.shapes),
        [pod.priority for pod in pods],
        [pod.start_s for pod in pods],
        [pod.deletion_s for pod in pods],
        [min(pod.grace_s, LONGEST_GRACE_S) for pod in pods],
        [pod.creation_s for pod in pods],
        [pod.ends_with_node for pod in pods],
        [running_pod.leaving or running_pod.pod.deleting for running_pod in running],
        [UNREAD] * len(running),
        list(map(crc32, map(str.encode, [pod.uid for pod in pods]))),
    )
    return PodRows(*(np.array(row, dtype=np.int64) for row in read))


def _numbers(met: Sequence[Name], known: dict[Name, int], *, none: Name | None = None) -> list[int]:
    """The number of each name, NONE for `none`; `known` learns new ones."""
    new = []
    for name in dict.fromkeys(met):
        if name not in known and name != none:
            new.append(name)

    known.update(zip(new, count(len(known)), strict=False))
    numbers = known if none is None else {**known, none: NONE}

    return list(map(numbers.__getitem__, met))
