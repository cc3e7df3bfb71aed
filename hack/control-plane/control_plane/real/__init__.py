"""Real nodes on one machine: kubelets, containerd, runc and kube-proxy, without an image registry.

    with RealCluster(images) as cluster:
        cluster.kubectl("apply", "-f", "manifests/install.yaml")

Invariant: nothing is left behind: no process, mount, link, network namespace, cgroup, table or
kernel parameter. What a run that was killed outright left is removed by the next one. One cluster
at a time runs on a machine.
"""

from control_plane.real.cluster import RealCluster as RealCluster
from control_plane.real.host import UnsuitableError as UnsuitableError
