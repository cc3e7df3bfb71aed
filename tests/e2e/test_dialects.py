"""Gangs of other projects' objects through the daemon on a real API server
(docs/semantics/dialects.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.applying import ROOT, apply_yaml
from control_plane.daemon import Daemon
from control_plane.following import Following
from control_plane.pods import nodes_of, refusal

from tests.e2e import definitions
from tests.e2e.conftest import PODS

pytestmark = pytest.mark.e2e

GROVE = "/apis/scheduler.grove.io/v1alpha1/podgangs"
VOLCANO = "/apis/scheduling.volcano.sh/v1beta1/podgroups"
MARK = "scheduling.volcano.sh/group-name"
BINDING = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/gangsched-dialects"
EVENTS = "/apis/events.k8s.io/v1/events"
WITHIN_S = 30.0


@pytest.fixture(autouse=True)
def _node(api: Api) -> Iterator[None]:
    """One node of 16 GPUs, and the role; no definition is left behind."""
    make.create_all(api, [make.node("n0", gpus=16)])
    apply_yaml(api, ROOT / "manifests" / "rbac-dialects.yaml")
    yield
    for body in (definitions.VOLCANO, definitions.GROVE):
        definitions.remove(api, body)


def volcano_group(name: str, **spec: object) -> Object:
    """A PodGroup of Volcano."""
    metadata = {"name": name, "namespace": "default"}
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": spec,
    }


def marked(name: str, number: int, *, gpus: int = 1, mark: str = MARK) -> list[Object]:
    """Pods that name a gang by an annotation."""
    return [
        make.pod(f"{name}-{index}", gpus=gpus, annotations={mark: name}) for index in range(number)
    ]


def of_task(name: str, task: str, index: int) -> Object:
    """A pod as Volcano's Jobs make it, with its task."""
    return make.pod(
        f"{name}-{task}-{index}", gpus=1, annotations={MARK: name, "volcano.sh/task-spec": task}
    )


def await_bound(pods: Following, prefix: str, number: int) -> None:
    pods.wait_for(
        lambda items: len(nodes_of(items, prefix)) == number,
        within_s=WITHIN_S,
        what=f"{prefix} bound",
    )


def await_refused(pods: Following, prefix: str, reason: str) -> set[str]:
    """The messages of the pods of a prefix, once all of them wait for that reason."""

    def told(items: Mapping[str, Object]) -> Sequence[str] | None:
        mine = [
            refusal(pod) for pod in items.values() if pod["metadata"]["name"].startswith(prefix)
        ]
        return (
            [text for _, text in mine]
            if mine and all(found == reason for found, _ in mine)
            else None
        )

    return set(pods.wait_for(told, within_s=WITHIN_S, what=f"{reason} on {prefix}*"))


def test_a_definition_that_comes_after_the_start_is_read(plane: ControlPlane, api: Api) -> None:
    """A1: its gangs wait while there is none, start whole once there is, and what is refused names
    the field.
    """
    with Daemon(plane) as daemon, Following(api, PODS) as pods:
        make.create_all(api, marked("late", 2))
        (said,) = await_refused(pods, "late-", "PodGroupMissing")
        assert said.startswith("the API server does not serve PodGroups of scheduling.volcano.sh")
        definitions.install(api, definitions.VOLCANO)
        groups = [
            volcano_group("late", minMember=2, queue="research"),
            volcano_group("more", minMember=2, minTaskMember={"worker": 1}),
            volcano_group("tasks", minMember=2, minTaskMember={"ps": 1, "worker": 1}),
            volcano_group("whole", minMember=3),
        ]
        for group in groups:
            api.post(api.path_of(group), group)
        await_bound(pods, "late-", 2)
        make.create_all(
            api, [*marked("more", 2), *marked("whole", 2, mark="scheduling.k8s.io/group-name")]
        )
        make.create_all(api, [of_task("tasks", "worker", 0), of_task("tasks", "worker", 1)])
        await_refused(pods, "more-", "WaitingForMembers")
        await_refused(pods, "whole-", "WaitingForMembers")
        await_refused(pods, "tasks-", "WaitingForMembers")
        make.create_all(api, [of_task("tasks", "ps", 0), of_task("more", "worker", 0)])
        await_bound(pods, "tasks-", 3)
        await_bound(pods, "more-", 3)
        assert not nodes_of(pods.objects(), "whole-")
        make.create_all(api, marked("whole", 3, mark="scheduling.k8s.io/group-name")[2:])
        await_bound(pods, "whole-", 3)
        started = {"name": "whole", "phase": "Inqueue", "Scheduled": "True"}
        with Following(api, VOLCANO) as stored:
            stored.wait_for(
                lambda items: any(told(each) == started for each in items.values()),
                within_s=WITHIN_S,
                what="its status",
            )
        assert not_used(api) == [
            'queue "research" of PodGroup default/late is not used: gangsched does not support'
            " queues of Volcano"
        ]
        assert not [
            line
            for line in daemon.log_lines()
            if line.get("level") in {"warning", "error", "critical"}
        ]


def ungate(api: Api, pod: Object) -> None:
    """Take the gate away, as Grove does once a pod is referenced."""
    api.patch(
        f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}",
        {"spec": {"schedulingGates": None}},
    )


def told(group: Object) -> Object:
    """Name, phase and the status of each condition of an object."""
    status = group.get("status") or {}
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    phase = {"phase": status["phase"]} if "phase" in status else {}
    return {"name": group["metadata"]["name"], **phase, **conditions}


def not_used(api: Api) -> list[str]:
    return [event["note"] for event in api.list(EVENTS).items if event["reason"] == "NotUsed"]


def test_a_pod_gang_starts_whole(plane: ControlPlane, api: Api) -> None:
    """A PodGang and gated pods as Grove makes them: nothing starts before each podgroup has its
    minimum.
    """
    definitions.install(api, definitions.GROVE)
    podgroups = [
        {"name": f"svc-{part}", "minReplicas": number}
        for part, number in (("router", 1), ("worker", 2))
    ]
    gang: Object = {
        "apiVersion": "scheduler.grove.io/v1alpha1",
        "kind": "PodGang",
        "metadata": {"name": "svc", "namespace": "default"},
        "spec": {
            "podgroups": [{**each, "podReferences": []} for each in podgroups],
            "priorityClassName": "high",
        },
    }
    gates = {"schedulingGates": [{"name": "grove.io/podgang-pending-creation"}]}
    bodies = [
        make.pod(
            name,
            gpus=1,
            labels={"grove.io/podgang": "svc", "grove.io/podclique": clique},
            spec=gates,
        )
        for name, clique in (
            (name, name[:-2]) for name in ("svc-router-0", "svc-worker-0", "svc-worker-1")
        )
    ]
    with Daemon(plane) as daemon, Following(api, PODS) as pods, Following(api, GROVE) as gangs:
        make.create_all(api, [gang, *bodies])
        for body in bodies[:2]:
            ungate(api, body)
        await_refused(pods, "svc-worker-0", "WaitingForMembers")
        assert not nodes_of(pods.objects(), "svc-")
        ungate(api, bodies[2])
        await_bound(pods, "svc-", 3)
        stored = gangs.wait_for(
            lambda items: next(
                (each for each in items.values() if told(each).get("Scheduled") == "True"), None
            ),
            within_s=WITHIN_S,
            what="Scheduled",
        )
        assert stored["status"]["phase"] in {"Pending", "Starting", "Running"}
        assert not_used(api)[-1].startswith(
            'priorityClassName "high" of PodGang default/svc is not used'
        )
        assert not [
            line
            for line in daemon.log_lines()
            if line.get("level") in {"warning", "error", "critical"}
        ]


def test_without_the_right_its_gangs_wait_and_nothing_else_does(
    plane: ControlPlane, api: Api
) -> None:
    """A1: said once in the log; with the right they start, without a restart, as the log says."""
    api.delete(BINDING)
    definitions.install(api, definitions.VOLCANO)
    make.create_all(api, [volcano_group("train", minMember=2)])
    with Daemon(plane) as daemon, Following(api, PODS) as pods:
        make.create_all(
            api, [*marked("train", 2), *marked("old", 2, mark="scheduling.k8s.io/group-name")]
        )
        make.create_all(api, make.gang("ours", members=2))
        await_bound(pods, "ours-", 2)
        for prefix in ("train-", "old-"):
            text = "gangsched has no permission to read PodGroups of scheduling.volcano.sh"
            assert await_refused(pods, prefix, "Unsupported") == {text}
        apply_yaml(api, ROOT / "manifests" / "rbac-dialects.yaml")
        await_bound(pods, "train-", 2)
        said = [
            str(line.get("event")) for line in daemon.log_lines() if line.get("level") == "warning"
        ]
        assert said == [
            (
                "Gangs of scheduling.volcano.sh have to wait. The scheduler may not list podgroups"
                " in scheduling.volcano.sh: apply manifests/rbac-dialects.yaml."
            ),
            "Following PodGroups of scheduling.volcano.sh again.",
        ]


def test_a_dialect_that_is_turned_off_is_not_read(plane: ControlPlane, api: Api) -> None:
    """A1: its marks are those of plain pods, as they were before there was a dialect."""
    definitions.install(api, definitions.VOLCANO)
    with Daemon(plane, extra_args=["--dialects", ""]), Following(api, PODS) as pods:
        make.create_all(api, marked("plain", 2))
        await_bound(pods, "plain-", 2)
