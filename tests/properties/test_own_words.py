"""Texts are about the gang that they are written for, and times have one notation (E6, E7).

On the random clusters of `test_whose_words`: conditions, Events, statuses and the gangs API.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from gangsched.api.gang_identity import gang_id
from gangsched.model.protocol import RecordEvent, Report, SetPodCondition, SetPodGroupStatus
from gangsched.model.reasons import Reason
from gangsched.state.visibility import Moment, describe, visible_gangs
from tests.properties.test_whose_words import _History
from tests.sizes import of_size

SEED = 51
HISTORIES = of_size(30, 2_000)
NOTATION = re.compile(r"(?<![\d-])\d{4}-\d\d-\d\dT\d\d:\d\dZ")
CLOCK = re.compile(r"\d{1,2}:\d\d")
BEGAN = re.compile(rf"since {NOTATION.pattern}")
SUBJECT = re.compile(r"^(?:waiting for members of )?gang ([^\s;:,]+)")


class Text(NamedTuple):
    """A text, and the id of the gang that it is written for; "" if that is not known."""

    gang: str
    reason: str
    text: str


def texts(report: Report, gangs: dict[str, str]) -> Iterator[Text]:
    """The texts of a report; `gangs` has the gang of each pod by name."""
    match report:
        case SetPodCondition():
            yield Text(gangs.get(report.name, ""), report.reason, report.message)
        case RecordEvent():
            of = report.regarding
            gang = f"{of.namespace}/{of.name}" if of.kind == "PodGroup" else gangs.get(of.name, "")
            yield Text(gang, report.reason, report.message)
        case SetPodGroupStatus():
            conditions: Any = report.status.get("conditions", ())
            for each in conditions:
                yield Text(f"{report.namespace}/{report.name}", each["reason"], each["message"])


def shown(history: _History) -> Iterator[Text]:
    """The texts of the gangs API."""
    world = history.world
    moment = Moment(now_s=world.now_s, wall_s=world.wall_s())
    for namespace, name in visible_gangs(world.state):
        found: Any = describe(world.state, namespace, name, moment)
        status = found["status"]
        for key in ("message", "next"):
            yield Text(f"{namespace}/{name}", status["reason"], status.get(key, ""))


def wrong_times(text: str) -> list[str]:
    """Times in another notation, or more than one time of what is to come."""
    wrong = CLOCK.findall(NOTATION.sub("", text))
    promised = set(NOTATION.findall(BEGAN.sub("", text)))
    return wrong + (sorted(promised) if len(promised) > 1 else [])


def others_words(of: Text) -> list[str]:
    """The gang that a text is about, if it is another one."""
    if not of.gang or of.reason == Reason.INVALID_GANG:
        return []

    return [subject for subject in SUBJECT.findall(of.text) if subject != of.gang]


def all_texts(seed: str) -> list[Text]:
    """The texts of one history."""
    history = _History(random.Random(seed))
    gangs: dict[str, str] = {}
    for _ in range(25):
        history.step()
        for pod in history.world.pods.values():
            ref = gang_id(pod)
            gangs[pod.name] = ref.id if ref is not None else ""

    found = [text for report in history.world.reports for text in texts(report, gangs)]
    return [*found, *shown(history)]


@pytest.mark.long
def test_texts_are_about_their_own_gang_and_times_have_one_notation() -> None:
    """E6: another gang's refusal is told as a sibling's. E7: no two times for one promise."""
    number = times = 0
    siblings = 0
    for index in range(HISTORIES):
        seed = f"{SEED}-{index}"
        print(f"seed {seed}")
        for text in all_texts(seed):
            number += 1
            times += bool(NOTATION.search(text.text))
            siblings += "sibling" in text.text
            assert not wrong_times(text.text), text
            assert not others_words(text), text

    print(f"{number} texts, {times} with a time, {siblings} about a sibling")
    assert times > HISTORIES
    assert siblings > HISTORIES / 2


def test_wrong_texts_are_noticed() -> None:
    """What the property looks for."""
    assert wrong_times("until 18:58:53 at the latest") == ["18:58", ":53"][:1]
    assert wrong_times("until 2026-11-28T18:58:53Z")
    assert not wrong_times("since 2026-11-28T14:02Z; gives up at 2026-11-28T18:58Z")
    assert len(wrong_times("starts at 2026-11-28T18:58Z, until 2026-11-28T18:59Z")) == 2
    assert others_words(Text("ns/a", "Unschedulable", "gang ns/b needs room")) == ["ns/b"]
    assert not others_words(Text("ns/a", "Unschedulable", "waits for its sibling ns/b: gang ns/b"))
