"""Node selector terms: which nodes match them by labels and fields.

Requirements are evaluated once per distinct label value, not once per node (`LabelColumn`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from gangsched.model.inter_pod import Requirement
from gangsched.model.objects import Node, NodeSelectorTerm
from gangsched.model.snapshot import Bools, LabelColumn, NodeTable

NODE_NAME_FIELD = "metadata.name"
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_LARGEST_INTEGER = 2**63 - 1


def any_term(terms: Iterable[NodeSelectorTerm], table: NodeTable) -> Bools:
    """`matched[node]`: the node matches at least one of the terms."""
    mask = np.zeros(len(table), dtype=np.bool_)
    for term in terms:
        mask |= term_met(term, table)
    return mask


def any_term_met(terms: Iterable[NodeSelectorTerm], node: Node) -> bool:
    """`any_term` for one node."""
    return any(_met_by(term, node) for term in terms)


def _met_by(term: NodeSelectorTerm, node: Node) -> bool:
    named = ((each.key == NODE_NAME_FIELD and node.name in each.values) for each in term.fields)
    return (
        bool(term.labels or term.fields)
        and all(_label_met(each, node.labels.get(each.key)) for each in term.labels)
        and all(found != (each.operator == "NotIn") for each, found in zip(term.fields, named, strict=True))
    )


def _label_met(requirement: Requirement, value: str | None) -> bool:
    if value is None:
        return requirement.operator in {"NotIn", "DoesNotExist"}
    if requirement.operator in {"In", "NotIn"}:
        return (value in requirement.values) == (requirement.operator == "In")
    return _value_matches(requirement, value)


def requirement_met(requirement: Requirement, table: NodeTable) -> Bools:
    """`met[node]`: the node's labels satisfy the requirement."""
    return _matches(requirement, table.label_column(requirement.key))


def term_met(term: NodeSelectorTerm, table: NodeTable) -> Bools:
    """`met[node]`: the node satisfies all requirements of the term; an empty term matches no node."""
    mask = np.full(len(table), bool(term.labels or term.fields))
    for requirement in term.labels:
        mask &= requirement_met(requirement, table)
    for requirement in term.fields:
        mask &= _field(requirement, table)
    return mask


def _field(requirement: Requirement, table: NodeTable) -> Bools:
    """`matchFields` knows one field, metadata.name, with In and NotIn."""
    named = table.having(requirement.values if requirement.key == NODE_NAME_FIELD else ())
    return ~named if requirement.operator == "NotIn" else named


def _matches(requirement: Requirement, column: LabelColumn) -> Bools:
    """Evaluate on the distinct values, then look up; the last entry answers for nodes without the label (code -1)."""
    listed = frozenset(requirement.values)
    match requirement.operator:
        case "In":
            verdicts = [value in listed for value in column.values]
        case "NotIn":
            verdicts = [value not in listed for value in column.values]
        case _:
            verdicts = [_value_matches(requirement, value) for value in column.values]
    verdicts.append(requirement.operator in {"NotIn", "DoesNotExist"})
    return np.array(verdicts, dtype=np.bool_)[column.codes]


def _value_matches(requirement: Requirement, value: str) -> bool:
    match requirement.operator:
        case "Exists":
            return True
        case "Gt" | "Lt":
            return _compares(requirement, value)
        case _:  # DoesNotExist, and operators of the future: no match, as the safe answer
            return False


def _compares(requirement: Requirement, value: str) -> bool:
    """Gt and Lt compare whole numbers of 64 bits ("007" is 7); anything else on either side never matches."""
    if len(requirement.values) != 1 or not (_INTEGER.fullmatch(value) and _INTEGER.fullmatch(requirement.values[0])):
        return False
    left, right = int(value), int(requirement.values[0])
    if max(abs(left), abs(right)) > _LARGEST_INTEGER:
        return False
    return left > right if requirement.operator == "Gt" else left < right
