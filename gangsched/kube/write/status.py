"""Status: conditions and annotations of pods, and the status of PodGroups (semantics E1, E3, T2).

Invariant: only the last write per object is sent. A write that changes nothing is skipped, and so
is a write about a pod that is bound or being bound. Pods are only written through pods/status. The
texts come from the state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec

from gangsched.api.dialects import DIALECTS, api_version
from gangsched.api.keys import NATIVE, TIMEOUT
from gangsched.kube.http.client import MERGE_PATCH, STRATEGIC_PATCH
from gangsched.kube.http.faults import NOT_FOUND, ApiFault, Fault, may_come_late
from gangsched.kube.ports import RestClient, Runtime, Sink
from gangsched.kube.write.binder import BindFate
from gangsched.kube.write.binding import pod_path
from gangsched.kube.write.outbox import Outbox
from gangsched.kube.write.pause import InFlight
from gangsched.kube.write.rate_limits import WriteBudget, WriteLimits
from gangsched.kube.write.recent import Recent
from gangsched.kube.write.spelling import rfc3339
from gangsched.kube.write.writer import IsDue, Kind, Level
from gangsched.model.protocol import (
    MarkTimedOut,
    Outcome,
    SetPodCondition,
    SetPodGroupStatus,
    WriteUndecided,
)
from gangsched.model.text import cut

UNCHANGED_FOR_S = 60.0
NO_SUBRESOURCE_FOR_S = 600.0
STATUSES_REMEMBERED = 20_000
STATUSES_REMEMBERED_S = 300.0
"""Until the watch has shown them; then the state knows what is stored."""
SOON = Level(patience_s=0.7, workers=8)
"""Told within a second (semantics E1)."""
IN_A_PAUSE = Level(pause_s=0.2, patience_s=5.0, workers=8)
"""To the API server a status is as much work as two binds: a gang that starts and ends meanwhile is
told once.
"""


class BindProgress(Protocol):
    """The part of the binder that status writers need."""

    in_flight: InFlight

    def fate(self, uid: str) -> BindFate | None:
        """Result of the last bind of a pod, if known."""


class StatusWriter:
    """Takes SetPodCondition, MarkTimedOut and SetPodGroupStatus; `run` never returns."""

    def __init__(
        self,
        client: RestClient,
        binds: BindProgress,
        sink: Sink,
        *,
        limits: WriteLimits = WriteLimits(),  # noqa: B008  (frozen)
        preceded: Callable[[SetPodCondition], bool] = lambda order: False,
        runtime: Runtime = Runtime(),  # noqa: B008  (frozen)
    ) -> None:
        """`preceded`: whether a condition waits for a write about the pod's nomination, until
        `carry` or `cleared`.
        """
        self.budget = budget = WriteBudget(limits, runtime.now)
        urgent = (binds.in_flight,)
        self._pods = PodConditions(client, binds, sink, runtime, preceded=preceded)
        self._statuses = PodGroupStatuses(client, runtime)
        self.conditions: Outbox[SetPodCondition] = Outbox(
            self._pods,
            Kind(noun="pod conditions", levels=(SOON,), rate=limits.object),
            urgent=urgent,
            budget=budget,
            runtime=runtime,
        )
        self.timeouts: Outbox[MarkTimedOut] = Outbox(
            TimeoutAnnotations(client),
            Kind(noun="timeout annotations", levels=(SOON,)),
            urgent=urgent,
            runtime=runtime,
        )
        self.pod_groups: Outbox[SetPodGroupStatus] = Outbox(
            self._statuses,
            Kind(noun="PodGroup status", levels=(SOON, IN_A_PAUSE), rate=limits.object),
            level=lambda order: 0 if order.urgent else 1,
            urgent=urgent,
            budget=budget,
            runtime=runtime,
        )

    @property
    def outboxes(self) -> tuple[Outbox[Any], ...]:
        """All outboxes, for metrics."""
        return (self.conditions, self.timeouts, self.pod_groups)

    def put(self, order: SetPodCondition | MarkTimedOut | SetPodGroupStatus) -> None:
        """Queue a write; never blocks."""
        match order:
            case SetPodCondition():
                self.conditions.put(order.uid, order)
            case MarkTimedOut():
                self.timeouts.put(order.uid, order)
            case SetPodGroupStatus():
                # By name: the server ignores the uid in a custom resource's status patch, so a late
                # status of a deleted PodGroup must at least never come after that of the one that
                # has its name now.
                self.pod_groups.put((order.api_group, order.namespace, order.name), order)

    def answered(self, outcome: Outcome) -> None:
        """Send the writes that were waiting for the answer to this pod's bind."""
        self.conditions.answered(outcome.uid)

    def cleared(self, uid: str) -> None:
        """Send the refusal that was waiting until the nomination of this pod was cleared."""
        self.conditions.answered(uid)

    def carry(self, uid: str) -> SetPodCondition | None:
        """Take the waiting condition of a pod (None without one) to include it in the write of its
        nomination; the caller reports the result with `carried`.
        """
        carried = self.conditions.carry(uid)
        # Nothing waits, or it was just sent: whatever waited for the nomination may go by itself.
        if carried is None:
            self.conditions.answered(uid)

        return carried

    def carried(self, order: SetPodCondition, *, is_written: bool) -> None:
        """Record whether the write of the nomination and of the condition succeeded."""
        if is_written:
            self._pods.has_written(order)

        self.conditions.carried(order.uid, is_written=is_written)

    def forget(self, uid: str) -> None:
        """Drop what is stored about a deleted pod or PodGroup.

        The rate limiter of a PodGroup is kept by name, so recreating it gives no new burst.
        """
        self._pods.written.forget(uid)
        self._statuses.written.forget(uid)
        self.conditions.forget(uid)

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            for box in self.outboxes:
                group.create_task(box.run())

    async def drain(self, timeout_s: float) -> int:
        """Wait up to `timeout_s` until everything is written; return how much is not."""
        return sum(await asyncio.gather(*(box.drain(timeout_s) for box in self.outboxes)))


class PodConditions:
    """Writes PodScheduled=False."""

    def __init__(
        self,
        client: RestClient,
        binds: BindProgress,
        sink: Sink,
        runtime: Runtime,
        *,
        preceded: Callable[[SetPodCondition], bool],
    ) -> None:
        """`preceded`: whether a write about the pod's nomination comes first."""
        self._client = client
        self._binds = binds
        self._sink = sink
        self._preceded = preceded
        self._runtime = runtime
        self.written: Recent[str, tuple[int, float]] = Recent(runtime.now, for_s=UNCHANGED_FOR_S)

    def due(self, order: SetPodCondition) -> IsDue:
        """Never if the condition was just written or the pod is bound; later while the pod is being
        bound; otherwise now.
        """
        match self._binds.fate(order.uid):
            case BindFate.BOUND:
                return IsDue.NEVER
            case BindFate.PENDING:
                return IsDue.AFTER_BIND

        if self._preceded(order):
            return IsDue.AFTER_BIND

        # Beside the watch: our own write comes back only after a while, and verdicts repeat
        # meanwhile.
        written, at_s = self.written.get(order.uid) or (None, 0.0)
        is_written = written == hash((order.reason, order.message))
        if is_written and self._runtime.now() - at_s < UNCHANGED_FOR_S:
            return IsDue.NEVER

        return IsDue.NOW

    async def write(self, order: SetPodCondition) -> None:
        """Patch the pod's status."""
        condition = not_scheduled(order, self._runtime.wall())
        try:
            await patch_pod(self._client, order, {}, status={"conditions": [condition]})
        except Fault as fault:
            if may_come_late(fault):
                self._sink(WriteUndecided(order.uid))

            raise

        self.has_written(order)

    def has_written(self, order: SetPodCondition) -> None:
        """Remember that the pod has this condition."""
        self.written[order.uid] = (hash((order.reason, order.message)), self._runtime.now())


class TimeoutAnnotations:
    """Writes the timeout annotation, possibly more than once, which is harmless (T2)."""

    def __init__(self, client: RestClient) -> None:
        self._client = client

    def due(self, order: MarkTimedOut) -> IsDue:
        """Return NOW: the annotation is not delayed by binds."""
        return IsDue.NOW

    async def write(self, order: MarkTimedOut) -> None:
        """Patch the annotation into the pod through pods/status, which accepts annotations."""
        await patch_pod(self._client, order, {"annotations": {TIMEOUT: "true"}})


def not_scheduled(order: SetPodCondition, now: datetime) -> dict[str, str]:
    """The condition PodScheduled=False that an order requests, with the transition time `now`."""
    return {
        "type": "PodScheduled",
        "status": "False",
        "reason": order.reason,
        "message": cut(order.message),
        "lastTransitionTime": rfc3339(now),
    }


async def patch_pod(
    client: RestClient,
    pod: SetPodCondition | MarkTimedOut,
    metadata: Mapping[str, object],
    **more: object,
) -> None:
    """PATCH pods/status. The uid in the body is a precondition, so that a recreated pod with the
    same name is not changed.
    """
    body = msgspec.json.encode({"metadata": {"uid": pod.uid, **metadata}, **more})
    await client.request("PATCH", f"{pod_path(pod)}/status", body, content_type=STRATEGIC_PATCH)


class PodGroupStatuses:
    """Writes the status of PodGroups: through the status subresource, or into the object if there
    is none.
    """

    def __init__(self, client: RestClient, runtime: Runtime) -> None:
        self._client = client
        self._runtime = runtime
        self.written: Recent[str, bytes] = Recent(
            runtime.now,
            for_s=STATUSES_REMEMBERED_S,
            limit=STATUSES_REMEMBERED,
        )
        self._no_subresource: dict[tuple[str, str], float] = {}

    def due(self, order: SetPodGroupStatus) -> IsDue:
        """Never if the status equals the last one written, unless that is no longer stored."""
        last = self._last(order.uid)
        if not last or order.restores:
            return IsDue.NOW
        if all(last.get(key) == value for key, value in self._merged(order).items()):
            return IsDue.NEVER

        return IsDue.NOW

    async def write(self, order: SetPodGroupStatus) -> None:
        """Merge the status into the object."""
        place = f"namespaces/{order.namespace}/{DIALECTS[order.api_group].plural}/{order.name}"
        path = f"/apis/{api_version(order.api_group, order.version)}/{place}"
        await self._patch(order, path)

        # Merged, since the API server merges as well: fields that this write leaves out are still
        # stored.
        self.written[order.uid] = msgspec.json.encode(
            {**self._last(order.uid), **self._merged(order)}
        )

    def _last(self, uid: str) -> Mapping[str, Any]:
        """The last write, with the one before it; thousands are kept, so they are kept as bytes."""
        written = self.written.get(uid)
        return msgspec.json.decode(written) if written else {}

    async def _patch(self, order: SetPodGroupStatus, path: str) -> None:
        if DIALECTS[order.api_group].api_group == NATIVE:
            # Others write conditions of native PodGroups, too; this kind of patch merges them by
            # type.
            await self._send(order, f"{path}/status", STRATEGIC_PATCH)
            return

        kind = (order.api_group, order.version)
        # A definition may get the subresource later, and from then on ignores what is written into
        # the object.
        known_without = (
            self._runtime.now() - self._no_subresource.get(kind, float("-inf"))
            < NO_SUBRESOURCE_FOR_S
        )
        if not known_without:
            try:
                await self._send(order, f"{path}/status", MERGE_PATCH)
            except ApiFault as fault:
                # The server says the same for a missing subresource and a missing object: the
                # object itself tells.
                if fault.status != NOT_FOUND:
                    raise
            else:
                self._no_subresource.pop(kind, None)
                return

        await self._send(order, path, MERGE_PATCH)
        if not known_without:
            self._no_subresource[kind] = self._runtime.now()

    async def _send(self, order: SetPodGroupStatus, path: str, content_type: str) -> None:
        body = msgspec.json.encode(
            {
                "metadata": {"uid": order.uid},
                "status": self._merged(order, path.endswith("/status")),
            }
        )
        await self._client.request("PATCH", path, body, content_type=content_type)

    def _merged(self, order: SetPodGroupStatus, subresource: bool | None = None) -> dict[str, Any]:
        """The status to store, with the transition times of what was written last.

        Where there is no subresource our own write makes a new generation: what it was observed at
        is not written there, since that would be another one (semantics E3).
        """
        status = {**order.status}
        if "conditions" in status:
            last = _conditions(self._last(order.uid))
            conditions = merge_conditions(_conditions(status), last, rfc3339(self._runtime.wall()))

            if subresource is None:
                subresource = (order.api_group, order.version) not in self._no_subresource

            if not subresource:
                for condition in conditions:
                    condition.pop("observedGeneration", None)

            status["conditions"] = conditions

        return status


def merge_conditions(
    new: Sequence[Mapping[str, Any]],
    old: Sequence[Mapping[str, Any]],
    now: str,
) -> list[dict[str, Any]]:
    """`new` with a lastTransitionTime for each condition: the old one if the status is unchanged,
    else the given one, else `now`.
    """
    before = {condition.get("type"): condition for condition in old}
    merged = []

    for condition in new:
        was = before.get(condition.get("type"), {})
        given = condition.get("lastTransitionTime") or now

        # A transition time changes only with the status (API conventions), or watchers would see a
        # change each time.
        since = (
            was.get("lastTransitionTime", given)
            if was.get("status") == condition.get("status")
            else given
        )
        merged.append(
            {**condition, "lastTransitionTime": since, "message": cut(condition.get("message", ""))}
        )

    return merged


def _conditions(status: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    stored = status.get("conditions")
    if isinstance(stored, Sequence):
        return [c for c in stored if isinstance(c, Mapping)]

    return []
