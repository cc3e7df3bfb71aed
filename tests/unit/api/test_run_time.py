"""How long a pod is expected to run (H1)."""

from __future__ import annotations

import math
import time

import pytest

from gangsched.api.keys import (
    DEADLINE,
    EXPECTED_RUNTIME,
    KUEUE_MAX_EXEC_TIME,
    SHORT,
    SLURM_TIME_LIMIT,
    run_time_metadata,
)
from gangsched.api.run_time import DEFAULT, RunTime, longest, run_time

ALL = {EXPECTED_RUNTIME: "1h30m", SLURM_TIME_LIMIT: "60", KUEUE_MAX_EXEC_TIME: "120"}


def stated(
    annotations: dict[str, str], deadline_s: int | None = None
) -> tuple[tuple[str, str], ...]:
    """The metadata of a pod with these annotations."""
    return run_time_metadata({}, annotations, deadline_s)


@pytest.mark.parametrize(
    ("pod", "of_group", "deadline_s", "default_s", "expected"),
    [
        (ALL, "5m", None, 7.0, (5400, EXPECTED_RUNTIME)),
        ({SLURM_TIME_LIMIT: "60"}, "5m", None, 7.0, (300, EXPECTED_RUNTIME)),
        (
            {SLURM_TIME_LIMIT: "60", KUEUE_MAX_EXEC_TIME: "120"},
            None,
            None,
            7.0,
            (3600, SLURM_TIME_LIMIT),
        ),
        ({KUEUE_MAX_EXEC_TIME: "120"}, None, None, 7.0, (120, KUEUE_MAX_EXEC_TIME)),
        ({}, None, None, 7.0, (7, DEFAULT)),
        ({}, None, None, None, (math.inf, "")),
        ({}, None, 30, None, (30, DEADLINE)),
        ({}, None, -(2**63), None, (0, DEADLINE)),
        ({EXPECTED_RUNTIME: "1h"}, None, 30, None, (30, DEADLINE)),
        ({EXPECTED_RUNTIME: "10s"}, None, 30, None, (10, EXPECTED_RUNTIME)),
    ],
)
def test_precedence(
    pod: dict[str, str],
    of_group: str | None,
    deadline_s: int | None,
    default_s: float | None,
    expected: tuple[float, str],
) -> None:
    """The first statement counts, the deadline caps it."""
    found = run_time(stated(pod, deadline_s), of_group, default_s=default_s, where="pod ns/p")
    assert (found.seconds, found.source) == expected
    assert found.problems == ()


@pytest.mark.parametrize(
    "text",
    ["soon", "", "0s", "-5m", "1 h", "12", "nan", "NaNs", "inf", "1e3s", "1" + 30 * "0" + "s"],
)
def test_bad_durations_are_passed_over_and_told(text: str) -> None:
    """The next source counts, and the problem says which value is used instead."""
    found = run_time(stated({EXPECTED_RUNTIME: text, SLURM_TIME_LIMIT: "2"}), where="pod ns/p")
    assert (found.seconds, found.source) == (120, SLURM_TIME_LIMIT)
    (problem,) = found.problems
    assert problem.text.startswith(f"{EXPECTED_RUNTIME} of pod ns/p is ")
    assert problem.text.endswith(f"Used instead: the 120 s of {SLURM_TIME_LIMIT}.")


def test_nothing_valid_is_unknown() -> None:
    """And said so, of the pod and of its PodGroup."""
    found = run_time(
        stated({SLURM_TIME_LIMIT: "1.5"}), "x", where="pod ns/p", group="PodGroup ns/g"
    )
    assert found.seconds == math.inf
    assert [problem.used for problem in found.problems] == ["an unknown run time"] * 2
    assert [" of PodGroup ns/g " in problem.text for problem in found.problems] == [True, False]


@pytest.mark.parametrize("text", ["1" * 2**18, "0" * 2**18 + "5", "1h" * 2**17])
def test_hostile_texts_cost_nothing_and_count_for_nothing(text: str) -> None:
    """Of an annotation of 256 KiB little is kept, and it is bad even where its beginning or its end
    would be good.
    """
    began_s = time.perf_counter()
    for key in ALL:
        kept = stated({key: text})
        assert len(kept[0][1]) == SHORT + 1
        found = run_time(kept, where="pod ns/p")
        assert found.seconds == math.inf
        assert f"is longer than {SHORT} characters" in found.problems[0].text
        assert len(found.problems[0].text) < 512
    assert time.perf_counter() - began_s < 1.0


def test_what_is_kept_is_what_counts() -> None:
    """An annotation wins over a label; pods that state the same share one object; other keys are
    not kept.
    """
    pod = {EXPECTED_RUNTIME: "1h", "app": "x"}
    assert run_time_metadata(pod, {EXPECTED_RUNTIME: "2h"}, None) == ((EXPECTED_RUNTIME, "2h"),)
    assert run_time_metadata({KUEUE_MAX_EXEC_TIME: "5"}, {}, 30) == (
        (DEADLINE, "30"),
        (KUEUE_MAX_EXEC_TIME, "5"),
    )
    assert run_time_metadata(pod, {}, None) is run_time_metadata({}, dict(pod), None)
    assert run_time_metadata({"app": "x"}, {"app": "y"}, None) == ()


def test_a_gang_runs_as_long_as_its_longest_member() -> None:
    """One unknown member makes it unknown; all problems are kept."""
    assert longest([RunTime(5, "a"), RunTime(9, "b")]) == RunTime(9, "b")
    assert longest([RunTime(5), RunTime(math.inf)]).seconds == math.inf
    assert longest([]).seconds == math.inf
    bad = run_time(stated({EXPECTED_RUNTIME: "x"}), where="pod ns/p")
    assert longest([bad, RunTime(5)]).problems == bad.problems
