"""Text for users: limited in length, with a count of what is left out.

Invariant: messages may include tenants' text, so each message passes through `cut` before it is
written. The limit is in bytes, like the API server's limit on an Event's note.
"""

from __future__ import annotations

from collections.abc import Sequence

MESSAGE_BYTES = 1024
NAMED = 5


def cut(text: str) -> str:
    """Cut the text to `MESSAGE_BYTES` bytes of UTF-8; a cut text ends with the number of characters
    left out.
    """
    raw = text.encode()
    if len(raw) <= MESSAGE_BYTES:
        return text

    room = MESSAGE_BYTES - len(_left_out(len(text)).encode())
    # A cut may be within a character of several bytes, whose rest is dropped.
    kept = raw[:room].decode(errors="ignore")
    return kept + _left_out(len(text) - len(kept))


def named(texts: Sequence[str]) -> str:
    """The first few texts, joined, and the number of the remaining ones."""
    more = f" and {len(texts) - NAMED} more" if len(texts) > NAMED else ""
    return ", ".join(texts[:NAMED]) + more


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 pod`, `2 pods`. Only for nouns whose plural ends in s."""
    if number == 1:
        return f"{number} {noun}"

    return f"{number} {noun}s"


def is_or_are(number: int) -> str:
    """The verb of a sentence about this many."""
    return "is" if number == 1 else "are"


def are_of(number: int, total: int) -> str:
    """The verb of `2 of 3 nodes are`, `1 of 3 nodes is`, `0 of 1 node is`."""
    return is_or_are(1 if total == 1 else number)


def _left_out(number: int) -> str:
    return f" … ({number} more characters)"
