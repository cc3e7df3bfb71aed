"""bench.trees in a small form: the same pods start as trees and as flat gangs."""

import pytest

from bench import trees
from tests.unit.bench.printed import figures


def test_trees_are_measured_beside_flat_gangs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each play checks that all its pods are bound."""
    monkeypatch.setattr(trees, "NODES", 20)
    monkeypatch.setattr(trees, "CASES", ((4, 3), (1, 10)))
    trees.main(["--repeat", "1", "--json"])
    assert [(row["trees"], row["members"]) for row in figures(capsys)] == [(4, 3), (1, 10)]
