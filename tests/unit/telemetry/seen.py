"""What the tests of telemetry share: the samples of a registry, and a clock that is late as a
script says.
"""

from __future__ import annotations

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gangsched.telemetry.metrics import Metrics


def samples(metrics: Metrics) -> dict[str, float]:
    """Every sample that /metrics would show, as `name{labels}`."""
    text = generate_latest(metrics.registry).decode()
    return {
        sample.name
        + "".join(
            f"{{{key}={value}}}" for key, value in sorted(sample.labels.items())
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


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
