"""The longest turns of the loop in a wave, without an API server or other processes beside it.

`python -m bench.waves.turns [CASE …] [--goal-ms 50]` plays the waves of `bench.waves` on a virtual
clock, all without any named: a fake API server carries out what each turn ordered, and controllers
replace victims. It prints the longest turns and plans by the time of the loop's thread, which is
what a stall of the loop is on a machine with room for it. Exit code 1 where not all start, or a
turn took more than the goal.
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
from collections.abc import Sequence
from itertools import count

import structlog

from bench.hostile import PlayedByLoop
from bench.waves.cases import CASES, GPUS, ZONE, Case
from gangsched.daemon import GC_THRESHOLDS
from gangsched.model.objects import Phase, Pod
from gangsched.state.rule_set import Rules
from tests import builders
from tests.world import EPOCH_S

GIB = 2**30
LOW, HIGH = 0, 1_000
RAN_S = 1_000.0
ROW = "{:>18}{:>12}{:>9}{:>9}{:>12}{:>12}{:>12}"


class Wave(PlayedByLoop):
    """A cluster full of low pods, each of which is replaced when it is gone if the case has
    controllers.
    """

    def __init__(self, case: Case) -> None:
        self._case, self._serial = case, count()
        nodes = [
            builders.node(
                f"n{n:04}",
                GPUS,
                cpu_milli=96_000,
                memory_bytes=512 * GIB,
                labels={ZONE: f"z{n % case.zones}"},
            )
            for n in range(case.nodes)
        ]
        self.evicted = 0
        running = [
            self._low(f"n{n * case.low_gpus // GPUS:04}")
            for n in range(case.nodes * GPUS // case.low_gpus)
        ]
        super().__init__(nodes, running, Rules())

    def delete(self, *pods: Pod) -> None:
        """They are gone, and others are there in their place if they have controllers."""
        super().delete(*pods)
        self.evicted += len(pods)
        self.create([self._low() for _ in pods if self._case.recreates])

    def high(self) -> list[Pod]:
        """The pods that preempt."""
        case, of = self._case, builders.shape(self._case.gpus, 100, GIB)
        if case.members == 1:
            return [builders.pod(f"high-{n}", of=of, priority=HIGH) for n in range(case.gangs)]
        zone = ZONE if case.zones > 1 else ""
        gangs = (
            builders.members(f"high-{n}", case.members, of=of, priority=HIGH, topology=zone)
            for n in range(case.gangs)
        )
        return [pod for gang in gangs for pod in gang]

    def _low(self, node: str = "") -> Pod:
        case = self._case
        least = case.nodes * GPUS // case.low_gpus - case.surplus
        phase, start_s = (Phase.RUNNING, EPOCH_S - RAN_S) if node else (Phase.PENDING, None)
        return builders.pod(
            f"low-{next(self._serial)}",
            of=builders.shape(case.low_gpus, 100, GIB),
            gang_metadata=(
                builders.gang_metadata("elastic", min_member=least) if case.surplus else ()
            ),
            priority=LOW,
            node_name=node,
            phase=phase,
            start_s=start_s,
            grace_s=1,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Play and print."""
    parser = argparse.ArgumentParser(
        prog="bench.waves.turns", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("case", nargs="*", help="cases to play; all without any")
    parser.add_argument("--goal-ms", type=float, default=50.0)
    given = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    gc.set_threshold(*GC_THRESHOLDS)
    print(ROW.format("case", "started", "evicted", "turns", "over goal", "turn ms", "plan ms"))
    failed = False
    for case in [case for case in CASES if not given.case or case.name in given.case]:
        wave = Wave(case)
        gc.collect()
        gc.freeze()
        wave.turns, high = [], wave.high()
        wave.create(high)
        wave.turn_until_rest()
        started = sum(bool(wave.pods[pod.uid].node_name) for pod in high)
        turns = [each.cpu_ms for each in wave.turns]
        over = sum(each > given.goal_ms for each in turns)
        plan_ms = max(each.plan_ms for each in wave.turns)
        row = (
            case.name,
            f"{started}/{case.pods}",
            wave.evicted,
            len(turns),
            over,
            f"{max(turns):.1f}",
            f"{plan_ms:.1f}",
        )
        print(ROW.format(*row), flush=True)
        failed = failed or bool(over) or started < case.pods
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
