"""Evaluates node selector terms on one node; `core.filter.node_selector` evaluates them on all
nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from gangsched.model.inter_pod import Requirement
from gangsched.model.objects import Node, NodeSelectorTerm

NODE_NAME_FIELD = "metadata.name"
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_LARGEST_INTEGER = 2**63 - 1


def any_term_met(terms: Iterable[NodeSelectorTerm], node: Node) -> bool:
    """Whether the node matches at least one of the terms."""
    return any(_met_by(term, node) for term in terms)


def _met_by(term: NodeSelectorTerm, node: Node) -> bool:
    named = (
        (requirement.key == NODE_NAME_FIELD and node.name in requirement.values)
        for requirement in term.fields
    )
    return (
        bool(term.labels or term.fields)
        and all(
            _label_met(requirement, node.labels.get(requirement.key)) for requirement in term.labels
        )
        and all(
            found != (each.operator == "NotIn")
            for each, found in zip(term.fields, named, strict=True)
        )
    )


def _label_met(requirement: Requirement, value: str | None) -> bool:
    if value is None:
        return requirement.operator in {"NotIn", "DoesNotExist"}
    if requirement.operator in {"In", "NotIn"}:
        return (value in requirement.values) == (requirement.operator == "In")

    return value_matches(requirement, value)


def value_matches(requirement: Requirement, value: str) -> bool:
    """Whether a label with this `value` meets a requirement with any operator but In and NotIn."""
    match requirement.operator:
        case "Exists":
            return True
        case "Gt" | "Lt":
            return _compares(requirement, value)
        case _:  # DoesNotExist, and operators of the future: no match, as the safe answer
            return False


def _compares(requirement: Requirement, value: str) -> bool:
    """Gt and Lt compare whole numbers of 64 bits ("007" is 7); anything else on either side never
    matches.
    """
    if len(requirement.values) != 1 or not (
        _INTEGER.fullmatch(value) and _INTEGER.fullmatch(requirement.values[0])
    ):
        return False

    left = int(value)
    right = int(requirement.values[0])
    # strconv.ParseInt fails for these, and kube-scheduler then matches nothing.
    if max(abs(left), abs(right)) > _LARGEST_INTEGER:
        return False
    if requirement.operator == "Gt":
        return left > right

    return left < right
