"""What a check found."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """One thing that is wrong: a sentence, and what to do about it."""

    check: str
    sentence: str
    todo: str
