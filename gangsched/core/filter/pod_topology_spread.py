"""kube-scheduler's PodTopologySpread, DoNotSchedule: the numbers of matching pods per domain may
differ by at most maxSkew.

A domain counts if it has an eligible node: a node that has the keys of all constraints, and that
passes the constraint's nodeAffinityPolicy and nodeTaintsPolicy. A cordoned node counts like any
other node. Terminating pods are not counted. A selector that selects everything counts no pods
(countPodsMatchSelector), although it matches the pod itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from gangsched.core.filter.node_affinity import NodeAffinity
from gangsched.core.filter.plugin import Occupancy, StatefulFilter, static_cost
from gangsched.core.filter.pod_counts import DomainCounts
from gangsched.core.filter.taint_toleration import TaintToleration
from gangsched.model.inter_pod import Requirement, Selector, Spread, selects
from gangsched.model.objects import Pod
from gangsched.model.pods_by_node import ResolvedTerm, Selected
from gangsched.model.snapshot import Bools, RefusedNodes

REFUSED = "node(s) didn't match pod topology spread constraints"
MISSING = f"{REFUSED} (missing required label)"


class PodTopologySpread(StatefulFilter):
    """Nodes where one more pod keeps every constraint within its maxSkew."""

    def applies(self, pod: Pod, occupancy: Occupancy) -> bool:
        return bool(pod.shape.constraints.spread)

    def refusals(self, pod: Pod, occupancy: Occupancy) -> Iterator[RefusedNodes]:
        """Yield the reason of each constraint with the nodes that it refuses, in order."""
        for index, constraint in enumerate(pod.shape.constraints.spread):
            nodes = len(occupancy.table)
            occupancy.work.charge(60 + nodes // 80)
            codes = occupancy.pods.domains(constraint.topology_key)
            yield RefusedNodes(MISSING, codes < 0)

            matching = matching_pods(pod, index, occupancy)

            # Domains without an eligible node do not count, not even as empty ones.
            existing = matching.counts[matching.exists]
            # With fewer domains than minDomains, the global minimum is 0.
            least = 0
            if existing.size >= constraint.min_domains:
                least = int(existing.min())

            # The pod counts itself only if its own selector selects it.
            selector = _selector(constraint, pod)
            itself = selects(selector, pod.labels)
            skew = matching.by_node() + itself - least
            yield RefusedNodes(REFUSED, skew > constraint.max_skew)


def matching_pods(
    pod: Pod,
    index: int,
    occupancy: Occupancy,
) -> DomainCounts:
    """Matching pods by domain for one constraint; `index` counts the hard constraints first, then
    the soft ones.
    """
    shape = pod.shape
    hard = shape.constraints.spread
    soft = shape.constraints.soft_spread
    constraints = hard if index < len(hard) else soft
    constraint = (*hard, *soft)[index]
    key = (shape, index)

    # Kept with the node table: which nodes count does not change during plans.
    known = occupancy.table.eligible.setdefault(shape, {})
    if index not in known:
        cost = static_cost(shape, occupancy.table)
        occupancy.work.charge(20 + cost)
        known[index] = _eligible(pod, constraints, constraint, occupancy)

    selector = _selector(constraint, pod)
    # countPodsMatchSelector: an empty selector counts no pods, although the pod itself matches.
    if selector == ():
        selector = None

    term = ResolvedTerm(frozenset({pod.namespace}), selector)
    selected = Selected((term,), staying=True)
    return occupancy.pods.by_domain(selected, constraint.topology_key, key)


def _selector(constraint: Spread, pod: Pod) -> Selector:
    """The constraint's selector with the pod's own values of `match_label_keys`; nothing stays
    nothing.
    """
    if constraint.selector is None or not constraint.match_label_keys:
        return constraint.selector

    requirements = list(constraint.selector)
    for key in constraint.match_label_keys:
        value = pod.labels.get(key)
        if value is not None:
            requirements.append(Requirement(key, "In", (value,)))

    return tuple(requirements)


def _eligible(
    pod: Pod,
    constraints: tuple[Spread, ...],
    constraint: Spread,
    occupancy: Occupancy,
) -> Bools:
    mask = occupancy.table.everywhere()
    for spread in constraints:
        codes = occupancy.pods.domains(spread.topology_key)
        mask &= codes >= 0

    shape = pod.shape
    if constraint.honor_affinity:
        mask &= NodeAffinity().allowed(shape, occupancy.table)

    if constraint.honor_taints:
        mask &= TaintToleration().allowed(shape, occupancy.table)

    return mask
