"""What is remembered of a start, of pods that are gone, too, and across restarts (semantics I6)."""

from __future__ import annotations

from typing import Any

import pytest

from gangsched.api.starts import parse_start, start_status
from gangsched.model.gang import MatchPolicy
from gangsched.model.objects import PermitStamp, Phase, Pod
from gangsched.model.start import GoneMembers, StoredStart
from gangsched.state.members import Member, State
from gangsched.state.start_memory import StartMemory
from tests import builders
from tests.builders import members, node, pod_group
from tests.world import World

JOB: dict[str, Any] = {
    "owner": "train",
    "controller_kind": "Job",
    "controller_uid": "uid-of-the-job",
}


def started(number: int, *, has_pod_group: bool = True, **fields: Any) -> tuple[World, list[Pod]]:
    """A Job whose pods run, all of them needed."""
    world = World(node("a", 16))
    if has_pod_group:
        world.declare(pod_group("g", number))
    pods = world.create(members("g", number, pod_group=has_pod_group, **{**JOB, **fields}))
    world.settle()
    running = [world.update(world.pods[pod.uid], phase=Phase.RUNNING) for pod in pods]
    return world, running


def replace_last(world: World, pods: list[Pod], **fields: Any) -> Pod:
    """The last member fails, and its controller creates another one."""
    world.update(pods[-1], phase=Phase.FAILED)
    options = {"pod_group": bool(world.pod_groups), **JOB, **fields}
    if not world.pod_groups:
        options.setdefault("min_member", len(pods))
    (again,) = world.create(members("g", 1, first=len(pods), **options))
    return again


def remember(world: World) -> None:
    """The status is written; then gangsched is killed and started again."""
    world.advance(10)
    world.store_statuses()
    world.restart()


@pytest.mark.parametrize("restarts", ["", "before the failure", "after it"])
@pytest.mark.parametrize("has_pod_group", [True, False])
def test_an_index_that_fails_after_a_restart_starts_at_once(
    restarts: str,
    *,
    has_pod_group: bool,
) -> None:
    """I6: of two indexes one has succeeded, and its pod with its stamp exists."""
    world, pods = started(2, has_pod_group=has_pod_group)
    world.update(pods[0], phase=Phase.SUCCEEDED)
    if restarts == "before the failure":
        world.settle().restart()
    again = replace_last(world, pods)
    if restarts == "after it":
        world.restart()

    world.settle()

    assert again.name in world.bound()
    assert world.sent[-1].permitted is not None
    assert world.sent[-1].permitted.epoch == 1


@pytest.mark.parametrize("removed", [1, 3])
def test_the_last_member_starts_although_the_pods_of_the_others_are_gone(removed: int) -> None:
    """I6: TTL, pod GC or a recycled node removes pods that have succeeded."""
    world, pods = started(4, has_pod_group=False)
    for pod in pods[:3]:
        world.update(pod, phase=Phase.SUCCEEDED)
    world.delete(*pods[:removed])

    again = replace_last(world, pods)

    assert again.name in world.settle().bound()


def test_a_pod_that_succeeds_and_goes_between_two_looks_has_succeeded() -> None:
    """I6: a turn of the loop may see both at once."""
    world, pods = started(2)
    world.update(pods[0], phase=Phase.SUCCEEDED)
    world.delete(pods[0])

    again = replace_last(world, pods)

    assert again.name in world.settle().bound()


def test_a_restart_reads_from_the_status_who_has_succeeded() -> None:
    """I6: nothing else knows of the three, and of the last one only its controller."""
    world, pods = started(4)
    for pod in pods[:3]:
        world.update(pod, phase=Phase.SUCCEEDED)
    world.delete(*pods[:3])
    world.advance(10)
    world.update(pods[3], phase=Phase.FAILED)
    remember(world)
    world.delete(pods[3])

    (again,) = world.create(members("g", 1, first=4, pod_group=True, **JOB))

    assert again.name in world.settle().bound()
    assert world.state.registry.gangs["ns/g"].start.succeeded == 3


@pytest.mark.parametrize("times", [1, 3])
def test_restarts_count_nobody_twice(times: int) -> None:
    """I6: what a restart reads from pods is not what it reads from the status."""
    world, pods = started(5)
    for pod in pods[:3]:
        world.update(pod, phase=Phase.SUCCEEDED)
    world.delete(pods[0], pods[3])
    world.update(pods[4], phase=Phase.FAILED)

    for _ in range(times):
        remember(world)
    world.settle()
    start = world.state.registry.gangs["ns/g"].start

    assert (start.succeeded, start.failed, start.deleted) == (3, 1, 1)
    world.delete(pods[1], pods[2])
    world.settle()
    assert start.succeeded == 3


def test_who_comes_when_all_others_are_gone_replaces_one_of_them() -> None:
    """I6, E8: of two members one has succeeded and one was deleted, and both pods are gone; the one
    that comes is in the place of the deleted one, though no member is there.
    """
    world, pods = started(2)
    world.update(pods[0], phase=Phase.SUCCEEDED)
    world.delete(world.pods[pods[0].uid], world.pods[pods[1].uid])
    world.settle()
    start = world.state.registry.gangs["ns/g"].start
    assert (start.succeeded, start.deleted) == (1, 1)

    world.create(members("g", 1, first=2, pod_group=True, **JOB))
    world.settle()
    assert (start.succeeded, start.deleted, start.bound) == (1, 0, 2)


def test_a_job_of_another_uid_starts_whole_after_a_restart() -> None:
    """I6: the status remembers uids, not names."""
    world, pods = started(4)
    for pod in pods:
        world.update(pod, phase=Phase.SUCCEEDED)
    world.delete(*pods)
    remember(world)
    another = {**JOB, "controller_uid": "uid-of-another-job"}

    world.create(members("g", 3, first=4, pod_group=True, **another))

    assert not world.settle().bound()
    world.create(members("g", 1, first=7, pod_group=True, **another))
    assert len(world.settle().bound()) == 4
    assert world.sent[-1].permitted is not None
    assert world.sent[-1].permitted.epoch == 2, "a number is not used twice"


def test_only_waiting_gangs_start_whole_after_a_restart() -> None:
    """I6, B1: with the policy only-waiting nothing but waiting members counts."""
    policy = MatchPolicy.ONLY_WAITING.value
    world, pods = started(2, policy=policy)
    world.update(pods[0], phase=Phase.SUCCEEDED)
    remember(world)

    again = replace_last(world, pods, policy=policy)

    assert again.name not in world.settle().bound()


def test_the_memory_ends_with_the_last_pod_and_the_pod_group() -> None:
    """I6: a Job may be created again under the uid of nobody; without its PodGroup it is new."""
    world, pods = started(2)
    world.update(pods[0], phase=Phase.SUCCEEDED)
    world.delete(*pods)
    world.withdraw(world.pod_groups["scheduling.x-k8s.io", "ns/g"])
    world.settle()

    assert not world.state.registry.gangs


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        ({"deleting": True}, (0, 0, 1)),
        ({"phase": Phase.FAILED, "deleting": True}, (0, 0, 1)),
        ({"phase": Phase.SUCCEEDED, "deleting": True}, (1, 0, 0)),
        ({"phase": Phase.FAILED}, (0, 1, 0)),
    ],
)
@pytest.mark.parametrize("is_gone", [False, True])
def test_how_a_member_ended(
    change: dict[str, Any],
    counts: tuple[int, int, int],
    *,
    is_gone: bool,
) -> None:
    """I6: a pod that was asked to go did not fail."""
    world, pods = started(2)
    if "phase" in change and "deleting" in change:
        world.update(pods[0], deleting=True)
        world.settle()
    world.update(pods[0], **change)
    if is_gone:
        world.delete(pods[0])
    world.settle()

    start = world.state.registry.gangs["ns/g"].start

    assert (start.succeeded, start.failed, start.deleted) == counts
    world.create(members("g", 1, first=2, pod_group=True, **JOB))
    world.settle()
    assert start.deleted == 0, "another member has taken its place"


def test_the_status_of_a_start_is_written_with_the_others() -> None:
    """I6, E3: the memory costs no write of its own."""
    world, pods = started(4)
    world.advance(10)
    before = len([report for report in world.reports if hasattr(report, "status")])
    world.store_statuses()
    world.advance(60)
    assert len([report for report in world.reports if hasattr(report, "status")]) == before

    for pod in pods:
        world.update(pod, phase=Phase.SUCCEEDED)
    world.advance(12)

    assert len([report for report in world.reports if hasattr(report, "status")]) == before + 1
    start = parse_start(world.status("g"))
    assert start is not None
    assert start.controllers == ("uid-of-the-job",)


@pytest.mark.parametrize(
    "stored",
    [
        None,
        "x",
        {},
        {"epoch": 0, "minMember": 1},
        {"epoch": -1, "minMember": 1},
        {"epoch": "1", "minMember": 1},
        {"epoch": 1, "minMember": 2**40},
        {"epoch": 1, "minMember": 1, "controllers": [1]},
        {"epoch": 1, "minMember": 1, "controllers": ["u"] * 513},
        {"epoch": 1, "minMember": 1, "gone": {"succeeded": -1}},
    ],
)
def test_a_stored_start_that_cannot_be_read_is_none(stored: object) -> None:
    """I6: whoever may write statuses can write anything there."""
    assert parse_start({"start": stored}) is None


def test_a_stored_start_reads_as_it_was_written() -> None:
    """I6."""
    start = StoredStart(3, 4, ("a", "b"), GoneMembers(1, 2, 3))
    assert parse_start({"start": start_status(start)}) == start


def test_a_number_that_no_status_can_store_is_none() -> None:
    """I6: what is written of a start can be read again."""
    start = {"epoch": 1, "minMember": 1, "gone": {"succeeded": 2**31 - 1}}
    stored = parse_start({"start": start, "failed": 2**31, "succeeded": 2**31 - 1})
    assert stored is not None
    assert (stored.succeeded, stored.failed) == (2**31 - 1, 0)

    more = StoredStart(1, 1, (), GoneMembers(stored.succeeded + 1))
    again = parse_start({"start": start_status(more)})
    assert again is not None
    assert again.gone.succeeded == 2**31 - 1


def test_the_memory_is_in_proportion_to_the_pods_that_exist() -> None:
    """I6: a Job of 10,000 completions, of which two run at a time and none is kept."""
    memory = StartMemory()
    for number in range(10_000):
        ended = builders.pod(f"p{number}", phase=Phase.SUCCEEDED, controller_uid="job")
        member = Member(ended, State.ENDED, permit=PermitStamp(2, 1))
        memory.learn([member])
        memory.left(member)

    assert memory.succeeded == 10_000
    assert memory.goes_on
    kept = [getattr(memory, name) for name in memory.__slots__]
    assert sum(len(each) for each in kept if isinstance(each, set)) == 0
    assert memory.controllers == {"job"}


@pytest.mark.parametrize("has_pod_group", [True, False])
def test_what_nothing_can_know_is_told(*, has_pod_group: bool) -> None:
    """I6: three have succeeded, their pods are gone, and gangsched was restarted; the status of a
    PodGroup would have it.
    """
    world, pods = started(4, has_pod_group=has_pod_group)
    for ended in pods[:3]:
        world.update(ended, phase=Phase.SUCCEEDED)
    world.delete(*pods[:3])
    remember(world)

    again = replace_last(world, pods)
    world.told()

    told = world.condition(again)[1]
    assert (again.name in world.bound()) is has_pod_group
    assert ("with a PodGroup it is remembered" in told) is not has_pod_group


def test_a_job_whose_pods_all_failed_is_told_nothing_of_a_restart() -> None:
    """I6: this process knows how each of them ended."""
    world, pods = started(4, has_pod_group=False)
    for ended in pods[:3]:
        world.update(ended, phase=Phase.FAILED)
    world.delete(*pods[:3])

    again = replace_last(world, pods)
    world.told()

    assert "remembered" not in world.condition(again)[1]
