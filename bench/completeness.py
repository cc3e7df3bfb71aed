"""Completeness: of the small Strict gangs that fit, how many are placed? Against an exhaustive
solver of its own.

`python -m bench.completeness [--cases 2000] [--seed 1] [--trees] [--json]` draws clusters of up to
5 nodes and groups of up to 8 pods in up to 3 shapes, or trees of up to 5 small gangs with and
without domains, resources only, keeps those that the exhaustive solver places, and asks `plan` for
each. Times are by the clock and, for machines that are busy with other things, of the process.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Container, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import combinations, product

from msgspec import structs

from gangsched.core.cycle import plan
from gangsched.model.gang import Group
from gangsched.model.gpu_policy import PlacementConstraints
from gangsched.model.objects import Node, Pod, Shape
from gangsched.model.plan import Verdict
from gangsched.model.reasons import Reason
from gangsched.model.snapshot import Snapshot
from gangsched.model.tree import Composite, Part, composites_of, gangs_of
from tests import builders

Amounts = tuple[int, ...]
ZONE, RACK = "topology.kubernetes.io/zone", "topology.kubernetes.io/rack"
RESOURCES = ("cpu", "memory", "gpu", "pods")
"""What an `Amounts` counts."""


@dataclass(frozen=True, slots=True)
class Case:
    """A cluster and a group, and the same as plain numbers: `free[node]`, and `asks` of the pods of
    each gang.
    """

    nodes: tuple[Node, ...]
    group: Group
    free: tuple[Amounts, ...]
    gangs: tuple[tuple[int, tuple[Amounts, ...]], ...]


def cases(rng: random.Random) -> Iterator[Case]:
    """Random cases without end, most of them tight: the room is close to what is asked."""
    while True:
        shapes = [_ask(rng) for _ in range(rng.randint(2, 3))]
        count = rng.randint(3, 8)
        asks = [rng.choice(shapes) for _ in range(count)]
        if len(set(asks)) < 2:
            continue
        split = rng.randint(1, count - 1) if rng.random() < 0.3 else count
        gangs = [part for part in (asks[:split], asks[split:]) if part]
        minima = [len(part) if rng.random() < 0.7 else rng.randint(1, len(part)) for part in gangs]
        free = (
            _tight(rng, asks)
            if rng.random() < 0.7
            else [_free(rng) for _ in range(rng.randint(1, 5))]
        )
        yield _case(free, list(zip(minima, gangs, strict=True)))


def exhaustive(case: Case, open_to: Sequence[Set[int]] | None = None) -> bool:
    """Whether some choice of nodes gives every gang its minimum: every pod on every node, or
    nowhere, is tried.

    Gang `g` may only use the nodes `open_to[g]`.
    """
    pods = sorted((gang, ask) for gang, (_, asks) in enumerate(case.gangs) for ask in asks)
    spare = tuple(len(asks) - minimum for minimum, asks in case.gangs)

    @cache
    def fits(index: int, free: tuple[Amounts, ...], spare: Amounts) -> bool:
        if index == len(pods):
            return True
        gang, ask = pods[index]
        for position, have in enumerate(free):
            rest = tuple(h - a for h, a in zip(have, ask, strict=True))
            after = (*free[:position], rest, *free[position + 1 :])
            after = after if open_to is not None else tuple(sorted(after))
            if (
                min(rest) >= 0
                and (open_to is None or position in open_to[gang])
                and fits(index + 1, after, spare)
            ):
                return True
        if not spare[gang]:
            return False
        return fits(
            index + 1, free, tuple(left - (each == gang) for each, left in enumerate(spare))
        )

    return fits(0, tuple(case.free if open_to is not None else sorted(case.free)), spare)


def in_domains(case: Case, rng: random.Random, labels: Sequence[str]) -> Case:
    """The case with random values of these labels on its nodes, some missing, and a group that
    requires all of them.
    """
    values = [
        {key: str(rng.randint(0, 1)) for key in labels if rng.random() < 0.95} for _ in case.nodes
    ]
    nodes = tuple(
        Node(
            name=node.name,
            uid=node.uid,
            labels={**node.labels, **own},
            allocatable=node.allocatable,
        )
        for node, own in zip(case.nodes, values, strict=True)
    )
    required = PlacementConstraints(topology=tuple(sorted(labels)))
    gangs = [structs.replace(gang, constraints=required) for gang in case.group.gangs]
    return replace(case, nodes=nodes, group=structs.replace(case.group, gangs=tuple(gangs)))


def exhaustive_in_domains(case: Case) -> bool:
    """Whether any one domain of the labels that the group requires holds it."""
    labels = case.group.gangs[0].constraints.topology
    domains: dict[tuple[str, ...], list[Amounts]] = {}
    for node, free in zip(case.nodes, case.free, strict=True):
        if all(key in node.labels for key in labels):
            domains.setdefault(tuple(node.labels[key] for key in labels), []).append(free)
    return any(exhaustive(replace(case, free=tuple(inside))) for inside in domains.values())


def sound(case: Case, verdict: Verdict) -> bool:
    """Whether the binds keep to the room of every node, to one domain and to the minimum of every
    gang.
    """
    left = {node.name: dict(node.allocatable) for node in case.nodes}
    for placement in verdict.binds:
        for name, amount in placement.pod.shape.requests:
            left[placement.node][name] = left[placement.node].get(name, 0) - amount
    placed = {placement.pod.uid for placement in verdict.binds}
    labels = case.group.gangs[0].constraints.topology
    by_name = {node.name: node for node in case.nodes}
    used = {tuple(by_name[each.node].labels.get(key) for key in labels) for each in verdict.binds}
    if labels and (len(used) != 1 or None in next(iter(used))):
        return False
    enough = all(
        sum(pod.uid in placed for pod in gang.pending) >= gang.min_member
        for gang in case.group.gangs
    )
    return enough and all(amount >= 0 for amounts in left.values() for amount in amounts.values())


def trees(rng: random.Random, *, is_deep: bool = False) -> Iterator[Case]:
    """Random trees without end: two to five gangs of up to three pods, of which a minimum starts
    together (I9).

    Deep ones have composites of these gangs below the root, some of them of composites.
    """
    while True:
        shapes = [_ask(rng) for _ in range(rng.randint(1, 3))]
        kinds = [
            [rng.choice(shapes) for _ in range(rng.randint(1, 3))] for _ in range(rng.randint(1, 3))
        ]
        children = [rng.choice(kinds) for _ in range(rng.randint(2, 5))]
        minima = [
            len(asks) if rng.random() < 0.7 else rng.randint(1, len(asks)) for asks in children
        ]
        parts: list[Part] = [f"ns/g{index}" for index in range(len(children))]
        for level in range(rng.randint(1, 2) if is_deep else 0):
            parts = _in_composites(rng, parts, level)
        tree = Composite("ns/tree", tuple(parts), rng.randint(1, len(parts)))
        some = [int(gang.removeprefix("ns/g")) for gang in _some(rng, tree)]
        asks = [ask for child in some for ask in children[child][: minima[child]]]
        free = (
            _tight(rng, asks)
            if rng.random() < 0.7
            else [_free(rng) for _ in range(rng.randint(1, 4))]
        )
        case = _case(free, list(zip(minima, children, strict=True)))
        yield replace(case, group=structs.replace(case.group, tree=tree))


def _in_composites(rng: random.Random, parts: list[Part], level: int) -> list[Part]:
    """These parts in up to three composites, some of them beside these."""
    made: dict[int, list[Part]] = {}
    for part in parts:
        made.setdefault(rng.randint(0, 3), []).append(part)
    beside = made.pop(0, [])
    inner = [
        Composite(f"ns/c{level}{number}", tuple(own), rng.randint(1, len(own)))
        for number, own in sorted(made.items())
    ]
    return [*beside, *inner]


def _some(rng: random.Random, part: Part) -> list[str]:
    """Gangs that are enough for a part."""
    if isinstance(part, str):
        return [part]
    return [
        gang for child in rng.sample(part.children, part.min_children) for gang in _some(rng, child)
    ]


def tree_in_domains(
    rng: random.Random, labels: Sequence[str], *, is_whole: bool = False, is_deep: bool = False
) -> Case:
    """A random tree on nodes in racks and zones: its parts require some of the labels; it, if
    `is_whole`, a zone.
    """
    case = next(trees(rng, is_deep=is_deep))
    nodes = tuple(
        structs.replace(node, labels={**node.labels, **own})
        for node, own in zip(case.nodes, (_nested(rng) for _ in case.nodes), strict=True)
    )

    def stated() -> tuple[str, ...]:
        number = (
            0
            if not labels
            else len(labels)
            if len(labels) > 1 and rng.random() < 0.2
            else rng.randint(0, 1)
        )
        return tuple(sorted(rng.sample(labels, number)))

    def required(part: Part) -> Part:
        if isinstance(part, str):
            return part
        return structs.replace(
            part, children=tuple([required(child) for child in part.children]), topology=stated()
        )

    gangs = [
        structs.replace(gang, constraints=PlacementConstraints(topology=stated()))
        for gang in case.group.gangs
    ]
    topology = (ZONE,) if is_whole else ()
    assert case.group.tree is not None
    children = tuple([required(child) for child in case.group.tree.children])
    tree = structs.replace(case.group.tree, children=children, topology=topology)
    return replace(
        case,
        nodes=nodes,
        group=structs.replace(case.group, gangs=tuple(gangs), tree=tree, topology=topology),
    )


def trees_in_domains(rng: random.Random) -> Iterator[Case]:
    """Random trees without end, a quarter of them without domains, half of them deep."""
    while True:
        labels, is_deep = rng.choice(((), (RACK,), (RACK, ZONE), (RACK, ZONE))), rng.random() < 0.5
        yield tree_in_domains(rng, labels, is_whole=rng.random() < 0.3, is_deep=is_deep)


def _nested(rng: random.Random) -> dict[str, str]:
    """A rack in a zone; now and then a node is in none."""
    zone = rng.choice("ab")
    labels = {ZONE: zone, RACK: f"{zone}{rng.randint(0, 1)}"}
    return {key: value for key, value in labels.items() if key == ZONE or rng.random() < 0.95}


def exhaustive_tree(case: Case) -> bool:
    """Whether any choice of as many children as each part needs gets all its minimums, each part in
    some domain.
    """
    assert case.group.tree is not None
    number = {gang.id: index for index, gang in enumerate(case.group.gangs)}

    def ways(part: Part, inside: Set[int]) -> Iterator[list[tuple[int, Set[int]]]]:
        if isinstance(part, str):
            for own in _domains(case, case.group.gangs[number[part]].constraints.topology):
                yield [(number[part], own & inside)]
            return
        for own in _domains(case, part.topology):
            for chosen in combinations(part.children, part.min_children):
                for made in product(*([*ways(child, own & inside)] for child in chosen)):
                    yield [each for of_child in made for each in of_child]

    for found in ways(case.group.tree, {*range(len(case.nodes))}):
        only = replace(case, gangs=tuple(case.gangs[gang] for gang, _ in found))
        if exhaustive(only, [nodes for _, nodes in found]):
            return True
    return False


def _domains(case: Case, labels: Sequence[str]) -> list[frozenset[int]]:
    """The nodes of each domain of these labels, by index."""
    found: dict[tuple[str, ...], set[int]] = {}
    for number, node in enumerate(case.nodes):
        if all(key in node.labels for key in labels):
            found.setdefault(tuple(node.labels[key] for key in labels), set()).add(number)
    return [*map(frozenset, found.values())]


def _has_minimum(part: Part, names: Container[str]) -> bool:
    if isinstance(part, str):
        return part in names
    return sum(_has_minimum(child, names) for child in part.children) >= part.min_children


def sound_tree(case: Case, verdict: Verdict) -> bool:
    """Whether enough children start, no part of it between none and its minimum, in the room of
    every node.
    """
    placed = {placement.pod.uid for placement in verdict.binds}
    begun = tuple(
        gang for gang in case.group.gangs if any(pod.uid in placed for pod in gang.pending)
    )
    names = {gang.id for gang in begun}
    assert case.group.tree is not None
    parts = [
        case.group.tree,
        *(each for each in composites_of(case.group.tree) if not names.isdisjoint(gangs_of(each))),
    ]
    enough = all(_has_minimum(part, names) for part in parts)
    return enough and sound(replace(case, group=structs.replace(case.group, gangs=begun)), verdict)


def sound_in_domains(case: Case, verdict: Verdict) -> bool:
    """As `sound_tree`, and whether each child and the tree keep to their domains."""
    bare = tuple(
        structs.replace(gang, constraints=PlacementConstraints()) for gang in case.group.gangs
    )
    if not sound_tree(replace(case, group=structs.replace(case.group, gangs=bare)), verdict):
        return False
    labels = {node.name: node.labels for node in case.nodes}
    nodes = {each.pod.uid: each.node for each in verdict.binds}
    uids_of = {gang.id: [pod.uid for pod in gang.pending] for gang in case.group.gangs}
    asked = [(gang.constraints.topology, uids_of[gang.id]) for gang in case.group.gangs]
    parts = composites_of(case.group.tree) if case.group.tree is not None else ()
    asked += [
        (part.topology, [uid for gang in gangs_of(part) for uid in uids_of[gang]]) for part in parts
    ]
    for keys, uids in asked:
        for key in keys:
            there = {labels[nodes[uid]].get(key) for uid in uids if uid in nodes}
            if len(there) > 1 or None in there:
                return False
    return True


def _ask(rng: random.Random) -> Amounts:
    return (rng.randint(1, 8) * 1000, rng.randint(1, 8), rng.choice((0, 0, 1, 2, 3, 4)), 1)


def _free(rng: random.Random) -> Amounts:
    return (
        rng.randint(2, 16) * 1000,
        rng.randint(2, 16),
        rng.choice((0, 2, 4, 8)),
        rng.choice((2, 3, 8)),
    )


def _tight(rng: random.Random, asks: Sequence[Amounts]) -> list[Amounts]:
    """Nodes that hold exactly some random spread of the pods, with a little to spare here and
    there.
    """
    sums = [[0] * len(RESOURCES) for _ in range(rng.randint(2, 5))]
    for ask in asks:
        chosen = rng.choice(sums)
        for r, amount in enumerate(ask):
            chosen[r] += amount
    return [
        (
            cpu + 1000 * rng.choice((0, 0, 1)),
            memory + rng.choice((0, 0, 1)),
            gpu + rng.choice((0, 0, 0, 1)),
            pods + 1,
        )
        for cpu, memory, gpu, pods in sums
    ]


def _case(free: Sequence[Amounts], gangs: Sequence[tuple[int, list[Amounts]]]) -> Case:
    nodes = tuple(
        builders.node(f"n{index}", cpu_milli=cpu, memory_bytes=memory, gpus=gpu, pods=pods)
        for index, (cpu, memory, gpu, pods) in enumerate(free)
    )
    shapes = {ask: _shape(ask) for _, asks in gangs for ask in asks}
    made = []
    for index, (minimum, asks) in enumerate(gangs):
        members: list[Pod] = []
        for number, ask in enumerate(sorted(asks, reverse=True, key=lambda a: (a[2], a[0], a[1]))):
            members += builders.pods(f"g{index}-{number}", shapes[ask], 1)
        made.append(builders.gang(f"ns/g{index}", members, min_member=minimum))
    plain = tuple((minimum, tuple(asks)) for minimum, asks in gangs)
    return Case(nodes, builders.group(*made), tuple(free), plain)


def _shape(ask: Amounts) -> Shape:
    cpu, memory, gpu, _ = ask
    return builders.shape(cpu_milli=cpu, memory_bytes=memory, gpus=gpu)


@dataclass(slots=True)
class Result:
    """Counts, and the times of feasible cases in milliseconds, sorted."""

    feasible: int = 0
    found: int = 0
    searched: int = 0
    unsound: int = 0
    infeasible: int = 0
    times_ms: list[float] = field(default_factory=list)
    cpu_times_ms: list[float] = field(default_factory=list)


def decided(snapshot: Snapshot, case: Case) -> Verdict:
    """The verdict on the group, after as many plans as it takes."""
    unfinished = None
    while True:
        planned = plan(snapshot, [case.group], now_s=0.0, unfinished=unfinished)
        if planned.verdicts:
            return planned.verdicts[0]
        unfinished = planned.unfinished


def measure(wanted: int, seed: int, *, of_trees: bool = False) -> Result:
    """Ask `plan` for `wanted` feasible cases."""
    result = Result()
    times: list[float] = []
    cpu_times: list[float] = []
    drawn, solved, is_sound = (
        (trees_in_domains, exhaustive_tree, sound_in_domains)
        if of_trees
        else (cases, exhaustive, sound)
    )
    for case in drawn(random.Random(seed)):
        if result.feasible == wanted:
            break
        possible = solved(case)
        snapshot = builders.snapshot(case.nodes)
        started, started_cpu = time.perf_counter(), time.process_time()
        verdict = decided(snapshot, case)
        took_ms = (time.perf_counter() - started) * 1e3
        took_cpu_ms = (time.process_time() - started_cpu) * 1e3
        permitted = verdict.reason is Reason.SCHEDULED
        result.unsound += permitted and not (possible and is_sound(case, verdict))
        if not possible:
            result.infeasible += 1
            continue
        result.feasible += 1
        result.found += permitted
        times.append(took_ms)
        cpu_times.append(took_cpu_ms)
    result.times_ms, result.cpu_times_ms = sorted(times), sorted(cpu_times)
    return result


def main(argv: Sequence[str] | None = None) -> None:
    """Print the share of feasible gangs found and how long planning took."""
    parser = argparse.ArgumentParser(
        description="How many of the small Strict gangs that fit are placed?"
    )
    parser.add_argument(
        "--cases", type=int, default=2_000, help="feasible cases to try (default 2000)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--trees", action="store_true", help="trees of gangs, of which a minimum of children starts"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args(argv)
    result = measure(arguments.cases, arguments.seed, of_trees=arguments.trees)
    times, cpu_times = result.times_ms, result.cpu_times_ms
    figures = {
        "seed": arguments.seed,
        "feasible": result.feasible,
        "found": result.found,
        "found_percent": round(100 * result.found / result.feasible, 3),
        "unsound": result.unsound,
        "infeasible_refused": result.infeasible,
        "plan_ms_median": round(times[len(times) // 2], 3),
        "plan_ms_p99": round(times[len(times) * 99 // 100], 3),
        "plan_ms_max": round(times[-1], 3),
        "plan_cpu_ms_p99": round(cpu_times[len(times) * 99 // 100], 3),
    }
    if arguments.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:20} {value}")


if __name__ == "__main__":
    main()
