"""kube-scheduler's NodeAffinity: nodeSelector, required terms (at least one must match), preferred
terms.
"""

from __future__ import annotations

import numpy as np

from gangsched.core.filter.node_selector import any_term, requirement_met, term_met
from gangsched.core.filter.plugin import Occupancy, StaticFilter
from gangsched.core.node_terms import NODE_NAME_FIELD
from gangsched.model.gang import Refusal
from gangsched.model.inter_pod import Requirement
from gangsched.model.objects import Pod, Shape
from gangsched.model.reasons import Reason
from gangsched.model.snapshot import Bools, Ints, NodeTable
from gangsched.model.verdict_facts import Worded

CONFLICT = "pod affinity terms conflict"


class NamedNodes(StaticFilter):
    """Limits the pod to the nodes that its required terms name by `metadata.name In`.

    kube-scheduler excludes all other nodes before any Filter runs (PreFilter of NodeAffinity),
    including cordoned ones.
    """

    reason = "node(s) didn't satisfy plugin(s) [NodeAffinity]"

    def pre_filter(self, pod: Pod, occupancy: Occupancy) -> Refusal | None:
        names = _names(pod.shape)
        # Terms that name disjoint nodes: kube-scheduler rejects the pod without looking at any
        # node.
        if names is not None and not names:
            return Refusal(Reason.UNSCHEDULABLE, Worded(CONFLICT))

        return None

    def allowed(self, shape: Shape, table: NodeTable) -> Bools:
        names = _names(shape)
        if names is None:
            return table.everywhere()

        return table.having(names)


class NodeAffinity(StaticFilter):
    """Nodes that match the nodeSelector and, if there are required terms, one of them."""

    reason = "node(s) didn't match Pod's node affinity/selector"

    def allowed(self, shape: Shape, table: NodeTable) -> Bools:
        mask = table.everywhere()
        for key, value in shape.node_selector:
            mask &= requirement_met(Requirement(key, "In", (value,)), table)

        if shape.required is None:
            return mask

        return mask & any_term(shape.required, table)


def preference(shape: Shape, table: NodeTable) -> Ints:
    """`preference[node]`: sum of the weights of the preferred terms that match the node."""
    total = np.zeros(len(table), dtype=np.int64)
    for preferred in shape.preferred:
        total += np.where(term_met(preferred.term, table), preferred.weight, 0)

    return total


def _names(shape: Shape) -> frozenset[str] | None:
    """The nodes that the required terms name, None unless each of them names some."""
    names: frozenset[str] = frozenset()
    for term in shape.required or ():
        fields = []
        for requirement in term.fields:
            if requirement.key == NODE_NAME_FIELD and requirement.operator == "In":
                fields.append(set(requirement.values))

        # A term without names admits any node, so nothing is known from the others.
        if not fields:
            return None

        # Fields of one term are ANDed, terms are ORed.
        names |= set.intersection(*fields)

    return names if shape.required else None
