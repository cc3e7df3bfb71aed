"""No group starts in part: claims, refused binds, restarts and foreign objects (B1, B2, B7, I9)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from gangsched.api import keys
from gangsched.core.cycle import Limits
from gangsched.model.devices import DeviceClass, DeviceTaintRule, ResourceSlice
from gangsched.model.objects import ClaimUse, Node, Pod
from gangsched.model.protocol import Applied, Replaced
from gangsched.model.reasons import Reason
from gangsched.model.storage import ResourceClaim
from gangsched.state.members import State
from gangsched.state.parents import MINIMUM_WAIT_S
from gangsched.state.rule_set import Rules
from tests.builders import gang_metadata, members, node, pod, pod_group, running
from tests.unit.state import test_device_binding as devices
from tests.unit.state.test_claim_starts import LATE, claim, give_up, provision
from tests.world import World


def child(gang: str, *claims: str, **stated: Any) -> list[Pod]:
    """A child of `svc`, with a member for each of these claims."""
    metadata = gang_metadata(gang, min_member=len(claims), parent="svc", **stated)
    return [
        pod(name, uid=name, claims=(ClaimUse(name),), gang_metadata=metadata) for name in claims
    ]


def tree_of(*pods: Pod) -> World:
    """These pods have a place and their claims are asked for; the test provisions."""
    world = World(node("n", gpus=8))
    world.controller = False
    world.say(Applied(LATE), *(Applied(claim(use.name)) for each in pods for use in each.claims))
    world.create(pods)
    return world.advance(MINIMUM_WAIT_S)


def test_a_child_waits_for_the_volumes_of_another() -> None:
    """B7, I9: both children are needed; while the volumes of one are not made, none of the other is
    bound.
    """
    world = provision(tree_of(*child("a", "a0", "a1"), *child("b", "b0", "b1")), "a0", "a1")
    assert world.sent == []
    provision(world, "b0")
    assert world.sent == []
    assert set(provision(world, "b1").bound()) == {"a0", "a1", "b0", "b1"}


def test_a_child_whose_volumes_fail_ends_the_start_of_the_tree() -> None:
    """B7, I9: without it the minimum is out of reach, so the other child gives its room
    back, too.
    """
    world = provision(tree_of(*child("a", "a0", "a1"), *child("b", "b0", "b1")), "a0", "a1", "b0")
    give_up(world, "b1")
    assert world.sent == []
    assert not any(world.state.members.node_of(name) for name in ("a0", "a1", "b0", "b1"))
    world.advance(1.5)
    assert set(provision(world, "b1").bound()) == {"a0", "a1", "b0", "b1"}


def test_a_child_above_the_minimum_waits_for_its_own_volumes() -> None:
    """B7, I9: one child is needed; the volumes of the second hold up only itself, and it starts
    whole.
    """
    pods = [*child("a", "a0", "a1", min_children=1), *child("b", "b0", "b1", min_children=1)]
    world = provision(tree_of(*pods), "a0", "a1", "b0")
    assert set(world.bound()) == {"a0", "a1"}
    assert world.state.members["b0"].state is State.WAITING_FOR_CLAIMS
    assert set(provision(world, "b1").bound()) == {"a0", "a1", "b0", "b1"}


def test_a_child_waits_for_the_devices_of_another() -> None:
    """B7, I9: as volumes, so devices: the claims of one child are written, and those of the other
    are not.
    """
    names = ("p", "q")
    world = World(node("n0"), node("n1"), rules=Rules(allocates=True))
    world.controller = False
    world.fate = lambda _: "later"
    world.say(Replaced(ResourceSlice, (devices.slice_of("n0", "g0", "g1"),)))
    world.say(Replaced(DeviceClass, (DeviceClass("gpu"),)), Replaced(DeviceTaintRule, ()))
    world.say(Replaced(ResourceClaim, tuple(map(devices.claim, names))))
    uses = {name: (ClaimUse(name, ephemeral=True, device=True),) for name in names}
    metadata = {name: gang_metadata(f"of-{name}", min_member=1, parent="svc") for name in names}
    world.create(
        [pod(name, uid=name, claims=uses[name], gang_metadata=metadata[name]) for name in names]
    )
    world.advance(MINIMUM_WAIT_S)
    devices.write(world, "p")
    assert world.sent == []
    devices.write(world, "q")
    assert {bind.name for bind in world.sent} == {"p", "q"}


def test_a_list_of_another_namespace_ends_no_wait_for_a_minimum() -> None:
    """I4, I9: a pod of `bad` lists `ns/svc`; the first child of `ns/svc` waits for the second
    nevertheless.
    """
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
    """I9: its gangs are told the fault; they must not be bound with the others, or be in two
    groups.
    """
    world = World(node("n", gpus=8))
    inner = ((keys.PARENT[0], "svc"), (keys.TOPOLOGY[0], "not a label"))
    world.declare(pod_group("svc", None), pod_group("in", None, gang_metadata=inner))
    world.create(
        members("a", 1, parent="in"), members("b", 1, parent="in"), members("c", 1, parent="svc")
    )
    assert world.advance(2).bound() == {}
    registry = world.state.registry
    for name in ("a", "b", "c"):
        verdict = world.verdict(registry.group_of[f"ns/{name}"])
        assert verdict.of_gang(f"ns/{name}").reason is Reason.INVALID_GANG
    of_groups = [gang for group in registry.groups.values() for gang in group.gangs]
    assert len(of_groups) == len(set(of_groups))
    world.declare(pod_group("in", None, gang_metadata=inner[:1], generation=2))
    assert set(world.advance(2).bound()) == {"a-0", "b-0", "c-0"}


def counts(world: World) -> Counter[str]:
    """The number of bound pods by gang."""
    return Counter(name.rpartition("-")[0] for name in world.bound())


@pytest.mark.parametrize("topology", ["", "rack"])
@pytest.mark.parametrize("number", [564, 620])
def test_hundreds_of_surplus_members_hold_up_no_sibling(topology: str, number: int) -> None:
    """I9: both children start within a second, and what is above the minimum of one is placed after
    both.
    """
    world = World(
        *(node(f"n{index:03}", 8, labels={"rack": f"r{index % 4}"}) for index in range(100))
    )
    stated: dict[str, Any] = {"parent": "svc", "min_member": 4, "topology": topology}
    world.create(members("a", 4, **stated), members("b", number, **stated))
    world.advance(MINIMUM_WAIT_S)
    assert min(counts(world)["a"], counts(world)["b"]) >= 4


@pytest.mark.parametrize("topology", ["", "rack"])
def test_out_of_work_between_two_children_starts_neither(topology: str) -> None:
    """I9: whatever the work of a plan, none of them commits one child without the other, and both
    start in the end.
    """
    for work in range(300, 5_000, 50):
        nodes = (node(f"n{index:02}", 8, labels={"rack": f"r{index % 2}"}) for index in range(8))
        world = World(*nodes, limits=Limits(work=work))
        stated: dict[str, Any] = {"parent": "svc", "min_member": 4, "topology": topology}
        world.create(
            members("a", 4, **stated, gpus=2),
            members("b", 3, **stated),
            members("b", 9, first=3, **stated),
        )
        world.advance(MINIMUM_WAIT_S)
        for plan in world.plans:
            binds = [bind.pod.name for verdict in plan.verdicts for bind in verdict.binds]
            assert {name[0] for name in binds} in (set(), {"a", "b"}, {"b"}), (work, binds)
        if counts(world):
            assert min(counts(world)["a"], counts(world)["b"]) >= 4, (work, world.bound())


def in_rack(world: World) -> set[str]:
    """The racks of all bound pods."""
    return {world.nodes[name].labels["rack"] for name in world.bound().values()}


def racks(number: int, gpus: int = 2) -> list[Node]:
    """Nodes of three racks."""
    return [node(f"n{index}", gpus, labels={"rack": f"r{index % 3}"}) for index in range(number)]


def test_members_without_a_minimum_stay_in_the_rack_of_their_tree() -> None:
    """I9: a gang with a minimum of 0 starts pod by pod, inside every level that is required around
    it.
    """
    world = World(*racks(6))
    world.declare(pod_group("svc", None, gang_metadata=((keys.TOPOLOGY[0], "rack"),)))
    world.create(members("z", 3, min_member=0, parent="svc"))
    world.advance(2)
    assert len(in_rack(world)) == 1
    assert set(world.bound()) == {"z-0", "z-1", "z-2"}
    world.create(members("z", 1, first=3, min_member=0, parent="svc"))
    assert len(in_rack(world.settle())) == 1
    assert len(world.bound()) == 4


def test_members_without_a_minimum_stay_in_the_rack_of_their_gang() -> None:
    """I9: as a gang beside the tree, so a child that requires the rack itself; its sibling goes
    first.
    """
    world = World(*racks(3))
    world.create(
        members("z", 3, min_member=0, parent="svc", topology="rack"), members("a", 2, parent="svc")
    )
    world.advance(2)
    assert counts(world)["a"] == 2
    assert (
        len(
            {world.nodes[at].labels["rack"] for name, at in world.bound().items() if name[0] == "z"}
        )
        == 1
    )


@pytest.mark.parametrize("least", [1, 2])
def test_a_gang_whose_members_do_not_count_stops_no_plan(least: int) -> None:
    """B1, I9: an `only-waiting` child has only bound members; it cannot start, and its sibling does
    if one suffices.
    """
    world = World(node("n0"), node("n1"))
    stated: dict[str, Any] = {"parent": "svc", "min_children": least}
    world.create([running(each, "n0") for each in members("z", 2, policy="only-waiting", **stated)])
    world.settle()
    world.create(members("a", 2, **stated))
    assert counts(world.settle())["a"] == (2 if least == 1 else 0)


def test_the_first_member_of_a_gang_without_a_minimum_decides_the_rack() -> None:
    """I3: the first rack is full, so its members start in another one, all in the same."""
    world = World(*racks(6))
    world.create(
        [
            running(each, at)
            for each, at in zip(members("x", 4, gpus=1), ("n0", "n0", "n3", "n3"), strict=True)
        ]
    )
    world.create(members("z", 6, min_member=0, topology="rack"))
    world.settle()
    assert counts(world)["z"] == 4
    assert (
        len(
            {world.nodes[at].labels["rack"] for name, at in world.bound().items() if name[0] == "z"}
        )
        == 1
    )


AGED: dict[str, Any] = {"creation_s": 200}
"""The gangs that start are younger than their rival."""
TOGETHER = [
    pytest.param({"parent": "svc", "min_children": 2, **AGED}, id="tree"),
    pytest.param({"groups": ["ns/a", "ns/b"], **AGED}, id="group"),
]


def half_sent(stated: dict[str, Any], fate: str) -> World:
    """The binds of `a` succeed and those of `b` do not; a rival, older than both, asks for the room
    of `b`.
    """
    world = World(node("n0", 4), node("n1", 4))
    world.fate = lambda bind: fate if bind.name[0] == "b" else "bound"
    world.create(members("a", 4, **stated), members("b", 4, **stated))
    world.turn()
    world.answer()
    assert counts(world) == {"a": 4}
    world.create(members("rival", 4, creation_s=50))
    return world


@pytest.mark.parametrize("stated", TOGETHER)
def test_what_a_kill_left_of_a_start_goes_before_older_gangs(stated: dict[str, Any]) -> None:
    """B3, B4: the process ends between the binds of two gangs; the next one completes the start
    first.
    """
    world = half_sent(stated, "later")
    world.unanswered.clear()
    world.fate = lambda _: "bound"
    world.restart(guarded_since_s=0)
    world.settle()
    assert counts(world) == {"a": 4, "b": 4}


@pytest.mark.parametrize("stated", TOGETHER)
def test_what_is_refused_of_a_start_keeps_its_room(stated: dict[str, Any]) -> None:
    """B3: the API server refuses the binds of one gang; the rival gets none of its room until they
    are tried again.
    """
    world = half_sent(stated, "failed")
    assert counts(world.settle()) == {"a": 4}
    world.fate = lambda _: "bound"
    assert counts(world.advance(30)) == {"a": 4, "b": 4}


@pytest.mark.parametrize("stated", TOGETHER)
def test_new_pods_are_not_the_rest_of_a_start(stated: dict[str, Any]) -> None:
    """Q2: whoever deletes what was not bound and creates other pods waits in the order of age."""
    world = half_sent(stated, "later")
    world.unanswered.clear()
    world.fate = lambda _: "bound"
    world.delete(*(each for each in [*world.pods.values()] if each.name[0] == "b"))
    world.create(members("b", 4, **{**stated, "creation_s": 201}))
    world.restart(guarded_since_s=0)
    world.settle()
    assert counts(world) == {"a": 4, "rival": 4}


def test_a_minimum_that_is_raised_makes_no_rest() -> None:
    """B5: one child has started alone; a second one that is needed since then waits in the order of
    age.
    """
    world = World(node("n0", 4), node("n1", 4))
    world.create(members("a", 4, parent="svc", min_children=1, **AGED))
    world.settle()
    world.create(
        members("rival", 4, creation_s=150), members("b", 4, parent="svc", min_children=2, **AGED)
    )
    world.declare(pod_group("svc", None, gang_metadata=((keys.MIN_CHILDREN[0], "2"),)))
    world.restart(guarded_since_s=0)
    world.settle()
    assert counts(world) == {"a": 4, "rival": 4}


def test_the_rest_of_a_start_brings_no_further_child_forward() -> None:
    """B3: two of three children are needed; the third waits behind the older gang as before."""
    world = World(node("n0", 4), node("n1", 4), node("n2", 4))
    stated: dict[str, Any] = {"parent": "svc", "min_children": 2, **AGED}
    world.fate = lambda bind: "bound" if bind.name[0] == "a" else "later"
    world.create(members("a", 4, **stated), members("b", 4, **stated), members("c", 4, **stated))
    world.turn()
    world.answer()
    world.unanswered.clear()
    world.fate = lambda _: "bound"
    world.create(members("rival", 4, creation_s=150))
    world.restart(guarded_since_s=0)
    world.settle()
    assert counts(world) == {"a": 4, "b": 4, "rival": 4}


def test_a_child_that_is_lost_whole_is_replaced_first() -> None:
    """B5, Q2: the tree is broken, though what is left of it is not; a pod of another shape replaces
    nobody.
    """
    for gpus in (1, 2):
        world = World(node("n0", 4), node("n1", 4))
        stated: dict[str, Any] = {"parent": "svc", "min_children": 2, **AGED}
        world.create(members("a", 4, **stated), members("b", 2, gpus=2, **stated))
        world.declare(pod_group("b", None, gang_metadata=((keys.PARENT[0], "svc"),)))
        world.settle()
        assert counts(world) == {"a": 4, "b": 2}
        world.delete(*(each for each in [*world.pods.values()] if each.name[0] == "b"))
        world.create(members("rival", 4, creation_s=150))
        world.create(members("b", 2, gpus=2 * gpus, **stated))
        world.settle()
        assert counts(world)["rival"] == (0 if gpus == 1 else 4)


def sharing(
    number: int,
    *consumers: str,
    least: int | None = None,
    stated: dict[str, Any] | None = None,
    beside: Sequence[Pod] = (),
) -> World:
    """A gang of so many pods that share a claim with a device, which these consumers have already,
    and others `beside` it.
    """
    world = World(*(node(f"n{index}", gpus=8, pods=300) for index in range(2)))
    world.controller = False
    shared = msgspec.structs.replace(
        devices.claim("shared", 1, "g0", on="n0"), reserved=consumers, owner_uid=""
    )
    shared = msgspec.structs.replace(shared, required=None)
    world.say(Replaced(ResourceClaim, (shared,)))
    uses = (ClaimUse("shared", device=True),)
    metadata = gang_metadata("g", min_member=least or number, **(stated or {}))
    names = [f"g-{index}" for index in range(number)]
    world.create(
        beside,
        [pod(name, uid=name, gpus=0, claims=uses, gang_metadata=metadata) for name in names],
    )
    return world.advance(1)


def others(number: int) -> tuple[str, ...]:
    """The uids of so many other consumers."""
    return tuple(f"other-{index}" for index in range(number))


@pytest.mark.parametrize("stated", [{}, {"parent": "svc", "min_children": 1}], ids=["gang", "tree"])
def test_a_gang_waits_for_consumers_of_its_claim_to_go(stated: dict[str, Any]) -> None:
    """B1, B7: the API server takes 256 consumers of a claim; with 254 others, none of four members
    is bound.
    """
    world = sharing(4, *others(254), stated=stated)
    assert world.sent == []
    assert "must share resourceclaim shared" in world.condition(world.pods["g-0"])[1]
    assert len(sharing(4, *others(252), stated=stated).bound()) == 4


@pytest.mark.parametrize(("consumers", "started"), [(253, 3), (254, 0), (255, 0), (256, 0)])
def test_a_further_child_that_shares_a_claim_holds_up_nobody(consumers: int, started: int) -> None:
    """I9, B7: whether or not the claim has room for it, the minimum starts, and it is whole or not
    there.
    """
    stated: dict[str, Any] = {"parent": "svc", "min_children": 1}
    first = members("a", 2, creation_s=1, **stated)
    world = sharing(3, *others(consumers), stated=stated, beside=first)
    assert counts(world) == ({"a": 2, "g": started} if started else {"a": 2})


@pytest.mark.parametrize("reserved", [1, 2, 3])
def test_members_that_a_claim_is_reserved_for_need_no_further_place(reserved: int) -> None:
    """B7: a start failed after the claim was written for some of its members."""
    own = tuple(f"g-{index}" for index in range(reserved))
    assert len(sharing(3, *others(253), *own).bound()) == 3
    assert not sharing(4, *others(253), *own).bound()


def test_members_above_the_minimum_take_the_places_that_are_left() -> None:
    """B7: two of four are needed, and two find a place."""
    world = sharing(4, *others(254), least=2)
    assert len(world.bound()) == 2
    waiting, *_ = world.pending()
    assert "has 256 consumers, the maximum" in world.condition(world.pods[waiting])[1]


def test_a_gang_of_260_that_shares_one_claim_is_told_that_it_never_starts() -> None:
    """B1: whatever runs, the last four would find no place."""
    world = sharing(260)
    assert world.sent == []
    reason, message = world.condition(world.pods["g-0"])
    assert reason == "InvalidClaim"
    assert (
        "260 members must share resourceclaim shared, and at most 256 pods can use one claim"
        in message
    )


def interrupted(world: World, *sent: str) -> World:
    """Only the binds of these pods are sent before the process ends; the next one finds the room of
    the others free.
    """
    world.fate = lambda bind: "bound" if bind.name in sent else "later"
    world.turn()
    world.answer()
    assert set(world.bound()) == set(sent)

    world.unanswered.clear()
    world.fate = lambda _: "bound"
    return world


def next_process(world: World) -> dict[str, str]:
    """What is bound once the next process has done what there is to do."""
    world.restart(guarded_since_s=0)
    return world.settle().bound()


def test_the_rest_of_a_single_gang_may_have_another_shape() -> None:
    """B3, B4: of a driver and a worker only the worker was bound; an older rival gets none of the
    driver's room.
    """
    world = World(node("n0", 4), node("n1", 4))
    gang = gang_metadata("g", min_member=2)
    world.create(
        [
            pod(name, uid=name, gpus=gpus, gang_metadata=gang, **AGED)
            for name, gpus in (("w", 2), ("d", 4))
        ]
    )
    interrupted(world, "w")
    world.create(members("rival", 4, creation_s=50))
    assert {"w", "d"} <= next_process(world).keys()


def test_a_lost_member_of_another_shape_is_no_rest_of_a_start() -> None:
    """Q2: who deletes a small member on purpose does not bring the large one that waits before
    older gangs.
    """
    world = World(node("n0", 2))
    gang = gang_metadata("g", min_member=2)
    small = world.create(
        [pod(name, uid=name, gpus=1, gang_metadata=gang, **AGED) for name in ("a", "b")]
    )
    world.create(pod("large", uid="large", gpus=4, gang_metadata=gang, **AGED))
    assert set(world.settle().bound()) == {"a", "b"}
    world.delete(small[0])
    world.create(members("rival", 4, creation_s=150))
    world.add_nodes(node("n1", 4))
    assert counts(world.settle())["rival"] == 4


@pytest.mark.parametrize("least", [0, 2])
def test_what_a_group_lacks_comes_before_the_surplus_of_its_gangs(least: int) -> None:
    """B3, I4: one member of `z` was not sent; members that `a` does not need, and the rest of `a`,
    come after it.
    """
    world = World(node("n0", 8))
    stated: dict[str, Any] = {"groups": ["ns/a", "ns/z"], **AGED}
    world.create(members("a", 4, min_member=least, **stated), members("z", 4, **stated))
    interrupted(world, "z-0", "z-1", "z-2")
    world.create(running(pod("other", gpus=4 - least, scheduler_name="x"), "n0"))
    next_process(world)
    assert counts(world)["z"] == 4
    assert counts(world)["a"] >= least


def test_surplus_comes_after_every_interrupted_start() -> None:
    """B3: the first of two gangs lacks one needed member, and has two above; the other one lacks
    one as well.
    """
    world = World(node("n0", 6))
    first, second = gang_metadata("f", min_member=2), gang_metadata("s", min_member=2)
    names = {"f": ("f-0", "f-1", "f-2", "f-3"), "s": ("s-0", "s-1")}
    for gang, metadata in (("f", first), ("s", second)):
        world.create(
            [pod(each, uid=each, gpus=1, gang_metadata=metadata, **AGED) for each in names[gang]]
        )
    interrupted(world, "f-0", "s-0")
    world.create(running(pod("other", gpus=2, scheduler_name="x"), "n0"))
    next_process(world)
    assert (counts(world)["f"], counts(world)["s"]) == (2, 2)


def test_the_surplus_of_an_interrupted_start_is_placed_after_it() -> None:
    """B3: with room for all, whatever is above the minimum is bound in the plan after."""
    world = World(node("n0", 6))
    metadata = gang_metadata("f", min_member=2)
    names = ("f-0", "f-1", "f-2", "f-3")
    world.create([pod(each, uid=each, gpus=1, gang_metadata=metadata, **AGED) for each in names])
    interrupted(world, "f-0")
    assert set(next_process(world)) == set(names)


@pytest.mark.parametrize("least", [0, 1])
def test_a_start_that_is_pinned_to_a_rack_is_completed_first(least: int) -> None:
    """B3, I9: the older of two interrupted starts may go anywhere, the other one only where one
    place is left.
    """
    world = World(node("n0", 2, labels={"rack": "r0"}), node("n1", 2, labels={"rack": "r1"}))
    world.declare(
        pod_group(
            "svc", None, gang_metadata=((keys.TOPOLOGY[0], "rack"), (keys.MIN_CHILDREN[0], "2"))
        )
    )
    child: dict[str, Any] = {"parent": "svc", "creation_s": 210}
    world.fate = lambda bind: "bound" if bind.name in {"g-0", "a-0"} else "later"
    world.create(
        members("g", 2, **AGED),
        members("a", 1, min_member=least, **child),
        members("b", 1, **child),
    )
    world.advance(MINIMUM_WAIT_S)
    interrupted(world, "g-0", "a-0")

    bound = world.bound()
    assert bound["g-0"] != bound["a-0"]
    world.create(running(pod("other", gpus=1, scheduler_name="x"), bound["g-0"]))
    next_process(world)
    assert (counts(world)["g"], counts(world)["a"], counts(world)["b"]) == (1, 1, 1)

    world.add_nodes(node("n2", 1))
    assert counts(world.settle())["g"] == 2


def test_surplus_of_one_child_makes_up_for_no_other() -> None:
    """B3, I9: all of `a` was sent, three above its minimum, and nothing of `b`; it goes before an
    older rival.
    """
    world = World(node("n0", 6))
    stated: dict[str, Any] = {"parent": "svc", "min_children": 2, **AGED}
    world.create(members("a", 4, min_member=1, **stated), members("b", 2, **stated))
    world.fate = lambda bind: "bound" if bind.name[0] == "a" else "later"
    world.turn()
    world.answer()
    world.settle()
    world.unanswered.clear()
    world.fate = lambda _: "bound"
    assert counts(world) == {"a": 4}
    world.create(members("rival", 2, creation_s=50))
    next_process(world)
    assert counts(world) == {"a": 4, "b": 2}


def test_what_is_left_of_a_start_is_placed_together() -> None:
    """B3: the rest of `a` may go anywhere, and must leave the one rack that takes `b` to it."""
    rack_0, rack_1 = {"rack": "r0"}, {"rack": "r1"}
    world = World(
        node("n0", 4, labels=rack_0),
        node("n1", 4, labels=rack_0),
        node("n2", 8, labels=rack_1),
    )
    stated: dict[str, Any] = {"parent": "svc", "min_children": 2, "gpus": 4, **AGED}
    world.create(members("a", 2, **stated), members("b", 2, topology="rack", **stated))
    interrupted(world, "a-0")
    assert counts(world) == {"a": 1}
    next_process(world)
    assert counts(world) == {"a": 2, "b": 2}


def test_a_start_goes_on_with_its_smallest_members() -> None:
    """B3: of two interrupted starts the one that is pinned to a rack goes first; its larger member
    would take the room that the other one was decided with.
    """
    world = World(node("n0", 6, labels={"rack": "r0"}))
    metadata = gang_metadata("g", min_member=2, topology="rack")
    sizes = {"g-0": 1, "g-1": 2, "g-2": 1}
    young = [
        pod(name, uid=name, gpus=gpus, gang_metadata=metadata, creation_s=210)
        for name, gpus in sizes.items()
    ]
    world.create(members("s", 2, gpus=2, **AGED), young)
    interrupted(world, "s-0", "g-0")

    assert set(next_process(world)) == {"s-0", "s-1", "g-0", "g-2"}
