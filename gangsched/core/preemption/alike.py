"""Equal single pods that follow each other in the queue share one preemption attempt.

Invariant: each pod gets a node and its own victims; no victim belongs to two groups. Without this,
each of thousands of equal pods would make an attempt, which costs the plan a millisecond per node
and running pod.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import takewhile

from msgspec import structs

from gangsched.core.preemption.attempt import Found
from gangsched.core.preemption.preemptor import Preemptor
from gangsched.model.gang import Group, Placement
from gangsched.model.objects import Pod

MAX_TOGETHER = 32
"""Groups of one attempt: to commit so many nominations takes about as long as the
attempt itself.
"""


def is_single(group: Group) -> bool:
    """Whether the group is one plain pod without a hold."""
    gang = group.gangs[0]
    if len(group.gangs) != 1 or not gang.plain:
        return False
    if gang.retry or gang.kept or gang.held or gang.bound:
        return False

    return len(gang.pending) == 1


def alike_behind(group: Group, later: Sequence[Group]) -> list[Group]:
    """The groups at the beginning of `later` that are single pods equal to the pod of `group`."""
    pod = group.gangs[0].pending[0]

    def asks_the_same(other: Group) -> bool:
        if not is_single(other) or other.unchanged:
            return False

        other_pod = other.gangs[0].pending[0]
        return (
            other_pod.shape == pod.shape
            and other_pod.priority == pod.priority
            and other_pod.never_preempts == pod.never_preempts
            and other.avoid == group.avoid
            and other.broken == group.broken
        )

    return list(takewhile(asks_the_same, later))


def together(preemptors: Sequence[Preemptor]) -> Preemptor:
    """Merge the preemptors into one that needs all of their pods."""
    first = preemptors[0]
    (gang,) = first.gangs
    pods: list[Pod] = []
    for preemptor in preemptors:
        pods += preemptor.pods

    gang = structs.replace(gang, pending=tuple(pods))
    gang = structs.replace(gang, min_member=gang.counted(len(pods)))

    return Preemptor.of(structs.replace(first.group, gangs=(gang,)))


def shares(
    attempt: Found,
    preemptors: Sequence[Preemptor],
) -> list[Found] | None:
    """The part of the result `found` for each preemptor; None if it cannot be divided.

    On each node, the last preemptors get victims until they have enough room for their pods, and
    the first preemptors get the free room. The first preemptors also wait for the victims of the
    others, so that no victim is counted twice (V10).
    """
    chosen = attempt.candidate
    if chosen is None:
        return None

    units = chosen.of
    columns = chosen.of.columns

    # Priorities that differ could be the cheaper choice for all together, where one by one the
    # lowest go first (V8).
    priorities = {int(columns.priority[victim]) for victim in chosen.pods}
    if len(priorities) > 1:
        return None
    if chosen.cores or chosen.harm.gangs_stopped or chosen.harm.budgets_broken:
        return None

    victims: defaultdict[str, list[int]] = defaultdict(list)
    for victim in chosen.pods:
        node = columns.running[victim].node
        victims[node].append(victim)

    placements = {}
    nodes = set()
    for placement in attempt.placements:
        placements[placement.pod.uid] = placement
        nodes.add(placement.node)

    if len(placements) != len(preemptors) or victims.keys() - nodes:
        return None

    places = [placements[preemptor.pods[0].uid] for preemptor in preemptors]
    taken: dict[str, tuple[int, ...]] = {}

    # The last first: what the first ones do not get freed, they have as free room already.
    for place in reversed(places):
        taken[place.pod.uid] = _take(victims[place.node], place, attempt)

    for place in places:  # what is left of a node's victims goes with the first there
        left = victims.pop(place.node, [])
        taken[place.pod.uid] += tuple(left)

    parts = []
    for place in places:
        pods = sorted(taken[place.pod.uid])
        candidate = units.candidate(pods) if pods else None
        parts.append(Found((place,), candidate, awaited=True))

    return parts


def _take(
    left: list[int],
    place: Placement,
    attempt: Found,
) -> tuple[int, ...]:
    """Victims of those `left` on a node, taken off that list, until they free what the pod asks or
    none is left.
    """
    assert attempt.candidate is not None
    columns = attempt.candidate.of.columns
    taken = []

    asked = dict(place.pod.shape.requests)
    while left and any(amount > 0 for amount in asked.values()):
        victim = left.pop()
        taken.append(victim)

        freed = columns.running[victim].pod.shape.requests
        for name, amount in freed:
            if name in asked:
                asked[name] -= amount

    return tuple(taken)
