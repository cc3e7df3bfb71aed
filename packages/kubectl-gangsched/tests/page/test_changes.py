"""The changes between two moments."""

from __future__ import annotations

import random

import msgspec

from kubectl_gangsched.page.changes import applied, between, is_nothing
from kubectl_gangsched.page.document import Change, Document, Moment, PageGang
from tests.page_examples import big, demo


def test_a_moment_after_its_change_is_the_later_one() -> None:
    """A change carries everything that differs, also through JSON."""
    for document in (demo(), big(nodes=60, waiting=40, moments=5)):
        read = msgspec.json.decode(msgspec.json.encode(document), type=Document)
        assert read == document
        moment = read.moment
        for change in read.changes:
            later = applied(moment, change)
            assert between(moment, later) == change
            moment = later


def test_any_two_queues_differ_by_one_change() -> None:
    """Random queues, of which gangs leave, join and change places."""
    chance = random.Random(54)
    for _ in range(2_000):
        names = [f"n/{number}" for number in range(chance.randrange(8))]
        first, second = (
            [
                (name, chance.randrange(2))
                for name in chance.sample(names, chance.randrange(len(names) + 1))
            ]
            for _ in range(2)
        )
        before, after = Moment(at_s=0, queue=first), Moment(at_s=1, queue=second)
        assert applied(before, between(before, after)).queue == second


def test_a_start_at_the_head_of_a_long_queue_is_a_short_change() -> None:
    """Positions are relative, so that those behind do not change."""
    queue = [(f"n/{number}", 1) for number in range(10_000)]
    change = between(Moment(at_s=0, queue=queue), Moment(at_s=1, queue=queue[1:]))
    assert len(msgspec.json.encode(change)) < 100


def test_a_start_and_an_arrival_together_are_a_short_change() -> None:
    """At the head, at the end and between them, also where a place changes behind each."""
    queue = [(f"n/{number}", 1) for number in range(10_000)]
    later = [*queue[2:7_000], ("n/between", 0), *queue[7_000:], ("n/last", 1)]
    later[0] = (later[0][0], 3)
    change = between(Moment(at_s=0, queue=queue), Moment(at_s=1, queue=later))
    assert len(msgspec.json.encode(change)) < 250
    assert applied(Moment(at_s=0, queue=queue), change).queue == later


def test_what_is_gone_is_null_and_nothing_is_said_of_the_rest() -> None:
    """A table in a change has only the rows that differ."""
    gang = PageGang(namespace="n", name="a")
    before = Moment(at_s=0, gangs={"n/a": gang, "n/b": gang})
    change = between(before, Moment(at_s=1, gangs={"n/b": gang}))
    assert msgspec.json.encode(change) == b'{"atS":1,"gangs":{"n/a":null}}'
    assert is_nothing(between(before, msgspec.structs.replace(before, at_s=9)))
    assert not is_nothing(Change(at_s=1, sentence=""))
