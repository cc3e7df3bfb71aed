"""Semantic versions and quantities as values of selectors, both exact and ordered.

Invariant: equal values compare equal and have equal hashes. The build metadata of a version does
not count.
"""

from __future__ import annotations

import re
from functools import lru_cache, total_ordering
from typing import Final

import msgspec

from kubernetes_cel.amounts import NANOS, QuantityError, parse_nanos
from kubernetes_cel.faults import NO_OVERLOAD, SelectorError

_IDENTIFIERS: Final = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_VERSION: Final = re.compile(
    rf"(\d+)\.(\d+)\.(\d+)(?:-({_IDENTIFIERS}))?(?:\+({_IDENTIFIERS}))?",
    re.ASCII,
)
_LARGEST_PART: Final = 2**64 - 1
_LARGEST_INT: Final = 2**63 - 1
_NO_PRE_RELEASE: Final = ((2, 0, ""),)


@total_ordering
class SemanticVersion(msgspec.Struct, frozen=True, gc=False):
    """A version: `release` is major, minor and patch; `order` is a sort key in the order of semver
    2.0.0.
    """

    release: tuple[int, int, int]
    order: tuple[tuple[int, int, str], ...]
    """The pre-release as (0, number, "") or (1, 0, text) for each part; no pre-release sorts last,
    as (2, 0, "").
    """

    def __lt__(self, other: SemanticVersion) -> bool:
        return (self.release, self.order) < (other.release, other.order)


@lru_cache(maxsize=4096)
def version(text: str) -> SemanticVersion:
    """The semantic version. Raises SelectorError if the text is not one."""
    match = _VERSION.fullmatch(text)
    if match is None or len(text) > 256:
        raise SelectorError(f'"{text[:64]}" is not a semantic version')

    parts = match.group(1, 2, 3)
    pre_release = match.group(4) or ""
    before = pre_release.split(".") if pre_release else []

    numbers = [*parts]
    for part in before:
        if part.isdigit():
            numbers.append(part)

    if not all(map(_is_number, numbers)):
        raise SelectorError(f'"{text[:64]}" is not a semantic version')

    major, minor, patch = map(int, parts)
    order = tuple(map(_order, before))
    return SemanticVersion((major, minor, patch), order or _NO_PRE_RELEASE)


def _is_number(digits: str) -> bool:
    """Whether digits are a number of a version: semver 2.0.0 forbids leading zeros, and
    blang/semver keeps each part in a uint64.
    """
    if len(digits) > 1 and digits[0] == "0":
        return False

    return int(digits) <= _LARGEST_PART


def _order(part: str) -> tuple[int, int, str]:
    """The sort key of a part of a pre-release: numbers before texts."""
    if part.isdigit():
        return (0, int(part), "")

    return (1, 0, part)


def normalized(text: str) -> str:
    """The text as `semver(text, true)` reads it: without a leading `v` and leading zeros, and with
    missing parts as 0.

    Raises SelectorError for a short version with a pre-release or build metadata.
    """
    parts = text.removeprefix("v").split(".", 2)
    for at, part in enumerate(parts):
        if len(part) > 1:
            parts[at] = _without_zeros(part)

    has_more = "+" in parts[-1] or "-" in parts[-1]
    if len(parts) < 3 and has_more:
        raise SelectorError("short version cannot contain PreRelease/Build meta data")

    missing = 3 - len(parts)
    return ".".join(parts + ["0"] * missing)


def _without_zeros(part: str) -> str:
    """A part without its leading zeros, of which the last stays where no digit follows."""
    rest = part.lstrip("0")
    first = rest[:1]
    if first.isdigit() and first.isascii():
        return rest

    return "0" + rest


@total_ordering
class Quantity(msgspec.Struct, frozen=True, gc=False):
    """A Kubernetes quantity, stored exactly in billionths, the finest fraction of a quantity.

    `computed`: the quantity is the result of `add` or `sub`. Such quantities can be ordered, but in
    Kubernetes they are never equal to another quantity.
    """

    nanos: int
    computed: bool = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __lt__(self, other: Quantity) -> bool:
        return self.nanos < other.nanos

    @property
    def whole(self) -> bool:
        """Whether the quantity is an integer of 64 bits."""
        if self.nanos % NANOS:
            return False

        return abs(self.nanos) <= _LARGEST_INT * NANOS

    def as_int(self) -> int:
        """The quantity as an integer. Raises SelectorError if it is not one."""
        if not self.whole:
            raise SelectorError("cannot convert value to integer")

        return self.nanos // NANOS

    def plus(self, other: object, sign: int) -> Quantity:
        """The sum with a quantity or an integer, or with `sign` -1 the difference."""
        if isinstance(other, Quantity):
            nanos = other.nanos
        elif type(other) is int:
            nanos = other * NANOS
        else:
            raise SelectorError(NO_OVERLOAD)

        return Quantity(self.nanos + sign * nanos, computed=True)


def quantity(text: str) -> Quantity:
    """The quantity. Raises SelectorError if the text is not one."""
    try:
        return Quantity(parse_nanos(text))
    except QuantityError as error:
        raise SelectorError(f'"{text[:64]}" is not a quantity') from error
