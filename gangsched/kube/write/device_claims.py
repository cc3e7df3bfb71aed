"""Writes to ResourceClaims: devices are allocated, and no device is allocated twice.

Invariant: an allocation names the version of the claim on which it was decided, so that at most one
of several attempts succeeds. After an uncertain answer the claim is read until the result is
certain or the tries are used up: then the caller waits, before it releases the claim, until none of
them can be carried out any more. A claim that another client changed is not deallocated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gangsched.api.keys import NATIVE
from gangsched.kube.http.backoff import Backoff
from gangsched.kube.http.client import JSON, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from gangsched.kube.http.faults import CONFLICT, SERVER_ERROR, ApiFault, Fault, Fenced
from gangsched.kube.ports import WRITE_TIMEOUT_S, RestClient, Runtime
from gangsched.kube.read.storage import FINALIZER, decode_resource_claim
from gangsched.kube.read.storage_wire import WireResourceClaim
from gangsched.kube.write.spelling import rfc3339
from gangsched.model.devices import DeviceAllocation, DeviceResult
from gangsched.model.objects import NodeSelectorTerm
from gangsched.model.resources import format_nanos
from gangsched.model.storage import ResourceClaim, Selection

TRIES: Final = 3
"""How often a claim is written that others change meanwhile."""
FREED: Final = {"allocation": None, "reservedFor": None, "devices": None}
"""The status of a claim that has no devices and no consumers, as a merge patch."""
decoder = msgspec.json.Decoder(WireResourceClaim)


class ClaimWriteRefused(Exception):  # noqa: N818  (a refusal is no error of ours)
    """A claim cannot be written as decided; `str()` is the reason."""


class DeviceClaimWriter:
    """Allocates, reserves and deallocates one claim at a time; each method raises Fault unless it
    says otherwise.
    """

    def __init__(self, client: RestClient, runtime: Runtime) -> None:
        self._client = client
        self._runtime = runtime

    async def allocate(self, selection: Selection, *, uid: str, name: str) -> str:
        """Write the chosen devices, and the pod or its PodGroup as their consumer, to a claim;
        return its new version.

        Raises ClaimWriteRefused if the claim was recreated or allocated by another client.
        """
        assert selection.allocation is not None
        # The finalizer first: without it controller-manager would never deallocate the claim.
        version, spec = await self._prepared(selection)
        status = {
            "allocation": self._allocation(selection.allocation, selection.required, spec),
            "reservedFor": [_consumer(selection, uid=uid, name=name)],
        }
        backoff = Backoff(0.1, 2.0, rng=self._runtime.rng)

        # The answer of a write may be lost: a claim that has our devices was written by the attempt
        # before.
        for tries_left in range(TRIES, -1, -1):
            body = {
                "metadata": {"uid": selection.uid, "resourceVersion": version},
                "status": status,
            }
            try:
                return (await self._patch(selection, body, MERGE_PATCH, "status")).resource_version
            except Fault as fault:
                await self.before_another_try(fault, tries_left, backoff)

            claim = await self.read(selection, backoff)
            if claim.uid != selection.uid or claim.deleting:
                raise ClaimWriteRefused(f'resourceclaim "{selection.name}" not found')
            if is_written(claim, selection, uid):
                return claim.resource_version
            if claim.allocated:
                # Not a fault: the next plan sees the devices of the other allocation.
                raise ClaimWriteRefused(
                    f'resourceclaim "{selection.name}" has been allocated by another scheduler'
                )

            version = claim.resource_version

        raise AssertionError("unreachable")

    async def before_another_try(self, fault: Fault, tries_left: int, backoff: Backoff) -> None:
        """Wait until a write may be tried again; return at once after a conflict. Raises the fault
        if another try cannot help.
        """
        if (
            isinstance(fault, Fenced)
            or not (may_be_done(fault) or is_conflict(fault))
            or not tries_left
        ):
            raise fault

        await self._runtime.sleep(0.0 if is_conflict(fault) else backoff.next_s(fault))

    async def release(self, selection: Selection, uid: str) -> str:
        """Deallocate a claim that was allocated for this pod only; return the version that must be
        seen before its next use.

        Repeats until the result is certain. Raises only Fenced.
        """
        version = selection.resource_version
        backoff = Backoff(0.1, 5.0, rng=self._runtime.rng)
        tries = 0

        while True:
            body = {"metadata": {"uid": selection.uid, "resourceVersion": version}, "status": FREED}
            try:
                return (await self._patch(selection, body, MERGE_PATCH, "status")).resource_version
            except Fenced:
                raise
            except Fault as fault:
                if not may_be_done(fault) and not is_conflict(fault):
                    return version  # it stays as it is, or is gone
                if is_conflict(fault) and (selection.allocation is None or tries >= TRIES):
                    # The claim keeps changing. A version that it does not have yet keeps plans away
                    # until the watch shows a newer one.
                    return next_version(version)

                tries += is_conflict(fault)
                await self._runtime.sleep(0.0 if is_conflict(fault) else backoff.next_s(fault))

            claim = await self.read(selection, backoff, is_certain=True)
            if selection.allocation is not None and not is_written(claim, selection, uid):
                return claim.resource_version
            if (
                claim.uid != selection.uid
                or not claim.allocated
                # Another pod consumes the claim by now, so it must stay allocated.
                or not {_uid(selection, uid)}.issuperset(claim.reserved)
            ):
                return claim.resource_version

            version = claim.resource_version

    async def reserve(self, selection: Selection, *, uid: str, name: str) -> None:
        """Add the pod, or its PodGroup, to the consumers of an allocated claim, as its kubelet
        requires.

        The API server adds to the existing consumers, and refuses if the claim was recreated or is
        no longer allocated. Raises ClaimWriteRefused if it has been allocated elsewhere.
        """
        # A strategic merge by uid: the API server adds to the list, so that concurrent pods do not
        # overwrite each other.
        consumers = [_consumer(selection, uid=uid, name=name)]
        body = {"metadata": {"uid": selection.uid}, "status": {"reservedFor": consumers}}
        if (
            await self._patch(selection, body, STRATEGIC_PATCH, "status")
        ).required != selection.required:
            raise ClaimWriteRefused(
                f'resourceclaim "{selection.name}" has been allocated elsewhere'
            )

    async def _prepared(self, selection: Selection) -> tuple[str, Mapping[str, Any]]:
        """The version and, where it is needed, the spec of a claim, which has the
        finalizer then.
        """
        assert selection.allocation is not None
        if FINALIZER not in selection.finalizers:  # a status write would drop it silently
            body = [
                {"op": "test", "path": "/metadata/uid", "value": selection.uid},
                {
                    "op": "test",
                    "path": "/metadata/resourceVersion",
                    "value": selection.resource_version,
                },
                {
                    "op": "add",
                    "path": "/metadata/finalizers",
                    "value": [*selection.finalizers, FINALIZER],
                },
            ]
            # Other kinds of patches sort the keys of opaque configs, which the API server takes for
            # a change of them.
            answer = await self.request(selection, "PATCH", body, JSON_PATCH)
        elif selection.allocation.reads:
            answer = await self.request(selection, "GET")
        else:
            return selection.resource_version, {}

        wire = decoder.decode(answer)
        return wire.metadata.resource_version, wire.spec

    def _allocation(
        self,
        chosen: DeviceAllocation,
        required: tuple[NodeSelectorTerm, ...] | None,
        spec: Mapping[str, Any],
    ) -> dict[str, Any]:
        devices = spec.get("devices") or {}
        tolerations = _tolerations(devices)
        configs = [
            {"source": "FromClass", "requests": [*requests], **msgspec.json.decode(config)}
            for requests, config in chosen.configs
        ]

        # Configs may name a request, or with a slash one of its alternatives.
        had = {result.request for result in chosen.results} | {
            result.request.partition("/")[0] for result in chosen.results
        }
        own = []

        for config_body in devices.get("config") or ():
            if not config_body.get("requests") or had & {*config_body["requests"]}:
                own.append(config_body)

        configs += [{"source": "FromClaim", **config} for config in own]
        allocation: dict[str, Any] = {
            "devices": {
                "results": [_result(result, tolerations) for result in chosen.results],
                "config": configs,
            },
            "allocationTimestamp": rfc3339(self._runtime.wall()),
        }

        if required is not None:
            allocation["nodeSelector"] = {"nodeSelectorTerms": list(map(_term, required))}

        return allocation

    async def read(
        self,
        selection: Selection,
        backoff: Backoff,
        *,
        is_certain: bool = False,
    ) -> ResourceClaim:
        """Read the claim; the result has no uid if the claim is gone or may not be read. Raises
        Fault; with `is_certain`, only Fenced.
        """
        for tries_left in range(TRIES, -1, -1):
            try:
                return decode_resource_claim(decoder.decode(await self.request(selection, "GET")))
            except Fenced:
                raise
            except Fault as fault:
                if isinstance(fault, ApiFault) and fault.is_status and not may_be_done(fault):
                    # A claim without uid differs from every selection, so callers treat it as gone.
                    return ResourceClaim(namespace=selection.namespace, name=selection.name)
                if not tries_left and not is_certain:
                    raise

                await self._runtime.sleep(backoff.next_s(fault))

        return await self.read(selection, backoff, is_certain=is_certain)

    async def _patch(
        self,
        selection: Selection,
        body: object,
        content_type: str,
        subresource: str,
    ) -> ResourceClaim:
        answer = await self.request(selection, "PATCH", body, content_type, subresource)
        return decode_resource_claim(decoder.decode(answer))

    async def request(
        self,
        selection: Selection,
        verb: str,
        body: object = None,
        content_type: str = JSON,
        subresource: str = "",
    ) -> bytes:
        """Send a request about the claim. Raises Fault."""
        path = f"/apis/resource.k8s.io/v1/namespaces/{selection.namespace}"
        path += f"/resourceclaims/{selection.name}"
        path += f"/{subresource}" if subresource else ""

        if body is None:
            return await self._client.request(verb, path, timeout_s=WRITE_TIMEOUT_S)

        return await self._client.request(
            verb,
            path,
            msgspec.json.encode(body),
            content_type=content_type,
            timeout_s=WRITE_TIMEOUT_S,
        )


def is_written(claim: ResourceClaim, selection: Selection, uid: str) -> bool:
    """Whether the claim has the devices that were chosen for this pod or its PodGroup."""
    assert selection.allocation is not None
    results = claim.asks.results if claim.asks is not None else None
    if results is None or _uid(selection, uid) not in claim.reserved:
        return False

    return list(map(_device, results)) == list(map(_device, selection.allocation.results))


def _uid(selection: Selection, uid: str) -> str:
    """The uid of the claim's consumer: that of the PodGroup if the claim is reserved for one, else
    the pod's.
    """
    if selection.consumer is None:
        return uid

    return selection.consumer.uid


def _consumer(selection: Selection, *, uid: str, name: str) -> dict[str, str]:
    """The claim's consumer as the API has it."""
    if selection.consumer is None:
        return {"resource": "pods", "name": name, "uid": uid}

    group = selection.consumer
    return {"apiGroup": NATIVE, "resource": "podgroups", "name": group.name, "uid": group.uid}


def _device(result: DeviceResult) -> tuple[object, ...]:
    return (result.request, result.id, result.share)


def may_be_done(fault: Fault) -> bool:
    """Whether the result of the request is uncertain, or the request may be sent again."""
    return (
        not isinstance(fault, ApiFault)
        or not fault.is_status
        or fault.status >= SERVER_ERROR
        or fault.status == 429
    )


def is_conflict(fault: Fault) -> bool:
    """Whether the object differs from what the request expects, or exists already."""
    return isinstance(fault, ApiFault) and fault.status == CONFLICT


def next_version(version: str) -> str:
    """The lowest version that a claim can have after a change to this version."""
    # resourceVersions are comparable numbers (KEP-5504); whatever the version will be, it is at
    # least this.
    return str(int(version) + 1) if version.isdigit() else version


def _tolerations(devices: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The tolerations of requests and alternatives by full name, as stated."""
    by_request = {}
    for request in devices.get("requests") or ():
        by_request[request["name"]] = (request.get("exactly") or {}).get("tolerations") or []
        for sub in request.get("firstAvailable") or ():
            by_request[f"{request['name']}/{sub['name']}"] = sub.get("tolerations") or []

    return by_request


def _term(term: NodeSelectorTerm) -> dict[str, Any]:
    """A node selector term as the API has it."""
    body = {}
    for name, requirements in (("matchExpressions", term.labels), ("matchFields", term.fields)):
        if requirements:
            body[name] = [
                {
                    "key": requirement.key,
                    "operator": requirement.operator,
                    **({"values": [*requirement.values]} if requirement.values else {}),
                }
                for requirement in requirements
            ]

    return body


def _result(result: DeviceResult, tolerations: Mapping[str, list[Any]]) -> dict[str, Any]:
    driver, pool, device = result.id
    body: dict[str, Any] = {
        "request": result.request,
        "driver": driver,
        "pool": pool,
        "device": device,
    }

    if result.admin:
        body["adminAccess"] = True

    if result.share:
        body["shareID"] = result.share
        body["consumedCapacity"] = {name: format_nanos(amount) for name, amount in result.amounts}

    if stated := tolerations.get(result.request):
        body["tolerations"] = stated

    return body
