"""What is not looked at again would have changed nothing (Q3, H5, H6).

Whom an event cannot help is not tried, and a reservation that it cannot move is not made anew. Here
both is done all the same: after each event of a random history every group that waits is tried, and
of random clusters from which a pod goes all reservations are made with it and without it. A failure
names its seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pytest

from gangsched.api import keys
from gangsched.core.reservations.heads import Head, empty_ledger, needed, waiting_since_s
from gangsched.core.reservations.new_reservation import Reservation, make_reservations
from gangsched.core.reservations.timeline import Timeline
from gangsched.core.reserve import Ledger
from gangsched.model.objects import Pod
from gangsched.model.reservation import Occupant, ReservationLimits
from gangsched.state.group_record import QueueCause
from gangsched.state.reserving.news import News
from gangsched.state.rule_set import Rules
from tests.builders import gang, gang_metadata, group, node, pod, running, shape, snapshot
from tests.sizes import of_size
from tests.world import EPOCH_S, World

pytestmark = pytest.mark.long
HISTORIES = of_size(8, 400)
STEPS = 30
CASES = 20 * HISTORIES
NOW_S = 100_000.0
GANGS = (
    [(8, 1)],
    [(8, 1)] * 2,
    [(8, 1)] * 3,
    [(4, 2)] * 2,
    [(4, 2)] * 5,
    [(1, 4)] * 3,
    [(0, 6)] * 4,
    [(2, 1)] * 6,
)
MIXED = ([(4, 2), (1, 1), (1, 1)], [(8, 1), (0, 8)], [(2, 6), (2, 1), (0, 4)])
"""Pods by GPUs and CPUs. Sums are exact for the former; a time of the latter is found by a bounded
search (H5).
"""


class History:
    """Random events; `play` yields who runs where after each, and the same after everybody was
    tried again.
    """

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        limits = ReservationLimits(
            share=1.0,
            per_namespace=self._dice.choice((1, 2, 8)),
            reservations=self._dice.choice((1, 3, 8)),
            fence_after_s=self._dice.choice((0.0, 60.0, 1e9)),
            small_head_after_s=self._dice.choice((0.0, 60.0)),
            small_head_latest_s=600.0,
        )
        self._known = self._dice.choice((0.0, 0.5, 1.0))
        self._gangs = GANGS if seed % 2 else (*GANGS, *MIXED)
        self._world = World(
            *(node(f"n{n:02}", cpu_milli=16_000) for n in range(4)),
            rules=Rules(reservations=limits),
            preempts=self._dice.random() < 0.3,
        )
        self._number = 0

    def play(self) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
        """`STEPS` events, each with the time to answer it."""
        events = (
            [self._gang] * 4
            + [self._other] * 3
            + [self._goes] * 5
            + [self._ends] * 3
            + [self._node, self._late]
        )
        for _ in range(STEPS):
            self._dice.choice(events)()
            self._world.advance(4.0)
            before = self._world.bound()
            state = self._world.state
            for each in list(state.queue.parked.groups):
                state.queue.activate(each, QueueCause.CHANGED)
            self._world.settle()
            yield before, self._world.bound()

    def waiting(self) -> bool:
        """Whether any group waits for room."""
        return bool(len(self._world.state.queue.parked))

    def _wall_s(self) -> int:
        return int(EPOCH_S + self._world.now_s)

    def _states(self) -> tuple[tuple[str, str], ...]:
        runs_s = self._dice.choice((20, 100, 400, 1_000))
        return ((keys.EXPECTED_RUNTIME, f"{runs_s}s"),) if self._dice.random() < self._known else ()

    def _pods(self, asked: Collection[tuple[int, int]], **fields: Any) -> list[Pod]:
        self._number += 1
        name = f"p{self._number:03}"
        fields |= {
            "run_time_metadata": self._states(),
            "creation_s": self._wall_s() - self._dice.choice((0, 0, 90)),
        }
        return [
            pod(f"{name}-{n}", of=shape(gpus, cpus * 1_000), **fields)
            for n, (gpus, cpus) in enumerate(asked)
        ]

    def _gang(self) -> None:
        asked = self._dice.choice(self._gangs)
        self._world.create(
            self._pods(
                asked,
                gang_metadata=gang_metadata(f"g{self._number:03}", min_member=len(asked)),
                namespace=self._dice.choice("ab"),
                priority=self._dice.choice((0, 0, 0, 5)),
            )
        )

    def _other(self) -> None:
        """A pod of another scheduler takes what is free, or more."""
        (made,) = self._pods(
            [(self._dice.choice((0, 0, 1, 8)), self._dice.choice((0, 1, 4)))],
            scheduler_name="other",
        )
        self._world.create(running(made, f"n{self._dice.randrange(4):02}"))

    def _goes(self) -> None:
        """A pod ends whenever it likes."""
        there = sorted(
            (each for each in self._world.pods.values() if each.node_name),
            key=lambda each: each.name,
        )
        if there:
            self._world.delete(self._dice.choice(there))

    def _ends(self) -> None:
        """Time passes, and a pod that takes room ends when it was expected to."""
        on = self._world.state.expected_ends.occupants(self._wall_s())
        ends_s = sorted(
            (each.ends_s, each.pod.name, each.pod) for there in on.values() for each in there
        )
        if ends_s and ends_s[0][0] < 1e12:
            self._world.advance(max(0.0, ends_s[0][0] - self._wall_s()))
            self._world.delete(ends_s[0][2])

    def _late(self) -> None:
        self._world.advance(self._dice.choice((10.0, 100.0)))

    def _node(self) -> None:
        """A node is closed, or opened again."""
        name = f"n{self._dice.randrange(4):02}"
        closed = not self._world.nodes[name].unschedulable
        self._world.add_nodes(node(name, cpu_milli=16_000, unschedulable=closed))


@pytest.mark.parametrize("part", range(4))
def test_who_was_not_woken_would_not_have_been_bound(part: int) -> None:
    """Trying every group that waits binds nobody, whatever happened before."""
    seeds = range(part, HISTORIES, 4)
    waited = 0
    for seed in seeds:
        history = History(seed)
        for step, (before, after) in enumerate(history.play()):
            assert after == before, f"seed {seed}, step {step}"
            waited += bool(history.waiting())
    print(f"seeds {seeds}: {waited} steps with groups that wait")
    assert waited > 20


class Case:
    """A cluster on which pods run, one of which goes, and groups that wait."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._nodes = [node(f"n{n}", cpu_milli=16_000) for n in range(self._dice.randint(2, 6))]
        self._limits = ReservationLimits(
            share=1.0, per_namespace=8, fence_after_s=self._dice.choice((0.0, 1e9))
        )
        self.heads = [self._head(n) for n in range(self._dice.randint(1, 3))]
        self.occupants = [each for one in self._nodes for each in self._on(one.name)]
        self.leaver = self._dice.choice(self.occupants) if self.occupants else None

    def _head(self, number: int) -> Head:
        asked = self._dice.choice(GANGS)
        pods = [
            pod(f"g{number}-{n}", of=shape(gpus, cpus * 1_000))
            for n, (gpus, cpus) in enumerate(asked)
        ]
        waiting = group(gang(f"ns/g{number}", pods))
        gangs = needed(waiting)
        return Head(
            waiting, waiting, gangs, waiting_since_s(gangs), self._dice.choice((50.0, math.inf))
        )

    def _on(self, name: str) -> Iterator[Occupant]:
        gpus, cpus = 8, 16
        for number in range(self._dice.randint(0, 4)):
            some = self._dice.choice((0, 0, 1, 2, 4, 8)), self._dice.choice((0, 1, 4, 8))
            if some[0] <= gpus and some[1] <= cpus:
                gpus, cpus = gpus - some[0], cpus - some[1]
                runs = running(pod(f"on-{name}-{number}", of=shape(some[0], some[1] * 1_000)), name)
                ends_s = self._dice.choice(
                    (math.inf, *(NOW_S + 10 * self._dice.randint(1, 6) for _ in range(3)))
                )
                yield Occupant(runs, name, NOW_S - self._dice.randint(1, 9), ends_s)

    def without(self) -> list[Occupant]:
        """Those that stay."""
        return [each for each in self.occupants if each is not self.leaver]

    def news(self) -> tuple[News, bool]:
        """The news that it goes, and whether they may help anybody."""
        assert self.leaver is not None
        on = by_node(self.without())
        name, news = self.leaver.node, News()
        news.note(
            name, by_node(self.occupants)[name], on.get(name, []), early_by_s=1.0, wall_s=NOW_S
        )
        now = snapshot(self._nodes, [(each.pod, each.node) for each in self.without()])
        shapes = {each.shape for head in self.heads for one in head.gangs for each in one.pending}
        ends_known = any(each.ends_s < math.inf for each in self.without())
        return news, news.may_help(shapes, now, on, ends_known=ends_known)

    def reserved(
        self, occupants: Sequence[Occupant], standing: Sequence[Reservation] = ()
    ) -> list[Reservation]:
        """All reservations made anew, beside these occupants."""
        now = snapshot(self._nodes, [(each.pod, each.node) for each in occupants])
        ledger = Ledger(now)
        return make_reservations(
            self.heads,
            ledger,
            empty_ledger(now),
            Timeline.of(occupants, ledger),
            self._limits,
            wall_s=NOW_S,
            standing={each.head.group.id: each for each in standing},
        )[0]


def by_node(occupants: Sequence[Occupant]) -> dict[str, list[Occupant]]:
    """The occupants of each node that has any."""
    found: dict[str, list[Occupant]] = {}
    for each in occupants:
        found.setdefault(each.node, []).append(each)
    return found


def times(reservations: Sequence[Reservation]) -> list[tuple[str, float]]:
    """For whom and from when on; among equal nodes the average pod decides (docs/placement.md)."""
    return [(each.head.group.id, each.at_s) for each in reservations]


def test_news_that_help_nobody_move_no_reservation() -> None:
    """With the pod and without it, all reservations start at the same time; news that may help move
    many.
    """
    dismissed = moved = 0
    for seed in range(CASES):
        case = Case(seed)
        if case.leaver is None:
            continue
        standing = case.reserved(case.occupants)
        news, may_help = case.news()
        before, after = (
            times(case.reserved(each, standing)) for each in (case.occupants, case.without())
        )
        if may_help or news.emptied:
            moved += before != after
        else:
            assert before == after, f"seed {seed}"
            dismissed += 1
    print(f"seeds 0 to {CASES}: {dismissed} news dismissed, {moved} moved a reservation")
    assert dismissed > CASES // 20
    assert moved > CASES // 10
