"""Measures the live page of a large cluster: its host as a process, and its tab in the browser.

The API server is a fake in this process, with 5,000 nodes of eight GPUs, 40,000 pods of which
36,000 run, and 10,000 gangs that wait.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, Page

from kubectl_gangsched.session import GANGS
from tests.fake_api import Json, listed, node, pod
from tests.fake_watches import FakeWatches, watched
from tests.live_page import GANG_LISTS, NODES, PODS, cluster

NODES_NUMBER = 5_000
RUNNING = 36_000
PENDING = 4_000
WAITING = 10_000
GANG_PODS = 40
BINDS = 40
STARTED = "2026-01-01T00:00:00Z"
LINK = re.compile(r"http://127\.0\.0\.1:\d+/#[\w-]{43}")
FREE = "document.querySelector('.answer-value')?.textContent"


class LiveFigures(NamedTuple):
    """What was measured, by what it is called."""

    demo_first_ms: float
    big_first_ms: float
    bind_p95_ms: float
    behind_s: float
    whole_s: float
    elements: float


def measured_live(browser: Browser, folder: Path) -> LiveFigures:
    """The figures of a small cluster, and of a large one."""
    demo_first_ms = _demo_first_ms(browser, folder)
    with watched(folder, large()) as (fake, config), host(config) as (_, link):
        wait_for_lists(fake)
        page = new_page(browser)
        began_s = time.monotonic()
        page.goto(link)
        page.wait_for_selector("canvas", timeout=120_000)
        page.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
        big_first_ms = 1_000 * (time.monotonic() - began_s)
        binds = [_bind_ms(fake, page, number) for number in range(BINDS)]

        behind_s, whole_s = _away(fake, page)
        elements = float(page.evaluate("document.querySelectorAll('*').length"))
        page.context.close()

    return LiveFigures(
        demo_first_ms,
        big_first_ms,
        statistics.quantiles(binds, n=20)[-1],
        behind_s,
        whole_s,
        elements,
    )


def large() -> Json:
    """What the fake answers."""
    nodes = [machine(number) for number in range(NODES_NUMBER)]
    pods = [running(number) for number in range(RUNNING)]
    pods += [pod(f"wait-{number}", gang=f"wait-{number}") for number in range(PENDING)]
    gangs = [gang_that_waits(number) for number in range(WAITING)]
    gangs += [gang_that_runs(number) for number in range(RUNNING // GANG_PODS)]
    return cluster(
        **{
            NODES[0]: listed(*nodes),
            PODS[0]: listed(*pods),
            PODS[1]: listed(),
            GANG_LISTS[0]: listed(*gangs),
            GANG_LISTS[1]: listed(),
            GANGS: {"resources": []},
        }
    )


def machine(number: int) -> Json:
    """A node, in its rack and zone."""
    named = node(f"node-{number:04}", 8)
    named["metadata"]["labels"] = {
        "topology.kubernetes.io/zone": f"zone-{number // 1_000}",
        "topology.kubernetes.io/rack": f"rack-{number // 16:03}",
    }
    return named


def running(number: int, life: int = 0) -> Json:
    """A pod of a gang that runs; those of later lives take its place."""
    place = f"node-{number % NODES_NUMBER:04}"
    gang = f"train-{number // GANG_PODS}-{life}"
    runs = pod(f"run-{number}-{life}", gang=gang, node=place)
    runs["status"]["startTime"] = STARTED
    return runs


def gang_that_runs(number: int, life: int = 0) -> Json:
    """A gang of which every pod has a node."""
    return {
        "metadata": {"namespace": "team", "name": f"train-{number}-{life}"},
        "spec": {"min": GANG_PODS},
        "status": {
            "members": {"total": GANG_PODS, "byState": {"bound": GANG_PODS}},
            "startedAt": STARTED,
            "runTimeSeconds": 36_000,
        },
    }


def gang_that_waits(number: int) -> Json:
    """A gang of the queue."""
    text = f"gang team/wait-{number} needs 32 pods of 8 nvidia.com/gpu; 4 fit"
    return {
        "metadata": {"namespace": "team", "name": f"wait-{number}"},
        "spec": {"min": 32},
        "status": {
            "members": {"total": 32, "byState": {"pending": 32}},
            "position": number + 1,
            "waitingSince": STARTED,
            "reason": "Unschedulable",
            "message": text,
        },
    }


@contextmanager
def host(config: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command, and the link that it prints."""
    call = [sys.executable, "-c", "from kubectl_gangsched.main import main; main()", "ui"]
    with subprocess.Popen(
        [*call, "--no-browser", "--kubeconfig", str(config)],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            match = LINK.search(process.stdout.readline())
            assert match is not None
            yield process, match[0]
        finally:
            process.terminate()


def new_page(browser: Browser) -> Page:
    """An empty tab."""
    page = browser.new_context(reduced_motion="reduce").new_page()
    page.set_default_timeout(60_000)
    return page


def _demo_first_ms(browser: Browser, folder: Path) -> float:
    """From the command to the first sentence, with a browser that runs already."""
    page = new_page(browser)
    with watched(folder, cluster()) as (_, config):
        began_s = time.monotonic()
        with host(config) as (_, link):
            page.goto(link)
            page.wait_for_selector("h1:not(.loading)")
            took_ms = 1_000 * (time.monotonic() - began_s)
            assert "nvidia.com/gpu are free" in page.inner_text("h1")

    page.context.close()
    return took_ms


def wait_for_lists(fake: FakeWatches) -> None:
    """Until the host watches everything, and has made its first moment."""
    deadline_s = time.monotonic() + 120
    while {NODES[0], PODS[0], GANG_LISTS[0]} - set(fake.watching):
        assert time.monotonic() < deadline_s, fake.watching
        time.sleep(0.05)

    time.sleep(5.0)  # the first moment is made behind them


def _bind_ms(fake: FakeWatches, page: Page, number: int) -> float:
    """From a bind in the API server until the frame that has it."""
    before = page.evaluate(FREE)
    began_s = time.monotonic()
    # The first thousand nodes are full.
    place = f"node-{1_000 + number}"
    fake.tell("MODIFIED", PODS[0], pod(f"wait-{number}", gang=f"wait-{number}", node=place))
    page.wait_for_function("before => " + FREE + " !== before", arg=before, polling="raf")
    return 1_000 * (time.monotonic() - began_s)


def _away(fake: FakeWatches, page: Page) -> tuple[float, float]:
    """Until the page says that a silent API server is away, and until it is whole again."""
    fake.is_silent = True
    began_s = time.monotonic()
    page.wait_for_selector(".fresh.behind")
    behind_s = time.monotonic() - began_s

    time.sleep(10.0)
    before = page.evaluate(FREE)
    fake.tell("MODIFIED", PODS[0], pod("wait-3999", gang="wait-3999", node="node-2000"))
    fake.is_silent = False
    began_s = time.monotonic()
    page.wait_for_function("before => " + FREE + " !== before", arg=before, polling="raf")
    page.wait_for_selector(".fresh.live")
    return behind_s, time.monotonic() - began_s


def heap_mib(page: Page) -> float:
    """What the scripts of a page hold, behind a collection of garbage."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    used = session.send("Runtime.getHeapUsage")["usedSize"]
    session.detach()
    return float(used) / 2**20


def resident_mib(pid: int) -> float:
    """What a process has in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
