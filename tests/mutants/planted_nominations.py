"""Planted bugs of nominations: room that is being made, the last look, and what a crash leaves."""

from __future__ import annotations

from tests.mutants.mutant import STATE, Mutant

NOMINATIONS = (
    Mutant(
        "nominated room is not kept",
        "V10",
        "state/preemption/promised.py",
        'self._show(f"{record.group} {uid}", nominee.promise(record.group, from_dict(part)))',
        'self._show(f"{record.group} {uid}", None)',
        STATE,
    ),
    Mutant(
        "a gang that is evicted stays satisfied",
        "V17",
        "state/members.py",
        "STARTED: Set[State] = frozenset({State.WAITING_FOR_CLAIMS, State.BINDING, State.BOUND})",
        "STARTED: Set[State] = frozenset({State.WAITING_FOR_CLAIMS, State.BINDING, State.BOUND, State.TERMINATING})",
        STATE,
    ),
    Mutant(
        "a gang that is evicted is healed meanwhile",
        "V17",
        "state/groups.py",
        "refusal=record.taken or record.refusal,",
        "refusal=record.refusal,",
        STATE,
    ),
    Mutant(
        "pods are evicted before anything is written",
        "V13",
        "state/preemption/nominations.py",
        "            unwritten=1,\n",
        "            unwritten=0,\n            stage=Stage.PREPARED,\n",
        STATE,
    ),
    Mutant(
        "the last look spares nobody",
        "V13",
        "state/preemption/last_look.py",
        "            spared += unit",
        "            spared += []",
        STATE,
    ),
    Mutant(
        "a clock runs out while room is made",
        "V16",
        "state/groups.py",
        "clock_started_s=None if record.nominated else record.clock_s,",
        "clock_started_s=record.clock_s,",
        STATE,
    ),
    Mutant(
        "places of other nominations count without their victims",
        "V10",
        "state/preemption/promised.py",
        "            goes = record is not None and (",
        "            goes = record is not None and len(self._resting[node]) < 2 and (",
        STATE,
    ),
    Mutant(
        "plans count places without their victims",
        "V10",
        "state/preemption/promised.py",
        "nominee.promise(record.group, from_dict(part))",
        "nominee.promise(record.group)",
        STATE,
    ),
    Mutant(
        "a victim is spared that spread needs gone",
        "V13",
        "state/preemption/room.py",
        "if all(self._fits(*each) for each in there) and not self.admits(places):",
        "if all(self._fits(*each) for each in there):",
        STATE,
    ),
    Mutant(
        "a nomination is never looked at again",
        "V25",
        "state/preemption/promised.py",
        "stale = {group for node in moved & self._resting.keys() for group in self._resting[node]}",
        "stale: set[str] = set()",
        STATE,
    ),
)
