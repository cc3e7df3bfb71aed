"""Feeds: everything the daemon reads, and when it has read enough to decide.

Law: reading starts before those who use it are there. What comes until then is kept, in order, and given to them first
(`deliver_to`). What it does *not* do: look into messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from gangsched.kube.http.client import ApiClient
from gangsched.kube.ports import Report, Sink
from gangsched.kube.read import store
from gangsched.kube.read.podgroup_informer import PodGroupOperator
from gangsched.kube.read.reflector import Reflector
from gangsched.kube.read.shapes import ShapeTable
from gangsched.kube.read.storage_informers import StorageFeed
from gangsched.model.protocol import Message


class Informers:
    """`mirrors` and `reflectors` are by the kind's name in the API, plural; `backlog_bound` is the daemon's to set."""

    def __init__(
        self, client: ApiClient, *, report: Report, restore_signals: Callable[[], None], sweep_every_s: float
    ) -> None:
        """For `restore_signals` and `sweep_every_s` see `PodGroupOperator`."""
        self.backlog_bound = asyncio.Event()
        self._early: list[Message] = []
        self._sink: Sink = self._early.append
        kinds: tuple[Any, ...] = (store.pods(ShapeTable()), store.nodes(report), store.namespaces())
        self.stores = {codec.noun: store.Store(codec, self._take, report) for codec in kinds}
        self.reflectors = {noun: Reflector(client, each, report=report) for noun, each in self.stores.items()}
        self.storage = StorageFeed(client, self._take, report=report)
        self.operator = PodGroupOperator(
            client,
            self._take,
            report=report,
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
