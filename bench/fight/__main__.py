"""Play a load under gangsched and under kube-scheduler, and print what came of it.

`python -m bench.fight [--virtual] [--minutes 10] [--load small|large|wide] [--seed 1] [--only
gangsched|kube-scheduler] [--hold-back 60] [--out FILE.json]` plays the same load twice: as gangs
with gangsched, and as plain pods with kube-scheduler's own preemption. Each has a control plane of
its own, or, with `--virtual`, a virtual clock, on which a model stands for kube-scheduler and all
requests are answered at once.

A gang is stopped when an eviction takes it below its minimum; plain pods are counted by the same
jobs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from bench.fight import real, virtual
from bench.fight.count import Figures
from bench.fight.load import GPUS, LOADS, NODES, OURS, THEIRS


def main(arguments: Sequence[str] | None = None) -> int:
    """Play, print and write; exit code 1 unless ours evicts fewer pods and stops fewer gangs."""
    parser = argparse.ArgumentParser(
        prog="bench.fight", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--load", choices=tuple(LOADS), default="small")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=(OURS, THEIRS))
    parser.add_argument("--virtual", action="store_true")
    parser.add_argument(
        "--hold-back", type=int, default=60, help="seconds that lower work is held back (V27)"
    )
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    offered = sum(kind.offered_gpus for kind in LOADS[given.load])
    print(f"{offered:.0f} GPUs asked for on average, {NODES * GPUS} there are; seed {given.seed}")
    contenders = (given.only,) if given.only else (OURS, THEIRS)
    found = [_play(each, given) for each in contenders]
    for name in Figures.__dataclass_fields__:
        print(f"{name:24}" + "".join(f"{getattr(each, name)!s:>16}" for each in found))
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n")
    if len(found) == 1:
        return 0
    ours, theirs = found
    better = ours.evicted_pods < theirs.evicted_pods and ours.gangs_stopped < theirs.gangs_stopped
    return 0 if better else 1


def _play(scheduler: str, given: argparse.Namespace) -> Figures:
    load, minutes, seed = given.load, given.minutes, given.seed
    if not given.virtual:
        return real.play(scheduler, load, minutes, seed)
    if scheduler == OURS:
        return virtual.play_gangs(load, minutes, seed, hold_back_s=given.hold_back)
    return virtual.play_pods(load, minutes, seed)


if __name__ == "__main__":
    raise SystemExit(main())
