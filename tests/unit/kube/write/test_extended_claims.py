"""Claims for extended resources beside lost answers, errors, other writers and kills: none is made
twice or left.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from gangsched.kube.http.faults import ApiFault, Fault, Unreachable
from gangsched.kube.ports import Runtime
from gangsched.kube.read.storage import FINALIZER
from gangsched.kube.write.device_claims import ClaimWriteRefused, DeviceClaimWriter
from gangsched.kube.write.extended_claims import ExtendedClaimWriter
from gangsched.model.devices import DeviceAllocation, DeviceRequest, DeviceResult, MadeClaim
from gangsched.model.storage import Selection
from tests.unit.kube.fakes import FakeTime

MADE = MadeClaim(
    (DeviceRequest(name="r", class_name="gpu", count=2),), (("main", "example.com/x", "r"),)
)
RESULTS = tuple(DeviceResult("r", ("d", "n0", name)) for name in ("g0", "g1"))


def selection(*, uid: str = "", version: str = "") -> Selection:
    """The decision about the claim of pod `p`, whose uid is `u`."""
    allocation = DeviceAllocation(RESULTS)
    return Selection(
        namespace="ns",
        name="p-extended-resources-u",
        uid=uid,
        resource_version=version,
        reserve=True,
        allocation=allocation,
        makes=MADE,
    )


class FakeApi:
    """An API server with one pod and the claims of one name; with `rng` some answers are lost and
    some are errors.
    """

    def __init__(self, rng: Random | None = None) -> None:
        self.rng = rng
        self.trouble_left = 6
        self.claim: dict[str, Any] | None = None
        self.pod: dict[str, Any] = {}
        self.version = 1
        self.created = 0
        self.sent: list[str] = []
        self.denied: frozenset[str] = frozenset()

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = "",
        timeout_s: float = 0.0,
    ) -> bytes:
        """As `RestClient` has it."""
        self.sent.append(method)
        assert (content_type == "") == (body is None) or method == "POST"
        fate = "ok"
        if self.rng is not None and self.trouble_left and self.rng.random() < 0.5:
            self.trouble_left -= 1
            fate = self.rng.choice(["lost before", "lost after", "500", "touched"])
        if fate in {"lost before", "500"}:
            raise (
                Unreachable("reset")
                if fate == "lost before"
                else ApiFault(500, "InternalError", "etcd")
            )
        if method in self.denied:
            raise ApiFault(403, "Forbidden", "no")
        if fate == "touched" and self.claim is not None:
            self._bump()
        answer = self._carry_out(method, path, json.loads(body) if body else None)
        if fate == "lost after":
            raise Unreachable("timed out")
        return json.dumps(answer).encode()

    def _bump(self) -> None:
        self.version += 1
        assert self.claim is not None
        self.claim["metadata"]["resourceVersion"] = str(self.version)

    def _carry_out(self, method: str, path: str, body: Any) -> object:
        if "/pods/" in path:
            assert body["metadata"] == {"uid": "u"}
            self.pod |= body["status"]
            return {}
        if method == "POST":
            if self.claim is not None:
                raise ApiFault(409, "AlreadyExists", "exists")
            self.created += 1
            self.claim = {
                **body,
                "metadata": {**body["metadata"], "uid": f"claim-{self.created}"},
                "status": {},
            }
            self._bump()
            return self.claim
        if self.claim is None:
            raise ApiFault(404, "NotFound", "gone")
        meta = self.claim["metadata"]
        if method == "PATCH" and isinstance(body, list):
            tests = {
                each["path"].rpartition("/")[2]: each["value"]
                for each in body
                if each["op"] == "test"
            }
            if any(meta[name] != value for name, value in tests.items()):
                raise (
                    ApiFault(422, "Invalid", "testing value failed")
                    if False
                    else ApiFault(409, "Conflict", "changed")
                )
            meta["finalizers"] = body[-1]["value"]
        elif method == "PATCH":
            if body["metadata"].get("resourceVersion") != meta["resourceVersion"]:
                raise ApiFault(409, "Conflict", "the object has been modified")
            merged = {**self.claim["status"], **body["status"]}
            self.claim["status"] = {
                name: value for name, value in merged.items() if value is not None
            }
        elif method == "DELETE":
            if body["preconditions"] != {
                "uid": meta["uid"],
                "resourceVersion": meta["resourceVersion"],
            }:
                raise ApiFault(409, "Conflict", "precondition")
            assert not meta.get("finalizers"), "it would stay for ever"
            assert "allocation" not in self.claim["status"], (
                "its devices would be free while they are in use"
            )
            self.claim = None
            return {}
        if method != "GET":
            self._bump()
        return self.claim


def writers(api: FakeApi) -> tuple[DeviceClaimWriter, ExtendedClaimWriter]:
    """Writers whose pauses take no time."""

    async def no_time(seconds: float) -> None:
        return None

    time = FakeTime()
    runtime = Runtime(now=time.now, wall=time.wall, sleep=no_time, rng=Random(1))
    claims = DeviceClaimWriter(api, runtime)
    return claims, ExtendedClaimWriter(api, claims, runtime)


async def start(api: FakeApi) -> str:
    """Create, allocate and tell the pod, as before its bind; the version of the claim."""
    claims, extended = writers(api)
    created = await extended.create(selection(), uid="u", name="p")
    version = await claims.allocate(created, uid="u", name="p")
    await extended.tell(created, uid="u", name="p")
    return version


async def test_what_is_written() -> None:
    """The claim as kube-scheduler makes it, with the finalizer; then its devices; then the pod's
    status.
    """
    api = FakeApi()
    version = await start(api)
    assert api.sent == ["POST", "PATCH", "PATCH"]
    assert api.claim is not None
    meta = api.claim["metadata"]
    assert meta["annotations"] == {"resource.kubernetes.io/extended-resource-claim": "true"}
    assert meta["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    ]
    assert (meta["finalizers"], meta["resourceVersion"]) == ([FINALIZER], version)
    (request,) = api.claim["spec"]["devices"]["requests"]
    assert request == {
        "name": "r",
        "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2},
    }
    assert [each["device"] for each in api.claim["status"]["allocation"]["devices"]["results"]] == [
        "g0",
        "g1",
    ]
    assert api.pod["extendedResourceClaimStatus"] == {
        "resourceClaimName": "p-extended-resources-u",
        "requestMappings": [
            {"containerName": "main", "resourceName": "example.com/x", "requestName": "r"}
        ],
    }


@pytest.mark.parametrize("block", range(4))
async def test_lost_answers_make_no_second_claim_and_leave_none(block: int) -> None:
    """A18: whatever is lost, a start ends with one claim that has its devices, or is undone without
    a trace.
    """
    started = deleted = 0
    for seed in range(block * 250, block * 250 + 250):
        api = FakeApi(Random(seed))
        try:
            await start(api)
        except (ClaimWriteRefused, Fault):
            pass
        else:
            started += 1
            assert api.claim is not None
            assert api.claim["status"]["reservedFor"][0]["uid"] == "u", seed
            assert api.pod, seed
        assert api.created <= 1, seed
        api.trouble_left = 6
        is_there = api.claim is not None
        version = await writers(api)[1].delete(selection(), "u")
        assert api.claim is None, seed
        assert not is_there or int(version) > api.version, seed
        deleted += 1
    assert started > 150
    assert deleted == 250


async def test_what_was_made_before_is_used() -> None:
    """After a kill the claim is there: it is not created again, and one that asks for something
    else is refused.
    """
    api = FakeApi()
    await start(api)
    _, extended = writers(api)
    found = await extended.create(selection(), uid="u", name="p")
    assert (found.uid, api.created) == ("claim-1", 1)
    assert api.claim is not None
    api.claim["spec"]["devices"]["requests"][0]["exactly"]["count"] = 3
    with pytest.raises(ClaimWriteRefused, match="was created by another client"):
        await extended.create(selection(), uid="u", name="p")


async def test_what_is_not_the_pods_is_neither_used_nor_deleted() -> None:
    """A tenant's claim of this name, one that another pod uses, and one that others keep from
    ending.
    """
    api = FakeApi()
    await start(api)
    _, extended = writers(api)
    assert api.claim is not None
    with pytest.raises(ClaimWriteRefused, match="was created by another client"):
        await extended.create(selection(), uid="other", name="p")
    await extended.delete(selection(), "other")
    assert api.claim is not None
    api.claim["status"]["reservedFor"].append({"resource": "pods", "name": "q", "uid": "q"})
    await extended.delete(selection(), "u")
    assert api.claim["status"]["allocation"]
    api.claim["status"] = {}
    api.claim["metadata"] |= {
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["tenant.example/keep"],
    }
    await extended.delete(selection(), "u")
    assert api.claim["metadata"]["finalizers"] == ["tenant.example/keep"]
    with pytest.raises(ClaimWriteRefused, match="is being deleted"):
        await extended.create(selection(), uid="u", name="p")


async def test_without_the_right_to_delete() -> None:
    """The claim stays, and nothing is tried again and again."""
    api = FakeApi()
    await start(api)
    api.denied, api.sent = frozenset({"PATCH"}), []
    await writers(api)[1].delete(selection(), "u")
    assert api.sent == ["GET", "PATCH"] * 4
    assert api.claim is not None
    assert api.claim["status"]["allocation"]
