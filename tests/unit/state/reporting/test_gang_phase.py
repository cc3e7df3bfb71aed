"""The phase of a gang after its start: members that end or come in batches, restarts of
gangsched, and other writers of the PodGroup's status (semantics E3, E8).
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangsched.api import keys
from gangsched.api.podgroup import PodGroupPhase
from gangsched.model.gang import MatchPolicy
from gangsched.model.objects import Phase, Pod
from gangsched.model.protocol import SetPodGroupStatus
from gangsched.state.reporting.gang_phase import Counts, Life, OwnerState, phase
from gangsched.state.reporting.reports import Reports
from tests import builders
from tests.builders import members, node, pod_group
from tests.world import WALL, World

JOB: dict[str, Any] = {
    "owner": "train",
    "controller_kind": "Job",
    "controller_uid": "uid-of-the-job",
}
QUIET_S = 11.0
"""Longer than a controller has for its next members."""


def running(number: int, minimum: int | None = None, **fields: Any) -> tuple[World, list[Pod]]:
    """A gang of a Job that runs; its status is stored."""
    world = World(node("a", 16))
    world.declare(pod_group("g", number if minimum is None else minimum, **fields))
    pods = world.create(members("g", number, pod_group=True, **JOB))
    world.settle()
    shown = [world.update(world.pods[pod.uid], phase=Phase.RUNNING) for pod in pods]
    stored(world)
    return world, shown


def stored(world: World, seconds: float = 6.0) -> dict[str, Any]:
    """The status of the PodGroup after a while, which the watch has shown."""
    world.advance(seconds)
    world.store_statuses()
    world.advance(1)
    (found,) = [each for each in world.pod_groups.values() if each.name == "g"]
    return dict(found.status)


def end(world: World, pods: list[Pod], how: Phase = Phase.SUCCEEDED) -> None:
    """Members end."""
    for pod in pods:
        world.update(world.pods[pod.uid], phase=how)


def writes(world: World) -> int:
    """How many statuses were written so far."""
    return sum(isinstance(report, SetPodGroupStatus) for report in world.reports)


def scheduled(status: dict[str, Any]) -> tuple[str, str, str]:
    """Status, reason and message of the condition `Scheduled`."""
    (found,) = [each for each in status["conditions"] if each["type"] == "Scheduled"]
    return found["status"], found["reason"], found["message"]


def overwrite(world: World, **fields: object) -> None:
    """Another controller changes the stored status of the PodGroup; None removes a field."""
    (old,) = [each for each in world.pod_groups.values() if each.name == "g"]
    changed = {**old.status, **fields}
    kept = {key: value for key, value in changed.items() if value is not None}
    world.declare(msgspec.structs.replace(old, status=kept))


# --- a process that begins again ----------------------------------------------------------------


def test_pods_that_went_while_no_gangsched_ran_are_not_told_to_run() -> None:
    """E3: every PodGroup is compared once at a start, also one without pods."""
    world, pods = running(2)
    assert stored(world)["phase"] == "Running"
    for pod in pods:
        del world.pods[pod.uid]
    world.restart()
    status = stored(world)
    assert (status["phase"], status["running"]) == ("Pending", 0)


def test_a_restart_writes_nothing_where_nothing_changed() -> None:
    """E3: the stored status of a gang that runs is the one that another process would write."""
    world, _ = running(2)
    before = writes(world)
    world.restart()
    world.advance(120)
    assert writes(world) == before


def test_a_podgroup_that_others_reported_is_not_ours_after_a_restart() -> None:
    """I1: an object without pods whose status somebody else wrote gets no report."""
    theirs = {
        "type": "PodGroupScheduled",
        "status": "True",
        "reason": "Scheduled",
        "message": "All required pods have been successfully scheduled",
        "lastTransitionTime": "2030-01-01T00:00:00Z",
    }
    default = theirs | {"type": "Scheduled", "status": "Unknown", "reason": "NoPods"}
    world = World(node("a"))
    world.declare(
        pod_group("g", 2, status={"phase": "Pending", "scheduled": 0, "conditions": [default]}),
        pod_group("plugin", 2, status={"phase": "Running", "running": 2}),
        pod_group("n", 2, api_group=keys.NATIVE, status={"conditions": [theirs]}),
    )
    world.advance(120)
    assert writes(world) == 0


# --- members that end ---------------------------------------------------------------------------


def test_all_members_failed() -> None:
    """E8: nothing is being bound, and the sentence counts them."""
    world, pods = running(3)
    end(world, pods, Phase.FAILED)
    status = stored(world)
    assert (status["phase"], status["failed"]) == ("Failed", 3)
    assert scheduled(status) == ("False", "MembersFailed", "3 of 3 members have failed")


def test_binding_is_told_only_while_a_bind_is_under_way() -> None:
    """E8: a refused bind is not a bind under way."""
    world = World(node("a", 16))
    world.fate = lambda bind: "failed"
    world.declare(pod_group("g", 2))
    world.create(members("g", 2, pod_group=True, **JOB))
    world.told()
    assert scheduled(world.status("g"))[:2] == ("False", "BackOff")


def test_a_job_in_batches_runs_until_it_is_done() -> None:
    """E8: six members, two at a time: the phase is Running from the first to the last."""
    world, pods = running(2)
    for batch in range(2):
        end(world, pods)
        world.advance(3)
        first = 2 + 2 * batch
        pods = world.create(members("g", 2, first=first, pod_group=True, **JOB))
        world.settle()
        pods = [world.update(world.pods[pod.uid], phase=Phase.RUNNING) for pod in pods]
        world.advance(7)
    end(world, pods)
    world.advance(QUIET_S)
    phases = [
        str(report.status["phase"])
        for report in world.reports
        if isinstance(report, SetPodGroupStatus)
    ]
    assert phases.count("Finished") == 1
    assert phases[-1] == "Finished"
    assert world.status("g")["succeeded"] == 6


def test_a_gang_that_nobody_adds_to_has_finished_at_once() -> None:
    """E8: pods without a controller have no successors."""
    world = World(node("a", 16))
    world.declare(pod_group("g", 2))
    pods = world.create(members("g", 2, pod_group=True))
    world.settle()
    end(world, pods)
    world.told()
    assert world.status("g")["phase"] == "Finished"


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        (OwnerState.UNKNOWN, PodGroupPhase.FINISHED),
        (OwnerState.ACTIVE, PodGroupPhase.RUNNING),
        (OwnerState.COMPLETE, PodGroupPhase.FINISHED),
        (OwnerState.FAILED, PodGroupPhase.FAILED),
    ],
)
def test_the_owner_has_the_last_word(owner: OwnerState, expected: PodGroupPhase) -> None:
    """E8: where the owner may be read, its state decides whether the gang goes on."""
    count = Counts(succeeded=2)
    life = Life(count=count, min_member=2, owner=owner, has_controller=True)
    assert phase(life) is expected


# --- other policies, other writers --------------------------------------------------------------


def test_an_only_waiting_gang_that_waits_for_one_more_is_not_broken() -> None:
    """B1, E8: members that run are no part of its next start, so none of them is missed."""
    policy: dict[str, Any] = {"min_member": 2, "policy": MatchPolicy.ONLY_WAITING.value}
    world = World(node("a", 16))
    first, second = world.create(members("g", 2, **policy, **JOB))
    world.settle()
    world.delete(world.pods[second.uid])
    world.create(members("g", 1, first=2, **policy, **JOB))
    world.advance(10)
    assert world.pods[first.uid].node_name
    assert "g-2" in world.pending()
    assert world.events("Degraded") == []


def test_a_podgroup_that_is_being_deleted_is_reported_until_it_is_gone() -> None:
    """E3: a finalizer may keep it for as long as its pods run."""
    world, pods = running(2)
    (old,) = world.pod_groups.values()
    world.declare(msgspec.structs.replace(old, deleting=True))
    world.advance(1)
    end(world, pods, Phase.FAILED)
    assert stored(world)["phase"] == "Failed"


def test_a_status_that_is_wiped_is_restored() -> None:
    """E3: long after our last write, at once."""
    world, _ = running(2)
    world.advance(300)
    overwrite(world, phase=None, scheduled=None, running=None, conditions=None)
    before = writes(world)
    status = stored(world, 1)
    assert (status["phase"], status["running"]) == ("Running", 2)
    assert writes(world) == before + 1


def test_two_writers_make_no_war() -> None:
    """E3: a controller that answers each of our writes gets one write a minute."""
    world, _ = running(2)
    world.advance(300)
    before = writes(world)
    for _ in range(600):
        world.store_statuses()
        overwrite(world, phase="Pending")
        world.advance(1)
    assert 9 <= writes(world) - before <= 11


def test_fields_that_a_definition_lacks_cause_no_writes() -> None:
    """E3: the API server drops conditions that the definition of the PodGroup does not have."""
    world = World(node("a", 16))
    world.declare(pod_group("g", 2))
    pods = world.create(members("g", 2, pod_group=True, **JOB))
    world.settle()
    for pod in pods:
        world.update(world.pods[pod.uid], phase=Phase.RUNNING)
    for _ in range(3):
        world.advance(6)
        kept = {**world.status("g"), "conditions": None, "start": None}
        overwrite(world, **kept)
    before = writes(world)
    world.advance(300)
    assert before == writes(world) == 1


def test_what_others_add_is_left_alone() -> None:
    """E3: a condition of another type is no reason to write."""
    world, _ = running(2)
    conditions = world.status("g")["conditions"]
    theirs = {**conditions[0], "type": "Audited"}
    before = writes(world)
    overwrite(world, conditions=[*conditions, theirs])
    world.advance(120)
    assert writes(world) == before


def test_a_stop_right_after_the_end_of_a_gang_comes_to_an_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """E1, E8: a gang that may go on is looked at again later, for which a stop does not wait."""
    world, pods = running(2)
    end(world, pods)
    world.settle()
    looks = 0
    look = Reports._group

    def counted(self: Reports, *of_group: Any) -> Any:
        nonlocal looks
        looks += 1
        # Not an `Exception`, which would be the fault of the group.
        if looks > 10:
            raise KeyboardInterrupt("the reports come to no end")

        return look(self, *of_group)

    monkeypatch.setattr(Reports, "_group", counted)
    reports = world.state.take_reports(now_s=world.now_s, wall=WALL, everything=True)
    statuses = [each.status for each in reports if isinstance(each, SetPodGroupStatus)]
    assert [status["succeeded"] for status in statuses] == [2]
    assert looks == 1


# --- members that go ----------------------------------------------------------------------------


def test_a_finished_gang_stays_finished_when_its_pods_are_cleaned() -> None:
    """E8: with its counts, until pods of another start come; a restart changes nothing."""
    world, pods = running(2)
    end(world, pods)
    finished = stored(world, QUIET_S)
    world.delete(*[world.pods[pod.uid] for pod in pods])
    cleaned = stored(world)
    world.restart()
    again = stored(world, QUIET_S)
    for status in (finished, cleaned, again):
        counts = (status["scheduled"], status["succeeded"], status["running"])
        assert (status["phase"], counts) == ("Finished", (2, 2, 0))
        assert scheduled(status) == ("True", "Scheduled", "2 of 2 members have succeeded")
        assert status["occupiedBy"] == "ns/train"

    world.create(members("g", 1, first=2, pod_group=True, **JOB | {"controller_uid": "another"}))
    other = stored(world)
    assert (other["phase"], other["succeeded"], other["scheduled"]) == ("Pending", 0, 0)


def test_a_launcher_is_done_and_its_operator_removes_the_workers() -> None:
    """E8: nobody will replace them: no Warning, and a phase that is true."""
    world, (launcher, *workers) = running(4)
    end(world, [launcher])
    for worker in workers:
        world.update(world.pods[worker.uid], deleting=True)
        world.advance(2)
    for worker in workers:
        # A kubelet ends what is asked to go, with the exit code of SIGTERM, before it is gone.
        end(world, [worker], Phase.FAILED)
        world.delete(world.pods[worker.uid])
        world.advance(2)
    status = stored(world, QUIET_S)
    assert (status["phase"], status["failed"], status["succeeded"]) == ("Unknown", 0, 1)
    assert scheduled(status) == ("False", "MembersDeleted", "3 members were deleted; 1 succeeded")
    assert world.events("Degraded") == []


def test_a_launcher_whose_minimum_is_one_has_finished() -> None:
    """E8: the minimum says so."""
    world, (launcher, *workers) = running(4, minimum=1)
    end(world, [launcher])
    world.delete(*[world.pods[worker.uid] for worker in workers])
    assert stored(world, QUIET_S)["phase"] == "Finished"


def test_a_sibling_that_is_done_and_cleaned_is_told_as_such() -> None:
    """I4, E8: what its group waits for is no news about a gang that has ended."""
    world = World(node("a", 16))
    listed: dict[str, Any] = {"pod_group": True, "groups": ["ns/g", "ns/h"], **JOB}
    world.declare(pod_group("g", 2), pod_group("h", 2))
    done = world.create(members("g", 2, **listed))
    others = world.create(members("h", 2, **listed))
    world.settle()
    end(world, [*done, *others], Phase.RUNNING)
    world.advance(6)
    end(world, done)
    world.advance(QUIET_S)
    world.delete(*[world.pods[pod.uid] for pod in done], world.pods[others[0].uid])
    world.create(members("h", 1, first=2, gpus=16, **listed))
    status = stored(world)
    assert status["phase"] == "Finished"
    assert scheduled(status)[2] == "2 of 2 members have succeeded"


# --- native PodGroups ---------------------------------------------------------------------------


def native(minimum: int, version: str = "v1beta1") -> tuple[World, list[Pod]]:
    """Three members of a native PodGroup that run."""
    world = World(node("a", 16))
    world.declare(pod_group("g", minimum, api_group=keys.NATIVE, version=version))
    pods = world.create(builders.pod(f"g-{index}", native_group="g", **JOB) for index in range(3))
    world.advance(10)
    return world.store_statuses(), pods


def satisfied(world: World) -> tuple[str, str, str] | None:
    """Status, reason and message of the condition `PodGroupSatisfied`; None if it is absent."""
    conditions = world.status("g")["conditions"]
    found = [each for each in conditions if each["type"] == "PodGroupSatisfied"]
    return (found[0]["status"], found[0]["reason"], found[0]["message"]) if found else None


@pytest.mark.parametrize("version", ["v1alpha2", "v1beta1"])
def test_a_native_podgroup_says_whether_it_has_its_minimum(version: str) -> None:
    """E8: it is True once the minimum is bound, and False after a loss; a terminating member does
    not count.
    """
    world, pods = native(3, version)
    assert satisfied(world) == ("True", "MinCountSatisfied", "3 of 3 members scheduled")
    world.update(world.pods[pods[0].uid], deleting=True)
    world.advance(10)
    assert satisfied(world) == ("False", "BelowMinCount", "2 of 3 members scheduled")


def test_a_native_podgroup_is_not_satisfied_before_it_was() -> None:
    """E8: the condition is absent until the minimum was reached first, and without a minimum."""
    world, _ = native(4)
    assert satisfied(world) is None
    world, _ = native(0)
    assert satisfied(world) is None


def test_a_native_podgroup_says_which_room_at_home_it_waits_for() -> None:
    """E8, L6: in `PodGroupSatisfied` as in `Degraded`."""
    rack = "topology.kubernetes.io/rack"
    world = World(*(node(name, 1, labels={rack: "r"}) for name in ("a", "b")))
    stated = ((keys.TOPOLOGY[0], rack),)
    world.declare(pod_group("g", 2, api_group=keys.NATIVE, version="v1beta1", gang_metadata=stated))
    pods = world.create(builders.pod(f"g-{index}", native_group="g", **JOB) for index in range(2))
    world.advance(10)
    world.store_statuses()
    where = world.pods[pods[0].uid].node_name
    world.delete(world.pods[pods[0].uid])
    world.add_nodes(node(where, 1, labels={rack: "r"}, unschedulable=True), node("c", 1))
    world.create([builders.pod("g-2", native_group="g", **JOB)])
    world.advance(20)

    found = satisfied(world)
    assert found is not None
    assert found[:2] == ("False", "BelowMinCount")
    assert found[2].startswith("1 of 2 members scheduled; ns/g-2 waits for room in ")
    assert "0 of 2 nodes there are free" in found[2]


def test_counts_of_a_native_podgroup_cause_no_write() -> None:
    """E8: a member above the minimum that goes changes a number, which is not news in itself."""
    world, pods = native(2)
    before = writes(world)
    world.delete(world.pods[pods[0].uid])
    world.advance(60)
    assert writes(world) == before


def test_a_gang_whose_members_are_being_bound_is_not_degraded() -> None:
    """B5, E8: members that have left Permit are on their way."""
    world = World(node("a", 16))
    world.fate = lambda bind: "later" if bind.name != "g-0" else "bound"
    world.declare(pod_group("g", 2))
    world.create(members("g", 3, pod_group=True, **JOB))
    for _ in range(20):
        world.turn()
        world.answer()
        world.now_s += 0.2

    assert scheduled(world.status("g"))[:2] == ("False", "Binding")
    assert world.events("Degraded") == []


def test_a_member_that_failed_is_not_told_to_be_lost_as_well() -> None:
    """E8: the sentence counts each member once."""
    world, pods = running(4)
    end(world, pods[:1], Phase.FAILED)
    told = scheduled(stored(world))[2]
    assert told == "3 of 4 members are bound; 1 has failed and is not replaced yet"
    world.delete(world.pods[pods[1].uid])
    told = scheduled(stored(world))[2]
    assert told == "2 of 4 members are bound; 1 has failed; 1 member lost and not replaced yet"
