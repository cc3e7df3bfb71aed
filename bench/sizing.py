"""Memory and CPU of a replica by the size of the cluster: the table in the chart's README.

    python -m bench.sizing [--seconds 20]

Invariant: each row is a start of `gangsched run` before a server that only speaks lists and watches
(`bench.scale`), where every running pod is a member of a gang of 8, which costs most. Nothing is
written unless all rows were measured. What it does *not* show: TLS, claims and devices, and the
gangs API.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.scale.__main__ import HEARTBEATS_A_S, POD_EVENTS_A_S, Result, measure

SIZES = ((200, 2_000), (500, 10_000), (5_000, 10_000), (5_000, 100_000))
"""Nodes and pods; on the smallest a gang of 1,000 GPUs still fits."""
GANG_SIZE = 8
PAGE = Path(__file__).parents[1] / "charts" / "gangsched" / "README.md"
COLUMNS = ("nodes", "pods", "memory", "CPU of the start", "CPU at rest", "CPU while busy")


def table(results: Iterable[Result]) -> str:
    """The rows as Markdown."""
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---:|' * len(COLUMNS)}"]
    for result in results:
        cells = (
            f"{result.nodes:,}",
            f"{result.pods:,}",
            f"{result.rss_mib:.0f} MiB",
            f"{result.start_cpu_s:.1f} s",
            millicores(result.idle_core_percent),
            millicores(result.busy_core_percent),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def millicores(percent: float) -> str:
    """A share of a core as Kubernetes writes it."""
    return f"{percent * 10:.0f}m"


def with_table(page: str, new: str) -> str:
    """The page with this table. Raises ValueError if it has none."""
    head = re.escape(table([]))
    changed, count = re.subn(rf"(?m)^{head}(?:\|.*\n)*", new, page)
    if count != 1:
        raise ValueError(f"the page has {count} tables that begin with {COLUMNS}")
    return changed


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="bench.sizing",
        description=(__doc__ or "").partition("\n")[0],
        epilog=f"busy: {HEARTBEATS_A_S:.0f} nodes and {POD_EVENTS_A_S:.0f} pods change a second",
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="over which CPU is measured")
    asked = parser.parse_args(arguments)
    page = PAGE.read_text()
    with_table(page, "")  # before minutes of measuring

    results = []
    for nodes, pods in SIZES:
        result = measure(nodes=nodes, pods=pods, seconds=asked.seconds, gang_size=GANG_SIZE)
        print(result, flush=True)
        results.append(result)
    PAGE.write_text(with_table(page, table(results)))
    print(table(results), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
