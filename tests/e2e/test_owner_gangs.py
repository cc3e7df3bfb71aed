"""Gangs of owners with the real controllers of Jobs and StatefulSets: whole starts without a
PodGroup, ends, and the right to read them, given and taken away (docs/semantics/owners.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, ApiError, Object
from control_plane.applying import ROOT, apply_yaml
from control_plane.daemon import Daemon
from control_plane.following import Following
from control_plane.pods import nodes_of, refusal

from tests.e2e import definitions
from tests.e2e.conftest import PODS, delete_all

pytestmark = pytest.mark.e2e

PLANE = {"kcm": True, "kwok": True}
NAMESPACED = "/apis/batch/v1/namespaces/default/jobs"
JOBS = "/apis/batch/v1/jobs"
SETS = "/apis/apps/v1/statefulsets"
QUOTAS = "/api/v1/resourcequotas"
EVENTS = "/apis/events.k8s.io/v1/events"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
BINDING = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/gangsched-owners"
ASKS = {"gangsched.dev/gang": "owner"}
WITHIN_S = 60.0
LATE_WITHIN_S = 90.0


@pytest.fixture
def api(plane: ControlPlane) -> Iterator[Api]:
    """An administrator's client; one node of 2 GPUs; the role is bound."""
    api = Api.of(plane)
    make.create_all(api, [make.node("n0", gpus=2)])
    apply_yaml(api, ROOT / "manifests" / "rbac-owners.yaml")
    yield api
    delete_all(api, JOBS, SETS, PODS, QUOTAS, "/api/v1/nodes")
    api.close()


def template(run_seconds: float | None = None) -> Object:
    """A pod template that asks for the gang of its owner."""
    pod = make.pod("unused", gpus=1, labels={"app": "w", **ASKS}, run_seconds=run_seconds)
    metadata = {key: pod["metadata"][key] for key in ("labels", "annotations")}
    return {"metadata": metadata, "spec": pod["spec"]}


def job(name: str, width: int, *, run_seconds: float | None = None, **spec: Any) -> Object:
    """A Job of so many pods at a time."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "parallelism": width,
            "completions": width,
            "template": template(run_seconds),
            **spec,
        },
    }


def stateful_set(name: str, replicas: int, policy: str) -> Object:
    """A StatefulSet whose pods ask."""
    body = template()
    body["spec"] = {**body["spec"], "restartPolicy": "Always"}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "podManagementPolicy": policy,
            "serviceName": name,
            "selector": {"matchLabels": {"app": "w"}},
            "template": body,
        },
    }


def await_bound(pods: Following, prefix: str, number: int) -> None:
    """Wait until so many pods of a prefix are bound."""
    pods.wait_for(
        lambda items: len(nodes_of(items, prefix)) == number,
        within_s=WITHIN_S,
        what=f"{number} of {prefix}* are bound",
    )


def await_waiting(
    pods: Following,
    prefix: str,
    number: int,
    fragment: str,
    within_s: float = WITHIN_S,
) -> None:
    """Wait until so many pods of a prefix exist, and none is bound because of that."""

    def told(items: Mapping[str, Object]) -> bool:
        mine = [pod for pod in items.values() if pod["metadata"]["name"].startswith(prefix)]
        texts = [refusal(pod)[1] for pod in mine]
        return len(mine) == number and all(fragment in text for text in texts)

    pods.wait_for(told, within_s=within_s, what=f"{number} of {prefix}* wait: {fragment}")
    assert nodes_of(pods.objects(), prefix) == {}


def await_event(api: Api, reason: str, kind: str, name: str) -> str:
    """The note of an Event about an object."""

    def note(items: Mapping[str, Object]) -> str | None:
        for event in items.values():
            about = event["regarding"]
            if (event["reason"], about["kind"], about["name"]) == (reason, kind, name):
                return str(event["note"])

        return None

    with Following(api, EVENTS) as events:
        return str(events.wait_for(note, within_s=WITHIN_S, what=f"{reason} of {kind} {name}"))


def await_log(daemon: Daemon, says: Callable[[str], bool], *, times: int = 1) -> None:
    """Wait until so many lines of the log say something."""
    deadline_s = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline_s:
        found = [line for line in daemon.log_lines() if says(str(line.get("event")))]
        if len(found) >= times:
            return
        time.sleep(0.2)

    raise AssertionError("\n".join(map(str, daemon.log_lines())))


def test_a_real_job_starts_whole_and_runs_to_its_end(plane: ControlPlane, api: Api) -> None:
    """O1, O3, O4: none of three with room for two; five completions at three a time all run."""
    with Daemon(plane), Following(api, PODS) as pods:
        api.post(NAMESPACED, job("train", 3, run_seconds=1, completions=5))
        await_waiting(pods, "train-", 3, "gang default/Job.train")
        make.create_all(api, [make.node("n1", gpus=1)])

        def are_done(items: Mapping[str, Object]) -> bool:
            phases = [
                pod["status"].get("phase")
                for pod in items.values()
                if pod["metadata"]["name"].startswith("train-")
            ]
            return phases.count("Succeeded") == 5

        pods.wait_for(are_done, within_s=WITHIN_S, what="all five have succeeded")


def test_a_real_job_that_is_created_again_starts_whole(plane: ControlPlane, api: Api) -> None:
    """O2: its pods wait for each other although it has the name of the one before."""
    with Daemon(plane), Following(api, PODS) as pods:
        api.post(NAMESPACED, job("train", 2))
        await_bound(pods, "train-", 2)
        api.delete(f"{NAMESPACED}/train")
        delete_all(api, PODS)
        api.post(NAMESPACED, job("train", 3))
        await_waiting(pods, "train-", 3, "gang default/Job.train")


def test_stateful_sets_start_whole_or_in_order(plane: ControlPlane, api: Api) -> None:
    """O3: parallel ones whole, ordered ones one by one, which an Event on them tells."""
    with Daemon(plane), Following(api, PODS) as pods:
        make.create_all(api, [stateful_set("whole", 3, "Parallel")])
        await_waiting(pods, "whole-", 3, "gang default/StatefulSet.whole")
        make.create_all(api, [stateful_set("ordered", 2, "OrderedReady")])
        await_bound(pods, "ordered-", 2)
        note = await_event(api, "NotAGang", "StatefulSet", "ordered")
        assert "starts its pods one by one (OrderedReady)" in note
        assert nodes_of(pods.objects(), "whole-") == {}


def test_a_quota_that_forbids_a_pod_is_hinted_at(plane: ControlPlane, api: Api) -> None:
    """O6: the pods that exist say after half a minute where to look."""
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "two", "namespace": "default"},
        "spec": {"hard": {"pods": "2"}},
    }
    api.post("/api/v1/namespaces/default/resourcequotas", quota)
    with Daemon(plane), Following(api, PODS) as pods:
        api.post(NAMESPACED, job("train", 3))
        await_waiting(pods, "train-", 2, "Job default/train makes 3")
        text = "has not made all of them for 30 s: see its Events"
        await_waiting(pods, "train-", 2, text, LATE_WITHIN_S)


def test_the_right_is_given_and_taken_away_live(plane: ControlPlane, api: Api) -> None:
    """O3, O7, O8: without it Jobs start pod by pod and are told; with it they are gangs, also while
    a watch goes on after it is gone; then a gang keeps its minimum, and others are told.
    """
    api.delete(BINDING)
    with Daemon(plane) as daemon, Following(api, PODS) as pods:
        api.post(NAMESPACED, job("alone", 3))
        await_bound(pods, "alone-", 2)
        assert "manifests/rbac-owners.yaml" in await_event(api, "NotAGang", "Job", "alone")
        apply_yaml(api, ROOT / "manifests" / "rbac-owners.yaml")
        api.delete(f"{NAMESPACED}/alone")
        delete_all(api, PODS)
        await_log(daemon, lambda line: line == "Following jobs again.")
        api.post(NAMESPACED, job("train", 3))
        await_waiting(pods, "train-", 3, "gang default/Job.train")
        api.delete(BINDING)
        api.post(NAMESPACED, job("open", 4))
        await_waiting(pods, "open-", 4, "gang default/Job.open")

        await_log(daemon, lambda line: "apply manifests/rbac-owners.yaml" in line, times=2)
        api.post(NAMESPACED, job("late", 1))
        await_bound(pods, "late-", 1)
        assert "manifests/rbac-owners.yaml" in await_event(api, "NotAGang", "Job", "late")
        assert nodes_of(pods.objects(), "train-") == {}
        make.create_all(api, [make.node("n1", gpus=2)])
        await_bound(pods, "train-", 3)
        assert nodes_of(pods.objects(), "open-") == {}


def job_of_set(name: str, job_set: Object) -> Object:
    """A Job of one pod, of a JobSet whose own controller does not run."""
    body = job(name, 1)
    metadata = job_set["metadata"]
    body["metadata"]["ownerReferences"] = [
        {
            "apiVersion": job_set["apiVersion"],
            "kind": "JobSet",
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
        }
    ]
    body["metadata"]["labels"] = {"jobset.sigs.k8s.io/replicatedjob-name": "worker"}
    return body


def test_the_right_to_job_sets_is_given_and_taken_away_live(plane: ControlPlane, api: Api) -> None:
    """O3, O7: without it each Job of a JobSet starts by itself, and the JobSet is told; with it all
    start together; without it again they still do.
    """
    (definition,) = [each for each in definitions.OWNERS if "jobsets" in each["metadata"]["name"]]
    definitions.install(api, definition)
    api.delete(f"{BINDING}-jobset")
    spec = {"replicatedJobs": [{"name": "worker", "replicas": 3}]}
    body = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": spec}
    path = api.path_of({**body, "metadata": {}})
    with Daemon(plane) as daemon, Following(api, PODS) as pods:
        alone = api.post(path, {**body, "metadata": {"name": "alone"}})
        make.create_all(api, [job_of_set(f"alone-{number}", alone) for number in range(3)])
        await_bound(pods, "alone-", 2)
        note = await_event(api, "NotAGang", "JobSet", "alone")
        assert "manifests/rbac-owners-jobset.yaml" in note

        apply_yaml(api, ROOT / "manifests" / "rbac-owners-jobset.yaml")
        delete_all(api, JOBS, PODS)
        await_log(daemon, lambda line: line == "Following jobsets again.")
        train = api.post(path, {**body, "metadata": {"name": "train"}})
        make.create_all(api, [job_of_set(f"train-{number}", train) for number in range(3)])
        await_waiting(pods, "train-", 3, "default/Job.train")

        api.delete(f"{BINDING}-jobset")
        says = "apply manifests/rbac-owners-jobset.yaml"
        await_log(daemon, lambda line: says in line, times=2)
        assert nodes_of(pods.objects(), "train-") == {}
        make.create_all(api, [make.node("n1", gpus=1)])
        await_bound(pods, "train-", 3)

    delete_all(api, path)


OF_OPERATORS = {
    "RayCluster": ("rbac-owners-kuberay.yaml", {"workerGroupSpecs": [{"replicas": 2}]}),
    "PyTorchJob": (
        "rbac-owners-kubeflow.yaml",
        {"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 2}}},
    ),
}
"""The manifest with the permission of each kind, and the spec of one with three pods."""


@pytest.mark.parametrize("kind", OF_OPERATORS)
def test_the_right_to_objects_of_operators_is_given_live(
    kind: str, plane: ControlPlane, api: Api
) -> None:
    """O3, O7: without it their pods start one by one, and the owner is told; with it together."""
    manifest, spec = OF_OPERATORS[kind]
    (definition,) = [each for each in definitions.OWNERS if each["spec"]["names"]["kind"] == kind]
    definitions.install(api, definition)
    group, version = definition["spec"]["group"], definition["spec"]["versions"][0]["name"]
    plural = definition["spec"]["names"]["plural"]
    path = f"/apis/{group}/{version}/namespaces/default/{plural}"
    body = {"apiVersion": f"{group}/{version}", "kind": kind, "spec": spec}
    api.delete(f"{BINDING}{manifest.removeprefix('rbac-owners').removesuffix('.yaml')}")

    with Daemon(plane) as daemon, Following(api, PODS) as pods:
        alone = api.post(path, {**body, "metadata": {"name": "alone"}})
        make.create_all(api, pods_of(alone))
        await_bound(pods, "alone-", 2)
        assert f"manifests/{manifest}" in await_event(api, "NotAGang", kind, "alone")

        apply_yaml(api, ROOT / "manifests" / manifest)
        delete_all(api, PODS)
        await_log(daemon, lambda line: line == f"Following {plural} again.")
        train = api.post(path, {**body, "metadata": {"name": "train"}})
        make.create_all(api, pods_of(train))
        await_waiting(pods, "train-", 3, f"gang default/{kind}.train")
        make.create_all(api, [make.node("n1", gpus=1)])
        await_bound(pods, "train-", 3)

    delete_all(api, path)
    definitions.remove(api, definition)


def pods_of(owner: Object) -> list[Object]:
    """Three pods of an owner that ask."""
    metadata = owner["metadata"]
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }
    pods = [make.pod(f"{metadata['name']}-{index}", gpus=1, labels=ASKS) for index in range(3)]
    for pod in pods:
        pod["metadata"]["ownerReferences"] = [reference]
    return pods


READ = {
    "rbac-owners": ["batch/jobs", "apps/statefulsets"],
    "rbac-owners-jobset": ["jobset.x-k8s.io/jobsets"],
    "rbac-owners-kuberay": ["ray.io/rayclusters"],
    "rbac-owners-kubeflow": [
        f"kubeflow.org/{kind}jobs" for kind in ("pytorch", "tf", "xgboost", "paddle", "jax", "mpi")
    ],
}
"""What each role reads."""
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")


def allowed(api: Api) -> set[tuple[str, str]]:
    """(resource, verb) of all owners that the daemon may use."""
    found = set()
    for resource in (each for of_role in READ.values() for each in of_role):
        group, _, plural = resource.partition("/")
        for verb in VERBS:
            spec = {
                "user": "system:serviceaccount:gangsched-system:gangsched",
                "resourceAttributes": {"group": group, "resource": plural, "verb": verb},
            }
            review = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": spec,
            }
            if api.post(REVIEWS, review)["status"]["allowed"]:
                found.add((resource, verb))

    return found


def await_allowed(api: Api, expected: set[tuple[str, str]]) -> None:
    """Wait until the daemon may use these and no others: the authorizer follows by a watch."""
    deadline_s = time.monotonic() + WITHIN_S
    while (found := allowed(api)) != expected:
        assert time.monotonic() < deadline_s, found ^ expected
        time.sleep(0.1)


@pytest.mark.parametrize("role", READ)
def test_each_role_lists_and_watches_its_owners_and_nothing_else(role: str, api: Api) -> None:
    """O7: from both sides: nothing without it, and no other verb or kind with it."""
    for each in READ:
        with suppress(ApiError):
            api.delete(f"{BINDING}{each.removeprefix('rbac-owners')}")
    await_allowed(api, set())
    apply_yaml(api, ROOT / "manifests" / f"{role}.yaml")
    await_allowed(api, {(each, verb) for each in READ[role] for verb in ("list", "watch")})
