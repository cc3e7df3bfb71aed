"""Outlook: what the filters that look at other pods and at volumes say of one pod, while pods are placed around it.

Law: order is kube-scheduler's: host ports come before resources; volumes, spread, inter-pod affinity and devices
after. An outlook stands for all pods of one `Company.kind`. It reserves nothing.
"""

from __future__ import annotations

import numpy as np

from gangsched.core.filter import inter_pod_affinity, node_ports, pod_topology_spread, volume_outlook
from gangsched.core.filter.company import Company
from gangsched.core.filter.soft_penalty import own_pulls, pulls, soft_penalty
from gangsched.model.gang import Group
from gangsched.model.objects import Pod
from gangsched.model.snapshot import Bools, Codes, Ints

AFTER_ROOM: tuple[tuple[str, ...], ...] = (
    (pod_topology_spread.REFUSED,),
    (pod_topology_spread.MISSING,),
    (inter_pod_affinity.AFFINITY,),
    (inter_pod_affinity.ANTI_AFFINITY,),
    (inter_pod_affinity.EXISTING,),
    *volume_outlook.TEXTS,
)
"""What `Outlook.refused_by` counts, from code 1 on; a node may count under several texts."""
VOLUME_CODES_FROM = len(AFTER_ROOM) - len(volume_outlook.TEXTS)


class Outlook:
    """One pod, and the company it would keep; read it again after each placement."""

    def __init__(self, pod: Pod, company: Company) -> None:
        self._pod = pod
        self._company = company
        self._guards: list[inter_pod_affinity.Guard] = []
        self._pulls = own_pulls(pod, company)
        self._crowds_seen = 0
        self._look_again()

    @property
    def bound(self) -> bool:
        """Whether any node can be refused at all."""
        self._look_again()
        return self.tied or bool(self._guards) or bool(self._pod.claims)

    @property
    def tied(self) -> bool:
        """Whether one such pod placed may change where the next may go."""
        inter_pod = self._pod.shape.inter_pod
        if self._pod.claims and self._company.volumes.tied(self._pod):
            return True
        return inter_pod is not None and inter_pod.hard

    @property
    def leaning(self) -> bool:
        """Whether one such pod placed may change where the next would rather go."""
        inter_pod = self._pod.shape.inter_pod
        return inter_pod is not None and bool(inter_pod.preferred or inter_pod.soft_spread)

    def penalty(self, room: Ints) -> Ints | None:
        """`penalty[node]` of preferences about other pods, lower is better (`soft_penalty`); None without any."""
        self._look_again()
        if not self._pulls and not self.leaning:
            return None
        return soft_penalty(self._pod, self._pulls, room > 0, self._company)

    def kept_off(self, node: int) -> bool:
        """Whether ports or anti-affinity forbid the pod to be on `node`, where it does not count itself."""
        self._look_again()
        off = self.ports_taken() | inter_pod_affinity.kept_off(self._pod, self._guards, self._company)
        return bool(off[node])

    @property
    def problem(self) -> str:
        """Why no node at all can do, as kube-scheduler's PreFilter says it of claims; "" if one may."""
        return volume_outlook.problem(self._pod, self._company.volumes)

    def ports_taken(self) -> Bools:
        """`taken[node]`: NodePorts refuses."""
        return node_ports.taken(self._pod, self._company)

    def refused_by(self) -> Codes:
        """`refused[node]`: 0, or 1 + the index in `AFTER_ROOM` of what the first filter after resources says."""
        self._look_again()
        refused = pod_topology_spread.refusals(self._pod, self._company)
        affinity = inter_pod_affinity.refusals(self._pod, self._guards, self._company)
        refused = np.where((refused == 0) & (affinity > 0), affinity + pod_topology_spread.MISSING_CODE, refused)
        if not self._pod.claims:
            return refused
        by_volumes = volume_outlook.refusals(self._pod, self._company.volumes)
        first = (by_volumes > 0) & ((by_volumes < volume_outlook.LAST) | (refused == 0))
        return np.where(first, by_volumes + VOLUME_CODES_FROM, refused)

    def narrow(self, room: Ints, count: int, group: Group) -> Ints:
        """`room` for the next of `count` such pods of `group`: 0 where a filter refuses."""
        if not self.bound:
            return room
        room = np.where(self.ports_taken() | (self.refused_by() > 0), 0, room)
        if self._pod.claims:
            room = volume_outlook.narrow(self._pod, room, self._company.volumes)
        if inter_pod_affinity.first_of_its_kind(self._pod, self._company):
            company = inter_pod_affinity.followers(self._pod, group, self._company)
            room = inter_pod_affinity.roomiest_domains(self._pod, max(count, company), room, self._company)
        return room

    def _look_again(self) -> None:
        """Take in crowds that came up since the last look."""
        preferring = len(self._company.preferring)
        if self._crowds_seen < preferring:
            self._guards += inter_pod_affinity.guards(self._pod, self._company, self._crowds_seen)
            self._pulls += pulls(self._pod, self._company, self._crowds_seen)
            self._crowds_seen = preferring
