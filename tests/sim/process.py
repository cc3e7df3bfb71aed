"""A process: the product's own start-up and daemon on a loop of its own, which can be stopped
between any two steps.

Invariant: what runs here is `app.schedule`, that is everything after the check of permissions, with
real HTTP on simulated connections. A crash runs nothing more of it: connections end, and what had
left goes on. Each process has its own clocks: monotonic time stops while the machine is suspended,
boot time does not, and the time of day may be wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any

from gangsched.app import schedule
from gangsched.daemon import Daemon
from gangsched.kube.http.client import ApiClient
from gangsched.kube.http.credentials import Credentials
from gangsched.kube.http.permissions import Lease
from gangsched.kube.ports import Runtime
from gangsched.settings import Settings
from tests.sim.api_server.store import EPOCH_S
from tests.sim.follow import follow
from tests.sim.loop import LATE_S, VirtualLoop
from tests.sim.network import Network
from tests.sim.timeline import Timeline

SPINS_AFTER = 300_000
"""Callbacks at one moment, after which a process counts as spinning."""


class Process:
    """One process from its start to its end; `settings.identity` is its name."""

    def __init__(
        self, name: str, settings: Settings, timeline: Timeline, network: Network, rng: Random
    ) -> None:
        self.name = name
        self.settings = settings
        self.timeline = timeline
        self.runs = True
        self.has_crashed = False
        self.ended: str | None = None
        """How it ended by itself: "" if it was told to, else why."""
        self.daemons: list[Daemon] = []
        self.warnings: list[str] = []
        self.paused_until_s = 0.0
        self.cut_off_until_s = 0.0
        self.lags_s: dict[str, float] = {}
        self.wall_off_s = 0.0
        self.crashes_after: int | None = None
        """How many callbacks it has left."""
        self.heard = 0
        """How often bytes have reached it."""
        self.looked: tuple[float, int] = (float("-inf"), 0)
        """When its state was looked at, and what it had heard then."""
        self.rested = 0
        """What it had heard when it was last asked who sleeps wrongly."""
        self._pauses: list[tuple[float, float]] = []
        self._asleep_s = 0.0
        self._boot_off_s = rng.uniform(0, 1e5)
        self._rng = rng
        self._busy_at: tuple[float, int] = (0.0, 0)
        self.loop = VirtualLoop(self.monotonic_s, partial(network.connect, self))
        self._stopping = asyncio.Event()
        self._main: asyncio.Task[None] = self.loop.create_task(self._run())

    # --- clocks ----------------------------------------------------------------------------------

    def monotonic_s(self) -> float:
        """Seconds without those while the machine was suspended."""
        return max(self.timeline.now_s, self.paused_until_s) - self._asleep_s

    def boot_s(self) -> float:
        """Seconds with them."""
        return self.timeline.now_s + self._boot_off_s

    def wall(self) -> datetime:
        """What it takes for the time of day."""
        return datetime.fromtimestamp(EPOCH_S + self.timeline.now_s + self.wall_off_s, UTC)

    def lag_s(self, resource: str) -> float:
        """How much later than other answers the lines of this resource arrive."""
        return self.lags_s.get(resource, 0.0)

    def active_s(self) -> float:
        """For how long it has run."""
        now_s = self.timeline.now_s
        return now_s - sum(min(now_s, until_s) - since_s for since_s, until_s in self._pauses)

    # --- what the simulation does ----------------------------------------------------------------

    @property
    def daemon(self) -> Daemon | None:
        """The daemon of this term."""
        return self.daemons[-1] if self.daemons else None

    @property
    def leads(self) -> bool:
        """Whether its daemon plans."""
        return self.daemon is not None and self.daemon._leads()

    @property
    def is_quiet(self) -> bool:
        """Whether its loop sleeps until a message comes or something is due, and nothing is."""
        if self.daemon is None or not self.leads or self.loop.is_busy:
            return False
        loop, due_s = self.daemon.loop, self.daemon.state.next_deadline_s(self.monotonic_s())
        sleeps = bool(loop._wake._waiters) and not loop._wake.is_set() and not loop._stopping
        return sleeps and (due_s is None or due_s > self.monotonic_s())

    @property
    def may_write(self) -> bool:
        """Whether its fence is open, by its own clock."""
        leadership = self.daemon._leadership if self.daemon is not None else None
        return self.runs and leadership is not None and leadership.fence.is_open()

    def due_s(self) -> float:
        """When it has something to do; infinity if never."""
        if not self.runs:
            return float("inf")
        now_s = self.timeline.now_s
        at_s = now_s if self.loop.is_busy else self.loop.next_s() + self._asleep_s + LATE_S
        return max(at_s, self.paused_until_s, now_s)

    def step(self) -> None:
        """Do what is due."""
        at_s, before = self._busy_at
        before = before if at_s == self.timeline.now_s else 0
        most = SPINS_AFTER if self.crashes_after is None else min(SPINS_AFTER, self.crashes_after)
        done = self.loop.run_callbacks(most)
        self._busy_at = (self.timeline.now_s, before + done)
        assert before + done < SPINS_AFTER, f"{self.name} spins"
        if self.crashes_after is not None:
            self.crashes_after -= done
            if self.crashes_after <= 0:
                self.crash()
                return
        if self._main.done() and self.runs:
            self.runs = False
            error = self._main.exception()
            self.ended = "" if error is None else _said(error)

    def pause(self, seconds: float) -> None:
        """Stop it for a while (SIGSTOP)."""
        now_s = self.timeline.now_s
        assert now_s >= self.paused_until_s, "it is paused already"
        self.paused_until_s = now_s + seconds
        self._pauses.append((now_s, self.paused_until_s))

    def suspend(self, seconds: float) -> None:
        """Stop its machine for a while: it wakes where its monotonic clock had stopped."""
        self.pause(seconds)
        self._asleep_s += seconds

    def stop(self) -> None:
        """Tell it to end (SIGTERM)."""
        self.loop.call_soon(self._stopping.set)

    def crash(self) -> None:
        """Run nothing more of it."""
        self.runs = False
        self.has_crashed = True

    def bury(self) -> None:
        """Let go of what is left of it; nothing of that reaches anybody."""
        self.runs = False
        for _ in range(20):
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            if not self.loop.run_callbacks(SPINS_AFTER):
                break
        self.loop.close()

    # --- what runs in it -------------------------------------------------------------------------

    async def _run(self) -> None:
        settings = self.settings
        runtime = Runtime(
            warn=self.warnings.append,
            now=self.monotonic_s,
            boot=self.boot_s,
            wall=self.wall,
            rng=self._rng,
        )
        lease = (
            Lease(settings.lease_namespace, settings.lease_name) if settings.leader_elect else None
        )
        importing: asyncio.Future[type[Daemon]] = self.loop.create_future()
        importing.set_result(self._observed())
        async with ApiClient(_Known(self.monotonic_s), now=self.monotonic_s) as client:
            await schedule(
                client,
                settings,
                self._stopping,
                importing,
                lease=lease,
                no_preemption="",
                extends=True,
                restore_signals=lambda: None,
                runtime=runtime,
                follow=follow,
            )

    def _observed(self) -> type[Daemon]:
        daemons = self.daemons

        class Observed(Daemon):
            """The daemon, remembered."""

            def __init__(self, *args: Any, **more: Any) -> None:
                super().__init__(*args, **more)
                daemons.append(self)

        return Observed


class _Known(Credentials):
    """Credentials that are there from the start."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__(None, now=now)
        self.server = "http://127.0.0.1:6443"

    async def load(self) -> None:
        """They stay as they are."""

    async def renew(self) -> None:
        """They never end."""


def _said(error: BaseException) -> str:
    """An exception and those it is made of."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_said(each) for each in error.exceptions)
    import traceback

    return "".join(traceback.format_exception(error)[-6:])
