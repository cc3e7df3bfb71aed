"""The heartbeat: how late the event loop is, and when it counts as dead."""

from __future__ import annotations

import pytest

from gangsched.telemetry.heartbeat import EVERY_S, Heartbeat
from gangsched.telemetry.metrics import Metrics
from tests.unit.telemetry.seen import Clock, Ended, samples


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
