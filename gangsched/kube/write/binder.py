"""The binder binds pods to nodes, many at a time; each bind ends in exactly one Outcome (semantics
B3).

Invariant: a bind counts as refused only after an answer that proves it. After any other answer the
request may still be carried out, so the pod keeps its room: the bind is sent again to the same node
while the pod still fits there, and the pod is read until the result is certain. The server accepts
only one of two binds of a pod. A failed bind is never retried here. A bind that the write gate
stops has failed, unless it was already sent. Binds take precedence over all other writes, which
wait according to `in_flight` and `fate`; undecided binds delay no other write. The binder does
*not* choose or release nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import msgspec

from gangsched.kube.http.backoff import Backoff
from gangsched.kube.http.faults import NOT_FOUND, ApiFault, Fault, Fenced, Unreachable
from gangsched.kube.ports import WRITE_TIMEOUT_S, RestClient, Runtime, Sink
from gangsched.kube.waiting import wait_for_event
from gangsched.kube.write.binding import encode_binding, outcome_of, pod_path
from gangsched.kube.write.pause import InFlight
from gangsched.kube.write.recent import Recent
from gangsched.model.counter import counter
from gangsched.model.protocol import Bind, BindFailed, BindGone, Bound, Outcome

REFUSALS = frozenset(
    {
        "BadRequest",
        "Forbidden",
        "Gone",
        "Invalid",
        "MethodNotAllowed",
        "NotAcceptable",
        "NotFound",
        "RequestEntityTooLarge",
        "TooManyRequests",
        "Unauthorized",
        "UnsupportedMediaType",
    }
)
"""Reasons of a Status that prove that nothing was or will be written. Conflict is none: the API
server makes one of every error of its storage during a bind, "etcdserver: request timed out" among
them (BindingREST.Create, 1.36).
"""
WEBHOOK_AWAY = "Internal error occurred: failed calling webhook "
"""How the message begins if an admission webhook cannot be called: the API server does so before it
writes.
"""
STORAGE_TIMEOUT_S = 10.0
"""How long storage may take to carry out what the API server has given up: etcd's request timeout
is 5 s and twice its election timeout of 1 s (etcd server/config, ReqTimeout)."""
REQUEST_TIMEOUT_S = 60.0
"""How long the API server may be at a request that somebody else answered, or nobody (its
--request-timeout).
"""
BOUND_REMEMBERED_S = 300.0
"""For conditions that wait for their turn: as long as those of 50,000 pods of one namespace may
take.
"""
SENDS = 10
"""How often a bind is sent while the answers leave it open; after that its pod is only read, until
it is certain.
"""


class BindFate(Enum):
    """The known result of a bind."""

    PENDING = "pending"
    BOUND = "bound"


@dataclass(slots=True)
class BindCounts:
    """Counters for metrics."""

    submitted: int = counter("binds requested")
    sent_again: int = counter("binds sent again to the same node after an inconclusive answer")
    bound: int = counter("binds that succeeded")
    gone: int = counter("binds whose pod was gone or bound by another scheduler")
    failed: int = counter("binds that the API server refused")
    lost_answers: int = counter(
        "lost or inconclusive answers to binds, after which the pod is read"
    )
    read_back_retries: int = counter("such reads that had to be repeated")


@dataclass(frozen=True, slots=True)
class Undecided:
    """A bind that may still be carried out, at most until `certain_s`."""

    bind: Bind
    certain_s: float


@dataclass(slots=True)
class _Attempt:
    """A bind on its way. `fault` is how its last send ended; `unread`: its pod must be read before
    the next one.

    Until `certain_s` a send may still be carried out. While it `is_sent` nothing is known of the
    last one.
    """

    bind: Bind
    began_s: float
    fault: Fault | None = None
    unread: bool = False
    is_sent: bool = False
    certain_s: float = float("-inf")
    sends_left: int = SENDS


class Binder:
    """Carries out binds; `submit` never blocks, `run` never returns. `connections` limits requests
    in flight.
    """

    def __init__(
        self,
        client: RestClient,
        sink: Sink,
        *,
        objection: Callable[[Bind], str] = lambda bind: "",
        connections: int = 96,
        observe: Callable[[float], None] = lambda seconds: None,
        runtime: Runtime = Runtime(),  # noqa: B008  (frozen)
    ) -> None:
        """`objection` returns why a bind may not be sent, "" if it may; called before each send
        (semantics B2).

        `observe` gets the seconds from submit to outcome of every bind.
        """
        self.counts = BindCounts()
        self._client = client
        self._sink = sink
        self._objection = objection
        self._connections = connections
        self._observe = observe
        self._runtime = runtime
        self._queue: asyncio.Queue[_Attempt] = asyncio.Queue()
        self._slots = asyncio.Semaphore(connections)  # of those sent or read again
        self._pending: dict[str, _Attempt] = {}

        # Conditions of bound pods are dropped by it: verdicts may still be queued when the bind is
        # answered.
        self._bound: Recent[str, None] = Recent(runtime.now, for_s=BOUND_REMEMBERED_S)
        self._answered = asyncio.Event()
        self._answered.set()

        # binds that are queued, or being sent for the first time
        self.in_flight = InFlight(runtime.now)

    @property
    def pending(self) -> int:
        """Number of unanswered binds."""
        return len(self._pending)

    def fate(self, uid: str) -> BindFate | None:
        """Result of the last bind of this pod; None if it failed, or if there was no
        recent bind.
        """
        if uid in self._pending:
            return BindFate.PENDING

        return BindFate.BOUND if uid in self._bound else None

    def forget(self, uid: str) -> None:
        """Drop the result of a deleted pod's bind."""
        self._bound.forget(uid)

    def submit(self, binds: Sequence[Bind]) -> None:
        """Queue binds, in order; the sink receives exactly one Outcome for each."""
        began_s = self._runtime.now()
        for bind in binds:
            self._enter(_Attempt(bind, began_s))

        self.counts.submitted += len(binds)

    def undecided(self) -> tuple[Undecided, ...]:
        """Binds that may still be carried out. Call it after `run` was cancelled, when no more
        requests are sent.
        """
        # A request that was cut off may wait in the API server for its whole timeout and then in
        # etcd.
        open_s = self._runtime.now() + REQUEST_TIMEOUT_S + STORAGE_TIMEOUT_S
        return tuple(
            Undecided(attempt.bind, open_s if attempt.is_sent else attempt.certain_s)
            for attempt in self._pending.values()
            # Binds that were never sent are simply given up: the next leader plans these pods
            # again.
            if attempt.is_sent or attempt.fault is not None
        )

    def adopt(self, undecided: Sequence[Undecided]) -> None:
        """Read the pods of another binder's undecided binds until each result is certain, without
        sending a bind again.
        """
        for undecided_bind in undecided:
            # Any fault of this kind makes the attempt start with a read; sends_left=0 keeps it from
            # binding again.
            fault = Unreachable("the Lease was lost before the bind was answered")
            self._enter(
                _Attempt(
                    undecided_bind.bind,
                    self._runtime.now(),
                    fault,
                    unread=True,
                    certain_s=undecided_bind.certain_s,
                    sends_left=0,
                )
            )

    def _enter(self, attempt: _Attempt) -> None:
        self._pending[attempt.bind.uid] = attempt
        self._queue.put_nowait(attempt)
        self._answered.clear()

        # Other writes wait from here on, and not from the first byte: the bind is what the API
        # server should serve next.
        self.in_flight.begin()

    async def run(self) -> None:
        """Bind until cancelled; unanswered binds are then resolved by the next start (semantics
        B4).
        """
        async with asyncio.TaskGroup() as group:
            for number in range(self._connections):
                group.create_task(self._work(group), name=f"binder {number}")

    async def drain(self, timeout_s: float) -> int:
        """Wait up to `timeout_s` until every bind is answered; return the number of unanswered
        binds.
        """
        await wait_for_event(self._answered, timeout_s, sleep=self._runtime.sleep)
        return self.pending

    async def _work(self, deciding: asyncio.TaskGroup) -> None:
        while True:
            attempt = await self._queue.get()
            if not await self._step(attempt):  # it waits, and the next one need not
                deciding.create_task(
                    self._decide(attempt),
                    name=f"bind of {attempt.bind.namespace}/{attempt.bind.name}",
                )

            # Undecided binds do not count: their pods are read again for up to 70 s, which must not
            # delay other writes.
            self.in_flight.end()

    async def _decide(self, attempt: _Attempt) -> None:
        """Repeat the steps of a bind until it is decided."""
        backoff = Backoff(0.1, 5.0, rng=self._runtime.rng)
        decided = False
        while not decided:
            await self._runtime.sleep(backoff.next_s(attempt.fault))
            # Repeats share a limit of their own, so that a hanging API server does not stop first
            # binds.
            async with self._slots:
                decided = await self._step(attempt)

    async def _step(self, attempt: _Attempt) -> bool:
        """Send the bind and, where the answer is not all there is to know, read the pod; whether
        that decides it.
        """
        outcome = None if attempt.unread else await self._send(attempt)
        if outcome is None:
            outcome = await self._read(attempt)

        if outcome is not None:
            self._settle(outcome)
            self._observe(self._runtime.now() - attempt.began_s)

        return outcome is not None

    def _settle(self, outcome: Outcome) -> None:
        self._pending.pop(outcome.uid, None)
        match outcome:
            case Bound():
                self.counts.bound += 1
                self._bound[outcome.uid] = None
            case BindGone():
                self.counts.gone += 1
            case BindFailed():
                self.counts.failed += 1

        self._sink(outcome)
        if not self._pending:
            self._answered.set()

    async def _send(self, attempt: _Attempt) -> Outcome | None:
        """Send a bind, unless it may not be sent (any more); None when the pod must be read."""
        bind = attempt.bind
        why = self._objection(bind) if attempt.sends_left else "the bind was sent too often"
        if why:
            # Only before the first send: afterwards the bind may have been carried out, whatever
            # the node is now.
            if attempt.fault is None:
                return BindFailed(bind.uid, bind.node, why)

            return None

        self.counts.sent_again += attempt.fault is not None
        attempt.is_sent = True  # and stays so if this is cancelled

        try:
            await self._client.request(
                "POST",
                f"{pod_path(bind)}/binding",
                encode_binding(bind),
                timeout_s=WRITE_TIMEOUT_S,
            )
        except Fenced as fault:
            attempt.is_sent = False
            if attempt.fault is None:
                return BindFailed(bind.uid, bind.node, str(fault))

            return None
        except Fault as fault:
            attempt.is_sent = False
            open_s = _open_s(fault)
            self._note_undecided(bind, fault, open_s)
            attempt.fault = fault.with_traceback(None)
            attempt.unread = True  # else it would keep the attempt, too
            attempt.certain_s = max(attempt.certain_s, self._runtime.now() + open_s)
            attempt.sends_left -= isinstance(fault, ApiFault)

            return None

        return Bound(bind.uid, bind.node)

    def _note_undecided(self, bind: Bind, fault: Fault, open_s: float) -> None:
        """Count an answer that proves nothing, and say why for one of a hundred."""
        if not open_s:
            return

        if self.counts.lost_answers % 100 == 0:
            self._runtime.warn(
                f"It is unknown whether {bind.namespace}/{bind.name} is bound, and the bind is sent"
                f" again: {fault}"
            )

        self.counts.lost_answers += 1

    async def _read(self, attempt: _Attempt) -> Outcome | None:
        """The outcome that the pod shows; None if it cannot be read, or a send may still take
        effect.
        """
        bind = attempt.bind
        asked_s = self._runtime.now()

        try:
            answer = await self._client.request("GET", pod_path(bind), timeout_s=WRITE_TIMEOUT_S)
            outcome = outcome_of(bind, answer, why=str(attempt.fault))
        except (Fault, msgspec.DecodeError) as caught:
            # Only the API server's own 404 counts; a proxy may answer 404 for anything.
            if isinstance(caught, ApiFault) and caught.is_status and caught.status == NOT_FOUND:
                return BindGone(bind.uid, bind.node, str(caught))

            # One line for a hundred reads: thousands of pods may be undecided in one outage.
            if self.counts.read_back_retries % 100 == 0:
                self._runtime.warn(
                    f"It is unknown whether {bind.namespace}/{bind.name} is bound; reading the pod"
                    f" again: {caught}"
                )

            self.counts.read_back_retries += 1
            return None

        attempt.unread = False
        # The pod is unbound, but the request may still land: only a read after `certain_s` proves
        # that it failed.
        if isinstance(outcome, BindFailed) and asked_s < attempt.certain_s:
            return None

        return outcome


def _open_s(fault: Fault) -> float:
    """For how long a request may still be carried out after it was answered so; 0 when that proves
    refusal.
    """
    if not isinstance(fault, ApiFault) or not fault.is_status:
        return REQUEST_TIMEOUT_S + STORAGE_TIMEOUT_S

    if fault.reason in REFUSALS or fault.message.startswith(WEBHOOK_AWAY):
        return 0.0

    # The API server has answered, so only its write to etcd can still be under way.
    return STORAGE_TIMEOUT_S
