"""The amounts that quantities of Kubernetes denote, as exact integers.

Invariant: a text that is no quantity of the API's grammar is refused, and none costs more than its
length.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

QUANTITY_LIMIT: Final = 2**63 - 1
"""Quantities saturate here, as in Kubernetes."""
NANOS: Final = 10**9
"""Billionths in one unit: the finest fraction of a quantity."""

_NUMBER: Final = re.compile(
    r"([+-]?)(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))(?:([KMGTPE]i|[numkMGTPE])|[eE]([+-]?[0-9]+))?"
)
DECIMAL_EXPONENT: Final = {
    "n": -9,
    "u": -6,
    "m": -3,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
BINARY_FACTOR: Final = {
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "Pi": 2**50,
    "Ei": 2**60,
}
_LONGEST_QUANTITY: Final = 256
# 10**40 saturates in every unit, and 10**-40 of the largest unit rounds up to one
_BEYOND_ANY_LIMIT: Final = 40


class QuantityError(ValueError):
    """A text is not a Kubernetes quantity; `str()` is one sentence."""


def parse_quantity(text: str | int | float, *, milli: bool = False) -> int:
    """The amount that `text` denotes, in units or (`milli`) thousandths; fractions are rounded away
    from zero.

    The grammar includes negative quantities, which callers replace by 0. Raises `QuantityError` for
    any other text.
    """
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise QuantityError(f"{_shown(text)} is not a quantity.")

    if isinstance(text, int):
        text = max(-QUANTITY_LIMIT, min(text, QUANTITY_LIMIT))

    if isinstance(text, str) and len(text) > _LONGEST_QUANTITY:
        raise QuantityError(f"{_shown(text)} is not a quantity.")

    # Texts, not numbers, key the cache: 1 and 1.0 would otherwise share an entry.
    return _parse(text if isinstance(text, str) else repr(text), 3 if milli else 0)


def parse_nanos(text: str) -> int:
    """The amount that `text` denotes, in billionths, the smallest fraction of a quantity. Raises
    `QuantityError`.
    """
    return _parse(text, 9)


@lru_cache(maxsize=16_384)
def _parse(text: str, decimals: int) -> int:
    # The common case without a regular expression; with 15 digits and three or nine decimals no
    # limit is near.
    if text.isascii() and text.isdigit() and len(text) <= 15:
        return int(text) * int(10**decimals)

    text = text.strip()
    match = _NUMBER.fullmatch(text) if len(text) <= _LONGEST_QUANTITY else None
    if match is None:
        raise QuantityError(f'{_shown(text)} is not a quantity (examples: "500m", "2", "16Gi").')

    sign, integer, fraction, bare_fraction, suffix, exponent_text = match.groups()
    fraction = fraction or bare_fraction or ""
    exponent = int(exponent_text) if exponent_text else DECIMAL_EXPONENT.get(suffix or "", 0)
    amount = _scaled(
        int((integer or "") + fraction),
        factor=BINARY_FACTOR.get(suffix or "", 1),
        exponent=exponent - len(fraction) + decimals,
        limit=QUANTITY_LIMIT * (NANOS if decimals == 9 else 1),
    )

    return -amount if sign == "-" else amount


def _scaled(digits: int, *, factor: int, exponent: int, limit: int) -> int:
    """`digits * factor * 10**exponent` rounded up and capped, without computing huge powers."""
    # Before the exponents, as 0e99 is zero and must not saturate.
    if digits == 0:
        return 0
    if exponent >= _BEYOND_ANY_LIMIT:
        return limit
    if exponent >= 0:
        return min(digits * factor * int(10**exponent), limit)
    if exponent < -_LONGEST_QUANTITY - _BEYOND_ANY_LIMIT:
        return 1

    return min(-(-digits * factor // int(10**-exponent)), limit)


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return f'"{text[:40]}…"' if len(text) > 40 else f'"{text}"'
