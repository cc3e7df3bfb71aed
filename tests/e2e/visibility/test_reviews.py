"""PlacementReviews on a real API server: yes means that the gang is bound when it is applied, no
that it is not.

`make placement-reviews N=200 SEED=1` runs the long form.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import time
from collections.abc import Iterator

import pytest
from control_plane import objects as make
from control_plane.api import Api, ApiError, Object

from tests.e2e.conftest import delete_all
from tests.e2e.visibility.conftest import GANGS, Served, proxied

pytestmark = pytest.mark.e2e

CASES = int(os.environ.get("REVIEW_CASES", "25"))
SEED = int(os.environ.get("REVIEW_SEED", "1"))
REVIEWS = f"{GANGS}/namespaces/default/placementreviews"
PODS, POD_GROUPS = "/api/v1/pods", "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"
WITHIN_S = 30.0


@pytest.fixture(scope="module")
def api(served: Served) -> Iterator[Api]:
    """The administrator; four nodes, one of them tainted."""
    api = Api.of(served.plane)
    for number, gpus in enumerate((8, 8, 4, 8)):
        taints = [{"key": "team", "value": "x", "effect": "NoSchedule"}] if number == 3 else []
        body = make.node(f"n{number}", gpus=gpus)
        body["spec"] = {**body.get("spec", {}), "taints": taints}
        api.post("/api/v1/nodes", body)
    yield api
    api.close()


def review(bodies: list[Object], minimum: int, **gang: object) -> Object:
    """The review of a gang that `control_plane.objects.gang` makes."""
    spec = {key: value for key, value in bodies[1]["spec"].items() if key != "nodeName"}
    template = {"metadata": {"labels": bodies[1]["metadata"].get("labels", {})}, "spec": spec}
    sets = [{"name": "worker", "count": len(bodies) - 1, "template": template}]
    return {
        "apiVersion": "visibility.gangsched.dev/v1alpha1",
        "kind": "PlacementReview",
        "spec": {"gang": {"name": "new", "min": minimum, **gang}, "podSets": sets},
    }


def bound(api: Api, gang: str) -> int:
    """How many members have a node."""
    pods = api.list(
        "/api/v1/namespaces/default/pods", labelSelector=f"scheduling.x-k8s.io/pod-group={gang}"
    ).items
    return sum(bool(pod["spec"].get("nodeName")) for pod in pods)


def await_decision(api: Api, gang: str, minimum: int) -> bool:
    """Whether the gang was bound; waits until it is, or was refused."""
    deadline_s = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline_s:
        if bound(api, gang) >= minimum:
            return True
        listed = api.list(f"{GANGS}/namespaces/default/gangs").items
        told = [each["status"] for each in listed if each["metadata"]["name"] == gang]
        if told and told[0]["reason"] in {"Unschedulable", "Holding"}:
            # members above the minimum may be refused while others are bound
            states = told[0]["members"]["byState"]
            if states.get("binding", 0) + states.get("bound", 0) < minimum:
                return False
        time.sleep(0.05)
    raise AssertionError(f"nothing became of {gang}: {told}")


def test_yes_means_bound_and_no_means_not(served: Served, api: Api) -> None:
    """Generated gangs beside generated work, each asked about and then applied."""
    rng = random.Random(SEED)
    answers = {True: 0, False: 0}
    for number in range(CASES):
        for other in range(rng.randint(0, 3)):
            name = f"work-{number}-{other}"
            size = rng.randint(1, 3)
            make.create_all(api, make.gang(name, members=size, gpus=rng.choice((1, 2, 4))))
            await_decision(api, name, size)
        size = rng.randint(1, 5)
        minimum = rng.randint(1, size)
        bodies = make.gang(
            f"new-{number}", members=size, min_member=minimum, gpus=rng.choice((1, 2, 4, 8))
        )
        status = api.post(REVIEWS, review(bodies, minimum))["status"]
        make.create_all(api, bodies)
        is_bound = await_decision(api, f"new-{number}", minimum)
        assert is_bound is status["fits"], f"seed {SEED}, case {number}: {status}"
        answers[is_bound] += 1
        delete_all(api, PODS, POD_GROUPS)
    assert min(answers.values()) >= CASES // 10, (
        f"seed {SEED}: too few of one kind to mean anything: {answers}"
    )


def anti_affinity(namespace: str) -> Object:
    """Keeps off every pod of a namespace."""
    term = {"topologyKey": "kubernetes.io/hostname", "namespaces": [namespace], "labelSelector": {}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_nothing_is_written_and_a_user_learns_no_node(served: Served, api: Api) -> None:
    """alice may ask in her namespace, and gets kinds of nodes; the administrator gets names."""
    api.post("/api/v1/namespaces", {"metadata": {"name": "team-r"}})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    carol = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "carol"}
    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/team-r/rolebindings"
    api.post(path, {"metadata": {"name": "carol"}, "roleRef": role, "subjects": [carol]})
    asked = review(make.gang("new", members=2, gpus=8), 2)
    text = json.dumps(asked)
    kubectl = served.kubectl("carol")
    told = json.loads(
        kubectl.out(
            "create", "-f", "-", "-o", "json", "-n", "team-r", "--validate=false", text=text
        )
    )
    assert told["status"]["fits"] is True
    assert told["status"]["nodes"] == [{"kind": "8× nvidia.com/gpu", "count": 2}]
    assert "assignments" not in told["status"]
    assert {each["node"] for each in api.post(REVIEWS, asked)["status"]["assignments"]} == {
        "n0",
        "n1",
    }
    large = review(make.gang("new", members=3, gpus=8), 3)
    assert api.post(REVIEWS, large)["status"]["suggestions"] == [
        "a toleration of team=x:NoSchedule would let it start now",
        "a minimum of 2 instead of 3 would start now",
    ]
    dave, view = {**carol, "name": "dave"}, {**role, "name": "view"}
    api.post(path, {"metadata": {"name": "dave"}, "roleRef": view, "subjects": [dave]})
    viewer = served.kubectl("dave").run(
        "create", "-f", "-", "-n", "team-r", "--validate=false", text=text
    )
    assert "(Forbidden)" in viewer.stderr
    assert served.kubectl("dave").run("get", "gangs", "-n", "team-r").returncode == 0
    affine = make.gang("new", members=2, gpus=8, spec={"affinity": anti_affinity("default")})
    hidden = kubectl.run(
        "create", "-f", "-", "-n", "team-r", "--validate=false", text=json.dumps(review(affine, 2))
    )
    assert 'cannot list resource "pods" in API group "" in the namespace "default"' in hidden.stderr
    tainted = json.dumps(review(make.gang("new", members=3, gpus=8), 3))
    answer = kubectl.out(
        "create", "-f", "-", "-o", "json", "-n", "team-r", "--validate=false", text=tainted
    )
    assert (
        "a toleration of team:NoSchedule would let it start now"
        in json.loads(answer)["status"]["suggestions"]
    )
    above = json.dumps(review(make.gang("new", members=2, gpus=8), 2, priority=1))
    told_too_high = kubectl.run("create", "-f", "-", "-n", "team-r", "--validate=false", text=above)
    assert (
        "it is above 0, the highest that may be used in the namespace team-r"
        in told_too_high.stderr
    )
    refused = kubectl.run("create", "-f", "-", "-n", "default", "--validate=false", text=text)
    assert "(Forbidden)" in refused.stderr
    assert api.list(PODS).items == []
    assert api.list(POD_GROUPS).items == []
    assert "placementreviews" in kubectl.out(
        "api-resources", "--api-group=visibility.gangsched.dev"
    )
    assert "podSets" in kubectl.out("explain", "placementreviews.spec")


def test_bad_and_large_requests_are_refused(served: Served, api: Api) -> None:
    """Verbs that there are not, bodies that are too large or no JSON, 14,000 selectors."""
    with pytest.raises(ApiError) as refused:
        api.get(REVIEWS)
    assert refused.value.status == 405
    with pytest.raises(ApiError) as refused:
        api.post(REVIEWS, {"kind": "Pod", "apiVersion": "v1"})
    assert refused.value.status == 400
    many = review(make.gang("new", members=1), 1)
    many["spec"]["podSets"][0]["template"]["spec"]["nodeSelector"] = {
        f"k{n}": "x" for n in range(14_000)
    }
    with pytest.raises(ApiError) as refused:
        api.post(REVIEWS, many)
    assert refused.value.status == 422
    for nonsense in (
        [5],
        [{"name": "c", "resources": {"limits": {"cpu": "1"}, "requests": [1]}}],
        {"a": 1},
        "x",
    ):
        odd = review(make.gang("new", members=1), 1)
        odd["spec"]["podSets"][0]["template"]["spec"]["containers"] = nonsense
        with pytest.raises(ApiError) as refused:
            api.post(REVIEWS, odd)
        assert refused.value.status == 422, nonsense
    headers = {
        "X-Remote-User": "admin",
        "X-Remote-Group": "system:masters",
        "Content-Type": "application/json",
    }
    deep = (
        b'{"spec": {"podSets": [{"template": {"spec": ' + b'{"a": [' * 600 + b"]}" * 600 + b"}}]}}"
    )
    assert proxied(served, REVIEWS, headers, "POST", deep)[0] == 400
    for encoded in ("POST", "GET"):
        assert (
            proxied(served, REVIEWS, headers | {"Content-Encoding": "gzip"}, encoded, b"{}")[0]
            == 415
        )
    try:
        status = proxied(served, REVIEWS, headers, "POST", b'{"kind": "' + b"x" * 10_000_000)[0]
    except (ConnectionError, http.client.HTTPException):
        status = 413  # it was answered, and the rest of the body is not read
    assert status == 413
    status, body = proxied(
        served, REVIEWS, headers | {"Content-Type": "text/yaml"}, "POST", b"kind: x"
    )
    assert (status, body["reason"]) == (415, "UnsupportedMediaType")
    assert api.get(f"{GANGS}/gangs")["kind"] == "GangList"
