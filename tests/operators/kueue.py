"""Kueue as its manifests install it, with its webhooks, and plain pods and JobSets among what it
manages.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from control_plane import ControlPlane
from control_plane.api import Api

from tests.operators.jobset import jobset_installed
from tests.operators.operator import Operator, example, install, source
from tests.operators.webhooks import Webhooks

QUEUES = "kueue-job"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
QUEUE_NAME = "kueue.x-k8s.io/queue-name"
CONFIGURATION = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
namespace: kueue-system
health: {healthProbeBindAddress: "0"}
metrics: {bindAddress: "0"}
webhook: {host: 127.0.0.1, port: @PORT@, certDir: "@FOLDER@"}
leaderElection: {leaderElect: false}
integrations: {frameworks: [batch/job, jobset.x-k8s.io/jobset, pod]}
featureGates: {VisibilityOnDemand: false}
waitForPodsReady: {timeout: @READY@, requeuingStrategy: {backoffBaseSeconds: 1}}
"""


@contextmanager
def kueue_installed(plane: ControlPlane, *, ready_within: str = "20s") -> Iterator[Operator]:
    """It and JobSet run, and their webhooks answer, until the end of the block.

    What is admitted is evicted again where its pods are not all ready within the time.
    """
    api = Api.of(plane)
    with jobset_installed(plane):
        webhooks = Webhooks(
            plane,
            "kueue-system/kueue-webhook-service",
            secret="kueue-system/kueue-webhook-server-cert",
        )
        install(api, source("kueue") / "config" / "default", webhooks)
        configuration = CONFIGURATION.replace("@READY@", ready_within)
        argv = [
            "--kubeconfig=@KUBECONFIG@",
            f"--config={webhooks.write_configuration(configuration)}",
        ]
        with Operator(
            plane, "kueue", account="kueue-system/kueue-controller-manager", argv=argv
        ) as started:
            webhooks.mount(api)
            job = example("Job", file=QUEUES)
            webhooks.await_answer(api, JOBS, job, lambda stored: stored["spec"]["suspend"])
            yield started
    api.close()
