"""Telemetry: what log lines, metrics and health pages promise to those who watch the daemon."""

from __future__ import annotations

import io
import json
import logging
import socket
import warnings
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import structlog
from aiohttp import ClientSession
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gangsched.model.plan import RoundOutcome
from gangsched.model.reasons import Reason
from gangsched.settings import LogFormat, LogLevel, SettingsError
from gangsched.telemetry.health import health_app, serve_health
from gangsched.telemetry.heartbeat import EVERY_S, Heartbeat
from gangsched.telemetry.logs import configure_logging
from gangsched.telemetry.metrics import Metrics


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


# --- logs ---------------------------------------------------------------------------------------------------------


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


# --- metrics ------------------------------------------------------------------------------------------------------


def samples(metrics: Metrics) -> dict[str, float]:
    """Every sample that /metrics would show, as `name{labels}`."""
    text = generate_latest(metrics.registry).decode()
    return {
        sample.name + "".join(f"{{{key}={value}}}" for key, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_series_exist_before_anything_happened() -> None:
    """A dashboard sees zeros, not gaps, for everything that has not happened yet."""
    shown = samples(Metrics())
    assert shown["gangsched_cycles_total"] == 0
    assert all(shown[f"gangsched_verdicts_total{{reason={reason}}}"] == 0 for reason in Reason)
    assert all(shown[f"gangsched_rounds_total{{outcome={outcome}}}"] == 0 for outcome in RoundOutcome)
    assert all(shown[f"gangsched_binds_total{{result={result}}}"] == 0 for result in ("bound", "gone", "failed"))
    assert all(shown[f"gangsched_queue_groups{{part={part}}}"] == 0 for part in ("active", "backoff", "parked"))


def test_counting_is_shown_under_the_promised_names() -> None:
    """What is counted appears with our prefix, its unit and its label."""
    metrics = Metrics()
    metrics.cycles.inc()
    metrics.cycle_seconds.observe(0.004)
    metrics.verdicts[Reason.UNSCHEDULABLE].inc()
    metrics.binds["bound"].inc(5)
    metrics.queue_groups["parked"].set(2)
    metrics.holds.set(7)
    shown = samples(metrics)
    assert shown["gangsched_cycles_total"] == 1
    assert shown["gangsched_cycle_seconds_bucket{le=0.005}"] == 1
    assert shown["gangsched_cycle_seconds_bucket{le=0.002}"] == 0
    assert shown["gangsched_verdicts_total{reason=Unschedulable}"] == 1
    assert shown["gangsched_binds_total{result=bound}"] == 5
    assert shown["gangsched_queue_groups{part=parked}"] == 2
    assert shown["gangsched_holds"] == 7


def test_every_metric_of_ours_has_the_prefix() -> None:
    """Nothing of ours collides with another program's metrics; the rest is Python's own."""
    names = {name.split("{")[0] for name in samples(Metrics())}
    assert {name for name in names if not name.startswith(("gangsched_", "process_", "python_"))} == set()


def test_two_daemons_in_one_process_do_not_share_numbers() -> None:
    """The registry is private, so that a simulator may run several daemons."""
    first, second = Metrics(), Metrics()
    first.cycles.inc()
    assert samples(second)["gangsched_cycles_total"] == 0


@dataclass
class Counts:
    """Plain counters as their owners keep them."""

    lists: int = 0
    lost_answers: int = 0


def test_published_counters_are_read_when_scraped() -> None:
    """A dataclass of integers becomes metrics by part, and later increments are seen."""
    metrics, pods, nodes = Metrics(), Counts(), Counts(lists=2)
    metrics.publish("reflector", "pods", pods)
    metrics.publish("reflector", "nodes", nodes)
    pods.lost_answers += 3
    shown = samples(metrics)
    assert shown["gangsched_reflector_lost_answers_total{part=pods}"] == 3
    assert shown["gangsched_reflector_lists_total{part=nodes}"] == 2
    assert shown["gangsched_reflector_lists_total{part=pods}"] == 0


# --- heartbeat ----------------------------------------------------------------------------------------------------


class Ended(Exception):  # noqa: N818  (not an error: the end of a test's script)
    """The script of a fake sleep is over."""


class Clock:
    """A clock whose sleeps take as much longer than asked as the script says."""

    def __init__(self, late_s: list[float]) -> None:
        self.now_s = 100.0
        self._late_s = iter(late_s)

    def now(self) -> float:
        """The time."""
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        """Move the clock; ends the test's run when the script is over."""
        late_s = next(self._late_s, None)
        if late_s is None:
            raise Ended
        self.now_s += seconds + late_s


async def beaten(clock: Clock, metrics: Metrics | None = None) -> Heartbeat:
    """A heartbeat that has run through the clock's script."""
    heartbeat = Heartbeat(metrics or Metrics(), now=clock.now, sleep=clock.sleep)
    with pytest.raises(Ended):
        await heartbeat.run()
    return heartbeat


async def test_heartbeat_measures_lag_and_keeps_the_worst() -> None:
    """The gauges show the last lag and the longest stall so far."""
    metrics = Metrics()
    heartbeat = await beaten(Clock([0.0, 0.7, 0.2]), metrics)
    assert heartbeat.lag_s == pytest.approx(0.2)
    assert heartbeat.max_stall_s == pytest.approx(0.7)
    assert heartbeat.alive
    shown = samples(metrics)
    assert shown["gangsched_loop_lag_seconds"] == pytest.approx(0.2)
    assert shown["gangsched_loop_stall_max_seconds"] == pytest.approx(0.7)


async def test_a_stall_of_five_seconds_is_not_alive_until_the_next_beat() -> None:
    """A stall turns the heartbeat dead, and one that is over is forgiven."""
    assert not (await beaten(Clock([5.0]))).alive
    assert (await beaten(Clock([5.0, 0.0]))).alive


async def test_a_beat_that_never_comes_is_not_alive() -> None:
    """A heartbeat whose task has ended is found out by the clock."""
    clock = Clock([0.0])
    heartbeat = await beaten(clock)
    clock.now_s += EVERY_S + 4.9
    assert heartbeat.alive
    clock.now_s += 0.2
    assert not heartbeat.alive


# --- health -------------------------------------------------------------------------------------------------------

Ask = Callable[[str], Awaitable[tuple[int, str]]]


@dataclass
class Watched:
    """What the pages look at."""

    clock: Clock
    metrics: Metrics
    waiting_for: list[str]
    ask: Ask


@pytest.fixture
async def watched() -> Any:
    """The health pages on a free port of 127.0.0.1."""
    clock, metrics, waiting_for = Clock([]), Metrics(), ["pods", "nodes"]
    heartbeat = Heartbeat(metrics, now=clock.now, sleep=clock.sleep)
    app = health_app(metrics=metrics, heartbeat=heartbeat, waiting_for=lambda: waiting_for)
    async with TestClient(TestServer(app)) as client:

        async def ask(path: str) -> tuple[int, str]:
            async with client.get(path) as response:
                return response.status, await response.text()

        yield Watched(clock, metrics, waiting_for, ask)


async def test_livez_follows_the_heartbeat(watched: Watched) -> None:
    """Green while the loop beats, red once it is five seconds late."""
    assert await watched.ask("/livez") == (200, "ok\n")
    watched.clock.now_s += 6.0
    status, text = await watched.ask("/livez")
    assert status == 503
    assert "late by 6.0 s" in text


async def test_readyz_names_what_is_missing(watched: Watched) -> None:
    """Not ready before the caches are synced, and the answer says which are not."""
    status, text = await watched.ask("/readyz")
    assert (status, json.loads(text)) == (503, {"ready": False, "waitingFor": ["pods", "nodes"]})
    watched.waiting_for.clear()
    status, text = await watched.ask("/readyz")
    assert (status, json.loads(text)) == (200, {"ready": True, "waitingFor": []})


async def test_metrics_page_is_what_prometheus_reads(watched: Watched) -> None:
    """The page parses and shows the registry's numbers."""
    watched.metrics.cycles.inc()
    status, text = await watched.ask("/metrics")
    assert status == 200
    assert "gangsched_cycles_total 1.0" in text
    assert "gangsched_build_info{" in text


async def test_health_is_served_while_the_block_runs() -> None:
    """The port answers inside the block and is free again after it."""
    metrics = Metrics()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for _ in range(2):
        async with (
            serve_health("127.0.0.1", port, metrics=metrics, heartbeat=Heartbeat(metrics), waiting_for=list),
            ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/readyz") as response,
        ):
            assert response.status == 200


async def test_a_port_in_use_is_one_sentence() -> None:
    """Another program on the port ends the start with its name, the cause and the fix."""
    metrics = Metrics()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        health = serve_health("127.0.0.1", port, metrics=metrics, heartbeat=Heartbeat(metrics), waiting_for=list)
        with pytest.raises(SettingsError) as caught:
            await health.__aenter__()
    assert str(caught.value) == (
        f"Cannot serve health and metrics on 127.0.0.1:{port}: Address already in use; "
        "choose another --health-port, or 0 for none."
    )


async def test_port_zero_serves_nothing() -> None:
    """Health can be switched off; nothing listens and nothing fails."""
    metrics = Metrics()
    async with serve_health("no.such.host.invalid", 0, metrics=metrics, heartbeat=Heartbeat(metrics), waiting_for=list):
        pass
