"""Outbox: orders waiting to be written, the newest per object, never ahead of a bind.

Law: an order replaces an older unsent one of the same key; one key is written by one worker at a time, in order; a
fault is retried with backoff until the order is done, replaced or dropped. While binds are under way an order waits,
but not longer than `PATIENCE_S` (semantics E1: told within a second); one that is not `urgent` waits for a pause in
which nothing is bound, but not longer than `CALM_PATIENCE_S`. What is written is the business of `send`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from gangsched.kube.http.backoff import Backoff
from gangsched.kube.http.faults import CONFLICT, NOT_FOUND, UNPROCESSABLE, ApiFault, Fault
from gangsched.kube.ports import Now, Sleep, Warn
from gangsched.kube.waiting import wait_for_event

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

PATIENCE_S = 0.7
CALM_PATIENCE_S = 3.0
PAUSE_S = 0.2
BAD_REQUEST = 400


class Pausing(Protocol):
    """What of the binder is needed here."""

    idle: asyncio.Event
    idle_since_s: float


class NotYet(Fault):
    """Raised by a `send` whose time has not come; the order is tried again shortly and nobody is told."""


@dataclass(slots=True)
class OutboxCounts:
    """What happened so far, for metrics. `skipped` orders would have changed nothing."""

    ordered: int = 0
    written: int = 0
    skipped: int = 0
    dropped: int = 0
    faults: int = 0


@dataclass(slots=True)
class _Order(Generic[V]):
    value: V
    put_s: float
    backoff: Backoff


class Outbox(Generic[K, V]):
    """`put` never blocks; `run` never returns. `send` gives true when it wrote, false when there was nothing to do."""

    def __init__(
        self,
        send: Callable[[V], Awaitable[bool]],
        *,
        noun: str,
        binds: Pausing,
        warn: Warn,
        urgent: Callable[[V], bool] = lambda value: True,
        workers: int = 8,
        now: Now = time.monotonic,
        sleep: Sleep = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        """`noun` names what is written, in reports; `workers` write what is urgent, and as many what is not."""
        self.counts = OutboxCounts()
        self.empty = asyncio.Event()
        self.empty.set()
        self._send = send
        self._noun = noun
        self._binds = binds
        self._warn = warn
        self._workers = workers
        self._urgent = urgent
        self._now = now
        self._sleep = sleep
        self._rng = rng or random.Random()
        self._orders: dict[K, _Order[V]] = {}
        self._ready: deque[K] = deque()
        self._ready_in_a_pause: deque[K] = deque()
        self._wake = asyncio.Event()
        self._in_flight: set[K] = set()
        self._later: dict[K, asyncio.Task[None]] = {}
        self._trouble: str | None = None

    def __len__(self) -> int:
        """Orders not yet done."""
        return len(self._orders) + len(self._in_flight - self._orders.keys())

    def put(self, key: K, value: V) -> None:
        """Order `value` to be written for `key`, in place of an older order that was not sent yet."""
        self.counts.ordered += 1
        old = self._orders.get(key)
        # A replaced order keeps its age, so that a verdict that changes all the time is still told in time.
        put_s = old.put_s if old is not None else self._now()
        self._orders[key] = _Order(value, put_s, Backoff(0.25, 10.0, rng=self._rng))
        self.empty.clear()
        later = self._later.pop(key, None)
        if later is not None:
            later.cancel()
        became_urgent = old is not None and self._urgent(value) and not self._urgent(old.value)
        if key not in self._in_flight and (old is None or later is not None or became_urgent):
            self._enqueue(key)

    def drop(self, key: K) -> None:
        """Forget an order that was not sent yet."""
        if self._orders.pop(key, None) is not None:
            self.counts.dropped += 1
            self._settle()

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._work(self._ready), name=f"{self._noun} writer {number}")
                group.create_task(self._work(self._ready_in_a_pause), name=f"{self._noun} writer {number} in a pause")

    async def drain(self, timeout_s: float) -> int:
        """Wait until everything ordered is written, at most `timeout_s`; how much is not."""
        await wait_for_event(self.empty, timeout_s, sleep=self._sleep)
        return len(self)

    def _enqueue(self, key: K) -> None:
        self._queue_of(self._orders[key]).append(key)
        self._wake.set()

    def _queue_of(self, order: _Order[V]) -> deque[K]:
        return self._ready if self._urgent(order.value) else self._ready_in_a_pause

    async def _work(self, queue: deque[K]) -> None:
        while True:
            while not queue:
                self._wake.clear()
                await self._wake.wait()
            key = queue.popleft()
            order = self._orders.get(key)
            if order is None or key in self._in_flight:
                continue
            if queue is not self._queue_of(order):  # it was replaced meanwhile; what waits for a pause holds nobody up
                self._enqueue(key)
                continue
            await self._let_binds_go_first(order)
            order = self._orders.pop(key, None)
            if order is None or key in self._in_flight:
                continue
            self._in_flight.add(key)
            try:
                await self._write(key, order)
            finally:
                self._in_flight.discard(key)
                if key in self._orders and key not in self._later:
                    self._enqueue(key)
                self._settle()

    async def _let_binds_go_first(self, order: _Order[V]) -> None:
        urgent = self._urgent(order.value)
        deadline_s = order.put_s + (PATIENCE_S if urgent else CALM_PATIENCE_S)
        while (left_s := deadline_s - self._now()) > 0:
            if not self._binds.idle.is_set():
                await wait_for_event(self._binds.idle, left_s, sleep=self._sleep)
                continue
            pause_s = self._now() - self._binds.idle_since_s
            if urgent or pause_s >= PAUSE_S:
                return
            await self._sleep(min(left_s, PAUSE_S - pause_s))

    async def _write(self, key: K, order: _Order[V]) -> None:
        try:
            if await self._send(order.value):
                self.counts.written += 1
                self._trouble = None
            else:
                self.counts.skipped += 1
        except NotYet:
            self._again(key, order, 0.1)
        except Fault as fault:
            self.counts.faults += 1
            if self._is_final(fault):
                self.counts.dropped += 1
                return
            self._complain(fault, "trying again")
            self._again(key, order, order.backoff.next_s(fault))

    def _is_final(self, fault: Fault) -> bool:
        """Whether trying again cannot help: the object is gone or another's, or the order itself is refused."""
        if not isinstance(fault, ApiFault):
            return False
        names_uid = "uid" in fault.message.lower()
        if fault.status in {BAD_REQUEST, UNPROCESSABLE}:
            if not names_uid:
                self._complain(fault, "giving up on it")
            return True
        return fault.status == NOT_FOUND or (fault.status == CONFLICT and names_uid)

    def _again(self, key: K, order: _Order[V], delay_s: float) -> None:
        if key in self._orders:  # a newer one came meanwhile
            return
        self._orders[key] = order

        async def later() -> None:
            await self._sleep(delay_s)
            self._later.pop(key, None)
            if key in self._orders:
                self._enqueue(key)

        self._later[key] = asyncio.create_task(later(), name=f"{self._noun} again")

    def _complain(self, fault: Fault, then: str) -> None:
        sentence = f"Cannot write {self._noun}: {str(fault).rstrip('.')}; {then}."
        if sentence != self._trouble:
            self._trouble = sentence
            self._warn(sentence)

    def _settle(self) -> None:
        if not self._orders and not self._in_flight:
            self.empty.set()
