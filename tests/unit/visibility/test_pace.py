"""How much of the loop the API may take."""

from __future__ import annotations

import pytest

from gangsched.visibility.pace import BURST_S, SHARE, SLICE_S, Pace


class Clock:
    """Time passes by work and by sleep."""

    def __init__(self) -> None:
        self.now_s = self.slept_s = self.longest_s = self._slice_s = self._worked_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def cpu_s(self) -> float:
        """Time of work alone."""
        return self._worked_s

    def works(self, seconds: float) -> None:
        """Work that cannot be cut."""
        self.now_s += seconds
        self._slice_s += seconds
        self._worked_s += seconds
        self.longest_s = max(self.longest_s, self._slice_s)

    async def sleep(self, seconds: float) -> None:
        """Also of length 0: others have their turn."""
        self.now_s += seconds
        self.slept_s += seconds
        self._slice_s = 0.0


async def test_work_is_cut_into_slices_and_takes_its_share() -> None:
    """No slice of the loop is longer than allowed, a burst is free, and after it a tenth of the
    time is used.
    """
    clock = Clock()
    pace = Pace(clock, clock.cpu_s, clock.sleep)
    async with pace.work() as step:
        for _ in range(int(BURST_S / 0.0001)):
            clock.works(0.0001)
            await step()
    assert clock.slept_s == pytest.approx(0.0, abs=0.01)
    began_s, worked_s = clock.now_s, pace.spent_s
    async with pace.work() as step:
        for _ in range(10_000):
            clock.works(0.0001)
            await step()
    assert (pace.spent_s - worked_s) / (clock.now_s - began_s) == pytest.approx(SHARE, rel=0.15)
    # the end of one piece of work and the begin of another
    assert clock.longest_s < 2 * SLICE_S + 0.0002 < 0.005
