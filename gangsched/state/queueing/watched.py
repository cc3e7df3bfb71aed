"""The needs of a parked group that are watched: a single one if it needs room for very many shapes.

Invariant: if there is room for all needs, there is room for the watched ones, so no group stays
parked wrongly. A group of thousands of shapes may be examined more often than necessary, but
parking it is cheap, while comparing all of 2,000 shapes with 5,000 nodes took 0.6 s.
"""

from __future__ import annotations

from collections.abc import Callable

from gangsched.model.objects import Shape, Toleration
from gangsched.model.plan import Need

MOST_WATCHED = 64
"""Needs of a group that are watched one by one; more different specifications in one gang
are rare.
"""
TOLERATES_ALL = (Toleration(operator="Exists"),)


def watched(needs: tuple[Need, ...], room_of: Callable[[Shape], int]) -> tuple[Need, ...]:
    """The needs to watch; `room_of` returns the number of pods of a shape that fit now.

    For a group with many needs, this is the need for which it was refused, while there is too
    little room for it, since no other room helps until then. Otherwise it is a need that is part of
    all others.
    """
    if len(needs) <= MOST_WATCHED:
        return needs
    if room_of(needs[0].shape) < needs[0].count:
        return needs[:1]

    shapes = [need.shape for need in needs]
    included = _included(shapes)
    return (Need(included, 0),)


def _included(shapes: list[Shape]) -> Shape:
    """A shape that fits wherever one of these does, and looks at other pods if one of
    these does.
    """
    least = dict(shapes[0].requests)
    for shape in shapes[1:]:
        requests = dict(shape.requests)
        least = {
            name: min(amount, requests[name]) for name, amount in least.items() if name in requests
        }

    looks = (
        shape.inter_pod for shape in shapes if shape.inter_pod is not None and shape.inter_pod.hard
    )
    return Shape(
        requests=tuple(least.items()),
        tolerations=TOLERATES_ALL,
        inter_pod=next(looks, None),
    )
