"""The page of a simulation."""

from __future__ import annotations

import random
from pathlib import Path

from typer.testing import CliRunner

from gangsched.cli import cli
from gangsched.model.objects import Node
from gangsched.simulate.spans import Span
from kubectl_gangsched.page.changes import applied
from kubectl_gangsched.page.document import Document, Moment
from kubectl_gangsched.page.simulated import document
from tests.page_examples import document_in


def moments(document: Document) -> list[Moment]:
    """All moments of a document."""
    shown = [document.moment]
    for change in document.changes:
        shown.append(applied(shown[-1], change))
    return shown


def nodes(number: int) -> list[Node]:
    """Nodes of eight GPUs."""
    return [Node(name=f"n{place}", allocatable=(("nvidia.com/gpu", 8),)) for place in range(number)]


def span(
    job: str, submitted: float, begin: float | None, end: float | None, **more: object
) -> Span:
    """A span of one pod of eight GPUs on the first node."""
    places = {"n0": 8} if begin is not None else {}
    values = {"attempt": 1, "priority": 0, "pods": 1, "gpus": 8, "nodes": places, **more}
    return Span(job=job, submitted=submitted, begin=begin, end=end, **values)  # type: ignore[arg-type]


def test_each_moment_has_what_was_known_then() -> None:
    """A promise once it was told, no end before it came, and what happened stays as bars."""
    first = span("a/first", 0, 0, 2_400)
    second = span("a/second", 240, 2_400, 4_800, promised=2_400.0, promised_at=480.0)
    never = span("a/never", 0, None, None, attempt=0)
    shown = {
        moment.at_s: moment for moment in moments(document(nodes(1), [first, second, never], "x"))
    }
    assert len(shown) == 241
    early, told, late, end = (shown[at_s] for at_s in (240.0, 500.0, 2_420.0, 4_800.0))
    assert early.nodes["n0"].devices[0].users == {"a/first": 8}
    assert [key for key, _ in early.queue] == ["a/never", "a/second"]
    assert early.gangs["a/second"].promised_s is None
    assert told.gangs["a/second"].promised_s == 2_400
    assert [bar.kind for bar in told.bars["a/second"]] == ["waited", "promised"]
    assert "a/first" not in late.gangs
    assert [(bar.kind, bar.to_s) for bar in late.bars["a/first"]] == [
        ("waited", 0),
        ("happened", 2_400),
    ]
    assert late.bars["a/second"][-1].to_s is None
    assert [key for key, _ in end.queue] == ["a/never"]
    assert end.totals[0].free == 8


def test_the_use_of_nodes_is_that_of_the_spans() -> None:
    """Random jobs, also without a run time, with several attempts, and at the same times."""
    chance = random.Random(54)
    spans = []
    for number in range(200):
        submitted, attempts = chance.randrange(50), chance.randrange(3)
        for attempt in range(1, attempts + 1):
            begin = submitted + chance.randrange(5)
            end = begin + chance.randrange(20)
            places = {f"n{place}": chance.randrange(1, 3) for place in chance.sample(range(400), 2)}
            spans.append(
                span(
                    f"a/{number}",
                    submitted,
                    begin,
                    end,
                    attempt=attempt,
                    nodes=places,
                    gpus=sum(places.values()),
                )
            )
            submitted = end
    for moment in moments(document(nodes(400), spans, "x")):
        used: dict[str, dict[str, int]] = {}
        for one in spans:
            assert one.begin is not None
            assert one.end is not None
            if one.begin <= moment.at_s < one.end:
                for name, gpus in one.nodes.items():
                    used.setdefault(name, {})[one.job] = gpus
        assert {
            name: row.devices[0].users for name, row in moment.nodes.items() if row.devices[0].users
        } == used


def test_a_simulation_writes_its_page(tmp_path: Path) -> None:
    """By the command; the clock is simulated, and the file needs nothing else."""
    (tmp_path / "nodes.csv").write_text("name,gpus\na,8\n")
    (tmp_path / "jobs.csv").write_text("name,submitted,run_seconds,gpus\nx,0,600,8\ny,60,600,8\n")
    words = [
        "simulate",
        "--nodes",
        str(tmp_path / "nodes.csv"),
        "--jobs",
        str(tmp_path / "jobs.csv"),
    ]
    done = CliRunner().invoke(cli, [*words, "--html", str(tmp_path / "page.html")])
    assert done.exit_code == 0, done.output
    made = document_in((tmp_path / "page.html").read_text())
    assert (made.source, made.clock, made.title) == ("simulation", "simulated", "jobs.csv")
    assert moments(made)[-1].totals[0].free == 8


def test_a_simulation_without_jobs_is_a_page() -> None:
    """Of one moment."""
    assert document(nodes(2), [], "x").changes == []
