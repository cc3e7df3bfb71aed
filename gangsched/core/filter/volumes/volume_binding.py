"""kube-scheduler's VolumeBinding: bound volumes are usable on the node, and unbound claims can be
bound there.

Invariant: `storage_use` picks the volumes when a pod is placed; nothing is reserved here.
"""

from __future__ import annotations

from collections.abc import Iterator

from gangsched.core.filter.plugin import ClaimFilter, Occupancy
from gangsched.model.gang import Refusal
from gangsched.model.objects import Pod
from gangsched.model.snapshot import RefusedNodes

NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
NOTHING_TO_BIND = "node(s) didn't find available persistent volumes to bind"
NO_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"


class VolumeBinding(ClaimFilter):
    """Nodes where every claim has its volume or can get one."""

    several_reasons = True

    def pre_filter(self, pod: Pod, occupancy: Occupancy) -> Refusal | None:
        if pod.claims:
            return occupancy.storage.needs(pod).problem

        return None

    def refusals(self, pod: Pod, occupancy: Occupancy) -> Iterator[RefusedNodes]:
        if not pod.claims:
            return

        needs = occupancy.storage.needs(pod)
        storage = occupancy.storage
        table = occupancy.table

        if needs.volume_missing:  # it is the only thing said of bound claims
            yield RefusedNodes(NO_VOLUME, table.everywhere())
        elif needs.bound:
            usable = table.everywhere()
            # One reason for all bound claims, as in kube-scheduler's FindPodVolumes.
            for volume in needs.bound:
                usable &= storage.reachable(volume.required)

            yield RefusedNodes(NODE_CONFLICT, ~usable)

        if needs.unbound:
            yield RefusedNodes(NOTHING_TO_BIND, ~storage.matching(needs).allowed)
