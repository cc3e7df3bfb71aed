"""What is grouped anew with a gang that changed: the gangs that it is decided with.

Invariant: only what is known before the gang is read counts, so that a turn knows what reading it
will take.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gangsched.model.gang import TREE
from gangsched.state.gangs import GangRecord
from gangsched.state.group_record import GroupRecord
from gangsched.state.parents import MOST_GANGS, Parents

ALONE: Final = ""


@dataclass(slots=True)
class Companions:
    """The companions of gangs among `gangs`; `group_of` says in which of `groups` a gang is."""

    gangs: Mapping[str, GangRecord]
    groups: Mapping[str, GroupRecord]
    group_of: Mapping[str, str]
    parents: Parents

    def name(self, gang_id: str) -> str:
        """A name for all that is grouped anew together with a gang; `ALONE` if that is nobody."""
        group_id = self.group_of.get(gang_id, ALONE)
        if self._size(group_id) > 1:
            return group_id

        if gang_id in self.parents.named_by or self._names_parent(gang_id):
            path = [gang_id, *self.parents.above(gang_id)]
            return TREE + path[-1]

        if self._listed(gang_id) > 1:
            return gang_id

        return ALONE

    def number(self, name: str) -> int:
        """The number of gangs that have this name."""
        size = self._size(name)
        if size > 1:
            return size

        if name.startswith(TREE):
            return self._below(name.removeprefix(TREE))

        return self._listed(name)

    def _size(self, group_id: str) -> int:
        """The gangs of a group; 0 if it does not exist."""
        group = self.groups.get(group_id)
        if group is None:
            return 0

        return len(group.gangs)

    def _names_parent(self, gang_id: str) -> bool:
        spec = self.gangs[gang_id].spec
        return spec is not None and bool(spec.parent)

    def _listed(self, gang_id: str) -> int:
        """The gangs that a gang lists."""
        record = self.gangs.get(gang_id)
        if record is None or record.spec is None:
            return 1

        return len(record.spec.group)

    def _below(self, top: str) -> int:
        """The gangs below a parent whose tree is refused: each is tried again with any change."""
        if top not in self.parents.named_by:
            return 1

        gangs = self.parents.below(top, MOST_GANGS + 1)
        # Of more than a tree may have each is alone, once so many were looked at.
        return len(gangs) or MOST_GANGS
