"""The running pods as columns, an entry each, made once a plan.

Law: what is here is the same for every preemptor of the plan, but for `leaving`, which grows by the victims of each
decision. Who may be a victim of whom is for `units` to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gangsched.core.preemption.budgets import Budgets
from gangsched.core.reserve import Ledger
from gangsched.model.objects import Pod, Shape
from gangsched.model.preemption import (
    STUCK_S,
    SYSTEM_CRITICAL,
    BudgetRule,
    PreemptionSettings,
    Running,
    RunningGang,
    VictimScope,
)
from gangsched.model.resources import CPU
from gangsched.model.snapshot import Bools, Codes, Ints


@dataclass(slots=True, eq=False)
class Columns:
    """`names[i]` and `node[i]` are the node's name and index, -1 for one that is gone.

    `gang[i]` is an index into `gangs`, -1 for a plain pod. `leaving` pods count as gone, unless they are stuck (V4).
    `spared` ones are never victims; of the others, `young` ones run for less than the setting says and `foreign` ones
    belong to other schedulers. `work[i]` is what is lost with the pod (V8) in thousandths, `start[i]` when it started.
    """

    pods: Sequence[Pod]
    names: Sequence[str]
    node: Ints
    priority: Ints
    gang: Codes
    shape: Codes
    shapes: Sequence[Shape]
    leaving: Bools
    spared: Bools
    young: Bools
    foreign: Bools
    work: Ints
    start: Ints
    index: Mapping[str, int]
    gangs: Sequence[RunningGang]
    budgets: Budgets

    @classmethod
    def of(cls, running: Running, settings: PreemptionSettings, wall_s: int, ledger: Ledger) -> Columns:
        """The columns of what runs, under the administrator's settings."""
        pods, names, gang_ids, leaving = zip(*running.pods, strict=True) if running.pods else ((), (), (), ())
        index = {pod.uid: i for i, pod in enumerate(pods)}
        gang_index = {gang.id: g for g, gang in enumerate(running.gangs)}
        shapes: dict[Shape, int] = {}
        shape = np.array([shapes.setdefault(pod.shape, len(shapes)) for pod in pods], dtype=np.int32)
        start = _ints(pod.start_s or wall_s for pod in pods)
        going = np.array([gone or pod.deleting for pod, gone in zip(pods, leaving, strict=True)], dtype=np.bool_)
        stuck = np.array([0 < pod.deletion_s < wall_s - STUCK_S for pod in pods], dtype=np.bool_)
        priority = _ints(pod.priority for pod in pods)
        gang = np.array([gang_index.get(gang_id, -2) if gang_id else -1 for gang_id in gang_ids], dtype=np.int32)
        fixed = np.array([pod.mirror or pod.controller_kind == "DaemonSet" for pod in pods], dtype=np.bool_)
        foreign = np.zeros(len(pods), dtype=np.bool_)
        if settings.scope is VictimScope.OWN:
            foreign = np.array([pod.scheduler_name not in settings.names for pod in pods], dtype=np.bool_)
        budgets = Budgets(running, index)
        spared = fixed | going | (priority >= SYSTEM_CRITICAL) | (gang == -2)
        if settings.budgets is BudgetRule.RESPECT:
            spared[budgets.several()] = True
        seconds = np.clip(wall_s - start, 0, settings.work_cap_s)
        value = _ints(_worth(each, ledger) for each in shapes)
        return cls(
            pods=pods,
            names=names,
            node=_ints(ledger.table.index.get(name, -1) for name in names),
            priority=priority,
            gang=gang,
            shape=shape,
            shapes=tuple(shapes),
            leaving=going & ~stuck,
            spared=spared,
            young=wall_s - start < settings.min_run_s,
            foreign=foreign,
            work=value[shape] * seconds if pods else start,
            start=start,
            index=index,
            gangs=running.gangs,
            budgets=budgets,
        )

    def requests(self, names: Sequence[str]) -> Ints:
        """`requests[r][i]` of each pod, for the resources `names`."""
        table = np.array(
            [[dict(shape.requests).get(name, 0) for shape in self.shapes] for name in names], dtype=np.int64
        )
        return table.reshape(len(names), len(self.shapes))[:, self.shape]

    def mask(self, pods: Sequence[int]) -> Bools:
        """`mask[i]`: pod `i` is one of these."""
        found = np.zeros(len(self.pods), dtype=np.bool_)
        found[list(pods)] = True
        return found

    def leave(self, victims: Iterable[int]) -> None:
        """These pods are victims of a decision: later ones count them as gone."""
        chosen = list(victims)
        self.leaving[chosen] = True
        self.spared[chosen] = True
        self.budgets.spend(chosen)

    def staying(self, gang: RunningGang) -> list[int] | None:
        """The bound members that are not leaving; None if one of them is not known here."""
        found = [self.index.get(uid, -1) for uid in gang.uids]
        if -1 in found:
            return None
        return [i for i in found if not self.leaving[i]]


def _ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, dtype=np.int64)


def _worth(shape: Shape, ledger: Ledger) -> int:
    """What a pod of the shape uses, in thousandths of accelerators; of cores if it has none (V8)."""
    asked = dict(shape.requests)
    accelerators = [name for name in asked if name in ledger.resources and ledger.policy.is_accelerator(name)]
    if not accelerators:
        return asked.get(CPU, 0)
    return sum(asked[name] * 1000 // ledger.unit(name) for name in accelerators)
