"""Exceptions in the product: in a history, a few of its functions raise now and then, before or
after their work.

Invariant: which, and at which call, follows from the seed. Whatever raises, what must hold after
each step holds (no half gang, no node over-full, `validate()`), and everything starts once nothing
raises any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from importlib import import_module
from random import Random
from typing import Any
from unittest.mock import patch

TARGETS = (
    "core.decision:decide",
    "core.cycle:group_key",
    "core.pipeline:Plan",
    "core.decision:_end_holds",
    "core.pre_filter:refusals",
    "core.rounds:run_round",
    "core.reserve:Ledger.reserve",
    "core.reserve:Ledger.rollback",
    "core.preemption.attempt:Attempt.make_room",
    "core.reservations.standing:Standing.turn",
    "core.reservations.standing:Standing.begin",
    "state.gangs:GangRecord.read_spec",
    "state.gangs:GangRecord.stamp",
    "state.groups:gang_view",
    "state.groups:heals",
    "state.groups:Registry._resolve",
    "state.holds:Holds.follow",
    "state.holds:Holds.look",
    "state.queueing.queue:Queue.wake",
    "state.queueing.queue:Queue.park",
    "state.committer:Committer.commit",
    "state.committer:Committer._bind",
    "state.committer:Committer._after",
    "state.preemption.nominations:Nominations.planned",
    "state.preemption.nominations:Nominations.look",
    "state.reserving.reservations:StandingReservations.given",
    "state.reserving.reservations:StandingReservations.settled",
    "state.scheduling:SchedulingState._answer",
    "state.scheduling:SchedulingState.plan_input",
    "state.start_check:StartCheck.objection",
    "state.reporting.reports:pod_conditions",
    "state.reporting.reports:Reports._tell_gang",
)
AT_ONCE = 4
RATE = 0.05


class PlantedError(Exception):
    """What a planted function raises."""


class PlantedFaults:
    """The functions that raise in one history, until `end`."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._targets = rng.sample(TARGETS, AT_ONCE)
        self._is_over = False
        self.counts: Counter[str] = Counter()

    def end(self) -> None:
        """Nothing raises any more."""
        self._is_over = True

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Inside the context, they raise."""
        with ExitStack() as stack:
            for target in self._targets:
                module, _, path = target.partition(":")
                *owners, name = path.split(".")
                owner: Any = import_module(f"gangsched.{module}")
                for each in owners:
                    owner = getattr(owner, each)
                planted = self._raising(getattr(owner, name), target)
                stack.enter_context(patch.object(owner, name, planted))
            yield

    def _raising(self, real: Callable[..., Any], target: str) -> Callable[..., Any]:
        @wraps(real)
        def planted(*given: Any, **named: Any) -> Any:
            if self._is_over or self._rng.random() >= RATE:
                return real(*given, **named)
            self.counts[f"{target.partition(':')[2]} raises"] += 1
            if self._rng.random() < 0.5:
                real(*given, **named)
            raise PlantedError(target)

        return planted
