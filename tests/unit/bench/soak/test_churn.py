"""The churn: what it does when the API server is too busy to answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from control_plane.api import ApiError

from bench.soak.churn import TRIES, ask


def answers(*faults: Exception | None) -> Callable[[], None]:
    """One after the other; None is success."""
    left = list(faults)

    def call() -> None:
        fault = left.pop(0)
        if fault is not None:
            raise fault

    return call


BUSY, EXISTS = ApiError(504, "Timeout"), ApiError(409, "AlreadyExists")


@pytest.mark.parametrize("fault", [TimeoutError(), BUSY])
def test_a_request_that_is_not_answered_is_sent_again(fault: Exception) -> None:
    """Until it is carried out, or was: a soak of half an hour does not end for one slow answer."""
    ask(answers(fault, fault, None))
    ask(answers(fault, EXISTS), done=409)


def test_other_refusals_are_raised() -> None:
    """Also that an object exists which was never asked for before, and what is too slow for too
    long.
    """
    with pytest.raises(ApiError, match="409"):
        ask(answers(EXISTS), done=409)
    with pytest.raises(ApiError, match="403"):
        ask(answers(TimeoutError(), ApiError(403, "Forbidden")), done=409)
    with pytest.raises(TimeoutError):
        ask(answers(*[TimeoutError()] * TRIES))
