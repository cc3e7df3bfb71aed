"""What `core.cycle.plan` answers: for every group looked at, one Verdict.

Invariant: a Plan is a proposal. Nothing of it has happened until the state commits it, and the state may refuse any
verdict whose group or nodes have changed since the snapshot (semantics B2).
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
    """How a round closed (semantics R1)."""

    PERMITTED = "permitted"
    REFUSED = "refused"
    HOLDING = "holding"


@dataclass(frozen=True, slots=True)
class Round:
    """One pass over a group's pending members; it opens and closes within one plan (semantics R1, R4)."""

    number: int
    present: int
    attempted: int
    placed: int
    outcome: RoundOutcome


@dataclass(frozen=True, slots=True)
class Need:
    """Room that must exist before a refused group is worth another look: `count` pods of `shape` (semantics Q3)."""

    shape: Shape
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The decision about one group.

    `binds` are committed together (B1), earlier holds among them included; `holds` are new reservations (R3),
    `releases` uids of holds given back. `told` is what people are told of the group, `gangs` by gang id and `notes` by
    pod uid where that differs. `needs` are what must have room before trying again, on nodes the named shapes may use;
    empty means that room cannot help. `expired` is true when the wait time ran out just now (T2); `yields_to` names the
    group that profits from the releases (D1). `sent` is how many binds the state has sent for it. `preemption` is a
    decision to make room for the group, or why none was made where it was looked for (V1, V21). `how` says why it could
    pass reservations, None where none bound it (H8); `kept_for` that it would fit but for them (H14).
    """

    group: str
    generation: int
    told: Refusal
    round: Round | None = None
    binds: tuple[Placement, ...] = ()
    holds: tuple[Placement, ...] = ()
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
        """What is remembered of it once it is committed: no copies of the pods that were placed."""
        return replace(self, binds=(), holds=(), releases=(), sent=len(self.binds))

    @property
    def reason(self) -> Reason:
        """The reason told of the group."""
        return self.told.reason

    def tells_the_same(self, other: Verdict) -> bool:
        """Whether people are told the same; that it took another round to say so is no news."""
        kept, others = self.kept_for, other.kept_for
        alike = kept is others or (kept is not None and others is not None and kept.tells_the_same(others))
        return alike and (self.told, self.gangs, self.notes) == (other.told, other.gangs, other.notes)

    def of_gang(self, gang: str) -> Refusal:
        """What is told of one gang of the group."""
        return dict(self.gangs).get(gang, self.told)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """How far plans have come with a group that takes more work than one plan may do; nothing of it is reserved.

    `placed` has the nodes of members and `failed` why others found none, by pod uid, in the scope of that name, after
    those that were `passed`; exact searches looked at so many `choices`.
    `rooms`, by gang id, and `shortages` are sums by shape. With `searched`, other orders of placing were tried in that
    scope. It took so many `plans`, the last `in_vain` of which came no further than `known`, which counts the facts.
    `versions` of nodes and `storage` are those of the last plan.
    """

    group: str
    generation: int
    plans: int = 1
    in_vain: int = 0
    known: int = 0
    scope: str = ""
    passed: frozenset[str] = frozenset()
    choices: int = 0
    placed: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, Refusal] = field(default_factory=dict)
    rooms: Mapping[tuple[str, Shape], int] = field(default_factory=dict)
    shortages: Mapping[Shape, Any] = field(default_factory=dict)
    searched: bool = False
    versions: Ints | None = field(default=None, compare=False)
    storage: Storage | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Plan:
    """Verdicts in the order they were reached. `left` are groups not decided because the plan was full.

    `reservations` are those that stand now; None where they are off. The groups in `again` are to be looked at in the
    next plan too: a holder progressed in this one, and only where none does it is seen whether others yield (D1).
    `begun` are those of `left` that the plan began with; `unfinished` is what the next plan needs to go on with one.
    `work` are the units that the plan did (`core.work`).
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
    """What a plan is made from, as the state has it; what the administrator set comes beside it.

    `looked_at` are the ids of groups in the plans since one did not look at all that were ready. `unfinished` is from
    the last plan.
    """

    snapshot: Snapshot
    queue: tuple[Group, ...]
    reserving: Reserving | None = None
    preempting: PreemptionInput | None = None
    looked_at: Set[str] = frozenset()
    unfinished: Unfinished | None = None
