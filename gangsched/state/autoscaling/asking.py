"""What a group that lacks room asks of autoscalers, and for how long (semantics E9)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from gangsched.model.gang import Gang
from gangsched.model.objects import Shape


@dataclass(slots=True, kw_only=True)
class Asking:
    """A group that lacks room asks for nodes since `since_s`, or asks for none until
    `paused_until_s`. Times are monotonic seconds.
    """

    #: What it asks for; anything else is a change of the gang.
    wants: Hashable
    shapes: frozenset[Shape]
    since_s: float
    #: The length of its next pause.
    pause_s: float
    paused_until_s: float | None = None
    #: An earlier process let it pause.
    is_restored: bool = False
    #: The usable nodes when its pause began: more of them end it.
    usable: int = 0


def wants(gangs: Iterable[Gang]) -> tuple[Hashable, frozenset[Shape]]:
    """What the waiting pods of a group ask for, and their shapes.

    Pods that replace equal ones ask for the same: a controller that creates all pods again does not
    ask for more.
    """
    parts: list[Hashable] = []
    shapes: set[Shape] = set()
    for gang in gangs:
        waiting = Counter(pod.shape for pod in (*gang.pending, *gang.retry))
        shapes.update(waiting)
        number = frozenset(waiting.items())
        parts.append((gang.id, gang.min_member, gang.constraints, number))

    return tuple(parts), frozenset(shapes)
