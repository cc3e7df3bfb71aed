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
            occupancy.work.charge(60 + len(occupancy.table) // 80)
            yield RefusedNodes(MISSING, occupancy.pods.domains(constraint.topology_key) < 0)
            matching = matching_pods(pod, index, occupancy)

            # Domains without an eligible node do not count, not even as empty ones.
            existing = matching.counts[matching.exists]
            # With fewer domains than minDomains, the global minimum is 0.
            least = int(existing.min()) if existing.size >= constraint.min_domains else 0

            # The pod counts itself only if its own selector selects it.
            itself = selects(_selector(constraint, pod), pod.labels)
            yield RefusedNodes(REFUSED, matching.by_node() + itself - least > constraint.max_skew)


def matching_pods(pod: Pod, index: int, occupancy: Occupancy) -> DomainCounts:
    """Matching pods by domain for one constraint; `index` counts the hard constraints first, then
    the soft ones.
    """
    hard = pod.shape.constraints.spread
    soft = pod.shape.constraints.soft_spread
    constraints = hard if index < len(hard) else soft
    constraint = (*hard, *soft)[index]
    key = (pod.shape, index)

    # Kept with the node table: which nodes count does not change during plans.
    known = occupancy.table.eligible.setdefault(pod.shape, {})
    if index not in known:
        occupancy.work.charge(20 + static_cost(pod.shape, occupancy.table))
        known[index] = _eligible(pod, constraints, constraint, occupancy)

    selector = _selector(constraint, pod)
    # countPodsMatchSelector: an empty selector counts no pods, although the pod itself matches.
    term = ResolvedTerm(frozenset({pod.namespace}), None if selector == () else selector)
    return occupancy.pods.by_domain(Selected((term,), staying=True), constraint.topology_key, key)


def _selector(constraint: Spread, pod: Pod) -> Selector:
    """The constraint's selector with the pod's own values of `match_label_keys`; nothing stays
    nothing.
    """
    if constraint.selector is None or not constraint.match_label_keys:
        return constraint.selector

    own = (
        Requirement(key, "In", (pod.labels[key],))
        for key in constraint.match_label_keys
        if key in pod.labels
    )
    return (*constraint.selector, *own)


def _eligible(
    pod: Pod,
    constraints: tuple[Spread, ...],
    constraint: Spread,
    occupancy: Occupancy,
) -> Bools:
    mask = occupancy.table.everywhere()
    for spread in constraints:
        mask &= occupancy.pods.domains(spread.topology_key) >= 0

    if constraint.honor_affinity:
        mask &= NodeAffinity().allowed(pod.shape, occupancy.table)

    if constraint.honor_taints:
        mask &= TaintToleration().allowed(pod.shape, occupancy.table)

    return mask
