"""The elector: acquires, renews and releases the lease, and keeps the write gate open accordingly.

Invariant: `candidate` decides; the elector only sends and waits. A request times out after a third
of the renewal time, and every wait ends when the lease would expire. The elector has its own
client, without a write gate and without connections shared with other writers. A watch shows
changes and releases of the Lease. The elector does *not* plan or stop writers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from gangsched.api import keys
from gangsched.kube.http.backoff import Backoff
from gangsched.kube.http.faults import (
    CONFLICT,
    FORBIDDEN,
    NOT_FOUND,
    UNPROCESSABLE,
    ApiFault,
    Fault,
    Malformed,
    Unreachable,
)
from gangsched.kube.http.fence import Fence
from gangsched.kube.http.permissions import Lease
from gangsched.kube.lease.candidate import Candidate, Timing
from gangsched.kube.lease.record import Record, decode, encode, suspects_of, with_suspects
from gangsched.kube.ports import RestClient, Runtime
from gangsched.kube.read.reflector import LineSplitter
from gangsched.kube.read.wire import Line
from gangsched.kube.trouble import Trouble
from gangsched.kube.waiting import wait_for_event
from gangsched.kube.write.spelling import micro_time
from gangsched.model.counter import counter
from gangsched.model.suspects import Suspects

# A Lease that others change all the time must not cause a storm of requests.
LOOK_AT_MOST_EVERY_S = 0.1
WATCH_S = 300
SILENCE_S = 360.0
"""Nothing is lost by a watch that says nothing: the lease is read every `retry_s` as well."""
RELEASE_WITHIN_S = 2.0
TELL_ATTEMPTS = 3
REFUSED = frozenset({FORBIDDEN, UNPROCESSABLE})


class FollowsLease(Protocol):
    """The part of the client that can get and watch an object."""

    def chunks(self, path: str, *, silence_s: float) -> AsyncIterator[bytes]:
        """Stream an answer's body."""


@dataclass(slots=True)
class LeaseCounts:
    """Counters for metrics."""

    acquired: int = counter(
        "times that this instance acquired the Lease; this family exists only with leader election"
    )
    lost: int = counter("times that it lost the Lease")
    released: int = counter("times that it released the Lease")
    renewed: int = counter("renewals of the Lease")
    faults: int = counter("requests about the Lease that failed")


class Elector:
    """One candidate for one Lease. `fence` is open only while this process certainly holds the
    Lease, by the clock of `runtime`.
    """

    def __init__(
        self,
        client: RestClient,
        watches: FollowsLease,
        lease: Lease,
        *,
        identity: str,
        timing: Timing,
        runtime: Runtime,
        suspects: Suspects | None = None,
    ) -> None:
        """`suspects` are read from the Lease before it is acquired, and kept on it (I10)."""
        self.suspects = suspects or Suspects()
        self.counts = LeaseCounts()
        self.fence = Fence(runtime.now)
        self.identity = identity
        self.timing = timing
        self._client = client
        self._watches = watches
        self._lease = lease
        self._leases = f"/apis/coordination.k8s.io/v1/namespaces/{lease.namespace}/leases"
        self._runtime = runtime
        self._candidate = Candidate(identity, timing)
        self._hint = asyncio.Event()
        self._released: Record | None = None
        self._refuses_suspects = False

        #: Annotations of the Lease when it was last seen, and who is called when they have changed.
        self.annotations: Mapping[str, Any] = {}
        self.on_annotations: Callable[[Mapping[str, Any]], None] = _ignore
        self._trouble = Trouble(runtime.warn)

    @property
    def holder(self) -> str:
        """Holder of the Lease when it was last seen; "" for none."""
        return self._candidate.holder()

    async def acquire(self) -> None:
        """Return once the Lease is acquired and, if this process created it, has been held for long
        enough.
        """
        if self.suspects.counts:
            await self._tell_suspects()

        watching = asyncio.create_task(self._watch(), name="watch of the lease")
        try:
            while not await self._try():
                free_in_s = self._candidate.free_s() - self._runtime.now()
                # Jitter as in client-go, so that candidates do not collide every time.
                retry_s = self.timing.retry_s * (1 + 0.1 * self._runtime.rng.random())
                await wait_for_event(
                    self._hint,
                    min(retry_s, max(free_in_s, LOOK_AT_MOST_EVERY_S)),
                    sleep=self._runtime.sleep,
                )
        finally:
            watching.cancel()

        self.counts.acquired += 1

    async def hold(self) -> None:
        """Renew the held Lease; return once it is lost, with the write gate closed."""
        try:
            while self._candidate.leads(now_s := self._runtime.now()):
                next_s = now_s + self.timing.retry_s
                if await self._renew():
                    self.counts.renewed += 1

                # Not beyond the deadline: `hold` must end when the lease does, whatever the last
                # request does.
                until_s = min(next_s, self._candidate.gives_up_s())
                await self._runtime.sleep(max(0.0, until_s - self._runtime.now()))
        finally:
            self.fence.close()

        self._candidate.loses()
        self.counts.lost += 1

    async def release(self) -> bool:
        """Release the Lease, so that other candidates need not wait until it expires; false if that
        failed.

        Do not call this while `acquire` or `hold` runs.
        """
        self.fence.close()
        for _ in range(2):
            record = self._candidate.resigns(self._runtime.now(), self._moment())
            if record is None:
                break

            try:
                await self._put(record, RELEASE_WITHIN_S)
            except Fault as fault:
                if not _is_conflict(fault):
                    self._complain(fault)
                    break

                # A renewal that was cut off has been carried out, or the Lease is another's or
                # gone: a read tells.
                with suppress(Fault):
                    await self._look()
            else:
                self.counts.released += 1
                return True

        return False

    async def _tell_suspects(self) -> None:
        """Write the suspects to a Lease that another process holds or will take; best effort."""
        path = f"{self._leases}/{self._lease.name}"
        for _ in range(TELL_ATTEMPTS):
            try:
                answer = await self._bounded("GET", path, None, self._patience_s())
                record = decode(answer, duration_s=self.timing.duration_s)
                self.suspects.merge(suspects_of(record))

                # The spec stays as it is, so that nobody takes this for a renewal.
                await self._put(with_suspects(record, self.suspects.text()), self._patience_s())
            except Fault as fault:
                if not _is_conflict(fault):
                    return
            else:
                return

    # --- one look, one write ---------------------------------------------------------------------

    async def _try(self) -> bool:
        """Look at the lease and take it if it is free; whether it is ours then."""
        # Before looking: a change that comes meanwhile sets it again.
        self._hint.clear()
        began_s = self._runtime.now()

        try:
            # Who sees the release need not ask: if it is not the newest state, what we write is
            # refused.
            released = self._released
            self._released = None

            if released is not None:
                self._candidate.saw(released, began_s)
            else:
                await self._look()

            self.suspects.merge(suspects_of(self._candidate.record()))
            proposal = self._candidate.proposal(self._runtime.now(), self._moment())
            if proposal is not None:
                await self._write(proposal)
        except Fault as fault:
            if not _is_conflict(fault):  # another candidate was faster
                self._complain(fault)
        else:
            # Where reads succeed and writes fail, an outage is not over with a read.
            self._recovered()

        # Also after a fault: a write whose answer was lost may have made the Lease ours.
        if self._open_fence():
            return True

        await self._runtime.sleep(began_s + LOOK_AT_MOST_EVERY_S - self._runtime.now())
        return False

    async def _renew(self) -> bool:
        """Renew once, and once more if the object turns out to be ours still; whether that
        succeeded.
        """
        renewed = False
        for _ in range(2):
            proposal = self._candidate.proposal(self._runtime.now(), self._moment())
            if proposal is None:
                break

            try:
                await self._write(proposal)
            except Fault as fault:
                if not _is_conflict(fault):
                    self._complain(fault)

                # Somebody changed the object, or it is gone, or our write may stand: a read tells.
                with suppress(Fault):
                    await self._look()

                # Our resourceVersion was old. The read has the new one, so the renewal is tried
                # once more.
                if _is_conflict(fault):
                    continue
            else:
                renewed = True

            break

        self._open_fence()
        return renewed

    def _open_fence(self) -> bool:
        """Open it for as long as the lease is ours for certain, else close it; whether we lead."""
        leads = self._candidate.leads(self._runtime.now())
        if leads:
            self.fence.open_until(self._candidate.may_write_until_s())
        else:
            self.fence.close()

        return leads

    async def _look(self) -> None:
        path = f"{self._leases}/{self._lease.name}"
        record: Record | None = None

        try:
            answer = await self._bounded("GET", path, None, self._patience_s())
            record = decode(answer, duration_s=self.timing.duration_s)
        except ApiFault as fault:
            # A 404 of a proxy says nothing about the Lease.
            if fault.status != NOT_FOUND or not fault.is_status:
                raise

        self._candidate.saw(record, self._runtime.now())
        self._note(record)

    async def _write(self, record: Record) -> None:
        sent_s = self._runtime.now()
        self._candidate.sends(record, sent_s)
        answer = await self._put_annotated(record)
        stored = decode(answer, duration_s=self.timing.duration_s)
        self._candidate.stored(stored, sent_s, self._runtime.now())
        self._note(stored)
        self._recovered()

    async def _put_annotated(self, record: Record) -> bytes:
        """Write the Lease with the suspects; without them if an admission policy of an earlier
        version refuses it.
        """
        annotated = (
            record if self._refuses_suspects else with_suspects(record, self.suspects.text())
        )
        try:
            return await self._put(annotated, self._patience_s())
        except ApiFault as fault:
            # Nobody may lose the Lease for the sake of an annotation.
            if annotated is record or fault.status not in REFUSED:
                raise

            self._refuses_suspects = True

        self._runtime.warn(
            f"The annotation {keys.SUSPECTS} of the Lease is refused: apply"
            " manifests/admission.yaml."
        )
        return await self._put(record, self._patience_s())

    def _note(self, record: Record | None) -> None:
        """Report annotations that have changed. Those of a Lease that is gone are, too."""
        annotations = record.annotations if record is not None else {}
        if annotations != self.annotations:
            self.annotations = annotations
            self.on_annotations(annotations)

    async def _put(self, record: Record, timeout_s: float) -> bytes:
        method, path = (
            ("PUT", f"{self._leases}/{self._lease.name}") if record.rest else ("POST", self._leases)
        )
        body = encode(record, namespace=self._lease.namespace, name=self._lease.name)
        return await self._bounded(method, path, body, timeout_s)

    async def _bounded(self, method: str, path: str, body: bytes | None, timeout_s: float) -> bytes:
        try:
            # includes the client's waits other than for the answer
            async with asyncio.timeout(timeout_s):
                return await self._client.request(method, path, body, timeout_s=timeout_s)
        except TimeoutError as error:
            raise Unreachable(f"No answer within {timeout_s:.1f} s.") from error

    def _patience_s(self) -> float:
        """For how long an answer is waited for: a third of what a renewal may take, or until the
        lease is over.
        """
        patience_s = self.timing.renew_s / 3
        now_s = self._runtime.now()
        if self._candidate.holds(now_s):
            return min(patience_s, self._candidate.gives_up_s() - now_s)

        return patience_s

    async def _watch(self) -> None:
        """Follow the lease."""
        selector = f"metadata.name%3D{self._lease.name}"
        path = f"{self._leases}?watch=true&fieldSelector={selector}&timeoutSeconds={WATCH_S}"
        backoff = Backoff(0.5, 10.0, rng=self._runtime.rng)

        while True:
            # without a watch the Lease is read every `retry_s`, which logs faults
            with suppress(Fault):
                async with aclosing(self._watches.chunks(path, silence_s=SILENCE_S)) as chunks:  # type: ignore[type-var]
                    splitter = LineSplitter()
                    async for chunk in chunks:
                        for line in splitter.feed(chunk):
                            self._take(line)

                        backoff.reset()

            await self._runtime.sleep(backoff.next_s())

    def _take(self, line: bytes) -> None:
        """Have the lease looked at unless we wrote it, and remember what may be its release."""
        self._released = None
        try:
            event = msgspec.json.decode(line, type=Line[msgspec.Raw])
            if event.type in {"ADDED", "MODIFIED"}:
                record = decode(bytes(event.object), duration_s=1.0)
                # Our own renewals come back in the watch every two seconds.
                if record.holder == self.identity:
                    return

                self._released = record if event.type == "MODIFIED" and record.is_free else None
        except (msgspec.DecodeError, Malformed):
            # An unreadable line is a change as well: the Lease is read then.
            pass

        self._hint.set()

    def _moment(self) -> str:
        return micro_time(self._runtime.wall())

    def _complain(self, fault: Fault) -> None:
        """Warn when an outage begins."""
        self.counts.faults += 1
        denied = isinstance(fault, ApiFault) and fault.status == FORBIDDEN
        fix = "apply manifests/rbac.yaml" if denied else "trying again"

        sentence = (
            f"Cannot use the lease {self._lease.namespace}/{self._lease.name}:"
            f" {str(fault).rstrip('.')}; {fix}."
        )
        self._trouble.begins(sentence)

    def _recovered(self) -> None:
        self._trouble.is_over(f"Using the lease {self._lease.namespace}/{self._lease.name} again.")


def _is_conflict(fault: Fault) -> bool:
    return isinstance(fault, ApiFault) and fault.status in {CONFLICT, NOT_FOUND}


def _ignore(annotations: Mapping[str, Any]) -> None:
    """Do nothing with the annotations."""
