"""Result of `core.cycle.plan`: one Verdict for every decided group.

Invariant: a Plan is a proposal. Nothing happens until the state commits it, and the state may
refuse any verdict whose group or nodes have changed since the snapshot (semantics B2).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import structs

from gangsched.model.capacity_facts import NotAsking
from gangsched.model.gang import Group, Placement, Refusal, namespace_of
from gangsched.model.objects import Pod, Shape
from gangsched.model.preemption import NotHelpful, Preemption, PreemptionInput
from gangsched.model.provisioning import NodeFence
from gangsched.model.reasons import Reason
from gangsched.model.reservation import How, KeptFor, Reservations, Reserving
from gangsched.model.snapshot import Ints, Snapshot
from gangsched.model.storage import Storage


class RoundOutcome(StrEnum):
    """Result of a round (semantics R1)."""

    PERMITTED = "permitted"
    REFUSED = "refused"
    HOLDING = "holding"


class Round(msgspec.Struct, frozen=True, gc=False):
    """One pass over a group's pending members, within one plan (semantics R1, R4)."""

    number: int
    present: int
    attempted: int
    placed: int
    outcome: RoundOutcome


class Need(msgspec.Struct, frozen=True, gc=False):
    """Room that must become free before a refused group is tried again: for `count` pods of `shape`
    (semantics Q3).

    If `within` has node labels, all of that room must be in one domain of them, and all needs with
    the same labels must be met in the same domain.
    """

    shape: Shape
    count: int
    within: tuple[str, ...] = ()


class Verdict(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The decision about one group."""

    group: str
    generation: int
    #: The message for the group; `gangs` (by gang id) and `notes` (by pod uid) are different
    #: messages for some of them.
    told: Refusal
    round: Round | None = None
    #: Committed together (B1), including earlier holds.
    binds: tuple[Placement, ...] = ()
    #: New holds (R3); `releases` are the uids of released ones.
    holds: tuple[Placement, ...] = ()
    rooms: tuple[Placement, ...] = ()
    releases: tuple[str, ...] = ()
    notes: tuple[tuple[str, Refusal], ...] = ()
    #: Room required before the group is tried again; empty if room cannot help.
    needs: tuple[Need, ...] = ()
    gangs: tuple[tuple[str, Refusal], ...] = ()
    #: The wait time has just expired (T2).
    expired: bool = False
    #: The group that can use the released room (D1).
    yields_to: str = ""
    #: Number of binds sent for the group.
    sent: int = 0
    #: A decision to preempt, or why there is none (V1, V21).
    preemption: Preemption | NotHelpful | None = None
    #: Why reservations allowed the placement, None if no reservation restricted it (H8).
    how: How | None = None
    #: Set if the group would fit without reservations (H14).
    kept_for: KeptFor | None = None

    def carried_out(self) -> Verdict:
        """The verdict as stored after its commit, without copies of the placed pods."""
        # Verdicts of thousands of waiting groups are kept until the next one: pods in them would
        # outlive their deletion.
        return structs.replace(
            self, binds=(), holds=(), rooms=(), releases=(), sent=len(self.binds)
        )

    @property
    def moves(self) -> bool:
        """Whether the verdict reserves or releases room of members."""
        return bool(self.binds or self.holds or self.releases)

    @property
    def reason(self) -> Reason:
        """The reason that is reported for the group."""
        return self.told.reason

    def tells_the_same(self, other: Verdict) -> bool:
        """Whether both verdicts lead to the same reports; the number of rounds does not matter."""
        kept = self.kept_for
        others = other.kept_for
        alike = kept is others or (
            kept is not None and others is not None and kept.tells_the_same(others)
        )

        # `needs` and `preemption` are for the queue; what users read of them is in these texts
        # already.
        return alike and (self.told, self.gangs, self.notes) == (
            other.told,
            other.gangs,
            other.notes,
        )

    def while_not_asking(self, wait: NotAsking) -> Verdict:
        """The verdict as users read it while its group does not ask for nodes (semantics E9)."""
        told = wait.instead_of(self.told)
        gangs = tuple((gang, wait.instead_of(refusal)) for gang, refusal in self.gangs)
        notes = tuple((uid, wait.instead_of(refusal)) for uid, refusal in self.notes)

        return structs.replace(self, told=told, gangs=gangs, notes=notes)

    def of_gang(self, gang: str) -> Refusal:
        """The message for one gang of the group: its own, or that of a sibling as a sibling's."""
        refusal = dict(self.gangs).get(gang, self.told)
        return refusal.of_gang(gang).told_in(namespace_of(gang))


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """Progress with a group that needs more work than one plan may do; no room is reserved
    for it.
    """

    group: str
    generation: int
    #: Number of plans so far; the last `in_vain` of them made no progress beyond `known` facts.
    plans: int = 1
    in_vain: int = 0
    known: int = 0
    #: Only preemption or a reservation for it took more work than was left.
    goes_first: bool = False
    #: Name of the scope, after those in `passed`, that `placed`, `failed` and `choices` belong to.
    scope: str = ""
    passed: frozenset[str] = frozenset()
    #: For a tree: the decisions about its parts by name; `refuted` are the numbers of refuted
    #: choices of children, by composite.
    parts: Mapping[str, Any] = field(default_factory=dict)
    refuted: Mapping[str, int] = field(default_factory=dict)
    #: Choices that exact searches made.
    choices: int = 0
    #: Nodes chosen for members, by pod uid.
    placed: Mapping[str, str] = field(default_factory=dict)
    #: Reasons of members without a node, by pod uid.
    failed: Mapping[str, Refusal] = field(default_factory=dict)
    #: Room by gang id and shape, from totals; `shortages` by shape.
    rooms: Mapping[tuple[str, Shape], int] = field(default_factory=dict)
    shortages: Mapping[Shape, Any] = field(default_factory=dict)
    #: Other orders of placing were tried in that scope.
    searched: bool = False
    #: Versions of the nodes in the last plan, as `storage`, from which `claim_needs` was derived.
    versions: Ints | None = field(default=None, compare=False)
    storage: Storage | None = field(default=None, compare=False)
    claim_needs: Mapping[tuple[str, object], Any] = field(default_factory=dict, compare=False)


@dataclass(slots=True)
class Plan:
    """Verdicts, in the order in which they were made. Only `PlanExtension.finish` changes it."""

    verdicts: tuple[Verdict, ...]
    #: Groups that were not decided because the plan was full.
    left: tuple[str, ...] = ()
    pods_tried: int = 0
    #: The current ones, None if disabled.
    reservations: Reservations | None = None
    #: Groups that the next plan must also decide: a group with holds made progress in this plan,
    #: and deadlocks are looked for only when none does (D1).
    again: frozenset[str] = frozenset()
    #: Groups in `left` that the plan began to decide; `unfinished` is what the next plan needs to
    #: continue one.
    begun: frozenset[str] = frozenset()
    unfinished: Unfinished | None = None
    #: Deciding so many groups left too little work to find out whose holds would help one (D1).
    is_overflowed: bool = False
    #: Work done, in units (`core.work`).
    work: int = field(default=0, compare=False)


class PlanInput(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Input of a plan from the state; the administrator's settings are passed separately.

    `looked_at` are the ids of the groups already decided in the current pass over the queue; a pass
    takes several plans if limits cut them short. `unfinished` is the progress returned by the last
    plan.
    """

    snapshot: Snapshot
    queue: tuple[Group, ...]
    reserving: Reserving | None = None
    preempting: PreemptionInput | None = None
    looked_at: Set[str] = frozenset()
    #: How many groups the plan decides at most, after one that was overflowed.
    most_groups: int = sys.maxsize
    unfinished: Unfinished | None = None
    #: Pods, each with its node, that the plan counts as gone with everything that they use.
    without: Sequence[tuple[Pod, str]] = ()
    #: Nodes that an autoscaler added for one group each (E10).
    fenced: tuple[NodeFence, ...] = ()
