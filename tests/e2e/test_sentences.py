"""What waiting gangs say, on a real API server: the situations that need controllers, devices,
another definition of PodGroups or `kubectl gangsched`; the others are in
`tests/scenarios/telling.yaml`, and a table of both in `tests/scenarios/README.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.applying import ROOT, apply_yaml
from control_plane.daemon import Daemon
from control_plane.following import Following
from control_plane.pods import nodes_of, refusal
from typer.testing import CliRunner

from kubectl_gangsched.main import cli
from tests.e2e import test_devices as devices
from tests.e2e.conftest import PODS, delete_all

pytestmark = pytest.mark.e2e

PLANE = {"kcm": True, "kwok": True}
JOBS = "/apis/batch/v1/jobs"
QUOTAS = "/api/v1/resourcequotas"
GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"
SIGS = "scheduling.sigs.k8s.io"
SIGS_GROUPS = f"/apis/{SIGS}/v1alpha1/podgroups"
DEFINITION = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/podgroups.{SIGS}"
RESOURCES = (devices.CLAIMS, devices.TEMPLATES, devices.SLICES, devices.CLASSES)
WITHIN_S = 60.0


@pytest.fixture
def api(plane: ControlPlane) -> Iterator[Api]:
    """An administrator's client; leaves nothing behind."""
    api = Api.of(plane)
    yield api
    delete_all(api, JOBS, PODS, GROUPS, SIGS_GROUPS, QUOTAS, *RESOURCES, "/api/v1/nodes")
    api.close()


def await_pods(pods: Following, what: str, holds: Callable[[list[Object]], bool]) -> None:
    """Until the pods that are seen are so."""
    pods.wait_for(lambda items: holds(list(items.values())), within_s=WITHIN_S, what=what)


def why(kubeconfig: Path, gang: str) -> str:
    """What `kubectl gangsched why` prints of a gang, in one line."""
    done = CliRunner().invoke(cli, ["why", gang], env={"KUBECONFIG": str(kubeconfig)})
    assert done.exit_code == 0, done.output
    return " ".join(done.stdout.split())


def test_a_gang_that_lacks_devices_is_told_how_many_are_free(plane: ControlPlane, api: Api) -> None:
    """Three pods of three devices, and eight there: not that no node has room."""
    selector = {"cel": {"expression": f'device.driver == "{devices.DRIVER}"'}}
    api.post(devices.CLASSES, devices.resource("DeviceClass", "gpu", {"selectors": [selector]}))
    devices.node(api, "n0", *(devices.gpu(f"g{number}") for number in range(8)))
    spec = devices.template(api, "three", devices.asks(count=3))

    with Daemon(plane, extra_args=devices.ALL), Following(api, PODS) as pods:
        make.create_all(api, make.gang("llm", members=3, spec=spec))
        devices.wait_said(pods, "llm-0", "gang default/llm needs 3 pods of 3 devices of class gpu")
        devices.wait_told(
            api,
            "llm",
            "gang default/llm needs 3 pods of 3 devices of class gpu; 8 of the 9 are free on"
            " eligible nodes",
        )


def test_a_job_whose_pods_a_quota_forbids_is_told_so(plane: ControlPlane, api: Api) -> None:
    """The Event of the Job says it, and so does `why`."""
    apply_yaml(api, ROOT / "manifests" / "rbac-owners.yaml")
    make.create_all(api, [make.node("n0", gpus=8)])
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "two", "namespace": "default"},
        "spec": {"hard": {"pods": "2"}},
    }
    api.post("/api/v1/namespaces/default/resourcequotas", quota)
    with Following(api, QUOTAS) as quotas:
        # Admission reads what the controller counted.
        quotas.wait_for(
            lambda items: any(item.get("status", {}).get("used") for item in items.values()),
            within_s=WITHIN_S,
            what="a quota that is counted",
        )

    with Daemon(plane), Following(api, PODS) as pods:
        api.post("/apis/batch/v1/namespaces/default/jobs", job("train", 4))
        await_pods(pods, "2 pods that wait", lambda items: sum(map(is_refused, items)) == 2)
        text = why(plane.kubeconfig, "Job.train")

    # The gangs API, which is not served here, knows that it is 2 of them.
    assert "Job default/train cannot create more pods: exceeded quota: two" in text
    assert "(Job default/train makes 4): 2 of 4 are ready; 2 are missing" in text


def job(name: str, width: int) -> Object:
    """A Job of so many pods at a time, which start together."""
    pod = make.pod("unused", gpus=1, labels={"gangsched.dev/gang": "owner"})
    template = {"metadata": {"labels": pod["metadata"]["labels"]}, "spec": pod["spec"]}
    template["spec"]["restartPolicy"] = "Never"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"parallelism": width, "completions": width, "template": template},
    }


def is_refused(pod: Object) -> bool:
    """Whether a pod says why it waits."""
    return any(refusal(pod))


def test_a_gang_below_its_minimum_does_not_have_its_nodes(plane: ControlPlane, api: Api) -> None:
    """It lost a member: `why` says so, and that nobody replaces it."""
    make.create_all(api, [make.node("n0", gpus=8)])
    with Daemon(plane), Following(api, PODS) as pods, Following(api, GROUPS) as groups:
        make.create_all(api, make.gang("t1", members=2, gpus=1))
        await_pods(pods, "both on the node", lambda _: len(nodes_of(pods.objects())) == 2)
        api.delete("/api/v1/namespaces/default/pods/t1-1", grace_s=0)
        groups.wait_for(
            lambda items: any("Degraded=True" in told(item) for item in items.values()),
            within_s=WITHIN_S,
            what="a gang that is degraded",
        )
        text = why(plane.kubeconfig, "t1")

    assert "has its nodes" not in text
    assert "1 of 2 members are bound; no controller replaces the missing members" in text


def told(group: Object) -> str:
    """The conditions of a PodGroup."""
    conditions: list[dict[str, Any]] = group.get("status", {}).get("conditions") or []
    return " ".join(f"{condition['type']}={condition['status']}" for condition in conditions)


def test_pods_say_what_their_pod_group_cannot(plane: ControlPlane, api: Api) -> None:
    """A definition without `status.conditions`, as scheduler-plugins' and Koordinator's: the oldest
    pod has the counts, and the others name it.
    """
    definition = api.get(DEFINITION)
    for version in definition["spec"]["versions"]:
        status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
        del status["properties"]["conditions"]
        status.pop("default", None)

    api.put(DEFINITION, definition)
    other = make.pod("other", gpus=1, scheduler_name="other", spec={"nodeName": "n0"})
    make.create_all(api, [make.node("n0", gpus=4), other])
    with Daemon(plane), Following(api, PODS) as pods:
        label = {f"pod-group.{SIGS}": "g"}
        members = [make.pod(f"g-{number}", gpus=2, labels=label) for number in range(2)]
        make.create_all(api, [make.pod_group("g", min_member=2, api=SIGS)])
        make.create_all(api, members)
        counts = "gang default/g needs 2 pods of 2 nvidia.com/gpu"

        def said(items: list[Object]) -> bool:
            texts = [text for _, text in map(refusal, items) if text]
            return (
                len(texts) == 2
                and all(counts in text for text in texts)
                and sum("see pod default/g-" in text for text in texts) == 1
                and sum("1 fits, then no eligible node has 2 free" in text for text in texts) == 1
                and not any("see PodGroup" in text for text in texts)
            )

        await_pods(pods, "counts on one pod", said)
