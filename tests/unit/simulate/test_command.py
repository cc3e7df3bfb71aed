"""`gangsched simulate` as its user meets it: tables, files, and one sentence for what is wrong."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gangsched.cli import cli

NODES = "name,gpus\na,8\n"
JOBS = """name,submitted,run_seconds,gpus,pods,priority
first,0,7200,8,1,0
second,3600,3600,4,1,5
gang,3601,3600,8,2,0
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, ...]:
    """Options that name a small cluster and three jobs, the last of which can never start."""
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "jobs.csv").write_text(JOBS)
    return "simulate", "--nodes", str(tmp_path / "nodes.csv"), "--jobs", str(tmp_path / "jobs.csv")


def call(*arguments: str) -> Result:
    """Run a command line, wide enough for its tables."""
    return CliRunner().invoke(cli, list(arguments), env={"COLUMNS": "120"})


def test_tables_and_csv(files: tuple[str, ...], tmp_path: Path) -> None:
    """Waits by size and by priority, the share in use, who never started or was preempted; every
    job in the CSV.
    """
    out = tmp_path / "out.csv"
    done = call(*files, "--out", str(out))
    assert done.exit_code == 0, done.output
    lines = [line.split() for line in done.output.replace("│", " ").splitlines()]
    assert ["1-4", "GPUs", "1", "1", "0.01", "0.01", "0.01", "0.01"] in lines
    assert ["priority", "5", "1", "1", "0.01", "0.01", "0.01", "0.01"] in lines
    assert "1 node, 8 GPUs; 100.0% of the GPUs allocated while jobs arrived." in done.output
    assert "1 job never started" in done.output
    assert "1 job was preempted, 1 time in all; 8.1 of 28.1 GPU-hours were lost" in done.output
    with out.open(newline="") as text:
        found = {row["name"]: row for row in csv.DictReader(text)}
    assert (found["second"]["started"], found["second"]["wait_seconds"]) == ("3630.000", "30.000")
    assert [found[name]["preempted"] for name in ("first", "second", "gang")] == ["1", "0", "0"]
    assert (found["gang"]["started"], found["gang"]["pods"], found["gang"]["gpus"]) == (
        "",
        "2",
        "16",
    )


def test_a_plot_without_matplotlib_costs_one_sentence(
    files: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tables are printed all the same."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    done = call(*files, "--plot", str(tmp_path / "waits.svg"))
    assert done.exit_code == 2
    assert "Waiting time" in done.output
    assert (
        done.stderr.splitlines()[-1]
        == "gangsched: A plot needs matplotlib, which is not installed (pip install matplotlib)."
    )


def test_a_plot(files: tuple[str, ...], tmp_path: Path) -> None:
    """It is drawn where matplotlib is installed."""
    pytest.importorskip("matplotlib")
    assert call(*files, "--plot", str(tmp_path / "waits.svg")).exit_code == 0
    assert (tmp_path / "waits.svg").stat().st_size > 1000


@pytest.mark.parametrize("option", ["--nodes", "--jobs", "--config"])
def test_a_file_that_is_not_there_costs_one_sentence(files: tuple[str, ...], option: str) -> None:
    """Exit code 2, and the sentence names the file."""
    done = call(*files, option, "/no/such.csv")
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 1
    assert "/no/such.csv" in done.stderr


def test_an_output_that_cannot_be_written_costs_one_sentence(files: tuple[str, ...]) -> None:
    """As above."""
    done = call(*files, "--out", "/no/such/folder.csv")
    assert done.exit_code == 2
    assert (
        done.stderr
        == "gangsched: The file /no/such/folder.csv cannot be written: No such file or directory.\n"
    )


def test_settings_are_read(files: tuple[str, ...], tmp_path: Path) -> None:
    """A setting that does not exist is refused as `run` refuses it."""
    (tmp_path / "settings.yaml").write_text("reservation: 3\n")
    done = call(*files, "--config", str(tmp_path / "settings.yaml"))
    assert done.exit_code == 2
    assert 'did you mean "reservations"' in done.stderr


@pytest.mark.parametrize("word", ["file", "exact", "class", "half", "nothing"])
def test_what_owners_state_is_an_option(files: tuple[str, ...], word: str) -> None:
    """H1: the same jobs end, whatever is known of them."""
    done = call(*files, "--stated", word)
    assert done.exit_code == 0, done.output
    assert "1 job never started" in done.output
    assert "1 job was preempted, 1 time in all; 8.1 of 28.1 GPU-hours were lost" in done.output


def test_an_unknown_statement_costs_one_sentence(files: tuple[str, ...]) -> None:
    """Exit code 2, and the sentence says what there is."""
    done = call(*files, "--stated", "guess")
    assert done.exit_code == 2
    assert (
        done.stderr
        == 'gangsched: --stated is "guess": it should be one of file, exact, class, half,'
        " nothing.\n"
    )
