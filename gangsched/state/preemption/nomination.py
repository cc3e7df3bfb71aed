"""One nomination: a preemption that is being carried out (semantics V10-V14).

Invariant: a nomination occupies no room itself: its members stay pending, and their nodes are
promises in the snapshot. A record only stores; `nominations` changes it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from gangsched.model.gang import Placement, Refusal, is_to_come
from gangsched.model.nominated_room import Nomination
from gangsched.model.objects import Pod
from gangsched.model.preemption import Preemption, UnitKind, Victim
from gangsched.model.protocol import EvictionResult, NominatedMember, PodRef
from gangsched.model.reasons import Reason
from gangsched.model.resources import ResourceVector
from gangsched.model.verdict_facts import Evicting


class Stage(StrEnum):
    """Progress of the writes (semantics V13)."""

    PREPARING = "preparing"  # members are being nominated, and victims marked
    PREPARED = "prepared"  # that is written; the last look comes when the group is refused again
    EVICTING = "evicting"  # evictions are ordered, if any are needed; what is left is to wait


class Fate(StrEnum):
    """Outcome of a victim."""

    MARKED = "marked"  # or being marked
    ORDERED = "ordered"  # its eviction is sent, or about to be
    WITHDRAWN = "withdrawn"  # it was ordered and, as nobody needed it any more, not sent
    EVICTED = "evicted"  # the API server accepted the eviction
    GONE = "gone"  # it went without us


FATES = {
    EvictionResult.DONE: Fate.EVICTED,
    EvictionResult.GONE: Fate.GONE,
    EvictionResult.WITHDRAWN: Fate.WITHDRAWN,
}
"""By the answer to an eviction; after any other answer the victim stays."""


class Result(StrEnum):
    """Outcome of a nomination."""

    STARTED = "started"
    LOST = "lost"
    EXPIRED = "expired"


@dataclass(slots=True)
class Nominee:
    """A member and the node reserved for it; `gang` is its gang's id.

    `vacant_s` is the monotonic second at which its pod was deleted, None while it exists.
    """

    pod: Pod
    node: str
    gang: str
    vacant_s: float | None = None

    @property
    def placement(self) -> Placement:
        """The member on its node."""
        return Placement(self.pod, self.node)


@dataclass(slots=True, kw_only=True, eq=False)
class NominationRecord:
    """The nomination of one group. Times are monotonic seconds."""

    id: str
    group: str
    #: The group's, which all of its promises have: each restricts whoever comes after the group.
    priority: int
    #: Grows with each nomination of the process, so that the older one is known where two want the
    #: same node.
    serial: int
    decision: Preemption
    #: By the uid of the member, and of the victim.
    nominees: dict[str, Nominee]
    victims: dict[str, Victim]
    began_s: float
    deadline_s: float
    stage: Stage = Stage.PREPARING
    fates: dict[str, Fate] = field(default_factory=dict)
    #: Pods that were terminating anyway when it was decided (V4), or are victims of other
    #: nominations.
    awaited: frozenset[str] = frozenset()
    #: Orders to nominate that are not answered; no eviction is sent before all are.
    unwritten: int = 0
    #: Victims that go with their whole gang and whose evictions are not answered yet.
    unanswered: set[str] = field(default_factory=set)
    #: Victims whose evictions were withdrawn, so that they are not searched for at each answer.
    withdrawn: set[str] = field(default_factory=set)
    #: Units that are evicted as a whole and of which a pod has been evicted.
    begun: set[tuple[UnitKind, str]] = field(default_factory=set)
    #: Why it cannot succeed, "" while it can. It then ends when the group is refused again, which
    #: may fit elsewhere.
    lost: str = ""
    expired: bool = False
    #: Victims that another nomination left to it, which are still to be marked.
    inherited: list[Victim] = field(default_factory=list)
    #: Its status message, None until the first check.
    told: Refusal | None = None
    #: Members that waited for room at the last check.
    waiting: frozenset[str] = frozenset()
    #: When the last victim counts as stuck, as of `counted_s`: of thousands this is counted once a
    #: second.
    ends_s: float = inf
    counted_s: float = -inf
    #: What is promised (`Promised`): nodes that it depends on, uids whose room is promised, and
    #: nominees by node.
    nodes: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    nominees_on: dict[str, list[Nominee]] = field(default_factory=dict)

    @property
    def lowest_priority(self) -> int:
        """The lowest priority of its members, at which the largest number of other nominations
        restricts it.
        """
        return min((nominee.pod.priority for nominee in self.nominees.values()), default=0)

    def promise(self, nominee: Nominee, freed: ResourceVector = ()) -> Nomination:
        """The promised room for snapshots; leaving pods still use `freed` of it."""
        return Nomination.of_room(
            nominee.node,
            nominee.pod,
            self.group,
            freed,
            priority=self.priority,
        )

    @property
    def looks_around(self) -> bool:
        """Whether changes on nodes other than the nominated ones may affect the nomination."""
        return any(
            nominee.pod.claims or nominee.pod.shape.inter_pod is not None
            for nominee in self.nominees.values()
        )

    @property
    def placements(self) -> list[Placement]:
        """Existing members with their nodes."""
        return [nominee.placement for nominee in self.nominees.values() if nominee.vacant_s is None]

    @property
    def members(self) -> tuple[NominatedMember, ...]:
        """Existing members, for the writer."""
        return tuple(
            nominated(placement)
            for placement in self.placements
            if not is_to_come(placement.pod.uid)
        )

    @property
    def marked_first(self) -> Collection[Victim]:
        """The victims that must be marked before any victim is evicted, so that a restart can
        restore the nomination (V13, V24).

        Single pods need no mark: if only some of them are evicted, no gang is below its minimum,
        and the next process chooses the remaining ones again, since the fewest evictions are
        missing there. This saves a write and a watch event per victim when the API server is the
        bottleneck. Only marked pods may be deleted.
        """
        singly = all(victim.kind is UnitKind.POD for victim in self.victims.values())
        if singly and not self.breaks_budgets:
            return ()

        return self.victims.values()

    @property
    def breaks_budgets(self) -> bool:
        """Whether its victims are deleted, since a PodDisruptionBudget would prevent their
        evictions (V7).
        """
        return self.decision.harm is not None and self.decision.harm.budgets_broken > 0

    @property
    def holds(self) -> Refusal | None:
        """Why its group may not start, nor the nomination end, yet: that would cancel evictions of
        a gang of which other members may have been evicted (V11, V12).
        """
        if self.unanswered or self.resumable:
            return Refusal(Reason.PREEMPTING, Evicting())

        return None

    @property
    def resumable(self) -> list[str]:
        """Victims whose evictions were withdrawn before one of the same unit proved to have been
        carried out, so that they must go as well.
        """
        if not self.withdrawn:
            return []

        return [uid for uid in self.of(Fate.WITHDRAWN) if self.victims[uid].unit in self.begun]

    def may_go(self, uid: str) -> bool:
        """Whether the victim is being evicted, or may be, because of others of its unit; if the
        nomination is lost, too.
        """
        victim = self.victims[uid]
        if not victim.is_of_whole or self.fates[uid] is Fate.MARKED:
            return False

        return victim.unit in self.begun

    def of(self, fate: Fate) -> list[str]:
        """Uids of the victims with this outcome."""
        return [uid for uid, found in self.fates.items() if found is fate]

    def order(self, uids: Iterable[str]) -> None:
        """Record that the evictions of these victims are ordered."""
        ordered = list(uids)
        self.fates.update(dict.fromkeys(ordered, Fate.ORDERED))
        self.withdrawn.difference_update(ordered)
        # It may have inherited these while earlier ones are not answered.
        self.unanswered.update(uid for uid in ordered if self.victims[uid].is_of_whole)

    def settle(self, uid: str, result: EvictionResult) -> None:
        """Record the result of an ordered eviction."""
        self.fates[uid] = fate = FATES.get(result, Fate.MARKED)
        self.unanswered.discard(uid)
        victim = self.victims[uid]
        if fate is Fate.WITHDRAWN:
            self.withdrawn.add(uid)
        elif fate is Fate.EVICTED and victim.is_of_whole:
            self.begun.add(victim.unit)

    def remove(self, uid: str) -> Victim:
        """Drop a victim that stays, or that another nomination evicts."""
        del self.fates[uid]
        self.unanswered.discard(uid)
        self.withdrawn.discard(uid)
        return self.victims.pop(uid)


def nominated(placement: Placement) -> NominatedMember:
    """A member and its node, as input of the writer."""
    pod = placement.pod
    return NominatedMember(pod.uid, pod.namespace, pod.name, placement.node)


def references(victims: Iterable[Victim]) -> tuple[PodRef, ...]:
    """The pods of victims, as writes name them."""
    return tuple(PodRef(victim.uid, victim.namespace, victim.name) for victim in victims)


def new_record(
    record_id: str,
    group: str,
    priority: int,
    serial: int,
    decision: Preemption,
    named: Iterable[Nominee],
    known_victims: Set[str],
    *,
    began_s: float,
    deadline_s: float,
) -> NominationRecord:
    """The record of a nomination that begins; it only waits for the victims of others."""
    victims = {}
    awaited = set(decision.awaited)
    for victim in decision.victims:
        if victim.uid in known_victims:
            awaited.add(victim.uid)
        else:
            victims[victim.uid] = victim

    return NominationRecord(
        id=record_id,
        group=group,
        priority=priority,
        serial=serial,
        decision=decision,
        nominees={nominee.pod.uid: nominee for nominee in named},
        victims=victims,
        fates=dict.fromkeys(victims, Fate.MARKED),
        awaited=frozenset(awaited),
        began_s=began_s,
        deadline_s=deadline_s,
        unwritten=1,
    )
