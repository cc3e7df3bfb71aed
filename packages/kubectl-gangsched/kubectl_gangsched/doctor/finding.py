"""Result of a check."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """A problem and its remedy, one sentence each."""

    check: str
    sentence: str
    todo: str
