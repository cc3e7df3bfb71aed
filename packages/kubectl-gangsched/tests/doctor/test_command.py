"""`doctor`: each thing that is wrong is one sentence with what to do, and what may not be read is
not checked.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from typer.testing import CliRunner

from gangsched import __version__
from gangsched.api.timestamps import format_timestamp
from kubectl_gangsched.doctor.rights import PATH as REVIEWS
from kubectl_gangsched.main import cli
from tests.doctor_examples import (
    DEFINITION,
    LEASE,
    SIGS,
    VOLCANO,
    X,
    api_group,
    deployment,
    event,
    examine,
    lease,
    sound,
)
from tests.fake_api import forbidden, listed, node, pod, served, status


def ordered(**orders: str) -> dict[str, Any]:
    """A Lease with these annotations of an administrator."""
    body = lease("one")
    body["metadata"]["annotations"] = {f"gangsched.dev/{key}": text for key, text in orders.items()}
    return body


def lost_node(name: str) -> dict[str, Any]:
    """A node whose kubelet does not report."""
    lost = node(name, 8)
    lost["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    return lost


def refused_pod(name: str) -> dict[str, Any]:
    """A pod whose bind is refused again and again."""
    refused = pod(name, message=f"binding pod team/{name} failed: hook")
    refused["status"]["conditions"][0]["reason"] = "BackOff"
    return refused


def test_a_sound_cluster_has_no_findings(tmp_path: Path) -> None:
    """Exit code 0, with the versions and the scheduler's names."""
    code, told, fake = examine(tmp_path, sound())
    assert (code, told["findings"], told["notChecked"]) == (0, [], {})
    assert told["facts"] == {
        "apiServer": "v1.36.0",
        "kubectlGangsched": __version__,
        "scheduler": f"gangsched-system/gangsched ({__version__})",
        "schedulerNames": "gangsched",
        "leader": "one",
    }
    assert {body["spec"]["user"] for body in fake.bodies} == {
        "system:serviceaccount:gangsched-system:gangsched"
    }


WRONG = [
    (
        {"/apis/apps/v1/deployments": listed()},
        "There is no Deployment with the label app.kubernetes.io/name=gangsched.",
        "manifests/",
    ),
    (
        {"/apis/apps/v1/deployments": listed(deployment(ready=0))},
        "No replica of Deployment gangsched-system/gangsched is ready",
        "describe deployment/gangsched",
    ),
    (
        {
            "/apis/apps/v1/deployments": listed(
                deployment(ready=0, failure='pods "gangsched-7f" is forbidden: exceeded quota: q.')
            )
        },
        'no gang is scheduled by it (pods "gangsched-7f" is forbidden: exceeded quota: q).',
        "describe deployment/gangsched",
    ),
    (
        {"/apis/apps/v1/deployments": listed(deployment(image="r/gangsched:0.0.1"))},
        "The scheduler is 0.0.1",
        "version",
    ),
    (
        {REVIEWS: {"status": {"allowed": False}}},
        "may not get pods, list pods",
        "Apply manifests/rbac.yaml.",
    ),
    (
        {REVIEWS: {"status": {"allowed": False}}},
        "may not list services, watch services: pods behind Services are packed",
        "Apply manifests/rbac.yaml.",
    ),
    (
        {REVIEWS: {"status": {"allowed": False}}},
        "preemption is off",
        "Apply manifests/rbac-preemption.yaml.",
    ),
    (
        {"/apis": {"groups": [api_group(SIGS), api_group(X)]}},
        f"`kubectl get podgroup` shows those of {SIGS}, and not those of {X}.",
        f"kubectl get podgroups.{X}",
    ),
    (
        {
            "/apis": {"groups": [api_group(VOLCANO, "v1beta1")]},
            REVIEWS: {"status": {"allowed": False}},
        },
        f"may not list podgroups in {VOLCANO}, watch podgroups in {VOLCANO}, ",
        "Apply manifests/rbac-dialects.yaml.",
    ),
    (
        {LEASE: lease("one", 90.0)},
        "Lease gangsched-system/gangsched is held by one, which renewed it last at",
        "logs",
    ),
    (
        {LEASE: ordered(pause="INC-1")},
        "Scheduling is paused: INC-1 (gangsched.dev/pause).",
        "annotate lease gangsched gangsched.dev/pause- once",
    ),
    (
        {LEASE: ordered(pauze="INC-1")},
        "Annotation gangsched.dev/pauze is no order; did you mean gangsched.dev/pause?",
        "docs/runbook.md",
    ),
    ({LEASE: lease("", 90.0)}, "Lease gangsched-system/gangsched has no holder since ", "logs -l"),
    (
        {
            LEASE: status(404, "NotFound", "x"),
            "/apis/apps/v1/deployments": listed(deployment("--leader-elect")),
        },
        "Lease gangsched-system/gangsched does not exist: no replica has ever led",
        "logs -l app.kubernetes.io/name=gangsched --prefix --tail=50",
    ),
    (
        {"/api/v1/events": listed(event("one", 1, 7), event("two", 6, 9), event("three", 10, 11))},
        (
            "2 daemons schedule at the same time: one, two wrote Events by turns, until"
            " 2026-01-01T00:00:07."
        ),
        "scheduler name",
    ),
    ({"/apis": {"groups": []}}, "No API group that gangsched reads serves PodGroups", "crds/"),
    (
        {
            DEFINITION: {
                "metadata": {"managedFields": [{"manager": "volcano"}]},
                "spec": {"versions": [{}]},
            }
        },
        f"podgroups.{X} has no status subresource, and is not ours (written by volcano).",
        "crds/",
    ),
    (
        {"/api/v1/pods": listed(pod("a", scheduler="gangshed"), pod("b", scheduler="gangshed"))},
        (
            '2 pods wait for the scheduler "gangshed", which has neither bound nor reported any'
            " pod: team/a, team/b."
        ),
        'set it to "gangsched" if it is misspelt',
    ),
    (
        {"/api/v1/pods": listed(pod("a"), pod("b")), LEASE: status(404, "NotFound", "x")},
        "2 pods wait for gangsched, which has said nothing for 30 s: team/a, team/b.",
        "Read its log.",
    ),
    (
        {"/api/v1/pods": listed(refused_pod("a"), refused_pod("b"), pod("c", message="no room"))},
        "The API server refuses to bind 2 pods (team/a, team/b): binding pod team/a failed: hook.",
        "mend the webhook",
    ),
    (
        {"/api/v1/nodes": listed(node("n1", 8), lost_node("n2"), node("n3", 8))},
        "1 of 3 nodes is lost: n2 (unreachable). Nothing starts there",
        "kubectl describe node n2",
    ),
    (
        {"/api/v1/pods": listed(pod("a", node="gone"), pod("b", node="gone"), pod("c", node="n1"))},
        "2 pods are bound to nodes that do not exist any more (gone): team/a, team/b.",
        "kubectl delete pod --force",
    ),
    (
        {"/api/v1/pods": listed(pod("a", scheduler="kai-scheduler"))},
        '1 pod waits for the scheduler "kai-scheduler", which has neither bound nor reported',
        'name another one in the pod template (the usual name is "gangsched")',
    ),
    (
        {"/api/v1/pods": listed(pod("a"), pod("b", message="no room"))},
        "1 pod waits for gangsched, which has said nothing for 30 s, although one leads: team/a.",
        "Read the log of one, and delete its pod",
    ),
    (
        {
            "/api/v1/pods": listed(
                pod("a-0", gang="tran", message="PodGroup team/tran does not exist")
            )
        },
        (
            "PodGroup team/tran does not exist, and 1 pod of that gang cannot start without it:"
            " team/a-0."
        ),
        'Name "train" in the label of the pods',
    ),
    (
        {
            "/apis": {"groups": [api_group(X), api_group(VOLCANO, "v1beta1")]},
            "/api/v1/pods": listed(pod("a-0", gang="mpi", message="-")),
        },
        "PodGroup team/mpi does not exist",
        (
            "Create it in scheduling.x-k8s.io, which the pods name: there is one in"
            " scheduling.volcano.sh."
        ),
    ),
    (
        {"/api/v1/pods": listed(pod("a", node="n1"), pod("b", node="n1", scheduler="other"))},
        '1 node with accelerators has pods of several schedulers ("gangsched" and "other"): n1.',
        "taint",
    ),
    (
        {
            "/apis/apiregistration.k8s.io/v1/apiservices": listed(
                {
                    "metadata": {"name": "v1alpha1.visibility.gangsched.dev"},
                    "status": {
                        "conditions": [
                            {
                                "type": "Available",
                                "status": "False",
                                "reason": "MissingEndpoints",
                                "message": "none",
                            }
                        ]
                    },
                }
            )
        },
        "APIService v1alpha1.visibility.gangsched.dev is not available (MissingEndpoints: none)",
        "kubectl delete apiservice v1alpha1.visibility.gangsched.dev",
    ),
]


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second look at a stale Lease comes at once."""
    monkeypatch.setattr("kubectl_gangsched.doctor.leader.LOOK_AGAIN_S", 0.0)


def looked_at_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any], later: dict[str, Any]
) -> list[str]:
    """The findings if this is what the API server answers at the second look."""
    with served(tmp_path, answers) as (fake, kubeconfig):
        monkeypatch.setattr("time.sleep", lambda _: fake.answers.update(later))
        answer = CliRunner().invoke(cli, ["doctor", "-o", "json", "--kubeconfig", str(kubeconfig)])
    return [finding["sentence"] for finding in json.loads(answer.stdout)["findings"]]


@pytest.mark.parametrize("off_s", [-900.0, 900.0])
def test_a_lease_that_only_looks_stale_is_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, off_s: float
) -> None:
    """Not this computer's clock counts, but the API server's, which dates its answers."""
    wrong = SimpleNamespace(time=lambda: time.time() + off_s, sleep=time.sleep)
    monkeypatch.setattr("kubectl_gangsched.doctor.leader.time", wrong)
    code, told, _ = examine(tmp_path, sound())
    assert (code, told["findings"]) == (0, [])


@pytest.mark.parametrize(("ahead_s", "where"), [(3600, "ahead of"), (-3600, "behind")])
def test_a_leader_whose_clock_is_wrong_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead_s: int, where: str
) -> None:
    """It renews the Lease between two looks, at times that are not the API server's."""
    answers = {**sound(), LEASE: lease("one", -ahead_s)}
    later = {LEASE: lease("one", -ahead_s - 6.0)}
    (found,) = looked_at_twice(tmp_path, monkeypatch, answers, later)
    said = re.fullmatch(
        rf"The clock of one, which leads, is (\d+) s {where} the API server's.*", found
    )
    assert said is not None
    assert abs(int(said[1]) - 3600) <= 10


def young(name: str, **more: Any) -> dict[str, Any]:
    """A pod that was just created."""
    return pod(name, created=format_timestamp(int(time.time())), **more)


def test_a_name_that_nobody_serves_is_found_within_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod that was just created is looked at again; one that came meanwhile is not named."""
    answers = {**sound(), "/api/v1/pods": listed(young("a", scheduler="gangshed"))}
    more = listed(young("a", scheduler="gangshed"), young("b", scheduler="gangshed"))
    (found,) = looked_at_twice(tmp_path, monkeypatch, answers, {"/api/v1/pods": more})
    assert found == (
        '1 pod waits for the scheduler "gangshed", which has neither bound nor reported any pod:'
        " team/a."
    )


def test_a_scheduler_that_is_about_to_speak_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One word of it about any pod, or one bind, suffices."""
    answers = {**sound(), "/api/v1/pods": listed(young("a", scheduler="mine"))}
    more = listed(young("a", scheduler="mine"), young("b", scheduler="mine", message="no room"))
    assert looked_at_twice(tmp_path, monkeypatch, answers, {"/api/v1/pods": more}) == []


def test_only_pods_of_the_name_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a user writes into the name stays one value of the selector."""
    name = "a,b=c\\d"
    answers = {**sound(), "/api/v1/pods": listed(young("a", scheduler=name))}
    with served(tmp_path, answers) as (fake, kubeconfig):
        monkeypatch.setattr("time.sleep", lambda _: None)
        CliRunner().invoke(cli, ["doctor", "--kubeconfig", str(kubeconfig)])
    (asked,) = [path for path in fake.asked if "spec.schedulerName" in path]
    assert parse_qs(urlsplit(asked).query)["fieldSelector"] == [r"spec.schedulerName=a\,b\=c\\d"]


def test_a_dead_leader_is_why_nothing_is_said(tmp_path: Path) -> None:
    """One cause is one finding."""
    answers = {**sound(), "/api/v1/pods": listed(pod("a")), LEASE: lease("", 90.0)}
    _, told, _ = examine(tmp_path, answers)
    assert [finding["check"] for finding in told["findings"]] == ["leader"]
    assert "leader" not in told["facts"]


@pytest.mark.parametrize(
    ("changed", "sentence", "todo"), WRONG, ids=[wrong[1][:40] for wrong in WRONG]
)
def test_what_is_wrong_is_found(
    tmp_path: Path, changed: dict[str, Any], sentence: str, todo: str
) -> None:
    """Exit code 1; the sentence names it and says what to do."""
    code, told, _ = examine(tmp_path, {**sound(), **changed})
    assert code == 1
    found = [finding for finding in told["findings"] if sentence in finding["sentence"]]
    assert len(found) == 1, told["findings"]
    assert todo in found[0]["todo"]


@pytest.mark.parametrize(
    "args",
    [("--scheduler-name", "gangshed"), ("--scheduler-name=gangshed",)],
    ids=["two words", "one word"],
)
def test_names_of_the_deployment_are_served(tmp_path: Path, args: tuple[str, ...]) -> None:
    """A pod that the scheduler has not looked at yet is not one that nobody serves; its names are
    one scheduler.
    """
    pods = listed(young("a", scheduler="gangshed"), pod("b", node="n1", scheduler="gangshed"))
    code, told, _ = examine(
        tmp_path,
        {**sound(), "/api/v1/pods": pods, "/apis/apps/v1/deployments": listed(deployment(*args))},
    )
    assert (code, told["findings"], told["facts"]["schedulerNames"]) == (0, [], "gangshed")


def test_names_that_stamped_binds_show_are_served(tmp_path: Path) -> None:
    """A daemon outside the cluster has no Deployment; the stamps of its binds prove which names it
    serves.
    """
    stamped = pod(
        "a", node="n1", scheduler="mine", annotations={"gangsched.dev/permitted": "1/1 uid-a"}
    )
    pods = listed(stamped, pod("b", node="n1"))
    _, told, _ = examine(
        tmp_path, {**sound(), "/api/v1/pods": pods, "/apis/apps/v1/deployments": listed()}
    )
    assert not [
        finding for finding in told["findings"] if "several schedulers" in finding["sentence"]
    ]


def test_an_image_without_a_tag_is_no_version(tmp_path: Path) -> None:
    """As in the playground, where no registry has one."""
    answers = {**sound(), "/apis/apps/v1/deployments": listed(deployment(image="gangsched"))}
    code, told, _ = examine(tmp_path, answers)
    assert (code, told["facts"]["scheduler"]) == (0, "gangsched-system/gangsched (no tag)")


def test_names_of_the_config_map_are_served(tmp_path: Path) -> None:
    """The Deployment mounts its settings."""
    mounted = deployment()
    mounted["spec"]["template"]["spec"]["volumes"] = [
        {"name": "config", "configMap": {"name": "settings"}}
    ]
    settings = {"data": {"config.yaml": "scheduler_names: [one, two]"}}
    where = "/api/v1/namespaces/gangsched-system/configmaps/settings"
    _, told, _ = examine(
        tmp_path, {**sound(), "/apis/apps/v1/deployments": listed(mounted), where: settings}
    )
    assert told["facts"]["schedulerNames"] == "one, two"


def test_what_may_not_be_read_is_not_checked(tmp_path: Path) -> None:
    """A user without rights gets what discovery shows, and a list of what is missing, and no
    findings made up.
    """
    refused = {
        "/apis/apps/v1/deployments": forbidden("list", "deployments"),
        REVIEWS: forbidden("create", "subjectaccessreviews"),
        DEFINITION: forbidden("get", "customresourcedefinitions"),
        "/apis/apiregistration.k8s.io/v1/apiservices": forbidden("list", "apiservices"),
        "/api/v1/pods": forbidden("list", "pods"),
        "/api/v1/events": forbidden("list", "events"),
        "/api/v1/nodes": forbidden("list", "nodes"),
        LEASE: forbidden("get", "leases"),
    }
    code, told, _ = examine(tmp_path, {**sound(), **refused})
    assert (code, told["findings"]) == (0, [])
    assert set(told["notChecked"]) == {
        "the scheduler's Deployment",
        "the scheduler's rights",
        "owners of definitions",
        "APIServices",
        "pods of all namespaces",
        "the Lease",
        "Events of all namespaces",
        "nodes",
    }
    assert (
        told["notChecked"]["pods of all namespaces"]
        == "You (user alice) may not list pods in the whole cluster"
    )


@pytest.mark.parametrize("by_namespace", [True, False])
def test_rights_to_read_the_owners_that_pods_ask_for(tmp_path: Path, by_namespace: bool) -> None:
    """O7: by kind; nothing is checked of kinds of which no pod asks."""
    answers = sound()
    asks = {"gangsched.dev/gang": "owner"}
    members = []
    for name, kind, api_version in (
        ("train", "Job", "batch/v1"),
        ("ray", "RayCluster", "ray.io/v1"),
        ("web", "ReplicaSet", "apps/v1"),
    ):
        member = pod(f"{name}-0", message="no room")
        owner = {
            "apiVersion": api_version,
            "kind": kind,
            "name": name,
            "uid": name,
            "controller": True,
        }
        member["metadata"]["ownerReferences"] = [owner]
        if not by_namespace:
            member["metadata"]["labels"] = {**member["metadata"].get("labels", {}), **asks}

        members.append(member)

    members[0]["metadata"].setdefault("labels", {})["jobset.sigs.k8s.io/jobset-name"] = "train"
    answers["/api/v1/pods"] = listed(*members)
    if by_namespace:
        labelled = {"metadata": {"name": members[0]["metadata"]["namespace"], "labels": asks}}
        answers["/api/v1/namespaces"] = listed(labelled)

    code, told, _ = examine(tmp_path, answers)
    assert (code, told["findings"]) == (0, [])
    answers[REVIEWS] = {"status": {"allowed": False}}
    _, told, _ = examine(tmp_path, answers)
    found = {
        each["todo"]: each["sentence"] for each in told["findings"] if "owner" in each["sentence"]
    }
    assert found.keys() == {
        "Apply manifests/rbac-owners.yaml.",
        "Apply manifests/rbac-owners-jobset.yaml.",
        "Apply manifests/rbac-owners-kuberay.yaml.",
    }
    assert found["Apply manifests/rbac-owners-jobset.yaml."] == (
        "The scheduler's ServiceAccount gangsched-system/gangsched may not list jobsets in"
        " jobset.x-k8s.io, watch jobsets in jobset.x-k8s.io: pods ask for the gang of their"
        " owner, and those of JobSets do not start together."
    )


REQUESTS = {"name": "autoscaling.x-k8s.io", "preferredVersion": {"groupVersion": "x/v1"}}
BINDING = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/gangsched-provisioning"


def of_provisioning(tmp_path: Path, answers: dict[str, Any]) -> list[str]:
    """The findings about the setting, without what is to be done."""
    _, told, _ = examine(tmp_path, answers)
    return [each["sentence"] for each in told["findings"] if each["check"] == "provisioning"]


def test_provisioning_without_its_rights_or_its_definition_is_found(tmp_path: Path) -> None:
    """E10: gangs ask as plain pods do meanwhile; with both there is nothing to find."""
    answers = sound()
    answers["/apis/apps/v1/deployments"] = listed(deployment("--provisioning"))
    (undefined,) = of_provisioning(tmp_path, answers)
    assert undefined == (
        "The API server does not serve ProvisioningRequests (autoscaling.x-k8s.io): gangs ask"
        " autoscalers as plain pods do, although the setting provisioning is on."
    )

    answers["/apis"]["groups"].append(REQUESTS)
    assert of_provisioning(tmp_path, answers) == []
    answers[REVIEWS] = {"status": {"allowed": False}}
    (forbidden_all,) = of_provisioning(tmp_path, answers)
    assert "may not get provisioningrequests in autoscaling.x-k8s.io, " in forbidden_all
    assert "and 3 more: gangs ask autoscalers as plain pods do, although" in forbidden_all


def test_a_role_for_provisioning_without_the_setting_is_found(tmp_path: Path) -> None:
    """E10: not where the settings cannot be read, nor with the setting in a ConfigMap."""
    answers = sound()
    answers[BINDING] = {"metadata": {"name": "gangsched-provisioning"}}
    (unused,) = of_provisioning(tmp_path, answers)
    assert unused.startswith("ClusterRoleBinding gangsched-provisioning exists, but the setting")

    installed = deployment()
    volume = {"name": "config", "configMap": {"name": "gangsched"}}
    installed["spec"]["template"]["spec"]["volumes"] = [volume]
    answers["/apis/apps/v1/deployments"] = listed(installed)
    path = "/api/v1/namespaces/gangsched-system/configmaps/gangsched"
    answers[path] = forbidden("get", "configmaps")
    assert of_provisioning(tmp_path, answers) == []
    answers[path] = {"data": {"config.yaml": "provisioning: true"}}
    answers["/apis"]["groups"].append(REQUESTS)
    assert of_provisioning(tmp_path, answers) == []


def on_a_pool(**annotations: str) -> dict[str, Any]:
    """A gang of a Job that has started on nodes of an autoscaler, and what the API says of it."""
    members = []
    answers = sound()
    for number in range(2):
        stamp = {"gangsched.dev/permitted": f"2/1 uid-a-{number}", **annotations}
        member = pod(f"a-{number}", gang="train", node=f"n{number}", annotations=stamp)
        owner = {"kind": "Job", "name": "a", "uid": "j", "controller": True}
        member["metadata"]["ownerReferences"] = [owner]
        member["metadata"]["labels"]["app"] = "a"
        members.append(member)
        answers[f"/api/v1/namespaces/team/pods/a-{number}"] = member

    pool = {"karpenter.sh/nodepool": "gpu"}
    nodes = [{"metadata": {"name": f"n{number}", "labels": pool}} for number in range(2)]
    answers["/api/v1/pods"] = listed(*members)
    answers["/api/v1/nodes"] = listed(*nodes)
    answers["/apis/policy/v1/poddisruptionbudgets"] = listed()
    return answers


def of_autoscalers(tmp_path: Path, answers: dict[str, Any]) -> list[str]:
    """What is found about autoscalers."""
    _, told, _ = examine(tmp_path, answers)
    assert told["notChecked"] == {}
    return [finding["sentence"] for finding in told["findings"] if finding["check"] == "autoscaler"]


def test_gangs_that_an_autoscaler_may_break_are_named(tmp_path: Path) -> None:
    """It empties nodes, and evicts pods one by one, unless they say that they are not to be."""
    (found,) = of_autoscalers(tmp_path, on_a_pool())
    assert found == (
        "1 gang is not protected from an autoscaler that empties nodes, and would be broken:"
        " team/train."
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
        ("karpenter.sh/do-not-disrupt", "true"),
    ],
)
def test_gangs_that_protect_themselves_are_not_named(tmp_path: Path, key: str, value: str) -> None:
    """By an annotation that autoscalers obey."""
    assert of_autoscalers(tmp_path, on_a_pool(**{key: value})) == []


def test_gangs_with_a_budget_or_on_other_nodes_are_not_named(tmp_path: Path) -> None:
    """A PodDisruptionBudget protects them as well; nodes of no autoscaler stay."""
    answers = on_a_pool()
    budget = {
        "metadata": {"name": "b", "namespace": "team"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, "maxUnavailable": 0},
    }
    answers["/apis/policy/v1/poddisruptionbudgets"] = listed(budget)
    assert of_autoscalers(tmp_path, answers) == []

    answers = on_a_pool()
    nodes = [{"metadata": {"name": f"n{number}"}} for number in range(2)]
    answers["/api/v1/nodes"] = listed(*nodes)
    assert of_autoscalers(tmp_path, answers) == []
