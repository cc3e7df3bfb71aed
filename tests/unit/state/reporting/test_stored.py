"""Statuses of a PodGroup that another process writes after this one has read it: the process before
was killed while its write was under way, or leads while this one stands by (semantics I6, E3).
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangsched.model.objects import Phase, Pod
from gangsched.state.gangs import GangRecord
from tests.builders import members, node, pod_group
from tests.world import World

JOB: dict[str, Any] = {
    "owner": "train",
    "controller_kind": "Job",
    "controller_uid": "uid-of-the-job",
}
REPORTED_S = 13.0
"""After this long all is reported, also that a gang has ended."""


def running(number: int, *, min_member: int | None = None) -> tuple[World, list[Pod]]:
    """A Job whose pods run, which is reported and stored."""
    world = World(node("a", 16))
    world.declare(pod_group("g", min_member or number))
    pods = world.create(members("g", number, pod_group=True, **JOB))
    world.settle()
    for pod in pods:
        world.update(pod, phase=Phase.RUNNING)

    return stored(world), pods


def stored(world: World) -> World:
    """What there is to tell is told and stored."""
    return world.advance(REPORTED_S).store_statuses()


def record(world: World) -> GangRecord:
    """What is known of the gang."""
    return world.state.registry.gangs["ns/g"]


def overwrite(world: World, **fields: Any) -> None:
    """Somebody writes the status."""
    (known,) = world.pod_groups.values()
    world.declare(msgspec.structs.replace(known, status={**known.status, **fields}))


def killed_while_writing(world: World) -> dict[str, Any]:
    """gangsched is killed while its last write is under way, which another process does not read
    when it starts; returns that status.
    """
    world.advance(REPORTED_S)
    late = world.status("g")
    world.restart()
    return late


def fail(world: World, *pods: Pod) -> None:
    """Pods fail, and are gone."""
    for pod in pods:
        world.update(pod, phase=Phase.FAILED)

    world.delete(*pods)


def succeed(world: World, *pods: Pod) -> None:
    """Pods succeed, and are gone."""
    for pod in pods:
        world.update(pod, phase=Phase.SUCCEEDED)

    world.delete(*pods)


@pytest.mark.parametrize("is_first_to_write", [True, False])
def test_members_of_a_late_status_are_counted(*, is_first_to_write: bool) -> None:
    """I6, E8: of three members one has failed, as only the process before knows, and its write is
    carried out after this one has read the status, or even written one.
    """
    world, pods = running(3)
    fail(world, pods[0])
    late = killed_while_writing(world)
    assert late["failed"] == 1
    if not is_first_to_write:
        stored(world)

    overwrite(world, **late)
    world.create(members("g", 1, first=3, pod_group=True, **JOB))
    stored(world).advance(60)

    assert world.status("g")["failed"] == 1
    fail(world, pods[1])
    stored(world)
    assert world.status("g")["failed"] == 2


def test_members_that_succeeded_by_a_late_status_count_towards_the_minimum() -> None:
    """I6: two of three have succeeded and are gone, and the third one fails: its replacement starts
    at once, and the gang finishes with it.
    """
    world, pods = running(3)
    succeed(world, pods[0])
    stored(world)
    succeed(world, pods[1])
    late = killed_while_writing(world)
    overwrite(world, **late)
    world.settle()
    fail(world, pods[2])

    (again,) = world.create(members("g", 1, first=3, pod_group=True, **JOB))

    assert again.name in world.settle().bound()
    succeed(world, world.pods[again.uid])
    stored(world)
    assert world.status("g")["phase"] == "Finished"
    assert world.status("g")["succeeded"] == 3


def test_a_start_of_which_only_a_late_status_tells_is_not_repeated() -> None:
    """I6: a number is used once, though no pod of the start exists any more."""
    world, pods = running(2)
    fail(world, *pods)
    again = world.create(members("g", 2, first=2, pod_group=True, **JOB))
    stored(world)
    before = dict(world.status("g"))
    fail(world, *again)
    third = world.create(members("g", 2, first=4, pod_group=True, **JOB))
    world.settle()
    assert world.sent[-1].permitted is not None
    assert world.sent[-1].permitted.epoch == 3
    fail(world, *third)
    late = killed_while_writing(world)
    assert late["start"]["epoch"] == 3
    assert before["start"]["epoch"] == 2

    overwrite(world, **late)
    world.create(members("g", 2, first=6, pod_group=True, **JOB))
    world.settle()

    assert world.sent[-1].permitted is not None
    assert world.sent[-1].permitted.epoch == 4


def test_another_start_of_the_same_number_is_not_counted() -> None:
    """I6: a start is a number and controllers: this process began one that the process before had
    begun under another controller.
    """
    world, pods = running(2)
    stored(world)
    late = dict(world.status("g"))
    late["start"] = {**late["start"], "controllers": ["uid-of-another"]}

    world.restart()
    stored(world)
    overwrite(world, **{**late, "failed": 7})
    world.advance(REPORTED_S)

    assert record(world).start.failed == 0
    assert record(world).start.controllers == {"uid-of-the-job"}
    assert pods[0].name in world.bound()


def test_a_process_that_stands_by_counts_what_the_leader_tells() -> None:
    """I6: of a pod that came and went while its watch was broken off it has never heard; of one
    that it sees go itself the leader tells as well, sooner or later.
    """
    world, pods = running(3, min_member=1)
    leader = record(world).start.to_dict()
    assert leader is not None
    world.restart()

    told = {**leader, "gone": {"succeeded": 0, "failed": 2, "deleted": 0}}
    overwrite(world, failed=2, start=told)
    fail(world, pods[0])
    stored(world)

    assert world.status("g")["failed"] == 2


def test_nonsense_that_the_leader_takes_back_is_forgotten() -> None:
    """E3: a process that stands by believes the newest status, not each that was stored."""
    world, _ = running(2)
    right = dict(world.status("g"))
    world.restart()

    overwrite(world, failed=900, succeeded=900)
    overwrite(world, **right)
    world.advance(REPORTED_S)

    assert record(world).start.failed == 0
    assert record(world).start.succeeded == 0


@pytest.mark.parametrize("after_s", [61.0, 600.0])
@pytest.mark.parametrize("restarts", [True, False])
def test_nonsense_is_restored_and_not_believed(after_s: float, *, restarts: bool) -> None:
    """E3: no write of a process before is carried out a minute after this one has reported, so who
    writes then is somebody else.
    """
    world, _ = running(2)
    if restarts:
        world.restart()

    world.advance(after_s)
    right = dict(world.status("g"))
    nonsense = {**right["start"], "gone": {"succeeded": 50, "failed": 50, "deleted": 50}}
    overwrite(world, phase="Failed", failed=900, succeeded=900, start=nonsense)
    world.advance(61).store_statuses()

    assert record(world).start.failed == 0
    (now,) = world.pod_groups.values()
    assert now.status["phase"] == "Running"
    assert now.status["failed"] == 0
    assert now.status["start"] == right["start"]


def test_our_own_writes_teach_nothing() -> None:
    """I6: an older write of ours comes back after a newer one was sent."""
    world, pods = running(4)
    older = dict(world.status("g"))
    fail(world, pods[0])
    world.advance(REPORTED_S)
    newer = dict(world.status("g"))

    overwrite(world, **older)
    overwrite(world, **newer)
    world.create(members("g", 1, first=4, pod_group=True, **JOB))
    stored(world)

    start = record(world).start
    assert (start.succeeded, start.failed, start.deleted) == (0, 1, 0)


def test_a_pod_that_succeeded_and_went_while_away_counts_beside_those_that_end_later() -> None:
    """I6, E8: three of four had succeeded when gangsched was killed; the pod of one is cleaned
    before the next process starts, and then the fourth succeeds.
    """
    world, pods = running(4)
    for pod in pods[:3]:
        world.update(pod, phase=Phase.SUCCEEDED)
    stored(world)
    del world.pods[pods[0].uid]
    world.restart()
    world.settle()

    world.update(pods[3], phase=Phase.SUCCEEDED)
    stored(world)

    assert world.status("g")["succeeded"] == 4
    assert world.status("g")["phase"] == "Finished"


def test_a_status_that_comes_late_is_compared_with_pods_that_are_gone() -> None:
    """E3: the process before had written no status when this one read the PodGroup, whose pods are
    gone; what it says then is not for ever.
    """
    world = World(node("a", 16))
    world.declare(pod_group("g", 2))
    pods = world.create(members("g", 2, pod_group=True, **JOB))
    world.settle()
    for pod in pods:
        world.update(pod, phase=Phase.RUNNING)
    world.advance(5)
    late = dict(world.status("g"))
    assert late["phase"] == "Running"
    world.pods.clear()
    world.restart()
    world.advance(5)

    overwrite(world, **late)
    stored(world)

    (now,) = world.pod_groups.values()
    assert now.status["phase"] != "Running"
    assert now.status["running"] == 0
