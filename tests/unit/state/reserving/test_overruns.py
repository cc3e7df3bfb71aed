"""Who is told that it runs for longer than it states, and what that wins and costs (H8, H11)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from gangsched.api import keys
from gangsched.api.gang_spec import GangDefaults
from gangsched.model.objects import Phase, Pod
from gangsched.model.protocol import Applied, RecordEvent
from gangsched.model.reasons import EventReason
from gangsched.model.reservation import ReservationLimits
from gangsched.state.reserving import overruns as overruns_module
from gangsched.state.rule_set import Rules
from tests.builders import members, node, pod, pod_group
from tests.unit.state.reserving.test_reservations import gang_of, plain, standing
from tests.world import World

LATE_S = 5
HOUR_S = 3_600.0
IGNORED_S = 2 * HOUR_S
TRUST = Rules(reservations=ReservationLimits(share=1.0), ignore_run_times_s=0.0)
IGNORE = replace(TRUST, ignore_run_times_s=IGNORED_S)


def stating(text: str, deadline_s: int | None = None) -> tuple[tuple[str, str], ...]:
    """The metadata of a pod with this run time; "" for none."""
    return keys.run_time_metadata({}, {keys.EXPECTED_RUNTIME: text} if text else {}, deadline_s)


def overruns(world: World) -> list[RecordEvent]:
    """What was told so far."""
    return [
        each
        for each in world.reports
        if isinstance(each, RecordEvent) and each.reason == EventReason.OVERRUN
    ]


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
    """H11: when its first member is over its run time, and not by every member, nor when its end
    passes again.
    """
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
        "pod ns/g-0 has exceeded its run time of 3600 s (gangsched.dev/expected-runtime); it is"
        " now "
    )
    assert event.message.endswith("it is now expected to end by 2030-01-01T02:00Z")
    wait(world, 100_000)
    assert len(overruns(world)) == 1


def test_a_pod_group_is_told_of_what_it_states() -> None:
    """H1, H11: an edit that extends the run time of pods that run is in time until it
    has passed.
    """
    world = World(node("a"))
    world.declare(
        pod_group("g", 2, gang_metadata=keys.pod_group_metadata({keys.EXPECTED_RUNTIME: "1h"}))
    )
    world.create(members("g", 2, pod_group=True))
    world.settle()
    start(world, "g-0", "g-1")
    wait(world, 3599)
    world.declare(
        pod_group(
            "g",
            2,
            generation=2,
            gang_metadata=keys.pod_group_metadata({keys.EXPECTED_RUNTIME: "2h"}),
        )
    )
    wait(world, 3599 + LATE_S)
    assert overruns(world) == []
    wait(world, 2)
    (event,) = overruns(world)
    assert (event.regarding.kind, event.regarding.name) == ("PodGroup", "g")


def test_of_pods_that_overrun_at_one_moment_a_turn_tells_of_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """H11: thousands may have started in one second; all are told in the turns at once after it."""
    monkeypatch.setattr(overruns_module, "ENDS_AT_A_TIME", 2)
    world = World(node("a"))
    names = [f"p{number}" for number in range(5)]
    world.create(*(pod(name, gpus=0, run_time_metadata=stating("1h")) for name in names))
    world.settle()
    start(world, *names)
    world.now_s += HOUR_S + LATE_S + 1
    told = []
    while world.state.overruns.next_deadline_s() <= world.now_s:
        told.append(len(world.state.overruns.due(world.now_s, world.wall_s())))

    assert told[:3] == [2, 2, 1]
    assert sum(told) == 5


def test_who_ends_in_time_is_told_nothing() -> None:
    """H11: nor is a pod that is being deleted, one of another scheduler, one that never started, or
    one unknown.
    """
    world = World(node("a"))
    stated: dict[str, Any] = {"run_time_metadata": stating("1m")}
    world.create(
        pod("ended", **stated),
        pod("going", **stated),
        pod("waits", **stated),
        pod("unknown"),
        pod("gone", **stated),
    )
    world.create(
        pod("theirs", scheduler_name="other", node_name="a", start_s=world.wall_s(), **stated)
    )
    world.settle()
    start(world, "ended", "going", "unknown", "gone")
    by_name = {each.name: each for each in world.pods.values()}
    world.update(by_name["ended"], phase=Phase.SUCCEEDED)
    world.update(by_name["going"], deleting=True, deletion_s=world.wall_s() + 30)
    world.delete(by_name["gone"])
    wait(world, 1000)
    assert overruns(world) == []


def test_a_plain_pod_is_told_itself() -> None:
    """H11: by the administrator's default where it states nothing; in its grace period a deadline
    is kept.
    """
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
    world.create(
        pod("p", run_time_metadata=stating("1m")), pod("q", run_time_metadata=stating("2m"))
    )
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


def waiting(rules: Rules, *, long_s: float) -> World:
    """A node is in use for `long_s`; a gang waits for it and for a free one, which a pod got that
    states 10 min.
    """
    there = World(node("a"), node("b"), rules=rules)
    arrives(there, "long", run_s=long_s, namespace="honest")
    gang_of(there, "head", 2, namespace="head")
    there.settle()
    assert [at_s for _, at_s, _ in standing(there)] == [long_s]
    arrives(there, "liar")
    assert there.bound().keys() == {"long", "liar"}
    return there


def arrives(there: World, name: str, *, run_s: float = 600.0, namespace: str = "liar") -> Pod:
    """A pod that states this comes, and is started if it is bound."""
    made = plain(there, name, run_s=run_s, namespace=namespace)
    there.settle()
    if name in there.bound():
        start(there, name)
    return there.pods[made.uid]


def ends(there: World, name: str) -> None:
    """The pod of this name is gone."""
    there.delete(*[each for each in there.pods.values() if each.name == name])
    there.settle()


def ignored(there: World) -> list[RecordEvent]:
    """The Events that statements of a namespace count for nothing."""
    events = [each for each in there.reports if isinstance(each, RecordEvent)]
    return [each for each in events if each.reason == EventReason.RUN_TIMES_IGNORED]


def test_nobody_enters_room_whose_time_was_missed() -> None:
    """H8: the room of the head was to be free by now; no statement lets another one onto it,
    whoever makes it.
    """
    there = waiting(TRUST, long_s=HOUR_S)
    there.advance(HOUR_S)
    ends(there, "long")
    there.advance(10)
    arrives(there, "next", run_s=60.0, namespace="honest")
    assert "next" not in there.bound()
    ends(there, "liar")
    assert {"head-0", "head-1"} <= there.bound().keys()


@pytest.mark.parametrize("restarts", [False, True])
def test_statements_of_a_namespace_that_overran_count_for_nothing(restarts: bool) -> None:
    """H11: for a time after the pod was last seen to run on; those of others count. A restart finds
    the same.
    """
    there = waiting(IGNORE, long_s=10 * HOUR_S)
    there.advance(1_204)
    assert ignored(there) == []
    there.advance(2)
    assert [event.regarding.namespace for event in ignored(there)] == ["liar"]
    if restarts:
        there.restart()
        there.advance(10)
    ends(there, "liar")
    arrives(there, "again", run_s=60.0)
    assert "again" not in there.bound()
    arrives(there, "honest", run_s=60.0, namespace="honest")
    assert "honest" in there.bound()
    ends(there, "honest")
    there.advance(IGNORED_S - 60)
    assert "again" not in there.bound()
    there.advance(120)
    assert "again" in there.bound()


def test_what_a_clock_that_was_ahead_made_of_a_namespace_ends_with_it() -> None:
    """H11: nobody ran longer than stated, as the clock says once it is set back."""
    there = waiting(IGNORE, long_s=20 * HOUR_S)
    there.clock_s = 5 * HOUR_S
    there.advance(2)
    assert "liar" in [event.regarding.namespace for event in ignored(there)]
    there.clock_s = 0.0
    ends(there, "liar")
    arrives(there, "again", run_s=60.0)
    assert "again" in there.bound()


def test_a_clock_that_was_set_back_takes_nothing_back_that_is_so_by_it() -> None:
    """H11: the pod runs much longer than stated by both clocks."""
    there = waiting(IGNORE, long_s=20 * HOUR_S)
    there.clock_s = 5 * HOUR_S
    there.advance(1_204)
    there.clock_s = 60.0
    there.advance(2)
    ends(there, "liar")
    arrives(there, "again", run_s=60.0)
    assert "again" not in there.bound()


def test_it_is_ignored_for_as_long_as_the_pod_runs_on() -> None:
    """H11: and said once."""
    there = waiting(IGNORE, long_s=20 * HOUR_S)
    there.advance(2.5 * IGNORED_S)
    ends(there, "liar")
    arrives(there, "again", run_s=60.0)
    assert "again" not in there.bound()
    assert len(ignored(there)) == 1


def test_a_tenant_that_states_ten_minutes_and_runs_six_hours_delays_a_head_once() -> None:
    """H8, H11: a pod every ten minutes; before, the gang did not start within 96 hours."""
    there = waiting(replace(IGNORE, unattended=True), long_s=HOUR_S)
    begun = {"long": HOUR_S, "liar": 6 * HOUR_S}
    for number in range(6 * 24):
        there.advance(600)
        for name in [name for name, until_s in begun.items() if until_s <= there.now_s]:
            ends(there, name)
            del begun[name]
        if "head-0" in there.bound():
            break
        arrives(there, f"liar-{number}")
        begun |= {name: there.now_s + 6 * HOUR_S for name in there.bound() if name not in begun}
    assert there.bound().keys() >= {"head-0", "head-1"}
    assert there.now_s <= 7 * HOUR_S


def test_deadlines_and_defaults_are_no_statements() -> None:
    """H11: a kubelet sees to the one, and an administrator states the other."""
    rules = replace(IGNORE, defaults=replace(IGNORE.defaults, expected_runtime_s=60.0))
    there = World(node("a"), rules=rules)
    there.create(pod("p"), pod("d", run_time_metadata=stating("", 30)))
    there.settle()
    for each in list(there.pods.values()):
        there.update(each, phase=Phase.RUNNING, start_s=there.wall_s())
    there.advance(HOUR_S)
    assert ignored(there) == []
