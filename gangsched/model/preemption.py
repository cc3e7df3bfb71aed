"""What preemption needs to know, and what it decides (the V rules of docs/semantics.md).

Invariant: these are values only. The state fills in a `PreemptionInput`, `core.preemption` decides on it and on the
plan's ledger, and the state carries out the `Preemption` of a verdict once it is committed. Times ending in `_s` are
seconds since the epoch unless they are said to be monotonic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from gangsched.model.gang import Placement, Rank, Refusal
from gangsched.model.objects import Pod

SYSTEM_CRITICAL = 2_000_000_000
"""Pods of this priority and above are never victims: system-cluster-critical and system-node-critical (V5)."""
STUCK_S = 60
"""A terminating pod counts as gone until it is this long past its deletionTimestamp (V4)."""
WAIT_STEP_S = 60
"""Expected waits are compared in steps of this size (V8): the usual grace period of 30 s and one of 0 are alike."""


class VictimScope(StrEnum):
    """The setting `preemption`: whose pods may be victims, those of our scheduler names or of any scheduler (V5)."""

    OWN = "own"
    ALL = "all"
    OFF = "off"


class BudgetRule(StrEnum):
    """The setting `preempt_pdb`: PodDisruptionBudgets are kept, or broken where nothing else helps (V7)."""

    RESPECT = "respect"
    LAST_RESORT = "last_resort"


@dataclass(frozen=True, slots=True)
class PreemptionSettings:
    """The administrator's settings and, with a reason beside them, constants; `names` are our scheduler names.

    Pods that run for less than `min_run_s` are spared. What takes longer than `max_wait_s` to end is not waited for
    (V4, V12).
    """

    scope: VictimScope = VictimScope.OWN
    budgets: BudgetRule = BudgetRule.RESPECT
    min_run_s: int = 0
    work_cap_s: int = 3_600
    """Run time beyond which a victim's work counts as saved (V8): training jobs write a checkpoint in an hour."""
    per_cycle: int = 100
    """Maximum number of groups that preempt per cycle. The work of a plan ends it earlier; this bounds what is evicted
    before anybody sees it (decision 0055)."""
    max_pods: int = 50_000
    """Maximum number of victims of one group (V15), all pods of 400 full nodes: to choose 800 takes 10 ms."""
    hold_back_s: int = 60
    """How long a waiting group keeps lower-priority groups off nodes that it may preempt (V27): twice what most victims
    take to end, and short enough that a group that cannot be helped keeps nobody waiting (decision 0025)."""
    max_wait_s: int = 600
    names: frozenset[str] = frozenset({"gangsched"})


# --- what runs ------------------------------------------------------------------------------------------------------


class RunningPod(NamedTuple):
    """A pod that is bound to `node` and has not ended; `gang` is its gang's id, "" for a plain pod.

    `leaving`: it is terminating, or it is a victim of a nomination that is under way. `mark` is a number that no other
    RunningPod with the same memo ever has, 0 if it has none.
    """

    pod: Pod
    node: str
    gang: str = ""
    leaving: bool = False
    mark: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningGang:
    """A gang with bound members; `group` is its group's id, `uids` are those of bound members that are not leaving.

    `succeeded` members count towards `min_member` where P1 counts them. An `indivisible` gang has no surplus (native
    disruptionMode `all`), and the members of one that is `disrupted_singly` go one by one (`single`). While members are
    `binding`, no core is taken that has this gang.
    """

    id: str
    group: str
    min_member: int
    uids: tuple[str, ...]
    succeeded: int = 0
    indivisible: bool = False
    disrupted_singly: bool = False
    binding: bool = False


class Budget(NamedTuple):
    """A PodDisruptionBudget: `key` is `namespace/name`, `allowed` its status.disruptionsAllowed, `uids` its pods."""

    key: str
    allowed: int
    uids: frozenset[str]


class RunningMemo:
    """What `core.preemption` remembers of what runs, for the next plan; only what pure functions returned."""

    __slots__ = ("table",)

    def __init__(self) -> None:
        self.table: object = None


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """Everything that may be taken or that is leaving, in any order.

    A pod that is not among `pods` is never a victim, and neither is a core that has it. `gangs` has every gang that a
    pod names, and all gangs of its group that have bound members. A pod of which nothing changed should have the same
    mark in the next plan, with the same `memo`: then only what changed is read. What is not `whole` lacks pods that
    later plans are told of, and nobody preempts on it.
    """

    pods: Sequence[RunningPod]
    gangs: Sequence[RunningGang] = ()
    budgets: Sequence[Budget] = ()
    memo: RunningMemo = field(default_factory=RunningMemo)
    whole: bool = True


# --- what is decided ------------------------------------------------------------------------------------------------


class UnitKind(StrEnum):
    """What a victim is taken as: one above its gang's minimum, with its whole group, or a plain pod (V6)."""

    SURPLUS = "surplus"
    CORE = "core"
    POD = "pod"


class Victim(NamedTuple):
    """A pod that is to be evicted; `gang` and `group` are "" for a plain pod.

    An `overdue` one goes because it overran what let it onto reserved room, at equal priority too (H11).
    """

    uid: str
    namespace: str
    name: str
    node: str
    gang: str
    group: str
    kind: UnitKind
    priority: int
    overdue: bool = False


class Harm(NamedTuple):
    """The keys by which sets of victims are compared, smaller is better (V8).

    `work_lost` is in thousandths of accelerator-seconds, or of core-seconds for victims without accelerators.
    `wait_steps` is how long the last victim is expected to take, in steps of `WAIT_STEP_S`. It comes after all that
    protects the victims: a grace period is the owner's statement, and a long one must not send others first.
    `started_s` is the sum of the starts, negative: of equal sets the one that started latest goes.
    """

    budgets_broken: int
    highest_priority: int
    gangs_stopped: int
    work_lost: int
    victims: int
    wait_steps: int
    started_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """A decision to make room: the nodes of the needed members, and what must go before they can be bound.

    `placements` become nominations. `awaited` are uids of pods that are leaving anyway and whose room is counted (V4).
    `stopped` are ids of gangs that fall below their minimum. `grace_s` is the longest grace period of the victims and
    `deadline_s` when the last of them, or of those that leave anyway, counts as stuck (V12).
    """

    placements: tuple[Placement, ...]
    victims: tuple[Victim, ...] = ()
    awaited: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    harm: Harm | None = None
    grace_s: int = 0
    deadline_s: int = 0


class Obstacle(StrEnum):
    """Why preemption cannot help a group (V21)."""

    NOTHING_LOWER = "nothing_lower"
    TOO_LITTLE = "too_little"
    BUDGET = "budget"
    POLICY_NEVER = "policy_never"
    TOO_YOUNG = "too_young"
    OTHER_SCHEDULERS = "other_schedulers"
    BACK_OFF = "back_off"
    DELAYED = "delayed"
    FORBIDDEN = "forbidden"
    TOO_MANY = "too_many"
    LATER = "later"
    """The work of this plan is used up; the next one goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotHelpful:
    """Why preemption was allowed and did not help, with the amounts that its sentence names (V21).

    Of NOTHING_LOWER `name` is the member whose priority, `amount`, is the right of a group that has higher ones (V2).
    Of TOO_LITTLE `pods` is how many are of lower priority, and there is `room` for that many of the `needed` without
    them; of BUDGET `allowed` of `needed` evictions; of TOO_YOUNG `pods` counts gangs and plain pods, `seconds` is the
    setting, and age alone helps no earlier than at `until_s`; of OTHER_SCHEDULERS `amount` of `name` is in use; of
    BACK_OFF and DELAYED `seconds` are left, of DELAYED until the epoch second `amount`, for the delay `name` (V28); of
    TOO_MANY `pods` would have to go, and `needed` are allowed; of TOO_MANY and BUDGET another choice may be made at
    `until_s`, when more pods are old enough, 0 for never. Of LATER, `resume` and `tested` let the next plan go on
    from there, after the regions that rounds have `passed`.

    `wanted` are the nodes that the members may use, if the group could start were nothing else on them: groups of a
    priority below `right` are held back there (V27).
    """

    why: Obstacle
    pods: int = 0
    room: int = 0
    needed: int = 0
    allowed: int = 0
    amount: int = 0
    seconds: int = 0
    until_s: int = 0
    name: str = ""
    resume: tuple[str, ...] = ()
    tested: int = 0
    passed: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    right: int = 0


class HeldBack(NamedTuple):
    """Nodes on which groups of a priority below `right` do not start, because `group` waits for room there (V27).

    `rank` is its place among those that wait so.
    """

    group: str
    right: int
    nodes: tuple[str, ...]
    rank: Rank


Share = tuple[str, int]
"""A namespace and a right, whose groups have one time together to hold others back (V27)."""


# --- what a plan is given -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PreemptionInput:
    """What `plan` knows of preemption; None in its place turns preemption off and costs nothing.

    `running` is asked at most once a plan, and only when a group was refused for room whose pods are of higher priority
    than `lowest_priority`, the lowest of any bound pod (leaving ones too; None without any): where all priorities are
    equal nothing is built (V25). `wall_s` is the present.

    By group id: `nominated` has what is told while a nomination is under way, such groups make no other one (V11);
    `retry_at_s` the monotonic second before which the group makes none (V12); `known` what was found when the group was
    last examined, while nothing that it rests on has changed, so that it is not examined again (V25). `overdue` are the
    uids of pods that may be taken for it, whole groups, because they overran what let them onto its room (H11).
    `held_back` is where lower groups are held back for a group that waits, None for nowhere; for none behind it are
    others held back, nor for a group whose second in `held_until_s` (monotonic, by group id) is past, or that of one of
    its namespaces in `share_until_s`. `lowest_waiting` is the lowest priority of any pod that waits for a node, None
    without any (V27).
    `forbidden` names the right that is missing, without which nobody is evicted and that is told (V26).
    """

    running: Callable[[], Running]
    wall_s: int
    lowest_priority: int | None = None
    settings: PreemptionSettings = field(default_factory=PreemptionSettings)
    nominated: Mapping[str, Refusal] = field(default_factory=dict)
    retry_at_s: Mapping[str, float] = field(default_factory=dict)
    known: Mapping[str, NotHelpful] = field(default_factory=dict)
    overdue: Mapping[str, frozenset[str]] = field(default_factory=dict)
    held_back: HeldBack | None = None
    held_until_s: Mapping[str, float] = field(default_factory=dict)
    share_until_s: Mapping[Share, float] = field(default_factory=dict)
    lowest_waiting: int | None = None
    forbidden: str = ""
