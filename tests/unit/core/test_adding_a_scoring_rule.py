"""A scoring rule is added as CONTRIBUTING.md says: one function and one line in the order."""

from __future__ import annotations

from pathlib import Path

from tests.unit.core.contributing import ROOT, patched_copy, run_in

CHECK = """
from gangsched.core import score
from tests.builders import ledger, node, pod

on = ledger([node("a", labels={"example.com/spot": "1"}), node("b")])
shape = pod("p").shape
nodes, counts = score.choose(shape, 9, on.room(shape), on)
print([(on.table.names[node], count) for node, count in zip(nodes.tolist(), counts.tolist())])
"""


def test_the_rule_changes_the_choice(tmp_path: Path) -> None:
    """Without the toy rule the first name wins; with it the labelled node gets what is left over only."""
    assert run_in(ROOT, "-c", CHECK) == "[('a', 8), ('b', 1)]"
    folder = patched_copy("Add a scoring rule", tmp_path)
    assert run_in(folder, "-c", CHECK) == "[('b', 8), ('a', 1)]"
    run_in(folder, "-m", "ruff", "check", "gangsched/core")
    run_in(folder, "-m", "ruff", "format", "--check", "gangsched/core")
