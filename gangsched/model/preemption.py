"""Input and result of preemption decisions (the V rules of docs/semantics/preemption.md).

Invariant: values only. The state fills in a `PreemptionInput`, `core.preemption` decides on it and
on the plan's ledger, and the state carries out the `Preemption` of a committed verdict. Times
ending in `_s` are epoch seconds; monotonic times are marked as such.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import msgspec
from msgspec import structs

from gangsched.model.gang import Placement, Rank, Refusal
from gangsched.model.objects import Pod
from gangsched.model.tree import Part

SYSTEM_CRITICAL = 2_000_000_000
"""Pods of this priority and above are never victims: system-cluster-critical and
system-node-critical (V5).
"""
STUCK_S = 60
"""A terminating pod counts as gone until it is this long past its deletionTimestamp (V4)."""
WAIT_STEP_S = 60
"""Expected waits are compared in steps of this size (V8): the usual grace period of 30 s and one of
0 are alike.
"""


class VictimScope(StrEnum):
    """The setting `preemption`: whether victims may be pods of gangsched only, or of any scheduler
    (V5).
    """

    OWN = "own"
    ALL = "all"
    OFF = "off"


class BudgetRule(StrEnum):
    """The setting `preempt_pdb`: respect PodDisruptionBudgets, or violate them as a last resort
    (V7).
    """

    RESPECT = "respect"
    LAST_RESORT = "last_resort"


@dataclass(frozen=True, slots=True)
class PreemptionSettings:
    """The administrator's settings, and documented constants. `names` are the scheduler names of
    gangsched.

    Pods that have run for less than `min_run_s` are never victims. Preemption does not wait for a
    pod that takes longer than `max_wait_s` to terminate (V4, V12).
    """

    scope: VictimScope = VictimScope.OWN
    budgets: BudgetRule = BudgetRule.RESPECT
    min_run_s: int = 0
    work_cap_s: int = 3_600
    """Run time beyond which a victim's work counts as saved (V8): training jobs write a checkpoint
    in an hour.
    """
    per_cycle: int = 100
    """Maximum number of groups that preempt per cycle. The work of a plan ends it earlier; this
    bounds what is evicted before anybody sees it (decision 0055)."""
    max_pods: int = 50_000
    """Maximum number of victims of one group (V15), all pods of 400 full nodes: to choose 800 takes
    10 ms.
    """
    hold_back_s: int = 60
    """How long a waiting group keeps lower-priority groups off nodes that it may preempt (V27):
    twice what most victims take to end, and short enough that a group that cannot be helped keeps
    nobody waiting (decision 0025).
    """
    max_wait_s: int = 600
    names: frozenset[str] = frozenset({"gangsched"})


# --- what runs ----------------------------------------------------------------------------------


class RunningPod(NamedTuple):
    """A pod that is bound to `node` and has not ended. `gang` is the id of its gang, "" for a plain
    pod.

    `leaving`: the pod is terminating, or is a victim of a nomination in progress. `mark` is a
    version number that is unique among all plans of one state, 0 if the pod has none.
    """

    pod: Pod
    node: str
    gang: str = ""
    leaving: bool = False
    mark: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningGang:
    """A gang with bound members."""

    id: str
    #: Id of its group.
    group: str
    min_member: int
    #: Bound members that are not leaving.
    uids: tuple[str, ...]
    #: They count towards `min_member` as in P1.
    succeeded: int = 0
    #: Its members are evicted only all together (native disruptionMode `all`).
    indivisible: bool = False
    #: Its members are evicted one by one (`single`).
    disrupted_singly: bool = False
    #: While members are being bound, the group is not evicted as a whole.
    binding: bool = False
    #: The outermost part of its group; "" for the gang by itself.
    root: Part = ""


class Budget(NamedTuple):
    """A PodDisruptionBudget: `key` is `namespace/name`, `allowed` its status.disruptionsAllowed,
    `uids` its pods.
    """

    key: str
    allowed: int
    uids: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """All pods that may be evicted or are leaving, in any order."""

    #: A pod that is not listed is never a victim, nor is its core (the group that would be evicted
    #: with it). An unchanged pod has the same mark in the next plan.
    pods: Sequence[RunningPod]
    #: Every gang that a pod names, and all gangs of its group with bound members.
    gangs: Sequence[RunningGang] = ()
    budgets: Sequence[Budget] = ()
    #: If False, pods are missing that later plans receive, and no group preempts.
    whole: bool = True
    #: Units of work (`core.work`) that reading took.
    units: int = 0


# --- what is decided ----------------------------------------------------------------------------


class UnitKind(StrEnum):
    """Kind of a unit of eviction (V6): a member above its gang's minimum (surplus), a whole child
    above the minimum of its tree, a whole group, or a plain pod.
    """

    SURPLUS = "surplus"
    CHILD = "child"
    CORE = "core"
    POD = "pod"


class BrokenDeadlock(StrEnum):
    """What is done about two running gangs that each hold the room that the other lacks (D2)."""

    TELL = "tell"
    YIELD = "yield"


class Victim(NamedTuple):
    """A pod to be evicted; `gang` and `group` are "" for a plain pod.

    An `overdue` victim exceeded the run time for which it was backfilled, so it is evicted even at
    equal priority (H11). `part` is the id of the child that is evicted as a whole; the child may
    have further gangs.
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
    part: str = ""

    @property
    def unit(self) -> tuple[UnitKind, str]:
        """A key that is equal for all victims of one unit of eviction."""
        if self.kind is UnitKind.CORE:
            return self.kind, self.group

        return self.kind, self.part if self.kind is UnitKind.CHILD else self.uid

    @property
    def is_of_whole(self) -> bool:
        """Whether the victim's gang is evicted whole."""
        return self.kind in {UnitKind.CORE, UnitKind.CHILD}


class Harm(NamedTuple):
    """The preemption cost of a set of victims, as sort keys: smaller is better (V8).

    `work_lost` is in thousandths of accelerator-seconds, or of core-seconds for victims without
    accelerators. `started_s` is the negative sum of the start times, so the youngest of otherwise
    equal sets is evicted.
    """

    budgets_broken: int
    highest_priority: int
    gangs_stopped: int
    work_lost: int
    victims: int
    wait_steps: int
    started_s: int


class Preemption(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A decision to preempt: the nodes of the needed members, and the pods that must be gone before
    these members can be bound.
    """

    #: They become nominations.
    placements: tuple[Placement, ...]
    victims: tuple[Victim, ...] = ()
    #: Uids of pods that are terminating anyway and whose room is used (V4).
    awaited: tuple[str, ...] = ()
    #: Ids of gangs that fall below their minimum.
    stopped: tuple[str, ...] = ()
    harm: Harm | None = None
    #: The longest grace period of the victims.
    grace_s: int = 0
    #: Time at which the last victim, or pod that terminates anyway, counts as stuck (V12).
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
    TOO_MUCH_WORK = "too_much_work"
    """The decision takes more work than one plan may do (decision 64)."""
    LATER = "later"
    """The work of this plan is used up; the next one goes on."""


class NotHelpful(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Why a preemption that is allowed did not help, with the amounts for the message (V21).

    The fields by obstacle. NOTHING_LOWER: the member `name`, with priority `amount`, limits the
    group's preemption priority (V2). TOO_LITTLE: `pods` pods of lower priority could be evicted;
    by totals there would then be `room` for at most that many of the `needed` pods. If that is all
    of them, no choice of those pods was found with which all are placed. BUDGET: the budget allows
    `allowed` of `needed` evictions; unless that is known of every choice, `pods` could be evicted
    as for TOO_LITTLE. TOO_YOUNG: `pods` counts gangs and plain pods; `seconds` is the
    setting. OTHER_SCHEDULERS: `amount` of `name` is in use. BACK_OFF: `seconds` are left. DELAYED:
    `seconds` are left of the delay `delay_s`, which ends at epoch second `amount` (V28); with
    `delay_s` 0 an autoscaler is asked for nodes until then. TOO_MANY:
    `pods` would have to be evicted; `needed` are allowed. TOO_MUCH_WORK: `needed` pods wait. LATER:
    `name` identifies the search if a round has yet to confirm its choice.
    """

    why: Obstacle
    pods: int = 0
    room: int = 0
    needed: int = 0
    allowed: int = 0
    amount: int = 0
    seconds: int = 0
    #: TOO_YOUNG: the earliest time at which age stops being the obstacle. TOO_MANY and BUDGET:
    #: another choice may be possible then, 0 for never.
    until_s: int = 0
    name: str = ""
    delay_s: float = 0.0
    #: LATER: work was spent on the search in vain, so that it goes on in the group's turn.
    begun: bool = False
    #: LATER: these, `tested` and `passed` regions let the next plan continue.
    resume: tuple[str, ...] = ()
    tested: int = 0
    passed: tuple[str, ...] = ()
    #: The eligible nodes, if the group could start on them if they were empty; groups whose
    #: priority is below `right` are held back there (V27).
    wanted: tuple[str, ...] = ()
    right: int = 0

    def as_told(self) -> NotHelpful:
        """What users are told of it: without the progress of the search, and with a time instead of
        what is left of it.
        """
        is_delay = self.why is Obstacle.DELAYED
        return structs.replace(
            self,
            seconds=0 if is_delay else self.seconds,
            name="" if self.why is Obstacle.LATER else self.name,
            until_s=0,
            begun=False,
            resume=(),
            tested=0,
            passed=(),
            wanted=(),
            right=0,
        )


class HeldBack(NamedTuple):
    """Nodes on which groups with a priority below `right` do not start, because `group` waits for
    room there (V27).

    `rank` is the position of `group` among all groups that hold back lower-priority groups.
    """

    group: str
    right: int
    nodes: tuple[str, ...]
    rank: Rank


Share = tuple[str, int]
"""A namespace and a right, whose groups have one time together to hold others back (V27)."""


# --- what a plan is given -----------------------------------------------------------------------


class PreemptionInput(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Preemption input of `plan`; None disables preemption, which then has no cost."""

    #: Reads the running pods, or as many of them as the given units of work allow. Called at most
    #: once per plan, and only if a group with a priority above `lowest_priority` was refused for
    #: room.
    running: Callable[[float], Running]
    #: The current time.
    wall_s: int
    #: Of any bound pod (including leaving ones), None if there is none: if all priorities are
    #: equal, nothing is computed (V25).
    lowest_priority: int | None = None
    settings: PreemptionSettings = msgspec.field(default_factory=PreemptionSettings)
    #: By group id: the message of a nomination in progress, during which the group makes no other
    #: one (V11).
    nominated: Mapping[str, Refusal] = msgspec.field(default_factory=dict)
    #: By group id: the monotonic second before which it makes no nomination (V12).
    retry_at_s: Mapping[str, float] = msgspec.field(default_factory=dict)
    #: By group id: the epoch second until which it evicts no pods, since an autoscaler may add
    #: nodes for it (V28).
    nodes_until_s: Mapping[str, int] = msgspec.field(default_factory=dict)
    #: By group id: the result of its last examination, while nothing that it depends on has changed
    #: (V25).
    known: Mapping[str, NotHelpful] = msgspec.field(default_factory=dict)
    #: Groups whose search has begun and goes on when it is their turn; the one whose turn it is,
    #: None if nobody waits for one: then any group may choose victims by rounds.
    postponed: Set[str] = frozenset()
    searching: str | None = None
    #: By group id: uids of pods that may be evicted for it, as whole groups, because they exceeded
    #: their declared run time (H11).
    overdue: Mapping[str, frozenset[str]] = msgspec.field(default_factory=dict)
    #: The nodes on which lower-priority groups are held back, None for no nodes. No other group
    #: holds back for itself if it ranks behind the group of `held_back`, or once its own time in
    #: `held_until_s` (monotonic, by group id) or that of one of its namespaces in `share_until_s`
    #: is over.
    held_back: HeldBack | None = None
    held_until_s: Mapping[str, float] = msgspec.field(default_factory=dict)
    share_until_s: Mapping[Share, float] = msgspec.field(default_factory=dict)
    #: The lowest priority of any pod that waits for a node, None if none waits (V27).
    lowest_waiting: int | None = None
    #: The missing permission without which no pod is evicted (V26).
    forbidden: str = ""
