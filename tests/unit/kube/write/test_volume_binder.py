"""Claims before pods: what is written to claims and volumes, and how that is answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from gangsched.kube.http.faults import ApiFault, Unreachable
from gangsched.kube.ports import Runtime
from gangsched.kube.read.storage import FINALIZER, SELECTED_NODE
from gangsched.kube.write.volume_binder import VolumeBinder
from gangsched.model.devices import DeviceAllocation, DeviceResult
from gangsched.model.inter_pod import Requirement
from gangsched.model.objects import NodeSelectorTerm
from gangsched.model.protocol import (
    Bind,
    BindClaims,
    BindFailed,
    ClaimsReleased,
    ClaimsWritten,
    Message,
    ReleaseClaims,
)
from gangsched.model.storage import Selection
from tests.unit.kube.fakes import Answer, FakeRequests, FakeTime, Sent, running, settle

CLAIM_PATH = "/api/v1/namespaces/ns/persistentvolumeclaims/c"
SELECTED = Selection(namespace="ns", name="c", uid="claim-1", resource_version="5", node="n0")
GIVEN = Selection(
    namespace="ns", name="c", uid="claim-1", resource_version="5", volume="v", volume_version="3"
)
ZONE_A = (NodeSelectorTerm(labels=(Requirement("zone", "In", ("a",)),)),)


class Stage:
    """A volume binder, what it passed on, and what it answered."""

    def __init__(self, requests: FakeRequests, runtime: Runtime = Runtime()) -> None:  # noqa: B008
        self.requests = requests
        self.passed: list[Bind] = []
        self.outcomes: list[Message] = []
        self.binder = VolumeBinder(requests, self, self.outcomes.append, runtime=runtime)

    def submit(self, binds: Any) -> None:
        """As the binder behind it takes them."""
        self.passed += binds

    async def write(self, *claims: Selection, free: tuple[str, ...] = ()) -> None:
        """Claims are to be written; everything that can happen now happens."""
        self.binder.submit([BindClaims("p", "ns", "p", "n0", claims, frozenset(free))])
        await settle()

    async def bind(self, *claims: Selection) -> None:
        """A bind comes in; everything that can happen now happens."""
        self.binder.submit([Bind("p", "ns", "p", "n0", claims)])
        await settle()


@asynccontextmanager
async def stage(answer: Any = None, *, time: FakeTime | None = None) -> AsyncIterator[Stage]:
    """A running volume binder; every write gets version 7 unless `answer` says otherwise."""
    requests = FakeRequests(answer or (lambda sent: {"metadata": {"resourceVersion": "7"}}))
    made = Stage(requests, Runtime() if time is None else time.runtime())
    async with running(made.binder.run()):
        yield made


async def test_binds_without_claims_go_straight_on() -> None:
    """Most pods have nothing to wait for."""
    async with stage() as made:
        await made.bind()
        assert [bind.uid for bind in made.passed] == ["p"]
        assert made.requests.sent == []


async def test_a_claim_is_selected_for_its_node() -> None:
    """The annotation asks for a volume on the node; the answer has the claim's new version, and
    nothing is bound.
    """
    async with stage() as made:
        await made.write(SELECTED)
        (sent,) = made.requests.sent
        assert (sent.method, sent.path, sent.content_type) == (
            "PATCH",
            CLAIM_PATH,
            "application/merge-patch+json",
        )
        assert sent.body == {
            "metadata": {
                "uid": "claim-1",
                "resourceVersion": "5",
                "annotations": {"volume.kubernetes.io/selected-node": "n0"},
            }
        }
        assert made.outcomes == [ClaimsWritten("p", {"ns/c": "7"})]
        assert made.passed == []


WITHDRAWN = {
    "metadata": {"uid": "claim-1", "resourceVersion": "5", "annotations": {SELECTED_NODE: None}}
}


async def test_a_request_is_withdrawn_while_it_is_ours() -> None:
    """The annotation goes; where the claim has a volume by now, or another node, it stays, and
    nobody is answered.
    """
    now: dict[str, Any] = {"name": "c", "namespace": "ns", "uid": "claim-1", "resourceVersion": "6"}

    def answer(sent: Sent) -> Answer:
        if sent.method == "GET":
            return {"metadata": now}
        if sent.body["metadata"]["resourceVersion"] == "5":
            return ApiFault(409, "Conflict", "the object has been modified")
        return {"metadata": {"resourceVersion": "7"}}

    for node, requests in (("n0", ["PATCH", "GET", "PATCH"]), ("n9", ["PATCH", "GET"])):
        now["annotations"] = {SELECTED_NODE: node}
        async with stage(answer) as made:
            made.binder.submit([ReleaseClaims("p", "ns", "p", "n0", (SELECTED,))])
            await settle()
            assert [sent.method for sent in made.requests.sent] == requests
            assert made.requests.sent[0].body == WITHDRAWN
            assert made.outcomes == []


async def test_a_request_that_cannot_be_withdrawn_stays() -> None:
    """The next plan goes by the claim as it is, so a fault ends neither the order's siblings nor
    the daemon.
    """
    async with stage(lambda sent: Unreachable("No answer.")) as made:
        made.binder.submit([ReleaseClaims("p", "ns", "p", "n0", (SELECTED, SELECTED))])
        await settle()
        assert [sent.method for sent in made.requests.sent] == ["PATCH", "PATCH"]
        assert made.outcomes == []


class SlowRequests:
    """Answers to claims when the test lets them; those of one pod are always refused
    as overloaded.
    """

    def __init__(self) -> None:
        self.most, self.paths = 0, list[str]()
        self.open = asyncio.Event()
        self._in_flight = 0

    async def request(
        self, method: str, path: str, body: bytes | None = None, **_: object
    ) -> bytes:
        """Answer."""
        self._in_flight += 1
        self.most = max(self.most, self._in_flight)
        self.paths.append(path)
        await self.open.wait()
        self._in_flight -= 1
        if "/busy" in path:
            raise ApiFault(503, "ServiceUnavailable", "try again")
        return msgspec.json.encode(
            {"metadata": {"namespace": "ns", "name": "c", "uid": "u", "resourceVersion": "8"}}
        )


async def test_thousands_of_pods_use_few_connections() -> None:
    """Claims are written in order, eight at a time; those that wait for another try keep no others
    from theirs.
    """
    time, requests, outcomes = FakeTime(), SlowRequests(), list[Message]()
    binder = VolumeBinder(
        requests, Stage(FakeRequests()), outcomes.append, connections=8, runtime=time.runtime()
    )
    busy = [
        ReleaseClaims(
            f"b{n}",
            "ns",
            f"b{n}",
            "n0",
            (Selection(namespace="ns", name="busy", uid="u", reserve=True),),
        )
        for n in range(16)
    ]
    pods = [
        BindClaims(f"p{n}", "ns", f"p{n}", "n0", (SELECTED,), frozenset()) for n in range(3_000)
    ]
    async with running(binder.run()):
        binder.submit([*busy, *pods])
        await settle()
        assert len(requests.paths) == 8
        requests.open.set()
        for _ in range(500):
            await time.advance(0.001)
        assert requests.most == 8
        assert [each.uid for each in outcomes if isinstance(each, ClaimsWritten)] == [
            each.uid for each in pods
        ]


async def test_a_volume_is_kept_for_its_claim() -> None:
    """A static volume gets the claim's reference and, if it was free, the mark by which the
    controller may undo it.
    """
    for free, marks in (
        (("v",), {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}}),
        ((), {}),
    ):
        async with stage() as made:
            await made.write(GIVEN, free=free)
            (sent,) = made.requests.sent
            assert sent.path == "/api/v1/persistentvolumes/v"
            assert sent.body["metadata"] == {"resourceVersion": "3", **marks}
            assert sent.body["spec"]["claimRef"] == {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": "ns",
                "name": "c",
                "uid": "claim-1",
                "resourceVersion": "5",
            }
            assert made.outcomes == [ClaimsWritten("p", {"v": "7"})]


async def test_an_answer_that_is_no_object_is_a_failed_bind() -> None:
    """A gateway's page with status 200 ends the order, not the daemon."""
    async with stage(lambda sent: ["page"]) as made:
        await made.write(SELECTED)
        assert [type(outcome) for outcome in made.outcomes] == [BindFailed]


async def test_a_conflict_that_changes_nothing_is_written_again() -> None:
    """Controllers touch new claims; what matters is that nobody else selected a node or
    bound it.
    """
    known = {"metadata": {"name": "c", "namespace": "ns", "uid": "claim-1", "resourceVersion": "6"}}

    def answer(sent: Sent) -> Answer:
        if sent.method == "GET":
            return known
        if sent.body["metadata"]["resourceVersion"] == "5":
            return ApiFault(409, "Conflict", "the object has been modified")
        return {"metadata": {"resourceVersion": "7"}}

    async with stage(answer) as made:
        await made.write(SELECTED)
        assert [sent.method for sent in made.requests.sent] == ["PATCH", "GET", "PATCH"]
        assert made.outcomes == [ClaimsWritten("p", {"ns/c": "7"})]
    known["metadata"] = {
        **known["metadata"],
        "annotations": {"volume.kubernetes.io/selected-node": "n9"},  # type: ignore[dict-item]
    }
    async with stage(answer) as made:
        await made.write(SELECTED)
        assert made.outcomes == [BindFailed("p", "n0", "binding volumes: claim ns/c has changed")]


async def test_a_write_that_fails_is_a_failed_bind() -> None:
    """Refused or lost, the next plan sees what became of it."""
    for fault in (ApiFault(403, "Forbidden", "no"), Unreachable("No answer.")):
        async with stage(lambda sent, fault=fault: fault) as made:
            await made.write(GIVEN)
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
    """One write adds the pod to those who may use the devices; then the bind goes on."""
    async with stage(lambda sent: allocated("a")) as made:
        await made.bind(DEVICE)
        (sent,) = made.requests.sent
        assert sent.path == "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/d/status"
        assert sent.content_type == "application/strategic-merge-patch+json"
        assert sent.body == {
            "metadata": {"uid": "device-1"},
            "status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "p"}]},
        }
        assert made.passed == [msgspec.structs.replace(made.passed[0], claims=())]
        assert [bind.uid for bind in made.passed] == ["p"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (allocated("b"), 'resourceclaim "d" has been allocated elsewhere'),
        (
            ApiFault(422, "Invalid", "may not be specified when `allocated` is not set"),
            "may not be specified",
        ),
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


class LateServer:
    """An API server that answers no write of devices, and carries out the first one at `late_s`."""

    def __init__(self, time: FakeTime, late_s: float) -> None:
        self.time = time
        self.lands_s = time.now() + late_s
        self.late: list[dict[str, Any]] = []
        self.status: dict[str, Any] = {}
        self.version = 7

    def answer(self, sent: Sent) -> Answer:
        """As `FakeRequests` asks for it."""
        self.land()
        status = {} if sent.method == "GET" else sent.body["status"]
        if status.get("allocation") is not None:
            self.late.append(status)
            return Unreachable("No answer.")

        if status and self.status:
            self.status, self.version = {}, self.version + 1

        metadata = {
            "name": "d",
            "namespace": "ns",
            "uid": "device-1",
            "finalizers": [FINALIZER],
            "resourceVersion": str(self.version),
        }
        return {"metadata": metadata, "status": self.status}

    def land(self) -> None:
        """What was sent first is carried out; the others find another version then."""
        if self.late and self.time.now() >= self.lands_s and self.version == 7:
            self.status, self.version = self.late[0], 8


async def test_devices_are_not_given_away_while_their_allocation_may_come_late() -> None:
    """B3 for claims: the API server lets two claims have one device."""
    time = FakeTime()
    server = LateServer(time, late_s=50.0)
    chosen = DeviceAllocation((DeviceResult("r", ("d", "n0", "g0")),))
    devices = Selection(
        namespace="ns",
        name="d",
        uid="device-1",
        resource_version="7",
        finalizers=(FINALIZER,),
        allocation=chosen,
        reserve=True,
    )

    async with stage(server.answer, time=time) as made:
        await made.write(devices)
        await time.advance(60.0)
        assert made.outcomes == []

        await time.advance(20.0)

    server.land()
    assert [type(outcome) for outcome in made.outcomes] == [ClaimsReleased, BindFailed]
    assert (server.status, server.version) == ({}, 9)


async def test_devices_whose_allocation_was_refused_are_given_away_at_once() -> None:
    """Nothing of it can come later."""
    time = FakeTime()
    refused = ApiFault(403, "Forbidden", "no")
    devices = msgspec.structs.replace(
        DEVICE, finalizers=(FINALIZER,), allocation=DeviceAllocation(())
    )

    async with stage(lambda sent: refused, time=time) as made:
        await made.write(devices)

    assert [type(outcome) for outcome in made.outcomes] == [BindFailed]
