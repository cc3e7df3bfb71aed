"""Turns: a plan does a bounded amount of work, and a group that takes more is decided all
the same.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

import pytest
from msgspec import structs

from gangsched.core import progress
from gangsched.core.cycle import Limits, plan
from gangsched.core.plan_queue import PlanQueue
from gangsched.core.preemption.verdicts import not_done
from gangsched.core.progress import Progress
from gangsched.core.reserve import Ledger
from gangsched.model.gang import Group, Mode, Refusal
from gangsched.model.inter_pod import InterPodConstraints, PodTerm, Requirement, Spread
from gangsched.model.objects import Node, Shape
from gangsched.model.plan import Plan, Unfinished, Verdict
from gangsched.model.preemption import NotHelpful, Obstacle
from gangsched.model.reasons import Reason
from gangsched.model.reservation import ReservationLimits, Reserving
from gangsched.model.snapshot import Snapshot
from gangsched.model.verdict_facts import Worded
from gangsched.sentences import say
from tests import builders
from tests.running_cluster import RunningCluster, high

SEED = 47
LIMIT = 12_000
BEYOND = 16_000
"""Units of a plan beyond its limit: reservations, who yields, and the step that was begun."""
RACK, HOSTNAME = "rack", "kubernetes.io/hostname"
OURS = (Requirement("app", "In", ("x",)),)

SPREAD = Spread(topology_key=RACK, max_skew=1, selector=OURS)
APART = PodTerm(HOSTNAME, OURS)


@dataclass(frozen=True)
class Told:
    """The plans of one decision, and what they made of each group."""

    plans: Sequence[Plan]
    verdicts: dict[str, Verdict]
    first: dict[str, int]


def decided(
    pictures: Sequence[Snapshot], groups: Sequence[Group], limit: int = LIMIT, most: int = 60
) -> Told:
    """Plan until all groups have a verdict, on these pictures in turns, as the state does it."""
    waiting = {group.id: group for group in groups}
    plans: list[Plan] = []
    verdicts: dict[str, Verdict] = {}
    first: dict[str, int] = {}
    unfinished: Unfinished | None = None
    begun: set[str] = set()
    while waiting:
        assert len(plans) < most, f"not decided after {most} plans: {sorted(waiting)}"
        made = plan(
            pictures[len(plans) % len(pictures)],
            list(waiting.values()),
            now_s=0.0,
            limits=Limits(work=limit),
            looked_at=begun,
            unfinished=unfinished,
        )
        unfinished, begun = made.unfinished, begun | made.begun
        plans.append(made)
        for verdict in made.verdicts:
            waiting.pop(verdict.group, None)
            verdicts[verdict.group] = verdict
            first[verdict.group] = len(plans)
    return Told(plans, verdicts, first)


def racks(number: int = 200) -> list[Node]:
    """Nodes in racks of ten."""
    return [builders.node(f"n{n:03}", 8, labels={RACK: f"r{n // 10}"}) for n in range(number)]


def different(number: int, *, impossible: int = 0, **constraints: object) -> list[Shape]:
    """As many shapes, the last ones with a node selector that no node meets."""
    inter_pod = InterPodConstraints(**constraints) if constraints else None  # type: ignore[arg-type]
    return [
        Shape(
            requests=builders.amounts(cpu_milli=1_000 + n, pods=1),
            node_selector=(("none", "such"),) if n >= number - impossible else (),
            inter_pod=inter_pod,
        )
        for n in range(number)
    ]


def gang_of(name: str, shapes: Sequence[Shape], **rest: object) -> Group:
    """A gang with one pod of each shape."""
    members = [
        builders.pod(f"{name}-{n:04}", of=shape, labels={"app": "x"})
        for n, shape in enumerate(shapes)
    ]
    return builders.group(builders.gang(f"ns/{name}", members, **rest))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "shapes",
    [different(150, spread=(SPREAD,)), different(1, anti_affinity=(APART,)) * 180, different(300)],
    ids=["spread", "apart", "many"],
)
def test_several_plans_decide_what_one_would(shapes: list[Shape]) -> None:
    """Q4: A gang that takes more work than a plan may do starts on the same nodes as in one plan
    without a bound.
    """
    picture = builders.snapshot(racks())
    group = gang_of("g", shapes)
    at_once = plan(picture, [group], now_s=0.0, limits=Limits(work=10**9)).verdicts[0]
    told = decided([builders.snapshot(racks())], [group])
    assert at_once.reason is Reason.SCHEDULED
    assert builders.where(told.verdicts["ns/g"]) == builders.where(at_once)
    assert len(told.plans) > 2
    assert max(each.work for each in told.plans) <= LIMIT + BEYOND


def test_an_impossible_member_is_found_before_anything_is_placed() -> None:
    """Q4: A member that fits nowhere refuses its gang of many shapes without a round, in a plan or
    two.
    """
    group = gang_of("g", different(400, impossible=1, spread=(SPREAD,)))
    told = decided([builders.snapshot(racks())], [group])
    assert told.verdicts["ns/g"].reason is Reason.UNSCHEDULABLE
    assert told.verdicts["ns/g"].round is None
    assert sum(each.work for each in told.plans) < 400 * 200 + LIMIT


def test_others_are_planned_in_between() -> None:
    """Q4: While a gang is unfinished, ordinary gangs behind it are decided at once, and it goes on
    too.
    """
    hard = gang_of("a", different(300, spread=(SPREAD,)))
    easy = [gang_of(f"b{n}", different(1)) for n in range(5)]
    told = decided([builders.snapshot(racks())], [hard, *easy])
    assert {told.first[each.id] for each in easy} == {2}
    assert told.verdicts["ns/a"].reason is Reason.SCHEDULED
    assert told.first["ns/a"] > 2


def test_two_that_take_long_are_decided_one_after_the_other() -> None:
    """Q4: A second gang that takes more than its half of a plan waits for the first, and keeps
    nobody else waiting.
    """
    first, second = (gang_of(name, different(200, spread=(SPREAD,))) for name in "ab")
    easy = gang_of("c", different(1))
    told = decided([builders.snapshot(racks())], [first, second, easy])
    assert told.first["ns/c"] < told.first["ns/a"] < told.first["ns/b"]
    assert {each.reason for each in told.verdicts.values()} == {Reason.SCHEDULED}


def test_what_changes_meanwhile_is_seen() -> None:
    """Q4, R1: Where room that earlier plans found is taken or a node goes meanwhile, members go to
    other nodes.
    """
    print(f"seed {SEED}")
    dice = random.Random(SEED)
    nodes = racks()
    pictures = []
    for _ in range(40):
        left = [each for each in nodes if dice.random() < 0.97]
        taken = [
            (builders.pod("x", cpu_milli=63_000, gpus=0), each.name)
            for each in left
            if dice.random() < 0.2
        ]
        pictures.append(builders.snapshot(left, taken))
    told = decided(pictures, [gang_of("g", different(1, anti_affinity=(APART,)) * 120)])
    last = pictures[(len(told.plans) - 1) % len(pictures)]
    where = builders.where(told.verdicts["ns/g"])
    assert told.verdicts["ns/g"].reason is Reason.SCHEDULED
    assert len(set(where.values())) == len(where) == 120
    assert set(where.values()) <= set(last.table.names)
    free = {
        name: int(last.free[last.resources["cpu"], node])
        for node, name in enumerate(last.table.names)
    }
    assert all(free[node] >= 1_000 for node in where.values())


def test_who_comes_no_further_is_given_up() -> None:
    """Q4: A gang of which a single step takes more than a plan is refused with what to change, not
    tried for ever.
    """
    group = gang_of("g", different(3, spread=(SPREAD,)))
    told = decided([builders.snapshot(racks())], [group], limit=50)
    assert len(told.plans) == progress.MOST_IN_VAIN + 2
    assert (
        say(told.verdicts["ns/g"].told).stable
        == "planning takes too long for 3 pods with 3 different specifications: use fewer different"
        " requests, affinity terms and spread constraints"
    )


@pytest.mark.parametrize("mode", list(Mode))
def test_no_plan_does_much_more_than_its_work(mode: Mode) -> None:
    """Q4: Whatever shapes, members that fit nowhere and reservations there are, no plan goes far
    beyond its bound.
    """
    shapes = different(250, impossible=125, spread=(SPREAD,))
    group = gang_of("g", shapes, mode=mode, min_member=100)
    reserving = Reserving(limits=ReservationLimits(), wall_s=1e9, occupants=dict, made_at_most=1)
    unfinished, picture = None, builders.snapshot(racks())
    for _ in range(60):
        made = plan(
            picture,
            [group],
            now_s=0.0,
            limits=Limits(work=LIMIT),
            unfinished=unfinished,
            reserving=reserving,
        )
        assert made.work <= LIMIT + BEYOND
        unfinished = made.unfinished
        if made.verdicts:
            break
    assert made.verdicts
    assert len(made.verdicts[0].binds) >= 100


@pytest.mark.parametrize(("done", "is_decided"), [(0, True), (400, False)])
def test_the_end_of_a_share_refuses_nobody(done: int, is_decided: bool) -> None:
    """Q4: Beside an unfinished group others have half of the work. One that had most of that is
    looked at again, after those behind it; who came at its end is left to the next plan, for
    nothing would wake it (V25).
    """
    ledger = builders.ledger([builders.node("n")])
    first, unfinished = (
        gang_of("first", [builders.shape()]),
        gang_of("unfinished", [builders.shape()]),
    )
    turns = PlanQueue(
        [first, unfinished],
        Unfinished(group=unfinished.id, generation=unfinished.generation),
        ledger,
        1_000,
        {},
    )
    ledger.work.charge(done)
    assert next(iter(turns)) is first
    made = turns.decide(first, refused, making_room(ledger, 600), not_done)
    assert (first.id in made, first.id in turns.begun) == (is_decided, not is_decided)
    for verdict in made.values():
        assert isinstance(verdict.preemption, NotHelpful)
        assert verdict.preemption.why is Obstacle.LATER


@pytest.mark.parametrize(("units", "why"), [(700, None), (1_200, Obstacle.TOO_MUCH_WORK)])
def test_a_plan_begins_with_the_group_that_found_too_little_work_left_to_make_room(
    units: int, why: Obstacle | None
) -> None:
    """Q4, V25: only what is more than a whole plan is told to be too much, whatever was done before
    it.
    """
    ledger = builders.ledger([builders.node("n")])
    before, first = gang_of("before", [builders.shape()]), gang_of("first", [builders.shape()])
    turns = PlanQueue([before, first], None, ledger, 1_000, {})
    ledger.work.charge(400)
    assert turns.decide(first, refused, making_room(ledger, units), not_done) == {}
    unfinished = turns.unfinished
    assert unfinished is not None
    assert unfinished.goes_first

    ledger = builders.ledger([builders.node("n")])
    turns = PlanQueue([before, first], unfinished, ledger, 1_000, {})
    assert next(iter(turns)) is first
    made = turns.decide(first, refused, making_room(ledger, units), not_done)
    preemption = made[first.id].preemption
    assert (preemption.why if isinstance(preemption, NotHelpful) else None) is why
    assert turns.unfinished is None


def refused(group: Group, _: Progress) -> Verdict:
    """A refusal for room."""
    return Verdict(
        group=group.id, generation=0, told=Refusal(Reason.UNSCHEDULABLE, Worded("no room"))
    )


def making_room(ledger: Ledger, units: int) -> Callable[[Group, Verdict], dict[str, Verdict]]:
    """Preemption that takes so much work, and changes nothing."""

    def make_room(_: Group, verdict: Verdict) -> dict[str, Verdict]:
        ledger.work.charge(units)
        return {verdict.group: verdict}

    return make_room


def test_what_reading_took_the_groups_behind_have_less() -> None:
    """V25: the group for which running pods were read is not told that it takes too much work."""
    cluster = RunningCluster([builders.node(f"n{n}") for n in range(30)])
    for n in range(30):
        cluster.run(f"low-{n}", f"n{n}", gpus=8, priority=1)
    read = cluster.given().running(inf)
    groups = [high(f"ns/h{n}", gpus=8) for n in range(30)]
    given = structs.replace(
        cluster.given(), running=lambda _left: replace(read, whole=False, units=24_000)
    )
    made = plan(cluster.snapshot(), groups, now_s=0.0, preempting=given)
    assert 1 <= len(made.verdicts) < 10
    found = [verdict.preemption for verdict in made.verdicts]
    assert {each.why for each in found if isinstance(each, NotHelpful)} == {Obstacle.LATER}


def test_a_plan_decides_no_more_than_a_turn_can_commit() -> None:
    """The verdicts on 241 gangs took 40 ms to commit; what is put in order counts, too."""
    groups = [
        builders.group(builders.gang(f"ns/g{n}", [builders.pod(f"p{n}", gpus=9)]))
        for n in range(400)
    ]
    made = plan(builders.snapshot([builders.node("a", 8)]), groups, now_s=0.0)
    assert 150 <= len(made.verdicts) <= 210
    few = plan(builders.snapshot([builders.node("a", 8)]), groups[:1], now_s=0.0)
    begun = made.work - 100 * len(made.verdicts)
    assert begun >= few.work - 100 + 3 * 399
