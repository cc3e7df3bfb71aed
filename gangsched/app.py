"""The composition root: settings in, a running daemon out, and its orderly end.

Law: everything is made and wired here and nowhere else. If any part ends with an error the daemon ends, and a restart
recovers from the API objects alone (decision 5). On SIGTERM: stop planning, finish the binds in flight, tell what is
waiting to be told, leave.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime

import structlog

from gangsched import __version__
from gangsched.api.gang_spec import GangDefaults
from gangsched.core.cycle import Limits
from gangsched.kube import mirror
from gangsched.kube.bind import Binder
from gangsched.kube.client import ApiClient, connect
from gangsched.kube.lanes import Lanes
from gangsched.kube.operator import PodGroupOperator
from gangsched.kube.recorder import Recorder
from gangsched.kube.reflector import Reflector
from gangsched.kube.shapes import ShapeTable
from gangsched.kube.status import StatusWriter
from gangsched.kube.storage_feed import StorageFeed
from gangsched.kube.volumes import VolumeBinder
from gangsched.kube.waiting import wait_for_event
from gangsched.loop import Loop, Ports
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.messages import Message, RecordEvent
from gangsched.model.messages import Report as Told
from gangsched.settings import Settings
from gangsched.state.inspect import describe_gang, list_gangs
from gangsched.state.scheduling import Rules, SchedulingState
from gangsched.telemetry.debug import serve_debug
from gangsched.telemetry.health import serve_health
from gangsched.telemetry.heartbeat import Heartbeat
from gangsched.telemetry.metrics import Metrics

GC_THRESHOLDS = (100_000, 50, 1_000)
QUIET_AFTER_S, QUIET_WITHIN_S = 0.3, 5.0


class SystemClock:
    """The machine's clocks."""

    def now_s(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    def wall(self) -> str:
        """The present in RFC 3339, whole seconds, UTC."""
        return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Daemon:
    """All parts of one scheduler, made but not started."""

    def __init__(self, settings: Settings, client: ApiClient) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.heartbeat = Heartbeat(self.metrics)
        self.stopping = asyncio.Event()
        self._log = structlog.get_logger()
        self.state = SchedulingState(_rules(settings))
        self._lanes = Lanes(client)
        self.binder = Binder(
            self._lanes, self._sink, connections=settings.bind_connections, report=self._report,
            observe=self.metrics.bind_seconds.observe,
        )  # fmt: skip
        self.volumes = VolumeBinder(self._lanes, self.binder, self._sink)
        self.status = StatusWriter(self._lanes, self.binder, report=self._report)
        self.recorder = Recorder(self._lanes, binds_idle=self.binder.idle, report=self._report)
        self.loop = Loop(
            self.state, Ports(self.volumes, self._tell, SystemClock()), metrics=self.metrics,
            limits=Limits(groups=settings.plan_groups, pods=settings.plan_pods), ready=lambda: not self.waiting_for(),
            policy=GpuPolicy(settings.topology_keys, frozenset(settings.accelerators)),
        )  # fmt: skip
        self._pods = mirror.Mirror(mirror.pods(ShapeTable()), self._learn, self._report)
        self._nodes = mirror.Mirror(mirror.nodes(self._report), self._learn, self._report)
        self._namespaces = mirror.Mirror(mirror.namespaces(), self._sink, self._report)
        self.pods = Reflector(client, self._pods, report=self._report)
        self.nodes = Reflector(client, self._nodes, report=self._report)
        self.namespaces = Reflector(client, self._namespaces, report=self._report)
        self.storage = StorageFeed(client, self._learn, report=self._report)
        self.operator = PodGroupOperator(
            client, self._sink, report=self._report, restore_signals=self.handle_signals,
            binds_idle=self.binder.idle, sweep_every_s=settings.podgroup_sweep_s,
        )  # fmt: skip
        self._publish()

    def waiting_for(self) -> list[str]:
        """The caches that are not filled yet."""
        caches = {
            "pods": self.pods.synced, "nodes": self.nodes.synced, "namespaces": self.namespaces.synced,
            "podgroups": self.operator.synced,
        }  # fmt: skip
        return [name for name, synced in caches.items() if not synced.is_set()] + self.storage.waiting_for()

    def handle_signals(self) -> None:
        """SIGTERM and SIGINT end the daemon in order; called again whenever somebody else took the handlers."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stopping.set)

    async def run(self) -> None:
        """Run until a signal; raises what a part ended with."""
        self.handle_signals()
        settings = self.settings
        health = serve_health(
            settings.health_host, settings.health_port, metrics=self.metrics, heartbeat=self.heartbeat,
            waiting_for=self.waiting_for,
        )  # fmt: skip
        debug = serve_debug(
            settings.debug_host, settings.debug_port, list_gangs=lambda: list_gangs(self.state),
            describe_gang=lambda gang_id: describe_gang(self.state, gang_id, now_s=time.monotonic()),
        )  # fmt: skip
        async with health, debug, asyncio.TaskGroup() as group:
            readers = [
                group.create_task(_forever(part), name=name)
                for name, part in (
                    ("pods", self.pods.run()), ("nodes", self.nodes.run()), ("namespaces", self.namespaces.run()),
                    ("podgroups", self.operator.run()), ("storage", self.storage.run()), ("ready", self._announce()),
                )
            ]  # fmt: skip
            writers = [
                group.create_task(_forever(part), name=name)
                for name, part in (
                    ("binder", self.binder.run()), ("status", self.status.run()), ("events", self.recorder.run()),
                    ("heartbeat", self.heartbeat.run()),
                )
            ]  # fmt: skip
            group.create_task(self._lanes.warm(settings.bind_connections), name="connections")  # while the lists come
            volumes = group.create_task(_forever(self.volumes.run()), name="volumes")
            loop = group.create_task(self.loop.run(), name="loop")
            await self.stopping.wait()
            self._log.info("stopping")
            self.loop.stop()
            await loop
            volumes.cancel()  # claims may take minutes: the next start finds what was asked for, and completes it
            await self._finish()
            for task in (*readers, *writers):
                task.cancel()
        self._lanes.close()
        self._log.info("stopped")

    async def _announce(self) -> None:
        """Say once that the caches are full, and keep what is in them out of the garbage collector's way."""
        for synced in (self.pods.synced, self.nodes.synced, self.namespaces.synced, self.operator.synced):
            await synced.wait()
        await self.storage.answered()
        self.loop.wake()
        self._log.info("ready", version=__version__, pods=len(self._pods), nodes=len(self._nodes))
        await asyncio.sleep(QUIET_AFTER_S)  # what was waiting for us is being bound now, and that comes first
        await wait_for_event(self.binder.idle, QUIET_WITHIN_S, sleep=asyncio.sleep)
        gc.collect()
        gc.freeze()
        gc.enable()
        await asyncio.Event().wait()

    async def _finish(self) -> None:
        """Finish the binds in flight, then conditions and statuses, then Events, in the time that is left."""
        deadline_s = time.monotonic() + self.settings.shutdown_s * 0.8
        lost = await self.binder.drain(self._left_s(deadline_s))
        self.loop.drain()
        lost += await self.status.drain(self._left_s(deadline_s))
        unsaid = await self.recorder.drain(self._left_s(deadline_s))
        if lost or unsaid:
            self._log.warning("stopped before everything was written", writes=lost, events=unsaid)

    @staticmethod
    def _left_s(deadline_s: float) -> float:
        return max(0.0, deadline_s - time.monotonic())

    def _sink(self, message: Message) -> None:
        self.loop.inbox(message)

    def _learn(self, message: Message) -> None:
        """Take a message that those who wait for claims may have been waiting for."""
        self.loop.inbox(message)
        self.volumes.take(message)

    def _tell(self, told: Told) -> None:
        if isinstance(told, RecordEvent):
            self.recorder.record(told)
        else:
            self.status.put(told)

    def _report(self, sentence: str) -> None:
        self._log.warning(sentence)

    def _publish(self) -> None:
        publish = self.metrics.publish
        publish("reflector", "pods", self.pods.counts)
        publish("reflector", "nodes", self.nodes.counts)
        publish("reflector", "namespaces", self.namespaces.counts)
        publish("mirror", "pods", self._pods.counts)
        publish("mirror", "nodes", self._nodes.counts)
        publish("mirror", "namespaces", self._namespaces.counts)
        for noun, reflector in self.storage.reflectors.items():
            publish("reflector", noun, reflector.counts)
            publish("mirror", noun, self.storage.mirrors[noun].counts)
        publish("volumes", "binds", self.volumes.counts)
        publish("operator", "podgroups", self.operator.counts)
        publish("binder", "binds", self.binder.counts)
        publish("recorder", "events", self.recorder.counts)
        for name, box in zip(("conditions", "timeouts", "podgroups"), self.status.outboxes, strict=True):
            publish("outbox", name, box.counts)
        state = self.state
        self.metrics.nodes.set_function(lambda: len(state.cluster))
        self.metrics.pods.set_function(lambda: len(self._pods))
        self.metrics.gangs.set_function(lambda: len(state.registry.gangs))
        self.metrics.holds.set_function(lambda: sum(len(gang.held) for gang in state.registry.gangs.values()))


def run_daemon(settings: Settings) -> int:
    """Run until a signal; the exit code. Raises SettingsError and Misconfigured for what a person must mend."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_run(settings))
    return 0


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed (the extra `uvloop`): a fifth less CPU; else asyncio's own loop."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return None
    return new_event_loop


async def _run(settings: Settings) -> None:
    gc.set_threshold(*GC_THRESHOLDS)
    gc.disable()  # until the first lists are in
    gc.freeze()  # what the imports made stays for good
    async with await connect(settings.kubeconfig) as client:
        warning = await client.check()
        if warning:
            structlog.get_logger().warning(warning)
        await Daemon(settings, client).run()


async def _forever(part: Coroutine[object, object, None]) -> None:
    """A part of the daemon: it may be cancelled, and must not return."""
    with suppress(asyncio.CancelledError):
        await part
        raise AssertionError("a part of the daemon ended by itself")


def _rules(settings: Settings) -> Rules:
    return Rules(
        scheduler_names=frozenset(settings.scheduler_names),
        defaults=GangDefaults(wait_time_s=settings.wait_time_s, match_policy=settings.match_policy),
        settle_s=settings.settle_ms / 1e3,
        avoid_s=settings.kubelet_rejection_avoid_s,
    )
