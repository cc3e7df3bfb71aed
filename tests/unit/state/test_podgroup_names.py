"""Names that are nearly those of a PodGroup, and definitions that are not installed:
semantics E1.
"""

from __future__ import annotations

import pytest

from gangsched.api import keys
from gangsched.model.objects import PodGroup
from gangsched.model.protocol import Followed, Replaced, Unread
from gangsched.state.groups import POD_GROUP_WAIT_S
from gangsched.state.podgroup_names import NEIGHBOURS, PodGroupNames, edits
from tests.builders import members, node, pod_group
from tests.world import World


@pytest.mark.parametrize(
    ("one", "other", "number"),
    [
        ("train", "train", 0),
        ("train", "trian", 2),
        ("train", "rain", 1),
        ("train", "trains", 1),
        ("train", "strain", 1),
    ],
)
def test_edits_are_counted(one: str, other: str, number: int) -> None:
    """Insert, delete and replace count one each, in both directions."""
    assert edits(one, other) == edits(other, one) == number


def test_names_far_apart_are_not_alike() -> None:
    """Whatever their lengths."""
    assert edits("train", "serve") > 2
    assert edits("a", "a" * 253) > 2
    assert edits("x" * 253, "y" * 253) > 2


def said(world: World) -> str:
    """What the one pod that waits is told."""
    (waiting,) = [pod for pod in world.pods.values() if not pod.node_name]
    world.advance(POD_GROUP_WAIT_S).told()
    reason, message = world.condition(waiting)
    assert reason == "PodGroupMissing"
    return message


def test_the_nearest_name_is_told_for_as_long_as_it_exists() -> None:
    """E1: the PodGroup that was probably meant, whether it came before or after the pods; never
    another namespace's.
    """
    world = World(node("a"))
    world.declare(pod_group("train"), pod_group("trainin", namespace="far"), pod_group("serving"))
    world.create(members("trainin", 1, pod_group=True))
    assert said(world) == "PodGroup ns/trainin does not exist; there is one named train"
    nearer = pod_group("training")
    world.declare(nearer)
    assert said(world) == "PodGroup ns/trainin does not exist; there is one named training"
    world.withdraw(nearer)
    assert said(world) == "PodGroup ns/trainin does not exist; there is one named train"
    world.declare(pod_group("trainin"))
    assert world.told().bound() == {"trainin-0": "a"}


def test_a_missing_definition_is_not_a_missing_pod_group() -> None:
    """E1: with no definition at all the object cannot be created; that is told until one is
    installed.
    """
    world = World(node("a"))
    world.say(Unread(PodGroup, keys.X_K8S), Unread(PodGroup, keys.SIGS))
    world.create(members("g", 1, pod_group=True))
    assert (
        said(world) == "the API server does not serve PodGroups of scheduling.x-k8s.io or"
        " scheduling.sigs.k8s.io, "
        "and gang ns/g needs one"
    )
    world.say(Replaced(PodGroup, (), keys.SIGS))
    assert said(world) == "PodGroup ns/g does not exist"
    world.say(Unread(PodGroup, keys.SIGS))
    assert said(world).startswith("the API server does not serve PodGroups")


def test_definition_that_goes_takes_its_pod_groups_along() -> None:
    """I5: the gang is uninitialised again."""
    world = World(node("a"))
    world.declare(pod_group("g", 2))
    world.create(members("g", 1, pod_group=True))
    world.told()
    world.say(Unread(PodGroup, keys.X_K8S))
    assert said(world) == "PodGroup ns/g does not exist"


def test_a_new_pod_group_is_news_to_few() -> None:
    """Q3: of ten thousand gangs that miss theirs only those with alike names are looked at, and
    boundedly many.
    """
    names = PodGroupNames()
    for number in range(10_000):
        names.missing(f"ns/job-{number:05}", (keys.X_K8S, keys.SIGS))
    assert 0 < len(names.add("ns/job-04711x", keys.X_K8S)) <= 4 * NEIGHBOURS + 2


def test_what_cannot_be_read_is_not_said_to_be_missing() -> None:
    """P1: while changes of an API group's PodGroups are not received, a PodGroup may exist that is
    not known.
    """
    world = World(node("a"))
    world.create(members("train", 1, pod_group=True))
    assert said(world) == "PodGroup ns/train does not exist"
    world.say(Followed(keys.X_K8S, live=False))
    (waiting,) = world.pods.values()
    world.advance(POD_GROUP_WAIT_S).told()
    reason, message = world.condition(waiting)
    assert (reason, "unknown whether PodGroup ns/train exists" in message) == (
        "PodGroupsUnreadable",
        True,
    )
    world.say(Followed(keys.X_K8S, live=True))
    assert said(world) == "PodGroup ns/train does not exist"
    world.say(Followed(keys.NATIVE, live=False))
    assert said(world) == "PodGroup ns/train does not exist"


@pytest.mark.parametrize("recreated", [False, True])
def test_pod_that_is_seen_before_its_pod_group_is_told_nothing_of_it(*, recreated: bool) -> None:
    """I2: PodGroups and pods come by two watches; a gang is not judged while its PodGroup may be on
    its way.
    """
    world = World(node("a", 8))
    if recreated:  # a Job of the same name, whose last pod still ends
        world.declare(old := pod_group("g", 1))
        (before,) = world.create(members("g", 1, pod_group=True))
        world.settle()
        world.update(world.pods[before.uid], deleting=True)
        world.withdraw(old)
        world.advance(10.0)
    (late,) = world.create(members("g", 1, first=1, pod_group=True))
    plans = len(world.plans)
    world.advance(POD_GROUP_WAIT_S - 0.1)
    assert (world.condition(late), len(world.plans)) == (("", ""), plans)
    world.declare(pod_group("g", 1, uid="new"))
    assert "g-1" in world.settle().bound()
    world.told()
    assert not world.events("PodGroupMissing")


def test_pods_that_keep_coming_do_not_prolong_the_wait_for_a_pod_group() -> None:
    """I2: the gang waits for its PodGroup once; pods that come later are told at once that there is
    none.
    """
    world = World(node("a", 8))
    for first in range(4):
        world.create(members("g", 1, first=first, pod_group=True))
        world.advance(POD_GROUP_WAIT_S / 2)
    assert {world.condition(pod)[0] for pod in world.pods.values()} == {"PodGroupMissing"}
