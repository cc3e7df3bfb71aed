"""Kinds: in which order the layers of slices are packed (semantics I3, I9)."""

from __future__ import annotations

import pytest

from gangsched.core.search.kinds import layers_of
from gangsched.model.gpu_policy import SliceLayer
from tests.builders import node, snapshot

BLOCK, RACK, ZONE = "example.com/block", "example.com/rack", "example.com/zone"


def stated(*labels: str) -> tuple[SliceLayer, ...]:
    """Layers of these labels, the outermost first."""
    return tuple(SliceLayer(1, label) for label in labels)


@pytest.mark.parametrize(
    ("layers", "ordered", "nested"),
    [
        ([(RACK,), (ZONE, RACK)], (ZONE, RACK), True),
        ([(RACK,), (BLOCK, ZONE), (ZONE, RACK)], (BLOCK, ZONE, RACK), True),
        ([(RACK, ZONE), (ZONE, RACK)], (RACK, ZONE), False),
    ],
)
def test_labels_with_the_same_domains_are_in_the_order_in_which_they_are_stated(
    layers: list[tuple[str, ...]], ordered: tuple[str, ...], nested: bool
) -> None:
    """Where a zone has one rack, neither is finer: a search that took the rack for the outer one
    packed nothing.
    """
    nodes = [node(f"n{n}", labels={BLOCK: "b", RACK: "r", ZONE: "z"}) for n in range(2)]
    found = layers_of([stated(*each) for each in layers], snapshot(nodes).table)
    assert found == (ordered, nested)


def test_finer_labels_are_inside_coarser_ones_in_whatever_order_they_are_stated() -> None:
    """Domains decide where they differ; labels that cross are not nested."""
    nodes = [
        node(f"n{n}", labels={RACK: f"r{n}", ZONE: f"z{n // 2}", BLOCK: f"b{n % 2}"})
        for n in range(4)
    ]
    table = snapshot(nodes).table
    assert layers_of([stated(RACK), stated(ZONE)], table) == ((ZONE, RACK), True)
    assert not layers_of([stated(BLOCK), stated(ZONE)], table)[1]
    assert not layers_of([stated(RACK, ZONE), stated(ZONE)], table)[1]
