"""The parts of a daemon together, without an API server."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress

from gangsched.daemon import Daemon
from gangsched.kube.ports import silent
from gangsched.kube.read.informers import Informers
from gangsched.model.objects import Pod, PodGroup
from gangsched.model.protocol import Bind, Gone, ObjectRef, RecordEvent
from gangsched.settings import Settings
from tests.unit.kube.fakes import FakeRequests, settle


async def test_what_the_writers_remember_of_an_object_goes_with_it() -> None:
    """In a cluster where pods come and go, nothing is kept for minutes for those that are gone."""
    api = FakeRequests()
    api.close = lambda: None  # type: ignore[attr-defined]
    informers = Informers(api, warn=silent, restore_signals=lambda: None, sweep_every_s=60.0)  # type: ignore[arg-type]
    stopping = asyncio.Event()
    daemon = Daemon(Settings(health_port=0, debug_port=0), api, informers, stopping)  # type: ignore[arg-type]
    daemon.binder._may_send = lambda bind: True
    said_of, thresholds = daemon.recorder._known, gc.get_threshold()
    running = asyncio.create_task(daemon.run())
    try:
        await settle()
        daemon.binder.submit([Bind("u1", "ns", "p", "n")])
        daemon.recorder.record(RecordEvent(ObjectRef("v1", "Pod", "ns", "q", "u2"), "FailedScheduling", "no room"))
        daemon.recorder.record(RecordEvent(ObjectRef("v1", "PodGroup", "ns", "g", "u3"), "Unschedulable", "no room"))
        await settle()
        assert (daemon.binder.fate("u1") is not None, "u2" in said_of, "u3" in said_of) == (True, True, True)
        for told in (Gone(Pod, "u1"), Gone(Pod, "u2"), Gone(PodGroup, "ns/g", "sigs", "u3")):
            informers._sink(told)
        assert (daemon.binder.fate("u1"), "u2" in said_of, "u3" in said_of) == (None, False, False)
    finally:
        stopping.set()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        gc.unfreeze()
        gc.set_threshold(*thresholds)
