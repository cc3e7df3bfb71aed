"""Score: which feasible nodes a run of identical pods gets."""

import numpy as np

from bench import clusters
from gangsched.core import score
from gangsched.core.reserve import Ledger
from gangsched.model.objects import Shape


def chosen(shape: Shape, count: int, ledger: Ledger) -> dict[str, int]:
    """How many of `count` pods each node gets, by node name."""
    nodes, counts = score.choose(shape, count, ledger.room(shape), ledger)
    return {ledger.table.names[node]: number for node, number in zip(nodes.tolist(), counts.tolist(), strict=True)}


def test_resource_that_no_node_has() -> None:
    """A pod that asks for a device which no node offers gets no node, and nothing breaks."""
    assert chosen(clusters.shape(gpu=1), 1, clusters.ledger([clusters.node("a", cpu=1000)])) == {}


def used(ledger: Ledger, shape: Shape, **already: int) -> Ledger:
    """`ledger` after `already` pods of `shape` were put on the named nodes."""
    for name, count in already.items():
        node = ledger.table.index[name]
        ledger.reserve(clusters.pods(f"on-{name}", shape, count), np.array([node]), np.array([count]))
    return ledger


ONE = clusters.shape(gpu=1)


def test_pods_without_accelerators_leave_gpu_nodes_alone() -> None:
    """A CPU pod goes to a GPU node only where no other has room."""
    nodes = [clusters.node("a", cpu=8000, gpu=8), clusters.node("b", cpu=8000)]
    assert chosen(clusters.shape(cpu=4000), 3, clusters.ledger(nodes)) == {"b": 2, "a": 1}


def test_a_gang_keeps_together() -> None:
    """Pods that fit on one node go to one node, also where two smaller rests would be used up."""
    ledger = clusters.ledger([clusters.node(name, gpu=size) for name, size in (("a", 2), ("b", 2), ("c", 8))])
    assert chosen(ONE, 4, ledger) == {"c": 4}


def test_whole_nodes_stay_whole() -> None:
    """A small pod fills a rest before it breaks a free node, and the smaller rest first."""
    ledger = used(clusters.ledger([clusters.node(name, gpu=8) for name in "abc"]), ONE, b=4, c=6)
    assert chosen(ONE, 2, ledger) == {"c": 2}


def test_the_odd_gpu_is_used_first() -> None:
    """One GPU is taken where it leaves gangs of every size the most: from three free ones rather than from two."""
    ledger = used(clusters.ledger([clusters.node(name, gpu=8) for name in "ab"]), ONE, a=6, b=5)
    assert chosen(ONE, 1, ledger) == {"b": 1}


def test_the_smaller_machine_first() -> None:
    """Where the same is left over, the machine with fewer devices is used up."""
    ledger = used(clusters.ledger([clusters.node("a", gpu=8), clusters.node("b", gpu=2)]), ONE, a=7, b=1)
    assert chosen(ONE, 1, ledger) == {"b": 1}


def test_well_equipped_nodes_stay_for_those_who_need_them() -> None:
    """Among nodes with the same devices, the one with the least memory and CPU that is enough."""
    nodes = [clusters.node("a", cpu=96_000, memory=800, gpu=8), clusters.node("b", cpu=96_000, memory=400, gpu=8)]
    assert chosen(clusters.shape(cpu=8000, memory=300, gpu=8), 1, clusters.ledger(nodes)) == {"b": 1}


def test_a_node_that_shrank_below_its_use_gets_nothing() -> None:
    """Where a device fell out, free is negative; that counts as no room, and as no reason to break a plan."""
    ledger = used(clusters.ledger([clusters.node("a", gpu=2), clusters.node("b", gpu=2)]), ONE, a=3)
    assert chosen(ONE, 4, ledger) == {"b": 2}


def test_worth_counts_every_size() -> None:
    """Eight in one piece are worth more than the same eight in two pieces, and those more than in eight."""
    assert score.worth(np.array([8, 4, 2, 1, 0])).tolist() == [32, 12, 4, 1, 0]
