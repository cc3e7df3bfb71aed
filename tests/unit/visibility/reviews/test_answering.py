"""The answer to a review, of which a part may not come (0044)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gangsched.visibility.pace import Pace
from gangsched.visibility.ports import Json
from gangsched.visibility.reviews import answering, processes
from gangsched.visibility.reviews.answering import MORE, answer
from gangsched.visibility.reviews.processes import Processes
from gangsched.visibility.reviews.request import read_review
from gangsched.visibility.reviews.review import Reviewer
from gangsched.visibility.statuses import RequestRefused
from tests.builders import node
from tests.unit.visibility.reviews.test_review import Asked, body, pod_set
from tests.world import World


async def answered(gpus: int = 16) -> Json:
    """The answer to a review of one pod, on a node of eight GPUs."""
    asked = Asked(World(node("a", 8)).settle())
    review = read_review(body(pod_set(1, gpus)))
    wanted = await asked.reviewer.wanted("ns", review, is_master=True)
    return await answer(Processes(Pace()), asked.reviewer, wanted, review, sees_nodes=True)


async def test_the_answer_of_another_process_is_the_same() -> None:
    """Status and suggestions."""
    for gpus in (8, 16):
        there = await Asked(World(node("a", 8)).settle()).review(body(pod_set(1, gpus)))
        assert await answered(gpus) == there


def sleeps(*_: Any, **__: Any) -> Any:
    """Work that takes too long."""
    time.sleep(60.0)


async def test_suggestions_that_come_too_late_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found until then is told, and that there might be more."""

    def slow(*_: object, **__: object) -> Iterator[str]:
        yield "a node more"
        sleeps()

    # the plan itself is in time on a machine that does other things
    monkeypatch.setattr(processes, "WITHIN_S", 3.0)
    monkeypatch.setattr(answering, "suggestions", slow)
    assert (await answered())["suggestions"] == ["a node more", MORE]


def fails(*_: Any, **__: Any) -> Any:
    """Work with a bug."""
    raise LookupError("a bug")


def refuses(*_: Any, **__: Any) -> Any:
    """Work that is refused."""
    raise RequestRefused(503, "others come first", retry_after_s=1)


@pytest.mark.parametrize(
    ("attempt", "within_s", "code", "words"),
    [
        (sleeps, 0.5, 504, "no plan of it was made within"),
        # A new process is in time on a machine that does other things.
        (refuses, 60.0, 503, "others come first"),
    ],
)
async def test_without_a_plan_there_is_a_refusal(
    monkeypatch: pytest.MonkeyPatch,
    attempt: Callable[..., Any],
    within_s: float,
    code: int,
    words: str,
) -> None:
    """Its own, or that it takes too long."""
    monkeypatch.setattr(processes, "WITHIN_S", within_s)
    monkeypatch.setattr(Reviewer, "attempt", attempt)
    with pytest.raises(RequestRefused, match=words) as refused:
        await answered()
    assert (refused.value.code, refused.value.retry_after_s > 0) == (code, True)


async def test_an_error_there_is_an_error_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is logged, and answered 500."""
    monkeypatch.setattr(Reviewer, "attempt", fails)
    with pytest.raises(RuntimeError, match="LookupError: a bug"):
        await answered()
