"""Reload: what may change does, what may not is named, and what is wrong changes nothing."""

from __future__ import annotations

import io
import json
from functools import partial
from pathlib import Path

import pytest
import structlog

from gangsched.configuration import load_settings
from gangsched.kube.write.rate_limits import WriteBudget, WriteLimits
from gangsched.reload import Reloader
from gangsched.settings import LIVE, LogFormat, LogLevel, Settings
from gangsched.telemetry.logs import configure_logging


@pytest.fixture
def log(own_logging: None) -> io.StringIO:
    """What is logged, from INFO on."""
    stream = io.StringIO()
    configure_logging(LogFormat.JSON, LogLevel.INFO, stream=stream)
    return stream


def said(log: io.StringIO) -> list[str]:
    """The events of the lines so far."""
    return [json.loads(line)["event"] for line in log.getvalue().splitlines()]


def test_what_may_change_takes_effect_and_the_rest_is_named_once(
    tmp_path: Path, log: io.StringIO
) -> None:
    """A logger that exists logs what it did not; settings of decisions stay."""
    file = tmp_path / "config.yaml"
    file.write_text("")
    reloader = Reloader(Settings(), partial(load_settings, file, {}), file)
    changed: list[Settings] = []
    reloader.changed = changed.append
    logger = structlog.get_logger()
    logger.info("first")
    logger.debug("unseen")

    file.write_text("log_level: debug\nwrites_per_s: 10\nreservations: 3\n")
    reloader.reload()
    logger.debug("seen")
    reloader.reload()
    assert said(log) == [
        "first",
        "Reloaded: log_level is debug, writes_per_s is 10.0.",
        "Changed settings take effect after a restart: reservations.",
        "seen",
    ]
    (settings,) = changed
    assert (settings.writes_per_s, settings.reservations) == (10, 8)


def test_an_invalid_file_changes_nothing(tmp_path: Path, log: io.StringIO) -> None:
    """The log has the sentence of a start."""
    file = tmp_path / "config.yaml"
    file.write_text("writes_per_s: 10\n")
    settings = load_settings(file, {})
    reloader = Reloader(settings, partial(load_settings, file, {}), file)
    file.write_text("writes_per_s: -1\n")
    reloader.reload()
    assert reloader.settings is settings
    (line,) = said(log)
    assert line.startswith("The configuration is not reloaded: writes_per_s is -1 in the file")


def test_live_settings_exist() -> None:
    """A setting that is renamed is not forgotten here."""
    assert Settings.model_fields.keys() >= LIVE


def test_a_lower_rate_holds_from_then_on() -> None:
    """The burst of the new limits counts at once."""
    now_s = 0.0
    budget = WriteBudget(WriteLimits.of(400), lambda: now_s)
    for _ in range(100):
        budget.take("ml")
    assert not budget.wait_s("ml")
    budget.change(WriteLimits.of(0.1))
    budget.take("ml")
    assert budget.wait_s("ml") > 5
