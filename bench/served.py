"""The longest plan that pods can cause which request extended resources, each its own amounts, that
devices serve.

`python -m bench.served [--nodes 2000] [--pods 4000] [--shapes 3000] [--goal-ms 50]` creates all
pods of one tenant at once, beside one ordinary pod of another, on nodes of eight devices, and takes
turns of the daemon's loop until nothing is due. Claims are never answered, so that devices stay
chosen. It prints the longest plans and turns by the time of the thread, with that of the garbage
collector in plans, and fails if a plan took more than the goal. As in the daemon
(`gangsched.heap`), young objects are collected between turns, every half second of them.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import logging
import sys
import time
from collections.abc import Sequence

import structlog

from bench.flooded import PLAN
from bench.hostile import PlayedByLoop, RestlessError
from gangsched.daemon import GC_THRESHOLDS
from gangsched.heap import COLLECT_EVERY_S
from gangsched.model.devices import DeviceClass, DeviceTaintRule, ResourceSlice
from gangsched.model.objects import ExtendedResource, Shape
from gangsched.model.protocol import Replaced
from gangsched.model.storage import ResourceClaim
from gangsched.state.rule_set import Rules
from tests.builders import amounts, node, pod
from tests.unit.state.test_served import CLASSES, A, B, devices_of

DEVICES = "aaaabbbb"
SHOWN = 10


class PlayedInTime(PlayedByLoop):
    """A world that collects young objects as often as the daemon does, and `collected` in plans, in
    milliseconds.
    """

    def __init__(self, nodes: int) -> None:
        self.collected: list[float] = []
        self._collected_s = self._began_s = 0.0
        self._turned_s = 0.0
        made = [node(f"n{number:04}", gpus=0) for number in range(nodes)]
        super().__init__(made, [], Rules(allocates=True))
        self.controller = False
        self.fate = lambda _: "later"
        self.say(
            Replaced(DeviceClass, CLASSES),
            Replaced(ResourceSlice, tuple(devices_of(each.name, DEVICES) for each in made)),
            Replaced(DeviceTaintRule, ()),
            Replaced(ResourceClaim, ()),
        )
        self.turn_until_rest()
        gc.callbacks.append(self._hear)

    def _hear(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._began_s = time.thread_time()
        else:
            self._collected_s += time.thread_time() - self._began_s

    def _turn(self) -> bool:
        self._collected_s = 0.0
        busy = super()._turn()
        self.collected.append(self._collected_s * 1e3)
        self._turned_s += self.turns[-1].wall_ms / 1e3
        if self._turned_s > COLLECT_EVERY_S:
            self._turned_s = 0.0
            gc.collect(0)
        return busy


def shape(number: int) -> Shape:
    """Both resources, in a container of its own name, so that no other pod has this shape."""
    asked = (
        (A, 1 + number % 9, "container-0-request-1"),
        (B, 1 + number % 3, "container-0-request-0"),
    )
    extended = tuple(
        ExtendedResource(name, ((request, count),), ((f"c{number}", request),))
        for name, count, request in asked
    )
    plain = amounts(cpu_milli=100 + number % 7, pods=1)
    return Shape(
        requests=tuple(sorted((*plain, *((name, count) for name, count, _ in asked)))),
        extended=extended,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Play and print; 1 if a plan took too long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=2_000)
    parser.add_argument("--pods", type=int, default=4_000)
    parser.add_argument("--shapes", type=int, default=3_000)
    parser.add_argument("--goal-ms", type=float, default=50.0)
    given = parser.parse_args(argv)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    gc.set_threshold(*GC_THRESHOLDS)
    shapes = [shape(number) for number in range(given.shapes)]
    world = PlayedInTime(given.nodes)
    gc.collect()
    gc.freeze()
    world.turns, world.collected, PLAN.cpu_ms = [], [], 0.0
    world.create(
        [
            pod(f"p{number}", of=shapes[number % given.shapes], namespace="evil")
            for number in range(given.pods)
        ]
    )
    world.create([pod("plain", of=Shape(requests=amounts(cpu_milli=100, pods=1)))])
    try:
        world.turn_until_rest()
    except RestlessError as error:
        print(error)
        return 1
    plans = [
        (turn.plan_ms, collected)
        for turn, collected in zip(world.turns, world.collected, strict=True)
    ]
    longest = heapq.nlargest(SHOWN, plans)
    print(
        f"{len(plans)} turns; the longest took {max(turn.cpu_ms for turn in world.turns):.1f} ms of"
        " the thread"
    )
    print(
        "longest plans in ms, and of that turn in the collector: "
        + ", ".join(f"{a:.1f} ({b:.1f})" for a, b in longest)
    )
    is_placed = any(each.name == "plain" for each in world.unanswered)
    print(f"the ordinary pod is {'placed' if is_placed else 'not placed'}")
    return int(longest[0][0] > given.goal_ms or not is_placed)


if __name__ == "__main__":
    sys.exit(main())
