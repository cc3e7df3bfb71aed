"""PreemptionWriter: nominations, conditions of victims, and evictions, in the order of semantics
V13.

Invariant: no pod is evicted before every nominated member has its node and every victim its reason;
the state then decides whether evictions follow. Every write may be repeated: each has the uid as a
precondition, and after a restart the missing writes are ordered again. Unless cancelled, an
eviction ends in one Evicted, and a preparation in one PreemptionPrepared. Once the permission to
evict is missing, this process sends no more evictions. The writer does *not* choose victims or undo
evictions.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import msgspec

from gangsched.kube.http.backoff import Backoff
from gangsched.kube.http.client import STRATEGIC_PATCH
from gangsched.kube.http.faults import (
    BAD_REQUEST,
    CONFLICT,
    FORBIDDEN,
    NOT_FOUND,
    UNPROCESSABLE,
    ApiFault,
    Fault,
    Fenced,
    is_replaced,
    may_come_late,
)
from gangsched.kube.http.permissions import may_evict
from gangsched.kube.ports import WRITE_TIMEOUT_S, RestClient, Runtime, Sink
from gangsched.kube.waiting import wait_for_event
from gangsched.kube.write.binding import pod_path
from gangsched.kube.write.eviction import Said, after, disruption_target, evict_request, read_back
from gangsched.kube.write.pause import InFlight
from gangsched.kube.write.preceding import Preceding
from gangsched.kube.write.spelling import rfc3339
from gangsched.kube.write.status import not_scheduled
from gangsched.model.counter import counter
from gangsched.model.protocol import (
    CancelPreemption,
    Evict,
    Evicted,
    EvictionDelayed,
    EvictionResult,
    NominatedMember,
    PodRef,
    PreemptionOrder,
    PreemptionPrepared,
    PreparePreemption,
    SetPodCondition,
    WriteUndecided,
)

# Reported in place of the API server's sentence, which names the pod: it may be another namespace's
# (V22).
NO_EVICTIONS = "gangsched may not create pods/eviction"
NO_DELETIONS = "gangsched may not delete pods"
Status: TypeAlias = dict[str, Any]
FINAL = frozenset({BAD_REQUEST, FORBIDDEN, UNPROCESSABLE})
"""Answers to a patch that another try does not change."""
PREPARE_S = 10.0
"""How long a patch is tried: the room of the nomination is kept off others meanwhile."""
MARK_AGAIN_S = 5.0
MARK_AGAIN_AFTER_S = 1.0
"""A pod without a grace period is gone by then, and nobody reads why: in a wave of preemption a
write in eight. While the wave lasts, such pods take longer to go, and this write waits for
`MARK_AGAIN_WAITS` times as long.
"""
MARK_AGAIN_WAITS = 5
EVICT_FIRST_S = 1.0
EVICT_LIMIT_S = 10.0
COUNTED = {
    EvictionResult.DONE: "evicted",
    EvictionResult.GONE: "gone",
    EvictionResult.BLOCKED: "blocked",
    EvictionResult.FORBIDDEN: "forbidden",
    EvictionResult.FAILED: "failed",
    EvictionResult.WITHDRAWN: "withdrawn",
}


@dataclass(slots=True)
class PreemptionCounts:
    """Counters for metrics."""

    prepared: int = counter("nominations written, with the conditions of their victims")
    not_prepared: int = counter("nominations with a failed write, so that no pod was evicted")
    cancelled: int = counter("nominations cancelled")
    evicted: int = counter("evictions that the API server accepted")
    gone: int = counter("evictions whose pod was gone")
    delayed: int = counter("evictions refused at first, mostly for a PodDisruptionBudget")
    blocked: int = counter("evictions refused until their nomination ended")
    forbidden: int = counter("evictions for which the permission is missing")
    failed: int = counter("evictions whose result is unknown")
    withdrawn: int = counter("evictions not sent (again) because they are no longer needed")
    sent_again: int = counter("evictions sent again")
    marked_again: int = counter("conditions restored that an eviction had overwritten")


class _Preemption:
    """One preemption that is being carried out; `over` is set when it is cancelled."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.tasks: set[asyncio.Task[None]] = set()


class PreemptionWriter:
    """Writes preemptions; `order` never blocks; `run` never returns. `connections` limits its
    requests in flight; binds have a separate limit.
    """

    def __init__(
        self,
        client: RestClient,
        sink: Sink,
        *,
        may_send: Callable[[Evict], bool] = lambda order: True,
        is_gone: Callable[[str], bool] = lambda uid: False,
        connections: int = 16,
        runtime: Runtime = Runtime(),  # noqa: B008  (frozen)
    ) -> None:
        """`may_send` returns whether the eviction is still needed; called before each send.

        `is_gone` returns whether the pod with this uid is known to be gone.
        """
        self.counts = PreemptionCounts()
        self._client = client
        self._sink = sink
        self._may_send = may_send
        self._is_gone = is_gone
        self._runtime = runtime
        self._slots = asyncio.Semaphore(connections)
        self.preceding = Preceding()
        self.in_flight = InFlight(runtime.now)
        self._orders: asyncio.Queue[PreemptionOrder] = asyncio.Queue()
        self._under_way: defaultdict[str, _Preemption] = defaultdict(_Preemption)
        self._turns: dict[str, asyncio.Task[None]] = {}
        self._lacks_right = ""

    def order(self, order: PreemptionOrder) -> None:
        """Start to carry out an order."""
        self.preceding.ordered(order)
        self._orders.put_nowait(order)

    async def run(self) -> None:
        """Carry out orders until cancelled; a restart continues with unfinished ones (semantics
        V24).
        """
        async with asyncio.TaskGroup() as group:
            while True:
                order = await self._orders.get()
                match order:
                    case PreparePreemption():
                        self._start(group, order, self._prepare(order), order.members)
                    case Evict():
                        self._start(group, order, self._evict(order), ())
                    case CancelPreemption():
                        self._start(group, order, self._cancel(order), order.members)

    async def drain(self, timeout_s: float) -> int:
        """Wait up to `timeout_s` until requests are answered; return how many orders are
        unfinished.

        From this call on, no request is retried.
        """
        tasks = [task for preemption in self._under_way.values() for task in preemption.tasks]
        for preemption in self._under_way.values():
            preemption.over.set()

        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)

        return self._orders.qsize() + sum(not task.done() for task in tasks)

    def _start(
        self,
        group: asyncio.TaskGroup,
        order: PreemptionOrder,
        work: Coroutine[Any, Any, None],
        members: Sequence[NominatedMember],
    ) -> None:
        """Begin; writes about one member keep the order in which they were ordered, whatever
        preemption they are of.
        """
        before = {self._turns[member.uid] for member in members if member.uid in self._turns}
        # At once, not in its turn: what is cancelled sends nothing more while the cancellation
        # waits for it.
        if isinstance(order, CancelPreemption):
            self._under_way[order.id].over.set()

        task = group.create_task(_in_turn(before, work), name=f"{type(order).__name__} {order.id}")
        self._under_way[order.id].tasks.add(task)

        for member in members:
            self._turns[member.uid] = task

        task.add_done_callback(lambda done: self._done(order.id, members, done))

    def _done(
        self,
        preemption_id: str,
        members: Sequence[NominatedMember],
        task: asyncio.Task[None],
    ) -> None:
        under_way = self._under_way[preemption_id]
        under_way.tasks.discard(task)

        if not under_way.tasks:
            del self._under_way[preemption_id]

        for member in members:
            if self._turns.get(member.uid) is task:
                del self._turns[member.uid]

    # --- (1) and (2): before anybody is harmed ---------------------------------------------------

    async def _prepare(self, order: PreparePreemption) -> None:
        over = self._under_way[order.id].over
        faults = await asyncio.gather(*(self._nominate(member, over) for member in order.members))

        failed = next(filter(None, faults), "")
        if not failed and not over.is_set():
            faults = await asyncio.gather(
                *(self._mark(victim, over, PREPARE_S) for victim in order.victims)
            )
            failed = next(filter(None, faults), "")

        if over.is_set():
            return

        self.counts.prepared += not failed
        self.counts.not_prepared += bool(failed)
        self._sink(PreemptionPrepared(order.id, failed))

    async def _nominate(self, member: NominatedMember, over: asyncio.Event) -> str:
        """Say where a member is to go, and what is about to be said of it; why that failed, "" if
        it did not.
        """

        # Asked once, when the first try has a connection: another try says the same.
        @cache
        def told() -> SetPodCondition | None:
            return self.preceding.nominates(member.uid)

        def status() -> Status:
            carried = told()
            conditions = (
                {}
                if carried is None
                else {"conditions": [not_scheduled(carried, self._runtime.wall())]}
            )
            return {"nominatedNodeName": member.node, **conditions}

        is_written = False
        try:
            failed = await self._patch(member, status, over, PREPARE_S)
            is_written = not failed
        finally:
            self.preceding.nominated(told(), is_written=is_written)

        return failed

    async def _mark(self, victim: PodRef | Evict, over: asyncio.Event, within_s: float) -> str:
        """Say why a victim goes; one that is gone needs to be told nothing."""
        status: Status = {"conditions": [disruption_target(rfc3339(self._runtime.wall()))]}
        return await self._patch(victim, lambda: status, over, within_s, may_be_gone=True)

    async def _cancel(self, order: CancelPreemption) -> None:
        """Take nominations back; what cannot be written is void once its pod is bound, and a
        restart looks again.
        """
        never = asyncio.Event()
        status: Status = {"nominatedNodeName": None}

        try:
            await asyncio.gather(
                *(
                    self._patch(member, lambda: status, never, PREPARE_S, may_be_gone=True)
                    for member in order.members
                )
            )
        finally:
            for member in order.members:
                self.preceding.cleared(member.uid)

        self.counts.cancelled += 1

    async def _patch(
        self,
        pod: NominatedMember | PodRef | Evict,
        status: Callable[[], Status],
        over: asyncio.Event,
        within_s: float,
        *,
        may_be_gone: bool = False,
    ) -> str:
        """PATCH pods/status, again for `within_s` where that may help; why it failed, "" if it did
        not.

        The uid in the body is a precondition: a pod recreated under the name is not touched.
        `status` is asked when a connection is free, which may be seconds later.
        """

        def body() -> bytes:
            return msgspec.json.encode({"metadata": {"uid": pod.uid}, "status": status()})

        backoff = Backoff(0.1, 5.0, rng=self._runtime.rng)
        ends_s = self._runtime.now() + within_s

        while True:
            try:
                await self._request("PATCH", f"{pod_path(pod)}/status", body, STRATEGIC_PATCH)
            except Fault as fault:
                if isinstance(pod, NominatedMember) and may_come_late(fault):
                    self._sink(WriteUndecided(pod.uid))

                if _is_gone(fault):
                    if may_be_gone:
                        return ""

                    return f"pod {pod.namespace}/{pod.name} is gone"

                delay_s = backoff.next_s(fault)
                status_code = fault.status if isinstance(fault, ApiFault) and fault.is_status else 0

                is_final = isinstance(fault, Fenced) or status_code in FINAL
                if is_final or self._runtime.now() + delay_s > ends_s:
                    return f"pod {pod.namespace}/{pod.name} cannot be written: {fault}"
            else:
                return ""

            if await wait_for_event(over, delay_s, sleep=self._runtime.sleep):
                return "cancelled"

    # --- (4) and (5): evictions ------------------------------------------------------------------

    async def _evict(self, order: Evict) -> None:
        over = self._under_way[order.id].over
        # A budget may block an eviction until its pods are replaced, so it is retried up to its
        # deadline.
        backoff = Backoff(EVICT_FIRST_S, EVICT_LIMIT_S, rng=self._runtime.rng)
        is_told = is_refused = False
        last = Said("")

        while not over.is_set():
            verdict, fault = await self._try(order, last)
            last = verdict
            if verdict.result is not None:
                await self._end(order, verdict.result, verdict.message, over)
                return

            if verdict.is_refused and not is_told:
                is_told = True
                self.counts.delayed += 1
                self._sink(EvictionDelayed(order.id, order.uid, verdict.message))

            is_refused = verdict.is_refused
            delay_s = backoff.next_s(fault)

            left_s = order.deadline_s - self._runtime.now()
            if await wait_for_event(over, min(delay_s, left_s), sleep=self._runtime.sleep):
                return

            if delay_s >= left_s:
                result = EvictionResult.BLOCKED if is_refused else EvictionResult.FAILED
                await self._end(order, result, verdict.message, over)
                return

            self.counts.sent_again += 1

    async def _end(
        self,
        order: Evict,
        result: EvictionResult,
        message: str,
        over: asyncio.Event,
    ) -> None:
        """Report the result; restore the condition that the eviction replaced, if the pod is still
        there (V13, 5).
        """
        name = COUNTED[result]
        setattr(self.counts, name, getattr(self.counts, name) + 1)
        done = result is EvictionResult.DONE
        self._sink(Evicted(order.id, order.uid, result, "" if done else message))

        if not done:
            return

        # The eviction has set a condition of its own over ours, which says that the scheduler
        # preempted the pod.
        for _ in range(MARK_AGAIN_WAITS):
            is_over = await wait_for_event(over, MARK_AGAIN_AFTER_S, sleep=self._runtime.sleep)
            if self._is_gone(order.uid):
                return
            if is_over or self.in_flight.idle.is_set():
                break

        self.counts.marked_again += 1
        await self._mark(order, over, MARK_AGAIN_S)

    async def _try(self, order: Evict, last: Said) -> tuple[Said, Fault | None]:
        """Send the eviction once, and ask the pod where the answer leaves it open; `last` is what
        the try before said.
        """
        if self._lacks_right:
            return Said(self._lacks_right, EvictionResult.FORBIDDEN), None
        if not self._may_send(order):
            # A try that was not answered may have been carried out: then the rest of a gang must be
            # evicted as well (V12).
            verdict = await self._ask(order, last) if last.is_open else last
            if verdict.result is not None or verdict.is_unread:
                return verdict, None

            return Said("the eviction is no longer needed", EvictionResult.WITHDRAWN), None

        method, path, body = evict_request(order)
        try:
            await self._request(method, path, lambda: body)
        except Fault as fault:
            verdict = after(fault)
            if verdict.may_lack_right and not await self._may_evict(order):
                self._lacks_right = NO_DELETIONS if order.delete else NO_EVICTIONS
                self._runtime.warn(
                    f"Preemption is off until a restart: {verdict.message}. Apply"
                    " manifests/rbac-preemption.yaml."
                )
                return Said(self._lacks_right, EvictionResult.FORBIDDEN), fault

            return (await self._ask(order, verdict) if verdict.is_open else verdict), fault

        return Said("", EvictionResult.DONE), None

    async def _ask(self, order: Evict, verdict: Said) -> Said:
        """Read the pod after an answer that leaves the result open; nothing new if it cannot be
        read.
        """
        try:
            answer = await self._request("GET", pod_path(order))
            return read_back(order, answer, verdict._replace(is_unread=False))
        except (Fault, msgspec.DecodeError) as caught:
            if isinstance(caught, ApiFault) and caught.is_status and caught.status == NOT_FOUND:
                return Said(str(caught), EvictionResult.GONE)

            return verdict._replace(is_unread=True)

    async def _may_evict(self, order: Evict) -> bool:
        """Whether we have the right: an admission webhook says 403 as well, of one pod only."""
        try:
            async with self._slots:
                return await may_evict(self._client, delete=order.delete)
        except Fault:
            # Unknown; the next answer will tell.
            return True

    async def _request(
        self,
        method: str,
        path: str,
        body: Callable[[], bytes | None] = lambda: None,
        content_type: str = "application/json",
    ) -> bytes:
        self.in_flight.begin()
        try:
            async with self._slots:
                return await self._client.request(
                    method,
                    path,
                    body(),
                    content_type=content_type,
                    timeout_s=WRITE_TIMEOUT_S,
                )
        finally:
            self.in_flight.end()


def _is_gone(fault: Fault) -> bool:
    """Whether a pod is not there any more; of one recreated under its name the server says that a
    uid is immutable.
    """
    if not isinstance(fault, ApiFault) or not fault.is_status:
        return False

    return fault.status in {NOT_FOUND, CONFLICT} or is_replaced(fault)


async def _in_turn(before: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
    """Do the work once the tasks before it are done."""
    try:
        if before:
            await asyncio.wait(before)
    except BaseException:
        work.close()
        raise

    await work
