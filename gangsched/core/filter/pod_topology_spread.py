"""kube-scheduler's PodTopologySpread, DoNotSchedule: matching pods per domain differ by at most maxSkew.

A domain exists where a node in scope has it; in scope are nodes that have the keys of all constraints and pass the
constraint's nodeAffinityPolicy and nodeTaintsPolicy. A cordoned node counts as any other. Terminating pods are not
counted, and a selector that selects everything counts nothing (countPodsMatchSelector), though the pod itself matches.
"""

from __future__ import annotations

import numpy as np

from gangsched.core.filter import node_affinity, taint_toleration
from gangsched.core.filter.company import Company, Tally
from gangsched.model.inter_pod import Requirement, Selector, Spread, selects
from gangsched.model.objects import Pod
from gangsched.model.pods_by_node import ResolvedTerm, Selected
from gangsched.model.snapshot import Bools, Codes

REFUSED = "node(s) didn't match pod topology spread constraints"
MISSING = f"{REFUSED} (missing required label)"
REFUSED_CODE, MISSING_CODE = 1, 2


def refusals(pod: Pod, company: Company) -> Codes:
    """`refused[node]`: 0, or the code of the first constraint's complaint, in the order they are stated."""
    refused = np.zeros(len(company.table), dtype=np.int32)
    for index, constraint in enumerate(pod.shape.inter_pod.spread if pod.shape.inter_pod is not None else ()):
        refused[(refused == 0) & (company.column(constraint.topology_key) < 0)] = MISSING_CODE
        tally = domains(pod, index, company)
        existing = tally.counts[tally.exists]
        least = int(existing.min()) if existing.size >= constraint.min_domains else 0
        itself = selects(selector_of(constraint, pod), pod.labels)
        refused[(refused == 0) & (tally.here() + itself - least > constraint.max_skew)] = REFUSED_CODE
    return refused


def domains(pod: Pod, index: int, company: Company) -> Tally:
    """Matching pods by domain of one constraint; `index` counts through the hard and then the soft ones."""
    inter_pod = pod.shape.inter_pod
    assert inter_pod is not None
    constraints = inter_pod.spread if index < len(inter_pod.spread) else inter_pod.soft_spread
    constraint = (*inter_pod.spread, *inter_pod.soft_spread)[index]
    scope = (pod.shape, index)
    if scope not in company.scopes:
        company.scopes[scope] = _scope(pod, constraints, constraint, company)
    selector = selector_of(constraint, pod)
    question = Selected((ResolvedTerm(frozenset({pod.namespace}), None if selector == () else selector),), staying=True)
    return company.tally(question, constraint.topology_key, scope)


def selector_of(constraint: Spread, pod: Pod) -> Selector:
    """The constraint's selector with the pod's own values of `match_label_keys`; nothing stays nothing."""
    if constraint.selector is None or not constraint.match_label_keys:
        return constraint.selector
    own = (Requirement(key, "In", (pod.labels[key],)) for key in constraint.match_label_keys if key in pod.labels)
    return (*constraint.selector, *own)


def _scope(pod: Pod, constraints: tuple[Spread, ...], constraint: Spread, company: Company) -> Bools:
    mask = np.ones(len(company.table), dtype=np.bool_)
    for each in constraints:
        mask &= company.column(each.topology_key) >= 0
    if constraint.honor_affinity:
        mask &= node_affinity.allowed(pod.shape, company.table)
    if constraint.honor_taints:
        mask &= taint_toleration.allowed(pod.shape, company.table)
    return mask
