"""Intake: how messages change what is known.

Law: every message is applied whole, in the order it came, and never fails: what makes no sense (any more) is passed
over. Nothing is decided here; groups that changed are looked at after the next `Registry.refresh`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from gangsched.api.gang_spec import gang_id
from gangsched.model.gang import Placement
from gangsched.model.objects import Namespace, Node, Phase, Pod, PodGroup
from gangsched.model.protocol import (
    Applied,
    BindFailed,
    BindGone,
    Bound,
    Gone,
    Message,
    Object,
    RecordEvent,
    Replaced,
    Unread,
)
from gangsched.model.reasons import EventReason
from gangsched.state.cluster import Cluster
from gangsched.state.gang_events import gang_ref, pod_ref
from gangsched.state.gangs import GangRecord
from gangsched.state.groups import Registry
from gangsched.state.queue import Queue

PLAIN = "pod:"
"""Before the "namespace/name" of a pod without a gang; no namespace has a colon, so it is no gang's id."""
KUBELET_REJECTIONS = ("OutOf", "UnexpectedAdmissionError", "NodeAffinity")


class EventHandlers:
    """Applies messages to a cluster, a registry and a queue that it does not own."""

    def __init__(
        self, cluster: Cluster, registry: Registry, queue: Queue, *, names: frozenset[str], avoid_s: float
    ) -> None:
        self._cluster = cluster
        self._registry = registry
        self._queue = queue
        self._names = names
        self._avoid_s = avoid_s
        self._gang_of: dict[str, str] = {}
        self._in_flight: dict[str, Placement] = {}
        self._settled: set[str] = set()

    def gang_of(self, uid: str) -> GangRecord:
        """The gang of a known member."""
        return self._registry.gangs[self._gang_of[uid]]

    def sent(self, placement: Placement) -> None:
        """A bind went out; its outcome will come in."""
        self._in_flight[placement.pod.uid] = placement

    def apply(self, message: Message, *, now_s: float) -> tuple[RecordEvent, ...]:
        """Take in one message; returns Events that are due whatever is decided next."""
        match message:
            case Applied(item=item):
                return self._applied(item, now_s)
            case Gone():
                self._gone(message)
            case Replaced():
                return self._replaced(message, now_s)
            case Unread(kind=kind):
                self._helped(self._cluster.storage_cache.miss(kind))
            case Bound() | BindGone() | BindFailed():
                return self._outcome(message, now_s)
            case _:
                assert_never(message)
        return ()

    def _applied(self, item: Object, now_s: float) -> tuple[RecordEvent, ...]:
        match item:
            case Pod():
                return self._apply_pod(item, now_s)
            case Node():
                self._cluster.apply_node(item)
            case Namespace():
                self._cluster.apply_namespace(item)
            case PodGroup():
                self._apply_pod_group(item)
            case _:
                self._helped(self._cluster.storage_cache.apply(item))
        return ()

    def _gone(self, message: Gone) -> None:
        kind, key = message.kind, message.key
        if kind is Pod:
            self._drop_pod(key)
        elif kind is Node:
            self._drop_node(key)
        elif kind is Namespace:
            self._cluster.drop_namespace(key)
        elif kind is PodGroup:
            self._drop_pod_group(message.api_group, key, message.uid)
        else:
            self._helped(self._cluster.storage_cache.drop(kind, key))

    def _replaced(self, message: Replaced, now_s: float) -> tuple[RecordEvent, ...]:
        kind, items = message.kind, message.items
        if kind is Pod:
            return self._replace_pods(items, now_s)
        if kind is Node:
            self._replace_nodes(items)
        elif kind is Namespace:
            self._cluster.replace_namespaces(items)
        elif kind is PodGroup:
            self._replace_pod_groups(message.api_group, items)
        else:
            self._helped(self._cluster.storage_cache.replace(kind, items))
        return ()

    def _replace_pods(self, pods: tuple[Pod, ...], now_s: float) -> tuple[RecordEvent, ...]:
        listed = {pod.uid for pod in pods}
        for uid in {*self._gang_of, *self._cluster.occupants(), *self._cluster.storage_cache.named()} - listed:
            self._drop_pod(uid)
        self._revive(listed)
        return tuple(event for pod in pods for event in self._apply_pod(pod, now_s))

    def _helped(self, uids: Iterable[str]) -> None:
        """Something changed about the claims of these pods: their groups are looked at again (semantics Q3)."""
        for uid in uids:
            if uid in self._gang_of:
                self._registry.touch(self._gang_of[uid])

    def _revive(self, listed: set[str]) -> None:
        """A member that a full list shows is no ghost."""
        for record in self._registry.gangs.values():
            if not record.ghosts.isdisjoint(listed):
                record.ghosts -= listed
                self._registry.touch(record.id)

    def _apply_pod(self, pod: Pod, now_s: float) -> tuple[RecordEvent, ...]:
        mark = gang_id(pod)
        old_id = self._gang_of.get(pod.uid)
        if mark is not None:
            new_id = mark.id
        elif pod.live and not pod.node_name and pod.scheduler_name in self._names:
            new_id = f"{PLAIN}{pod.key}"
        else:
            new_id = None
        under_way = ""
        if old_id is not None and old_id != new_id:
            under_way = self.gang_of(pod.uid).assumed.get(pod.uid, "")
            self._leave(pod.uid, old_id)
        old = self._registry.gangs[new_id].members.get(pod.uid) if new_id is not None and old_id == new_id else None
        if new_id is not None:
            record = self._registry.gang(new_id, plain=mark is None) if old is None else self._registry.gangs[new_id]
            record.members[pod.uid] = pod
            self._gang_of[pod.uid] = new_id
            if old is None or not _same(old, pod):
                self._registry.touch(new_id)
                record.ghosts.discard(pod.uid)
                if under_way:
                    record.assumed[pod.uid] = under_way  # its labels moved it here while it was being bound
                self._settle_member(record, pod, old)
            if pod.timed_out:
                record.marking.discard(pod.uid)
        self._occupy(pod)
        return self._rejection(pod, old, now_s)

    def _settle_member(self, record: GangRecord, pod: Pod, old: Pod | None) -> None:
        """Drop what the record holds for a member that the change has made void."""
        if pod.node_name or not pod.live:
            record.started = record.started or bool(pod.node_name and pod.live)
            record.assumed.pop(pod.uid, None)
            record.held.pop(pod.uid, None)
            record.retry.discard(pod.uid)
            record.forget_if_lifeless()
        elif pod.uid in record.held and (pod.deleting or pod.gated or (old and old.shape is not pod.shape)):
            del record.held[pod.uid]
            self._cluster.vacate(pod.uid)

    def _occupy(self, pod: Pod) -> None:
        if pod.uid in self._in_flight and (pod.node_name or not pod.live):
            self._settled.add(pod.uid)
        if not pod.live:
            self._cluster.vacate(pod.uid)
            self._cluster.storage_cache.unname(pod.uid)
            return
        self._cluster.storage_cache.name(pod)
        if pod.node_name:
            self._cluster.occupy(pod, pod.node_name)

    def _rejection(self, pod: Pod, old: Pod | None, now_s: float) -> tuple[RecordEvent, ...]:
        """A kubelet turned a member away for good: say so, and keep off that node for a while (semantics B6)."""
        if old is None or not old.live or pod.phase is not Phase.FAILED or not pod.node_name:
            return ()
        if not pod.status_reason.startswith(KUBELET_REJECTIONS) or pod.scheduler_name not in self._names:
            return ()
        group = self._registry.groups.get(self._registry.group_of.get(self._gang_of[pod.uid], ""))
        if group is not None:
            group.avoid[pod.node_name] = now_s + self._avoid_s
            self._queue.wake_at(group.id, now_s + self._avoid_s)
        ref = gang_ref(self._registry.gangs[self._gang_of[pod.uid]]) or pod_ref(pod)
        text = f"the kubelet of node {pod.node_name} rejected pod {pod.key}: {pod.status_reason}"
        return (RecordEvent(ref, EventReason.KUBELET_REJECTED, text, warning=True),)

    def _drop_pod(self, uid: str) -> None:
        old_id = self._gang_of.get(uid)
        if old_id is not None:
            self._leave(uid, old_id)
        self._cluster.vacate(uid)
        self._cluster.storage_cache.unname(uid)

    def _leave(self, uid: str, gang: str) -> None:
        del self._gang_of[uid]
        record = self._registry.gang(gang)
        if uid in record.held:
            self._cluster.vacate(uid)
        was_assumed = uid in record.assumed
        record.forget_member(uid)
        if was_assumed:
            self._unsatisfy_if_none_started(record)

    def _drop_node(self, name: str) -> None:
        self._cluster.drop_node(name)
        for record in self._registry.gangs.values():
            lost = [uid for uid, node in record.held.items() if node == name]
            for uid in lost:
                del record.held[uid]
                self._cluster.vacate(uid)
                self._registry.touch(record.id)

    def _replace_nodes(self, nodes: tuple[Node, ...]) -> None:
        listed = {node.name for node in nodes}
        for name in self._cluster.node_names - listed:
            self._drop_node(name)
        for node in nodes:
            self._cluster.apply_node(node)

    def _apply_pod_group(self, pod_group: PodGroup) -> None:
        record = self._registry.gangs.get(pod_group.id) or self._registry.gang(pod_group.id)
        old = record.pod_groups.get(pod_group.api_group)
        record.pod_groups[pod_group.api_group] = pod_group
        if old is None or _declared(old) != _declared(pod_group):
            self._registry.touch(pod_group.id)

    def _drop_pod_group(self, api_group: str, gang: str, uid: str) -> None:
        record = self._registry.gangs.get(gang)
        if record is None or api_group not in record.pod_groups:
            return
        if not uid or record.pod_groups[api_group].uid == uid:
            del record.pod_groups[api_group]
            self._registry.touch(gang)

    def _replace_pod_groups(self, api_group: str, pod_groups: tuple[PodGroup, ...]) -> None:
        listed = {pod_group.id for pod_group in pod_groups}
        for gang, record in list(self._registry.gangs.items()):
            if api_group in record.pod_groups and gang not in listed:
                self._drop_pod_group(api_group, gang, "")
        for pod_group in pod_groups:
            self._apply_pod_group(pod_group)

    def _outcome(self, outcome: Bound | BindGone | BindFailed, now_s: float) -> tuple[RecordEvent, ...]:
        placement = self._in_flight.pop(outcome.uid, None)
        if placement is None:
            return ()
        is_settled = outcome.uid in self._settled
        self._settled.discard(outcome.uid)
        pod, node = placement.pod, placement.node
        gang = self._gang_of.get(outcome.uid)
        record = self._registry.gangs.get(gang) if gang is not None else None
        group_id = self._registry.group_of.get(gang, "") if gang is not None else ""
        if isinstance(outcome, Bound):
            self._queue.succeeded(group_id)
            if record is not None and record.members[outcome.uid].live:
                record.started = True
            text = f"Successfully assigned {pod.key} to {node}"
            return (RecordEvent(pod_ref(pod), EventReason.SCHEDULED, text, action="Binding"),)
        if is_settled:
            return ()  # an event about the pod came first: where it runs is where it takes room
        self._cluster.vacate(outcome.uid)
        if record is None:
            return ()
        record.assumed.pop(outcome.uid, None)
        self._registry.touch(record.id)
        if isinstance(outcome, BindGone):
            record.ghosts.add(outcome.uid)
            self._unsatisfy_if_none_started(record)
            return ()
        text = f"binding pod {pod.key} to node {node} failed and will be tried again: {outcome.message}"
        record.retry.add(outcome.uid)
        record.faults[outcome.uid] = text
        self._unsatisfy_if_none_started(record)
        if group_id:
            self._queue.back_off(group_id, now_s)
        return (RecordEvent(pod_ref(pod), EventReason.FAILED_BINDING, text, action="Binding", warning=True),)

    def _unsatisfy_if_none_started(self, record: GangRecord) -> None:
        """When no bind of a permitted gang went through nothing has started: it is a whole gang again (decision 10)."""
        if not record.assumed and not record.started:
            record.satisfied = False
            record.retry.clear()


def _same(old: Pod, new: Pod) -> bool:
    """Whether an update changes nothing that a decision or a status looks at (our own condition writes do not)."""
    return (
        old.shape is new.shape
        and old.node_name == new.node_name
        and old.phase == new.phase
        and old.deleting == new.deleting
        and old.gated == new.gated
        and old.timed_out == new.timed_out
        and old.gang_metadata == new.gang_metadata
        and old.scheduler_name == new.scheduler_name
        and old.priority == new.priority
        and old.native_group == new.native_group
        and old.labels == new.labels
        and old.claims == new.claims
    )


def _declared(pod_group: PodGroup) -> tuple[object, ...]:
    return (
        pod_group.uid,
        pod_group.generation,
        pod_group.gang_metadata,
        pod_group.min_member,
        pod_group.min_resources,
        pod_group.schedule_timeout_s,
        pod_group.deleting,
        pod_group.problems,
    )
