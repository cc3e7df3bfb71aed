"""bench.gangs.page: what the page says of figures, and of missing ones."""

import json
from pathlib import Path

import pytest

from bench.gangs import page
from bench.gangs.cases import CASES, Mode
from bench.gangs.goals import goals

PACED = next(case for case in CASES if case.mode is Mode.PACED)


def _case(name: str, title: str, **medians: dict[str, float]) -> dict[str, object]:
    machine = dict.fromkeys(
        (
            "cpus",
            "cpu",
            "memory_gib",
            "kernel",
            "kubernetes",
            "etcd",
            "python",
            "gangsched",
            "commit",
        ),
        "x",
    )
    runs = {contender: [{"pods": 100, **figures}] for contender, figures in medians.items()}
    return {"case": name, "title": title, "machine": machine, "runs": runs, "medians": medians}


def test_the_page_has_every_goal_and_names_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half load comes first, each goal has a line in the details and those that are not met one in
    the page, and a case without figures is named.
    """
    waits = {
        f"gang{members}_{quantile}_ms": 12.0
        for members, _ in PACED.sizes
        for quantile in ("p50", "p99")
    }
    own = {"pods_per_s": 300.0, "offered_pods_per_s": 300.0, **waits}
    figures = {
        PACED.name: _case(
            PACED.name, PACED.title, gangsched=own, native={**own, "gang8_p99_ms": 900.0}
        ),
        "churn": _case(
            "churn", "churn", gangsched={"pods_per_s": 300.0}, native={"pods_per_s": 200.0}
        ),
    }
    for name, case in figures.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(case))
    written = tmp_path / "performance.md"
    written.write_text(f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n")
    monkeypatch.setattr(
        "sys.argv",
        [
            "page",
            "--page",
            str(written),
            "--figures",
            str(tmp_path),
            "--details",
            str(tmp_path / "all.md"),
        ],
    )
    monkeypatch.setattr("bench.gangs.page.find_spec", lambda name: None)
    page.main()
    text = written.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    asked = goals(figures, None)
    assert asked[0].what.startswith("half load")
    assert asked[0].met
    details = (tmp_path / "all.md").read_text()
    assert all(f"| {goal.what} |" in details for goal in asked)
    assert all((f"| {goal.what} |" in text) is (not goal.met) for goal in asked)
    assert f"{sum(goal.met is True for goal in asked)} of {len(asked)} [goals]" in text
    assert "| churn: against native gangs | 1.5 × | ≥ 1.8 × | **missed** |" in text
    assert "| 8 | 12 / 12 ms | 12 / 900 ms |" in text
    missing = text.partition("Not measured: ")[2].partition("\n")[0]
    assert all((case.title in missing) is (case.name not in figures) for case in CASES)
