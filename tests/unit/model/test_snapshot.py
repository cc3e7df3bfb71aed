"""What a node table remembers, and for how long."""

from __future__ import annotations

import gc

from gangsched.core.filter import static_fit
from gangsched.model.objects import Node, Shape
from gangsched.model.snapshot import LABEL_COLUMNS_LIMIT, NodeTable


def test_what_static_filters_said_goes_with_the_shape() -> None:
    """The node table outlives shapes by far on a quiet cluster."""
    table, shape = NodeTable.of([Node(name="n")]), Shape(requests=())
    static_fit(shape, table)
    assert len(table.static_fits) == 1
    del shape
    gc.collect()
    assert len(table.static_fits) == 0


def test_label_columns_are_bounded() -> None:
    """Keys are any text of a user's node selector."""
    table = NodeTable.of([Node(name="n")])
    for number in range(3 * LABEL_COLUMNS_LIMIT):
        table.label_column(f"key-{number}")
    assert len(table.label_columns) <= LABEL_COLUMNS_LIMIT
