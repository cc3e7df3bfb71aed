"""PlacementReviews: what they answer is what happens, and nothing is changed by asking."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import pytest

from gangsched.api import keys
from gangsched.core.cycle import Limits
from gangsched.kube.read.shapes import ShapeTable
from gangsched.kube.read.templates import template_pod
from gangsched.model.devices import (
    Device,
    DeviceClaim,
    DeviceClass,
    DeviceResult,
    DeviceTaintRule,
    NodeScope,
    ResourceSlice,
)
from gangsched.model.objects import Pod, Taint
from gangsched.model.protocol import Replaced
from gangsched.model.reservation import ReservationLimits
from gangsched.model.storage import ResourceClaim
from gangsched.state.preemption import running
from gangsched.state.rule_set import Rules
from gangsched.state.validate import validate
from gangsched.visibility.ports import ApiAnswer, Clocks, Json
from gangsched.visibility.reviews.holders import holders
from gangsched.visibility.reviews.request import Review, read_review
from gangsched.visibility.reviews.review import Reviewer
from gangsched.visibility.reviews.suggestions import suggestions
from gangsched.visibility.statuses import RequestRefused
from tests.autoscaler import world_with_new_node
from tests.builders import members, node, pod, pod_group
from tests.sizes import of_size
from tests.world import EPOCH_S, World

# the last three once found reservations that took turns
SEEDS = (*range(of_size(60, 400)), 453, 498, 834)


def body(*sets: Json, **gang: Any) -> bytes:
    """A PlacementReview."""
    spec = {"gang": gang, "podSets": list(sets)}
    kind = {"apiVersion": "visibility.gangsched.dev/v1alpha1", "kind": "PlacementReview"}
    return json.dumps({**kind, "spec": spec}).encode()


def pod_set(count: int, gpus: int = 1, name: str = "worker", **spec: Any) -> Json:
    """A set of like pods."""
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "1"}
    containers = [{"name": "c", "image": "i", "resources": {"limits": limits}}]
    return {
        "name": name,
        "count": count,
        "template": {"spec": {"containers": containers, **OURS, **spec}},
    }


OURS: Json = {"schedulerName": "gangsched"}


class Asked:
    """Reviews of a world."""

    def __init__(self, world: World, *classes: Json) -> None:
        self.world = world
        self.classes = list(classes)
        limits = world.limits or Limits()
        clocks = Clocks(now_s=lambda: world.now_s, wall_s=lambda: EPOCH_S + world.now_s)
        self.reviewer = Reviewer(
            world.state, self._call, clocks, partial(template_pod, shapes=ShapeTable()), limits
        )
        self.pods: tuple[Pod, ...] = ()

    async def _call(self, method: str, path: str, body: Json | None = None) -> ApiAnswer:
        return ApiAnswer(200, {"items": self.classes})

    async def review(self, text: bytes, *, sees_nodes: bool = True, is_master: bool = True) -> Json:
        """The status."""
        review: Review = read_review(text)
        wanted = await self.reviewer.wanted("ns", review, is_master=is_master)
        self.pods = wanted.pods
        about = self.reviewer.hypothetical(wanted)
        tried = self.reviewer.attempt(about.group)
        status = self.reviewer.status(tried, about, review, sees_nodes=sees_nodes)
        advice = self.reviewer.advice(wanted, about)
        if not status["fits"]:
            held = holders(self.reviewer, tried, about)
            status |= {"holders": held} if held is not None else {}
            advice += suggestions(self.reviewer, tried, sees_nodes=sees_nodes)
        return {**status, "suggestions": advice}


def tree(*parts: Json, sets: Sequence[Json], **gang: Any) -> bytes:
    """A PlacementReview of a tree."""
    asked = json.loads(body(*sets, **gang))
    asked["spec"]["parts"] = list(parts)
    return json.dumps(asked).encode()


def of_part(part: str, count: int, gpus: int = 1) -> Json:
    """Pods of a part, in a set of its name."""
    return {**pod_set(count, gpus, name=part), "part": part}


REPLICAS: list[Json] = [
    {"name": "svc", "minChildren": 1},
    *({"name": name, "parent": "svc", "topology": "rack"} for name in "ab"),
    *(
        {"name": f"{name}-{role}", "parent": name}
        for name in "ab"
        for role in ("leader", "workers")
    ),
]


async def test_a_tree_is_shown_part_by_part() -> None:
    """M4: which child fits and where, and what each other one lacks; another one may not start in
    its place.
    """
    racks = [node(f"r{rack}", 4, labels={"rack": f"r{rack}"}) for rack in range(2)]
    world = World(*racks)
    sets = [
        of_part("a-leader", 1),
        of_part("a-workers", 2),
        of_part("b-leader", 1),
        of_part("b-workers", 4),
    ]
    asked = Asked(world)
    status = await asked.review(tree(*REPLICAS, sets=sets))
    found = {each["name"]: each for each in status["parts"]}
    assert status["fits"]
    assert " ".join(found) == "svc a a-leader a-workers b b-leader b-workers"
    assert (found["svc"]["minChildren"], found["svc"]["ready"], found["svc"]["placed"]) == (1, 2, 1)
    assert found["a"] == {
        "name": "a",
        "parent": "svc",
        "minChildren": 2,
        "ready": 2,
        "placed": 2,
        "fits": True,
        "domain": found["a"]["domain"],
    }
    assert found["a"]["domain"] in {"rack=r0", "rack=r1"}
    assert found["b"]["fits"] is False
    assert (
        "needs 4 pods" in found["b-workers"]["message"]
        or "needs 5 pods" in found["b-workers"]["message"]
    )
    hidden = await asked.review(tree(*REPLICAS, sets=sets), sees_nodes=False)
    assert not any("domain" in each for each in hidden["parts"])
    assert not validate(world.state)
    assert not world.state.registry.gangs


async def test_a_tree_that_does_not_fit_says_what_each_part_lacks() -> None:
    """M4: the refusal is that of the tree, and no suggestion is made for one of its gangs alone."""
    world = World(node("n", 2))
    sets = [of_part("a", 2), of_part("b", 2)]
    status = await Asked(world).review(
        tree({"name": "a", "parent": "p"}, {"name": "b", "parent": "p"}, sets=sets)
    )
    assert (status["fits"], status["reason"], status["suggestions"]) == (False, "Unschedulable", [])
    assert [(each["name"], each["fits"]) for each in status["parts"]] == [
        ("p", False),
        ("a", False),
        ("b", False),
    ]


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}], "has pods itself"),
        (
            [
                {"name": "a", "parent": "c"},
                {"name": "b"},
                {"name": "c", "parent": "d"},
                {"name": "d", "parent": "c"},
            ],
            "circle",
        ),
        ([{"name": "a"}, {"name": "b"}], "the parts form 2 trees"),
    ],
)
async def test_parts_that_form_no_tree_are_refused_as_existing_ones_are(
    parts: list[Json], said: str
) -> None:
    """I9: with the same sentence."""
    status = await Asked(World(node("n", 8))).review(
        tree(*parts, sets=[of_part("a", 1), of_part("b", 1)])
    )
    assert not status["fits"]
    assert status["reason"] in {"InvalidGang", "WaitingForGang"}
    assert said in status["message"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (tree({"name": "A b"}, sets=[of_part("A b", 1)]), "is not the name of an object"),
        (tree({"name": ""}, sets=[of_part("", 1)]), "a part has a name"),
        (tree({"name": "a"}, {"name": "a"}, sets=[of_part("a", 1)]), "their names differ"),
        (tree({"name": "a"}, sets=[of_part("b", 1)]), 'there is no part "b"'),
        (tree({"name": "a"}, sets=[pod_set(1)]), "with spec.parts each set names one"),
        (body(of_part("a", 1)), "with spec.parts each set names one"),
        (tree({"name": "a"}, sets=[of_part("a", 1)], min=1), "each part has its own"),
        (
            tree({"name": "a", "minChildren": -1}, sets=[of_part("a", 1)]),
            "min and minChildren are 0 to",
        ),
        (
            tree(*({"name": f"p{n}"} for n in range(65)), sets=[of_part("p0", 1)]),
            "at most 64 are possible",
        ),
    ],
)
def test_parts_that_cannot_be_read_are_refused(asked: bytes, said: str) -> None:
    """422: the field is named, before anything is planned."""
    with pytest.raises(RequestRefused, match=re.escape(said)):
        read_review(asked)


async def test_a_gang_that_fits() -> None:
    """On which nodes of which kinds; names of nodes only for those who may list them."""
    world = World(
        node("a", labels={"nvidia.com/gpu.product": "A100"}), node("b"), node("c", 0)
    ).settle()
    asked = Asked(world)
    status = await asked.review(body(pod_set(2, 8), pod_set(1, 0, "driver")))
    assert status["fits"] is True
    assert status["reason"] == "Scheduled"
    assert {"kind": "8× nvidia.com/gpu A100", "count": 1} in status["nodes"]
    assert sum(each["count"] for each in status["assignments"]) == 3
    assert "assignments" not in await asked.review(body(pod_set(1)), sees_nodes=False)


@pytest.mark.parametrize("used", [0, 1])
async def test_extended_resources_that_devices_serve(used: int) -> None:
    """A6, A25: devices decide, which other claims may have; before any pod of the cluster requests
    the resource.
    """
    model = ("string", "gpu")
    parts = tuple(Device(name=f"g{number}", attributes={"model": model}) for number in range(3))
    other = Device(name="x", attributes={"model": ("string", "other")})
    world = World(node("a", 0), rules=Rules(allocates=True))
    served = DeviceClass("gpu", ('device.attributes["d"].model == "gpu"',), "nvidia.com/gpu")
    slices = ResourceSlice(
        name="a", driver="d", pool="a", scope=NodeScope("a"), devices=(*parts, other)
    )
    held = tuple(DeviceResult("r", ("d", "a", f"g{number}")) for number in range(used))
    asks = DeviceClaim(namespace="ns", name="held", results=held or None)
    claim = ResourceClaim(
        namespace="ns", name="held", uid="h", allocated=bool(held), reserved=("x",), asks=asks
    )
    world.say(
        Replaced(DeviceClass, (served,)),
        Replaced(ResourceSlice, (slices,)),
        Replaced(DeviceTaintRule, ()),
    )
    world.say(Replaced(ResourceClaim, (claim,)))
    asked = Asked(world.settle())
    status = await asked.review(body(pod_set(3)))
    assert status["fits"] is not bool(used)
    assert ("cannot allocate all claims" in status["message"]) is bool(used)
    assert (await asked.review(body(pod_set(2))))["fits"] is True
    assert validate(world.state) == []


async def test_extended_resources_before_classes_are_read() -> None:
    """A25: until a pod of the cluster requests an extended resource, nothing is known of classes,
    and the review says so; nothing is said where no class is ever read, or when it was.
    """
    for rules, is_read, is_said in (
        (Rules(allocates=True), False, True),
        (Rules(allocates=True), True, False),
        (Rules(), False, False),
    ):
        world = World(node("a", 0), rules=rules)
        world.say(*((Replaced(DeviceClass, ()),) if is_read else ()))
        status = await Asked(world.settle()).review(body(pod_set(1)))
        told = (
            "devices that serve nvidia.com/gpu are not counted: DeviceClasses are read once a pod"
            " requests"
        )
        assert any(each.startswith(told) for each in status["suggestions"]) is is_said


async def test_slices_of_a_template() -> None:
    """L6: the annotation of the template counts as on pods; pods of several sets have no index, and
    no problem.
    """
    racks = [node(f"n{number}", 3, labels={"rack": f"r{number}"}) for number in range(2)]
    asked = Asked(World(*racks).settle())
    of_two = pod_set(4)
    of_two["template"]["metadata"] = {
        "annotations": {keys.SLICES[0]: '[{"size": 2, "topology": "rack"}]'}
    }
    status = await asked.review(body(of_two))
    assert sorted(each["count"] for each in status["assignments"]) == [2, 2]
    several = await asked.review(
        body({**of_two, "count": 3}, {**of_two, "name": "driver", "count": 1})
    )
    assert (several["fits"], several["problems"]) == (True, [])
    refused = await asked.review(body({**of_two, "count": 6}))
    assert "2 of 3 slices fit" in refused["message"]


async def test_the_best_domains_of_a_required_level() -> None:
    """M4: how many pods each holds and lacks, by sums of free room; only for users who may list
    nodes.
    """
    racks = [node(f"n{number}", number, labels={"rack": f"r{number}"}) for number in range(1, 13)]
    asked = Asked(World(*racks).settle())
    of_one = pod_set(14)
    of_one["template"]["metadata"] = {"annotations": {keys.TOPOLOGY[0]: "rack"}}
    status = await asked.review(body(of_one))
    assert len(status["domains"]) == 10
    assert status["domains"][0] == {
        "domain": "rack=r12",
        "holds": 12,
        "lacks": 2,
        "refutedBy": "sums",
    }
    assert "domains" not in await asked.review(body(of_one), sees_nodes=False)
    assert "domains" not in await asked.review(body({**of_one, "count": 3}))
    assert "domains" not in await asked.review(body(pod_set(99)))


async def test_the_culprit_and_the_smallest_changes() -> None:
    """GPUs to be free on so many nodes, a smaller minimum, a toleration, the node selector: each
    was tried.
    """
    world = World(
        node("a", 8), node("b", 8), node("c", 8, taints=[Taint("team", "x", "NoSchedule")])
    )
    world.create([pod("busy", gpus=2, node_name="a", scheduler_name="other")])
    asked = Asked(world.settle())
    status = await asked.review(body(pod_set(2, 8)))
    assert status["fits"] is False
    assert "Insufficient nvidia.com/gpu" in status["message"]
    assert status["suggestions"] == [
        "2 more nvidia.com/gpu free on 1 node would let it start now",
        "a toleration of team=x:NoSchedule would let it start now",
        "a minimum of 1 instead of 2 would start now",
    ]
    selective = await asked.review(body(pod_set(1, 8, nodeSelector={"zone": "nowhere"})))
    assert selective["suggestions"] == [
        "without its node selector and required node affinity it would start now"
    ]
    never = await asked.review(body(pod_set(1, 9)))
    assert never["suggestions"] == []
    other = await asked.review(body(pod_set(1, 1, schedulerName="gangshed")))
    assert other["suggestions"] == ['schedulerName "gangshed" is not served here: set gangsched']


async def test_no_gang_is_to_tolerate_that_a_node_is_lost() -> None:
    """A taint that tells the state of a node is to go away, one of its owner to be tolerated."""
    lost = Taint("node.kubernetes.io/unreachable", "", "NoSchedule")
    world = World(node("a", 8), node("b", 8, taints=[lost, Taint("team", "x", "NoSchedule")]))
    asked = Asked(world.settle())
    status = await asked.review(body(pod_set(2, 8)))
    assert status["suggestions"] == [
        "a toleration of team=x:NoSchedule and 1 node without"
        " node.kubernetes.io/unreachable:NoSchedule would let it start now",
        "a minimum of 1 instead of 2 would start now",
    ]

    world = World(node("a", 8), node("b", 8, taints=[lost]), node("c", 8, taints=[lost]))
    asked = Asked(world.settle())
    status = await asked.review(body(pod_set(3, 8)))
    assert status["suggestions"][0] == (
        "2 nodes without node.kubernetes.io/unreachable:NoSchedule would let it start now"
    )


async def test_what_it_would_preempt() -> None:
    """Gangs of its namespace by name, of others by number; who may not list nodes learns no name of
    any.
    """
    world = World(node("a", 4), node("b", 4), preempts=True)
    world.create(
        members("mine", 2, gpus=2, priority=1),
        members("theirs", 1, gpus=4, priority=1, namespace="other"),
    )
    world.settle()
    high = {"metadata": {"name": "high"}, "value": 100}
    asked = Asked(world, high)
    status = await asked.review(body(pod_set(2, 4, priorityClassName="high")), sees_nodes=False)
    assert status["fits"] is True
    assert status["reason"] == "Preempting"
    assert status["preempts"] == [
        {"kind": "gang", "count": 1},
        {"kind": "gang", "namespace": "ns", "name": "mine", "count": 2},
    ]
    assert status["message"] == "it starts once 3 pods on its nodes have ended"
    low = await asked.review(body(pod_set(2, 4), priority=0))
    assert (low["fits"], low["preempts"]) == (False, [])
    with pytest.raises(RequestRefused, match='there is no PriorityClass "nosuch"'):
        await asked.review(body(pod_set(1), priorityClassName="nosuch"))


async def test_what_several_plans_find_out_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """V25: where one plan does not come to an end with what may be preempted, the next ones go on
    for the answer.
    """
    monkeypatch.setattr(running, "LOOKS_A_PLAN", 2)
    world = World(node("a", 8), preempts=True)
    world.create(members("low", 8, priority=1))
    asked = Asked(world.settle(), {"metadata": {"name": "high"}, "value": 100})
    status = await asked.review(body(pod_set(1, 8, priorityClassName="high")))
    assert (status["fits"], status["reason"]) == (True, "Preempting")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{" * 100_000,
        b'{"spec": {"podSets": 1}}',
        body(),
        body(pod_set(0)),
        body(pod_set(1_001)),
        body(*(pod_set(1, name=str(number)) for number in range(33))),
        body(pod_set(1), pod_set(1)),
        body(pod_set(1), min=0),
        body(pod_set(1), mode="Sometimes"),
        body(pod_set(1), priority=2**40),
        body(pod_set(1, nodeSelector={f"key-{number}": "x" for number in range(14_000)})),
        body({"name": "x", "count": 1, "template": {"spec": {"containers": []}}}),
        body({"name": "x", "count": 1, "template": {}}),
        body({"name": "x", "count": 1, "template": {"spec": 7}}),
        body(pod_set(1, containers=[{"resources": {"requests": {"cpu": "many"}}}])),
        body(pod_set(1, containers=[7])),
        b'{"kind": "Pod", "apiVersion": "v1"}',
    ],
)
async def test_bad_requests_are_refused(text: bytes) -> None:
    """400 or 422, never a plan."""
    world = World(node("a")).settle()
    with pytest.raises(RequestRefused) as refused:
        await Asked(world).review(text)
    assert refused.value.code in {400, 422}


def case(seed: int) -> tuple[World, bytes, str]:
    """A cluster on which work runs, waits and holds, and a review that may or may not fit; its
    mode.
    """
    rng = random.Random(seed)
    rules = (
        Rules(reservations=ReservationLimits(small_head_after_s=0.0))
        if rng.random() < 0.5
        else Rules()
    )
    taints = [Taint("team", "x", "NoSchedule")]
    sizes = [rng.choice((2, 4, 8)) for _ in range(rng.randint(1, 6))]
    nodes = [
        node(f"n{n}", size, taints=taints if rng.random() < 0.2 else ())
        for n, size in enumerate(sizes)
    ]
    world = World(*nodes, rules=rules, preempts=rng.random() < 0.5)
    for number in range(rng.randint(0, 6)):
        size, gpus = rng.randint(1, 4), rng.choice((1, 2, 4))
        mode = rng.choice(("Strict", "NonStrict"))
        expected = (
            (("gangsched.dev/expected-runtime", rng.choice(("60s", "1h"))),)
            if rng.random() < 0.5
            else ()
        )
        many = members(f"g{number}", size, gpus=gpus, mode=mode, priority=rng.choice((0, 5)))
        world.create([msgspec.structs.replace(each, run_time_metadata=expected) for each in many])
        world.settle()
    world.advance(rng.choice((0.0, 1.5, 70.0))).settle()
    mode = rng.choice(("Strict", "NonStrict"))
    sets = [
        pod_set(rng.randint(1, 4), rng.choice((0, 1, 2, 4, 8)), f"s{n}")
        for n in range(rng.randint(1, 2))
    ]
    total = sum(each["count"] for each in sets)
    return (
        world,
        body(
            *sets, name="new", min=rng.randint(1, total), mode=mode, priority=rng.choice((0, 0, 9))
        ),
        mode,
    )


def remembered(world: World) -> object:
    """All that the state remembers, as far as it can be compared."""
    state = world.state
    reservations = state.reservations
    return (
        sorted(
            (group.id, group.generation, group.rounds, group.yielded_to)
            for group in state.registry.groups.values()
        ),
        sorted(
            (uid, state.members[uid].state, state.members[uid].node) for uid in state.members.uids()
        ),
        {part: state.queue.part(part) for part in state.registry.groups},
        state.queue.next_deadline_s(),
        reservations.standing,
        reservations.next_deadline_s(),
        sorted(reservations.waiting.ids()),
        set(state.cluster.touched),
        id(state.snapshot()),
        state.preemptions.next_deadline_s(),
        len(state.preemptions.nominations.all()),
        state.snapshot().free.tolist(),
        validate(state),
    )


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
async def test_yes_means_that_it_starts_and_no_that_it_does_not(seed: int) -> None:
    """The same pods, applied as a PodGroup at once; and asking, also twice, leaves no trace."""
    world, text, mode = case(seed)
    before = remembered(world)
    asked = Asked(world)
    status = await asked.review(text)
    assert await asked.review(text) == status
    assert remembered(world) == before
    minimum = json.loads(text)["spec"]["gang"]["min"]
    label = (
        ("gang.scheduling.koordinator.sh/mode", mode),
        ("scheduling.x-k8s.io/pod-group", "new"),
    )
    created_s = int(EPOCH_S + world.now_s)
    world.declare(pod_group("new", minimum, creation_s=created_s))
    made = world.create(
        [
            msgspec.structs.replace(each, gang_metadata=label, uid=f"new-{each.uid}")
            for each in asked.pods
        ]
    )
    world.turn()
    group = world.state.registry.groups["ns/new"]
    assert group.verdict is not None
    starts = group.verdict.sent > 0 or bool(group.verdict.preemption and group.nomination)
    assert starts is status["fits"], (status, group.verdict.told)
    world.settle()
    if status["fits"] and status["reason"] == "Scheduled":
        bound = [each for each in made if world.pods[each.uid].node_name]
        assert len(bound) >= minimum


async def test_nodes_that_are_reserved_for_others_are_no_room() -> None:
    """E10: neither for the answer nor in its domains; its own group may use them."""
    old = node("old", 4, labels={"rack": "a"})
    world = world_with_new_node(old, labels={"rack": "b"})
    asked = Asked(world)
    refused = await asked.review(body(pod_set(1, 8)))
    assert not refused["fits"]
    assert "reserved for a gang that an autoscaler added them for" in refused["message"]
    assert refused["suggestions"] == []
    assert (await asked.review(body(pod_set(1, 4))))["fits"]

    template = {"annotations": {"gangsched.dev/topology": "rack"}}
    wide = pod_set(2, 8)
    wide["template"]["metadata"] = template
    status = await asked.review(body(wide))
    holds = {domain["domain"]: domain["holds"] for domain in status["domains"]}
    assert set(holds.values()) == {0}
