"""kube-scheduler's NodeAffinity: nodeSelector, required terms (any of them), preferred terms.

Requirements are evaluated once per distinct label value, not once per node (`LabelColumn`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from gangsched.model.inter_pod import Requirement
from gangsched.model.objects import NodeSelectorTerm, Shape
from gangsched.model.snapshot import Bools, Ints, LabelColumn, NodeTable

REFUSED = "node(s) didn't match Pod's node affinity/selector"
NOT_NAMED = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
CONFLICT = "pod affinity terms conflict"
NODE_NAME_FIELD = "metadata.name"
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_LARGEST_INTEGER = 2**63 - 1


def allowed(shape: Shape, table: NodeTable) -> Bools:
    """`allowed[node]`: the nodeSelector matches and, if there are required terms, so does one of them."""
    mask = np.ones(len(table), dtype=np.bool_)
    for key, value in shape.node_selector:
        mask &= _matches(Requirement(key, "In", (value,)), label_column(key, table))
    return mask if shape.required is None else mask & any_term(shape.required, table)


def any_term(terms: Iterable[NodeSelectorTerm], table: NodeTable) -> Bools:
    """`matched[node]`: one of the terms of a node selector does."""
    mask = np.zeros(len(table), dtype=np.bool_)
    for term in terms:
        mask |= _term(term, table)
    return mask


def named(shape: Shape, table: NodeTable) -> Bools:
    """`named[node]`: the node is one of those to which every required term restricts the pod by `metadata.name In`.

    kube-scheduler leaves the others out before any Filter runs (NodeAffinity PreFilter), cordoned or not.
    """
    names = _names(shape)
    if names is None:
        return np.ones(len(table), dtype=np.bool_)
    mask = np.zeros(len(table), dtype=np.bool_)
    mask[[table.index[name] for name in names if name in table.index]] = True
    return mask


def conflicting(shape: Shape) -> bool:
    """Whether every required term names two nodes at once, so that no node is left to look at."""
    names = _names(shape)
    return names is not None and not names


def _names(shape: Shape) -> frozenset[str] | None:
    """The nodes that the required terms name, None unless each of them names some."""
    names: frozenset[str] = frozenset()
    for term in shape.required or ():
        fields = [set(each.values) for each in term.fields if each.key == NODE_NAME_FIELD and each.operator == "In"]
        if not fields:
            return None
        names |= set.intersection(*fields)
    return names if shape.required else None


def preference(shape: Shape, table: NodeTable) -> Ints:
    """`preference[node]`: the sum of the weights of the preferred terms the node matches."""
    total = np.zeros(len(table), dtype=np.int64)
    for preferred in shape.preferred:
        total += np.where(_term(preferred.term, table), preferred.weight, 0)
    return total


def requirement_met(requirement: Requirement, table: NodeTable) -> Bools:
    """`met[node]`: the node's labels meet one requirement."""
    return _matches(requirement, label_column(requirement.key, table))


def label_column(key: str, table: NodeTable) -> LabelColumn:
    """The values of one label over all nodes, remembered on the table."""
    column = table.label_columns.get(key)
    if column is None:
        found: dict[str, int] = {}
        codes = [
            -1 if (value := node.labels.get(key)) is None else found.setdefault(value, len(found))
            for node in table.nodes
        ]
        column = LabelColumn(np.array(codes, dtype=np.int32), tuple(found))
        table.label_columns[key] = column
    return column


def _term(term: NodeSelectorTerm, table: NodeTable) -> Bools:
    """A term matches where all its requirements do; an empty term matches no node."""
    mask = np.full(len(table), bool(term.labels or term.fields))
    for requirement in term.labels:
        mask &= _matches(requirement, label_column(requirement.key, table))
    for requirement in term.fields:
        mask &= _field(requirement, table)
    return mask


def _field(requirement: Requirement, table: NodeTable) -> Bools:
    """`matchFields` knows one field, metadata.name, with In and NotIn."""
    named = np.zeros(len(table), dtype=np.bool_)
    if requirement.key == NODE_NAME_FIELD:
        named[[table.index[name] for name in requirement.values if name in table.index]] = True
    return ~named if requirement.operator == "NotIn" else named


def _matches(requirement: Requirement, column: LabelColumn) -> Bools:
    """Evaluate on the distinct values, then look up; the last entry answers for nodes without the label (code -1)."""
    verdicts = [_value_matches(requirement, value) for value in column.values]
    verdicts.append(requirement.operator in {"NotIn", "DoesNotExist"})
    return np.array(verdicts, dtype=np.bool_)[column.codes]


def _value_matches(requirement: Requirement, value: str) -> bool:
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
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
