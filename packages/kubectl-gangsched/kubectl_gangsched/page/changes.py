"""What changed between two moments, and a moment after a change.

Invariant: `applied(before, between(before, after)) == after`; the page does the same in its own
language. Rows are compared as values, so that what is sent is in proportion to what differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from msgspec import structs

from kubectl_gangsched.page.document import Change, Moment, Place, QueueChange, QueuePart

TABLES = ("nodes", "gangs", "bars", "details")
NOBODY: Place = ("", 0)
FIELDS = ("sentence", "remark", "levels", "totals", "order", "health", "unknown")


def between(before: Moment, after: Moment) -> Change:
    """What makes `after` of `before`."""
    change = Change(at_s=after.at_s, queue=_queue_change(before.queue, after.queue))
    for table in TABLES:
        setattr(change, table, _rows(getattr(before, table), getattr(after, table)))

    for field in FIELDS:
        value = getattr(after, field)
        if value != getattr(before, field):
            setattr(change, field, value)

    return change


def is_nothing(change: Change) -> bool:
    """Whether a change only says that time has passed."""
    return change == Change(at_s=change.at_s)


def applied(before: Moment, change: Change) -> Moment:
    """The moment after the change; `before` stays as it is."""
    after = structs.replace(before, at_s=change.at_s)
    for table in TABLES:
        rows = dict(getattr(before, table))
        _put(rows, getattr(change, table))
        setattr(after, table, rows)

    for field in FIELDS:
        value = getattr(change, field)
        if value is not None:
            setattr(after, field, value)

    if change.queue is not None:
        after.queue = _changed_queue(before.queue, change.queue)

    return after


def _put(rows: dict[str, Any], changed: Mapping[str, Any]) -> None:
    for key, row in changed.items():
        if row is None:
            rows.pop(key, None)
        else:
            rows[key] = row


def _rows(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    changed = {}
    for key, row in after.items():
        known = before.get(key)
        # Most rows are the same object: comparing them would cost ten times as much.
        if known is not row and known != row:
            changed[key] = row

    for key in before:
        if key not in after:
            changed[key] = None

    return changed


def _queue_change(before: Sequence[Place], after: Sequence[Place]) -> QueueChange | None:
    """Those that left, and the stretches that differ. A start at the head and an arrival at the
    end are one entry each, however many gangs wait between them.
    """
    if before == after:
        return None

    remaining = {gang for gang, _ in after}
    left = [gang for gang, _ in before if gang not in remaining]
    rest = _without(before, left)
    known = {gang for gang, _ in rest}
    parts = []

    at = place = 0
    while at < len(rest) or place < len(after):
        if rest[at : at + 1] == after[place : place + 1]:
            at += 1
            place += 1
            continue

        end, last = _stretch(rest, after, known, at, place)
        joined = list(after[place:last])
        parts.append(QueuePart(at, end - at, joined))
        at = end
        place = last

    return QueueChange(left, parts)


def _stretch(
    rest: Sequence[Place],
    after: Sequence[Place],
    known: Set[str],
    at: int,
    place: int,
) -> tuple[int, int]:
    """Where both queues are the same again, behind places where they are not."""
    while at < len(rest) or place < len(after):
        before, steps_before = rest[at] if at < len(rest) else NOBODY
        gang, steps = after[place] if place < len(after) else NOBODY
        if gang == before and steps == steps_before:
            break

        if gang and gang not in known:
            place += 1  # it has come
            continue

        if gang == before:
            at += 1
            place += 1
            continue

        # Some have changed places: all that follows, but for the end that is the same.
        tail = _common_tail(rest[at:], after[place:])
        return len(rest) - tail, len(after) - tail

    return at, place


def _common_tail(one: Sequence[Place], other: Sequence[Place]) -> int:
    shorter = min(len(one), len(other))
    tail = 0
    while tail < shorter and one[-1 - tail] == other[-1 - tail]:
        tail += 1

    return tail


def _changed_queue(before: Sequence[Place], change: QueueChange) -> list[Place]:
    rest = _without(before, change.left)
    queue: list[Place] = []
    taken = 0
    for part in change.parts:
        queue += rest[taken : part.at]
        queue += part.joined
        taken = part.at + part.dropped

    return queue + rest[taken:]


def _without(queue: Sequence[Place], left: Sequence[str]) -> list[Place]:
    gone = set(left)
    rest = []
    for place in queue:
        if place[0] not in gone:
            rest.append(place)

    return rest
