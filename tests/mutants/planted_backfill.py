"""The planted bugs in what is known of run times, in reservations and in backfill (rules H)."""

from __future__ import annotations

from tests.mutants.mutant import CORE, STATE, Mutant

BACKFILL = (
    Mutant(
        "an end that has passed does not move",
        "H2",
        "core/reservations/expected_end.py",
        "while end_s <= now_s:",
        "while end_s < 0.0:",
        CORE,
    ),
    Mutant(
        "a node's empty room is never pushed back",
        "H10",
        "core/last_ends.py",
        "np.maximum(self._ask(self._table), self._wall_s)",
        "np.where(np.isneginf(self._ask(self._table)), np.inf, self._ask(self._table))",
        CORE,
    ),
    Mutant(
        "a hold counts as started",
        "H2",
        "state/expected_ends.py",
        "if member.state in NOT_STARTED:",
        "if member.state is State.ENDED:",
        STATE,
    ),
    Mutant(
        "what an earlier version of a pod stated counts",
        "H1",
        "state/event_handlers.py",
        "and old.run_time_metadata == new.run_time_metadata",
        "",
        STATE,
    ),
    Mutant(
        "a deadline does not cap a run time",
        "H1",
        "api/run_time.py",
        "float(deadline) < found.seconds:",
        "found.seconds == math.inf:",
        "tests/unit/api",
    ),
    Mutant(
        "a restart tells of every overrun again",
        "H11",
        "state/overruns.py",
        "== end_s and since_s < end_s",
        "== end_s",
        STATE,
    ),
)
