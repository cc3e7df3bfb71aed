"""Gangs of owners: who asks, how many start together, and what is reported (semantics O1 to O8)."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from gangsched.api import keys
from gangsched.api.owner_declarations import LATE_S
from gangsched.model.objects import Namespace, Phase, Pod
from gangsched.model.owners import (
    JobOwner,
    OwnerGangs,
    OwnerObject,
    PyTorchJobOwner,
    StatefulSetOwner,
)
from gangsched.model.protocol import Applied, Gone, Replaced, Unread
from gangsched.state.owner_gangs import JUDGED_AT_A_TIME, MOVED_AT_A_TIME
from gangsched.state.owner_trees import OWNER_WAIT_S
from gangsched.state.rule_set import Rules
from gangsched.turn import prepare
from tests.builders import members, node, pod
from tests.world import World

ASKS = ((keys.OWNER_GANG, keys.OWNER),)
GANG = "ns/Job.train"


def owned(
    name: str, owner: str = "train", *, kind: str = "Job", uid: str = "", **fields: Any
) -> Pod:
    """A pod of a controller that asks for the gang of its owner."""
    given: dict[str, Any] = {"gang_metadata": ASKS, **fields}
    return pod(
        name,
        owner=owner,
        controller_kind=kind,
        controller_uid=uid or f"{kind}-{owner}",
        **given,
    )


def job(minimum: int, name: str = "train", *, uid: str = "", **fields: Any) -> JobOwner:
    """A Job that has so many pods at a time."""
    return JobOwner(uid=uid or f"Job-{name}", namespace="ns", name=name, minimum=minimum, **fields)


def world_of(*owners: OwnerObject, gpus: int = 8, rules: Rules | None = None) -> World:
    """A world whose owners are read."""
    world = World(node("a", gpus), rules=rules)
    for kind in (JobOwner, StatefulSetOwner):
        world.say(Replaced(kind, tuple(owner for owner in owners if type(owner) is kind)))

    return world


def pods_of(number: int, first: int = 0, **fields: Any) -> list[Pod]:
    """Pods of the Job."""
    return [owned(f"train-{index}", **fields) for index in range(first, first + number)]


def test_the_pods_of_a_job_that_ask_start_together() -> None:
    """O1, O3: none starts before all that the Job makes exist and fit; the gang is named after
    kind and name.
    """
    world = world_of(job(3))
    first = world.create(pods_of(2))
    assert world.settle().told().bound() == {}
    reason, text = world.condition(first[0])
    assert reason == "WaitingForMembers"
    assert text.startswith(f"waiting for members of gang {GANG} (Job ns/train makes 3)")
    world.create(pods_of(1, 2))
    assert len(world.settle().bound()) == 3


def test_there_is_no_room_for_some_of_them() -> None:
    """O3: room for two starts none of three."""
    world = world_of(job(3), gpus=2)
    world.create(pods_of(3))
    assert world.settle().told().bound() == {}
    world.add_nodes(node("b", 1))
    assert len(world.settle().bound()) == 3


def test_pods_that_do_not_ask_are_plain() -> None:
    """O1: parallelism is no gang by itself."""
    world = world_of(job(3))
    world.create(owned("train-0", gang_metadata=()))
    assert set(world.settle().bound()) == {"train-0"}
    assert len(world.state.pod_gangs.owners) == 1  # the Job that was read


@pytest.mark.parametrize("at_first", [True, False])
def test_a_namespace_asks_for_all_of_its_pods(at_first: bool) -> None:
    """O1: the label of the namespace counts, whichever of both is seen first; `none` opts out."""
    world = world_of(job(3))
    label = Replaced(Namespace, (Namespace("ns", {keys.OWNER_GANG: keys.OWNER}),))
    if at_first:
        world.say(label)
    out = owned("alone", gang_metadata=((keys.OWNER_GANG, keys.NO_OWNER),))
    world.create(pods_of(2, gang_metadata=()), out)
    if not at_first:
        world.say(label)
    assert set(world.settle().bound()) == {"alone"}
    world.create(owned("train-2", gang_metadata=()))
    assert len(world.settle().bound()) == 4
    world.say(Applied(Namespace("ns", {})))
    world.create(owned("train-3", gang_metadata=()))
    assert len(world.settle().bound()) == 5
    assert world.state.registry.gangs.keys() == set()


def test_a_label_that_comes_later_moves_many_pods_in_parts() -> None:
    """O1: pods that wait become gangs when their namespace begins to ask, a bounded number a
    turn.
    """
    number = MOVED_AT_A_TIME + 10
    world = world_of(job(number), gpus=1)
    world.create(pods_of(number, gang_metadata=(), gpus=2))
    world.settle()
    world.say(Applied(Namespace("ns", {keys.OWNER_GANG: keys.OWNER})))
    world.advance(1)
    assert len(world.state.registry.gangs[GANG].members) == number


def test_the_setting_decides_for_pods_that_say_nothing() -> None:
    """O1: with `all` they are gangs, with `off` none are, which is reported on pods that ask."""
    everybody = world_of(job(3), rules=Rules(owner_gangs=OwnerGangs.ALL))
    everybody.create(owned("train-0", gang_metadata=()))
    assert everybody.settle().bound() == {}
    nobody = world_of(job(3), rules=Rules(owner_gangs=OwnerGangs.OFF))
    nobody.create(owned("train-0"))
    assert set(nobody.settle().bound()) == {"train-0"}
    ((_, _, text),) = nobody.events("InvalidGang")
    assert text.startswith(
        "gangsched.dev/gang of pod ns/train-0 has no effect while the setting owner_gangs is off"
    )


def test_a_mark_wins_over_the_owner() -> None:
    """O1: a pod that names a gang is in that gang."""
    world = world_of(job(3))
    marked = [
        msgspec.structs.replace(
            each,
            gang_metadata=tuple(sorted((*each.gang_metadata, *ASKS))),
            owner="train",
            controller_kind="Job",
            controller_uid="Job-train",
        )
        for each in members("own", 2)
    ]
    world.create(marked)
    assert len(world.settle().bound()) == 2
    assert GANG not in world.state.registry.gangs


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"owner": ""}, "a pod without a controller"),
        ({"owner": "d", "controller_kind": "DaemonSet", "controller_uid": "d"}, "a DaemonSet"),
        ({"owner": "n", "controller_kind": "Node", "mirror": True}, "a Node"),
    ],
)
def test_bare_pods_and_pods_of_their_nodes_are_never_gangs(
    fields: dict[str, Any], why: str
) -> None:
    """O1: their own Event reports it."""
    world = world_of()
    world.create(pod("p", gang_metadata=ASKS, **fields))
    assert set(world.settle().bound()) == {"p"}
    ((_, _, text),) = world.events("InvalidGang")
    assert f"has no effect on {why}" in text.replace("pods of ", "")


def test_a_value_that_is_none_is_reported() -> None:
    """E4, O1: the value is named, and the pod is plain."""
    world = world_of(job(3))
    world.create(owned("train-0", gang_metadata=((keys.OWNER_GANG, "ownr"),)))
    assert set(world.settle().bound()) == {"train-0"}
    ((_, _, text),) = world.events("InvalidGang")
    assert text.startswith('gangsched.dev/gang of pod ns/train-0 is neither "owner" nor "none"')


def test_an_owner_that_is_created_again_is_another_gang() -> None:
    """O2: pods of the new Job start as a whole, although pods of the old one still run."""
    world = world_of(job(2))
    old = world.create(pods_of(2))
    assert len(world.settle().bound()) == 2
    for each in old:
        world.update(each, deleting=True)
    world.say(Gone(JobOwner, "Job-train"), Applied(job(3, uid="again")))
    world.create(pods_of(2, 2, uid="again"))
    assert len(world.settle().bound()) == 2
    assert set(world.state.registry.gangs) == {GANG, f"{GANG}.again"}
    world.create(pods_of(1, 4, uid="again"))
    assert len(world.settle().bound()) == 5


def reversed_restart(world: World, *owners: OwnerObject) -> None:
    """The next process reads the pods in another order."""
    world.pods = dict(reversed(world.pods.items()))
    world.restart()
    for kind in (JobOwner, StatefulSetOwner):
        world.say(Replaced(kind, tuple(owner for owner in owners if type(owner) is kind)))


def uids_of(world: World, gang: str) -> set[str]:
    """The uids of the owners of a gang's pods."""
    record = world.state.registry.gangs[gang]
    return {member.pod.controller_uid for member in record.members.values()}


def test_another_process_tells_two_owners_of_one_name_apart() -> None:
    """O2: their ids may be the other one's there, and no pod of one is a member of the other: that
    which runs is whole, and that which waits starts whole.
    """
    again = job(3, uid="again")
    world = world_of(job(2), gpus=4)
    old = world.create(pods_of(2))
    assert len(world.settle().bound()) == 2
    world.say(Gone(JobOwner, "Job-train"), Applied(again))
    world.create(pods_of(3, 2, uid="again"))
    assert len(world.settle().bound()) == 2
    assert (uids_of(world, GANG), uids_of(world, f"{GANG}.again")) == ({"Job-train"}, {"again"})

    reversed_restart(world, again)
    assert len(world.settle().bound()) == 2
    assert (uids_of(world, GANG), uids_of(world, f"{GANG}.Job-trai")) == ({"again"}, {"Job-train"})
    assert world.state.registry.gangs[f"{GANG}.Job-trai"].started == 2

    # One of the old ones ends: the others do not wait for it, and the new ones lack one GPU less.
    world.delete(old[0])
    assert set(world.settle().bound()) == {"train-1", "train-2", "train-3", "train-4"}


def test_a_pod_of_an_owner_of_the_same_name_is_no_replacement() -> None:
    """O2, O4: in another process, too, an owner that has started lacks its own pod, and one that
    has not started does not start in its place.
    """
    first, again = job(2), job(2, uid="again")
    world = world_of(first, gpus=2)
    old = world.create(pods_of(2))
    assert len(world.settle().bound()) == 2
    world.say(Applied(again))
    world.create(pods_of(2, 2, uid="again"))
    world.settle()

    world.delete(old[0])
    reversed_restart(world, first, again)
    assert set(world.settle().bound()) == {"train-1"}
    assert uids_of(world, GANG) == {"again"}
    world.create(pods_of(1, 4))
    assert set(world.settle().bound()) == {"train-1", "train-4"}


def test_owners_of_two_kinds_whose_names_read_alike_are_two_gangs() -> None:
    """O2: a Job whose name begins as the API group of another kind of Jobs, in any order."""
    name = "batch.volcano.sh.train"
    mine = job(2, name)
    stated = (*ASKS, (keys.MIN[0], "2"))
    others = [
        owned(
            f"other-{index}",
            kind="Job.batch.volcano.sh",
            gang_metadata=tuple(sorted(stated)),
        )
        for index in range(2)
    ]
    world = world_of(mine, gpus=8)
    pods = [owned(f"{name}-{index}", name) for index in range(2)]
    world.create([others[0], pods[0]])
    assert world.settle().bound() == {}
    reversed_restart(world, mine)
    assert world.settle().bound() == {}
    world.create([others[1]])
    assert set(world.settle().bound()) == {"other-0", "other-1"}
    world.create([pods[1]])
    assert len(world.settle().bound()) == 4


def test_the_minimum_follows_the_owner() -> None:
    """O4, I5: a Job of 3 pods is edited to 5 and to 2."""
    world = world_of(job(3))
    world.create(pods_of(2))
    world.say(Applied(job(5)))
    assert world.settle().told().bound() == {}
    assert "makes 5" in world.condition(pod_named(world, "train-0"))[1]
    world.say(Applied(job(2)))
    assert len(world.settle().bound()) == 2


def pod_named(world: World, name: str) -> Pod:
    """The pod with this name."""
    return next(each for each in world.pods.values() if each.name == name)


@pytest.mark.parametrize("are_gone", [True, False])
def test_the_last_pods_of_a_job_start_alone(are_gone: bool) -> None:
    """O4: five completions at four a time run to the end, also when the first four pods are
    gone.
    """
    world = world_of(job(4))
    first = world.create(pods_of(4))
    assert len(world.settle().bound()) == 4
    for each in first:
        world.update(each, phase=Phase.SUCCEEDED)
        if are_gone:
            world.delete(each)
    world.settle()
    world.say(Applied(job(1, succeeded=4)))
    world.create(pods_of(1, 4))
    assert set(world.settle().bound()) == {"train-4"}


def test_a_restart_knows_the_rest_of_a_job() -> None:
    """O4: what succeeded before is known from the Job alone."""
    world = world_of(job(1, succeeded=3))
    world.create(pods_of(1, 3))
    world.restart()
    world.say(Replaced(JobOwner, (job(1, succeeded=3),)))
    assert set(world.settle().bound()) == {"train-3"}


def test_a_job_that_lost_a_pod_after_another_succeeded_is_below_its_minimum() -> None:
    """O4: members that have succeeded count once, in the minimum or beside it."""
    world = world_of(job(4))
    pods = world.create(pods_of(4))
    world.settle()
    world.update(pods[0], phase=Phase.SUCCEEDED)
    record = world.settle().state.registry.gangs[GANG]
    assert (record.started, record.least) == (4, 4)
    world.say(Applied(job(3, succeeded=1)))
    world.settle()
    assert (record.started, record.least) == (3, 3)
    world.delete(pods[1])
    world.settle()
    assert (record.started, record.least) == (2, 3)


def test_pods_wait_for_an_owner_that_is_not_known() -> None:
    """O8: for two seconds, then they start alone, and the owner is told."""
    world = world_of()
    world.create(pods_of(2))
    assert world.advance(OWNER_WAIT_S / 2).bound() == {}
    assert len(world.advance(OWNER_WAIT_S).bound()) == 2
    ((about, _, text),) = world.events("NotAGang")
    assert about == "Job ns/train"
    assert text.startswith("Job ns/train is not known, so its pods are not a gang")


def test_an_owner_that_comes_late_is_waited_for() -> None:
    """O8: the pods are a gang when it comes within two seconds."""
    world = world_of()
    world.create(pods_of(2))
    world.advance(OWNER_WAIT_S / 2)
    world.say(Applied(job(3)))
    assert world.advance(OWNER_WAIT_S * 2).bound() == {}
    world.create(pods_of(1, 2))
    assert len(world.settle().bound()) == 3


def test_pods_wait_while_owners_are_being_read() -> None:
    """O8: however long the first list takes, no part of a gang starts."""
    world = World(node("a", 8))
    world.create(pods_of(2))
    assert world.advance(60).bound() == {}
    assert world.condition(pod_named(world, "train-0")) == (
        "WaitingForMembers",
        "waiting for Job ns/train, which says how many pods start together",
    )
    world.say(Replaced(JobOwner, (job(2),)))
    assert len(world.settle().bound()) == 2


def test_without_the_right_pods_start_alone_and_the_owner_is_told_once() -> None:
    """O3, O7: the Event names the manifest."""
    world = World(node("a", 8))
    world.say(Unread(JobOwner, forbidden=True))
    world.create(pods_of(3))
    assert len(world.settle().bound()) == 3
    ((about, _, text),) = world.events("NotAGang")
    assert (about, "manifests/rbac-owners.yaml" in text) == ("Job ns/train", True)


def test_an_owner_is_told_each_reason_once() -> None:
    """O3: what has another reason now is told again, however often reasons take turns."""
    world = World(node("a", 8))
    for number in range(3):
        world.say(Unread(JobOwner, forbidden=True))
        world.create(pods_of(1, 2 * number))
        world.settle()
        world.say(Replaced(JobOwner, (job(3),)))
        world.create(pods_of(1, 2 * number + 1))
        world.settle()

    unread, begun = (text for _, _, text in world.events("NotAGang"))
    assert "manifests/rbac-owners.yaml" in unread
    assert "became known after its first pods had started one by one" in begun


def test_a_job_after_the_right_was_taken_away_is_told_so() -> None:
    """O7: it is not "not known", as one that was never read is not either."""
    world = world_of(job(3))
    world.create(pods_of(3))
    world.settle()
    world.say(Unread(JobOwner, forbidden=True))
    world.create(owned("late-0", "late"))
    assert "late-0" in world.settle().bound()
    ((about, _, text),) = world.events("NotAGang")
    assert (about, "manifests/rbac-owners.yaml" in text) == ("Job ns/late", True)


def test_a_stated_minimum_above_the_pods_is_told() -> None:
    """E4: with what is used instead."""
    owner = PyTorchJobOwner(
        uid="PyTorchJob-train",
        namespace="ns",
        name="train",
        minimum=2,
        out_of_reach=(5, 2),
    )
    world = World(node("a", 8))
    world.say(Replaced(PyTorchJobOwner, (owner,)))
    world.create(pods_of(2, kind="PyTorchJob"))
    assert len(world.settle().told().bound()) == 2
    ((_, _, text),) = world.events("InvalidGang")
    assert text == (
        "minAvailable 5 of PyTorchJob ns/train is above the 2 pods that it makes together."
        " Used instead: 2."
    )


def test_a_right_that_comes_later_makes_waiting_pods_a_gang() -> None:
    """O7: it is looked for again and again."""
    world = World(node("a", 1))
    world.say(Unread(JobOwner, forbidden=True))
    world.create(pods_of(2, gpus=2))
    world.settle()
    world.say(Replaced(JobOwner, (job(3),)))
    world.add_nodes(node("b", 8))
    assert world.advance(1).bound() == {}
    assert len(world.state.registry.gangs[GANG].members) == 2


def test_a_right_that_is_taken_away_leaves_the_last_minimum() -> None:
    """O7, O8: the gang waits for what it was told last, and its message says so."""
    world = world_of(job(3))
    world.create(pods_of(2))
    world.settle()
    world.say(Unread(JobOwner, forbidden=True))
    assert world.advance(60).bound() == {}
    text = world.condition(pod_named(world, "train-0"))[1]
    assert "makes 3 as last read, and gangsched may no longer read Jobs" in text
    world.create(pods_of(1, 2))
    assert len(world.settle().bound()) == 3


def test_an_owner_that_is_deleted_while_pods_live_keeps_its_minimum() -> None:
    """O8: until the last of its pods is gone."""
    world = world_of(job(3))
    pods = world.create(pods_of(2))
    world.say(Gone(JobOwner, "Job-train"))
    world.say(Replaced(JobOwner, ()))
    assert world.advance(60).bound() == {}
    world.delete(*pods)
    world.settle()
    assert len(world.state.pod_gangs.owners) == 0


def test_a_suspended_job_starts_nothing() -> None:
    """O3: its pods, if there are any, wait."""
    world = world_of(job(1, suspended=True))
    (first,) = world.create(pods_of(1))
    assert world.advance(2).bound() == {}
    assert world.condition(first) == ("WaitingForMembers", "waiting until Job ns/train is resumed")
    world.say(Applied(job(1)))
    assert len(world.settle().bound()) == 1


@pytest.mark.parametrize("kind", ["Job", "StatefulSet"])
def test_pods_that_are_known_before_the_size_of_their_owner_wait_for_it(kind: str) -> None:
    """O3: an owner that is scaled from nothing starts whole, whichever watch is first; a stated
    minimum counts nevertheless.
    """
    sizes: dict[str, Any] = {"Job": job, "StatefulSet": stateful_set}
    size = sizes[kind]
    name = "train" if kind == "Job" else "web"
    pods = [owned(f"{name}-{index}", name, kind=kind) for index in range(3)]
    world = world_of(size(0))
    first = world.create(pods[:2])
    assert world.advance(40).bound() == {}
    waits = f"waiting until {kind} ns/{name} makes pods: as last read, its size is 0"
    assert world.condition(first[0]) == ("WaitingForMembers", waits)

    world.say(Applied(size(3)))
    assert world.settle().bound() == {}
    world.create(pods[2:])
    assert len(world.settle().bound()) == 3

    stated = world_of(size(0))
    metadata = (*ASKS, (keys.MIN[0], "2"))
    stated.create([msgspec.structs.replace(pod, gang_metadata=metadata) for pod in pods[:2]])
    assert len(stated.settle().bound()) == 2


def stateful_set(replicas: int, *, one_by_one: bool = False) -> StatefulSetOwner:
    """A StatefulSet of the namespace."""
    return StatefulSetOwner(
        uid="StatefulSet-web",
        namespace="ns",
        name="web",
        minimum=replicas,
        one_by_one=one_by_one,
    )


def web(index: int, **fields: Any) -> Pod:
    """A pod of the StatefulSet."""
    return owned(f"web-{index}", "web", kind="StatefulSet", **fields)


def test_a_parallel_stateful_set_starts_whole_and_grows_plainly() -> None:
    """O3: replicas until it has started, then each pod by itself."""
    world = world_of(stateful_set(3))
    world.create(web(0), web(1))
    assert world.settle().bound() == {}
    world.create(web(2))
    assert len(world.settle().bound()) == 3
    world.say(Applied(stateful_set(5)))
    world.create(web(3))
    assert len(world.settle().bound()) == 4


def test_an_ordered_stateful_set_starts_one_by_one_and_is_told() -> None:
    """O3, O6: also where its pods state a minimum, which would never be reached."""
    world = world_of(stateful_set(3, one_by_one=True))
    stated = tuple(sorted((*ASKS, (keys.MIN[0], "3"))))
    world.create(web(0, gang_metadata=stated))
    assert len(world.settle().bound()) == 1
    world.create(web(1, gang_metadata=stated))
    assert len(world.settle().bound()) == 2
    ((about, _, text),) = world.events("NotAGang")
    assert about == "StatefulSet ns/web"
    assert text.startswith(
        "StatefulSet ns/web starts its pods one by one (OrderedReady), so they are not a gang"
    )


@pytest.mark.parametrize("kind", ["ReplicaSet", "SparkApplication"])
def test_other_owners_are_gangs_with_a_stated_minimum_only(kind: str) -> None:
    """O3: else they are told, on the owner if Events about its kind can be written."""
    world = world_of()
    world.create(owned("w-0", "w", kind=kind), owned("w-1", "w", kind=kind))
    assert len(world.settle().bound()) == 2
    ((about, _, text),) = world.events("NotAGang")
    assert about == ("ReplicaSet ns/w" if kind == "ReplicaSet" else "Pod ns/w-0")
    assert f"{kind} ns/w does not say how many of its pods start together" in text
    stated = tuple(sorted((*ASKS, (keys.MIN[0], "2"))))
    world.create(owned("v-0", "v", kind=kind, gang_metadata=stated))
    assert len(world.settle().bound()) == 2
    world.create(owned("v-1", "v", kind=kind, gang_metadata=stated))
    assert len(world.settle().bound()) == 4


def test_a_stated_minimum_overrides_that_of_the_owner() -> None:
    """O2: on the pods, else on the owner, also by KAI's key."""
    stated = tuple(sorted((*ASKS, (keys.MIN[0], "2"))))
    world = world_of(job(5))
    world.create(pods_of(2, gang_metadata=stated))
    assert len(world.settle().bound()) == 2
    kai = (("kai.scheduler/batch-min-member", "2"),)
    other = world_of(job(5, gang_metadata=kai))
    other.create(pods_of(1))
    assert other.settle().bound() == {}
    other.create(pods_of(1, 1))
    assert len(other.settle().bound()) == 2


def test_other_values_are_read_from_the_owner() -> None:
    """O2: an annotation of the Job is one of its gang."""
    world = world_of(job(2, gang_metadata=((keys.TOPOLOGY[0], "rack"),)))
    world.create(pods_of(2))
    assert world.settle().told().bound() == {}
    world.add_nodes(node("b", 8, labels={"rack": "r"}))
    assert set(world.settle().bound().values()) == {"b"}


def test_an_owner_that_does_not_make_all_of_its_pods_is_told() -> None:
    """O6: after half a minute the message names its Events."""
    world = world_of(job(4))
    (first, _) = world.create(pods_of(2))
    world.advance(LATE_S - 1)
    assert "ResourceQuota" not in world.condition(first)[1]
    world.advance(2)
    text = world.condition(first)[1]
    assert "Job ns/train makes 4, and has not made all of them for 30 s: see its Events" in text
    world.create(pods_of(2, 2))
    assert len(world.settle().bound()) == 4


def test_nothing_is_remembered_of_pods_that_are_gone() -> None:
    """O8: 200 Jobs come, and go."""
    world = world_of(gpus=200)
    for number in range(200):
        name = f"j{number}"
        world.say(Applied(job(1, name)))
        world.create(owned(f"{name}-0", name))
    world.settle()
    world.delete(*world.pods.values())
    for number in range(200):
        world.say(Gone(JobOwner, f"Job-j{number}"))
    world.settle()
    owners = world.state.pod_gangs.owners
    assert (len(owners), owners.next_deadline_s()) == (0, math.inf)


def test_an_owner_that_changes_its_size_each_second_delays_nobody() -> None:
    """O4: each change is one reading of its gang."""
    world = world_of(job(3), gpus=8)
    world.create(pods_of(2))
    for size in range(40):
        world.say(Applied(job(3 + size % 5)))
        world.advance(1)
    world.create(pod("other"))
    assert set(world.settle().bound()) == {"other"}


def test_the_uid_of_an_owner_of_another_namespace_gives_no_way_into_its_gang() -> None:
    """O2: owner references are written by users; such a pod has an unknown owner."""
    world = world_of(job(3))
    world.create(pods_of(2))
    foreign = owned("thief", namespace="other")
    world.create(foreign)
    assert world.settle().bound() == {}
    assert len(world.state.registry.gangs[GANG].members) == 2
    world.advance(OWNER_WAIT_S * 2)
    assert set(world.bound()) == {"thief"}


def test_an_owner_of_another_namespace_is_not_taken_by_its_name() -> None:
    """O2: the uid decides, not the name."""
    elsewhere = JobOwner(uid="x", namespace="other", name="train", minimum=1)
    world = world_of(elsewhere, job(3))
    world.create(pods_of(1))
    assert world.settle().bound() == {}


def exclusive(index: int, **fields: Any) -> Pod:
    """A pod of a Job of a JobSet that has a rack of its own."""
    stated = tuple(sorted((*ASKS, (keys.JOBSET_EXCLUSIVE, "rack"))))
    return owned(f"train-{index}", gang_metadata=stated, index=index, **fields)


def test_the_first_pod_of_an_exclusive_job_starts_where_all_have_room() -> None:
    """O5: JobSet creates the others once it has a node; their room is kept from others."""
    world = world_of(job(3), gpus=0)
    world.add_nodes(node("small", 2, labels={"rack": "a"}))
    world.create(exclusive(0))
    assert world.settle().told().bound() == {}
    world.add_nodes(
        node("b1", 2, labels={"rack": "b"}),
        node("b2", 1, labels={"rack": "b"}),
    )
    started = world.settle().bound()
    assert set(started) == {"train-0"}
    assert started["train-0"] in {"b1", "b2"}
    world.create(pod(f"filler-{number}") for number in range(5))
    found = world.settle().bound()
    fillers = [where for name, where in found.items() if name.startswith("filler")]
    assert set(fillers) == {"small"}
    world.create(exclusive(1), exclusive(2))
    found = world.settle().bound()
    assert {found[f"train-{index}"] for index in range(3)} == {"b1", "b2"}


def test_an_exclusive_topology_that_is_no_label_is_refused() -> None:
    """A5, O5: a typing error starts nothing, and is named."""
    world = world_of(job(3))
    stated = tuple(sorted((*ASKS, (keys.JOBSET_EXCLUSIVE, "no label"))))
    (first,) = world.create(owned("train-0", gang_metadata=stated))
    world.settle().advance(2).told()
    reason, text = world.condition(first)
    assert (reason, world.bound()) == ("InvalidGang", {})
    assert text.startswith(f"{keys.JOBSET_EXCLUSIVE} of pod ns/train-0 is not a label key.")


def test_an_owner_that_comes_after_its_pods_have_started_makes_no_gang_of_them() -> None:
    """O8: two pods started alone, as the Job was unknown; the others do not wait for a whole."""
    world = world_of()
    world.create(pods_of(2))
    assert len(world.advance(OWNER_WAIT_S + 1).bound()) == 2
    world.say(Applied(job(4)))
    world.settle()
    world.create(pods_of(1, 2))
    assert len(world.settle().bound()) == 3


@pytest.mark.parametrize("is_first", [True, False])
def test_a_pod_that_names_the_gang_of_an_owner_is_no_member_of_it(is_first: bool) -> None:
    """O2: whichever comes first; the pods of the Job still need all of them."""
    world = world_of(job(3))
    stated = (("gang.scheduling.koordinator.sh/min-available", "1"), (keys.NAME, "Job.train"))
    stranger = pod("stranger", gang_metadata=stated)
    if is_first:
        world.create(stranger)
        world.settle()

    world.create(pods_of(2))
    if not is_first:
        world.settle()
        world.create(stranger)

    assert set(world.settle().bound()) == {"stranger"}
    world.create(pods_of(1, 2))
    assert len(world.settle().bound()) == 4


def test_pods_that_have_failed_do_not_hide_that_others_are_missing() -> None:
    """O6: a Job keeps its failed pods, beside which it could not create another one."""
    world = world_of(job(3))
    created = world.create(pods_of(3, gpus=4))
    world.settle()
    world.update(created[0], phase=Phase.FAILED)
    world.advance(LATE_S + 1)
    text = world.condition(pod_named(world, "train-1"))[1]
    assert "has not made all of them for 30 s" in text


def test_owners_whose_uids_begin_alike_are_two_gangs() -> None:
    """O2: pods name any uid, so owners of one name and such uids are no gang together."""
    world = world_of(job(1))
    uids = ("12345678-a", "12345678-b", "12345678-c")
    for uid in uids:
        world.create(pods_of(2, uid=uid, gang_metadata=(*ASKS, (keys.MIN[0], "3"))))

    assert world.settle().bound() == {}
    assert len({member.gang for member in world.state.members.all()}) == len(uids)


def test_pods_of_an_owner_that_came_late_do_not_wait_for_those_of_another_namespace() -> None:
    """O8: those of 1,000 owners that turn out to start one by one are assigned in parts, and one of
    another namespace among the first of them.
    """
    world = World(node("a", 8))
    world.say(Replaced(StatefulSetOwner, ()))
    crowd = [f"s{number}" for number in range(1_000)]
    for name in crowd:
        world.create(owned(f"{name}-0", name, kind="StatefulSet", gpus=9))
    world.create(owned("quiet-0", "quiet", kind="StatefulSet", namespace="other"))

    for name in (*crowd, "quiet"):
        owner = StatefulSetOwner(
            uid=f"StatefulSet-{name}",
            namespace="other" if name == "quiet" else "ns",
            name=name,
            minimum=1,
            one_by_one=True,
        )
        world.say(Applied(owner))

    for _ in range(2):
        world.turn()
        world.answer()

    assert set(world.bound()) == {"quiet-0"}


def test_a_later_list_of_owners_is_judged_in_parts() -> None:
    """O8: a list of 1,000 Jobs that all have changed, of which one turn reads some."""
    names = [f"j{number}" for number in range(1_000)]
    world = world_of(*(job(2, name) for name in names))
    world.create(owned(f"{name}-0", name) for name in names)
    world.settle()

    world.say(Replaced(JobOwner, tuple(job(1, name) for name in names)))
    prepare(world.state, world.now_s, world.wall_s())
    changed = [
        name for name in names if world.state.registry.view(f"ns/Job.{name}").min_member == 1
    ]
    assert len(changed) == JUDGED_AT_A_TIME

    world.settle()
    assert len(world.bound()) == 8
