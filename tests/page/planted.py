"""Bugs that the checks of the page must find: each is one replacement in one of its files."""

from __future__ import annotations

from typing import NamedTuple

from tests.page import checks


class Planted(NamedTuple):
    """One bug: what is replaced in which file, and the check that fails on which example."""

    bug: str
    file: str
    old: str
    new: str
    check: checks.Check
    example: str = "demo"


PLANTED = (
    Planted(
        "a rack counts what it has as free",
        "racks.js",
        "into.free += devices.free ?? 0",
        "into.free += devices.total",
        checks.squares,
    ),
    Planted(
        "letters are not in the order of use",
        "view.js",
        "total(b) - total(a)",
        "total(a) - total(b)",
        checks.squares,
    ),
    Planted(
        "a closed node looks like a free one",
        "boxes.js",
        "!row.closed ? ['free', '']",
        "row.name !== '' ? ['free', '']",
        checks.squares,
    ),
    Planted(
        "a reservation has no time",
        "boxes.js",
        "reserved.startS == null ? ''",
        "reserved.startS != null ? ''",
        checks.squares,
    ),
    Planted(
        "a change alters the moment before it",
        "moments.js",
        "const rows = { ...before[table] };",
        "const rows = before[table] ?? {};",
        checks.moments,
    ),
    Planted(
        "the queue stays as it was",
        "moments.js",
        "of [change.queue ?? []].flat()) after.queue",
        "of []) after.queue",
        checks.moments,
    ),
    Planted(
        "what happened reaches into the future",
        "bars.js",
        "isPast ? nowS : axis.toS",
        "axis.toS",
        checks.bars,
    ),
    Planted(
        "what is promised looks as if it had happened",
        "bars.js",
        "`bar ${kind} ",
        "`bar ${kind === 'promised' ? 'happened' : kind} ",
        checks.bars,
    ),
    Planted(
        "the end of a run is its start",
        "view.js",
        "endS: gang?.expectedEndS",
        "endS: gang?.startedS",
        checks.sentences,
    ),
    Planted(
        "a gang that is isolated hides the nodes that are reserved for it",
        "boxes.js",
        "...(row.reserved ?? []).map(({ gang }) => gang)",
        "...[]",
        checks.isolates,
    ),
    Planted(
        "slash finds nothing",
        "find.js",
        "event.key === '/'",
        "event.key === '?'",
        checks.keyboard,
    ),
    Planted(
        "arrow keys stay on a node",
        "boxes.js",
        "return boxes[place + 1];",
        "return boxes[place];",
        checks.keyboard,
    ),
    Planted(
        "the filter looks at the beginning of names only",
        "queue.js",
        "id.toLowerCase().includes(wanted)",
        "id.toLowerCase().startsWith(wanted)",
        checks.filters,
        "big",
    ),
    Planted(
        "a long list is there as a whole",
        "queue.js",
        "rows.slice(first, last)",
        "rows.slice(0, 500)",
        checks.small,
        "big",
    ),
    Planted(
        "a name is markup",
        "pieces.js",
        '<span class="name" title=${text}>${shown}</span>',
        '<span class="name" dangerouslySetInnerHTML=${{ __html: shown }}></span>',
        checks.shows_as_text,
        "hostile",
    ),
    Planted(
        "grey text is too faint",
        "page.css",
        "--dim: light-dark(#59606d",
        "--dim: light-dark(#a9afb9",
        checks.overview_is_accessible,
    ),
    Planted(
        "who holds a node is said above what a phone shows",
        "page.css",
        ".inspector { position: fixed; z-index: 3;",
        ".inspector { z-index: 3;",
        checks.says_who_holds_a_node,
    ),
    Planted(
        "the map is wider than a phone",
        "page.css",
        "minmax(min(100%, 154px), 1fr)); gap: 10px; }",
        "minmax(480px, 1fr)); gap: 10px; }",
        checks.fits_a_phone,
    ),
)
