"""The composition root: builds the daemon from settings and informers, runs it, and stops it in
order.

Invariant: every part is made and wired here and nowhere else. If any part ends with an error the
daemon ends, and a restart recovers from the API objects alone (decision 5). On SIGTERM the daemon
stops planning, finishes the binds in flight, writes pending reports and exits.
"""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from gangsched import __version__, parameters
from gangsched.api.admin_orders import changes, misread, read_orders
from gangsched.core.cycle import Limits
from gangsched.kube.background import in_background
from gangsched.kube.http.connection_pool import ConnectionPool
from gangsched.kube.lease.leadership import Leadership
from gangsched.kube.ports import Runtime
from gangsched.kube.read.informers import Informers
from gangsched.kube.read.stamp_guard import StampGuard
from gangsched.kube.waiting import wait_for_event
from gangsched.kube.write.binder import Binder, Undecided
from gangsched.kube.write.preemption import PreemptionWriter
from gangsched.kube.write.provisioning import ProvisioningWriter
from gangsched.kube.write.rate_limits import WriteLimits
from gangsched.kube.write.recorder import Recorder
from gangsched.kube.write.spelling import rfc3339
from gangsched.kube.write.status import StatusWriter
from gangsched.kube.write.volume_binder import VolumeBinder
from gangsched.loop import Loop, Ports
from gangsched.model.fault import AtWork, InternalFault
from gangsched.model.orders import NO_ORDERS
from gangsched.model.protocol import (
    Bind,
    BindUndecided,
    EvictionsForbidden,
    Gone,
    Message,
    Ordered,
    Outcome,
    RecordEvent,
    Report,
)
from gangsched.model.suspects import Suspects
from gangsched.settings import Settings
from gangsched.state.reporting.gang_numbers import Pending
from gangsched.state.scheduling import SchedulingState
from gangsched.telemetry.debug import debug_app, serve_debug
from gangsched.telemetry.health import health_app, serve_health
from gangsched.telemetry.heartbeat import Heartbeat
from gangsched.telemetry.internal_faults import InternalFaults, kept_file
from gangsched.telemetry.metrics import QUEUE_PARTS, Metrics

if TYPE_CHECKING:
    from gangsched.visibility.server import Server

# CPython's defaults would collect garbage in the middle of plans; `heap` does it between turns
# instead.
GC_THRESHOLDS = (30_000, 50, 1_000)
# The collection after the first lists stops the loop; it waits until the backlog's binds are sent.
QUIET_AFTER_S = 0.3
QUIET_WITHIN_S = 5.0
HAND_OVER_S = 0.05
"""For reports and evictions when another instance waits for the lease; it tells all but Events
itself.
"""
SERVE_WITHIN_S = 10.0
"""The gangs API waits no longer for the binds at the start."""
UNREADY_AFTER = 3
"""Pauses of planning, one after the other, for which a replica is not ready."""
RESTART_AFTER_S = 300.0
"""What is wrong may be in memory. The kubelet backs off as well, so that this causes no loop of
restarts.
"""
LOST_DRAIN_S = 1.0
"""For the answers to binds that are under way when the lease is lost; the others stay undecided."""


class LoopClocks:
    """The loop's clocks, shared with the writers."""

    def __init__(self, runtime: Runtime) -> None:
        self.now_s = runtime.now
        self._wall = runtime.wall

    def wall(self) -> str:
        """Current time in RFC 3339, whole seconds, UTC."""
        return rfc3339(self._wall())

    def wall_s(self) -> float:
        """Current time in epoch seconds."""
        return self._wall().timestamp()


class Daemon:
    """All parts of one scheduler except its informers. The constructor builds them; `run` starts
    them.
    """

    def __init__(
        self,
        settings: Settings,
        connection_pool: ConnectionPool,
        informers: Informers,
        stopping: asyncio.Event,
        leadership: Leadership | None = None,
        *,
        no_preemption: str = "",
        extends: bool = True,
        runtime: Runtime | None = None,
        at_work: AtWork | None = None,
        suspects: Suspects | None = None,
        keeps: Callable[[InternalFault, Sequence[Message]], None] | None = None,
    ) -> None:
        """`informers` are already running; setting `stopping` ends the daemon. Without `leadership`
        the daemon always leads.

        `no_preemption` names the permission that is missing for preemption; with `extends`, claims
        may be created for extended resources. Without `runtime` the daemon uses the machine's
        clocks.
        """
        self.settings = settings
        self.informers = informers
        self._stopping = stopping
        self._leadership = leadership
        self._leads = leadership.leads if leadership is not None else lambda: True
        self.metrics = Metrics()
        self._log = structlog.get_logger()
        self._runtime = runtime = runtime or Runtime(warn=self._log.warning)
        self._visibility_server: Server | None = None
        self.heartbeat = Heartbeat(self.metrics, now=runtime.now, sleep=runtime.sleep)
        self.state = SchedulingState(replace(parameters.rules(settings), extends=extends))
        self._keeps = keeps
        self._keeping = False
        self.internal_faults = InternalFaults(
            self.metrics,
            self._log,
            now=runtime.now,
            keep=self._keep,
        )
        self.state.bulkhead.hears = self.internal_faults.hear
        self.state.bulkhead.at_work = at_work or AtWork()
        self._suspects = suspects or Suspects()
        self._suspects.is_wanted = self._is_wanted
        self._handed_on: set[str] = set()
        self._set_suspects_aside()
        self._connection_pool = connection_pool
        rates = WriteLimits.of(settings.writes_per_s)
        self.binder = Binder(
            self._connection_pool,
            self._sink,
            objection=self._objection,
            connections=settings.bind_connections,
            observe=self.metrics.bind_seconds.observe,
            runtime=runtime,
        )
        self.volumes = VolumeBinder(self._connection_pool, self.binder, self._sink, runtime=runtime)
        self.stamp_guard = StampGuard(self._connection_pool, self._sink, runtime=runtime)
        self.preemption = PreemptionWriter(
            self._connection_pool,
            self._sink,
            may_send=self.state.preemptions.nominations.wants,
            is_gone=lambda uid: self.state.members.get(uid) is None,
            runtime=runtime,
        )
        self.provisioning = ProvisioningWriter(
            self._connection_pool,
            self._sink,
            version=lambda: informers.provisioning_rights.version,
            runtime=runtime,
        )
        self.status = StatusWriter(
            self._connection_pool,
            self.binder,
            self._sink,
            limits=rates,
            preceded=self.preemption.preceding.precedes,
            runtime=runtime,
        )

        # Set afterwards: each of the two needs the other.
        self.preemption.preceding.conditions = self.status
        # Events wait for pauses of both: a wave of preemption has many pauses between binds alone.
        urgent = (self.binder.in_flight, self.preemption.in_flight)
        instance = self._identity or None
        self.recorder = Recorder(
            self._connection_pool,
            urgent,
            limits=rates,
            instance=instance,
            runtime=runtime,
        )
        self.loop = Loop(
            self.state,
            Ports(
                self.volumes,
                self._tell,
                self.preemption.order,
                LoopClocks(runtime),
                self.provisioning.order,
            ),
            metrics=self.metrics,
            limits=Limits(),
            # Only proven stamps tell the first plan what an earlier process left of a start (B4).
            ready=lambda: self.stamp_guard.is_asked and not informers.waiting_for(),
            leads=self._leads,
        )

        if no_preemption:
            self.loop.inbox(EvictionsForbidden(no_preemption))

        self._orders = NO_ORDERS
        if leadership is not None:
            leadership.elector.on_annotations = self._obey
            self._obey(leadership.elector.annotations)

        self._publish()

    async def run(self, undecided: Sequence[Undecided] = ()) -> tuple[Undecided, ...]:
        """Run until `stopping` is set or the Lease is lost. Raises the exception of a part that
        failed.

        `undecided` are binds whose results an earlier daemon did not learn before it lost the
        Lease; returns this daemon's own such binds.
        """
        gc.set_threshold(*GC_THRESHOLDS)
        gc.freeze()  # what the imports made stays for good
        self.informers.deliver_to(self._hear)
        self._adopt(undecided)

        async with self._health(), self._debug(), self._visibility(), asyncio.TaskGroup() as group:
            parts = {
                "binder": self.binder.run(),
                "preemption": self.preemption.run(),
                "provisioning": self.provisioning.run(),
                "status": self.status.run(),
                "events": self.recorder.run(),
                "heartbeat": self.heartbeat.run(),
                "stamps": self.stamp_guard.run(),
                "ready": self._announce(),
            }
            writers = [group.create_task(_forever(part), name=name) for name, part in parts.items()]
            volumes = group.create_task(_forever(self.volumes.run()), name="volumes")
            loop = group.create_task(self.loop.run(), name="loop")
            term = group.create_task(self._lead(), name="term")
            is_lost = not await self._stops_before(term)
            self._log.info("stopping") if not is_lost else self._log.warning("lost the lease")
            self.loop.stop()
            await loop

            # Binds in flight still check their nodes before they are sent again (B2), so messages
            # must be applied.
            listening = group.create_task(self.loop.listen(), name="loop, stopping")
            # claims may take minutes: the next start finds what was asked for, and completes it
            volumes.cancel()
            stopped_s = self._runtime.now()

            # After the Lease is lost nothing may be written; only answers to what was sent are
            # awaited.
            await (self._finish() if self._leads() else self.binder.drain(LOST_DRAIN_S))
            for task in writers:
                task.cancel()

            await self._resign(term)
            if not is_lost:
                await self._drain_visibility(until_s=stopped_s + self.settings.shutdown_s / 2)

            listening.cancel()

        self._connection_pool.close()
        if not is_lost:
            self._log.info("stopped")

        return self.binder.undecided()

    def _adopt(self, undecided: Sequence[Undecided]) -> None:
        """Keep the room of pods that may yet be bound by what was sent before the lease was lost
        (semantics B3).
        """
        for bind in (undecided_bind.bind for undecided_bind in undecided):
            self.loop.inbox(BindUndecided(bind.uid, bind.node, bind.permitted))

        self.binder.adopt(undecided)

    async def _lead(self) -> None:
        """Lead for one term, if there is leader election; else indefinitely."""
        if self._leadership is None:
            await asyncio.Event().wait()
            return

        await self.informers.synced()
        self._log.info("standby", identity=self._leadership.elector.identity)
        await self._leadership.run_term(self._begin)

    def reload(self, settings: Settings) -> None:
        """Use settings that may change while the daemon runs (`settings.LIVE`), except that of the
        log.
        """
        limits = WriteLimits.of(settings.writes_per_s)
        self.status.budget.change(limits)
        self.recorder.budget.change(limits)

    def _obey(self, annotations: Mapping[str, object]) -> None:
        """Carry out the orders of an administrator, and log each once."""
        orders = read_orders(annotations)
        for sentence in (*changes(self._orders, orders), *misread(annotations)):
            self._log.warning(sentence)

        if orders != self._orders:
            self._orders = orders
            self.metrics.paused.set(bool(orders.paused))
            self.loop.inbox(Ordered(orders))

    def _begin(self, after_s: float) -> None:
        """Planning may begin, this long after the lease became ours."""
        self._set_suspects_aside()
        self._log.info("leading", ms=round(after_s * 1e3, 1))
        self.loop.wake()

    def _keep(self, fault: InternalFault) -> None:
        """Keep a file about an internal error, one at a time, in a thread, as it may
        take seconds.
        """
        if self._keeps is None or self._keeping:
            return

        self._keeping = True
        asyncio.get_running_loop().create_task(
            self._keep_file(self._keeps, fault),
            name="internal error",
        )

    async def _keep_file(
        self,
        keeps: Callable[[InternalFault, Sequence[Message]], None],
        fault: InternalFault,
    ) -> None:
        try:
            await in_background(
                partial(keeps, fault, self.informers.known()),
                name="internal error",
            )
        except Exception as error:  # a full disk must not end what the fault did not end
            self._log.warning(f"No file is kept about internal error {fault.reference}: {error}")
        finally:
            self._keeping = False

    def _file_about(self, reference: str) -> Path | None:
        if self.settings.state_dir is not None:
            return kept_file(self.settings.state_dir, reference)

        return None

    def _set_suspects_aside(self) -> None:
        """Plan no group at which an earlier process ended, by what the Lease says by now (I10)."""
        for name in self._suspects.counts.keys() - self._handed_on:
            self._handed_on.add(name)
            self.state.bulkhead.suspect(name)

    def _is_wanted(self, name: str) -> bool:
        """Whether the next process must know of a suspect; of those that this one has not looked
        at, it must.
        """
        return name not in self._handed_on or self.state.bulkhead.is_suspect(name)

    async def _stops_before(self, term: asyncio.Task[None]) -> bool:
        """Wait until the daemon is told to stop or the term ends; whether it is told to stop."""
        stop = asyncio.create_task(self._stopping.wait(), name="stop")
        await asyncio.wait({stop, term}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()

        return self._stopping.is_set()

    async def _resign(self, term: asyncio.Task[None]) -> None:
        """End the term; release the lease unless a bind is undecided, which its time may still
        decide.
        """
        term.cancel()
        await asyncio.wait({term})

        if (
            self._leadership is not None
            and not self.binder.pending
            and await self._leadership.release()
        ):
            self._log.info("released the lease")

    async def _drain_visibility(self, *, until_s: float) -> None:
        """Keep answering for the gangs API: proxies route to a stopping replica until its endpoint
        is gone.
        """
        if self._visibility_server is not None:
            await self._runtime.sleep(max(0.0, until_s - self._runtime.now()))

    def _health(self) -> AbstractAsyncContextManager[None]:
        app = health_app(
            metrics=self.metrics,
            heartbeat=self.heartbeat,
            waiting_for=self._waiting_for,
            is_hopeless=self._is_hopeless,
            role=(
                None
                if self._leadership is None
                else lambda: "leader" if self._leads() else "standby"
            ),
        )
        return serve_health(app, self.settings.bind_address, self.settings.health_port)

    def _waiting_for(self) -> list[str]:
        """Why the replica is not ready: resources that are not read, or whose changes are not
        received, among others.

        A standby is ready only once it receives changes of PodGroups; a leader plans as soon as it
        has listed them.
        """
        if self._stopping.is_set():
            return ["shutdown"]

        missing = self.informers.waiting_for()
        pod_groups = self.informers.pod_groups
        stands_by = self._leadership is not None and not self._leads()

        if fault := self._planning_fails():
            missing.append(f"planning: internal error {fault}")

        if "podgroups" not in missing and (
            not pod_groups.is_followed() or (stands_by and not pod_groups.is_live())
        ):
            missing.append("podgroups")

        served = self._visibility_server
        # A standby is ready without the first certificate, which only a leader makes. Otherwise a
        # rollout that turns the API on would never end: an old replica without the API leads, and
        # stays until the new one is ready.
        if self.settings.visibility_port and (
            served is None or not (served.is_open or served.awaits_leader)
        ):
            missing.append("visibility")

        return missing

    def _objection(self, bind: Bind) -> str:
        """Why a bind may not be sent, also if that cannot be computed (I10)."""
        try:
            return self.state.start_check.objection(bind)
        except Exception as error:
            self.state.bulkhead.message_failed(error, "", self._runtime.now())
            return self.internal_faults.sentence

    def _planning_fails(self) -> str:
        """The reference of the internal error for which planning has paused repeatedly; "" if it
        does not.
        """
        pause = self.state.bulkhead.pause
        if pause.fault is not None and pause.failures >= UNREADY_AFTER:
            return pause.fault.reference

        return ""

    def _is_hopeless(self) -> bool:
        """Whether no plan was made for so long that only a process that starts over may help."""
        pause = self.state.bulkhead.pause
        return (
            bool(self._planning_fails()) and self._runtime.now() >= pause.since_s + RESTART_AFTER_S
        )

    def _debug(self) -> AbstractAsyncContextManager[None]:
        return serve_debug(
            debug_app(self.state, self._runtime.now, self._file_about),
            self.settings.debug_port,
        )

    @asynccontextmanager
    async def _visibility(self) -> AsyncIterator[None]:
        """The gangs API, or None if it is off. Raises SettingsError at once if its port is not
        available.
        """
        if not self.settings.visibility_port:
            yield
            return

        from gangsched.visibility.listener import listen

        with closing(listen(self.settings)) as listener:
            serving = asyncio.create_task(self._serve_gangs(listener), name="visibility")
            try:
                yield
            finally:
                serving.cancel()
                await asyncio.wait({serving})

    @property
    def _identity(self) -> str:
        """This process's name in the Lease, else that of the settings; "" without either."""
        if self._leadership is not None:
            return self._leadership.elector.identity

        return self.settings.identity or ""

    async def _serve_gangs(self, listener: socket.socket) -> None:
        """Serve the gangs API. It is imported once what was waiting at the start is bound, which
        comes first.
        """
        await wait_for_event(self.informers.backlog_bound, SERVE_WITHIN_S)
        identity = self._identity

        try:
            await in_background(
                partial(import_module, "gangsched.visible"),
                name="import of the gangs API",
            )
            from gangsched.visible import visibility_server

            server = visibility_server(
                self.settings,
                self.state,
                self._connection_pool,
                self._runtime,
                leads=self._leads,
                identity=identity,
                history=self.loop.audit.history,
            )
            async with server.serving(listener):
                self._visibility_server = server
                await asyncio.Event().wait()
        except Exception:
            self._log.exception("the visibility API cannot be served")
            # who connects is refused at once: discovery and the end of namespaces must not hang
            listener.close()
        finally:
            self._visibility_server = None

    async def _announce(self) -> None:
        """Log once that the caches are full, and freeze their objects for the garbage collector."""
        await self.informers.synced()
        self.loop.wake()
        stores = self.informers.stores
        self._log.info(
            "ready",
            version=__version__,
            pods=len(stores["pods"]),
            nodes=len(stores["nodes"]),
        )

        if self.settings.node_selector and not len(stores["nodes"]):
            self._log.warning(
                f"No node has the labels of node_selector: {self.settings.node_selector}."
            )

        # what was waiting for us is being bound now, and that comes first
        await asyncio.sleep(QUIET_AFTER_S)
        await wait_for_event(self.binder.in_flight.idle, QUIET_WITHIN_S, sleep=asyncio.sleep)
        self.informers.backlog_bound.set()
        gc.collect()
        gc.freeze()
        gc.enable()
        await asyncio.Event().wait()

    async def _finish(self) -> None:
        """Finish the binds in flight, then conditions and statuses, then Events, in the time that
        is left.
        """
        now = self._runtime.now
        deadline_s = now() + self.settings.shutdown_s * 0.8
        lost = await self.binder.drain(self._left_s(deadline_s))

        if self._leadership is not None:
            deadline_s = min(deadline_s, now() + HAND_OVER_S)

        lost += await self.preemption.drain(self._left_s(deadline_s))
        self.loop.drain()
        lost += await self.status.drain(self._left_s(deadline_s))

        unsaid = await self.recorder.drain(self._left_s(deadline_s))
        if lost or unsaid:
            self._log.warning("stopped before everything was written", writes=lost, events=unsaid)

    def _left_s(self, deadline_s: float) -> float:
        return max(0.0, deadline_s - self._runtime.now())

    def _sink(self, message: Message) -> None:
        self.loop.inbox(message)
        if isinstance(message, Outcome):
            self.status.answered(message)

    def _hear(self, message: Message) -> None:
        """Handle a message of the informers; what the writers store about a deleted object is
        dropped.
        """
        self.loop.inbox(message)
        if isinstance(message, Gone):
            # Pods are keyed by uid; for PodGroups the key is the name, and the uid comes with the
            # message.
            uid = message.uid or message.key
            for writer in (self.binder, self.status, self.recorder):
                writer.forget(uid)

    def _tell(self, report: Report) -> None:
        if not self._leads():
            return

        if isinstance(report, RecordEvent):
            self.recorder.record(report)
        else:
            self.status.put(report)

    def _queued(self, part: str) -> float:
        """The number of groups in a part of the queue; a standby has none."""
        return float(self.state.queue.sizes()[part]) if self._leads() else 0.0

    def _publish(self) -> None:
        publish = self.metrics.publish
        informers = self.informers
        for noun, reflector in informers.reflectors.items():
            publish("reflector", noun, reflector.counts)
            self.metrics.watch(noun, partial(getattr, reflector, "heard_s"), now=self._runtime.now)

        for noun, store in informers.stores.items():
            publish("store", noun, store.counts)

        publish("scheduler_names", "pods", informers.scheduler_names.counts)
        publish("volumes", "binds", self.state.claims.counts)
        publish("operator", "podgroups", informers.pod_groups.counts)
        self.metrics.watch("podgroups", lambda: informers.pod_groups.heard_s, now=self._runtime.now)
        publish("binder", "binds", self.binder.counts)
        publish("preemption_writer", "writes", self.preemption.counts)
        publish("recorder", "events", self.recorder.counts)

        for name, box in zip(
            ("conditions", "timeouts", "podgroups"),
            self.status.outboxes,
            strict=True,
        ):
            publish("outbox", name, box.counts)

        if self._leadership is not None:
            publish("lease", "lease", self._leadership.elector.counts)
            self.metrics.leadership(self.settings.lease_name, self._leads)

        state = self.state
        nominations = state.preemptions.nominations
        self.metrics.preemption.nominations.set_function(lambda: len(nominations.all()))
        self.metrics.planning_paused.set_function(
            lambda: float(state.bulkhead.pause.fault is not None)
        )
        # Not with each plan: what waits may be deleted, and then nothing is planned.
        for part in QUEUE_PARTS:
            self.metrics.queue_groups[part].set_function(partial(self._queued, part))

        self.metrics.known_nodes.set_function(lambda: len(state.cluster))
        self.metrics.known_pods.set_function(lambda: len(informers.stores["pods"]))
        self.metrics.pod_groups_followed.set_function(informers.pod_groups.is_followed)
        self.metrics.known_gangs.set_function(lambda: len(state.registry.gangs))
        self.metrics.gangs.counts = state.counts
        self.metrics.gangs.avoided = lambda: state.bad_nodes.nodes if self._leads() else ()
        self.metrics.gangs.count = lambda: state.pending.now() if self._leads() else Pending()


async def _forever(part: Coroutine[object, object, None]) -> None:
    """A part of the daemon: it may be cancelled, and must not return."""
    with suppress(asyncio.CancelledError):
        await part
        raise AssertionError("a part of the daemon ended by itself")
