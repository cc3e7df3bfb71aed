"""The page for newcomers has every case, every Reason has a place on it, and it says what to do."""

from __future__ import annotations

import re

from gangsched.model.reasons import Reason
from tests.newcomer.cases import CASES
from tests.newcomer.page import PAGE, blocks, documented

#: What waits by itself and needs nobody; operations.md explains them.
NORMAL = {Reason.SCHEDULED, Reason.HOLDING, Reason.YIELDED, Reason.PREEMPTING, Reason.UNSUPPORTED}


def test_every_case_stands_on_the_page_and_no_other() -> None:
    """At least thirty, each once; what is said there is checked on a real API server."""
    assert documented().keys() == CASES.keys()
    assert len(CASES) >= 30
    assert all(documented().values())


def test_every_reason_that_asks_for_something_has_a_heading() -> None:
    """A user looks up the Reason that the pod shows."""
    headings = set(re.findall(r"(?m)^## (\w+)$", PAGE.read_text()))
    assert {reason.value for reason in Reason} - {reason.value for reason in NORMAL} <= headings


def test_every_case_says_what_to_do() -> None:
    """Each block is followed by one line of advice."""
    text = PAGE.read_text()
    assert len(re.findall(r"```\n\n\*\*Do:\*\* \S", text)) == len(blocks())
