"""Result of `core.cycle.plan`: one Verdict for every decided group.

Invariant: a Plan is a proposal. Nothing happens until the state commits it, and the state may refuse any verdict whose
group or nodes have changed since the snapshot (semantics B2).
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from gangsched.model.gang import Group, Placement, Refusal
from gangsched.model.objects import Shape
from gangsched.model.preemption import NotHelpful, Preemption, PreemptionInput
from gangsched.model.reasons import Reason
from gangsched.model.reservation import How, KeptFor, Reservations, Reserving
from gangsched.model.snapshot import Ints, Snapshot
from gangsched.model.storage import Storage


class RoundOutcome(StrEnum):
    """Result of a round (semantics R1)."""

    PERMITTED = "permitted"
    REFUSED = "refused"
    HOLDING = "holding"


@dataclass(frozen=True, slots=True)
class Round:
    """One pass over a group's pending members, within one plan (semantics R1, R4)."""

    number: int
    present: int
    attempted: int
    placed: int
    outcome: RoundOutcome


@dataclass(frozen=True, slots=True)
class Need:
    """Room that is required before a refused group is tried again: for `count` pods of `shape` (semantics Q3).

    All of it must be in one domain of the node labels `within`, the same domain for all needs with these labels.
    """

    shape: Shape
    count: int
    within: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The decision about one group.

    `binds` are committed together (B1), including earlier holds; `holds` are new holds (R3), `releases` the uids of
    released ones. `told` is the message for the group; `gangs` (by gang id) and `notes` (by pod uid) are different
    messages for some of them. `needs` is the room required before the group is tried again; empty if room cannot help.
    `expired`: the wait time has just expired (T2). `yields_to` is the group that can use the released room (D1). `sent`
    is the number of binds sent for the group. `preemption` is a decision to preempt, or why there is none (V1, V21).
    `how` says why reservations allowed the placement, None if no reservation restricted it (H8). `kept_for`: the group
    would fit without reservations (H14).
    """

    group: str
    generation: int
    told: Refusal
    round: Round | None = None
    binds: tuple[Placement, ...] = ()
    holds: tuple[Placement, ...] = ()
    rooms: tuple[Placement, ...] = ()
    releases: tuple[str, ...] = ()
    notes: tuple[tuple[str, Refusal], ...] = ()
    needs: tuple[Need, ...] = ()
    gangs: tuple[tuple[str, Refusal], ...] = ()
    expired: bool = False
    yields_to: str = ""
    sent: int = 0
    preemption: Preemption | NotHelpful | None = None
    how: How | None = None
    kept_for: KeptFor | None = None

    def carried_out(self) -> Verdict:
        """The verdict as it is stored after its commit: without copies of the placed pods."""
        # Verdicts of thousands of waiting groups are kept until the next one: pods in them would outlive their
        # deletion.
        return replace(self, binds=(), holds=(), rooms=(), releases=(), sent=len(self.binds))

    @property
    def moves(self) -> bool:
        """Whether the verdict reserves or releases room of members."""
        return bool(self.binds or self.holds or self.releases)

    @property
    def reason(self) -> Reason:
        """The reason that is reported for the group."""
        return self.told.reason

    def tells_the_same(self, other: Verdict) -> bool:
        """Whether both verdicts lead to the same reports, ignoring the number of rounds."""
        kept, others = self.kept_for, other.kept_for
        alike = kept is others or (kept is not None and others is not None and kept.tells_the_same(others))
        # `needs` and `preemption` are for the queue; what users read of them is in these texts already.
        return alike and (self.told, self.gangs, self.notes) == (other.told, other.gangs, other.notes)

    def of_gang(self, gang: str) -> Refusal:
        """The message for one gang of the group."""
        return dict(self.gangs).get(gang, self.told)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """Progress with a group that takes more work than one plan may do; no room is reserved for it.

    `placed` has the nodes chosen for members, and `failed` the reasons of members without a node, by pod uid. Both
    belong to the named scope that follows the scopes in `passed`, in which exact searches made `choices` choices.
    `rooms`, by gang id, and `shortages` are totals by shape. `searched`: other orders of placing were tried in that
    scope. The group has taken `plans` plans, the last `in_vain` of which made no progress beyond `known` facts.
    `versions` of nodes and `storage` are those of the last plan; `claim_needs` was derived from that storage. The group
    `goes_first` if only preemption or a reservation for it took more work than was left. For a tree, `parts` has the
    decisions about its parts, by name, and `refuted` the numbers of refuted choices of children, by composite.
    """

    group: str
    generation: int
    plans: int = 1
    in_vain: int = 0
    known: int = 0
    goes_first: bool = False
    scope: str = ""
    passed: frozenset[str] = frozenset()
    parts: Mapping[str, Any] = field(default_factory=dict)
    refuted: Mapping[str, int] = field(default_factory=dict)
    choices: int = 0
    placed: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, Refusal] = field(default_factory=dict)
    rooms: Mapping[tuple[str, Shape], int] = field(default_factory=dict)
    shortages: Mapping[Shape, Any] = field(default_factory=dict)
    searched: bool = False
    versions: Ints | None = field(default=None, compare=False)
    storage: Storage | None = field(default=None, compare=False)
    claim_needs: Mapping[tuple[str, object], Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Plan:
    """Verdicts in the order in which they were reached; `left` are groups that were not decided because the plan was
    full.

    `reservations` are the current ones, None if disabled. The next plan must also decide the groups in `again`: a group
    with holds made progress in this plan, and deadlocks are looked for only when none does (D1). `begun` are the groups
    in `left` that the plan began to decide; `unfinished` is what the next plan needs to continue one. `work` is the
    work done in units (`core.work`).
    """

    verdicts: tuple[Verdict, ...]
    left: tuple[str, ...] = ()
    pods_tried: int = 0
    reservations: Reservations | None = None
    again: frozenset[str] = frozenset()
    begun: frozenset[str] = frozenset()
    unfinished: Unfinished | None = None
    work: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PlanInput:
    """Input of a plan from the state; the administrator's settings are passed separately.

    `looked_at` are the ids of the groups already decided in the current pass over the queue; a pass takes several plans
    if limits cut them short. `unfinished` is from the last plan.
    """

    snapshot: Snapshot
    queue: tuple[Group, ...]
    reserving: Reserving | None = None
    preempting: PreemptionInput | None = None
    looked_at: Set[str] = frozenset()
    unfinished: Unfinished | None = None
