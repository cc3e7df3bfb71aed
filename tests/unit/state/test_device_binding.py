"""Members whose claims get devices: what is written, what is looked at, and what becomes of a start
that fails.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangsched.core.node_terms import NODE_NAME_FIELD
from gangsched.model.devices import (
    Device,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    DeviceResult,
    DeviceTaintRule,
    NodeScope,
    ResourceSlice,
)
from gangsched.model.gang import Mode
from gangsched.model.inter_pod import Requirement
from gangsched.model.objects import ClaimUse, NodeSelectorTerm, Pod
from gangsched.model.protocol import (
    Applied,
    BindClaims,
    BindFailed,
    ClaimsReleased,
    ClaimsWritten,
    Gone,
    Replaced,
)
from gangsched.model.storage import Claim, ResourceClaim, Selection, StorageClass
from gangsched.state.members import State
from gangsched.state.rule_set import Rules
from tests.builders import gang_metadata, node, pod, shape
from tests.world import World

LATE = StorageClass(name="late", provisioner="csi.test", waits=True)
NOT_MADE = Claim(namespace="ns", name="c", uid="c", resource_version="5", storage_class="late")
ASKS = ((DeviceRequest(name="r", class_name="gpu"),),)


def claim(
    name: str, version: int = 1, *devices: str, on: str = "n0", by: str = ""
) -> ResourceClaim:
    """A claim of the pod of this name, or another one's, that has these devices."""
    results = tuple(DeviceResult("r", ("d", on, each)) for each in devices)
    here = (NodeSelectorTerm(fields=(Requirement(NODE_NAME_FIELD, "In", (on,)),)),)
    return ResourceClaim(
        namespace="ns",
        name=name,
        uid=name,
        owner_uid=name,
        resource_version=str(version),
        allocated=bool(devices),
        required=here if devices else None,
        reserved=(by or name,) if devices else (),
        asks=DeviceClaim(
            namespace="ns", name=name, uid=name, requests=ASKS, results=results or None
        ),
    )


def slice_of(name: str, *devices: str) -> ResourceSlice:
    """What a node has."""
    made = tuple(Device(name=each) for each in devices)
    return ResourceSlice(name=name, driver="d", pool=name, scope=NodeScope(name), devices=made)


def starting(
    *slices: ResourceSlice, claims: tuple[ResourceClaim, ...] = (claim("p"), claim("q"))
) -> World:
    """A gang of `p` and `q`, each with a claim; writes are answered by the test."""
    world = World(node("n0"), node("n1"), rules=Rules(allocates=True))
    world.controller = False
    world.fate = lambda _: "later"
    world.say(Replaced(ResourceSlice, slices), Replaced(DeviceClass, (DeviceClass("gpu"),)))
    world.say(Replaced(DeviceTaintRule, ()), Replaced(ResourceClaim, claims))
    world.create([member(name, "g", 2) for name in ("p", "q")])
    return world.settle()


def member(name: str, gang: str, of: int) -> Pod:
    """A member of a gang of so many, with a claim of its own, made from a template."""
    uses = (ClaimUse(name, ephemeral=True, device=True),)
    return pod(name, uid=name, claims=uses, gang_metadata=gang_metadata(gang, min_member=of))


def chosen(world: World) -> dict[str, tuple[str, str]]:
    """By pod, the node and the device that are to be written."""
    orders = [each for each in world.unanswered if isinstance(each, BindClaims)]
    return {order.uid: (order.node, _device(order.claims[0])) for order in orders}


def _device(selection: Selection) -> str:
    assert selection.allocation is not None
    (result,) = selection.allocation.results
    return result.id[2]


def write(world: World, uid: str, version: int = 5, *, shown: bool = True) -> None:
    """The API server takes the write for a pod; our watch shows it, or does not yet."""
    (order,) = (
        each for each in world.unanswered if isinstance(each, BindClaims) and each.uid == uid
    )
    world.unanswered.remove(order)
    if shown:
        world.say(Applied(claim(uid, version, _device(order.claims[0]), on=order.node)))
    world.say(ClaimsWritten(uid, {order.claims[0].key: str(version)}))
    world.settle()


def states(world: World) -> set[State]:
    """What the members are."""
    return {world.state.members[uid].state for uid in ("p", "q")}


def test_binds_leave_together_once_our_watch_shows_all_devices() -> None:
    """A16, A17: nothing is bound while a claim is being written, or not seen at the version that
    was written.
    """
    world = starting(slice_of("n0", "g0", "g1"))
    assert set(chosen(world).values()) == {("n0", "g0"), ("n0", "g1")}
    second = chosen(world)["q"]
    write(world, "p")
    assert world.sent == []
    write(world, "q", shown=False)
    assert world.sent == []
    world.say(Applied(claim("q", 5, second[1])))
    world.settle()
    assert {bind.uid for bind in world.sent} == {"p", "q"}
    assert all(bind.claims == () for bind in world.sent)


def test_what_is_being_written_is_in_use() -> None:
    """A20: another gang is given what is left, before our watch shows any of it."""
    world = starting(slice_of("n0", "g0", "g1"), slice_of("n1", "g0"))
    world.say(Applied(claim("a")))
    world.create([member("a", "h", 1)])
    world.settle()
    assert chosen(world)["a"] == ("n1", "g0")


def test_a_rival_of_another_namespace_is_not_named() -> None:
    """I4, E1: an Event does not say what is in another namespace."""
    world = starting(slice_of("n0", "g0", "g1"), slice_of("n1", "g0", "g1"))
    rival = claim("rival", 4, "g0", by="somebody")
    assert rival.asks is not None
    asks = msgspec.structs.replace(rival.asks, namespace="secret")
    world.say(Applied(msgspec.structs.replace(rival, namespace="secret", asks=asks)))
    for uid in ("p", "q"):
        write(world, uid)
    said, _ = (text for _, _, text in world.events("FailedBinding"))
    assert "device d/n0/g0 is also allocated to another claim" in said
    assert "secret" not in said


def test_ours_yields_to_who_has_a_device_too() -> None:
    """A17: no bind; both claims are freed, and the gang is planned again only when that is seen."""
    world = starting(slice_of("n0", "g0", "g1"), slice_of("n1", "g0", "g1"))
    world.say(Applied(claim("rival", 4, "g0", by="somebody")))
    for uid in ("p", "q"):
        write(world, uid)
    assert world.sent == []
    assert {each.uid for order in world.released for each in order.claims} == {"p", "q"}
    said, _ = (text for _, _, text in world.events("FailedBinding"))
    assert "device d/n0/g0 is also allocated to resourceclaims/ns/rival" in said
    world.advance(30.0)
    world.settle()
    assert chosen(world) == {}  # what the cache shows of the claims is about to be undone
    world.say(ClaimsReleased({f"resourceclaims/ns/{uid}": "6" for uid in ("p", "q")}))
    world.settle()
    assert chosen(world) == {}
    world.say(*(Applied(claim(uid, 6)) for uid in ("p", "q")))
    world.advance(30.0)
    world.settle()
    assert set(chosen(world).values()) == {("n1", "g0"), ("n1", "g1")}


def test_a_write_that_fails_frees_the_others() -> None:
    """A18: the writer has freed its own claims before it answers; those of the other members are
    freed then.
    """
    world = starting(slice_of("n0", "g0", "g1"))
    write(world, "p")
    (order,) = world.unanswered
    world.unanswered.clear()
    world.say(BindFailed("q", order.node, "allocating devices: the server said 422"))
    world.settle()
    assert [each.uid for each in world.released] == ["p"]
    assert world.sent == []


@pytest.mark.parametrize("both", [True, False], ids=["both written", "one written"])
def test_what_a_kill_left_is_started_where_it_is(both: bool) -> None:
    """A21: the claims alone say where the members go; what was not written is written now."""
    left = (claim("p", 5, "g1"), claim("q", 5, "g0") if both else claim("q"))
    world = starting(slice_of("n0", "g0", "g1"), slice_of("n1", "g0", "g1"), claims=left)
    if not both:
        assert chosen(world) == {"q": ("n0", "g0")}
        write(world, "q")
    assert {bind.node for bind in world.sent} == {"n0"}
    assert {bind.uid for bind in world.sent} == {"p", "q"}


def test_what_a_kill_left_is_freed_where_it_does_not_fit_any_more() -> None:
    """A8, A21: the node has gone; the devices are given back, and others taken."""
    left = (claim("p", 5, "g0", on="gone"), claim("q"))
    world = starting(slice_of("n1", "g0", "g1"), claims=left)
    (order,) = world.released
    assert [(each.name, each.resource_version, each.allocation) for each in order.claims] == [
        ("p", "5", None)
    ]
    assert chosen(world) == {}
    world.say(Applied(claim("p", 6)), ClaimsReleased({"resourceclaims/ns/p": "6"}))
    world.settle()
    assert set(chosen(world).values()) == {("n1", "g0"), ("n1", "g1")}


def test_a_claim_that_others_use_is_never_freed() -> None:
    """A8: also if it keeps the gang from starting."""
    left = (
        msgspec.structs.replace(claim("p", 5, "g0", on="gone"), reserved=("p", "somebody")),
        claim("q"),
    )
    world = starting(slice_of("n1", "g0", "g1"), claims=left)
    assert world.released == []


def test_a_claim_that_goes_ends_the_start() -> None:
    """B3: its member cannot be bound; the devices of the other one are freed."""
    world = starting(slice_of("n0", "g0", "g1"))
    write(world, "p")
    world.say(Gone(ResourceClaim, "resourceclaims/ns/q"))
    write(world, "q", shown=False)
    assert world.sent == []
    assert "p" in {each.uid for each in world.released}


def common(version: int = 1, *devices: str, on: str = "n0", by: str = "p") -> ResourceClaim:
    """The claim `s`, which no pod owns."""
    return msgspec.structs.replace(claim("s", version, *devices, on=on, by=by), owner_uid="")


def sharing(
    *slices: ResourceSlice,
    left: ResourceClaim | None = None,
    mode: Mode = Mode.STRICT,
    large: str = "",
) -> World:
    """A gang of `p`, `q` and `r` that all use the claim `s`; a `large` one fits on no node."""
    world = World(node("n0"), node("n1"), rules=Rules(allocates=True))
    world.controller = False
    world.fate = lambda _: "later"
    world.say(Replaced(ResourceSlice, slices), Replaced(DeviceClass, (DeviceClass("gpu"),)))
    world.say(Replaced(DeviceTaintRule, ()), Replaced(ResourceClaim, (left or common(),)))
    metadata = gang_metadata("g", min_member=3, mode=mode)
    world.create(
        [
            pod(f"on-{name}", uid=f"on-{name}", node_name=name, cpu_milli=30_000)
            for name in ("n0", "n1")
            if large
        ]
    )
    shapes = {name: shape(cpu_milli=40_000 if name == large else 1_000) for name in ("p", "q", "r")}
    world.create([sharer(name, of=of, gang_metadata=metadata) for name, of in shapes.items()])
    return world.settle()


def sharer(name: str, **fields: Any) -> Pod:
    """A pod that uses the claim `s`."""
    return pod(name, uid=name, claims=(ClaimUse("s", device=True),), **fields)


def write_common(world: World, *, by: str = "p", shown: bool = True) -> None:
    """The API server takes the one write to the claim that all share."""
    (order,) = (each for each in world.unanswered if isinstance(each, BindClaims))
    assert (order.uid, [each.key for each in order.claims]) == (by, ["resourceclaims/ns/s"])
    world.unanswered.remove(order)
    if shown:
        world.say(Applied(common(5, _device(order.claims[0]), on=order.node, by=by)))
    world.say(ClaimsWritten(by, {order.claims[0].key: "5"}))
    world.settle()


def test_a_shared_claim_is_written_once_and_all_join_it() -> None:
    """A13: the first member has it allocated; all binds leave together, and the others are added
    before theirs.
    """
    world = sharing(slice_of("n0", "g0"), slice_of("n1", "g0"))
    write_common(world)
    assert {bind.uid: [each.name for each in bind.claims] for bind in world.sent} == {
        "p": [],
        "q": ["s"],
        "r": ["s"],
    }
    assert {bind.node for bind in world.sent} == {"n0"}


def test_nobody_joins_a_claim_whose_device_somebody_else_has() -> None:
    """A17: all of the start yield, and the claim is freed once."""
    world = sharing(slice_of("n0", "g0"), slice_of("n1", "g0"))
    world.say(Applied(claim("rival", 4, "g0", by="somebody")))
    world.create([sharer("alone")])
    world.settle()
    write_common(world)
    assert world.sent == []
    assert [each.uid for order in world.released for each in order.claims] == ["s"]
    world.say(
        ClaimsReleased({"resourceclaims/ns/s": "6"}),
        Applied(msgspec.structs.replace(claim("s", 6), owner_uid="")),
    )
    world.advance(30.0)
    world.settle()
    write_common(
        world, by=next(each.uid for each in world.unanswered if isinstance(each, BindClaims))
    )
    assert {bind.node for bind in world.sent} == {"n1"}
    assert {bind.uid for bind in world.sent} == {"p", "q", "r", "alone"}


def test_a_pod_of_another_gang_waits_until_the_claim_is_allocated() -> None:
    """A13: it goes to the node that was chosen, and is not bound before the look at the devices is
    over.
    """
    world = sharing(slice_of("n0", "g0"), slice_of("n1", "g0"))
    world.create([sharer("alone")])
    world.settle()
    assert world.state.members["alone"].node == "n0"
    assert world.sent == []
    write_common(world)
    assert {bind.uid for bind in world.sent} == {"p", "q", "r", "alone"}


def test_those_who_share_keep_their_places_while_they_wait() -> None:
    """R3, A13: a look at what a gang holds does not take its claim for another's, whichever member
    it looks at.
    """
    world = sharing(slice_of("n0", "g0"), slice_of("n1", "g0"), mode=Mode.NON_STRICT, large="r")
    for _ in range(5):
        assert {uid: world.state.members[uid].state for uid in ("p", "q")} == {
            "p": State.HELD,
            "q": State.HELD,
        }
        assert world.state.members["p"].node == world.state.members["q"].node != ""
        world.say(Applied(node("n2")))
        world.advance(1.0)
        world.settle()
    assert world.unanswered == []
    world.delete(world.pods["on-" + world.state.members["p"].node])
    world.settle()
    write_common(world)
    assert {bind.uid for bind in world.sent} == {"p", "q", "r"}


def test_those_who_joined_are_planned_again_if_the_write_fails() -> None:
    """A18: nobody waits for a claim that is not allocated any more."""
    world = sharing(slice_of("n0", "g0"))
    world.create([sharer("alone")])
    world.settle()
    (order,) = world.unanswered
    world.unanswered.clear()
    world.say(BindFailed("p", "n0", "allocating devices: the server said 422"))
    world.settle()
    assert world.sent == []
    assert {world.state.members[uid].state for uid in ("p", "q", "r", "alone")} == {State.RETRY}
    world.advance(10.0)
    world.settle()
    write_common(
        world, by=next(each.uid for each in world.unanswered if isinstance(each, BindClaims))
    )
    assert {bind.uid for bind in world.sent} == {"p", "q", "r", "alone"}
    assert order.node == "n0"


def test_a_shared_claim_that_a_kill_left_is_used_where_it_is() -> None:
    """A21: all join it, although only the first was written as its consumer."""
    world = sharing(slice_of("n0", "g0"), slice_of("n1", "g0"), left=common(5, "g0", on="n1"))
    assert {bind.uid: [each.name for each in bind.claims] for bind in world.sent} == {
        "p": [],
        "q": ["s"],
        "r": ["s"],
    }
    assert {bind.node for bind in world.sent} == {"n1"}


@pytest.mark.parametrize("here", ["n0", "n1"])
def test_who_has_devices_on_a_node_goes_there_before_others_take_its_room(here: str) -> None:
    """A21: members that are alike but for devices that an earlier start got are not alike: in the
    usual order the first one takes the only node of the second.
    """
    world = World(node("n0", gpus=1), node("n1", gpus=1), rules=Rules(allocates=True))
    world.say(Replaced(ResourceSlice, (slice_of("n0", "g0"), slice_of("n1", "g0"))))
    world.say(Replaced(DeviceClass, (DeviceClass("gpu"),)), Replaced(DeviceTaintRule, ()))
    world.say(Replaced(ResourceClaim, (claim("second", 5, "g0", on=here),)))
    metadata = gang_metadata("g", min_member=2)
    uses = (ClaimUse("second", ephemeral=True, device=True),)
    world.create(
        pod("first", uid="first", gpus=1, gang_metadata=metadata),
        pod("second", uid="second", gpus=1, claims=uses, gang_metadata=metadata),
    )
    world.settle()

    assert world.bound()["second"] == here
    assert len(world.bound()) == 2


def with_a_device_and_no_volume(*, preempts: bool, is_left: bool) -> World:
    """The only device belongs to a pod of low priority that waits for its volume; `is_left`: since
    before a restart.
    """
    world = World(node("n0"), rules=Rules(allocates=True), preempts=preempts)
    world.controller = False
    world.fate = lambda _: "later"
    world.say(Replaced(ResourceSlice, (slice_of("n0", "g0"),)))
    world.say(Replaced(DeviceClass, (DeviceClass("gpu"),)), Replaced(DeviceTaintRule, ()))
    # Another process may have written them, before it was killed.
    before = claim("low", 5, "g0") if is_left else claim("low")
    world.say(Replaced(ResourceClaim, (before, claim("high"), claim("behind"))))
    world.say(Applied(LATE), Applied(NOT_MADE))
    uses = (ClaimUse("low", ephemeral=True, device=True), ClaimUse("c"))
    world.create(pod("low", uid="low", claims=uses, gang_metadata=gang_metadata("g", min_member=1)))
    world.settle()
    world.unanswered.clear()
    asked = msgspec.structs.replace(NOT_MADE, resource_version="7", selected_node="n0")
    world.say(Applied(claim("low", 5, "g0")), Applied(asked))
    versions = {"ns/c": "7"} if is_left else {"resourceclaims/ns/low": "5", "ns/c": "7"}
    world.say(ClaimsWritten("low", versions))
    world.settle()
    assert world.state.members["low"].state is State.WAITING_FOR_CLAIMS
    return world


def wants(name: str, priority: int) -> Pod:
    """A gang of one pod that wants the device."""
    uses = (ClaimUse(name, ephemeral=True, device=True),)
    metadata = gang_metadata(name[0], min_member=1)
    return pod(name, uid=name, priority=priority, claims=uses, gang_metadata=metadata)


@pytest.mark.parametrize("preempts", [True, False])
@pytest.mark.parametrize("is_left", [True, False])
def test_devices_of_who_gives_way_are_used_once_they_are_written_free(
    *,
    preempts: bool,
    is_left: bool,
) -> None:
    """V6, D1: the claim of the lower priority has them in the API until then, and the API server
    would give them to two claims. Its room is free at once, as before.
    """
    world = with_a_device_and_no_volume(preempts=preempts, is_left=is_left)
    world.create(wants("high", 5))
    world.settle()
    assert [each.uid for each in world.released] == ["low"]
    assert world.unanswered == []
    assert world.state.members["high"].state is State.PENDING

    world.say(ClaimsReleased({"resourceclaims/ns/low": "6"}), Applied(claim("low", 6)))
    world.settle()
    assert chosen(world) == {"high": ("n0", "g0")}


@pytest.mark.parametrize("preempts", [True, False])
def test_devices_that_somebody_gives_up_are_not_taken_by_a_third_one(*, preempts: bool) -> None:
    """V6, D1: who is decided after the one that they are given up for would have them twice."""
    world = with_a_device_and_no_volume(preempts=preempts, is_left=False)
    world.create(wants("high", 5), wants("behind", 0))
    world.settle()
    assert [each.uid for each in world.released] == ["low"]
    assert world.unanswered == []

    world.say(ClaimsReleased({"resourceclaims/ns/low": "6"}), Applied(claim("low", 6)))
    world.settle()
    assert chosen(world) == {"high": ("n0", "g0")}
