"""Messages about refusals, holds and starts.

Invariant: `Refusal.message` names the gang, the cause, and facts that do not change while the gang
waits; changing counts are in `Refusal.now`. Filter refusals are worded, counted and sorted as in
kube-scheduler. A message ends without a full stop if more text may be appended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gangsched.api.slice_layers import format_slices
from gangsched.core.diagnosis import Amounts, Shortage
from gangsched.core.filter import cause, refusals, static_fit
from gangsched.core.group_rules import rules_key
from gangsched.core.reserve import Ledger
from gangsched.core.scopes import closed, kept_from
from gangsched.model.gang import Gang, Group, Refusal, namespace_of, shown
from gangsched.model.objects import Pod, Shape
from gangsched.model.reasons import Reason
from gangsched.model.resources import PODS, format_quantity
from gangsched.model.snapshot import RefusedNodes
from gangsched.model.text import counted, named
from gangsched.model.tree import Composite, Part, part_id

NO_NODES = "no nodes available to schedule pods"
NODE_CLOSED = "the node is gone, cordoned or full"


def nodes_available(
    pod: Pod,
    ledger: Ledger,
    closed: Iterable[RefusedNodes] = (),
    *,
    filled: bool = False,
) -> str:
    """kube-scheduler's message: `0/N nodes are available: 3 Insufficient cpu, 9 node(s) had
    untolerated taint(s).`

    `closed` are nodes excluded for other reasons, with the text of each reason (`core.scopes`).
    With `filled`, the message is about the first pod that no longer fits.
    """
    total = len(ledger.table)
    shape = pod.shape
    occupancy = ledger.occupancy
    ledger.work.charge(100 + total // 25)

    if not total:
        return NO_NODES

    refusal = cause(pod, occupancy)
    # A cause that no node can help, such as a missing claim: kube-scheduler ends PreFilter with it.
    if refusal is not None:
        return f"0/{total} nodes are available: {refusal.message}."

    if filled:
        free = ledger.free.copy()
        for name, amount in shape.requests:
            if name in ledger.resources:
                # As if all that fit were placed: why does the next one find no node?
                free[ledger.resources[name]] -= ledger.room(shape) * amount

        occupancy = replace(occupancy, free=free)

    fit = static_fit(shape, ledger.table)
    counts = Counter({reason: int(nodes.sum()) for reason, nodes in fit.refused})
    open_nodes = fit.mask

    for reason, nodes in closed:
        counts[reason] += int((open_nodes & nodes).sum())
        open_nodes = open_nodes & ~nodes

    for reason, nodes in refusals(pod, occupancy, open_nodes):
        counts[reason] += int(nodes.sum())

    # Sorted as text, as FitError does, so that equal causes give an equal sentence.
    said = sorted(f"{count} {reason}" for reason, count in counts.items() if count)
    return f"0/{total} nodes are available: {', '.join(said)}."


def why_no_node(pod: Pod, group: Group, ledger: Ledger, *, filled: bool = False) -> str:
    """`nodes_available` for a pod of `group`, cached for all pods with the same result."""
    alike = ledger.occupancy.equivalence((pod,))(pod)
    key = (why_no_node, alike, rules_key(group, pod.shape, ledger), filled)

    def say() -> str:
        shut = (*closed(group, pod.shape, ledger), *kept_from(group, pod.shape, ledger))
        return nodes_available(pod, ledger, shut, filled=filled)

    return ledger.recall(key, say)


def unsupported(pod: Pod) -> Refusal:
    """Refuse a pod that uses a feature that gangsched does not support yet, or that it
    cannot read.
    """
    return Refusal(
        Reason.UNSUPPORTED,
        f"pod {pod.key} {'; '.join(pod.shape.unsupported)}",
        of=pod.namespace,
    )


def no_node(pod: Pod, refused: Refusal, short: Shortage) -> Refusal:
    """Refusal of a pod without a feasible node; it also states the pod's requests if a resource is
    insufficient.
    """
    if not _lacks_room(refused):
        return replace(refused, of=pod.namespace)

    amounts = short.scarcest
    now = refused.now

    if amounts.free_on_one < amounts.asked <= amounts.offered:
        now += f" {_free(amounts)}"

    if never := _never(pod, short):
        return Refusal(refused.reason, never, now, never=True, of=pod.namespace)

    return Refusal(
        refused.reason,
        f"pod {pod.key} asks for {_asks(pod.shape)}",
        now,
        of=pod.namespace,
    )


def gang_failed(
    gang: Gang,
    pod: Pod,
    refused: Refusal,
    short: Shortage,
    *,
    placed: int,
    needed: int,
    note: str = "",
) -> Refusal:
    """Refusal of a gang: which pod could not be placed, why, and how many were placed before
    (semantics R2).

    `note` describes the required topology domains.
    """
    # In `now`, because it changes with each plan: the message itself would be a new Event each
    # time.
    far = note or f"{placed} of {needed} pods could be placed"
    if refused.reason is not Reason.UNSCHEDULABLE:
        cause = refused.message or refused.now.partition(" nodes are available: ")[2].removesuffix(
            "."
        )
        return Refusal(
            refused.reason,
            f"gang {gang.id} waits for pod {pod.key}: {cause}",
            far,
            of=pod.namespace,
        )

    now = f"{far}; pod {pod.key}: {refused.now}"
    alike = (each for each in gang.pending if each.shape is pod.shape and not pod.claims)
    first = next(alike, pod)  # the same one, whoever's turn it was
    text = f"{_needs_room(gang, needed)}, but no node has room for pod {first.key}"

    if not _lacks_room(refused):
        return Refusal(refused.reason, text, now, of=pod.namespace)
    if never := _never(first, short):
        return Refusal(
            refused.reason,
            f"{_needs_room(gang, needed)}, and {never}",
            now,
            never=True,
            of=pod.namespace,
        )

    text += f", which asks for {_asks(pod.shape)}"
    return Refusal(refused.reason, text, f"{now} {_free(short.scarcest)}", of=pod.namespace)


def slices_failed(
    gang: Gang,
    lacks: str,
    *,
    needed: int,
    note: str,
    takes: tuple[int, str] | None,
) -> Refusal:
    """Refusal of a gang with slices. `takes` has the number of pods of a slice that the largest
    domain would hold if it were empty, and the name of that domain.
    """
    text = _needs_room(gang, needed)
    if takes is not None:
        number, name = takes
        text += (
            f", and can never fit: even when empty, the largest domain, {name}, holds only "
            f"{counted(number, 'pod')} of a slice"
        )

    now = f"{note}; {lacks}" if note else lacks
    return Refusal(
        Reason.UNSCHEDULABLE,
        text,
        now,
        never=takes is not None,
        of=namespace_of(gang.id),
    )


def no_domain_for_slice(size: int, key: str, *, best: str, takes: int) -> str:
    """Cause within a refusal: no domain has room for even one slice."""
    return (
        f"no domain of {key} has room for a slice of {counted(size, 'pod')}: the best, {best}, has"
        f" room for {takes}"
    )


def too_few_slices(size: int, key: str, *, room: int, needed: int) -> str:
    """Cause within a refusal: too few slices fit."""
    return f"domains of {key} have room for {room} of {needed} slices of {counted(size, 'pod')}"


def slices_fragmented(gang: Gang) -> str:
    """Cause within a refusal: the slices fit by totals, but not in any choice of domains
    and nodes.
    """
    keys = ", ".join(dict.fromkeys(layer.topology for layer in gang.constraints.slices))
    return f"domains of {keys} are too fragmented for its slices"


def slice_kept(domain: str, *, room: int, needed: int) -> str:
    """Cause within a refusal: the domain of the slice's other members has too little room."""
    return (
        f"{domain}, where the other members of its slice are, has room for {room} of"
        f" {counted(needed, 'pod')}"
    )


def no_node_has(key: str) -> str:
    """Cause within a refusal: no node has the label of the required level."""
    return f"no node has the label {key}"


def no_room_for_all(
    gang: Gang,
    pod: Pod,
    short: Shortage,
    *,
    room: int,
    needed: int,
    empty_room: int,
    alike: bool,
    nodes: str,
) -> Refusal:
    """Refusal by arithmetic, before anything is placed (semantics P4).

    `pod` has the shape with the least room; `alike`: all pods have that shape. `room` of the
    `needed` pods would fit now, and `empty_room` on the empty nodes. `nodes` is kube-scheduler's
    message.
    """
    text = _needs_room(gang, needed)
    now = f"there is room for {room}."
    hopeless = True
    asking = (
        f", each asking for {_asks(pod.shape)}"
        if alike
        else f"; pod {pod.key} asks for {_asks(pod.shape)}"
    )

    if not short.nodes:
        text += f", but no node is eligible for pod {pod.key}{_closed(short)}"
    elif never := _never(pod, short):
        text += f", and {never}"
    elif empty_room < needed:
        text += (
            f"{asking}, and can never fit: even when empty, eligible nodes hold only {empty_room}"
            " of them"
        )
        text += _closed(short)
    else:
        hopeless = False
        text += asking
        now += f" {_free(short.scarcest)}"

    now += f" {nodes[:1].upper()}{nodes[1:].rstrip('.')}."
    return Refusal(Reason.UNSCHEDULABLE, text, now, never=hopeless, of=pod.namespace)


def min_resources_short(gang: Gang, short: Iterable[str], *, never: bool) -> Refusal:
    """Refusal because minResources are not free; `short` has entries like `3 nvidia.com/gpu`
    (semantics P4).

    `never`: even the empty nodes do not offer enough.
    """
    asked = ", ".join(_amount(name, amount) for name, amount in gang.min_resources)
    text = (
        f"gang {gang.id} needs its minResources ({asked}) to be free at the same time on eligible"
        " nodes"
    )

    if never:
        text += ", and can never start: even when empty, these nodes offer less"

    return Refusal(
        Reason.UNSCHEDULABLE,
        text,
        f"{', '.join(short)} missing.",
        never=never,
        of=namespace_of(gang.id),
    )


def waiting_for_members(gang: Gang) -> Refusal:
    """Refusal of a gang below its minimum; each member is counted once: `3 of 5 are ready; 1 is
    gated; 1 is missing` (P1).
    """
    # What nobody has created yet; each existing member is in one of the other numbers.
    missing = gang.min_member - gang.quorum - gang.gated - len(gang.foreign)
    counts = (
        (gang.gated, "is gated", "are gated"),
        (len(gang.foreign), "has another schedulerName", "have another schedulerName"),
        (missing, "is missing", "are missing"),
        (
            gang.terminating,
            "is being deleted and does not count",
            "are being deleted and do not count",
        ),
    )
    parts = []

    for number, one, many in counts:
        if number > 0:
            parts.append(f"{number} {one if number == 1 else many}")

    now = "; ".join((f"{gang.quorum} of {gang.min_member} are ready", *parts))
    text = f"waiting for members of gang {gang.id}"
    text += f" ({gang.min_note})" if gang.min_note else ""

    return Refusal(Reason.WAITING_FOR_MEMBERS, text, now, of=namespace_of(gang.id))


def waiting_for_more(gang: Gang, lack: int) -> Refusal:
    """Refusal of a gang that has enough members, but too few members that its match policy counts
    (semantics B1).
    """
    policy = gang.match_policy.value
    text = (
        f"waiting for members of gang {gang.id}, whose match policy {policy} counts only some of"
        " the existing ones"
    )
    return Refusal(
        Reason.WAITING_FOR_MEMBERS,
        text,
        f"{counted(lack, 'more pending member')} {'is' if lack == 1 else 'are'} needed",
        of=namespace_of(gang.id),
    )


def claim_full(name: str, needed: int, left: int, *, most: int) -> Refusal:
    """Refusal of a gang whose members cannot all be consumers of the ResourceClaim that
    they share.
    """
    claim = f"resourceclaim {name}" if name else "a resourceclaim"
    if needed > most:
        text = (
            f"{needed} members must share {claim}, and at most {most} pods can use one claim: use"
            " several claims"
        )
        return Refusal(Reason.INVALID_CLAIM, text, never=True)

    text = f"{counted(needed, 'member')} must share {claim}, which takes at most {most} pods"
    return Refusal(Reason.WAITING_FOR_VOLUMES, text, f"it has room for {left} more")


def timed_out(gang: Gang) -> Refusal:
    """Refusal of a gang whose members have the timeout annotation (semantics T3)."""
    text = (
        f"gang {gang.id} timed out earlier; to try again, delete the pods or remove the timeout"
        " annotation"
    )
    return Refusal(
        Reason.TIMED_OUT,
        text,
        f"{counted(len(gang.timed_out), 'pod')} {'has' if len(gang.timed_out) == 1 else 'have'} it",
        of=namespace_of(gang.id),
    )


def set_aside(gang_id: str) -> Refusal:
    """Refusal of a gang that an administrator set aside."""
    return Refusal(Reason.PAUSED, f"gang {gang_id} is set aside by an administrator")


def too_much_work(group: Group) -> Refusal:
    """Refusal of a group that exceeds the work of one decision (decision 47)."""
    pods = [pod for gang in group.gangs for pod in (*gang.pending, *gang.retry)]
    shapes = len({pod.shape for pod in pods})
    what = f"{counted(len(pods), 'pod')} with {counted(shapes, 'different specification')}"
    text = (
        f"planning takes too long for {what}: use fewer different requests, affinity terms and"
        " spread constraints"
    )

    return Refusal(Reason.UNSCHEDULABLE, text)


def wait_time_over(group: Group) -> Refusal:
    """Refusal when the wait time expires (semantics T2)."""
    text = (
        f"the wait time of {group.wait_time_s:g} s has expired, and all room held for the gang was"
        " released"
    )
    return Refusal(Reason.TIMED_OUT, text, lacking(group.gangs, {}))


def holding(pod: Pod, node: str, gang: Gang) -> Refusal:
    """Status of a pod that holds a node (semantics R3)."""
    return Refusal(
        Reason.HOLDING,
        f"pod {pod.key} holds room on node {node} and waits for the rest of gang {gang.id}",
    )


def holds_summary(
    group: Group,
    held: int,
    lack: str,
    failed: Sequence[tuple[Pod, Refusal]],
) -> Refusal:
    """Status of a group that holds nodes; `failed` are the members without a node and their
    refusals (semantics R3).
    """
    now = f"{counted(held, 'member')} {'holds' if held == 1 else 'hold'} a node, {lack}"
    if failed:
        pod, refused = failed[0]
        now += f"; pod {pod.key}: {refused.now or refused.message}"

    of = failed[0][0].namespace if failed else ""
    if not held:
        return Refusal(
            Reason.UNSCHEDULABLE,
            f"no node has room for any member of gang {group.id}",
            now,
            of=of,
        )

    text = f"gang {group.id} holds nodes for some members and waits for the others"
    return Refusal(Reason.HOLDING, text, now, of=of)


def lacking(gangs: Iterable[Gang], placed: Mapping[str, int]) -> str:
    """The number of members that each gang still needs; `placed` counts newly placed members by
    gang id.
    """
    short = {gang.id: gang.min_member - gang.counted(placed.get(gang.id, 0)) for gang in gangs}
    return "waiting for " + (
        ", ".join(f"{n} more of {name}" for name, n in short.items() if n > 0) or "its group"
    )


def holds_lost(nodes: Sequence[str]) -> Refusal:
    """Refusal of a group whose held nodes were removed (semantics R3)."""
    text = f"the room held on {named(nodes)} was lost; the members are placed again"
    return Refusal(Reason.UNSCHEDULABLE, text)


def strict_holds_nothing(number: int) -> Refusal:
    """Refusal when a group with holds has become Strict (semantics I5, T1)."""
    released = f"{counted(number, 'hold')} {'was' if number == 1 else 'were'} released"
    text = f"the group is now Strict and may not hold room while it waits; {released}"
    return Refusal(Reason.UNSCHEDULABLE, text)


def yielded(group: Group, beneficiary: str) -> Refusal:
    """Refusal of a group that released its holds for the group `beneficiary` (semantics D1)."""
    name = shown(beneficiary) if group.is_of(beneficiary) else "a group of another namespace"
    return Refusal(Reason.YIELDED, f"the group released its holds so that {name} can start")


def start_not_whole(gang_id: str, able: int, needed: int) -> str:
    """Why a bind is not sent although its node fits: the gang would start without members that it
    needs.
    """
    return (
        f"gang {gang_id} needs {counted(needed, 'member')}, but"
        f" {f'only {able}' if able else 'none'} can be bound now"
    )


def waiting_for_sibling(gang_id: str, cause: Refusal) -> Refusal:
    """Refusal of the other gangs of a group if one of them is not ready."""
    return Refusal(
        Reason.WAITING_FOR_GANG,
        f"waiting for gang {gang_id} of the same group",
        cause.text,
        of=cause.of,
    )


def children_missing(
    composite: Composite,
    ready: int,
    unready: tuple[Part, Refusal] | None,
) -> Refusal:
    """Refusal of a composite with too few ready children; `unready` is the first child that is not
    ready, with its refusal (I9).
    """
    least = composite.min_children
    lacks = f"{least - ready} {'is' if least - ready == 1 else 'are'} missing"

    if unready is not None:
        part, why = unready
        lacks = f"{'gang ' if isinstance(part, str) else ''}{part_id(part)}: {why.now or why.text}"

    of = f"{ready} of {least} needed {'child' if least == 1 else 'children'}"
    now = f"{of} {'is' if ready == 1 else 'are'} ready; {lacks}"
    return Refusal(Reason.WAITING_FOR_GANG, f"waiting for children of {composite.id}", now)


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
    found = "fit together" if proven else "could be placed together"
    text = f"no {lack} of the {ready} ready children of {composite.id} {found}; {first.message}"
    return replace(first, message=text)


def permitted(placed: int) -> Refusal:
    """Text of the verdict when `placed` members start; empty if it is 0."""
    text = "1 pod is placed" if placed == 1 else f"{placed} pods are placed" if placed else ""
    return Refusal(Reason.SCHEDULED, text)


def _needs_room(gang: Gang, needed: int) -> str:
    keys = gang.constraints.topology
    place = f" in one domain of {','.join(keys)}" if keys else ""

    if gang.constraints.slices:
        place += f" in slices of {format_slices(gang.constraints.slices)}"

    return f"gang {gang.id} needs room for {counted(needed, 'more pod')}{place}"


def _lacks_room(refused: Refusal) -> bool:
    return "Insufficient " in refused.now or "Too many pods" in refused.now


def _never(pod: Pod, short: Shortage) -> str:
    """Why no node ever takes `pod`; "" if one does when it is empty."""
    amounts = short.scarcest
    start = f"pod {pod.key} can never fit"

    if not short.nodes or short.empty_room:
        return ""
    if not amounts.never:
        return (
            f"{start}: it asks for {_asks(pod.shape)}, and no eligible node offers all of"
            f" it{_closed(short)}"
        )

    start += f": it asks for {_amount(amounts.resource, amounts.asked)}, and no"
    if short.instead:
        return f"{start} node offers any; nodes offer {', '.join(short.instead)}"

    most = f"more than {_amount(amounts.resource, amounts.offered)}" if amounts.offered else "any"
    return f"{start} eligible node offers {most}{_closed(short)}"


def _closed(short: Shortage) -> str:
    """` (nodes that are large enough were unschedulable)`; "" if there are none."""
    if short.closed:
        return f" (nodes that are large enough {' or '.join(short.closed)})"

    return ""


def _free(amounts: Amounts) -> str:
    """`12 nvidia.com/gpu are free in total, at most 6 on one node; the largest node has 8.`"""
    name = amounts.resource
    if not amounts.free_in_all:
        return (
            f"No {_noun(name)} is free; the largest node has"
            f" {format_quantity(name, amounts.offered)}."
        )

    in_all, on_one, offered = (
        format_quantity(name, each)
        for each in (amounts.free_in_all, amounts.free_on_one, amounts.offered)
    )
    return (
        f"{in_all} {_noun(name)} are free in total, at most {on_one} on one node; the largest node"
        f" has {offered}."
    )


def _asks(shape: Shape) -> str:
    """`4 cpu, 8 nvidia.com/gpu`; every pod asks for its place, so that is said only where it is
    all.
    """
    asked = [_amount(name, amount) for name, amount in shape.requests if name != PODS]
    return ", ".join(asked) or "no resources"


def _amount(name: str, amount: int) -> str:
    return f"{format_quantity(name, amount)} {_noun(name)}"


def _noun(name: str) -> str:
    return "pods" if name == PODS else name
