"""Keeps the live page of a large cluster busy, and samples the memory of both its sides.

Pods end and others start in their place, gangs come, go and are told something else, nodes are
cordoned: nothing that is sent is as before, and the cluster stays as large as it was.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, Page

from tests.fake_api import Json
from tests.fake_watches import FakeWatches, watched
from tests.live_page import GANG_LISTS, NODES, PODS
from tests.page import live_speed
from tests.page.live_speed import GANG_PODS, NODES_NUMBER, RUNNING, WAITING

RATE = 50
SAMPLES = 120
LEAST_EVERY_S = 2.0
"""Between two samples: each collects the browser's garbage."""
HOUR_S = 3_600.0


class Sample(NamedTuple):
    """What both sides hold at a time."""

    at_s: float
    browser_mib: float
    host_mib: float
    elements: int
    threads: int
    files: int


class Load:
    """Changes of the cluster, one after the other; nothing is the same twice."""

    def __init__(self, fake: FakeWatches) -> None:
        """None has been made."""
        self.made = 0
        self._fake = fake
        self._changes = self._all()

    def make(self) -> None:
        """Make the next change."""
        next(self._changes)
        self.made += 1

    def _all(self) -> Iterator[None]:
        """Of ten changes six replace pods, two replace a gang that waits, one is a sentence, and
        one a node.
        """
        pods = self._pods()
        waiting = self._waiting()
        sentences = self._sentences()
        nodes = self._nodes()
        while True:
            for source in (pods, pods, waiting, pods, pods, sentences, pods, pods, waiting, nodes):
                next(source)
                yield

    def _pods(self) -> Iterator[None]:
        """A gang after the other ends pod by pod, and another one starts in its place."""
        for life in itertools.count():
            for number in range(RUNNING):
                before = live_speed.running(number, life)
                after = live_speed.running(number, life + 1)
                gang = number // GANG_PODS
                if number % GANG_PODS == 0:
                    self._tell("ADDED", GANG_LISTS[0], live_speed.gang_that_runs(gang, life + 1))
                    yield

                self._tell("DELETED", PODS[0], before)
                yield

                self._tell("ADDED", PODS[0], after)
                yield

                if number % GANG_PODS == GANG_PODS - 1:
                    self._tell("DELETED", GANG_LISTS[0], live_speed.gang_that_runs(gang, life))
                    yield

    def _waiting(self) -> Iterator[None]:
        """The first of the queue has gone, and another one comes behind the last."""
        for number in itertools.count():
            self._tell("DELETED", GANG_LISTS[0], live_speed.gang_that_waits(number))
            yield

            self._tell("ADDED", GANG_LISTS[0], live_speed.gang_that_waits(number + WAITING))
            yield

    def _sentences(self) -> Iterator[None]:
        """One in the middle of the queue is told something else."""
        for number in itertools.count():
            gang = live_speed.gang_that_waits(number + WAITING // 2)
            gang["status"]["message"] += f", which was tried {number} times"
            self._tell("MODIFIED", GANG_LISTS[0], gang)
            yield

    def _nodes(self) -> Iterator[None]:
        """A node is cordoned, and the one before it is not any more."""
        for number in itertools.count(1):
            for place, is_cordoned in ((number, True), (number - 1, False)):
                machine = live_speed.machine(place % NODES_NUMBER)
                machine["spec"]["unschedulable"] = is_cordoned
                self._tell("MODIFIED", NODES[0], machine)
                yield

    def _tell(self, kind: str, path: str, item: Json) -> None:
        self._fake.tell(kind, path, item)


def sampled(browser: Browser, folder: Path, minutes: float) -> tuple[list[Sample], float]:
    """The samples, and how many changes there were a second."""
    with (
        watched(folder, live_speed.large()) as (fake, config),
        live_speed.host(config) as (process, link),
    ):
        live_speed.wait_for_lists(fake)
        page = live_speed.new_page(browser)
        page.goto(link)
        page.wait_for_selector("canvas", timeout=120_000)

        load = Load(fake)
        samples = [_sample(page, process.pid, 0.0)]
        whole_s = 60 * minutes
        every_s = max(LEAST_EVERY_S, whole_s / SAMPLES)
        began_s = time.monotonic()
        while (passed_s := time.monotonic() - began_s) < whole_s:
            if passed_s >= samples[-1].at_s + every_s:
                samples.append(_sample(page, process.pid, passed_s))
                _print(samples[-1], load.made)

            load.make()
            time.sleep(max(0.0, began_s + load.made / RATE - time.monotonic()))

        took_s = time.monotonic() - began_s
        samples.append(_sample(page, process.pid, took_s))
        assert page.locator(".fresh.live").count() == 1, page.inner_text(".fresh")
        page.context.close()

    return samples, load.made / took_s


def last_two_thirds(samples: list[Sample]) -> list[Sample]:
    """Without the beginning, in which both sides fill what they may keep."""
    since_s = samples[-1].at_s / 3
    return [sample for sample in samples if sample.at_s >= since_s]


def slope(samples: list[Sample], side: str) -> float:
    """MiB an hour, of the straight line through the samples."""
    times = [sample.at_s / HOUR_S for sample in samples]
    values = [getattr(sample, side) for sample in samples]
    middle = statistics.mean(times)
    mean = statistics.mean(values)
    rise = 0.0
    for at, value in zip(times, values, strict=True):
        rise += (at - middle) * (value - mean)

    return rise / sum((at - middle) ** 2 for at in times)


def _sample(page: Page, pid: int, at_s: float) -> Sample:
    process = Path(f"/proc/{pid}")
    return Sample(
        at_s,
        live_speed.heap_mib(page),
        live_speed.resident_mib(pid),
        int(page.evaluate("document.querySelectorAll('*').length")),
        len(list((process / "task").iterdir())),
        len(list((process / "fd").iterdir())),
    )


def _print(sample: Sample, made: int) -> None:
    print(
        f"  {sample.at_s:7,.0f} s  browser {sample.browser_mib:6.1f} MiB"
        f"  host {sample.host_mib:6.1f} MiB  {sample.elements} elements"
        f"  {sample.threads} threads  {sample.files} files  {made:,} changes",
        flush=True,
    )
