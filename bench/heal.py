"""How long a gang that lost a node waits for another one, and what that costs it.

`python -m bench.heal [--policy wait|preempt|anywhere] [--nodes 200] [--days 60] [--seed 1]` plays
nodes that fail and are repaired on a virtual clock, with the real state and the real plans.
Gangs ask for three quarters of the nodes, and single pods of lower priority take what is left.
Policies:

- `anywhere`: gangs state no topology, and nobody is preempted; a replacement goes home if it can;
- `wait`: each gang requires one rack, and waits there for a node;
- `preempt`: the same, and single pods of lower priority give way.

Sources: 6.5 node failures in 1,000 node-days ("Revisiting Reliability in Large-Scale ML Research
Clusters"; Llama 3: 3.8). Assumptions: half of the failures last 15 minutes, the others 24 hours on
average; 1.2 % of the nodes fail ten times as often; a checkpoint each hour, then 5 minutes.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import structs

from bench.fight.virtual import Agenda
from gangsched.model.gpu_policy import TOPOLOGY_KEYS
from gangsched.model.objects import Node, Phase, Pod, PodGroup
from gangsched.model.protocol import Applied, Bind, Bound
from tests import builders
from tests.world import World

_, RACK, _ = TOPOLOGY_KEYS
GPUS = 8
NODES_A_RACK = 50
SIZES = (1, 2, 4, 8, 8, 16, 32)
HOUR_S = 3_600.0
DAY_S = 24 * HOUR_S
CHECKPOINT_S = HOUR_S
BEGIN_AGAIN_S = 300.0
RECREATED_AFTER_S = 1.0
GANGS_SHARE = 0.75
"""Of the nodes, that gangs ask for together; single pods take the rest."""
WAITING_SINGLES = 2
LARGE = 8
"""Nodes of a gang from which on its effective training time counts."""
LONGEST_P95_S = 15 * 60.0
LEAST_EFFECTIVE = 0.98
POLICIES = ("anywhere", "wait", "preempt")


@dataclass(eq=False)
class Job:
    """A gang of whole nodes; times are seconds of the virtual clock."""

    group: PodGroup
    size: int
    needs_s: float
    pods: set[str] = field(default_factory=set)
    nodes: dict[str, str] = field(default_factory=dict)
    started_s: float = math.inf
    resumed_s: float = math.inf
    done_s: float = 0.0
    run: int = 0
    lost_s: dict[str, float] = field(default_factory=dict)

    def productive_s(self, now_s: float) -> float:
        """Time that was not lost up to now."""
        running = max(0.0, now_s - self.resumed_s)
        return min(self.needs_s, self.done_s + running)


class Healing(World):
    """The cluster, the controllers of its jobs, and what is counted."""

    def __init__(self, policy: str, nodes: int, dice: random.Random, *, rate: float) -> None:
        self.policy = policy
        self.sizes = [size for size in SIZES if size <= nodes // 2]
        self.dice = dice
        self.agenda = Agenda()
        self.jobs: dict[str, Job] = {}
        self.singles: dict[str, bool] = {}
        self.serial = 0
        self.healed_s: list[float] = []
        self.effective: list[tuple[float, float]] = []
        self.split_node_s = 0.0
        self.node_s = 0.0
        self.counted_s = 0.0

        machines = []
        for number in range(nodes):
            labels = {RACK: f"r{number // NODES_A_RACK}"}
            machines.append(builders.node(f"n{number}", GPUS, labels=labels))

        super().__init__(*machines, preempts=policy == "preempt")
        for number, machine in enumerate(machines):
            bad = 10.0 if number % 83 == 0 else 1.0
            self._fails_later(machine, rate * bad / (1_000 * DAY_S))

    def check(self) -> None:
        """Nothing: invariants are for tests."""

    # --- the clock -------------------------------------------------------------------------------

    def play(self, until_s: float) -> None:
        """Let everything happen until then."""
        while self.now_s < until_s:
            self._refill()
            self.settle()
            self.reports.clear()
            self.plans.clear()

            deadline_s = self.state.next_deadline_s(self.now_s) or math.inf
            next_s = min(deadline_s, self.agenda.next_s, *self.leaving.values(), until_s)
            self._count(max(0.0, next_s - self.now_s))
            self.now_s = max(self.now_s, next_s)

            for uid in [uid for uid, gone_s in self.leaving.items() if gone_s <= self.now_s]:
                del self.leaving[uid]
                self._single_is_gone(self.pods[uid])

            self.agenda.happen(self.now_s)

        for job in self.jobs.values():
            self._end_count(job)

    def _count(self, seconds: float) -> None:
        for job in self.jobs.values():
            if job.size < 2 or not job.nodes:
                continue

            racks = {self.nodes[name].labels[RACK] for name in job.nodes.values()}
            self.node_s += job.size * seconds
            if len(racks) > 1:
                self.split_node_s += job.size * seconds

    # --- what arrives ----------------------------------------------------------------------------

    def _refill(self) -> None:
        most = GANGS_SHARE * len(self.nodes)
        while sum(job.size for job in self.jobs.values()) < most:
            self._arrive()

        idle = sum(not is_bound for is_bound in self.singles.values())
        for _ in range(WAITING_SINGLES - idle):
            self._single(DAY_S * self.dice.expovariate(1.0))

    def _arrive(self) -> None:
        self.serial += 1
        name = f"job-{self.serial}"
        marks: tuple[tuple[str, str], ...] = ()
        if self.policy != "anywhere":
            marks = builders.gang_metadata(name, topology=RACK)[-1:]

        size = self.dice.choice(self.sizes)
        group = builders.pod_group(name, size, creation_s=self.wall_s(), gang_metadata=marks)
        job = Job(group, size, self.dice.uniform(12 * HOUR_S, 48 * HOUR_S))
        self.jobs[name] = job
        self.declare(group)
        for number in range(size):
            self._member(job, f"{name}-{number}")

    def _member(self, job: Job, name: str) -> None:
        self.serial += 1
        (pod,) = self.create(
            builders.pod(
                name,
                gpus=GPUS,
                priority=10,
                uid=f"{name}#{self.serial}",
                creation_s=self.wall_s(),
                gang_metadata=builders.gang_metadata(job.group.name, pod_group=True),
            )
        )
        job.pods.add(pod.uid)

    def _single(self, run_s: float) -> None:
        self.serial += 1
        name = f"single-{self.serial}"
        (pod,) = self.create(
            builders.pod(name, gpus=GPUS, grace_s=30, uid=name, creation_s=self.wall_s())
        )
        self.singles[pod.uid] = False
        self.agenda.at(self.now_s + run_s, lambda: self._single_is_gone(pod))

    def _single_is_gone(self, pod: Pod) -> None:
        self.leaving.pop(pod.uid, None)
        self.singles.pop(pod.uid, None)
        self.delete(pod)

    # --- what is bound, and ends -----------------------------------------------------------------

    def _bind(self, bind: Bind) -> None:
        pod = structs.replace(
            self.pods[bind.uid],
            node_name=bind.node,
            phase=Phase.RUNNING,
            start_s=self.wall_s(),
            nominated_node="",
        )
        self.pods[bind.uid] = pod
        self.say(Applied(pod), Bound(bind.uid, bind.node))
        if pod.uid in self.singles:
            self.singles[pod.uid] = True
            return

        job = self.jobs[pod.name.rpartition("-")[0]]
        job.nodes[pod.uid] = bind.node
        lost_s = job.lost_s.pop(pod.name, None)
        if lost_s is not None:
            self.healed_s.append(self.now_s - lost_s)
        if len(job.nodes) == job.size:
            self._runs(job)

    def _runs(self, job: Job) -> None:
        job.run += 1
        again_s = 0.0 if job.started_s == math.inf else BEGIN_AGAIN_S
        job.started_s = min(job.started_s, self.now_s)
        job.resumed_s = self.now_s + again_s
        run = job.run
        self.agenda.at(
            job.resumed_s + job.needs_s - job.done_s,
            lambda: self._ends(job) if job.run == run else None,
        )

    def _ends(self, job: Job) -> None:
        self._end_count(job)
        self.delete(*(self.pods[uid] for uid in sorted(job.pods)))
        self.withdraw(job.group)
        del self.jobs[job.group.name]

    def _end_count(self, job: Job) -> None:
        if job.size >= LARGE and job.started_s < self.now_s:
            self.effective.append((job.productive_s(self.now_s), self.now_s - job.started_s))

    # --- failures --------------------------------------------------------------------------------

    def _fails_later(self, machine: Node, a_second: float) -> None:
        self.agenda.at(
            self.now_s + self.dice.expovariate(a_second), lambda: self._fails(machine, a_second)
        )

    def _fails(self, machine: Node, a_second: float) -> None:
        self.add_nodes(structs.replace(machine, unschedulable=True))
        for pod in [*self.pods.values()]:
            if pod.node_name != machine.name:
                continue
            if pod.uid in self.singles:
                self._single_is_gone(pod)
            else:
                self._loses(self.jobs[pod.name.rpartition("-")[0]], pod)

        is_short = self.dice.random() < 0.5
        away_s = 900.0 if is_short else DAY_S * self.dice.expovariate(1.0)
        self.agenda.at(self.now_s + away_s, lambda: self._is_repaired(machine, a_second))

    def _is_repaired(self, machine: Node, a_second: float) -> None:
        self.add_nodes(machine)
        self._fails_later(machine, a_second)

    def _loses(self, job: Job, pod: Pod) -> None:
        ran_s = max(0.0, self.now_s - job.resumed_s)
        job.done_s += ran_s // CHECKPOINT_S * CHECKPOINT_S
        job.resumed_s = math.inf
        job.run += 1

        job.pods.discard(pod.uid)
        job.nodes.pop(pod.uid, None)
        job.lost_s[pod.name] = self.now_s
        self.delete(pod)
        self.agenda.at(self.now_s + RECREATED_AFTER_S, lambda: self._member(job, pod.name))


@dataclass(frozen=True)
class Figures:
    """What came of one policy."""

    losses: int
    healed: int
    median_s: float
    p95_s: float
    longest_s: float
    effective: float
    split: float


def play(policy: str, nodes: int, days: float, seed: int, rate: float) -> Figures:
    """One policy; a loss that is not healed at the end counts with its time so far."""
    cluster = Healing(policy, nodes, random.Random(seed), rate=rate)
    cluster.play(days * DAY_S)

    waits_s = [*cluster.healed_s]
    for job in cluster.jobs.values():
        waits_s += [cluster.now_s - lost_s for lost_s in job.lost_s.values()]

    waits_s.sort()
    productive_s = sum(each for each, _ in cluster.effective)
    all_s = sum(each for _, each in cluster.effective)
    return Figures(
        len(waits_s),
        len(cluster.healed_s),
        _share(waits_s, 0.5),
        _share(waits_s, 0.95),
        _share(waits_s, 1.0),
        productive_s / max(1.0, all_s),
        cluster.split_node_s / max(1.0, cluster.node_s),
    )


def _share(waits_s: Sequence[float], share: float) -> float:
    if not waits_s:
        return 0.0

    return waits_s[min(len(waits_s) - 1, int(share * len(waits_s)))]


def main() -> int:
    """Play the policies; exit code 1 if preemption misses its bars."""
    parser = argparse.ArgumentParser(
        prog="bench.heal",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--policy", choices=POLICIES)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--days", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=6.5, help="failures in 1,000 node-days")
    given = parser.parse_args()
    missed = False

    for policy in (given.policy,) if given.policy else POLICIES:
        began_s = time.monotonic()
        found = play(policy, given.nodes, given.days, given.seed, given.rate)
        print(
            f"{policy:9} {found.losses} losses, {found.healed} healed;"
            f" loss to bind: median {found.median_s / 60:.1f} min, p95 {found.p95_s / 60:.1f} min,"
            f" longest {found.longest_s / 60:.0f} min; effective time of gangs of {LARGE} nodes or"
            f" more {found.effective:.4f}; node-hours of gangs in several racks {found.split:.1%}"
            f" ({time.monotonic() - began_s:.0f} s)",
            flush=True,
        )
        if policy == "preempt":
            missed = found.p95_s > LONGEST_P95_S or found.effective < LEAST_EFFECTIVE

    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
