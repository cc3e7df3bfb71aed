"""Every scenario on a real API server, beside the real daemon.

All of them are played at once, a few threads wide, in one control plane; those that restart the
daemon come last, one at a time. A test only asks how its scenario ended. Those that need other
settings have a control plane and a daemon for each set of them, since a cluster has few
reservations, and other scenarios' gangs would take them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from tests.scenarios.real import playing, stage
from tests.scenarios.table import Scenario, load

pytestmark = pytest.mark.e2e

WIDTH, WIDTH_APART = 12, 1
Settings = tuple[tuple[str, object], ...]
Endings = dict[str, Future[float]]
PLAYED: list[tuple[Settings, Scenario]] = []
for _scenario in sorted(load(), key=lambda each: repr(sorted(each.settings.items()))):
    if not _scenario.virtual_only:
        _settings = tuple(sorted(_scenario.settings.items()))
        # pytest makes a fixture anew for a parameter that is equal, but not the same.
        _same = PLAYED[-1][0] if PLAYED and PLAYED[-1][0] == _settings else _settings
        PLAYED.append((_same, _scenario))


@pytest.fixture(scope="module")
def endings(request: pytest.FixtureRequest) -> Iterator[Endings]:
    """How each selected scenario of these settings ends."""
    settings: Settings = request.param
    wanted = [
        item.callspec.params["scenario"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module
    ]
    chosen = [scenario for of, scenario in PLAYED if of == settings and scenario in wanted]
    started_s = time.monotonic()
    with (
        stage(dict(settings)) as built,
        playing(chosen, built, width=WIDTH_APART if settings else WIDTH) as futures,
    ):
        yield futures
    print(f"{len(chosen)} scenarios in {time.monotonic() - started_s:.0f} s")


@pytest.mark.parametrize(
    ("endings", "scenario"),
    PLAYED,
    ids=[scenario.slug for _, scenario in PLAYED],
    indirect=["endings"],
    # else the fixture would be made for each test, since only one of the two is a fixture
    scope="module",
)
def test_scenario(scenario: Scenario, endings: Endings) -> None:
    """The table comes true for real."""
    print(f"{endings[scenario.name].result():.1f} s")
