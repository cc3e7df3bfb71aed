"""Gangs with volumes start whole: no bind leaves before all that the minimum needs have their
claims (B7).
"""

from __future__ import annotations

import math

import msgspec
import pytest

from gangsched.model.inter_pod import Requirement
from gangsched.model.objects import ClaimUse, NodeSelectorTerm, Pod
from gangsched.model.protocol import Applied, Gone, ReleaseClaims
from gangsched.model.storage import Claim, ClaimRef, StorageClass, Volume
from gangsched.state.members import State
from tests.builders import gang_metadata, members, node, pod, pod_group
from tests.world import World

LATE = StorageClass(name="late", provisioner="csi.test", waits=True)


def claim(name: str) -> Claim:
    """A claim that waits for its first consumer."""
    return Claim(
        namespace="ns", name=name, uid=f"uid-{name}", resource_version="5", storage_class="late"
    )


def member(
    name: str,
    gang: str = "g",
    *,
    min_member: int | None,
    has_claim: bool = True,
    gpus: int = 1,
    **stated: str,
) -> Pod:
    """A member, with a claim of its own name."""
    uses = (ClaimUse(name),) if has_claim else ()
    return pod(
        name,
        uid=name,
        gpus=gpus,
        claims=uses,
        gang_metadata=gang_metadata(
            gang,
            min_member=min_member,
            groups=stated.get("groups", ""),
            policy=stated.get("policy", ""),
        ),
    )


def world_of(*pods: Pod, nodes: int = 1) -> World:
    """These pods have a place and their claims are asked for; the test provisions."""
    world = World(*(node(f"n{index}", gpus=8) for index in range(nodes)))
    world.controller = False
    world.say(Applied(LATE), *(Applied(claim(use.name)) for each in pods for use in each.claims))
    world.create(pods)
    return world.settle()


def provision(world: World, *names: str) -> World:
    """The volumes of these claims are made and bound."""
    for name in names:
        world.bind_claim(f"ns/{name}")
    return world.settle()


def give_up(world: World, name: str) -> World:
    """The provisioner takes the annotation away."""
    asked = world.state.cluster.storage_cache.claim(f"ns/{name}")
    assert asked is not None
    version = str(int(asked.resource_version) + 1)
    world.say(Applied(msgspec.structs.replace(asked, selected_node=None, resource_version=version)))
    return world.settle()


def why(world: World) -> list[str]:
    """Why binds failed."""
    return sorted(
        message.partition("again: binding volumes: ")[2]
        for _, _, message in world.events("FailedBinding")
    )


NAMES = tuple(f"c{index}" for index in range(8))


def test_the_last_claim_lets_all_start() -> None:
    """Seven of eight claims are bound and nobody is; with the eighth, all eight are."""
    world = provision(world_of(*(member(name, min_member=8) for name in NAMES)), *NAMES[:7])
    assert world.sent == []
    assert world.bound() == {}
    assert {each.state for each in world.state.members.all()} == {State.WAITING_FOR_CLAIMS}
    assert world.state.registry.gangs["ns/g"].permit is None
    provision(world, NAMES[7])
    assert set(world.bound()) == set(NAMES)
    assert len({bind.permitted for bind in world.sent}) == 1


def test_members_without_claims_wait_as_well() -> None:
    """A launcher without a volume is not bound before the workers' volumes exist."""
    launcher = member("launcher", min_member=3, has_claim=False)
    world = provision(
        world_of(launcher, member("c0", min_member=3), member("c1", min_member=3)), "c0"
    )
    assert world.sent == []
    assert set(provision(world, "c1").bound()) == {"launcher", "c0", "c1"}


def test_members_above_the_minimum_wait_alone() -> None:
    """Two of three are needed: they start when two have their claims; the third follows with its
    own.
    """
    world = provision(world_of(*(member(name, min_member=2) for name in NAMES[:3])), "c0")
    assert world.sent == []
    assert set(provision(world, "c2").bound()) == {"c0", "c2"}
    assert world.state.members["c1"].state is State.WAITING_FOR_CLAIMS
    assert set(provision(world, "c1").bound()) == {"c0", "c1", "c2"}


@pytest.mark.parametrize("policy", ["only-waiting", "waiting-and-running", "once-satisfied"])
def test_a_member_that_is_late_is_bound_whatever_the_policy_counts(policy: str) -> None:
    """What its gang needed has started without it, so it waits for nobody but itself."""
    world = world_of(*(member(name, min_member=2, policy=policy) for name in NAMES[:3]))
    assert set(provision(world, "c0", "c1").bound()) == {"c0", "c1"}
    assert set(provision(world, "c2").bound()) == {"c0", "c1", "c2"}


def test_a_group_of_two_gangs_starts_together() -> None:
    """One gang of the group has volumes, the other has none: neither starts before both can."""
    groups = '["ns/a", "ns/b"]'
    workers = [member(name, "a", min_member=2, groups=groups) for name in NAMES[:2]]
    others = [
        member(name, "b", min_member=2, groups=groups, has_claim=False) for name in ("x", "y")
    ]
    world = provision(world_of(*workers, *others), "c0")
    assert world.sent == []
    assert set(provision(world, "c1").bound()) == {"c0", "c1", "x", "y"}


def test_a_claim_that_fails_ends_the_start() -> None:
    """Nobody is bound, all room is free, each is told the cause and what volumes exist now; then
    all start together.
    """
    world = provision(world_of(*(member(name, min_member=3) for name in NAMES[:3])), "c0")
    give_up(world, "c2")
    failed = 'provisioning failed for PVC "c2"'
    made = "The volumes provisioned for ns/c0 stay until these claims are deleted"
    assert why(world) == [
        *[f"its gang did not start: pod ns/c2: {failed}. {made}"] * 2,
        f"{failed}. {made}",
    ]
    assert world.sent == []
    assert not any(world.state.members.node_of(name) for name in NAMES[:3])
    world.advance(1.5)
    assert set(provision(world, "c1", "c2").bound()) == {"c0", "c1", "c2"}


def test_a_claim_that_takes_too_long_gives_all_room_back() -> None:
    """After 600 s the start ends, requests for volumes that do not exist are withdrawn, and others
    get the room.
    """
    pods = [member(name, min_member=2, gpus=4) for name in NAMES[:2]]
    world = provision(world_of(*pods), "c0")
    rival = world.create(members("rival", 2, gpus=4))
    world.advance(599.0)
    assert world.bound() == {}
    world.advance(2.0)
    assert set(world.bound()) == {each.name for each in rival}
    late = "claim ns/c1 was not bound within 600 s"
    rest = (
        "The volumes provisioned for ns/c0 stay until these claims are deleted. The request for"
        " ns/c1 is withdrawn"
    )
    assert why(world) == [f"{late}. {rest}", f"its gang did not start: pod ns/c1: {late}. {rest}"]
    unbound = world.state.cluster.storage_cache.claim("ns/c1")
    assert unbound is not None
    assert unbound.selected_node is None


def test_a_start_that_took_too_long_rests_for_longer_each_time() -> None:
    """It keeps room for ten minutes at a time, and others have their turn for 30 s, then 60 s and
    so on.
    """
    world = world_of(member("c0", min_member=1))
    begun = []
    for _ in range(6_000 // 10):
        world.advance(10.0)
        begun.append(len(world.claims_sent))
    assert [begun.index(number) * 10 for number in (2, 3, 4)] == [620, 1280, 2000]


def test_a_member_that_is_deleted_ends_the_start() -> None:
    """What is left cannot reach the minimum: it gives its room back, and starts with the
    replacement.
    """
    world = provision(world_of(*(member(name, min_member=2) for name in NAMES[:2])), "c0")
    world.delete(world.pods["c1"])
    world.settle()
    assert world.sent == []
    assert world.state.members.node_of("c0") == ""
    world.create([member("c1", min_member=2)])
    world.advance(1.5)
    assert set(provision(world, "c1").bound()) == {"c0", "c1"}


def test_a_gang_that_is_deleted_leaves_nothing() -> None:
    """No bind, no wait and no room; its claims are its owner's."""
    world = provision(world_of(*(member(name, min_member=2) for name in NAMES[:2])), "c0")
    world.delete(*list(world.pods.values()))
    provision(world, "c1")
    assert world.sent == []
    assert world.state.claims.next_deadline_s() == math.inf
    assert not any(isinstance(each, ReleaseClaims) for each in world.reports)
    world.create(members("rival", 8, gpus=1))
    assert len(world.settle().bound()) == 8


def test_a_node_that_closes_during_the_wait_ends_the_start() -> None:
    """All nodes are checked before the first bind leaves: the members on the other node are not
    bound without it.
    """
    world = world_of(*(member(name, min_member=2, gpus=8) for name in NAMES[:2]), nodes=2)
    provision(world, "c0")
    closed = world.state.members.node_of("c1")
    world.add_nodes(node(closed, gpus=8, unschedulable=True))
    provision(world, "c1")
    assert world.sent == []
    assert f'node "{closed}" no longer fits the pod' in why(world)[-1]


def test_a_minimum_that_is_lowered_lets_those_start_that_can() -> None:
    """The owner gives up the third volume: the two others start at once."""
    names = NAMES[:3]
    pods = [member(name, min_member=None) for name in names]
    world = World(node("n0", gpus=8))
    world.controller = False
    world.say(Applied(LATE), *(Applied(claim(name)) for name in names))
    world.declare(pod_group("g", min_member=3))
    world.create(pods)
    provision(world.settle(), "c0", "c1")
    assert world.sent == []
    world.declare(pod_group("g", min_member=2, generation=2))
    assert set(world.advance(0.1).bound()) == {"c0", "c1"}


def test_replacements_of_a_started_gang_do_not_wait_for_each_other() -> None:
    """Healing is member by member (P3), as without volumes."""
    world = world_of(*(member(name, min_member=3) for name in NAMES[:3]))
    provision(world, *NAMES[:3])
    for name in ("c1", "c2"):
        world.delete(world.pods[name])
        world.say(Gone(Claim, f"ns/{name}"), Applied(claim(name)))
    world.create([member(name, min_member=3) for name in ("c1", "c2")])
    assert set(provision(world.settle(), "c1").bound()) == {"c0", "c1"}


def test_a_restart_during_the_wait_loses_nothing() -> None:
    """The next process finds the claims as they are, waits for all of them again, and binds nobody
    before.
    """
    world = provision(world_of(*(member(name, min_member=2) for name in NAMES[:2])), "c0")
    storage = world.state.cluster.storage_cache
    kept = [storage.claim(f"ns/{name}") for name in NAMES[:2]]
    volumes = list(storage.volumes.values())
    world.restart()
    world.say(Applied(LATE), *(Applied(each) for each in (*kept, *volumes) if each is not None))
    world.settle()
    assert world.sent == []
    assert set(provision(world, "c1").bound()) == {"c0", "c1"}


def test_members_whose_volumes_exist_are_placed_before_those_that_may_go_anywhere() -> None:
    """One volume is on n0 after a start that failed; the launcher, first by name, leaves its room
    there.
    """
    world = World(node("n0", gpus=1), node("n1", gpus=1))
    world.controller = False
    here = (NodeSelectorTerm(labels=(Requirement("kubernetes.io/hostname", "In", ("n0",)),)),)
    volume = Volume(name="v", required=here, claim=ClaimRef("ns", "z", "uid-z"))
    bound = msgspec.structs.replace(claim("z"), volume_name="v", bound=True)
    world.say(Applied(LATE), Applied(volume), Applied(bound))
    world.create([member("a", min_member=2, has_claim=False), member("z", min_member=2)])
    assert world.settle().bound() == {"a": "n1", "z": "n0"}


@pytest.mark.parametrize("restarts", ["", "before", "after"])
@pytest.mark.parametrize("waits", [True, False])
def test_a_request_for_a_volume_on_a_node_that_is_gone_is_taken_back(
    restarts: str,
    *,
    waits: bool,
) -> None:
    """B7: the provisioner does nothing, and another node is empty; the node goes while the gang
    waits for its claims, or while it waits for room.
    """
    pods = [member(f"c{n}", min_member=2) for n in range(2)]
    world = world_of(*pods, nodes=1)
    if not waits:
        for each in pods:
            world.create(pod(f"f-{each.name}", gpus=4, node_name="n0", priority=10))
        give_up(world, "c0")
        world.advance(1)

    asked = world.state.cluster.storage_cache.claim("ns/c1")
    assert asked is not None
    assert asked.selected_node == "n0"
    storage = [
        claim
        for name in ("c0", "c1")
        if (claim := world.state.cluster.storage_cache.claim(f"ns/{name}")) is not None
    ]

    if restarts == "before":
        world.restart()
        world.say(Applied(LATE), *map(Applied, storage))
    world.remove_node("n0")
    if restarts == "after":
        world.restart()
        world.say(Applied(LATE), *map(Applied, storage))
    world.add_nodes(node("n1", gpus=8))
    world.controller = True
    world.advance(15)

    assert {name: where for name, where in world.bound().items() if name[0] == "c"} == {
        "c0": "n1",
        "c1": "n1",
    }
