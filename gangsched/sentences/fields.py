"""The facts of a refusal as fields of the gangs API (`status.facts`, docs/visibility.md).

Invariant: pure. Each field is the value of a fact, or a difference that its sentence words, too:
there is no second spelling of anything. A field has the same meaning whichever fact it comes from;
one that says nothing is left out.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

from gangsched.api.slice_layers import format_slices
from gangsched.api.timestamps import format_timestamp
from gangsched.model import verdict_facts as facts
from gangsched.model.gang import Refusal
from gangsched.model.preemption import NotHelpful, Obstacle
from gangsched.model.resources import PODS, ResourceVector, format_quantity
from gangsched.model.verdict_facts import Fact
from gangsched.model.wait_facts import (
    AwaitsClaims,
    GangAwaitsBinds,
    GangAwaitsClaims,
    SchedulingPaused,
    UnboundClaim,
)
from gangsched.sentences.times import minute_by

Json: TypeAlias = dict[str, object]
REMEMBERED = 4_096
"""Refusals whose fields are kept: a list of gangs asks for the same ones again and again."""


@lru_cache(maxsize=REMEMBERED)
def fields(refusal: Refusal) -> Json:
    """The fields of a refusal. They are shared, so callers may not change them."""
    values: Json = _of_cause(refusal)
    obstacles = [_obstacle(detail) for detail in refusal.details if isinstance(detail, NotHelpful)]
    if obstacles:
        values["preemption"] = obstacles

    return values


def _of_cause(refusal: Refusal) -> Json:
    values = _of(refusal.fact)
    if refusal.never:
        values["never"] = True

    return values


def _of(fact: Fact) -> Json:
    match fact:
        case facts.NodeCounts():
            return {"nodes": _nodes(fact)}
        case facts.NoNode():
            return {
                "pod": fact.pod,
                "requests": _amounts(fact.requests),
                "nodes": _nodes(fact.nodes),
                "scarcest": _scarcest(fact.short),
            }
        case facts.HomeFull():
            return {
                "pod": fact.pod,
                "requests": _amounts(fact.requests),
                "home": _home(fact),
                "since": format_timestamp(fact.since_s),
            }
        case facts.RoomShort():
            return _room(fact)
        case facts.MemberFails():
            return _member(fact)
        case facts.ResourcesShort():
            resources: Json = {
                "requests": _amounts(fact.asked),
                "missing": _amounts(fact.short),
            }
            if fact.offered:
                resources["whenEmpty"] = _amounts(fact.offered)

            return {"gang": fact.gang, "minResources": resources}
        case facts.SlicesFail():
            return _slices(fact)
        case _:
            return _of_group(fact)


def _of_group(fact: Fact) -> Json:
    """Of facts that have the refusal of something else as their cause, and of holds."""
    match fact:
        case facts.MemberHinders():
            cause = _of_cause(fact.cause)
            placed: Json = {"gang": fact.gang, "pod": fact.pod, "fits": fact.placed}
            return cause | placed | _domains(fact.domains)
        case facts.NoChoice():
            choice: Json = {
                "name": fact.composite,
                "needed": fact.lack,
                "ready": fact.ready,
                "proven": fact.proven,
            }
            return _of(fact.first) | {"children": choice}
        case facts.ChildrenMissing():
            children: Json = {
                "name": fact.composite,
                "needed": fact.minimum,
                "ready": fact.ready,
            }
            if fact.part:
                children["waitsFor"] = fact.part

            cause = _of_cause(fact.cause) if fact.cause is not None else {}
            return cause | {"children": children}
        case facts.WaitsForSibling():
            return _of_cause(fact.cause) | {"sibling": fact.gang}
        case facts.GroupHolds():
            cause = _of_cause(fact.refused) if fact.refused is not None else {}
            holds: Json = {"pods": fact.held, "missing": dict(fact.lacking)}
            named: Json = {"pod": fact.pod} if fact.pod else {}
            return cause | named | {"holds": holds}
        case facts.HoldsNode():
            return {
                "gang": fact.gang,
                "pod": fact.pod,
                "holds": {"pods": 1, "nodes": [fact.node]},
            }
        case facts.HoldsLost():
            return {"holds": {"pods": 0, "lost": list(fact.nodes)}}
        case facts.HoldsReleased():
            return {"holds": {"pods": 0, "released": fact.number}}
        case facts.Yielded():
            return {"yieldedTo": fact.beneficiary} if fact.beneficiary else {}
        case _:
            return _of_members(fact)


def _of_members(fact: Fact) -> Json:
    """Of facts about members, their claims, and what they wait for."""
    match fact:
        case facts.MembersMissing():
            return {"gang": fact.gang, "members": _members(fact)}
        case facts.UncountedMembers():
            members: Json = {"matchPolicy": fact.policy, "missing": fact.lack}
            return {"gang": fact.gang, "members": members}
        case facts.ClaimFull():
            shared: Json = {"pods": fact.needed, "free": fact.left, "most": fact.most}
            return {"claims": [_named_claim(fact.claim) | shared]}
        case facts.ClaimOfOnePod():
            exclusive: Json = {"pods": fact.needed, "most": 1}
            return {"gang": fact.gang, "claims": [_named_claim(fact.claim) | exclusive]}
        case AwaitsClaims():
            return {
                "claims": [_claim(claim) for claim in fact.claims],
                "since": format_timestamp(fact.since_s),
                "holds": {"pods": 1, "nodes": [fact.node]},
            }
        case GangAwaitsClaims():
            return {
                "gang": fact.gang,
                "claims": [_claim(claim) for claim in fact.claims],
                "since": format_timestamp(fact.since_s),
                "holds": {"pods": fact.pods},
            }
        case GangAwaitsBinds():
            return {"gang": fact.gang, "binds": fact.binds}
        case facts.TimedOutEarlier():
            return {"gang": fact.gang, "timedOut": {"pods": fact.pods}}
        case facts.WaitTimeOver():
            over: Json = {"seconds": fact.seconds, "missing": dict(fact.lacking)}
            return {"timedOut": over}
        case facts.UnsupportedPod():
            return {"pod": fact.pod, "unsupported": list(fact.features)}
        case _:
            return _of_orders(fact)


def _of_orders(fact: Fact) -> Json:
    """Of facts about the scheduler itself, and of those without a value."""
    match fact:
        case facts.Nominated():
            return {"starts": _starts(fact)}
        case facts.NotPlanned():
            return {"internalError": fact.reference}
        case facts.TooMuchWork():
            return {"work": {"pods": fact.pods, "shapes": fact.shapes}}
        case SchedulingPaused():
            return {"pausedFor": fact.reason}
        case facts.SetAsideByOrder():
            return {"gang": fact.gang}
        case (
            facts.Worded()
            | facts.OfAnotherNamespace()
            | facts.Placed()
            | facts.BeingPreempted()
            | facts.Evicting()
            | facts.DeviceSearchEnded()
        ):
            return {}
        case (
            facts.NoDomainForSlice()
            | facts.FewSlices()
            | facts.SlicesScattered()
            | facts.SliceHomeFull()
            | facts.NoNodeHas()
        ):
            return {"slices": _slice_lack(fact)}

    raise AssertionError(fact)


# --- room ---------------------------------------------------------------------------------------


def _needs(need: facts.GangNeed) -> Json:
    values: Json = {"pods": need.pods}
    if need.further:
        values["further"] = True
    if need.requests is not None:
        values["requests"] = _amounts(need.requests)
    if need.levels:
        values["levels"] = list(need.levels)
    if need.slices:
        values["slices"] = format_slices(need.slices)

    return values


def _asked(fact: facts.RoomShort | facts.MemberFails) -> Json:
    return {
        "gang": fact.need.gang,
        "needs": _needs(fact.need),
        "pod": fact.pod,
        "requests": _amounts(fact.requests),
    }


def _room(fact: facts.RoomShort) -> Json:
    return {
        **_asked(fact),
        "fits": fact.room,
        "atMost": not fact.exact,
        "fitsWhenEmpty": fact.empty_room,
        **_limits(fact.limits),
        "nodes": _nodes(fact.nodes),
        "scarcest": _scarcest(fact.short),
    }


def _member(fact: facts.MemberFails) -> Json:
    values: Json = {
        **_asked(fact),
        "nodes": _nodes(fact.nodes),
        "scarcest": _scarcest(fact.short),
        **_domains(fact.domains),
    }
    if fact.domains is None:
        values["fits"] = fact.placed
        values["proven"] = fact.most
    if fact.devices is not None:
        values["devices"] = {
            "class": fact.devices.device_class,
            "asked": fact.devices.by_pod,
            "needed": fact.devices.needed,
            "free": fact.devices.free,
            "freeOnOneNode": fact.devices.on_one,
        }
    if fact.apart:
        values["apart"] = list(fact.apart)

    return values


def _scarcest(short: facts.Shortage) -> Json:
    amounts = short.scarcest
    name = amounts.resource

    def quantity(number: int) -> str:
        return format_quantity(name, number)

    values: Json = {
        "resource": name,
        "nodes": short.nodes,
        "asked": quantity(amounts.asked),
        "free": quantity(amounts.free_in_all),
        "freeOnOneNode": quantity(amounts.free_on_one),
        "offered": quantity(amounts.offered_in_all),
        "offeredOnOneNode": quantity(amounts.offered),
    }
    if short.closed:
        values["largerNodes"] = list(short.closed)
    if short.instead:
        values["instead"] = list(short.instead)

    return values


def _nodes(nodes: facts.NodeCounts) -> Json:
    values: Json = {"total": nodes.total, "eligible": nodes.eligible}
    if nodes.of_pod:
        values["cause"] = nodes.of_pod
    if nodes.excluded:
        values["excluded"] = [
            {"reason": count.reason, "nodes": count.nodes, "eligible": count.eligible}
            for count in nodes.excluded
        ]

    return values


def _domains(domains: facts.DomainsShort | None) -> Json:
    """`domains`, or nothing where none is required."""
    if domains is None:
        return {}

    values: Json = {
        "levels": list(domains.keys),
        "total": domains.number,
        "tooSmall": domains.few,
        "needed": domains.needed,
        "proven": domains.exact,
    }
    if domains.number:
        values |= {"best": domains.best, "takes": domains.takes, "atMost": domains.at_most}
    if domains.home:
        values["home"] = True
    if domains.when_empty is not None:
        values["whenEmpty"] = _when_empty(domains.when_empty)

    return {"requiredDomains": values}


def _when_empty(most: facts.WhenEmpty) -> Json:
    return {"best": most.name, "takes": most.number, **_limits(most.limits)}


def _limits(names: tuple[str, ...]) -> Json:
    return {"limitedBy": list(names)} if names else {}


def _home(fact: facts.HomeFull) -> Json:
    return {
        "domain": fact.home,
        "nodes": fact.nodes,
        "free": fact.free,
        "closed": fact.closed,
        "usedByLower": fact.lower,
    }


def _slices(fact: facts.SlicesFail) -> Json:
    lack = _slice_lack(fact.lack) if fact.lack is not None else {}
    if fact.when_empty is not None:
        lack["whenEmpty"] = _when_empty(fact.when_empty)

    return {
        "gang": fact.need.gang,
        "needs": _needs(fact.need),
        "slices": lack,
        **_domains(fact.domains),
    }


def _slice_lack(lack: facts.SliceLack) -> Json:
    match lack:
        case facts.NoDomainForSlice():
            return {
                "levels": [lack.level],
                "size": lack.size,
                "best": lack.best,
                "takes": lack.takes,
                "atMost": lack.at_most,
            }
        case facts.FewSlices():
            return {
                "levels": [lack.level],
                "size": lack.size,
                "needed": lack.needed,
                "fits": lack.room,
                "atMost": lack.at_most,
            }
        case facts.SlicesScattered():
            return {"levels": list(lack.levels)}
        case facts.SliceHomeFull():
            return {"best": lack.domain, "takes": lack.room, "missing": lack.needed}
        case facts.NoNodeHas():
            return {"levels": [lack.level], "total": 0}

    raise AssertionError(lack)


# --- members, claims, preemption ----------------------------------------------------------------


def _members(fact: facts.MembersMissing) -> Json:
    values: Json = {"min": fact.minimum, "ready": fact.ready}
    others = {
        "gated": fact.gated,
        "otherScheduler": fact.foreign,
        "missing": fact.missing,
        "terminating": fact.terminating,
    }
    for name, number in others.items():
        if number > 0:
            values[name] = number

    return values


def _claim(claim: UnboundClaim) -> Json:
    values: Json = {
        "kind": "ResourceClaim" if claim.devices else "PersistentVolumeClaim",
        "name": claim.name,
    }
    if claim.storage_class:
        values["storageClass"] = claim.storage_class

    return values


def _named_claim(name: str) -> Json:
    """A claim that is named only to its own namespace."""
    return {"name": name} if name else {}


def _starts(fact: facts.Nominated) -> Json:
    return {
        "nodes": list(fact.nodes),
        "pods": fact.pods,
        "after": [
            {
                "kind": "gang" if ending.is_gang else "pod",
                "name": ending.name,
                "pods": ending.pods,
            }
            for ending in fact.named
        ],
        "givesUpAt": format_timestamp(minute_by(fact.until_s)),
    }


def _obstacle(why: NotHelpful) -> Json:
    """Why preemption does not help, with the numbers that its sentence has."""
    values: Json = {"obstacle": _camel(why.why)}
    match why.why:
        case Obstacle.TOO_LITTLE:
            values |= {"pods": why.pods, "fits": why.room, "needed": why.needed}
        case Obstacle.BUDGET:
            values |= {"allowed": why.allowed, "needed": why.needed}
            if why.pods:
                values["pods"] = why.pods
        case Obstacle.TOO_YOUNG:
            values |= {"running": why.pods, "seconds": why.seconds}
        case Obstacle.TOO_MANY:
            values |= {"pods": why.pods, "allowed": why.needed}
        case Obstacle.NOTHING_LOWER if why.name:
            values["priority"] = why.amount
        case Obstacle.DELAYED:
            values["until"] = format_timestamp(minute_by(why.amount))
        case Obstacle.OTHER_SCHEDULERS:
            values["amount"] = format_quantity(why.name, why.amount)
        case _:
            pass

    if why.name and why.why in _NAMED:
        values["name"] = why.name

    return values


_NAMED = frozenset({Obstacle.NOTHING_LOWER, Obstacle.BUDGET, Obstacle.OTHER_SCHEDULERS})
"""Obstacles whose `name` is that of an object or a resource."""


def _camel(why: Obstacle) -> str:
    """`TooLittle`."""
    return "".join(word.capitalize() for word in why.value.split("_"))


def _amounts(requests: ResourceVector) -> Json:
    # Each pod counts as one: that says nothing.
    return {name: format_quantity(name, number) for name, number in requests if name != PODS}
