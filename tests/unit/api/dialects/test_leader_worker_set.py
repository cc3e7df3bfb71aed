"""Groups of LeaderWorkerSets: by the object of their gang provider, or by labels with opt-in."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gangsched.api import keys
from gangsched.api.pod_metadata import pod_gang_metadata
from gangsched.model.objects import Pod
from gangsched.model.owners import OwnerGangs
from gangsched.state.groups import POD_GROUP_WAIT_S
from tests.builders import amounts, node, pod, pod_group
from tests.world import World

LABELS = dict(zip(keys.LWS_GROUP, ("serve", "0", "abc"), strict=True))
GROUP = "serve-0-abc"
MARK = "scheduling.k8s.io/group-name"
OWNER = {keys.OWNER_GANG: keys.OWNER}
SIZE = {keys.LWS_SIZE: "3"}


def lws_pod(name: str, annotations: Mapping[str, str], labels: Mapping[str, str] = LABELS) -> Pod:
    """A pod as the LeaderWorkerSet's controller makes it."""
    return pod(name, gang_metadata=pod_gang_metadata(labels, annotations))


def lws_pods(number: int, annotations: Mapping[str, str]) -> list[Pod]:
    """The first pods of one group."""
    return [
        lws_pod(f"serve-0-{index}" if index else "serve-0", annotations) for index in range(number)
    ]


@pytest.mark.parametrize("opt_in", ["label", "annotation"])
def test_a_group_that_opts_in_is_a_gang_of_its_size(opt_in: str) -> None:
    """A3, A4: its name is that of LeaderWorkerSet, its index and its revision; it starts with all
    members, or not.
    """
    labels, annotations = (LABELS | OWNER, SIZE) if opt_in == "label" else (LABELS, SIZE | OWNER)
    world = World(node("a", 8))
    pods = [lws_pod(f"p-{index}", annotations, labels) for index in range(3)]
    world.create(pods[:2])
    assert world.settle().told().bound() == {}
    assert world.condition(pods[0])[1].startswith(f"waiting for members of gang ns/{GROUP}")
    world.create(pods[2])
    assert set(world.settle().bound()) == {"p-0", "p-1", "p-2"}


def test_without_opt_in_or_object_the_pods_are_plain() -> None:
    """As before: LeaderReady could not start otherwise, and pods do not show it."""
    assert pod_gang_metadata(LABELS, SIZE | {keys.LWS_EXCLUSIVE[0]: "rack"}) == ()


def test_a_namespace_asks_for_the_groups_of_its_sets() -> None:
    """O1: as if each pod asked, but for those that opt out."""
    asked = dict(pod_gang_metadata(LABELS, SIZE, owner_gangs=OwnerGangs.ALL))
    assert asked == {keys.LWS_NAME: GROUP, **SIZE}
    out = {keys.OWNER_GANG: keys.NO_OWNER}
    assert dict(pod_gang_metadata(LABELS, SIZE | out, owner_gangs=OwnerGangs.ALL)) == out
    asks = SIZE | OWNER
    assert dict(pod_gang_metadata(LABELS, asks, owner_gangs=OwnerGangs.OFF)) == OWNER


@pytest.mark.parametrize("missing", keys.LWS_GROUP)
def test_an_opt_in_that_names_no_gang_is_told(missing: str) -> None:
    """A2: without one of the labels, and with another value, the pod is a plain one, and an Event
    says so.
    """
    labels = {key: value for key, value in LABELS.items() if key != missing}
    world = World(node("a", 8))
    world.create(lws_pod("p", SIZE | OWNER, labels))
    assert set(world.settle().bound()) == {"p"}
    ((_, _, text),) = world.events("InvalidGang")
    assert text.startswith(
        "gangsched.dev/gang of pod ns/p has no effect on a pod without a controller"
    )


def test_an_opt_in_that_is_misspelt_is_told() -> None:
    """E4: the value is named."""
    world = World(node("a", 8))
    world.create(lws_pod("p", SIZE | {keys.OWNER_GANG: "ownr"}))
    assert set(world.settle().bound()) == {"p"}
    ((_, _, text),) = world.events("InvalidGang")
    assert text.startswith('gangsched.dev/gang of pod ns/p is neither "owner" nor "none": "ownr"')


@pytest.mark.parametrize("size", ["three", "-1", ""])
def test_a_size_that_is_none_is_no_minimum(size: str) -> None:
    """A5: the gang is uninitialised."""
    world = World(node("a", 8))
    (first,) = world.create(lws_pod("p", OWNER | {keys.LWS_SIZE: size}))
    world.advance(POD_GROUP_WAIT_S).told()
    assert world.bound() == {}
    assert world.condition(first)[0] == "InvalidGang"


def test_the_object_of_its_gang_provider_starts_whole() -> None:
    """The annotation is Volcano's oldest; minMember is the size."""
    world = World(node("a", 8))
    world.declare(pod_group(GROUP, 3, api_group=keys.VOLCANO, version="v1beta1"))
    pods = lws_pods(3, SIZE | {MARK: GROUP})
    world.create(pods[:2])
    assert world.settle().bound() == {}
    world.create(pods[2])
    assert len(world.settle().bound()) == 3


@pytest.mark.parametrize(
    ("annotations", "min_member"),
    [
        ({}, 1),
        ({keys.LWS_EXCLUSIVE[0]: "kubernetes.io/hostname"}, 3),
        ({keys.LEADER_FIRST[0]: "true"}, 3),
    ],
    ids=["LeaderReady", "exclusive", "leader-first"],
)
@pytest.mark.parametrize("gpus", [2, 3])
def test_a_leader_with_members_to_come_starts_with_room_for_them(
    annotations: dict[str, str], min_member: int, gpus: int
) -> None:
    """B8: alone, on a node for all three, or not at all."""
    world = World(node("a", gpus, labels={"kubernetes.io/hostname": "a"}))
    asked = amounts(gpus=3)
    world.declare(
        pod_group(GROUP, min_member, api_group=keys.VOLCANO, version="v1beta1", min_resources=asked)
    )
    world.create(lws_pods(1, {**SIZE, MARK: GROUP, **annotations}))
    assert len(world.settle().bound()) == (gpus == 3)


def test_an_exclusive_topology_that_is_no_label_is_refused() -> None:
    """A5: a typing error starts nothing."""
    world = World(node("a", 8))
    (leader,) = world.create(lws_pods(1, {**OWNER, **SIZE, keys.LWS_EXCLUSIVE[0]: "no label"}))
    world.advance(POD_GROUP_WAIT_S).told()
    reason, text = world.condition(leader)
    assert (reason, world.bound()) == ("InvalidGang", {})
    assert text.startswith(
        "leaderworkerset.sigs.k8s.io/exclusive-topology of pod ns/serve-0 is not a label key."
    )


def test_a_leader_without_workers_and_a_flag_that_is_off_are_not_refused() -> None:
    """A size of one has no members to come."""
    world = World(node("a", 8, labels={"rack": "r"}))
    world.create(lws_pods(1, {**OWNER, keys.LWS_SIZE: "1", keys.LWS_EXCLUSIVE[0]: "rack"}))
    assert len(world.settle().bound()) == 1
    other = World(node("a", 8))
    other.create(lws_pods(3, {**OWNER, **SIZE, keys.LEADER_FIRST[0]: "false"}))
    assert len(other.settle().bound()) == 3


def test_a_leader_that_is_to_start_first_without_a_size_is_told() -> None:
    """E4: how many workers are to come is not known, so that all members start together."""
    world = World(node("a", 8))
    world.declare(pod_group(GROUP, 2, api_group=keys.VOLCANO, version="v1beta1"))
    world.create(lws_pods(2, {MARK: GROUP, keys.LEADER_FIRST[0]: "true"}))
    assert len(world.settle().told().bound()) == 2
    assert (
        "gangsched.dev/leader-first of pod ns/serve-0 has no effect without"
        " leaderworkerset.sigs.k8s.io/size" in str(world.events())
    )


def test_a_users_own_gang_of_several_groups_is_left_alone() -> None:
    """The size of one group is not the minimum of a gang that somebody made of two, whatever the
    key.
    """
    stated = {**SIZE, keys.NAME: "both", keys.MIN[0]: "6", keys.LWS_EXCLUSIVE[0]: "rack"}
    kept = dict(pod_gang_metadata(LABELS, stated))
    assert kept == {keys.NAME: "both", keys.MIN[0]: "6"}
