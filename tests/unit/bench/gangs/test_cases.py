"""bench.gangs.cases: what a paced case offers."""

import pytest

from bench.gangs.cases import CASES, Mode

PACED = next(case for case in CASES if case.mode is Mode.PACED)


def test_a_paced_case_offers_the_same_gangs_at_the_same_times() -> None:
    """All contenders of a run get the same load; its pace is the one asked for, on the average."""
    gangs, arrivals = PACED.load(), PACED.arrivals_s(400.0)
    assert (gangs, arrivals) == (PACED.load(), PACED.arrivals_s(400.0))
    assert len(gangs) == len(arrivals) == PACED.gangs
    assert sum(gang.members for gang in gangs) == PACED.pods
    assert arrivals == sorted(arrivals)
    assert PACED.pods / arrivals[-1] == pytest.approx(400.0, rel=0.15)
