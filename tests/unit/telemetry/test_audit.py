"""What the loop's decisions become in the audit trail: nothing that has not happened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gangsched.core.cycle import Limits
from gangsched.loop import Loop, Ports
from gangsched.model.objects import Phase, Pod
from gangsched.model.orders import Orders
from gangsched.model.plan import Plan, Verdict
from gangsched.model.protocol import (
    Applied,
    Bind,
    BindFailed,
    BindOrder,
    Bound,
    Evict,
    Gone,
    Message,
    PreparePreemption,
    RecordEvent,
)
from gangsched.state.rule_set import Rules
from gangsched.state.scheduling import SchedulingState
from gangsched.telemetry.audit import Audit, explained
from gangsched.telemetry.history import Happening, History
from gangsched.telemetry.metrics import Metrics
from tests.builders import members, node, pod, pod_group
from tests.unit.model.test_orders import order
from tests.unit.state.preemption.test_nominations import decide
from tests.unit.state.preemption.test_nominations import full as two_full_nodes
from tests.unit.state.reserving.test_reservations import full, gang_of
from tests.unit.state.test_groups import crowded, deadlocked
from tests.unit.state.test_members_to_come import lws_pod, started
from tests.world import World

H = Happening
Line = tuple[Happening, int, str]


class Bench:
    """A loop on a clock by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.binds: list[Bind] = []
        self.loop = Loop(
            SchedulingState(Rules()),
            Ports(self, lambda _: None, lambda _: None, self),
            metrics=Metrics(),
            limits=Limits(),
            ready=lambda: True,
        )
        self.send(Applied(node("a", 8)))

    def submit(self, orders: Sequence[BindOrder]) -> None:
        self.binds += [order for order in orders if isinstance(order, Bind)]

    def now_s(self) -> float:
        return self.now

    def wall(self) -> str:
        return "2030-01-01T00:00:00Z"

    def wall_s(self) -> float:
        return 1_893_456_000.0 + self.now

    def send(self, *messages: Message) -> None:
        for message in messages:
            self.loop.inbox(message)

    def turns(self, seconds: float = 20.0) -> None:
        """Take turns for so long."""
        until_s = self.now + seconds
        while self.now < until_s:
            self.loop.turn()
            self.now += 0.5

    def seen(self, gang: str = "ns/g") -> list[tuple[Happening, int, str]]:
        return [
            (entry.what, entry.times, entry.message) for entry in self.loop.audit.history.of({gang})
        ]


def test_a_start_is_told_once_its_binds_are_answered() -> None:
    """Not when they are ordered; with the number of pods, and the gang's uid."""
    bench = Bench()
    bench.send(*(Applied(each) for each in members("g", 2)))
    bench.turns()
    assert len(bench.binds) == 2
    assert bench.seen() == []
    bench.send(*(Bound(bind.uid, bind.node) for bind in bench.binds))
    bench.turns()
    assert bench.seen() == [(Happening.STARTED, 1, "2 pods are bound together")]
    (entry,) = bench.loop.audit.history.of({"ns/g"})
    assert entry.uid


def test_refused_binds_are_told_as_refused_and_never_as_a_start() -> None:
    """As with the right pods/binding revoked: one entry that counts, with the API
    server's words.
    """
    bench = Bench()
    bench.send(*(Applied(each) for each in members("g", 2)))
    for _ in range(5):
        bench.turns()
        orders, bench.binds = bench.binds, []
        bench.send(*(BindFailed(bind.uid, bind.node, "403 Forbidden: no right") for bind in orders))
    bench.turns()
    ((what, times, text),) = bench.seen()
    assert (what, "403 Forbidden: no right" in text) == (Happening.BIND_REFUSED, True)
    assert times >= 6
    (entry,) = bench.loop.audit.history.of({"ns/g"})
    assert {name for name, _ in entry.objects} == {"g-0", "g-1"}


def test_a_gang_that_waits_and_loses_a_member_has_entries_for_both() -> None:
    """And a plain pod has none."""
    bench = Bench()
    bench.send(
        Applied(pod("plain", gpus=100)), *(Applied(each) for each in members("large", 2, gpus=8))
    )
    bench.turns()
    (waits,) = bench.seen("ns/large")
    assert waits[0] is Happening.WAITS
    assert {entry.gang for entry in bench.loop.audit.history._ring} == {"ns/large"}
    bench.send(*(Applied(each) for each in members("g", 2)))
    bench.turns()
    first, second = bench.binds
    bench.send(Bound(first.uid, first.node), Bound(second.uid, second.node))
    bench.turns()
    bench.send(Gone(Pod, first.uid))
    bench.turns()
    assert [what for what, *_ in bench.seen()] == [Happening.STARTED, Happening.MEMBER_LOST]


def test_debug_explains_each_verdict() -> None:
    """Group, reason, message, what room it needs."""
    bench = Bench()
    verdicts: list[Verdict] = []
    bench.loop.audit.planned = lambda plan: verdicts.extend(plan.verdicts)  # type: ignore[method-assign]
    bench.send(*(Applied(each) for each in members("large", 2, gpus=8)))
    bench.turns()
    told = explained(verdicts[0])
    assert (told["group"], told["reason"]) == ("ns/large", "Unschedulable")
    assert "it needs 2 pods of 8 nvidia.com/gpu" in told["message"]
    assert told["needs"] == 2


# --- each kind of entry, from the whole loop on a virtual clock -----------------------------------


def trail(world: World) -> Callable[..., list[Line]]:
    """Keep the audit trail of a world from now on, as `Loop` does; what it has of a gang."""
    audit = Audit(world.state, History(world.wall_s))
    do, say, turn = world._do, world.say, world.turn

    def watched_do(actions: Iterable[Any], *, are_new: bool = False) -> None:
        given = list(actions)
        audit.ordered(given)
        for each in given:
            if isinstance(each, RecordEvent):
                audit.reported(each)
        do(given, are_new=are_new)

    def watched_say(*messages: Message) -> None:
        before = len(world.reports)
        say(*messages)
        for report in world.reports[before:]:
            if isinstance(report, RecordEvent):
                audit.reported(report)

    def watched_turn() -> Plan | None:
        plan = turn()
        if plan is not None:
            audit.plan += 1
            audit.planned(plan)
        return plan

    world._do = watched_do  # type: ignore[method-assign]
    world.say = watched_say  # type: ignore[method-assign]
    world.turn = watched_turn  # type: ignore[method-assign]

    def seen(gang: str) -> list[Line]:
        """All entries but refusals, which come with every change while a gang waits."""
        entries = audit.history.of({gang})
        return [
            (entry.what, entry.times, entry.message) for entry in entries if entry.what != H.WAITS
        ]

    return seen


def declared(world: World, name: str, number: int, **fields: Any) -> list[Any]:
    """A gang with a PodGroup is created."""
    world.declare(pod_group(name, number))
    return world.create(members(name, number, pod_group=True, **fields))


def test_a_gang_that_preempts_another_one() -> None:
    """Both sides have one entry a step: what is ordered, what was evicted, what started."""
    world = World(node("a", 8), node("b", 8), preempts=True)
    seen = trail(world)
    declared(world, "low", 2, gpus=8)
    world.advance(60)
    declared(world, "high", 2, gpus=8, priority=1000)
    world.advance(60)

    assert seen("ns/high") == [
        (H.PREEMPTING, 1, "2 pods nominated; 2 pods to be evicted"),
        (H.STARTED, 1, "2 pods are bound together"),
    ]
    first, second = seen("ns/low")
    assert first == (H.STARTED, 1, "2 pods are bound together")
    assert second[:2] == (H.PREEMPTED, 1)
    assert "all 2 members" in second[2]


def test_a_preemption_that_comes_to_nothing() -> None:
    """Nobody is evicted, and nothing says that somebody was."""
    world, low, high = two_full_nodes()
    world.advance(5)
    seen = trail(world)
    world.fate = lambda made: "failed" if isinstance(made, PreparePreemption) else "bound"
    decide(world, high, low)
    world.advance(5)
    assert not [each for each in world.ordered if isinstance(each, Evict)]
    (line,) = [each for each in seen("ns/high") if each[0] is not H.PREEMPTING]
    assert line[:2] == (H.PREEMPTION_ENDED, 1)
    assert "no pods were evicted" in line[2]
    assert seen("ns/low") == []


def test_a_gang_whose_wait_time_ends() -> None:
    """With the wait time, once."""
    world, _ = crowded()
    seen = trail(world)
    world.advance(60)
    (line,) = seen("ns/g")
    assert line[:2] == (H.TIMED_OUT, 1)
    assert "30 s" in line[2]


def test_a_gang_that_yields() -> None:
    """The one that gives its room up, to the one that starts."""
    world = deadlocked()
    seen = trail(world)
    world.told()
    (line,) = [each for each in seen("ns/h") if each[0] is H.YIELDED]
    assert line[1] == 1
    assert "ns/g" in line[2]
    assert seen("ns/g") == [(H.STARTED, 1, "4 pods are bound together")]


def test_a_gang_that_reserves_nodes_and_starts() -> None:
    """With the number of nodes; the reservation ends with the start."""
    world, taken = full()
    seen = trail(world)
    gang_of(world, "g", 2)
    world.settle()
    ((what, times, text),) = seen("ns/g")
    assert (what, times) == (H.RESERVED, 1)
    assert "2 nodes" in text
    world.advance(10)
    world.delete(*taken[:2])
    world.advance(5)
    assert [line[:2] for line in seen("ns/g")[1:]] == [(H.RESERVATION_ENDED, 1), (H.STARTED, 1)]


def test_a_gang_that_loses_members() -> None:
    """One entry that counts what repeats: a kubelet that rejects a member, and what is left."""
    world = World(node("a", 8))
    seen = trail(world)
    one, two = declared(world, "g", 2)
    world.advance(10)
    reason = "OutOfnvidia.com/gpu"
    world.update(one, phase=Phase.FAILED, status_reason=reason, rejection=reason)
    world.advance(10)
    first, lost = seen("ns/g")
    assert first[0] is H.STARTED
    assert lost[:2] == (H.MEMBER_LOST, 2)
    assert lost[2].startswith("1 of 2 members are bound")
    assert two.name in world.bound()


def test_an_eviction_that_is_delayed() -> None:
    """The words of the API server, counted."""
    world, low, high = two_full_nodes()
    world.advance(5)
    seen = trail(world)
    world.fate = lambda made: "blocked" if isinstance(made, Evict) else "bound"
    decide(world, high, low)
    world.advance(5)
    (line,) = [each for each in seen("ns/high") if each[0] is H.PREEMPTION_DELAYED]
    assert "healthy pods" in line[2]
    assert not [each for each in seen("ns/low") if each[0] is H.PREEMPTED]


def test_a_gang_that_is_set_aside() -> None:
    """By an order, once however long it stands."""
    world = World(node("a", 8))
    seen = trail(world)
    order(world, Orders(set_aside=frozenset({"ns/g"})))
    world.create(members("g", 2))
    world.advance(120)
    assert not world.bound()
    assert seen("ns/g") == []  # it waits, for a reason of its own


def test_room_that_is_kept_for_members_to_come() -> None:
    """With their number; released when the time is over."""
    world = World(node("a", 2), node("b", 2))
    seen = trail(world)
    started(world)
    world.advance(5)
    kept = [each for each in seen("ns/serve-0-abc") if each[0] is H.ROOM_KEPT]
    assert len(kept) == 1
    assert kept[0][2].startswith("room for 2 members")
    world.advance(700)
    ends = [each[:2] for each in seen("ns/serve-0-abc") if each[0] is H.ROOM_RELEASED]
    assert ends == [(H.ROOM_RELEASED, 1)]
    world.create(lws_pod(1), lws_pod(2))
    world.advance(5)
    assert len([each for each in seen("ns/serve-0-abc") if each[0] is H.ROOM_KEPT]) == 1
