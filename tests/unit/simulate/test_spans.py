"""The files about when and where each job ran."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gangsched.cli import cli
from gangsched.simulate import spans as module
from gangsched.simulate.simulator import Simulator
from gangsched.simulate.spans import Span, spans_of
from gangsched.simulate.traces import read_jobs, read_nodes

NODES = "name,gpus,count\nn,8,2\n"
JOBS = """name,submitted,run_seconds,gpus,pods,priority,expected_run_seconds
first,0,7200,8,2,0,7200
head,60,3600,8,2,0,3600
rival,3600,600,8,1,5,600
huge,3700,600,16,1,0,
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, ...]:
    """Options of a simulation with a preemption, a promise, and a job that never starts."""
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "jobs.csv").write_text(JOBS)
    return "simulate", "--nodes", str(tmp_path / "nodes.csv"), "--jobs", str(tmp_path / "jobs.csv")


def lines(path: Path) -> list[dict[str, Any]]:
    """The spans of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_of_json_for_each_attempt(files: tuple[str, ...], tmp_path: Path) -> None:
    """With its times, its GPUs by node, and the promise that was told; a job that never started has
    no times.
    """
    path = tmp_path / "spans.jsonl"
    done = CliRunner().invoke(cli, [*files, "--spans", str(path)])
    assert done.exit_code == 0, done.output
    by_job: dict[str, list[dict[str, Any]]] = {}
    for span in lines(path):
        by_job.setdefault(span["job"], []).append(span)
    first, again = by_job["default/first"]
    assert (first["attempt"], first["from"], first["to"], first["preempted"]) == (1, 0, 3630, True)
    assert first["nodes"] == {"n-0000": 8, "n-0001": 8}
    assert (again["attempt"], again["submitted"], again["preempted"]) == (2, 3630, False)
    assert again["to"] - again["from"] == 7200
    (head,) = by_job["default/head"]
    assert head["promised"] >= 7200 > head["promisedAt"]
    (huge,) = by_job["default/huge"]
    assert (huge["attempt"], huge["from"], huge["to"], huge["nodes"]) == (0, None, None, {})


def test_the_trace_has_a_row_for_each_node(files: tuple[str, ...], tmp_path: Path) -> None:
    """In the format of Chrome's traces, in microseconds: no two jobs overlap on full nodes."""
    path = tmp_path / "trace.json"
    assert CliRunner().invoke(cli, [*files, "--trace", str(path)]).exit_code == 0
    events = json.loads(path.read_text())["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    assert sorted(names.values()) == ["n-0000", "n-0001"]
    for row in names:
        spans = sorted(
            (event["ts"], event["ts"] + event["dur"])
            for event in events
            if event["ph"] == "X" and event["tid"] == row
        )
        assert len(spans) >= 3
        assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))


def test_files_that_cannot_be_written_are_one_sentence(files: tuple[str, ...]) -> None:
    """And so is a page where the plugin is not installed."""
    for option in ("--spans", "--trace", "--html"):
        done = CliRunner().invoke(cli, [*files, option, "/no/such/place"])
        assert done.exit_code == 2, done.output
        assert done.stderr.lower().startswith("gangsched: cannot write /no/such/place: no such")
        assert done.stderr.count("\n") == 1


def test_without_the_plugin_there_is_no_page(
    files: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence says what to install."""
    monkeypatch.setattr(module, "PAGE", "no_such_plugin.page")
    done = CliRunner().invoke(cli, [*files, "--html", str(tmp_path / "x.html")])
    assert (done.exit_code, done.stderr) == (
        2,
        "gangsched: --html needs kubectl-gangsched: install it as well.\n",
    )


def test_spans_cover_what_was_simulated(files: tuple[str, ...]) -> None:
    """As many GPU-seconds as the figures count."""
    cluster = read_nodes(Path(files[2]))
    simulator = Simulator(cluster, read_jobs(Path(files[4]), cluster))
    runs = simulator.run()
    spans: list[Span] = list(spans_of(runs, simulator.promises))
    for run in runs:
        own = [span for span in spans if span.job == run.job.key and span.begin is not None]
        assert [(span.begin, span.end) for span in own] == run.spans
        assert all(sum(span.nodes.values()) == run.job.gpus for span in own)
