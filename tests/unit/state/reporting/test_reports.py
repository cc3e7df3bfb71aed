"""What people are told: semantics E1 to E4, R4."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import pytest

from gangsched.api import keys
from gangsched.model.objects import Phase, ScheduledCondition
from gangsched.model.protocol import RecordEvent, SetPodCondition, SetPodGroupStatus
from gangsched.state.gangs import GangRecord
from gangsched.state.groups import MOST_ACCUSERS
from gangsched.state.reporting import reports
from tests.builders import members, node, pod, pod_group
from tests.sizes import of_size
from tests.world import World


def conditions(world: World) -> list[SetPodCondition]:
    """The conditions written so far."""
    return [each for each in world.reports if isinstance(each, SetPodCondition)]


def test_every_pending_pod_is_told_within_a_second() -> None:
    """E1: each pod of a gang that does not fit has the reason and a sentence; Unschedulable, for a
    node could help.
    """
    world = World(node("a", 1))
    pods = world.create(members("g", 2), pod("plain", gpus=4))
    world.advance(0.9)
    assert {world.condition(each)[0] for each in pods} == {"Unschedulable"}
    first, second, plain = (world.condition(each)[1] for each in pods)
    assert "1 Insufficient nvidia.com/gpu" in first
    assert second.startswith("gang ns/g can never start: it needs 2 pods of 1 nvidia.com/gpu")
    assert second.endswith("; see pod ns/g-0")
    assert plain.startswith("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")


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
    (one,) = world.create(
        [pod("p", gpus=4, condition=ScheduledCondition("False", "Unschedulable", "old news"))]
    )
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
    world.create(
        members("g", 1, pod_group=True),
        members("h", 1, creation_s=3),
        members("h", 1, first=1, creation_s=2),
    )
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
    assert any(
        keys.MIN[0] in message and '"four"' in message and "2 (" in message for message in messages
    )
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
    """E3: members that are missing, or wait for room, make it so; once all have their places it can
    wait.
    """
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
        urgent.append(
            [each for each in world.reports if isinstance(each, SetPodGroupStatus)][-1].urgent
        )
    assert urgent == [True, True, False]


def test_status_names_the_round() -> None:
    """R4: the round's number and how far it came are in the condition."""
    world = World(node("a", 3), node("b", 3))
    world.declare(pod_group("g", 3))
    world.create(members("g", 3, gpus=2, pod_group=True))
    world.told()
    message = next(
        each["message"] for each in world.status("g")["conditions"] if each["type"] == "Scheduled"
    )
    assert "hold 2 even when empty" in message
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


def test_a_turn_tells_what_it_has_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """E1: of many groups that are due the others follow in the next turns, the earliest first, and
    none is lost.
    """
    monkeypatch.setattr(reports, "LOOKS_PER_TURN", 3 * (reports.LOOKS_PER_GANG + 2))
    world = World(node("a", 1))
    world.create(*(members(f"z{n}", 2) for n in range(5)))
    world.turn()
    world.now_s += 0.1
    world.create(*(members(f"a{n}", 2) for n in range(5)))
    world.turn()
    world.now_s += 10.0
    told: list[set[str]] = []
    for _ in range(5):
        world.reports.clear()
        world.turn()
        told.append({each.name.partition("-")[0] for each in conditions(world)})
    assert told == [{"z0", "z1", "z2"}, {"z3", "z4", "a0"}, {"a1", "a2", "a3"}, {"a4"}, set()]


def test_a_turn_that_planned_tells_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """E1: the plan has taken most of its time; the others follow."""
    monkeypatch.setattr(reports, "LOOKS_AFTER_A_PLAN", reports.LOOKS_PER_GANG + 2)
    world = World(node("a", 1))
    world.create(*(members(f"g{n}", 2) for n in range(4)))
    world.turn()
    world.now_s += 10.0
    told: list[int] = []
    for is_after_plan in (True, False):
        taken = world.state.take_reports(now_s=world.now_s, wall="now", is_after_plan=is_after_plan)
        told.append(len([each for each in taken if isinstance(each, SetPodCondition)]))
    assert told == [2, 6]


def test_failed_binds_of_a_tree_are_read_once_for_all_of_its_gangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """I9: read once for each, they took 0.65 s of one turn in 20 trees of 100 gangs."""
    world = World(node("a", 1))
    world.create(*(members(f"c{n}", 2, parent="svc", namespace="ns") for n in range(10)))
    world.turn()
    world.now_s += 2.0  # the parent is new
    world.turn()
    world.now_s += 10.0
    read: list[str] = []
    told_faults = reports._told_faults

    def counted(records: Iterable[GangRecord]) -> Mapping[str, Sequence[str]]:
        gangs = list(records)
        read.extend(record.id for record in gangs)
        return told_faults(gangs)

    monkeypatch.setattr(reports, "_told_faults", counted)
    world.turn()
    assert len(conditions(world)) == 20
    assert sorted(read) == [f"ns/c{number}" for number in range(10)]


def test_a_gang_is_told_of_a_bounded_number_of_others_that_list_it() -> None:
    """I4: a tenant lets 100 gangs list one that does not list them; each would be an Event about
    it, and all of them would be read for each of its reports.
    """
    world = World(node("a", 1))
    (listed,) = world.create(members("x", 1, gpus=2))
    for number in range(100):
        world.create(members(f"g{number}", 1, gpus=2, groups=[f"ns/g{number}", "ns/x"]))

    for _ in range(20):
        world.now_s += 1.0
        world.turn()
    about = [
        each
        for each in world.reports
        if isinstance(each, RecordEvent)
        and each.reason == "InvalidGang"
        and each.regarding.uid == listed.uid
    ]
    assert len(about) == MOST_ACCUSERS
    assert len(world.state.registry.accusers("ns/x")) == MOST_ACCUSERS


def test_reports_of_accusing_gangs_take_their_share() -> None:
    """I4: one turn reports fewer gangs that list 31 others each."""
    world = World(node("a", 1))
    names = [f"ns/g{number}" for number in range(60)]
    for number, name in enumerate(names):
        others = [names[(number + step) % 60] for step in range(31)]
        world.create(members(name.removeprefix("ns/"), 1, gpus=2, groups=others))

    world.turn()
    world.now_s += 10.0
    world.reports.clear()
    world.turn()
    assert 0 < len(conditions(world)) <= 10


def test_everything_is_told_at_the_end() -> None:
    """E1: what has not settled yet is told when the daemon stops."""
    world = World(node("a", 1))
    world.create(members("g", 2))
    world.settle()
    reports = world.state.take_reports(now_s=world.now_s, wall="now", everything=True)
    assert len([each for each in reports if isinstance(each, SetPodCondition)]) == 2
    assert any(isinstance(each, RecordEvent) for each in reports)


def test_bad_value_that_comes_back_is_news() -> None:
    """E4: an Event on a bad value is told once for as long as the value stays, and again when it
    returns.
    """
    world = World(node("a", 8))
    for generation, mode in enumerate(("Loose", "Strict", "Loose", "Loose"), start=1):
        world.declare(
            pod_group("g", 3, gang_metadata=((keys.MODE[0], mode),), generation=generation)
        )
        world.create(members("g", 1, first=generation, pod_group=True, min_member=None, gated=True))
        world.told()
    assert len(world.events("InvalidGang")) == 2
    assert len(world.state.registry.gangs["ns/g"].reported.events) < 4, (
        "what is not true any more is forgotten"
    )


@pytest.mark.long
def test_pods_of_a_gang_that_is_being_created_are_told_once() -> None:
    """E1: many pods at ten a second: at most three writes a pod; the PodGroup has the counts, at
    most 5 s old.
    """
    world, size = World(node("a", 1)), of_size(150, 500)
    world.declare(pod_group("g", size))
    stale: list[str] = []
    for number in range(size):
        world.create(members("g", 1, first=number, pod_group=True))
        world.advance(0.1)
        said = counted(world)
        stale += [f"{number + 1}: {said}"] if said < number - 54 else []
    world.advance(5)
    writes = Counter(each.name for each in conditions(world))
    assert max(writes.values()) <= 3
    assert len(writes) == size
    assert not stale
    assert (
        len([each for each in world.reports if isinstance(each, SetPodGroupStatus)])
        <= size // 50 + 4
    )
    assert len(world.events("WaitingForMembers")) == 1


def counted(world: World) -> int:
    """The number of members that the PodGroup's condition names as ready."""
    written = [each for each in world.reports if isinstance(each, SetPodGroupStatus)]
    found = re.search(r"(\d+) of \d+ are ready", str(written[-1].status)) if written else None
    return int(found[1]) if found else 0


@pytest.mark.long
def test_refused_gangs_are_told_once_and_left_alone() -> None:
    """E1: gangs of 4 that are refused for 5 minutes: one write a pod, and at most two a minute on
    the PodGroup.
    """
    world, gangs = World(*(node(f"n{number}", 2) for number in range(8))), of_size(100, 500)
    for number in range(gangs):
        world.declare(pod_group(f"g{number}", 4))
        world.create(members(f"g{number}", 4, gpus=8, pod_group=True))
    world.advance(300)
    writes = Counter(each.name for each in conditions(world))
    assert (len(writes), max(writes.values())) == (4 * gangs, 1)
    statuses = Counter(each.name for each in world.reports if isinstance(each, SetPodGroupStatus))
    assert max(statuses.values()) <= 10


def test_facts_stand_on_the_oldest_pod_where_there_is_no_pod_group() -> None:
    """E1: it has the counts, the others say where to look; both without being rewritten for
    nothing.
    """
    world = World(node("a", 1))
    pods = world.create(members("g", 3, gpus=1))
    world.told()
    first, *others = (world.condition(each)[1] for each in pods)
    assert (
        first
        == "gang ns/g can never start: it needs 3 pods of 1 nvidia.com/gpu, and the eligible nodes"
        " hold 1 even when empty. 0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    )
    assert set(others) == {f"{first.partition('. 0/1')[0]}; see pod ns/g-0"}


def test_facts_that_move_are_written_every_five_seconds() -> None:
    """E1: no sooner, so that a busy cluster is not written to all the time, and no later."""
    world = World(node("a", 8))
    world.declare(pod_group("g", 30))
    times: list[float] = []
    for number in range(20):
        world.create(members("g", 1, first=number, pod_group=True))
        before = len([each for each in world.reports if isinstance(each, SetPodGroupStatus)])
        world.advance(1)
        if len([each for each in world.reports if isinstance(each, SetPodGroupStatus)]) > before:
            times.append(world.now_s)
    assert [later - sooner for sooner, later in pairwise(times)] == [5.0] * (len(times) - 1)


def test_gang_scheduled_is_said_when_all_binds_are_answered() -> None:
    """E2: not when they are sent; and what was refused is named, on the PodGroup as well."""
    world = World(node("a", 8))
    world.declare(pod_group("g", 3))
    world.fate = lambda bind: "later"
    world.create(members("g", 3, pod_group=True))
    world.told()
    assert not world.events("GangScheduled")
    world.fate = lambda bind: "bound" if bind.name == "g-0" else "later"
    world.answer()
    world.told()
    assert not world.events("GangScheduled")
    world.fate = lambda bind: "failed" if bind.name == "g-2" else "bound"
    world.answer()
    world.advance(0.3)
    ((about, _, message),) = world.events("GangScheduled")
    assert about == "PodGroup ns/g"
    assert (
        message == "2 pods are bound together; 1 refused: pod ns/g-2 on node a: the server said 500"
    )
    (condition,) = [each for each in world.status("g")["conditions"] if each["type"] == "Scheduled"]
    assert "Binding pod ns/g-2 to node a failed" in condition["message"]


def test_a_job_that_outgrew_its_minimum_is_not_told_more_than_all() -> None:
    """E3: four bound members of a minimum of three are not "4 of 3"."""
    world = World(node("a", 8))
    world.declare(pod_group("g", 3))
    world.create(members("g", 4, pod_group=True))
    world.told()
    (condition,) = [each for each in world.status("g")["conditions"] if each["type"] == "Scheduled"]
    assert condition["message"] == "4 members are bound; the gang needs 3"
