"""bench.owners in a small form: room for one gang, or one JobSet, starts it, and nobody else."""

import pytest

from bench import owners
from tests.sizes import of_size
from tests.unit.bench.printed import figures


@pytest.mark.long
def test_what_gangs_of_owners_cost_is_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each case checks that all wait, and that what is freed starts one whole."""
    monkeypatch.setattr(owners, "TRIALS", of_size(2, 7))
    part = of_size(250, 100)
    owners.main(["--part", str(part), "--json"])
    found = figures(capsys)
    assert [row["case"] for row in found] == list(owners.CASES)
    assert {row["gangs"] for row in found} == {owners.GANGS // part}
    assert all(row["freed_ms"] > 0 for row in found)
