"""Committing: how a verdict changes members, their group and the queue.

Invariant: a verdict is committed as a whole. `still_fits`, and a check of the group's generation in
`SchedulingState.commit`, come before the commit, which refuses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
from msgspec import structs

from gangsched.core.queue_sort import group_key
from gangsched.core.reserve import Ledger
from gangsched.core.stand_ins import fulfill, own_room
from gangsched.model.gang import Gang, Group, Placement
from gangsched.model.objects import JointStart, PermitStamp
from gangsched.model.plan import Need, Verdict
from gangsched.model.protocol import Action, Bind, BindClaims, MarkTimedOut
from gangsched.model.reasons import Reason
from gangsched.model.snapshot import Snapshot
from gangsched.state.bad_nodes import BadNodes
from gangsched.state.claim_binding import ClaimBinding, waits
from gangsched.state.cluster import Cluster
from gangsched.state.gangs import GangRecord
from gangsched.state.group_record import GroupRecord, QueueCause, Rank, Stay
from gangsched.state.groups import Registry
from gangsched.state.holds import Holds
from gangsched.state.member_store import MemberStore
from gangsched.state.members import Change, Member, State
from gangsched.state.queueing.queue import Queue
from gangsched.state.reporting.gang_numbers import GangCounts
from gangsched.state.reporting.reports import Reports
from gangsched.state.room_to_come import RoomToCome

OF_A_FAILED_BIND = frozenset({State.KEPT, State.RETRY})
GIVES_DEVICES_UP = frozenset({Reason.UNSCHEDULABLE, Reason.YIELDED})
WAITING_WITH_ROOM = frozenset({Reason.HOLDING, Reason.UNSCHEDULABLE, Reason.YIELDED})


@dataclass(eq=False)
class Committer:
    """Commits verdicts to parts of the state that it does not own; `rank` returns the key by which
    refused groups wake up.
    """

    members: MemberStore
    cluster: Cluster
    registry: Registry
    queue: Queue
    reports: Reports
    claims: ClaimBinding
    counts: GangCounts
    holds: Holds
    coming: RoomToCome
    bad_nodes: BadNodes
    names: Set[str]
    rank: Callable[[Group], Rank] = group_key

    def still_fits(self, verdict: Verdict, newest: Ledger) -> bool:
        """Check that every placement is still allowed, has room and causes no conflict (B2).

        `newest` is the current state including earlier commits. If all fit, the placements are
        added to `newest`; otherwise `newest` is unchanged.
        """
        placements = (*verdict.binds, *verdict.holds, *verdict.rooms)
        # Its lowest priority, as in the plan: whatever is promised to equals of its lowest pod is
        # kept from all of them.
        newest.respect_nominations(
            min((placement.pod.priority for placement in placements), default=0),
            but=verdict.group,
        )
        checkpoint = newest.checkpoint()

        for placement in placements:
            index = newest.table.index.get(placement.node)
            # A held member is counted where it is already; a node that is gone is found by
            # `fits_still`.
            if index is not None and not self.members.node_of(placement.pod.uid):
                newest.reserve((placement.pod,), np.array([index]), np.array([1]))

        gangs = [*map(self.registry.view, self.registry.groups[verdict.group].gangs)]
        if _fit_still(placements, gangs, newest):
            # Its own promises end with their pods: kept, they would count twice against the
            # verdicts after it.
            placed = {placement.pod.uid: placement.node for placement in placements}
            newest.place_nominated(verdict.group, placed)
            fulfill(gangs, verdict, newest)
            return True

        # The ledger is shared by all verdicts of the plan: those behind this one are checked
        # without it.
        newest.rollback(checkpoint)
        return False

    def commit(
        self,
        group: GroupRecord,
        verdict: Verdict,
        snapshot: Snapshot,
        now_s: float,
    ) -> Iterable[Action]:
        """Apply a verdict; return the actions that carry it out."""
        self.counts.committed(verdict)
        # First, since a member that is placed elsewhere may need the room that a release gives
        # back.
        released = [self.members[uid] for uid in verdict.releases]
        withdrawn = self.claims.give_way(released)
        self.members.release(released)

        for placement in verdict.holds:
            self._place(self.members[placement.pod.uid], placement, Change.HOLD)

        records = [self.registry.gangs[gang] for gang in group.gangs]
        # All stamps before the first bind: a sent bind makes its gang started, and the next stamp
        # another one.
        stamps = {
            record.id: record.stamp() for record in records if verdict.binds and not record.plain
        }

        joint = _joint_start(records, verdict)
        if joint is not None:
            stamps |= {
                record.id: stamps[record.id]._replace(together=joint)
                for record in records
                if record.passed is None
            }

        for gang_id, room in self.coming.promise(verdict, now_s).items():
            stamps[gang_id] = stamps[gang_id]._replace(room=room)

        # `may_send` compares each bind with promised room, and this room goes by a name of its own,
        # not by the group's.
        self.coming.took(verdict, map(self.registry.view, group.gangs))
        # Before the binds: each changes the states that this is derived from.
        together = self._waiting_together(records, verdict)
        actions: list[Action] = [*withdrawn]

        for each in verdict.binds:
            # Nothing else had room for it, or it would have been placed there.
            if each.node in group.avoid:
                actions += self.bad_nodes.opened(group, each.node)

            order = self._bind(each, stamps, now_s, together=together)
            actions += [order] if order is not None else []

        if verdict.expired:
            actions += self._mark_timed_out(group)

        if verdict.round is not None:
            group.rounds += 1

        if verdict.yields_to in self.registry.groups:
            self.holds.yields(group, verdict.yields_to)

        # Who yielded waits for this group to use what it was given; once it holds nothing, there is
        # nothing to wait for.
        if verdict.reason not in WAITING_WITH_ROOM or not any(
            record.of(State.HELD) for record in records
        ):
            self.holds.end_yields({group.id})

        # the next verdict comes before this one has settled
        if verdict.expired or verdict.reason is Reason.YIELDED:
            actions += [
                event for record in records for event in self.reports.announce(record, verdict)
            ]

        # Nothing of it goes on, so that devices left from an earlier start keep others off for
        # nothing; also those that it yields to.
        if verdict.reason in GIVES_DEVICES_UP and not (verdict.binds or verdict.holds):
            actions += self.claims.give_up(
                member for record in records for member in record.members.values()
            )

        self._after(group, verdict, snapshot, now_s)
        return actions

    def _after(
        self,
        group: GroupRecord,
        verdict: Verdict,
        snapshot: Snapshot,
        now_s: float,
    ) -> None:
        """Put the group where it waits now, and note its report."""
        moved = bool(verdict.binds or verdict.holds or verdict.releases)
        is_news = moved or group.verdict is None or not group.verdict.tells_the_same(verdict)

        # What was carried out once must not be carried out again by whoever reads the verdict
        # later.
        group.verdict = verdict.carried_out() if moved else verdict
        group.decided_s = now_s
        for gang in group.gangs:
            for member in self.registry.gangs[gang].members.values():
                # A failed bind was in the message; the verdict replaces it, so the message changes
                # though the verdict may not.
                is_news = is_news or bool(member.fault)
                member.fault = ""

        seen = self.registry.group(group.id, now_s)
        rank = self.rank(seen) if verdict.needs else ()

        if moved:
            for gang in group.gangs:
                self.registry.touch(gang)

        self.registry.changed(group.id)
        self.queue.park(
            group.id,
            _sought(verdict),
            rank=rank,
            snapshot=snapshot,
            stay=_stay(seen),
            # A group that avoids a node was refused for that as well, which says nothing of those
            # behind it.
            kept=verdict.kept_for is not None and not seen.avoid,
        )

        if group.avoid:
            # that node may be the one it needs
            rows = group.avoid.values()
            ends_s = [row.until_s for row in rows]
            self.queue.wake_at(group.id, min(ends_s))

        if verdict.releases and not verdict.yields_to and not verdict.expired:
            # holds were lost: place the members again at once
            self.queue.activate(group.id, QueueCause.HOLDS_CHANGED)

        if is_news:
            self.reports.note(group.id, now_s)

    def _waiting_together(self, records: Iterable[GangRecord], verdict: Verdict) -> frozenset[str]:
        """The gangs of which no bind is sent before all that they need have their claims (semantics
        B7).
        """
        if not verdict.binds:
            return frozenset()

        starting = frozenset(record.id for record in records if record.minimum_binds)
        members = []
        for placement in verdict.binds:
            members.append(self.members[placement.pod.uid])

        selections = (
            each.claims or member.selections
            for each, member in zip(verdict.binds, members, strict=True)
            if member.gang in starting
        )

        is_waiting = any(
            self.registry.gangs[gang].of(State.WAITING_FOR_CLAIMS) for gang in starting
        )
        if is_waiting or any(map(waits, selections)):
            return starting

        return frozenset()

    def _bind(
        self,
        placement: Placement,
        stamps: Mapping[str, PermitStamp],
        now_s: float,
        *,
        together: Set[str],
    ) -> Bind | BindClaims | None:
        """Send a member's bind, or have its claims and those of its start bound first."""
        member = self.members[placement.pod.uid]
        # The gang has started: its other members' claims are no reason to wait (B7).
        is_retry = (
            member.state in OF_A_FAILED_BIND and self.registry.gangs[member.gang].permit is not None
        )
        must_wait = (member.gang in together and not is_retry) or waits(
            placement.claims or member.selections
        )
        self._place(member, placement, Change.SEND_CLAIMS if must_wait else Change.SEND_BIND)

        return self.claims.order(member, stamps.get(member.gang), now_s, is_alone=is_retry)

    def _place(self, member: Member, placement: Placement, change: Change) -> None:
        """Give a member its room, unless it has it already."""
        member.outside = placement.outside
        gang = self.registry.view(member.gang)
        member.heals = gang.satisfied and gang.replaces
        self.members.change(member, change, node=placement.node, selections=placement.claims)

    def _mark_timed_out(self, group: GroupRecord) -> Iterator[MarkTimedOut]:
        """Annotate every live unbound pod of the group (semantics T2)."""
        for gang in group.gangs:
            record = self.registry.gangs[gang]
            self.registry.touch(gang)

            for member in record.members.values():
                pod = member.pod
                ours = pod.scheduler_name in self.names
                if ours and pod.live and not pod.node_name and not pod.timed_out:
                    member.marking = True
                    yield MarkTimedOut(pod.uid, pod.namespace, pod.name)


def _fit_still(
    placements: Iterable[Placement],
    gangs: Iterable[Gang],
    newest: Ledger,
) -> bool:
    """Whether members of these gangs may stay where they are placed, also in the room that is
    promised to their own gang.
    """
    with ExitStack() as own:
        for gang in gangs:
            own.enter_context(own_room(gang, newest))

        for placement in placements:
            if not newest.fits_still(placement.pod, placement.node):
                return False

    return True


def _joint_start(records: Sequence[GangRecord], verdict: Verdict) -> JointStart | None:
    """What a verdict starts together, None if that is a single member, which is sent or not."""
    if not verdict.binds:
        return None

    pods = {placement.pod.uid: placement.pod for placement in verdict.binds}
    starting = [
        record
        for record in records
        if not record.plain and record.passed is None and not pods.keys().isdisjoint(record.members)
    ]

    # A child of a tree without a minimum of its own starts with one member.
    least = sum(max(1, record.least) for record in starting)
    if least < 2:
        return None

    youngest_s = max(
        pods[uid].creation_s for record in starting for uid in record.members if uid in pods
    )
    return JointStart(least, youngest_s)


def _sought(verdict: Verdict) -> tuple[Need, ...]:
    """The needs whose room may help the group: with nominated nodes, room for one member may be
    enough (V11).
    """
    if verdict.reason is not Reason.PREEMPTING:
        return verdict.needs

    result = []
    for need in verdict.needs:
        result.append(structs.replace(need, count=1 if len(verdict.needs) == 1 else 0))

    return tuple(result)


def _stay(group: Group) -> Stay:
    """Broken groups pass reservations freely, and who may share GPUs has more nodes (H8)."""
    return Stay(group.run_time_s, group.priority, (group.broken, group.shares_gpus))
