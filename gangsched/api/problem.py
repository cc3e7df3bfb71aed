"""The message about an invalid value (semantics E4): key, value and reason in one sentence,
and what is used instead in another one.

Invariant: a problem is a value, not an exception, and its text fits an Event: bounded and
printable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_LONGEST_SHOWN: Final = 80


@dataclass(frozen=True, slots=True)
class Problem:
    """One invalid value. `value` and `used` are texts as shown to users; `pod` is "namespace/name",
    or "" for none.
    """

    key: str
    value: str
    used: str
    text: str
    pod: str = ""


def bad_value(
    *,
    key: str,
    value: object,
    why: str,
    used: str,
    where: str,
    pod: str = "",
) -> Problem:
    """The problem of an invalid `value` of `key` on the object `where`. `why` completes the
    sentence "the value …", and `used` the sentence "instead, …".
    """
    shown = quoted(value)
    return Problem(
        key,
        shown,
        used,
        f"{key} of {where} {why}: {shown}. {instead(used)}",
        pod,
    )


def instead(used: str) -> str:
    """The sentence about what is used instead of a bad value, "" for nothing."""
    return f"Used instead: {used}." if used else "It is ignored."


def quoted(value: object) -> str:
    """`value` in double quotes, cut to 80 characters, unprintable characters replaced."""
    text = value if isinstance(value, str) else _plain(value)
    text = "".join(char if char.isprintable() else "�" for char in text[: _LONGEST_SHOWN + 1])
    if len(text) > _LONGEST_SHOWN:
        return f'"{text[:_LONGEST_SHOWN]}…"'

    return f'"{text}"'


def _plain(value: object) -> str:
    try:
        return repr(value)
    except ValueError:  # an int of more digits than Python prints
        return "a very large number"
