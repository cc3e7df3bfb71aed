"""A soak: gangs of every kind come, run and go, on a real API server, while the daemon is watched.

`python -m bench.soak [--minutes 30] [--rate 50] [--seed 1] [--out FILE.csv]`. kwok plays the nodes.
Every five seconds resident memory, descriptors and stalls of the event loop are sampled. At the end
what the daemon knows is compared with a LIST of everything. The line through resident memory begins
after ten minutes, or a third of a shorter run. Exit code 1 when memory grows by 2 MB an hour or
more, descriptors become more, or the caches are not equal to the LIST.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import astuple, fields
from pathlib import Path

from control_plane import ControlPlane
from control_plane.api import Api
from control_plane.applying import apply_manifests
from control_plane.daemon import Daemon

from bench.soak.caches import differences
from bench.soak.churn import Churn, prepare
from bench.soak.samples import MINUTE_S, Sample, take_sample
from bench.soak.summary import judge

EVERY_S = 5.0
LEAST_MINUTES = 4.0
EQUAL_WITHIN_S = 60.0
NODES_PER_RATE = 1.6
"""Nodes of 8 GPUs for each pod a second: nearly all GPUs are in use, so that some wait and some
preempt.
"""


def soak(
    *, minutes: float, rate: float, seed: int, out: Path | None
) -> tuple[list[Sample], list[str]]:
    """The samples, which are written to `out`, and in what the caches differ from a LIST at the
    end.
    """
    with (
        ControlPlane(kwok=True, for_load=True) as plane,
        closing(Api.of(plane)) as api,
        ExitStack() as stack,
    ):
        apply_manifests(api)
        prepare(api, round(rate * NODES_PER_RATE))
        daemon = Daemon(plane)
        stack.callback(daemon.kill)  # Events that nobody waits for need not be written
        daemon.start()
        with Churn(api, rate=rate, seed=seed) as churn:
            samples = watch(daemon, churn, minutes=minutes)
        print(
            f"{churn.created} pods created, {churn.created / (minutes * MINUTE_S):.1f} a second",
            flush=True,
        )
        if out is not None:
            write(samples, out)
        return samples, settle(api, daemon)


def write(samples: Sequence[Sample], out: Path) -> None:
    """Write a CSV file."""
    with out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(field.name for field in fields(Sample))
        writer.writerows(astuple(sample) for sample in samples)


def watch(daemon: Daemon, churn: Churn, *, minutes: float) -> list[Sample]:
    """Sample until the time is over; a line a minute."""
    samples, began_s = list[Sample](), time.monotonic()
    while time.monotonic() < began_s + minutes * MINUTE_S:
        time.sleep(EVERY_S)
        churn.check()
        daemon.check()
        try:
            samples.append(sample := take_sample(daemon, began_s))
        except TimeoutError:
            print(
                f"{time.monotonic() - began_s:6.0f} s  the daemon's metrics are not answered"
                " within 5 s",
                flush=True,
            )
            continue
        if len(samples) % round(MINUTE_S / EVERY_S) == 0:
            print(
                f"{sample.at_s:6.0f} s  RSS {sample.rss_mb:6.1f} MB  descriptors"
                f" {sample.descriptors:3}  longest stall {sample.stall_s:.3f} s  CPU"
                f" {sample.cpu_s / sample.at_s:4.0%}  pods {sample.pods:5}  gangs {sample.gangs:4} "
                f" bound {sample.bound:6}  preempted {sample.preempted:5}  Events {sample.events:5}"
                f"  under way {churn.behind}",
                flush=True,
            )
    return samples


def settle(api: Api, daemon: Daemon) -> list[str]:
    """Wait until the caches are equal to a LIST; what is left of the differences."""
    deadline_s = time.monotonic() + EQUAL_WITHIN_S
    while (found := differences(api, daemon)) and time.monotonic() < deadline_s:
        time.sleep(1.0)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write the samples."""
    parser = argparse.ArgumentParser(
        prog="bench.soak", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument(
        "--rate", type=float, default=50.0, help="pods created a second, and as many deleted"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=None, help="write the samples to this CSV file")
    asked = parser.parse_args(arguments)
    if asked.minutes < LEAST_MINUTES:
        parser.error(f"a line through memory needs {LEAST_MINUTES:g} minutes or more")
    print(f"{asked.minutes:g} minutes, {asked.rate:g} pods a second, seed {asked.seed}", flush=True)
    samples, found = soak(minutes=asked.minutes, rate=asked.rate, seed=asked.seed, out=asked.out)
    return int(bool(judge(samples, found)))


if __name__ == "__main__":
    sys.exit(main())
