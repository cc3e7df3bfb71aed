"""Every scenario on the virtual clock, twice: with changes one by one and together."""

from __future__ import annotations

import pytest

from tests.scenarios.play import play
from tests.scenarios.table import Scenario, by_rule, load
from tests.scenarios.virtual import VirtualCluster

SCENARIOS = load()


@pytest.mark.parametrize(
    "one_by_one",
    [True, pytest.param(False, marks=pytest.mark.histories)],
    ids=["one-by-one", "together"],
)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=[scenario.slug for scenario in SCENARIOS])
def test_scenario(scenario: Scenario, one_by_one: bool) -> None:
    """The table holds, whatever the order in which changes arrive."""
    play(scenario, VirtualCluster(one_by_one=one_by_one, settings=scenario.settings))


def test_every_rule_is_proven() -> None:
    """Each rule of the semantics has a scenario."""
    assert [rule for rule, names in by_rule(SCENARIOS).items() if not names] == []
