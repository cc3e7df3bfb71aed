"""Sentences about groups that are set aside because of an internal error (semantics I10)."""

from __future__ import annotations


def internal_error(reference: str) -> str:
    """What is told of a group that is set aside."""
    text = (
        f"gangsched could not plan this gang because of an internal error (reference {reference})"
    )
    return f"{text}; other gangs are not affected; it is tried again when it changes"
