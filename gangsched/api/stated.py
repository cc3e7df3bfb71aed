"""How one value of a gang is read from an object, by its keys, its grammar and its field (semantics
I3, E4).

Invariant: pure; `gang_spec` decides which of several declared values wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from gangsched.api import keys
from gangsched.api.problem import Problem, quoted
from gangsched.api.values import BadValue

T = TypeVar("T")

PODS_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Value(Generic[T]):
    """One row of I3's table: the keys of a value in order, its grammar, and the field of the
    PodGroup's spec.

    `parse` raises BadValue, or returns None for a text that counts as absent.
    """

    name: str
    keys: tuple[str, ...]
    parse: Callable[[str], T | None]
    field: str = ""
    show: Callable[[T], str] = str


class Origin(NamedTuple):
    """An object that declares values; `pod` is "" for the PodGroup."""

    where: str
    pod: str
    gang_metadata: Mapping[str, str]


class Statement(NamedTuple, Generic[T]):
    """A value as read from one key of one object."""

    value: T
    key: str
    text: str
    source: str
    pod: str = ""


class BadText(NamedTuple):
    """A text outside the grammar of its key."""

    key: str
    text: str
    why: str
    origin: Origin


def statement(origin: Origin, asked: Value[T]) -> tuple[Statement[T] | None, list[BadText]]:
    """The first valid value that `origin` declares among the keys of `asked`, and the bad texts
    before it.
    """
    bad = []
    for key in asked.keys:
        text = origin.gang_metadata.get(key)
        if text is None:
            continue

        try:
            if keys.is_too_long(text):
                raise BadValue(f"is longer than {keys.LONGEST_VALUE} bytes")

            value = asked.parse(text)
        except BadValue as error:
            bad.append(BadText(key, text, str(error), origin))
            continue

        if value is not None:
            return Statement(value, key, text, f"{key} of {origin.where}", origin.pod), bad

    return None, bad


def disagreement(others: Sequence[Statement[T]], used: str) -> Problem:
    """The problem that members declare a value other than `used`."""
    first = others[0]
    named = ", ".join(other.pod for other in others[:PODS_NAMED])
    more = f" and {len(others) - PODS_NAMED} more" if len(others) > PODS_NAMED else ""
    has = "has" if len(others) == 1 else "have"
    text = (
        f"Members of one gang differ in {first.key}: {named}{more} {has} {quoted(first.text)}."
        f" The value of the oldest member is used: {used}."
    )

    return Problem(first.key, quoted(first.text), used, text, first.pod)
