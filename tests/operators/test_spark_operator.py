"""The real spark-operator, its controller and its webhook, from its chart: the PodGroup and the
pods of an application.

Spark itself is played: `spark-submit` only writes down what it is told, and the tests make the pods
that it would.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.applying import apply, load_yaml
from control_plane.following import Following

from tests.operators.members import (
    GROUP_LABEL,
    GROUPS,
    IN_THE_WAY,
    PODS,
    WITHIN_S,
    await_bound,
    await_event,
    await_refused,
    give_them_back,
    take_gpus,
)
from tests.operators.operator import Operator, example, install_chart, source
from tests.operators.webhooks import Webhooks

pytestmark = pytest.mark.e2e

RELEASE = "spark-operator"
JOBS = "/apis/sparkoperator.k8s.io/v1beta2/namespaces/default/sparkapplications"
SETTINGS = [
    "controller.batchScheduler.enable=true",
    "controller.batchScheduler.kubeSchedulerNames={gangsched}",
]
FLAGS = ["--namespaces=default", "--leader-election=false", "--health-probe-bind-address=0"]
SUBMIT = """\
#!/bin/sh
printf '%s\\n' "$@" >"$SPARK_HOME/told.tmp" && mv "$SPARK_HOME/told.tmp" "$SPARK_HOME/told"
"""
RIGHTS = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: spark-pod-groups}
rules:
  - apiGroups: [scheduling.x-k8s.io]
    resources: [podgroups]
    verbs: [get, list, watch, create, update, delete]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: spark-pod-groups}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: spark-pod-groups}
subjects: [{kind: ServiceAccount, name: spark-operator-controller, namespace: spark-operator}]
"""


@pytest.fixture(scope="module")
def home(plane: ControlPlane) -> Path:
    """What stands for an installation of Spark."""
    home = plane.workdir / "spark"
    (home / "bin").mkdir(parents=True)
    submit = home / "bin" / "spark-submit"
    submit.write_text(SUBMIT)
    submit.chmod(0o755)
    return home


@pytest.fixture(scope="module", autouse=True)
def webhook(plane: ControlPlane) -> Iterator[Operator]:
    """The chart's objects, and its webhook, which makes its certificate itself."""
    api = Api.of(plane)
    service = f"{RELEASE}/{RELEASE}-webhook-svc"
    webhooks = Webhooks(plane, service, secret=f"{RELEASE}/{RELEASE}-webhook-certs")
    install_chart(
        api, source(RELEASE) / "charts" / "spark-operator-chart", webhooks, RELEASE, *SETTINGS
    )
    webhooks.folder.mkdir()
    names = (
        f"--mutating-webhook-name={RELEASE}-webhook",
        f"--validating-webhook-name={RELEASE}-webhook",
    )
    secret = (
        f"--webhook-secret-name={RELEASE}-webhook-certs",
        f"--webhook-secret-namespace={RELEASE}",
    )
    served = f"--webhook-svc-name={RELEASE}-webhook-svc", f"--webhook-svc-namespace={RELEASE}"
    place = f"--webhook-port={webhooks.port}", f"--webhook-cert-dir={webhooks.folder}"
    argv = [
        "webhook",
        "start",
        "--kubeconfig=@KUBECONFIG@",
        *FLAGS,
        *names,
        *secret,
        *served,
        *place,
    ]
    account = f"{RELEASE}/{RELEASE}-webhook"
    with Operator(plane, RELEASE, account=account, argv=argv, part="-webhook") as started:
        webhooks.await_answer(api, JOBS, example("SparkApplication"))
        yield started
    api.close()


def controller(plane: ControlPlane, home: Path) -> Operator:
    """The operator's other process, with the flags that the chart gives it."""
    url = urlsplit(plane.url)
    environment = {
        "SPARK_HOME": str(home),
        "KUBERNETES_SERVICE_HOST": str(url.hostname),
        "KUBERNETES_SERVICE_PORT": str(url.port),
    }
    batching = "--enable-batch-scheduler=true", "--kube-scheduler-names=gangsched"
    argv = ["controller", "start", "--kubeconfig=@KUBECONFIG@", *FLAGS, *batching]
    return Operator(
        plane,
        RELEASE,
        account=f"{RELEASE}/{RELEASE}-controller",
        argv=argv,
        environment=environment,
    )


@pytest.fixture
def operator(plane: ControlPlane, api: Api, home: Path) -> Iterator[Operator]:
    """It runs, with the right to PodGroups that the guide grants."""
    for body in load_yaml(RIGHTS):
        apply(api, body)
    with controller(plane, home) as started:
        yield started


@pytest.fixture(autouse=True)
def left(api: Api, home: Path, pods: Following) -> Iterator[None]:
    """Nothing of an application is left behind."""
    yield
    for path in (JOBS, GROUPS):
        for item in api.list(path).items:
            api.delete(f"{path}/{item['metadata']['name']}")
    for pod in pods.objects().values():
        api.delete(f"{PODS}/{pod['metadata']['name']}")
    (home / "told").unlink(missing_ok=True)


def told(home: Path) -> dict[str, str]:
    """The properties that `spark-submit` was told, once it was. Raises TimeoutError."""
    deadline_s = time.monotonic() + WITHIN_S
    while not (home / "told").exists():
        if time.monotonic() > deadline_s:
            raise TimeoutError("spark-submit is not run")
        time.sleep(0.1)
    words = (home / "told").read_text().splitlines()
    return dict(word.split("=", 1) for word in words if word.startswith("spark."))


def spark_pod(name: str, role: str, properties: dict[str, str], *, cpu: str) -> Object:
    """The pod that Spark makes of properties, with requests as it has them."""
    prefix = f"spark.kubernetes.{role}.label."
    labels = {
        key.removeprefix(prefix): value
        for key, value in properties.items()
        if key.startswith(prefix)
    }
    body = make.pod(
        name, cpu=cpu, scheduler_name="default-scheduler", labels={**labels, "spark-role": role}
    )
    body["spec"]["containers"][0]["name"] = f"spark-kubernetes-{role}"
    return body


def group_spec(api: Api) -> Object:
    """The spec of the one PodGroup."""
    (group,) = api.list(GROUPS).items
    return dict(group["spec"])


def test_its_own_rights_are_not_enough(plane: ControlPlane, api: Api, home: Path) -> None:
    """With the rights of its chart alone it submits nothing. (The next tests grant more.)"""
    with controller(plane, home) as operator:
        api.post(JOBS, example("SparkApplication"))
        operator.said("podgroups.scheduling.x-k8s.io is forbidden", within_s=WITHIN_S)
        assert not (home / "told").exists()
        assert not api.list(GROUPS).items


def test_the_driver_waits_for_room_for_all(
    operator: Operator, api: Api, home: Path, pods: Following
) -> None:
    """It would fit, but not with its executors; they are placed one by one when it makes them."""
    api.post(PODS, make.pod(IN_THE_WAY, cpu="10"))
    await_bound(pods, IN_THE_WAY, 1)
    api.post(JOBS, example("SparkApplication"))
    properties = told(home)
    assert group_spec(api) == {"minMember": 1, "minResources": {"cpu": "61", "memory": "13G"}}
    stored = api.post(PODS, spark_pod("spark-pi-driver", "driver", properties, cpu="1"))
    assert stored["spec"]["schedulerName"] == "gangsched"
    assert stored["metadata"]["labels"][GROUP_LABEL] == "spark-pi-pg"
    await_refused(pods, 1)
    give_them_back(api)
    await_bound(pods, "spark-pi-driver", 1)
    for number in range(1, 4):
        stored = api.post(
            PODS, spark_pod(f"spark-pi-exec-{number}", "executor", properties, cpu="20")
        )
        assert (stored["spec"]["schedulerName"], stored["metadata"]["labels"][GROUP_LABEL]) == (
            "gangsched",
            "spark-pi-pg",
        )
        await_bound(pods, "spark-pi-exec-", number)


def test_memory_in_small_letters_is_not_counted(operator: Operator, api: Api, home: Path) -> None:
    """`4g` is no quantity of Kubernetes, so the room that is asked for lacks it."""
    body = example("SparkApplication")
    for role in ("driver", "executor"):
        body["spec"][role]["memory"] = body["spec"][role]["memory"].lower()
    api.post(JOBS, body)
    told(home)
    assert group_spec(api)["minResources"] == {"cpu": "61"}


def test_a_pod_group_of_ones_own_counts_gpus(
    operator: Operator, api: Api, home: Path, pods: Following
) -> None:
    """Without the batch scheduler, labels and names of the application reach the pods all
    the same.
    """
    body = example("SparkApplication")
    del body["spec"]["batchScheduler"]
    for role in ("driver", "executor"):
        body["spec"][role] |= {"labels": {GROUP_LABEL: "pi"}, "schedulerName": "gangsched"}
    api.post(GROUPS, make.pod_group("pi", min_member=1, min_resources={"cpu": "61", make.GPU: "3"}))
    take_gpus(api, pods, 2)
    api.post(JOBS, body)
    properties = told(home)
    api.post(PODS, spark_pod("spark-pi-driver", "driver", properties, cpu="1"))
    await_refused(pods, 1)
    give_them_back(api)
    await_bound(pods, "spark-pi-driver", 1)
    stored = api.post(PODS, spark_pod("spark-pi-exec-1", "executor", properties, cpu="20"))
    assert (stored["spec"]["schedulerName"], stored["metadata"]["labels"][GROUP_LABEL]) == (
        "gangsched",
        "pi",
    )
    await_bound(pods, "spark-pi-exec-", 1)


def test_an_application_that_asks_is_told_to_state_a_minimum(
    operator: Operator, api: Api, home: Path, pods: Following
) -> None:
    """O3: Spark creates executors as it needs them, so nobody knows how many start together: the
    pods start one by one, and an Event says what to do.
    """
    body = example("SparkApplication")
    del body["spec"]["batchScheduler"]
    labels = {"gangsched.dev/gang": "owner"}
    for role in ("driver", "executor"):
        body["spec"][role] |= {"labels": labels, "schedulerName": "gangsched"}
    api.post(JOBS, body)
    properties = told(home)
    driver = api.post(PODS, spark_pod("spark-pi-driver", "driver", properties, cpu="1"))
    await_bound(pods, "spark-pi-driver", 1)
    note = await_event(api, "NotAGang", "spark-pi-driver")
    assert note.startswith("SparkApplication default/spark-pi does not say how many of its pods")
    assert "min-available" in note

    executor = spark_pod("spark-pi-exec-1", "executor", properties, cpu="20")
    executor["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "spark-pi-driver",
            "uid": driver["metadata"]["uid"],
            "controller": True,
        }
    ]
    api.post(PODS, executor)
    await_bound(pods, "spark-pi-exec-", 1)
    assert not api.list(GROUPS).items
