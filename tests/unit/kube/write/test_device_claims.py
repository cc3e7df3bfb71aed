"""Writes to ResourceClaims beside lost answers, errors and other writers: what is answered is what
is stored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from msgspec import structs

from gangsched.kube.http.faults import ApiFault, Fault, Unreachable
from gangsched.kube.ports import Runtime
from gangsched.kube.read.storage import FINALIZER
from gangsched.kube.write.device_claims import ClaimWriteRefused, DeviceClaimWriter, may_be_done
from gangsched.model.devices import DeviceAllocation, DeviceResult
from gangsched.model.inter_pod import Requirement
from gangsched.model.objects import NodeSelectorTerm
from gangsched.model.storage import GroupConsumer, Selection
from kubernetes_cel.amounts import NANOS, parse_nanos
from tests.unit.kube.fakes import FakeTime

PATH = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c"
RESULT = DeviceResult("r", ("d", "n0", "g0"))
SHARE = DeviceResult("r", ("d", "n0", "g0"), share="s", amounts=(("m", 3 * NANOS // 2),))


def selection(
    *results: DeviceResult, version: str = "1", consumer: GroupConsumer | None = None, **fields: Any
) -> Selection:
    """These devices are to be written to the claim."""
    chosen = Selection(
        namespace="ns", name="c", uid="u", resource_version=version, reserve=True, consumer=consumer
    )
    return structs.replace(chosen, allocation=DeviceAllocation(results, **fields))


class FakeClaim:
    """An API server with one claim; `trouble` says what becomes of a request, `rival` is another
    writer's status.
    """

    def __init__(self, rng: Random | None = None, spec: Mapping[str, Any] | None = None) -> None:
        self.rng = rng
        self.trouble_left = 6
        self.meta: dict[str, Any] = {
            "name": "c",
            "namespace": "ns",
            "uid": "u",
            "resourceVersion": "1",
        }
        self.spec = dict(
            spec
            or {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
        )
        self.status: dict[str, Any] = {}
        self.sent: list[str] = []

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
        fate = self._fate()
        if fate in {"lost before", "500"}:
            raise (
                Unreachable("reset")
                if fate == "lost before"
                else ApiFault(500, "InternalError", "etcd")
            )
        if fate == "touched":  # by a controller
            self._bump()
        elif fate == "rival" and "allocation" not in self.status:
            self.status = {
                "allocation": {"devices": {"results": [_wire("g9")]}},
                "reservedFor": [{"uid": "x"}],
            }
            self._bump()
        answer = self._carry_out(method, path, json.loads(body) if body else None)
        if fate == "lost after":
            raise Unreachable("timed out")
        return answer

    def _fate(self) -> str:
        if self.rng is None or not self.trouble_left or self.rng.random() < 0.4:
            return "ok"
        self.trouble_left -= 1
        return self.rng.choice(
            ["lost before", "lost after", "500", "touched", "rival", "lost after"]
        )

    def _bump(self) -> None:
        self.meta["resourceVersion"] = str(int(self.meta["resourceVersion"]) + 1)

    def _carry_out(self, method: str, path: str, body: Any) -> bytes:
        if method == "PATCH" and isinstance(body, list):
            tests = {
                each["path"].rpartition("/")[2]: each["value"]
                for each in body
                if each["op"] == "test"
            }
            if any(self.meta[name] != value for name, value in tests.items()):
                raise ApiFault(422, "Invalid", "testing value failed")
            self.meta["finalizers"] = body[-1]["value"]
            self._bump()
        elif method == "PATCH":
            if (
                body["metadata"].get("resourceVersion", self.meta["resourceVersion"])
                != self.meta["resourceVersion"]
            ):
                raise ApiFault(409, "Conflict", "the object has been modified")
            merged = {**self.status, **body["status"]}
            status = {name: value for name, value in merged.items() if value is not None}
            if status != self.status:
                self.status = status
                self._bump()
        return json.dumps(
            {"metadata": self.meta, "spec": self.spec, "status": self.status}
        ).encode()

    @property
    def is_ours(self) -> bool:
        """Whether the claim has our device."""
        results = self.status.get("allocation", {}).get("devices", {}).get("results", ())
        return [each["device"] for each in results] == ["g0"]


def _wire(device: str) -> dict[str, str]:
    return {"request": "r", "driver": "d", "pool": "n0", "device": device}


def writer(api: FakeClaim, time: FakeTime) -> DeviceClaimWriter:
    """A writer whose pauses take no time."""

    async def no_time(seconds: float) -> None:
        return None

    runtime = Runtime(now=time.now, wall=time.wall, sleep=no_time, rng=Random(1))
    return DeviceClaimWriter(api, runtime)


async def test_what_is_written() -> None:
    """The finalizer first, by a patch that changes nothing else; then devices, consumer, node and
    time at once.
    """
    spec = {
        "devices": {
            "requests": [{"name": "r", "exactly": {"tolerations": [{"key": "k"}]}}],
            "config": [
                {"requests": ["other"], "opaque": {}},
                {"opaque": {"parameters": {"b": 1, "a": 2}}},
            ],
        }
    }
    api = FakeClaim(spec=spec)
    api.meta["finalizers"] = ["other"]
    chosen = selection(SHARE, configs=((("r",), '{"opaque":{"driver":"d"}}'),), reads=True)
    zone, name = Requirement("zone", "In", ("a", "b")), Requirement("metadata.name", "In", ("n0",))
    required = (NodeSelectorTerm((zone, Requirement("gpu", "Exists")), (name,)),)
    chosen = structs.replace(chosen, finalizers=("other",), required=required)
    version = await writer(api, FakeTime()).allocate(chosen, uid="p", name="pod")
    assert api.sent == ["PATCH", "PATCH"]
    assert (api.meta["finalizers"], version) == (["other", FINALIZER], "3")
    allocation = api.status["allocation"]
    (result,) = allocation["devices"]["results"]
    assert result == {
        **_wire("g0"),
        "shareID": "s",
        "consumedCapacity": {"m": "1500m"},
        "tolerations": [{"key": "k"}],
    }
    assert [each["source"] for each in allocation["devices"]["config"]] == [
        "FromClass",
        "FromClaim",
    ]
    (term,) = allocation["nodeSelector"]["nodeSelectorTerms"]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]
    zoned = {"key": "zone", "operator": "In", "values": ["a", "b"]}
    assert term["matchExpressions"] == [zoned, {"key": "gpu", "operator": "Exists"}]
    assert allocation["allocationTimestamp"] == "2026-01-01T00:00:00Z"
    assert api.status["reservedFor"] == [{"resource": "pods", "name": "pod", "uid": "p"}]
    assert parse_nanos(result["consumedCapacity"]["m"]) == SHARE.amounts[0][1]


async def test_a_podgroup_is_the_consumer_of_its_claim() -> None:
    """In the API's words, and whether the claim is allocated for it or it is added."""
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "gu"}
    chosen = selection(RESULT, consumer=GroupConsumer("g", "gu"))
    for call in ("allocate", "reserve"):
        api = FakeClaim()
        await getattr(writer(api, FakeTime()), call)(chosen, uid="p", name="pod")
        assert api.status["reservedFor"] == [group]


@pytest.mark.parametrize("consumer", [None, GroupConsumer("g", "gu")], ids=["pod", "group"])
@pytest.mark.parametrize("block", range(4))
async def test_what_is_answered_is_what_is_stored(
    block: int, consumer: GroupConsumer | None
) -> None:
    """A18: allocated at the version that is answered, or not by us; and once it is released, not by
    us either.
    """
    allocated = released = 0
    for seed in range(block * 500, block * 500 + 500):
        api = FakeClaim(Random(seed))
        made = writer(api, FakeTime())
        is_open = False
        try:
            version = await made.allocate(selection(RESULT, consumer=consumer), uid="p", name="pod")
        except (ClaimWriteRefused, Fault) as refusal:
            version = ""
            is_open = isinstance(refusal, Fault) and may_be_done(refusal)
        if version:
            assert api.is_ours, seed
            assert version == api.meta["resourceVersion"], seed
            allocated += 1
        elif not is_open:
            assert not api.is_ours, seed
            continue
        version = version or "1"  # what is open is released, as the binder does
        seen = await made.release(selection(RESULT, version=version, consumer=consumer), "p")
        assert not api.is_ours, seed
        assert int(seen) <= int(api.meta["resourceVersion"]), seed  # the watch will show it
        released += 1
    assert min(allocated, released) > 100


async def test_another_pods_claim_is_not_released() -> None:
    """It may have been freed and allocated again meanwhile, also to the same device."""
    api = FakeClaim()
    api.meta["resourceVersion"] = "9"
    api.status = {
        "allocation": {"devices": {"results": [_wire("g0")]}},
        "reservedFor": [{"uid": "x"}],
    }
    before = dict(api.status)
    assert await writer(api, FakeTime()).release(selection(RESULT, version="5"), "p") == "9"
    assert api.status == before
