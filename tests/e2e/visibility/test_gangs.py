"""Users ask for gangs: kubectl, RBAC, and who is not the front proxy."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import pytest
from control_plane import objects as make
from control_plane.api import Api, ApiError

from tests.e2e.visibility.conftest import GANGS, Served, ask, proxied, stranger

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def api(served: Served) -> Iterator[Api]:
    """The administrator, who has made two namespaces with a gang each; alice may edit the first."""
    api = Api.of(served.plane)
    make.create_all(api, [make.node("n0", gpus=4)])
    for namespace in ("team-a", "team-b"):
        api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    alice = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}
    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/team-a/rolebindings"
    api.post(path, {"metadata": {"name": "alice"}, "roleRef": role, "subjects": [alice]})
    make.create_all(api, make.gang("training", members=3, gpus=2, namespace="team-a"))
    make.create_all(api, make.gang("other", members=2, gpus=4, namespace="team-b"))
    await_reason(api, "team-a", "training")
    await_reason(api, "team-b", "other")
    yield api
    api.close()


def await_reason(api: Api, namespace: str, name: str) -> None:
    """Wait until a gang has been decided about."""
    deadline_s = time.monotonic() + 30.0
    while True:
        listed = api.list(f"{GANGS}/namespaces/{namespace}/gangs").items
        if any(
            each["metadata"]["name"] == name and each["status"]["reason"] == "Unschedulable"
            for each in listed
        ):
            return
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def test_a_user_with_the_role_edit_sees_the_gangs_of_the_namespace(
    served: Served, api: Api
) -> None:
    """Table, YAML and explanation by kubectl; a gang that lacks two GPUs says so."""
    kubectl = served.kubectl("alice")
    lines = kubectl.out("get", "gangs", "-n", "team-a").splitlines()
    assert lines[0].split() == ["NAME", "MIN", "BOUND", "PENDING", "POSITION", "REASON", "AGE"]
    assert lines[1].split()[:4] == ["training", "3", "0", "3"]
    assert lines[1].split()[5] == "Unschedulable"
    wide = kubectl.out("get", "gangs", "-n", "team-a", "-o", "wide")
    assert "nodes are available" in wide, wide
    gang = json.loads(kubectl.out("get", "gang", "training", "-n", "team-a", "-o", "json"))
    assert gang["spec"]["declaredBy"] == "PodGroup scheduling.x-k8s.io/v1alpha1"
    assert gang["status"]["lacks"] == {
        "resource": "nvidia.com/gpu",
        "amount": "2",
        "freeOnOneNode": "4",
        "largestHole": "4",
    }
    assert "kind: Gang" in kubectl.out("get", "gang", "training", "-n", "team-a", "-o", "yaml")
    explained = kubectl.out("explain", "gangs.status.lacks")
    assert "GROUP:      visibility.gangsched.dev" in explained, explained
    assert "freeOnOneNode" in explained
    assert gang["status"]["facts"]["needs"]["pods"] == 3
    assert "freeOnOneNode" in kubectl.out("explain", "gangs.status.facts.scarcest")


def test_the_gangs_of_another_namespace_are_refused(served: Served, api: Api) -> None:
    """Also all namespaces at once, and whether there is a gang of a name is not told."""
    kubectl = served.kubectl("alice")
    for words in (("-n", "team-b"), ("-A",), ("other", "-n", "team-b"), ("nosuch", "-n", "team-b")):
        done = kubectl.run("get", "gangs", *words)
        assert done.returncode == 1
        assert "Error from server (Forbidden): gangs.visibility.gangsched.dev" in done.stderr
    assert "team-b" in served.kubectl().out("get", "gangs", "-A")
    missing = kubectl.run("get", "gangs", "nosuch", "-n", "team-a")
    assert (
        missing.stderr.strip()
        == 'Error from server (NotFound): gangs.visibility.gangsched.dev "nosuch" not found'
    )


def test_who_is_not_the_front_proxy_is_nobody(served: Served, api: Api) -> None:
    """Forged headers count for nothing without the certificate, and a certificate of another
    authority ends it.
    """
    forged = {"X-Remote-User": "alice", "X-Remote-Group": "system:masters"}
    for path in (f"{GANGS}/gangs", GANGS, "/apis", "/openapi/v3", "/nonsense"):
        status, body = ask(served, stranger(), path, forged)
        assert (status, body["reason"], body["code"]) == (401, "Unauthorized", 401), path
    admin = stranger()
    admin.load_cert_chain(served.plane.pki.admin_cert, served.plane.pki.admin_key)
    with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
        ask(served, admin, f"{GANGS}/gangs", forged)


def test_the_front_proxy_is_believed(served: Served, api: Api) -> None:
    """With its certificate the headers name the user, whose rights count."""
    status, body = proxied(served, f"{GANGS}/namespaces/team-a/gangs", {"X-Remote-User": "alice"})
    assert (status, [each["metadata"]["name"] for each in body["items"]]) == (200, ["training"])
    assert proxied(served, f"{GANGS}/gangs", {"X-Remote-User": "alice"})[0] == 403
    assert proxied(served, f"{GANGS}/gangs", {})[0] == 401
    deleted = proxied(
        served, f"{GANGS}/namespaces/team-a/gangs/training", {"X-Remote-User": "alice"}, "DELETE"
    )
    assert deleted[0] == 403


def test_pages_are_whole(served: Served, api: Api) -> None:
    """limit and continue give every gang once."""
    first = api.get(f"{GANGS}/gangs?limit=1")
    token = first["metadata"]["continue"]
    second = api.get(f"{GANGS}/gangs?limit=1&continue={token}")
    names = [each["metadata"]["name"] for each in (*first["items"], *second["items"])]
    assert names == ["training", "other"]
    assert "continue" not in second["metadata"]
    with pytest.raises(ApiError, match="continue key is not valid"):
        api.get(f"{GANGS}/gangs?limit=1&continue=nonsense")


def test_a_watch_shows_what_changes(served: Served, api: Api) -> None:
    """From a list on: a new gang, its change, and its end."""
    version = api.get(f"{GANGS}/namespaces/team-a/gangs")["metadata"]["resourceVersion"]
    watch = api.watch(
        f"{GANGS}/namespaces/team-a/gangs", version, fieldSelector="metadata.name=short"
    )
    bodies = make.create_all(api, make.gang("short", members=1, gpus=1, namespace="team-a"))
    seen = []
    for kind, gang in watch:
        assert gang["metadata"]["name"] == "short", gang
        seen.append(kind)
        if gang["status"]["members"]["byState"].get("bound") and bodies:
            for body in reversed(bodies):
                api.delete(f"{api.path_of(body)}/{body['metadata']['name']}")
            bodies = []
        if kind == "DELETED":
            watch.close()
            break
    assert seen[0] == "ADDED"
    assert seen[-1] == "DELETED"


def test_a_user_has_some_of_the_watches(served: Served, api: Api) -> None:
    """Ten; the next is refused, and another user's is not."""
    context, path = served.plane.ssl_context(), f"{GANGS}/namespaces/team-a/gangs?watch=1"

    def watch(user: dict[str, str]) -> int:
        address = urlsplit(served.plane.url)
        connection = http.client.HTTPSConnection(
            str(address.hostname), address.port, context=context, timeout=10
        )
        open_ones.callback(connection.close)
        connection.request("GET", path, headers=user)
        return connection.getresponse().status

    with ExitStack() as open_ones:
        alice = {"Impersonate-User": "alice", "Impersonate-Group": "system:authenticated"}
        assert [watch(alice) for _ in range(11)] == [200] * 10 + [429]
        assert watch({}) == 200
        deadline_s = time.monotonic() + 10.0
        open_ones.close()
        while (status := watch(alice)) == 429:  # until the API server has ended those
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
        assert status == 200


def test_refused_binds_are_told_as_refused(served: Served, api: Api) -> None:
    """With the right to bind revoked neither history nor log says that a gang started; given back,
    both do.
    """
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gangsched"
    rules = api.get(role)["rules"]
    api.patch(role, {"rules": [rule for rule in rules if "pods/binding" not in rule["resources"]]})
    make.create_all(api, make.gang("small", members=2, gpus=1, namespace="team-a"))
    found = await_history(api, "BindRefused")
    assert "Started" not in found
    assert "forbidden" in found["BindRefused"]["message"]
    lines = [line for line in served.daemon.log_lines() if line.get("gang") == "team-a/small"]
    assert {line["event"] for line in lines} == {"BindRefused"}
    api.patch(role, {"rules": rules})
    started = await_history(api, "Started")["Started"]
    assert (started["times"], started["message"]) == (1, "2 pods are bound together")
    assert started["uid"]
    path = f"{GANGS}/namespaces/team-a/gangs/small/history"
    assert "BindRefused" in served.kubectl("alice").out("get", "--raw", path)
    refused = served.kubectl("alice").run("get", "--raw", path.replace("team-a", "team-b"))
    assert "Forbidden" in refused.stderr


def await_history(api: Api, what: str) -> dict[str, Any]:
    """Wait until the history of gang small has such an entry; its entries by what they
    are about.
    """
    deadline_s = time.monotonic() + 30.0
    while True:
        try:
            entries = api.get(f"{GANGS}/namespaces/team-a/gangs/small/history")["entries"]
        except ApiError:
            entries = []
        found = {entry["what"]: entry for entry in entries}
        if what in found:
            return found
        assert time.monotonic() < deadline_s, entries
        time.sleep(0.05)
