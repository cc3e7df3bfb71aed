"""Room and devices that what is left of a start keeps after its writes were refused."""

from __future__ import annotations

import msgspec
import pytest

from gangsched.model.devices import (
    Device,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    DeviceTaintRule,
    NodeScope,
    ResourceSlice,
)
from gangsched.model.objects import ClaimUse, Pod
from gangsched.model.protocol import Applied, BindClaims, BindFailed, Replaced
from gangsched.model.storage import Claim, ResourceClaim, StorageClass
from gangsched.state.members import State
from gangsched.state.rule_set import Rules
from tests.builders import gang_metadata, node, pod, running, stamped
from tests.world import World

ASKS = ((DeviceRequest(name="r", class_name="gpu"),),)
LATE = StorageClass(name="late", provisioner="csi.test", waits=True)
REFUSED = BindFailed("lost", "n0", "allocating devices: the server said 403")


def half_started() -> World:
    """Of a gang of two, one member runs, and the claim of the other one is being written; one node
    has one device, and GPUs for both.
    """
    world = World(node("n0", gpus=2), rules=Rules(allocates=True))
    world.fate = lambda _: "later"
    device = ResourceSlice(
        name="n0", driver="d", pool="n0", scope=NodeScope("n0"), devices=(Device(name="g0"),)
    )
    world.say(Replaced(ResourceSlice, (device,)), Replaced(DeviceClass, (DeviceClass("gpu"),)))
    world.say(Replaced(DeviceTaintRule, ()))
    world.say(Replaced(ResourceClaim, (claim("lost"), claim("rival"))))
    here = pod("here", uid="here", gang_metadata=gang_metadata("g", min_member=2))
    world.create(stamped(running(here, "n0"), 2), with_claim("lost", "g", of=2))
    return world.settle()


def claim(name: str) -> ResourceClaim:
    """A claim for a device, of the pod of this name."""
    asks = DeviceClaim(namespace="ns", name=name, uid=name, requests=ASKS)
    return ResourceClaim(
        namespace="ns", name=name, uid=name, owner_uid=name, resource_version="1", asks=asks
    )


def with_claim(name: str, gang: str, *, of: int, gpus: int = 1) -> Pod:
    """A member of a gang of so many, with a claim of its own."""
    uses = (ClaimUse(name, ephemeral=True, device=True),)
    metadata = gang_metadata(gang, min_member=of)
    return pod(name, uid=name, gpus=gpus, claims=uses, gang_metadata=metadata)


def rival(kind: str) -> Pod:
    """A gang of one that needs the GPU, or the device, that is left."""
    if kind == "device":
        return with_claim("rival", "rival", of=1, gpus=0)

    return pod("rival", uid="rival", gang_metadata=gang_metadata("rival", min_member=1))


def refuse(world: World) -> None:
    """The API server refuses the write under way."""
    (order,) = world.unanswered
    assert isinstance(order, BindClaims)
    assert order.uid == "lost"
    world.unanswered.clear()
    world.say(REFUSED)
    world.settle()


def asked(world: World) -> set[str]:
    """The pods for which something is being written."""
    return {order.uid for order in world.unanswered}


@pytest.mark.parametrize("kind", ["GPU", "device"])
def test_the_rest_of_a_start_keeps_what_it_had_while_it_backs_off(kind: str) -> None:
    """B3: nobody takes its GPU, or its device, before it is tried again."""
    world = half_started()
    refuse(world)
    world.create(rival(kind))
    world.settle()

    assert asked(world) == set()
    assert world.state.members["lost"].state is State.KEPT

    world.advance(2.0)

    assert asked(world) == {"lost"}


@pytest.mark.parametrize("kind", ["GPU", "device"])
def test_it_keeps_them_for_half_a_minute(kind: str) -> None:
    """B3: whoever may write no claims keeps others off for 30 s in all, not after each try."""
    world = half_started()
    world.create(rival(kind))
    began_s = world.now_s

    while "rival" not in asked(world):
        assert world.now_s - began_s < 45.0
        if asked(world):
            refuse(world)

        world.advance(0.5)

    assert world.now_s - began_s >= 30.0


def test_a_member_that_waits_for_its_volume_does_not_stand_in_for_one_that_was_refused() -> None:
    """B3: its volume may never be made, and then the gang needs the member that was refused."""
    world = World(node("n0", gpus=4))
    world.controller = False
    world.fate = lambda order: "failed" if order.uid == "lost" else "bound"
    volume_claim = Claim(
        namespace="ns", name="c", uid="c", resource_version="5", storage_class="late"
    )
    world.say(Applied(LATE), Applied(volume_claim))
    metadata = gang_metadata("g", min_member=3)
    for name in ("here", "there", "lost"):
        world.create(pod(name, uid=name, gang_metadata=metadata))

    world.create(pod("waits", uid="waits", gang_metadata=metadata, claims=(ClaimUse("c"),)))
    world.settle()
    assert world.state.members["waits"].state is State.WAITING_FOR_CLAIMS
    assert world.bound().keys() == {"here", "there"}

    world.create(rival("GPU"))
    world.settle()
    assert world.state.members["lost"].state is State.KEPT
    assert "rival" not in world.bound()

    world.fate = lambda _: "bound"
    world.advance(2.0)
    assert world.bound().keys() == {"here", "there", "lost"}


def test_a_higher_priority_does_not_take_the_room_of_a_gang_whose_sibling_runs() -> None:
    """B3, D1: no bind of the gang went through, and yet it is what is left of a start."""
    world = World(node("n0", gpus=2))
    world.fate = lambda order: "failed" if order.uid == "lost" else "bound"
    for name, gang in (("here", "a"), ("lost", "b")):
        metadata = gang_metadata(gang, min_member=1, groups=["ns/a", "ns/b"])
        world.create(pod(name, uid=name, gang_metadata=metadata))

    world.settle()
    assert world.bound().keys() == {"here"}
    assert world.state.members["lost"].state is State.KEPT

    world.create(msgspec.structs.replace(rival("GPU"), priority=1000))
    world.settle()
    assert world.state.members["lost"].state is State.KEPT

    world.fate = lambda _: "bound"
    world.advance(2.0)
    assert world.bound().keys() == {"here", "lost"}


def test_its_next_start_keeps_its_room_for_as_long() -> None:
    """What a member kept in one start is not counted in the next one."""
    world = half_started()
    refuse(world)
    world.delete(world.pods["here"])
    world.advance(60.0)
    assert world.state.members["lost"].state is State.RETRY
    assert world.state.members["lost"].keeps_until_s == 0.0


def test_a_bind_that_is_refused_is_tried_again_where_it_was() -> None:
    """B3: without claims, nothing else has to be chosen."""
    world = World(node("n0"), node("n1"))
    world.fate = lambda order: "failed" if order.uid == "lost" else "bound"
    members = [
        pod(name, uid=name, gang_metadata=gang_metadata("g", min_member=2))
        for name in ("here", "lost")
    ]
    world.create(*members)
    world.settle()
    first = world.state.members["lost"].node

    assert world.state.members["lost"].state is State.KEPT

    world.fate = lambda _: "bound"
    world.advance(2.0)

    assert world.bound()["lost"] == first


def test_claims_that_were_not_written_are_asked_for_anew() -> None:
    """B3: its claim was recreated while it backed off; the next try asks for the new one."""
    world = half_started()
    refuse(world)
    changed = msgspec.structs.replace(claim("lost"), uid="new", resource_version="9")
    world.say(Applied(changed))
    world.advance(2.0)
    (order,) = world.unanswered
    assert order.claims[0].uid == "new"
