"""Bugs of watches that end: how soon they are opened again."""

from __future__ import annotations

from tests.mutants.mutant import READ, Mutant

WATCHES = (
    Mutant(
        "watch that was of use and broke is opened again at once",
        "decision 2",
        "kube/read/reflector.py",
        "self._tried_s + TRY_AT_MOST_EVERY_S - self._now()",
        "0.0",
        READ,
    ),
    Mutant(
        "watch that ends again and again is resumed in a storm",
        "decision 2",
        "kube/read/reflector.py",
        'await self._resumes.turn("watch")',
        "await self._sleep(0)",
        READ,
    ),
    Mutant(
        "watch that an overloaded API server ended is resumed a second later",
        "decision 2",
        "kube/read/reflector.py",
        "at_once=RESUMES_AT_ONCE, ",
        "",
        READ,
    ),
)
