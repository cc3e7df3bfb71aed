"""Bounds of reading: how many entries the lists and maps of one object may have (semantics I8).

Invariant: nothing is cut. An object above a bound is refused with a sentence that names the field
and the bound, so reading one object takes a bounded time, and what is kept of it has a bounded
size.
"""

from __future__ import annotations

from typing import Final

import msgspec

FEW: Final = 64
"""Entries of a map of amounts, and of terms that are compared with all other pods."""
SOME: Final = 256
"""Entries of a list of objects, such as containers or tolerations."""
MANY: Final = 1_024
"""Entries of a list or map of short texts, such as labels or the values of a requirement."""
STATED_BYTES: Final = 64 * 1_024
"""Size of everything that is read of a spec: within the bounds of its fields it could still have
100,000 entries.
"""
STATED: Final = 4_096
"""Entries of all lists and maps in one field of an object that declares gangs."""
KEY_CHARACTERS: Final = 512
"""Length of the key of such a map; a qualified name has at most 317 characters."""
DEPTH: Final = 32
"""Lists and maps inside each other in such a field."""

NESTS: Final = (dict, list)
"""What JSON has entries in."""
UP_TO_FEW: Final = msgspec.Meta(max_length=FEW)
UP_TO_SOME: Final = msgspec.Meta(max_length=SOME)
UP_TO_MANY: Final = msgspec.Meta(max_length=MANY)

_encode = msgspec.msgpack.Encoder().encode


class BoundError(ValueError):
    """An object has more entries than are read; `str()` says which and how many, without the
    object's name.
    """


def at_most(number: int, most: int, field: str) -> None:
    """Raise BoundError if there are more than `most` entries in a field."""
    if number > most:
        raise BoundError(above(field, number, most))


def above(field: str, number: int, most: int) -> str:
    """The sentence about a field with too many entries."""
    return f"{field} has {number:,} entries, and gangsched reads at most {most:,}: remove some"


def stated_size(stated: object, field: str) -> None:
    """Raise BoundError if what is read of a spec, a wire struct, is larger than STATED_BYTES."""
    check_size(len(_encode(stated)), field)


def check_size(size: int, field: str) -> None:
    """Raise BoundError if so many bytes are more than STATED_BYTES."""
    if size > STATED_BYTES:
        kib = STATED_BYTES // 1_024
        raise BoundError(
            f"{field} has {-(-size // 1_024)} KiB in fields that gangsched reads, and it reads at"
            f" most {kib}"
        )


def check_entries(stated: object, field: str, where: str = "") -> None:
    """Raise BoundError if a value of JSON, decoded without a schema, is above a bound; `where`
    names its object. Takes time in proportion to the bound, whatever the size of the value.
    """
    total = 0
    suffix = f" of {where}" if where else ""

    # Not recursive: a value may be nested more deeply than Python's stack is.
    open_values = [(field, stated, 0)]

    while open_values:
        path, value, depth = open_values.pop()
        if not isinstance(value, NESTS):
            continue
        if depth > DEPTH:
            raise BoundError(
                f"{field}{suffix} has more than {DEPTH} lists and maps inside each other: remove"
                " some"
            )

        number = len(value)
        if number > MANY:
            raise BoundError(above(f"{path}{suffix}", number, MANY))

        total += number
        if total > STATED:
            raise BoundError(above(f"{field}{suffix}", total, STATED))

        if isinstance(value, dict):
            _check_keys(value, f"{path}{suffix}")
            inner = [
                (f"{path}.{key}", entry, depth + 1)
                for key, entry in value.items()
                if isinstance(entry, NESTS)
            ]
        else:
            inner = [(f"{path}[]", entry, depth + 1) for entry in value if isinstance(entry, NESTS)]

        open_values += inner


def _check_keys(stated: dict[object, object], field: str) -> None:
    """Raise BoundError for a key that is too long to be kept and shown."""
    longest = max(map(len, map(str, stated)), default=0)
    if longest > KEY_CHARACTERS:
        raise BoundError(
            f"{field} has a key of {longest:,} characters, and gangsched reads at most"
            f" {KEY_CHARACTERS}"
        )
