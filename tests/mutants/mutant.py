"""What a planted bug is."""

from __future__ import annotations

from dataclasses import dataclass

CORE, STATE, LOOP = "tests/unit/core", "tests/unit/state", "tests/unit/test_loop.py"
READ, WRITE = "tests/unit/kube/read", "tests/unit/kube/write"
LEASE, FENCE = "tests/unit/kube/lease", "tests/unit/kube/http/test_fence.py"
VALIDATE = "tests/unit/state/test_validate.py"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted bug; `tests` is the folder or file in which some test must fail."""

    name: str
    rule: str
    file: str
    old: str
    new: str
    tests: str
