"""What a refusal names: who finds no room, what it asks for, what there is, and what can never fit
(semantics E1).
"""

from __future__ import annotations

import pytest

from gangsched.core.cycle import plan
from gangsched.model.gang import Refusal
from gangsched.model.gpu_policy import PlacementConstraints
from gangsched.model.objects import Node, Pod, Shape, Taint
from gangsched.model.reasons import Reason
from gangsched.sentences import say
from tests.builders import gang, group, node, pod, snapshot, verdict_on

TAINTED = (Taint(key="team", value="b", effect="NoSchedule"),)


def told(
    nodes: list[Node], pods: list[Pod], *, used: dict[str, int] | None = None, plain: bool = False
) -> Refusal:
    """What a gang of these pods is told; `used` are GPUs that others use, by node."""
    others = [(pod(f"other-{name}", gpus=gpus), name) for name, gpus in (used or {}).items()]
    of = group(gang("ns/g", pods, plain=plain))
    return verdict_on(plan(snapshot(nodes, others), [of], now_s=0.0), of.id).told


def four(gpus: int) -> list[Pod]:
    """Four equal members."""
    return [pod(f"g-{index}", gpus=gpus) for index in range(4)]


def test_room_for_some_names_what_is_free_on_one_node() -> None:
    """Fragmented: enough in all, and on no node enough for one more; the stable part has no number
    that moves.
    """
    nodes = [node(f"n{index}", 8) for index in range(4)]
    refusal = told(nodes, four(8), used={"n0": 2, "n1": 2, "n2": 2, "n3": 2})
    assert say(refusal).stable == "gang ns/g needs 4 pods of 8 nvidia.com/gpu; not all found a node"
    assert say(refusal).now.startswith(
        "no eligible node has 8 free. 24 of 32 nvidia.com/gpu are free on the 4 nodes, at most 6"
        " on one. 0/4"
    )
    assert say(told(nodes, four(8), used={"n0": 5})).stable == say(refusal).stable


@pytest.mark.parametrize(
    ("nodes", "gpus", "never"),
    [
        (
            [node("a", 8), node("b", 4)],
            9,
            "asks for 9 nvidia.com/gpu, and no eligible node has more than 8",
        ),
        (
            [node("a", 4), node("b", 8, taints=TAINTED)],
            8,
            "8 nvidia.com/gpu, and no eligible node has more than 4",
        ),
        ([node("a", 0)], 1, "each pod asks for 1 nvidia.com/gpu, and no eligible node has any"),
    ],
)
def test_a_member_larger_than_any_node_never_fits(nodes: list[Node], gpus: int, never: str) -> None:
    """Impossible, whoever ends: of the nodes that it may use."""
    refusal = told(nodes, four(gpus))
    assert refusal.reason is Reason.UNSCHEDULABLE
    assert "gang ns/g can never start: each pod" in say(refusal).stable
    assert never in say(refusal).stable


def test_amounts_that_no_one_node_has_together_never_fit() -> None:
    """Each amount is there, on different nodes."""
    nodes = [node("a", 8, cpu_milli=1_000), node("b", 0)]
    refusal = told(nodes, [pod("g-0", gpus=8, cpu_milli=8_000)])
    assert (
        "gang ns/g can never start: each pod asks for 8 cpu and 8 nvidia.com/gpu, and no eligible"
        " node has all of it" in (say(refusal).stable)
    )


def test_too_many_members_never_fit() -> None:
    """Impossible by their number; a busy cluster is told apart from one that is too small."""
    nodes = [node("a", 8), node("b", 8)]
    refusal = told(nodes, four(8))
    assert say(refusal).stable.endswith(
        "it needs 4 pods of 8 nvidia.com/gpu, and the eligible nodes hold 2 even when empty"
    )
    larger = told([*nodes, node("c", 8), node("d", 8)], four(8), used={"a": 1})
    assert "never" not in say(larger).stable


def test_what_limits_the_empty_nodes_is_named() -> None:
    """It need not be what matters most of a request: the GPUs would suffice for eight members."""
    nodes = [node("a", 8, cpu_milli=16_000), node("b", 8, cpu_milli=16_000)]
    pods = [pod(f"g-{index}", gpus=2, cpu_milli=12_000) for index in range(4)]
    assert (
        say(told(nodes, pods)).stable
        == "gang ns/g can never start: it needs 4 pods of 12 cpu, and the eligible nodes hold 2"
        " even when empty"
    )


def test_what_limits_empty_nodes_together_is_named() -> None:
    """One node has few GPUs, the other one few CPUs."""
    nodes = [node("a", 2, cpu_milli=64_000), node("b", 8, cpu_milli=12_000)]
    pods = [pod(f"g-{index}", gpus=2, cpu_milli=12_000) for index in range(4)]
    assert (
        say(told(nodes, pods)).stable
        == "gang ns/g can never start: it needs 4 pods of 12 cpu and 2 nvidia.com/gpu, and the"
        " eligible nodes hold 2 even when empty"
    )


def test_of_different_pods_the_resource_is_named_that_limits_them() -> None:
    """Their requests are not in the headline."""
    nodes = [node("a", 8, cpu_milli=16_000)]
    pods = [pod("g-0", gpus=1, cpu_milli=1_000)]
    pods += [pod(f"g-{index}", gpus=2, cpu_milli=12_000) for index in range(1, 3)]
    assert (
        say(told(nodes, pods)).stable
        == "gang ns/g can never start: it needs 3 pods, and the eligible nodes hold at most 2 when"
        " empty, for lack of cpu"
    )


def test_few_pods_on_a_node_are_named_as_what_limits_it() -> None:
    """A kubelet takes so many pods, whatever they ask for."""
    of = Shape(requests=(("cpu", 100), ("pods", 1)))
    small = Node(name="a", allocatable=(("cpu", 64_000), ("pods", 2)))
    refusal = told([small], [pod(f"g-{index}", of=of) for index in range(3)])
    assert (
        say(refusal).stable
        == "gang ns/g can never start: it needs 3 pods of 100m cpu, and the eligible nodes hold 2"
        " when empty, since each node takes few pods"
    )
    crowded = [Node(name=name, allocatable=small.allocatable) for name in "ab"]
    others = [(pod(f"o-{index}", of=of), "a") for index in range(2)]
    pods = [pod(f"g-{index}", of=of) for index in range(3)]
    busy = plan(snapshot(crowded, others), [group(gang("ns/g", pods))], now_s=0.0)
    text = say(verdict_on(busy, "ns/g").told).text
    assert "2 fit, then no eligible node takes more pods. 2 of 4 places for pods are free" in text


def test_only_the_member_that_finds_no_room_is_named() -> None:
    """Mixed: the others would fit, and are not told that something is insufficient for them."""
    pods = [pod("g-fits", gpus=1), pod("g-large", gpus=6)]
    refusal = told([node("a", 8), node("b", 4)], pods, used={"a": 4})
    assert (
        say(refusal).stable == "gang ns/g needs 2 pods; pod ns/g-large asks for 6 nvidia.com/gpu;"
        " not all found a node"
    )
    assert "Insufficient" not in say(refusal).stable


def test_no_node_to_use_is_said_as_it_is() -> None:
    """Neither full nor too small: closed."""
    refusal = told([node("a", 8, taints=TAINTED)], four(1))
    assert (
        say(refusal).stable
        == "gang ns/g needs 4 pods of 1 nvidia.com/gpu; pod ns/g-0 tolerates no node's taints."
        " Nodes that are large enough had untolerated taint team=b:NoSchedule"
    )
    assert say(refusal).now.endswith("0/1 nodes are available: 1 node(s) had untolerated taint(s).")
    assert (
        say(told([], four(1))).text
        == "gang ns/g needs 4 pods of 1 nvidia.com/gpu; there are no nodes"
    )


def test_nodes_that_would_do_are_named_by_what_closes_them() -> None:
    """The most common trap: GPU nodes are tainted, and the others have no GPUs. Many taints are not
    listed.
    """
    both = [
        node("cpu", 0),
        node("gpu", 8, taints=TAINTED),
        node("old", 8, unschedulable=True),
        node("small", 4),
    ]
    assert (
        say(told(both, four(8))).stable
        == "gang ns/g can never start: each pod asks for 8 nvidia.com/gpu, and no eligible node has"
        " more than 4. Nodes that are large enough were unschedulable or had untolerated taint"
        " team=b:NoSchedule"
    )
    many = [
        node(f"n{index}", 8, taints=(Taint(key=f"team-{index}", effect="NoSchedule"),))
        for index in range(3)
    ]
    assert say(told(many, four(8))).stable.endswith(
        ". Nodes that are large enough had untolerated taint(s)"
    )
    assert say(told([node("a", 8), node("b", 8, unschedulable=True)], four(8))).stable.endswith(
        "hold 1 even when empty. Nodes that are large enough were unschedulable"
    )


def test_a_resource_that_no_node_has_is_told_with_those_that_nodes_have() -> None:
    """A name with a typo, or another vendor's: no node that there is offers it."""
    refusal = told(
        [node("a", 8)], [pod("g-0", of=Shape(requests=(("nvidia.com/gpus", 8), ("pods", 1))))]
    )
    assert say(refusal).stable.endswith(
        "each pod asks for 8 nvidia.com/gpus, and no node has any; nodes have nvidia.com/gpu"
    )


def test_a_required_domain_is_named() -> None:
    """Enough is free, but not in one rack: who asked for one is told so."""
    racks = [node("a", 8, labels={"rack": "a"}), node("b", 8, labels={"rack": "b"})]
    of = group(
        gang(
            "ns/g",
            [pod(f"g-{i}", gpus=8) for i in range(2)],
            constraints=PlacementConstraints(topology=("rack",)),
        )
    )
    refusal = verdict_on(plan(snapshot(racks), [of], now_s=0.0), of.id).told
    assert say(refusal).stable.startswith(
        "gang ns/g can never start: it needs 2 pods of 8 nvidia.com/gpu in one rack, and the best"
    )


def test_what_limits_a_required_domain_is_named() -> None:
    """GPUs are there for all, and CPUs for one of them."""
    racks = [node(name, 8, cpu_milli=16_000, labels={"rack": name}) for name in "ab"]
    pods = [pod(f"g-{i}", gpus=2, cpu_milli=12_000) for i in range(2)]
    of = group(gang("ns/g", pods, constraints=PlacementConstraints(topology=("rack",))))
    refusal = verdict_on(plan(snapshot(racks), [of], now_s=0.0), of.id).told
    assert (
        say(refusal).stable
        == "gang ns/g can never start: it needs 2 pods of 12 cpu in one rack, and the best, a,"
        " takes 1 even when empty"
    )


def test_a_plain_pod_is_told_as_kube_scheduler_would_and_more() -> None:
    """What is ours is there only where room is the matter."""
    nodes = [node("a", 8), node("b", 8)]
    busy = told(nodes, [pod("p", gpus=8)], used={"a": 1, "b": 2}, plain=True)
    assert (
        say(busy).now
        == "no eligible node has 8 free. 0/2 nodes are available: 2 Insufficient nvidia.com/gpu. 13"
        " of 16 nvidia.com/gpu are free on the 2 nodes, at most 7 on one."
    )
    assert say(busy).stable == "pod ns/p asks for 8 nvidia.com/gpu; no node takes it"
    assert say(told(nodes, [pod("p", gpus=9)], plain=True)).stable.startswith(
        "pod ns/p can never start: it asks for 9"
    )
    closed = told([node("a", 8, taints=TAINTED)], [pod("p")], plain=True)
    text = "0/1 nodes are available: 1 node(s) had untolerated taint(s)."
    assert (closed.reason, closed.of) == (Reason.UNSCHEDULABLE, "ns")
    assert say(closed).text == text


def test_what_is_avoided_for_a_while_is_not_what_never_fits() -> None:
    """B6: a node whose kubelet rejected a member is used again."""
    of = group(gang("ns/g", four(2)), avoid=frozenset({"a"}))
    refusal = verdict_on(plan(snapshot([node("a", 8)]), [of], now_s=0.0), of.id).told
    assert "never" not in say(refusal).stable
