"""`kubectl gangsched` on a real API server with RBAC: as a user with the role `edit` in one
namespace, and as admin.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.applying import apply_manifests, apply_visibility, apply_yaml
from control_plane.components import KUBECTL
from control_plane.daemon import Daemon
from control_plane.following import Following
from control_plane.ports import free_ports
from typer.testing import CliRunner

from kubectl_gangsched.connection import FLAGS, LEFT_OUT
from kubectl_gangsched.main import cli
from kubectl_gangsched.session import Session
from tests.e2e.kube_parts import ROOT
from tests.e2e.visibility.conftest import API_SERVICE, await_available, serving
from tests.live_page import Stream, opened

pytestmark = pytest.mark.e2e

COMMAND = Path(sys.executable).with_name("kubectl-gangsched")
PODS = "/api/v1/pods"
GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"
WITHIN_S = 30.0
MINE, THEIRS = "team-a", "team-b"


class Answer(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


def ask(kubeconfig: Path, *words: str) -> Answer:
    """Run a command in this process."""
    done = CliRunner().invoke(cli, words, env={"KUBECONFIG": str(kubeconfig)})
    return Answer(done.exit_code, done.stdout, done.stderr)


def run(kubeconfig: Path, *words: str) -> Answer:
    """Run a program off a terminal, the folder of our scripts in its PATH."""
    environment = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig),
        "PATH": f"{COMMAND.parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        words, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    return Answer(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """Controllers, because they make up the role `edit`; two nodes of 8 GPUs and two namespaces."""
    with ControlPlane(kcm=True) as plane:
        api = Api.of(plane)
        apply_manifests(api)
        apply_yaml(api, ROOT / "manifests" / "rbac-users.yaml")
        make.create_all(api, [make.namespace(name) for name in (MINE, THEIRS)])
        make.create_all(api, [make.node(name, gpus=8) for name in ("n0", "n1")])
        api.close()
        yield plane


@pytest.fixture(scope="module")
def editor(plane: ControlPlane) -> Path:
    """The kubeconfig of a user with the role `edit` in `MINE`, whose context names
    that namespace.
    """
    api = Api.of(plane)
    api.post(f"/api/v1/namespaces/{MINE}/serviceaccounts", {"metadata": {"name": "alice"}})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    subject = {"kind": "ServiceAccount", "name": "alice", "namespace": MINE}
    binding = {"metadata": {"name": "alice"}, "roleRef": role, "subjects": [subject]}
    api.post(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{MINE}/rolebindings", binding)
    api.close()
    token = plane.service_account_token(MINE, "alice")
    path = plane.write_kubeconfig(plane.workdir / "alice.kubeconfig", token=token)
    document = json.loads(path.read_text())
    document["contexts"][0]["context"]["namespace"] = MINE
    path.write_text(json.dumps(document))
    return path


class Serving(NamedTuple):
    """A daemon that serves the API of gangs, and the APIService, without which nobody asks it."""

    daemon: Daemon
    api_service: Object


@pytest.fixture(scope="module")
def daemon(plane: ControlPlane) -> Iterator[Serving]:
    """One daemon, which has put `running` on both nodes and found no room for `training`; nobody
    asks its API yet.
    """
    (port,) = free_ports(1)
    api = Api.of(plane)
    apply_visibility(api, port)
    with serving(plane, port) as daemon:
        await_available(api)
        api_service = api.get(API_SERVICE)
        api.delete(API_SERVICE)
        make.create_all(api, make.gang("running", MINE, members=3, gpus=4))
        with Following(api, PODS) as pods:
            pods.wait_for(
                lambda items: sum(bool(pod["spec"].get("nodeName")) for pod in items.values()) == 3,
                within_s=WITHIN_S,
                what="gang running",
            )
        make.create_all(api, make.gang("training", MINE, members=2, gpus=4))
        make.create_all(
            api,
            [make.pod("alone", THEIRS, gpus=8), make.pod("typo", MINE, scheduler_name="gangshed")],
        )
        with Following(api, GROUPS) as groups:
            groups.wait_for(
                lambda items: any(map(waits, items.values())), within_s=WITHIN_S, what="a reason"
            )
        api.close()
        metadata = {"name": api_service["metadata"]["name"]}
        yield Serving(daemon, {**api_service, "metadata": metadata})


@pytest.fixture(scope="module")
def gangs_api(plane: ControlPlane, daemon: Serving) -> None:
    """The API server asks the daemon for gangs from here on: tests without it stand before."""
    api = Api.of(plane)
    api.post(API_SERVICE.rpartition("/")[0], daemon.api_service)
    await_available(api)
    with Following(api, "/apis/rbac.authorization.k8s.io/v1/clusterroles") as roles:
        roles.wait_for(
            lambda items: any(map(has_gangs, items.values())),
            within_s=WITHIN_S,
            what="the role edit",
        )
    api.close()


def waits(group: Mapping[str, Any]) -> bool:
    """Whether a PodGroup says that it waits for room."""
    found = group.get("status", {}).get("conditions", ())
    return any(each["type"] == "Scheduled" and each["reason"] == "Unschedulable" for each in found)


def message(plane: ControlPlane, group: str) -> str:
    """What the condition of a PodGroup says."""
    api = Api.of(plane)
    body: Object = api.get(
        f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{MINE}/podgroups/{group}"
    )
    api.close()
    (found,) = [
        each["message"] for each in body["status"]["conditions"] if each["type"] == "Scheduled"
    ]
    return str(found)


def test_why_works_with_the_rights_of_one_namespace(
    plane: ControlPlane, daemon: Serving, editor: Path
) -> None:
    """The first line is one sentence with the scheduler's own words; without the gangs API the
    answer says so.
    """
    answer = run(editor, str(COMMAND), "why", "training")
    first = answer.out.splitlines()[0]
    assert (answer.code, answer.err) == (0, "")
    said = message(plane, "training")  # begins with the gang, which is named once
    assert first == f"G{said[1:]}"
    assert "this cluster does not serve the gangs API" in answer.out
    assert ask(editor, "why", "gang/running").out.startswith(
        f"Gang {MINE}/running has its nodes: all 3 pods are bound."
    )


def test_why_of_a_pod_tells_of_its_gang(daemon: Serving, editor: Path) -> None:
    """A member says what it has and its gang the rest; a pod that nobody serves is told of too."""
    told = json.loads(ask(editor, "why", "pod/training-0", "-o", "json").out)
    assert told["sentence"].startswith(f"Pod {MINE}/training-0 waits: gang {MINE}/training needs ")
    assert (told["gang"]["byState"], told["gang"]["minMember"]) == ({"pending": 2}, 2)
    assert ask(editor, "why", "typo").out.startswith(f"Pod {MINE}/typo waits. ")


def test_what_is_not_there_or_not_allowed_is_one_sentence(daemon: Serving, editor: Path) -> None:
    """A misspelt name gets the nearest ones; another namespace, and the map, name the right that is
    lacking.
    """
    near = ask(editor, "why", "gang/trainin")
    assert (near.code, near.out) == (2, "")
    assert near.err.startswith(
        f"kubectl-gangsched: There is no gang trainin in namespace {MINE}; did you mean training"
    )
    user = f"system:serviceaccount:{MINE}:alice"
    refused = ask(editor, "why", "pod/alone", "-n", THEIRS)
    assert refused == Answer(
        2, "", f"kubectl-gangsched: You (user {user}) may not get pods in namespace {THEIRS}.\n"
    )
    no_map = ask(editor, "map")
    assert no_map.code == 2
    assert f"You (user {user}) may not list nodes in the whole cluster" in no_map.err


def test_the_map_shows_who_uses_what(plane: ControlPlane, daemon: Serving) -> None:
    """For who may list nodes: free and used GPUs of each node, by gang."""
    text = ask(plane.kubeconfig, "map").out
    assert text.startswith("4 of 16 nvidia.com/gpu are free on 2 nodes; at most 4 on one node.\n")
    assert "AAAAAAAA" in text
    assert "AAAA...." in text
    told = json.loads(ask(plane.kubeconfig, "map", "-o", "json").out)["resources"]["nvidia.com/gpu"]
    assert sum(node["users"].get(f"{MINE}/running", 0) for node in told) == 12


def test_the_doctor_finds_what_is_wrong(plane: ControlPlane, daemon: Serving, editor: Path) -> None:
    """As admin: the scheduler's rights are whole and another account's are not; as editor: most is
    not checked.
    """
    told = json.loads(ask(plane.kubeconfig, "doctor", "-o", "json").out)
    assert told["notChecked"] == {}
    assert not [finding for finding in told["findings"] if finding["check"] == "rights"]
    other = ask(plane.kubeconfig, "doctor", "--service-account", "default")
    assert other.code == 1
    assert "ServiceAccount gangsched-system/default may not get pods, list pods" in other.out
    mine = ask(editor, "doctor")
    assert (
        "pods of all namespaces: You (user system:serviceaccount:team-a:alice) may not list pods"
        in mine.out
    )


def test_an_impersonated_user_has_that_users_rights(
    plane: ControlPlane, daemon: Serving, editor: Path, tmp_path: Path
) -> None:
    """By flag and by the kubeconfig's `as`: the administrator gets what the editor gets, as with
    kubectl.
    """
    user = f"system:serviceaccount:{MINE}:alice"
    impersonating = impersonated(plane, tmp_path / "as", user)
    flags = ("--as", user, "--as-group", "system:authenticated")
    for kubeconfig, given in ((plane.kubeconfig, flags), (impersonating, ())):
        assert ask(kubeconfig, *given, "why", "training", "-n", MINE).code == 0
        refused = ask(kubeconfig, *given, "why", "pod/alone", "-n", THEIRS)
        said = f"kubectl-gangsched: You (user {user}) may not get pods in namespace {THEIRS}.\n"
        assert refused == Answer(2, "", said)
        assert ask(kubeconfig, *given, "map").code == 2
    known = run(impersonating, str(KUBECTL), "get", "pod", "alone", "-n", THEIRS)
    assert (known.code, f'User "{user}" cannot get' in known.err) == (1, True)
    forbidden = ask(editor, "--as", "system:admin", "why", "training")
    assert forbidden.code == 2
    assert forbidden.err.startswith(f"kubectl-gangsched: You (user {user}) may not impersonate")


def impersonated(plane: ControlPlane, path: Path, user: str) -> Path:
    """The administrator's kubeconfig with `as`."""
    document = json.loads(plane.kubeconfig.read_text())
    document["users"][0]["user"] |= {"as": user, "as-groups": ["system:authenticated"]}
    path.write_text(json.dumps(document))
    return path


def test_other_credentials_by_flags(
    plane: ControlPlane, daemon: Serving, editor: Path, tmp_path: Path
) -> None:
    """A token in place of the certificate; a server with and without its authority."""
    token = plane.service_account_token(MINE, "alice")
    mine = ("why", "training", "-n", MINE)
    anonymous = tmp_path / "anonymous"
    document = json.loads(editor.read_text())
    document["users"][0]["user"] = {}
    anonymous.write_text(json.dumps(document))
    assert ask(anonymous, *mine, "--token", token).code == 0
    assert ask(anonymous, "--token", f"{token}x", *mine).err.startswith(
        "kubectl-gangsched: The API server does not accept the credentials"
    )
    empty = tmp_path / "empty"
    empty.write_text("")
    by_hand = ("--server", plane.url, "--token", token)
    assert ask(empty, *by_hand, "--certificate-authority", str(plane.ca_path), *mine).code == 0
    assert ask(empty, *by_hand, "--insecure-skip-tls-verify=true", *mine).code == 0
    unverified = ask(empty, *by_hand, *mine)
    assert (unverified.code, "certificate verify failed" in unverified.err.lower()) == (2, True)


def test_every_global_option_of_kubectl_is_known() -> None:
    """Those of the kubectl built here: accepted with the same spelling and short form, or left out
    with a reason.
    """
    listed = subprocess.run([KUBECTL, "options"], capture_output=True, text=True, check=True).stdout
    theirs = {
        name: short
        for short, name in re.findall(r"^    (?:-(\w), )?--([a-z-]+)=", listed, re.MULTILINE)
    }
    ours = {}
    for flag in FLAGS.values():
        shorts = [each.lstrip("-") for each in flag.spellings if not each.startswith("--")]
        ours[flag.spellings[0].partition("/")[0].removeprefix("--")] = "".join(shorts)
    assert len(theirs) > 20, listed
    assert ours == {name: short for name, short in theirs.items() if name not in LEFT_OUT}
    assert set(LEFT_OUT) <= set(theirs)


def test_a_replayed_snapshot_says_what_the_conditions_say(
    plane: ControlPlane, daemon: Serving, editor: Path, tmp_path: Path
) -> None:
    """Reason and message of every waiting gang and pod are those that the daemon wrote; with other
    names, too.
    """
    taken = tmp_path / "s.gz"
    assert ask(plane.kubeconfig, "snapshot", "--out", str(taken)).code == 0
    names = ("--scheduler-name", "gangsched", "--scheduler-name", "scheduler-plugins-scheduler")
    replayed = json.loads(ask(editor, "replay", str(taken), *names, "-o", "json").out)["gangs"]
    told = {each["gang"]: each for each in replayed}
    assert told[f"{MINE}/training"]["message"] == message(plane, "training")
    api = Api.of(plane)
    waiting = [
        pod
        for pod in api.list(PODS).items
        if pod["metadata"]["name"] in {"training-0", "training-1", "alone"}
    ]
    api.close()
    assert len(waiting) == 3
    for pod in waiting:
        name = pod["metadata"]["name"]
        (said,) = [each for each in pod["status"]["conditions"] if each["type"] == "PodScheduled"]
        of = told[f"{MINE}/training" if name.startswith("training") else f"{THEIRS}/{name}"][
            "pods"
        ][name]
        assert of == {"reason": said["reason"], "message": said["message"]}
    hidden = tmp_path / "hidden.gz"
    assert ask(plane.kubeconfig, "snapshot", "--out", str(hidden), "--redact-names").code == 0
    content = gzip.decompress(hidden.read_bytes())
    assert [name for name in (b"training", b"team-a", b"alone") if name in content] == []
    again = json.loads(ask(editor, "replay", str(hidden), *names, "-o", "json").out)["gangs"]
    assert sorted(each["reason"] for each in again) == sorted(
        each["reason"] for each in told.values()
    )
    refused = ask(editor, "snapshot", "--out", str(taken))
    assert refused.code == 2
    assert "may not list " in refused.err


def manifest(path: Path, pods: int) -> str:
    """A file with a Job of so many pods of 4 GPUs; its name."""
    resources = {"limits": {"nvidia.com/gpu": 4}}
    template = {
        "spec": {
            "schedulerName": "gangsched",
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i", "resources": resources}],
        }
    }
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": f"of-{pods}"}}
    path.write_text(json.dumps({**body, "spec": {"parallelism": pods, "template": template}}))
    return str(path)


def test_plan_without_the_api_needs_rights(
    plane: ControlPlane, daemon: Serving, editor: Path, tmp_path: Path
) -> None:
    """For who may list nodes the plan is made here; who may not is told how to get the API, and so
    is `queue`.
    """
    no = ask(plane.kubeconfig, "plan", "-f", manifest(tmp_path / "large.json", 5))
    assert (no.code, no.out.partition(":")[0]) == (1, "No")
    assert "This plan was made here" in no.out
    refused = ask(editor, "plan", "-f", manifest(tmp_path / "small.json", 1))
    assert refused.code == 2
    assert "the gangs API is part of the default installation" in refused.err
    queue = ask(editor, "queue")
    assert (queue.code, queue.out.splitlines()[0]) == (0, f"1 gang waits in namespace {MINE}.")
    assert "Oldest first: the gangs API" in queue.out


def test_with_the_api_a_user_of_one_namespace_learns_more(
    plane: ControlPlane, gangs_api: None, editor: Path, tmp_path: Path
) -> None:
    """The gangs API is taken as soon as it is served, under `edit` in one namespace; kubectl finds
    the plugin.
    """
    told = run(editor, str(KUBECTL), "gangsched", "why", "training")
    assert (told.code, told.err) == (0, "")
    assert told.out.startswith(f"Gang {MINE}/training needs ")
    assert "This comes from" not in told.out
    assert "before it)" in told.out
    queue = ask(editor, "queue")
    assert (queue.code, queue.out.splitlines()[0]) == (0, f"1 gang waits in namespace {MINE}.")
    no = ask(editor, "plan", "-f", manifest(tmp_path / "large.json", 5), "-o", "json")
    told = json.loads(no.out)
    assert (no.code, told["instead"], told["gangs"][0]["fits"]) == (1, "", False)
    assert "needs 5 pods" in told["gangs"][0]["message"]
    everywhere = ask(editor, "queue", "-A")
    assert everywhere.code == 2
    assert (
        "may not list gangs in visibility.gangsched.dev in the whole cluster; ask for one namespace"
        in everywhere.err
    )
    theirs = ask(editor, "queue", "-n", THEIRS)
    assert (theirs.code, f"in namespace {THEIRS}" in theirs.err) == (2, True)


def has_gangs(role: Mapping[str, Any]) -> bool:
    """Whether the controller has put our rule into `edit`."""
    rules = role.get("rules") or ()
    return role["metadata"]["name"] == "edit" and any(
        "gangs" in (rule.get("resources") or ()) for rule in rules
    )


def test_the_live_page_follows_the_cluster(plane: ControlPlane, gangs_api: None) -> None:
    """As admin: map, queue and sentences are those of the commands, and a cordon is a change."""
    api = Api.of(plane)
    with opened(Session(None, plane.kubeconfig)) as page:
        page.enter()
        stream = Stream(page)
        moment = stream.moment
        told = json.loads(ask(plane.kubeconfig, "map", "-o", "json").out)["resources"]
        for printed in told["nvidia.com/gpu"]:
            (devices,) = moment.nodes[printed["node"]].devices
            assert (devices.free, devices.users) == (printed["free"], printed["users"])
        queue = json.loads(ask(plane.kubeconfig, "queue", "-A", "-o", "json").out)["gangs"]
        assert [key for key, _ in moment.queue] == [
            f"{gang['namespace']}/{gang['name']}" for gang in queue
        ]
        why = json.loads(ask(plane.kubeconfig, "why", "training", "-n", MINE, "-o", "json").out)
        assert moment.gangs[f"{MINE}/training"].sentence == why["sentence"]
        assert moment.order == "scheduler"
        assert moment.unknown == []
        api.patch("/api/v1/nodes/n1", {"spec": {"unschedulable": True}})
        stream.until(lambda stream: stream.moment.nodes["n1"].closed == "cordoned")
        api.patch("/api/v1/nodes/n1", {"spec": {"unschedulable": None}})
        stream.until(lambda stream: not stream.moment.nodes["n1"].closed)
        detail = page.ask(f"/api/gang?id={MINE}/running").value
        assert {member["state"] for member in detail["members"]} == {"bound"}
        stream.close()
    api.close()


def test_the_live_page_of_a_user_of_one_namespace(gangs_api: None, editor: Path) -> None:
    """No byte of other namespaces; what is missing is named with the right."""
    with opened(Session(None, editor)) as page:
        page.enter()
        answer = page.ask("/api/document")
        assert b"alone" not in answer.body
        assert THEIRS.encode() not in answer.body
        _, document = page.document()
        assert set(document.moment.gangs) == {f"{MINE}/running", f"{MINE}/training"}
        assert document.moment.nodes == {}
        assert document.user == f"system:serviceaccount:{MINE}:alice"
        missing = {unknown.what for unknown in document.moment.unknown if unknown.is_right}
        assert "map" in missing
        # What the user named is repeated with the API server's refusal, and nothing else.
        theirs = page.ask(f"/api/gang?id={THEIRS}/alone").value
        assert "members" not in theirs
        assert "events" not in theirs
        assert THEIRS in theirs["eventsFrom"]


def test_places_are_asked_for_through_the_aggregator(plane: ControlPlane, gangs_api: None) -> None:
    """The API server passes view, limit and offset on."""
    api = Api.of(plane)
    path = "/apis/visibility.gangsched.dev/v1alpha1/gangs?view=queue&limit=1&offset=0"
    answer = api.get(path)
    api.close()
    assert (answer["kind"], answer["total"]) == ("GangQueue", 1)
    assert [item["name"] for item in answer["items"]] == ["training"]
