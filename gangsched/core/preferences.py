"""Soft preferences of pods as penalty points: 0 is the best node, and no node is excluded.

The scale is the weight of a preferred node affinity term (1-100). Preferences about other pods are
normalised to 0-100 over the feasible nodes as in kube-scheduler, then inverted; docs/placement.md
has the table.
"""

from __future__ import annotations

import math

import numpy as np

from gangsched.core.filter import node_affinity, taint_toleration
from gangsched.core.filter.plugin import Occupancy
from gangsched.core.filter.pod_topology_spread import matching_pods
from gangsched.model.objects import Pod, Shape
from gangsched.model.snapshot import Bools, Ints, NodeTable


def node_penalty(shape: Shape, table: NodeTable) -> Ints | None:
    """`penalty[node]` for untolerated PreferNoSchedule taints, less the weight of matched preferred
    node affinity. Read-only.

    None if it is 0 everywhere, as for nearly all pods, which saves the search for a minimum.
    """
    # Kept with the node table, weakly by shape: taints and labels do not change during its life.
    kept = table.penalties
    if shape not in kept:
        untolerated = taint_toleration.penalty(shape, table)
        preferred = node_affinity.preference(shape, table)
        penalty = untolerated - preferred
        kept[shape] = penalty if penalty.any() else None

    return kept[shape]


def prefers_company(pod: Pod) -> bool:
    """Whether placing one such pod may change which nodes the next one prefers."""
    constraints = pod.shape.constraints
    return bool(constraints.preferred or constraints.soft_spread)


def pod_penalty(
    pod: Pod,
    feasible: Bools,
    occupancy: Occupancy,
) -> Ints | None:
    """`penalty[node]`, 0-200, for preferred inter-pod affinity and ScheduleAnyway spread; None if
    the pod has neither.

    Preferred terms of existing pods that select `pod` count as well. Values of infeasible nodes are
    meaningless.
    """
    about_this_pod = occupancy.pods.existing_terms(pod).preferred
    if not prefers_company(pod) and not about_this_pod:
        return None

    constraints = pod.shape.constraints
    terms = len(constraints.preferred) + len(constraints.soft_spread)
    units = 30 + feasible.size // 100
    units_a_term = 40 + feasible.size // 80
    occupancy.work.charge(units + terms * units_a_term)

    by_affinity = _affinity_penalty(pod, feasible, occupancy)
    by_spread = _spread_penalty(pod, feasible, occupancy)
    return by_affinity + by_spread


def spread_cost(pod: Pod, occupancy: Occupancy) -> Ints | None:
    """`cost[node]` for the pod's peers on the node and in its zone, weighted as in kube-scheduler's
    default spread. Read-only.

    None if the default spread does not apply: the pod has no peers (`model.peers`), or has its own
    spread constraints.
    """
    constraints = pod.shape.constraints
    if constraints.spread or constraints.soft_spread:
        return None

    by_peers = occupancy.pods.spread_cost(pod)
    if by_peers is None:
        return None

    return by_peers.cost


def _affinity_penalty(
    pod: Pod,
    feasible: Bools,
    occupancy: Occupancy,
) -> Ints:
    pods = occupancy.pods
    score = np.zeros(len(occupancy.table), dtype=np.int64)

    for weighted in pod.shape.constraints.preferred:
        term = weighted.term
        selected = pods.selected((term,), pod)
        counts = pods.by_domain(selected, term.topology_key)
        score += counts.by_node() * weighted.weight

    for owned, topology_key, weight in pods.existing_terms(pod).preferred:
        counts = pods.by_domain(owned, topology_key)
        score += counts.by_node() * weight

    among = score[feasible]
    if not among.size:
        return np.zeros_like(score)

    worst = int(among.min())
    best = int(among.max())
    # Nothing to normalise: all feasible nodes are equal.
    if worst == best:
        return np.zeros_like(score)

    # Inverted: kube-scheduler adds scores, rules here take the least penalty.
    above_worst = score - worst
    spread = best - worst
    penalty: Ints = 100 - 100 * above_worst // spread
    return penalty


def _spread_penalty(
    pod: Pod,
    feasible: Bools,
    occupancy: Occupancy,
) -> Ints:
    constraints = pod.shape.constraints
    if not constraints.soft_spread:
        return np.zeros(len(occupancy.table), dtype=np.int64)

    score = np.zeros(len(occupancy.table), dtype=np.float64)
    complete = feasible.copy()
    for constraint in constraints.soft_spread:
        # A node that lacks one of the keys gets the worst score, as in kube-scheduler.
        codes = occupancy.pods.domains(constraint.topology_key)
        complete &= codes >= 0

    # The pod's constraints are counted through, the required ones first.
    first = len(constraints.spread)
    for index, constraint in enumerate(constraints.soft_spread, start=first):
        matching = matching_pods(pod, index, occupancy)
        # The weight log(size + 2) of kube-scheduler, which evens out levels of different sizes.
        codes = matching.codes[complete]
        size = np.unique(codes).size
        factor = math.log(size + 2)

        # In this order, as kube-scheduler adds: floats round differently otherwise.
        score += matching.by_node() * factor + constraint.max_skew - 1

    rounded = np.rint(score).astype(np.int64)
    among = rounded[complete]
    worst = int(among.max(initial=0))
    best = 0
    if among.size:
        best = int(among.min())

    normalised = np.full(rounded.size, 100)
    if worst != 0:
        normalised = 100 * (worst + best - rounded) // worst

    # Nodes without one of the keys get all of it.
    scores = np.where(complete, normalised, 0)
    penalty: Ints = 100 - scores
    return penalty
