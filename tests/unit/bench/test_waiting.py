"""bench.waiting in a small form: whom an event helps starts, and nobody else."""

import pytest

from bench import waiting
from tests.sizes import of_size
from tests.unit.bench.printed import figures


@pytest.mark.long
def test_what_events_cost_is_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each case checks that gangs wait, that four freed GPUs start one of them, and that a quiet
    pod is bound.
    """
    monkeypatch.setattr(waiting, "NODES", of_size(60, 500))
    monkeypatch.setattr(waiting, "TRIALS", of_size(2, 7))
    part = of_size(400, 100)
    waiting.main(["--part", str(part), "--json"])
    found = figures(capsys)
    assert [row["gangs"] for row in found] == [
        each // part for each in (10_000, 10_000, 2_000, 10_000, 10_000, 10_000)
    ]
    assert all(row["writes_a_minute"] <= 1.0 for row in found)
