"""The player: it reads tables strictly, and a false table fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.play import play
from tests.scenarios.table import Scenario, TableError, load
from tests.scenarios.view import promised_s
from tests.scenarios.virtual import VirtualCluster

FITS = """
- scenario: a gang that fits
  rules: [R1]
  nodes: {n: {gpus: 2}}
  steps:
    - create: [{gang: a, members: 2, gpus: 1}]
"""


def read(folder: Path, text: str) -> list[Scenario]:
    """The scenarios of one table."""
    (folder / "table.yaml").write_text(text)
    return load(folder)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (FITS.replace("rules", "rule"), "unknown rule"),
        (FITS.replace("R1", "R9"), "R9"),
        (FITS.replace("create", "make"), "make"),
        (FITS + FITS, "two scenarios"),
        (FITS + "      within: 3\n", "within"),
        ("- {scenario: nothing happens, rules: [R1]}", "no steps"),
    ],
)
def test_bad_table(tmp_path: Path, text: str, complaint: str) -> None:
    """A word that is not known, a rule that is none and a name used twice are errors that
    say so.
    """
    with pytest.raises(TableError, match=complaint):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("expected", "complaint"),
    [
        ("{a: pending}", "0 of 2 pending, not 2"),
        ("{a: 1 bound}", "2 of 2 bound, not 1"),
        ("{b: bound}", "no such pods"),
        ("{a: gone}", "still there"),
        ("{a: {reason: Unschedulable}}", "all are bound"),
        ("{a: {nodes: 2}}", "uses 1 nodes"),
        ('{a: {"on": [m]}}', "a-0 is on"),
        ("{podgroup a: {phase: Failed}}", "phase is Running, not Failed"),
        ("{podgroup a: {conditions: {Scheduled: 'False'}}}", "condition Scheduled is 'True"),
        ("{podgroup b: {phase: Running}}", "is not there"),
        ("{events podgroup a: {Yielded: a}}", "no Event Yielded"),
        ("{events podgroup a: {GangScheduled: 3 pods}}", "no Event GangScheduled says"),
        (
            "{podgroup a: {phase: Running}, events podgroup a: {GangScheduled: false}}",
            "there is an Event Gang",
        ),
        ("{order: [a-1, a-0]}", "a-0 was bound before"),
        ("{start a: {by: promise}}", "no latest start was told"),
        ("{start a: {after: [a], within: 1}}", "a-0, .*a-1 has not ended"),
        ("{start b: {by: promise}}", "not all is bound"),
        (
            "{podgroup a: {phase: Running}, writes podgroup a: {Scheduled: 0}}",
            "was written . times",
        ),
    ],
)
def test_false_expectation(tmp_path: Path, expected: str, complaint: str) -> None:
    """An expectation that does not come true fails and says what there is instead."""
    (scenario,) = read(tmp_path, FITS + f"    - expect: {expected}\n")
    with pytest.raises(AssertionError, match=complaint):
        play(scenario, VirtualCluster(one_by_one=False))


def test_never_bound(tmp_path: Path) -> None:
    """What must never be bound is noticed even when it has gone since."""
    text = FITS.replace("nodes:", "never_bound: [a-1]\n  nodes:")
    (scenario,) = read(
        tmp_path, text + "    - expect: {a: bound}\n    - delete: [a]\n    - expect: {a: gone}\n"
    )
    with pytest.raises(AssertionError, match="a-1 was bound"):
        play(scenario, VirtualCluster(one_by_one=True))


def test_unknown_words(tmp_path: Path) -> None:
    """A misspelt word of an object or an expectation is an error, not an expectation that holds."""
    for text in (FITS.replace("gpus: 1", "gpu: 1"), FITS + "    - expect: {a: {bounds: 2}}\n"):
        (scenario,) = read(tmp_path, text)
        with pytest.raises(ValueError, match="unknown"):
            play(scenario, VirtualCluster(one_by_one=False))


STREAM = """
- scenario: pods that come and go
  rules: [R1]
  nodes: {n: {gpus: 2}}
  steps:
    - stream: {s: {every: 1, gpus: 1, runs: 3}}
    - expect: {s-1: bound, s-0: {bound: 1}}
      within: 1.5
"""


def test_stream(tmp_path: Path) -> None:
    """A pod comes every second and ends after three, so that the third waits for the end of the
    first.
    """
    steps = """
    - expect: {s-2: bound, start s-2: {after: [s-0], within: 0.1}}
      within: 3
    - stop: [s]
    - wait: 10
    - expect: {s-4: {gone: true}}
"""
    (scenario,) = read(tmp_path, STREAM + steps)
    play(scenario, VirtualCluster(one_by_one=False))
    (late,) = read(
        tmp_path, STREAM + "    - expect: {start s-1: {after: [s-0], within: 0}}\n      within: 3\n"
    )
    with pytest.raises(AssertionError, match=r"it started -2\.0 s after"):
        play(late, VirtualCluster(one_by_one=False))


def test_latest_starts_are_read() -> None:
    """Only the time of a promise counts, in epoch seconds."""
    said = [
        "True Timed starts at 2026-01-01T00:01Z at the latest, when",
        "True Timed expected at about 2026-01-01",
    ]
    assert promised_s(said) == [1_767_225_660.0]
