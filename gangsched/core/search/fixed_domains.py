"""What members that have a node fix for the others: the domains that they leave, and held or kept
room that is no longer in them, because labels of nodes changed.

Invariant: the verifier asks the same of started and held members (`state.verify`), on its own. All
of them are in the required domains of their part; those with accelerators are on nodes with one GPU
product where that is required, and those of a slice in its domains.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from gangsched.core.reserve import Ledger
from gangsched.core.topology import TopologyLevel, level
from gangsched.model.gang import Gang, Group, Placement
from gangsched.model.gpu_policy import PRODUCT_LABEL, SliceLayer
from gangsched.model.snapshot import Bools, Ints, NodeTable
from gangsched.model.tree import required_levels


def member_nodes(group: Group, table: NodeTable) -> Ints:
    """Node indices of the members that are bound, or have room that is held or kept."""
    names: list[str] = []
    for gang in group.gangs:
        names += nodes_of(gang)

    return indices(names, table)


def nodes_of(gang: Gang) -> list[str]:
    """The nodes of its members that are bound, or have room that is held or kept."""
    names = [*gang.nodes]
    for placement in (*gang.held, *gang.kept):
        names.append(placement.node)

    return names


def indices(names: Iterable[str], table: NodeTable) -> Ints:
    """The known ones of these nodes."""
    index = table.index
    known = [index[name] for name in names if name in index]

    return np.array(known, dtype=np.int64)


def left_by_members(
    group: Group,
    gangs: Sequence[Gang],
    domains: TopologyLevel,
    ledger: Ledger,
) -> Bools | None:
    """`left[domain]` of the level that a group requires: members with a node leave it to the
    waiting members of these gangs. None if there are none, or none in a domain.

    Mostly that is the one in which most of them are. If changed labels have taken that away, it
    still holds for each of the levels by itself.
    """
    table = ledger.table
    nodes = _accelerated(group, gangs, ledger)
    if nodes is None:
        nodes = member_nodes(group, table)

    home = domains.common(nodes)
    if home is not None:
        return np.asarray(np.arange(domains.size) == home)

    left: Bools | None = None
    for keys, there in _by_level(group, gangs, ledger):
        of_level = level(keys, table)
        home = of_level.common(there)
        if home is None:
            continue

        inside = domains.inside(of_level) == home
        left = inside if left is None else left & inside

    return left


def _by_level(
    group: Group,
    gangs: Sequence[Gang],
    ledger: Ledger,
) -> Iterator[tuple[tuple[str, ...], Ints]]:
    """The labels of each required level, with the nodes of the members that are in one domain of
    it.
    """
    topology = dict.fromkeys(group.topology)
    for gang in () if group.apart else group.gangs:
        topology |= dict.fromkeys(gang.constraints.topology)

    # Each label by itself: of two levels, a node may have lost the label of one.
    there = member_nodes(group, ledger.table) if topology else None
    for key in sorted(topology):
        if there is not None:
            yield (key,), there

    # Gangs of one group may have been torn apart: each of them stays with its own product.
    own = [gang for gang in gangs if gang.constraints.same_product]
    for gang in own:
        nodes = _accelerated(group, [gang], ledger)
        if nodes is not None:
            yield (PRODUCT_LABEL,), nodes


def _accelerated(
    group: Group,
    gangs: Sequence[Gang],
    ledger: Ledger,
) -> Ints | None:
    """The nodes of members with accelerators of these gangs or, if they have none, of the group;
    only of gangs that must have one GPU product. None if there is no such gang.
    """
    of_group = [gang for gang in group.gangs if gang.constraints.same_product]
    if not of_group:
        return None

    own = {gang.id for gang in gangs}
    nodes = _nodes_with_accelerators([gang for gang in of_group if gang.id in own], ledger)
    if not nodes.size:
        nodes = _nodes_with_accelerators(of_group, ledger)

    return nodes


def _nodes_with_accelerators(gangs: Iterable[Gang], ledger: Ledger) -> Ints:
    names: list[str] = []
    for gang in gangs:
        names += gang.accelerated_nodes
        names += with_accelerators(_room([gang]), ledger)

    return indices(names, ledger.table)


def with_accelerators(placements: Iterable[Placement], ledger: Ledger) -> list[str]:
    """The nodes of placed pods with accelerators."""
    nodes: list[str] = []
    for placement in placements:
        if ledger.accelerated(placement.pod.shape):
            nodes.append(placement.node)

    return nodes


# --- room that is lost ----------------------------------------------------------------------------


def outside(group: Group, ledger: Ledger) -> list[Placement]:
    """The room that members hold or keep on nodes which are no longer in a domain that is required
    of them, because labels changed: a domain in which members run that they must be with or, if
    none does, the one with most of their room.
    """
    if not any(gang.held or gang.kept for gang in group.gangs):
        return []

    lost: dict[str, Placement] = {}
    for placement in _outside(group, ledger):
        lost.setdefault(placement.pod.uid, placement)

    return [*lost.values()]


def _outside(group: Group, ledger: Ledger) -> Iterator[Placement]:
    table = ledger.table
    gangs = {gang.id: gang for gang in group.gangs}

    def of_gang(gang_id: str) -> tuple[str, ...]:
        return gangs[gang_id].constraints.topology

    for labels, inside in required_levels(group.root, of_gang):
        if labels:
            members = [gangs[gang_id] for gang_id in inside if gang_id in gangs]
            running: set[str] = set()
            for gang in members:
                running.update(gang.nodes)

            yield from _torn_off(level(labels, table), running, _room(members), table)

    if group.topology:
        yield from _torn_off(
            level(group.topology, table),
            chain.from_iterable(gang.nodes for gang in group.gangs),
            _room(group.gangs),
            table,
        )

    for labels, nodes in group.beside:
        yield from _torn_off(level(labels, table), nodes, _room(group.gangs), table)

    for gang in group.gangs:
        if gang.constraints.same_product:
            room: list[Placement] = []
            for placement in _room([gang]):
                if ledger.accelerated(placement.pod.shape):
                    room.append(placement)

            product = level((PRODUCT_LABEL,), table)
            yield from _torn_off(product, gang.accelerated_nodes, room, table)

        for layer in gang.constraints.slices:
            yield from _outside_slices(gang, layer, table)


def _room(gangs: Iterable[Gang]) -> list[Placement]:
    """What members of these gangs hold or keep."""
    room: list[Placement] = []
    for gang in gangs:
        room += gang.held
        room += gang.kept

    return room


def _torn_off(
    domains: TopologyLevel,
    running: Iterable[str],
    room: Iterable[Placement],
    table: NodeTable,
) -> list[Placement]:
    """The room outside of the domains in which members run or, if none does, of the one with most
    of the room.
    """
    there = [placement for placement in room if placement.node in table.index]
    homes = {*domains.of(indices(running, table)).tolist()}
    if not homes:
        most = domains.common(indices([placement.node for placement in there], table))
        homes = {most} - {None}

    lost: list[Placement] = []
    for placement in there:
        if domains.codes[table.index[placement.node]] not in homes:
            lost.append(placement)

    return lost


def _outside_slices(
    gang: Gang,
    layer: SliceLayer,
    table: NodeTable,
) -> Iterator[Placement]:
    """The room of a gang that is outside of the domains of its slices in one layer."""
    room = _room([gang])
    on_nodes = Counter(gang.standing)
    for placement in room:
        on_nodes[placement.pod.index, placement.node] -= 1

    running = [*on_nodes.elements()]
    domains = level((layer.topology,), table)

    if not gang.indexed:
        # Kept room was part of a whole start: its domain is as good as one where a member runs.
        nodes = [node for _, node in running]
        nodes += [placement.node for placement in gang.kept]
        waiting = len(gang.pending)
        yield from _unfillable(domains, nodes, gang.held, layer.size, waiting, table)
        yield from _in_no_domain(domains, gang.kept, table)
        return

    room_of: defaultdict[int, list[Placement]] = defaultdict(list)
    for placement in room:
        room_of[placement.pod.index // layer.size].append(placement)

    for number, of_slice in room_of.items():
        nodes = [node for index, node in running if index // layer.size == number]
        yield from _torn_off(domains, nodes, of_slice, table)


def _unfillable(
    domains: TopologyLevel,
    running: Iterable[str],
    room: Iterable[Placement],
    size: int,
    waiting: int,
    table: NodeTable,
) -> Iterator[Placement]:
    """Room in no domain, and room that begins slices which the `waiting` members cannot fill.

    One slice may be incomplete. Members without indexes are a slice of any domain.
    """
    lost = _in_no_domain(domains, room, table)
    yield from lost

    codes = domains.codes[indices(running, table)].tolist()
    before = Counter(code for code in codes if code >= 0)
    by_domain: defaultdict[int, list[Placement]] = defaultdict(list)
    for placement in room:
        if placement.node in table.index and placement not in lost:
            code = int(domains.codes[table.index[placement.node]])
            by_domain[code].append(placement)

    begun: list[tuple[int, list[Placement]]] = []
    lacking: list[int] = []
    for code in before.keys() | by_domain.keys():
        own = by_domain.get(code, [])
        number = (before[code] + len(own)) % size
        if not number:
            continue

        lacking.append(size - number)
        if not before[code] % size:
            begun.append((number, own[-number:]))

    begun.sort(key=_smallest_first)
    for number, own in begun:
        if sum(lacking) - max(lacking) <= waiting:
            break

        lacking.remove(size - number)
        waiting += number
        yield from own


def _in_no_domain(
    domains: TopologyLevel,
    room: Iterable[Placement],
    table: NodeTable,
) -> list[Placement]:
    """Room on nodes that lack the label."""
    lost: list[Placement] = []
    for placement in room:
        number = table.index.get(placement.node)
        if number is not None and domains.codes[number] < 0:
            lost.append(placement)

    return lost


def _smallest_first(begun: tuple[int, Sequence[Placement]]) -> tuple[int, str]:
    """The order in which begun slices are given up."""
    number, own = begun
    return number, own[0].node
