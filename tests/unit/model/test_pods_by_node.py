"""What is remembered about pods on nodes, and for how long."""

from __future__ import annotations

import gc
import weakref

import numpy as np

from gangsched.core.filter import static_fit
from gangsched.model.objects import Node, Shape
from gangsched.model.pods_by_node import MEMO_LIMIT, Memo, OwnedBy, PodsByNode
from gangsched.model.snapshot import LABEL_COLUMNS_LIMIT, NodeTable


def owned(shape: Shape) -> OwnedBy:
    """The question about the pods of a shape in one namespace."""
    return OwnedBy((shape, "ns"))


def test_an_answer_in_use_is_kept() -> None:
    """Ages pass over a question that is asked in each."""
    memo, question = Memo(), owned(Shape(requests=()))
    answer = memo.answer(question, 3)
    for _ in range(5):
        memo.new_age()
        assert memo.answer(question, 3) is answer


def test_an_answer_goes_with_the_shape_that_nobody_asks_about() -> None:
    """After two ages nothing keeps the shape of pods that are gone."""
    memo, shape = Memo(), Shape(requests=())
    memo.answer(owned(shape), 3)
    gone = weakref.ref(shape)
    del shape
    memo.new_age()
    memo.new_age()
    gc.collect()
    assert gone() is None
    assert len(memo) == 0


def test_answers_are_bounded() -> None:
    """More questions than the limit begin a new age, whatever the clock says."""
    memo = Memo()
    shapes = [Shape(requests=()) for _ in range(5 * MEMO_LIMIT)]
    for shape in shapes:
        memo.answer(owned(shape), 1)
    assert len(memo) <= 2 * MEMO_LIMIT


def test_counts_are_right_across_ages() -> None:
    """Forgetting costs a look at every node, never an answer."""
    pods = PodsByNode(residents=({}, {}), versions=np.array([1, 1]))
    for _ in range(3):
        assert pods.counts(owned(Shape(requests=()))).tolist() == [0, 0]
        pods.memo.new_age()


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
