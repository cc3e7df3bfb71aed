"""What people are told: semantics E1 to E4, R4."""

from __future__ import annotations

from gangsched.api import keys
from gangsched.model.objects import Phase, ScheduledCondition
from gangsched.model.protocol import RecordEvent, SetPodCondition, SetPodGroupStatus
from tests.builders import members, node, pod, pod_group
from tests.world import World


def conditions(world: World) -> list[SetPodCondition]:
    """The conditions written so far."""
    return [each for each in world.reports if isinstance(each, SetPodCondition)]


def test_every_pending_pod_is_told_within_a_second() -> None:
    """E1: each pod of a gang that does not fit has the reason and a sentence; Unschedulable, for a node could help."""
    world = World(node("a", 1))
    pods = world.create(members("g", 2), pod("plain", gpus=4))
    world.advance(0.9)
    for each in pods:
        reason, message = world.condition(each)
        assert reason == "Unschedulable"
        assert "1 Insufficient nvidia.com/gpu" in message


def test_unchanged_verdict_is_not_written_again() -> None:
    """E1: looking again and coming to the same end tells nothing."""
    world = World(node("a", 1))
    world.create(members("g", 2))
    world.told()
    written = len(world.reports)
    world.advance(200)
    assert len(world.reports) == written


def test_verdict_told_before_a_restart_is_not_written_again() -> None:
    """E1: the condition that the API server holds already is not repeated."""
    world = World(node("a", 1))
    world.create(members("g", 2))
    world.told()
    written = len(conditions(world))
    world.restart()
    world.told()
    assert len(conditions(world)) == written


def test_condition_of_another_text_is_replaced() -> None:
    """E1: a changed verdict is told."""
    world = World(node("a", 1))
    (one,) = world.create([pod("p", gpus=4, condition=ScheduledCondition("False", "Unschedulable", "old news"))])
    world.told()
    assert world.condition(one)[1] != "old news"


def test_gang_whose_members_are_still_being_created_is_told_once() -> None:
    """E1: a verdict is told when it stood for a moment, not with every member that appears."""
    world = World(node("a", 1))
    for number in range(5):
        world.create(members("g", 1, first=number, min_member=9))
        world.advance(0.02)
    world.told()
    assert len(conditions(world)) == 5


def test_failed_scheduling_is_an_event_when_the_reason_changes() -> None:
    """E2: members get the Event for a new reason only; plain pods for each new message."""
    world = World(node("a", 1))
    world.create(members("g", 2), pod("plain", gpus=4))
    for number in range(3):
        world.add_nodes(node(f"n{number}", 0))
        world.advance(61)
    about = [object_ for object_, _, _ in world.events("FailedScheduling")]
    assert about.count("Pod ns/g-0") == 1
    assert about.count("Pod ns/plain") > 1


def test_events_of_a_gang_are_about_its_pod_group_or_its_oldest_pod() -> None:
    """E2: the PodGroup where there is one, else the oldest pod; a start is an Event too."""
    world = World(node("a", 8))
    world.declare(pod_group("g", 1))
    world.create(members("g", 1, pod_group=True), members("h", 1, creation_s=3), members("h", 1, first=1, creation_s=2))
    world.told()
    about = {object_ for object_, _, _ in world.events("GangScheduled")}
    assert "PodGroup ns/g" in about
    assert world.events("Scheduled")


def test_bad_value_is_an_event_and_a_condition_and_never_an_exception() -> None:
    """E4: key, value and what is used instead are told, once."""
    world = World(node("a", 8))
    bad = ((keys.MIN[0], "four"), (keys.MODE[0], "Strickt"))
    world.declare(pod_group("g", 2, gang_metadata=bad))
    world.create(members("g", 2, pod_group=True))
    world.told()
    messages = [message for _, _, message in world.events("InvalidGang")]
    assert any(keys.MIN[0] in message and '"four"' in message and "2 (" in message for message in messages)
    assert world.gang_condition("g", "InvalidGang") == "True"
    assert len(world.bound()) == 2
    told = len(messages)
    world.create(pod("stir"))
    world.told()
    assert len(world.events("InvalidGang")) == told


def test_status_follows_the_gang_through_its_life() -> None:
    """E3: the phase, counts and conditions of a PodGroup, from its first member to the end."""
    world = World(node("a", 2))
    world.declare(pod_group("g", 2))
    blocker = world.create(pod("blocker", node_name="a"))
    pods = world.create(members("g", 1, pod_group=True, owner="job"))
    world.told()
    assert world.status("g")["phase"] == "Pending"
    pods += world.create(members("g", 1, first=1, pod_group=True, owner="job"))
    world.told()
    assert world.status("g")["phase"] == "PreScheduling"
    assert world.status("g")["occupiedBy"] == "ns/job"
    assert world.gang_condition("g", "Scheduled") == "False"
    world.delete(*blocker)
    world.told()
    assert (world.status("g")["phase"], world.status("g")["scheduled"]) == ("Running", 2)
    assert world.gang_condition("g", "Scheduled") == "True"
    for each in pods:
        world.update(each, phase=Phase.SUCCEEDED)
    world.told()
    assert (world.status("g")["phase"], world.status("g")["succeeded"]) == ("Finished", 2)


def test_status_is_urgent_while_somebody_waits() -> None:
    """E3: members that are missing, or wait for room, make it so; once all have their places it can wait."""
    world = World(node("a", 2))
    world.declare(pod_group("g", 2))
    urgent: list[bool] = []
    blocker = world.create(pod("blocker", node_name="a"))
    for step in ("one is missing", "no room", "all bound"):
        if step == "all bound":
            world.delete(*blocker)
        else:
            world.create(members("g", 1, first=len(urgent), pod_group=True))
        world.told()
        urgent.append([each for each in world.reports if isinstance(each, SetPodGroupStatus)][-1].urgent)
    assert urgent == [True, True, False]


def test_status_names_the_round() -> None:
    """R4: the round's number and how far it came are in the condition."""
    world = World(node("a", 3), node("b", 3))
    world.declare(pod_group("g", 3))
    world.create(members("g", 3, gpus=2, pod_group=True))
    world.told()
    message = next(each["message"] for each in world.status("g")["conditions"] if each["type"] == "Scheduled")
    assert "room for 2" in message or "round 1" in message
    world.declare(pod_group("g", 2, generation=2))
    world.told()
    assert world.status("g")["scheduled"] == 2


def test_failed_is_said_only_when_no_member_is_left_to_wait_for() -> None:
    """E3: one failed member of a gang that runs on does not make it Failed."""
    world = World(node("a", 2))
    world.declare(pod_group("g", 2))
    pods = world.create(members("g", 2, pod_group=True))
    world.told()
    world.update(pods[0], phase=Phase.FAILED)
    world.told()
    assert world.status("g")["phase"] != "Failed"
    world.update(pods[1], phase=Phase.FAILED)
    world.told()
    assert world.status("g")["phase"] == "Failed"


def test_status_that_is_stored_already_is_not_written() -> None:
    """E3: after a restart nothing is written that the object says already."""
    world = World(node("a", 1))
    group = pod_group("g", 2)
    world.declare(group)
    world.create(members("g", 2, pod_group=True))
    world.told()
    world.declare(pod_group("g", 2, status=world.status("g")))
    world.restart()
    before = len([each for each in world.reports if isinstance(each, SetPodGroupStatus)])
    world.told()
    assert len([each for each in world.reports if isinstance(each, SetPodGroupStatus)]) == before


def test_gang_that_lost_all_its_pods_says_that_they_are_missing() -> None:
    """E3: what was refused once is not said of a gang without members."""
    world = World(node("a", 1))
    world.declare(pod_group("g", 2))
    pods = world.create(members("g", 2, pod_group=True))
    world.told()
    world.delete(*pods)
    world.told()
    (condition,) = [each for each in world.status("g")["conditions"] if each["type"] == "Scheduled"]
    assert condition["reason"] == "WaitingForMembers"


def test_everything_is_told_at_the_end() -> None:
    """E1: what has not settled yet is told when the daemon stops."""
    world = World(node("a", 1))
    world.create(members("g", 2))
    world.settle()
    reports = world.state.take_reports(now_s=world.now_s, wall="now", everything=True)
    assert len([each for each in reports if isinstance(each, SetPodCondition)]) == 2
    assert any(isinstance(each, RecordEvent) for each in reports)


def test_bad_value_that_comes_back_is_news() -> None:
    """E4: an Event on a bad value is told once for as long as the value stays, and again when it returns."""
    world = World(node("a", 8))
    for generation, mode in enumerate(("Loose", "Strict", "Loose", "Loose"), start=1):
        world.declare(pod_group("g", 3, gang_metadata=((keys.MODE[0], mode),), generation=generation))
        world.create(members("g", 1, first=generation, pod_group=True, min_member=None, gated=True))
        world.told()
    assert len(world.events("InvalidGang")) == 2
    assert len(world.state.reports._events["ns/g"]) < 4, "what is not true any more is forgotten"
