"""Event handlers: apply messages to the state.

Invariant: messages are applied completely and in order, and applying one never fails: an outdated
or impossible message is ignored, and an object that cannot be applied is set aside (semantics I8).
No decisions are made here; changed groups are planned after the next `Registry.refresh`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import assert_never

from gangsched.api import keys
from gangsched.api.gang_spec import preemption_delay
from gangsched.api.owner_declarations import owner_problem
from gangsched.api.run_time import run_time
from gangsched.api.starts import parse_start
from gangsched.model.disruption import PodDisruptionBudget
from gangsched.model.objects import Namespace, Node, Phase, Pod, PodGroup, Service, stand_in
from gangsched.model.owners import OwnerObject
from gangsched.model.protocol import (
    Applied,
    BindFailed,
    BindGone,
    BindUndecided,
    Bound,
    ClaimsReleased,
    Event,
    Followed,
    Gone,
    Object,
    Outcome,
    RecordEvent,
    Replaced,
    StampsGuarded,
    Unread,
)
from gangsched.model.provisioning import ProvisioningRequest
from gangsched.model.reasons import EventReason, Reason
from gangsched.state.avoided import AvoidCause, AvoidedNode, avoid
from gangsched.state.bad_nodes import BadNodes
from gangsched.state.cluster import Cluster
from gangsched.state.gangs import GangRecord
from gangsched.state.group_record import QueueCause
from gangsched.state.groups import Registry
from gangsched.state.member_store import MemberStore
from gangsched.state.members import Change, Member, State
from gangsched.state.owner_gangs import NamespaceLabels
from gangsched.state.pod_gangs import PodGangs
from gangsched.state.preemption.disruption_budgets import DisruptionBudgets
from gangsched.state.queueing.queue import Queue
from gangsched.state.reporting.authorship import is_reported
from gangsched.state.reporting.gang_events import gang_ref, pod_ref
from gangsched.state.reporting.gang_numbers import GangCounts, Loss
from gangsched.state.reporting.stored import may_be_of_another, show
from gangsched.state.reserving.overruns import Overruns
from gangsched.state.rule_set import Rules
from gangsched.state.set_aside import SetAside

ANSWERS: dict[type, Change] = {
    Bound: Change.ANSWERED_BOUND,
    BindGone: Change.ANSWERED_GONE,
    BindFailed: Change.ANSWERED_FAILED,
}
FAILED = frozenset({State.KEPT, State.RETRY})
WAITS = frozenset({State.PENDING, State.RETRY})


class EventHandlers:
    """Applies messages to the members and to other parts of the state."""

    def __init__(
        self,
        members: MemberStore,
        cluster: Cluster,
        registry: Registry,
        queue: Queue,
        disruption_budgets: DisruptionBudgets,
        overruns: Overruns,
        counts: GangCounts,
        rules: Rules,
    ) -> None:
        self._members = members
        self._cluster = cluster
        self._registry = registry
        self._queue = queue
        self._disruption_budgets = disruption_budgets
        self._overruns = overruns
        self.bad_nodes = BadNodes(registry, cluster, queue, rules)
        self._counts = counts
        self._rules = rules
        self._names = rules.scheduler_names
        self._avoid_s = rules.avoid_s
        self._bind_retry_keep_s = rules.bind_retry_keep_s
        self.set_aside = SetAside()

        #: The gangs of each PodGroup that declares several, by API group and id of the object.
        self._gangs_of: dict[tuple[str, str], frozenset[str]] = {}
        self.pod_gangs = PodGangs(registry, rules)
        #: Gangs whose PodGroup stores another status than was reported, until `take_restated`.
        self._restated: set[str] = set()
        #: Gangs of whose start a status told, until `settle_starts`.
        self._recalled: set[str] = set()

    def settle_starts(self) -> None:
        """Of the starts that statuses told of, nothing more is to come: this process leads."""
        unsettled = set()
        for gang_id in self._recalled:
            record = self._registry.gangs.get(gang_id)
            if record is not None and not record.start.settle():
                unsettled.add(gang_id)

        self._recalled = unsettled

    def take_restated(self) -> set[str]:
        """Ids of groups with a PodGroup that stores another status than was reported, since the
        last call.
        """
        group_of = self._registry.group_of
        groups = {group_of[gang_id] for gang_id in self._restated if gang_id in group_of}
        self._restated = set()
        return groups

    def apply(
        self,
        message: Event | Outcome | BindUndecided | ClaimsReleased,
        *,
        now_s: float,
    ) -> tuple[RecordEvent, ...]:
        """Apply one message; return Events that must be written regardless of the next plan."""
        match message:
            case Applied(item=item):
                return self._applied(item, now_s)
            case Bound() | BindGone() | BindFailed():
                return self._outcome(message, now_s)
            case Gone():
                self._gone(message, now_s)
            case Replaced():
                return self._replaced(message, now_s)
            case Unread():
                self._unread(message, now_s)
            case Followed(api_group=api_group, live=live):
                self._touch(self._registry.pod_group_names.follow(api_group, live=live))
            case StampsGuarded(since_s=since_s):
                self._members.guard_stamps(since_s)
            case BindUndecided():
                self._undecided(message)
            case ClaimsReleased(versions=versions):
                self._cluster.storage_cache.wrote(versions)
            case _:
                assert_never(message)

        return ()

    def _unread(self, message: Unread, now_s: float) -> None:
        """Go on without the objects of a kind that cannot be read."""
        kind = message.kind
        forbidden = message.forbidden

        if kind is PodGroup:
            names = self._registry.pod_group_names
            self._touch(names.forbid(message.api_group, forbidden=forbidden))
            self._replace_pod_groups(message.api_group, (), now_s, served=False)
        elif kind is PodDisruptionBudget:
            self._disruption_budgets.miss()
        elif kind is Service:
            self._cluster.replicas.replace(())
        elif issubclass(kind, OwnerObject):
            self.pod_gangs.owners.miss(kind, now_s)
        else:
            self._cluster.storage_cache.miss(kind, forbidden=forbidden)
            self._stored()

    def _applied(
        self,
        item: Object,
        now_s: float,
        *,
        listed: bool = False,
    ) -> tuple[RecordEvent, ...]:
        """Apply one object. Whatever that raises is about this object alone, and must not end the
        process (I8).
        """
        try:
            events = self._apply_object(item, now_s, listed=listed)
        # Everything, since a crash would come back with each restart, which reads the same object
        # again.
        except Exception as error:
            self._counts.set_aside += 1
            if isinstance(item, Pod):
                self._stand_in(item)
            elif isinstance(item, Node):
                self._cluster.apply_node(Node(name=item.name, uid=item.uid))  # which offers nothing

            return self.set_aside.add(item, error)

        self.set_aside.applied(item)
        return events

    def _stand_in(self, pod: Pod) -> None:
        """Take a pod out, however far its change came; if it runs, a stand-in takes all room of its
        node (I8).
        """
        self._members.expel((pod.uid,), pod.node_name)
        if pod.node_name and pod.live:
            self._members.admit(stand_in(pod.uid, pod.namespace, pod.name, pod.node_name), None)

    def _apply_object(self, item: Object, now_s: float, *, listed: bool) -> tuple[RecordEvent, ...]:
        match item:
            case Pod():
                return self._apply_pod(item, now_s, listed=listed)
            case Node():
                before = self._cluster.nodes.get(item.name)
                self._cluster.apply_node(item)

                if before is None or before.labels != item.labels:
                    self._moved_domain(item.name)
            case Namespace():
                self._label_namespace(item.name, item.labels)
            case PodGroup():
                self._apply_pod_group(item, now_s)
            case PodDisruptionBudget():
                self._disruption_budgets.apply(item)
            case Service():
                self._cluster.replicas.apply(item)
            case OwnerObject():
                self.pod_gangs.owners.apply(item, now_s)
            case ProvisioningRequest():
                pass  # `CapacityAsks` has read it
            case _:
                self._cluster.storage_cache.apply(item)
                self._stored()

        return ()

    def _label_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """A namespace has these labels, which may ask for the gangs of owners, or is gone."""
        self._cluster.label_namespace(name, labels)
        if self.pod_gangs.owners.label_namespace(name, labels or {}):
            concerned = self._members.of_namespaces({name})
            self.pod_gangs.owners.move(member.pod for member in concerned)

    def _label_namespaces(self, labels: NamespaceLabels, now_s: float) -> None:
        """All namespaces, with their labels."""
        self._cluster.label_namespaces(labels)
        changed = self.pod_gangs.owners.label_namespaces(labels)

        # The first list, before which nothing is planned: a plan would start some of them alone.
        for member in self._members.of_namespaces(changed):
            self._applied(member.pod, now_s)

    @property
    def is_behind(self) -> bool:
        """Whether pods still have to be assigned again."""
        return self.pod_gangs.is_behind or self._cluster.served.is_behind

    def assign(self, now_s: float) -> None:
        """Assign a bounded number of pods again whose gang may be another one now, or what devices
        serve of their resources.
        """
        self._apply_again(self.pod_gangs.take_moving(), now_s)
        self._claim_some(now_s)

    def _apply_again(self, uids: Iterable[str], now_s: float) -> None:
        for uid in uids:
            if (member := self._members.get(uid)) is not None:
                self._applied(member.pod, now_s)

    def _claim_some(self, now_s: float) -> None:
        """Give some waiting pods the claims that they need because of other classes of devices."""
        served = self._cluster.served
        self._apply_again(served.take_outdated(self._with_extended), now_s)
        self._show_served()

    def _with_extended(self) -> Iterator[Pod]:
        """The waiting pods that request extended resources."""
        for member in self._members.all():
            pod = member.pod
            if pod.shape.extended and not pod.node_name:
                yield pod

    def _show_served(self) -> None:
        """Let nodes offer through devices what pods ask for."""
        if self._cluster.served.shows_more():
            self._cluster.serve()

    def _gone(self, message: Gone, now_s: float) -> None:
        kind = message.kind
        key = message.key
        self.set_aside.gone(kind, key)

        if kind is Pod:
            self._drop_pod(key)
        elif kind is Node:
            self._drop_node(key)
        elif kind is Namespace:
            self._label_namespace(key, None)
        elif kind is PodGroup:
            self._drop_pod_group(message.api_group, key, message.uid)
        elif kind is PodDisruptionBudget:
            self._disruption_budgets.drop(key)
        elif kind is Service:
            self._cluster.replicas.drop(key)
        elif issubclass(kind, OwnerObject):
            self.pod_gangs.owners.drop(kind, key)
        else:
            self._cluster.storage_cache.drop(kind, key)
            self._stored()

    def _replaced(self, message: Replaced, now_s: float) -> tuple[RecordEvent, ...]:
        kind = message.kind
        items = message.items

        if kind is Pod:
            return self._replace_pods(items, now_s)
        if kind is Node:
            return self._replace_nodes(items, now_s)

        if kind is Namespace:
            labels = {item.name: item.labels for item in items}
            self._label_namespaces(labels, now_s)
        elif kind is PodGroup:
            self._touch(self._registry.pod_group_names.forbid(message.api_group, forbidden=False))
            return self._replace_pod_groups(message.api_group, items, now_s)
        elif kind is PodDisruptionBudget:
            self._disruption_budgets.replace(items)
        elif kind is Service:
            self._cluster.replicas.replace(items)
        elif issubclass(kind, OwnerObject):
            self.pod_gangs.owners.replace(kind, items, now_s)
        else:
            self._cluster.storage_cache.replace(kind, items)
            self._stored()
            # The first list, as of namespaces.
            while self._cluster.served.is_behind:
                self._claim_some(now_s)

        return ()

    def _replace_pods(self, pods: tuple[Pod, ...], now_s: float) -> tuple[RecordEvent, ...]:
        # Deletions that the watch missed while it was broken off.
        for uid in self._members.uids() - {pod.uid for pod in pods}:
            self._drop_pod(uid)

        return tuple(event for pod in pods for event in self._applied(pod, now_s, listed=True))

    def _drop_pod(self, uid: str) -> None:
        self.pod_gangs.owners.left(uid)
        # its member is no more, or on no node, once `drop` raises
        node = self._members.node_of(uid)
        member = self._members.get(uid)
        if member is not None and member.state is State.BOUND:
            self._lost(member, Loss.DELETED)

        try:
            self._members.drop(uid)
        except Exception:  # the pod is gone, so nothing is reported about it
            self._counts.set_aside += 1
            self._members.expel((uid,), node)

    def look_at_claims(self, most: int | None) -> None:
        """Look again at gangs whose claims changed (semantics Q3), in at most so many steps; at all
        if None.
        """
        self._registry.touch_unhurried(self._cluster.storage_cache.waits.take(most))

    def _stored(self) -> None:
        """Claims, volumes or devices changed, and perhaps which extended resources are served by
        devices.
        """
        self._cluster.reoffer()
        if self._cluster.served.reclassified():
            self._cluster.serve()

    def _apply_pod(
        self,
        pod: Pod,
        now_s: float,
        *,
        listed: bool = False,
    ) -> tuple[RecordEvent, ...]:
        """A pod exists or has changed; one in a full list is not gone, whatever the answer to its
        bind was.
        """
        if pod.shape.extended and not pod.node_name and pod.scheduler_name in self._names:
            pod = self._cluster.served.claimed(pod)
            self._show_served()

        gang_id, plain = self.pod_gangs.gang_of(pod, now_s)
        member = self._members.get(pod.uid)
        if member is not None and member.pod.scheduler_name != pod.scheduler_name:
            self._drop_pod(pod.uid)  # the field is immutable, so whatever shows this is another pod
            member = None

        # The answer to a bind said that it is gone, and the list says that it exists: the list was
        # read later.
        is_back = listed and member is not None and member.state is State.DELETED
        if (
            member is not None
            and member.gang == gang_id
            and not is_back
            and self._same(member.pod, pod)
        ):
            self._members.renew(member, pod)
            self._overruns.note(pod, self._registry.gangs.get(gang_id))
            return ()

        # Only pods without a controller are spread by Services, so other namespaces need no counts.
        if plain and not pod.replica_of:
            self._cluster.replicas.follow(pod.namespace)

        gang = self._registry.gang(gang_id, plain=plain) if gang_id else None
        self._overruns.note(pod, gang)

        if member is None:
            self._members.admit(pod, gang)
            self._note_end(pod, gang)
            if plain and (pod.run_time_metadata or pod.gang_metadata):
                return self._bad_values(pod)

            return ()

        # In another gang its rejection is no news about that gang.
        old = member.pod if gang is not None and member.gang == gang_id else None
        was_live = member.pod.live
        was_bound = member.state is State.BOUND
        self._members.see(member, pod, gang)
        if was_live:
            self._note_end(pod, gang)
        if was_bound:
            self._note_loss(member)

        if old is not None and gang is not None:
            return self._rejection(pod, old, gang, now_s)

        return ()

    def _note_loss(self, member: Member) -> None:
        """Count the loss of a member that was bound, once (L1)."""
        if member.state is State.TERMINATING:
            self._lost(member, Loss.DELETED)
        elif member.pod.phase is Phase.FAILED:
            self._lost(member, Loss.REJECTED if member.pod.rejection else Loss.FAILED)

    def _lost(self, member: Member, cause: Loss) -> None:
        gang = self._registry.gangs.get(member.gang)
        if gang is None or gang.plain or not gang.ours or member.is_lost:
            return

        member.is_lost = True
        self._counts.losses[cause] += 1

    def _note_end(self, pod: Pod, gang: GangRecord | None) -> None:
        """A member that gangsched bound has ended, on a node that may have killed it (L8)."""
        if pod.live or gang is None or gang.plain or not pod.node_name:
            return

        member = self._members.get(pod.uid)
        if member is not None and (member.permit or pod.permitted) is not None:
            self.bad_nodes.ended(gang.id, pod)

    def _same(self, old: Pod, new: Pod) -> bool:
        """Whether nothing has changed that is counted or decided on; where our own pods are
        nominated, we know.
        """
        # The nominations of our own pods are our own writes, which the watch only repeats.
        return _same(old, new) and (
            old.nominated_node == new.nominated_node or new.scheduler_name in self._names
        )

    def _bad_values(self, pod: Pod) -> tuple[RecordEvent, ...]:
        """Events about bad values of a plain pod; for members, the gang's condition names them
        (semantics E4).
        """
        run_times = run_time(pod.run_time_metadata, where=f"pod {pod.key}").problems
        _, delays = preemption_delay(pod, self._registry.defaults)
        owner = owner_problem(pod, self._rules.owner_gangs)

        return tuple(
            RecordEvent(pod_ref(pod), Reason.INVALID_GANG.value, problem.text, warning=True)
            for problem in (*run_times, *delays, *(() if owner is None else (owner,)))
        )

    def _rejection(
        self,
        pod: Pod,
        old: Pod,
        gang: GangRecord,
        now_s: float,
    ) -> tuple[RecordEvent, ...]:
        """A kubelet rejected a member: report it, and avoid that node for a while
        (semantics B6).
        """
        if (
            not old.live
            or not pod.rejection
            or not pod.node_name
            or pod.scheduler_name not in self._names
        ):
            return ()

        self._counts.kubelet_rejected += 1
        group = self._registry.groups.get(self._registry.group_of.get(gang.id, ""))
        if group is not None:
            row = AvoidedNode(AvoidCause.REJECTED, now_s + self._avoid_s)
            avoid(group.avoid, pod.node_name, row)

        ref = gang_ref(gang) or pod_ref(pod)
        text = f"the kubelet of node {pod.node_name} rejected pod {pod.key}: {pod.rejection}"
        return (RecordEvent(ref, EventReason.KUBELET_REJECTED, text, warning=True),)

    def _moved_domain(self, node: str) -> None:
        """A node came, went or has other labels: who waits beside its pods may be required to be
        elsewhere.
        """
        for uid in self._cluster.residents(node):
            group = self._registry.groups.get(
                self._registry.group_of.get(self._members[uid].gang, "")
            )
            if group is not None and any(
                self._registry.gangs[gang].of(*WAITS) for gang in group.gangs
            ):
                self._queue.activate(group.id, QueueCause.NODE_MOVED)

    def _drop_node(self, name: str) -> None:
        self._cluster.drop_node(name)
        self._moved_domain(name)
        # Their claims keep them to a node that never comes (B7).
        self._cluster.storage_cache.node_gone(name)
        residents = [self._members[uid] for uid in self._cluster.residents(name)]
        for member in residents:
            if member.state is State.BOUND:
                self._lost(member, Loss.NODE)

        self._members.release(residents)

    def _replace_nodes(self, nodes: tuple[Node, ...], now_s: float) -> tuple[RecordEvent, ...]:
        listed = {node.name for node in nodes}
        for name in self._cluster.nodes.keys() - listed:
            self._drop_node(name)

        return tuple(event for node in nodes for event in self._applied(node, now_s))

    def _apply_pod_group(self, pod_group: PodGroup, now_s: float) -> None:
        """A PodGroup exists or has changed; one of several gangs is that of each, and of none that
        it has no more.
        """
        alone = frozenset({pod_group.id})
        before = self._gangs_of.get((pod_group.api_group, pod_group.id), alone)

        gangs = frozenset(part.id for part in pod_group.parts)
        # An object that could not be read, or declared no gang, was a gang itself.
        for gang in before - (gangs or alone):
            self._forget_pod_group(pod_group.api_group, gang, pod_group.uid)

        if not gangs:
            self._gangs_of.pop((pod_group.api_group, pod_group.id), None)
            self._declare(pod_group, now_s)

            if pod_group.invalid:
                # None of its gangs is known by name; their pods are told what is wrong with the
                # object.
                missing = self._registry.pod_group_names.missing_in(
                    pod_group.namespace,
                    pod_group.api_group,
                )
                self._touch(missing)

            return

        self._gangs_of[pod_group.api_group, pod_group.id] = gangs
        for part in pod_group.parts:
            self._declare(part, now_s)

    def _declare(self, pod_group: PodGroup, now_s: float) -> None:
        record = self._registry.gangs.get(pod_group.id) or self._registry.gang(pod_group.id)
        old = record.pod_groups.get(pod_group.api_group)

        record.pod_groups[pod_group.api_group] = pod_group
        if pod_group.api_group == keys.NATIVE:
            self._cluster.storage_cache.declare(pod_group.id, pod_group)

        is_restated = old is None or old.status != pod_group.status
        if is_restated and may_be_of_another(record, pod_group, now_s):
            self._learn_status(record, pod_group)

        if self._registry.definitions.saw(pod_group):
            self._touch(self._gangs_declared_in(pod_group.api_group))

        if old is None:
            self._touch(self._registry.pod_group_names.add(pod_group.id, pod_group.api_group))
        elif old.status != pod_group.status and show(record, pod_group):
            self._restated.add(record.id)

        if old is None or old.declaration != pod_group.declaration:
            self._redeclared(record)
            self.pod_gangs.sub_groups.changed(record.id, old, pod_group)

    def _learn_status(self, record: GangRecord, pod_group: PodGroup) -> None:
        """Learn from a status what only another process knows: of a start, and whose gang it is."""
        start = record.start
        before = start.to_dict()
        if pod_group.api_group in keys.STORES_STARTS:
            has_reported = record.reported.first is not None
            start.recall(parse_start(pod_group.status), has_reported=has_reported)
            self._recalled.add(record.id)

        # Whose gang it is only its members tell, if it has any.
        may_be_ours = not (record.ours or record.members) and is_reported(pod_group)
        # Most statuses are what this process wrote, and no reason to plan again.
        if start.to_dict() != before or may_be_ours:
            self._registry.touch(record.id)

    def _gangs_declared_in(self, api_group: str) -> list[str]:
        """The gangs with a PodGroup of an API group."""
        found = []
        for record in self._registry.gangs.values():
            if api_group in record.pod_groups:
                found.append(record.id)

        return found

    def _drop_pod_group(self, api_group: str, name: str, uid: str) -> None:
        gangs = self._gangs_of.get((api_group, name), frozenset({name}))
        forgotten = [self._forget_pod_group(api_group, gang, uid) for gang in gangs]
        if any(forgotten):
            self._gangs_of.pop((api_group, name), None)

    def _forget_pod_group(self, api_group: str, gang: str, uid: str) -> bool:
        """The gang has no PodGroup of the API group any more; False if that has another uid."""
        record = self._registry.gangs.get(gang)
        if record is None or api_group not in record.pod_groups:
            return False
        # The object was created again, and the message about the old one came late.
        if uid and record.pod_groups[api_group].uid != uid:
            return False

        self.pod_gangs.sub_groups.changed(gang, record.pod_groups.pop(api_group), None)
        if api_group == keys.NATIVE:
            self._cluster.storage_cache.declare(gang, None)

        self._redeclared(record)
        self._touch(self._registry.pod_group_names.remove(gang, api_group))
        return True

    def _redeclared(self, record: GangRecord) -> None:
        """The PodGroup of a gang says something else, perhaps of its members' run time."""
        if record.members:
            self._registry.touch(record.id)
        else:  # a parent: the gangs of its tree are read in turns, whoever edits a hundred of them
            self._registry.touch_unhurried((record.id,))

        for member in record.members.values():
            self._cluster.touch(member.node)
            self._overruns.note(member.pod, record)

    def _touch(self, gangs: Iterable[str]) -> None:
        """What the messages of these gangs say of PodGroups has changed."""
        self._registry.touch_unhurried(gangs)

    def _replace_pod_groups(
        self,
        api_group: str,
        pod_groups: tuple[PodGroup, ...],
        now_s: float,
        *,
        served: bool = True,
    ) -> tuple[RecordEvent, ...]:
        self._touch(self._registry.pod_group_names.serve(api_group, served=served))
        if api_group == keys.COMPOSITE:
            self._registry.parents_changed()

        listed = {part.id for pod_group in pod_groups for part in pod_group.parts or (pod_group,)}
        for gang, record in list(self._registry.gangs.items()):
            of_group = record.pod_groups.get(api_group)
            if of_group is not None and gang not in listed and not of_group.is_of_pods:
                self._forget_pod_group(api_group, gang, "")

        self._gangs_of = {
            key: gangs for key, gangs in self._gangs_of.items() if key[0] != api_group
        }
        return tuple(event for pod_group in pod_groups for event in self._applied(pod_group, now_s))

    def _undecided(self, bind: BindUndecided) -> None:
        """A pod that may be bound any moment takes its room until that is known (semantics B3)."""
        member = self._members.get(bind.uid)
        # The watch may have shown it bound meanwhile, or gone.
        if member is not None and member.state is State.PENDING:
            self._members.change(member, Change.SEND_BIND, node=bind.node)
            member.permit = bind.permitted
            member.is_proven = bind.permitted is not None

    def _outcome(
        self,
        outcome: Bound | BindGone | BindFailed,
        now_s: float,
    ) -> tuple[RecordEvent, ...]:
        member = self._members.get(outcome.uid)
        if member is None:
            return ()

        before = member.state
        self._members.change(member, ANSWERS[type(outcome)])
        pod = member.pod
        gang = self._registry.gangs.get(member.gang)
        group_id = self._registry.group_of.get(member.gang, "")

        if isinstance(outcome, Bound):
            self._queue.succeeded(group_id)
            text = f"Successfully assigned {pod.key} to {outcome.node}"
            if member.outside:
                text += f", outside {member.outside}, which had no room"

            return (RecordEvent(pod_ref(pod), EventReason.SCHEDULED, text, action="Binding"),)

        if gang is None or member.state is before:
            return ()  # the watch was faster: where the pod runs is where it takes room
        if member.state not in FAILED:
            return ()

        if member.state is State.KEPT:
            member.keeps_until_s = member.keeps_until_s or now_s + self._bind_retry_keep_s

        text = (
            f"binding pod {pod.key} to node {outcome.node} failed and will be tried again:"
            f" {outcome.message}"
        )
        member.fault = text

        if group_id:
            self._queue.back_off(group_id, now_s)

        return (
            RecordEvent(
                pod_ref(pod),
                EventReason.FAILED_BINDING,
                text,
                action="Binding",
                warning=True,
            ),
        )


def _same(old: Pod, new: Pod) -> bool:
    """Whether an update is irrelevant to decisions and statuses, such as our own
    condition writes.
    """
    return (
        # The cheapest and most telling first: the decoder interns shapes.
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
        and old.run_time_metadata == new.run_time_metadata
    )
