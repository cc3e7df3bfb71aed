"""Planted bugs of who is woken (semantics Q3)."""

from __future__ import annotations

from tests.mutants.mutant import STATE, Mutant

PREEMPTORS = "tests/unit/state/queueing/test_preemptors.py"

QUEUEING = (
    Mutant(
        "shapes behind the first few that room helps sleep on",
        "Q3",
        "state/queueing/parked.py",
        "        self._at_once *= 2\n        return self._wake_pending(snapshot)",
        "        self._pending = {}\n        return set()",
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
    Mutant(
        "a budget that allows more wakes nobody",
        "V25",
        "state/preemption/preemptions.py",
        "self._queue.preemptors.note((), anywhere=True)",
        "self._queue.preemptors.note(())",
        PREEMPTORS,
    ),
    Mutant(
        "what was found of a preemptor is believed though others may be taken now",
        "V25",
        "state/queueing/preemptors.py",
        "        self.version += 1\n",
        "",
        PREEMPTORS,
    ),
    Mutant(
        "the next of a kind sleeps when the first is gone before its turn",
        "V25",
        "state/queueing/preemptors.py",
        "        if kind in self._kinds:\n            self._pending[kind] = None\n",
        "        if kind in self._pending:\n            self._pending[kind] = None\n",
        PREEMPTORS,
    ),
    Mutant(
        "young victims are old when the last of them is",
        "V5",
        "core/preemption/obstacles.py",
        "            high = middle\n",
        "            break\n",
        PREEMPTORS,
    ),
    Mutant(
        "a group that no node can hold any more holds others back",
        "V27",
        "state/queueing/preemptors.py",
        "            or not changed.isdisjoint(self._wanted[kind])\n",
        "",
        PREEMPTORS,
    ),
    Mutant(
        "a NonStrict gang that was more than the cluster sleeps when a full node comes",
        "Q3",
        "core/pre_filter.py",
        "return refusal, tuple(Need(each, 0) for each in counts)",
        "return refusal, tuple(Need(each, 1) for each in counts)",
        PREEMPTORS,
    ),
)
