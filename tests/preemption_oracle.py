"""Small random clusters on which work runs, and an exhaustive answer to whom a group should
preempt.

Invariant: the answer is made from the rules alone (V3 to V8) and from plain numbers, with nothing
of `core.preemption`: every set of pods is tried, and every way to place the members. `seed` names a
case for ever.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import combinations

from msgspec import structs

from gangsched.model.gang import Group
from gangsched.model.gpu_policy import PlacementConstraints
from gangsched.model.objects import Node
from gangsched.model.preemption import Preemption, UnitKind
from tests import builders
from tests.running_cluster import WALL_S, RunningCluster

MOST_PODS = 9
"""Running pods of a case, so that all sets of them can be tried."""
RIGHT = 3
"""The priority of the members; running pods have 0 to 4."""
WAITS_S = (0, 30, 59, 60, 150, 300, 599)
"""Grace periods and times that are left to pods that end, all within the bound of ten minutes."""
LONG_AGO_S = 7_200
"""Run time at which the work of a pod is its size alone (V8)."""


@dataclass
class Case:
    """A cluster, and a Strict group of priority `RIGHT` whose members ask for `asks` GPUs, in one
    rack if `racked`.

    The pods of `ending` terminate by themselves.
    On the node `home` one more member runs already, which asks for none.
    """

    seed: int
    cluster: RunningCluster
    asks: tuple[int, ...]
    racked: bool
    rack_of: dict[str, str] = field(default_factory=dict)
    ending: frozenset[str] = frozenset()
    home: str = ""

    @property
    def group(self) -> Group:
        """The group that preempts."""
        members = [
            builders.pod(f"h{i}", gpus=gpus, priority=RIGHT, uid=f"h{i}")
            for i, gpus in enumerate(self.asks)
        ]
        constraints = PlacementConstraints(topology=("rack",) if self.racked else ())
        gang = builders.gang("ns/high", members, constraints=constraints)
        if self.home:
            there = len(members) + 1
            gang = structs.replace(gang, nodes=(self.home,), bound=1, min_member=there, total=there)
        return builders.group(gang, priority=RIGHT)

    def fits_without(self, gone: frozenset[str]) -> bool:
        """Whether all members have a place once the pods of these uids are gone."""
        free = {node.name: dict(node.allocatable)[builders.GPU] for node in self.cluster.nodes}
        for each in self.cluster.pods:
            if each.pod.uid not in gone | self.ending:
                free[each.node] -= dict(each.pod.shape.requests).get(builders.GPU, 0)
        racks = sorted(set(self.rack_of.values())) if self.racked else [""]
        racks = [self.rack_of[self.home]] if self.home else racks
        return any(
            _fits(
                self.asks,
                tuple(
                    sorted(n for node, n in free.items() if not rack or self.rack_of[node] == rack)
                ),
            )
            for rack in racks
        )

    def sets(self) -> Iterator[frozenset[str]]:
        """Every set of victims that the rules allow, whether it helps or not (V5 to V7)."""
        low = sorted(
            each.pod.uid
            for each in self.cluster.pods
            if each.pod.priority < RIGHT and each.pod.uid not in self.ending
        )
        for number in range(len(low) + 1):
            for chosen in combinations(low, number):
                if self.allowed(frozenset(chosen)):
                    yield frozenset(chosen)

    def allowed(self, gone: frozenset[str]) -> bool:
        """No gang between nothing and its minimum, no PodDisruptionBudget broken."""
        if any(len(gone & budget.uids) > budget.allowed for budget in self.cluster.budgets):
            return False
        for gang in self.cluster.gangs:
            left = len(gang.uids) - len(gone & set(gang.uids))
            group = {
                uid for each in self.cluster.gangs if each.group == gang.group for uid in each.uids
            }
            if left < len(gang.uids) and left < gang.min_member and not group <= gone:
                return False
        return True

    def harm(self, gone: Iterable[str]) -> tuple[int, int]:
        """Keys 2 and 3 of V8."""
        taken = set(gone)
        priority = max(each.pod.priority for each in self.cluster.pods if each.pod.uid in taken)
        stopped = sum(
            1
            for gang in self.cluster.gangs
            if gang.min_member >= 2
            and len(gang.uids) >= gang.min_member > len(set(gang.uids) - taken)
        )
        return priority, stopped

    def cost(self, gone: Iterable[str]) -> tuple[int, int, int, int, int]:
        """Keys 2 to 6 of V8: the last is the wait in minutes, for victims and for what ends on
        their nodes.
        """
        uids = frozenset(gone)
        taken = [each for each in self.cluster.pods if each.pod.uid in uids]
        nodes = {each.node for each in taken}
        ending = [
            each for each in self.cluster.pods if each.pod.uid in self.ending and each.node in nodes
        ]
        waits_s = [
            *(each.pod.grace_s for each in taken),
            *(each.pod.deletion_s - WALL_S for each in ending),
        ]
        now = {each.pod.uid: min(WALL_S - each.pod.start_s, 3_600) for each in taken}
        work = sum(
            dict(each.pod.shape.requests)[builders.GPU] * now[each.pod.uid] for each in taken
        )
        return *self.harm(uids), work, len(taken), max(waits_s) // 60

    def costs(self) -> list[tuple[int, int, int, int, int]]:
        """The costs of all sets that help, the least first."""
        return sorted(self.cost(gone) for gone in self.sets() if gone and self.fits_without(gone))

    def best(self) -> tuple[int, int] | None:
        """The least harm that helps, by those two keys; None if nothing helps."""
        helping = (self.harm(gone) for gone in self.sets() if gone and self.fits_without(gone))
        return min(helping, default=None)


def cases(seeds: Iterable[int], draw: Callable[[int], Case] | None = None) -> Iterator[Case]:
    """The cases of these seeds in which the members do not fit as it is."""
    for seed in seeds:
        drawn = (draw or case)(seed)
        if not drawn.fits_without(frozenset()):
            yield drawn


def case(seed: int) -> Case:
    """One cluster: up to four nodes in two racks, plain pods, gangs and groups on them, and budgets
    over some.
    """
    dice = random.Random(seed)
    nodes = [
        builders.node(f"n{n}", dice.choice((4, 8, 8)), labels={"rack": f"r{n % 2}"})
        for n in range(dice.randint(1, 4))
    ]
    cluster = _filled(dice, nodes)
    asks = [dice.choice((1, 2, 4, 8))] * dice.randint(1, 4)
    if dice.random() < 0.3:
        asks.append(dice.choice((1, 2, 4)))
    return Case(
        seed,
        cluster,
        tuple(asks),
        dice.random() < 0.2,
        {node.name: node.labels["rack"] for node in nodes},
    )


def racked_case(seed: int) -> Case:
    """One cluster of three racks, and a group that must be in one of them; in a third of the cases
    a member is.
    """
    dice = random.Random(seed)
    nodes = [
        builders.node(
            f"n{rack}{n}", dice.choice((4, 6, 8)), labels={"rack": f"r{rack}", "zone": "z"}
        )
        for rack in range(3)
        for n in range(dice.randint(1, 2))
    ]
    cluster = _filled(dice, nodes)
    asks = [dice.choice((1, 2, 3, 4, 8)) for _ in range(dice.randint(1, 3))] * dice.choice(
        (1, 1, 2)
    )
    home = dice.choice(nodes).name if dice.random() < 0.33 else ""
    return Case(
        seed,
        cluster,
        tuple(sorted(asks)[::-1]),
        True,
        {node.name: node.labels["rack"] for node in nodes},
        home=home,
    )


def _filled(dice: random.Random, nodes: Sequence[Node]) -> RunningCluster:
    """Plain pods, gangs and groups on these nodes, and budgets over some."""
    cluster = RunningCluster(list(nodes))
    free = {node.name: dict(node.allocatable)[builders.GPU] for node in nodes}
    number = 0
    while len(cluster.pods) < MOST_PODS - 1 and dice.random() < 0.9:
        places: list[str] = []
        gpus = dice.choice((1, 1, 2, 4))
        for _ in range(dice.choice((1, 1, 2, 3, 4))):
            fitting = [name for name, n in free.items() if n >= gpus]
            if not fitting or len(cluster.pods) + len(places) >= MOST_PODS:
                break
            places.append(dice.choice(fitting))
            free[places[-1]] -= gpus
        _run(dice, cluster, number, gpus, places)
        number += 1
    if dice.random() < 0.3 and cluster.pods:
        covered = dice.sample(
            [each.pod for each in cluster.pods], dice.randint(1, len(cluster.pods))
        )
        cluster.budget("ns/budget", dice.randint(0, len(covered)), covered)
    return cluster


def with_budgets(drawn: Case) -> Case:
    """The case with at least one budget over some of its pods, in part with a second one over
    others.
    """
    cluster = drawn.cluster
    pods = [running.pod for running in cluster.pods]
    if cluster.budgets or not pods:
        return drawn

    dice = random.Random(f"budgets {drawn.seed}")
    covered = dice.sample(pods, dice.randint(1, len(pods)))
    cluster.budget("ns/budget", dice.randint(0, max(0, len(covered) - 1)), covered)
    others = [pod for pod in pods if pod not in covered]
    if others and dice.random() < 0.4:
        covered = dice.sample(others, dice.randint(1, len(others)))
        cluster.budget("ns/second", dice.randint(0, len(covered)), covered)

    return drawn


def with_waits(drawn: Case) -> Case:
    """The case with pods that have all run for long, each with a grace period; some plain ones
    terminate.
    """
    dice, ending = random.Random(f"waits {drawn.seed}"), set()
    pods = drawn.cluster.pods
    for number, each in enumerate(pods):
        pod = structs.replace(
            each.pod, start_s=WALL_S - LONG_AGO_S - number, grace_s=dice.choice(WAITS_S)
        )
        ends = not each.gang and dice.random() < 0.3
        if ends:
            ending.add(pod.uid)
            pod = structs.replace(pod, deleting=True, deletion_s=WALL_S + dice.choice(WAITS_S))
        pods[number] = each._replace(pod=pod, leaving=ends)
    return replace(drawn, ending=frozenset(ending))


def problems(drawn: Case, made: Preemption) -> Iterator[str]:
    """What is wrong with a decision: too much taken, too little, or what must not be."""
    gone = frozenset(victim.uid for victim in made.victims)
    if not gone:
        yield "nobody is evicted, and the members did not fit"
    if any(victim.priority >= RIGHT for victim in made.victims):
        yield "a victim is of no lower priority"
    if not drawn.allowed(gone):
        yield "a gang is halved or a budget broken"
    if not drawn.fits_without(gone):
        yield "the members do not fit even then"
    for unit in _units(made):
        if drawn.fits_without(gone - unit):
            yield f"{sorted(unit)} could be given back"
    if len(made.placements) != len(drawn.asks):
        yield "not every member has a place"
    racks = {drawn.rack_of[each.node] for each in made.placements} | (
        {drawn.rack_of[drawn.home]} if drawn.home else set()
    )
    if drawn.racked and len(racks) > 1:
        yield f"members are in {sorted(racks)}"


def _run(
    dice: random.Random, cluster: RunningCluster, number: int, gpus: int, places: Sequence[str]
) -> None:
    """A plain pod, a gang, or a gang that joins the group of the one before it."""
    ran_s, priority = dice.randint(1, 4000), dice.choice((0, 0, 1, 1, 2, 3, 4))
    if len(places) == 1 and dice.random() < 0.7:
        cluster.run(f"p{number}", places[0], gpus=gpus, priority=priority, ran_s=ran_s)
    elif places:
        group = cluster.gangs[-1].group if cluster.gangs and dice.random() < 0.15 else ""
        least = dice.choice((len(places), len(places), dice.randint(1, len(places))))
        name = f"ns/g{number}"
        cluster.gang(
            name, least, " ".join(places), gpus=gpus, priority=priority, ran_s=ran_s, group=group
        )


def _units(made: Preemption) -> list[frozenset[str]]:
    """The units of a decision."""
    alone = [frozenset({victim.uid}) for victim in made.victims if victim.kind is not UnitKind.CORE]
    groups = Counter(victim.group for victim in made.victims if victim.kind is UnitKind.CORE)
    cores = [
        frozenset(v.uid for v in made.victims if v.kind is UnitKind.CORE and v.group == group)
        for group in groups
    ]
    return [*alone, *cores]


@cache
def _fits(asks: tuple[int, ...], free: tuple[int, ...]) -> bool:
    if not asks:
        return True
    for n in range(len(free)):
        if free[n] >= asks[0]:
            after = tuple(sorted((*free[:n], free[n] - asks[0], *free[n + 1 :])))
            if _fits(asks[1:], after):
                return True
    return False
