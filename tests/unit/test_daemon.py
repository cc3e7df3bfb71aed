"""The parts of a daemon together, without an API server."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from control_plane.ports import free_ports

from gangsched.daemon import Daemon
from gangsched.kube.ports import Runtime
from gangsched.kube.read.informers import Informers
from gangsched.kube.write.rate_limits import WriteLimits
from gangsched.model.objects import Pod, PodGroup
from gangsched.model.protocol import Applied, Bind, Gone, ObjectRef, RecordEvent, SetPodCondition
from gangsched.settings import Settings, SettingsError
from tests.builders import members
from tests.unit.kube.fakes import FakeRequests, settle


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[tuple[Daemon, Informers]]:
    """A daemon whose API server answers everything with an empty object, and its informers, which
    do not run.
    """
    api = FakeRequests()
    api.close = lambda: None  # type: ignore[attr-defined]
    informers = Informers(api, runtime=Runtime(), restore_signals=lambda: None, sweep_every_s=60.0)  # type: ignore[arg-type]
    daemon = Daemon(settings, api, informers, asyncio.Event())  # type: ignore[arg-type]
    thresholds = gc.get_threshold()
    task = asyncio.create_task(daemon.run())
    try:
        await settle()
        if task.done():
            task.result()
        yield daemon, informers
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_what_the_writers_remember_of_an_object_goes_with_it() -> None:
    """In a cluster where pods come and go, nothing is kept for minutes for those that are gone."""
    async with running(Settings(health_port=0, debug_port=0)) as (daemon, informers):
        daemon.binder._objection = lambda bind: ""
        said_of, limits = (
            daemon.recorder._known,
            (daemon.recorder._of_object, daemon.status.conditions._keys),
        )
        daemon.binder.submit([Bind("u1", "ns", "p", "n")])
        daemon.recorder.record(
            RecordEvent(ObjectRef("v1", "Pod", "ns", "q", "u2"), "FailedScheduling", "no room")
        )
        daemon.recorder.record(
            RecordEvent(ObjectRef("v1", "PodGroup", "ns", "g", "u3"), "Unschedulable", "no room")
        )
        daemon.status.put(SetPodCondition("u2", "ns", "q", "Unschedulable", "no room"))
        await settle()
        assert (daemon.binder.fate("u1") is not None, "u2" in said_of, "u3" in said_of) == (
            True,
            True,
            True,
        )
        assert all(len(buckets) for buckets in limits)
        for told in (Gone(Pod, "u1"), Gone(Pod, "u2"), Gone(PodGroup, "ns/g", "sigs", "u3")):
            informers._sink(told)
        assert (daemon.binder.fate("u1"), "u2" in said_of, "u3" in said_of) == (None, False, False)
        assert not any(len(buckets) for buckets in limits)


async def test_groups_that_were_deleted_do_not_wait_any_more() -> None:
    """The metric follows without a plan, of which there is none where nothing waits."""

    def active() -> float | None:
        registry = daemon.metrics.registry
        return registry.get_sample_value("gangsched_queue_groups", {"part": "active"})

    async with running(Settings(health_port=0, debug_port=0)) as (daemon, _):
        (waits,) = members("g", 1)
        daemon.state.apply(Applied(waits), now_s=0.0)
        daemon.state.refresh(0.0)
        assert active() == 1.0

        daemon.state.apply(Gone(Pod, waits.uid), now_s=1.0)
        daemon.state.refresh(1.0)
        assert active() == 0.0


async def test_a_podgroup_that_is_made_anew_gets_no_new_burst_of_statuses() -> None:
    """A tenant that deletes and makes a PodGroup of one name all day costs no more than one that
    edits it.
    """
    async with running(Settings(health_port=0, debug_port=0)) as (daemon, informers):
        limit = daemon.status.pod_groups._keys
        key = ("sigs", "ns", "g")
        for _ in range(WriteLimits().object.burst):
            assert not limit.wait_s(key)
            limit.take(key)
        informers._sink(Gone(PodGroup, "ns/g", "sigs", "u3"))
        assert limit.wait_s(key) > 0


async def test_the_api_of_gangs_gives_way_to_what_waits_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its port is open from the start, and its hundred milliseconds of imports come after the first
    binds.
    """
    asked: list[str] = []

    async def note(work: object, *, name: str) -> None:
        asked.append(name)

    monkeypatch.setattr("gangsched.daemon.in_background", note)
    (port,) = free_ports(1)
    settings = Settings(health_port=0, debug_port=0, bind_address="127.0.0.1", visibility_port=port)
    async with running(settings) as (_, informers):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        await settle()
        assert asked == []
        informers.backlog_bound.set()
        await settle()
        assert asked == ["import of the gangs API"]
        writer.close()
    with pytest.raises(OSError, match="Connect call failed"):
        await asyncio.open_connection("127.0.0.1", port)


async def test_a_port_that_is_taken_ends_the_start() -> None:
    """The administrator is told at once, not once something asks for gangs."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = Settings(
            health_port=0, debug_port=0, bind_address="127.0.0.1", visibility_port=port
        )
        with pytest.raises(
            SettingsError, match=f"on port {port}: Address already in use .*; choose another"
        ):
            async with running(settings):
                pass


async def test_a_server_that_cannot_be_made_refuses_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Connections that nobody takes would hold up discovery, and the deletion of namespaces, in the
    whole cluster.
    """

    async def fail(work: object, *, name: str) -> None:
        raise ImportError("no module named cryptography")

    monkeypatch.setattr("gangsched.daemon.in_background", fail)
    (port,) = free_ports(1)
    settings = Settings(health_port=0, debug_port=0, bind_address="127.0.0.1", visibility_port=port)
    async with running(settings) as (_, informers):
        informers.backlog_bound.set()
        await settle()
        with pytest.raises(OSError, match="Connect call failed"):
            await asyncio.open_connection("127.0.0.1", port)
