"""Validation: recount every index of the state from its members.

Invariant: read-only. It reads every pod, so it is for tests and debugging. It is independent of the
transition table and of the code that maintains the indexes. No complaint means: every member is in
one state that agrees with its pod, room is taken exactly where states take it, and every index
equals a recount.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from gangsched.model.objects import Pod
from gangsched.model.peers import Behind, PeerKey
from gangsched.model.resources import OVERFULL
from gangsched.state.member_store import WAITS
from gangsched.state.members import Member, State
from gangsched.state.preemption.nomination import Fate
from gangsched.state.reporting.gang_numbers import count_pending
from gangsched.state.scheduling import SchedulingState

UNPLACED = frozenset(
    {State.GATED, State.FOREIGN, State.PENDING, State.RETRY, State.DELETED, State.ENDED}
)

SELECTS = frozenset({State.HELD, State.KEPT, State.WAITING_FOR_CLAIMS, State.BINDING})
"""A member keeps the volumes that were chosen for it as long as it keeps the room beside
them (B3).
"""


def validate(state: SchedulingState) -> list[str]:
    """Every inconsistency as a sentence; empty if there is none."""
    members = list(state.members.all())
    return [
        *(complaint for member in members for complaint in _of_member(state, member)),
        *_of_gangs(state, members),
        *_of_room(state, members),
        *_of_promises(state, members),
        *_of_priorities(state, members),
        *_of_neighbours(state, members),
        *_of_claims(state, members),
        *_of_nominations(state),
        *_of_reservations(state),
        *_of_pending(state),
        *_of_groups(state),
    ]


def _of_member(state: SchedulingState, member: Member) -> Iterator[str]:
    for wrong in _wrong(state, member):
        yield f"{member.pod.key} is {member.state}{wrong}"


def _wrong(state: SchedulingState, member: Member) -> Iterator[str]:
    pod = member.pod
    if state.members.get(pod.uid) is not member:
        yield " and kept under another uid"

    if bool(member.node) is (member.state in UNPLACED):
        yield f" and its node is {member.node!r}"

    if not pod.live and member.state is not State.ENDED:
        yield f" though its phase is {pod.phase}"

    if (
        pod.live
        and pod.node_name
        and (member.state not in {State.BOUND, State.TERMINATING} or member.node != pod.node_name)
    ):
        yield f" on {member.node!r} though it is bound to {pod.node_name}"

    if member.selections and member.state not in SELECTS:
        yield " and has volumes selected"

    if (member.wait is not None) is not (member.state is State.WAITING_FOR_CLAIMS):
        yield f" and {'has no' if member.wait is None else 'has a'} wait for claims"

    if member.wait is not None and state.claims.waiting().get(pod.uid) is not member:
        yield " and nobody looks at its claims"

    if not member.gang and (
        member.state is State.ENDED or not (member.node or pod.claims or pod.nominated_node)
    ):
        yield ", of no gang, and is remembered"


def _of_gangs(state: SchedulingState, members: list[Member]) -> Iterator[str]:
    """Every gang has the members that name it."""
    of_gang: dict[str, dict[str, Member]] = defaultdict(dict)
    for member in members:
        if member.gang:
            of_gang[member.gang][member.pod.uid] = member

    for gang_id in of_gang.keys() | state.registry.gangs.keys():
        record = state.registry.gangs.get(gang_id)
        found = of_gang.get(gang_id, {})
        if record is None or record.members != found:
            yield f"gang {gang_id} has other members than those that are of it"


def _of_room(state: SchedulingState, members: list[Member]) -> Iterator[str]:
    """Every node has the pods and the free room that the members leave it."""
    pods: dict[str, dict[str, Pod]] = defaultdict(dict)
    used: dict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))

    for member in members:
        if member.node:
            pods[member.node][member.pod.uid] = member.pod
            of_node = used[member.node]

            for resource, amount in member.pod.shape.requests:
                of_node[resource] += amount

    snapshot = state.snapshot()
    kept = state.cluster.used()

    for name in pods.keys() | kept.keys() | set(snapshot.table.names):
        if state.cluster.residents(name) != pods.get(name, {}):
            yield f"node {name} has other pods than the members on it"

        taken = kept.get(name, {})
        # a count of 0 is one that lacks
        if taken != used[name] and Counter(taken) != Counter(used[name]):
            yield f"on node {name} {dict(taken)} is taken, and its members ask {dict(used[name])}"

    shown = snapshot.free.tolist()
    for name, node in state.cluster.nodes.items():
        offered = state.cluster.served.offered(node)
        index = snapshot.table.index[name]
        of_node = used[name]

        for resource, row in snapshot.resources.items():
            free = max(offered.get(resource, 0) - of_node[resource], OVERFULL)
            if shown[row][index] != free:
                yield (
                    f"of {resource} {shown[row][index]} is free on node {name}, and should be"
                    f" {free}"
                )


def _of_promises(state: SchedulingState, members: list[Member]) -> Iterator[str]:
    """Room is promised to foreign nominees, to our own, and to members to come."""
    nominated = {}
    for member in members:
        if member.state is State.FOREIGN and member.pod.nominated_node:
            nominated[member.pod.uid] = member.pod.nominated_node

    for record in state.preemptions.nominations.all():
        nominated |= {uid: nominee.node for uid, nominee in record.nominees.items()}

    for places in state.coming.shown().values():
        nominated |= {placement.pod.uid: placement.node for placement in places}

    nominations = state.snapshot().nominations
    if {nomination.pod.uid: nomination.node for nomination in nominations} != nominated:
        yield f"{nominations} are kept as promised, and should be {nominated}"


def _of_priorities(
    state: SchedulingState,
    members: list[Member],
) -> Iterator[str]:
    """The lowest priorities are those of the members that have a node, and of those that wait."""
    lowest = min((member.pod.priority for member in members if member.node), default=None)
    if state.members.lowest_priority != lowest:
        yield (
            f"{state.members.lowest_priority} is kept as the lowest priority, and should be"
            f" {lowest}"
        )

    waiting = min(
        (member.pod.priority for member in members if member.state in WAITS), default=None
    )
    if state.members.lowest_waiting != waiting:
        yield (
            f"{state.members.lowest_waiting} is kept as the lowest priority that waits, and should"
            f" be {waiting}"
        )


def _of_neighbours(
    state: SchedulingState,
    members: list[Member],
) -> Iterator[str]:
    """What is known of pods by node, for terms between pods and for spreading, is that of the
    members.
    """
    pods_by_node = state.snapshot().pods_by_node
    known = state.cluster.nodes
    owners = set()
    for member in members:
        if member.node in known and _states_terms(member.pod):
            owners.add((member.pod.shape, member.pod.namespace))

    if set(pods_by_node.terms.owners) != owners:
        number = len(pods_by_node.terms.owners)
        yield f"{number} owners of inter-pod terms are kept, not {len(owners)}"

    peers = pods_by_node.peers
    numbers: dict[PeerKey, Counter[str]] = {}

    for member in members:
        for key in peers.keys(member.pod) if member.node else ():
            numbers.setdefault(key, Counter())[member.node] += 1

    if peers.counts != numbers:
        yield f"{peers.counts} are kept as numbers of peers, and should be {numbers}"

    if listed := {key for key in numbers if isinstance(key, Behind)} ^ set(peers.listed()):
        yield f"{listed} are listed as behind Services and counted nowhere, or the other way round"


def _of_nominations(state: SchedulingState) -> Iterator[str]:
    """Every nomination is of a group that knows it, and every group that is evicted has members
    that are.
    """
    nominations = state.preemptions.nominations
    known = {
        record.group: record
        for record in nominations.all()
        if record.group in state.registry.groups
    }

    believed = {
        group.id: group.nomination
        for group in state.registry.groups.values()
        if group.nomination is not None
    }
    if known != believed:
        yield f"groups {sorted(known)} are nominated, and {sorted(believed)} believe so"

    for record in nominations.all():
        if record.victims.keys() != record.fates.keys():
            yield f"the nomination of {record.group} has fates of others than its victims"

        if record.unanswered != {
            uid for uid in record.of(Fate.ORDERED) if record.victims[uid].is_of_whole
        }:
            yield (
                f"the nomination of {record.group} is held by other evictions than those that are"
                " not answered"
            )

    shown = state.coming.shown()
    for gang_id, group_id in state.registry.group_of.items():
        wanted = state.registry.view(gang_id).promised
        if not state.registry.is_touched(group_id) and shown.get(gang_id, ()) != wanted:
            yield (
                f"members to come of gang {gang_id} are promised {shown.get(gang_id)}, and should"
                f" be {wanted}"
            )

    taken = {
        group_id for group_id, group in state.registry.groups.items() if group.taken is not None
    }
    if taken != nominations.taken.now().keys() & state.registry.groups.keys():
        yield (
            f"groups {sorted(taken)} believe that they are evicted, and"
            f" {sorted(nominations.taken.now())} are"
        )


def _of_pending(state: SchedulingState) -> Iterator[str]:
    """The counts of waiting pods in the metrics equal a recount."""
    kept = state.pending.now()
    counted = count_pending(state.registry)
    if kept != counted:
        yield f"{kept} is counted as waiting, and should be {counted}"


def _of_groups(state: SchedulingState) -> Iterator[str]:
    """Every index of groups has those whose record says so."""
    groups = state.registry.groups
    parts = (
        state.queue,
        state.holds,
        state.preemptions,
        state.reservations,
        state.asks,
        state.reports.reservations,
    )
    for name, kept, belongs in (index for part in parts for index in part.indexes()):
        if kept != (found := {group_id for group_id, group in groups.items() if belongs(group)}):
            yield f"groups {sorted(kept)} are kept as {name}, and should be {sorted(found)}"


def _states_terms(pod: Pod) -> bool:
    return pod.shape.inter_pod is not None and pod.shape.inter_pod.has_terms


def _of_claims(state: SchedulingState, members: list[Member]) -> Iterator[str]:
    """Every claim has the live members that name it, and those without a node are known as such."""
    users: dict[str, dict[str, Member]] = defaultdict(dict)
    unplaced: dict[str, str] = {}

    for member in members:
        pod = member.pod
        for use in pod.claims if pod.live else ():
            users[use.key(pod.namespace)][pod.uid] = member
            if member.gang and not member.node:
                unplaced[pod.uid] = member.gang

    storage = state.cluster.storage_cache
    if storage.users() != users:
        yield (
            f"claims have users {sorted(storage.users())}, and are named by members {sorted(users)}"
        )

    waiting = storage.waits.gangs_of_pods()
    if waiting != unplaced:
        yield (
            f"{sorted(waiting)} are kept as without a node for their claims, not {sorted(unplaced)}"
        )


def _of_reservations(state: SchedulingState) -> Iterator[str]:
    """Every reservation is for a group that waits for room, or a refresh or a plan is due that
    looks at it.

    The first one says so.
    """
    kept = state.reservations
    for number, each in enumerate(kept.standing):
        what = f"room is reserved for {each.group}"
        if each.first is not (number == 0):
            yield f"{what}, which is {'' if each.first else 'not '}called the first"

        if each.group not in state.registry.groups:
            if not kept.has_lost_a_head:
                yield f"{what}, which is gone, and no plan is due"
        elif (
            not state.registry.groups[each.group].awaits_room
            and state.queue.part(each.group) == "parked"
            and not state.registry.is_touched(each.group)
            # its PodGroup is gone, and may come back within a second
            and not kept.is_stale(each.group)
        ):
            yield f"{what}, which does not wait for room"

    if len({reservation.group for reservation in kept.standing}) < len(kept.standing):
        yield "two reservations are for one group"
