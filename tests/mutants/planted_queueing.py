"""Planted bugs of who is woken (semantics Q3)."""

from __future__ import annotations

from tests.mutants.mutant import STATE, Mutant

QUEUEING = (
    Mutant(
        "shapes behind the first few that room helps sleep on",
        "Q3",
        "state/queueing/parked.py",
        "        self._at_once *= 2\n        return self._wake_ripe(snapshot)",
        "        self._ripe = {}\n        return set()",
        STATE,
    ),
    Mutant(
        "a shape is forgotten as soon as one kind of group left it",
        "Q3",
        "state/queueing/parked.py",
        "if not waiting.by_kind:",
        "if len(waiting.by_kind) < 2:",
        STATE,
    ),
    Mutant(
        "those behind a group that was woken in vain sleep on",
        "Q3",
        "state/queueing/parked.py",
        "if waiting is not None and in_vain:",
        "if waiting is not None and not in_vain:",
        STATE,
    ),
)
