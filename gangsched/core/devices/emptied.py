"""The devices of the cluster as if only pods ran that stay as long as their node: an upper bound of
free devices (semantics H3).

Invariant: slices, pools and classes are shared with the original index. It forwards changes of
nodes, and drops this index when anything else changes. The caches of this index are kept across
plans.
"""

from __future__ import annotations

from gangsched.core.devices.device_index import DeviceIndex


def emptied(index: DeviceIndex) -> DeviceIndex:
    """The index as if only pods that stay as long as their node held devices. Read-only."""
    if index.emptied is None:
        index.emptied = EmptiedIndex(index)

    return index.emptied


class EmptiedIndex(DeviceIndex):
    """An index that shares slices, pools and classes with the original one."""

    def __init__(self, index: DeviceIndex) -> None:
        super().__init__()
        # Shared by reference: whatever replaces one of these objects must drop `index.emptied`
        # (`_reclassified`).
        self.classes = index.classes
        self.extended = index.extended

        # The only difference to the index: claims of pods that do not end with their node hold
        # nothing here.
        self.holders = index.lasting
        self.invalid = index.invalid
        self.slices = index.slices
        self._rules = index._rules
        self._pools = index._pools
        self._entire = index._entire
        self._answers = index._answers
        self._rooms = index._rooms
        self._kinds = index._kinds
