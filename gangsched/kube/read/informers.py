"""Everything that the daemon reads from the API server, and whether all of it was read once.

Law: reading starts before the state exists. Earlier messages are kept in order and delivered first (`deliver_to`). It
does *not* look into messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from gangsched.kube.http.client import ApiClient
from gangsched.kube.ports import Sink, Warn
from gangsched.kube.read import store
from gangsched.kube.read.podgroup_informer import PodGroupInformer
from gangsched.kube.read.reflector import Reflector
from gangsched.kube.read.shapes import ShapeTable
from gangsched.kube.read.storage_informers import StorageInformers
from gangsched.model.protocol import Message


class Informers:
    """`stores` and `reflectors` are by resource name; the daemon sets `backlog_bound`."""

    def __init__(
        self, client: ApiClient, *, warn: Warn, restore_signals: Callable[[], None], sweep_every_s: float
    ) -> None:
        """For `restore_signals` and `sweep_every_s` see `PodGroupInformer`."""
        self.backlog_bound = asyncio.Event()
        self._early: list[Message] = []
        self._sink: Sink = self._early.append
        kinds: tuple[Any, ...] = (store.pods(ShapeTable()), store.nodes(warn), store.namespaces())
        self.stores = {codec.noun: store.Store(codec, self._take, warn) for codec in kinds}
        self.reflectors = {noun: Reflector(client, each, warn=warn) for noun, each in self.stores.items()}
        self.storage = StorageInformers(client, self._take, warn=warn)
        self.operator = PodGroupInformer(
            client,
            self._take,
            warn=warn,
            restore_signals=restore_signals,
            backlog_bound=self.backlog_bound,
            sweep_every_s=sweep_every_s,
        )

    def deliver_to(self, sink: Sink) -> None:
        """Give everything to `sink`, from the first message on."""
        early, self._early = self._early, []
        self._sink = sink
        for message in early:
            sink(message)

    def waiting_for(self) -> list[str]:
        """The kinds that have not been read yet."""
        synced = {noun: reflector.synced for noun, reflector in self.reflectors.items()}
        synced["podgroups"] = self.operator.synced
        return [noun for noun, event in synced.items() if not event.is_set()] + self.storage.waiting_for()

    async def synced(self) -> None:
        """Return when nothing is waited for."""
        for reflector in self.reflectors.values():
            await reflector.synced.wait()
        await self.operator.synced.wait()
        await self.storage.answered()

    async def run(self) -> None:
        """Follow everything until cancelled; never returns."""
        async with asyncio.TaskGroup() as group:
            for noun, reflector in self.reflectors.items():
                group.create_task(reflector.run(), name=noun)
            group.create_task(self.operator.run(), name="podgroups")
            group.create_task(self.storage.run(), name="storage")

    def _take(self, message: Message) -> None:
        self._sink(message)
