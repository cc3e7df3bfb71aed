"""kube-scheduler's InterPodAffinity: required affinity and anti-affinity, and the anti-affinity of pods already there.

Affinity: every term's domain holds a pod that matches *all* terms; while there is no such pod on any node, the first
of pods that match their own terms may go where all keys exist. A node without the key fails affinity, never
anti-affinity. What a node reports is the first that fails: affinity, own anti-affinity, existing pods' anti-affinity.
"""

from __future__ import annotations

import numpy as np

from gangsched.core.filter.company import Company, Tally
from gangsched.model.gang import Group
from gangsched.model.inter_pod import PodTerm
from gangsched.model.objects import Pod
from gangsched.model.pods_by_node import OwnedBy, Selected
from gangsched.model.snapshot import Bools, Codes, Ints

AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"
AFFINITY_CODE, ANTI_AFFINITY_CODE, EXISTING_CODE = 1, 2, 3

Guard = tuple[OwnedBy, str]
"""Pods there whose anti-affinity means the pod at hand, and the topology key by which it does."""


def guards(pod: Pod, company: Company, first: int = 0) -> list[Guard]:
    """The anti-affinity terms, of crowds from number `first` on, that keep `pod` away from them."""
    return [
        (OwnedBy((shape, namespace)), term.topology_key)
        for shape, namespace in company.preferring[first:]
        for term in (shape.inter_pod.anti_affinity if shape.inter_pod is not None else ())
        if company.clause(term, namespace).matches(pod)
    ]


def guarded(terms: list[Guard], company: Company) -> Bools:
    """`guarded[node]`: a pod in one of the node's domains keeps the pod away."""
    mask = np.zeros(len(company.table), dtype=np.bool_)
    for members, topology_key in terms:
        mask |= company.tally(members, topology_key).here() > 0
    return mask


def refusals(pod: Pod, terms: list[Guard], company: Company) -> Codes:
    """`refused[node]`: 0, or the code of the first rule that fails; `terms` are the pod's `guards`."""
    refused = np.zeros(len(company.table), dtype=np.int32)
    inter_pod = pod.shape.inter_pod
    if inter_pod is not None and inter_pod.affinity:
        refused[~_near(pod, inter_pod.affinity, company)] = AFFINITY_CODE
    for term in inter_pod.anti_affinity if inter_pod is not None else ():
        away = company.tally(Selected((company.own_clause(term, pod.namespace),)), term.topology_key).here() > 0
        refused[(refused == 0) & away] = ANTI_AFFINITY_CODE
    if terms:
        refused[(refused == 0) & guarded(terms, company)] = EXISTING_CODE
    return refused


def kept_off(pod: Pod, terms: list[Guard], company: Company) -> Bools:
    """`kept_off[node]`: anti-affinity refuses, the pod's own or that of pods there."""
    refused = guarded(terms, company)
    for term in pod.shape.inter_pod.anti_affinity if pod.shape.inter_pod is not None else ():
        question = Selected((company.own_clause(term, pod.namespace),))
        refused |= company.tally(question, term.topology_key).here() > 0
    return refused


def first_of_its_kind(pod: Pod, company: Company) -> bool:
    """Whether nobody is there whom the pod's affinity asks for, and it is one whom it asks for itself."""
    if pod.shape.inter_pod is None or not pod.shape.inter_pod.affinity:
        return False
    question = _asked_for(pod, pod.shape.inter_pod.affinity, company)
    return question.counts(pod) and not any(
        t.counts.any() for t in _tallies(pod, pod.shape.inter_pod.affinity, company)
    )


def followers(pod: Pod, group: Group, company: Company) -> int:
    """How many pending members of `group` the pod's affinity asks for: they are to be near the first of its kind."""
    asked_for = _asked_for(pod, pod.shape.inter_pod.affinity if pod.shape.inter_pod is not None else (), company)
    return sum(asked_for.counts(member) for gang in group.gangs for member in gang.pending)


def roomiest_domains(pod: Pod, count: int, room: Ints, company: Company) -> Ints:
    """`room` within the domains where the first of `count` pods leaves most of the others a place beside it.

    By each affinity term in turn, the smallest domain that holds them all, or else the largest. kube-scheduler takes
    any; a gang that must stay together would then be refused for a bad start (semantics R2).
    """
    for term in pod.shape.inter_pod.affinity if pod.shape.inter_pod is not None else ():
        codes = company.column(term.topology_key)
        held = np.zeros(int(codes.max(initial=-1)) + 2, dtype=np.int64)
        np.add.at(held, codes, room)
        held[-1] = 0
        if not held.any():
            break
        enough = np.flatnonzero(held >= count)
        best = enough[np.argmin(held[enough])] if enough.size else np.argmax(held)
        room = np.where(codes == best, room, 0)
    return room


def _near(pod: Pod, terms: tuple[PodTerm, ...], company: Company) -> Bools:
    keys = np.ones(len(company.table), dtype=np.bool_)
    near = np.ones(len(company.table), dtype=np.bool_)
    for term, tally in zip(terms, _tallies(pod, terms, company), strict=True):
        keys &= company.column(term.topology_key) >= 0
        near &= tally.here() > 0
    return keys if first_of_its_kind(pod, company) else keys & near


def _tallies(pod: Pod, terms: tuple[PodTerm, ...], company: Company) -> list[Tally]:
    question = _asked_for(pod, terms, company)
    return [company.tally(question, term.topology_key) for term in terms]


def _asked_for(pod: Pod, terms: tuple[PodTerm, ...], company: Company) -> Selected:
    return Selected(tuple(company.own_clause(term, pod.namespace) for term in terms))
