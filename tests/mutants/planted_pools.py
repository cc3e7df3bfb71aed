"""Planted bugs of node pools (semantics I7)."""

from __future__ import annotations

from tests.mutants.mutant import READ, STATE, Mutant

POOLS = (
    Mutant(
        "pods on other pools' nodes make snapshots",
        "I7",
        "state/cluster.py",
        "        if node not in self._nodes:\n            return\n        self._snapshot = None",
        "        self._snapshot = None\n        if node not in self._nodes:\n            return",
        STATE,
    ),
    Mutant(
        "terms of pods stay when their node leaves the pool",
        "I7",
        "state/cluster.py",
        "self._count_terms(pod, -1)",
        "pass",
        STATE,
    ),
    Mutant(
        "a watch does not select",
        "I7",
        "kube/read/reflector.py",
        'f"timeoutSeconds={lasts_s}", *self._selection]',
        'f"timeoutSeconds={lasts_s}"]',
        READ,
    ),
)
