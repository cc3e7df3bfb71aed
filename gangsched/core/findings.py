"""Refusals: each a reason with the facts that a plan has found.

Invariant: nothing here makes a sentence. Counts of excluded nodes are made once per kind of pod and
state of the ledger, and sorted as in kube-scheduler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
from msgspec import structs

from gangsched.core.device_counts import devices_short
from gangsched.core.filter import (
    cause,
    inter_pod_affinity,
    narrow,
    node_ports,
    pod_topology_spread,
    refusals,
    static_fit,
)
from gangsched.core.filter.volumes import volume_restrictions
from gangsched.core.filter.volumes.claim_devices import NO_DEVICES
from gangsched.core.group_rules import rules_key, rules_of
from gangsched.core.permit import missing
from gangsched.core.placement_attempt import PlacementAttempt
from gangsched.core.reserve import Ledger
from gangsched.core.scopes import kept_from, usable
from gangsched.model.gang import Gang, Group, Refusal, namespace_of, shown
from gangsched.model.objects import Pod
from gangsched.model.preemption import NotHelpful, Obstacle
from gangsched.model.reasons import Reason
from gangsched.model.resources import ResourceVector
from gangsched.model.snapshot import RefusedNodes
from gangsched.model.tree import Composite, Part, part_id
from gangsched.model.verdict_facts import (
    ChildrenMissing,
    ClaimFull,
    ClaimOfOnePod,
    DevicesShort,
    DomainsShort,
    ExcludedNodes,
    GangNeed,
    GroupHolds,
    HoldsLost,
    HoldsNode,
    HoldsReleased,
    MemberFails,
    MemberHinders,
    MembersMissing,
    NoChoice,
    NodeCounts,
    Nominated,
    NoNode,
    Placed,
    PodsEnd,
    ResourcesShort,
    RoomShort,
    Shortage,
    SliceLack,
    SlicesFail,
    TimedOutEarlier,
    TooMuchWork,
    UncountedMembers,
    UnsupportedPod,
    WaitsForSibling,
    WaitTimeOver,
    WhenEmpty,
    Worded,
    Yielded,
)

EXCLUSIVE: Final = frozenset(
    {
        node_ports.REFUSED,
        pod_topology_spread.REFUSED,
        inter_pod_affinity.ANTI_AFFINITY,
        inter_pod_affinity.EXISTING,
        volume_restrictions.REFUSED,
    }
)
"""Reasons for which a pod excludes another one that would fit beside it."""

MAX_NAMED: Final = 10
"""Gangs and pods that a nomination names. Its fact is written into each gang's status."""


# --- nodes --------------------------------------------------------------------------------------


def node_counts(
    pod: Pod,
    ledger: Ledger,
    closed: Iterable[tuple[RefusedNodes, bool]] = (),
    *,
    filled: bool = False,
) -> NodeCounts:
    """How many nodes each filter excludes for a pod.

    `closed` are nodes excluded for other reasons, and whether that passes by itself. With
    `filled`, the counts are about the first pod that no longer fits.
    """
    total = len(ledger.table)
    shape = pod.shape
    occupancy = ledger.occupancy
    ledger.work.charge(100 + total // 25)

    if not total:
        return NodeCounts(total=0)

    refusal = cause(pod, occupancy)
    # A cause that no node can help, such as a missing claim: kube-scheduler ends PreFilter with it.
    if refusal is not None:
        assert isinstance(refusal.fact, Worded)
        return NodeCounts(total=total, of_pod=refusal.fact.text)

    if filled:
        free = ledger.free.copy()
        for name, amount in shape.requests:
            if name in ledger.resources:
                # As if all that fit were placed: why does the next one find no node?
                free[ledger.resources[name]] -= ledger.room(shape) * amount

        occupancy = structs.replace(occupancy, free=free)

    fit = static_fit(shape, ledger.table)
    counts = Counter({(reason, False): int(nodes.sum()) for reason, nodes in fit.refused})
    open_nodes = fit.mask

    for (reason, nodes), passes in closed:
        counts[reason, passes] += int((open_nodes & nodes).sum())
        open_nodes = open_nodes & ~nodes

    for reason, nodes in refusals(pod, occupancy, open_nodes):
        counts[reason, True] += int(nodes.sum())

    excluded = (
        ExcludedNodes(reason, count, eligible)
        for (reason, eligible), count in counts.items()
        if count
    )
    # Sorted as text, as FitError does, so that equal causes are equal facts.
    ordered = sorted(excluded, key=lambda each: (f"{each.nodes} {each.reason}", each.eligible))
    return NodeCounts(total=total, excluded=tuple(ordered))


def why_no_node(
    pod: Pod,
    attempt: PlacementAttempt,
    *,
    filled: bool = False,
) -> NodeCounts:
    """`node_counts` for a pod of the group, cached for all pods with the same result."""
    ledger = attempt.ledger
    alike = ledger.occupancy.equivalence((pod,))(pod)
    key = (why_no_node, alike, rules_key(pod.shape, attempt), filled)

    def count() -> NodeCounts:
        return node_counts(pod, ledger, _closed(pod, attempt), filled=filled)

    return ledger.recall(key, count)


def _closed(pod: Pod, attempt: PlacementAttempt) -> Iterator[tuple[RefusedNodes, bool]]:
    """The nodes that rules and reservations close, and whether that passes by itself."""
    for rule in rules_of(attempt):
        for refused in rule.closed(pod.shape, attempt):
            yield refused, rule.expires

    for refused in kept_from(pod.shape, attempt):
        yield refused, True


def unsupported(pod: Pod) -> Refusal:
    """Refuse a pod that uses a feature that gangsched does not support yet, or that it
    cannot read.
    """
    return Refusal(
        Reason.UNSUPPORTED,
        UnsupportedPod(pod.key, pod.shape.unsupported),
        of=pod.namespace,
    )


def no_node(pod: Pod, refused: Refusal, short: Shortage) -> Refusal:
    """Refusal of a pod without a feasible node, with amounts if a resource is insufficient."""
    nodes = refused.fact
    if not isinstance(nodes, NodeCounts) or not nodes.lacks_room:
        return structs.replace(refused, of=pod.namespace)

    return Refusal(
        refused.reason,
        NoNode(pod=pod.key, requests=pod.shape.requests, nodes=nodes, short=short),
        never=short.never,
        of=pod.namespace,
    )


# --- gangs that lack room -----------------------------------------------------------------------


class Beside(NamedTuple):
    """What a pod that found no node finds without the pods that were placed before it: `alone`
    nodes that take it, and the reasons for which the others set it `apart`. `most`: no other choice
    of nodes places more pods. `devices` are counted if no node lacks anything else.
    """

    alone: int
    apart: tuple[str, ...]
    most: bool
    devices: DevicesShort | None = None


def beside_none(
    pod: Pod,
    refused: Refusal,
    gangs: Sequence[Gang],
    attempt: PlacementAttempt,
) -> Beside:
    """Compare the refusal of `pod`, made when others were placed, with the ledger without them."""
    nodes = refused.fact
    if not isinstance(nodes, NodeCounts):
        return Beside(0, (), most=False)

    occupancy = attempt.ledger.occupancy
    room = narrow(pod, usable(pod.shape, attempt), occupancy)
    before = {each.reason: each.nodes for each in why_no_node(pod, attempt).excluded}
    apart = tuple(
        each.reason
        for each in nodes.excluded
        if each.nodes > before.get(each.reason, 0) and each.reason in EXCLUSIVE
    )
    pods = [each for gang in gangs for each in gang.pending]
    kind_of = occupancy.equivalence(pods)
    kinds = {kind_of(each) for each in pods}

    # Pods that are alike and need only room, or a node each, are placed one after the other; no
    # order of them does better.
    constraints = pod.shape.constraints
    is_plain = len(kinds) == 1 and not (pod.claims or constraints.spread or constraints.affinity)
    return Beside(
        alone=int(np.count_nonzero(room)),
        apart=apart,
        most=is_plain,
        devices=_devices(pod, nodes, gangs, attempt),
    )


def _devices(
    pod: Pod,
    nodes: NodeCounts,
    gangs: Sequence[Gang],
    attempt: PlacementAttempt,
) -> DevicesShort | None:
    """The devices of gangs that lack nothing else on the nodes that they may use; of several only
    if all of them may use the same nodes.
    """
    lacking = {count.reason for count in nodes.excluded if count.eligible}
    if lacking != {NO_DEVICES}:
        return None

    pods: list[Pod] = []
    needed = 0
    for gang in gangs:
        pods += gang.pending
        needed += missing(gang, 0)

    if len(gangs) > 1 and any(other.shape != pod.shape for other in pods):
        return None

    ledger = attempt.ledger
    open_nodes = static_fit(pod.shape, ledger.table).mask
    for (_, closed), _ in _closed(pod, attempt):
        open_nodes = open_nodes & ~closed

    return devices_short(pods, needed, open_nodes, ledger)


def gang_failed(
    gang: Gang,
    pod: Pod,
    refused: Refusal,
    short: Shortage,
    *,
    placed: int,
    needed: int,
    beside: Beside,
    domains: DomainsShort | None = None,
) -> Refusal:
    """Refusal of a gang: which pod could not be placed, why, and how many were placed before
    (semantics R2).
    """
    nodes = refused.fact
    if refused.reason is not Reason.UNSCHEDULABLE or not isinstance(nodes, NodeCounts):
        hinders = MemberHinders(
            gang=gang.id,
            pod=pod.key,
            cause=refused,
            placed=placed,
            needed=needed,
            domains=domains,
        )
        return Refusal(refused.reason, hinders, of=pod.namespace)

    alike = (each for each in gang.pending if each.shape is pod.shape and not pod.claims)
    first = next(alike, pod)  # the same one, whoever's turn it was
    fails = MemberFails(
        need=_need(gang, missing(gang, 0)),
        pod=first.key,
        tried=pod.key,
        requests=pod.shape.requests,
        short=short,
        nodes=nodes,
        placed=placed,
        needed=needed,
        most=beside.most,
        alone=beside.alone,
        apart=beside.apart,
        devices=beside.devices,
        domains=domains,
    )
    is_impossible = domains is not None and domains.when_empty is not None

    return Refusal(
        refused.reason,
        fails,
        never=is_impossible or (nodes.lacks_room and short.never),
        of=pod.namespace,
    )


def slices_failed(
    gang: Gang,
    lack: SliceLack | None,
    *,
    needed: int,
    domains: DomainsShort | None,
    when_empty: WhenEmpty | None,
) -> Refusal:
    """Refusal of a gang with slices."""
    return Refusal(
        Reason.UNSCHEDULABLE,
        SlicesFail(need=_need(gang, needed), lack=lack, domains=domains, when_empty=when_empty),
        never=when_empty is not None,
        of=namespace_of(gang.id),
    )


def no_room_for_all(
    gang: Gang,
    pod: Pod,
    short: Shortage,
    *,
    room: int,
    needed: int,
    empty_room: int,
    exact: bool,
    nodes: NodeCounts,
    limits: tuple[str, ...] = (),
) -> Refusal:
    """Refusal by arithmetic, before anything is placed (semantics P4).

    `pod` has the shape with the least room. At most `room` of the `needed` pods would fit now,
    `exact` if just as many, and at most `empty_room` on the empty nodes, because of `limits`.
    """
    lacks = RoomShort(
        need=_need(gang, needed),
        pod=pod.key,
        requests=pod.shape.requests,
        short=short,
        room=room,
        exact=exact,
        empty_room=empty_room,
        nodes=nodes,
        limits=limits,
    )
    never = not short.nodes or short.never or empty_room < needed
    return Refusal(Reason.UNSCHEDULABLE, lacks, never=never, of=pod.namespace)


def min_resources_short(
    gang: Gang,
    short: ResourceVector,
    when_empty: ResourceVector,
) -> Refusal:
    """Refusal because minResources are not free (semantics P4): `short` is missing now, and
    `when_empty` on the empty nodes.
    """
    asked = dict(gang.min_resources)
    offered = tuple((name, asked[name] - lack) for name, lack in when_empty)
    return Refusal(
        Reason.UNSCHEDULABLE,
        ResourcesShort(gang=gang.id, asked=gang.min_resources, short=short, offered=offered),
        never=bool(when_empty),
        of=namespace_of(gang.id),
    )


def too_much_work(group: Group) -> Refusal:
    """Refusal of a group that exceeds the work of one decision (decision 47)."""
    pods = [pod for gang in group.gangs for pod in (*gang.pending, *gang.retry)]
    shapes = len({pod.shape for pod in pods})
    return Refusal(Reason.UNSCHEDULABLE, TooMuchWork(len(pods), shapes))


# --- members ------------------------------------------------------------------------------------


def waiting_for_members(gang: Gang) -> Refusal:
    """Refusal of a gang below its minimum; each member is counted once: `3 of 5 are ready; 1 is
    gated; 1 is missing` (P1).
    """
    foreign = len(gang.foreign)
    waits = MembersMissing(
        gang=gang.id,
        minimum=gang.min_member,
        ready=gang.quorum,
        gated=gang.gated,
        foreign=foreign,
        # What nobody has created yet; each existing member is in one of the other numbers.
        missing=max(0, gang.min_member - gang.quorum - gang.gated - foreign),
        terminating=gang.terminating,
        note=gang.min_note,
    )
    return Refusal(Reason.WAITING_FOR_MEMBERS, waits, of=namespace_of(gang.id))


def waiting_for_more(gang: Gang, lack: int) -> Refusal:
    """Refusal of a gang that has enough members, but too few members that its match policy counts
    (semantics B1).
    """
    return Refusal(
        Reason.WAITING_FOR_MEMBERS,
        UncountedMembers(gang.id, gang.match_policy.value, lack),
        of=namespace_of(gang.id),
    )


def claim_full(
    name: str,
    needed: int,
    left: int,
    *,
    most: int,
) -> Refusal:
    """Refusal of a gang whose members cannot all be consumers of the ResourceClaim that
    they share.
    """
    full = ClaimFull(claim=name, needed=needed, left=left, most=most)
    if needed > most:
        return Refusal(Reason.INVALID_CLAIM, full, never=True)

    return Refusal(Reason.WAITING_FOR_VOLUMES, full)


def claim_of_one_pod(gang: Gang, name: str, needed: int) -> Refusal:
    """Refusal of a gang of which several members must use a ReadWriteOncePod claim."""
    fact = ClaimOfOnePod(gang.id, name, needed)
    return Refusal(Reason.INVALID_CLAIM, fact, never=True, of=namespace_of(gang.id))


def timed_out(gang: Gang) -> Refusal:
    """Refusal of a gang whose members have the timeout annotation (semantics T3)."""
    return Refusal(
        Reason.TIMED_OUT,
        TimedOutEarlier(gang.id, len(gang.timed_out)),
        of=namespace_of(gang.id),
    )


def wait_time_over(group: Group) -> Refusal:
    """Refusal when the wait time expires (semantics T2)."""
    return Refusal(Reason.TIMED_OUT, WaitTimeOver(group.wait_time_s, lacking(group.gangs, {})))


# --- room that is held --------------------------------------------------------------------------


def holding(pod: Pod, node: str, gang: Gang) -> Refusal:
    """Status of a pod that holds a node (semantics R3)."""
    return Refusal(Reason.HOLDING, HoldsNode(pod.key, node, gang.id))


def holds_summary(
    group: Group,
    held: int,
    lacking: tuple[tuple[str, int], ...],
    failed: Sequence[tuple[Pod, Refusal]],
) -> Refusal:
    """Status of a group that holds nodes; `failed` are the members without a node and their
    refusals (semantics R3).
    """
    pod, refused = failed[0] if failed else (None, None)
    holds = GroupHolds(
        group=group.id,
        held=held,
        lacking=lacking,
        pod=pod.key if pod is not None else "",
        refused=refused,
    )
    of = pod.namespace if pod is not None else ""
    return Refusal(Reason.HOLDING if held else Reason.UNSCHEDULABLE, holds, of=of)


def lacking(gangs: Iterable[Gang], placed: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """The number of members that each gang still needs; `placed` counts newly placed members by
    gang id.
    """
    short = ((gang.id, gang.min_member - gang.counted(placed.get(gang.id, 0))) for gang in gangs)
    return tuple((name, number) for name, number in short if number > 0)


def holds_lost(nodes: Sequence[str]) -> Refusal:
    """Refusal of a group whose held nodes were removed (semantics R3)."""
    return Refusal(Reason.UNSCHEDULABLE, HoldsLost(tuple(nodes)))


def strict_holds_nothing(number: int) -> Refusal:
    """Refusal when a group with holds has become Strict (semantics I5, T1)."""
    return Refusal(Reason.UNSCHEDULABLE, HoldsReleased(number))


def yielded(group: Group, beneficiary: str) -> Refusal:
    """Refusal of a group that released its holds for the group `beneficiary` (semantics D1)."""
    name = shown(beneficiary) if group.is_of(beneficiary) else ""
    return Refusal(Reason.YIELDED, Yielded(name))


# --- preemption ---------------------------------------------------------------------------------


def nominated(
    nodes: Iterable[str],
    ending: Iterable[tuple[Pod, str]],
    namespaces: frozenset[str],
    *,
    until_s: int,
) -> Refusal:
    """Status of a group of these `namespaces` that starts on `nodes` once the pods `ending`, each
    with the id of its gang, have ended (semantics V20).
    """
    pods = 0
    own: Counter[tuple[str, bool]] = Counter()

    for pod, gang in ending:
        pods += 1
        # A message goes to all gangs of the group, so none of them may learn a foreign name (V22).
        if namespaces == {pod.namespace}:
            own[gang or pod.key, bool(gang)] += 1

    most_first = sorted(own.items(), key=lambda entry: (-entry[1], entry[0]))
    named = (PodsEnd(name, number, is_gang) for (name, is_gang), number in most_first)
    fact = Nominated(
        nodes=tuple(sorted(set(nodes))),
        pods=pods,
        named=tuple(islice(named, MAX_NAMED)),
        until_s=until_s,
    )
    return Refusal(Reason.PREEMPTING, fact)


# --- groups and trees ---------------------------------------------------------------------------


def waiting_for_sibling(gang_id: str, cause: Refusal) -> Refusal:
    """Refusal of the other gangs of a group if one of them is not ready."""
    return Refusal(Reason.WAITING_FOR_GANG, WaitsForSibling(gang_id, cause), of=cause.of)


def children_missing(
    composite: Composite,
    ready: int,
    unready: tuple[Part, Refusal] | None,
) -> Refusal:
    """Refusal of a composite with too few ready children; `unready` is the first child that is not
    ready, with its refusal (I9).
    """
    part, why = unready if unready is not None else ("", None)
    missing = ChildrenMissing(
        composite=composite.id,
        ready=ready,
        minimum=composite.min_children,
        note=composite.note,
        part=part_id(part),
        is_gang=isinstance(part, str),
        cause=why,
    )
    return Refusal(Reason.WAITING_FOR_GANG, missing)


def no_choice(
    composite: Composite,
    first: Refusal,
    lack: int,
    ready: int,
    *,
    proven: bool,
) -> Refusal:
    """Refusal of a composite for which no choice of `lack` ready children can be placed; `first` is
    the refusal of the first choice.

    `proven` is False if children were only placed one after the other, which may miss a possible
    placement.
    """
    choice = NoChoice(
        composite=composite.id,
        lack=lack,
        ready=ready,
        proven=proven,
        first=first.fact,
    )
    return structs.replace(first, fact=choice)


def permitted(placed: int) -> Refusal:
    """The verdict when `placed` members start."""
    return Refusal(Reason.SCHEDULED, Placed(placed))


def _need(gang: Gang, pods: int) -> GangNeed:
    constraints = gang.constraints
    return GangNeed(
        gang=gang.id,
        pods=pods,
        further=pods < gang.min_member or bool(gang.bound),
        requests=_common_requests(gang.pending),
        levels=constraints.topology,
        slices=constraints.slices,
    )


def _common_requests(pods: Sequence[Pod]) -> ResourceVector | None:
    """What each of these pods requests, if they are of one shape; a plan asks for each refused
    gang.
    """
    if not pods:
        return None

    shape = pods[0].shape
    for pod in pods:
        if pod.shape is not shape:
            return None

    return shape.requests


def with_obstacle(refusal: Refusal, why: NotHelpful) -> Refusal:
    """The refusal with the reason why preemption does not help; unchanged if the pods could
    never fit anyway.
    """
    if refusal.never and why.why is Obstacle.NOTHING_LOWER:
        return refusal

    is_object = why.why in {Obstacle.BUDGET, Obstacle.NOTHING_LOWER} and bool(why.name)
    # Names of other namespaces are told to nobody (I4).
    is_foreign = is_object and refusal.of not in {"", namespace_of(why.name)}
    detail = structs.replace(why.as_told(), name="") if is_foreign else why.as_told()

    return structs.replace(refusal, details=(*refusal.details, detail))
