"""Gangs that have started and lose members: what is reported, and which starts go on (semantics B5, E3, I6)."""

from __future__ import annotations

from typing import Any

import pytest

from gangsched.model.gang import MatchPolicy
from gangsched.model.objects import Phase, Pod
from tests.builders import members, node, pod_group
from tests.world import World

JOB: dict[str, Any] = {"owner": "train", "controller_kind": "Job", "controller_uid": "uid-of-the-job"}


def started(number: int, gpus: int = 8, **controller: Any) -> tuple[World, list[Pod]]:
    """A gang of `number` that runs, all of its members needed."""
    world = World(node("a", gpus))
    world.declare(pod_group("g", number))
    pods = world.create(members("g", number, pod_group=True, **{**JOB, **controller}))
    world.settle()
    return world, [world.update(world.pods[each.uid], phase=Phase.RUNNING) for each in pods]


def test_a_lost_member_degrades_its_gang_though_nobody_replaces_it() -> None:
    """B5: at once, never silent; the message names who creates the replacement."""
    world, (_, lost) = started(2)
    world.told()
    world.delete(lost)
    world.told()
    assert world.gang_condition("g", "Degraded") == "True"
    ((_, _, text),) = world.events("Degraded")
    assert text == "1 of 2 members are bound; no pod replaces the others yet: Job ns/train creates them"


def test_a_gang_without_a_controller_says_who_must_replace_its_members() -> None:
    """B5: nobody creates pods that no controller owns."""
    world, (_, lost) = started(2, owner="", controller_kind="", controller_uid="")
    world.told()
    world.delete(lost)
    world.told()
    ((_, _, text),) = world.events("Degraded")
    assert text == "1 of 2 members are bound; no pod replaces the others, and no controller creates one: create it"


def test_a_terminating_member_counts_for_nothing() -> None:
    """E3: the status counts what the rules count, also where a dead node keeps its pods terminating."""
    world, (first, second) = started(2)
    for pod in (first, second):
        world.update(pod, deleting=True)
    world.create(members("g", 2, first=2, pod_group=True, **JOB))
    world.told()
    status = world.status("g")
    assert (status["scheduled"], status["running"]) == (2, 2)  # the dead ones still say Running
    scheduled = next(each for each in status["conditions"] if each["type"] == "Scheduled")
    assert scheduled["message"].startswith("2 of 2 members are bound")


def test_the_rest_of_a_job_starts() -> None:
    """I6: three indexes have succeeded and the fourth fails: its replacement starts alone, under the same stamp."""
    world, pods = started(4)
    for pod in pods[:3]:
        world.update(pod, phase=Phase.SUCCEEDED)
    stamp = world.pods[pods[3].uid].permitted
    world.update(pods[3], phase=Phase.FAILED)
    (again,) = world.create(members("g", 1, first=4, pod_group=True, **JOB))
    world.settle()
    assert world.bound()["g-4"] == "a"
    assert world.pods[again.uid].permitted == stamp


def test_a_job_of_more_completions_than_run_at_once_ends() -> None:
    """I6: the fifth pod comes when all four of the first start have succeeded."""
    world, pods = started(4)
    for pod in pods:
        world.update(pod, phase=Phase.SUCCEEDED)
    world.create(members("g", 1, first=4, pod_group=True, **JOB))
    assert "g-4" in world.settle().bound()


@pytest.mark.parametrize("again", [{"controller_uid": "uid-of-another-job"}, {"controller_uid": ""}])
def test_a_job_recreated_under_its_name_starts_whole(again: dict[str, str]) -> None:
    """I6: the controller's uid tells, not its name; pods without a controller prove nothing."""
    world, pods = started(4)
    for pod in pods:
        world.update(pod, phase=Phase.SUCCEEDED)
    world.create(members("g", 3, first=4, pod_group=True, **{**JOB, **again}))
    assert not set(world.settle().bound()) & {"g-4", "g-5", "g-6"}


def test_a_start_of_which_all_failed_does_not_go_on() -> None:
    """I6: without a member that succeeded the next start is a whole one."""
    world, pods = started(4)
    for pod in pods:
        world.update(pod, phase=Phase.FAILED)
    world.create(members("g", 3, first=4, pod_group=True, **JOB))
    assert not set(world.settle().bound()) & {"g-4", "g-5", "g-6"}


def test_only_waiting_gangs_start_whole() -> None:
    """I6, B1: with the policy only-waiting nothing but waiting members counts."""
    world = World(node("a", 8))
    policy: dict[str, Any] = {"min_member": 4, "policy": MatchPolicy.ONLY_WAITING.value}
    pods = world.create(members("g", 4, **policy, **JOB))
    world.settle()
    for pod in pods:
        world.update(world.pods[pod.uid], phase=Phase.SUCCEEDED)
    world.create(members("g", 1, first=4, **policy, **JOB))
    assert "g-4" not in world.settle().bound()
