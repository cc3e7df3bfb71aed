"""What an oracle has of a case."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from gangsched.model.gang import Refusal


class Told(NamedTuple):
    """A refusal, and a check of it that may be given changed ones."""

    refusal: Refusal
    lies: Callable[[Refusal], Iterator[str]]
