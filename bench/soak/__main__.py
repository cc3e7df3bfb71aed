"""A soak: gangs of every kind come, run and go, on a real API server, while the daemon is watched.

`python -m bench.soak [--minutes 30] [--rate 50] [--seed 1] [--out FILE.csv]`. kwok plays the nodes. Every five seconds
resident memory, descriptors and stalls of the event loop are sampled. At the end what the daemon knows is compared with
a LIST of everything. The line through resident memory begins after ten minutes, or a third of a shorter run. Exit code
1 when memory grows by 2 MB an hour or more, descriptors drift, or the caches are not equal to the LIST.
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
from bench.soak.samples import HOUR_S, MINUTE_S, Sample, descriptors_drift, rss_slope, take_sample

EVERY_S = 5.0
WARM_UP_S = 600.0
LEAST_MINUTES = 4.0
GOAL_MB_PER_HOUR = 2.0
MOST_DRIFT = 3
EQUAL_WITHIN_S = 60.0
NODES_PER_RATE = 1.6
"""Nodes of 8 GPUs for each pod a second: nearly all GPUs are in use, so that some wait and some preempt."""


def soak(*, minutes: float, rate: float, seed: int, out: Path | None) -> tuple[list[Sample], list[str]]:
    """The samples, which are written to `out`, and in what the caches differ from a LIST at the end."""
    with ControlPlane(kwok=True, for_load=True) as plane, closing(Api.of(plane)) as api, ExitStack() as stack:
        apply_manifests(api)
        prepare(api, round(rate * NODES_PER_RATE))
        daemon = Daemon(plane)
        stack.callback(daemon.kill)  # Events that nobody waits for need not be written
        daemon.start()
        with Churn(api, rate=rate, seed=seed) as churn:
            samples = watch(daemon, churn, minutes=minutes)
        print(f"{churn.created} pods created, {churn.created / (minutes * MINUTE_S):.1f} a second", flush=True)
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
            print(f"{time.monotonic() - began_s:6.0f} s  the daemon's metrics are not answered within 5 s", flush=True)
            continue
        if len(samples) % round(MINUTE_S / EVERY_S) == 0:
            print(
                f"{sample.at_s:6.0f} s  RSS {sample.rss_mb:6.1f} MB  descriptors {sample.descriptors:3}  longest stall "
                f"{sample.stall_s:.3f} s  CPU {sample.cpu_s / sample.at_s:4.0%}  pods {sample.pods:5}  gangs "
                f"{sample.gangs:4}  bound {sample.bound:6}  preempted {sample.preempted:5}  Events "
                f"{sample.events:5}  under way {churn.behind}",
                flush=True,
            )
    return samples


def settle(api: Api, daemon: Daemon) -> list[str]:
    """Wait until the caches are equal to a LIST; what is left of the differences."""
    deadline_s = time.monotonic() + EQUAL_WITHIN_S
    while (found := differences(api, daemon)) and time.monotonic() < deadline_s:
        time.sleep(1.0)
    return found


def judge(samples: Sequence[Sample], found: Sequence[str]) -> list[str]:
    """Print the figures; the goals that are missed."""
    warm_s = min(WARM_UP_S, samples[-1].at_s / 3)
    late = [sample for sample in samples if sample.at_s >= warm_s]
    grows, error = rss_slope(late)
    drift, stall_s = descriptors_drift(late), max(sample.lag_s for sample in late)
    print(
        f"after {warm_s:.0f} s, {len(late)} samples over {(late[-1].at_s - late[0].at_s) / HOUR_S:.2f} h: RSS "
        f"{late[0].rss_mb:.1f} to {late[-1].rss_mb:.1f} MB, {grows:+.2f} ± {error:.2f} MB an hour (standard error); "
        f"descriptors {min(s.descriptors for s in late)} to {max(s.descriptors for s in late)}, drift {drift:+g}; "
        f"longest stall {late[-1].stall_s:.3f} s in all, {stall_s:.3f} s at a sample"
    )
    print("the caches are equal to the LIST" if not found else "\n".join(found[:20]))
    missed = [f"memory grows by {grows:.2f} MB an hour"] if grows >= GOAL_MB_PER_HOUR else []
    missed += [f"descriptors drift by {drift:+g}"] if abs(drift) > MOST_DRIFT else []
    return missed + (["the caches differ from the LIST"] if found else [])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write the samples."""
    parser = argparse.ArgumentParser(prog="bench.soak", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=50.0, help="pods created a second, and as many deleted")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=None, help="write the samples to this CSV file")
    asked = parser.parse_args(arguments)
    if asked.minutes < LEAST_MINUTES:
        parser.error(f"a line through memory needs {LEAST_MINUTES:g} minutes or more")
    print(f"{asked.minutes:g} minutes, {asked.rate:g} pods a second, seed {asked.seed}", flush=True)
    samples, found = soak(minutes=asked.minutes, rate=asked.rate, seed=asked.seed, out=asked.out)
    missed = judge(samples, found)
    for each in missed:
        print(f"missed: {each}", file=sys.stderr)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
