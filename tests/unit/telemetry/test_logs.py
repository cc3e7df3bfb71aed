"""Log lines: their form, their level, and whose they are."""

from __future__ import annotations

import io
import json
import logging
import warnings
from typing import Any

import pytest
import structlog

from gangsched.kube.http.faults import ApiFault
from gangsched.model.reasons import Reason
from gangsched.settings import LogFormat, LogLevel
from gangsched.telemetry.logs import configure_logging

FORGED = '2026-01-01T00:00:00Z [info     ] planned {"event": "planned", "level": "info"}'
BREAKS = ("\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029")
TEXTS = [f"pod{end}{FORGED}" for end in BREAKS] + [
    "\x1b[2K\x1b[1A" + FORGED,
    "\x08" * 9,
    "\x00",
    "\u202e",
    "\x9b2K",
]


pytestmark = pytest.mark.usefixtures("own_logging")


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


def written(log_format: LogFormat, text: str) -> list[str]:
    """What is written when a text is an event, a value, a value in a list, a fault, and an
    exception of a library.
    """
    stream = io.StringIO()
    configure_logging(log_format, LogLevel.INFO, stream=stream)
    log = structlog.get_logger()
    log.info("planned", started=[text], by={text: text}, left=text)
    log.warning(f"Cannot write Events: {ApiFault(422, 'Invalid', text)}; trying again.")
    logging.getLogger("kopf").warning("%s failed", text)
    return stream.getvalue().splitlines(keepends=True)


@pytest.mark.parametrize("log_format", LogFormat)
@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_no_text_begins_a_line_or_moves_the_cursor(log_format: LogFormat, text: str) -> None:
    """Three events are three lines of printable characters, whatever is in them."""
    lines = written(log_format, text)
    assert len(lines) == 3
    assert all(line.endswith("\n") and line[:-1].isprintable() for line in lines)
    if log_format is LogFormat.JSON:
        planned, ours, theirs = (json.loads(line) for line in lines)
        assert (planned["left"], text in ours["event"], text in theirs["event"]) == (
            text,
            True,
            True,
        )


@pytest.mark.parametrize("log_format", LogFormat)
@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_no_traceback_begins_a_line_like_an_event(log_format: LogFormat, text: str) -> None:
    """A traceback has lines of its own where people read them, all indented."""
    stream = io.StringIO()
    configure_logging(log_format, LogLevel.INFO, stream=stream)
    try:
        raise ValueError(text)
    except ValueError:
        structlog.get_logger().exception("bug")
    first, *rest = stream.getvalue().splitlines()
    assert "bug" in first
    assert all(line.startswith("    ") and line.isprintable() for line in rest)
