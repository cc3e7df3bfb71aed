"""The verifier: no verdict of a plan that is wrong is committed, whatever is wrong with it (B2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from msgspec import structs

from gangsched import turn
from gangsched.api import keys
from gangsched.model.devices import (
    DeviceAllocation,
    DeviceClass,
    DeviceResult,
    DeviceTaintRule,
    ResourceSlice,
)
from gangsched.model.fault import FaultPlace
from gangsched.model.gang import Placement
from gangsched.model.gpu_policy import PRODUCT_LABEL, TOPOLOGY_KEYS
from gangsched.model.inter_pod import HostPort, InterPodConstraints
from gangsched.model.objects import ClaimUse, PermitStamp, Pod, Shape
from gangsched.model.plan import Plan, Verdict
from gangsched.model.protocol import Applied, Replaced
from gangsched.model.storage import (
    READ_WRITE_ONCE_POD,
    Claim,
    ClaimRef,
    ResourceClaim,
    Selection,
    Volume,
)
from gangsched.state import verify
from gangsched.state.rule_set import Rules
from gangsched.turn import plan_of, prepare
from tests.builders import gang_metadata, members, node, pod, pod_group, running, shape, stamped
from tests.unit.state import test_device_binding as devices
from tests.world import EPOCH_S, World
from tests.wrong_core import FAULTS, Change, moved, of_binds, without, wrong

RACK = "example.com/rack"
FEW_AND_MANY = pytest.mark.usefixtures("few_and_many")
"""For tests of room, which is summed up by verdict, or over all pods of a plan of many."""
PORT = InterPodConstraints(ports=(HostPort("TCP", 80),))


def planned(world: World) -> Plan:
    """The plan of the next turn."""
    state, wall_s = world.state, EPOCH_S + world.now_s
    prepare(state, world.now_s, wall_s)
    given = state.plan_input(world.now_s, wall_s)
    assert given is not None
    return plan_of(given, world.now_s, limits=None, policy=None, cache=state.plan_cache())


def objections(world: World, change: Change = lambda verdict: verdict) -> list[str]:
    """What the verifier says of the next plan, each verdict of which is changed."""
    plan = planned(world)
    changed = replace(plan, verdicts=tuple(map(change, plan.verdicts)))
    assert any(each.moves or each.rooms for each in changed.verdicts), plan
    return said(world, changed)


def said(world: World, plan: Plan) -> list[str]:
    """What the verifier says of a plan."""
    verifier, groups = world.state.verifier, world.state.registry.groups
    verifier.begin(plan, world.state.snapshot())
    return [why for each in plan.verdicts if (why := verifier.objection(groups[each.group], each))]


def racks(*names: str, gpus: int = 4) -> list[Any]:
    """Nodes n0, n1 and so on in these racks; "" for none."""
    return [
        node(f"n{at}", gpus, labels={RACK: name} if name else {}) for at, name in enumerate(names)
    ]


def runs(pods: Iterable[Pod], *nodes: str, least: int = 1) -> list[Pod]:
    """Pods that gangsched has started."""
    return [stamped(running(each, at), least) for each, at in zip(pods, nodes, strict=True)]


@pytest.fixture(params=[1, verify.MANY], ids=["as of many", "as of few"])
def few_and_many(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many pods are many."""
    monkeypatch.setattr(verify, "MANY", request.param)


# --- pods ---------------------------------------------------------------------------------------


@FEW_AND_MANY
def test_a_plan_that_is_right() -> None:
    """Gangs, plain pods and a group that is refused: nothing speaks against any."""
    world = World(*racks("r0", "r0", "r1"))
    world.create(
        members("g", 4), members("rack", 3, topology=RACK), pod("alone"), members("large", 9)
    )
    assert objections(world) == []


def test_a_pod_that_is_placed_twice() -> None:
    """On two nodes in one verdict."""
    world = World(node("n0"), node("n1"))
    world.create(members("g", 2))
    assert objections(
        world, of_binds(lambda binds: [*binds, msgspec.structs.replace(binds[0], node="n1")])
    ) == ["a pod is placed twice"]


def test_a_pod_that_two_verdicts_place() -> None:
    """The same verdict twice: the first one is right."""
    world = World(node("n0"))
    world.create(members("g", 2))
    plan = planned(world)
    assert said(world, replace(plan, verdicts=(*plan.verdicts, *plan.verdicts))) == [
        "a pod is placed twice"
    ]


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (None, "is not known"),
        (pod("other"), "is of another group"),
        (members("g", 1, first=2, min_member=2, scheduler_name="other")[0], "is foreign"),
        (members("g", 1, first=2, min_member=2, gated=True)[0], "is gated"),
        (members("g", 1, first=2, min_member=2, deleting=True)[0], "is deleted"),
        (runs(members("g", 1, first=2, min_member=2), "n1", least=2)[0], "is bound"),
    ],
)
def test_a_pod_that_is_not_to_be_placed(other: Pod | None, why: str) -> None:
    """Instead of one that is."""
    world = World(node("n0"), node("n1"))
    world.create(members("g", 2), *([other] if other is not None else ()))
    stranger = other or pod("stranger")
    change = of_binds(lambda binds: [*binds, Placement(stranger, "n0")])
    (found,) = {each for each in objections(world, change) if stranger.key in each}
    assert found == f"pod {stranger.key} {why}"


def test_the_release_of_a_pod_that_holds_nothing() -> None:
    """It runs, or is unknown."""
    world = World(node("n0"))
    (held,) = world.create(runs(members("g", 1), "n0"))
    world.create(members("g", 1, first=1, min_member=1))
    plan = planned(world)
    for uid in (held.uid, "nobody"):
        wrong = structs.replace(plan.verdicts[0], releases=(uid,))
        assert said(world, replace(plan, verdicts=(wrong,))) == [
            f"pod {uid} is released and holds nothing"
        ]


# --- nodes --------------------------------------------------------------------------------------


@FEW_AND_MANY
def test_an_unknown_node() -> None:
    """No node has this name."""
    world = World(node("n0"))
    world.create(members("g", 2))
    assert objections(world, moved(g_1="n9")) == ["node n9 does not exist"]


@FEW_AND_MANY
@pytest.mark.parametrize(
    "of", [shape(gpus=4), shape(gpus=1, cpu_milli=40_000), shape(gpus=0), shape(gpus=8)]
)
def test_an_over_full_node(of: Shape) -> None:
    """Too many GPUs, CPUs or pods, beside what runs there already."""
    world = World(node("n0", gpus=6, pods=2), node("n1"), node("n2"))
    world.create(runs([pod("there", gpus=1, cpu_milli=30_000)], "n0"))
    world.create(pod(f"p{at}", of=of) for at in range(2))
    assert objections(world) == []
    assert {*objections(world, moved(p0="n0", p1="n0"))} == {"node n0 has too little room"}


@FEW_AND_MANY
def test_a_node_that_several_verdicts_fill() -> None:
    """Each for itself would fit, also beside room that is only promised; the first of them may be
    committed.
    """
    world = World(node("n0", gpus=4), node("n1", gpus=4))
    world.create(members("a", 3), members("b", 3))
    change = of_binds(lambda binds: [msgspec.structs.replace(each, node="n0") for each in binds])
    assert objections(world, change) == ["node n0 has too little room"]


@FEW_AND_MANY
def test_a_verdict_that_fails_takes_no_room() -> None:
    """What is wrong of one group is nobody else's."""
    world = World(node("n0", gpus=4))
    world.create(members("a", 2), members("b", 2))
    first = planned(world).verdicts[0].group

    def change(verdict: Verdict) -> Verdict:
        return without("a-0", "b-0")(verdict) if verdict.group == first else verdict

    assert objections(world, change) == [f"gang {first} lacks 1 of the 2 members that it needs"]


@FEW_AND_MANY
def test_a_resource_that_no_node_offers() -> None:
    """There is no room for what is nowhere."""
    world = World(node("n0"))
    world.create(pod("p"))
    exotic = Shape(requests=(("example.com/odd", 1), ("pods", 1)))
    change = of_binds(
        lambda binds: [
            msgspec.structs.replace(
                binds[0], pod=msgspec.structs.replace(binds[0].pod, shape=exotic)
            )
        ]
    )
    assert objections(world, change) == ["node n0 has too little room"]


@FEW_AND_MANY
def test_held_room_is_not_counted_twice() -> None:
    """R3: members that hold a full node are bound there, and may be placed elsewhere only if they
    are released.
    """
    world = World(node("n0", gpus=2), node("n1", gpus=2))
    world.create(runs([pod("there", gpus=2)], "n1"))
    world.create(members("g", 3, mode="NonStrict"))
    world.settle()
    assert set(world.held().values()) == {"n0"}
    world.delete(next(each for each in world.pods.values() if each.name == "there"))
    assert objections(world) == []
    (why,) = {each.partition(" has ")[2] for each in objections(world, moved(g_0="n1", g_1="n1"))}
    assert why == "room on node n0"


@pytest.mark.parametrize("there", [True, False])
def test_a_host_port_that_is_used_twice(there: bool) -> None:
    """By a pod that runs there, or by another one of the plan."""
    world = World(node("n0"), node("n1"), node("n2"))
    of = shape(inter_pod=PORT)
    if there:
        world.create(runs([pod("there", of=of)], "n0"))
    world.create(
        pod(f"g-{at}", of=of, gang_metadata=gang_metadata("g", min_member=2)) for at in range(2)
    )
    assert objections(world) == []
    nodes = {"g_0": "n0"} if there else {"g_0": "n0", "g_1": "n0"}
    (why,) = objections(world, moved(**nodes))
    assert why.endswith("is in use on node n0")


# --- claims -------------------------------------------------------------------------------------


def claimed(world: World, *pods: Pod, modes: tuple[str, ...] = ("ReadWriteMany",)) -> World:
    """Pods that share a claim, bound to a volume."""
    claim = Claim("ns", "shared", uid="c", access_modes=modes, bound=True, volume_name="v")
    world.say(Applied(Volume(name="v", claim=ClaimRef("ns", "shared", "c"))), Applied(claim))
    world.create(msgspec.structs.replace(each, claims=(ClaimUse("shared"),)) for each in pods)
    return world


@pytest.mark.parametrize("there", [True, False])
def test_a_claim_for_one_pod(there: bool) -> None:
    """ReadWriteOncePod: of a plan that thinks that any number may use the claim."""
    world = claimed(
        World(node("n0")), *members("g", 2 - there), *(runs([pod("there")], "n0") if there else ())
    )
    plan = planned(world)
    assert said(world, plan) == []
    world.say(
        Applied(
            Claim(
                "ns",
                "shared",
                uid="c",
                access_modes=(READ_WRITE_ONCE_POD,),
                bound=True,
                volume_name="v",
            )
        )
    )
    assert said(world, plan) == ["claim ns/shared is for one pod, and another one uses it"]


def with_claims(*claims: Selection) -> Change:
    """Decide about claims of each pod."""
    return of_binds(lambda binds: [msgspec.structs.replace(each, claims=claims) for each in binds])


def test_decisions_about_volumes() -> None:
    """Each is for the node of its pod, and a volume goes to one claim."""
    world = claimed(World(node("n0"), node("n1")), *members("g", 1))
    mine = Selection(namespace="ns", name="mine", uid="m")
    assert objections(world, with_claims(msgspec.structs.replace(mine, node="n0"))) == []
    (why,) = objections(world, with_claims(msgspec.structs.replace(mine, node="n1")))
    assert why == "claim ns/mine is decided for node n1, not n0"
    (why,) = objections(world, with_claims(msgspec.structs.replace(mine, volume="v")))
    assert why == "volume v is given to two claims"
    other = msgspec.structs.replace(mine, volume="w", name="other")
    (why,) = objections(world, with_claims(msgspec.structs.replace(mine, volume="w"), other))
    assert why == "volume w is given to two claims"


def test_a_claim_with_too_many_consumers() -> None:
    """The API server takes 256: none of those that would start in part does."""
    world = claimed(World(node("n0")), *members("g", 2))
    reserved = tuple(f"u{at}" for at in range(254))
    world.say(Applied(ResourceClaim("ns", "c", uid="c", allocated=True, reserved=reserved)))
    change = with_claims(Selection(namespace="ns", name="c", uid="c", reserve=True))
    assert objections(world, change) == []
    world.say(
        Applied(
            ResourceClaim(
                "ns", "c", uid="c", resource_version="2", allocated=True, reserved=(*reserved, "u")
            )
        )
    )
    assert objections(world, change) == ["claim resourceclaims/ns/c gets more than 256 consumers"]


def allocation(*names: str, share: str = "") -> DeviceAllocation:
    """Devices of n0."""
    return DeviceAllocation(
        tuple(DeviceResult("r", ("d", "n0", each), share=share) for each in names)
    )


@pytest.mark.parametrize(
    ("device", "share", "held_share"),
    [("d0", "", ""), ("d2", "", ""), ("d2", "s", ""), ("d2", "", "s")],
)
def test_a_device_that_two_claims_get(device: str, share: str, held_share: str) -> None:
    """Within a verdict, or from another claim that has it, in whole or in part."""
    world = World(node("n0"), rules=Rules(allocates=True))
    held = devices.claim("held", 1, "d2")
    assert held.asks is not None
    results = (DeviceResult("r", ("d", "n0", "d2"), share=held_share),)
    held = msgspec.structs.replace(held, asks=msgspec.structs.replace(held.asks, results=results))
    slices = (devices.slice_of("n0", "d0", "d1", "d2"),)
    world.say(Replaced(ResourceSlice, slices), Replaced(DeviceClass, (DeviceClass("gpu"),)))
    claims = (devices.claim("p"), devices.claim("q"), held)
    world.say(Replaced(DeviceTaintRule, ()), Replaced(ResourceClaim, claims))
    world.create(devices.member(name, "g", 2) for name in ("p", "q"))
    assert objections(world) == []

    def change(binds: Sequence[Placement]) -> list[Placement]:
        both = [
            (
                each,
                msgspec.structs.replace(each.claims[0], allocation=allocation(device, share=share)),
            )
            for each in binds
        ]
        return [msgspec.structs.replace(each, claims=(given,)) for each, given in both]

    (why,) = objections(world, of_binds(change))
    assert why.startswith(f"device d/n0/{device} is allocated to another claim")


# --- parts --------------------------------------------------------------------------------------


def test_half_a_gang() -> None:
    """B1: one of two members."""
    world = World(node("n0"))
    world.create(members("g", 2))
    assert objections(world, without("g-1")) == ["gang ns/g lacks 1 of the 2 members that it needs"]


def test_half_a_group_of_gangs() -> None:
    """I4: one of two gangs."""
    world = World(node("n0"))
    listed = ("ns/a", "ns/b")
    world.create(members("a", 2, groups=listed), members("b", 2, groups=listed))
    assert objections(world, without("b-0", "b-1")) == ["part ns/a has less than its minimum"]


def tree(world: World, **least: int) -> World:
    """The tree r > (c > (a, b), d); `least` are minimums of children, else all are needed."""
    parents = {"c": "r"}
    for name in ("r", "c"):
        stated = {
            keys.PARENT[0]: parents.get(name, ""),
            keys.MIN_CHILDREN[0]: str(least.get(name, 2)),
        }
        marks = tuple((key, value) for key, value in stated.items() if value)
        world.declare(pod_group(name, 1, gang_metadata=marks))
    world.create(
        members("a", 2, parent="c"), members("b", 2, parent="c"), members("d", 2, parent="r")
    )
    return world


@pytest.mark.parametrize(
    ("left_out", "part"),
    [(("b-0", "b-1"), "ns/c"), (("d-0", "d-1"), "ns/r"), (("a-0", "a-1", "b-0", "b-1"), "ns/r")],
)
def test_half_a_tree(left_out: Sequence[str], part: str) -> None:
    """I9: a child of the root, or of an inner parent, is left out."""
    world = tree(World(node("n0")))
    assert objections(world) == []
    assert objections(world, without(*left_out)) == [f"part {part} has less than its minimum"]


def test_children_that_start_by_themselves() -> None:
    """I9: of a parent with minimum 0 each child may start without the others."""
    world = tree(World(node("n0")), r=0, c=0)
    assert objections(world, without("a-0", "a-1", "d-0", "d-1")) == []
    assert objections(world, without("a-0", "d-0", "d-1", "b-0", "b-1"))[0].startswith(
        "gang ns/a lacks 1"
    )


def test_what_completes_a_start() -> None:
    """B5: replacements of members that are gone start alone, also where the whole has less than its
    minimum.
    """
    world = tree(World(node("n0")))
    own = [each for each in world.pods.values() if each.name in {"a-0", "b-0", "b-1", "d-0", "d-1"}]
    world.delete(*own)
    there = next(each for each in world.pods.values() if each.name == "a-1")
    world.update(there, node_name="n0", permitted=PermitStamp(2, 1))
    world.create(members("a", 1, first=5, min_member=2, parent="c"))
    assert objections(world) == []


def test_members_that_others_bound_are_no_start() -> None:
    """B4: they count towards the minimum, and do not excuse those that join them."""
    world = World(node("n0"))
    world.create(running(members("g", 1, scheduler_name="other", min_member=3)[0], "n0"))
    world.create(members("g", 2, first=1, min_member=3))
    assert objections(world) == []
    assert objections(world, without("g-1")) == ["gang ns/g lacks 1 of the 3 members that it needs"]


def test_only_waiting_members_count() -> None:
    """B1: of an `only-waiting` gang those that run do not help those that start."""
    world = World(node("n0"))
    marks: dict[str, Any] = {"min_member": 2, "policy": "only-waiting"}
    world.create(
        runs(members("g", 2, **marks), "n0", "n0", least=2), members("g", 2, first=2, **marks)
    )
    assert objections(world) == []
    assert objections(world, without("g-3")) == ["gang ns/g lacks 1 of the 2 members that it needs"]


# --- domains ------------------------------------------------------------------------------------


def test_a_level_that_a_gang_leaves() -> None:
    """One member is in another rack, or on a node without one."""
    world = World(*racks("r0", "r0", "r1", ""))
    world.create(members("g", 4, topology=RACK))
    assert objections(world) == []
    where = planned(world).verdicts[0].binds[0].node
    other = "n2" if where in {"n0", "n1"} else "n0"
    (why,) = objections(world, moved(g_1=other))
    assert why == f"pods that must be in one domain of {RACK} are in several"
    (why,) = objections(world, moved(g_1="n3"))
    assert why == f"a node lacks the label {RACK}"


def test_a_level_that_a_later_member_leaves() -> None:
    """It joins those that run; where changed labels have torn these apart, either domain
    will do.
    """
    world = World(*racks("r0", "r1", "r2"))
    world.create(
        runs(members("g", 1, topology=RACK), "n0"),
        members("g", 1, first=1, min_member=1, topology=RACK),
    )
    assert objections(world) == []
    (why,) = objections(world, moved(g_1="n1"))
    assert why == f"pods that must be in one domain of {RACK} are in several"
    world.create(runs(members("g", 1, first=2, min_member=1, topology=RACK), "n1"))
    assert objections(world, moved(g_1="n1")) == []
    assert objections(world, moved(g_1="n2")) == [why]


@pytest.mark.parametrize("least", [0, 1])
def test_a_level_around_children(least: int) -> None:
    """The rack of a parent is that of all below it, also of gangs with minimum 0 and beside what it
    need not start.
    """
    world = World(*racks("r0", "r0", "r1"))
    stated = ((keys.MIN_CHILDREN[0], str(least)), (keys.TOPOLOGY[0], RACK))
    world.declare(pod_group("svc", 1, gang_metadata=stated))
    for name in ("a", "b"):
        world.create(members(name, 2, parent="svc", min_member=0))
    change = of_binds(
        lambda binds: [
            msgspec.structs.replace(each, node="n2" if each.pod.name[0] == "b" else "n0")
            for each in binds
        ]
    )
    plan = planned(world)
    names = {each.pod.name for verdict in plan.verdicts for each in verdict.binds}
    assert names, plan
    verdict = plan.verdicts[0]
    every = [*world.pods.values()]
    both = structs.replace(verdict, binds=tuple(Placement(each, "n0") for each in every))
    assert said(world, replace(plan, verdicts=(both,))) == []
    (why,) = said(world, replace(plan, verdicts=(change(both),)))
    assert why == f"pods that must be in one domain of {RACK} are in several"


def test_a_group_of_gangs_shares_the_level() -> None:
    """What one gang of a group requires is for all of them."""
    world = World(*racks("r0", "r1"))
    listed = ("ns/a", "ns/b")
    world.create(members("a", 1, groups=listed, topology=RACK), members("b", 1, groups=listed))
    (why,) = objections(world, moved(a_0="n0", b_0="n1"))
    assert why == f"pods that must be in one domain of {RACK} are in several"


def test_one_gpu_product() -> None:
    """Members with GPUs have the same product; others may be anywhere."""
    world = World(*(node(f"n{at}", labels={PRODUCT_LABEL: name}) for at, name in enumerate("xxy")))
    marks = (*gang_metadata("g", min_member=3), (keys.GPU_PRODUCT[0], "same"))
    world.create(
        pod(f"g-{at}", gpus=at % 2 * 4, gang_metadata=tuple(sorted(marks))) for at in range(4)
    )
    assert objections(world, moved(g_0="n2", g_1="n0", g_2="n0", g_3="n1")) == []
    (why,) = objections(world, moved(g_1="n0", g_3="n2"))
    assert why == f"pods that must be in one domain of {PRODUCT_LABEL} are in several"


@pytest.mark.parametrize("indexed", [True, False])
def test_a_slice_that_is_torn_apart(indexed: bool) -> None:
    """With indexes a slice is those of its numbers; without, as many as it has in one rack."""
    world = World(*racks("r0", "r0", "r1", "r1"))
    layers = f'[{{"size": 2, "topology": "{RACK}"}}]'
    marks = tuple(sorted((*gang_metadata("g", min_member=4), (keys.SLICES[0], layers))))
    world.create(
        pod(f"g-{at}", index=at if indexed else -1, gang_metadata=marks) for at in range(4)
    )
    assert objections(world) == []
    assert objections(world, moved(g_0="n0", g_1="n1", g_2="n2", g_3="n3")) == []
    assert objections(world, moved(g_0="n0", g_1="n2", g_2="n1", g_3="n1"))
    crossed = objections(world, moved(g_0="n0", g_1="n2", g_2="n0", g_3="n2"))
    assert bool(crossed) is indexed


# --- what changes between plan and commit -------------------------------------------------------


@pytest.mark.parametrize("slices", [True, False])
@pytest.mark.parametrize("label", ["r1", ""])
def test_labels_are_compared_again_right_before_the_bind(slices: bool, label: str) -> None:
    """B2: a node that changes its rack between plan and commit drops the verdict, and the group is
    planned again.
    """
    world = World(*racks("r0", "r0", gpus=1))
    layers = f'[{{"size": 2, "topology": "{RACK}"}}]'
    stated = (keys.SLICES[0], layers) if slices else (keys.TOPOLOGY[0], RACK)
    marks = tuple(sorted((*gang_metadata("g", min_member=2), stated)))
    world.create(pod(f"g-{at}", gang_metadata=marks) for at in range(2))
    plan, snapshot = planned(world), world.state.snapshot()
    assert len(plan.verdicts[0].binds) == 2
    world.add_nodes(racks("r0", label, gpus=1)[1])
    assert world.state.commit(plan, snapshot, now_s=world.now_s) == []
    assert world.settle().bound() == {}


# --- a core that is wrong -----------------------------------------------------------------------


@pytest.mark.parametrize("fault", FAULTS)
def test_a_core_that_is_wrong_about_one_group(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """B2, I10: the verdict is not committed, also not later; the group is told, and others start
    meanwhile.
    """
    world = World(
        *racks("r0", "r0", "r1", gpus=8),
        *racks("r0", "r0", "r0", "r0", gpus=1)[3:],
        rules=Rules(allocates=True),
    )
    world.has_faults = True
    slices = (devices.slice_of("n1", "d0", "d1"),)
    world.say(Replaced(ResourceSlice, slices), Replaced(DeviceClass, (DeviceClass("gpu"),)))
    claims = (devices.claim("a-0"), devices.claim("b-0"))
    world.say(Replaced(DeviceTaintRule, ()), Replaced(ResourceClaim, claims))
    monkeypatch.setattr(turn, "plan", wrong(FAULTS[fault]))
    world.declare(pod_group("svc", 1, gang_metadata=((keys.TOPOLOGY[0], RACK),)))
    of = shape(inter_pod=PORT) if fault == "a port twice" else shape()
    uses = fault == "a device twice"
    for name in ("a", "b"):
        marks = gang_metadata(name, min_member=1, parent="svc")
        use = (ClaimUse(f"{name}-0", ephemeral=True, device=True),) if uses else ()
        world.create(pod(f"{name}-0", uid=f"{name}-0", of=of, gang_metadata=marks, claims=use))
    world.create(members("others", 2), pod("alone"))
    world.advance(100.0)
    assert {"a-0", "b-0"} <= world.pending()
    assert {"others-0", "others-1", "alone"} == set(world.bound())
    assert world.faults
    assert {each.place for each in world.faults} == {FaultPlace.VERIFY}
    assert {each.group for each in world.faults} == {"tree:ns/svc"}
    waiting = next(each for each in world.pods.values() if each.name == "a-0")
    assert "internal error" in world.condition(waiting)[1]
    assert not world.claims_sent


def test_racks_that_have_one_name_in_two_zones() -> None:
    """A rack is its name and its zone, for the verifier as for the search."""
    _, rack, zone = TOPOLOGY_KEYS
    places = [("a", "r1", "x"), ("b", "r1", "x"), ("c", "r1", "y"), ("d", "r2", "x")]
    places.append(("e", "r2", "y"))
    world = World(*(node(name, 8, labels={rack: of, zone: at}) for name, of, at in places))
    world.create(members("g", 2, gpus=8, topology=rack))
    assert objections(world) == []
    assert objections(world, moved(g_1="c")) == [
        f"pods that must be in one domain of {rack} are in several"
    ]
