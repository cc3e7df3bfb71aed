"""Histories one after another in one process, and what came of them."""

from __future__ import annotations

import gc
import hashlib
import logging
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TextIO

import structlog

from tests.sim.simulation import Result, Simulation


@dataclass
class Tally:
    """What came of some seeds."""

    seeds: int = 0
    violations: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)
    digests: list[str] = field(default_factory=list)
    virtual_s: float = 0.0
    cpu_s: float = 0.0

    def __iadd__(self, other: Tally) -> Tally:
        self.seeds += other.seeds
        self.violations += other.violations
        self.faults += other.faults
        self.checks += other.checks
        self.digests += other.digests
        self.virtual_s += other.virtual_s
        self.cpu_s += other.cpu_s
        return self

    def tell_how_far(self) -> None:
        """Print how many were played, for those who wait."""
        print(
            f"{self.seeds} seeds so far, {len(self.violations)} violations",
            file=sys.stderr,
            flush=True,
        )

    def tell(self, took_s: float = 0.0) -> int:
        """Print the counts and the summary; the exit status."""
        for title, counts in (("faults", self.faults), ("checks", self.checks)):
            print(
                f"{title}: "
                + ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
            )
        print(f"trace: {hashlib.sha256(' '.join(self.digests).encode()).hexdigest()[:16]}")
        print(
            f"{self.seeds} seeds, {len(self.violations)} violations, {sum(self.faults.values())}"
            f" faults of {len(self.faults)} kinds, {self.virtual_s / 3600:.1f} virtual hours,"
            f" {self.cpu_s:.0f} s of CPU, {took_s:.0f} s"
        )
        return 1 if self.violations else 0


@dataclass(frozen=True, slots=True)
class Manner:
    """How histories are played: `twice` compares two runs of each; for the others
    see `Simulation`.
    """

    twice: bool = False
    only: frozenset[str] = frozenset()
    replicas: int = 0
    trees: bool = False
    planted: bool = False


def play(seeds: Sequence[int], manner: Manner, out: TextIO | None = None) -> Tally:
    """Play them."""
    quiet()
    tally = Tally()
    began_s = time.process_time()
    for number, seed in enumerate(seeds):
        result = _history(seed, manner, out)
        tally.seeds += 1
        tally.faults += result.faults
        tally.checks += result.checks
        tally.virtual_s += result.virtual_s
        tally.digests.append(result.digest)
        tally.violations += _lines(result)
        if manner.twice:
            again = _history(seed, manner)
            if again.digest != result.digest:
                tally.violations.append(
                    f"seed {seed}: {result.digest} at first and {again.digest} the second time"
                )
        if number % 10 == 9:
            gc.collect()
    tally.cpu_s = time.process_time() - began_s
    return tally


def _history(seed: int, manner: Manner, out: TextIO | None = None) -> Result:
    return Simulation(
        seed,
        out,
        only=manner.only,
        replicas=manner.replicas,
        trees=manner.trees,
        planted=manner.planted,
    ).run()


def quiet() -> None:
    """Log nothing, and let nobody but us collect garbage."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)


def _lines(result: Result) -> list[str]:
    return [f"seed {result.seed}: {sentence}" for sentence in result.violations[:3]]
