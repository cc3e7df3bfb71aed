"""The preemptor: the members that a refused group needs, and their preemption priority (V1, V2).

Invariant: only members needed for a minimum preempt, with the lowest priority among these members.
Members above the minimum never preempt, because they would be the first victims themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs

from gangsched.core.permit import missing
from gangsched.core.search import slices
from gangsched.model.gang import Gang, Group, Mode, Placement
from gangsched.model.gpu_policy import PlacementConstraints
from gangsched.model.objects import Pod, Shape
from gangsched.model.plan import Verdict
from gangsched.model.preemption import NotHelpful, Obstacle
from gangsched.model.reasons import Reason
from gangsched.model.snapshot import NodeTable

FOR_ROOM = frozenset({Reason.UNSCHEDULABLE, Reason.HOLDING})


@dataclass(frozen=True, slots=True)
class Preemptor:
    """A group reduced to its needed members: only these are pending, and the group is Strict.

    Victims must have a priority below `right`. `never`: a needed member or a PodGroup has
    preemptionPolicy Never.
    """

    group: Group
    #: Gangs of the group that are below their minimum.
    gangs: Sequence[Gang]
    #: The needed members, and the number of them by shape.
    pods: Sequence[Pod]
    counts: Mapping[Shape, int]
    right: int
    never: bool

    @classmethod
    def of(cls, group: Group) -> Preemptor:
        """The preemptor of a group whose pending members are all needed; there must be one."""
        pods: list[Pod] = []
        for gang in group.gangs:
            pods += gang.pending

        right = min(pod.priority for pod in pods)
        never = any(gang.never_preempts for gang in group.gangs)
        never = never or any(pod.never_preempts for pod in pods)
        below = []
        for gang in group.gangs:
            if gang.pending:
                below.append(gang)

        return cls(group, below, pods, Counter(pod.shape for pod in pods), right, never)

    @property
    def first_alone(self) -> Preemptor:
        """The same for the first needed member alone."""
        first = self.gangs[0]
        gangs: list[Gang] = []

        for gang in self.group.gangs:
            pods = gang.pending[:1] if gang.id == first.id else ()
            reduced = structs.replace(
                gang,
                pending=pods,
            )
            reduced = structs.replace(
                reduced,
                min_member=reduced.counted(len(pods)),
            )
            gangs.append(reduced)

        group = structs.replace(
            self.group,
            gangs=tuple(gangs),
        )
        return Preemptor.of(group)

    def with_weakest(self, found: NotHelpful, highest: int) -> NotHelpful:
        """Add to `found` the name of the member that limits the preemption priority, if other
        members have a higher priority (V2).
        """
        if found.why is not Obstacle.NOTHING_LOWER or self.right >= highest:
            return found

        weakest = min(self.pods, key=lambda pod: (pod.priority, pod.key))
        return structs.replace(found, name=weakest.key, amount=weakest.priority)


def refused_for_room(verdict: Verdict) -> bool:
    """Whether the group was refused only for lack of room. False if the verdict also binds pods or
    releases holds.
    """
    return (
        verdict.reason in FOR_ROOM
        and bool(verdict.needs)
        and not (verdict.binds or verdict.releases)
    )


def preemptor_of(group: Group, verdict: Verdict, table: NodeTable) -> Preemptor | None:
    """The preemptor for the needed members of a group that was refused for room; None if no member
    is needed.

    Members that the verdict places on hold count as held (V16).
    """
    gangs = tuple(_reduced(gang, group, verdict.holds, table) for gang in group.gangs)
    if any(gang.pending for gang in gangs):
        return Preemptor.of(structs.replace(group, gangs=gangs))

    return None


def _reduced(
    gang: Gang,
    group: Group,
    holds: Sequence[Placement],
    table: NodeTable,
) -> Gang:
    """The gang with the members pending that it needs, the first in placing order or the first
    whole slices.
    """
    own = {pod.uid for pod in gang.pending}
    held = (*gang.held, *(placement for placement in holds if placement.pod.uid in own))
    taken = {placement.pod.uid for placement in held}
    waiting = []
    for pod in (*gang.retry, *gang.pending):
        if pod.uid not in taken:
            waiting.append(pod)

    lack = _lack(structs.replace(gang, held=held), group)

    if gang.constraints.slices:
        waiting = slices.needed(slices.units(gang, waiting, table), lack).waiting
        lack = len(waiting)

    needed = tuple(waiting[:lack])
    reduced = structs.replace(
        gang,
        pending=needed,
        held=held,
        retry=(),
        kept=(),
        mode=Mode.STRICT,
        plain=False,
        satisfied=False,
        min_resources=() if gang.free_running else gang.min_resources,
        constraints=PlacementConstraints(allow_shared=True) if gang.plain else gang.constraints,
    )
    return structs.replace(reduced, min_member=reduced.counted(len(needed)))


def _lack(gang: Gang, group: Group) -> int:
    """Members that the gang needs beyond those that have a place."""
    if gang.plain:
        return len(gang.pending) + len(gang.retry)
    if not gang.free_running:
        return max(0, missing(gang, 0) - len(gang.kept))
    if not (group.broken or gang.permitted_min):
        return 0

    least = min(gang.permitted_min or gang.min_member, gang.min_member)
    return max(0, least - gang.bound - gang.succeeded - len(gang.kept) - len(gang.held))
