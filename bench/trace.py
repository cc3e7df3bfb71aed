"""`python -m bench.trace [TRACE.csv]`: jobs of a trace through the running system, with its two
promises checked.

It starts a control plane with fake nodes, runs gangsched beside it, and submits each job as a
PodGroup of whole-GPU pods (`bench.jobs` says how). Exit code 0: every job that can fit finished, no
node was over-committed at any moment, and no gang was between none and its minimum for longer than
2 s. Else 1, with messages.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from control_plane import ControlPlane, ControlPlaneError
from control_plane.api import Api
from control_plane.applying import apply_manifests
from control_plane.checks import Checks
from control_plane.daemon import Daemon
from control_plane.following import Following
from control_plane.objects import create_all, namespace, node

from bench import figures
from bench.jobs import Job, TraceError, can_fit, choose, read_trace, to_jobs, too_big
from bench.replay import NAMESPACE, Replay

SMALL_TRACE = Path(__file__).with_name("data") / "small_trace.csv"


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.trace", description=(__doc__ or "").partition("\n\n")[0]
    )
    many: dict[str, Any] = {"type": float, "metavar": "S"}
    parser.add_argument(
        "trace", nargs="?", type=Path, default=SMALL_TRACE, help="CSV; default: our small one"
    )
    parser.add_argument(
        "--jobs", type=int, default=500, help="so many of it, drawn by lot (default %(default)s)"
    )
    parser.add_argument(
        "--min-gpus", type=int, default=1, help="only jobs with at least so many GPUs"
    )
    parser.add_argument("--nodes", type=int, default=20, help="(default %(default)s)")
    parser.add_argument("--gpus", type=int, default=8, help="GPUs of a node (default %(default)s)")
    parser.add_argument(
        "--speedup", type=float, default=60.0, help="running times are divided by it (%(default)g)"
    )
    parser.add_argument(
        "--max-run-s", default=60.0, help="and cut to this (default %(default)g)", **many
    )
    parser.add_argument(
        "--load", type=float, default=1.2, help="work arriving per GPU (default %(default)g)"
    )
    parser.add_argument(
        "--too-big", type=int, default=2, help="impossible jobs added at the start (%(default)s)"
    )
    parser.add_argument(
        "--stall-s", default=60.0, help="give up after so long without a move (%(default)g)", **many
    )
    parser.add_argument(
        "--limit-s", default=1800.0, help="give up after so long in all (%(default)g)", **many
    )
    parser.add_argument("--seed", type=int, default=1, help="(default %(default)s)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures as JSON")
    return parser.parse_args(argv)


def jobs_of(asked: argparse.Namespace) -> list[tuple[Job, bool]]:
    """The jobs to play, each with whether it can fit. Raises TraceError."""
    rng = random.Random(asked.seed)
    rows = choose(read_trace(asked.trace), jobs=asked.jobs, min_gpus=asked.min_gpus, rng=rng)
    if not rows:
        raise TraceError(f"The trace {asked.trace} has no job of {asked.min_gpus} GPUs or more.")
    cluster = {"nodes": asked.nodes, "per_node": asked.gpus}
    jobs = to_jobs(
        rows, **cluster, speedup=asked.speedup, max_run_s=asked.max_run_s, load=asked.load, rng=rng
    )
    return [(job, can_fit(job, **cluster)) for job in [*too_big(asked.too_big, **cluster), *jobs]]


def play(asked: argparse.Namespace, jobs: list[tuple[Job, bool]]) -> dict[str, Any]:
    """Run the system and the jobs; returns the figures."""
    checks = Checks()
    with ControlPlane(kwok=True) as plane:
        api = Api.of(plane)
        apply_manifests(api)
        nodes = [node(f"node-{number:03}", gpus=asked.gpus) for number in range(1, asked.nodes + 1)]
        create_all(api, [namespace(NAMESPACE), *nodes])
        replay = Replay(api, checks, jobs, say=say)
        with (
            Daemon(plane) as daemon,
            Following(api, "/api/v1/nodes", on_change=checks.node_changed),
            Following(api, "/api/v1/pods", on_change=replay.pod_changed) as pods,
        ):
            replay.run(stall_s=asked.stall_s, limit_s=asked.limit_s, alive=daemon.check)
            pods.check()
            checks.look(time.monotonic())
            for name, played in replay.played.items():
                if not played.fits and checks.bound(name):
                    replay.faults.append(
                        f"{name} cannot fit, and {checks.bound(name)} pods of it are bound."
                    )
            found = figures.summary(
                replay,
                gpus=asked.nodes * asked.gpus,
                in_use=checks.gpus_in_use,
                violations=checks.violations,
                longest_partly_s=checks.longest_partly_s,
            )
    return found


def say(text: str) -> None:
    """Print one line and flush."""
    print(text, flush=True)


def main(argv: list[str] | None = None) -> int:
    """The exit code."""
    asked = arguments(argv)
    try:
        jobs = jobs_of(asked)
        gangs = sum(1 for job, _ in jobs if len(job.pods) > 1)
        say(
            f"{len(jobs)} jobs ({gangs} of more than one pod) of {asked.trace.name} on"
            f" {asked.nodes} nodes of {asked.gpus} GPUs; seed {asked.seed}, speedup"
            f" {asked.speedup:g}, load {asked.load:g}"
        )
        found = {"seed": asked.seed, "speedup": asked.speedup, "gangs": gangs, **play(asked, jobs)}
    except (TraceError, ControlPlaneError) as error:
        print(f"trace: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    for line in figures.lines(found):
        say(line)
    if asked.out:
        asked.out.write_text(json.dumps(found, indent=2) + "\n")
    return 1 if found["violations"] or found["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
