"""Claims of native PodGroups: allocated once, reserved for the PodGroup, and freed when no pod of
it needs them.
"""

from __future__ import annotations

import msgspec
import pytest

from gangsched.api import keys
from gangsched.model.devices import DeviceClass, DeviceTaintRule, ResourceSlice
from gangsched.model.objects import ClaimEntry, ClaimUse, Pod, PodGroup
from gangsched.model.protocol import Applied, BindClaims, ClaimsReleased, Replaced
from gangsched.model.storage import GroupConsumer, ResourceClaim
from gangsched.state.rule_set import Rules
from tests.builders import node, pod, pod_group
from tests.unit.state.test_device_binding import claim, slice_of, write_common
from tests.world import World

BY_NAME, BY_TEMPLATE = ClaimEntry("nic", claim="s"), ClaimEntry("nic", template="t")
GROUP = GroupConsumer("g", "pg-g")


def native(*claims: ClaimEntry, members: int = 3) -> PodGroup:
    """The native PodGroup `g`."""
    return pod_group("g", members, api_group=keys.NATIVE, version="v1alpha2", claims=claims)


def member(name: str, entry: ClaimEntry = BY_NAME, *, group: str = "g") -> Pod:
    """A pod of a native PodGroup that uses the claim `s` by this entry."""
    use = ClaimUse("s", ephemeral=bool(entry.template), device=True, entry=entry)
    return pod(name, uid=name, native_group=group, claims=(use,))


def owned(
    version: int = 1, *devices: str, on: str = "n0", owner: str = "pg-g", by: str = "pg-g"
) -> ResourceClaim:
    """The claim `s`."""
    return msgspec.structs.replace(claim("s", version, *devices, on=on, by=by), owner_uid=owner)


def playing(
    *slices: ResourceSlice, of: ResourceClaim, entry: ClaimEntry = BY_NAME, group: PodGroup | None
) -> World:
    """A native gang of `p`, `q` and `r`."""
    world = World(node("n0"), node("n1"), rules=Rules(allocates=True))
    world.controller = False
    world.fate = lambda _: "later"
    world.say(Replaced(ResourceSlice, slices), Replaced(DeviceClass, (DeviceClass("gpu"),)))
    world.say(Replaced(DeviceTaintRule, ()), Replaced(ResourceClaim, (of,)))
    if group is not None:
        world.declare(group)
    world.create([member(name, entry) for name in ("p", "q", "r")])
    return world.settle()


@pytest.mark.parametrize("entry", [BY_NAME, BY_TEMPLATE], ids=["by name", "by template"])
def test_the_group_is_the_only_consumer(entry: ClaimEntry) -> None:
    """A13, scenario 9: one write for all members, which reserves the claim for the PodGroup;
    nothing for any bind.
    """
    world = playing(
        slice_of("n0", "g0"), slice_of("n1", "g0"), of=owned(), entry=entry, group=native(entry)
    )
    (order,) = (each for each in world.unanswered if isinstance(each, BindClaims))
    assert [each.consumer for each in order.claims] == [GROUP]
    write_common(world)
    assert {bind.uid: bind.claims for bind in world.sent} == {"p": (), "q": (), "r": ()}
    assert len({bind.node for bind in world.sent}) == 1


@pytest.mark.parametrize(
    "of",
    [native(), native(ClaimEntry("other", claim="s")), native(BY_TEMPLATE)],
    ids=["no claim", "another name", "another source"],
)
def test_an_entry_that_differs_is_the_pods_own(of: PodGroup) -> None:
    """As kube-scheduler's BindTo: the pods are the consumers."""
    world = playing(slice_of("n0", "g0"), of=owned(owner=""), group=of)
    write_common(world)
    assert {bind.uid: [each.consumer for each in bind.claims] for bind in world.sent} == {
        "p": [],
        "q": [None],
        "r": [None],
    }


def test_a_claim_that_another_group_owns_is_not_used() -> None:
    """Whatever a pod's status says; a claim of its own group is."""
    world = playing(
        slice_of("n0", "g0"), of=owned(owner="pg-h"), entry=BY_TEMPLATE, group=native(BY_TEMPLATE)
    )
    world.told()
    assert world.unanswered == []
    reason, said = world.condition(world.pods["p"])
    assert "was not created for Pod ns/p (neither Pod nor PodGroup g is the owner)" in said, (
        reason,
        said,
    )
    world.say(Applied(owned(2)))
    world.settle()
    write_common(world)
    assert {bind.uid for bind in world.sent} == {"p", "q", "r"}


def test_a_later_member_adds_nobody() -> None:
    """The claim is reserved for its PodGroup already; 256 other consumers do not keep it out."""
    many = msgspec.structs.replace(
        owned(5, "g0"), reserved=("pg-g", *(f"u{number}" for number in range(255)))
    )
    world = playing(slice_of("n0", "g0"), of=many, group=native(BY_NAME))
    assert {bind.uid: bind.claims for bind in world.sent} == {"p": (), "q": (), "r": ()}


def test_a_group_is_added_to_a_claim_that_others_use() -> None:
    """By each member, which is the same entry."""
    world = playing(slice_of("n0", "g0"), of=owned(5, "g0", by="somebody"), group=native(BY_NAME))
    assert {bind.uid: [each.consumer for each in bind.claims] for bind in world.sent} == {
        uid: [GROUP] for uid in "pqr"
    }


def test_what_a_kill_left_for_a_group_is_freed_where_it_does_not_fit() -> None:
    """A8, A21: none of its pods has a node, so its reservation keeps nothing; the gang starts
    elsewhere.
    """
    world = playing(slice_of("n1", "g0"), of=owned(5, "g0", on="gone"), group=native(BY_NAME))
    (order,) = world.released
    assert [(each.key, each.consumer) for each in order.claims] == [("resourceclaims/ns/s", GROUP)]
    world.say(Applied(owned(6)), ClaimsReleased({"resourceclaims/ns/s": "6"}))
    world.advance(30.0)
    world.settle()
    (written,) = (each for each in world.unanswered if isinstance(each, BindClaims))
    assert written.node == "n1"


def test_a_claim_of_a_group_with_a_running_pod_is_never_freed() -> None:
    """A8: a refused member does not take the devices of those that run."""
    world = playing(
        slice_of("n0", "g0"), slice_of("n1", "g0"), of=owned(5, "g0", on="gone"), group=None
    )
    assert world.bound() == {}
    runs = msgspec.structs.replace(member("runs"), node_name="n0")
    world.create([runs])
    world.declare(native(BY_NAME))
    world.settle()
    world.advance(60.0)
    world.settle()
    assert world.released == []


def test_pods_wait_for_the_declaration_of_their_group() -> None:
    """Claims are not allocated for pods before it is known whose they are."""
    world = playing(slice_of("n0", "g0"), of=owned(), entry=BY_TEMPLATE, group=None)
    assert world.unanswered == []
    world.declare(native(BY_TEMPLATE))
    world.settle()
    write_common(world)
    assert {bind.uid for bind in world.sent} == {"p", "q", "r"}


def test_nobody_starts_with_a_claim_of_a_group_that_was_replaced() -> None:
    """Its consumer is gone, so the controller would deallocate it; the next start reserves it for
    the new PodGroup.
    """
    world = playing(slice_of("n0", "g0"), of=owned(owner=""), group=(old := native(BY_NAME)))
    world.withdraw(old)
    world.declare(msgspec.structs.replace(old, uid="new"))
    write_common(world)
    assert world.sent == []
    assert [each.key for order in world.released for each in order.claims] == [
        "resourceclaims/ns/s"
    ]
    world.say(Applied(owned(6, owner="")), ClaimsReleased({"resourceclaims/ns/s": "6"}))
    world.advance(30.0)
    world.settle()
    (order,) = (each for each in world.unanswered if isinstance(each, BindClaims))
    assert [each.consumer for each in order.claims] == [GroupConsumer("g", "new")]
