"""Writes ProvisioningRequests and their PodTemplates (semantics E10).

Invariant: orders are carried out one after the other, namespaces in turn so that none waits for all
orders of another, and never delay a bind. Names are fixed, so that a lost answer leads to a
conflict and not to a second object. Only objects of the same owner
are used, and only what a request of gangsched names is deleted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec

from gangsched.kube.http.answers import decoded
from gangsched.kube.http.backoff import Backoff
from gangsched.kube.http.client import JSON
from gangsched.kube.http.faults import CONFLICT, NOT_FOUND, ApiFault, Fault, Fenced
from gangsched.kube.ports import WRITE_TIMEOUT_S, RestClient, Runtime, Sink
from gangsched.kube.read.provisioning import (
    GROUP,
    REQUESTED_BY,
    WireProvisioningRequest,
    decode_provisioning_request,
)
from gangsched.kube.write.binding import pod_path
from gangsched.kube.write.device_claims import may_be_done
from gangsched.model.protocol import (
    NodesRequested,
    ObjectRef,
    PodRef,
    ProvisioningOrder,
    RequestNodes,
    WithdrawNodes,
)
from gangsched.model.provisioning import RequestedPods

TRIES: Final = 5
KEPT: Final = frozenset({"nodeName", "ephemeralContainers"})
"""Fields of a pod's spec that its template does not have."""
STRANGER: Final = "it exists already and belongs to another client"
_pod = msgspec.json.Decoder(dict[str, Any])
_request = msgspec.json.Decoder(WireProvisioningRequest)


class ProvisioningWriter:
    """`order` never blocks; `run` never returns. `version` is the served version of the API."""

    def __init__(
        self,
        client: RestClient,
        sink: Sink,
        *,
        version: Callable[[], str],
        runtime: Runtime,
    ) -> None:
        self._client = client
        self._sink = sink
        self._version = version
        self._runtime = runtime
        #: By namespace, the one whose turn is next first.
        self._orders: dict[str, deque[ProvisioningOrder]] = {}
        self._is_ordered = asyncio.Event()

    def order(self, order: ProvisioningOrder) -> None:
        """Queue an order."""
        self._orders.setdefault(order.namespace, deque()).append(order)
        self._is_ordered.set()

    async def run(self) -> None:
        """Carry out orders until cancelled."""
        while True:
            order = await self._next()
            try:
                await self._carry_out(order)
            except Fenced:
                continue  # another process leads, and finds what was written

    async def _next(self) -> ProvisioningOrder:
        while not self._orders:
            self._is_ordered.clear()
            await self._is_ordered.wait()

        namespace = next(iter(self._orders))
        waiting = self._orders.pop(namespace)
        order = waiting.popleft()
        if waiting:
            self._orders[namespace] = waiting

        return order

    async def _carry_out(self, order: ProvisioningOrder) -> None:
        if isinstance(order, WithdrawNodes):
            try:
                await self._withdraw(order)
            except Fenced:
                raise
            except Fault:
                # It must not be lost, and others must not wait for an answer to it.
                self.order(order)

            return

        error = ""
        try:
            await self._request(order)
        except Fenced:
            raise
        except Fault as fault:
            error = str(fault)

        self._sink(NodesRequested(f"{order.namespace}/{order.name}", error))

    # --- creating --------------------------------------------------------------------------------

    async def _request(self, order: RequestNodes) -> None:
        """Create the templates, then the request. Raises Fault."""
        names: list[str] = []
        for number, pod_set in enumerate(order.pod_sets):
            name = f"{order.name}-{number}"
            body = await self._template(order, name, pod_set)
            await self._create(f"/api/v1/namespaces/{order.namespace}/podtemplates", body)
            names.append(name)

        created = await self._create(self._path(order.namespace), self._body(order, names))
        if not created:
            await self._check_owner(order)

    async def _template(
        self,
        order: RequestNodes,
        name: str,
        pod_set: RequestedPods,
    ) -> dict[str, Any]:
        """The template of pods like the one that the set names. Raises Fault."""
        path = pod_path(PodRef(pod_set.uid, order.namespace, pod_set.name))
        answer = await self._client.request("GET", path)
        pod = decoded(_pod, answer, f"Pod {pod_set.name} is not one")
        meta = pod["metadata"]
        if meta["uid"] != pod_set.uid:
            raise ApiFault(NOT_FOUND, "NotFound", f"pod {pod_set.name} was created again")

        spec = {key: value for key, value in pod["spec"].items() if key not in KEPT}
        return {
            "apiVersion": "v1",
            "kind": "PodTemplate",
            "metadata": _metadata(order, name),
            "template": {"metadata": {"labels": meta.get("labels") or {}}, "spec": spec},
        }

    def _body(self, order: RequestNodes, templates: list[str]) -> dict[str, Any]:
        pod_sets = []
        for name, pod_set in zip(templates, order.pod_sets, strict=True):
            pod_sets.append({"podTemplateRef": {"name": name}, "count": pod_set.count})

        return {
            "apiVersion": f"{GROUP}/{self._version()}",
            "kind": "ProvisioningRequest",
            "metadata": _metadata(order, order.name),
            "spec": {"provisioningClassName": order.class_name, "podSets": pod_sets},
        }

    async def _create(self, path: str, body: dict[str, Any]) -> bool:
        """Create an object; False if one of its name exists. Raises Fault."""
        backoff = Backoff(0.1, 5.0, rng=self._runtime.rng)
        encoded = msgspec.json.encode(body)

        for tries_left in range(TRIES, -1, -1):
            try:
                await self._client.request("POST", path, encoded, timeout_s=WRITE_TIMEOUT_S)
            except Fault as fault:
                if isinstance(fault, ApiFault) and fault.status == CONFLICT:
                    return False
                if isinstance(fault, Fenced) or not may_be_done(fault) or not tries_left:
                    raise

                await self._runtime.sleep(backoff.next_s(fault))
            else:
                return True

        raise AssertionError("unreachable")

    async def _check_owner(self, order: RequestNodes) -> None:
        """Raise Fault if the request that exists is not the gang's."""
        path = f"{self._path(order.namespace)}/{order.name}"
        answer = await self._client.request("GET", path)
        wire = decoded(_request, answer, f"ProvisioningRequest {order.name} is not one")
        existing = decode_provisioning_request(wire)
        if existing.owner_uid != order.owner.uid or existing.requested_by != order.requested_by:
            raise ApiFault(CONFLICT, "Conflict", STRANGER)

    # --- deleting --------------------------------------------------------------------------------

    async def _withdraw(self, order: WithdrawNodes) -> None:
        """Delete the request and its templates. Raises Fault if the result is not certain."""
        path = f"{self._path(order.namespace)}/{order.name}"
        await self._delete(path, {"uid": order.uid})

        for name in order.templates:
            if name.startswith(f"{order.name}-"):
                await self._delete(f"/api/v1/namespaces/{order.namespace}/podtemplates/{name}", {})

    async def _delete(self, path: str, preconditions: dict[str, str]) -> None:
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if preconditions:
            options["preconditions"] = preconditions

        backoff = Backoff(0.5, 5.0, rng=self._runtime.rng)
        body = msgspec.json.encode(options)

        for tries_left in range(TRIES, -1, -1):
            try:
                await self._client.request(
                    "DELETE",
                    path,
                    body,
                    content_type=JSON,
                    timeout_s=WRITE_TIMEOUT_S,
                )
                return
            except Fenced:
                raise
            except Fault as fault:
                # It is gone, another object has its name, or we may not.
                if not may_be_done(fault):
                    return

                # Before the last fault, too: the order comes again at once if there is no other.
                await self._runtime.sleep(backoff.next_s(fault))
                if not tries_left:
                    raise

    def _path(self, namespace: str) -> str:
        return f"/apis/{GROUP}/{self._version()}/namespaces/{namespace}/provisioningrequests"


def _metadata(order: RequestNodes, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": order.namespace,
        "labels": {REQUESTED_BY: order.requested_by},
        "ownerReferences": [_owner(order.owner)],
    }


def _owner(owner: ObjectRef) -> dict[str, Any]:
    return {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
    }
