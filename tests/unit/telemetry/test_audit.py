"""What the loop's decisions become in the audit trail: nothing that has not happened."""

from __future__ import annotations

from collections.abc import Sequence

from gangsched.core.cycle import Limits
from gangsched.loop import Loop, Ports
from gangsched.model.objects import Pod
from gangsched.model.plan import Verdict
from gangsched.model.protocol import Applied, Bind, BindFailed, BindOrder, Bound, Gone, Message
from gangsched.state.rule_set import Rules
from gangsched.state.scheduling import SchedulingState
from gangsched.telemetry.audit import explained
from gangsched.telemetry.history import Happening
from gangsched.telemetry.metrics import Metrics
from tests.builders import members, node, pod


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
    assert "needs room for 2 more pods" in told["message"]
    assert told["needs"] == 2
