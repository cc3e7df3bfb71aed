"""The outbox: pending writes; only the last one per object is sent, after more urgent requests.

Invariant: an order is in exactly one `_Stage`. A newer value of the same key replaces an unsent
one. One worker at a time writes a key, in order. A fault is retried with back-off until the order
is done, replaced or refused. Namespaces alternate, within the rates of `WriteLimits`. An order
waits for a pause between urgent requests as long as its `Level` allows. The `Writer` decides what
is written and whether it still must be written.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Generic, TypeVar

from gangsched.kube.http.backoff import Backoff
from gangsched.kube.http.faults import (
    FORBIDDEN,
    NOT_FOUND,
    UNPROCESSABLE,
    ApiFault,
    Fault,
    Fenced,
    is_denied,
    is_replaced,
)
from gangsched.kube.ports import Runtime
from gangsched.kube.waiting import wait_for_event
from gangsched.kube.write.pause import INSTANT_S, InFlight, Pause
from gangsched.kube.write.rate_limits import TokenBuckets, WriteBudget, WriteLimits
from gangsched.kube.write.writer import (
    UNLIMITED,
    IsDue,
    Kind,
    Level,
    Namespaced,
    OutboxCounts,
    Writer,
)

T = TypeVar("T")


class FairQueue(Generic[T]):
    """A queue in which namespaces alternate, so that no tenant waits for the backlog of another.

    Invariant: first in, first out within a namespace; round robin among the namespaces that need
    not wait. The queue neither inspects items nor sleeps.
    """

    def __init__(self) -> None:
        self._queues: OrderedDict[str, deque[T]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._queues)

    def append(self, namespace: str, item: T) -> None:
        """Add an item at the end of its namespace's queue."""
        self._queues.setdefault(namespace, deque()).append(item)

    def pop(self, wait_s: Callable[[str], float]) -> T | None:
        """Next item of the next namespace that need not wait; None if all namespaces must wait."""
        # Each namespace is asked at most once per call, or this would spin while all have to wait.
        for _ in range(len(self._queues)):
            namespace, items = next(iter(self._queues.items()))
            if wait_s(namespace) <= 0:
                return self._pop_from(namespace, items)

            self._queues.move_to_end(namespace)

        return None

    def shortest(self, wait_s: Callable[[str], float]) -> float:
        """Shortest wait of any namespace, in seconds."""
        return min(map(wait_s, self._queues))

    def drop(self) -> T:
        """Remove the oldest item of the longest queue. Raises ValueError if all are empty."""
        # Whoever queued most loses first, so that a flood of one namespace drops no Event of
        # another.
        namespace, items = max(self._queues.items(), key=lambda entry: len(entry[1]))
        return self._pop_from(namespace, items)

    def heads(self) -> list[T]:
        """The oldest item of every namespace."""
        return [items[0] for items in self._queues.values()]

    def _pop_from(self, namespace: str, items: deque[T]) -> T:
        item = items.popleft()
        if items:
            self._queues.move_to_end(namespace)
        else:
            del self._queues[namespace]

        return item


V = TypeVar("V", bound=Namespaced)

ONLY_OF_UNBOUND = "gangsched may only say that an unbound pod of its own is not scheduled"
"""In the refusal of our admission policy; of what it means we write nothing else that it would
refuse.
"""


class _Stage(Enum):
    QUEUED = auto()
    AWAITING_BIND = auto()
    LIMITED = auto()
    BACKING_OFF = auto()
    SENDING = auto()
    DONE = auto()
    """Written, dropped or not needed; a queue in which it had another level may still have it."""


@dataclass(slots=True, eq=False)
class _Order(Generic[V]):
    """`newer` came while this one was being sent; `due_s` is when a LIMITED or BACKING_OFF one is
    queued again.
    """

    key: Hashable
    value: V
    level: int
    put_s: float
    stage: _Stage
    backoff: Backoff | None = None
    tries: int = 0
    due_s: float = 0.0
    newer: V | None = None


class _Queue(Generic[V]):
    """The queued orders of one level; who has the `turn` waits for the next."""

    def __init__(self) -> None:
        self.orders: FairQueue[_Order[V]] = FairQueue()
        self.filled = asyncio.Event()
        self.turn = asyncio.Lock()


class Outbox(Generic[V]):
    """`put` never blocks; `run` never returns."""

    def __init__(
        self,
        writer: Writer[V],
        kind: Kind,
        *,
        urgent: Sequence[InFlight],
        budget: WriteBudget | None = None,
        level: Callable[[V], int] = lambda value: 0,
        counts: OutboxCounts | None = None,
        runtime: Runtime,
    ) -> None:
        """`urgent` requests are sent first. `level` returns the index of an order's level; without
        a `budget`, the rate of namespaces is not limited.
        """
        self.counts = counts or OutboxCounts()
        self.empty = asyncio.Event()
        self.empty.set()
        self._writer = writer
        self._kind = kind
        self._budget = budget or WriteBudget(
            WriteLimits(total=UNLIMITED, namespace=UNLIMITED),
            runtime.now,
        )
        self._keys: TokenBuckets[Hashable] = TokenBuckets(kind.rate, runtime.now)
        self._level_of = level
        self._runtime = runtime
        self._pause = Pause(urgent, runtime)
        self._orders: dict[Hashable, _Order[V]] = {}
        self._queues = [_Queue[V]() for _ in kind.levels]
        self._later: list[tuple[float, int, _Order[V]]] = []

        # Breaks ties in the heap: orders cannot be compared.
        self._number = itertools.count()
        self._sooner = asyncio.Event()
        self._draining = False
        self._trouble: Any = None

    def __len__(self) -> int:
        """Orders not yet done."""
        return len(self._orders)

    def __contains__(self, key: Hashable) -> bool:
        """Whether something is still to be written for `key`, or being written."""
        return key in self._orders

    def put(self, key: Hashable, value: V, *, after_s: float = 0.0) -> None:
        """Queue `value` for `key`. It replaces an unsent value, else it is sent after `after_s` at
        the earliest.
        """
        self.counts.ordered += 1
        order = self._orders.get(key)
        if order is None:
            order = _Order(key, value, 0, self._runtime.now(), _Stage.QUEUED)
            self._orders[key] = order
            self.empty.clear()
            self._delay(order, _Stage.LIMITED, after_s) if after_s > 0 else self._enqueue(order)
        # The request under way cannot be changed; the newer value follows it.
        elif order.stage is _Stage.SENDING:
            order.newer = value
        else:  # keep its age, so that a verdict that changes often is still written in time
            order.value = value
            order.backoff = None

            order.tries = 0
            if order.stage is _Stage.BACKING_OFF or (
                order.stage is _Stage.QUEUED and self._level_of(value) != order.level
            ):
                self._enqueue(order)

    def answered(self, key: Hashable) -> None:
        """Send the write of this key that waits for the answer to a bind."""
        order = self._orders.get(key)
        if order is not None and order.stage is _Stage.AWAITING_BIND:
            self._enqueue(order)

    def carry(self, key: Hashable) -> V | None:
        """Take the unsent value of `key`, if it may be written now, to include it in another write
        of the same object. The caller reports the result with `carried`; newer values wait until
        then.
        """
        order = self._orders.get(key)
        if (
            order is None
            or order.stage is _Stage.SENDING
            or self._writer.due(order.value) is not IsDue.NOW
        ):
            return None

        order.stage = _Stage.SENDING
        return order.value

    def carried(self, key: Hashable, *, is_written: bool) -> None:
        """Record the result of the write that included the value of `key`; the value is queued
        again unless it was written.
        """
        order = self._orders[key]
        self.counts.skipped += is_written

        if order.newer is not None or not is_written:
            self._send_again(order)
        else:
            self._finish(order)

    def forget(self, key: Hashable) -> None:
        """Drop the rate limiter of a deleted object. Queued writes are still attempted."""
        self._keys.forget(key)

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._release(), name=f"{self._kind.noun} later")
            for number, level in enumerate(self._kind.levels):
                for _ in range(level.workers):
                    group.create_task(self._work(number, level), name=f"{self._kind.noun} writer")

    async def drain(self, timeout_s: float) -> int:
        """Wait up to `timeout_s` until everything is written, ignoring pauses and rates; return the
        number of writes that are still queued.
        """
        # The process ends: pauses and rates are for a running cluster.
        self._draining = True
        for order in self._orders.values():
            if order.stage is _Stage.LIMITED:
                self._enqueue(order)

        for queue in self._queues:
            queue.filled.set()

        await wait_for_event(self.empty, timeout_s, sleep=self._runtime.sleep)
        self._draining = False
        return len(self)

    # --- stages ----------------------------------------------------------------------------------

    def _enqueue(self, order: _Order[V]) -> None:
        order.level = self._level_of(order.value)
        order.stage = _Stage.QUEUED
        queue = self._queues[order.level]
        queue.orders.append(order.value.namespace, order)
        queue.filled.set()

        capacity = self._kind.capacity
        if capacity is not None and len(self._orders) > capacity:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        for number, queue in reversed(list(enumerate(self._queues))):
            while queue.orders:
                order = queue.orders.drop()
                # Lazy deletion: an order that changed its level or stage is still in its old queue.
                if order.stage is _Stage.QUEUED and order.level == number:
                    self.counts.dropped += 1
                    self._finish(order)
                    return

    def _delay(self, order: _Order[V], stage: _Stage, delay_s: float) -> None:
        order.stage = stage
        order.due_s = self._runtime.now() + delay_s
        heapq.heappush(self._later, (order.due_s, next(self._number), order))

        # The new order is due first, so `_release` must not sleep until the old deadline.
        if self._later[0][2] is order:
            self._sooner.set()

    def _finish(self, order: _Order[V]) -> None:
        order.stage = _Stage.DONE
        del self._orders[order.key]

        if not self._orders:
            self.empty.set()

    async def _release(self) -> None:
        """Queue delayed orders when they are due."""
        while True:
            self._sooner.clear()
            if not self._later:
                await self._sooner.wait()
            elif (left_s := self._later[0][0] - self._runtime.now()) > 0:
                await wait_for_event(self._sooner, left_s, sleep=self._runtime.sleep)
            else:
                due_s, _, order = heapq.heappop(self._later)
                # Lazy deletion here as well: an order that was queued or delayed again has another
                # due time.
                if order.due_s == due_s and order.stage in {_Stage.LIMITED, _Stage.BACKING_OFF}:
                    self._enqueue(order)

    # --- writing ---------------------------------------------------------------------------------

    async def _work(self, number: int, level: Level) -> None:
        queue = self._queues[number]
        while True:
            order = self._next(queue, number, level)
            if order is not None:
                await self._write(order)
                continue

            async with queue.turn:  # one worker waits for the next order, the others for their turn
                await self._wait(queue, level)

    def _next(self, queue: _Queue[V], number: int, level: Level) -> _Order[V] | None:
        """The next order to write; None when there is none, or it has to wait for a pause or a
        token.
        """
        while queue.orders and not self._pause_s(queue, level):
            order = queue.orders.pop(self._namespace_wait_s)
            if order is None:
                return None
            if self._admit(order, number):
                return order

        return None

    async def _wait(self, queue: _Queue[V], level: Level) -> None:
        """Wait for what `_next` lacks, if anything."""
        # Cleared before looking: what is appended from now on sets it again.
        queue.filled.clear()
        if not queue.orders:
            await queue.filled.wait()
        elif pause_s := self._pause_s(queue, level):
            until_s = min(order.put_s for order in queue.orders.heads()) + level.patience_s
            await self._pause.wait(pause_s, until_s=until_s)
        else:
            wait_s = queue.orders.shortest(self._namespace_wait_s)
            await wait_for_event(queue.filled, wait_s, sleep=self._runtime.sleep)

    def _pause_s(self, queue: _Queue[V], level: Level) -> float:
        """The pause between urgent requests that must precede the next order; 0 if none, or if
        patience is over.
        """
        pause_s = 0.0 if self._draining else level.pause_s
        if not self._pause.missing_s(pause_s):
            return 0.0

        oldest_s = min(order.put_s for order in queue.orders.heads())
        if self._runtime.now() < oldest_s + level.patience_s:
            return pause_s or INSTANT_S

        return 0.0

    def _namespace_wait_s(self, namespace: str) -> float:
        if self._draining:
            return 0.0

        return self._budget.wait_s(namespace)

    def _admit(self, order: _Order[V], level: int) -> bool:
        """Whether an order that left its queue is to be written now; else its stage is set."""
        if order.stage is not _Stage.QUEUED or order.level != level:
            return False  # it was replaced by one of another level

        due = self._writer.due(order.value)
        if due is IsDue.NEVER:
            self.counts.skipped += 1
            self._finish(order)
        elif due is IsDue.AFTER_BIND:
            order.stage = _Stage.AWAITING_BIND
        elif (wait_s := self._keys.wait_s(order.key)) and not self._draining:
            self._delay(order, _Stage.LIMITED, wait_s)
        else:
            # Taken only when the write really starts, so that skipped writes cost no tokens.
            self._keys.take(order.key)
            self._budget.take(order.value.namespace)
            order.stage = _Stage.SENDING

            return True

        return False

    async def _write(self, order: _Order[V]) -> None:
        fault = await self._try(order.value)
        if order.newer is not None:
            self._send_again(order)
        elif fault is None:
            self._finish(order)
        else:
            self._retry(order, fault)

    def _send_again(self, order: _Order[V]) -> None:
        """Queue the newest value of an order that was being sent."""
        if order.newer is not None:
            order.value = order.newer
            order.newer = None

            # A new value has its own patience, and the faults of the old one say nothing about it.
            order.put_s = self._runtime.now()
            order.backoff = None
            order.tries = 0

        self._enqueue(order)

    async def _try(self, value: V) -> Fault | None:
        """Write, and return the fault rather than raise it.

        Keep it in no local variable: exception and frame would form a reference cycle.
        """
        try:
            await self._writer.write(value)
        except Fault as fault:
            self.counts.faults += not _is_void(fault)
            return fault

        self.counts.written += 1
        self._trouble = None
        return None

    def _retry(self, order: _Order[V], fault: Fault) -> None:
        order.tries += 1

        is_void = _is_void(fault)
        # `tries` is None for writes that are repeated until they succeed or are replaced.
        if is_void or self._is_final(fault) or order.tries == self._kind.tries:
            self.counts.dropped += 1
            self._finish(order)

            if not is_void:
                self._warn(fault, "giving up")

            return

        self._warn(fault, "trying again")
        order.backoff = order.backoff or Backoff(0.25, 10.0, rng=self._runtime.rng)
        self._delay(order, _Stage.BACKING_OFF, order.backoff.next_s(fault))

    def _is_final(self, fault: Fault) -> bool:
        """Whether the API server will never take this write."""
        if not isinstance(fault, ApiFault) or is_denied(fault):
            return False

        return fault.status in self._kind.final

    def _warn(self, fault: Fault, then: str) -> None:
        """Warn once of each kind of fault, until something is written again."""
        # Not the text: it names the object, so each write would warn again.
        trouble = (type(fault), getattr(fault, "status", 0), getattr(fault, "reason", ""), then)
        if trouble != self._trouble:
            self._trouble = trouble
            self._runtime.warn(f"Cannot write {self._kind.noun}: {str(fault).rstrip('.')}; {then}.")


def _is_void(fault: Fault) -> bool:
    """Whether nobody needs the write any more.

    Another instance leads and tells itself, or the object is gone, replaced under its name, in a
    terminating namespace, or a pod that was bound meanwhile.
    """
    if isinstance(fault, Fenced):
        return True
    if not isinstance(fault, ApiFault) or not fault.is_status:
        return False

    # The API server has no reason of its own for this (admission plugin NamespaceLifecycle).
    terminating = fault.status == FORBIDDEN and "being terminated" in fault.message
    is_bound = fault.status == UNPROCESSABLE and ONLY_OF_UNBOUND in fault.message
    return fault.status == NOT_FOUND or terminating or is_bound or is_replaced(fault)
