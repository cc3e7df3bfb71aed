"""training-operator as its manifests install it, with its webhooks: with gang scheduling of its own
or without.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from control_plane import ControlPlane
from control_plane.api import Api

from tests.operators.operator import Operator, example, install, source
from tests.operators.webhooks import Webhooks

API = "/apis/kubeflow.org/v1/namespaces/default"
JOBS = f"{API}/pytorchjobs"
SECRET = "kubeflow/training-operator-webhook-cert"
CERTIFICATES = Path("/tmp/k8s-webhook-server/serving-certs")
"""The operator knows no other place."""
FLAGS = ("--kubeconfig=@KUBECONFIG@", "--metrics-bind-address=0", "--health-probe-bind-address=0")


@contextmanager
def training_installed(plane: ControlPlane, *flags: str) -> Iterator[Operator]:
    """It runs with more flags, and its webhooks answer, until the end of the block; it makes their
    certificate itself.
    """
    api = Api.of(plane)
    webhooks = Webhooks(plane, "kubeflow/training-operator", secret=SECRET, folder=CERTIFICATES)
    install(api, source("training-operator") / "manifests" / "overlays" / "standalone", webhooks)
    argv = [*FLAGS, f"--webhook-server-port={webhooks.port}", *flags]
    try:
        with Operator(
            plane, "training-operator", account="kubeflow/training-operator", argv=argv
        ) as started:
            webhooks.mount(api)
            webhooks.await_answer(api, JOBS, example("PyTorchJob"))
            yield started
    finally:
        shutil.rmtree(CERTIFICATES, ignore_errors=True)
        api.close()
