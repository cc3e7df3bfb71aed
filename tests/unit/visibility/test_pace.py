"""How much of the loop the API may take."""

from __future__ import annotations

import pytest

from gangsched.visibility.pace import AT_ONCE, BURST_S, SHARE, SLICE_S, USERS, Admission, Pace
from gangsched.visibility.statuses import Refused


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
    """No slice of the loop is longer than allowed, a burst is free, and after it a tenth of the time is used."""
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
    assert clock.longest_s < 2 * SLICE_S + 0.0002 < 0.005  # the end of one piece of work and the begin of another


def test_a_user_is_refused_before_others_are() -> None:
    """429 with the time after which it is worth a try; another user is still let in."""
    clock = Clock()
    admission = Admission(clock)
    for _ in range(50):
        admission.admit("greedy")
    with pytest.raises(Refused) as refused:
        admission.admit("greedy")
    assert (refused.value.code, refused.value.retry_after_s) == (429, 1)
    admission.admit("other")
    clock.works(1.0)
    for _ in range(25):
        admission.admit("greedy")


def test_all_together_are_bounded() -> None:
    """A thousand users have no more than one hundred at once and fifty a second."""
    clock = Clock()
    admission = Admission(clock)
    let_in = 0
    for _ in range(10):
        for user in range(USERS + 10):
            try:
                admission.admit(str(user))
                let_in += 1
            except Refused:
                pass
        clock.works(1.0)
    assert 500 <= let_in <= 600
    assert len(admission.users) == USERS


async def test_requests_under_way_are_bounded() -> None:
    """Places are given back, also after an error."""
    admission = Admission(Clock())
    for _ in range(2 * AT_ONCE):
        with pytest.raises(KeyError):
            async with admission.place():
                raise KeyError
    places = [admission.place() for _ in range(AT_ONCE)]
    for place in places:
        await place.__aenter__()
    with pytest.raises(Refused):
        await admission.place().__aenter__()
