"""StorageInformers: claims, volumes, classes, CSINodes and ResourceClaims, each followed by a reflector of its own.

Law: storage is an extra: `run` never holds up the daemon for a kind that it may not read. That kind is said to be
unread, pods with claims stay pending for it, and it is asked for again until it is granted.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from gangsched.kube.http.client import ApiClient
from gangsched.kube.ports import Sink, Warn
from gangsched.kube.read import storage
from gangsched.kube.read.reflector import Reflector
from gangsched.kube.read.store import Store
from gangsched.model.protocol import Unread


class StorageInformers:
    """`run` never returns. `stores` and `reflectors` are by resource name."""

    def __init__(self, client: ApiClient, sink: Sink, *, warn: Warn) -> None:
        """`sink` gets Storage messages."""
        self.stores: dict[str, Store[Any, Any]] = {}
        self.reflectors: dict[str, Reflector[Any, Any]] = {}
        codecs: tuple[Any, ...] = (
            storage.claims(),
            storage.volumes(),
            storage.classes(),
            storage.csi_nodes(),
            storage.resource_claims(),
        )
        for codec in codecs:
            self.stores[codec.noun] = store = Store(codec, sink, warn)
            self.reflectors[codec.noun] = Reflector(client, store, warn=warn, refused=partial(sink, Unread(codec.kind)))

    def waiting_for(self) -> list[str]:
        """The kinds that the API server has neither listed nor refused yet."""
        return [noun for noun, reflector in self.reflectors.items() if not reflector.answered.is_set()]

    async def answered(self) -> None:
        """Return when nothing is waited for."""
        for reflector in self.reflectors.values():
            await reflector.answered.wait()

    async def run(self) -> None:
        """Follow all kinds until cancelled."""
        async with asyncio.TaskGroup() as group:
            for noun, reflector in self.reflectors.items():
                group.create_task(reflector.run(), name=noun)
