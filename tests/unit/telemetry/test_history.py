"""The ring: bounded for all and for each gang; what repeats is one entry, and few lines."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
import structlog

from gangsched.telemetry.history import BURST, OBJECTS, REPEATS_WITHIN_S, WORDS, Happening, History


class At:
    """A clock by hand, a history of three entries, and what was logged."""

    def __init__(self, entries: int = 3) -> None:
        self.now_s = 1_000.0
        self.history = History(lambda: self.now_s, entries=entries)
        self.lines: list[dict[str, Any]] = []
        # All levels, whatever a test before this one configured for the process.
        all_levels = structlog.make_filtering_bound_logger(0)
        self.history._log = structlog.wrap_logger(
            None, processors=[self._keep], wrapper_class=all_levels
        )

    def _keep(self, _: Any, level: str, event: Any) -> Any:
        self.lines.append({**event, "level": level})
        raise structlog.DropEvent

    def seen(self, gang: str = "ns/g") -> list[tuple[Happening, int]]:
        """What the ring has of a gang, and how often."""
        return [(entry.what, entry.times) for entry in self.history.of({gang})]


def test_what_repeats_is_one_entry_and_few_lines() -> None:
    """A bind that is refused each second: the 1st, 2nd, 4th, … time is logged; the entry has the
    last text.
    """
    at = At()
    for number in range(100):
        at.now_s += 1
        text = f"no {number}"
        at.history.note(
            "ns/g", Happening.BIND_REFUSED, text, objects=[(f"p-{number % 2}", f"uid-{number % 2}")]
        )
    assert at.seen() == [(Happening.BIND_REFUSED, 100)]
    assert [line.get("times", 1) for line in at.lines] == [1, 2, 4, 8, 16, 32, 64]
    (entry,) = at.history.of({"ns/g"})
    assert (entry.message, entry.first_s, entry.last_s) == ("no 99", 1_001.0, 1_100.0)
    assert entry.objects == (("p-1", "uid-1"), ("p-0", "uid-0"))
    at.now_s += REPEATS_WITHIN_S
    at.history.note("ns/g", Happening.BIND_REFUSED, "again")
    assert at.seen() == [(Happening.BIND_REFUSED, 100), (Happening.BIND_REFUSED, 1)]


def test_what_waits_repeats_only_with_the_same_text_and_is_for_debug() -> None:
    """Another refusal is another entry."""
    at = At()
    for text in ("a", "b", "a"):
        at.history.note("ns/g", Happening.WAITS, text)
    assert [(entry.message, entry.times) for entry in at.history.of({"ns/g"})] == [
        ("a", 2),
        ("b", 1),
    ]
    assert {line["level"] for line in at.lines} == {"debug"}


def test_what_happens_again_later_is_another_entry() -> None:
    """A gang that starts, is preempted and starts again has three."""
    at = At()
    for what in (Happening.STARTED, Happening.PREEMPTED, Happening.STARTED):
        at.history.note("ns/g", what, "x")
    assert at.seen() == [(Happening.STARTED, 1), (Happening.PREEMPTED, 1), (Happening.STARTED, 1)]


def test_the_oldest_entry_makes_room_and_the_time_is_told() -> None:
    """Nothing is missing since the last entry that was pushed out; its repetition begins a new
    entry.
    """
    at = At(entries=2)
    assert at.history.complete_since_s == 1_000.0
    at.history.note("ns/g", Happening.BIND_REFUSED, "x")
    at.now_s += 5
    for gang in ("ns/a", "ns/b"):
        at.history.note(gang, Happening.STARTED, "x")
    assert (len(at.history), at.seen(), at.history.complete_since_s) == (2, [], 1_000.0)
    at.history.note("ns/g", Happening.BIND_REFUSED, "x")
    assert at.seen() == [(Happening.BIND_REFUSED, 1)]
    assert at.history.complete_since_s == 1_005.0
    assert len(at.history._repeating) == 1


def test_no_gang_pushes_out_the_others() -> None:
    """One that starts all the time gets its allowance, and is told how much was left out."""
    at = At(entries=1_000)
    at.history.note("ns/quiet", Happening.STARTED, "x")
    for _ in range(500):
        at.history.note("ns/loud", Happening.STARTED, "x")
    assert len(at.seen("ns/loud")) == BURST
    assert len(at.seen("ns/quiet")) == 1
    at.now_s += 60
    at.history.note("ns/loud", Happening.STARTED, "x")
    assert at.lines[-1]["left_out"] == 500 - BURST


def test_texts_and_objects_are_bounded() -> None:
    """However long a refusal is and however many victims there are."""
    at = At()
    at.history.note(
        "ns/g", Happening.PREEMPTING, "x" * 5_000, objects=[(f"p{n}", "u") for n in range(100)]
    )
    (entry,) = at.history.of({"ns/g"})
    assert (len(entry.message), len(entry.objects), entry.number) == (WORDS, OBJECTS, 100)
    assert at.lines[0]["number"] == 100


@pytest.mark.parametrize("what", Happening)
def test_a_line_can_be_written_as_json(what: Happening) -> None:
    """With every field."""
    at = At()
    at.history.note("ns/g", what, "x", reason="r", uid="u", plan=3, objects=[("p", "uid")])
    (line,) = at.lines
    json.dump(line, io.StringIO())
    assert (line["event"], line["gang"], line["plan"], line["objects"]) == (
        what.value,
        "ns/g",
        3,
        ["p uid"],
    )
