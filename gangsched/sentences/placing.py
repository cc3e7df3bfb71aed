"""Sentences about refusals, holds and starts.

Invariant: the first part names the gang, the cause, and facts that do not change while the gang
waits; the second part has counts that change. A part ends without a full stop if more text may be
appended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import structs

from gangsched.model import verdict_facts as facts
from gangsched.model.gang import Refusal, shown
from gangsched.model.gpu_policy import SliceLayer
from gangsched.model.text import are_of, counted, is_or_are, named
from gangsched.model.verdict_facts import Fact
from gangsched.sentences.failing import internal_error
from gangsched.sentences.lack_of_room import (
    home_full,
    in_domains,
    member_fails,
    needs,
    no_node,
    no_node_for,
    room_short,
    when_empty,
)
from gangsched.sentences.preempting import being_preempted, evicting, nominated
from gangsched.sentences.wording import Sentences
from gangsched.sentences.words import named_amounts, nodes_available, who

NOTED = 70
"""Characters of a note that the headline has room for."""
NODE_CLOSED = "the node is gone, cordoned or full"

SayCause = Callable[[Refusal], Sentences]
"""Words a refusal that is the cause of another one."""


def worded(refusal: Refusal, say: SayCause) -> Sentences:
    """The sentences about the fact of a refusal."""
    return _worded(refusal.fact, never=refusal.never, say=say)


def _worded(fact: Fact, *, never: bool, say: SayCause) -> Sentences:
    match fact:
        case facts.Worded():
            return Sentences(fact.text, fact.now)
        case facts.NodeCounts():
            return Sentences("", details=(nodes_available(fact),))
        case facts.NoNode():
            return no_node(fact)
        case facts.HomeFull():
            return home_full(fact)
        case facts.RoomShort():
            return room_short(fact, never=never)
        case facts.MemberFails():
            return member_fails(fact, never=never)
        case facts.MemberHinders():
            return _member_hinders(fact, say)
        case facts.ResourcesShort():
            return _resources_short(fact, never=never)
        case facts.SlicesFail():
            return _slices_fail(fact)
        case facts.NoChoice():
            return _no_choice(fact, never=never, say=say)
        case _:
            return _of_group(fact, say)


def _of_group(fact: Fact, say: SayCause) -> Sentences:
    """Of facts about other gangs of the group, and about room that is held."""
    match fact:
        case facts.WaitsForSibling():
            return _waits_for_sibling(fact, say)
        case facts.ChildrenMissing():
            text, now = _children_missing(fact, say)
            return Sentences(text, now, lack=_too_few(fact.minimum))
        case facts.GroupHolds():
            return _group_holds(fact, say)
        case facts.HoldsNode():
            holds = f"pod {fact.pod} holds room on node {fact.node}"
            return Sentences(f"{holds} and waits for the rest of gang {fact.gang}")
        case facts.HoldsLost():
            nodes = named(fact.nodes)
            return Sentences(f"the room held on {nodes} was lost; the members are placed again")
        case facts.HoldsReleased():
            return Sentences(_holds_released(fact.number))
        case facts.Yielded():
            name = fact.beneficiary or "a group of another namespace"
            return Sentences(f"the group released its nodes so that {name} can start")
        case facts.OfAnotherNamespace():
            return Sentences("waiting for a gang of another namespace in the same group")
        case _:
            return _of_members(fact)


def _of_members(fact: Fact) -> Sentences:
    """Of facts about members and their claims."""
    match fact:
        case facts.MembersMissing():
            return _members_missing(fact)
        case facts.UncountedMembers():
            return Sentences(*_uncounted(fact))
        case facts.ClaimFull():
            text, now = _claim_full(fact)
            return Sentences(text, now, lack="it has no room for all of them")
        case facts.ClaimOfOnePod():
            return _claim_of_one_pod(fact)
        case facts.UnsupportedPod():
            return Sentences(f"pod {fact.pod} {'; '.join(fact.features)}")
        case facts.TimedOutEarlier():
            return Sentences(*_timed_out(fact))
        case facts.WaitTimeOver():
            return Sentences(*_wait_time_over(fact))
        case facts.Placed():
            return Sentences(_placed(fact.pods))
        case _:
            return _of_orders(fact)


def _of_orders(fact: Fact) -> Sentences:
    """Of facts about preemption, about the scheduler itself, and parts of others."""
    match fact:
        case facts.Nominated():
            return nominated(fact)
        case facts.BeingPreempted():
            return Sentences(being_preempted())
        case facts.Evicting():
            return Sentences(evicting())
        case facts.SetAsideByOrder():
            return Sentences(f"{who(fact.gang)} is set aside by an administrator")
        case facts.NotPlanned():
            return Sentences(internal_error(fact.reference))
        case facts.TooMuchWork():
            return Sentences(_too_much_work(fact))
        case facts.DeviceSearchEnded():
            when = "the gang is tried again when something changes"
            return Sentences(f"the search for devices was ended early; {when}")
        case (
            facts.NoDomainForSlice()
            | facts.FewSlices()
            | facts.SlicesScattered()
            | facts.SliceHomeFull()
            | facts.NoNodeHas()
        ):
            return Sentences("", _slices_lack(fact))

    raise AssertionError(fact)


def _no_choice(fact: facts.NoChoice, *, never: bool, say: SayCause) -> Sentences:
    verb = "fit together" if fact.proven else "could be placed together"
    first = _worded(fact.first, never=never, say=say)
    subject = f"no {fact.lack} of the {fact.ready} ready children of {shown(fact.composite)} {verb}"
    best = (first.best,) if first.best else ()
    return Sentences(subject, more=(first.stable,), details=(*best, *first.details))


def _waits_for_sibling(fact: facts.WaitsForSibling, say: SayCause) -> Sentences:
    cause = say(fact.cause)
    first = cause.first or cause.headline
    waits = f"waits for its sibling {fact.gang}"
    own = f"gang {fact.gang} "

    # The sibling is named once.
    text = f"{waits}: {first}"
    if first.startswith(own):
        text = f"{waits}, which {first.removeprefix(own)}"

    return structs.replace(cause, first=text, best=cause.best if cause.first else "")


def _claim_of_one_pod(fact: facts.ClaimOfOnePod) -> Sentences:
    claim = f"claim {fact.claim}" if fact.claim else "one claim"
    return Sentences(
        f"gang {fact.gang} can never start: {fact.needed} of its pods need {claim}, which only one"
        " pod may use (ReadWriteOncePod)",
        more=("give each pod a claim of its own, or use the access mode ReadWriteOnce",),
    )


def _holds_released(number: int) -> str:
    were = "was" if number == 1 else "were"
    return (
        "the group is now Strict and may not hold room while it waits;"
        f" {counted(number, 'hold')} {were} released"
    )


def _placed(pods: int) -> str:
    if not pods:
        return ""

    return f"{counted(pods, 'pod')} {is_or_are(pods)} placed"


# --- members that hinder ------------------------------------------------------------------------


def _member_hinders(fact: facts.MemberHinders, say: SayCause) -> Sentences:
    sentences = say(fact.cause)
    cause = sentences.stable or sentences.now.partition(" nodes are available: ")[2].removesuffix(
        "."
    )
    return Sentences(f"{who(fact.gang)} waits for pod {fact.pod}: {cause}")


def _resources_short(fact: facts.ResourcesShort, *, never: bool) -> Sentences:
    asked = named_amounts(fact.asked)
    short = named_amounts(fact.short)
    if never:
        offered = named_amounts(fact.offered)
        return Sentences(
            f"gang {fact.gang} can never start: its minResources are {asked}, and the eligible"
            f" nodes have {offered} even when empty",
            details=(f"{short} missing now",),
        )

    return Sentences(
        f"gang {fact.gang} needs its minResources ({asked}) free at the same time on eligible"
        " nodes",
        f"{short} missing",
        joint="; ",
        lack="not all of it is free",
    )


# --- slices -------------------------------------------------------------------------------------


def _slices_fail(fact: facts.SlicesFail) -> Sentences:
    text = needs(fact.need)
    lacks = _slices_best(fact.lack, fact.need.slices) if fact.lack is not None else ""
    domains = fact.domains
    details = (in_domains(domains),) if domains is not None and domains.number else ()

    if fact.when_empty is not None:
        most = fact.when_empty
        at_most = "at most " if fact.need.requests is None else ""
        never = (
            f"gang {fact.need.gang} can never start: the largest domain for a slice, {most.name},"
            f" holds {at_most}{most.number} of its pods {when_empty(most.limits, None)}"
        )
        return Sentences(never, more=(text,), details=details)

    if isinstance(fact.lack, facts.NoNodeHas):
        return Sentences(f"{text}; {lacks}", details=details)

    lack = no_node_for(fact.need.pods)
    return Sentences(text, lacks, details=details, joint="; ", lack=lack)


def _slices_best(lack: facts.SliceLack, layers: Sequence[SliceLayer]) -> str:
    """What is there for slices that the sentence has named before."""
    match lack:
        case facts.NoDomainForSlice():
            size = lack.size if len(layers) == 1 else counted(lack.size, "pod")
            return f"the best, {lack.best}, takes {_at_most(lack)}{lack.takes} of {size}"
        case facts.FewSlices():
            of_size = "" if len(layers) == 1 else f" of {counted(lack.size, 'pod')}"
            fits = "fits" if lack.room == 1 else "fit"
            return f"{_at_most(lack)}{lack.room} of {lack.needed} slices{of_size} {fits}"
        case _:
            return _slices_lack(lack)


def _slices_lack(lack: facts.SliceLack) -> str:
    match lack:
        case facts.NoDomainForSlice():
            slice_ = f"a slice of {counted(lack.size, 'pod')}"
            best = f"the best, {lack.best}, takes {_at_most(lack)}{lack.takes}"
            return f"no {lack.level} takes {slice_}; {best}"
        case facts.FewSlices():
            slices = f"{lack.needed} slices of {counted(lack.size, 'pod')}"
            fits = "fits" if lack.room == 1 else "fit"
            return f"{_at_most(lack)}{lack.room} of {slices}, each in one {lack.level}, {fits}"
        case facts.SlicesScattered():
            return f"room is too scattered over the domains of {' and '.join(lack.levels)}"
        case facts.SliceHomeFull():
            return (
                f"{lack.domain}, where the other pods of its slice are, takes {lack.room} of"
                f" {counted(lack.needed, 'pod')}"
            )
        case facts.NoNodeHas():
            return f"no node has the label {lack.level}"


def _at_most(lack: facts.NoDomainForSlice | facts.FewSlices) -> str:
    return "at most " if lack.at_most else ""


# --- members ------------------------------------------------------------------------------------


def _members_missing(fact: facts.MembersMissing) -> Sentences:
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

    ready = f"{fact.ready} of {fact.minimum} {is_or_are(fact.minimum)} ready"
    counted_members = "; ".join((ready, *parts))
    text = f"waiting for members of gang {fact.gang}"

    # The counts of members belong to the headline, too.
    # A note may ask for members of each task, in whose stead any number of others may be ready.
    too_few = "not all of them are ready" if fact.note else _too_few(fact.minimum)
    if len(fact.note) > NOTED:
        return Sentences(text, counted_members, more=(fact.note,), lack=too_few)

    noted = f" ({fact.note})" if fact.note else ""
    return Sentences(text + noted, counted_members, lack=too_few)


def _too_few(minimum: int) -> str:
    """How many of members or children there are, whatever their number."""
    return "the 1 that it needs is not ready" if minimum == 1 else f"fewer than {minimum} are ready"


def _uncounted(fact: facts.UncountedMembers) -> tuple[str, str]:
    text = (
        f"waiting for members of gang {fact.gang}, whose match policy {fact.policy} counts only"
        " some of the existing ones"
    )
    lack = counted(fact.lack, "more pending member")
    return text, f"{lack} {is_or_are(fact.lack)} needed"


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
    subject = who(fact.gang)
    is_pod = not subject.startswith("gang ")
    pods = "it" if is_pod else "the pods"
    text = (
        f"{subject} timed out earlier; to try again, delete {pods} or remove the timeout annotation"
    )
    if is_pod:
        return text, ""

    return text, f"{counted(fact.pods, 'pod')} {'has' if fact.pods == 1 else 'have'} it"


def _too_much_work(fact: facts.TooMuchWork) -> str:
    what = f"{counted(fact.pods, 'pod')} with {counted(fact.shapes, 'different specification')}"
    return (
        f"planning takes too long for {what}: use fewer different requests, affinity terms and"
        " spread constraints"
    )


def _wait_time_over(fact: facts.WaitTimeOver) -> tuple[str, str]:
    text = (
        f"the wait time of {fact.seconds:.15g} s has expired, and all room held for the gang was"
        " released"
    )
    return text, _lacking(fact.lacking)


def _group_holds(fact: facts.GroupHolds, say: SayCause) -> Sentences:
    lacking = _lacking(fact.lacking)
    details: tuple[str, ...] = ()
    if fact.refused is not None:
        details = (f"pod {fact.pod}: {say(fact.refused).text}",)
    if not fact.held:
        none = f"no node has room for any member of gang {fact.group}"
        return Sentences(none, lacking, details=details)

    members = counted(fact.held, "member")
    hold = "holds" if fact.held == 1 else "hold"
    return Sentences(
        f"gang {fact.group} holds nodes for some members and waits for the others",
        f"{members} {hold} a node, {lacking}",
        details=details,
    )


def _lacking(lacking: tuple[tuple[str, int], ...]) -> str:
    listed = ", ".join(f"{counted(number, 'more pod')} of {gang}" for gang, number in lacking)
    return f"waiting for {listed or 'its group'}"


def _children_missing(fact: facts.ChildrenMissing, say: SayCause) -> tuple[str, str]:
    least = fact.minimum
    lacking = least - fact.ready
    lacks = f"{lacking} {is_or_are(lacking)} missing"

    if fact.cause is not None:
        why = say(fact.cause)
        lacks = f"{'gang ' if fact.is_gang else ''}{shown(fact.part)}: {why.now or why.stable}"

    share = f"{fact.ready} of {least} needed {'child' if least == 1 else 'children'}"
    now = f"{share} {are_of(fact.ready, least)} ready; {lacks}"
    text = f"waiting for children of {shown(fact.composite)}"
    text += f" ({fact.note})" if fact.note else ""
    return text, now


def start_not_whole(gang_id: str, able: int, needed: int) -> str:
    """Why a bind is not sent although its node fits: the gang would start without members that it
    needs.
    """
    return (
        f"gang {gang_id} needs {counted(needed, 'member')}, but"
        f" {f'only {able}' if able else 'none'} can be bound now"
    )
