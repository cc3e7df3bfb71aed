"""Sentences about gangs and pods that find no room on nodes.

Invariant: the headline says what is needed, the best there is and what is in the way; "can never
start" only where the facts prove it.
"""

from __future__ import annotations

from functools import lru_cache

from gangsched.api.timestamps import format_timestamp
from gangsched.model.resources import PODS, ResourceVector, format_quantity
from gangsched.model.text import are_of, counted, is_or_are
from gangsched.model.verdict_facts import (
    Amounts,
    DevicesShort,
    DomainsShort,
    GangNeed,
    HomeFull,
    MemberFails,
    NodeCounts,
    NoNode,
    RoomShort,
    Shortage,
)
from gangsched.sentences.wording import Sentences
from gangsched.sentences.words import EQUAL, amount, named_amounts, nodes_available, principal

SELECTED = "node(s) didn't match Pod's node affinity/selector"
TAINTED = "node(s) had untolerated taint(s)"
CORDONED = "node(s) were unschedulable"
APART = {
    "node(s) didn't match pod anti-affinity rules": "pod anti-affinity",
    "node(s) didn't satisfy existing pods anti-affinity rules": "pod anti-affinity",
    "node(s) didn't match pod topology spread constraints": "topology spread",
    "node(s) didn't have free ports for the requested pod ports": "host ports",
}
"""Reasons for which members exclude each other."""
ALL_OF_IT = "no eligible node has free all that a pod asks for"
NO_NODE = "no node takes it"


def no_node(fact: NoNode) -> Sentences:
    """Of a single pod; kube-scheduler's sentence is put first by who reports it."""
    text = nodes_available(fact.nodes)
    if fact.short.never:
        first = f"pod {fact.pod} can never start: {_too_large(fact.requests, fact.short)}"
        return Sentences(first, details=(text, *_closed(fact.short)))

    first = f"pod {fact.pod} asks for {_asked(fact.requests)}"
    amounts = fact.short.scarcest
    if amounts.free_on_one >= amounts.asked:
        return Sentences(first, NO_NODE, details=(text,), joint="; ", lack=NO_NODE)

    best = _none_has(fact.requests, fact.short.scarcest)
    details = (text, _free(fact.short, fact.nodes))
    return Sentences(first, best, details=details, joint="; ", lack=NO_NODE)


def home_full(fact: HomeFull) -> Sentences:
    """Of a member that may not leave its gang's home (L6)."""
    since = format_timestamp(fact.since_s // 60 * 60, seconds=False)
    waits = f"{fact.pod} waits for room in {fact.home} since {since}"

    used = fact.nodes - fact.free - fact.closed - fact.lower
    causes: list[str] = []
    if fact.closed:
        causes.append(f"{fact.closed} {is_or_are(fact.closed)} closed")
    if used:
        causes.append(f"{used} {is_or_are(used)} used by work of equal or higher priority")
    if fact.lower:
        lower = f"{fact.lower} {is_or_are(fact.lower)} used by work of lower priority"
        causes.append(f"{lower}, too")

    are = are_of(fact.free, fact.nodes)
    free = f"{fact.free} of {counted(fact.nodes, 'node')} there {are} free"
    asks = f"it asks for {_asked(fact.requests)}"
    return Sentences(waits, free, details=(", ".join(causes), asks), lack=no_node_for(1))


def room_short(fact: RoomShort, *, never: bool) -> Sentences:
    """Of a gang that does not fit by totals (P4)."""
    short = fact.short
    gang = fact.need.gang
    nodes = nodes_available(fact.nodes)
    details = (nodes,) if fact.nodes.total else ()

    if not short.nodes:
        first = f"{needs(fact.need)}; {_none_eligible(fact)}"
        reasons = {count.reason for count in fact.nodes.excluded}
        # Of taints the headline does not say which ones these are.
        is_clear = reasons in ({SELECTED}, {CORDONED})
        return Sentences(first, more=() if is_clear else _closed(short), details=details)

    if short.never:
        first = f"gang {gang} can never start: {_whose(fact.need, fact.pod)}"
        first += _too_large(fact.requests, short).removeprefix("it ")
        return Sentences(first, more=_closed(short), details=details)

    if never:
        pods = _limited_pods(fact.need, fact.limits)
        only = f"at most {fact.empty_room}" if fact.need.requests is None else fact.empty_room
        empty = when_empty(fact.limits, fact.need.requests)
        hold = f"the eligible nodes hold {only} {empty}"
        first = f"gang {gang} can never start: it needs {pods}, and {hold}"
        return Sentences(first, more=_closed(short), details=details)

    first = needs(fact.need)
    if fact.need.requests is None:
        first += f"; pod {fact.pod} asks for {_asked(fact.requests)}"

    lack = no_node_for(fact.need.pods)
    best = _best(fact)
    if best == _free_short(fact.requests, short.scarcest, fact.nodes):
        # The headline says already what is free.
        return Sentences(first, best, details=details, joint="; ", lack=lack)

    free = _free(short, fact.nodes)
    if best.endswith(ALL_OF_IT):
        free = f"{_whose(fact.need, fact.pod)}asks for {_all_of(fact.requests)}"

    # Else "3 fit" and "4 Insufficient" of 4 nodes would contradict each other.
    left = f"after those, {nodes}" if fact.room else nodes
    return Sentences(first, best, details=(free, left), joint="; ", lack=lack)


def _none_eligible(fact: RoomShort) -> str:
    """Why no node may be used, whatever runs there: the one cause of all nodes, if there is one."""
    if not fact.nodes.total:
        return "there are no nodes"

    pod = f"pod {fact.pod}"
    reasons = {count.reason for count in fact.nodes.excluded}
    if reasons == {SELECTED}:
        return f"no node matches the node selector or affinity of {pod}"
    if reasons == {TAINTED}:
        return f"{pod} tolerates no node's taints"
    if reasons == {CORDONED}:
        return "all nodes are cordoned"

    return f"no node is eligible for {pod}"


def _best(fact: RoomShort) -> str:
    """How many pods fit now, and what the next one does not find."""
    amounts = fact.short.scarcest
    room = fact.room
    if fact.need.requests is None or not fact.exact:
        return f"at most {room} {'fits' if room == 1 else 'fit'}" if room else "none fits"

    lacks = _none_has(fact.requests, amounts)
    if not room and amounts.free_on_one < amounts.asked:
        if fact.nodes.eligible == fact.nodes.total:
            return lacks

        return _free_short(fact.requests, amounts, fact.nodes)

    fit = f"{room} {'fits' if room == 1 else 'fit'}" if room else "none fits"
    # Only then is this resource alone what the next pod lacks.
    if amounts.takes == room:
        return f"{fit}, then {lacks}"

    others = [
        f"{count.nodes} {count.reason}"
        for count in fact.nodes.excluded
        if count.eligible and not count.is_lack
    ]
    if others:
        return f"{fit} now; {', '.join(others)}"

    # Each node lacks something, and they do not lack the same.
    return f"{fit}, then {ALL_OF_IT}" if room else ALL_OF_IT


@lru_cache(maxsize=EQUAL)
def _free_short(requests: ResourceVector, amounts: Amounts, nodes: NodeCounts) -> str:
    name = amounts.resource
    free = format_quantity(name, amounts.free_in_all)
    offered = format_quantity(name, amounts.offered_in_all)
    unit = "" if _is_plain(requests, name) else f" {name}"
    if name == PODS:
        unit = " places for pods"

    most = format_quantity(name, amounts.free_on_one)
    at_most = f", at most {most} on one" if amounts.free_in_all > amounts.free_on_one else ""
    return f"{free} of {offered}{unit} are free on {_which(nodes)}{at_most}"


def member_fails(fact: MemberFails, *, never: bool) -> Sentences:
    """Of a gang whose round failed (R2)."""
    nodes = nodes_available(fact.nodes)
    domains = fact.domains
    if domains is not None:
        return _domain_fails(fact, domains)

    if never:
        first = f"gang {fact.need.gang} can never start: {_whose(fact.need, fact.pod)}"
        first += _too_large(fact.requests, fact.short).removeprefix("it ")
        return Sentences(first, more=_closed(fact.short), details=(nodes,))

    if fact.devices is not None:
        return _devices_short(fact, fact.devices)

    fit = f"{_placed_of_all(fact)} {'fit' if fact.most else 'could be placed'}"
    after = "after those, " if fact.placed else ""
    details = [f"{after}pod {fact.tried}: {nodes}"]
    excluded = [count for count in fact.nodes.excluded if count.eligible]
    first = needs(fact.need)
    if fact.need.requests is None:
        first += f"; pod {fact.pod} asks for {_asked(fact.requests)}"

    if fact.placed and fact.alone and fact.apart:
        best = f"{fit}; the next finds no node without another member"
        whys = dict.fromkeys(APART.get(reason, reason) for reason in fact.apart)
        return Sentences(
            first,
            best,
            more=(f"its members exclude each other: {', '.join(whys)}",),
            details=tuple(details),
            joint="; ",
            lack=no_node_for(fact.need.pods),
        )

    resource = fact.short.scarcest.resource
    is_short_of = "Too many pods" if resource == PODS else f"Insufficient {resource}"
    if fact.nodes.lacks_room:
        details.insert(0, _free(fact.short, fact.nodes))

    best = f"no node takes {_which_pod(fact)}"
    if excluded and all(count.reason == is_short_of for count in excluded):
        best = _none_has(fact.requests, fact.short.scarcest)
    elif len(excluded) == 1 and not fact.nodes.lacks_room:
        best += f" ({excluded[0].nodes} {excluded[0].reason})"
    if fact.placed:
        best = f"{fit}, then {best}"

    lack = no_node_for(fact.need.pods)
    return Sentences(first, best, details=tuple(details), joint="; ", lack=lack)


def _placed_of_all(fact: MemberFails) -> str:
    if fact.needed == fact.need.pods:
        return f"{fact.placed} of {fact.needed}"

    return f"{fact.placed} of the {fact.needed} pods of its group"


def _which_pod(fact: MemberFails) -> str:
    """The pod that found no node; the headline may have named one that is equal to it before."""
    if fact.need.requests is not None:
        return f"pod {fact.tried}"

    return "it" if fact.tried == fact.pod else "another pod like it"


def _devices_short(fact: MemberFails, devices: DevicesShort) -> Sentences:
    """Of a gang that lacks devices alone."""
    asked = counted(devices.by_pod, "device")
    pods = _number_of_pods(fact.need)
    first = f"gang {fact.need.gang} needs {pods} of {asked} of class {devices.device_class}"
    counts = f"pod {fact.tried}: {nodes_available(fact.nodes)}"

    if not devices.free:
        best = "none that matches is free on eligible nodes"
    elif devices.on_one < devices.by_pod:
        best = f"no eligible node has more than {devices.on_one} free"
    elif devices.free < devices.needed:
        needed = f"the {devices.needed}"
        if fact.needed != fact.need.pods:
            needed += " that its group needs"

        best = f"{devices.free} of {needed} {is_or_are(devices.free)} free on eligible nodes"
    else:
        best = f"{_placed_of_all(fact)} could be placed, then no node has {devices.by_pod}"
        best += " that match"

    lack = no_node_for(fact.need.pods)
    return Sentences(first, best, details=(counts,), joint="; ", lack=lack)


def _domain_fails(fact: MemberFails, domains: DomainsShort) -> Sentences:
    """Of a gang that needs one domain."""
    key = " and ".join(domains.keys)
    who = f"gang {fact.need.gang}"
    pods = _pods(fact.need)
    is_alike = fact.need.requests is not None and domains.needed == fact.need.pods
    if domains.needed != fact.need.pods:
        # Several gangs need one domain together.
        who = f"the group of gang {fact.need.gang}"
        pods = f"{domains.needed} pods"

    need = f"{who} needs {pods} in one {key}"
    counts = f"pod {fact.tried}: {nodes_available(fact.nodes)}"
    takes = f"{'at most ' if domains.at_most else ''}{domains.takes}"

    if not domains.number:
        return Sentences(f"{need}; no node has the label {key}", details=(counts,))
    if domains.when_empty is not None:
        most = domains.when_empty
        number = f"at most {most.number}" if domains.at_most else most.number
        limited = _limited_pods(fact.need, most.limits) if is_alike else pods
        first = (
            f"{who} can never start: it needs {limited} in one {key}, and the best, {most.name},"
            f" takes {number} {when_empty(most.limits, fact.need.requests if is_alike else None)}"
        )
        return Sentences(first, details=(in_domains(domains), counts))

    details: tuple[str, ...] = (in_domains(domains), counts)
    if domains.home:
        best = f"its other pods are in {domains.best}, which takes {takes} of {domains.needed}"
        details = (counts,)
    elif domains.takes < domains.needed:
        best = f"the best, {domains.best}, takes {takes}"
    else:
        best = in_domains(domains)
        details = (counts,)

    return Sentences(need, best, details=details, joint="; ", lack=no_node_for(domains.needed))


def in_domains(domains: DomainsShort) -> str:
    """How many domains lack room, and what the others lack."""
    left = domains.number - domains.few
    of_all = f"of {domains.number} domains of {' and '.join(domains.keys)}"
    lack = f"{domains.few} {of_all} {'lacks' if domains.few == 1 else 'lack'} room"
    if not left:
        return lack

    torn = f"{'has' if left == 1 else 'have'} room, but too scattered"
    if not domains.exact:
        torn = "could not be filled"

    return f"{lack}, {left} {torn}" if domains.few else f"{left} {of_all} {torn}"


# --- parts of sentences -------------------------------------------------------------------------


def needs(need: GangNeed) -> str:
    """`gang ml/llm needs 3 pods of 4 cpu in one example.com/rack`."""
    place = f" in one {' and one '.join(need.levels)}" if need.levels else ""
    if need.slices:
        layers = (f"{layer.size}, each in one {layer.topology}" for layer in need.slices)
        place += f" in slices of {', and of '.join(layers)}"

    return f"gang {need.gang} needs {_pods(need)}{place}"


def no_node_for(pods: int) -> str:
    """What is there, whatever the counts: true of a search that gave up, too."""
    return "it found no node" if pods == 1 else "not all found a node"


def when_empty(limits: tuple[str, ...], requests: ResourceVector | None) -> str:
    """With the resources that limit pods on empty nodes, where the need does not name them: `when
    empty, for lack of cpu`. `requests` of each pod, None if they differ.
    """
    if limits == (PODS,):
        return "when empty, since each node takes few pods"
    if requests is not None or not limits:
        return "even when empty"

    return f"when empty, for lack of {' and '.join(name for name in limits if name != PODS)}"


def _limited_pods(need: GangNeed, limits: tuple[str, ...]) -> str:
    """The pods that a gang needs, with what limits them on empty nodes instead of what matters
    most: `4 pods of 20 cpu`.
    """
    limiting = tuple((name, number) for name, number in need.requests or () if name in limits)
    asked = named_amounts(tuple((name, number) for name, number in limiting if name != PODS))
    return f"{_number_of_pods(need)} of {asked}" if asked else _pods(need)


def _pods(need: GangNeed) -> str:
    pods = _number_of_pods(need)
    asked = _named_principal(need.requests or ())
    return f"{pods} of {asked}" if asked else pods


def _number_of_pods(need: GangNeed) -> str:
    """`3 more pods`."""
    more = "more " if need.further else ""
    return f"{need.pods} {more}{'pod' if need.pods == 1 else 'pods'}"


def _asked(requests: ResourceVector) -> str:
    return _named_principal(requests) or "no resources"


@lru_cache(maxsize=EQUAL)
def _named_principal(requests: ResourceVector) -> str:
    return named_amounts(principal(requests))


def _all_of(requests: ResourceVector) -> str:
    return named_amounts(tuple((name, number) for name, number in requests if name != PODS))


def _whose(need: GangNeed, pod: str) -> str:
    """The subject of a request, with its verb to come."""
    return "each pod " if need.requests is not None else f"pod {pod} "


def _too_large(requests: ResourceVector, short: Shortage) -> str:
    """Why no node ever takes such a pod."""
    amounts = short.scarcest
    if not amounts.never:
        return f"it asks for {_all_of(requests)}, and no eligible node has all of it"

    asked = amount(amounts.resource, amounts.asked)
    if amounts.resource == PODS:
        return "it is a pod, and no eligible node takes pods"
    if short.instead:
        return f"it asks for {asked}, and no node has any; nodes have {', '.join(short.instead)}"
    if not amounts.offered:
        return f"it asks for {asked}, and no eligible node has any"

    most = format_quantity(amounts.resource, amounts.offered)
    return f"it asks for {asked}, and no eligible node has more than {most}"


def _closed(short: Shortage) -> tuple[str, ...]:
    """Why nodes that are large enough are not eligible."""
    if short.closed:
        return (f"nodes that are large enough {' or '.join(short.closed)}",)

    return ()


@lru_cache(maxsize=EQUAL)
def _free(short: Shortage, nodes: NodeCounts) -> str:
    """`12 of 32 nvidia.com/gpu are free on the 4 nodes, at most 6 on one`."""
    amounts = short.scarcest
    name = amounts.resource
    free, offered, most = (
        format_quantity(name, number)
        for number in (amounts.free_in_all, amounts.offered_in_all, amounts.free_on_one)
    )
    unit = "places for pods" if name == PODS else name
    text = f"{free} of {offered} {unit} are free on {_which(nodes, short.nodes)}"
    if amounts.free_in_all > amounts.free_on_one:
        text += f", at most {most} on one"

    return text


@lru_cache(maxsize=EQUAL)
def _none_has(requests: ResourceVector, amounts: Amounts) -> str:
    """No node has the amount that is scarce, told without its unit where the need has just named
    it.
    """
    if amounts.resource == PODS:
        return "no eligible node takes more pods"

    asked = amount(amounts.resource, amounts.asked)
    if _is_plain(requests, amounts.resource):
        asked = format_quantity(amounts.resource, amounts.asked)

    return f"no eligible node has {asked} free"


def _is_plain(requests: ResourceVector, resource: str) -> bool:
    """Whether the resource is all that the need names."""
    return [name for name, _ in principal(requests)] == [resource]


def _which(nodes: NodeCounts, number: int | None = None) -> str:
    """`the 2 nodes that match its selector`."""
    eligible = nodes.eligible if number is None else number
    reasons = {count.reason for count in nodes.excluded if not count.eligible}
    one = eligible == 1
    them = "1 node" if one else f"{eligible} nodes"

    if eligible == nodes.total:
        return f"the {them}"
    if reasons == {SELECTED}:
        return f"the {them} that {'matches' if one else 'match'} its selector"
    if reasons == {TAINTED}:
        return f"the {them} whose taints it tolerates"
    if reasons == {CORDONED}:
        return f"the {them} that {'is' if one else 'are'} schedulable"

    return f"the {'eligible node' if one else f'{eligible} eligible nodes'}"
