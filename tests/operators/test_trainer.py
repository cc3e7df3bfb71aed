"""The real Kubeflow trainer (v2) above the real JobSet, both with webhooks: a TrainJob's gang, and
its initializers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import yaml
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.applying import ROOT, apply, apply_yaml
from control_plane.following import Following

from tests.operators.jobset import jobset_installed
from tests.operators.members import (
    GROUP_LABEL,
    GROUPS,
    await_bound,
    await_refused,
    await_told,
    starts_whole,
)
from tests.operators.operator import Operator, example, install, source
from tests.operators.webhooks import Webhooks

pytestmark = pytest.mark.e2e

TRAINER = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default"
JOBS = f"{TRAINER}/trainjobs"
RUNTIMES = f"{TRAINER}/trainingruntimes"
NAMESPACE = "kubeflow-system"
ACCOUNT = "kubeflow-trainer-controller-manager"
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
CONFIGURATION = """\
apiVersion: config.trainer.kubeflow.org/v1alpha1
kind: Configuration
health: {healthProbeBindAddress: "0"}
metrics: {bindAddress: "0"}
webhook: {host: 127.0.0.1, port: @PORT@}
leaderElection: {leaderElect: false}
certManagement: {enable: false}
"""


@pytest.fixture(scope="module", autouse=True)
def operator(plane: ControlPlane) -> Iterator[Operator]:
    """trainer as `overlays/manager` installs it, but above the JobSet that is there, not one of
    another address.
    """
    api = Api.of(plane)
    temporary = plane.workdir / "trainer"
    served = temporary / "k8s-webhook-server" / "serving-certs"  # trainer knows no other place
    apply(api, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    with jobset_installed(plane):
        webhooks = Webhooks(plane, f"{NAMESPACE}/{ACCOUNT}", folder=served)
        base = source("trainer") / "manifests" / "base"
        resources = [
            os.path.relpath(base / name, temporary)
            for name in ("crds", "rbac", "webhook", "manager")
        ]
        (temporary / "kustomization.yaml").write_text(
            yaml.safe_dump({"namespace": NAMESPACE, "resources": resources})
        )
        install(api, temporary, webhooks)
        argv = [
            "--kubeconfig=@KUBECONFIG@",
            f"--config={webhooks.write_configuration(CONFIGURATION)}",
        ]
        account = f"{NAMESPACE}/{ACCOUNT}"
        with Operator(
            plane, "trainer", account=account, argv=argv, environment={"TMPDIR": str(temporary)}
        ) as started:
            webhooks.await_answer(api, RUNTIMES, example("TrainingRuntime"))
            yield started
    api.close()


@pytest.fixture(autouse=True)
def left(api: Api, pods: Following) -> Iterator[None]:
    """Jobs, runtimes and PodGroups of the test go, in this order: a runtime that a job
    uses stays.
    """
    yield
    for path in (JOBS, RUNTIMES, GROUPS):
        for item in api.list(path).items:
            api.delete(f"{path}/{item['metadata']['name']}")


def with_initializer(runtime: Object) -> Object:
    """A runtime whose nodes wait until an initializer has ended, which takes half a second."""
    (node,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    container = {"name": "dataset-initializer", "image": make.IMAGE}
    pod = {
        "metadata": {"annotations": {make.RUN_SECONDS: "0.5"}},
        "spec": {"schedulerName": "gangsched", "containers": [container]},
    }
    template = {"metadata": {"labels": {STEP: "dataset-initializer"}}, "spec": {"template": pod}}
    first = {"name": "dataset-initializer", "template": template}
    node["dependsOn"] = [{"name": "dataset-initializer", "status": "Complete"}]
    runtime["spec"]["template"]["spec"]["replicatedJobs"] = [first, node]
    return runtime


def test_the_guides_job_waits_whole_and_starts_whole(api: Api, pods: Following) -> None:
    """Its PodGroup counts all nodes and has the runtime's timeout."""

    def create() -> None:
        api.post(RUNTIMES, example("TrainingRuntime"))
        api.post(JOBS, example("TrainJob"))

    waiting = starts_whole(api, pods, create, prefix="llm-", number=2)
    assert {pod["metadata"]["labels"][GROUP_LABEL] for pod in waiting} == {"llm"}
    spec = api.get(f"{GROUPS}/llm")["spec"]
    assert (spec["minMember"], spec["scheduleTimeoutSeconds"]) == (2, 600)


def test_a_job_with_an_initializer_waits_for_itself(api: Api, pods: Following) -> None:
    """The initializer is a member, too: the nodes come when it has ended, and it starts when they
    are there.
    """
    api.post(RUNTIMES, with_initializer(example("TrainingRuntime")))
    api.post(JOBS, example("TrainJob"))
    await_refused(pods, 1, "WaitingForMembers")
    await_told(
        api, "llm", "waiting for members of gang default/llm: 1 of 3 are ready; 2 are missing"
    )
    assert len(pods.objects()) == 1


def test_a_gang_of_the_nodes_alone_starts_after_the_initializer(api: Api, pods: Following) -> None:
    """Without the policy, with a PodGroup of one's own and its label in the template of
    the nodes.
    """
    runtime = with_initializer(example("TrainingRuntime"))
    del runtime["spec"]["podGroupPolicy"]
    node = runtime["spec"]["template"]["spec"]["replicatedJobs"][1]
    node["template"]["spec"]["template"]["metadata"] = {"labels": {GROUP_LABEL: "nodes"}}

    def create() -> None:
        api.post(GROUPS, make.pod_group("nodes", min_member=2))
        api.post(RUNTIMES, runtime)
        api.post(JOBS, example("TrainJob"))

    starts_whole(api, pods, create, prefix="llm-node-", number=2)
    await_bound(pods, "llm-dataset-initializer-", 1)


def test_a_job_that_asks_starts_its_initializer_then_its_nodes(api: Api, pods: Following) -> None:
    """O3: without a PodGroup, stage by stage, since its JobSet has `dependsOn`; the nodes start
    whole.
    """
    for name in ("rbac-owners.yaml", "rbac-owners-jobset.yaml"):
        apply_yaml(api, ROOT / "manifests" / name)

    runtime = with_initializer(example("TrainingRuntime"))
    del runtime["spec"]["podGroupPolicy"]
    for job in runtime["spec"]["template"]["spec"]["replicatedJobs"]:
        template = job["template"]["spec"]["template"]
        labels = template.setdefault("metadata", {}).setdefault("labels", {})
        labels["gangsched.dev/gang"] = "owner"

    def create() -> None:
        api.post(RUNTIMES, runtime)
        api.post(JOBS, example("TrainJob"))

    starts_whole(api, pods, create, prefix="llm-node-", number=2)
    await_bound(pods, "llm-dataset-initializer-", 1)
    assert not api.list(GROUPS).items
