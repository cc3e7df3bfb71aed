"""kube-scheduler's DynamicResources, for allocated claims only: the pod runs where their devices are available.

Invariant: nothing is allocated here. An unallocated claim rules out every node (`claim_needs`).
"""

from __future__ import annotations

from collections.abc import Iterator

from gangsched.core.filter.node_selector import any_term
from gangsched.core.filter.occupancy import Occupancy
from gangsched.core.filter.plugin import ClaimFilter
from gangsched.model.objects import Pod
from gangsched.model.snapshot import RefusedNodes

REFUSED = "resourceclaim not available on the node"


class DynamicResources(ClaimFilter):
    """Nodes where the devices of all the pod's claims are available."""

    def refusals(self, pod: Pod, occupancy: Occupancy) -> Iterator[RefusedNodes]:
        claims = occupancy.storage.needs(pod).devices if pod.claims else ()
        allowed = occupancy.table.everywhere()
        for required in {claim.required for claim in claims} - {None}:
            allowed &= any_term(required or (), occupancy.table)
        if not allowed.all():
            yield RefusedNodes(REFUSED, ~allowed)
