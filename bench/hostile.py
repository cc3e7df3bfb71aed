"""The longest plan and the longest turn of the loop that generated hostile gangs can cause.

`python -m bench.hostile [--gangs 400] [--first 0] [--seed N] [--goal-ms 50] [--only N ...]` draws
gangs of up to 2,000 members and as many shapes, with node selectors, spread, affinity, ports,
claims, topology, disruption budgets and members that fit nowhere, on clusters of up to 5,000 nodes.
Each meets an ordinary gang of another namespace. All its pods come at once; then the daemon's loop
takes its turns on a virtual clock until nothing is due, and once more after all pods are deleted. A
fake API server binds, writes conditions and evicts between the turns. 400 gangs take seven to eight
minutes, a few of them a quarter of that: 1,000 plain pods that each look for whom to preempt. One
of these (318) takes 4,000 turns and more to answer all of them once.

It prints the longest plans and turns, by the time of the loop's thread and by the clock, and fails
where a turn took more than the goal by its thread's own time, or turns went on without an end. A
gang of which one took long is played again, and for each turn the shortest counts: on a busy
machine the same turn may take twice as long. `--only` plays single gangs again, `--profile` with
the functions that took most in their longest turns.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import heapq
import logging
import math
import pstats
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from bench.flooded import PLAN
from bench.hostile_gangs import SIZES, Hostile, draw, ground, lasting_storage
from gangsched.core.cycle import Limits
from gangsched.daemon import GC_THRESHOLDS
from gangsched.loop import Loop, Ports
from gangsched.model.disruption import PodDisruptionBudget
from gangsched.model.objects import Namespace, Node, Pod
from gangsched.model.protocol import Action, Applied, BindOrder, Message, Replaced
from gangsched.model.reservation import ReservationLimits
from gangsched.model.storage import Claim, CsiNode, StorageClass, Volume
from gangsched.state.rule_set import Rules
from gangsched.telemetry.metrics import Metrics
from tests import builders
from tests.world import EPOCH_S, World

SHOWN = 10
TRIALS, AGAIN_MS = 3, 35.0
MOST_TURNS = 6_000
TURN_S, REST_S = 0.01, 2.0
"""Virtual time of a turn, and how long after the last one is waited for what is still due."""
PROFILED_FUNCTIONS = 25


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn and the plan in it: of the thread's own time, and by the clock."""

    cpu_ms: float
    wall_ms: float
    plan_ms: float
    plan_wall_ms: float


@dataclass(frozen=True, slots=True)
class Clock:
    """The virtual clock of a world."""

    world: World

    def now_s(self) -> float:
        """Monotonic seconds."""
        return self.world.now_s

    def wall(self) -> str:
        """The present in RFC 3339."""
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.wall_s()))

    def wall_s(self) -> float:
        """The present in seconds since the epoch."""
        return EPOCH_S + self.world.now_s


class RestlessError(Exception):
    """Turns go on although nothing happens any more."""


class PlayedByLoop(World):
    """A world whose turns are those of the daemon's loop; what it orders is done after each of
    them.
    """

    def __init__(self, nodes: Sequence[Node], running: Sequence[Pod], rules: Rules) -> None:
        self._loop: Loop | None = None
        super().__init__(rules=rules, preempts=True)
        self.turns: list[Turn] = []
        self.profiles: list[tuple[float, cProfile.Profile]] | None = None
        self._ordered: list[Action] = []
        self._running = running
        classes, csi_nodes = lasting_storage(len(nodes))
        self.say(Replaced(StorageClass, tuple(classes)), Replaced(CsiNode, tuple(csi_nodes)))
        self.say(Applied(Namespace(builders.NAMESPACE)), Applied(Namespace("other")))
        self.add_nodes(*nodes)
        self.create(running)
        ports = Ports(self, self._ordered.append, self._ordered.append, Clock(self))
        limits = Limits()
        self._loop = Loop(self.state, ports, metrics=Metrics(), limits=limits, ready=lambda: True)
        self.turn_until_rest()

    def say(self, *messages: Message) -> None:
        """Messages arrive, and wait for the loop."""
        if self._loop is None:
            super().say(*messages)
            return
        for each in messages:
            self._loop.inbox(each)

    def submit(self, orders: Sequence[BindOrder]) -> None:
        """Binds are carried out after the turn."""
        self._ordered += orders

    def play(self, hostile: Hostile) -> str:
        """Take turns from the creation of a gang, and an ordinary one beside it, until nothing of
        them is left.

        Returns what became of the gang.
        """
        self.turns = []
        self.say(Replaced(Volume, tuple(hostile.volumes)), Replaced(Claim, tuple(hostile.claims)))
        self.say(Replaced(PodDisruptionBudget, tuple(hostile.budgets)))
        other = builders.members(
            "o", 4, gpus=0, cpu_milli=1_000, namespace="other", creation_s=10**9
        )
        self.create(hostile.pods, other)
        decided = self.turn_until_rest()
        bound = sum(
            pod.uid in self.pods and bool(self.pods[pod.uid].node_name) for pod in hostile.pods
        )
        evicted = len(self._running) - sum(pod.uid in self.pods for pod in self._running)
        waits = next(
            (text for pod in hostile.pods if (text := self.condition(self.pods[pod.uid])[1])), ""
        )
        told = f"{decided} turns: {bound} bound, {evicted} evicted; {waits[:200]}"
        self.delete(*hostile.pods, *other)
        self.create(each for each in self._running if each.uid not in self.pods)
        self.say(Replaced(Volume, ()), Replaced(Claim, ()), Replaced(PodDisruptionBudget, ()))
        self.turn_until_rest()
        self._forget()
        return told

    def turn_until_rest(self) -> int:
        """Take turns until nothing comes for a while; returns how many."""
        number, rests_s = 0, self.now_s + REST_S
        while number < MOST_TURNS:
            number += 1
            if self._turn():
                rests_s = self.now_s + REST_S
                continue
            due_s = min(
                (self.state.next_deadline_s(self.now_s) or math.inf, *self.leaving.values())
            )
            if due_s > rests_s:
                return number
            self.now_s = max(self.now_s, due_s)
            for uid in [uid for uid, at_s in self.leaving.items() if at_s <= self.now_s]:
                del self.leaving[uid]
                if uid in self.pods:
                    self.delete(self.pods[uid])
        raise RestlessError(f"no rest after {MOST_TURNS} turns")

    def _turn(self) -> bool:
        """One turn, and what it ordered; whether there was anything to do."""
        assert self._loop is not None
        PLAN.cpu_ms = PLAN.wall_ms = 0.0
        profile = cProfile.Profile(time.thread_time) if self.profiles is not None else None
        began_s, cpu_s = time.perf_counter(), time.thread_time()
        busy = self._loop.turn() if profile is None else profile.runcall(self._loop.turn)
        cpu_ms, wall_ms = (time.thread_time() - cpu_s) * 1e3, (time.perf_counter() - began_s) * 1e3
        took = Turn(cpu_ms, wall_ms, PLAN.cpu_ms, PLAN.wall_ms)
        self.turns.append(took)
        if profile is not None and self.profiles is not None:
            self.profiles.append((took.cpu_ms, profile))
        self.now_s += TURN_S
        ordered, self._ordered[:] = list(self._ordered), []
        self._do(ordered)
        answers = len(self.unanswered) + len(self.unwritten)
        self.answer()
        return busy or bool(ordered) or answers > len(self.unanswered) + len(self.unwritten)

    def _forget(self) -> None:
        """What a test would look at, and what is remembered of shapes that no cluster knows before
        a gang comes.
        """
        for each in (self.sent, self.reports, self.ordered, self.claims_sent):
            each.clear()
        self.delayed.clear()
        table = self.state.snapshot().table
        for memo in (table.static_fits, table.penalties, table.eligible):
            memo.clear()


@dataclass(frozen=True, slots=True, order=True)
class Taken:
    """The longest turn, and the longest plan, that one gang caused."""

    turn_ms: float
    wall_ms: float
    plan_ms: float
    plan_wall_ms: float
    turns: int
    number: int
    text: str
    told: str

    def __str__(self) -> str:
        return (
            f"#{self.number}: turn {self.turn_ms:.1f} ms of the thread, {self.wall_ms:.1f} ms by"
            f" the clock; plan {self.plan_ms:.1f} and {self.plan_wall_ms:.1f} ms; {self.turns}"
            f" turns; {self.text}: {self.told}"
        )


def take(hostile: Hostile, world: PlayedByLoop, number: int) -> Taken:
    """Play a gang, and again while its longest turn may be the fault of a busy machine."""
    best: list[Turn] = []
    for _ in range(TRIALS):
        told = world.play(hostile)
        if len(world.turns) == len(best):
            best = [min(turns, key=_cpu_ms) for turns in zip(best, world.turns, strict=True)]
        elif not best or _longest(world.turns) < _longest(best):
            best = world.turns
        if _longest(best) <= AGAIN_MS or world.profiles is not None:
            break
    return Taken(
        _longest(best),
        max(each.wall_ms for each in best),
        max(each.plan_ms for each in best),
        max(each.plan_wall_ms for each in best),
        len(best),
        number,
        hostile.text,
        told,
    )


def _longest(turns: Sequence[Turn]) -> float:
    return max(map(_cpu_ms, turns))


def _cpu_ms(turn: Turn) -> float:
    return turn.cpu_ms


def main(argv: Sequence[str] | None = None) -> int:
    """Draw and play; 1 if a turn took too long."""
    parser = argparse.ArgumentParser(
        description="How long can one turn take, whatever users write?"
    )
    parser.add_argument("--gangs", type=int, default=400)
    parser.add_argument(
        "--first", type=int, default=0, help="the number of the first gang, to draw them in parts"
    )
    parser.add_argument("--seed", type=int, default=30)
    parser.add_argument("--goal-ms", type=float, default=50.0)
    parser.add_argument(
        "--only", type=int, nargs="+", default=None, help="the numbers of single gangs"
    )
    parser.add_argument("--slices", action="store_true", help="each gang states slices, too")
    parser.add_argument(
        "--trees", action="store_true", help="its gangs are the children of a tree, up to 128"
    )
    parser.add_argument(
        "--profile", action="store_true", help="print where the time of the longest turn goes"
    )
    arguments = parser.parse_args(argv)
    print(f"seed {arguments.seed}", flush=True)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    gc.set_threshold(*GC_THRESHOLDS)
    worlds: dict[tuple[int, bool], PlayedByLoop] = {}
    chosen = arguments.only or range(arguments.first, arguments.first + arguments.gangs)
    found: list[Taken] = []
    restless: list[int] = []
    for number in chosen:
        dice = random.Random(arguments.seed * 1_000_003 + number)
        size = dice.choice(SIZES)
        hostile = draw(size, dice, slices=arguments.slices, trees=arguments.trees)
        world = worlds.get((size, hostile.reserves)) or worlds.setdefault(
            (size, hostile.reserves), _world(size, hostile)
        )
        world.profiles = [] if arguments.profile else None
        try:
            taken = take(hostile, world, number)
        except RestlessError as error:
            restless.append(number)
            print(f"#{number}: {error}; {hostile.text}", flush=True)
            del worlds[size, hostile.reserves]  # what it did last is not known
            continue
        found.append(taken)
        if taken.turn_ms > arguments.goal_ms or arguments.only is not None:
            print(taken, flush=True)
        if world.profiles:
            _, longest = max(world.profiles, key=lambda each: each[0])
            pstats.Stats(longest).sort_stats("cumulative").print_stats(PROFILED_FUNCTIONS)
            pstats.Stats(longest).sort_stats("tottime").print_stats(PROFILED_FUNCTIONS)
    over = sum(each.turn_ms > arguments.goal_ms for each in found)
    print(f"The longest turn of each gang in ms: {_shares([each.turn_ms for each in found])}")
    print(f"The longest plan of each gang in ms: {_shares([each.plan_ms for each in found])}")
    print(
        f"{len(found)} gangs came to rest, {len(restless)} did not; {over} turns over"
        f" {arguments.goal_ms:g} ms. The longest turns:"
    )
    for each in heapq.nlargest(SHOWN, found):
        print(f"  {each}")
    print("The longest plans:")
    for each in heapq.nlargest(SHOWN, found, key=lambda each: each.plan_ms):
        print(f"  {each}")
    numbers = " ".join(
        map(str, [*restless, *(each.number for each in heapq.nlargest(SHOWN, found))])
    )
    kinds = " --slices" * arguments.slices + " --trees" * arguments.trees
    again = f"python -m bench.hostile --seed {arguments.seed}{kinds} --only {numbers}"
    print(f"Again: {again}")
    return 1 if over or restless else 0


def _world(size: int, hostile: Hostile) -> PlayedByLoop:
    """The cluster of that size, whose objects the garbage collector need not look at."""
    limits = ReservationLimits() if hostile.reserves else ReservationLimits(reservations=0)
    made = PlayedByLoop(*ground(size, random.Random(size)), Rules(reservations=limits))
    gc.collect()
    gc.freeze()
    return made


def _shares(found: Sequence[float]) -> str:
    ordered = sorted(found) or [math.nan]
    shares = (
        f"{share:g} % {ordered[int((len(ordered) - 1) * share / 100)]:.1f}"
        for share in (50, 90, 99, 100)
    )
    return ", ".join(shares)


if __name__ == "__main__":
    sys.exit(main())
