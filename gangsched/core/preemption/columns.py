"""The running pods as columns with one entry per pod, built once per plan.

Invariant: the columns are the same for every preemptor of the plan, except that each decision adds its victims to the
leaving pods. `units` decides which pods may be victims of which preemptor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np

from gangsched.core.preemption.budgets import Budgets
from gangsched.core.preemption.numbers import NONE, PLAIN, UNKNOWN, bools, highest, ints, lookup
from gangsched.core.preemption.pod_table import Names, PodTable, PodTableCache
from gangsched.core.reserve import Ledger
from gangsched.model.objects import Pod
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


@dataclass(frozen=True, slots=True, eq=False)
class Departed:
    """Pods that count as gone: `pods[i]` on node `nodes[i]`, and their total `amounts[r][n]`.

    `claiming` are the indices of those with claims.
    """

    pods: tuple[Pod, ...]
    nodes: Ints
    amounts: Ints
    claiming: tuple[int, ...]


@dataclass(slots=True, eq=False)
class RunningColumns:
    """Running pods as columns: `running[i]` is the pod, `node[i]` its node's index; if that node is gone, it is NONE
    and `on_node[i]` is false.

    `gang[i]` is an index into `gangs` where `in_gang[i]`, PLAIN for a `plain` pod, UNKNOWN for one of an unknown gang;
    a gang is `whole[g]` if all its bound members are included. Pods that are `going` (terminating) are never victims.
    They count as gone if they are `leaving`: not stuck, and terminating within the time that the settings allow (V4).
    `spared` pods are never victims; of the others, `young` ones have run for less than the setting, `foreign` ones
    belong to other schedulers, and `slow` ones have a longer grace period than the settings allow. `work[i]` is the
    work that is lost if the pod is evicted (V8), in thousandths; `start[i]` is its start time.
    """

    running: Sequence[RunningPod]
    gangs: Sequence[RunningGang]
    budgets: Budgets
    table: PodTable
    node: Ints
    on_node: Bools
    priority: Ints
    gang: Ints
    in_gang: Bools
    plain: Bools
    shape: Ints
    going: Bools
    leaving: Bools
    spared: Bools
    young: Bools
    foreign: Bools
    slow: Bools
    work: Ints
    wait: Ints
    start: Ints
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
        names, priority = table.names, table.field("priority")
        gang_index = {gang.id: g for g, gang in enumerate(running.gangs)}
        gang = lookup(ints([gang_index.get(name, UNKNOWN) for name in names.gangs]), table.field("gang"), none=PLAIN)
        node = lookup(
            ints([ledger.table.index.get(name, NONE) for name in names.nodes]), table.field("node"), none=NONE
        )
        others = bools([settings.scope is VictimScope.OWN and name not in settings.names for name in names.schedulers])
        deletion, shape = table.field("deletion"), table.field("shape")
        start = np.where(table.field("start") > 0, table.field("start"), wall_s)
        going = table.field("going") > 0
        # Who should be gone already, or goes later than anybody waits for, counts as staying (V4).
        stuck = (deletion > 0) & (deletion < wall_s - STUCK_S)
        late = deletion > wall_s + settings.max_wait_s
        leaving, grace = going & ~stuck & ~late, table.field("grace")
        left = np.where(leaving & (node != NONE), deletion - wall_s, 0)
        budgets = Budgets(running)
        spared = (table.field("fixed") > 0) | going | (priority >= SYSTEM_CRITICAL) | (gang == UNKNOWN)
        if settings.budgets is BudgetRule.RESPECT:
            spared[budgets.several()] = True
        bound = np.bincount(gang[(gang >= 0) & ~going], minlength=len(running.gangs))
        return cls(
            running=running.pods,
            gangs=running.gangs,
            budgets=budgets,
            table=table,
            node=node,
            on_node=node != NONE,
            priority=priority,
            gang=gang,
            in_gang=gang >= 0,
            plain=gang == PLAIN,
            shape=shape,
            going=going,
            leaving=leaving,
            spared=spared,
            young=wall_s - start < settings.min_run_s,
            foreign=lookup(others, table.field("scheduler"), none=False),
            slow=grace > settings.max_wait_s,
            work=_worth(names, ledger)[shape] * np.clip(wall_s - start, 0, settings.work_cap_s),
            wait=np.maximum(grace, highest(left, node, len(ledger.table) + 1)[node]) // WAIT_STEP_S,  # + 1: for NONE
            start=start,
            whole=bound == np.array([len(gang.uids) for gang in running.gangs], dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self.running)

    def inside(self, region: Bools) -> Bools:
        """`inside[i]`: pod `i` runs on a node of `region`."""
        inside = self.on_node.copy()
        inside[inside] = region[self.node[inside]]
        return inside

    def pod(self, i: int) -> Pod:
        """The pod at index `i`."""
        return self.running[i].pod

    def requests(self, names: Sequence[str], of: Ints | slice = slice(None)) -> Ints:
        """`requests[r][i]`: requests of each pod, or of the pods numbered `of`, for the resources `names`."""
        shape = self.shape[of]
        found: Ints = np.array([self.table.names.requests(name)[shape] for name in names], dtype=np.int64)
        return found.reshape(len(names), len(shape))

    def gone(self, ledger: Ledger) -> Departed:
        """The leaving pods, which every attempt first removes from `ledger`. Computed once, then updated by each
        decision.
        """
        if self._gone is None:
            nothing = np.zeros((len(ledger.resources), len(ledger.table)), dtype=np.int64)
            self._gone = Departed((), np.zeros(0, dtype=np.int64), nothing, ())
            self._count_gone(np.flatnonzero(self.leaving & self.on_node), ledger)
        return self._gone

    def _count_gone(self, numbers: Ints, ledger: Ledger) -> None:
        assert self._gone is not None
        before, nodes = self._gone, self.node[numbers]
        amounts, names = before.amounts.copy(), tuple(ledger.resources)
        for row, asked in zip((ledger.resources[name] for name in names), self.requests(names, numbers), strict=True):
            np.add.at(amounts[row], nodes, asked)
        pods = tuple(self.pod(i) for i in numbers.tolist())
        claiming = (i for i, pod in enumerate(pods, len(before.pods)) if pod.claims)
        self._gone = Departed(
            (*before.pods, *pods), np.concatenate((before.nodes, nodes)), amounts, (*before.claiming, *claiming)
        )

    def leaving_on(self, nodes: Set[int]) -> defaultdict[int, list[int]]:
        """The pods that leave each of the `nodes`."""
        there: defaultdict[int, list[int]] = defaultdict(list)
        leaving = np.flatnonzero(self.leaving)
        for i, node in zip(leaving.tolist(), self.node[leaving].tolist(), strict=True):
            if node in nodes:
                there[node].append(i)
        return there

    def mask(self, pods: Sequence[int]) -> Bools:
        """`mask[i]`: pod `i` is one of `pods`."""
        found = np.zeros(len(self), dtype=np.bool_)
        found[list(pods)] = True
        return found

    def leave(self, victims: Sequence[int], ledger: Ledger) -> None:
        """Mark the victims of a decision as leaving for later decisions."""
        chosen = list(victims)
        if self._gone is not None:
            new = np.array(chosen, dtype=np.int64)
            self._count_gone(new[~self.leaving[new] & self.on_node[new]], ledger)
        for column in (self.going, self.leaving, self.spared):
            column[chosen] = True
        self.budgets.spend(chosen)


def _worth(names: Names, ledger: Ledger) -> Ints:
    """By shape the use of a pod in thousandths of accelerators, or of cores if it requests none (V8)."""
    cores = names.requests(CPU)
    accelerators = [name for name in ledger.resources if ledger.policy.is_accelerator(name)]
    used = sum((names.requests(name) * 1000 // ledger.unit(name) for name in accelerators), np.zeros_like(cores))
    return np.where(used > 0, used, cores)
