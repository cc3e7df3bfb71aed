"""ProvisioningRequests and their PodTemplates as the API server gets them (semantics E10)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

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
        if sent.method == "GET":
            stored: dict[str, Any] = self.stored[sent.path.rpartition("/")[2]]
            return stored
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
    stuck = WithdrawNodes("ns", "gangsched-g-1", "uid-r", ())
    other = WithdrawNodes("other", "gangsched-h-1", "uid-s", ())

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
    error = "it exists already and belongs to another client"
    assert said == [NodesRequested("ns/gangsched-g-1", error)]
    assert client.of("DELETE") == []


async def test_a_request_that_is_refused_is_told() -> None:
    """E10: by a quota, a policy, or a missing right."""
    denied = ApiFault(403, "Forbidden", "exceeded quota")
    said, _ = await played(ORDER, site=Site(POST_request=denied))
    assert said == [NodesRequested("ns/gangsched-g-1", "exceeded quota")]


async def test_what_is_withdrawn_is_deleted_until_that_is_certain() -> None:
    """E10: the request with its uid, and its own templates only."""
    order = WithdrawNodes("ns", "gangsched-g-1", "u", ("gangsched-g-1-0", "somebody-elses"))
    site = Site(DELETE_request=Unreachable("reset"))
    _, client = await played(order, site=site)
    deleted = client.of("DELETE")
    assert [sent.path for sent in deleted] == [
        f"{HERE}/gangsched-g-1",
        f"{HERE}/gangsched-g-1",
        f"{TEMPLATES}/gangsched-g-1-0",
    ]
    assert deleted[0].body["preconditions"] == {"uid": "u"}
