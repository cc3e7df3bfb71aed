"""The heartbeat: bounded intake, deadlines, an orderly end. A clock of its own; nothing sleeps for
real.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from gangsched import loop as loop_module
from gangsched.core.cycle import Limits
from gangsched.loop import (
    APPLY_AT_MOST_S,
    LOOK_AHEAD_EVERY_S,
    MESSAGES_BESIDE_A_PLAN,
    MESSAGES_BETWEEN_LOOKS,
    MESSAGES_PER_TURN,
    NEXT_STEP_WITHIN_S,
    PASSES,
    READ_PER_TURN,
    TURN_EVERY_S,
    Loop,
    Ports,
    spacing_s,
)
from gangsched.model.gpu_policy import PRODUCT_LABEL, TOPOLOGY_KEYS
from gangsched.model.protocol import (
    Applied,
    Bind,
    BindOrder,
    Bound,
    Message,
    PreemptionOrder,
    RecordEvent,
    Report,
    SetPodCondition,
)
from gangsched.model.reservation import Occupant, ReservationLimits
from gangsched.state.reserving import reservations
from gangsched.state.reserving.expected_ends import ExpectedEnds
from gangsched.state.rule_set import Rules
from gangsched.state.scheduling import SchedulingState
from gangsched.telemetry.metrics import Metrics
from tests.builders import members, node, pod, running


class Bench:
    """A loop with a hand-moved clock; binds and reports are only collected."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.now = 100.0
        self.is_ready = True
        self.leads = True
        self.binds: list[Bind] = []
        self.told: list[Report] = []
        self.ordered: list[PreemptionOrder] = []
        self.state = SchedulingState(rules or Rules())
        self.metrics = Metrics()
        self.loop = Loop(
            self.state,
            Ports(self, self.told.append, self.ordered.append, self),
            metrics=self.metrics,
            limits=Limits(),
            ready=lambda: self.is_ready,
            leads=lambda: self.leads,
        )

    def submit(self, orders: Sequence[BindOrder]) -> None:
        """Collect."""
        self.binds += [order for order in orders if isinstance(order, Bind)]

    def now_s(self) -> float:
        """By hand."""
        return self.now

    def wall(self) -> str:
        """Any time will do."""
        return "2030-01-01T00:00:00Z"

    def wall_s(self) -> float:
        """The same in seconds since the epoch."""
        return 1_893_456_000.0


@pytest.fixture
def bench() -> Bench:
    """A loop with one node of eight GPUs."""
    made = Bench()
    made.loop.inbox(Applied(node("a", 8)))
    return made


async def until(true: Callable[[], object]) -> None:
    """Let other tasks run until something is true; fails when it does not come true soon."""
    async with asyncio.timeout(5):
        while not true():  # noqa: ASYNC110  # the state has no event to wait for, and time stands still
            await asyncio.sleep(0)


def test_turn_takes_in_plans_and_binds(bench: Bench) -> None:
    """A turn that planned says that there may be more to do; one with nothing to do says so."""
    for each in members("g", 2):
        bench.loop.inbox(Applied(each))
    assert bench.loop.turn()
    assert len(bench.binds) == 2
    assert not bench.loop.turn()


def test_nothing_is_planned_before_the_caches_are_complete(bench: Bench) -> None:
    """A half-known cluster must not be planned on: pods that take room might be missing."""
    bench.is_ready = False
    bench.loop.inbox(Applied(pod("p")))
    bench.loop.turn()
    assert not bench.binds
    bench.is_ready = True
    bench.loop.turn()
    assert len(bench.binds) == 1


def test_intake_is_bounded_and_nothing_is_planned_in_the_middle_of_a_burst(bench: Bench) -> None:
    """Many messages are taken in over several turns, so that probes and binds are served in
    between.
    """
    for number in range(MESSAGES_PER_TURN + 1):
        bench.loop.inbox(Applied(pod(f"p{number}", gpus=0)))
    assert bench.loop.turn()
    assert not bench.binds
    while bench.loop.turn():
        pass
    assert len(bench.binds) == 109 + 1


def test_a_turn_that_applied_much_leaves_the_plan_to_the_next_one_which_applies_nothing(
    bench: Bench,
) -> None:
    """A burst and a plan in one turn would be longer than either may be, and no stream of messages
    keeps plans off.
    """
    for each in members("g", MESSAGES_BESIDE_A_PLAN + 1, gpus=0, min_member=1):
        bench.loop.inbox(Applied(each))
    assert bench.loop.turn()
    assert not bench.binds
    for number in range(MESSAGES_PER_TURN + 1):
        bench.loop.inbox(Applied(pod(f"later{number}", gpus=0, gated=True)))
    assert bench.loop.turn()
    assert (len(bench.binds), len(bench.loop._messages)) == (110, MESSAGES_PER_TURN + 1)


class Slow(Bench):
    """A bench on which each step of a turn takes longer than a turn may before its next step."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[str] = []

    def step(self, name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        """The same, which takes long."""

        def slow(*arguments: Any, **named: Any) -> Any:
            self.steps.append(name)
            self.now += 1.1 * NEXT_STEP_WITHIN_S
            return act(*arguments, **named)

        return slow


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    """A loop with one node of eight GPUs whose steps take long."""
    made = Slow()
    made.loop.inbox(Applied(node("a", 8)))
    made.loop.turn()
    made.state.apply = made.step("apply", made.state.apply)  # type: ignore[method-assign]
    for name in ("prepare", "plan_input", "make_plan", "commit_plan"):
        step = made.step(name, getattr(loop_module, name))
        monkeypatch.setattr(loop_module, name, step)

    return made


def test_a_turn_that_took_long_leaves_its_next_step_to_the_next_turn(slow: Slow) -> None:
    """A turn is not longer than one of its steps, and what comes meanwhile is applied after the
    commit: the plan is for the state that it was made from.
    """
    slow.loop.inbox(Applied(pod("p")))
    for step in ("apply", "prepare", "plan_input", "make_plan", "commit_plan"):
        slow.steps.clear()
        assert slow.loop.turn()
        assert slow.steps == [step]
        assert bool(slow.binds) == (step == "commit_plan")
        slow.loop.inbox(Applied(pod(f"{step}-later", gated=True)))

    assert len(slow.loop._messages) == 5


def test_a_plan_is_not_committed_by_who_leads_no_more(slow: Slow) -> None:
    """The Lease was lost between the turn that planned and the one that would commit."""
    slow.loop.inbox(Applied(pod("p")))
    for _ in range(4):
        slow.loop.turn()

    assert slow.steps[-1] == "make_plan"
    slow.leads = False
    for _ in range(5):
        slow.loop.turn()

    assert "commit_plan" not in slow.steps
    slow.leads = True
    slow.steps.clear()
    while not slow.binds:
        assert slow.loop.turn()

    assert slow.steps.count("make_plan") == 1, "it is planned anew"


def test_a_step_that_raises_is_not_taken_up_again(slow: Slow) -> None:
    """I10: the next turn begins anew."""
    slow.loop.inbox(Applied(pod("p")))
    for _ in range(3):
        slow.loop.turn()

    assert slow.steps[-1] == "plan_input"
    raising = pytest.MonkeyPatch()
    with raising.context() as patch:
        patch.setattr(loop_module, "make_plan", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            slow.loop.turn()

    slow.steps.clear()
    slow.loop.turn()
    assert slow.steps == ["prepare"]


def test_a_turn_reads_a_bounded_part_of_the_gangs_that_changed(bench: Bench) -> None:
    """20,000 new pods are read in parts of a few thousand, and nothing is planned until all are."""
    for gang in range(40):
        for each in members(f"g{gang}", 100, gpus=0):
            bench.loop.inbox(Applied(each))
    read = [0]
    while not bench.binds:
        assert bench.loop.turn()
        read.append(len(bench.state.registry.groups))
    assert read[-1] == 40
    assert max(after - before for before, after in pairwise(read)) <= READ_PER_TURN // 100


def test_ends_of_many_pods_are_looked_at_in_turns_before_a_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """H2: pods on all nodes change at once, and what comes meanwhile is not applied before the
    plan, so that no stream of changes keeps plans off.
    """
    most = 10
    monkeypatch.setattr(reservations, "LOOKED_AT_A_TIME", most)
    looked_at = [0]
    look_at = ExpectedEnds._look_at

    def counted(ends: ExpectedEnds, name: str, wall_s: float) -> Iterator[Occupant]:
        for occupant in look_at(ends, name, wall_s):
            looked_at[-1] += 1
            yield occupant

    monkeypatch.setattr(ExpectedEnds, "_look_at", counted)
    bench = Bench(Rules(reservations=ReservationLimits()))
    running_pods = []
    for number in range(30):
        name = f"n{number:02}"
        bench.loop.inbox(Applied(node(name, 2)))
        for part in range(2):
            each = pod(f"{name}-{part}", uid=f"{name}-{part}", gpus=1)
            running_pods.append(running(each, name))

    def change(label: str) -> None:
        for each in running_pods:
            bench.loop.inbox(Applied(replace(each, labels={"app": label})))

    change("a")
    while bench.loop.turn():
        pass

    change("b")
    bench.loop.inbox(Applied(pod("mine", gpus=0)))
    looked_at[:] = [0]
    while not bench.binds:
        assert bench.loop.turn()
        looked_at.append(0)
        bench.loop.inbox(Applied(replace(running_pods[0], labels={"app": f"{len(looked_at)}"})))

    assert max(looked_at) <= most
    assert sum(looked_at) >= len(running_pods) - most


def test_applying_ends_when_its_time_is_over(bench: Bench) -> None:
    """Messages that take long each are applied in several turns, however few they are."""
    apply = bench.state.apply

    def slow(message: Message, *, now_s: float) -> tuple[RecordEvent, ...]:
        bench.now += APPLY_AT_MOST_S / 10
        return apply(message, now_s=now_s)

    bench.state.apply = slow  # type: ignore[method-assign]
    for number in range(10 * MESSAGES_BETWEEN_LOOKS):
        bench.loop.inbox(Applied(pod(f"p{number}", gpus=0)))
    before = len(bench.loop._messages)
    assert bench.loop.turn()
    assert 10 < before - len(bench.loop._messages) <= 10 + MESSAGES_BETWEEN_LOOKS


def test_few_messages_that_take_long_are_applied_in_one_turn(bench: Bench) -> None:
    """Attack: a tenant edits a claim that 10,000 pods name, 50 times at once, for 5 ms each."""
    apply = bench.state.apply

    def slow(message: Message, *, now_s: float) -> tuple[RecordEvent, ...]:
        bench.now += 0.005
        return apply(message, now_s=now_s)

    bench.state.apply = slow  # type: ignore[method-assign]
    for number in range(50):
        bench.loop.inbox(Applied(pod(f"p{number}", gpus=0)))
    began_s = bench.now
    assert bench.loop.turn()
    assert bench.now - began_s <= APPLY_AT_MOST_S + 0.025


async def test_message_wakes_the_loop(bench: Bench) -> None:
    """A sleeping loop plans as soon as a message comes."""
    running = asyncio.create_task(bench.loop.run())
    await until(lambda: bench.state.cluster.nodes)
    bench.loop.inbox(Applied(pod("p")))
    await until(lambda: bench.binds)
    bench.loop.stop()
    await running


async def test_messages_that_come_one_by_one_are_taken_in_together(bench: Bench) -> None:
    """A turn for every message of a burst would cost the CPU that the API server needs."""
    turns = 0
    turn = bench.loop.turn

    def counted() -> bool:
        nonlocal turns
        turns += 1
        return turn()

    bench.loop.turn = counted  # type: ignore[method-assign]
    running = asyncio.create_task(bench.loop.run())
    for number in range(100):
        bench.loop.inbox(Applied(pod(f"p{number}", gpus=0)))
        await asyncio.sleep(0)
    await until(lambda: len(bench.binds) == 100)
    assert turns < 50
    bench.loop.stop()
    await running


async def test_what_every_plan_asks_of_the_nodes_is_read_before_a_gang_comes(bench: Bench) -> None:
    """Labels of 15,000 nodes take 10 ms, which no gang waits for; at most once a second, for nodes
    come and go.
    """
    running = asyncio.create_task(bench.loop.run())
    await until(
        lambda: bench.state.cluster.table().label_columns.keys() >= {*TOPOLOGY_KEYS, PRODUCT_LABEL}
    )
    table = bench.state.cluster.table
    bench.loop.inbox(Applied(node("b", 8)))
    bench.loop.inbox(Applied(pod("p")))
    await until(lambda: bench.binds and bench.state.cluster.nodes.keys() == {"a", "b"})
    bench.loop.inbox(Applied(node("c", 8)))
    await until(lambda: "c" in bench.state.cluster.nodes)
    assert not table().label_columns
    bench.now += LOOK_AHEAD_EVERY_S
    bench.loop.wake()
    await until(lambda: table().label_columns)
    bench.loop.stop()
    await running


def test_the_next_turn_comes_sooner_after_one_that_decided_nothing_and_cost_little() -> None:
    """A gang that is whole just after such a turn waits less; a turn that decides, or costs much,
    is for many pods.
    """
    assert spacing_s(busy=True, took_s=0.0) == TURN_EVERY_S
    assert [spacing_s(busy=False, took_s=took_s) for took_s in (0.0, 0.001, 1.0)] == [
        0.002,
        0.004,
        TURN_EVERY_S,
    ]


async def test_deadline_wakes_the_loop(bench: Bench) -> None:
    """What has settled is told without any message coming."""
    running = asyncio.create_task(bench.loop.run())
    bench.loop.inbox(Applied(pod("big", gpus=9)))
    await until(
        lambda: bench.state.next_deadline_s(bench.now) and not bench.state.queue.sizes()["active"]
    )
    assert not bench.told
    bench.now += 0.25
    bench.loop.wake()
    await until(lambda: any(isinstance(each, SetPodCondition) for each in bench.told))
    bench.loop.stop()
    await running


async def test_stop_ends_the_loop_and_plans_no_more(bench: Bench) -> None:
    """After `stop` nothing new is bound; `run` returns by itself."""
    running = asyncio.create_task(bench.loop.run())
    await until(lambda: bench.state.cluster.nodes)
    bench.loop.stop()
    bench.loop.inbox(Applied(pod("late")))
    async with asyncio.timeout(5):
        await running
    assert not bench.binds


async def test_news_of_nodes_count_for_the_binds_that_are_left_after_a_stop(bench: Bench) -> None:
    """Binds that wait behind slow ones may leave seconds after SIGTERM: the last look knows what
    came meanwhile.
    """
    for each in members("g", 2):
        bench.loop.inbox(Applied(each))
    bench.loop.turn()
    first, second = bench.binds
    bench.loop.stop()
    await bench.loop.run()
    listening = asyncio.create_task(bench.loop.listen())
    objection = bench.state.start_check.objection
    assert not objection(first)
    bench.loop.inbox(Applied(node("a", 1)))
    await until(lambda: objection(first) and objection(second))
    bench.loop.inbox(Applied(node("a", 8)))
    await until(lambda: not (objection(first) or objection(second)))
    assert len(bench.binds) == 2
    listening.cancel()


def test_drain_takes_in_late_outcomes_and_tells_everything(bench: Bench) -> None:
    """What binds under way came to, and verdicts that have not settled, are told before the daemon
    ends.
    """
    bench.loop.inbox(Applied(pod("p", uid="p")))
    bench.loop.inbox(Applied(pod("big", gpus=9)))
    bench.loop.turn()
    bench.loop.stop()
    bench.loop.inbox(Bound("p", "a"))
    bench.loop.drain()
    assert {each.reason for each in bench.told if isinstance(each, RecordEvent)} >= {
        "Scheduled",
        "FailedScheduling",
    }
    assert any(isinstance(each, SetPodCondition) for each in bench.told)


def test_a_standby_knows_everything_and_decides_nothing(bench: Bench) -> None:
    """While another leads, messages are applied and views are built; the first turn of a term
    binds.
    """
    bench.leads = False
    for each in members("g", 2):
        bench.loop.inbox(Applied(each))
    bench.now += 100.0
    assert not bench.loop.turn()
    assert not bench.loop.turn()
    assert set(bench.state.registry.groups) == {"ns/g"}
    assert (bench.binds, bench.told) == ([], [])
    bench.leads = True
    assert bench.loop.turn()
    assert len(bench.binds) == 2


async def test_a_standby_sleeps_whatever_is_due(bench: Bench) -> None:
    """Deadlines are those of a leader: a standby does not turn for them."""
    bench.loop.inbox(Applied(pod("p", gpus=99)))
    bench.loop.turn()
    assert bench.state.next_deadline_s(bench.now) is not None
    bench.leads = False
    bench.now += 1_000.0
    turns = 0
    turn = bench.loop.turn

    def counted() -> bool:
        nonlocal turns
        turns += 1
        return turn()

    bench.loop.turn = counted  # type: ignore[method-assign]
    running = asyncio.create_task(bench.loop.run())
    for _ in range(1_000):
        await asyncio.sleep(0)
    assert turns <= 2
    bench.loop.stop()
    await running


async def test_busy_turns_leave_the_event_loop_to_others(bench: Bench) -> None:
    """Others make four passes for each turn that has more to do, so that a renewal of the Lease
    takes few turns.
    """
    turns, passes = 0, 0

    def turn() -> bool:
        nonlocal turns
        turns += 1
        if turns == 20:
            bench.loop.stop()
        return True

    async def others() -> None:
        nonlocal passes
        while True:
            passes += 1
            await asyncio.sleep(0)

    bench.loop.turn = turn  # type: ignore[method-assign]
    # without a pause between turns
    bench.loop._messages.extend([Applied(node("b"))] * MESSAGES_PER_TURN)
    task = asyncio.create_task(others())
    await bench.loop.run()
    task.cancel()
    assert passes >= PASSES * (turns - 1)
