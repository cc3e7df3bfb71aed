"""Conditions of PodGroups: those of native ones, whose and when, and what is reported of gangs that
lose members.
"""

from __future__ import annotations

from typing import Any

import pytest

from gangsched.api import keys
from gangsched.api.dialects.spec import Count
from gangsched.api.podgroup import PodGroupStatus
from gangsched.model.gang import MatchPolicy
from gangsched.model.objects import Phase, Pod, PodGroup
from gangsched.state.reporting.stored import unchanged
from tests.builders import members, node, pod, pod_group
from tests.world import World


def native(name: str, minimum: int, **fields: Any) -> PodGroup:
    """A native PodGroup."""
    return pod_group(
        name,
        minimum,
        **{"api_group": keys.NATIVE, "version": "v1alpha2", "generation": 0, **fields},
    )


def natives(name: str, number: int, **fields: Any) -> list[Pod]:
    """Members that name it natively."""
    return [pod(f"{name}-{index}", native_group=name, **fields) for index in range(number)]


@pytest.mark.parametrize(
    ("version", "condition"),
    [
        ("v1alpha2", "PodGroupScheduled"),
        ("v1alpha3", "PodGroupInitiallyScheduled"),
        ("v1beta1", "PodGroupInitiallyScheduled"),
    ],
)
def test_the_condition_is_called_as_the_version_calls_it(version: str, condition: str) -> None:
    """E3: a native PodGroup gets its version's condition and no field that its status does not
    have.
    """
    world = World(node("a"))
    world.declare(native("g", 2, version=version))
    world.create(natives("g", 2))
    world.told()
    assert set(world.status("g")) == {"conditions"}
    assert world.gang_condition("g", condition) == "True"


def test_initially_scheduled_never_reverts() -> None:
    """A PodGroupInitiallyScheduled that is True stays True when members go; a PodGroupScheduled
    does not.
    """
    for version, condition, expected in (
        ("v1beta1", "PodGroupInitiallyScheduled", "True"),
        ("v1alpha2", "PodGroupScheduled", "False"),
    ):
        stored = {
            "type": condition,
            "status": "True",
            "reason": "Scheduled",
            "message": "",
            "lastTransitionTime": "2030-01-01T00:00:00Z",
        }
        world = World(node("a", 0))
        world.declare(native("g", 2, version=version, status={"conditions": [stored]}))
        world.create(natives("g", 2))
        world.told()
        written = [each for each in world.reports if getattr(each, "name", "") == "g"]
        assert (world.gang_condition("g", condition) if written else "True") == expected


def test_conditions_of_others_are_not_written() -> None:
    """Only conditions of our own types are sent: they are merged by type, so the others stay."""
    theirs = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "X",
        "message": "",
        "lastTransitionTime": "2030-01-01T00:00:00Z",
    }
    world = World(node("a"))
    world.declare(native("g", 2, status={"conditions": [theirs]}))
    world.create(natives("g", 2))
    world.told()
    types = [each["type"] for each in world.status("g")["conditions"]]
    assert types == ["PodGroupScheduled", "PodGroupSatisfied"]


def test_a_condition_that_was_true_is_taken_back() -> None:
    """A condition of ours that no longer holds is written as False even before the stored status is
    seen again.
    """
    world = World(node("a", 0))
    world.declare(native("g", 2))
    first, *_ = world.create(natives("g", 2, timed_out=True))
    world.told()
    assert world.gang_condition("g", "TimedOut") == "True"
    for member in list(world.pods.values()):
        world.update(member, timed_out=False)
    world.told()
    assert world.gang_condition("g", "TimedOut") == "False"
    assert first.uid in world.pods


def test_nothing_is_said_of_gangs_that_are_not_ours() -> None:
    """I1: a PodGroup without members, or whose members are all for other schedulers, gets no status
    and no Event.
    """
    world = World(node("a"))
    world.declare(native("n", 2), native("empty", 2), pod_group("c", 2), pod_group("void", 2))
    world.create(natives("n", 2, scheduler_name="other"))
    world.create(members("c", 2, pod_group=True, scheduler_name="other"))
    world.create(
        members("mine", 1, groups=["ns/mine", "ns/theirs"]),
        members("theirs", 1, scheduler_name="other"),
    )
    world.told()
    about = {event[0] for event in world.events()} | {
        getattr(each, "name", "") for each in world.reports
    }
    assert not about & {
        "n",
        "empty",
        "c",
        "void",
        "PodGroup ns/n",
        "PodGroup ns/c",
        "Pod ns/theirs-0",
    }


def test_a_group_that_was_ours_is_brought_up_to_date_after_its_last_pod() -> None:
    """E3: the status of a PodGroup whose last member went says so; it was ours before."""
    world = World(node("a"))
    world.declare(pod_group("g", 2))
    pods = world.create(members("g", 2, pod_group=True))
    world.told()
    assert world.status("g")["scheduled"] == 2
    world.delete(*[world.pods[each.uid] for each in pods])
    world.told()
    assert world.status("g")["scheduled"] == 0


def test_a_member_that_is_lost_and_not_replaced_is_told() -> None:
    """E3: nothing is being bound, a member is missing; one that has failed is counted."""
    world = World(node("a"))
    world.declare(pod_group("g", 2))
    pods = world.create(members("g", 2, pod_group=True))
    world.told()
    world.delete(world.pods[pods[1].uid])
    world.told()
    (scheduled,) = [each for each in world.status("g")["conditions"] if each["type"] == "Scheduled"]
    assert (scheduled["status"], scheduled["reason"]) == ("False", "WaitingForMembers")
    assert scheduled["message"].startswith(
        "1 of 2 members are bound; 1 member lost and not replaced yet"
    )


def test_a_native_group_counts_only_where_it_is_named() -> None:
    """I2: an annotation gang neither takes its minimum from a native PodGroup of its name nor
    writes to it.
    """
    world = World(node("a"))
    world.declare(native("g", 9))
    world.create(members("g", 2))
    assert len(world.told().bound()) == 2
    assert not [each for each in world.reports if getattr(each, "api_group", "") == keys.NATIVE]


# --- gangs that started and lose members (B5, E3, I6) -------------------------------------------

JOB: dict[str, Any] = {
    "owner": "train",
    "controller_kind": "Job",
    "controller_uid": "uid-of-the-job",
}


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
    assert text == "1 of 2 members are bound; Job ns/train has not replaced the missing members yet"


def test_a_gang_without_a_controller_says_who_must_replace_its_members() -> None:
    """B5: nobody creates pods that no controller owns."""
    world, (_, lost) = started(2, owner="", controller_kind="", controller_uid="")
    world.told()
    world.delete(lost)
    world.told()
    ((_, _, text),) = world.events("Degraded")
    assert (
        text == "1 of 2 members are bound; no controller replaces the missing members: create them"
    )


def test_a_terminating_member_counts_for_nothing() -> None:
    """E3: the status counts what the rules count, also where a dead node keeps its pods
    terminating.
    """
    world, (first, second) = started(2)
    for each in (first, second):
        world.update(each, deleting=True)
    world.create(members("g", 2, first=2, pod_group=True, **JOB))
    world.told()
    status = world.status("g")
    assert (status["scheduled"], status["running"]) == (2, 2)  # the dead ones still say Running
    scheduled = next(each for each in status["conditions"] if each["type"] == "Scheduled")
    assert scheduled["message"].startswith("2 of 2 members are bound")


def test_the_rest_of_a_job_starts() -> None:
    """I6: three indexes have succeeded and the fourth fails: its replacement starts alone, under
    the same stamp.
    """
    world, pods = started(4)
    for each in pods[:3]:
        world.update(each, phase=Phase.SUCCEEDED)
    stamp = world.pods[pods[3].uid].permitted
    world.update(pods[3], phase=Phase.FAILED)
    (again,) = world.create(members("g", 1, first=4, pod_group=True, **JOB))
    world.settle()
    assert world.bound()["g-4"] == "a"
    assert world.pods[again.uid].permitted == stamp


def test_a_job_of_more_completions_than_run_at_once_ends() -> None:
    """I6: the fifth pod comes when all four of the first start have succeeded."""
    world, pods = started(4)
    for each in pods:
        world.update(each, phase=Phase.SUCCEEDED)
    world.create(members("g", 1, first=4, pod_group=True, **JOB))
    assert "g-4" in world.settle().bound()


@pytest.mark.parametrize(
    "again", [{"controller_uid": "uid-of-another-job"}, {"controller_uid": ""}]
)
def test_a_job_recreated_under_its_name_starts_whole(again: dict[str, str]) -> None:
    """I6: the controller's uid tells, not its name; pods without a controller prove nothing."""
    world, pods = started(4)
    for each in pods:
        world.update(each, phase=Phase.SUCCEEDED)
    world.create(members("g", 3, first=4, pod_group=True, **{**JOB, **again}))
    assert not set(world.settle().bound()) & {"g-4", "g-5", "g-6"}


def test_a_start_of_which_all_failed_does_not_go_on() -> None:
    """I6: without a member that succeeded the next start is a whole one."""
    world, pods = started(4)
    for each in pods:
        world.update(each, phase=Phase.FAILED)
    world.create(members("g", 3, first=4, pod_group=True, **JOB))
    assert not set(world.settle().bound()) & {"g-4", "g-5", "g-6"}


def test_only_waiting_gangs_start_whole() -> None:
    """I6, B1: with the policy only-waiting nothing but waiting members counts."""
    world = World(node("a", 8))
    policy: dict[str, Any] = {"min_member": 4, "policy": MatchPolicy.ONLY_WAITING.value}
    pods = world.create(members("g", 4, **policy, **JOB))
    world.settle()
    for each in pods:
        world.update(world.pods[each.uid], phase=Phase.SUCCEEDED)
    world.create(members("g", 1, first=4, **policy, **JOB))
    assert "g-4" not in world.settle().bound()


def test_a_count_of_none_is_not_written_to_objects_without_it() -> None:
    """E3: an upgrade that adds a count writes no status of the gangs that have none to count."""
    fields = PodGroupStatus.model_fields.items()
    counts = [name for name, field in fields if field.annotation == Count | None]
    assert {"scheduled", "running", "succeeded", "failed"} <= {*counts}

    for name in counts:
        none = PodGroupStatus().model_copy(update={name: 0})
        status = none.to_dict()
        assert unchanged(status, {}), f"{name}: what is absent is 0, see stored.py"
