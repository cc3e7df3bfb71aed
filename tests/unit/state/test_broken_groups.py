"""What a start left behind, and what is only on its way."""

from __future__ import annotations

from gangsched.model.objects import JointStart
from gangsched.model.tree import Composite
from gangsched.state.broken_groups import is_pinned, rest_of_start
from tests.builders import gang, pod

START = JointStart(members=4, youngest_s=2**40)
TREE = Composite("t", children=("a", "b", "c"), min_children=2)


def test_what_waits_for_its_claims_is_not_the_rest_of_its_start() -> None:
    """B3: `b` has all the nodes that it needs, and waits for a claim that may never be bound; what
    was sent without is `c`, which makes the tree whole without it.
    """
    sent = gang("a", min_member=1, bound=1, satisfied=True, permitted_min=1, together=START)
    on_its_way = gang("b", [pod("b-2")], min_member=2, bound=2)
    left = gang("c", [pod("c-0")], min_member=1)

    assert rest_of_start((sent, on_its_way, left), TREE) == {"c"}


def test_a_gang_without_nodes_is() -> None:
    """As `b` is, once its claims could not be bound."""
    sent = gang("a", min_member=1, bound=1, satisfied=True, permitted_min=1, together=START)
    given_up = gang("b", [pod("b-0"), pod("b-1")], min_member=2)
    left = gang("c", [pod("c-0")], min_member=1)

    assert rest_of_start((sent, given_up, left), TREE) == {"b", "c"}


def test_what_claims_keep_on_a_node_goes_before_what_may_go_anywhere() -> None:
    """Q2: only the pods of the rest are asked, not those that a later start may have."""
    sent = gang("a", [pod("a-1")], min_member=1, bound=1, satisfied=True, together=START)
    left = gang("c", [pod("c-0")], min_member=1)
    gangs = (sent, left)
    tree = Composite("t", children=("a", "c"), min_children=2)

    def of_rest(fixed: str) -> bool:
        return is_pinned(gangs, tree, frozenset({"c"}), lambda member: member.name == fixed)

    assert (of_rest("c-0"), of_rest("a-1"), of_rest("")) == (True, False, False)
