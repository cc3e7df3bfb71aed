"""Status: what pods and PodGroups say about themselves, written by us (semantics E1, E3, T2).

Law: the newest word per object counts; a word that would change nothing is not written; none is written about a pod
that is being bound or was. Pods are only ever written through pods/status. What it does *not* do: choose words.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec

from gangsched.api.keys import NATIVE, TIMEOUT
from gangsched.kube.http.client import MERGE_PATCH, STRATEGIC_PATCH
from gangsched.kube.http.faults import NOT_FOUND, ApiFault
from gangsched.kube.ports import Now, RestClient, Sleep, Wall, Warn, silent, utc_now
from gangsched.kube.write.binder import Fate, pod_path
from gangsched.kube.write.outbox import NotYet, Outbox, Pausing
from gangsched.model.protocol import MarkTimedOut, SetPodCondition, SetPodGroupStatus

REMEMBERED = 50_000
UNCHANGED_FOR_S = 60.0
NO_SUBRESOURCE_FOR_S = 600.0


class Binds(Pausing, Protocol):
    """What of the binder is needed here."""

    def fate(self, uid: str) -> Fate | None:
        """What became of the last bind of a pod."""


class StatusWriter:
    """Takes SetPodCondition, MarkTimedOut and SetPodGroupStatus; `run` never returns."""

    def __init__(
        self,
        client: RestClient,
        binds: Binds,
        *,
        warn: Warn = silent,
        workers: int = 8,
        now: Now = time.monotonic,
        wall: Wall = utc_now,
        sleep: Sleep = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        def outbox(send: Callable[[Any], Any], noun: str, workers: int, **more: Any) -> Outbox[Any, Any]:
            return Outbox(
                send, noun=noun, binds=binds, warn=warn, workers=workers, now=now, sleep=sleep, rng=rng, **more
            )

        pods = PodWords(client, binds, now=now, wall=wall)
        groups = PodGroupWords(client, now=now, wall=wall)
        self.conditions: Outbox[str, SetPodCondition] = outbox(pods.set_condition, "pod conditions", workers)
        self.timeouts: Outbox[str, MarkTimedOut] = outbox(pods.mark_timed_out, "timeout annotations", 2)
        self.pod_groups: Outbox[tuple[str, str, str], SetPodGroupStatus] = outbox(
            groups.set_status, "PodGroup status", workers, urgent=lambda order: order.urgent
        )

    @property
    def outboxes(self) -> tuple[Outbox[Any, Any], ...]:
        """For metrics."""
        return (self.conditions, self.timeouts, self.pod_groups)

    def put(self, order: SetPodCondition | MarkTimedOut | SetPodGroupStatus) -> None:
        """Order something to be written; never blocks."""
        match order:
            case SetPodCondition():
                self.conditions.put(order.uid, order)
            case MarkTimedOut():
                self.timeouts.put(order.uid, order)
            case SetPodGroupStatus():
                # By name: the server ignores the uid in a custom resource's status patch, so a late word about a
                # deleted PodGroup must at least never come after a word about the one that has its name now.
                self.pod_groups.put((order.api_group, order.namespace, order.name), order)

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            for box in self.outboxes:
                group.create_task(box.run())

    async def drain(self, timeout_s: float) -> int:
        """Wait until everything ordered is written, at most `timeout_s`; how much is not."""
        return sum(await asyncio.gather(*(box.drain(timeout_s) for box in self.outboxes)))


class PodWords:
    """Writes conditions and annotations of pods, by PATCH of pods/status."""

    def __init__(self, client: RestClient, binds: Binds, *, now: Now, wall: Wall) -> None:
        self._client = client
        self._binds = binds
        self._now = now
        self._wall = wall
        self._written: OrderedDict[str, tuple[str, str, float]] = OrderedDict()

    async def set_condition(self, order: SetPodCondition) -> bool:
        """Write PodScheduled=False; false if it stands already or the pod was bound meanwhile."""
        match self._binds.fate(order.uid):
            case Fate.BOUND:
                return False
            case Fate.PENDING:
                raise NotYet("The pod is being bound.")
        reason, message, at_s = self._written.get(order.uid, ("", "", 0.0))
        if (reason, message) == (order.reason, order.message) and self._now() - at_s < UNCHANGED_FOR_S:
            return False
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": order.reason,
            "message": order.message,
            "lastTransitionTime": rfc3339(self._wall()),
        }
        await self._patch(order, {"metadata": {"uid": order.uid}, "status": {"conditions": [condition]}})
        self._remember(order)
        return True

    async def mark_timed_out(self, order: MarkTimedOut) -> bool:
        """Write the timeout annotation; writing it twice is harmless (T2)."""
        await self._patch(order, {"metadata": {"uid": order.uid, "annotations": {TIMEOUT: "true"}}})
        return True

    async def _patch(self, pod: SetPodCondition | MarkTimedOut, patch: dict[str, Any]) -> None:
        # The uid in the body is a precondition: a pod recreated under the name is not touched.
        body = msgspec.json.encode(patch)
        await self._client.request("PATCH", f"{pod_path(pod)}/status", body, content_type=STRATEGIC_PATCH)

    def _remember(self, order: SetPodCondition) -> None:
        self._written[order.uid] = (order.reason, order.message, self._now())
        self._written.move_to_end(order.uid)
        if len(self._written) > REMEMBERED:
            self._written.popitem(last=False)


class PodGroupWords:
    """Writes the status of PodGroups: through the status subresource, or into the object where there is none."""

    def __init__(self, client: RestClient, *, now: Now, wall: Wall) -> None:
        self._client = client
        self._now = now
        self._wall = wall
        self._written: OrderedDict[str, Mapping[str, Any]] = OrderedDict()
        self._no_subresource: dict[tuple[str, str], float] = {}

    async def set_status(self, order: SetPodGroupStatus) -> bool:
        """Merge a status; false if it changes nothing since the last one written."""
        path = pod_group_path(order)
        last = self._written.get(order.uid)
        status = {**order.status}
        if "conditions" in status:
            status["conditions"] = merge_conditions(_conditions(status), _conditions(last or {}), rfc3339(self._wall()))
        if last is not None and all(last.get(key) == value for key, value in status.items()):
            self._remember(order.uid, {**last, **status})
            return False
        patch = msgspec.json.encode({"metadata": {"uid": order.uid}, "status": status})
        await self._patch(order, path, patch)
        self._remember(order.uid, {**(last or {}), **status})
        return True

    async def _patch(self, order: SetPodGroupStatus, path: str, patch: bytes) -> None:
        if order.api_group == NATIVE:
            # Others write conditions of native PodGroups, too; this kind of patch merges them by type.
            await self._client.request("PATCH", f"{path}/status", patch, content_type=STRATEGIC_PATCH)
            return
        kind = (order.api_group, order.version)
        # A definition may get the subresource later, and from then on ignores what is written into the object.
        known_without = self._now() - self._no_subresource.get(kind, float("-inf")) < NO_SUBRESOURCE_FOR_S
        if not known_without:
            try:
                await self._client.request("PATCH", f"{path}/status", patch, content_type=MERGE_PATCH)
            except ApiFault as fault:
                # The server says the same for a missing subresource and a missing object: the object itself tells.
                if fault.status != NOT_FOUND:
                    raise
            else:
                return
        await self._client.request("PATCH", path, patch, content_type=MERGE_PATCH)
        if not known_without:
            self._no_subresource[kind] = self._now()

    def _remember(self, uid: str, status: Mapping[str, Any]) -> None:
        self._written[uid] = status
        self._written.move_to_end(uid)
        if len(self._written) > REMEMBERED:
            self._written.popitem(last=False)


def merge_conditions(
    new: Sequence[Mapping[str, Any]], old: Sequence[Mapping[str, Any]], now: str
) -> list[dict[str, Any]]:
    """`new` with a lastTransitionTime each: the old one where the status stayed, the given one, or `now`."""
    before = {condition.get("type"): condition for condition in old}
    merged = []
    for condition in new:
        was = before.get(condition.get("type"))
        if was is not None and was.get("status") == condition.get("status"):
            since = was.get("lastTransitionTime") or condition.get("lastTransitionTime") or now
        else:
            since = condition.get("lastTransitionTime") or now
        merged.append({**condition, "lastTransitionTime": since})
    return merged


def pod_group_path(order: SetPodGroupStatus) -> str:
    """The path of the PodGroup an order is about."""
    return f"/apis/{order.api_group}/{order.version}/namespaces/{order.namespace}/podgroups/{order.name}"


def rfc3339(moment: datetime) -> str:
    """A metav1.Time: whole seconds, UTC."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _conditions(status: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    found = status.get("conditions")
    return [c for c in found if isinstance(c, Mapping)] if isinstance(found, Sequence) else []
