"""The final check before pods are evicted (step 3 of semantics V13).

Invariant: every victim is still needed and may still be evicted as decided, and no gang would lose
only a part of its minimum because of changes since the decision.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from gangsched.model.gang import Placement
from gangsched.model.parts import Root, broken_parts, is_whole
from gangsched.model.preemption import UnitKind, Victim
from gangsched.model.tree import Part, part_id
from gangsched.state.groups import Registry
from gangsched.state.member_store import MemberStore
from gangsched.state.members import STARTED
from gangsched.state.preemption.nomination import Fate, NominationRecord
from gangsched.state.preemption.nominees import started_together
from gangsched.state.preemption.room import Room


def changed(
    record: NominationRecord,
    registry: Registry,
    victims: Set[str],
) -> str:
    """Why these pods may no longer be evicted, "" if they may; `victims` are the victims of all
    nominations.
    """
    if _any_equal(record):
        return "the priority of a victim is no longer lower"
    if _any_member_left(record, registry, victims):
        return "the members of a gang to be preempted have changed"
    if _any_child_changed(record, registry, victims):
        return "a tree whose children are to be preempted has changed"
    if _any_falls_below(record, registry, victims):
        return "a gang that loses members would now fall below its minimum"

    return ""


def _any_equal(record: NominationRecord) -> bool:
    """Whether a victim has no lower priority than the preemptor any more."""
    preemptor = record.lowest_priority  # of hundreds of members, asked for thousands of victims
    for victim in record.victims.values():
        # An overdue victim may be of equal priority.
        least_above = preemptor + 1 if victim.overdue else preemptor
        if victim.priority >= least_above:
            return True

    return False


def _of_kind(
    record: NominationRecord,
    kind: UnitKind,
) -> list[Victim]:
    return [victim for victim in record.victims.values() if victim.kind is kind]


def _any_member_left(
    record: NominationRecord,
    registry: Registry,
    victims: Set[str],
) -> bool:
    """Whether a group that goes as a whole has members that do not go."""
    cores = {victim.group for victim in _of_kind(record, UnitKind.CORE)}
    for group_id in cores & registry.groups.keys():
        for member in started_together(group_id, registry):
            if member.pod.uid not in victims:
                return True

    return False


def _any_child_changed(
    record: NominationRecord,
    registry: Registry,
    victims: Set[str],
) -> bool:
    """Whether a child that goes has members that do not, or what is left of its tree is broken."""
    groups = {victim.gang: victim.group for victim in _of_kind(record, UnitKind.CHILD)}
    for gang_id, group_id in groups.items():
        started = registry.gangs[gang_id].of(*STARTED)
        if any(member.pod.uid not in victims for member in started):
            return True
        if group_id not in registry.groups or _breaks(group_id, registry, victims):
            return True

    return False


def _any_falls_below(
    record: NominationRecord,
    registry: Registry,
    victims: Set[str],
) -> bool:
    """Whether a gang that only loses its surplus would be broken."""
    gangs = {victim.gang for victim in _of_kind(record, UnitKind.SURPLUS)}
    groups = {registry.group_of[gang_id] for gang_id in gangs & registry.group_of.keys()}
    for group_id in groups:
        broken = _breaks(group_id, registry, victims)
        if not gangs.isdisjoint(map(part_id, broken)):
            return True

    return False


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
    nodes_with_devices = set()
    for placement in places:
        if placement.pod.claims_devices:
            nodes_with_devices.add(placement.node)

    for unit in _units(record):
        running = []
        for uid in unit:
            member = members.get(uid)
            if member is not None and member.node:
                running.append((member.pod, member.node))

        # `room` does not count devices, for which they may be victims.
        if any(pod.claims_devices and node in nodes_with_devices for pod, node in running):
            continue

        if room.spares(record, places, running):
            spared += unit

    return spared


def _breaks(
    group_id: str,
    registry: Registry,
    victims: Set[str],
) -> list[Part]:
    """The parts of a group that the loss of these pods breaks; not those that are
    broken already.
    """
    group = registry.groups[group_id]
    views = {gang: registry.view(gang) for gang in group.gangs}
    minimums = {gang: view.min_member for gang, view in views.items()}
    root = Root(group.root, minimums)
    before: dict[str, int] = {}
    after: dict[str, int] = {}

    for gang, view in views.items():
        started = registry.gangs[gang].of(*STARTED)
        succeeded = view.succeeded if view.free_running else 0
        staying = sum(member.pod.uid not in victims for member in started)
        before[gang] = len(started) + succeeded
        after[gang] = staying + succeeded

    broken_before = broken_parts(root, before)
    broken = [part for part in broken_parts(root, after) if part not in broken_before]

    # Without a member left it has nothing that could be broken, but whoever takes all of it takes
    # it as a whole.
    was_whole = is_whole(root, before) and not is_whole(root, after)
    if was_whole and not any(after.values()):
        broken.append(root.part)

    return broken


def _units(record: NominationRecord) -> Iterator[list[str]]:
    """The victims that go together, the highest priority first, whole groups before single pods."""
    units: dict[tuple[UnitKind, str], list[Victim]] = {}
    for uid in record.of(Fate.MARKED):
        victim = record.victims[uid]
        unit = units.setdefault(victim.unit, [])
        unit.append(victim)

    for unit in sorted(units.values(), key=_most_expensive):
        yield [victim.uid for victim in unit]


def _most_expensive(unit: list[Victim]) -> tuple[int, int, str]:
    highest = max(victim.priority for victim in unit)
    return -highest, -len(unit), unit[0].uid
