"""Start-up: settings in, exit code out. The first LIST requests are sent while the packages for
planning are still being imported.

Invariant: only `kube` is imported here, because start-up time counts: after a crash nothing is
scheduled until start-up is over, and half of it is imports (docs/performance.md). The daemon
itself, `gangsched.daemon`, is imported in a thread while the API server answers the first lists.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from gangsched.heap import kept_trimmed
from gangsched.kube.background import in_background
from gangsched.kube.http import permissions
from gangsched.kube.http.client import ApiClient, connect
from gangsched.kube.http.connection_pool import ConnectionPool
from gangsched.kube.http.permissions import Lease
from gangsched.kube.lease.candidate import Timing
from gangsched.kube.lease.leadership import Leadership, lead_by_lease
from gangsched.kube.ports import Runtime
from gangsched.kube.read.catch_up import catch_up
from gangsched.kube.read.informers import Informers
from gangsched.kube.read.podgroup_informer import Follow
from gangsched.model.devices import DeviceScope
from gangsched.model.fault import InternalFault
from gangsched.model.gpu_policy import PlainReplicas
from gangsched.model.preemption import BudgetRule, VictimScope
from gangsched.model.protocol import Message
from gangsched.model.suspects import Suspects
from gangsched.reload import Reloader
from gangsched.settings import Settings
from gangsched.telemetry.watched_work import WatchedWork

if TYPE_CHECKING:
    from gangsched.daemon import Daemon


MOST_NESTED = 10_000
"""Objects and lists inside each other that API servers accept in JSON, for example in
managedFields. The decoder counts them against Python's limit of recursion, and one such object
would end every list and watch of its kind.
"""
PYTHON_FRAMES = 2_000
"""Frames for everything else; the stack of 8 MiB takes twice as many of both."""
PROBES_AFTER_S = 1.0
PODGROUP_SWEEP_S = 60.0
"""Interval between full resyncs of PodGroups, without which nothing notices a watch that silently
lost a change.
"""


def run_daemon(
    settings: Settings,
    read: Callable[[], Settings] | None = None,
    file: Path | None = None,
) -> int:
    """Run until SIGTERM or SIGINT; return the exit code. `read` and `file` are explained in
    `Reloader`.

    Raises SettingsError and Misconfigured for errors that the administrator can correct.
    """
    sys.setrecursionlimit(MOST_NESTED + PYTHON_FRAMES)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_run(Reloader(settings, read or (lambda: settings), file)))

    return 0


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed (the extra `uvloop`): a fifth less CPU; else asyncio's
    own loop.
    """
    try:
        from uvloop import new_event_loop
    except ImportError:
        return None

    return new_event_loop


async def _run(reloader: Reloader) -> None:
    settings = reloader.settings
    log = structlog.get_logger()
    stopping = asyncio.Event()

    def handle_signals() -> None:
        """Stop the daemon in order on SIGTERM and SIGINT. Call it again after a library has
        replaced the handlers.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)

        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reloader.ask)

    async with (
        await connect(settings.kubeconfig) as client,
        kept_trimmed(),
        asyncio.TaskGroup() as group,
    ):
        importing = group.create_task(in_background(_daemon, name="imports"), name="imports")
        handle_signals()
        lease = (
            Lease(settings.lease_namespace, settings.lease_name) if settings.leader_elect else None
        )
        probed = group.create_task(_answer_probes(settings), name="health of the start")
        missing = await _check(client, stopping, settings, lease)
        probed.cancel()  # the daemon opens the same port
        await asyncio.wait({probed})

        if missing is None:
            return

        warnings = permissions.warnings(missing)
        # With `auto`, what is not permitted is not wanted.
        is_wanted = settings.devices is DeviceScope.ALL
        for warning in filter(
            None,
            (
                warnings.volumes,
                warnings.preemption,
                warnings.extended_resources if is_wanted else "",
            ),
        ):
            log.warning(warning)

        reloading = group.create_task(reloader.run(), name="configuration")
        await schedule(
            client,
            settings,
            stopping,
            importing,
            lease=lease,
            no_preemption=warnings.preemption,
            extends=not warnings.extended_resources,
            restore_signals=handle_signals,
            runtime=Runtime(warn=log.warning),
            at_work=_watched_work(settings, log.warning),
            reloader=reloader,
        )
        reloading.cancel()


def _watched_work(settings: Settings, warn: Callable[[str], None]) -> WatchedWork:
    """What is at work; without a file if none can be made."""
    try:
        return WatchedWork(settings.state_dir)
    except OSError as error:
        warn(f"Cannot use state_dir {settings.state_dir}: {error.strerror}; nothing is kept there.")
        return WatchedWork(None)


async def _answer_probes(settings: Settings) -> None:
    """Serve the health port while the API server is not reached: the kubelet must not kill who
    waits as configured.

    Not in the first second: a start that need not wait does not need it, and would pay for its
    import.
    """
    await asyncio.sleep(PROBES_AFTER_S)
    from gangsched.telemetry.health import serve_health, starting_app

    async with serve_health(
        starting_app("the API server"),
        settings.bind_address,
        settings.health_port,
    ):
        await asyncio.Event().wait()


async def schedule(
    client: ApiClient,
    settings: Settings,
    stopping: asyncio.Event,
    importing: Awaitable[type[Daemon]],
    *,
    lease: Lease | None,
    no_preemption: str,
    extends: bool,
    restore_signals: Callable[[], None],
    runtime: Runtime,
    follow: Follow | None = None,
    at_work: WatchedWork | None = None,
    reloader: Reloader | None = None,
) -> None:
    """Start the informers, and run one daemon per term of leadership, until `stopping` is set.

    `no_preemption` names the permission that is missing for preemption; with `extends`, claims may
    be created for extended resources. `follow` is explained in `PodGroupInformer`. `at_work` knows
    at which group the process before this one ended. `reloader` has settings that changed since the
    start.
    """
    suspects = Suspects()
    if at_work is not None and at_work.before:
        suspects.add(at_work.before)
        runtime.warn(
            f"The last process ended while it planned {at_work.before}, which is set aside."
        )

    async with asyncio.TaskGroup() as group:
        informers = Informers(
            client,
            runtime=runtime,
            restore_signals=restore_signals,
            sweep_every_s=PODGROUP_SWEEP_S,
            scheduler_names=settings.scheduler_names,
            node_selector=settings.node_selector,
            disruption_budgets=settings.preemption is not VictimScope.OFF,
            dialects=settings.dialects,
            owner_gangs=settings.owner_gangs,
            services=settings.plain_replicas is PlainReplicas.SPREAD,
            devices=settings.devices,
            extends=extends,
            requested_by=settings.requested_by if settings.provisioning else "",
            follow=follow,
        )
        reading = group.create_task(informers.run(), name="informers")
        elects = partial(
            _leadership,
            settings,
            client,
            informers,
            runtime=runtime,
            suspects=suspects,
        )
        leadership = elects(lease) if lease is not None else None
        connection_pool = ConnectionPool(
            client,
            fence=leadership.fence if leadership is not None else None,
        )
        group.create_task(connection_pool.warm(settings.bind_connections), name="connections")
        daemon_type = await importing

        def new_daemon() -> Daemon:
            daemon = daemon_type(
                reloader.settings if reloader is not None else settings,
                connection_pool,
                informers,
                stopping,
                leadership,
                no_preemption=no_preemption,
                extends=extends,
                runtime=runtime,
                at_work=at_work,
                suspects=suspects,
                keeps=partial(_keep, settings) if settings.state_dir is not None else None,
            )
            if reloader is not None:
                reloader.changed = daemon.reload

            return daemon

        undecided = await new_daemon().run()
        # the lease was lost: start again, as after a crash, with the caches
        while not stopping.is_set():
            gc.unfreeze()
            gc.collect()
            undecided = await new_daemon().run(undecided)

        reading.cancel()


def _leadership(
    settings: Settings,
    client: ApiClient,
    informers: Informers,
    lease: Lease,
    *,
    runtime: Runtime,
    suspects: Suspects,
) -> Leadership:
    async def caught_up() -> None:
        await catch_up(
            client,
            informers.stores["pods"],
            settings.scheduler_names,
            sleep=runtime.sleep,
        )
        await informers.pod_groups.catch_up()

    timing = Timing.of_lease(settings.lease_duration_s)
    return lead_by_lease(
        client,
        lease,
        timing,
        identity=settings.identity,
        caught_up=caught_up,
        runtime=runtime,
        suspects=suspects,
    )


def _keep(settings: Settings, fault: InternalFault, known: Sequence[Message]) -> None:
    """Keep a file about an internal error. Raises OSError."""
    from gangsched.snapshots import kept  # not before one happens

    assert settings.state_dir is not None
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    kept.keep(settings.state_dir, fault, known, settings, moment)


async def _check(
    client: ApiClient,
    stopping: asyncio.Event,
    settings: Settings,
    lease: Lease | None,
) -> tuple[permissions.Permission, ...] | None:
    """The permissions that we can do without and lack; None when we are told to stop before that is
    known.
    """
    log = structlog.get_logger()
    optional: tuple[permissions.Permission, ...] = permissions.VOLUMES

    if settings.preemption is not VictimScope.OFF:
        optional += permissions.PREEMPTION
        optional += (
            permissions.LAST_RESORT if settings.preempt_pdb is BudgetRule.LAST_RESORT else ()
        )

    optional += (
        permissions.EXTENDED_RESOURCES if settings.devices is not DeviceScope.ALLOCATED else ()
    )
    check = client.check(
        optional=optional,
        lease=lease,
        wait_s=settings.api_server_wait_s,
        warn=log.warning,
    )
    checking = asyncio.create_task(check, name="check")
    told_to_stop = asyncio.create_task(stopping.wait(), name="stop")
    await asyncio.wait({checking, told_to_stop}, return_when=asyncio.FIRST_COMPLETED)

    if told_to_stop.done():
        checking.cancel()
        return None

    told_to_stop.cancel()
    return checking.result()


def _daemon() -> type[Daemon]:
    # NumPy's linear algebra, which nothing here uses, would start a thread per core of the machine
    # and let them spin.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from gangsched.daemon import Daemon

    return Daemon
