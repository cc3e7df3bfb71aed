"""VolumeBinder: claims before pods (kube-scheduler's PreBind of VolumeBinding).

Law: a bind without claims goes straight on to the binder. One with claims first has them provisioned for its node or
bound to the volumes picked for them, waits until every one is bound, enters its pod in the ResourceClaims it uses, and
only then goes on; if that fails it is answered here with the one Outcome it is owed. What was written is never undone:
the next plan finds it. Which claim gets which volume, or which node, was decided before.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from gangsched.kube.http.client import MERGE_PATCH, STRATEGIC_PATCH
from gangsched.kube.http.faults import CONFLICT, ApiFault, Fault
from gangsched.kube.ports import Now, RestClient, Sink, Sleep
from gangsched.kube.read.resources import VOLUMES
from gangsched.kube.read.storage import SELECTED_NODE, decode_claim, decode_resource_claim
from gangsched.kube.read.storage_wire import WireClaim, WireResourceClaim
from gangsched.kube.waiting import wait_for_event
from gangsched.model.inter_pod import selects
from gangsched.model.objects import Node, Pod
from gangsched.model.protocol import Applied, Bind, BindFailed, BindGone, Gone, Message, Replaced
from gangsched.model.storage import Claim, Selection, Volume

BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
PATCH_TRIES = 3


class Binds(Protocol):
    """Where pods whose claims are bound go."""

    def submit(self, binds: Sequence[Bind]) -> None:
        """Enqueue; never blocks."""


class Refused(Exception):  # noqa: N818  (a refusal is no error of ours)
    """The claims of a bind cannot be had as decided; `str()` is the reason."""


@dataclass(slots=True)
class VolumeCounts:
    """What happened so far, for metrics."""

    submitted: int = 0
    bound: int = 0
    failed: int = 0
    gone: int = 0


@dataclass(slots=True, eq=False)
class _Wait:
    """A bind whose claims are under way; `written` has the version that our own write gave each object, by key."""

    bind: Bind
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    written: dict[str, str] = field(default_factory=dict)
    gone: bool = False


class VolumeBinder:
    """`submit` and `take` never block; `run` never returns. Binds may wait here for as long as `timeout_s`."""

    def __init__(
        self,
        client: RestClient,
        binds: Binds,
        sink: Sink,
        *,
        timeout_s: float = 600.0,
        request_timeout_s: float = 10.0,
        now: Now = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """`timeout_s` is how long claims may take to be bound; kube-scheduler's bindTimeoutSeconds is 600 too."""
        self.counts = VolumeCounts()
        self._client = client
        self._binds = binds
        self._sink = sink
        self._timeout_s = timeout_s
        self._request_timeout_s = request_timeout_s
        self._now = now
        self._sleep = sleep
        self._queue: asyncio.Queue[_Wait] = asyncio.Queue()
        self._waits: dict[str, _Wait] = {}
        self._waiting: dict[str, list[_Wait]] = defaultdict(list)  # by each claim's key and each volume's name
        self._claims: dict[str, Claim] = {}
        self._volumes: dict[str, Volume] = {}
        self._labels: dict[str, Mapping[str, str]] = {}

    @property
    def pending(self) -> int:
        """Binds that wait for their claims."""
        return len(self._waits)

    def submit(self, binds: Sequence[Bind]) -> None:
        """Pass on binds without claims, and begin to carry out the claims of the others."""
        self._binds.submit([bind for bind in binds if not bind.claims])
        for bind in binds:
            if bind.claims:
                self.counts.submitted += 1
                self._waits[bind.uid] = wait = _Wait(bind)
                for key in _keys(bind):
                    self._waiting[key].append(wait)
                self._queue.put_nowait(wait)

    def take(self, message: Message) -> None:
        """Learn what became of claims, volumes, nodes and pods; what does not matter here is passed over."""
        if not self._waits and isinstance(message, Applied) and isinstance(message.item, Pod):  # nearly all there are
            return
        match message:
            case Applied(item=Pod() as pod) if pod.deleting or not pod.live:
                self._pod_gone(pod.uid)
            case Gone(kind=kind, key=uid) if kind is Pod:
                self._pod_gone(uid)
            case Replaced(kind=kind, items=pods) if kind is Pod:
                for uid in self._waits.keys() - {pod.uid for pod in pods}:
                    self._pod_gone(uid)
            case Applied(item=Claim() as claim):
                self._claims[claim.key] = claim
                self._wake(claim.key)
            case Applied(item=Volume() as volume):
                self._volumes[volume.name] = volume
                self._wake(volume.name)
                if volume.claim is not None:
                    self._wake(f"{volume.claim.namespace}/{volume.claim.name}")
            case Gone(kind=kind, key=key) if kind is Claim:
                self._claims.pop(key, None)
                self._wake(key)
            case Gone(kind=kind, key=key) if kind is Volume:
                self._volumes.pop(key, None)
                self._wake(key)
            case Replaced(kind=kind, items=items) if kind is Claim:
                self._claims = {claim.key: claim for claim in items}
                self._wake(*self._waiting)
            case Replaced(kind=kind, items=items) if kind is Volume:
                self._volumes = {volume.name: volume for volume in items}
                self._wake(*self._waiting)
            case Applied(item=Node() as node):
                self._labels[node.name] = node.labels
            case Gone(kind=kind, key=name) if kind is Node:
                self._labels.pop(name, None)
                self._wake(*self._waiting)
            case Replaced(kind=kind, items=nodes) if kind is Node:
                self._labels = {node.name: node.labels for node in nodes}
                self._wake(*self._waiting)
            case _:
                pass

    def _pod_gone(self, uid: str) -> None:
        if uid in self._waits:
            self._waits[uid].gone = True
            self._waits[uid].changed.set()

    def _wake(self, *keys: str) -> None:
        for key in keys:
            for wait in self._waiting.get(key, ()):
                wait.changed.set()

    async def run(self) -> None:
        """Carry out claims until cancelled; what is under way then is found by the next start."""
        async with asyncio.TaskGroup() as group:
            while True:
                wait = await self._queue.get()
                group.create_task(self._carry_out(wait), name=f"volumes of {wait.bind.namespace}/{wait.bind.name}")

    async def _carry_out(self, wait: _Wait) -> None:
        bind = wait.bind
        try:
            for selection in bind.claims:
                await self._write(selection, wait)
            await self._wait(wait)
            for selection in bind.claims:
                if selection.reserve and not wait.gone:
                    await self._reserve(selection, bind)
        except (Refused, Fault) as refusal:
            self.counts.failed += 1
            self._sink(BindFailed(bind.uid, bind.node, f"binding volumes: {refusal}"))
        else:
            if wait.gone:
                self.counts.gone += 1
                self._sink(BindGone(bind.uid, bind.node, "the pod was deleted while it waited for its volumes"))
            else:
                self.counts.bound += 1
                self._binds.submit([msgspec.structs.replace(bind, claims=())])
        finally:
            self._waits.pop(bind.uid, None)
            for key in _keys(bind):
                self._waiting[key].remove(wait)
                if not self._waiting[key]:
                    del self._waiting[key]

    async def _wait(self, wait: _Wait) -> None:
        """Until all claims are bound or the pod is gone. Raises Refused when that will not come, or not in time."""
        deadline_s = self._now() + self._timeout_s
        while not wait.gone:
            wait.changed.clear()
            unbound = [each for each in wait.bind.claims if not (each.reserve or self._is_bound(each, wait))]
            if not unbound:
                return
            if not await wait_for_event(wait.changed, deadline_s - self._now(), sleep=self._sleep):
                raise Refused(f"claim {unbound[0].key} was not bound within {self._timeout_s:g} s")

    def _is_bound(self, selection: Selection, wait: _Wait) -> bool:
        """Whether a claim is bound and its volume is of use on the node. Raises Refused when that will not come."""
        claim, node = self._claims.get(selection.key), wait.bind.node
        if node not in self._labels:
            raise Refused(f'node "{node}" is gone')
        if claim is None or claim.uid != selection.uid:
            raise Refused(f'persistentvolumeclaim "{selection.name}" not found')
        if claim.deleting:
            raise Refused(f'persistentvolumeclaim "{selection.name}" is being deleted')
        if claim.bound:
            volume = self._volumes.get(claim.volume_name)
            if volume is not None and not _reaches(volume, self._labels[node]):
                raise Refused(f'pv "{volume.name}" node affinity doesn\'t match node "{node}"')
            return volume is not None  # else word of it has not come yet
        is_news = not _older(claim.resource_version, wait.written.get(claim.key))
        if selection.node and is_news and claim.selected_node != selection.node:
            raise Refused(f'provisioning failed for PVC "{claim.name}"')  # which the provisioner says by taking it away
        if selection.volume:
            self._look_at_given(selection, claim, wait)
        return False

    def _look_at_given(self, selection: Selection, claim: Claim, wait: _Wait) -> None:
        """Raises Refused when the volume that was given to a claim is not the claim's any more."""
        volume = self._volumes.get(selection.volume)
        if volume is None:
            raise Refused(f'pv "{selection.volume}" is gone')
        is_news = not _older(volume.resource_version, wait.written.get(volume.name))
        if is_news and (volume.claim is None or volume.claim.uid != claim.uid):
            raise Refused(f'ClaimRef got reset for pv "{volume.name}"')

    # --- what is written --------------------------------------------------------------------------------------------

    async def _write(self, selection: Selection, wait: _Wait) -> None:
        if selection.volume:
            wait.written[selection.volume] = await self._give(selection)
        elif selection.node:
            wait.written[selection.key] = await self._select(selection)

    async def _give(self, selection: Selection) -> str:
        """Keep the volume for the claim; the controller does the rest. Returns the volume's new version."""
        known = self._volumes.get(selection.volume)
        metadata: dict[str, Any] = {"resourceVersion": selection.volume_version}
        if known is None or known.claim is None:
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
            f"{VOLUMES.path}/{selection.volume}", {"metadata": metadata, "spec": {"claimRef": ref}}
        )

    async def _select(self, selection: Selection) -> str:
        """Ask for a volume for the node, unless that is asked already. Returns the claim's new version.

        Others write to claims too (finalizers, conditions): a conflict that leaves the claim as we need it is no
        reason to give up.
        """
        known = self._claims.get(selection.key)
        if known is not None and known.uid == selection.uid and known.selected_node == selection.node:
            return known.resource_version
        path = f"/api/v1/namespaces/{selection.namespace}/persistentvolumeclaims/{selection.name}"
        version = selection.resource_version
        for tries_left in range(PATCH_TRIES - 1, -1, -1):
            metadata = {
                "uid": selection.uid,
                "resourceVersion": version,
                "annotations": {SELECTED_NODE: selection.node},
            }
            try:
                return await self._patch(path, {"metadata": metadata})
            except ApiFault as fault:
                if fault.status != CONFLICT or not tries_left:
                    raise
            answer = await self._client.request("GET", path, timeout_s=self._request_timeout_s)
            claim = decode_claim(msgspec.json.decode(answer, type=WireClaim))
            if claim.uid != selection.uid or claim.volume_name or claim.selected_node not in {None, selection.node}:
                raise Refused(f"claim {selection.key} has changed")
            version = claim.resource_version
        raise AssertionError("unreachable")

    async def _reserve(self, selection: Selection, bind: Bind) -> None:
        """Enter the pod among those who may use a ResourceClaim, without which its kubelet would not start it.

        The API server adds it to the others; it refuses when the claim is another one or not allocated any more.
        """
        path = f"/apis/resource.k8s.io/v1/namespaces/{selection.namespace}/resourceclaims/{selection.name}/status"
        consumer = {"resource": "pods", "name": bind.name, "uid": bind.uid}
        body = {"metadata": {"uid": selection.uid}, "status": {"reservedFor": [consumer]}}
        answer = await self._client.request(
            "PATCH", path, msgspec.json.encode(body), content_type=STRATEGIC_PATCH, timeout_s=self._request_timeout_s
        )
        if decode_resource_claim(msgspec.json.decode(answer, type=WireResourceClaim)).required != selection.required:
            raise Refused(f'resourceclaim "{selection.name}" has been allocated elsewhere')

    async def _patch(self, path: str, body: object) -> str:
        answer = await self._client.request(
            "PATCH", path, msgspec.json.encode(body), content_type=MERGE_PATCH, timeout_s=self._request_timeout_s
        )
        return msgspec.json.decode(answer, type=WireClaim).metadata.resource_version


def _keys(bind: Bind) -> set[str]:
    """What the bind waits for: keys of claims, which have a slash, and names of volumes, which have none."""
    return {selection.key for selection in bind.claims} | {each.volume for each in bind.claims if each.volume}


def _reaches(volume: Volume, labels: Mapping[str, str]) -> bool:
    """Whether the volume's node affinity lets a node with these labels use it."""
    if volume.required is None:
        return True
    return any(bool(term.labels) and selects(term.labels, labels) for term in volume.required)


def _older(version: str, written: str | None) -> bool:
    """Whether what we see is from before our own write; versions are numbers that grow (KEP-5504)."""
    return written is not None and version.isdigit() and written.isdigit() and int(version) < int(written)
