"""Every file of examples/ is applied in the playground, with kubectl as a user would, and its gangs
start whole.

Objects of operators get a definition that takes any fields: which pods they become is tested by
`make operators`, with the operators themselves (tests/operators). Here `kubectl gangsched plan`
says that they would start.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from control_plane import ControlPlane
from control_plane.api import Api, Object
from control_plane.applying import ROOT, apply, apply_crds, load_yaml
from control_plane.following import Following
from control_plane.objects import create_all, namespace

from demo.playground import playground
from tests.e2e.conftest import PODS, delete_all
from tests.e2e.test_guides import type_into

pytestmark = pytest.mark.e2e

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
OF_OPERATORS = {
    "ClusterQueue": "kueue.x-k8s.io/v1beta2",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    "LocalQueue": "kueue.x-k8s.io/v1beta2",
    "MPIJob": "kubeflow.org/v2beta1",
    "PyTorchJob": "kubeflow.org/v1",
    "RayCluster": "ray.io/v1",
    "RayJob": "ray.io/v1",
    "ResourceFlavor": "kueue.x-k8s.io/v1beta2",
    "SparkApplication": "sparkoperator.k8s.io/v1beta2",
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
    "TrainingRuntime": "trainer.kubeflow.org/v1alpha1",
}
#: `kubectl gangsched plan` does not read these kinds.
NOT_PLANNED = {"leaderworkerset", "sparkapplication"}
#: Its API is off by default in Kubernetes; tests/e2e/test_native.py applies such objects.
NOT_SERVED = {"native-podgroup"}
NAMESPACES = ("team-a", "team-b")
WITHIN_S = 60.0


def kinds(path: Path) -> set[str]:
    """The kinds of the objects of a file."""
    return {body["kind"] for body in load_yaml(path)}


PLAIN = [
    path
    for path in EXAMPLES
    if not kinds(path) & OF_OPERATORS.keys() and path.stem not in NOT_SERVED
]
OPERATORS = [path for path in EXAMPLES if kinds(path) & OF_OPERATORS.keys()]


def definition(kind: str, api_version: str) -> Object:
    """A CRD of a kind that takes any fields."""
    group, version = api_version.split("/")
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def is_bound_by_gangsched(pod: Object) -> bool:
    """Whether it has a node, and is none of the pods of gangsched's own Deployment."""
    return "nodeName" in pod["spec"] and pod["spec"]["schedulerName"] != "default-scheduler"


@pytest.fixture(scope="module")
def place() -> Iterator[ControlPlane]:
    """`make playground`, with Koordinator's definition, the namespaces of examples, and the kinds
    of operators.
    """
    with playground() as (plane, _):
        api = Api.of(plane)
        apply_crds(api)
        create_all(api, map(namespace, NAMESPACES))
        for kind, api_version in OF_OPERATORS.items():
            apply(api, definition(kind, api_version))
        api.close()
        yield plane


@pytest.fixture
def api(place: ControlPlane) -> Iterator[Api]:
    """An administrator's client; leaves no work behind."""
    api = Api.of(place)
    yield api
    groups = [
        f"/apis/scheduling.{domain}/v1alpha1/podgroups" for domain in ("x-k8s.io", "sigs.k8s.io")
    ]
    delete_all(api, "/apis/batch/v1/jobs", PODS, *groups)
    api.close()


@pytest.mark.parametrize("path", PLAIN, ids=lambda path: path.stem)
def test_the_gangs_of_an_example_start(path: Path, place: ControlPlane, api: Api) -> None:
    """As many pods as the file has, or its Job asks for, are bound."""
    bodies = load_yaml(path)
    pods = sum(body["kind"] == "Pod" for body in bodies)
    pods += sum(body["spec"]["parallelism"] for body in bodies if body["kind"] == "Job")
    assert pods
    type_into(place, f"kubectl apply -f {path.relative_to(ROOT)}")
    with Following(api, PODS) as seen:
        seen.wait_for(
            lambda items: sum(map(is_bound_by_gangsched, items.values())) == pods,
            within_s=WITHIN_S,
            what=f"{pods} bound pods of {path.name}",
        )


@pytest.mark.parametrize("path", OPERATORS, ids=lambda path: path.stem)
def test_an_example_for_an_operator_is_applied_and_would_start(
    path: Path, place: ControlPlane, api: Api
) -> None:
    """Its kinds and versions are those of the operators that `make operators` tests."""
    for body in load_yaml(path):
        assert OF_OPERATORS.get(body["kind"], body["apiVersion"]) == body["apiVersion"]
    name = path.relative_to(ROOT)
    if path.stem not in NOT_PLANNED:
        assert type_into(place, f"kubectl gangsched plan -f {name}").startswith("Yes: ")
    type_into(place, f"kubectl apply -f {name}")
    type_into(place, f"kubectl delete -f {name}")


def test_there_is_an_example_for_each_operator() -> None:
    """Each kind once, so that tests/operators finds it, and a Job of Kubernetes itself."""
    found = [body["kind"] for path in EXAMPLES for body in load_yaml(path)]
    assert all(found.count(kind) == 1 for kind in OF_OPERATORS)
    assert "Job" in found
