"""kube-scheduler's InterPodAffinity: required affinity and anti-affinity, and the anti-affinity of
existing pods.

Affinity: each term's domain has a pod that matches *all* terms. While no node has such a pod, the
first pod that matches its own terms may run where all keys exist. A node without a key fails
affinity, but never anti-affinity. A node reports the first that fails: affinity, own anti-affinity,
anti-affinity of existing pods.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gangsched.core.filter.plugin import Occupancy, StatefulFilter
from gangsched.model.gang import Group
from gangsched.model.objects import Pod
from gangsched.model.snapshot import Ints, RefusedNodes

AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"


class PodAffinity(StatefulFilter):
    """Nodes whose topology domains contain the pods that the required affinity terms select."""

    def applies(self, pod: Pod, occupancy: Occupancy) -> bool:
        return bool(pod.shape.constraints.affinity)

    def serial(self, pod: Pod, occupancy: Occupancy) -> bool:
        # The next one may go where this one may: beside pods that the terms select already, or, if
        # it is the first of its kind, in the one domain to which `room_for_followers` narrows the
        # room.
        return False

    def refusals(self, pod: Pod, occupancy: Occupancy) -> Iterator[RefusedNodes]:
        terms = pod.shape.constraints.affinity
        first = first_of_its_kind(pod, occupancy)

        # A node without one of the keys fails, also for the first pod of its kind, as in
        # kube-scheduler.
        near = occupancy.table.everywhere()
        for term in terms:
            occupancy.work.charge(15 + len(occupancy.table) // 200)
            near &= occupancy.pods.domains(term.topology_key) >= 0

            if not first:
                near &= (
                    occupancy.pods.by_domain(
                        occupancy.pods.selected(terms, pod),
                        term.topology_key,
                    ).by_node()
                    > 0
                )

        if terms:
            yield RefusedNodes(AFFINITY, ~near)


class PodAntiAffinity(StatefulFilter):
    """Nodes outside the domains that are excluded by the pod's anti-affinity or by that of existing
    pods.
    """

    lasting = True

    def applies(self, pod: Pod, occupancy: Occupancy) -> bool:
        return bool(
            pod.shape.constraints.anti_affinity or occupancy.pods.existing_terms(pod).anti_affinity
        )

    def serial(self, pod: Pod, occupancy: Occupancy) -> bool:
        stated = pod.shape.constraints.anti_affinity
        # Only a term that selects its own pod keeps the next one off (1,500 members in five racks:
        # 1 plan, not 40).
        return any(occupancy.pods.selected((term,), pod).counts(pod) for term in stated)

    def refusals(self, pod: Pod, occupancy: Occupancy) -> Iterator[RefusedNodes]:
        pods = occupancy.pods
        # A round that is rolled back leaves owners without pods; counting them would take most of
        # the next round.
        existing = []

        for each in pods.existing_terms(pod).anti_affinity:
            if pods.may_be_there(each[0]):
                existing.append(each)

        own = pod.shape.constraints.anti_affinity
        occupancy.work.charge((len(own) + len(existing)) * (10 + len(occupancy.table) // 200))

        for term in own:
            yield RefusedNodes(
                ANTI_AFFINITY,
                pods.by_domain(pods.selected((term,), pod), term.topology_key).by_node() > 0,
            )

        for owned, topology_key in existing:
            yield RefusedNodes(EXISTING, pods.by_domain(owned, topology_key).by_node() > 0)


def first_of_its_kind(pod: Pod, occupancy: Occupancy) -> bool:
    """Whether the pod, but no existing pod, matches its own affinity terms, so that it may start a
    new domain.
    """
    terms = pod.shape.constraints.affinity
    pods = occupancy.pods

    if not terms:
        return False

    matching = pods.selected(terms, pod)
    if not matching.counts(pod):
        return False

    # Any domain at all: kube-scheduler lets a pod found a new domain only while no pod matches
    # anywhere.
    return not any(pods.by_domain(matching, term.topology_key).counts.any() for term in terms)


def room_for_followers(
    pod: Pod,
    count: int,
    group: Group,
    room: Ints,
    occupancy: Occupancy,
) -> Ints:
    """Reduce `room` for the first of `count` pods to the domains with room for most of the members
    that its affinity terms select.

    For each affinity term in turn, these are the nodes of the smallest domain with room for all
    members, otherwise the nodes of the largest domain. kube-scheduler accepts any domain, and would
    then refuse a gang that must stay together if the first node was a bad choice (semantics R2).
    """
    if not first_of_its_kind(pod, occupancy):
        return room

    terms = pod.shape.constraints.affinity
    matching = occupancy.pods.selected(terms, pod)
    occupancy.work.charge(sum(len(gang.pending) for gang in group.gangs) * matching.cost)
    count = max(
        count,
        sum(matching.counts(member) for gang in group.gangs for member in gang.pending),
    )

    for term in terms:
        codes = occupancy.pods.domains(term.topology_key)
        # One entry more than domains: code -1 (no such label) indexes the last one, which is
        # cleared below.
        held = np.zeros(int(codes.max(initial=-1)) + 2, dtype=np.int64)
        np.add.at(held, codes, room)

        held[-1] = 0
        if not held.any():
            break

        enough = np.flatnonzero(held >= count)
        # The smallest that suffices leaves larger domains whole; otherwise as many members as
        # possible fit.
        best = enough[np.argmin(held[enough])] if enough.size else np.argmax(held)
        room = np.where(codes == best, room, 0)

    return room
