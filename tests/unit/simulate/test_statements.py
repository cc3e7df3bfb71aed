"""What owners state in a simulation (H1)."""

from __future__ import annotations

import math

from gangsched.api.run_time import run_time
from gangsched.simulate.statements import Stated, stating
from gangsched.simulate.workload import Job

RUNS_S = (0.5, 600.0, 601.0, 100_000.0, 1e9)
JOBS = [Job(name=f"j{run_s:g}", submit_s=0, run_s=run_s, pods=(), stated_s=7.0) for run_s in RUNS_S]


def test_what_is_stated() -> None:
    """H1: as in the file, the run time itself, the upper bound of its class, or nothing; the run
    time stays.
    """
    assert stating(JOBS, Stated.FILE) == JOBS
    assert [job.stated_s for job in stating(JOBS, Stated.EXACT)] == list(RUNS_S)
    assert [job.stated_s for job in stating(JOBS, Stated.CLASS)] == [600, 600, 3600, 259_200, 1e9]
    assert {job.stated_s for job in stating(JOBS, Stated.NOTHING)} == {None}
    for what in Stated:
        assert [job.run_s for job in stating(JOBS, what)] == list(RUNS_S)


def test_half_of_the_jobs_are_always_the_same() -> None:
    """H1: whichever order the jobs come in."""
    jobs = [Job(name=f"j{number}", submit_s=0, run_s=5, pods=()) for number in range(1000)]
    half = {job.name for job in stating(jobs, Stated.HALF) if job.stated_s}
    assert half == {job.name for job in stating(jobs[::-1], Stated.HALF) if job.stated_s}
    assert 400 < len(half) < 600


def test_pods_carry_a_statement_that_counts() -> None:
    """H1: also that of a job that ends at once, which nobody could state as 0 s."""
    for run_s, expected in ((0.0, 1), (0.2, 1), (59.5, 60), (1e30, math.inf)):
        job = Job(name="j", submit_s=0, run_s=run_s, pods=(), stated_s=run_s)
        assert run_time(job.run_time_metadata).seconds == expected
