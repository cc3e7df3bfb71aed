"""Counters of a component: plain integers in a dataclass, which /metrics shows.

Invariant: each field declares its meaning, which becomes the metric's HELP text and a row of the
manual.
"""

from __future__ import annotations

from dataclasses import field


def counter(meaning: str) -> int:
    """Declare a field that counts from 0. `Metrics.publish` refuses fields that are declared in any
    other way.
    """
    counted: int = field(default=0, metadata={"meaning": meaning})
    return counted
