"""What changed between two moments, and a moment after a change.

Invariant: `applied(before, between(before, after)) == after`; the page does the same in its own
language. Rows are compared as values, so that what is sent is in proportion to what differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from kubectl_gangsched.page.document import Change, Moment, Place, QueueChange

TABLES = ("nodes", "gangs", "bars", "details")
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
    """Those that left, and one stretch that is replaced: a start and an arrival are both short."""
    if before == after:
        return None

    remaining = {gang for gang, _ in after}
    left = [gang for gang, _ in before if gang not in remaining]
    rest = _without(before, left)
    shorter = min(len(rest), len(after))

    head = 0
    while head < shorter and rest[head] == after[head]:
        head += 1

    tail = 0
    while tail < shorter - head and rest[-1 - tail] == after[-1 - tail]:
        tail += 1

    end = len(after) - tail
    return QueueChange(
        left=left,
        at=head,
        dropped=len(rest) - head - tail,
        joined=list(after[head:end]),
    )


def _changed_queue(before: Sequence[Place], change: QueueChange) -> list[Place]:
    rest = _without(before, change.left)
    end = change.at + change.dropped
    rest[change.at : end] = change.joined
    return rest


def _without(queue: Sequence[Place], left: Sequence[str]) -> list[Place]:
    gone = set(left)
    rest = []
    for place in queue:
        if place[0] not in gone:
            rest.append(place)

    return rest
