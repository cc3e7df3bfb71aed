"""Writes ProvisioningRequests and their PodTemplates (semantics E10).

Invariant: the orders of a namespace are carried out one after the other, beside those of a few
others, so that none waits for the orders of another namespace or for answers to them; they never
delay a bind. Names are fixed, so that a lost answer leads to a
conflict and not to a second object. Only objects of the same owner, and made for the same
scheduler, are used and deleted; templates stay only with their request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from gangsched.kube.http.answers import decoded
from gangsched.kube.http.backoff import Backoff
from gangsched.kube.http.client import JSON
from gangsched.kube.http.faults import CONFLICT, NOT_FOUND, ApiFault, Fault, Fenced
from gangsched.kube.ports import WRITE_TIMEOUT_S, RestClient, Runtime, Sink
from gangsched.kube.read.provisioning import GROUP, REQUESTED_BY
from gangsched.kube.read.wire import Meta, Wire
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
AGAIN_S: Final = 1.0
AT_ONCE: Final = 4
"""Namespaces whose orders are carried out at once: what a user makes the API server answer with an
error of its own is tried again for seconds.
"""
KEPT: Final = frozenset({"nodeName", "ephemeralContainers"})
"""Fields of a pod's spec that its template does not have."""
STRANGER: Final = "exists already and belongs to another client"
_pod = msgspec.json.Decoder(dict[str, Any])


class _Metadata(Wire):
    """Any object."""

    metadata: Meta


_object = msgspec.json.Decoder(_Metadata)


class _Owned(NamedTuple):
    """What an owner has of one scheduler in a namespace."""

    namespace: str
    owner_uid: str
    requested_by: str


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
        #: Namespaces of which an order is being carried out.
        self._busy: set[str] = set()
        self._is_ordered = asyncio.Event()

    def order(self, order: ProvisioningOrder) -> None:
        """Queue an order."""
        self._orders.setdefault(order.namespace, deque()).append(order)
        self._is_ordered.set()

    async def run(self) -> None:
        """Carry out orders until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(AT_ONCE):
                group.create_task(self._work(), name=f"provisioning {number}")

    async def _work(self) -> None:
        while True:
            order = await self._next()
            try:
                await self._carry_out(order)
            except Fenced:
                continue  # another process leads, and finds what was written
            finally:
                self._busy.discard(order.namespace)
                self._is_ordered.set()

    async def _next(self) -> ProvisioningOrder:
        while (namespace := self._idle_namespace()) is None:
            self._is_ordered.clear()
            await self._is_ordered.wait()

        waiting = self._orders.pop(namespace)
        order = waiting.popleft()
        if waiting:
            self._orders[namespace] = waiting

        self._busy.add(namespace)
        return order

    def _idle_namespace(self) -> str | None:
        """The first namespace with an order of which none is being carried out."""
        for namespace in self._orders:
            if namespace not in self._busy:
                return namespace

        return None

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
        try:
            for number, pod_set in enumerate(order.pod_sets):
                name = f"{order.name}-{number}"
                body = await self._template(order, name, pod_set)
                names.append(name)
                await self._create(_templates(order.namespace), body)

            await self._create(self._path(order.namespace), self._body(order, names))
        except ApiFault as fault:
            # Refused for certain, so that no request will ever name them.
            if names and not may_be_done(fault):
                self.order(_of_templates(order, names))

            raise

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

    async def _create(self, path: str, body: dict[str, Any]) -> None:
        """Create an object; one that exists and is its equal is as good. Raises Fault."""
        backoff = Backoff(0.1, 5.0, rng=self._runtime.rng)
        encoded = msgspec.json.encode(body)

        for tries_left in range(TRIES, -1, -1):
            try:
                await self._client.request("POST", path, encoded, timeout_s=WRITE_TIMEOUT_S)
            except Fault as fault:
                if isinstance(fault, ApiFault) and fault.status == CONFLICT:
                    await self._check_owner(path, body)
                    return
                if isinstance(fault, Fenced) or not may_be_done(fault) or not tries_left:
                    raise

                await self._runtime.sleep(backoff.next_s(fault))
            else:
                return

        raise AssertionError("unreachable")

    async def _check_owner(self, path: str, body: dict[str, Any]) -> None:
        """Raise Fault if the object that exists under this name is not the gang's."""
        wanted = body["metadata"]
        owner_uid = wanted["ownerReferences"][0]["uid"]
        owned = _Owned(wanted["namespace"], owner_uid, wanted["labels"][REQUESTED_BY])
        name = wanted["name"]
        if await self._uid_of(f"{path}/{name}", owned) is None:
            raise ApiFault(CONFLICT, "Conflict", f"{body['kind']} {name} {STRANGER}")

    async def _uid_of(self, path: str, owned: _Owned) -> str | None:
        """The uid of the object of this path if it is the owner's; else None. Raises Fault."""
        answer = await self._client.request("GET", path)
        meta = decoded(_object, answer, f"{path} is not an object").metadata
        owners = [owner.uid for owner in meta.owner_references or []]
        requested_by = (meta.labels or {}).get(REQUESTED_BY)
        is_ours = owners == [owned.owner_uid] and requested_by == owned.requested_by
        return meta.uid if is_ours else None

    # --- deleting --------------------------------------------------------------------------------

    async def _withdraw(self, order: WithdrawNodes) -> None:
        """Delete the request and its templates. Raises Fault if the result is not certain."""
        if order.uid:
            path = f"{self._path(order.namespace)}/{order.name}"
            await self._delete(path, order.uid)

        owned = _Owned(order.namespace, order.owner_uid, order.requested_by)
        for name in order.templates:
            if name.startswith(f"{order.name}-"):
                await self._delete_template(f"{_templates(order.namespace)}/{name}", owned)

    async def _delete_template(self, path: str, owned: _Owned) -> None:
        """Delete a template if it is the owner's. Raises Fault if the result is not certain."""
        try:
            uid = await self._uid_of(path, owned)
        except Fenced:
            raise
        except Fault as fault:
            if not may_be_done(fault):
                return  # it is gone, or we may not

            # The order comes again at once if there is no other.
            await self._runtime.sleep(AGAIN_S)
            raise

        if uid is not None:
            await self._delete(path, uid)

    async def _delete(self, path: str, uid: str) -> None:
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
        }
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


def _templates(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/podtemplates"


def _of_templates(order: RequestNodes, names: Sequence[str]) -> WithdrawNodes:
    """The order to delete templates whose request was never made."""
    return WithdrawNodes(
        order.namespace,
        order.name,
        "",
        order.owner.uid,
        order.requested_by,
        tuple(names),
    )


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
