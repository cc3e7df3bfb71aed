"""JobSet as its manifests install it, with its webhooks: by itself, and under those who make
JobSets or admit them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from control_plane import ControlPlane
from control_plane.api import Api

from tests.operators.operator import Operator, example, install, source
from tests.operators.webhooks import Webhooks, configuration_of

JOBS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
CONFIGURATION = configuration_of("jobset")


@contextmanager
def jobset_installed(plane: ControlPlane) -> Iterator[None]:
    """It runs, and its webhooks answer, until the end of the block."""
    api = Api.of(plane)
    webhooks = Webhooks(plane, "jobset-system/jobset-webhook-service")
    install(api, source("jobset") / "config" / "default", webhooks)
    argv = ["--kubeconfig=@KUBECONFIG@", f"--config={webhooks.write_configuration(CONFIGURATION)}"]
    with Operator(plane, "jobset", account="jobset-system/jobset-controller-manager", argv=argv):
        webhooks.await_answer(
            api, JOBS, example("JobSet"), lambda stored: "network" in stored["spec"]
        )
        yield
    api.close()
