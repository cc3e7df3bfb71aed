"""Random histories with rests: all that can help a waiting group, mixed, and nothing that wakes
everybody at times.

Each seed draws a small cluster, the administrator's rules and a list of events: preemption,
reservations, groups of gangs, NonStrict gangs, volumes, topology, other schedulers,
PodDisruptionBudgets. After each event there is time for all that follows from it, and then a rest,
in which nobody may sleep wrongly (`tests.rest_oracle`). A rest of minutes at the end shows how many
plans are made for nothing. Run as `python -m tests.properties.rests --seeds 10000`; with `--of
claims` and the like the histories are those of `start_histories`.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context

from gangsched.model.plan import Verdict
from gangsched.model.preemption import BudgetRule, Preemption, PreemptionSettings, VictimScope
from gangsched.model.protocol import Applied
from gangsched.model.reservation import NotEntitled, ReservationLimits, Reserved
from gangsched.state.rule_set import Rules
from tests.properties.rest_events import EVENTS, Arrivals
from tests.properties.start_histories import MANNERS, StartHistory
from tests.rest_oracle import sleepers
from tests.world import EPOCH_S, World

STEPS = 14
QUIET_S = 400.0
"""In this time all that rules prescribe to wait for is over, but for what lasts longer than any
history.
"""
PLANS_A_MINUTE = 2
MOST_MINUTES = 200
"""In each of so many something moves or ends where nothing ever rests."""
TOLD_EVERY = 500
RESTS = "rests"


class Rests:
    """The history of one seed; `play` yields what does not hold, with the event after which it did
    not.
    """

    def __init__(self, seed: int) -> None:
        dice = random.Random(seed)
        self.dice = dice
        self.world = World(rules=self._rules(), preempts=True)
        self.arrivals = Arrivals(self.world, dice)
        self.steps: list[str] = []
        # what was reserved before the plans that are kept
        self._stood: set[tuple[str, tuple[str, ...]]] = set()

    def _rules(self) -> Rules:
        dice = self.dice
        limits = ReservationLimits(
            share=dice.choice((0.5, 1.0)),
            per_namespace=dice.choice((1, 2, 8)),
            reservations=dice.choice((0, 1, 3, 8)),
            fence_after_s=dice.choice((0.0, 60.0, 1e9)),
            small_head_after_s=dice.choice((0.0, 60.0)),
            small_head_latest_s=600.0,
        )
        settings = PreemptionSettings(
            scope=dice.choice((VictimScope.OWN, VictimScope.ALL, VictimScope.ALL)),
            budgets=dice.choice((BudgetRule.RESPECT, BudgetRule.RESPECT, BudgetRule.LAST_RESORT)),
            min_run_s=dice.choice((0, 0, 7, 40)),
            hold_back_s=dice.choice((0, 2, 20, 60)),
            per_cycle=dice.choice((1, 4)),
            max_pods=dice.choice((2, 500)),
        )
        return Rules(
            preemption=settings,
            reservations=limits,
            evict_overrun_after_s=dice.choice((None, None, 600.0)),
            unattended=True,
        )

    # --- the history -----------------------------------------------------------------------------

    def play(self) -> Iterator[str]:
        """Play it to its end."""
        for number in range(STEPS):
            for _ in range(self.dice.choice((1, 1, 1, 2, 4))):
                name = self.dice.choice(self.arrivals.kinds)
                self.steps.append(name)
                EVENTS[name](self.arrivals)
            for wait_s in (
                self.dice.choice((0.0, 0.0, 0.5)),
                self.dice.choice((0.0, 4.0, 4.0, 35.0)),
            ):
                self.arrivals.rest(wait_s)
                for sentence in self._sleepers():
                    yield f"step {number} ({self.steps[-1]}, {self.world.now_s:.3f} s): {sentence}"
        yield from self._quiet("at rest")
        self.world.rules = replace(self.world.rules, unattended=False)
        storage = self.world.state.cluster.storage_cache.storage()
        self.world.restart()
        self.world.say(*map(Applied, storage.classes.values()))
        self.world.say(
            *map(Applied, storage.volumes.values()), *map(Applied, storage.claims.values())
        )
        yield from self._quiet("swept")

    def _quiet(self, how: str) -> Iterator[str]:
        self.arrivals.rest(QUIET_S)
        for sentence in self._sleepers() if how == "at rest" else ():
            yield f"at the end: {sentence}"
        for minute in range(3):
            self.arrivals.rest(2.0)  # kubelets have started what was bound,
            self.arrivals.rest(60.0)  # and a plan has seen it
            for _ in range(MOST_MINUTES):
                if not (self._ends_within(61.0) or self._has_moved() or self._has_reserved()):
                    break
                self._begin_minute()
                self.arrivals.rest(61.0)
            else:
                yield (
                    f"{how}, minute {minute}: something moves or ends in each of {MOST_MINUTES}"
                    " minutes"
                )
            self._begin_minute()
            self.arrivals.rest(60.0)
            if not self._has_moved() and len(self.world.plans) > PLANS_A_MINUTE:
                yield f"{how}, minute {minute}: {len(self.world.plans)} plans"

    def _has_moved(self) -> bool:
        """Whether anything moved in the plans that are kept; kubelets start it only now, and it
        ends later yet.
        """
        return any(map(moves, (verdict for each in self.world.plans for verdict in each.verdicts)))

    def _begin_minute(self) -> None:
        self.world.plans.clear()
        self._stood = _rooms(self.world.state.reservations.standing)

    def _has_reserved(self) -> bool:
        """Whether any plan that is kept made, lost or moved a reservation: the next sweep may make
        another for it.

        Where one plan makes what the next one drops, that is so in each of `MOST_MINUTES`, and
        told.
        """
        answers = (made.reservations for made in self.world.plans)
        return any(_rooms(each.standing) != self._stood for each in answers if each is not None)

    def _ends_within(self, seconds: float) -> bool:
        """Whether in this time a rule has anything end: each end is an event, after which others
        may be planned.

        A pod is expected to end (H2); it runs for so much longer than it states that nothing stated
        counts (H11); somebody is entitled to a reservation (H3), or holds others back no more
        (V27).
        """
        wall_s, reservations = self.world.wall_s(), self.world.state.reservations
        on = self.world.state.expected_ends.occupants(wall_s)
        ends_s = (
            {each.ends_s for there in on.values() for each in there} if reservations.on() else set()
        )
        groups = self.world.state.registry.groups.values()
        ends_s |= {
            each.not_reserved.until_s
            for each in groups
            # What takes too much work is asked again each minute, without an end.
            if each.not_reserved is not None
            and each.not_reserved.why is not NotEntitled.TOO_MUCH_WORK
        }
        ends_s |= {each.ineligible.why.until_s for each in groups if each.ineligible is not None}
        timers_s = (
            *reservations._fences.next_s(),
            *map(self.world.state.queue._wake_at.get, self.world.state.queue._wake_at.keys()),
            *self.world.leaving.values(),
            self.world.state.overruns.next_deadline_s(),
            self.world.state.preemptions.next_deadline_s(),
        )
        ends_s |= {wall_s - self.world.now_s + timer_s for timer_s in timers_s}
        return any(wall_s - 6.0 <= end_s <= wall_s + seconds + 1.0 for end_s in ends_s)

    def _sleepers(self) -> list[str]:
        due_s = self.world.state.next_deadline_s(self.world.now_s)
        assert due_s is None or due_s > self.world.now_s, (
            f"a turn is due since {self.world.now_s - due_s} s"
        )
        return sleepers(self.world.state, self.world.now_s, EPOCH_S + self.world.now_s)


def moves(verdict: Verdict) -> bool:
    """Whether anything is bound, held, released or evicted by it."""
    return bool(verdict.binds or verdict.holds or verdict.releases) or isinstance(
        verdict.preemption, Preemption
    )


def _rooms(standing: Iterable[Reserved]) -> set[tuple[str, tuple[str, ...]]]:
    """For whom which nodes are reserved."""
    return {(each.group, each.nodes) for each in standing}


def played(seed: int, of: str = RESTS) -> list[str]:
    """The first thing that does not hold in the history of a seed, if anything does not, and how to
    play it again.
    """
    again = f"seed {seed} (python -m tests.properties.rests --of {of} --first {seed} --seeds 1)"
    history = Rests(seed) if of == RESTS else StartHistory(seed, MANNERS[of])
    try:
        return [f"{again}: {sentence}" for sentence in (next(history.play(), ""),) if sentence]
    except Exception as error:  # whatever is raised ends the daemon
        where = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__} in {where.name}: {str(error)[:300]}"
        return [f"{again} after {history.steps[-1:]} at {history.world.now_s:.3f} s: {what}"]


def main() -> int:
    """Play seeds in several processes; exit status 1 if anything did not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.properties.rests", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many histories")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument(
        "--of", choices=(RESTS, *MANNERS), default=RESTS, help="what the histories are of"
    )
    asked = parser.parse_args()
    began_s, seeds, violations = time.monotonic(), range(asked.first, asked.first + asked.seeds), 0
    print(f"{asked.of}: {asked.seeds} histories from seed {asked.first} on", flush=True)
    with ProcessPoolExecutor(asked.workers, mp_context=get_context("spawn")) as pool:
        for number, found in enumerate(
            pool.map(partial(played, of=asked.of), seeds, chunksize=10), start=1
        ):
            violations += len(found)
            for line in found:
                print(line, flush=True)
            if number % TOLD_EVERY == 0 or number == asked.seeds:
                spent_s = time.monotonic() - began_s
                print(f"{number} histories, {violations} violations, {spent_s:.0f} s", flush=True)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
