"""Score: which feasible nodes a run of identical pods gets."""

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
