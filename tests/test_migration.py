"""docs/guides/migrate.md: a scenario tries each row of its tables."""

from __future__ import annotations

import re

import yaml

from tests.packaging import ROOT

PAGE = ROOT / "docs" / "guides" / "migrate.md"
SCENARIOS = ROOT / "tests" / "scenarios" / "migration.yaml"


def rows() -> list[str]:
    """Each row as its project and the first code of its first cell, without a prefix."""
    found = []
    for section in PAGE.read_text().split("\n## ")[1:]:
        project = re.split(r"[ ,(]", section)[0].rstrip(",\n").splitlines()[0]
        cells = re.findall(r"(?m)^\| ([^|]*`[^|]*) \|", section)
        found += [
            f"{project} {re.findall(r'`([^`]+)`', cell)[0].rpartition('/')[2]}" for cell in cells
        ]
    return found


def test_each_row_is_tried_by_the_scenario_of_its_name() -> None:
    """And no scenario is left of a row that is gone."""
    named = [
        scenario["scenario"].partition(": ")[0]
        for scenario in yaml.safe_load(SCENARIOS.read_text())
    ]
    assert len(rows()) > 20
    assert named == rows()
