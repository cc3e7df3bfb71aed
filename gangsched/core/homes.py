"""Homes: the part of the cluster in which a started gang lives, and where its waiting members are
tried one after the other (semantics L3).

Invariant: nothing is stored: a home follows from the nodes of bound members. Levels and domains are
looked up once a node table and label, and a scope is made once a plan and domain, so that gangs of
one domain share what a plan finds out about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from msgspec import structs

from gangsched.core.filter import static_fit
from gangsched.core.filter.node_resources_fit import room
from gangsched.core.reserve import Ledger
from gangsched.core.scope import EVERYWHERE, Scope
from gangsched.core.search.preferred import prefers_spreading
from gangsched.core.search.slices import units
from gangsched.core.topology import TopologyLevel, climb, level, told_apart
from gangsched.model.gang import Gang, Group, Placement
from gangsched.model.gpu_policy import HealPreference
from gangsched.model.objects import Pod, Shape
from gangsched.model.snapshot import Bools, Ints
from gangsched.model.verdict_facts import HomeFull

Beside: TypeAlias = tuple[tuple[str, ...], frozenset[str]]
"""The labels of a level, and the nodes of which one of its domains has most."""


def scopes_from_home(
    gang: Gang,
    pods: Sequence[Pod],
    outermost: Scope,
    ledger: Ledger,
) -> list[Scope]:
    """Where waiting `pods` of a gang are tried: at its home, then one level up at a time, and last
    in `outermost`, the required domain or everywhere.

    A level at which bound members are in several domains is skipped, and so is one that is no finer
    than `outermost`. Of a gang with slices, `pods` are a slice of which no member is left: any
    other has its home in the domain that it requires.
    """
    if not gang.nodes or _is_spread(gang, pods):
        return [outermost]

    scopes: list[Scope] = []
    nodes = _nodes_of(gang, ledger)

    for known_level in _levels(gang, ledger):
        domain = _shared(known_level, nodes)
        if domain is None:
            continue

        scope = _scope_of(known_level, domain, outermost, ledger)
        if not _is_all_of(scope, outermost):
            scopes.append(scope)

    if scopes and _stays(pods, scopes[0], ledger):
        return scopes[:1]

    scopes.append(outermost)
    return scopes


def homes_beside(
    others: Iterable[Gang],
    gangs: Sequence[Gang],
    ledger: Ledger,
) -> tuple[Beside, ...]:
    """The homes of gangs of which no member is left, beside the other gangs of their group: the
    domains that all bound members of those share, the closest first, with the nodes of these.
    """
    for gang in gangs:
        if gang.nodes or _is_spread(gang, (*gang.retry, *gang.pending)):
            return ()

    names: set[str] = set()
    for gang in others:
        names.update(gang.nodes)

    index = ledger.table.index
    nodes = np.array([index[name] for name in sorted(names) if name in index], dtype=np.int64)
    homes: list[Beside] = []
    for known_level in _levels(gangs[0], ledger):
        if _shared(known_level, nodes) is not None:
            homes.append((known_level.keys, frozenset(names)))

    return tuple(homes)


def nearer(group: Group, home: Beside) -> Group:
    """The group limited to a home."""
    keys, _ = home
    return structs.replace(
        group,
        topology=(*group.topology, *keys),
        beside=(*group.beside, home),
        near=(),
    )


def marked_outside(
    placements: Iterable[Placement], home: Beside, ledger: Ledger
) -> list[Placement]:
    """The placements, of which those outside of a home say so."""
    keys, names = home
    inside = level(keys, ledger.table)
    index = ledger.table.index
    domain = inside.common(np.array([index[name] for name in names if name in index]))
    if domain is None:
        return [*placements]

    marked: list[Placement] = []
    for placement in placements:
        is_inside = inside.codes[index[placement.node]] == domain
        outside = "" if is_inside else inside.name(domain)
        marked.append(structs.replace(placement, outside=outside))

    return marked


def at_home(group: Group, ledger: Ledger) -> Group:
    """The group with the level of its home among those that it requires: what is evicted or
    reserved for a broken group is there (L5).

    Unchanged if the group is not broken, or has no home but what it requires.
    """
    if not group.broken or group.apart:
        return group

    keys = _home_of(group, ledger)
    if not keys:
        return group

    return structs.replace(group, topology=(*group.topology, *keys))


def healed_at_home(group: Group, ledger: Ledger) -> Group:
    """The group as `at_home`, at the home of the gangs that wait for members, which may be another
    one than that of the rest of the group.
    """
    gangs: list[Gang] = []
    for gang in group.gangs:
        waits = gang.pending or gang.retry
        # Only what is to be healed decides where that is.
        gangs.append(gang if waits else structs.replace(gang, nodes=(), accelerated_nodes=()))

    healed = structs.replace(group, gangs=tuple(gangs))
    home = at_home(healed, ledger)
    return group if home is healed else home


def _home_of(group: Group, ledger: Ledger) -> tuple[str, ...]:
    """The labels of the closest level at which all bound members of the group are in one domain."""
    nodes: list[Ints] = []
    for gang in group.gangs:
        if gang.constraints.slices or _is_spread(gang, (*gang.retry, *gang.pending)):
            return ()

        nodes.append(_nodes_of(gang, ledger))

    of_all = np.concatenate(nodes)
    with_nodes = [gang for gang in group.gangs if gang.nodes]
    for known_level in _levels(with_nodes[0], ledger) if with_nodes else ():
        if _shared(known_level, of_all) is not None:
            return known_level.keys

    return ()


def required_home(
    gang: Gang,
    pod: Pod,
    required: Scope | None,
    ledger: Ledger,
) -> Scope | None:
    """The home beyond which a waiting pod of a gang that runs may not go; None if it has none."""
    if not gang.satisfied or not gang.nodes or gang.constraints.slices:
        return None

    outermost = EVERYWHERE if required is None else required
    last = scopes_from_home(gang, [pod], outermost, ledger)[-1]
    return None if last is EVERYWHERE else last


def slice_homes(gang: Gang, required: Scope | None, ledger: Ledger) -> dict[str, Scope]:
    """By uid the homes of waiting members of a gang with slices: the domains in which the other
    members of their slices run.
    """
    table = ledger.table
    outermost = EVERYWHERE if required is None else required
    homes: dict[str, Scope] = {}
    for unit in units(gang, (*gang.retry, *gang.pending), table):
        if not unit.pins or not unit.mask(table).any():
            continue

        home = unit.within(outermost, table)
        for pod in unit.alone:
            homes[pod.uid] = home

    return homes


def home_full(
    gang: Gang,
    pod: Pod,
    home: Scope,
    ledger: Ledger,
) -> HomeFull:
    """What is the matter with the nodes of the home of a gang (L6)."""
    inside = _inside(pod.shape, home, ledger)
    if inside is None:
        inside = ledger.table.everywhere()

    open_nodes = inside & static_fit(pod.shape, ledger.table).mask
    free = open_nodes & (ledger.room(pod.shape) > 0)
    full = np.flatnonzero(open_nodes & ~free)

    waiting = (*gang.retry, *gang.pending)
    return HomeFull(
        pod=pod.key,
        requests=pod.shape.requests,
        home=home.name,
        nodes=int(inside.sum()),
        free=int(free.sum()),
        closed=int((inside & ~open_nodes).sum()),
        lower=_with_lower(full.tolist(), pod.priority, ledger),
        since_s=min(other.creation_s for other in waiting),
        grows=ledger.policy.home_can_grow,
    )


def _with_lower(nodes: Sequence[int], priority: int, ledger: Ledger) -> int:
    """Number of these nodes with a pod of lower priority that is not of the node itself."""
    ledger.work.charge(len(nodes))
    number = 0

    for node in nodes:
        pods = ledger.residents(node).values()
        number += any(pod.priority < priority and not pod.ends_with_node for pod in pods)

    return number


def has_room(shape: Shape, scope: Scope, ledger: Ledger) -> bool:
    """Whether a node of the scope has free room for a pod of `shape`; its filters are not asked."""
    free = ledger.room(shape)
    inside = _inside(shape, scope, ledger)
    if inside is not None:
        free = free[inside]

    return bool(free.any())


def is_inside(
    node: str,
    shape: Shape,
    scope: Scope,
    ledger: Ledger,
) -> bool:
    """Whether pods of `shape` may use the node in this scope."""
    inside = _inside(shape, scope, ledger)
    if inside is None:
        return True

    number = ledger.table.index[node]
    return bool(inside[number])


def _inside(shape: Shape, scope: Scope, ledger: Ledger) -> Bools | None:
    accelerated = ledger.accelerated(shape)
    return scope.of(accelerated=accelerated)


def _stays(pods: Sequence[Pod], home: Scope, ledger: Ledger) -> bool:
    """Whether the pods wait at home although there may be free room further away."""
    if ledger.policy.heals_at is not HealPreference.HOME:
        return False

    # No node of its home may be large enough any more.
    shapes = {pod.shape for pod in pods}
    return all(_takes_when_empty(shape, home, ledger) for shape in shapes)


def _takes_when_empty(shape: Shape, scope: Scope, ledger: Ledger) -> bool:
    """Whether a node of the scope would take a pod of `shape` if nothing ran on it."""
    takes = room(shape, ledger.allocatable, ledger.resources) > 0
    takes &= static_fit(shape, ledger.table).mask

    inside = _inside(shape, scope, ledger)
    if inside is not None:
        takes &= inside

    return bool(takes.any())


def _is_spread(gang: Gang, pods: Sequence[Pod]) -> bool:
    """Whether the pods would rather be away from each other, and no level is stated against
    that.
    """
    if gang.constraints.preferred:
        return False

    shapes = {pod.shape for pod in pods}
    return any(map(prefers_spreading, shapes))


def _nodes_of(gang: Gang, ledger: Ledger) -> Ints:
    """Indices of the nodes of bound members; a node that is gone counts no more."""
    index = ledger.table.index
    known = [index[name] for name in gang.nodes if name in index]
    return np.array(known, dtype=np.int64)


def _levels(gang: Gang, ledger: Ledger) -> list[TopologyLevel]:
    """The known levels, the closest first; one that the gang states, if the setting lacks it."""
    table = ledger.table
    labels = known = ledger.policy.topology_keys
    stated = gang.constraints.preferred

    if stated and stated not in known:
        labels = climb(stated, known, table)

    scopes = []
    for label in labels:
        if table.label_column(label).values:
            keys = told_apart(label, known, table)
            scopes.append(level(keys, table))

    return scopes


def _shared(in_level: TopologyLevel, nodes: Ints) -> int | None:
    """The domain in which all of these nodes are; None if they are in several, or one in none."""
    domains = in_level.codes[nodes]
    if not domains.size:
        return None

    first = int(domains[0])
    if first < 0 or (domains != first).any():
        return None

    return first


def _scope_of(
    in_level: TopologyLevel,
    domain: int,
    outermost: Scope,
    ledger: Ledger,
) -> Scope:
    """The part of `outermost` in a domain."""

    def make() -> Scope:
        name = in_level.name(domain)
        inside = in_level.mask(domain)
        scope = outermost.narrowed(inside, name)
        return structs.replace(scope, name=name)

    key = ("home", in_level.keys, domain, outermost)
    return ledger.recall(key, make, lasting=True)


def _is_all_of(scope: Scope, outermost: Scope) -> bool:
    """Whether the scope excludes no node of `outermost`."""
    if not _is_all(scope.accelerated, outermost.accelerated):
        return False

    return _is_all(scope.others, outermost.others)


def _is_all(inside: Bools | None, outside: Bools | None) -> bool:
    if inside is None:
        return True
    if outside is None:
        return bool(inside.all())

    return bool(np.array_equal(inside, outside))
