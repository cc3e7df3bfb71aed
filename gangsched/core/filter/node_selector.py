"""Node selector terms: which nodes match them by labels and fields.

Requirements are evaluated once per distinct label value, not once per node (`LabelColumn`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from gangsched.core.node_terms import NODE_NAME_FIELD, value_matches
from gangsched.model.inter_pod import Requirement
from gangsched.model.objects import NodeSelectorTerm
from gangsched.model.snapshot import Bools, LabelColumn, NodeTable


def any_term(terms: Iterable[NodeSelectorTerm], table: NodeTable) -> Bools:
    """`matched[node]`: the node matches at least one of the terms."""
    mask = np.zeros(len(table), dtype=np.bool_)
    for term in terms:
        mask |= term_met(term, table)

    return mask


def requirement_met(requirement: Requirement, table: NodeTable) -> Bools:
    """`met[node]`: the node's labels satisfy the requirement."""
    return _matches(requirement, table.label_column(requirement.key))


def term_met(term: NodeSelectorTerm, table: NodeTable) -> Bools:
    """`met[node]`: the node satisfies all requirements of the term; an empty term matches
    no node.
    """
    mask = np.full(len(table), bool(term.labels or term.fields))
    for requirement in term.labels:
        mask &= requirement_met(requirement, table)

    for requirement in term.fields:
        mask &= _field(requirement, table)

    return mask


def _field(requirement: Requirement, table: NodeTable) -> Bools:
    """`matchFields` knows one field, metadata.name, with In and NotIn."""
    # The API admits no other field; an unknown one matches nothing.
    names: Sequence[str] = ()
    if requirement.key == NODE_NAME_FIELD:
        names = requirement.values

    named = table.having(names)
    if requirement.operator == "NotIn":
        return ~named

    return named


def _matches(requirement: Requirement, column: LabelColumn) -> Bools:
    """Evaluate on the distinct values, then look up; the last entry answers for nodes without the
    label (code -1).
    """
    listed = frozenset(requirement.values)
    match requirement.operator:
        case "In":
            verdicts = [value in listed for value in column.values]
        case "NotIn":
            verdicts = [value not in listed for value in column.values]
        case _:
            verdicts = [value_matches(requirement, value) for value in column.values]

    # Index -1 of the array: nodes without the label satisfy exactly these two operators.
    verdicts.append(requirement.operator in {"NotIn", "DoesNotExist"})
    return np.array(verdicts, dtype=np.bool_)[column.codes]
