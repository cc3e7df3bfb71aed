"""Whose search for victims goes on: groups that were told that it takes more than one plan take
turns (semantics V25).

Invariant: one group searches at a time, and the others wait parked, so that no plan decides them in
vain before their turn; freed room wakes them all the same. Namespaces alternate, and of each
namespace one search after the other ends, unless it takes too many turns.
"""

from __future__ import annotations

from collections.abc import Mapping

from gangsched.model.gang import namespace_of
from gangsched.state.group_record import GroupRecord, QueueState
from gangsched.state.namespace_turns import NamespaceTurns

IN_A_ROW = 8
"""Turns of a group before others of its namespace: nearly all searches end within them, and what
they found is not outdated then.
"""


class SearchTurns:
    """The groups whose search goes on later, and the one that searches now."""

    def __init__(self, groups: Mapping[str, GroupRecord]) -> None:
        self._groups = groups
        self._waiting = NamespaceTurns()
        #: The group whose turn it is, "" if there is none, and by group the turns that it had.
        self._now = ""
        self._had: dict[str, int] = {}

    @property
    def now(self) -> str | None:
        """The group whose turn it is, "" if it is nobody's; None if nobody waits for one."""
        if self._is_on:
            return self._now

        return "" if self._waiting else None

    def is_put_off(self, group_id: str) -> bool:
        """Whether the group waits for its turn."""
        return self._waiting.has(namespace_of(group_id), group_id)

    def is_under_way(self, group_id: str) -> bool:
        """Whether the search of the group goes on that an earlier turn of it began."""
        return group_id in self._had

    def wait(self, group_id: str) -> None:
        """Let a group wait for its next turn; it keeps its place if it waits."""
        namespace = namespace_of(group_id)
        is_first = False
        if self._now == group_id:
            self._now = ""
            had = self._had.get(group_id, 0) + 1
            is_first = had % IN_A_ROW != 0
            self._had[group_id] = had

        if is_first:
            self._waiting.add_first(namespace, group_id)
        else:
            self._waiting.add(namespace, group_id)

    def end(self, group_id: str) -> None:
        """The group searches no more: it was answered, has changed, or is gone."""
        self._waiting.discard(namespace_of(group_id), group_id)
        self._had.pop(group_id, None)
        if self._now == group_id:
            self._now = ""

    def begin(self) -> str:
        """The group whose turn begins; "" if that of another one is not over, or nobody waits."""
        if not self.is_due:
            return ""

        (self._now,) = self._waiting.take()
        return self._now

    @property
    def is_due(self) -> bool:
        """Whether a turn may begin."""
        return len(self._waiting) > 0 and not self._is_on

    @property
    def _is_on(self) -> bool:
        """Whether a plan will decide the group whose turn it is."""
        group = self._groups.get(self._now)
        return group is not None and group.queue is QueueState.ACTIVE
