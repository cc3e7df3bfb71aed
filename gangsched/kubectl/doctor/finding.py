"""Result of a check."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """One problem: a sentence, and the remedy."""

    check: str
    sentence: str
    todo: str
