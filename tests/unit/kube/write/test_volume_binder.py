"""Claims before pods: what is written to claims and volumes, what is waited for, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from gangsched.kube.http.faults import ApiFault, Unreachable
from gangsched.kube.write.volume_binder import VolumeBinder
from gangsched.model.inter_pod import Requirement
from gangsched.model.objects import Node, NodeSelectorTerm, Pod
from gangsched.model.protocol import Applied, Bind, BindFailed, BindGone, Gone, Message, Replaced
from gangsched.model.storage import Claim, ClaimRef, Selection, Volume
from tests.builders import pod
from tests.unit.kube.fakes import Answer, FakeRequests, FakeTime, Sent, settle

CLAIM_PATH = "/api/v1/namespaces/ns/persistentvolumeclaims/c"
CLAIM = Claim(namespace="ns", name="c", uid="claim-1", resource_version="5", storage_class="late")
DONE = msgspec.structs.replace(CLAIM, resource_version="9", volume_name="v", bound=True, selected_node="n0")
SELECTED = Selection(namespace="ns", name="c", uid="claim-1", resource_version="5", node="n0")
GIVEN = Selection(namespace="ns", name="c", uid="claim-1", resource_version="5", volume="v", volume_version="3")
VOLUME = Volume(name="v", resource_version="3", available=True)
ZONE_A = (NodeSelectorTerm(labels=(Requirement("zone", "In", ("a",)),)),)


class Stage:
    """A volume binder, what it passed on, and what it answered."""

    def __init__(self, requests: FakeRequests) -> None:
        self.requests = requests
        self.time = FakeTime()
        self.passed: list[Bind] = []
        self.outcomes: list[Message] = []
        self.binder = VolumeBinder(
            requests, self, self.outcomes.append, now=self.time.now, sleep=self.time.sleep, timeout_s=600.0
        )
        self.tell(Applied(Node(name="n0", labels={"zone": "b"})), Applied(CLAIM), Applied(VOLUME))

    def submit(self, binds: Any) -> None:
        """As the binder behind it takes them."""
        self.passed += binds

    def tell(self, *messages: Message) -> None:
        """What the reflectors say."""
        for message in messages:
            self.binder.take(message)

    async def bind(self, *claims: Selection, uid: str = "p") -> None:
        """A bind comes in; everything that can happen now happens."""
        self.binder.submit([Bind(uid, "ns", uid, "n0", claims)])
        await settle()


@asynccontextmanager
async def stage(answer: Any = None) -> AsyncIterator[Stage]:
    """A running volume binder; every write gets version 7 unless `answer` says otherwise."""
    made = Stage(FakeRequests(answer or (lambda sent: {"metadata": {"resourceVersion": "7"}})))
    task = asyncio.create_task(made.binder.run())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_binds_without_claims_go_straight_on() -> None:
    """Most pods have nothing to wait for."""
    async with stage() as made:
        await made.bind()
        assert [bind.uid for bind in made.passed] == ["p"]
        assert made.requests.sent == []


async def test_a_claim_is_selected_then_awaited_then_the_pod_is_bound() -> None:
    """The annotation asks for a volume on the node; the pod is bound once claim and volume are seen bound."""
    async with stage() as made:
        await made.bind(SELECTED)
        (sent,) = made.requests.sent
        assert (sent.method, sent.path, sent.content_type) == ("PATCH", CLAIM_PATH, "application/merge-patch+json")
        assert sent.body == {
            "metadata": {
                "uid": "claim-1",
                "resourceVersion": "5",
                "annotations": {"volume.kubernetes.io/selected-node": "n0"},
            }
        }
        assert (made.passed, made.outcomes, made.binder.pending) == ([], [], 1)
        made.tell(Applied(msgspec.structs.replace(DONE, volume_name="new")))
        await settle()
        assert made.passed == []
        made.tell(Applied(Volume(name="new", claim=ClaimRef("ns", "c", "claim-1"))))
        await settle()
        assert made.passed == [Bind("p", "ns", "p", "n0")]
        assert (made.outcomes, made.binder.pending) == ([], 0)


async def test_a_volume_is_kept_for_its_claim() -> None:
    """A static volume gets the claim's reference, and the mark by which the controller may undo it."""
    async with stage() as made:
        await made.bind(GIVEN)
        (sent,) = made.requests.sent
        assert sent.path == "/api/v1/persistentvolumes/v"
        assert sent.body["metadata"] == {
            "resourceVersion": "3",
            "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"},
        }
        assert sent.body["spec"]["claimRef"] == {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": "ns",
            "name": "c",
            "uid": "claim-1",
            "resourceVersion": "5",
        }
        made.tell(Applied(DONE))
        await settle()
        assert [bind.uid for bind in made.passed] == ["p"]


async def test_another_members_claim_is_only_awaited() -> None:
    """With neither node nor volume nothing is written; both pods go on when the claim is bound."""
    async with stage() as made:
        await made.bind(SELECTED, uid="p")
        await made.bind(msgspec.structs.replace(SELECTED, node=""), uid="q")
        assert len(made.requests.sent) == 1
        made.tell(Applied(DONE))
        await settle()
        assert {bind.uid for bind in made.passed} == {"p", "q"}


FAILURES: dict[str, tuple[list[Message], str]] = {
    "provisioner gave up": (
        [Applied(msgspec.structs.replace(CLAIM, resource_version="8"))],
        'provisioning failed for PVC "c"',
    ),
    "claim deleted": ([Gone(Claim, "ns/c")], 'persistentvolumeclaim "c" not found'),
    "claim recreated": (
        [Applied(msgspec.structs.replace(CLAIM, uid="claim-2"))],
        'persistentvolumeclaim "c" not found',
    ),
    "claim being deleted": (
        [Applied(msgspec.structs.replace(CLAIM, deleting=True, resource_version="8"))],
        'persistentvolumeclaim "c" is being deleted',
    ),
    "node gone": ([Gone(Node, "n0")], 'node "n0" is gone'),
    "volume elsewhere": (
        [Applied(msgspec.structs.replace(VOLUME, required=ZONE_A)), Applied(DONE)],
        'pv "v" node affinity doesn\'t match node "n0"',
    ),
}


@pytest.mark.parametrize("case", FAILURES)
async def test_what_cannot_come_is_answered_at_once(case: str) -> None:
    """The member is planned anew, with the reason kube-scheduler gives; it is not bound."""
    messages, reason = FAILURES[case]
    async with stage() as made:
        await made.bind(SELECTED)
        made.tell(*messages)
        await settle()
        assert made.outcomes == [BindFailed("p", "n0", f"binding volumes: {reason}")]
        assert (made.passed, made.binder.pending) == ([], 0)


async def test_a_claim_that_is_selected_already_is_not_written() -> None:
    """After a restart a gang finds its claims as it left them, and only waits."""
    async with stage() as made:
        made.tell(Applied(msgspec.structs.replace(CLAIM, selected_node="n0")))
        await made.bind(SELECTED)
        assert (made.requests.sent, made.binder.pending) == ([], 1)
        made.tell(Applied(VOLUME), Applied(DONE))
        await settle()
        assert [bind.uid for bind in made.passed] == ["p"]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Gone(Volume, "v"), 'pv "v" is gone'),
        (Applied(msgspec.structs.replace(VOLUME, resource_version="8")), 'ClaimRef got reset for pv "v"'),
    ],
)
async def test_a_given_volume_that_is_taken_away(message: Message, reason: str) -> None:
    """A volume that is deleted, or whose claim is taken off it, ends the wait at once."""
    async with stage() as made:
        await made.bind(GIVEN)
        made.tell(message)
        await settle()
        assert made.outcomes == [BindFailed("p", "n0", f"binding volumes: {reason}")]


async def test_news_from_before_our_write_is_no_failure() -> None:
    """A claim seen without our annotation, but older than our write, has not been refused."""
    async with stage() as made:
        await made.bind(SELECTED)
        made.tell(Applied(msgspec.structs.replace(CLAIM, resource_version="6", request_bytes=1)))
        await settle()
        assert (made.outcomes, made.binder.pending) == ([], 1)


async def test_patience_ends() -> None:
    """After the time that kube-scheduler gives it too, a claim that is still unbound fails its pod's bind."""
    async with stage() as made:
        await made.bind(SELECTED)
        await made.time.advance(599.0)
        assert made.outcomes == []
        await made.time.advance(2.0)
        (failed,) = made.outcomes
        assert isinstance(failed, BindFailed)
        assert failed.message == "binding volumes: claim ns/c was not bound within 600 s"


@pytest.mark.parametrize("message", [Gone(Pod, "p"), Replaced(Pod, ()), Applied(pod("p", uid="p", deleting=True))])
async def test_a_deleted_pod_waits_for_nothing(message: Message) -> None:
    """Its bind is gone at once, however long the provisioner takes and whichever way we learn of it."""
    async with stage() as made:
        await made.bind(SELECTED)
        made.tell(message)
        await settle()
        assert [type(outcome) for outcome in made.outcomes] == [BindGone]


async def test_a_conflict_that_changes_nothing_is_written_again() -> None:
    """Controllers touch new claims; what matters is that nobody else selected a node or bound it."""
    known = {"metadata": {"name": "c", "namespace": "ns", "uid": "claim-1", "resourceVersion": "6"}}

    def answer(sent: Sent) -> Answer:
        if sent.method == "GET":
            return known
        if sent.body["metadata"]["resourceVersion"] == "5":
            return ApiFault(409, "Conflict", "the object has been modified")
        return {"metadata": {"resourceVersion": "7"}}

    async with stage(answer) as made:
        await made.bind(SELECTED)
        assert [sent.method for sent in made.requests.sent] == ["PATCH", "GET", "PATCH"]
        assert made.outcomes == []
    known["metadata"] = {**known["metadata"], "annotations": {"volume.kubernetes.io/selected-node": "n9"}}  # type: ignore[dict-item]
    async with stage(answer) as made:
        await made.bind(SELECTED)
        assert made.outcomes == [BindFailed("p", "n0", "binding volumes: claim ns/c has changed")]


async def test_a_write_that_fails_is_a_failed_bind() -> None:
    """Refused or lost, the next plan sees what became of it."""
    for fault in (ApiFault(403, "Forbidden", "no"), Unreachable("No answer.")):
        async with stage(lambda sent, fault=fault: fault) as made:
            await made.bind(GIVEN)
            assert [type(outcome) for outcome in made.outcomes] == [BindFailed]


DEVICE = Selection(namespace="ns", name="d", uid="device-1", reserve=True, required=ZONE_A)


def allocated(zone: str) -> dict[str, Any]:
    """A ResourceClaim as the API server answers with it."""
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
    return {
        "metadata": {"name": "d", "namespace": "ns", "uid": "device-1"},
        "status": {"allocation": {"nodeSelector": {"nodeSelectorTerms": [term]}}},
    }


async def test_a_pod_is_entered_in_its_resource_claim_before_it_is_bound() -> None:
    """One write adds the pod to those who may use the devices; volumes come first, as they may fail."""

    def answer(sent: Sent) -> Answer:
        return allocated("a") if "resourceclaims" in sent.path else {"metadata": {"resourceVersion": "7"}}

    async with stage(answer) as made:
        await made.bind(DEVICE, SELECTED)
        assert [sent.path for sent in made.requests.sent] == [CLAIM_PATH]
        made.tell(Applied(VOLUME), Applied(DONE))
        await settle()
        sent = made.requests.sent[1]
        assert sent.path == "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/d/status"
        assert sent.content_type == "application/strategic-merge-patch+json"
        assert sent.body == {
            "metadata": {"uid": "device-1"},
            "status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "p"}]},
        }
        assert made.passed == [Bind("p", "ns", "p", "n0")]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (allocated("b"), 'resourceclaim "d" has been allocated elsewhere'),
        (ApiFault(422, "Invalid", "may not be specified when `allocated` is not set"), "may not be specified"),
    ],
)
async def test_a_resource_claim_that_was_given_to_others(answer: Answer, reason: str) -> None:
    """Devices that went, or went elsewhere, since the decision keep the pod from being bound."""
    async with stage(lambda sent: answer) as made:
        await made.bind(DEVICE)
        (failed,) = made.outcomes
        assert isinstance(failed, BindFailed)
        assert reason in failed.message
        assert made.passed == []
