"""Log lines: their form, their level, and whose they are."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from gangsched.model.reasons import Reason
from gangsched.settings import LogFormat, LogLevel
from gangsched.telemetry.logs import configure_logging


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Give the process its own logging back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


def logged(log_format: LogFormat = LogFormat.JSON, level: LogLevel = LogLevel.INFO) -> io.StringIO:
    """Configure logging and hand out what is written."""
    stream = io.StringIO()
    configure_logging(log_format, level, stream=stream)
    return stream


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """The JSON lines written so far."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_line_has_time_level_event_and_values() -> None:
    """A line is one JSON object with what a log store needs."""
    stream = logged()
    structlog.get_logger().info("planned", pods=3, reason=Reason.SCHEDULED)
    (line,) = lines(stream)
    assert line.pop("timestamp").endswith("Z")
    assert line == {"level": "info", "event": "planned", "pods": 3, "reason": "Scheduled"}


def test_lines_below_the_level_are_not_written() -> None:
    """The level holds for our own lines."""
    stream = logged(level=LogLevel.WARNING)
    log = structlog.get_logger()
    log.info("quiet")
    log.warning("loud")
    assert [line["event"] for line in lines(stream)] == ["loud"]


def test_libraries_are_heard_from_warning_on_in_our_form() -> None:
    """kopf and aiohttp neither flood our log nor break its form, whatever our own level."""
    stream = logged(level=LogLevel.DEBUG)
    logging.getLogger("kopf.reactor").info("flood")
    logging.getLogger("kopf.reactor").warning("ends %s", "now")
    (line,) = lines(stream)
    assert (line["event"], line["level"], line["logger"]) == ("ends now", "warning", "kopf.reactor")


def test_python_warnings_become_lines() -> None:
    """A warning of a library does not break the form of the log."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        stream = logged()
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    assert lines(stream)[-1]["logger"] == "py.warnings"


def test_tracebacks_are_one_line() -> None:
    """An exception is a value of its line, from structlog and from stdlib logging alike."""
    stream = logged()
    try:
        raise ValueError("broken")
    except ValueError:
        structlog.get_logger().exception("ours")
        logging.getLogger("asyncio").exception("theirs")
    ours, theirs = lines(stream)
    assert ours["level"] == theirs["level"] == "error"
    assert all("ValueError: broken" in line["exception"] for line in (ours, theirs))


def test_values_that_are_no_json_are_written_anyway() -> None:
    """A strange value never costs the line."""
    stream = logged()
    structlog.get_logger().info("odd", what={1: object(), (2, 3): "x"}, text="\udcff", more={"a"})
    assert "object object" in lines(stream)[0]["what"]["1"]


def test_console_lines_are_for_people() -> None:
    """The console form has no colours where there is no terminal, and shows tracebacks."""
    stream = logged(LogFormat.CONSOLE)
    try:
        raise ValueError("broken")
    except ValueError:
        structlog.get_logger().exception("it broke", pods=3)
    assert "pods=3" in stream.getvalue()
    assert "ValueError: broken" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()
