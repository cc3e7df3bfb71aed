"""The benchmarks of planning, in a small form: they run, say what they measured, and believe nothing unproved."""

import csv
import json
import random
from pathlib import Path
from typing import Any

import pytest

from bench import clusters, completeness, packing, plan

SEED = 3


def figures(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """The JSON objects printed, one a line."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]


def write(path: Path, *rows: dict[str, Any]) -> str:
    """A CSV file with these rows."""
    with path.open("w", newline="", encoding="utf-8") as lines:
        table = csv.DictWriter(lines, rows[0].keys())
        table.writeheader()
        table.writerows(rows)
    return str(path)


def test_plans_are_timed(capsys: pytest.CaptureFixture[str]) -> None:
    """Every case is placed whole by `plan` and by the naive loop, and both are timed."""
    plan.main(["--part", "50", "--repeat", "1", "--json"])
    found = figures(capsys)
    assert [(row["pods"], row["nodes"]) for row in found] == [(20, 100), (20, 100), (2, 20), (2, 100)]
    assert all(row["plan_ms"] > 0 and row["naive_ms"] > 0 for row in found)


def test_a_plan_that_leaves_pods_out_is_no_figure() -> None:
    """A case that does not fit ends the benchmark instead of being timed."""
    gang = clusters.gang("g", clusters.pods("p", clusters.shape(gpu=8), 2))
    too_large = plan.Case("two", [clusters.node("n", gpu=8)], clusters.group("g", gang), 1.0)
    with pytest.raises(SystemExit, match="was to be placed whole"):
        plan.measure(too_large, repeat=1)


def test_feasible_cases_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    """The share of gangs that the exhaustive solver places is counted, and none is placed that it does not."""
    completeness.main(["--cases", "50", "--seed", str(SEED), "--json"])
    (found,) = figures(capsys)
    assert (found["feasible"], found["found"], found["unsound"]) == (50, 50, 0)


def test_clusters_are_filled(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Every policy fills both clusters, never beyond their GPUs, and packing beats spreading."""
    nodes = write(
        tmp_path / "nodes.csv",
        *({"sn": f"n{n}", "cpu_milli": 64_000, "memory_mib": 262_144, "gpu": 8} for n in range(8)),
    )
    pods = write(
        tmp_path / "pods.csv",
        *(
            {"cpu_milli": 4_000 * gpu, "memory_mib": 16_384 * gpu, "num_gpu": gpu, "gpu_milli": share}
            for gpu, share in ((1, 1000), (1, 1000), (2, 1000), (8, 1000), (1, 500), (0, 0))
        ),
    )
    jobs = write(tmp_path / "jobs.csv", *({"num_gpus": size} for size in (1, 1, 1, 2, 4, 8, 16)))
    packing.main(["--openb", nodes, pods, "--philly", jobs, "--seeds", "2", "--json"])
    found = figures(capsys)
    assert [(row["trace"], row["policy"]) for row in found] == [
        (trace, policy) for trace in ("openb", "philly") for policy in packing.POLICIES
    ]
    assert all(0 < row["filled_gpus"] <= row["gpus"] for row in found)
    by_name = {(row["trace"], row["policy"]): row["filled_gpus"] for row in found}
    for trace in ("openb", "philly"):
        assert by_name[trace, "gangsched"] > by_name[trace, "least-allocated"]


def test_a_trace_that_is_not_there_is_skipped(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Without its file a trace costs a sentence, not a failure."""
    packing.main(["--philly", str(tmp_path / "none.csv")])
    assert capsys.readouterr().out.splitlines() == [
        "The openb trace is not there (--openb); skipped.",
        "The philly trace is not there (--philly); skipped.",
    ]


def test_a_gang_is_placed_whole_or_not_at_all() -> None:
    """The baselines, too, take back a gang whose last pod found no node."""
    ledger = clusters.ledger([clusters.node("n", cpu=64_000, memory=2**40, gpu=8)])
    before = ledger.free.copy()
    arrival = (clusters.shape(cpu=1000, memory=2**30, gpu=5),) * 2
    for place in packing.POLICIES.values():
        assert place(arrival, ledger, random.Random(SEED)) is None
        assert (ledger.free == before).all()
