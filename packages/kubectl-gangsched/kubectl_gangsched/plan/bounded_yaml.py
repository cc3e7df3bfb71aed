"""YAML that somebody else may have written: how deep it is, and what its aliases expand to.

Invariant: the text is judged by its events, without recursion, before anything is built of it.
Brackets that are nested 30,000 deep fit into a question of the page, and end the interpreter
itself; ten lines of aliases expand to billions of values when they are encoded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MAX_DEPTH = 100
"""Manifests are a dozen levels deep; definitions of resources, about forty."""
MAX_REPEATED = 100_000
"""Values that aliases may add, together."""


class Unbounded(ValueError):  # noqa: N818  (what the text is)
    """A text that is too deep or too large; `str()` says what it has, without a full stop."""


def documents(text: str) -> list[Any]:
    """The documents of a text that are not empty. Raises yaml.YAMLError, and ValueError also for
    what is Unbounded.
    """
    _check(yaml.parse(text, Loader=LOADER))
    return [document for document in yaml.load_all(text, Loader=LOADER) if document]


def _check(events: Iterable[yaml.Event]) -> None:
    """Raise Unbounded if the document would be too deep or too large."""
    #: Values in each collection that is open, with its anchor, the outermost first.
    open_collections: list[tuple[int, str]] = []
    sizes: dict[str, int] = {}
    repeated = 0

    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            sizes = {}
        elif isinstance(event, yaml.CollectionStartEvent):
            if len(open_collections) == MAX_DEPTH:
                raise Unbounded(f"more than {MAX_DEPTH} levels")

            open_collections.append((1, event.anchor or ""))
        elif isinstance(event, yaml.CollectionEndEvent):
            size, anchor = open_collections.pop()
            _count(open_collections, size)
            sizes[anchor] = size
        elif isinstance(event, yaml.ScalarEvent):
            _count(open_collections, 1)
            sizes[event.anchor or ""] = 1
        elif isinstance(event, yaml.AliasEvent):
            # The anchor of an open collection is not known yet: that would contain itself.
            size = sizes.get(event.anchor or "", 0)
            if not size:
                raise Unbounded(f"an alias, *{event.anchor}, of nothing that is complete before it")

            repeated += size
            if repeated > MAX_REPEATED:
                raise Unbounded(f"aliases that repeat more than {MAX_REPEATED:,} values")

            _count(open_collections, size)


def _count(open_collections: list[tuple[int, str]], values: int) -> None:
    """Add values to the innermost collection."""
    if open_collections:
        size, anchor = open_collections[-1]
        open_collections[-1] = size + values, anchor
