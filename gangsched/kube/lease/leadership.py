"""Leadership in terms: each lasts from the moment when planning may begin to the loss of the Lease.

Invariant: a new leader does not plan before it knows what its predecessor wrote (`caught_up`); if
it does not know that after one lease duration, it releases the Lease to other candidates for as
long. `leads` depends on the clock: it is false as soon as the Lease may have expired, even if
nothing has noticed yet.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import uuid4

from gangsched.kube.http.backoff import Backoff
from gangsched.kube.http.client import ApiClient
from gangsched.kube.http.connection_pool import ConnectionPool
from gangsched.kube.http.faults import Fault
from gangsched.kube.http.permissions import Lease
from gangsched.kube.lease.candidate import Timing
from gangsched.kube.lease.elector import Elector
from gangsched.kube.ports import Runtime
from gangsched.model.suspects import Suspects


class Leadership:
    """Call `run_term` repeatedly, and `release` at the end."""

    def __init__(
        self,
        elector: Elector,
        caught_up: Callable[[], Awaitable[None]],
        runtime: Runtime,
    ) -> None:
        """`caught_up` returns once everything is known that was written before the call. It may
        raise Fault.
        """
        self.elector = elector
        self.fence = elector.fence
        self._caught_up = caught_up
        self._runtime = runtime
        self._is_leading = False

    def leads(self) -> bool:
        """Whether plans may be made now."""
        return self._is_leading and self.fence.is_open()

    async def run_term(self, begins: Callable[[float], None]) -> None:
        """Wait for the Lease, call `begins` when planning may begin, and return once the Lease is
        lost.

        `begins` receives the seconds since the Lease was acquired.
        """
        while True:
            await self.elector.acquire()
            acquired_s = self._runtime.now()
            holding = asyncio.create_task(self.elector.hold(), name="lease")

            try:
                if await self._is_ready(holding):
                    self._is_leading = True
                    begins(self._runtime.now() - acquired_s)
                    await holding

                    return
            finally:
                self._is_leading = False
                holding.cancel()

                # The gate is closed when this returns, so no write of this term can follow.
                await asyncio.wait({holding})

            duration_s = self.elector.timing.duration_s
            self._runtime.warn(
                f"The watches are behind: for {duration_s:g} s the lease is left to others."
            )

            # A standby with healthy watches should lead instead; waiting a whole duration gives it
            # the chance.
            await self.elector.release()
            await self._runtime.sleep(duration_s)

    async def release(self) -> bool:
        """Release the Lease if it is held. No write that was sent under it may still be
        in flight.
        """
        return await self.elector.release()

    async def _is_ready(self, holding: asyncio.Task[None]) -> bool:
        """Whether the watches have caught up within the time of one lease, which is still ours."""
        catching_up = asyncio.create_task(self._catch_up(), name="catching up")
        too_late = asyncio.create_task(self._wait(self.elector.timing.duration_s), name="too late")

        try:
            await asyncio.wait(
                {holding, catching_up, too_late},
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            too_late.cancel()
            # If both ended in the same step, the Lease is lost.
            is_ready = catching_up.done() and not holding.done()
            catching_up.cancel()

        if catching_up.done() and not catching_up.cancelled():
            catching_up.result()

        return is_ready

    async def _wait(self, seconds: float) -> None:
        await self._runtime.sleep(seconds)

    async def _catch_up(self) -> None:
        backoff = Backoff(0.1, 2.0, rng=self._runtime.rng)
        while True:
            try:
                return await self._caught_up()
            except Fault as fault:
                self._runtime.warn(
                    f"Cannot read what was written before: {str(fault).rstrip('.')}; trying again."
                )
                await self._runtime.sleep(backoff.next_s(fault))


def lead_by_lease(
    client: ApiClient,
    lease: Lease,
    timing: Timing,
    *,
    identity: str | None,
    caught_up: Callable[[], Awaitable[None]],
    runtime: Runtime,
    suspects: Suspects | None = None,
) -> Leadership:
    """Leadership of a daemon, on the clock that runs while the machine is suspended, with separate
    connections.
    """
    # A suspended machine must not believe that its lease is still valid: CLOCK_MONOTONIC stands
    # still meanwhile.
    runtime = replace(runtime, now=runtime.boot)
    elector = Elector(
        # Without a fence: renewals must pass when all other writes are blocked.
        ConnectionPool(client),
        client,
        lease,
        # Unique per process: a restarted container must not take its predecessor's Lease for its
        # own.
        identity=identity or f"{socket.gethostname()[:200]}_{uuid4()}",
        timing=timing,
        runtime=runtime,
        suspects=suspects,
    )
    return Leadership(elector, caught_up, runtime)
