"""A loop on a virtual clock whose turns are timed one by one, for `bench.floods`.

Invariant: only the time of the thread counts, which is also what passes on the clock while a turn
runs, as the loop looks at it.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

from bench.waiting import Daemon
from gangsched import turn as turns
from gangsched.core.cycle import plan
from gangsched.heap import COLLECT_EVERY_S
from gangsched.model.objects import Namespace, Pod
from gangsched.model.plan import Plan
from gangsched.model.protocol import Applied, Replaced
from gangsched.model.storage import Claim, CsiNode, StorageClass, Volume
from gangsched.state.rule_set import Rules
from tests import builders

CROWD, QUIET = "crowd", "quiet"
NODES = 20
TURN_S = 0.002
WAITS = StorageClass(name="waits", provisioner="csi.example", waits=True)

Change = Callable[[int], None]


class TimedPlan:
    """`plan`, and what the last one took."""

    def __init__(self) -> None:
        self.cpu_ms = self.wall_ms = 0.0

    def __call__(self, *arguments: Any, **rest: Any) -> Plan:
        """Make a plan."""
        began_s, cpu_s = time.perf_counter(), time.thread_time()
        made = plan(*arguments, **rest)
        self.cpu_ms, self.wall_ms = (
            (time.thread_time() - cpu_s) * 1e3,
            (time.perf_counter() - began_s) * 1e3,
        )
        return made


PLAN = TimedPlan()
vars(turns)["plan"] = PLAN  # a turn looks it up by this name


class Flooded(Daemon):
    """A daemon whose turns are timed one by one."""

    def __init__(self, nodes: int = NODES, rules: Rules | None = None) -> None:
        super().__init__(rules)
        self._young_s = 0.0
        self._began_s: float | None = None

        self.say(Replaced(StorageClass, (WAITS,)))
        for kind in (Claim, Volume, CsiNode):
            self.say(Replaced(kind, ()))

        self.say(Applied(Namespace(CROWD)), Applied(Namespace(QUIET)))
        self.say(*(Applied(builders.node(f"n{number:04}", 8)) for number in range(nodes)))
        self.rest()

    def now_s(self) -> float:
        """The virtual clock, which runs while a turn does."""
        if self._began_s is None:
            return self.at_s

        return self.at_s + time.thread_time() - self._began_s

    def turn(self) -> tuple[float, float]:
        """One turn, which takes its own time; CPU milliseconds of it and of its plan."""
        PLAN.cpu_ms = 0.0
        self._began_s = time.thread_time()
        self._loop.turn()
        took_s = time.thread_time() - self._began_s
        self._began_s = None

        self.at_s += max(took_s, TURN_S)
        self._young_s += took_s
        if self._young_s > COLLECT_EVERY_S:
            self._young_s = 0.0
            gc.collect(0)

        return took_s * 1e3, PLAN.cpu_ms


def pod(name: str, **fields: object) -> Pod:
    """A pod of the crowd that fits nowhere, unless `fields` say otherwise."""
    given = {"of": builders.shape(100, 10), "namespace": CROWD, "uid": name, **fields}
    return builders.pod(name, **given)  # type: ignore[arg-type]
