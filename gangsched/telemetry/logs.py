"""Logs: one line per event on stderr, JSON for machines or coloured text for people.

Invariant: structlog and the stdlib logging of libraries write the same format; libraries log from
WARNING on. Log events may include text of tenants or servers, in which control characters are
escaped, so that it cannot start a line or move the cursor. Other modules decide what is logged: one
line per cycle that changed something and one per changed verdict, but none per watch event.
"""

from __future__ import annotations

import importlib
import logging
import sys
from typing import TextIO

if "structlog" not in sys.modules:
    # structlog imports rich if it is installed, for tracebacks that we do not write: 30 ms of every
    # start.
    absent = sys.modules.get("rich")
    sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("structlog")
    finally:
        del sys.modules["rich"]
        if absent is not None:
            sys.modules["rich"] = absent

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from gangsched.settings import LogFormat, LogLevel


def configure_logging(
    log_format: LogFormat,
    level: LogLevel,
    *,
    stream: TextIO | None = None,
) -> None:
    """Set up structlog and the stdlib's root logger to write to `stream` (stderr); call once,
    before anything logs.

    JSON lines have the fields `timestamp` (UTC, ISO 8601), `level`, `event`, for libraries
    `logger`, and for a traceback `exception`.
    """
    stream = stream or sys.stderr
    common: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderers = _renderers(log_format, stream)
    structlog.configure(
        processors=[*common, *renderers],
        wrapper_class=_Logger,
        logger_factory=structlog.WriteLoggerFactory(file=stream),
        cache_logger_on_first_use=True,
    )
    foreign = [*common, structlog.stdlib.add_logger_name]
    processors = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers]
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=foreign, processors=processors)
    )
    root = logging.getLogger()

    # Replaced, not added: a library that called basicConfig would double every line.
    root.handlers[:] = [handler]
    set_level(level)
    logging.captureWarnings(capture=True)


class _Logger(structlog.make_filtering_bound_logger(logging.NOTSET)):  # type: ignore[misc]
    """The class of all loggers. `set_level` replaces its methods, since loggers are cached."""


def set_level(level: LogLevel) -> None:
    """Change the lowest level that is logged, of loggers that exist already, too."""
    threshold = logging.getLevelNamesMapping()[level.upper()]
    # A method below the threshold does nothing, so a debug line that is not logged costs nothing.
    for name, method in vars(structlog.make_filtering_bound_logger(threshold)).items():
        if not name.startswith("__"):
            setattr(_Logger, name, method)

    logging.getLogger().setLevel(max(threshold, logging.WARNING))


def _renderers(log_format: LogFormat, stream: TextIO) -> list[Processor]:
    """The processors that render an event as a line."""
    match log_format:
        case LogFormat.JSON:
            # A value that JSON cannot hold is written as its repr, and such a key is left out: no
            # line is lost.
            return [
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(skipkeys=True),
            ]
        case LogFormat.CONSOLE:
            plain = structlog.dev.plain_traceback
            console = structlog.dev.ConsoleRenderer(
                colors=stream.isatty(),
                exception_formatter=plain,
            )
            return [structlog.processors.format_exc_info, _escape, console]


def _escape(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Write characters that are not printable as Python does; the lines of a traceback are kept,
    and indented.

    Values that are no text are shown by their repr, which does the same.
    """
    for key, value in event.items():
        if key in {"exception", "stack"}:
            event[key] = "\n".join(f"    {_printable(line)}" for line in str(value).splitlines())
        elif isinstance(value, str):
            event[key] = _printable(value)

    return event


def _printable(text: str) -> str:
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
