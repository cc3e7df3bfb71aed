"""Every state of a member that takes room can be given up to higher priority (V6, D1, B3, B7)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from gangsched.model.objects import ClaimUse, Pod
from gangsched.model.protocol import Applied, PreparePreemption
from gangsched.model.storage import Claim, StorageClass
from gangsched.state.members import TAKES_ROOM, State
from tests.builders import gang_metadata, members, node, pod
from tests.world import World

LATE = StorageClass(name="late", provisioner="csi.test", waits=True)
URGENT = 1_000


def room_for_two(*, preempts: bool = True) -> World:
    """A node with room for two pods."""
    return World(node("a", gpus=2), preempts=preempts)


def claiming(world: World) -> None:
    """A gang of two gets room; the volumes of its claims are never made."""
    world.controller = False
    world.say(Applied(LATE))
    for name in ("low-0", "low-1"):
        claim = Claim(
            namespace="ns", name=name, uid=f"uid-{name}", resource_version="5", storage_class="late"
        )
        world.say(Applied(claim))

    metadata = gang_metadata("low", min_member=2)
    world.create(
        pod(name, uid=name, claims=(ClaimUse(name),), gang_metadata=metadata)
        for name in ("low-0", "low-1")
    )


def held() -> World:
    """A NonStrict gang holds room for two of its three members."""
    world = room_for_two()
    world.add_nodes(node("b", gpus=1))
    world.create(pod("foreign", node_name="b", scheduler_name="x"))
    world.create(members("low", 3, mode="NonStrict"))
    return world.settle()


def kept() -> World:
    """The bind of a member is refused after the others are bound."""
    world = room_for_two()
    world.fate = lambda bind: "failed" if bind.name == "low-1" else "bound"
    world.create(members("low", 2))
    world.settle()
    world.fate = lambda _: "bound"
    return world


def waiting_for_claims() -> World:
    """Nothing of the gang runs."""
    world = room_for_two()
    claiming(world)
    return world.settle()


def binding() -> World:
    """The API server does not answer yet."""
    world = room_for_two()
    world.fate = lambda order: "later"
    world.create(members("low", 2))
    return world.settle()


def bound() -> World:
    """The gang runs."""
    world = room_for_two()
    world.create(members("low", 2))
    return world.settle()


def withdrawn() -> World:
    """The pods are deleted while their binds are under way."""
    world = binding()
    for each in list(world.pods.values()):
        world.update(each, deleting=True)
    return world.settle()


def terminating() -> World:
    """The pods are being deleted on their node."""
    world = bound()
    for each in list(world.pods.values()):
        world.leaving[each.uid] = world.now_s + 5
        world.update(each, deleting=True, deletion_s=world.wall_s() + 5)
    return world.settle()


def answered(world: World) -> None:
    """The API server answers what it was asked."""
    world.fate = lambda _: "bound"
    world.advance(1)


def nothing(world: World) -> None:
    """It is given up at once."""


WAYS: dict[State, tuple[Callable[[], World], Callable[[World], None], float]] = {
    # state: how it comes about, what has to happen, after how many seconds it is over
    State.HELD: (held, nothing, 0),
    State.KEPT: (kept, nothing, 35),
    State.WAITING_FOR_CLAIMS: (waiting_for_claims, nothing, 0),
    State.BINDING: (binding, answered, 35),
    State.BOUND: (bound, nothing, 35),
    State.WITHDRAWN: (withdrawn, answered, 0),
    State.TERMINATING: (terminating, nothing, 5),
}


def test_the_table_has_every_state_that_takes_room() -> None:
    """V6: a state that is added must say what gives it up."""
    assert WAYS.keys() == TAKES_ROOM


@pytest.mark.parametrize("state", WAYS)
def test_higher_priority_gets_the_room(state: State) -> None:
    """V6: whatever state the members of lower priority are in."""
    make, goes_on, seconds = WAYS[state]
    world = make()
    assert state in {member.state for member in world.state.members.all()}

    world.create(members("high", 2, priority=URGENT))
    world.settle()
    goes_on(world)
    world.advance(seconds)

    assert {"high-0", "high-1"} <= set(world.bound())


@pytest.mark.parametrize("state", [State.HELD, State.KEPT, State.WAITING_FOR_CLAIMS])
def test_equals_do_not_get_the_room(state: State) -> None:
    """V6: only higher priority does."""
    world = WAYS[state][0]()

    world.create(members("equal", 2))
    world.settle()

    assert not {"equal-0", "equal-1"} & set(world.bound())


@pytest.mark.parametrize("preempts", [True, False])
def test_a_gang_that_only_waits_for_claims_gives_way_at_once(*, preempts: bool) -> None:
    """B7, V6: nothing of it runs, so nobody is evicted; its requests for volumes are withdrawn, and
    it starts once there is room again.
    """
    world = room_for_two(preempts=preempts)
    claiming(world)
    world.settle()

    (high, _) = world.create(members("high", 2, priority=URGENT))
    world.settle()

    assert set(world.bound()) == {"high-0", "high-1"}
    assert not any(isinstance(order, PreparePreemption) for order in world.ordered)
    claim = world.state.cluster.storage_cache.claim("ns/low-0")
    assert claim is not None
    assert claim.selected_node is None

    world.controller = True
    for each in [each for each in world.pods.values() if each.name.startswith("high")]:
        world.delete(each)
    world.advance(30)
    assert set(world.bound()) == {"low-0", "low-1"}
    assert high.uid not in world.pods


def test_a_gang_whose_claims_are_being_written_gives_way_once_they_are() -> None:
    """B7: until then it is not known what must be taken back."""
    world = room_for_two()
    world.fate = lambda _: "later"
    claiming(world)
    world.settle()
    world.create(members("high", 2, priority=URGENT))
    world.settle()
    assert not world.sent

    world.fate = lambda _: "bound"
    world.settle()

    assert set(world.bound()) == {"high-0", "high-1"}


def test_a_replacement_that_waits_for_its_claim_gives_way() -> None:
    """B7, V6: what runs of its gang stays."""
    world = room_for_two()
    running: list[Pod] = world.create(members("low", 1, min_member=1))
    world.settle()
    world.controller = False
    claim = Claim(namespace="ns", name="c", uid="uid-c", resource_version="5", storage_class="late")
    world.say(Applied(LATE), Applied(claim))
    world.create(
        pod("low-1", claims=(ClaimUse("c"),), gang_metadata=gang_metadata("low", min_member=1))
    )
    world.settle()
    (waiting,) = [each for each in world.state.members.all() if each.pod.name == "low-1"]
    assert waiting.state is State.WAITING_FOR_CLAIMS

    world.create(pod("high", priority=URGENT))
    world.settle()

    assert set(world.bound()) == {"low-0", "high"}
    assert running[0].uid in world.pods
    assert msgspec.structs.asdict(world.pods[running[0].uid])["deleting"] is False
