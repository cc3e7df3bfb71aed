"""bench.packing in a small form: every policy fills both clusters, and a gang is placed whole."""

import csv
import random
from pathlib import Path
from typing import Any

import pytest

from bench import packing
from tests import builders
from tests.sizes import of_size
from tests.unit.bench.printed import figures


def write(path: Path, *rows: dict[str, Any]) -> str:
    """A CSV file with these rows."""
    with path.open("w", newline="", encoding="utf-8") as lines:
        table = csv.DictWriter(lines, rows[0].keys())
        table.writeheader()
        table.writerows(rows)
    return str(path)


@pytest.mark.long
def test_clusters_are_filled(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every policy fills both clusters, never beyond their GPUs, and packing beats spreading."""
    monkeypatch.setattr(
        packing, "PHILLY_GPUS", of_size(packing.PHILLY_GPUS[::12], packing.PHILLY_GPUS)
    )
    nodes = write(
        tmp_path / "nodes.csv",
        *(
            {"sn": f"n{n}", "cpu_milli": 64_000, "memory_mib": 262_144, "gpu": 8}
            for n in range(of_size(4, 8))
        ),
    )
    pods = write(
        tmp_path / "pods.csv",
        *(
            {
                "cpu_milli": 4_000 * gpu,
                "memory_mib": 16_384 * gpu,
                "num_gpu": gpu,
                "gpu_milli": share,
            }
            for gpu, share in ((1, 1000), (1, 1000), (2, 1000), (8, 1000), (1, 500), (0, 0))
        ),
    )
    jobs = write(tmp_path / "jobs.csv", *({"num_gpus": size} for size in (1, 1, 1, 2, 4, 8, 16)))
    packing.main(["--openb", nodes, pods, "--philly", jobs, "--seeds", of_size("1", "2"), "--json"])
    found = figures(capsys)
    assert [(row["trace"], row["policy"]) for row in found] == [
        (trace, policy) for trace in ("openb", "philly") for policy in packing.POLICIES
    ]
    assert all(0 < row["filled_gpus"] <= row["gpus"] for row in found)
    by_name = {(row["trace"], row["policy"]): row["filled_gpus"] for row in found}
    for trace in ("openb", "philly"):
        assert by_name[trace, "gangsched"] > by_name[trace, "least-allocated"]


def test_a_trace_that_is_not_there_is_skipped(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Without its file a trace costs a sentence, not a failure."""
    packing.main(["--philly", str(tmp_path / "none.csv")])
    assert capsys.readouterr().out.splitlines() == [
        "The openb trace is not there (--openb); skipped.",
        "The philly trace is not there (--philly); skipped.",
    ]


def test_a_gang_is_placed_whole_or_not_at_all() -> None:
    """The baselines, too, take back a gang whose last pod found no node."""
    ledger = builders.ledger([builders.node("n", cpu_milli=64_000, memory_bytes=2**40, gpus=8)])
    before = ledger.free.copy()
    arrival = (builders.shape(cpu_milli=1000, memory_bytes=2**30, gpus=5),) * 2
    for place in packing.POLICIES.values():
        assert place(arrival, ledger, random.Random(3)) is None
        assert (ledger.free == before).all()
