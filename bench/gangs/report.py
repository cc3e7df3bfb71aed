"""What was measured, for people and for machines: medians, ratios, JSON, a table.

Invariant: the JSON holds every measurement and the machine; whatever is printed is made from it.
Medians are of whole measurements: one figure of a median line may come from another run than the
next.
"""

from __future__ import annotations

import json
import platform
import re
import statistics
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import gangsched
from bench.gangs.cases import CASES, Case
from bench.gangs.contenders import cpus
from bench.gangs.result import Result

SIZES = sorted({members for case in CASES for members, _ in case.sizes})
SIZE_FIGURES = tuple(
    f"gang{members}_{quantile}_ms" for members in SIZES for quantile in ("p50", "p99")
)
FIGURES = (
    "offered_pods_per_s",
    *SIZE_FIGURES,
    "pods_per_s",
    "binds_per_s",
    "total_s",
    "start_to_first_bind_s",
    "ready_s",
    "pod_p50_ms",
    "pod_p99_ms",
    "gang_p50_ms",
    "cpu_s",
    "rss_mib",
    "stall_ms",
    "starved_s",
    "server_cpu_s",
    "foreign_cpu_s",
)
COLUMNS = (
    ("pods/s", "pods_per_s", ".0f"),
    ("first→last bind, pods/s", "binds_per_s", ".0f"),
    ("created→bound p50, ms", "pod_p50_ms", ".0f"),
    ("p99, ms", "pod_p99_ms", ".0f"),
    ("gang p50, ms", "gang_p50_ms", ".0f"),
    *(
        (f"gang of {m}, {quantile}, ms", f"gang{m}_{quantile}_ms", ".0f")
        for m in SIZES
        for quantile in ("p50", "p99")
    ),
    ("start→first bind, s", "start_to_first_bind_s", ".2f"),
    ("CPU, s", "cpu_s", ".2f"),
    ("RSS, MiB", "rss_mib", ".0f"),
)


class Report:
    """Collects results, a file for each case, written after every measurement: an interruption
    loses one at most.
    """

    def __init__(self, folder: Path | None, *, resume: bool) -> None:
        """`resume` keeps the measurements that the folder has; without it a case begins anew."""
        self._folder = folder
        self.cases: dict[str, Any] = read_cases(folder) if folder is not None and resume else {}

    def runs(self, case: Case, contender: str) -> int:
        """How often this contender was measured."""
        return len(self.cases.get(case.name, {}).get("runs", {}).get(contender, ()))

    def add(self, case: Case, result: Result) -> None:
        """Put in one measurement."""
        known = self.cases.setdefault(
            case.name, {"case": case.name, "title": case.title, "runs": {}}
        )
        known["machine"] = machine()
        known["measured"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        known["runs"].setdefault(result.contender, []).append(result.as_dict())
        order = ("gangsched", *case.against)
        known["medians"] = {
            name: medians(known["runs"][name]) for name in order if name in known["runs"]
        }
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps(known, indent=1, ensure_ascii=False) + "\n"
            (self._folder / f"{case.name}.json").write_text(text, encoding="utf-8")

    def line(self, result: Result) -> str:
        """One measurement, briefly."""
        row = result.as_dict()
        said = "  ".join(f"{key} {row[key]:g}" for key in FIGURES if key in row)
        return f"  {result.contender:15} {said}"

    def table(self) -> str:
        """All cases as Markdown tables, in the order of `CASES`."""
        return "\n".join(table(self.cases[case.name]) for case in CASES if case.name in self.cases)


def read_cases(folder: Path) -> dict[str, Any]:
    """The cases that a folder has, by name."""
    files = {case.name: folder / f"{case.name}.json" for case in CASES}
    return {
        name: json.loads(file.read_text("utf-8")) for name, file in files.items() if file.exists()
    }


def medians(runs: list[dict[str, Any]]) -> dict[str, float]:
    """The median of each figure over the runs of one contender."""
    return {
        key: round(statistics.median(run[key] for run in runs), 4)
        for key in FIGURES
        if all(key in run for run in runs)
    }


def table(case: dict[str, Any]) -> str:
    """One case as a Markdown table; the ratio is gangsched's pods/s over the other's."""
    figures = case["medians"]
    columns = [column for column in COLUMNS if any(column[1] in row for row in figures.values())]
    lines = [
        f"\n### {case['title']}\n",
        "| | " + " | ".join(["gangsched is", *(title for title, _, _ in columns)]) + " |",
        "|---|" + "---:|" * (len(columns) + 1),
    ]
    own = figures.get("gangsched", {}).get("pods_per_s")
    for name, row in figures.items():
        ratio = f"{own / row['pods_per_s']:.2f} ×" if own and name != "gangsched" else ""
        cells = [format(row[key], spec) if key in row else "" for _, key, spec in columns]
        lines.append("| " + " | ".join([name, ratio, *cells]) + " |")
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    cpu = [
        line
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory = Path("/proc/meminfo").read_text().split()[1]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return {
        "cpus": cpus(),
        "cpu": cpu[0].partition(": ")[2] if cpu else platform.machine(),
        "memory_gib": round(int(memory) / 2**20, 1),
        "kernel": platform.release(),
        "python": (
            platform.python_version()
            + (" of the distribution" if sys.base_prefix == "/usr" else "")
        ),
        "gangsched": gangsched.__version__,
        "commit": commit.stdout.strip(),
        "kubernetes": _pinned("k8s.io/kubernetes"),
        "etcd": _pinned("go.etcd.io/etcd/server/v3"),
    }


def _pinned(module: str) -> str:
    """The version of a Go module that the control plane of the repository is built from."""
    requirements = Path("hack/control-plane/kubernetes/go.mod").read_text()
    pin = re.search(rf"^\s*{re.escape(module)} v(\S+)", requirements, re.MULTILINE)
    return pin[1] if pin else "unknown"
