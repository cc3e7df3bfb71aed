"""The plan of a history: how long trouble lasts, which settings and how many instances there are,
what may go wrong.

Invariant: drawn from the seed before anything happens. Each seed has a few kinds of trouble and not
all, so that some histories show what one kind does alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from tests.sim.trouble.faults import WRITES

PROCESS = (
    "crash",
    "crash in the middle",
    "SIGTERM",
    "pause",
    "suspension",
    "cut off",
    "clock jump",
)
WATCH = (
    "watch closed",
    "watch reset",
    "watch frozen",
    "410 in a watch",
    "500 in a watch",
    "log compacted",
    "pages forgotten",
    "watches skewed",
)
CLUSTER = (
    "node lost",
    "node shrinks",
    "node grows",
    "node closed",
    "rival binds its own",
    "rival binds ours",
    "pod deleted",
    "gang deleted",
    "PodGroup deleted",
    "PodGroup edited",
    "API group goes",
)
LEADERS = ("lease deleted",)
OFTEN = 0.25


@dataclass(frozen=True, slots=True)
class Plan:
    """`names` are the instances; `rates` are of injected faults, per second of trouble, by name.

    `settings` has constants, too (`tests.tuned`).
    """

    trouble_s: float
    names: tuple[str, ...]
    settings: dict[str, Any]
    request_rate: float
    request_faults: frozenset[str]
    rates: dict[str, float]
    budgets: float
    repeats: float
    rejects: float
    validate_every_s: float

    @staticmethod
    def draw(rng: Random, only: frozenset[str] = frozenset(), replicas: int = 0) -> Plan:
        """The plan of a seed; with `only` nothing else goes wrong, and that often."""
        drawn = Plan._any(rng)
        if replicas:
            names = ("a", "b", "c")[:replicas]
            times = {"leader_elect": replicas > 1, "lease_duration_s": 4.0}
            drawn = replace(drawn, names=names, settings=drawn.settings | times)
        if not only:
            return drawn
        unknown = only - {*WRITES, *PROCESS, *WATCH, *CLUSTER, *LEADERS}
        assert not unknown, f"nothing is called {sorted(unknown)}"
        return replace(
            drawn,
            request_rate=0.1,
            request_faults=only & set(WRITES),
            rates={kind: OFTEN for kind in (*PROCESS, *WATCH, *CLUSTER, *LEADERS) if kind in only},
            repeats=0.0,
            rejects=0.0,
        )

    @staticmethod
    def _any(rng: Random) -> Plan:
        is_calm = rng.random() < 0.05
        names = ("a", "b") if rng.random() < 0.45 else ("a",)
        elects = len(names) > 1 or rng.random() < 0.1
        kinds = [*PROCESS, *WATCH, *CLUSTER, *(LEADERS if elects else ())]
        chosen = (
            [] if is_calm else [kind for kind in kinds if rng.random() < rng.choice((0.15, 0.5))]
        )
        faults = () if is_calm else [name for name in WRITES if rng.random() < 0.6]
        return Plan(
            trouble_s=rng.uniform(6, 24),
            names=names,
            settings=_settings(rng, elects=elects),
            request_rate=rng.choice((0.0, 0.01, 0.03, 0.1)),
            request_faults=frozenset(faults),
            rates={kind: rng.choice((0.04, 0.1, 0.2)) for kind in chosen},
            budgets=rng.choice((0.0, 0.3)),
            repeats=0.0 if is_calm else rng.choice((0.0, 0.0, 0.05)),
            rejects=0.0 if is_calm else rng.choice((0.0, 0.0, 0.05, 0.2)),
            validate_every_s=rng.choice((0.0, 0.5, 2.0)),
        )


def _settings(rng: Random, *, elects: bool) -> dict[str, Any]:
    return {
        "health_port": 0,
        "debug_port": 0,
        "bind_connections": rng.choice((1, 3, 6)),
        "preemption": rng.choice(("off", "own", "own", "all")),
        "preempt_pdb": rng.choice(("respect", "respect", "last_resort")),
        "reservations": rng.choice((0, 2, 8)),
        "fence_after_s": rng.choice((5.0, 21_600.0)),
        "small_head_after_s": rng.choice((3.0, 3_600.0)),
        "backfill_overrun": rng.choice(("tell", "evict")),
        "evict_overrun_after_s": rng.choice((2.0, 600.0)),
        "bind_retry_keep_s": rng.choice((3.0, 30.0)),
        "avoid_s": rng.choice((1.0, 10.0)),
        "podgroup_sweep_s": rng.choice((10.0, 60.0)),
        "match_policy": rng.choice(("once-satisfied", "once-satisfied", "waiting-and-running")),
        "wait_time_s": rng.choice((10.0, 600.0)),
        "leader_elect": elects,
        "lease_duration_s": rng.choice((4.0, 15.0)) if elects else 15.0,
        "shutdown_s": rng.choice((1.0, 10.0)),
        "fence_age_s": rng.choice((60.0, 604_800.0)),
        "ignore_run_times_s": rng.choice((0.0, 60.0, 86_400.0)),
    }
