"""`python -m bench.fgd FOLDER`: FGD's experiment on openb; the share of GPUs allocated when the
cluster is full.

FOLDER has the trace's files. Pods arrive in an order by lot until they have asked for 130 % of the
GPUs, and none ends; what does not fit is turned away. Counted is the share of GPUs that pods have
when 100 % and when 130 % have been asked for, as means over `--seeds` orders. Published are the
paper's figures; the rest is measured here (bench/results/backfill.md).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.fgd.candidate import Candidate
from bench.fgd.policies import BestFit, Fgd, Gangsched
from bench.fgd.trace import Ask, Cluster, arrivals, read_pods, typical

POLICIES: dict[str, type[BestFit] | type[Fgd] | type[Gangsched]] = {
    "gangsched": Gangsched,
    "candidate": Candidate,
    "best-fit": BestFit,
    "FGD": Fgd,
}
PUBLISHED = {"default": 95.33, "gpuspec33": 88.01, "multigpu50": 97.19}
NODES, PODS = "openb_node_list_gpu_node.csv", "openb_pod_list_{}.csv"


def main(argv: Sequence[str] | None = None) -> None:
    """Play every policy on every list and print a line for each."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.fgd", description=(__doc__ or "").partition("\n\n")[0]
    )
    parser.add_argument("folder", type=Path, help="where openb's CSV files are")
    parser.add_argument(
        "--seeds", type=int, default=10, help="orders of arrival (default %(default)s)"
    )
    parser.add_argument(
        "--list", action="append", choices=PUBLISHED, help="only this pod list; may be repeated"
    )
    parser.add_argument(
        "--policy", action="append", choices=POLICIES, help="only this policy; may be repeated"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object per list and policy"
    )
    asked = parser.parse_args(argv)
    table = Table(
        "pods", "policy", "at 100 %", "at 130 %", "least-most", "FGD as published", "CPU s a run"
    )
    for name in asked.list or PUBLISHED:
        pods = read_pods(asked.folder / PODS.format(name))
        for policy in asked.policy or POLICIES:
            begun_s = time.process_time()
            runs = [
                play(asked.folder / NODES, pods, policy, seed) for seed in range(1, asked.seeds + 1)
            ]
            seconds = (time.process_time() - begun_s) / asked.seeds
            full, inflated = ([100 * run[part] for run in runs] for part in (0, 1))
            if asked.json:
                found = {
                    "pods": name,
                    "policy": policy,
                    "full": full,
                    "inflated": inflated,
                    "seconds": seconds,
                }
                print(json.dumps(found), flush=True)
            row = (f"{statistics.mean(full):.2f}", f"{statistics.mean(inflated):.2f}")
            spread = f"{min(inflated):.2f}-{max(inflated):.2f}"
            table.add_row(name, policy, *row, spread, f"{PUBLISHED[name]}", f"{seconds:.1f}")
    if not asked.json:
        Console().print(table)


def play(nodes: Path, pods: Sequence[Ask], policy: str, seed: int) -> tuple[float, float]:
    """Shares allocated when 100 % of the GPUs have been asked for, and at the end."""
    cluster = Cluster(nodes)
    chooser = POLICIES[policy](cluster, typical(pods))
    arrived, full = 0, None
    for ask in arrivals(pods, cluster.capacity, seed):
        if full is None and arrived >= cluster.capacity:
            full = cluster.allocated
        arrived += ask.total
        feasible = cluster.fits(ask)
        if feasible.any():
            cluster.take(ask, *chooser.choose(ask, feasible))
    return cluster.allocated if full is None else full, cluster.allocated


if __name__ == "__main__":
    main()
