"""kube-scheduler's NodePorts: a host port is taken once per node, protocol and address.

Empty and 0.0.0.0 stand for every address; `::` does not.
"""

from __future__ import annotations

import numpy as np

from gangsched.core.filter.company import Company
from gangsched.model.objects import Pod
from gangsched.model.pods_by_node import UsingPort
from gangsched.model.snapshot import Bools

REFUSED = "node(s) didn't have free ports for the requested pod ports"


def taken(pod: Pod, company: Company) -> Bools:
    """`taken[node]`: a pod there takes a port that conflicts with one of `pod`'s. Its own ports do not conflict."""
    mask = np.zeros(len(company.table), dtype=np.bool_)
    for port in pod.shape.inter_pod.ports if pod.shape.inter_pod is not None else ():
        mask |= company.tally(UsingPort(port), "").here() > 0
    return mask
