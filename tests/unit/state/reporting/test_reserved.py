"""What is said of reservations: the sentences, and when a time is news."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gangsched.model.gang import Refusal
from gangsched.model.plan import Verdict
from gangsched.model.reasons import Reason
from gangsched.model.reservation import Blocker, KeptFor, NotEntitled, NotReserved, Reserved
from gangsched.model.verdict_facts import Worded
from gangsched.sentences import say
from gangsched.sentences.reserving import duration, ended, kept_for, not_reserved
from gangsched.state.reporting.reserved import Told, with_tail

AT_S = 1_795_356_300.0
"""2026-11-22T14:05:00Z."""
NOW_S = AT_S - 3 * 3_600


def blockers(*ids: str) -> tuple[Blocker, ...]:
    """Groups that must end first."""
    return tuple(Blocker(each, each.removeprefix("pod:").partition("/")[0]) for each in ids)


def reserved(**fields: Any) -> Reserved:
    """Four nodes for a gang of the namespace ml."""
    given: dict[str, Any] = {
        "group": "ml/big",
        "namespaces": frozenset({"ml"}),
        "priority": 0,
        "since_s": int(NOW_S),
        "run_time_s": math.inf,
        "at_s": AT_S,
        "nodes": ("gpu-22", "gpu-07", "gpu-15", "gpu-01"),
        "first": True,
        "promised_s": AT_S,
        "waits_for": blockers("ml/a", "other/secret", "ml/c"),
    }
    return Reserved(**{**given, **fields})


def said(namespace: str = "ml", **fields: Any) -> str:
    """What is told three hours before."""
    return Told(reserved(**fields)).text(namespace)


def test_a_promise() -> None:
    """H13: the first head is told nodes, latest start, and one of its own namespace for whom it
    waits.
    """
    assert (
        said() == "room on 4 nodes (gpu-01, gpu-07, 2 more) is reserved; "
        "starts at 2026-11-22T14:05Z at the latest, when ml/a and 2 more have ended"
    )


def test_an_estimate() -> None:
    """H13: the others are told an estimate, in words that promise nothing."""
    assert "expected at about 2026-11-22T14:05Z, when" in said(first=False)
    assert "latest" not in said(first=False)
    assert "latest" not in said(promised_s=math.inf)


@pytest.mark.parametrize(
    ("waits_for", "text"),
    [
        ((), "at the latest"),
        (("ml/a",), "at the latest, when ml/a has ended"),
        (("pod:ml/a",), "at the latest, when pod ml/a has ended"),
        (("other/a",), "at the latest, when another group has ended"),
        (("other/a", "ml/b"), "at the latest, when ml/b and 1 more have ended"),
        (("other/a", "more/b"), "at the latest, when 2 other groups have ended"),
    ],
)
def test_other_namespaces_are_counted_and_not_named(waits_for: tuple[str, ...], text: str) -> None:
    """H13: no text tells whether a group of another namespace exists by its name."""
    assert said(waits_for=blockers(*waits_for)).endswith(text)


def test_a_group_across_namespaces_is_told_apart() -> None:
    """H13: in each namespace of a group only that namespace's groups are named."""
    assert "other/secret and 2 more" in said("other")
    assert "other/secret" not in said("ml")


@pytest.mark.parametrize(
    ("empty", "text"),
    [
        (
            0,
            (
                "0 of 4 nodes are free and reserved; 4 more must become empty, but their pods"
                " declare no run time"
            ),
        ),
        (
            1,
            (
                "1 of 4 nodes is free and reserved; 3 more must become empty, but their pods"
                " declare no run time"
            ),
        ),
        (
            3,
            (
                "3 of 4 nodes are free and reserved; one more must become empty, but its pods"
                " declare no run time"
            ),
        ),
        (4, "4 of 4 nodes are free and reserved"),
    ],
)
def test_a_fence(empty: int, text: str) -> None:
    """H13: a fence says how many nodes it has, and what it waits for."""
    told = Told(reserved(at_s=math.inf, empty=empty))
    assert (told.reason, told.text("ml")) == ("Fenced", text)


def test_a_time_is_never_told_too_early() -> None:
    """H13: a promise is rounded up."""
    assert "starts at 2026-11-22T14:06Z" in said(at_s=AT_S + 0.5)


@pytest.mark.parametrize(
    ("changes", "is_news"),
    [
        ({}, False),
        ({"at_s": AT_S - 290}, False),  # less than five minutes
        ({"at_s": AT_S - 900}, False),  # less than a tenth of three hours
        ({"at_s": AT_S - 1_100}, True),
        ({"at_s": AT_S + 1_100}, True),
        ({"nodes": ("gpu-01", "gpu-07", "gpu-15", "gpu-23")}, True),
        ({"nodes": ("gpu-01", "gpu-07", "gpu-15", "gpu-22")}, False),  # in another order
        ({"at_s": math.inf}, True),
        ({"first": False}, True),
        ({"waits_for": ()}, False),
    ],
)
def test_when_a_reservation_is_news(changes: dict[str, Any], is_news: bool) -> None:
    """H13: nodes, kind, being the first, or a time that moves by over five minutes and a tenth of
    what is left.
    """
    assert Told(reserved()).is_out_of_date(reserved(**changes), wall_s=NOW_S) == is_news


def test_little_left_makes_small_moves_news() -> None:
    """H13: the tenth is of what is left now, not of what was when it was told."""
    told = Told(reserved())
    assert told.is_out_of_date(reserved(at_s=AT_S + 400), wall_s=AT_S - 600)
    assert not told.is_out_of_date(reserved(at_s=AT_S + 200), wall_s=AT_S - 600)


def test_a_fence_is_news_when_a_node_of_it_empties() -> None:
    """H13: how many nodes are free is told anew."""
    fence = reserved(at_s=math.inf, empty=2)
    assert Told(fence).is_out_of_date(reserved(at_s=math.inf, empty=3), wall_s=NOW_S)
    assert not Told(fence).is_out_of_date(fence, wall_s=NOW_S + 99_999)


def test_room_that_is_kept_for_others() -> None:
    """H14: until when, and which run time would let the group start now."""
    text = "it fits only into room that is reserved for gangs ahead of it until 2026-11-22T14:05Z"
    advice = (
        "declare an expected run time of 35m or less (gangsched.dev/expected-runtime) to start now"
    )
    assert kept_for(KeptFor(until_s=AT_S, run_time_s=2_100)) == f"{text}; {advice}"
    assert kept_for(KeptFor(until_s=AT_S)) == text
    assert kept_for(KeptFor(until_s=AT_S, run_time_s=59)) == text
    assert (
        kept_for(KeptFor(until_s=math.inf))
        == "it fits only into room that is reserved for gangs ahead of it"
    )


@pytest.mark.parametrize(
    ("run_time_s", "advised"),
    [
        (60, "1m"),
        (599, "9m"),
        (2_399, "35m"),
        (3_600, "1h"),
        (5_399, "1h15m"),
        (86_399, "18h"),
        (700_000, "192h"),
    ],
)
def test_advice_is_true_and_hardly_changes(run_time_s: float, advised: str) -> None:
    """H14: the advised run time is at most the one that would do, in steps, so that few texts are
    written.
    """
    assert f"of {advised} or less" in kept_for(KeptFor(until_s=AT_S, run_time_s=run_time_s))


def test_durations() -> None:
    """Whole minutes, as a Go duration that the annotation takes."""
    assert [duration(each) for each in (0, 60, 3_600, 5_400, 172_800)] == [
        "0m",
        "1m",
        "1h",
        "1h30m",
        "48h",
    ]


@pytest.mark.parametrize(
    ("why", "text"),
    [
        (
            NotReserved(why=NotEntitled.IMPOSSIBLE, needs=12, offers=8),
            "not reserved: it needs 12 nodes, but the cluster has 8",
        ),
        (
            NotReserved(why=NotEntitled.IMPOSSIBLE),
            "not reserved: it would not start even on an empty cluster",
        ),
        (
            NotReserved(why=NotEntitled.NAMESPACE, namespace="ml", offers=2),
            (
                "not reserved: namespace ml already has 2 reservations, the maximum"
                " (reservations_per_namespace)"
            ),
        ),
        (
            NotReserved(why=NotEntitled.NAMESPACE, namespace="ml", offers=1),
            "namespace ml already has 1 reservation",
        ),
        (
            NotReserved(why=NotEntitled.TOO_YOUNG, until_s=AT_S),
            (
                "not reserved before 2026-11-22T14:05Z: it needs less than one node and has not"
                " waited long enough"
            ),
        ),
        (
            NotReserved(why=NotEntitled.NO_TIME, until_s=AT_S),
            "not reserved before 2026-11-22T14:05Z: running pods declare no run times",
        ),
        (
            NotReserved(why=NotEntitled.LATER),
            "not reserved: older gangs hold the maximum number of reservations",
        ),
        (NotReserved(why=NotEntitled.SHARE), "not reserved: other reservations"),
        (
            NotReserved(why=NotEntitled.SEARCHING),
            "not reserved: the time when enough devices will be free is still",
        ),
        (
            NotReserved(why=NotEntitled.TOO_MUCH_WORK),
            "not reserved: its start time takes longer to compute than one",
        ),
    ],
)
def test_why_nothing_is_reserved(why: NotReserved, text: str) -> None:
    """H14: who is entitled to nothing is told why, and from when on that may change."""
    assert text in not_reserved(why, "ml")


@pytest.mark.parametrize("why", NotEntitled)
def test_every_cause_has_words(why: NotEntitled) -> None:
    """H14: no cause is left without a sentence."""
    assert not_reserved(NotReserved(why=why), "ns").startswith("not reserved")


def verdict(reason: Reason = Reason.UNSCHEDULABLE, now: str = "there is room for 3") -> Verdict:
    """A verdict on a gang, with a note."""
    note = ("uid", Refusal(Reason.HOLDING, Worded("pod ml/p holds room")))
    return Verdict(
        group="ml/big",
        generation=1,
        told=Refusal(reason, Worded("gang ml/big needs room", now)),
        notes=(note,),
    )


def test_the_end_of_a_refusal() -> None:
    """H13: only refusals for lack of room get longer, in what moves; reason and stable message
    stay.
    """
    told = with_tail(verdict(), "room is reserved")
    assert say(told.told).stable == "gang ml/big needs room"
    assert say(told.told).now == "there is room for 3. Room is reserved."
    assert told.notes == verdict().notes
    assert say(with_tail(verdict(now=""), "room is reserved").told).now == "room is reserved"
    assert say(with_tail(verdict(now="0/3 nodes."), "room is").told).now == "0/3 nodes. Room is."
    assert with_tail(verdict(Reason.HOLDING), "room is reserved") == verdict(Reason.HOLDING)


def test_how_a_reservation_ends() -> None:
    """H13: started, lost with the cause, or not needed any more."""
    why = NotReserved(why=NotEntitled.IMPOSSIBLE, needs=12, offers=8)
    assert ended(verdict(Reason.SCHEDULED), None, "ns")[:2] == (False, "Started")
    assert ended(verdict(), why, "ns") == (
        False,
        "Lost",
        "not reserved: it needs 12 nodes, but the cluster has 8",
    )
    assert ended(verdict(), None, "ns")[1] == "Lost"
    assert ended(verdict(Reason.WAITING_FOR_MEMBERS), why, "ns")[1] == "NotNeeded"
    assert ended(None, None, "ns")[1] == "NotNeeded"
