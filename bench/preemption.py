"""How long a plan takes that decides on a preemption, beside the same plan without one; called by
`bench.plan`.

A gang of 1,000 single-GPU pods meets 5,000 nodes on which 20,000 pods of lower priority run, plain
or in gangs, so that 500 of them must go. What runs was the same in the last plan but for 50 pods,
as in the daemon; `cold` is the first plan of a process that asks what runs. `equal` is a plan for a
gang of the same priority as all that runs: there preemption is on and nobody is asked what runs. A
decision that takes several plans counts with the longest of them.
"""

from __future__ import annotations

import gc
import random
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from bench.timing import timed_ms
from gangsched.core.cycle import plan
from gangsched.core.plan_cache import PlanCache
from gangsched.daemon import GC_THRESHOLDS
from gangsched.model.gang import Group
from gangsched.model.gpu_policy import PlacementConstraints, SliceLayer
from gangsched.model.objects import Shape
from gangsched.model.plan import Verdict
from gangsched.model.preemption import NotHelpful, Preemption, PreemptionInput, Running, RunningGang
from gangsched.model.snapshot import Snapshot
from gangsched.sentences import say
from tests import builders
from tests.running_cluster import WALL_S, RunningCluster

GIB = 2**30
GOAL_MS = 50.0
ONE = builders.shape(1, 4_000, 32 * GIB)
RACK, ZONE = "topology.kubernetes.io/rack", "topology.kubernetes.io/zone"
MOST_PLANS = 20
CHANGED = 50
"""Pods that are others than in the last plan."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """Nodes full of pods of priority 0 to 2, four to a node; `gangs`: in gangs of eight, half of
    them elastic.
    """

    name: str
    cluster: RunningCluster
    group: Group
    equal: Group

    @classmethod
    def of(cls, part: int, *, gangs: bool, level: str = "", sliced: bool = False) -> Crowd:
        """The crowd of a cluster of 5,000 nodes, or a `part` of it; the preemptor must be in one
        domain of the level.

        That is one of 5 zones, or one of 500 racks, for which it asks for ten whole nodes instead.
        `sliced`: slices of ten of its members are each in one domain of the level.
        """
        dice = random.Random(1)
        nodes = [
            builders.node(
                f"node-{n:04}",
                cpu_milli=96_000,
                memory_bytes=768 * GIB,
                labels={ZONE: f"z{n * part // 1_000}", RACK: f"r{n // 10:03}"} if level else {},
            )
            for n in range(5_000 // part)
        ]
        cluster, two = RunningCluster(nodes), builders.shape(2, 8_000, 64 * GIB)
        places = [node.name for node in nodes for _ in range(4)]
        dice.shuffle(places)
        for first in range(0, len(places), 8):
            name = f"ns/g{first}" if gangs else ""
            ran_s, priority = dice.randint(60, 7_200), dice.randint(0, 2)
            pods = [
                cluster.run(
                    f"p{first + n}", node, gang=name, of=two, ran_s=ran_s + n, priority=priority
                )
                for n, node in enumerate(places[first : first + 8])
            ]
            if gangs:
                least = 8 if first % 16 else 2
                uids = tuple(pod.uid for pod in pods)
                cluster.gangs.append(RunningGang(id=name, group=name, min_member=least, uids=uids))
        wanted, one = (
            (10, builders.shape(8, 4_000, 32 * GIB))
            if level == RACK and not sliced
            else (1_000 // part, ONE)
        )
        what = "gangs" if gangs else "plain pods"
        where = f" in one {level.rpartition('/')[2]}" if level else ""
        where = f" in slices{where}" if sliced else where
        title = f"{wanted:,} pods{where} preempt {len(places):,} {what}"
        constraints = PlacementConstraints(topology=(level,) if level else ())
        if sliced:
            constraints = PlacementConstraints(slices=(SliceLayer(10, level),))
        return cls(
            title, cluster, *(_gang(wanted, priority, one, constraints) for priority in (1_000, 0))
        )


def measure(crowd: Crowd, *, repeat: int) -> Mapping[str, str | float]:
    """Medians of the longest plan of a decision, in milliseconds; one that makes no room is an
    error, not a figure.
    """
    gc.set_threshold(*GC_THRESHOLDS)  # as the daemon does
    gc.freeze()
    first, dice = crowd.cluster.snapshot(), random.Random(2)
    running = Running(tuple(crowd.cluster.pods), tuple(crowd.cluster.gangs))
    cache = PlanCache()
    plan(_again(first), [crowd.group], now_s=0.0, cache=cache)  # warms what filters say of nodes
    cold_ms, cold_cpu_ms = _decided(first, crowd, running, cache)
    with_it, without, equal = [], [], []
    for _ in range(repeat):
        running = _changed(running, dice)
        turns = [_again(first) for _ in range(2)]
        without.append(
            timed_ms(lambda turns=turns: plan(turns[0], [crowd.group], now_s=0.0, cache=cache))  # type: ignore[misc]
        )
        with_it.append(_decided(first, crowd, running, cache))
        equal.append(
            timed_ms(lambda turns=turns, now=running: _plan(turns[1], crowd.equal, now, cache))  # type: ignore[misc]
        )
    median = statistics.median
    return {
        "case": crowd.name,
        "plan_ms": median(wall for wall, _ in with_it),
        "plan_cpu_ms": median(cpu for _, cpu in with_it),
        "cold_ms": cold_ms,
        "cold_cpu_ms": cold_cpu_ms,
        "goal_ms": GOAL_MS,
        "without_cpu_ms": median(cpu for _, cpu in without),
        "equal_cpu_ms": median(cpu for _, cpu in equal),
    }


def _gang(number: int, priority: int, one: Shape, constraints: PlacementConstraints) -> Group:
    members = [builders.pod(f"h-{n}", of=one, priority=priority) for n in range(number)]
    return builders.group(
        builders.gang("ns/high", members, constraints=constraints), priority=priority
    )


def _again(first: Snapshot) -> Snapshot:
    return Snapshot(
        first.table, first.resources, first.allocatable, first.free.copy(), first.pods_by_node
    )


def _changed(running: Running, dice: random.Random) -> Running:
    """The same pods, some of which the watch has shown anew."""
    pods = list(running.pods)
    late = [pods.pop(dice.randrange(len(pods))) for _ in range(min(CHANGED, len(pods)))]
    last = max(each.mark for each in running.pods)
    anew = [each._replace(mark=mark) for mark, each in enumerate(late, last + 1)]
    return Running((*pods, *anew), running.gangs)


def _decided(
    first: Snapshot, crowd: Crowd, running: Running, cache: PlanCache
) -> tuple[float, float]:
    """Milliseconds of the longest plan until room is made, by the clock and of the process."""
    times: list[tuple[float, float]] = []
    found: NotHelpful | None = None
    while len(times) < MOST_PLANS:
        made: list[Verdict] = []
        now, before = _again(first), found
        work = lambda: made.append(_plan(now, crowd.group, running, cache, before))  # noqa: B023, E731
        times.append(timed_ms(work))
        if isinstance(made[0].preemption, Preemption):
            return max(times)
        found = made[0].preemption
    raise SystemExit(f"Room was to be made in {MOST_PLANS} plans: {say(made[0].told).text}.")


def _plan(
    snapshot: Snapshot,
    group: Group,
    running: Running,
    cache: PlanCache,
    before: NotHelpful | None = None,
) -> Verdict:
    known = {group.id: before} if before is not None else {}
    given = PreemptionInput(
        running=lambda _left: running, wall_s=WALL_S, lowest_priority=0, known=known
    )
    return plan(snapshot, [group], now_s=0.0, preempting=given, cache=cache).verdicts[0]
