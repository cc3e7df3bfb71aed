"""Shapes of topologies and gangs: one domain where one is asked for, whole slices, and the fewest
domains (L4 to L6).

A table of clusters crossed with a table of gangs, without random numbers: each pair is planned once
on empty nodes.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from gangsched.core.cycle import plan
from gangsched.model.gpu_policy import PlacementConstraints, SliceLayer
from gangsched.model.objects import Node
from gangsched.sentences import say
from tests import builders

BLOCK, RACK, HOST = "example.com/block", "example.com/rack", "kubernetes.io/hostname"

CLUSTERS: dict[str, dict[str, tuple[int, ...]]] = {
    "one host": {"a1": (4,)},
    "one rack of two": {"a1": (4, 4)},
    "equal racks": {"a1": (2, 2), "a2": (2, 2)},
    "equal racks in two blocks": {"a1": (2, 2), "b1": (2, 2)},
    "a large rack": {"a1": (2,), "a2": (4, 4), "b1": (2, 1)},
    "racks of falling size": {"a1": (8,), "a2": (4,), "b1": (2,), "b2": (1,)},
    "many small hosts": {"a1": (1, 1, 1), "a2": (1, 1, 1), "b1": (1, 1, 1), "b2": (1, 1)},
    "odd hosts": {"a1": (3, 1), "a2": (3, 3), "b1": (5, 1)},
    "the room is in the last block": {"a1": (1,), "a2": (1,), "b1": (6, 2), "b2": (4,)},
    "nothing free in one block": {"a1": (0, 0), "b1": (4, 3), "b2": (3, 3)},
    "twelve hosts": {"a1": (2, 2, 2), "a2": (2, 2, 2), "b1": (2, 2, 2), "c1": (2, 2, 2)},
}
"""By rack, whose first letter is its block, the GPUs of each host."""


@dataclass(frozen=True)
class Wish:
    """A gang of `pods` of one GPU each."""

    pods: int
    required: str = ""
    preferred: str = ""
    slices: tuple[SliceLayer, ...] = ()

    def __str__(self) -> str:
        layers = "+".join(
            f"{layer.size}/{layer.topology.rpartition('/')[2]}" for layer in self.slices
        )
        level = (self.required or self.preferred).rpartition("/")[2]
        kind = "required" if self.required else "preferred" if self.preferred else "slices"
        return f"{self.pods} {kind} {level}{layers}"


WISHES = [
    *(Wish(pods, required=level) for pods, level in ((3, RACK), (6, RACK), (9, BLOCK), (2, HOST))),
    *(Wish(pods, preferred=level) for pods, level in ((3, RACK), (7, RACK), (5, HOST), (8, BLOCK))),
    *(
        Wish(size * 2, slices=(SliceLayer(size, level),))
        for size, level in ((1, HOST), (2, RACK), (3, BLOCK), (4, RACK))
    ),
    Wish(8, slices=(SliceLayer(4, BLOCK), SliceLayer(2, RACK))),
    Wish(6, required=BLOCK, slices=(SliceLayer(2, HOST),)),
]


def cluster(racks: dict[str, tuple[int, ...]]) -> list[Node]:
    """The hosts of these racks."""
    return [
        builders.node(f"{rack}-{number}", gpus, labels={RACK: rack, BLOCK: rack[0]})
        for rack, hosts in racks.items()
        for number, gpus in enumerate(hosts)
    ]


def domain(node: str, level: str) -> str:
    """The domain of a host, by its name."""
    rack = node.partition("-")[0]
    return {BLOCK: rack[0], RACK: rack, HOST: node}[level]


def room(nodes: Sequence[Node], level: str) -> Counter[str]:
    """Free GPUs by domain."""
    found: Counter[str] = Counter()
    for each in nodes:
        found[domain(each.name, level)] += dict(each.allocatable).get(builders.GPU, 0)
    return found


def copies(nodes: Sequence[Node], layers: Sequence[SliceLayer]) -> Counter[str]:
    """By domain of the first layer how many whole slices it takes, each inner one in its own
    domain.
    """
    (size, level), inner = layers[0], layers[1:]
    if not inner:
        return Counter({name: free // size for name, free in room(nodes, level).items()})
    found: Counter[str] = Counter()
    for name, number in copies(nodes, inner).items():
        found[domain(f"{name}-", level)] += number
    return Counter({name: number // (size // inner[0].size) for name, number in found.items()})


def fewest(numbers: Counter[str], needed: int) -> int | None:
    """How many domains, the largest first, hold so many; None if all of them do not."""
    sums = list(itertools.accumulate(sorted(numbers.values(), reverse=True)))
    return next((number for number, held in enumerate(sums, 1) if held >= needed), None)


@pytest.mark.parametrize("wish", WISHES, ids=str)
@pytest.mark.parametrize("name", CLUSTERS)
def test_shape(name: str, wish: Wish) -> None:
    """L4, L5, L6: it starts exactly if it fits, in one domain, the fewest preferred ones, or by
    whole slices in the fewest domains.
    """
    nodes = cluster(CLUSTERS[name])
    pods = [builders.pod(f"m-{index}", index=index) for index in range(wish.pods)]
    constraints = PlacementConstraints(
        topology=(wish.required,) if wish.required else (),
        preferred=wish.preferred,
        slices=wish.slices,
    )
    gang = builders.gang("ns/g", pods, constraints=constraints, indexed=True)
    (verdict,) = plan(builders.snapshot(nodes), [builders.group(gang)], now_s=0.0).verdicts
    at = {placement.pod.index: placement.node for placement in verdict.binds}
    inside = (
        [
            [each for each in nodes if domain(each.name, wish.required) == one]
            for one in room(nodes, wish.required)
        ]
        if wish.required
        else [nodes]
    )
    if wish.slices:
        size = wish.slices[0].size
        numbers = [fewest(copies(part, wish.slices), wish.pods // size) for part in inside]
    else:
        numbers = [
            fewest(room(part, wish.preferred or wish.required), wish.pods) for part in inside
        ]
    assert bool(at) == any(number is not None for number in numbers), say(verdict.told).text
    if not at:
        return
    assert len(at) == wish.pods
    if wish.required:
        assert len({domain(node, wish.required) for node in at.values()}) == 1
    for size, level in wish.slices:
        for _, members in itertools.groupby(sorted(at), key=lambda index: index // size):
            assert len({domain(at[index], level) for index in members}) == 1
    level = wish.slices[0].topology if wish.slices else wish.preferred or wish.required
    if not (wish.required and wish.slices):
        assert len({domain(node, level) for node in at.values()}) == min(
            n for n in numbers if n is not None
        )


def test_there_are_as_many_shapes_as_stated() -> None:
    """Kueue's own topology tests have 146."""
    assert len(CLUSTERS) * len(WISHES) >= 146
