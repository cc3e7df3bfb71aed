"""Native PodGroups in the state: which condition, whose conditions, and whose PodGroups."""

from __future__ import annotations

from typing import Any

import pytest

from gangsched.api import keys
from gangsched.model.objects import Pod, PodGroup
from tests.builders import members, node, pod, pod_group
from tests.world import World


def native(name: str, minimum: int, **fields: Any) -> PodGroup:
    """A native PodGroup."""
    return pod_group(name, minimum, **{"api_group": keys.NATIVE, "version": "v1alpha2", "generation": 0, **fields})


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
    """E3: a native PodGroup gets its version's condition and no field that its status does not have."""
    world = World(node("a"))
    world.declare(native("g", 2, version=version))
    world.create(natives("g", 2))
    world.told()
    assert set(world.status("g")) == {"conditions"}
    assert world.gang_condition("g", condition) == "True"


def test_initially_scheduled_never_reverts() -> None:
    """A PodGroupInitiallyScheduled that is True stays True when members go; a PodGroupScheduled does not."""
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
    assert [each["type"] for each in world.status("g")["conditions"]] == ["PodGroupScheduled"]


def test_a_condition_that_was_true_is_taken_back() -> None:
    """A condition of ours that no longer holds is written as False even before the stored status is seen again."""
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
    """I1: a PodGroup without members, or whose members are all for other schedulers, gets no status and no Event."""
    world = World(node("a"))
    world.declare(native("n", 2), native("empty", 2), pod_group("c", 2), pod_group("void", 2))
    world.create(natives("n", 2, scheduler_name="other"))
    world.create(members("c", 2, pod_group=True, scheduler_name="other"))
    world.create(members("mine", 1, groups=["ns/mine", "ns/theirs"]), members("theirs", 1, scheduler_name="other"))
    world.told()
    about = {event[0] for event in world.events()} | {getattr(each, "name", "") for each in world.reports}
    assert not about & {"n", "empty", "c", "void", "PodGroup ns/n", "PodGroup ns/c", "Pod ns/theirs-0"}


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
    assert scheduled["message"].startswith("1 of 2 members are bound; 1 member lost and not replaced yet")


def test_a_native_group_counts_only_where_it_is_named() -> None:
    """I2: an annotation gang neither takes its minimum from a native PodGroup of its name nor writes to it."""
    world = World(node("a"))
    world.declare(native("g", 9))
    world.create(members("g", 2))
    assert len(world.told().bound()) == 2
    assert not [each for each in world.reports if getattr(each, "api_group", "") == keys.NATIVE]
