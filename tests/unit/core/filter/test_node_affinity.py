"""NodeAffinity: nodeSelector, the operators, terms that name nodes, and what each refusal is
called.
"""

from __future__ import annotations

import pytest

from gangsched.core.node_terms import any_term_met
from gangsched.model.inter_pod import Requirement
from gangsched.model.objects import NodeSelectorTerm, Pod, Shape
from tests.builders import amounts, node, pod
from tests.unit.core.filter.asking import ledger, open_nodes, refusal

NODES = [
    node("big", labels={"size": "99999999999999999999"}),
    node("none"),
    node("nine", labels={"size": "9.5"}),
    node("seven", labels={"size": "007"}),
    node("twelve", labels={"size": "12", "disk": "ssd"}),
]


def wanting(*terms: NodeSelectorTerm, selector: tuple[tuple[str, str], ...] = ()) -> Pod:
    """A pod with these required terms, which are alternatives, and a nodeSelector."""
    return pod(
        "p", of=Shape(requests=amounts(pods=1), required=terms or None, node_selector=selector)
    )


def labels(key: str, operator: str, *values: str) -> NodeSelectorTerm:
    """A term with one requirement of a label."""
    return NodeSelectorTerm(labels=(Requirement(key, operator, values),))


def names(operator: str, *values: str) -> NodeSelectorTerm:
    """A term with one requirement of the node's name."""
    return NodeSelectorTerm(fields=(Requirement("metadata.name", operator, values),))


@pytest.mark.parametrize(
    ("term", "allowed"),
    [
        (labels("size", "In", "12", "007"), {"seven", "twelve"}),
        (labels("size", "NotIn", "12"), {"big", "none", "nine", "seven"}),
        (labels("size", "Exists"), {"big", "nine", "seven", "twelve"}),
        (labels("size", "DoesNotExist"), {"none"}),
        (labels("size", "Gt", "8"), {"twelve"}),
        (labels("size", "Lt", "8"), {"seven"}),
        (labels("size", "Lt", "99999999999999999999"), set()),
        (labels("size", "Gt", "x"), set()),
        (names("In", "big"), {"big"}),
        (names("NotIn", "big", "none"), {"nine", "seven", "twelve"}),
        (NodeSelectorTerm(), set()),
    ],
)
def test_operators(term: NodeSelectorTerm, allowed: set[str]) -> None:
    """Gt and Lt read whole numbers of 64 bits and match nothing else; an empty term matches no
    node.
    """
    assert open_nodes(wanting(term), ledger(NODES)) == allowed
    assert {each.name for each in NODES if any_term_met([term], each)} == allowed


def test_terms_are_alternatives_and_the_selector_is_not() -> None:
    """One of the terms must match, and every entry of nodeSelector."""
    either = (labels("size", "In", "12"), labels("size", "In", "007"), labels("size", "Gt", "x"))
    assert open_nodes(wanting(*either), ledger(NODES)) == {"seven", "twelve"}
    assert open_nodes(wanting(*either, selector=(("disk", "ssd"),)), ledger(NODES)) == {"twelve"}
    assert open_nodes(wanting(selector=(("disk", "ssd"), ("size", "007"))), ledger(NODES)) == set()


def test_terms_that_name_nodes_leave_the_others_out_before_any_filter() -> None:
    """They count under a text of their own, cordoned or not; one term that names none turns that
    off.
    """
    on = ledger([node("a", unschedulable=True), node("b"), node("c", gpus=0)])
    only = wanting(
        NodeSelectorTerm(labels=(Requirement("x", "Exists"),), fields=names("In", "b").fields)
    )
    assert (
        refusal(only, on)
        == "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, "
        "2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    )
    assert (
        refusal(wanting(names("In", "gone"), names("In", "away")), on)
        == "0/3 nodes are available: 3 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    )
    assert (
        refusal(wanting(names("In", "a"), labels("x", "Exists")), on)
        == "0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) didn't match Pod's"
        " node affinity/selector."
    )


def test_two_names_in_one_term_conflict() -> None:
    """A term asks for all of its requirements, so two names leave no node to look at, unless
    another term has one.
    """
    two = NodeSelectorTerm(fields=(*names("In", "big").fields, *names("In", "nine").fields))
    assert (
        refusal(wanting(two), ledger(NODES))
        == "0/5 nodes are available: pod affinity terms conflict."
    )
    assert open_nodes(wanting(two, names("In", "nine")), ledger(NODES)) == {"nine"}
