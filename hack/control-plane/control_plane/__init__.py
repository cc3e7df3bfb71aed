"""A real Kubernetes control plane on 127.0.0.1, without containers, for the demo, the e2e tests and
the benchmarks.

    with ControlPlane(kwok=True) as plane:
        ...  # plane.url, plane.kubeconfig, plane.ssl_context()

Invariant: it runs what `build.py` built, and leaves no process and no temporary file behind,
however its owner ends.
"""

from control_plane.errors import ControlPlaneError
from control_plane.plane import ControlPlane

__all__ = ["ControlPlane", "ControlPlaneError"]
