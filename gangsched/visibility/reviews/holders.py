"""Who holds what a gang lacks: gangs and pods of its own namespace by name, all others as a number.

Invariant: read-only, for a gang that does not start for lack of room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gangsched.core.diagnosis import shortage
from gangsched.core.filter import static_fit
from gangsched.core.placement_attempt import PlacementAttempt
from gangsched.core.reserve import Ledger
from gangsched.model.gang import PLAIN, Gang, namespace_of
from gangsched.model.objects import Shape
from gangsched.model.resources import format_quantity
from gangsched.model.verdict_facts import Amounts
from gangsched.state.hypothetical import Hypothetical
from gangsched.visibility.ports import Json
from gangsched.visibility.reviews.review import Reviewer, Tried

MOST_NAMED = 20
"""Gangs and pods that are named, those that hold most first."""


def holders(reviewer: Reviewer, tried: Tried, about: Hypothetical) -> Json | None:
    """Who uses the scarcest resource on the nodes that the gang may use; None if it lacks none, or
    if nobody uses it.
    """
    gang = _gang(tried, about)
    if gang is None or not gang.pending or not tried.verdict.needs:
        return None

    shape = gang.pending[0].shape
    scarcest = _scarcest(reviewer, tried, shape)
    waiting = sum(pod.shape is shape for pod in gang.pending)
    # It waits for something else, such as a claim; what its level lacks is not known here.
    if scarcest.takes >= waiting and not tried.group.topology:
        return None

    resource = scarcest.resource
    nodes = _eligible(tried, shape)
    namespace = namespace_of(gang.id)
    own: Counter[tuple[str, str]] = Counter()
    others: Counter[str] = Counter()

    for user, amount in _users(reviewer, resource, nodes):
        if namespace_of(user) != namespace:
            others[user] += amount
        elif user != gang.id:
            kind = "pod" if user.startswith(PLAIN) else "gang"
            name = user.partition("/")[2]
            own[kind, name] += amount

    if not own and not others:
        return None

    named: list[Json] = []
    for (kind, name), amount in own.most_common(MOST_NAMED):
        text = format_quantity(resource, amount)
        named.append({"kind": kind, "name": name, "amount": text})

    return {
        "resource": resource,
        "own": named,
        "ownCount": len(own),
        "others": {
            "count": len(others),
            "amount": format_quantity(resource, others.total()),
        },
    }


def _gang(tried: Tried, about: Hypothetical) -> Gang | None:
    wanted = about.gang or tried.group.id
    for gang in tried.group.gangs:
        if gang.id == wanted:
            return gang

    return None


def _users(
    reviewer: Reviewer,
    resource: str,
    nodes: frozenset[str],
) -> Iterator[tuple[str, int]]:
    """The gang, or the plain pod, of each pod on these nodes, and what it requests."""
    for member in reviewer.members():
        amount = dict(member.pod.shape.requests).get(resource, 0)
        if amount and member.node in nodes:
            yield member.gang or f"{PLAIN}{member.pod.key}", amount


def _scarcest(reviewer: Reviewer, tried: Tried, shape: Shape) -> Amounts:
    policy = reviewer.policy
    now = Ledger(tried.snapshot, policy=policy)
    empty = Ledger(tried.snapshot, empty=True, policy=policy)
    return shortage(shape, PlacementAttempt(tried.group, now), empty).scarcest


def _eligible(tried: Tried, shape: Shape) -> frozenset[str]:
    """Names of the nodes that pods of this shape may use."""
    table = tried.snapshot.table
    mask = static_fit(shape, table).mask
    names = set()
    for index in mask.nonzero()[0].tolist():
        names.add(table.nodes[index].name)

    return frozenset(names)
