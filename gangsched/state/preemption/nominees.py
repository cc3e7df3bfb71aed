"""The members for which a nomination reserves nodes, as the group changes (semantics V12).

Invariant: pure functions. A pod that replaces a member of the same shape gets the member's node. If
a member of the same shape uses the node of a nominee, the two exchange their nodes. If the minimum
becomes smaller, or members get room elsewhere, fewer members are nominated. A nominee may be vacant
(without a pod) for a short time, since controllers take time to replace a pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping

from gangsched.model import parts
from gangsched.model.gang import Gang, is_to_come
from gangsched.model.preemption import Victim
from gangsched.state.group_record import GroupRecord
from gangsched.state.groups import Registry
from gangsched.state.members import STARTED, Member, State
from gangsched.state.preemption.nomination import Nominee

WAITS = frozenset({State.PENDING, State.RETRY, State.HELD, State.KEPT})
VACANT_S = 5.0
"""How long a nominee may be vacant."""


def waiting(group: GroupRecord, registry: Registry) -> dict[str, Member]:
    """Members of the group that wait for gangsched to place them, by uid."""
    members = (member for gang in group.gangs for member in registry.gangs[gang].members.values())
    return {member.pod.uid: member for member in members if member.state in WAITS}


def started_together(group_id: str, registry: Registry) -> list[Member]:
    """The started members that are evicted with their group; members of gangs that are disrupted
    pod by pod are left out (V6).
    """
    gangs = []
    for gang in registry.groups[group_id].gangs:
        if not registry.view(gang).disrupted_singly:
            gangs.append(gang)

    return [member for gang_id in gangs for member in registry.gangs[gang_id].of(*STARTED)]


def settled(
    nominees: Mapping[str, Nominee],
    group: GroupRecord,
    registry: Registry,
    now_s: float,
) -> dict[str, Nominee]:
    """Current nominees by uid; a vacant one keeps the uid of the deleted pod."""
    there = waiting(group, registry)
    kept: dict[str, Nominee] = {}
    vacated: list[tuple[str, Nominee]] = []

    for uid, nominee in nominees.items():
        member = there.get(uid)
        if is_to_come(uid):
            if nominee.pod in registry.view(nominee.gang).to_come:
                kept[uid] = nominee
        elif (
            member is not None
            and member.gang == nominee.gang
            and member.pod.shape is nominee.pod.shape
        ):
            if not member.node:
                kept[uid] = Nominee(member.pod, nominee.node, nominee.gang)
        elif (own := _member(uid, nominee, registry)) is None or own.state not in STARTED:
            vacated.append((uid, nominee))

    # Only now: whoever was to run on the node of an exchanged member must be among the kept ones.
    for uid, nominee in nominees.items():
        if (own := _member(uid, nominee, registry)) is not None:
            _exchange(nominee, own.node, kept)

    # Pods that replace others are told apart by their shape alone, so any that has no node yet will
    # do.
    for uid, nominee in vacated:
        heir = next(
            (
                m
                for m in there.values()
                if m.pod.uid not in {**nominees, **kept} and _may_replace(m, nominee)
            ),
            None,
        )
        if heir is not None:
            kept[heir.pod.uid] = Nominee(heir.pod, nominee.node, nominee.gang)
        else:
            kept[uid] = Nominee(
                nominee.pod,
                nominee.node,
                nominee.gang,
                now_s if nominee.vacant_s is None else nominee.vacant_s,
            )

    return dict(_needed_of(kept, group, registry))


def is_short(
    nominees: Mapping[str, Nominee],
    group: GroupRecord,
    registry: Registry,
    now_s: float,
) -> bool:
    """Whether nominees are missing: the group needs more, or one has been vacant for too long."""
    if any(
        nominee.vacant_s is not None and now_s >= nominee.vacant_s + VACANT_S
        for nominee in nominees.values()
    ):
        return True

    have = Counter(nominee.gang for nominee in nominees.values())
    chosen = chosen_gangs(group, have, registry)
    return not chosen or any(have[gang_id] < needs(registry.view(gang_id)) for gang_id in chosen)


def chosen_gangs(
    group: GroupRecord,
    have: Container[str],
    registry: Registry,
) -> tuple[str, ...]:
    """The gangs that a nomination is for: those in `have` and those that have started.

    Empty if these do not reach the minimum of the group.
    """
    has: dict[str, int] = {}
    for gang in group.gangs:
        if gang in have or registry.view(gang).satisfied:
            has[gang] = registry.gangs[gang].least

    if parts.is_whole(registry.parts(group.id), has):
        return tuple(has)

    return ()


def is_whole(group: GroupRecord, registry: Registry) -> bool:
    """Whether every gang of the group has been permitted and is whole; of a tree, as many as its
    minimum needs.

    It reads the records: a verdict that has just been committed is not in the views before the next
    refresh.
    """

    has = registry.started(group.id)
    return any(has.values()) and parts.is_whole(registry.parts(group.id), has)


def needs(gang: Gang) -> int:
    """Number of members that still need a node to reach the minimum, or to be whole again
    (semantics V1).
    """
    if gang.plain:
        return len(gang.pending) + len(gang.retry)

    if gang.free_running:
        least = min(gang.permitted_min, gang.min_member)
        return max(0, least - gang.bound - gang.succeeded - len(gang.held) - len(gang.kept))

    return max(0, gang.least - gang.counted(0) - len(gang.kept))


def _needed_of(
    nominees: Mapping[str, Nominee],
    group: GroupRecord,
    registry: Registry,
) -> Iterator[tuple[str, Nominee]]:
    """Of each gang as many nominees as it needs, vacant ones last."""
    for gang_id in group.gangs:
        own = [(uid, nominee) for uid, nominee in nominees.items() if nominee.gang == gang_id]
        # False before True, and in their order otherwise: those with a pod keep their nodes.
        own.sort(key=lambda each: each[1].vacant_s is not None)
        yield from own[: needs(registry.view(gang_id))]


def _exchange(
    nominee: Nominee,
    taken: str,
    kept: dict[str, Nominee],
) -> None:
    """A member has room on node `taken`: who was to run there in its place runs where the member
    was to.

    Any place is as good to a round, and the other one would be lost with all that was evicted for
    it.
    """
    if taken in {"", nominee.node}:
        return

    for uid, other in kept.items():
        if (
            other.node == taken
            and other.gang == nominee.gang
            and other.pod.shape is nominee.pod.shape
        ):
            kept[uid] = Nominee(other.pod, nominee.node, other.gang)
            return


def _member(
    uid: str,
    nominee: Nominee,
    registry: Registry,
) -> Member | None:
    record = registry.gangs.get(nominee.gang)
    return record.members.get(uid) if record is not None else None


def _may_replace(member: Member, nominee: Nominee) -> bool:
    """Whether the member is to be placed, and others see the same in it."""
    same = (
        member.gang == nominee.gang
        and member.pod.shape is nominee.pod.shape
        and member.pod.priority == nominee.pod.priority
    )
    return same and not member.node


def nameless(
    victims: Iterable[Victim],
    group_id: str,
    registry: Registry,
) -> list[Victim]:
    """The victims whose names the group may not see, since it is not wholly in their namespace
    (V22).
    """
    of_group = namespaces(group_id, registry)
    return [victim for victim in victims if of_group != {victim.namespace}]


def namespaces(group_id: str, registry: Registry) -> frozenset[str]:
    """The namespaces of the group's gangs; none if the group is gone."""
    group = registry.groups.get(group_id)
    if group is None:
        return frozenset()

    return frozenset(registry.gangs[gang_id].namespace for gang_id in group.gangs)
