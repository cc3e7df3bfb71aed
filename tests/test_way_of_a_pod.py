"""docs/architecture.md, "The way of one pod": a pod is followed through the daemon, and passes each hop in order."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from types import FrameType

from gangsched.daemon import Daemon
from gangsched.kube.ports import silent
from gangsched.kube.read.informers import Informers
from gangsched.model.protocol import Applied
from gangsched.settings import Settings
from tests.builders import POD_GROUP_LABEL, node, pod_group
from tests.unit.kube.fakes import FakeRequests, line, pod, settle

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "gangsched"


async def test_a_pod_passes_each_hop_in_the_order_of_the_page() -> None:
    """Every `file:function` of the list exists and is called after the one before it."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.split("## The way of one pod\n")[1].split("\n## ")[0]
    hops = re.findall(r"^\d+\. `([\w/]+\.py):(\w+)`", section, re.MULTILINE)
    assert len(hops) == len(re.findall(r"^\d+\. ", section, re.MULTILINE))
    calls = iter(await calls_for_one_pod())
    for number, hop in enumerate(hops, start=1):
        assert hop in calls, f"hop {number}, {':'.join(hop)}, is not passed after the one before it"


async def calls_for_one_pod() -> list[tuple[str, str]]:
    """(file, function) of every call of the daemon, from a pod's watch line to the report of its gang."""
    api = FakeRequests()
    informers = Informers(api, warn=silent, restore_signals=lambda: None, sweep_every_s=60.0)  # type: ignore[arg-type]
    daemon = Daemon(Settings(), api, informers, asyncio.Event())  # type: ignore[arg-type]
    informers.deliver_to(daemon.loop.inbox)
    for synced in (*(each.synced for each in informers.reflectors.values()), informers.pod_groups.synced):
        synced.set()
    daemon.loop.inbox(Applied(node("n")))
    daemon.loop.inbox(Applied(pod_group("g", 1)))
    binder = asyncio.create_task(daemon.binder.run())
    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "call" and file.is_relative_to(PACKAGE):
            calls.append((file.relative_to(PACKAGE).as_posix(), frame.f_code.co_name))

    watched = json.dumps(line("ADDED", pod("p", labels={POD_GROUP_LABEL: "g"}))).encode()
    sys.setprofile(note)
    try:
        await informers.reflectors["pods"]._take([watched])
        daemon.loop.turn()
        await settle()
        daemon.loop.drain()
    finally:
        sys.setprofile(None)
        binder.cancel()
    return calls
