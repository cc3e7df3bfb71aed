"""Claims for extended resources: the only objects that gangsched creates and deletes for pods.

Invariant: the name of such a claim has the uid of its pod, so that a request whose answer was lost
is never carried out twice, and only a claim whose controller is that pod is used or deleted. Before
the pod is bound, its status states which devices each container uses.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gangsched.kube.http.backoff import Backoff
from gangsched.kube.http.client import JSON_PATCH, MERGE_PATCH
from gangsched.kube.http.faults import Fault, Fenced
from gangsched.kube.ports import WRITE_TIMEOUT_S, RestClient, Runtime
from gangsched.kube.read.storage import FINALIZER, decode_resource_claim
from gangsched.kube.write.device_claims import (
    FREED,
    TRIES,
    ClaimWriteRefused,
    DeviceClaimWriter,
    decoder,
    is_conflict,
    may_be_done,
    next_version,
)
from gangsched.model.devices import EXTENDED_CLAIM, DeviceRequest
from gangsched.model.storage import ResourceClaim, Selection

DENIED_S: Final = 5.0
"""How long a claim rests that gangsched may not delete, since the next plan would try it again at
once.
"""


class ExtendedClaimWriter:
    """Creates and deletes claims, and writes each container's devices to the pod's status; `claims`
    reads and writes single claims.
    """

    def __init__(self, client: RestClient, claims: DeviceClaimWriter, runtime: Runtime) -> None:
        self._client = client
        self._claims = claims
        self._runtime = runtime

    async def create(self, selection: Selection, *, uid: str, name: str) -> Selection:
        """Create the claim for this pod, unless an earlier attempt has; return the decision with
        its uid and version.

        Raises Fault, and ClaimWriteRefused if another object has its name.
        """
        assert selection.makes is not None
        # An earlier attempt created it, and the decision was made on that claim.
        if selection.uid:
            return selection

        path = f"/apis/resource.k8s.io/v1/namespaces/{selection.namespace}/resourceclaims"
        body = msgspec.json.encode(_claim(selection, selection.makes.requests, uid, name))
        backoff = Backoff(0.1, 2.0, rng=self._runtime.rng)

        for tries_left in range(TRIES, -1, -1):
            try:
                # The name is fixed, so that a lost answer leads to a conflict and not to a second
                # claim.
                answer = await self._client.request("POST", path, body, timeout_s=WRITE_TIMEOUT_S)
                return _of(selection, decode_resource_claim(decoder.decode(answer)), uid)
            except Fault as fault:
                await self._claims.before_another_try(fault, tries_left, backoff)

            claim = await self._claims.read(selection, backoff)
            if claim.uid:
                return _of(selection, claim, uid)

        raise AssertionError("unreachable")

    async def tell(self, selection: Selection, *, uid: str, name: str) -> None:
        """Write to the pod's status which requests of the claim its containers use.
        Raises Fault.
        """
        assert selection.makes is not None
        users = []

        for container, resource, request in selection.makes.users:
            users.append(
                {"containerName": container, "resourceName": resource, "requestName": request}
            )

        status = {
            "extendedResourceClaimStatus": {
                "resourceClaimName": selection.name,
                "requestMappings": users,
            }
        }
        body = msgspec.json.encode({"metadata": {"uid": uid}, "status": status})
        path = f"/api/v1/namespaces/{selection.namespace}/pods/{name}/status"
        backoff = Backoff(0.1, 2.0, rng=self._runtime.rng)

        for tries_left in range(TRIES, -1, -1):
            try:
                await self._client.request(
                    "PATCH",
                    path,
                    body,
                    content_type=MERGE_PATCH,
                    timeout_s=WRITE_TIMEOUT_S,
                )
                return
            except Fenced:
                raise
            except Fault as fault:  # the same patch again changes nothing
                if not (may_be_done(fault) or is_conflict(fault)) or not tries_left:
                    raise

                await self._runtime.sleep(backoff.next_s(fault))

    async def delete(self, selection: Selection, uid: str) -> str:
        """Deallocate and delete the claim for this pod; return the version that must be seen before
        its next use.

        Repeats until the result is certain. Raises only Fenced.
        """
        backoff = Backoff(0.1, 5.0, rng=self._runtime.rng)
        refusals = 0
        version = selection.resource_version

        while True:
            claim = await self._claims.read(selection, backoff, is_certain=True)
            if not claim.uid:
                # no plan uses it again before the watch shows that it is gone
                return next_version(version)

            version = claim.resource_version
            # Somebody else's claim under this name, or one that others use: not ours to delete.
            if (
                claim.owner_uid != uid
                or claim.uid != (selection.uid or claim.uid)
                or {*claim.reserved} - {uid}
            ):
                return claim.resource_version
            if claim.deleting and not claim.allocated and FINALIZER not in claim.finalizers:
                return next_version(claim.resource_version)  # others keep it

            try:
                await self._one_step(selection, claim)
            except Fenced:
                raise
            except Fault as fault:
                is_open = may_be_done(fault) or is_conflict(fault)
                # perhaps only of a JSON patch whose test failed, since the claim had changed
                refusals += not is_open
                # Given up for now: the next plan finds the claim again, and either uses or deletes
                # it.
                if refusals > TRIES:
                    await self._runtime.sleep(DENIED_S)
                    return claim.resource_version

                await self._runtime.sleep(backoff.next_s(fault))

    async def _one_step(self, selection: Selection, claim: ResourceClaim) -> None:
        """Take the devices from the claim, then the finalizer, then delete it; each only as it was
        read.
        """
        precondition = {"uid": claim.uid, "resourceVersion": claim.resource_version}
        if claim.allocated or claim.reserved:
            await self._claims.request(
                selection,
                "PATCH",
                {"metadata": precondition, "status": FREED},
                MERGE_PATCH,
                "status",
            )
        elif FINALIZER in claim.finalizers:
            left = [finalizer for finalizer in claim.finalizers if finalizer != FINALIZER]
            body = [
                {"op": "test", "path": "/metadata/uid", "value": claim.uid},
                {
                    "op": "test",
                    "path": "/metadata/resourceVersion",
                    "value": claim.resource_version,
                },
                {"op": "replace", "path": "/metadata/finalizers", "value": left},
            ]
            await self._claims.request(selection, "PATCH", body, JSON_PATCH)
        else:
            options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": precondition}
            await self._claims.request(selection, "DELETE", options)


def _of(selection: Selection, claim: ResourceClaim, uid: str) -> Selection:
    """The decision about the claim that exists. Raises ClaimWriteRefused if it is not the pod's."""
    asks = claim.asks
    wanted = (
        tuple((device_request,) for device_request in selection.makes.requests)
        if selection.makes is not None
        else ()
    )
    if claim.owner_uid != uid or asks is None or asks.requests != wanted:
        raise ClaimWriteRefused(f'resourceclaim "{selection.name}" was created by another client')
    if claim.deleting:
        raise ClaimWriteRefused(f'resourceclaim "{selection.name}" is being deleted')

    return msgspec.structs.replace(
        selection,
        uid=claim.uid,
        resource_version=claim.resource_version,
        finalizers=claim.finalizers,
    )


def _claim(
    selection: Selection,
    requests: tuple[DeviceRequest, ...],
    uid: str,
    name: str,
) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": True}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": selection.name,
            "namespace": selection.namespace,
            "annotations": {EXTENDED_CLAIM: "true"},
            "ownerReferences": [owner],
            "finalizers": [FINALIZER],  # which an allocation needs, so that it need not be added
        },
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": device_request.name,
                        "exactly": {
                            "deviceClassName": device_request.class_name,
                            "allocationMode": device_request.mode,
                            "count": device_request.count,
                        },
                    }
                    for device_request in requests
                ]
            }
        },
    }
