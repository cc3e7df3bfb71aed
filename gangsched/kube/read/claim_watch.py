"""When to start reading devices: not before a pod needs some, so that clusters without them pay nothing."""

from __future__ import annotations

import asyncio
from typing import Final

from gangsched.model.devices import CLASS_PREFIX, DeviceClass
from gangsched.model.objects import Pod
from gangsched.model.protocol import Applied, Message, Replaced

_MOST_NAMES: Final = 10_000


class ClaimWatch:
    """`is_named`: a pod requests extended resources, so classes are read; `is_claimed`: devices are read."""

    def __init__(self, *, extends: bool = True) -> None:
        """`extends`: devices serve extended resources."""
        self._extends = extends
        self.is_named = asyncio.Event()
        self.is_claimed = asyncio.Event()
        self._requested: set[str] = set()
        self._served: set[str] = set()

    def take(self, message: Message) -> None:
        """Inspect a message; no effect once devices are read."""
        one = (message.item,) if isinstance(message, Applied) else ()
        for item in message.items if isinstance(message, Replaced) else one:
            if isinstance(item, Pod):
                # Names of resources, not pods: their number is small, and bounded below.
                self._requested.update(each.name for each in item.shape.extended if self._extends)
                if item.claims_devices:
                    self.is_claimed.set()
            elif isinstance(item, DeviceClass):
                self._served |= {item.extended_resource, CLASS_PREFIX + item.name}
        if self._requested:
            self.is_named.set()
        # Names are any text of users: rather than remember them all, devices are read.
        if not self._served.isdisjoint(self._requested) or len(self._requested) > _MOST_NAMES:
            self.is_claimed.set()
        if self.is_claimed.is_set():
            self.is_named.set()
