"""docs/architecture.md: the ways of one pod and of one group pass each hop in order."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from types import FrameType

import pytest

from gangsched.daemon import Daemon
from gangsched.kube.ports import Runtime
from gangsched.kube.read.informers import Informers
from gangsched.model.protocol import Applied
from gangsched.settings import Settings
from tests.builders import POD_GROUP_LABEL, members, node, pod_group
from tests.unit.kube.fakes import FakeRequests, line, pod, settle
from tests.world import World

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "gangsched"
MOST_STAYS = 70
"""Visits of modules by whoever reads the functions of a preemption in the order in which they are
first entered. It was 60 while the attempt and the selection of victims, 770 lines each, also had
the rounds on trial and the count of what is given back, which are modules of their own now.
"""


async def test_a_pod_passes_each_hop_in_the_order_of_the_page() -> None:
    """Every `file:function` of the list exists and is called after the one before it."""
    assert_passed(hops_of("The way of one pod"), await calls_for_one_pod())


def test_a_group_passes_each_hop_in_the_order_of_the_page() -> None:
    """A group that evicts another one in its first turn."""
    hops = hops_of("The way of one group")
    world = World(node("a", 8), preempts=True)
    world.create(members("low", 2, gpus=4))
    world.settle()
    calls: list[tuple[str, str]] = []
    sys.setprofile(noting(calls))
    try:
        world.create(members("high", 2, gpus=4, priority=100))
        world.turn()
    finally:
        sys.setprofile(None)
    assert_passed(hops, calls)
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert f"these {len(hops)} hops in {len({file for file, _ in hops})} modules" in " ".join(
        page.split()
    )


@pytest.mark.parametrize("number", [1, 2])
def test_the_walk_of_a_preemption_is_short(number: int) -> None:
    """A pod, or a gang of two, preempts a gang: its functions are read with few changes from module
    to module.
    """
    world = World(node("a", 8), node("b", 8), preempts=True)
    world.create(members("low", 2, gpus=8))
    world.settle()
    calls: list[tuple[str, str]] = []
    sys.setprofile(noting(calls))
    try:
        world.create(members("high", number, gpus=8, priority=100))
        world.turn()
    finally:
        sys.setprofile(None)
    own = [
        (file, name)
        for file, name in calls
        if file.startswith("core/preemption/") and not name.startswith("<")
    ]
    walk = list(dict.fromkeys(own[own.index(("core/preemption/plan_preemptions.py", "turn")) :]))
    assert ("core/preemption/plan_preemptions.py", "_decision") in walk
    stays = [file for file, _ in groupby(walk, key=lambda call: call[0])]
    print(f"{len(walk)} functions, {len(stays)} stays in {len(set(stays))} modules")
    assert len(stays) <= MOST_STAYS


def hops_of(heading: str) -> list[tuple[str, str]]:
    """(file, function) of each line of a numbered list in the page."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.split(f"## {heading}\n")[1].split("\n## ")[0]
    hops = re.findall(r"^\d+\. `([\w/]+\.py):(\w+)`", section, re.MULTILINE)
    assert len(hops) == len(re.findall(r"^\d+\. ", section, re.MULTILINE))
    return hops


def assert_passed(hops: list[tuple[str, str]], calls: list[tuple[str, str]]) -> None:
    """Each hop is called after the one before it."""
    left = iter(calls)
    for number, hop in enumerate(hops, start=1):
        assert hop in left, f"hop {number}, {':'.join(hop)}, is not passed after the one before it"


def noting(calls: list[tuple[str, str]]) -> Callable[[FrameType, str, object], None]:
    """A profile function that appends each call in the package to `calls`."""

    def note(frame: FrameType, event: str, _: object) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "call" and file.is_relative_to(PACKAGE):
            calls.append((file.relative_to(PACKAGE).as_posix(), frame.f_code.co_name))

    return note


async def calls_for_one_pod() -> list[tuple[str, str]]:
    """(file, function) of every call of the daemon, from a pod's watch line to the report of its
    gang.
    """
    api = FakeRequests()
    informers = Informers(api, runtime=Runtime(), restore_signals=lambda: None, sweep_every_s=60.0)  # type: ignore[arg-type]
    daemon = Daemon(Settings(), api, informers, asyncio.Event())  # type: ignore[arg-type]
    informers.deliver_to(daemon.loop.inbox)
    for synced in (
        *(each.synced for each in informers.reflectors.values()),
        informers.pod_groups.synced,
    ):
        synced.set()
    daemon.stamp_guard.is_asked = True
    daemon.loop.inbox(Applied(node("n")))
    daemon.loop.inbox(Applied(pod_group("g", 1)))
    binder = asyncio.create_task(daemon.binder.run())
    calls: list[tuple[str, str]] = []

    watched = json.dumps(line("ADDED", pod("p", labels={POD_GROUP_LABEL: "g"}))).encode()
    sys.setprofile(noting(calls))
    try:
        await informers.reflectors["pods"]._take([watched])
        while daemon.loop.turn():
            pass  # its steps may each be a turn of their own
        await settle()
        daemon.loop.drain()
    finally:
        sys.setprofile(None)
        binder.cancel()
    return calls
