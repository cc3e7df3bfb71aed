"""Volumes in the state: who waits for which claim, who is woken, and what is taken while binds are
under way.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gangsched.model.devices import DeviceTaintRule
from gangsched.model.inter_pod import Requirement
from gangsched.model.objects import ClaimUse, NodeSelectorTerm, Pod
from gangsched.model.protocol import Applied, Gone, Replaced, Unread
from gangsched.model.storage import (
    ALLOCATING,
    NO_PROVISIONER,
    Claim,
    ResourceClaim,
    StorageClass,
    StorageObject,
    Volume,
)
from gangsched.state.storage_cache import StorageCache
from tests.builders import NAMESPACE, gang_metadata, node, pod
from tests.world import World

LATE = StorageClass(name="late", provisioner="csi.test", waits=True)
LOCAL = StorageClass(name="local", provisioner=NO_PROVISIONER, waits=True)


def has(world: World, *items: StorageObject) -> None:
    """These objects appear or change."""
    world.say(*map(Applied, items))


def claim(name: str, **fields: Any) -> Claim:
    """A claim of 1 GiB."""
    return Claim(namespace=NAMESPACE, name=name, uid=f"uid-{name}", request_bytes=2**30, **fields)


def disk(name: str, on: str) -> Volume:
    """A free local volume on a node."""
    here = (NodeSelectorTerm(labels=(Requirement("kubernetes.io/hostname", "In", (on,)),)),)
    return Volume(
        name=name, storage_class="local", capacity_bytes=2**30, available=True, required=here
    )


def gang(name: str, *claims: str) -> list[Pod]:
    """A gang of one member a claim."""
    stated = gang_metadata(name, min_member=len(claims))
    return [
        pod(f"{name}-{each}", gang_metadata=stated, claims=(ClaimUse(each),)) for each in claims
    ]


def test_a_gang_waits_for_a_claim_and_is_woken_when_it_is_bound() -> None:
    """Missing, then unbound, then bound: told each time, and started without a poll once the last
    one is bound.
    """
    world = World(node("n0"))
    pods = world.create(gang("g", "c0", "c1"))
    has(world, Volume(name="v"), claim("c0", volume_name="v", bound=True))
    world.told()
    reason, message = world.condition(pods[1])
    assert reason == "WaitingForVolumes"
    assert 'persistentvolumeclaim "c1" not found' in message
    has(world, claim("c1"))
    world.told()
    assert "pod has unbound immediate PersistentVolumeClaims" in world.condition(pods[1])[1]
    has(world, Volume(name="w"), claim("c1", volume_name="w", bound=True))
    world.settle()
    assert world.bound() == {"g-c0": "n0", "g-c1": "n0"}


def test_a_claim_wakes_only_those_who_name_it() -> None:
    """Another pod's claim changing is no reason to plan anything."""
    world = World(node("n0"))
    world.create(gang("g", "c0"))
    world.settle()
    plans = len(world.plans)
    has(world, claim("other"))
    world.settle()
    assert len(world.plans) == plans


def test_what_was_decided_about_claims_is_ordered_before_the_bind() -> None:
    """Claims that wait for a node are selected for the member's node; bound ones are
    not mentioned.
    """
    world = World(node("n0"))
    has(world, LATE, Volume(name="v"), claim("c0", volume_name="v", bound=True))
    has(world, claim("c1", storage_class="late", resource_version="7"))
    world.create(gang("g", "c0", "c1"))
    world.settle()
    (order,) = world.claims_sent
    assert (order.name, order.node) == ("g-c1", "n0")
    assert [(each.name, each.node, each.resource_version) for each in order.claims] == [
        ("c1", "n0", "7")
    ]
    assert {bind.name: bind.claims for bind in world.sent} == {"g-c0": (), "g-c1": ()}


def test_a_volume_is_taken_while_its_bind_is_under_way() -> None:
    """Nobody gets a volume that was picked for a member on its way; when that bind fails it is free
    again.
    """
    world = World(node("n0"))
    world.fate = lambda bind: "later"
    has(
        world,
        LOCAL,
        disk("d", "n0"),
        claim("c0", storage_class="local"),
        claim("c1", storage_class="local"),
    )
    world.create(gang("first", "c0"))
    world.turn()
    second = world.create(gang("second", "c1"))
    world.told()
    assert [(order.name, order.claims[0].volume) for order in world.claims_sent] == [
        ("first-c0", "d")
    ]
    assert "didn't find available persistent volumes to bind" in world.condition(second[0])[1]
    world.fate = lambda bind: "failed" if bind.name.startswith("first") else "bound"
    world.advance(0.5)
    assert world.bound() == {"second-c1": "n0"}


def test_a_held_member_keeps_its_volume() -> None:
    """What was picked for a NonStrict member that holds goes out with its bind later."""
    world = World(node("n0"), node("big", gpus=9))
    (guest,) = world.create(pod("guest", gpus=9, node_name="big"))
    has(world, LOCAL, disk("d", "n0"), disk("e", "n0"))
    has(world, *(claim(name, storage_class="local") for name in ("c0", "c1", "c2")))
    stated = gang_metadata("g", min_member=2, total=2, mode="NonStrict")
    world.create(
        [
            pod("g-0", gang_metadata=stated, claims=(ClaimUse("c0"),)),
            pod("g-1", gpus=9, gang_metadata=stated),
        ]
    )
    world.settle()
    assert world.held() == {"g-0": "n0"}
    world.create(gang("other", "c1", "c2"))
    world.settle()
    assert world.bound() == {"guest": "big"}
    world.delete(guest)
    world.settle()
    assert {order.name: [each.volume for each in order.claims] for order in world.claims_sent} == {
        "g-0": ["d"]
    }
    assert {bind.name for bind in world.sent} == {"g-0", "g-1"}


def test_a_pod_that_ends_frees_its_exclusive_claim_for_another_node() -> None:
    """A ReadWriteOncePod claim let go on one node wakes a pod that will run on another."""
    world = World(node("n0", gpus=1), node("n1", gpus=8))
    has(world, Volume(name="v"))
    has(world, claim("c", volume_name="v", bound=True, access_modes=("ReadWriteOncePod",)))
    user = pod("user", claims=(ClaimUse("c"),), node_name="n0")
    world.create(user, pod("next", gpus=4, claims=(ClaimUse("c"),)))
    world.told()
    assert world.bound() == {"user": "n0"}
    world.delete(user)
    world.settle()
    assert world.bound() == {"next": "n1"}


def test_a_list_forgets_what_is_not_in_it() -> None:
    """After a relist or a deletion a claim that is gone counts as missing."""
    world = World(node("n0"))
    known = claim("c", volume_name="v", bound=True)
    has(world, Volume(name="v"), known)
    world.say(Replaced(Claim, ()))
    world.create(gang("g", "c"))
    world.told()
    assert world.bound() == {}
    world.say(Replaced(Claim, (known,)), Gone(Volume, "v"))
    world.settle()
    assert world.bound() == {}
    has(world, Volume(name="v"))
    world.settle()
    assert world.bound() == {"g-c": "n0"}


def test_what_cannot_be_read_is_not_taken_for_absent() -> None:
    """Without the right to read a kind, pods with claims say so and wait; others run; once granted,
    all run.
    """
    world = World(node("n0"))
    known = claim("c", volume_name="v", bound=True)
    world.say(Unread(Claim), Unread(StorageClass))
    (waiting,) = world.create(gang("g", "c"))
    world.create(pod("plain"))
    world.told()
    assert world.bound() == {"plain": "n0"}
    assert (
        "gangsched has no permission to read persistentvolumeclaims, storageclasses"
        in world.condition(waiting)[1]
    )
    world.say(Replaced(Claim, (known,)), Replaced(Volume, (Volume(name="v"),)))
    world.settle()
    assert world.bound() == {"plain": "n0"}
    world.say(Replaced(StorageClass, ()))
    world.settle()
    assert world.bound() == {"plain": "n0", "g-c": "n0"}


def test_a_gang_whose_resource_claims_are_made_later() -> None:
    """A template's claim gets its name, is allocated, and wakes the gang each time; other claims
    wake nobody.
    """
    world = World(node("n0"))
    one = pod(
        "g-0",
        gang_metadata=gang_metadata("g", min_member=1),
        claims=(ClaimUse("", ephemeral=True, device=True),),
    )
    world.create(one)
    world.told()
    assert "ResourceClaim not created yet" in world.condition(one)[1]
    made = ResourceClaim(namespace=NAMESPACE, name="g-0-x", uid="u", owner_uid=one.uid)
    has(world, made)
    world.update(one, claims=(ClaimUse("g-0-x", ephemeral=True, device=True),))
    world.told()
    assert world.condition(one)[0] == "Unsupported"
    plans = len(world.plans)
    has(world, ResourceClaim(namespace=NAMESPACE, name="other", allocated=True))
    world.settle()
    assert len(world.plans) == plans
    has(world, msgspec.structs.replace(made, allocated=True))
    world.settle()
    assert world.bound() == {"g-0": "n0"}
    assert [each.reserve for bind in world.sent for each in bind.claims] == [True]


def test_a_look_for_devices_to_release_that_finds_none_changes_nothing() -> None:
    """V25: a new picture of the cluster would drop what is known, and groups would be planned for
    it at rest.
    """
    world = World(node("n0"))
    pods = world.create(gang("g", "c0"))
    world.settle()
    before = world.state.snapshot()
    members = [member for each in pods if (member := world.state.members.get(each.uid)) is not None]
    assert members
    assert world.state.claims.give_up(members) == []
    assert world.state.snapshot() is before


def test_taint_rules_that_were_forbidden_and_are_not_served_count_as_none() -> None:
    """The role is bound after the start, on an API server without taint rules: devices are
    allocated from then on.
    """
    cache = StorageCache(allocates=True)
    for kind in ALLOCATING:
        cache.miss(kind, forbidden=True)
    assert cache.storage().unread == ALLOCATING
    cache.miss(DeviceTaintRule)
    for kind in ALLOCATING - {DeviceTaintRule}:
        cache.replace(kind, ())
    assert not cache.storage().unread
    assert not cache.awaited


def test_claims_that_leave_a_pod_few_nodes() -> None:
    """Q2: a volume or devices of some nodes, or a volume that is asked for on one; what has not
    been chosen, or can be used everywhere, leaves all of them.
    """
    here = (NodeSelectorTerm(labels=(Requirement("zone", "In", ("a",)),)),)
    items = {
        "open": claim("open"),
        "asked": claim("asked", selected_node="n0"),
        "here": claim("here", volume_name="pv-here", bound=True, selected_node="n0"),
        "everywhere": claim("everywhere", volume_name="pv-all", bound=True, selected_node="n0"),
    }
    cache = StorageCache()
    for item in items.values():
        cache.apply(item)

    cache.apply(Volume(name="pv-here", required=here))
    cache.apply(Volume(name="pv-all"))
    cache.apply(ResourceClaim(namespace=NAMESPACE, name="free"))
    cache.apply(ResourceClaim(namespace=NAMESPACE, name="taken", allocated=True, required=here))

    def fixes(*uses: ClaimUse) -> bool:
        return cache.fixes_node(pod("p", claims=uses))

    volumes = {name: fixes(ClaimUse(name)) for name in (*items, "missing")}
    assert volumes == {
        "open": False,
        "asked": True,
        "here": True,
        "everywhere": False,
        "missing": False,
    }
    devices = {name: fixes(ClaimUse(name, device=True)) for name in ("free", "taken", "missing")}
    assert devices == {"free": False, "taken": True, "missing": False}
