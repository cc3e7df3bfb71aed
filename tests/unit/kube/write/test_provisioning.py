"""ProvisioningRequests and their PodTemplates as the API server gets them (semantics E10)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from gangsched.kube.http.faults import ApiFault, Unreachable
from gangsched.kube.write.provisioning import ProvisioningWriter
from gangsched.model.protocol import (
    Message,
    NodesRequested,
    ObjectRef,
    ProvisioningOrder,
    RequestNodes,
    WithdrawNodes,
)
from gangsched.model.provisioning import RequestedPods
from tests.unit.kube.fakes import Answer, FakeRequests, FakeTime, Sent

OWNER = ObjectRef("scheduling.x-k8s.io/v1alpha1", "PodGroup", "ns", "g", "uid-g")
ORDER = RequestNodes(
    namespace="ns",
    name="gangsched-g-1",
    class_name="queued",
    requested_by="gangsched",
    owner=OWNER,
    pod_sets=(RequestedPods("u0", "g-0", 3), RequestedPods("u1", "g-3", 1)),
)
HERE = "/apis/autoscaling.x-k8s.io/v1beta1/namespaces/ns/provisioningrequests"
TEMPLATES = "/api/v1/namespaces/ns/podtemplates"
SPEC = {"nodeName": "n0", "schedulerName": "gangsched", "containers": [{"name": "main"}]}


def withdrawal(**fields: Any) -> WithdrawNodes:
    """To delete what `ORDER` creates."""
    known = {"namespace": "ns", "name": ORDER.name, "uid": "", "owner_uid": OWNER.uid}
    return WithdrawNodes(**{**known, "requested_by": "gangsched", "templates": (), **fields})


class Site:
    """An API server with two pods; `answers` replaces what it says to a request."""

    def __init__(self, **answers: Answer) -> None:
        self.answers = answers
        self.stored: dict[str, Any] = {}

    def answer(self, sent: Sent) -> Answer:
        kind = "template" if "podtemplates" in sent.path else "request"
        if (answer := self.answers.pop(f"{sent.method}_{kind}", None)) is not None:
            return answer
        if "/pods/" in sent.path:
            number = {"g-0": "0", "g-3": "1"}[sent.path.rpartition("/")[2]]
            return {"metadata": {"uid": f"u{number}", "labels": {"app": "g"}}, "spec": SPEC}
        if sent.method == "POST":
            name = sent.body["metadata"]["name"]
            if name in self.stored:
                return ApiFault(409, "AlreadyExists", "exists")
            self.stored[name] = sent.body
            self.stored[name]["metadata"]["uid"] = f"uid-of-{name}"
        name = sent.path.rpartition("/")[2]
        if sent.method == "GET":
            stored: Answer = self.stored.get(name, ApiFault(404, "NotFound", "gone"))
            return stored
        if sent.method == "DELETE":
            self.stored.pop(name, None)
        return {}


async def played(
    *orders: ProvisioningOrder,
    site: Site | None = None,
    seconds: float = 60,
) -> tuple[list[Message], FakeRequests]:
    """What the writer says and sends."""
    clock = FakeTime()
    client = FakeRequests((site or Site()).answer)
    said: list[Message] = []
    writer = ProvisioningWriter(
        client,
        said.append,
        version=lambda: "v1beta1",
        runtime=clock.runtime(),
    )
    running = asyncio.create_task(writer.run())
    for order in orders:
        writer.order(order)

    await clock.advance(seconds)
    running.cancel()
    return said, client


async def test_templates_come_before_the_request() -> None:
    """E10: each is the spec of its oldest pod, without a node; all belong to the gang."""
    said, client = await played(ORDER)
    assert said == [NodesRequested("ns/gangsched-g-1")]

    *templates, request = client.of("POST")
    assert [sent.path for sent in templates] == [TEMPLATES, TEMPLATES]
    body = templates[0].body
    assert body["metadata"]["name"] == "gangsched-g-1-0"
    assert body["template"]["metadata"] == {"labels": {"app": "g"}}
    assert body["template"]["spec"].keys() == {"schedulerName", "containers"}

    assert request.path == HERE
    assert request.body["apiVersion"] == "autoscaling.x-k8s.io/v1beta1"
    assert request.body["metadata"]["labels"] == {"gangsched.dev/requested-by": "gangsched"}
    assert request.body["metadata"]["ownerReferences"][0]["uid"] == "uid-g"
    assert request.body["spec"] == {
        "provisioningClassName": "queued",
        "podSets": [
            {"podTemplateRef": {"name": "gangsched-g-1-0"}, "count": 3},
            {"podTemplateRef": {"name": "gangsched-g-1-1"}, "count": 1},
        ],
    }


async def test_a_namespace_with_many_orders_delays_no_other() -> None:
    """E10: they are carried out in turn; those of one namespace stay in their order."""
    many = [
        msgspec.structs.replace(ORDER, namespace="busy", name=f"gangsched-b-{number}")
        for number in range(4)
    ]
    said, _ = await played(*many, ORDER)
    keys = [answer.key for answer in said if isinstance(answer, NodesRequested)]
    busy = [f"busy/gangsched-b-{number}" for number in range(4)]
    assert keys == [busy[0], "ns/gangsched-g-1", *busy[1:]]


async def test_a_deletion_that_is_never_answered_delays_nobody_and_is_kept() -> None:
    """E10: one request that the API server cannot delete holds up no other namespace."""
    stuck = withdrawal(uid="uid-r")
    other = withdrawal(namespace="other", name="gangsched-h-1", uid="uid-s")

    class Broken(Site):
        def answer(self, sent: Sent) -> Answer:
            if sent.path == f"{HERE}/gangsched-g-1":
                return ApiFault(500, "InternalError", "etcd")
            return super().answer(sent)

    _, client = await played(stuck, other, site=Broken(), seconds=600)
    deleted = [sent.path.rpartition("/")[2] for sent in client.of("DELETE")]
    assert deleted.count("gangsched-h-1") == 1
    assert "gangsched-g-1" in deleted[deleted.index("gangsched-h-1") :]


async def test_a_lost_answer_makes_no_second_request() -> None:
    """E10: the name is fixed, and what exists of this owner is as good."""
    site = Site()
    await played(ORDER, site=site)
    site.answers["POST_template"] = Unreachable("reset")
    said, _ = await played(ORDER, site=site)
    assert said == [NodesRequested("ns/gangsched-g-1")]
    assert sorted(site.stored) == ["gangsched-g-1", "gangsched-g-1-0", "gangsched-g-1-1"]


async def test_a_request_of_another_owner_is_told() -> None:
    """E10: it is neither used nor touched."""
    site = Site()
    await played(ORDER, site=site)
    site.stored["gangsched-g-1"]["metadata"]["ownerReferences"][0]["uid"] = "other"
    said, client = await played(ORDER, site=site)
    error = "ProvisioningRequest gangsched-g-1 exists already and belongs to another client"
    assert said == [NodesRequested("ns/gangsched-g-1", error)]
    deleted = {sent.path.rpartition("/")[2] for sent in client.of("DELETE")}
    assert deleted == {"gangsched-g-1-0", "gangsched-g-1-1"}, "its own templates"


@pytest.mark.parametrize(
    "strange",
    [
        {"ownerReferences": [{"uid": "other"}]},
        {"ownerReferences": []},
        {"labels": {"gangsched.dev/requested-by": "another"}},
        {"labels": {}},
    ],
)
async def test_a_template_of_another_owner_is_told(strange: dict[str, Any]) -> None:
    """E10: an autoscaler would simulate somebody else's pods."""
    site = Site()
    await played(ORDER, site=site)
    del site.stored["gangsched-g-1"]
    site.stored["gangsched-g-1-1"]["metadata"].update(strange)
    said, client = await played(ORDER, site=site)
    error = "PodTemplate gangsched-g-1-1 exists already and belongs to another client"
    assert said == [NodesRequested("ns/gangsched-g-1", error)]
    assert [sent.path for sent in client.of("DELETE")] == [f"{TEMPLATES}/gangsched-g-1-0"]
    assert "gangsched-g-1" not in site.stored


async def test_a_request_that_is_refused_is_told() -> None:
    """E10: by a quota, a policy, or a missing right."""
    denied = ApiFault(403, "Forbidden", "exceeded quota")
    site = Site(POST_request=denied)
    said, client = await played(ORDER, site=site)
    assert said == [NodesRequested("ns/gangsched-g-1", "exceeded quota")]
    deleted = [sent.path for sent in client.of("DELETE")]
    assert deleted == [f"{TEMPLATES}/gangsched-g-1-0", f"{TEMPLATES}/gangsched-g-1-1"]


async def test_templates_stay_while_it_is_not_certain_that_no_request_names_them() -> None:
    """E10: the request may have been made although the API server did not say so."""

    class Away(Site):
        def answer(self, sent: Sent) -> Answer:
            if sent.method == "POST" and sent.path == HERE:
                return ApiFault(500, "InternalError", "etcd")
            return super().answer(sent)

    said, client = await played(ORDER, site=Away(), seconds=300)
    assert said == [NodesRequested("ns/gangsched-g-1", "etcd")]
    assert client.of("DELETE") == []


async def test_what_is_withdrawn_is_deleted_until_that_is_certain() -> None:
    """E10: the request with its uid, and its own templates only."""
    site = Site()
    await played(ORDER, site=site)
    site.stored["gangsched-g-1-1"]["metadata"]["ownerReferences"][0]["uid"] = "other"
    site.answers["DELETE_request"] = Unreachable("reset")
    site.answers["GET_template"] = ApiFault(503, "ServiceUnavailable", "later")

    templates = ("gangsched-g-1-0", "gangsched-g-1-1", "gangsched-g-1-2", "somebody-elses")
    _, client = await played(withdrawal(uid="u", templates=templates), site=site)
    deleted = client.of("DELETE")
    assert [sent.path for sent in deleted] == [
        f"{HERE}/gangsched-g-1",
        f"{HERE}/gangsched-g-1",
        f"{HERE}/gangsched-g-1",
        f"{TEMPLATES}/gangsched-g-1-0",
    ]
    assert deleted[0].body["preconditions"] == {"uid": "u"}
    assert deleted[-1].body["preconditions"] == {"uid": "uid-of-gangsched-g-1-0"}


async def test_templates_of_a_request_that_is_gone_are_deleted_alone() -> None:
    """E10: somebody has deleted the request, or it was never made."""
    site = Site()
    await played(ORDER, site=site)
    _, client = await played(withdrawal(templates=("gangsched-g-1-0",)), site=site)
    assert [sent.path for sent in client.of("DELETE")] == [f"{TEMPLATES}/gangsched-g-1-0"]


async def test_a_namespace_does_not_wait_for_answers_to_orders_of_another() -> None:
    """E10: an API server that cannot store what one asks for is asked again for seconds."""

    class Full(Site):
        def answer(self, sent: Sent) -> Answer:
            if sent.method == "POST" and sent.path == TEMPLATES:
                return ApiFault(500, "InternalError", "etcdserver: request is too large")
            return super().answer(sent)

    other = msgspec.structs.replace(ORDER, namespace="other")
    said, _ = await played(ORDER, ORDER, other, site=Full(), seconds=0.5)
    assert said == [NodesRequested("other/gangsched-g-1")]
