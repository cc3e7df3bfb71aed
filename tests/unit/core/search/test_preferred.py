"""Scopes: what a gang requires of GPUs and topology holds, what is preferred costs no member its
node.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

from gangsched.core.cycle import plan
from gangsched.core.placement_attempt import PlacementAttempt
from gangsched.core.reserve import Ledger
from gangsched.core.rounds import run_round
from gangsched.core.search.preferred import candidates
from gangsched.model.gang import Gang, Mode
from gangsched.model.gpu_policy import GpuPolicy, PlacementConstraints
from gangsched.model.inter_pod import Requirement
from gangsched.model.objects import Node, NodeSelectorTerm, PreferredTerm, Shape
from gangsched.model.plan import RoundOutcome, Verdict
from gangsched.model.reasons import Reason
from gangsched.sentences import say
from tests import builders
from tests.world import World

CLIQUE, RACK, ZONE = GpuPolicy().topology_keys
PRODUCT, SHARING = "nvidia.com/gpu.product", "nvidia.com/gpu.sharing-strategy"
ONE, EIGHT = builders.shape(cpu_milli=1000, gpus=1), builders.shape(cpu_milli=1000, gpus=8)
CPU_ONLY = builders.shape(cpu_milli=1000, gpus=0)


def node(name: str, gpu: int = 8, **labels: str) -> Node:
    """A node with `zone`, `rack`, `clique`, `product` or `sharing` labels."""
    keys = {"zone": ZONE, "rack": RACK, "clique": CLIQUE, "product": PRODUCT, "sharing": SHARING}
    return builders.node(
        name, cpu_milli=64_000, gpus=gpu, labels={keys[key]: value for key, value in labels.items()}
    )


def gang(
    shape: Shape, count: int, constraints: PlacementConstraints | None = None, **values: object
) -> Gang:
    """A Strict gang of identical members."""
    made = builders.gang("ns/g", builders.pods("p", shape, count))
    return structs.replace(made, constraints=constraints or PlacementConstraints(), **values)


def decided(nodes: list[Node], *gangs: Gang, policy: GpuPolicy | None = None) -> Verdict:
    """The verdict on one group on an empty cluster."""
    return plan(
        builders.snapshot(nodes), [builders.group(*gangs)], now_s=0.0, policy=policy
    ).verdicts[0]


def where(verdict: Verdict) -> list[str]:
    """The nodes that are used, sorted."""
    return sorted({placement.node for placement in verdict.binds})


def test_shared_gpus_are_not_for_gangs() -> None:
    """A gang keeps off nodes that share their GPUs between pods, and is told so in words of its
    own.
    """
    nodes = [node("a", sharing="time-slicing"), node("b", sharing="none", gpu=1), node("c", gpu=1)]
    assert where(decided(nodes, gang(ONE, 2))) == ["b", "c"]
    refused = decided(nodes, gang(ONE, 3))
    assert refused.reason is Reason.UNSCHEDULABLE
    assert (
        "1 node(s) share GPUs between pods, which this gang does not allow"
        in say(refused.told).text
    )


def test_shared_gpus_are_known_by_their_product() -> None:
    """Older feature discovery says it in the name of the product only."""
    nodes = [node("a", product="Tesla-T4-SHARED"), node("b", product="Tesla-T4")]
    assert where(decided(nodes, gang(ONE, 2))) == ["b"]
    assert decided(nodes[:1], gang(ONE, 2)).reason is Reason.UNSCHEDULABLE


@pytest.mark.parametrize("sharing", ["time-slicing", "mps"])
def test_shared_gpus_may_be_asked_for(sharing: str) -> None:
    """By annotation, by the name of the resource, and without asking by plain pods and pods without
    GPUs.
    """
    nodes = [node("a", sharing=sharing)]
    assert where(decided(nodes, gang(ONE, 2, PlacementConstraints(allow_shared=True)))) == ["a"]
    assert where(decided(nodes, structs.replace(gang(ONE, 2), plain=True))) == ["a"]
    assert where(decided(nodes, gang(CPU_ONLY, 2))) == ["a"]
    named = Shape(requests=(("nvidia.com/gpu.shared", 1), ("pods", 1)))
    offers = replace_allocatable(nodes[0], ("nvidia.com/gpu.shared", 4))
    assert where(decided([offers], gang(named, 2))) == ["a"]


def replace_allocatable(old: Node, entry: tuple[str, int]) -> Node:
    """The node with one more resource."""
    return Node(
        name=old.name, labels=old.labels, allocatable=tuple(sorted((*old.allocatable, entry)))
    )


def test_one_product_is_preferred() -> None:
    """A gang that fits on one GPU product gets one; where it does not, it takes both rather than
    wait.
    """
    nodes = [node("a", product="A100"), node("b", product="H100"), node("c", product="H100")]
    assert where(decided(nodes, gang(EIGHT, 2))) == ["b", "c"]
    assert where(decided(nodes, gang(EIGHT, 3))) == ["a", "b", "c"]


def test_one_product_can_be_required() -> None:
    """With gpu-product: same a gang waits rather than mix, and the sentence says what keeps the
    others out.
    """
    nodes = [
        node("a", product="A100"),
        node("b", product="H100"),
        node("c", product="H100"),
        node("d"),
    ]
    same = PlacementConstraints(same_product=True)
    assert where(decided(nodes, gang(EIGHT, 2, same))) == ["b", "c"]
    refused = decided(nodes, gang(EIGHT, 3, same))
    assert (refused.reason, refused.binds) == (Reason.UNSCHEDULABLE, ())
    assert "2 node(s) are outside nvidia.com/gpu.product=H100" in say(refused.told).text


def test_the_closest_domain_is_preferred() -> None:
    """Members go into one clique, else one rack, else one zone, else anywhere."""
    nodes = [
        node(f"n{index}", zone=zone, rack=rack, clique=clique)
        for index, (zone, rack, clique) in enumerate(
            [
                ("z0", "r0", "k0"),
                ("z0", "r0", "k1"),
                ("z0", "r0", "k1"),
                ("z0", "r1", "k2"),
                ("z1", "r2", "k3"),
            ]
        )
    ]
    assert where(decided(nodes, gang(EIGHT, 2))) == ["n1", "n2"]
    assert where(decided(nodes, gang(EIGHT, 3))) == ["n0", "n1", "n2"]
    assert where(decided(nodes, gang(EIGHT, 4))) == ["n0", "n1", "n2", "n3"]
    assert len(where(decided(nodes, gang(EIGHT, 5)))) == 5


def test_racks_of_the_same_name_are_told_apart_by_their_zone() -> None:
    """Two nodes elsewhere whose rack has one name in two zones change nothing for a gang that one
    zone takes whole.
    """
    nodes = [node(f"x{index}", zone="x", rack=f"x-{index}") for index in range(3)]
    nodes += [
        node("y0", zone="y", rack="y-0"),
        node("y1", zone="y", rack="shared"),
        node("x3", zone="x", rack="shared"),
    ]
    stated = gang(EIGHT, 3, PlacementConstraints(preferred=RACK))
    assert {name[0] for name in where(decided(nodes, stated))} == {"x"}
    assert {name[0] for name in where(decided(nodes, gang(EIGHT, 4)))} == {"x"}


def test_a_rack_whose_name_repeats_is_one_rack_in_each_zone() -> None:
    """Two members that prefer one rack get two nodes of it, not one in each of the racks with its
    name.
    """
    nodes = [node("a", zone="x", rack="r1"), node("b", zone="y", rack="r1")]
    nodes += [
        node("c", zone="y", rack="r2"),
        node("d", zone="y", rack="r2"),
        node("e", zone="x", rack="r2"),
    ]
    stated = PlacementConstraints(preferred=RACK)
    assert where(decided(nodes, gang(EIGHT, 2, stated))) == ["c", "d"]
    assert where(decided(nodes, gang(EIGHT, 2))) == ["c", "d"]


def test_the_tightest_domain_that_is_enough() -> None:
    """Of two racks a gang takes the one that has just enough, so that the larger stays whole."""
    nodes = [node(f"big{n}", rack="a") for n in range(4)] + [
        node(f"small{n}", rack="b") for n in range(2)
    ]
    assert where(decided(nodes, gang(EIGHT, 2))) == ["small0", "small1"]


@pytest.mark.parametrize("mode", [Mode.STRICT, Mode.NON_STRICT])
def test_a_domain_can_be_required(mode: Mode) -> None:
    """With topology: <label> every member is in one domain, members without GPUs too, or none of
    them starts.
    """
    nodes = [node("a", rack="r0"), node("b", rack="r1"), node("c", rack="r1"), node("d", gpu=0)]
    members = [*builders.pods("p", EIGHT, 2), *builders.pods("launcher", CPU_ONLY, 1)]
    constraints = PlacementConstraints(topology=(RACK,))
    fits = structs.replace(builders.gang("ns/g", members), constraints=constraints, mode=mode)
    assert where(decided(nodes, fits)) == ["b", "c"]
    assert not decided(nodes, gang(EIGHT, 3, constraints, mode=mode)).binds


def test_a_required_label_that_no_node_has() -> None:
    """The gang waits, and is told which label is missing."""
    refused = decided(
        [node("a")], gang(EIGHT, 1, PlacementConstraints(topology=("example.com/block",)))
    )
    assert refused.reason is Reason.UNSCHEDULABLE
    assert "1 node(s) lack the label example.com/block" in say(refused.told).text


def mixed(minimum: int, constraints: PlacementConstraints | None = None) -> Gang:
    """Two members of 3 GPUs and two of 2: they fit on two nodes of 5 GPUs, but not on two of 4."""
    members = [
        *builders.pods("large", builders.shape(gpus=3), 2),
        *builders.pods("small", builders.shape(gpus=2), 2),
    ]
    return structs.replace(
        builders.gang("ns/g", members, min_member=minimum),
        constraints=constraints or PlacementConstraints(),
    )


@pytest.mark.parametrize("sizes", [(5, 4), (4, 5)])
def test_another_required_domain_is_tried(sizes: tuple[int, int]) -> None:
    """A domain whose sums are enough but whose nodes are too small does not stop a gang that fits
    in another.
    """
    nodes = [
        node(f"{rack}{n}", gpu=gpu, rack=rack)
        for rack, gpu in zip("ab", sizes, strict=True)
        for n in range(2)
    ]
    assert (
        len(
            {
                name[0]
                for name in where(decided(nodes, mixed(4, PlacementConstraints(topology=(RACK,)))))
            }
        )
        == 1
    )


def test_a_preference_leaves_nobody_out() -> None:
    """A domain that holds the minimum but not every member is given up for a wider one that holds
    all.
    """
    nodes = [node(f"{rack}{n}", gpu=4, rack=rack) for rack in "ab" for n in range(2)]
    assert len(decided(nodes, mixed(2)).binds) == 4


@pytest.mark.parametrize("running", [True, False])
def test_late_members_join_the_others(running: bool) -> None:
    """Members that come later go to the domain where the gang is, though another has more room."""
    nodes = [node("a", rack="r0", gpu=1), node("b", rack="r1"), node("c", rack="r1")]
    late = gang(
        ONE,
        1,
        PlacementConstraints(topology=(RACK,)),
        bound=1,
        nodes=("a",),
        min_member=2,
        satisfied=running,
    )
    assert where(decided(nodes, late)) == ["a"]
    full = gang(
        ONE,
        2,
        PlacementConstraints(topology=(RACK,)),
        bound=1,
        nodes=("a",),
        min_member=3,
        satisfied=running,
    )
    assert where(decided(nodes, full)) == (["a"] if running else [])


def test_soft_preferences_choose_among_domains() -> None:
    """Of two racks that are enough, the one that the pods themselves prefer."""
    likes = PreferredTerm(10, NodeSelectorTerm(labels=(Requirement(RACK, "In", ("b",)),)))
    shape = replace(EIGHT, preferred=(likes,))
    nodes = [node(f"{rack}{n}", rack=rack) for rack in "ab" for n in range(2)]
    assert where(decided(nodes, gang(shape, 2))) == ["b0", "b1"]


def test_topology_keys_and_accelerators_can_be_set() -> None:
    """An administrator's label keys replace the usual ones, and his resources count as
    accelerators.
    """
    labels: list[Mapping[str, str]] = [{"block": "x"}, {"block": "y"}, {"block": "y"}]
    nodes = [
        Node(name=name, labels=label, allocatable=(("example.com/npu", 8), ("pods", 9)))
        for name, label in zip("abc", labels, strict=True)
    ]
    whole = Shape(requests=(("example.com/npu", 8), ("pods", 1)))
    assert where(decided(nodes, gang(whole, 2))) == ["a", "b"]
    policy = GpuPolicy(topology_keys=("block",), accelerators=frozenset({"example.com/npu"}))
    assert where(decided(nodes, gang(whole, 2), policy=policy)) == ["b", "c"]


def test_attempts_leave_no_trace() -> None:
    """Scopes that were tried in vain give back all they took."""
    nodes = [
        node(f"n{n}", zone="z", rack=f"r{n % 2}", clique=f"k{n}", product=f"p{n % 3}")
        for n in range(6)
    ]
    verdict = decided(nodes, gang(EIGHT, 6))
    assert len(where(verdict)) == 6
    ledger = builders.ledger(nodes)
    refused = gang(builders.shape(cpu_milli=1, gpus=5), 7)
    _, round_ = run_round(builders.group(refused), [refused], ledger)
    assert round_.outcome is RoundOutcome.REFUSED
    assert np.array_equal(ledger.free, builders.ledger(nodes).free)


def test_a_gang_without_wishes_or_accelerators_is_tried_once() -> None:
    """CPU gangs, and those that one node takes whole, cost no more than before."""
    nodes = [node("a", rack="r0", product="x"), node("b", rack="r1", product="y")]
    ledger: Ledger = builders.ledger(nodes)
    for wanted in (gang(CPU_ONLY, 5), gang(ONE, 8)):
        attempt = PlacementAttempt(builders.group(wanted), ledger)
        assert len(list(candidates([wanted], attempt))) == 1


def test_a_group_without_levels_is_packed_over_all_zones() -> None:
    """L5, L14: no zone takes all of it, and in the order of its members it finds no place: the
    search does.
    """
    world = World(*(node(f"{zone}0", 4, zone=zone) for zone in "abc"))
    world.create(
        builders.running(builders.pod("running", gpus=0, cpu_milli=100), "b0")
    )  # the node that packing prefers
    in_b, both = replace(ONE, node_selector=((ZONE, "b"),)), '["ns/other", "ns/whole"]'
    world.create(
        builders.members("other", 2, groups=both),
        builders.members("whole", 3, of=in_b, groups=both),
    )
    bound = world.settle().bound()
    assert {name for name, where in bound.items() if where == "b0"} == {
        "running",
        "whole-0",
        "whole-1",
        "whole-2",
    }
    assert {"other-0", "other-1"} <= bound.keys()
