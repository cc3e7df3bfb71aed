"""Misspelt scheduler names: told once, counted, and never at the cost of memory or of the log's
form.
"""

from __future__ import annotations

import msgspec
import pytest

from gangsched.kube.read.resources import pods
from gangsched.kube.read.scheduler_names import REMEMBERED, TOLD_AT_MOST, SchedulerNames, within
from gangsched.kube.read.shapes import ShapeTable
from gangsched.kube.read.store import Store
from gangsched.model.objects import Pod
from gangsched.model.protocol import Applied, Message
from tests.unit.kube.fakes import line
from tests.unit.kube.fakes import pod as body


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("gangshced", True),
        ("gangshed", True),
        ("gang-sched", True),
        ("Gangsched", True),
        ("gangscheduler", False),
        ("default-scheduler", False),
        ("", False),
        ("g" * 100_000, False),
    ],
)
def test_names_within_two_letters(name: str, *, near: bool) -> None:
    """Two letters more, fewer or other; a name that is simply another is nobody's business."""
    told: list[str] = []
    names = SchedulerNames(["gangsched"], told.append)
    for _ in range(3):
        names.compare(name, "ns/p")
    assert (len(told), names.counts.misspelt) == (int(near), int(near))
    if near:
        assert told == [
            f'Pod ns/p has schedulerName "{name}", which is not ours but close to "gangsched": '
            "if it is misspelt, nobody schedules the pod."
        ]


def test_our_own_names_are_not_near_each_other() -> None:
    """Two names of ours may differ by one letter."""
    told: list[str] = []
    names = SchedulerNames(["gang-a", "gang-b"], told.append)
    names.compare("gang-a", "ns/p")
    assert "gang-b" in names.ours
    assert told == []


def test_a_name_cannot_forge_a_log_line() -> None:
    """Control characters are shown as replaced."""
    told: list[str] = []
    SchedulerNames(["gangsched"], told.append).compare("gangsch\ned", "ns/p")
    assert "\n" not in told[0]


def test_thousands_of_names_are_neither_told_nor_remembered_for_ever() -> None:
    """A tenant who invents names fills neither the log nor the memory."""
    told: list[str] = []
    names = SchedulerNames(["gangsched"], told.append)
    for number in range(3 * REMEMBERED):
        names.compare(f"gangsch{chr(0x4E00 + number)}", "ns/p")
    assert len(told) == TOLD_AT_MOST
    assert names.counts.misspelt == 3 * REMEMBERED
    assert len(names._compared) <= REMEMBERED


@pytest.mark.parametrize(
    ("a", "b", "letters"), [("", "", 0), ("abc", "abd", 1), ("abc", "bcd", 2), ("abc", "", 3)]
)
def test_distance(a: str, b: str, letters: int) -> None:
    """Levenshtein's."""
    assert within(letters, a, b)
    assert within(letters, b, a)
    assert letters == 0 or not within(letters - 1, a, b)


def test_pods_are_compared_while_they_wait_and_only_ours_keep_their_condition() -> None:
    """A bound or ended pod found its scheduler; what others' conditions say is not kept."""
    told: list[str] = []
    messages: list[Message] = []
    names = SchedulerNames(["gangsched"], told.append)
    store = Store(pods(ShapeTable(), names), messages.append, print)
    conditions = {
        "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "R", "message": "m" * 9_000}
        ]
    }
    for name, scheduler, node in (
        ("a", "gangshed", "n"),
        ("b", "gangshed", ""),
        ("c", "gangsched", ""),
    ):
        one = body(name, node=node, spec={"schedulerName": scheduler}, status=conditions)
        store.take_line(msgspec.json.encode(line("ADDED", one)))
    kept = {
        message.item.name: message.item.condition
        for message in messages
        if isinstance(message, Applied)
        if isinstance(message.item, Pod)
    }
    assert [sentence.split()[1] for sentence in told] == ["ns/b"]
    assert kept["a"] is kept["b"] is None
    assert kept["c"] is not None
    assert len(kept["c"].message) < 2_000
