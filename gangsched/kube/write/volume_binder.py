"""The VolumeBinder writes claims and volumes before binds, as PreBind of kube-scheduler's
VolumeBinding does.

Invariant: it writes each decision once, and answers with the resulting versions, or with exactly
one BindFailed per pod. It does not wait for claims to be bound, because the state sees that in the
watch. A pod that uses ResourceClaims is first added to them, and its bind is then passed to the
binder; other binds are passed on directly. A request for a volume is withdrawn only while it is
still the same request and no volume exists yet.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, Final, Protocol

import msgspec

from gangsched.kube.http.client import MERGE_PATCH
from gangsched.kube.http.faults import CONFLICT, ApiFault, Fault, Fenced, may_come_late
from gangsched.kube.ports import WRITE_TIMEOUT_S, RestClient, Runtime, Sink
from gangsched.kube.read.resources import VOLUMES
from gangsched.kube.read.storage import SELECTED_NODE, decode_claim
from gangsched.kube.read.storage_wire import WireClaim
from gangsched.kube.write.binder import REQUEST_TIMEOUT_S, STORAGE_TIMEOUT_S
from gangsched.kube.write.device_claims import ClaimWriteRefused, DeviceClaimWriter, may_be_done
from gangsched.kube.write.extended_claims import ExtendedClaimWriter
from gangsched.model.protocol import (
    Bind,
    BindClaims,
    BindFailed,
    BindOrder,
    ClaimsReleased,
    ClaimsWritten,
    ReleaseClaims,
)
from gangsched.model.storage import Selection

BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
PATCH_TRIES = 3
CONNECTIONS: Final = 32
"""Requests about claims in flight. With the 96 of the binder, the connection pool keeps all these
connections open; to open more costs the API server more than they gain, and 10,000 pods would open
10,000.
"""


class BindSink(Protocol):
    """The binder, for binds that need no claims."""

    def submit(self, binds: Sequence[Bind]) -> None:
        """Enqueue; never blocks."""


class VolumeBinder:
    """`submit` never blocks; `run` never returns."""

    def __init__(
        self,
        client: RestClient,
        binds: BindSink,
        sink: Sink,
        *,
        connections: int = CONNECTIONS,
        runtime: Runtime = Runtime(),  # noqa: B008  (frozen)
    ) -> None:
        """`connections` limits the requests in flight about claims; `binds` has its own limit."""
        self._slots = asyncio.Semaphore(connections)
        self._sleep = runtime.sleep

        # Writers sleep between tries without holding one of the 32 slots.
        runtime = replace(runtime, sleep=self._sleep_without_slot)
        self._devices = DeviceClaimWriter(client, runtime)
        self._extended = ExtendedClaimWriter(client, self._devices, runtime)
        self._client = client
        self._binds = binds
        self._sink = sink
        self._queue: asyncio.Queue[BindOrder] = asyncio.Queue()

    def submit(self, orders: Sequence[BindOrder]) -> None:
        """Pass binds without claims to the binder, and start to carry out the other orders."""
        self._binds.submit(
            [order for order in orders if isinstance(order, Bind) and not order.claims]
        )
        for order in orders:
            if order.claims:
                self._queue.put_nowait(order)

    async def run(self) -> None:
        """Carry out orders until cancelled; the next start finds unfinished ones."""
        async with asyncio.TaskGroup() as group:
            while True:
                order = await self._queue.get()
                # in order: pods that came first are bound while others wait
                await self._slots.acquire()
                group.create_task(
                    self._in_slot(order),
                    name=f"volumes of {order.namespace}/{order.name}",
                )

    async def _in_slot(self, order: BindOrder) -> None:
        try:
            await self._carry_out(order)
        finally:
            self._slots.release()

    async def _sleep_without_slot(self, seconds: float) -> None:
        """Sleep before another try, during which others send their requests."""
        self._slots.release()
        try:
            await self._sleep(seconds)
        finally:
            await self._slots.acquire()

    async def _carry_out(self, order: BindOrder) -> None:
        if isinstance(order, ReleaseClaims):
            await self._release(
                order.uid,
                [selection for selection in order.claims if selection.reserve],
            )
            for selection in order.claims:
                if not selection.reserve:
                    await self._withdraw(selection)

            return

        versions: dict[str, str] = {}
        try:
            for claim in order.claims:
                if isinstance(order, BindClaims):
                    # One after the other: the first refusal must leave the fewest objects to be
                    # undone.
                    versions[claim.volume or claim.key] = await self._write(claim, order)
                else:
                    await self._devices.reserve(claim, uid=order.uid, name=order.name)
                    if claim.makes is not None:
                        await self._extended.tell(claim, uid=order.uid, name=order.name)
        except (ClaimWriteRefused, Fault, msgspec.DecodeError) as refusal:
            # Until the last request can no longer be carried out the pod keeps its devices: the API
            # server would give them to two claims.
            if _may_come_late(order.claims, versions, refusal):
                await self._sleep_without_slot(REQUEST_TIMEOUT_S + STORAGE_TIMEOUT_S)

            # Devices that were written for this pod are freed at once; nobody else may use them
            # until then.
            await self._release(order.uid, _written(order.claims, versions, refusal))
            what = (
                "allocating devices"
                if any(selection.allocation for selection in order.claims)
                else "binding volumes"
            )
            self._sink(BindFailed(order.uid, order.node, f"{what}: {refusal}"))

            return

        if isinstance(order, BindClaims):
            self._sink(ClaimsWritten(order.uid, versions))
        else:
            # Without claims, the binder takes it as any other bind.
            self._binds.submit([msgspec.structs.replace(order, claims=())])

    async def _release(self, uid: str, claims: Sequence[Selection]) -> None:
        """Deallocate claims that were allocated to this pod alone, and say what is to be seen
        before their next use.
        """
        if claims:
            with contextlib.suppress(Fenced):  # the next leader finds them allocated
                self._sink(
                    ClaimsReleased(
                        {
                            selection.key: await (
                                self._devices.release
                                if selection.makes is None
                                else self._extended.delete
                            )(
                                selection,
                                uid,
                            )
                            for selection in claims
                        }
                    )
                )

    async def _write(self, selection: Selection, order: BindClaims) -> str:
        """The version that the claim, or the volume picked for it, has then."""
        if selection.allocation is not None and selection.makes is not None:
            created = await self._extended.create(selection, uid=order.uid, name=order.name)
            version = await self._devices.allocate(created, uid=order.uid, name=order.name)
            await self._extended.tell(created, uid=order.uid, name=order.name)

            return version

        if selection.allocation is not None:
            return await self._devices.allocate(selection, uid=order.uid, name=order.name)
        if selection.volume:
            return await self._give(selection, is_free=selection.volume in order.free)

        return await self._select(selection)

    async def _give(self, selection: Selection, *, is_free: bool) -> str:
        """Reserve the volume for the claim; the controller does the rest."""
        metadata: dict[str, Any] = {"resourceVersion": selection.volume_version}
        if is_free:
            # The controller then clears the claimRef when the claim goes; without it, it takes the
            # binding for an administrator's.
            metadata["annotations"] = {BOUND_BY_CONTROLLER: "yes"}

        ref = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": selection.namespace,
            "name": selection.name,
            "uid": selection.uid,
            "resourceVersion": selection.resource_version,
        }
        return await self._patch(
            f"{VOLUMES.path}/{selection.volume}",
            {"metadata": metadata, "spec": {"claimRef": ref}},
        )

    async def _withdraw(self, selection: Selection) -> None:
        """Ask for a volume no more.

        Where that fails the claim keeps to its node, as after a kill, and the next plan goes by
        that.
        """
        with contextlib.suppress(ClaimWriteRefused, Fault, msgspec.DecodeError):
            await self._annotate(selection, None, allowed={selection.node})

    async def _select(self, selection: Selection) -> str:
        """Ask for a volume for the node."""
        return await self._annotate(selection, selection.node, allowed={None, selection.node})

    async def _annotate(
        self,
        selection: Selection,
        node: str | None,
        *,
        allowed: Set[str | None],
    ) -> str:
        """Set the selected node of a claim, or remove it, while the claim has no volume and an
        `allowed` node.

        Others write to claims too (finalizers, conditions): a conflict that leaves the claim as we
        need it is no reason to give up.
        """
        path = f"/api/v1/namespaces/{selection.namespace}/persistentvolumeclaims/{selection.name}"
        version = selection.resource_version

        for tries_left in range(PATCH_TRIES - 1, -1, -1):
            metadata = {
                "uid": selection.uid,
                "resourceVersion": version,
                "annotations": {SELECTED_NODE: node},
            }
            try:
                return await self._patch(path, {"metadata": metadata})
            except ApiFault as fault:
                if fault.status != CONFLICT or not tries_left:
                    raise

            answer = await self._client.request("GET", path, timeout_s=WRITE_TIMEOUT_S)
            claim = decode_claim(msgspec.json.decode(answer, type=WireClaim))
            if (
                claim.uid != selection.uid
                or claim.volume_name
                or claim.selected_node not in allowed
            ):
                raise ClaimWriteRefused(f"claim {selection.key} has changed")

            version = claim.resource_version

        raise AssertionError("unreachable")

    async def _patch(self, path: str, body: object) -> str:
        answer = await self._client.request(
            "PATCH",
            path,
            msgspec.json.encode(body),
            content_type=MERGE_PATCH,
            timeout_s=WRITE_TIMEOUT_S,
        )
        return msgspec.json.decode(answer, type=WireClaim).metadata.resource_version


def _may_come_late(
    claims: Sequence[Selection],
    versions: Mapping[str, str],
    refusal: Exception,
) -> bool:
    """Whether devices may yet be allocated by a request that got no answer."""
    if not isinstance(refusal, Fault) or not may_come_late(refusal):
        return False

    return any(
        selection.allocation is not None and selection.key not in versions for selection in claims
    )


def _written(
    claims: Sequence[Selection],
    versions: Mapping[str, str],
    refusal: Exception,
) -> list[Selection]:
    """The claims to which devices were allocated, or may have been when the next one failed."""
    allocated = [selection for selection in claims if selection.allocation is not None]
    done = [
        msgspec.structs.replace(selection, resource_version=versions[selection.key])
        for selection in allocated
        if selection.key in versions
    ]
    is_open = isinstance(refusal, Fault) and may_be_done(refusal)
    failed = [selection for selection in allocated if selection.key not in versions][:1]

    # which may have been created
    return done + [selection for selection in failed if is_open or selection.makes is not None]
