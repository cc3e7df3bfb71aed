"""Score, rule 1: soft preferences of pods and nodes, their weights, and that the GPU policy comes
after them.
"""

from dataclasses import replace

import pytest
from msgspec import structs

from gangsched.core.cycle import plan
from gangsched.model.inter_pod import (
    InterPodConstraints,
    PodTerm,
    Requirement,
    Spread,
    WeightedPodTerm,
)
from gangsched.model.objects import Node, NodeSelectorTerm, Pod, PreferredTerm, Shape, Taint
from tests import builders
from tests.builders import snapshot

ZONE, HOSTNAME, DISK = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "example.com/disk"
WEB = (Requirement("app", "In", ("web",)),)


def node(name: str, zone: str = "z", *, soft_taints: int = 0, disk: str = "", gpu: int = 0) -> Node:
    """A node with room for ten pods."""
    labels = {HOSTNAME: name, ZONE: zone, **({DISK: disk} if disk else {})}
    taints = tuple(
        Taint(key=f"example.com/{n}", effect="PreferNoSchedule") for n in range(soft_taints)
    )
    return structs.replace(
        builders.node(name, labels=labels, cpu_milli=10_000, gpus=gpu), taints=taints
    )


def likes_disk(weight: int, shape: Shape | None = None) -> Shape:
    """A shape that prefers nodes with an SSD."""
    term = NodeSelectorTerm(labels=(Requirement(DISK, "In", ("ssd",)),))
    return replace(
        shape or builders.shape(cpu_milli=1000, gpus=0), preferred=(PreferredTerm(weight, term),)
    )


def tied(cpu: int = 1000, gpu: int = 0, **inter_pod: object) -> Shape:
    """A shape with these fields of `Ties`."""
    return replace(
        builders.shape(cpu_milli=cpu, gpus=gpu),
        inter_pod=InterPodConstraints(**inter_pod),  # type: ignore[arg-type]
    )


def web(name: str, shape: Shape, count: int = 1) -> list[Pod]:
    """Pods labelled app: web."""
    return [
        structs.replace(pod, labels={"app": "web"}) for pod in builders.pods(name, shape, count)
    ]


def where(
    nodes: list[Node], pods: list[Pod], placed: list[tuple[Pod, str]] | None = None
) -> list[str]:
    """The node of each pod of one gang, in order."""
    shot = snapshot(nodes, placed or [])
    verdict = plan(shot, [builders.group(builders.gang("ns/g", pods))], now_s=0.0).verdicts[0]
    return [placement.node for placement in verdict.binds]


def test_a_soft_taint_is_avoided() -> None:
    """PreferNoSchedule keeps pods off as long as another node has room; one such taint is better
    than two.
    """
    nodes = [node("a", soft_taints=2), node("b", soft_taints=1), node("c")]
    found = where(nodes, builders.pods("p", builders.shape(cpu_milli=5_000, gpus=0), 5))
    assert found == ["c", "c", "b", "b", "a"]


def test_preferred_nodes_come_first() -> None:
    """Preferred node affinity is followed as far as there is room, and refuses nothing."""
    assert where([node("a"), node("b", disk="ssd")], builders.pods("p", likes_disk(1), 11)) == [
        "b"
    ] * 10 + ["a"]


@pytest.mark.parametrize("weight", [1, 99, 100])
def test_a_taint_outweighs_what_a_pod_likes(weight: int) -> None:
    """A soft taint counts 100 and a preferred term its weight; at 100 they are even and the name
    decides.
    """
    assert where(
        [node("a"), node("b", disk="ssd", soft_taints=1)], builders.pods("p", likes_disk(weight), 1)
    ) == ["a"]


def test_two_terms_outweigh_a_taint() -> None:
    """Weights add up."""
    shape = likes_disk(60)
    both = replace(shape, preferred=shape.preferred * 2)
    assert where(
        [node("a"), node("b", disk="ssd", soft_taints=1)], builders.pods("p", both, 1)
    ) == ["b"]


@pytest.mark.parametrize(("weight", "chosen"), [(10, "b"), (-10, "a")])
def test_pods_are_drawn_and_pushed(weight: int, chosen: str) -> None:
    """Preferred inter-pod affinity and anti-affinity look at pods that run already."""
    term = WeightedPodTerm(weight, PodTerm(ZONE, WEB))
    nodes = [node("a", "east"), node("b", "west")]
    running = [(web("r", builders.shape(cpu_milli=1000, gpus=0))[0], "b")]
    assert where(nodes, builders.pods("p", tied(preferred=(term,)), 1), running) == [chosen]


def test_members_that_push_each_other_part() -> None:
    """Within one plan each member sees those before it."""
    term = WeightedPodTerm(-10, PodTerm(HOSTNAME, WEB))
    assert sorted(
        where([node("a"), node("b"), node("c")], web("p", tied(preferred=(term,)), 3))
    ) == ["a", "b", "c"]


def test_soft_spread_evens_out() -> None:
    """ScheduleAnyway spread: two of four members go to each zone, though one node would
    take all.
    """
    spread = Spread(topology_key=ZONE, max_skew=1, selector=WEB)
    found = where([node("a", "east"), node("b", "west")], web("p", tied(soft_spread=(spread,)), 4))
    assert sorted(found) == ["a", "a", "b", "b"]


def test_who_wants_to_part_is_not_kept_together() -> None:
    """A gang with GPUs whose members spread over zones by their own wish is not first tried in one
    zone.
    """
    nodes = [
        node("a", "east", gpu=1),
        node("b", "east", gpu=1),
        node("c", "west", gpu=1),
        node("d", "west", gpu=1),
    ]
    spread = tied(gpu=1, soft_spread=(Spread(topology_key=ZONE, max_skew=1, selector=WEB),))
    push = tied(gpu=1, preferred=(WeightedPodTerm(-10, PodTerm(ZONE, WEB)),))
    for shape in (spread, push):
        assert {name in {"a", "b"} for name in where(nodes, web("p", shape, 2))} == {True, False}
    assert (
        len(
            {
                name in {"a", "b"}
                for name in where(nodes, web("p", builders.shape(cpu_milli=1000, gpus=1), 2))
            }
        )
        == 1
    )


def test_preferences_come_before_packing() -> None:
    """A pod takes a whole GPU node that it prefers, though a broken one would do."""
    nodes = [node("a", gpu=8), node("b", gpu=8, disk="ssd")]
    running = [(builders.pods("r", builders.shape(gpus=1), 1)[0], "a")]
    assert where(nodes, builders.pods("p", builders.shape(cpu_milli=1000, gpus=1), 1), running) == [
        "a"
    ]
    assert where(
        nodes, builders.pods("p", likes_disk(1, builders.shape(cpu_milli=1000, gpus=1)), 1), running
    ) == ["b"]
