"""Sentences about refusals, holds and starts.

Invariant: the first part names the gang, the cause, and facts that do not change while the gang
waits; the second part has counts that change. A part ends without a full stop if more text may be
appended.
"""

from __future__ import annotations

from collections.abc import Callable

from gangsched.api.slice_layers import format_slices
from gangsched.model import verdict_facts as facts
from gangsched.model.gang import Refusal
from gangsched.model.resources import ResourceVector, format_quantity
from gangsched.model.text import counted, named
from gangsched.model.verdict_facts import Amounts, DomainsShort, Fact, GangNeed, Shortage
from gangsched.sentences.failing import internal_error
from gangsched.sentences.preempting import being_preempted, evicting, nominated
from gangsched.sentences.words import amount, asks, nodes_available, noun

NODE_CLOSED = "the node is gone, cordoned or full"

SayCause = Callable[[Refusal], tuple[str, str]]
"""Words a refusal that is the cause of another one."""


def worded(refusal: Refusal, say: SayCause) -> tuple[str, str]:
    """The parts of the sentences about the fact of a refusal."""
    return _worded(refusal.fact, never=refusal.never, say=say)


def _worded(fact: Fact, *, never: bool, say: SayCause) -> tuple[str, str]:
    match fact:
        case facts.Worded():
            return fact.text, fact.now
        case facts.NodeCounts():
            return "", nodes_available(fact)
        case facts.NoNode():
            return _no_node(fact)
        case facts.RoomShort():
            return _room_short(fact)
        case facts.MemberFails():
            return _member_fails(fact, never=never)
        case facts.MemberHinders():
            return _member_hinders(fact, say)
        case facts.ResourcesShort():
            return _resources_short(fact, never=never)
        case facts.SlicesFail():
            return _slices_fail(fact)
        case facts.NoChoice():
            found = "fit together" if fact.proven else "could be placed together"
            first, now = _worded(fact.first, never=never, say=say)
            of = f"no {fact.lack} of the {fact.ready} ready children of {fact.composite} {found}"
            return f"{of}; {first}", now
        case (
            facts.NoDomainForSlice()
            | facts.FewSlices()
            | facts.SlicesScattered()
            | facts.SliceHomeFull()
            | facts.NoNodeHas()
        ):
            return "", _slices_lack(fact)
        case _:
            return _waiting(fact, say)


def _waiting(fact: Fact, say: SayCause) -> tuple[str, str]:
    """Of facts that are not about room on nodes."""
    match fact:
        case facts.MembersMissing():
            return _members_missing(fact)
        case facts.UncountedMembers():
            return _uncounted(fact)
        case facts.ClaimFull():
            return _claim_full(fact)
        case facts.UnsupportedPod():
            return f"pod {fact.pod} {'; '.join(fact.features)}", ""
        case facts.TimedOutEarlier():
            return _timed_out(fact)
        case facts.WaitTimeOver():
            return _wait_time_over(fact)
        case facts.WaitsForSibling():
            stable, now = say(fact.cause)
            text = f"{stable}: {now}" if stable and now else stable or now
            return f"waiting for gang {fact.gang} of the same group", text
        case facts.ChildrenMissing():
            return _children_missing(fact, say)
        case facts.GroupHolds():
            return _group_holds(fact, say)
        case facts.Nominated():
            return nominated(fact)
        case _:
            return _short(fact), ""


def _short(fact: Fact) -> str:
    """Of facts without counts that change."""
    match fact:
        case facts.SetAsideByOrder():
            return f"gang {fact.gang} is set aside by an administrator"
        case facts.NotPlanned():
            return internal_error(fact.reference)
        case facts.TooMuchWork():
            return _too_much_work(fact)
        case facts.DeviceSearchEnded():
            return (
                "the search for devices was ended early; the gang is tried again when something"
                " changes"
            )
        case facts.HoldsNode():
            return (
                f"pod {fact.pod} holds room on node {fact.node} and waits for the rest of gang"
                f" {fact.gang}"
            )
        case facts.HoldsLost():
            return f"the room held on {named(fact.nodes)} was lost; the members are placed again"
        case facts.HoldsReleased():
            were = "was" if fact.number == 1 else "were"
            return (
                "the group is now Strict and may not hold room while it waits;"
                f" {counted(fact.number, 'hold')} {were} released"
            )
        case facts.Yielded():
            name = fact.beneficiary or "a group of another namespace"
            return f"the group released its holds so that {name} can start"
        case facts.OfAnotherNamespace():
            return "waiting for a gang of another namespace in the same group"
        case facts.Placed():
            return _placed(fact.pods)
        case facts.BeingPreempted():
            return being_preempted()
        case facts.Evicting():
            return evicting()

    raise AssertionError(fact)


def _placed(pods: int) -> str:
    if not pods:
        return ""

    return f"{counted(pods, 'pod')} {'is' if pods == 1 else 'are'} placed"


# --- room on nodes ------------------------------------------------------------------------------


def _no_node(fact: facts.NoNode) -> tuple[str, str]:
    amounts = fact.short.scarcest
    now = nodes_available(fact.nodes)

    if amounts.free_on_one < amounts.asked <= amounts.offered:
        now += f" {_free(amounts)}"

    never = _never(fact.pod, fact.requests, fact.short)
    return never or f"pod {fact.pod} asks for {asks(fact.requests)}", now


def _room_short(fact: facts.RoomShort) -> tuple[str, str]:
    text = _needs_room(fact.need)
    short = fact.short
    now = f"there is room for {fact.room}."
    asking = (
        f", each asking for {asks(fact.requests)}"
        if fact.alike
        else f"; pod {fact.pod} asks for {asks(fact.requests)}"
    )

    if not short.nodes:
        text += f", but no node is eligible for pod {fact.pod}{_closed(short)}"
    elif never := _never(fact.pod, fact.requests, short):
        text += f", and {never}"
    elif fact.empty_room < fact.need.pods:
        text += (
            f"{asking}, and can never fit: even when empty, eligible nodes hold only"
            f" {fact.empty_room} of them{_closed(short)}"
        )
    else:
        text += asking
        now += f" {_free(short.scarcest)}"

    nodes = nodes_available(fact.nodes)
    now += f" {nodes[:1].upper()}{nodes[1:].rstrip('.')}."
    return text, now


def _member_fails(fact: facts.MemberFails, *, never: bool) -> tuple[str, str]:
    # The counts are not in the first part, because they change with each plan.
    now = f"{_far(fact)}; pod {fact.tried}: {nodes_available(fact.nodes)}"
    need = _needs_room(fact.need)
    text = f"{need}, but no node has room for pod {fact.pod}"

    if not fact.nodes.lacks_room:
        return text, now
    if never:
        return f"{need}, and {_never(fact.pod, fact.requests, fact.short)}", now

    return f"{text}, which asks for {asks(fact.requests)}", f"{now} {_free(fact.short.scarcest)}"


def _member_hinders(fact: facts.MemberHinders, say: SayCause) -> tuple[str, str]:
    stable, now = say(fact.cause)
    cause = stable or now.partition(" nodes are available: ")[2].removesuffix(".")
    return f"gang {fact.gang} waits for pod {fact.pod}: {cause}", _far(fact)


def _far(fact: facts.MemberFails | facts.MemberHinders) -> str:
    """How far the round came."""
    if fact.domains is not None:
        return _domains_short(fact.domains)

    return f"{fact.placed} of {fact.needed} pods could be placed"


def _domains_short(fact: DomainsShort) -> str:
    lacks = f"lacks room for {fact.lacks} of {counted(fact.needed, 'pod')}"
    if fact.home:
        return f"its other members are in {fact.best}, which {lacks}"

    left = fact.number - fact.few
    torn = f"{'is' if left == 1 else 'are'} too fragmented" if fact.exact else "could not be filled"
    have = "has" if fact.few == 1 else "have"
    causes = [f"{fact.few} {have} too little free capacity in total"] if fact.few else []
    causes += [f"{left} {torn}"] if left else []

    of_all = f"of {counted(fact.number, 'domain')}, {' and '.join(causes)}"
    return f"no domain has room: the best, {fact.best}, {lacks}; {of_all}"


def _resources_short(fact: facts.ResourcesShort, *, never: bool) -> tuple[str, str]:
    asked = ", ".join(amount(name, number) for name, number in fact.asked)
    text = (
        f"gang {fact.gang} needs its minResources ({asked}) to be free at the same time on eligible"
        " nodes"
    )
    if never:
        text += ", and can never start: even when empty, these nodes offer less"

    short = ", ".join(f"{format_quantity(name, number)} {name}" for name, number in fact.short)
    return text, f"{short} missing."


# --- slices -------------------------------------------------------------------------------------


def _slices_fail(fact: facts.SlicesFail) -> tuple[str, str]:
    text = _needs_room(fact.need)
    if fact.takes is not None:
        number, name = fact.takes
        text += (
            f", and can never fit: even when empty, the largest domain, {name}, holds only "
            f"{counted(number, 'pod')} of a slice"
        )

    lacks = _slices_lack(fact.lack) if fact.lack is not None else ""
    note = _domains_short(fact.domains) if fact.domains is not None else ""
    return text, f"{note}; {lacks}" if note else lacks


def _slices_lack(lack: facts.SliceLack) -> str:
    match lack:
        case facts.NoDomainForSlice():
            return (
                f"no domain of {lack.level} has room for a slice of {counted(lack.size, 'pod')}:"
                f" the best, {lack.best}, has room for {lack.takes}"
            )
        case facts.FewSlices():
            return (
                f"domains of {lack.level} have room for {lack.room} of {lack.needed} slices of"
                f" {counted(lack.size, 'pod')}"
            )
        case facts.SlicesScattered():
            return f"domains of {', '.join(lack.levels)} are too fragmented for its slices"
        case facts.SliceHomeFull():
            return (
                f"{lack.domain}, where the other members of its slice are, has room for"
                f" {lack.room} of {counted(lack.needed, 'pod')}"
            )
        case facts.NoNodeHas():
            return f"no node has the label {lack.level}"


# --- members ------------------------------------------------------------------------------------


def _members_missing(fact: facts.MembersMissing) -> tuple[str, str]:
    counts = (
        (fact.gated, "is gated", "are gated"),
        (fact.foreign, "has another schedulerName", "have another schedulerName"),
        (fact.missing, "is missing", "are missing"),
        (
            fact.terminating,
            "is being deleted and does not count",
            "are being deleted and do not count",
        ),
    )
    parts = []

    for number, one, many in counts:
        if number > 0:
            parts.append(f"{number} {one if number == 1 else many}")

    text = f"waiting for members of gang {fact.gang}"
    text += f" ({fact.note})" if fact.note else ""
    return text, "; ".join((f"{fact.ready} of {fact.minimum} are ready", *parts))


def _uncounted(fact: facts.UncountedMembers) -> tuple[str, str]:
    text = (
        f"waiting for members of gang {fact.gang}, whose match policy {fact.policy} counts only"
        " some of the existing ones"
    )
    are = "is" if fact.lack == 1 else "are"
    return text, f"{counted(fact.lack, 'more pending member')} {are} needed"


def _claim_full(fact: facts.ClaimFull) -> tuple[str, str]:
    claim = f"resourceclaim {fact.claim}" if fact.claim else "a resourceclaim"
    if fact.needed > fact.most:
        text = (
            f"{fact.needed} members must share {claim}, and at most {fact.most} pods can use one"
            " claim: use several claims"
        )
        return text, ""

    members = counted(fact.needed, "member")
    text = f"{members} must share {claim}, which takes at most {fact.most} pods"
    return text, f"it has room for {fact.left} more"


def _timed_out(fact: facts.TimedOutEarlier) -> tuple[str, str]:
    text = (
        f"gang {fact.gang} timed out earlier; to try again, delete the pods or remove the timeout"
        " annotation"
    )
    return text, f"{counted(fact.pods, 'pod')} {'has' if fact.pods == 1 else 'have'} it"


def _too_much_work(fact: facts.TooMuchWork) -> str:
    what = f"{counted(fact.pods, 'pod')} with {counted(fact.shapes, 'different specification')}"
    return (
        f"planning takes too long for {what}: use fewer different requests, affinity terms and"
        " spread constraints"
    )


def _wait_time_over(fact: facts.WaitTimeOver) -> tuple[str, str]:
    text = (
        f"the wait time of {fact.seconds:g} s has expired, and all room held for the gang was"
        " released"
    )
    return text, _lacking(fact.lacking)


def _group_holds(fact: facts.GroupHolds, say: SayCause) -> tuple[str, str]:
    members = counted(fact.held, "member")
    hold = "holds" if fact.held == 1 else "hold"
    now = f"{members} {hold} a node, {_lacking(fact.lacking)}"

    if fact.refused is not None:
        stable, its_now = say(fact.refused)
        now += f"; pod {fact.pod}: {its_now or stable}"
    if not fact.held:
        return f"no node has room for any member of gang {fact.group}", now

    return f"gang {fact.group} holds nodes for some members and waits for the others", now


def _lacking(lacking: tuple[tuple[str, int], ...]) -> str:
    each = ", ".join(f"{number} more of {gang}" for gang, number in lacking)
    return f"waiting for {each or 'its group'}"


def _children_missing(fact: facts.ChildrenMissing, say: SayCause) -> tuple[str, str]:
    least = fact.minimum
    lacking = least - fact.ready
    lacks = f"{lacking} {'is' if lacking == 1 else 'are'} missing"

    if fact.cause is not None:
        stable, its_now = say(fact.cause)
        lacks = f"{'gang ' if fact.is_gang else ''}{fact.part}: {its_now or stable}"

    of = f"{fact.ready} of {least} needed {'child' if least == 1 else 'children'}"
    now = f"{of} {'is' if fact.ready == 1 else 'are'} ready; {lacks}"
    return f"waiting for children of {fact.composite}", now


def start_not_whole(gang_id: str, able: int, needed: int) -> str:
    """Why a bind is not sent although its node fits: the gang would start without members that it
    needs.
    """
    return (
        f"gang {gang_id} needs {counted(needed, 'member')}, but"
        f" {f'only {able}' if able else 'none'} can be bound now"
    )


# --- parts of sentences -------------------------------------------------------------------------


def _needs_room(need: GangNeed) -> str:
    place = f" in one domain of {','.join(need.levels)}" if need.levels else ""
    if need.slices:
        place += f" in slices of {format_slices(need.slices)}"

    return f"gang {need.gang} needs room for {counted(need.pods, 'more pod')}{place}"


def _never(pod: str, requests: ResourceVector, short: Shortage) -> str:
    """Why no node ever takes `pod`; "" if one does when it is empty."""
    amounts = short.scarcest
    start = f"pod {pod} can never fit"

    if not short.never:
        return ""
    if not amounts.never:
        return (
            f"{start}: it asks for {asks(requests)}, and no eligible node offers all of"
            f" it{_closed(short)}"
        )

    start += f": it asks for {amount(amounts.resource, amounts.asked)}, and no"
    if short.instead:
        return f"{start} node offers any; nodes offer {', '.join(short.instead)}"

    most = f"more than {amount(amounts.resource, amounts.offered)}" if amounts.offered else "any"
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
            f"No {noun(name)} is free; the largest node has"
            f" {format_quantity(name, amounts.offered)}."
        )

    in_all, on_one, offered = (
        format_quantity(name, each)
        for each in (amounts.free_in_all, amounts.free_on_one, amounts.offered)
    )
    return (
        f"{in_all} {noun(name)} are free in total, at most {on_one} on one node; the largest node"
        f" has {offered}."
    )
