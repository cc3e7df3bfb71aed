"""How long a pod is expected to run: H1 of the backfill design."""

from __future__ import annotations

import math

import pytest

from gangsched.api.keys import EXPECTED_RUNTIME, KUEUE_MAX_EXEC_TIME, SLURM_TIME_LIMIT
from gangsched.api.run_time import DEADLINE, DEFAULT, RunTime, longest, run_time

ALL = {EXPECTED_RUNTIME: "1h30m", SLURM_TIME_LIMIT: "60", KUEUE_MAX_EXEC_TIME: "120"}


@pytest.mark.parametrize(
    ("pod", "pod_group", "deadline_s", "default_s", "expected"),
    [
        (ALL, {EXPECTED_RUNTIME: "5m"}, None, 7.0, (5400, EXPECTED_RUNTIME)),
        ({SLURM_TIME_LIMIT: "60"}, {EXPECTED_RUNTIME: "5m"}, None, 7.0, (300, EXPECTED_RUNTIME)),
        ({SLURM_TIME_LIMIT: "60", KUEUE_MAX_EXEC_TIME: "120"}, {}, None, 7.0, (3600, SLURM_TIME_LIMIT)),
        ({KUEUE_MAX_EXEC_TIME: "120"}, {SLURM_TIME_LIMIT: "1"}, None, 7.0, (120, KUEUE_MAX_EXEC_TIME)),
        ({}, {}, None, 7.0, (7, DEFAULT)),
        ({}, {}, None, None, (math.inf, "")),
        ({}, {}, 30, None, (30, DEADLINE)),
        ({EXPECTED_RUNTIME: "1h"}, {}, 30, None, (30, DEADLINE)),
        ({EXPECTED_RUNTIME: "10s"}, {}, 30, None, (10, EXPECTED_RUNTIME)),
    ],
)
def test_precedence(
    pod: dict[str, str],
    pod_group: dict[str, str],
    deadline_s: int | None,
    default_s: float | None,
    expected: tuple[float, str],
) -> None:
    """The first statement counts, the deadline caps it."""
    found = run_time(pod, pod_group, deadline_s=deadline_s, default_s=default_s, where="pod ns/p")
    assert (found.seconds, found.source) == expected
    assert found.problems == ()


@pytest.mark.parametrize("text", ["soon", "", "0s", "-5m", "1 h", "12"])
def test_bad_durations_are_passed_over_and_told(text: str) -> None:
    """The next source counts, and the problem says which value is used instead."""
    found = run_time({EXPECTED_RUNTIME: text, SLURM_TIME_LIMIT: "2"}, {}, where="pod ns/p")
    assert (found.seconds, found.source) == (120, SLURM_TIME_LIMIT)
    (problem,) = found.problems
    assert problem.text.startswith(f"{EXPECTED_RUNTIME} of pod ns/p is not")
    assert problem.text.endswith(f"the 120 s of {SLURM_TIME_LIMIT} is used instead.")


def test_nothing_valid_is_unknown() -> None:
    """And said so."""
    found = run_time({SLURM_TIME_LIMIT: "1.5"}, {EXPECTED_RUNTIME: "x"}, where="pod ns/p")
    assert found.seconds == math.inf
    assert [problem.used for problem in found.problems] == ["an unknown run time"] * 2


def test_a_group_runs_as_long_as_its_longest_member() -> None:
    """One unknown member makes it unknown."""
    assert longest([RunTime(5), RunTime(9)]) == 9
    assert longest([RunTime(5), RunTime(math.inf)]) == math.inf
    assert longest([]) == math.inf
