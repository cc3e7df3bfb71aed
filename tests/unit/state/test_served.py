"""Extended resources that devices serve: which gangs start, with which claims, and what becomes of
those claims.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest

from gangsched.core.node_terms import NODE_NAME_FIELD
from gangsched.model.devices import (
    CLASS_PREFIX,
    Device,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    DeviceResult,
    DeviceTaintRule,
    NodeScope,
    ResourceSlice,
)
from gangsched.model.inter_pod import Requirement
from gangsched.model.objects import ClaimUse, ExtendedResource, Node, NodeSelectorTerm, Pod, Shape
from gangsched.model.protocol import (
    Applied,
    Bind,
    BindClaims,
    BindFailed,
    ClaimsReleased,
    ClaimsWritten,
    Gone,
    Replaced,
)
from gangsched.model.reasons import Reason
from gangsched.model.storage import ResourceClaim
from gangsched.sentences import say
from gangsched.state import served as served_module
from gangsched.state.members import State
from gangsched.state.rule_set import Rules
from gangsched.state.served import CLAIMED_AT_A_TIME, ServedResources
from gangsched.state.validate import validate
from tests.builders import amounts, gang_metadata, node, pod, running
from tests.sizes import of_size
from tests.world import World

A, B = "nvidia.com/gpu", "example.com/npu"
CLASSES = tuple(
    DeviceClass(f"class-{model}", (f'device.attributes["d"].model == "{model}"',), name)
    for model, name in (("a", A), ("b", B))
)
ON_N0 = NodeSelectorTerm(fields=(Requirement(NODE_NAME_FIELD, "In", ("n0",)),))
SHAPES: dict[tuple[int, int], Shape] = {}


def wanting(a: int, b: int = 0) -> Shape:
    """A shape that requests so many of both resources in one container."""
    if (a, b) not in SHAPES:
        asked = [
            (name, count, index) for name, count, index in ((B, b, 1), (A, a, 1 + (b > 0))) if count
        ]
        extended = tuple(
            ExtendedResource(
                name,
                ((f"container-0-request-{index}", count),),
                (("main", f"container-0-request-{index}"),),
            )
            for name, count, index in asked
        )
        requests = tuple(
            sorted((*amounts(cpu_milli=100, pods=1), *((name, count) for name, count, _ in asked)))
        )
        SHAPES[a, b] = Shape(requests=requests, extended=extended)
    return SHAPES[a, b]


def offering(name: str, **amounts_of: int) -> Node:
    """A node whose device plugins offer these; `a` and `b` for short."""
    plain = node(name, gpus=0)
    more = [({"a": A, "b": B}[key], count) for key, count in amounts_of.items() if count]
    return msgspec.structs.replace(plain, allocatable=tuple(sorted((*plain.allocatable, *more))))


def devices_of(name: str, models: Sequence[str]) -> ResourceSlice:
    """A slice of a node with devices of these models."""
    made = tuple(
        Device(name=f"{model}{n}", attributes={"model": ("string", model)})
        for n, model in enumerate(models)
    )
    return ResourceSlice(name=name, driver="d", pool=name, scope=NodeScope(name), devices=made)


def network(models: Sequence[str], zone: str = "", *, name: str = "net") -> ResourceSlice:
    """A slice with devices of these models for the nodes of a zone, or for all nodes."""
    scope = (
        NodeScope(terms=(NodeSelectorTerm(labels=(Requirement("zone", "In", (zone,)),)),))
        if zone
        else NodeScope(everywhere=True)
    )
    return msgspec.structs.replace(devices_of(name, models), scope=scope)


def world_of(
    nodes: Sequence[Node],
    slices: Sequence[ResourceSlice],
    *,
    claims: Sequence[ResourceClaim] = (),
    classes: Sequence[DeviceClass] = CLASSES,
    rules: Rules | None = None,
    preempts: bool = False,
) -> World:
    """A cluster in which devices serve both resources; writes of claims are answered by
    the test.
    """
    world = World(*nodes, rules=rules or Rules(allocates=True), preempts=preempts)
    world.controller = False
    world.fate = lambda _: "later"
    world.say(Replaced(DeviceClass, tuple(classes)), Replaced(ResourceSlice, tuple(slices)))
    world.say(Replaced(DeviceTaintRule, ()), Replaced(ResourceClaim, tuple(claims)))
    return world


def gang_of(*shapes: Shape) -> list[Pod]:
    """Members of one gang, all of which are needed."""
    meta = gang_metadata("g", min_member=len(shapes))
    return [
        pod(f"g-{n}", uid=f"u{n}", of=each, gang_metadata=meta) for n, each in enumerate(shapes)
    ]


def placed(world: World) -> dict[str, tuple[str, BindClaims | Bind]]:
    """By uid, the node of each pod that is to be bound and the action for it."""
    orders = [*world.sent, *world.unanswered]
    return {each.uid: (each.node, each) for each in orders if isinstance(each, BindClaims | Bind)}


def made(
    name: str = "g-0",
    uid: str = "u0",
    *devices: str,
    version: int = 3,
    count: int = 1,
    **fields: Any,
) -> ResourceClaim:
    """The claim that a start of this pod created, with these devices of n0."""
    full, request = f"{name}-extended-resources-{uid}", "container-0-request-1"
    results = tuple(DeviceResult(request, ("d", "n0", each)) for each in devices) or None
    asked = ((DeviceRequest(name=request, class_name="class-a", count=count),),)
    return ResourceClaim(
        namespace="ns",
        name=full,
        uid=f"claim-{uid}",
        resource_version=str(version),
        allocated=results is not None,
        required=(ON_N0,) if results else None,
        reserved=(uid,) if results else (),
        asks=DeviceClaim(
            namespace="ns", name=full, uid=f"claim-{uid}", requests=asked, results=results
        ),
        **{"owner_uid": uid, **fields},
    )


# --- which gangs start --------------------------------------------------------------------------


def fits(capacity: Sequence[Counter[str]], shapes: Sequence[Shape]) -> bool:
    """Whether the pods fit on nodes with so much of each resource, whoever provides it; knows
    nothing of devices.
    """
    for choice in product(range(len(capacity)), repeat=len(shapes)):
        used = [Counter[str]() for _ in capacity]
        for number, of in zip(choice, shapes, strict=True):
            used[number].update({name: amount for name, amount in of.requests if name in {A, B}})
        if all(used[n][name] <= capacity[n][name] for n in range(len(capacity)) for name in (A, B)):
            return True
    return False


@pytest.mark.long
@pytest.mark.parametrize("block", range(4))
def test_a_gang_starts_if_plugins_and_devices_let_it(block: int) -> None:
    """A6 beside brute force: nodes offer each resource by a plugin or by devices, some of which are
    in use.
    """
    starts, seeds = 0, of_size(40, 100)
    for seed in range(block * 100, block * 100 + seeds):
        rng = Random(seed)
        nodes, slices, capacity = [], [], []
        held: list[ResourceClaim] = []
        for number in range(rng.choice([1, 2, 3])):
            name = f"n{number}"
            plugin = {key: rng.choice([0, 0, 1, 2]) for key in "ab"}
            models = rng.choices("ab", k=rng.randrange(4))
            nodes.append(offering(name, **plugin))
            slices.append(devices_of(name, models))
            left = Counter(
                {{"a": A, "b": B}[key]: plugin[key] or models.count(key) for key in "ab"}
            )
            if models and not plugin[models[0]] and rng.random() < 0.3:
                result = DeviceResult("r", ("d", name, f"{models[0]}0"))
                asks = DeviceClaim(namespace="ns", name=f"held-{name}", results=(result,))
                held.append(
                    ResourceClaim(
                        namespace="ns",
                        name=asks.name,
                        uid=name,
                        allocated=True,
                        reserved=("x",),
                        asks=asks,
                    )
                )
                left[{"a": A, "b": B}[models[0]]] -= 1
            capacity.append(left)
        shapes = [
            wanting(*rng.choice([(1, 0), (2, 0), (0, 1), (1, 1)]))
            for _ in range(rng.choice([1, 2, 3]))
        ]
        world = world_of(nodes, slices, claims=held)
        world.create(gang_of(*shapes))
        world.settle()
        assert validate(world.state) == [], seed
        found = placed(world)
        assert bool(found) == fits(capacity, shapes), seed
        starts += bool(found)
        check(world, found, nodes, shapes, seed)
    assert seeds // 5 < starts < seeds * 19 // 20, starts


def check(
    world: World,
    found: dict[str, tuple[str, BindClaims | Bind]],
    nodes: Sequence[Node],
    shapes: Sequence[Shape],
    seed: int,
) -> None:
    """Each pod has devices for just what its node does not offer by itself, and no device is in use
    twice.
    """
    offers = {each.name: dict(each.allocatable) for each in nodes}
    taken: set[object] = set()
    for uid, (on, order) in found.items():
        wanted = dict(shapes[int(uid[1:])].requests)
        through = {
            name: wanted[name] for name in (A, B) if wanted.get(name) and not offers[on].get(name)
        }
        selections = order.claims if isinstance(order, BindClaims) else ()
        assert len(selections) == bool(through), seed
        for each in selections:
            assert each.makes is not None
            assert each.allocation is not None
            assert {resource for _, resource, _ in each.makes.users} == through.keys(), seed
            of_request = Counter(result.request for result in each.allocation.results)
            assert sum(of_request.values()) == sum(through.values())
            assert [(one.name, one.count) for one in each.makes.requests] == sorted(
                of_request.items()
            ), seed
            ids = {result.id for result in each.allocation.results}
            assert taken.isdisjoint(ids), seed
            assert {pool for _, pool, _ in ids} == {on}
            taken |= ids


def test_the_newest_class_serves_then_the_first_by_name() -> None:
    """A6: of two classes for one resource; and each serves its own name, too."""
    classes = [DeviceClass("y", (), A, creation_s=2), DeviceClass("x", (), A, creation_s=1)]
    world = world_of([node("n0", gpus=0)], [devices_of("n0", "a")], classes=classes)
    serving = world.state.cluster.storage_cache.allocator
    assert serving is not None
    assert serving.extended == {A: "y", CLASS_PREFIX + "x": "x", CLASS_PREFIX + "y": "y"}
    world.say(Applied(DeviceClass("x", (), A, creation_s=2)))
    assert serving.extended[A] == "x"
    world.say(Gone(DeviceClass, "x"))
    assert serving.extended == {A: "y", CLASS_PREFIX + "y": "y"}


def test_a_class_that_comes_and_goes() -> None:
    """Without a class nobody offers the resource; with one the gang starts; once it is gone nobody
    does again.
    """
    world = world_of([node("n0", gpus=0)], [devices_of("n0", "aa")], classes=())
    world.create(gang_of(wanting(2)))
    world.settle()
    assert world.verdict("ns/g").reason is Reason.UNSCHEDULABLE
    assert A in say(world.verdict("ns/g").told).text
    world.say(Applied(CLASSES[0]))
    world.settle()
    assert set(placed(world)) == {"u0"}
    world.say(Gone(DeviceClass, CLASSES[0].name))
    assert validate(world.state) == []
    assert world.state.members["u0"].pod.claims[0].extended, "its claim is still to be deleted"


def waiting_for_a_class(number: int, devices: str) -> World:
    """So many pods that a class of devices will serve, and a node with devices."""
    world = world_of([node("n0", gpus=0)], [devices_of("n0", devices)], classes=())
    alone = [pod(f"p{n:03}", uid=f"p{n:03}", of=wanting(1)) for n in range(number)]
    world.create(alone)
    return world.settle()


def test_pods_are_given_the_claims_of_a_new_class_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 pods at once took 13 ms for each edit of a class, and a turn of 90 ms for five."""
    world = waiting_for_a_class(2 * CLAIMED_AT_A_TIME, "a")
    claimed = [0]
    claim = ServedResources.claimed

    def counted(served: ServedResources, each: Pod) -> Pod:
        claimed[-1] += 1
        return claim(served, each)

    monkeypatch.setattr(ServedResources, "claimed", counted)
    for number in range(11):
        world.say(Applied(msgspec.structs.replace(CLASSES[0], extended_resource=A * (number % 2))))
    world.say(Applied(CLASSES[0]))
    assert claimed == [0]
    for _ in range(3):
        claimed.append(0)
        world.turn()
    assert claimed == [0, CLAIMED_AT_A_TIME, CLAIMED_AT_A_TIME, 0]


def test_no_pod_takes_a_device_without_a_claim_while_others_are_given_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A6: a node offers what its devices serve once each pod that may want it has its claim."""
    monkeypatch.setattr(served_module, "CLAIMED_AT_A_TIME", 1)
    world = waiting_for_a_class(4, "aa")
    world.say(Applied(CLASSES[0]))
    for number in range(8):
        if number == 1:  # comes meanwhile, with its claim
            world.create([pod("new", uid="new", of=wanting(1))])
        world.turn()
        assert validate(world.state) == []
        for _, order in placed(world).values():
            assert isinstance(order, BindClaims)
    assert len(placed(world)) == 2


def test_a_list_of_classes_serves_waiting_pods_at_once() -> None:
    """As at a start, where no plan may be made on half of it."""
    world = waiting_for_a_class(2 * CLAIMED_AT_A_TIME, "a")
    world.say(Replaced(DeviceClass, CLASSES))
    world.turn()
    assert len(placed(world)) == 1
    assert all(member.pod.claims for member in world.state.members.all())


def test_another_class_changes_the_rows_of_its_resources_alone() -> None:
    """To read 5,000 nodes anew at each edit of a class took 30 ms; what is used there, and what
    ends with the node, has a row for the new resource, too.
    """
    world = waiting_for_a_class(1, "a")
    daemon = pod("daemon", uid="daemon", of=wanting(1), mirror=True)
    world.create([running(daemon, "n0")])
    world.settle()
    filled = world.state.cluster._fill_columns
    world.state.cluster._fill_columns = lambda: pytest.fail("all columns")  # type: ignore[method-assign]
    for classes in ((CLASSES[0],), (), (CLASSES[0],)):
        world.say(Replaced(DeviceClass, classes))
        world.settle()
        assert validate(world.state) == []
        by_rows = world.state.snapshot()
        cluster = world.state.cluster
        assert by_rows.overhead is not None
        assert by_rows.overhead.shape == by_rows.free.shape
        before = (by_rows.allocatable, by_rows.free, by_rows.overhead)
        filled()
        assert cluster._overhead_columns is not None
        after = (cluster._allocatable, cluster._free, cluster._overhead_columns)
        for rows, columns in zip(before, after, strict=True):
            assert np.array_equal(rows, columns)


def test_slices_and_plugins_that_come_and_go() -> None:
    """What a node offers follows its slices; a plugin that registers takes over, and the gang needs
    no claim then.
    """
    world = world_of([node("n0", gpus=0)], [devices_of("n0", "a")])
    world.create(gang_of(wanting(2)))
    world.settle()
    assert placed(world) == {}
    world.say(Applied(devices_of("n0", "aaa")))
    assert validate(world.state) == []
    world.say(Applied(devices_of("n0", "a")))
    assert validate(world.state) == []
    world.add_nodes(offering("n0", a=2))
    world.settle()
    ((_, order),) = placed(world).values()
    assert isinstance(order, Bind)
    assert order.claims == ()


def test_a_pool_of_several_nodes_serves_them() -> None:
    """What nodes offer follows slices that name no node, as they grow, shrink and go; so do gangs
    that wait.
    """
    world = world_of([node("n0", gpus=0), node("n1", gpus=0)], [network("a")])
    world.create(gang_of(wanting(2), wanting(1)))
    world.settle()
    assert placed(world) == {}
    for models in ("aa", "ab", "a"):
        world.say(Applied(network(models)))
        world.settle()
        assert validate(world.state) == []
        assert placed(world) == {}
    world.say(Applied(network("aaa")))
    world.settle()
    assert validate(world.state) == []
    assert sorted(each for order in orders(world).values() for each in device(order)) == [
        "a0",
        "a1",
        "a2",
    ]
    assert [each.required for order in orders(world).values() for each in order.claims] == [
        None,
        None,
    ]
    world.say(Gone(ResourceSlice, "net"))
    assert validate(world.state) == []
    row = world.state.snapshot().resources[A]
    assert world.state.snapshot().allocatable[row].tolist() == [0, 0]


def test_nodes_that_a_pool_does_not_reach_are_closed() -> None:
    """A pool of a zone beside a device plugin in another one: a gang of three uses both and no
    third node.
    """
    zones = {"n0": "y", "n1": "z", "n2": "x"}
    nodes = [
        msgspec.structs.replace(offering(name, a=2 * (name == "n1")), labels={"zone": zone})
        for name, zone in zones.items()
    ]
    world = world_of(nodes, [network("ab", "y")])
    world.create(gang_of(wanting(1), wanting(1), wanting(1)))
    world.settle()
    assert validate(world.state) == []
    assert sorted(each.node for each in world.state.members.all()) == ["n0", "n1", "n1"]
    (order,) = orders(world).values()
    (selection,) = order.claims
    assert selection.required == (NodeSelectorTerm(labels=(Requirement("zone", "In", ("y",)),)),)
    world.create(
        [pod("late", uid="late", of=wanting(1), gang_metadata=gang_metadata("late", min_member=1))]
    )
    world.settle()
    said = say(world.verdict("ns/late").told).text
    assert "2 cannot allocate all claims" in said
    assert f"1 Insufficient {A}" in said


def test_devices_of_a_node_and_of_a_pool_serve_together() -> None:
    """Two pods find one device of their node and two of a pool that both nodes reach; a third
    device is too many.
    """
    for wanted, starts in (((2, 1), True), ((2, 2), False), ((3,), True), ((1, 1, 1), True)):
        world = world_of(
            [node("n0", gpus=0), node("n1", gpus=0)], [devices_of("n0", "a"), network("aa")]
        )
        world.create(gang_of(*map(wanting, wanted)))
        world.settle()
        assert bool(placed(world)) == starts, wanted
        assert validate(world.state) == []


# --- what becomes of claims ---------------------------------------------------------------------


def starting(*claims: ResourceClaim, shapes: Sequence[Shape] = (wanting(1), wanting(1))) -> World:
    """A gang on a node of two devices; these claims exist."""
    world = world_of([node("n0", gpus=0)], [devices_of("n0", "aa")], claims=claims)
    world.create(gang_of(*shapes))
    return world.settle()


def orders(world: World) -> dict[str, BindClaims]:
    """Claims that are being written, by uid of the pod."""
    return {each.uid: each for each in world.unanswered if isinstance(each, BindClaims)}


def write(world: World, uid: str, *, shown: bool = True) -> None:
    """The API server takes the writes for a pod; our watch shows them, or does not yet."""
    order = orders(world)[uid]
    world.unanswered.remove(order)
    (selection,) = order.claims
    if shown:
        world.say(Applied(made(order.name, uid, *device(order), version=5)))
    world.say(ClaimsWritten(uid, {selection.key: "5"}))
    world.settle()


def device(order: BindClaims) -> list[str]:
    """What is written for a pod."""
    (selection,) = order.claims
    assert selection.allocation is not None
    return [each.id[2] for each in selection.allocation.results]


def test_binds_leave_once_our_watch_shows_the_claims_that_were_made() -> None:
    """A16, A17: a claim that our watch does not show yet was not deleted; the binds wait for it."""
    world = starting()
    second = orders(world)["u1"]
    write(world, "u0")
    write(world, "u1", shown=False)
    assert world.sent == []
    assert world.state.members["u1"].state is State.WAITING_FOR_CLAIMS
    world.say(Applied(made("g-1", "u1", *device(second), version=5)))
    world.settle()
    assert {each.uid for each in world.sent} == {"u0", "u1"}


def test_a_claim_that_is_deleted_before_the_look() -> None:
    """Whoever deletes it, even before the answer to our write: the start fails, and the other claim
    is deleted.
    """
    world = starting()
    order = orders(world)["u1"]
    write(world, "u0")
    world.say(Applied(made("g-1", "u1", version=4)), Gone(ResourceClaim, order.claims[0].key))
    write(world, "u1", shown=False)
    assert world.sent == []
    assert world.state.members["u0"].state is not State.WAITING_FOR_CLAIMS


@pytest.mark.parametrize("devices", [(), ("a0",)])
def test_the_claim_of_an_interrupted_start_is_used(devices: tuple[str, ...]) -> None:
    """A21: with its devices if it has some, else it gets some; the pod is told either way, and
    nothing is created.
    """
    world = starting(made("g-0", "u0", *devices))
    if devices:
        assert set(orders(world)) == {"u1"}
        assert device(orders(world)["u1"]) == ["a1"]
        write(world, "u1")
        (bind,) = (each for each in world.sent if each.uid == "u0")
        (selection,) = bind.claims
        assert selection.allocation is None
    else:
        (selection,) = orders(world)["u0"].claims
        assert selection.allocation is not None
    assert (selection.uid, selection.makes is not None) == ("claim-u0", True)


@pytest.mark.parametrize("left", [made(count=2), made("g-0", "u0", "a0", count=2)])
def test_a_claim_that_requests_something_else_is_deleted(left: ResourceClaim) -> None:
    """A class or plugin changed since: the pod waits until the claim is gone, then gets another
    one.
    """
    world = starting(left)
    assert orders(world) == {}
    (released,) = world.released
    assert [each.key for each in released.claims] == [left.key]
    assert released.claims[0].makes is not None
    world.settle()
    assert len(world.released) == 1, "while it is being deleted nothing is tried again"
    world.say(Gone(ResourceClaim, left.key), ClaimsReleased({left.key: "9"}))
    world.settle()
    assert set(orders(world)) == {"u0", "u1"}


def test_a_claim_that_is_not_the_pods_is_left_alone() -> None:
    """A tenant may make a claim with the name of ours; it is neither used nor deleted."""
    world = starting(made(owner_uid="other"))
    assert orders(world) == {}
    assert world.released == []
    assert "was not created for pod ns/g-0" in say(world.verdict("ns/g").told).text


def test_a_pod_that_is_bound_keeps_what_its_status_says() -> None:
    """Its claim is the one that its status names; one on a node with a plugin has none."""
    world = starting()
    for uid in ("u0", "u1"):
        write(world, uid)
    use = world.state.members["u0"].pod.claims
    world.update(world.pods["u0"], node_name="n0", claims=use)
    assert world.state.members["u0"].pod.claims == use
    world.update(world.pods["u1"], node_name="n0")
    assert world.state.members["u1"].pod.claims == ()
    assert validate(world.state) == []
    assert use == (
        ClaimUse("g-0-extended-resources-u0", ephemeral=True, device=True, extended=True),
    )


def test_a_failed_write_frees_the_room() -> None:
    """The devices are free for others at once, and the gang is planned again."""
    world = starting()
    write(world, "u0")
    (order,) = orders(world).values()
    world.unanswered.remove(order)
    world.say(BindFailed("u1", "n0", "allocating devices: no"))
    world.settle()
    assert [each.claims[0].key for each in world.released] == [made("g-0", "u0").key]
