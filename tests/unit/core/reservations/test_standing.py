"""Which groups get the next reservation, and when they are examined again (H3, H5)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from gangsched.api import keys
from gangsched.core.reservations import heads, new_reservation
from gangsched.core.reservations.heads import Head
from gangsched.core.reserve import Ledger
from gangsched.model.objects import ClaimUse, Shape
from gangsched.model.protocol import Applied
from gangsched.model.reservation import NotEntitled, NotReserved, ReservationLimits
from gangsched.model.storage import Claim, StorageClass
from gangsched.state.group_record import QueueCause
from gangsched.state.rule_set import Rules
from tests.builders import members, node, pod, pod_group, running, shape
from tests.unit.state.reserving.test_reservations import full, gang_of, plain, standing, world
from tests.world import World


def test_a_place_that_becomes_free_goes_to_the_next_group() -> None:
    """H3: also where that one has its turn in the plan that ends the reservation before it."""
    there, _ = full(3, reservations=1)
    first = gang_of(there, "a", 1)
    there.settle()
    gang_of(there, "b", 2)
    there.settle()
    assert [each for each, *_ in standing(there)] == ["ns/a"]
    there.state.queue.activate("ns/b", QueueCause.SAFETY_NET)
    there.delete(*first)
    there.settle()
    assert [each for each, *_ in standing(there)] == ["ns/b"]


def test_a_tree_that_runs_reserves_nothing_for_a_further_child() -> None:
    """I9: its minimum has started, so that its third child has no reservation, whoever
    asks first.
    """
    there = world(4)
    for name in "abc":
        gang_of(there, name, 2, parent="t", min_children=2, run_s=100)
    there.settle()
    assert len(there.bound()) == 4
    plain(there, "other", 8)
    there.advance(5)
    assert [each for each, *_ in standing(there)] == ["pod:ns/other"]


@pytest.mark.parametrize("ahead_s", [0.0, 86_400.0])
def test_a_search_that_takes_too_long_is_made_again_after_a_minute(
    monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    """H5: nobody is told that older gangs hold all reservations, and others behind it have theirs
    meanwhile. A clock that was ahead at the first search delays the next one no longer.
    """
    there, _ = full(4)
    there.clock_s = ahead_s
    find_time = new_reservation.find_time

    def searched(head: Head, ledger: Ledger, *args: Any, **kwargs: Any) -> Any:
        if head.group.id == "ns/hard":
            ledger.work.charge(10**9)
        return find_time(head, ledger, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(new_reservation, "find_time", searched)
        gang_of(there, "hard", 2)
        there.settle()
        said = there.state.registry.groups["ns/hard"].not_reserved
        assert said == NotReserved(why=NotEntitled.TOO_MUCH_WORK, until_s=there.wall_s() + 60)
        there.advance(1)
        gang_of(there, "next", 1)
        there.settle()
        assert [each for each, *_ in standing(there)] == ["ns/next"]
    there.advance(58)
    assert [each for each, *_ in standing(there)] == ["ns/next"]
    there.clock_s = 0.0
    there.advance(2)
    assert [each for each, *_ in standing(there)] == [
        "ns/next",
        "ns/hard",
    ], "the first one was promised its time"


@pytest.mark.parametrize("to_start", [1_000, 7_000, 8_500])
def test_work_that_runs_out_where_there_is_no_time_is_no_answer(
    monkeypatch: pytest.MonkeyPatch, to_start: int
) -> None:
    """H5: whether a head can still start is asked with all of a plan's work, not with what the
    search for its time has left; it was told each minute that this takes too much work.
    """
    there, _ = full(4)
    find_time = new_reservation.find_time
    fits = heads._fits
    asked: list[str] = []

    def searched(head: Head, ledger: Ledger, *args: Any, **kwargs: Any) -> Any:
        if head.group.id != "ns/hard":
            return find_time(head, ledger, *args, **kwargs)

        ledger.work.charge(5_000)
        return None

    def examined(head: Head, empty: Ledger) -> bool:
        if head.group.id == "ns/hard":
            asked.append(head.group.id)
            empty.work.charge(to_start)

        return fits(head, empty)

    monkeypatch.setattr(new_reservation, "find_time", searched)
    monkeypatch.setattr(heads, "_fits", examined)
    gang_of(there, "hard", 2)
    there.settle()

    said = there.state.registry.groups["ns/hard"].not_reserved
    assert said is not None
    assert said.why is NotEntitled.NO_TIME
    assert len(asked) <= 2

    there.plans.clear()
    there.advance(300)
    assert len(there.plans) <= 10


def test_a_head_that_lost_its_time_is_asked_anew_whether_it_can_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """H5: where the search for another time has left too little work for that, the next plan
    asks.
    """
    there, taken = full(4)
    gang_of(there, "hard", 2)
    there.settle()
    assert [each for each, *_ in standing(there)] == ["ns/hard"]

    def searched(head: Head, ledger: Ledger, *args: Any, **kwargs: Any) -> None:
        ledger.work.charge(5_000)

    def examined(head: Head, empty: Ledger) -> bool:
        empty.work.charge(8_000)
        return True

    monkeypatch.setattr(new_reservation, "find_time", searched)
    monkeypatch.setattr(new_reservation, "_at_time", lambda *_: None)
    monkeypatch.setattr(heads, "_fits", examined)
    there.delete(taken[0])
    there.advance(5)

    assert standing(there) == []
    said = there.state.registry.groups["ns/hard"].not_reserved
    assert said is not None
    assert said.why is NotEntitled.NO_TIME


GONE = shape(8, node_selector=(("pool", "gone"),))


@pytest.mark.parametrize("levels", [2, 3])
@pytest.mark.parametrize("odd", [GONE, shape(9)])
def test_a_tree_reserves_for_the_choice_that_can_start(odd: Shape, levels: int) -> None:
    """I9, H5: one of the first two children asks for what no node has; small pods would keep the
    others out.
    """
    there, taken = full(4)
    inner = "s" if levels == 3 else "t"
    for name, least, parent in [("t", 1, ""), ("s", 2, "t")] if levels == 3 else [("t", 2, "")]:
        stated = {keys.PARENT[0]: parent, keys.MIN_CHILDREN[0]: str(least)}
        metadata = tuple((key, value) for key, value in sorted(stated.items()) if value)
        there.declare(pod_group(name, None, uid=f"composite-{name}", gang_metadata=metadata))
    pods = [
        there.create(members(name, 2, parent=inner, of=odd if name == "b" else shape(8)))
        for name in "abc"
    ]
    said: set[str] = set()
    for taken_by in (None, *taken):
        if taken_by is not None:
            there.delete(taken_by)
        for n in range(4):
            plain(there, f"small-{taken_by.name if taken_by else ''}-{n}", 1, run_s=3_600)
            there.advance(1)
        for each in there.state.reservations.standing:
            assert each.group == "tree:ns/t"
            assert {one.pod.name for one in each.placements} == {"a-0", "a-1", "c-0", "c-1"}
        said |= {there.condition(each)[1] for each in (*pods[0], *pods[2])}
        assert bool(standing(there)) == ("a-0" not in there.bound())
    assert {"a-0", "a-1", "c-0", "c-1"} == set(there.bound()), "small pods wait for the room"
    assert any("Room on 4 nodes" in each for each in said), said
    assert not [each for each in said if "Not reserved" in each]


def test_a_tree_whose_nodes_go_is_for_other_children_then() -> None:
    """H12: its reservation stands for the choice that can start; where nothing can, it ends and
    that is told.
    """
    there = world(0)
    for pool in "acd":
        there.add_nodes(*(node(f"{pool}{n}", labels={"pool": pool}) for n in range(2)))
    for n in range(6):
        plain(there, f"r{n}", run_s=100)
    there.settle()
    for name in "abcd":
        there.create(
            members(
                name, 2, parent="t", min_children=2, of=shape(8, node_selector=(("pool", name),))
            )
        )
    there.advance(3)

    def reserved() -> str:
        there.advance(3)
        return "".join(
            sorted(
                {
                    one.pod.name[0]
                    for each in there.state.reservations.standing
                    for one in each.placements
                }
            )
        )

    assert reserved() == "ac"
    there.remove_node("a0")
    assert reserved() == "cd"
    there.add_nodes(node("a0", labels={"pool": "a"}))
    assert reserved() == "cd", "it stays where it is"
    there.remove_node("d0")
    assert reserved() == "ac"
    there.remove_node("c0")
    assert reserved() == ""
    why = there.state.registry.groups["tree:ns/t"].ineligible
    assert why is not None
    assert why.why.why is NotEntitled.IMPOSSIBLE
    there.add_nodes(node("d0", labels={"pool": "d"}))
    there.advance(60)
    assert reserved() == "ad"


def test_a_member_that_is_placed_takes_no_room_where_it_was_reserved() -> None:
    """H12: one of two that have claims is held on a new node, and in the same plan another gang is
    refused behind them; what is reserved for the other one is made by the next plan.
    """
    limits = ReservationLimits(share=1.0, fence_after_s=1e9)
    there = World(node("a", 8), node("b", 8), rules=Rules(unattended=True, reservations=limits))
    there.say(Applied(StorageClass(name="late", provisioner="csi.test", waits=True)))
    runs = {seconds: ((keys.EXPECTED_RUNTIME, f"{seconds}s"),) for seconds in (50, 100)}
    for name in ("a", "b"):
        ends = pod(f"ends-{name}", gpus=8, run_time_metadata=runs[100], start_s=there.wall_s())
        there.create(running(ends, name))

    for each in members("head", 2, gpus=8, mode="NonStrict", run_time_metadata=runs[50]):
        claim = Claim(namespace="ns", name=each.name, uid=each.name, storage_class="late")
        there.say(Applied(claim))
        there.create(structs.replace(each, claims=(ClaimUse(each.name),)))

    there.settle()
    (reserved,) = there.state.reservations.standing
    assert [placement.pod.name for placement in reserved.placements] == ["head-0", "head-1"]

    there.advance(5)  # what is stale is made at most once a second
    there.create(members("other", 3, gpus=8, run_time_metadata=runs[50]))
    there.add_nodes(node("c", 8))
    there.plans.clear()
    there.settle()
    assert there.held() == {"head-0": "c"}
    held, *_ = there.plans
    assert held.reservations is not None
    assert held.reservations.stale == {"ns/head"}

    there.advance(1)
    (reserved,) = there.state.reservations.standing
    assert [placement.pod.name for placement in reserved.placements] == ["head-1"]
