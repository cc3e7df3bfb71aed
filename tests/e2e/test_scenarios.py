"""Every scenario on a real API server, beside the real daemon.

All of them are played at once, a few threads wide, in one control plane; those that restart the daemon come last, one
at a time. A test only asks how its scenario ended.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.scenarios.play import play
from tests.scenarios.real import RealCluster, Stage, stage
from tests.scenarios.table import Scenario, load

pytestmark = pytest.mark.e2e

WIDTH = 12
SCENARIOS = [scenario for scenario in load() if not scenario.virtual_only]
Endings = dict[str, Future[float]]


@pytest.fixture(scope="module")
def endings(request: pytest.FixtureRequest) -> Iterator[Endings]:
    """A future for each selected scenario: its seconds, or what it failed of."""
    wanted = [
        item.callspec.params["scenario"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module
    ]
    chosen = [scenario for scenario in SCENARIOS if scenario in wanted]
    started_s = time.monotonic()
    with stage() as built:
        with ThreadPoolExecutor(WIDTH) as pool, ThreadPoolExecutor(1) as alone:
            futures = {each.name: pool.submit(_played, each, built) for each in chosen if not each.restarts}
            others = list(futures.values())
            for each in chosen:
                if each.restarts:
                    futures[each.name] = alone.submit(_played_after, others, each, built)
            yield futures
        print(f"{len(chosen)} scenarios in {time.monotonic() - started_s:.0f} s")


def _played(scenario: Scenario, built: Stage) -> float:
    started_s = time.monotonic()
    cluster = RealCluster(built, scenario)
    try:
        play(scenario, cluster)
    finally:
        cluster.close()
    return time.monotonic() - started_s


def _played_after(others: list[Future[float]], scenario: Scenario, built: Stage) -> float:
    """A restart would disturb the others."""
    for other in others:
        other.exception()
    return _played(scenario, built)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[scenario.slug for scenario in SCENARIOS])
def test_scenario(scenario: Scenario, endings: Endings) -> None:
    """The table comes true for real."""
    print(f"{endings[scenario.name].result():.1f} s")
