"""Who is told that it runs for longer than it states (H11)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangsched.api import keys
from gangsched.api.gang_spec import GangDefaults
from gangsched.model.objects import Phase
from gangsched.model.protocol import Applied, RecordEvent
from gangsched.model.reasons import EventReason
from gangsched.state.scheduling import Rules
from tests.builders import members, node, pod, pod_group
from tests.world import World

LATE_S = 5


def stating(text: str, deadline_s: int | None = None) -> tuple[tuple[str, str], ...]:
    """The metadata of a pod with this run time; "" for none."""
    return keys.run_time_metadata({}, {keys.EXPECTED_RUNTIME: text} if text else {}, deadline_s)


def overruns(world: World) -> list[RecordEvent]:
    """What was told so far."""
    return [each for each in world.reports if isinstance(each, RecordEvent) and each.reason == EventReason.OVERRUN]


def start(world: World, *names: str, **fields: Any) -> None:
    """The kubelets report these pods' starts."""
    for each in [each for each in world.pods.values() if each.name in names]:
        world.update(each, phase=Phase.RUNNING, start_s=world.wall_s(), **fields)
    world.settle()


def wait(world: World, seconds: float) -> World:
    """Time passes."""
    world.now_s += seconds
    return world.settle()


def test_a_gang_is_told_once() -> None:
    """H11: when its first member is over its run time, and not by every member, nor when its end passes again."""
    world = World(node("a"))
    world.create(members("g", 3, run_time_metadata=stating("1h")))
    world.settle()
    start(world, "g-0", "g-1")
    wait(world, 30)
    start(world, "g-2")
    wait(world, 3600 - 30 + LATE_S - 1)
    assert overruns(world) == []
    assert world.state.next_deadline_s(world.now_s) == world.now_s + 1
    wait(world, 1)
    (event,) = overruns(world)
    assert event.regarding.name == "g-0"
    assert event.message.startswith(
        "pod ns/g-0 runs for longer than the 3600 s of gangsched.dev/expected-runtime; it is "
    )
    assert event.message.endswith("expected to end by 2030-01-01T02:00Z now")
    wait(world, 100_000)
    assert len(overruns(world)) == 1


def test_a_pod_group_is_told_of_what_it_states() -> None:
    """H1, H11: an edit that extends the run time of pods that run is in time until it has passed."""
    world = World(node("a"))
    world.declare(pod_group("g", 2, gang_metadata=keys.pod_group_metadata({keys.EXPECTED_RUNTIME: "1h"})))
    world.create(members("g", 2, pod_group=True))
    world.settle()
    start(world, "g-0", "g-1")
    wait(world, 3599)
    world.declare(pod_group("g", 2, generation=2, gang_metadata=keys.pod_group_metadata({keys.EXPECTED_RUNTIME: "2h"})))
    wait(world, 3599 + LATE_S)
    assert overruns(world) == []
    wait(world, 2)
    (event,) = overruns(world)
    assert (event.regarding.kind, event.regarding.name) == ("PodGroup", "g")


def test_who_ends_in_time_is_told_nothing() -> None:
    """H11: nor is a pod that is being deleted, one of another scheduler, one that never started, or one unknown."""
    world = World(node("a"))
    stated: dict[str, Any] = {"run_time_metadata": stating("1m")}
    world.create(
        pod("ended", **stated), pod("going", **stated), pod("waits", **stated), pod("unknown"), pod("gone", **stated)
    )
    world.create(pod("theirs", scheduler_name="other", node_name="a", start_s=world.wall_s(), **stated))
    world.settle()
    start(world, "ended", "going", "unknown", "gone")
    by_name = {each.name: each for each in world.pods.values()}
    world.update(by_name["ended"], phase=Phase.SUCCEEDED)
    world.update(by_name["going"], deleting=True, deletion_s=world.wall_s() + 30)
    world.delete(by_name["gone"])
    wait(world, 1000)
    assert overruns(world) == []


def test_a_plain_pod_is_told_itself() -> None:
    """H11: by the administrator's default where it states nothing; in its grace period a deadline is kept."""
    world = World(node("a"), rules=Rules(defaults=GangDefaults(expected_runtime_s=60)))
    world.create(pod("p"), pod("d", run_time_metadata=stating("", 30)))
    world.settle()
    start(world, "p", "d")
    wait(world, 30 + LATE_S + 29)
    assert overruns(world) == []
    wait(world, 1)
    assert {event.regarding.name for event in overruns(world)} == {"p", "d"}


def test_a_restart_tells_nobody_again() -> None:
    """H11: what had passed is old, what passes later is news."""
    world = World(node("a"))
    world.create(pod("p", run_time_metadata=stating("1m")), pod("q", run_time_metadata=stating("2m")))
    world.settle()
    start(world, "p", "q")
    wait(world, 60 + LATE_S)
    assert [event.regarding.name for event in overruns(world)] == ["p"]
    for _ in range(3):
        world.restart()
        wait(world, 1)
    assert [event.regarding.name for event in overruns(world)] == ["p"]
    wait(world, 60)
    assert [event.regarding.name for event in overruns(world)] == ["p", "q"]


def test_a_gang_that_runs_again_is_told_again() -> None:
    """H11: each run is one, also under the same name."""
    world = World(node("a"))
    for run in range(2):
        pods = world.create(members("g", 2, run_time_metadata=stating("1m")))
        world.settle()
        start(world, "g-0", "g-1")
        wait(world, 70)
        assert len(overruns(world)) == run + 1
        for each in pods:
            world.delete(world.pods[each.uid])
        world.settle()


@pytest.mark.parametrize("pods", [3_000])
def test_pods_that_come_and_go_leave_nothing_behind(pods: int) -> None:
    """H11: of pods that ended long before their time nothing is kept."""
    world = World(node("a"))
    stated = stating("1000h")
    for number in range(pods):
        single = pod(f"p{number}", node_name="a", start_s=5, run_time_metadata=stated)
        world.say(Applied(single), Applied(msgspec.structs.replace(single, phase=Phase.SUCCEEDED)))
    assert len(world.state.overruns._ends) < 1_100
