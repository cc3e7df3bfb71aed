"""What kube-scheduler scores about other pods: preferred inter-pod affinity and ScheduleAnyway topology spread.

Each is brought to 0-100 over the feasible nodes as kube-scheduler does it, and turned round: 0 for the best node, up to
100 for the worst, the two added up. That is the scale of a preferred node affinity term's weight and of one untolerated
PreferNoSchedule taint (100), beside which `score` counts it. kube-scheduler weighs both like node affinity (2 each).
"""

from __future__ import annotations

import math

import numpy as np

from gangsched.core.filter import pod_topology_spread
from gangsched.core.filter.company import Company
from gangsched.model.objects import Pod
from gangsched.model.pods_by_node import OwnedBy, Question, Selected
from gangsched.model.snapshot import Bools, Ints

HARD_AFFINITY_WEIGHT = 1
"""What a pod already there pulls by a *required* term that means the pod at hand (hardPodAffinityWeight)."""

Pull = tuple[Question, str, int]
"""Pods that pull (or, with a negative weight, push) the pod at hand within their domains of a topology key."""


def pulls(pod: Pod, company: Company, first: int = 0) -> list[Pull]:
    """What the crowds from number `first` on prefer about `pod`."""
    found: list[Pull] = []
    for shape, namespace in company.preferring[first:]:
        if shape.inter_pod is None:
            continue
        terms = [(each.term, each.weight) for each in shape.inter_pod.preferred]
        terms += [(term, HARD_AFFINITY_WEIGHT) for term in shape.inter_pod.affinity]
        members = OwnedBy((shape, namespace))
        found += [
            (members, term.topology_key, weight)
            for term, weight in terms
            if company.clause(term, namespace).matches(pod)
        ]
    return found


def own_pulls(pod: Pod, company: Company) -> list[Pull]:
    """What `pod` prefers itself."""
    return [
        (Selected((company.own_clause(each.term, pod.namespace),)), each.term.topology_key, each.weight)
        for each in (pod.shape.inter_pod.preferred if pod.shape.inter_pod is not None else ())
    ]


def soft_penalty(pod: Pod, wanted: list[Pull], feasible: Bools, company: Company) -> Ints:
    """`penalty[node]`, 0-200, lower is better; `wanted` are its own pulls and those of others. Not for infeasible."""
    return _affinity_penalty(wanted, feasible, company) + _spread_penalty(pod, feasible, company)


def _affinity_penalty(wanted: list[Pull], feasible: Bools, company: Company) -> Ints:
    score = np.zeros(len(company.table), dtype=np.int64)
    for question, topology_key, weight in wanted:
        score += company.tally(question, topology_key).here() * weight
    among = score[feasible]
    worst, best = (int(among.min()), int(among.max())) if among.size else (0, 0)
    if worst == best:
        return np.zeros_like(score)
    normalised: Ints = 100 - 100 * (score - worst) // (best - worst)
    return normalised


def _spread_penalty(pod: Pod, feasible: Bools, company: Company) -> Ints:
    inter_pod = pod.shape.inter_pod
    if inter_pod is None or not inter_pod.soft_spread:
        return np.zeros(len(company.table), dtype=np.int64)
    score = np.zeros(len(company.table), dtype=np.float64)
    complete = feasible.copy()
    for constraint in inter_pod.soft_spread:
        complete &= company.column(constraint.topology_key) >= 0
    for index, constraint in enumerate(inter_pod.soft_spread, start=len(inter_pod.spread)):
        tally = pod_topology_spread.domains(pod, index, company)
        size = np.unique(tally.codes[complete]).size
        score += tally.here() * math.log(size + 2) + constraint.max_skew - 1
    rounded = np.rint(score).astype(np.int64)
    worst = int(rounded[complete].max(initial=0))
    best = int(rounded[complete].min()) if complete.any() else 0
    normalised = np.full(rounded.size, 100) if worst == 0 else 100 * (worst + best - rounded) // worst
    penalty: Ints = 100 - np.where(complete, normalised, 0)
    return penalty
