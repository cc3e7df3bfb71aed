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
    Mutant(
        "groups of other namespaces are named",
        "H13",
        "state/reporting/reserved.py",
        "if each.namespace == namespace",
        "if each.namespace",
        STATE,
    ),
    Mutant(
        "every small move of a time is told",
        "H13",
        "state/reporting/reserved.py",
        "MOVED_S, MOVED_SHARE = 300.0, 0.1",
        "MOVED_S, MOVED_SHARE = 0.0, 0.0",
        STATE,
    ),
    Mutant(
        "a latest start is rounded down",
        "H13",
        "state/reporting/reserved.py",
        "ceil(at_s / 60) * 60",
        "int(at_s // 60) * 60",
        STATE,
    ),
    Mutant(
        "the end of a gang replaces that it has started",
        "H13",
        "state/reporting/reservations.py",
        "OVER = frozenset({STARTED, NOT_NEEDED})",
        "OVER = frozenset({NOT_NEEDED})",
        STATE,
    ),
    Mutant(
        "a closed node keeps its reservation",
        "H5",
        "state/reserving/reservations.py",
        "self._table = snapshot.table\n            self._later.update(each.group for each in self.standing)",
        "self._table = snapshot.table",
        STATE,
    ),
    Mutant(
        "a group that waited for a fence in vain is planned for all the time",
        "H6",
        "core/reservations/reservation.py",
        "fence_s if fence_s > wall_s else math.inf",
        "fence_s",
        CORE,
    ),
    Mutant(
        "overruns go for groups that they did not pass",
        "H11",
        "core/preemption/turn.py",
        "self.given.overdue.get(preemptor.group.id)",
        "frozenset[str]().union(*self.given.overdue.values())",
        CORE,
    ),
    Mutant(
        "who overran is evicted at once", "H11", "state/overdue.py", "+ max(TENTH * stated_s, self._after_s)", "", STATE
    ),
    Mutant(
        "who passed beside a reservation may be evicted for it",
        "H11",
        "state/overdue.py",
        "or verdict.how is not How.SHORT:",
        "or verdict.how is None:",
        STATE,
    ),
)
