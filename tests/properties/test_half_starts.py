"""No group starts in part: claims, refused binds, restarts and foreign objects (B1, B2, B7, I9)."""

from __future__ import annotations

from typing import Any

from gangsched.api import keys
from gangsched.model.devices import DeviceClass, DeviceTaintRule, ResourceSlice
from gangsched.model.objects import ClaimUse, Pod
from gangsched.model.protocol import Applied, Replaced
from gangsched.model.reasons import Reason
from gangsched.model.storage import ResourceClaim
from gangsched.state.members import State
from gangsched.state.parents import MINIMUM_WAIT_S
from gangsched.state.rule_set import Rules
from tests.builders import gang_metadata, members, node, pod, pod_group
from tests.unit.state import test_device_binding as devices
from tests.unit.state.test_claim_starts import LATE, claim, give_up, provision
from tests.world import World


def child(gang: str, *claims: str, **stated: Any) -> list[Pod]:
    """A child of `svc`, with a member for each of these claims."""
    metadata = gang_metadata(gang, min_member=len(claims), parent="svc", **stated)
    return [pod(name, uid=name, claims=(ClaimUse(name),), gang_metadata=metadata) for name in claims]


def tree_of(*pods: Pod) -> World:
    """These pods have a place and their claims are asked for; the test provisions."""
    world = World(node("n", gpus=8))
    world.controller = False
    world.say(Applied(LATE), *(Applied(claim(use.name)) for each in pods for use in each.claims))
    world.create(pods)
    return world.advance(MINIMUM_WAIT_S)


def test_a_child_waits_for_the_volumes_of_another() -> None:
    """B7, I9: both children are needed; while the volumes of one are not made, none of the other is bound."""
    world = provision(tree_of(*child("a", "a0", "a1"), *child("b", "b0", "b1")), "a0", "a1")
    assert world.sent == []
    provision(world, "b0")
    assert world.sent == []
    assert set(provision(world, "b1").bound()) == {"a0", "a1", "b0", "b1"}


def test_a_child_whose_volumes_fail_ends_the_start_of_the_tree() -> None:
    """B7, I9: without it the minimum is out of reach, so the other child gives its room back, too."""
    world = provision(tree_of(*child("a", "a0", "a1"), *child("b", "b0", "b1")), "a0", "a1", "b0")
    give_up(world, "b1")
    assert world.sent == []
    assert not any(world.state.members.node_of(name) for name in ("a0", "a1", "b0", "b1"))
    world.advance(1.5)
    assert set(provision(world, "b1").bound()) == {"a0", "a1", "b0", "b1"}


def test_a_child_above_the_minimum_waits_for_its_own_volumes() -> None:
    """B7, I9: one child is needed; the volumes of the second hold up only itself, and it starts whole."""
    pods = [*child("a", "a0", "a1", min_children=1), *child("b", "b0", "b1", min_children=1)]
    world = provision(tree_of(*pods), "a0", "a1", "b0")
    assert set(world.bound()) == {"a0", "a1"}
    assert world.state.members["b0"].state is State.WAITING_FOR_CLAIMS
    assert set(provision(world, "b1").bound()) == {"a0", "a1", "b0", "b1"}


def test_a_child_waits_for_the_devices_of_another() -> None:
    """B7, I9: as volumes, so devices: the claims of one child are written, and those of the other are not."""
    names = ("p", "q")
    world = World(node("n0"), node("n1"), rules=Rules(allocates=True))
    world.controller = False
    world.fate = lambda _: "later"
    world.say(Replaced(ResourceSlice, (devices.slice_of("n0", "g0", "g1"),)))
    world.say(Replaced(DeviceClass, (DeviceClass("gpu"),)), Replaced(DeviceTaintRule, ()))
    world.say(Replaced(ResourceClaim, tuple(map(devices.claim, names))))
    uses = {name: (ClaimUse(name, ephemeral=True, device=True),) for name in names}
    metadata = {name: gang_metadata(f"of-{name}", min_member=1, parent="svc") for name in names}
    world.create([pod(name, uid=name, claims=uses[name], gang_metadata=metadata[name]) for name in names])
    world.advance(MINIMUM_WAIT_S)
    devices.write(world, "p")
    assert world.sent == []
    devices.write(world, "q")
    assert {bind.name for bind in world.sent} == {"p", "q"}


def test_a_list_of_another_namespace_ends_no_wait_for_a_minimum() -> None:
    """I4, I9: a pod of `bad` lists `ns/svc`; the first child of `ns/svc` waits for the second nevertheless."""
    world = World(node("n", gpus=8))
    listed = gang_metadata("x", min_member=1, groups=["bad/x", "ns/svc"])
    world.create(pod("x", uid="x", namespace="bad", gang_metadata=listed))
    world.settle()
    world.create(members("a", 2, parent="svc"))
    assert world.settle().bound() == {}
    world.create(members("b", 2, parent="svc"))
    world.advance(MINIMUM_WAIT_S)
    assert set(world.bound()) == {"a-0", "a-1", "b-0", "b-1"}


def test_a_list_of_its_own_ends_no_wait_for_a_minimum() -> None:
    """I9: a gang that listed the parent before, or names it and is refused, is no child of it."""
    world = World(node("n", gpus=8))
    world.create(members("x", 1, groups=["ns/x", "ns/svc"]))
    world.create(members("y", 1, groups=["ns/y", "ns/z"], parent="svc"))
    world.settle()
    world.create(members("a", 2, parent="svc"))
    assert world.settle().bound() == {}


def test_a_fault_of_an_inner_composite_refuses_the_whole_tree() -> None:
    """I9: its gangs are told the fault; they must not be bound with the others, or be in two groups."""
    world = World(node("n", gpus=8))
    inner = ((keys.PARENT[0], "svc"), (keys.TOPOLOGY[0], "not a label"))
    world.declare(pod_group("svc", None), pod_group("in", None, gang_metadata=inner))
    world.create(members("a", 1, parent="in"), members("b", 1, parent="in"), members("c", 1, parent="svc"))
    assert world.advance(2).bound() == {}
    registry = world.state.registry
    for name in ("a", "b", "c"):
        verdict = world.verdict(registry.group_of[f"ns/{name}"])
        assert verdict.of_gang(f"ns/{name}").reason is Reason.INVALID_GANG
    of_groups = [gang for group in registry.groups.values() for gang in group.gangs]
    assert len(of_groups) == len(set(of_groups))
    world.declare(pod_group("in", None, gang_metadata=inner[:1], generation=2))
    assert set(world.advance(2).bound()) == {"a-0", "b-0", "c-0"}
