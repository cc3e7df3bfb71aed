"""The final check before pods are evicted (step 3 of semantics V13).

Invariant: every victim is still needed and may still be evicted as decided, and no gang would lose
only a part of its minimum because of changes since the decision.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from gangsched.model.gang import Placement
from gangsched.model.parts import broken_parts, is_whole, whole_of
from gangsched.model.preemption import UnitKind, Victim
from gangsched.model.tree import Part, part_id
from gangsched.state.groups import Registry
from gangsched.state.member_store import MemberStore
from gangsched.state.members import STARTED
from gangsched.state.preemption.nomination import Fate, NominationRecord
from gangsched.state.preemption.nominees import started_together
from gangsched.state.preemption.room import Room


def changed(record: NominationRecord, registry: Registry, victims: Set[str]) -> str:
    """Why these pods may no longer be evicted, "" if they may; `victims` are the victims of all
    nominations.
    """
    right = record.lowest_priority  # of hundreds of members, asked for thousands of victims
    # An overdue victim may be of equal priority: a bool counts as 1.
    if any(victim.priority >= right + victim.overdue for victim in record.victims.values()):
        return "the priority of a victim is no longer lower"

    cores = {victim.group for victim in record.victims.values() if victim.kind is UnitKind.CORE}
    for group_id in cores & registry.groups.keys():
        if any(member.pod.uid not in victims for member in started_together(group_id, registry)):
            return "the members of a gang to be preempted have changed"

    children = {
        victim.gang: victim.group
        for victim in record.victims.values()
        if victim.kind is UnitKind.CHILD
    }
    for gang_id, group_id in children.items():
        is_left = any(
            member.pod.uid not in victims for member in registry.gangs[gang_id].of(*STARTED)
        )
        if group_id not in registry.groups or is_left or _breaks(group_id, registry, victims):
            return "a tree whose children are to be preempted has changed"

    surplus = {victim.gang for victim in record.victims.values() if victim.kind is UnitKind.SURPLUS}
    for group_id in {registry.group_of[each] for each in surplus & registry.group_of.keys()}:
        if not surplus.isdisjoint(map(part_id, _breaks(group_id, registry, victims))):
            return "a gang that loses members would now fall below its minimum"

    return ""


def needless(
    record: NominationRecord,
    members: MemberStore,
    room: Room,
    places: Sequence[Placement],
) -> list[str]:
    """Find victims that are no longer needed, most expensive units first. Afterwards `room` counts
    these victims as staying.
    """
    spared: list[str] = []
    served = {placement.node for placement in places if placement.pod.claims_devices}

    for unit in _units(record):
        there = [member for uid in unit if (member := members.get(uid)) is not None and member.node]
        if any(member.node in served and member.pod.claims_devices for member in there):
            # `room` does not count devices, for which they may be victims.
            continue

        if room.spares(record, places, [(member.pod, member.node) for member in there]):
            spared += unit

    return spared


def _breaks(group_id: str, registry: Registry, victims: Set[str]) -> list[Part]:
    """The parts of a group that the loss of these pods breaks; not those that are
    broken already.
    """
    group = registry.groups[group_id]
    views = {gang: registry.view(gang) for gang in group.gangs}
    root = whole_of({each: view.min_member for each, view in views.items()}, group.tree)
    before: dict[str, int] = {}
    after: dict[str, int] = {}

    for name, view in views.items():
        started = registry.gangs[name].of(*STARTED)
        succeeded = view.succeeded if view.free_running else 0
        before[name] = len(started) + succeeded
        after[name] = sum(member.pod.uid not in victims for member in started) + succeeded

    known = broken_parts(root, before)
    broken = [part for part in broken_parts(root, after) if part not in known]

    # Without a member left it has nothing that could be broken, but whoever takes all of it takes
    # it as a whole.
    is_gone = is_whole(root, before) and not is_whole(root, after) and not any(after.values())
    return [*broken, root.part] if is_gone else broken


def _units(record: NominationRecord) -> Iterator[list[str]]:
    """The victims that go together, the highest priority first, whole groups before single pods."""
    found: dict[tuple[UnitKind, str], list[Victim]] = {}
    for uid in record.of(Fate.MARKED):
        victim = record.victims[uid]
        found.setdefault(victim.unit, []).append(victim)

    for unit in sorted(found.values(), key=_most_expensive):
        yield [victim.uid for victim in unit]


def _most_expensive(unit: list[Victim]) -> tuple[int, int, str]:
    return (-max(victim.priority for victim in unit), -len(unit), unit[0].uid)
