"""All members, their stamps, and the indexes derived from them: room, claims in use, members per
gang.

Invariant: a member is created in `admit` and changes its state or node only in `_become`; these
keep the columns of `Cluster` and the users of claims consistent with the members. `validate`
recounts them. A pod without a gang is a member while it takes room or names claims.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, KeysView, Set

from gangsched.model.nominated_room import Nomination
from gangsched.model.objects import Phase, Pod
from gangsched.model.storage import Selection
from gangsched.state.cluster import Cluster
from gangsched.state.gangs import GangRecord
from gangsched.state.groups import Registry
from gangsched.state.members import (
    KEEPS_STAMP,
    SEEN,
    TAKES_ROOM,
    Change,
    Member,
    State,
    next_state,
    seen,
)

GUARD_TAKES_S = 10
"""An API server may admit pods by its old policies for a moment after a new one was created."""
ORDERED = frozenset({State.BINDING, State.WITHDRAWN})
"""The states in which the stamp is what our own bind carries, and the pod has none yet."""


class Stamps:
    """Reads and proves stamps; `guarded_since_s` is the wall second since which an admission policy
    protects them.

    A stamp that the pod's owner may have written is never proven. A stamp that this process wrote
    takes precedence over the one on the pod, and a pod that is not bound has none. An unproven
    stamp still means that its gang has started, which affects only this gang, but gives it no
    precedence over others (semantics B4).
    """

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self.guarded_since_s: int | None = None

    def guard(self, pod: Pod) -> bool:
        """Whether the policy existed before the pod, so that its owner cannot have written the
        stamp.
        """
        since_s = self.guarded_since_s
        return (
            pod.permitted is not None
            and since_s is not None
            and pod.creation_s > since_s + GUARD_TAKES_S
        )

    def keep(self, member: Member, state: State, old: Pod) -> None:
        """Update the stamp of a member that changes its state; `old` is the previous version of its
        pod.
        """
        pod = member.pod
        # A failed bind carried a stamp that never reached the pod.
        if state not in KEEPS_STAMP:
            member.permit = None
            member.is_proven = False
        # Read once, when the pod is first seen bound: what its owner writes there later is not read
        # any more.
        elif member.permit is None and state not in ORDERED:
            member.permit = pod.permitted
            member.is_proven = self.guard(pod) or self._is_of_a_binding(old, pod)

    def _is_of_a_binding(self, old: Pod, new: Pod) -> bool:
        """Whether the stamp came with the node, in a Binding, which owners of pods may
        not write.
        """
        # The stamp came with the same write as the node. Only a Binding does both, and owners may
        # not create one.
        is_new = old.uid == new.uid and not old.node_name and old.permitted is None
        return (
            is_new
            and old.scheduler_name in self._names
            and bool(new.node_name)
            and new.permitted is not None
        )


UNSEEN = frozenset({Change.CLAIMS_WRITTEN, Change.ANSWERED_BOUND})
"""Changes that mean nothing for the gang: a member counts as bound from Permit on."""
OF_ITS_GANG = frozenset({State.HELD, State.KEPT, State.RETRY})
"""The states that a member has only through its gang."""
KEEPS_SELECTIONS = frozenset(
    {
        State.HELD,
        State.KEPT,
        State.WAITING_FOR_CLAIMS,
        State.BINDING,
    }
)
KEEPS_TIME = frozenset({State.KEPT, State.RETRY, State.WAITING_FOR_CLAIMS, State.BINDING})
RELEASABLE = frozenset({State.HELD, State.KEPT})
WAITS = frozenset({State.PENDING, State.RETRY})
"""The states of members that wait for a node."""


class MemberStore:
    """Every member by its pod's uid. It also updates `cluster` and the gangs of `registry`."""

    def __init__(self, cluster: Cluster, registry: Registry, *, names: frozenset[str]) -> None:
        self._members: dict[str, Member] = {}
        # Bound once: each message and each bind looks up a member, and a method would only hand the
        # call on.
        self.get = self._members.get
        self._cluster = cluster
        self._registry = registry
        self._names = names
        self.stamps = Stamps(names)
        self._changed: set[str] | None = None  # not requested yet
        self._when_gone: list[Callable[[str], None]] = []
        self._ended_waits: list[str] = []
        self._priorities: Counter[int] = Counter()  # of pods that take room
        self._waiting: Counter[int] = Counter()  # of pods that wait for a node

    def __getitem__(self, uid: str) -> Member:
        return self._members[uid]

    def uids(self) -> KeysView[str]:
        """Uids of all members."""
        return self._members.keys()

    def all(self) -> Iterable[Member]:
        """All members."""
        return self._members.values()

    def of_namespaces(self, namespaces: Set[str]) -> list[Member]:
        """Members in these namespaces."""
        if not namespaces:
            return []

        return [member for member in self._members.values() if member.pod.namespace in namespaces]

    def node_of(self, uid: str) -> str:
        """Node on which a pod uses room; "" if it uses none."""
        member = self._members.get(uid)
        return member.node if member is not None else ""

    @property
    def lowest_priority(self) -> int | None:
        """Lowest priority of any pod that uses room; None if there is none."""
        return min(self._priorities, default=None)

    @property
    def lowest_waiting(self) -> int | None:
        """Lowest priority of any pod that waits for a node; None if none waits."""
        return min(self._waiting, default=None)

    @property
    def highest_waiting(self) -> int | None:
        """Highest priority of any pod that waits for a node; None if none waits."""
        return max(self._waiting, default=None)

    def take_changed(self) -> set[str] | None:
        """Uids of members that changed since the last call; None at the first call, when any member
        may have changed.

        Deleted members are reported through `when_gone` at once, so that no reference to them is
        kept.
        """
        changed = self._changed
        self._changed = set()
        return changed

    def take_ended_waits(self) -> list[str]:
        """Uids of members whose wait for claims has ended since the last call."""
        ended = self._ended_waits
        self._ended_waits = []
        return ended

    def when_gone(self, tell: Callable[[str], None]) -> None:
        """Register `tell`, which is called with the uid of each member when it is deleted."""
        self._when_gone.append(tell)

    # --- what the watch shows --------------------------------------------------------------------

    def admit(self, pod: Pod, gang: GangRecord | None) -> None:
        """Add a new pod."""
        if gang is None and not _is_worth_knowing(pod):
            return

        # Of a new pod nothing was decided, so it is whatever the API server shows, also after a
        # restart.
        state = SEEN[seen(pod, self._names)]
        self._members[pod.uid] = member = Member(pod, state)

        # Also of a pod that has ended: it tells which start it was part of (I6).
        if state in KEEPS_STAMP:
            member.permit = pod.permitted
            # Nobody saw this stamp come with the node: only the admission policy can tell that it
            # is not the owner's.
            member.is_proven = self.stamps.guard(pod)

        if state in TAKES_ROOM:
            member.node = pod.node_name
            self._cluster.occupy(pod, pod.node_name)
            _count(self._priorities, pod.priority, +1)
        elif state in WAITS:
            _count(self._waiting, pod.priority, +1)

        # While it is None, whoever asks first reads all members anyway.
        if self._changed is not None:
            self._changed.add(pod.uid)

        if gang is not None:
            self._enter(member, gang)

        # With its gang, which is looked at again when one of its claims changes.
        if pod.claims:
            self._cluster.storage_cache.keep(member, pod, known=True)

        if pod.nominated_node:
            self._cluster.nominate(pod.uid, _nomination(member))

    def see(self, member: Member, pod: Pod, gang: GangRecord | None) -> None:
        """Apply a new version of a known pod, which may name another gang."""
        if member.gang != (gang.id if gang is not None else ""):
            self._leave(member)
            if gang is not None:
                self._enter(member, gang)

        # It was placed for what it asked for then; tolerations, for one, may be added at any time.
        if member.state in RELEASABLE and member.pod.shape is not pod.shape:
            self.change(member, Change.RELEASE)

        # The watch shows the annotation, so that the pod speaks for itself from now on.
        if pod.timed_out:
            member.marking = False

        self._become(member, next_state(member, seen(pod, self._names)), pod)
        # An older version may be shown again, without the node: the room is taken until the pod
        # ends or goes.
        if not member.gang and not member.node and not _is_worth_knowing(pod):
            del self._members[pod.uid]
            self._tell_gone(pod.uid)

    def renew(self, member: Member, pod: Pod) -> None:
        """Replace a pod by a version without relevant differences."""
        member.pod = pod
        if member.node:
            self._cluster.renew(pod, member.node)
            if self._changed is not None:
                self._changed.add(pod.uid)

    def guard_stamps(self, since_s: int | None) -> None:
        """Record since when an admission policy guards stamps, None if no policy does (B4).

        Proven stamps stay proven: a stamp is read once, when its pod is first seen bound.
        """
        self.stamps.guarded_since_s = since_s
        is_first = self._registry.trusts_stamps

        self._registry.trusts_stamps = False
        for member in self._members.values():
            # Until now every stamp's room was kept. Now a forged one must stop to keep room, at
            # once.
            if is_first and member.permit is not None and member.permit.room is not None:
                self._registry.touch(member.gang)

            # A stamp that differs from the pod's is our own and proven already, or void.
            if (
                not member.is_proven
                and member.permit == member.pod.permitted
                and self.stamps.guard(member.pod)
            ):
                member.is_proven = True
                self._registry.touch(member.gang)

    def drop(self, uid: str) -> Member | None:
        """Remove a deleted pod; return its member, if it had one."""
        member = self._members.get(uid)
        if member is not None:
            self._leave(member)
            # not before, or `expel` would not find its gang if leaving it raises (I8)
            del self._members[uid]
            self._become(member, State.ENDED, None)
            self._tell_gone(uid)

        return member

    def expel(self, uids: Iterable[str], *nodes: str) -> None:
        """Remove members whose change failed halfway, and rebuild every index without them (I8,
        I10).

        `nodes` are the nodes on which the change may have put them.
        """
        uids = frozenset(uids)
        where = set(nodes)

        for uid in uids:
            member = self._members.pop(uid, None)
            if member is None:
                continue

            where.add(member.node)
            gang = self._registry.gangs.get(member.gang)
            if gang is not None:
                gang.members.pop(uid, None)
                self._registry.touch(gang.id)

        self._cluster.expel(uids, where - {""})
        # How far the change came is unknown, so nothing can be counted back; all is counted again.
        self._priorities = Counter(
            member.pod.priority for member in self._members.values() if member.node
        )
        self._waiting = Counter(
            member.pod.priority for member in self._members.values() if member.state in WAITS
        )

        for uid in uids:
            self._tell_gone(uid)

    def restart(self, members: Iterable[Member], *nodes: str) -> None:
        """Begin again with these members as after a restart, knowing only what the API server shows
        (I10).

        `nodes` are as for `expel`. No bind of theirs may be under way.
        """
        again = list(members)
        self.expel([member.pod.uid for member in again], *nodes)

        for member in again:
            self.admit(member.pod, self._registry.gangs.get(member.gang))

    # --- what we decide, and how our orders end --------------------------------------------------

    def change(
        self,
        member: Member,
        change: Change,
        *,
        node: str = "",
        selections: tuple[Selection, ...] = (),
    ) -> None:
        """Apply a change to a member; `node` and `selections` are its node and volumes."""
        self._become(member, next_state(member, change), member.pod, node, selections)
        if change not in UNSEEN:
            self._registry.touch(member.gang)

    def release(self, members: Iterable[Member]) -> None:
        """Release the room of held members, or keep it for a retry."""
        # A list first: a release changes the members of which the caller may be iterating a view.
        for member in [member for member in members if member.state in RELEASABLE]:
            self.change(member, Change.RELEASE)

    def _enter(self, member: Member, gang: GangRecord) -> None:
        member.gang = gang.id
        gang.members[member.pod.uid] = member
        if member.node:
            self._registry.must_read(gang.id)

    def _tell_gone(self, uid: str) -> None:
        """There is no such member any more."""
        if self._changed is not None:
            self._changed.discard(uid)

        for tell in self._when_gone:
            tell(uid)

    def _leave(self, member: Member) -> None:
        """The member is no longer of its gang, and what it had only as a member of it is void."""
        # Before the record loses it: the change marks the gang it leaves, whose holds are fewer
        # now.
        if member.state in OF_ITS_GANG:
            self.change(member, Change.LEAVE_GANG)

        gang = self._registry.gangs.get(member.gang)
        member.gang = ""
        member.fault = ""
        member.marking = False

        if gang is None:
            return

        # Before it is no member any more: nothing else knows how a pod that is gone ended.
        gang.start.left(member)
        gang.roster.lose(member, gang.members.values())
        del gang.members[member.pod.uid]
        self._registry.touch(gang.id)

    def _become(
        self,
        member: Member,
        state: State,
        pod: Pod | None,
        node: str = "",
        selections: tuple[Selection, ...] = (),
    ) -> None:
        """Change a member, here only. `pod` is its newest version, None if it is deleted."""
        old_pod = member.pod
        old_node = member.node

        if state is State.TERMINATING or state is State.ENDED:
            self._note_loss(member, pod)
        if member.state in WAITS:
            _count(self._waiting, old_pod.priority, -1)

        # The watch first: it has the last word on where a pod runs, whatever we ordered.
        member.node = (
            (pod.node_name or node or old_node) if pod is not None and state in TAKES_ROOM else ""
        )
        member.state = state
        member.pod = pod = pod or old_pod

        if state in WAITS:
            _count(self._waiting, pod.priority, +1)

        self.stamps.keep(member, state, old_pod)
        if state not in KEEPS_TIME:
            member.keeps_until_s = 0.0

        if self._changed is not None:
            self._changed.add(pod.uid)

        if old_node or member.node:
            self._cluster.move(old_pod, old_node, pod, member.node)
            before = old_pod.priority if old_node else None
            after = pod.priority if member.node else None
            _recount(self._priorities, before, after)
            if member.node:
                self._registry.must_read(member.gang)

        if member.wait is not None and state is not State.WAITING_FOR_CLAIMS:
            member.wait = None
            self._ended_waits.append(pod.uid)

        if old_pod.claims or pod.claims:
            # A retry goes to the same node with the same volumes: those of the first try may be
            # reserved already.
            member.selections = (
                (selections or member.selections) if state in KEEPS_SELECTIONS else ()
            )
            self._cluster.storage_cache.keep(member, old_pod, known=pod.uid in self._members)

        if old_pod.nominated_node or pod.nominated_node:
            self._cluster.nominate(pod.uid, _nomination(member))

    def _note_loss(self, member: Member, pod: Pod | None) -> None:
        """A bound member is about to be lost, unless its newest version says that it succeeded."""
        gang = self._registry.gangs.get(member.gang)
        if gang is None or (pod is not None and pod.phase is Phase.SUCCEEDED):
            return

        gang.roster.lose(member, gang.members.values())


def _count(of: Counter[int], priority: int, sign: int) -> None:
    """Count a pod, or forget it; a priority without pods is none of the keys."""
    of[priority] += sign
    if not of[priority]:
        del of[priority]


def _recount(of: Counter[int], before: int | None, after: int | None) -> None:
    """Count a pod whose priority, or whether it is counted at all, has changed; None for a pod that
    is not counted.
    """
    # Most changes of a pod on a node leave both as they were.
    if before == after:
        return

    if before is not None:
        _count(of, before, -1)
    if after is not None:
        _count(of, after, +1)


def _nomination(member: Member) -> Nomination | None:
    """The room that another scheduler promised its pod, while the pod waits for it
    (semantics F1).
    """
    pod = member.pod
    if member.state is not State.FOREIGN or not pod.nominated_node:
        return None

    return Nomination.of_room(pod.nominated_node, pod)


def _is_worth_knowing(pod: Pod) -> bool:
    """Whether a pod of no gang takes room or uses claims, or was promised room."""
    return pod.live and bool(pod.node_name or pod.claims or pod.nominated_node)
