"""Gangs with members that are created only after other members run (semantics B8), and the number
of members that must exist before the start.

Invariant: pure. Such a gang starts only where members to come have room, too. So their number and
requests must be known, or the gang is refused; workers of a LeaderWorkerSet may be unknown until
the first one exists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from gangsched.api import keys
from gangsched.model.objects import PodGroup
from gangsched.model.resources import ResourceVector

MOST_TO_COME: Final = 512
"""Members to come for which a gang can have room: their nodes, with names of up to 253 characters,
are in an annotation beside the pod's own, which have 256 KiB together."""


class ToCome(NamedTuple):
    """`first` members must exist before a start, 0 if no members come later. `invalid` and
    `unsupported` say why the gang is refused. `lacks_pod_group`: the controller creates the
    PodGroup, which has the requests of members to come, after the leader, and it does not exist
    yet.
    """

    first: int = 0
    lacks_pod_group: bool = False
    invalid: str | None = None
    unsupported: str | None = None


NOBODY: Final = ToCome()


def members_to_come(
    gang: str,
    stated: Sequence[Mapping[str, str]],
    pod_group: PodGroup | None,
    *,
    min_member: int | None,
    total: int,
    min_resources: ResourceVector,
    leader_first: bool,
    exclusive: bool,
    exclusive_job: bool,
    keeps_room: bool,
) -> ToCome:
    """Return whether, and how, members come later. `stated` are the keys of the gang's pods.

    Workers of a LeaderWorkerSet come later with `leader_first`, with `exclusive` placement, or with
    a PodGroup whose minimum is below the size of the group (`startupPolicy: LeaderReady`). Pods of
    an `exclusive_job` come after its first one. Other gangs declare it with `keeps_room`.
    """
    if min_member is None:
        return NOBODY

    first = 0
    if min_member > 1 and any(keys.LWS_SIZE in of_pod for of_pod in stated):
        # Volcano's provider of LeaderWorkerSet writes a smaller minimum where workers come after
        # the leader.
        least = pod_group.min_member if pod_group is not None else None
        first = max(1, least) if least is not None and least < min_member else 0

        # With exclusive placement workers wait until their leader has a domain, so only the leader
        # exists before.
        first = 1 if leader_first or exclusive else first
        if first and any(keys.LWS_SUBGROUP_EXCLUSIVE in of_pod for of_pod in stated):
            text = (
                f"{keys.LWS_SUBGROUP_EXCLUSIVE} of gang {gang} asks for a domain for each subgroup"
            )
            return ToCome(
                unsupported=(
                    f"{text}, but gangsched cannot keep room for members to come by subgroup:"
                    " remove the annotation, or set startupPolicy to LeaderCreated without"
                    " exclusive-topology"
                )
            )
    elif exclusive_job and min_member > 1:
        return ToCome(1) if min_member <= MOST_TO_COME else _too_many(gang, min_member - 1)
    elif keeps_room:
        # A minimum of 0 would start with nobody, and there would be no stamp to hold the promise.
        first = max(1, min_member)
        if total <= first or not min_resources:
            lacks = (
                f"minResources in its PodGroup, and in {keys.TOTAL[0]} the number of all members"
            )
            return ToCome(
                invalid=(
                    f"{keys.KEEP_ROOM[0]} of gang {gang} has no effect without these: set {lacks}"
                )
            )

    if first and total - first > MOST_TO_COME:
        return _too_many(gang, total - first)

    opts_in = any(keys.LWS_NAME in of_pod for of_pod in stated)
    # A group that opts in by labels has no PodGroup to wait for.
    return ToCome(first, first > 0 and pod_group is None and not opts_in)


def _too_many(gang: str, number: int) -> ToCome:
    text = f"gang {gang} has {number} members to come: gangsched keeps room for at most"
    return ToCome(unsupported=f"{text} {MOST_TO_COME}")
