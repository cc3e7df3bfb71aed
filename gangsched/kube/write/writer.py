"""Configuration of an outbox: its writer, levels of urgency, rates, and faults after which it gives
up.

Invariant: types only; `outbox` interprets them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol, TypeVar

from gangsched.kube.http.faults import BAD_REQUEST, UNPROCESSABLE
from gangsched.kube.write.rate_limits import Rate
from gangsched.model.counter import counter

UNLIMITED = Rate(1, 0.0)


class Namespaced(Protocol):
    """An order with a namespace, for fairness."""

    @property
    def namespace(self) -> str:
        """The namespace for round robin."""


C_contra = TypeVar("C_contra", bound=Namespaced, contravariant=True)


class IsDue(Enum):
    """Whether an order is to be written now, later or never."""

    NOW = auto()
    AFTER_BIND = auto()
    """Once another write about the same object, such as its bind, is answered."""
    NEVER = auto()


class Writer(Protocol[C_contra]):
    """Writes the orders of an outbox."""

    def due(self, value: C_contra) -> IsDue:
        """When to write the order: now, later, or (AFTER_BIND) once `answered` is called;
        or never.
        """

    async def write(self, value: C_contra) -> None:
        """Write the order. Raises Fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The orders of one urgency. They wait until no bind has been in flight for `pause_s`, at most
    `patience_s`.
    """

    pause_s: float = 0.0
    patience_s: float
    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of order.

    `noun` names it in warnings; `levels` are in order of urgency; `rate` limits each key. After an
    answer with a `final` status the order is not retried; it is tried `tries` times, without limit
    if None. If there are more than `capacity` orders, the oldest of the last level is dropped.
    """

    noun: str
    levels: tuple[Level, ...]
    rate: Rate = UNLIMITED
    final: frozenset[int] = frozenset({BAD_REQUEST, UNPROCESSABLE})
    tries: int | None = None
    capacity: int | None = None


@dataclass(slots=True)
class OutboxCounts:
    """Counters for metrics. `skipped` counts orders that would have changed nothing, or that
    another write carried.
    """

    ordered: int = counter(
        "writes of conditions, timeout annotations and PodGroup statuses requested"
    )
    written: int = counter("such writes that succeeded")
    skipped: int = counter(
        "such writes that were not needed: the object says so already, or a nomination said it"
    )
    dropped: int = counter(
        "such writes that were dropped because the object is gone or the API server refused"
    )
    faults: int = counter("such writes that failed; most are retried")
