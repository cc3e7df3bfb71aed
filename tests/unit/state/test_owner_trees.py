"""Jobs of one owner: those of a JobSet start together (semantics O3, I9), and the launcher of an
MPIJob is a member of its gang.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from gangsched.api import keys
from gangsched.api.owner_declarations import LATE_S
from gangsched.model.objects import Phase, Pod
from gangsched.model.owners import (
    ControllerRef,
    JobOwner,
    JobSetOwner,
    MPIJobOwner,
    OwnerObject,
    OwnerPart,
)
from gangsched.model.protocol import Applied, Gone, Replaced, Unread
from gangsched.state.owner_gangs import JUDGED_AT_A_TIME
from gangsched.state.owner_trees import OWNER_WAIT_S, OwnerTrees
from gangsched.state.parents import MOST_GANGS
from gangsched.turn import prepare
from tests.builders import node, pod
from tests.world import World

ASKS = ((keys.OWNER_GANG, keys.OWNER),)
PARENT = "ns/JobSet.train"
SET = ControllerRef("JobSet", "train", "set")


def job(
    name: str, minimum: int, part: str = "worker", *, owner: ControllerRef = SET, **fields: Any
) -> JobOwner:
    """A Job of an owner."""
    return JobOwner(
        uid=name,
        namespace="ns",
        name=name,
        minimum=minimum,
        controller=owner,
        part=part,
        **fields,
    )


def job_set(
    *parts: OwnerPart, in_stages: bool = False, uid: str = "set", **fields: Any
) -> JobSetOwner:
    """The JobSet."""
    number = sum(part.jobs for part in parts)
    return JobSetOwner(
        uid=uid,
        namespace="ns",
        name="train",
        minimum=number,
        parts=parts,
        in_stages=in_stages,
        **fields,
    )


def pods(job_name: str, number: int, first: int = 0, **fields: Any) -> list[Pod]:
    """Pods of a Job that ask."""
    given: dict[str, Any] = {"gang_metadata": ASKS, **fields}
    return [
        pod(
            f"{job_name}-{index}",
            owner=job_name,
            controller_kind="Job",
            controller_uid=job_name,
            **given,
        )
        for index in range(first, first + number)
    ]


def world_of(*owners: OwnerObject, gpus: int = 8) -> World:
    """A world whose owners are read."""
    world = World(node("a", gpus))
    for kind in (JobOwner, JobSetOwner, MPIJobOwner):
        world.say(Replaced(kind, tuple(owner for owner in owners if type(owner) is kind)))

    return world


TWO = (OwnerPart("driver", 1), OwnerPart("worker", 2))
JOBS = (job("driver", 1, "driver"), job("w0", 2), job("w1", 2))


def named(world: World, name: str) -> Pod:
    """The pod of this name."""
    return next(each for each in world.pods.values() if each.name == name)


def test_all_jobs_of_a_job_set_start_together() -> None:
    """O3: none of three Jobs starts before all of them exist and fit."""
    world = world_of(job_set(*TWO), *JOBS, gpus=4)
    world.create(pods("driver", 1), pods("w0", 2))
    assert world.settle().told().bound() == {}
    reason, text = world.condition(named(world, "driver-0"))
    assert reason == "WaitingForGang"
    assert "2 of 3" in text

    world.create(pods("w1", 2))
    assert world.settle().told().bound() == {}
    world.add_nodes(node("b", 1))
    assert len(world.settle().bound()) == 5


def test_the_jobs_of_a_stage_start_together() -> None:
    """O3: a JobSet that starts its Jobs in order starts stage by stage."""
    world = world_of(job_set(*TWO, in_stages=True), *JOBS)
    world.create(pods("driver", 1))
    assert set(world.settle().bound()) == {"driver-0"}
    world.create(pods("w0", 2))
    assert len(world.settle().bound()) == 1
    world.create(pods("w1", 2))
    assert len(world.settle().bound()) == 5


@pytest.mark.parametrize("is_first", [True, False])
def test_jobs_that_are_known_before_their_set_wait_for_it(is_first: bool) -> None:
    """O8: by whatever watch comes first; for two seconds, then each Job starts by itself."""
    world = world_of(*JOBS)
    world.create(pods("w0", 2))
    assert world.advance(OWNER_WAIT_S / 2).bound() == {}
    if is_first:
        world.say(Applied(job_set(*TWO)))

    world.advance(OWNER_WAIT_S + 1)
    assert len(world.bound()) == (0 if is_first else 2)
    events = world.events("NotAGang")
    assert len(events) == (0 if is_first else 1)
    if not is_first:
        assert events[0][0] == "JobSet ns/train"
        assert "is not known, so each of its Jobs starts by itself" in events[0][2]


def test_jobs_wait_while_sets_are_being_read() -> None:
    """O8: however long the first list takes."""
    world = World(node("a", 8))
    world.say(Replaced(JobOwner, JOBS))
    world.create(pods("w0", 2))
    assert world.advance(60).bound() == {}
    text = world.condition(named(world, "w0-0"))[1]
    assert text == "waiting for JobSet ns/train, which says how many Jobs start together"
    world.say(Replaced(JobSetOwner, (job_set(OwnerPart("worker", 1)),)))
    assert len(world.settle().bound()) == 2


def test_without_the_right_each_job_is_a_gang_and_the_set_is_told_once() -> None:
    """O3, O7: the Event names the manifest."""
    world = world_of(*JOBS)
    world.say(Unread(JobSetOwner, forbidden=True))
    world.create(pods("w0", 2), pods("w1", 1))
    assert set(world.settle().bound()) == {"w0-0", "w0-1"}
    ((about, _, text),) = world.events("NotAGang")
    assert about == "JobSet ns/train"
    assert text == (
        "gangsched cannot read JobSets, so each Job of JobSet ns/train starts by itself: apply"
        " manifests/rbac-owners-jobset.yaml"
    )


def test_a_right_that_is_taken_away_leaves_the_tree() -> None:
    """O7: the Jobs still start together."""
    world = world_of(job_set(*TWO), *JOBS)
    world.create(pods("w0", 2))
    world.settle()
    world.say(Unread(JobSetOwner, forbidden=True))
    world.create(pods("w1", 2))
    assert world.advance(10).bound() == {}
    world.create(pods("driver", 1))
    assert len(world.settle().bound()) == 5


def test_a_set_that_is_created_again_is_another_tree() -> None:
    """O2: Jobs of the new one start together, although pods of the old one still run."""
    world = world_of(job_set(*TWO), *JOBS)
    world.create(pods("driver", 1), pods("w0", 2), pods("w1", 2))
    assert len(world.settle().bound()) == 5
    again = ControllerRef("JobSet", "train", "again")
    world.say(Gone(JobSetOwner, "set"), Applied(job_set(OwnerPart("worker", 2), uid="again")))
    world.say(Applied(job("n0", 1, owner=again)), Applied(job("n1", 1, owner=again)))
    world.create(pods("n0", 1))
    assert len(world.settle().bound()) == 5
    world.create(pods("n1", 1))
    assert len(world.settle().bound()) == 7
    world.delete(*world.pods.values())
    world.settle()
    assert world.state.registry.gangs == {}


@pytest.mark.parametrize("is_first", [True, False])
def test_a_set_named_as_a_stage_of_another_one_is_another_tree(is_first: bool) -> None:
    """O2: whichever is known first, its Jobs are no children of the stage."""
    stage = job_set(OwnerPart("worker", 2), in_stages=True)
    other = msgspec.structs.replace(
        job_set(OwnerPart("worker", 2), uid="other"),
        name="train.worker",
    )
    ref = ControllerRef("JobSet", "train.worker", "other")
    jobs = (job("w0", 1), job("w1", 1), job("n0", 1, owner=ref), job("n1", 1, owner=ref))
    world = world_of(stage, other, *jobs)
    world.create(pods("w0" if is_first else "n0", 1))
    world.settle()
    world.create(pods("n0" if is_first else "w0", 1))
    assert world.settle().bound() == {}

    world.say(Applied(stage), Applied(other))
    world.create(pods("n1", 1))
    assert set(world.settle().bound()) == {"n0-0", "n1-0"}
    world.create(pods("w1", 1))
    assert len(world.settle().bound()) == 4
    world.delete(*world.pods.values())
    world.settle()
    assert world.state.registry.gangs == {}
    assert len(world.state.pod_gangs.owners) == 4 + 2


OF_A_SET = {"owner": "train", "controller_kind": "JobSet", "controller_uid": "set"}


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize(
    ("controller", "key", "value"),
    [
        (OF_A_SET, *ASKS[0]),
        ({}, keys.NAME, "JobSet.train"),
    ],
)
def test_pods_that_name_a_set_are_not_its_tree(
    controller: dict[str, Any], key: str, value: str, is_first: bool
) -> None:
    """O2: as their controller, or its tree as their gang: they have a gang of their own, and the
    Jobs start together.
    """
    metadata = tuple(sorted(((key, value), (keys.MIN[0], "1"))))
    stray = pod("stray", gang_metadata=metadata, **controller)
    world = world_of(job_set(OwnerPart("worker", 2)), *JOBS[1:])
    if is_first:
        world.create(stray)
        world.settle()
    world.create(pods("w0", 2))
    world.settle()
    if not is_first:
        world.create(stray)
    assert set(world.settle().bound()) == {"stray"}
    world.create(pods("w1", 2))
    assert len(world.settle().bound()) == 5


def test_what_a_set_says_of_its_tree_counts() -> None:
    """O2: its annotations are those of the parent, such as how many Jobs start together."""
    any_job = ((keys.MIN_CHILDREN[0], "1"),)
    world = world_of(job_set(*TWO, gang_metadata=any_job), *JOBS)
    world.create(pods("w0", 2))
    assert len(world.settle().bound()) == 2


def test_a_bad_value_of_a_set_refuses_its_jobs() -> None:
    """E4: a typo must not start them in two racks."""
    typo = ((keys.MIN_CHILDREN[0], "two"),)
    world = world_of(job_set(*TWO, gang_metadata=typo), *JOBS)
    world.create(pods("driver", 1), pods("w0", 2), pods("w1", 2))
    assert world.settle().told().bound() == {}
    reason, text = world.condition(named(world, "driver-0"))
    assert reason == "InvalidGang"
    assert "JobSet ns/train" in text
    assert '"two"' in text


def test_jobs_that_are_done_are_not_waited_for() -> None:
    """O4: neither while their pods exist, nor when these are gone."""
    world = world_of(job_set(*TWO), *JOBS)
    driver = world.create(pods("driver", 1))
    world.create(pods("w0", 2), pods("w1", 2))
    assert len(world.settle().bound()) == 5
    for each in driver:
        world.update(each, phase=Phase.SUCCEEDED)

    world.say(Applied(job("driver", 0, "driver", succeeded=1)))
    world.settle()
    assert world.events("Degraded") == []
    done = (OwnerPart("driver", 1, 1), TWO[1])
    world.say(Applied(job_set(*done)))
    world.settle()
    assert world.state.registry.gangs[PARENT].spec.min_children == 3  # type: ignore[union-attr]
    world.delete(*driver)
    world.settle()
    assert world.state.registry.gangs[PARENT].spec.min_children == 2  # type: ignore[union-attr]
    assert world.events("Degraded") == []


def test_more_jobs_than_a_tree_has_start_by_themselves() -> None:
    """I9: which the JobSet is told."""
    number = MOST_GANGS + 1
    world = world_of(job_set(OwnerPart("worker", number)), *JOBS)
    world.create(pods("w0", 2))
    assert len(world.settle().bound()) == 2
    ((_, _, text),) = world.events("NotAGang")
    assert text.startswith(f"JobSet ns/train has {number} Jobs, and at most {MOST_GANGS} start")


def test_jobs_with_a_domain_each_start_by_themselves() -> None:
    """O5: their pods come one after the other, which no tree could wait for."""
    world = world_of(job_set(TWO[0]), *JOBS)
    world.create(pods("w0", 2))
    assert len(world.settle().bound()) == 2


def test_jobs_with_a_domain_each_are_no_children_of_the_others() -> None:
    """O5: the others start together, and not some of them with a first pod of such a Job."""
    drivers = OwnerPart("driver", 2)
    others = (job("d0", 1, "driver"), job("d1", 1, "driver"))
    world = world_of(job_set(drivers), *JOBS[1:], *others)
    world.create(pods("w0", 2), pods("d0", 1))
    assert set(world.settle().bound()) == {"w0-0", "w0-1"}
    world.create(pods("d1", 1))
    assert len(world.settle().bound()) == 4


def test_what_a_set_says_counts_for_jobs_that_start_by_themselves() -> None:
    """O2, O5: such as their minimum; what the Job says itself comes first."""
    stated = ((keys.MIN[0], "1"), (keys.MIN_CHILDREN[0], "2"))
    own = job("w1", 2, gang_metadata=((keys.MIN[0], "2"),))
    world = world_of(job_set(TWO[0], gang_metadata=stated), JOBS[1], own)
    world.create(pods("w0", 1), pods("w1", 1))
    assert set(world.settle().bound()) == {"w0-0"}
    world.say(Applied(job_set(TWO[0], gang_metadata=((keys.MIN[0], "2"),))))
    world.create(pods("w1", 1, 1))
    assert len(world.settle().bound()) == 3
    assert world.state.registry.gangs["ns/Job.w0"].spec.min_member == 2  # type: ignore[union-attr]


def test_a_tree_says_what_its_set_makes_and_what_is_late() -> None:
    """O6: after half a minute that some Jobs have no pods, until they do."""
    world = world_of(job_set(*TWO), *JOBS)
    world.create(pods("w0", 2))
    told = "waiting for children of ns/JobSet.train (JobSet ns/train makes 3 Jobs)"
    assert world.settle().told().bound() == {}
    assert world.condition(named(world, "w0-0"))[1].startswith(f"{told}: 1 of 3")
    world.advance(LATE_S + 1)
    text = world.settle().told().condition(named(world, "w0-0"))[1]
    assert "makes 3 Jobs, some of which have had no pods for 30 s: see its Events" in text
    world.create(pods("driver", 1), pods("w1", 1))
    world.settle().told()
    text = world.condition(named(world, "w0-0"))[1]
    assert text.startswith("waiting for children of ns/JobSet.train: 2 of 3 needed children")
    world.create(pods("w1", 1, 1))
    assert len(world.settle().bound()) == 5


def test_a_stage_that_is_complete_is_not_late() -> None:
    """O6: Jobs of later stages are not created yet."""
    world = world_of(job_set(*TWO, in_stages=True), *JOBS, gpus=2)
    world.create(pods("driver", 1))
    world.create(pods("w0", 2), pods("w1", 2))
    world.advance(LATE_S + 1)
    text = world.condition(named(world, "w0-0"))[1]
    assert "have had no pods" not in text
    assert "makes" not in text


MPI = ControllerRef("MPIJob", "train", "mpi")


def workers(number: int, first: int = 0) -> list[Pod]:
    """Workers of the MPIJob."""
    return [
        pod(
            f"train-worker-{index}",
            owner="train",
            controller_kind="MPIJob",
            controller_uid="mpi",
            gang_metadata=ASKS,
        )
        for index in range(first, first + number)
    ]


def mpi(minimum: int) -> MPIJobOwner:
    """The MPIJob."""
    return MPIJobOwner(uid="mpi", namespace="ns", name="train", minimum=minimum)


@pytest.mark.parametrize("is_first", [True, False])
def test_the_launcher_of_an_mpi_job_is_a_member_of_its_gang(is_first: bool) -> None:
    """O3: although it is the pod of a Job of its own, whichever of both is known first."""
    launcher = job("launcher", 1, "", owner=MPI)
    world = world_of(mpi(3), *((launcher,) if is_first else ()))
    world.create(pods("launcher", 1))
    if not is_first:
        world.settle()
        world.say(Applied(launcher))

    world.create(workers(1))
    assert world.settle().told().bound() == {}
    reason, text = world.condition(named(world, "launcher-0"))
    assert reason == "WaitingForMembers"
    assert text.startswith("waiting for members of gang ns/MPIJob.train (MPIJob ns/train makes 3)")
    world.create(workers(1, 1))
    assert len(world.settle().bound()) == 3
    assert set(world.state.registry.gangs) == {"ns/MPIJob.train"}


def test_a_launcher_that_comes_last_starts_after_the_workers() -> None:
    """O3: a launcher that waits for running workers is not counted."""
    world = world_of(mpi(2), job("launcher", 1, "", owner=MPI))
    world.create(workers(2))
    assert len(world.settle().bound()) == 2
    world.create(pods("launcher", 1))
    assert len(world.settle().bound()) == 3


def test_a_launcher_whose_job_is_deleted_stays_in_its_gang() -> None:
    """O8: as any pod of an owner that is gone."""
    world = world_of(mpi(3), job("launcher", 1, "", owner=MPI))
    (launcher,) = world.create(pods("launcher", 1))
    world.settle()
    world.say(Gone(JobOwner, "launcher"))
    world.update(launcher, priority=5)
    assert world.settle().bound() == {}
    assert set(world.state.registry.gangs) == {"ns/MPIJob.train"}


def test_a_job_that_loses_its_owner_leaves_the_tree() -> None:
    """O3: a JobSet is deleted without its Jobs; nothing of the tree is kept."""
    world = world_of(job_set(OwnerPart("worker", 2)), *JOBS[1:])
    created = world.create(pods("w0", 2))
    assert world.settle().bound() == {}
    orphan = JobOwner(uid="w0", namespace="ns", name="w0", minimum=2, part="worker")
    world.say(Gone(JobSetOwner, "set"), Applied(orphan))
    assert len(world.settle().bound()) == 2
    world.say(Gone(JobOwner, "w0"), Gone(JobOwner, "w1"))
    world.delete(*created)
    world.settle()
    assert world.state.registry.gangs == {}
    assert len(world.state.pod_gangs.owners) == 0


def test_a_set_that_changes_judges_its_jobs_in_parts() -> None:
    """O3: any number of Jobs may name one JobSet, whose annotations each of them has; a turn judges
    some of them again, and a JobSet of another namespace is among these.
    """
    names = [f"j{number}" for number in range(1_000)]
    crowd = job_set(OwnerPart("worker", 1_000))
    world = world_of(crowd, *(job(name, 1) for name in names))
    for name in names:
        world.create(pods(name, 1, gpus=9))
    world.settle()

    world.say(Applied(msgspec.structs.replace(crowd, gang_metadata=((keys.MIN[0], "2"),))))
    other = ControllerRef("JobSet", "train", "other")
    world.say(Applied(msgspec.structs.replace(job("w", 1, owner=other), namespace="other")))
    world.create(msgspec.structs.replace(each, namespace="other") for each in pods("w", 1))
    small = job_set(OwnerPart("worker", 1), uid="other")
    world.say(Applied(msgspec.structs.replace(small, namespace="other")))

    prepare(world.state, world.now_s, world.wall_s())
    changed = [
        name for name in names if world.state.registry.view(f"ns/Job.{name}").min_member == 2
    ]
    assert 0 < len(changed) <= JUDGED_AT_A_TIME
    world.turn()
    world.answer()
    assert set(world.bound()) == {"w-0"}

    world.settle()
    changed = [
        name for name in names if world.state.registry.view(f"ns/Job.{name}").min_member == 2
    ]
    assert len(changed) == len(names)


def test_jobs_that_end_judge_no_others() -> None:
    """O4: 100 Jobs of a JobSet that end at once change what the JobSet declares, once."""
    names = [f"j{number}" for number in range(100)]
    world = world_of(job_set(OwnerPart("worker", 100)), *(job(name, 1) for name in names))
    for name in names:
        world.create(pods(name, 1, gpus=9))
    world.settle()

    with patch.object(OwnerTrees, "place", autospec=True, side_effect=OwnerTrees.place) as judged:
        for name in names:
            world.say(Applied(job(name, 0, succeeded=1)))
        world.turn()

    assert judged.call_count <= 2 * len(names)
    declared = world.state.registry.gangs[PARENT].owner
    assert declared is not None
    assert declared.min_children == 100
