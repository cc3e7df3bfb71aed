"""bench.backfill: what its models promise, and that the real planner is measured like them."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.backfill.__main__ import KNOWN, SMALL_TRACE, main, stating
from bench.backfill.generate import SIZES, generate
from bench.backfill.models import CLASSES_S, Model, Policy, run_class_s
from gangsched.simulate.figures import late_s, promise_errors_s
from gangsched.simulate.simulator import Run
from gangsched.simulate.traces import make_shape
from gangsched.simulate.workload import GPU, Job
from tests.sizes import of_size


def job(name: str, at_s: float, run_s: float, *gpus: int) -> Job:
    """A job whose pods ask for so many GPUs each."""
    return Job(
        name=name,
        submit_s=at_s,
        run_s=run_s,
        pods=tuple(make_shape(((GPU, each),)) for each in gpus),
    )


def starts(runs: Sequence[Run]) -> dict[str, float | None]:
    """When each job started."""
    return {run.job.name: run.started_s for run in runs}


QUEUE = (
    job("running", 0, 100, 8),
    job("whole", 1, 10, 8, 8),
    job("long", 2, 200, 1),
    job("short", 3, 50, 1),
    job("longer", 4, 200, 8),
)
"""Two nodes: one is taken until 100; `whole` needs both."""


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Policy.FIFO, {"running": 0, "whole": 100, "long": 110, "short": 110, "longer": 110}),
        (Policy.SKIP, {"running": 0, "whole": 300, "long": 2, "short": 3, "longer": 100}),
        (Policy.EASY, {"running": 0, "whole": 100, "long": 110, "short": 3, "longer": 110}),
    ],
)
def test_policies(policy: Policy, expected: dict[str, float]) -> None:
    """FIFO lets nobody pass, skipping lets everybody, EASY only who is over by the time of the
    reservation.
    """
    assert starts(Model(policy, QUEUE, nodes=2, per_node=8).run()) == expected


def test_easy_lets_long_jobs_run_beside_a_reservation() -> None:
    """Room that the reservation leaves is for everybody: 4 of 8 GPUs are spare when the oldest job
    starts.
    """
    jobs = [
        job("running", 0, 100, 8),
        job("half", 1, 10, 6),
        job("spare", 2, 500, 2),
        job("more", 3, 500, 1),
    ]
    assert starts(Model(Policy.EASY, jobs[1:], nodes=1, per_node=8).run()) == {
        "half": 1,
        "spare": 2,
        "more": 11,
    }
    assert starts(Model(Policy.EASY, jobs, nodes=1, per_node=8).run())["half"] == 100


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("expected_s", [lambda job: job.run_s, run_class_s], ids=["exact", "class"])
def test_easy_keeps_every_promise(seed: int, expected_s: object) -> None:
    """Nobody starts after the time told when it became the oldest, and no node
    is over-committed.
    """
    dice = random.Random(seed)
    sizes: list[tuple[int, ...]] = [(1,), (1,), (2,), (4,), (8,), (8, 4), (8, 8, 8)]
    jobs = [
        job(f"j{n:03}", dice.uniform(0, 50_000), dice.lognormvariate(7, 1.5), *dice.choice(sizes))
        for n in range(200)
    ]
    model = Model(Policy.EASY, jobs, nodes=3, per_node=8, expected_s=expected_s)  # type: ignore[arg-type]
    runs = model.run()
    assert all(run.started_s is not None for run in runs)
    assert len(model.promised_s) > 20
    assert late_s(promise_errors_s(model.promised_s, model.runs)) == []
    ends = [(run.started_s or 0) + run.job.run_s for run in runs]
    for run in runs:
        at_s = run.started_s or 0
        held = sum(
            o.job.gpus
            for o, end_s in zip(runs, ends, strict=True)
            if (o.started_s or 0) <= at_s < end_s
        )
        assert held <= 24


def test_run_classes_are_never_too_short() -> None:
    """The bound of a job's class is at least its run time."""
    assert [run_class_s(job("j", 0, run_s, 1)) for run_s in (1, 600, 601, 1e9)] == [
        600,
        600,
        CLASSES_S[1],
        1e9,
    ]


def test_the_generated_trace_is_what_its_generator_makes() -> None:
    """The file in the repository has the sizes of the public list, and can be made again."""
    rows = generate(jobs=4000, gpus=96, load=0.95, seed=1)
    lines = SMALL_TRACE.read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(rows) + 1
    assert lines[1].endswith(f",{round(rows[0][1])},{rows[0][2]}")
    share = sum(size == 1 for _, _, size in rows) / len(rows)
    assert share == pytest.approx(SIZES[1] / sum(SIZES.values()), abs=0.002)


def test_half_of_the_jobs_state_their_class() -> None:
    """The same half in every run; all or none in the others."""
    jobs = [job(f"j{n}", 0, 700, 1) for n in range(1000)]
    stated = {name: [each.stated_s for each in stating(jobs, who)] for name, who in KNOWN.items()}
    assert set(stated["class known"]) == {3600}
    assert set(stated["nothing known"]) == {None}
    assert 450 < stated["half known"].count(3600) < 550
    assert stated["half known"] == [each.stated_s for each in stating(jobs, KNOWN["half known"])]


@pytest.mark.long
def test_the_bench_measures_all_policies_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the first jobs of our trace every policy starts them all; skipping's waits are near the
    real planner's.
    """
    jobs = of_size(120, 400)
    main(["--jobs", str(jobs), "--nodes", "4", "--out", str(tmp_path / "figures.json")])
    found = json.loads((tmp_path / "figures.json").read_text())["policies"]
    ours = [f"gangsched, {name}" for name in ("no reservations", "exact times", *KNOWN)]
    assert list(found) == ["FIFO", "skip", "EASY, exact times", "EASY, class known", *ours]
    for policy in found.values():
        assert policy["waits"][0]["jobs"] == policy["waits"][0]["started"] == jobs
    waits = {name: policy["waits"][0]["mean_s"] for name, policy in found.items()}
    assert waits["gangsched, no reservations"] < waits["FIFO"] / 2
    assert f"{jobs} jobs on 4 nodes of 8 GPUs" in capsys.readouterr().out
