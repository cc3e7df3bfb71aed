"""ProvisioningRequests: when a gang asks an autoscaler for all its nodes at once, and what follows
from the answers (semantics E10).

Invariant: pure bookkeeping between plans; off, it does nothing. A request is created and deleted
only by the actions that `due` returns, and belongs to one group, or is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from math import ceil, inf
from typing import Final

from gangsched.model.capacity_facts import NodesAskedFor, NotAsking, NotProvided, Provided
from gangsched.model.gang import Gang, namespace_of
from gangsched.model.objects import Shape
from gangsched.model.plan import Verdict
from gangsched.model.protocol import (
    NodesRequested,
    ProvisioningAvailable,
    ProvisioningOrder,
    RequestNodes,
    WithdrawNodes,
)
from gangsched.model.provisioning import ENDED, NodeFence, ProvisioningRequest, ProvisioningState
from gangsched.model.reasons import Reason
from gangsched.state.autoscaling.added_nodes import AddedNodes
from gangsched.state.autoscaling.asking import wants
from gangsched.state.autoscaling.back_offs import BackOff, BackOffs
from gangsched.state.autoscaling.new_nodes import NodeChanges
from gangsched.state.autoscaling.node_request import NodeRequest, RequestStep
from gangsched.state.autoscaling.pod_sets import MOST_POD_SETS, RequestOwner, orders
from gangsched.state.autoscaling.request_book import ProvisioningRequests
from gangsched.state.cluster import Cluster
from gangsched.state.group_record import GroupRecord
from gangsched.state.groups import Registry
from gangsched.state.member_store import MemberStore
from gangsched.state.namespace_turns import NamespaceTurns
from gangsched.state.queueing.queue import Queue
from gangsched.state.reporting.gang_events import gang_ref
from gangsched.state.rule_set import ProvisioningRules
from gangsched.state.timers import Timers

ANSWERED_WITHIN_S: Final = 60.0
"""An autoscaler that knows the class accepts a request so soon, or one of the requests before
it.
"""
CREATED_WITHIN_S: Final = 600.0
"""Orders of many gangs are carried out one after the other."""
REST_S: Final = 600.0
"""How long a group asks as any other pod, where no autoscaler answers or the nodes do not
suffice.
"""
CAPACITY_S: Final = 3_600.0
"""How long an autoscaler may try to find capacity, without a patience of its own."""
EVICTS_NOBODY_S: Final = 3_600.0
"""How long a group evicts nobody at most since it waits for the nodes of a request."""
LOOKS_PER_TURN: Final = 10
"""Each may look at thousands of new nodes."""
POD: Final = "Pod"
NO_CLASS: Final = "none"
"""The class of gangs that ask for nothing although the setting names a class."""
DECIDED: Final = {
    ProvisioningState.PROVISIONED: RequestStep.PROVISIONED,
    ProvisioningState.ACCEPTED: RequestStep.ACCEPTED,
    ProvisioningState.NOT_YET: RequestStep.ACCEPTED,
}
ORDER: Final = (
    ProvisioningState.FAILED,
    ProvisioningState.EXPIRED,
    ProvisioningState.REVOKED,
    ProvisioningState.NEW,
    ProvisioningState.NOT_YET,
    ProvisioningState.ACCEPTED,
    ProvisioningState.PROVISIONED,
)
"""The state of a group's requests is the first of their states."""
ASKING: Final = frozenset({RequestStep.ASKED, RequestStep.ACCEPTED, RequestStep.PROVISIONED})
"""Steps in which the API server has requests of the group, or gets them soon."""
DIFFERENT_CLASSES: Final = "its gangs name different provisioning classes"
TOO_MANY_KINDS: Final = f"its pods are of more than {MOST_POD_SETS} kinds"
TOO_OFTEN: Final = "too many requests of its namespace have ended without a start"


@dataclass(frozen=True, slots=True)
class _Clocks:
    now_s: float
    wall_s: float

    def wall_of(self, at_s: float) -> int:
        """The epoch second at a monotonic one."""
        return int(self.wall_s + at_s - self.now_s)


class Provisioning:
    """`changed` is called with a group whose members get another reason."""

    def __init__(
        self,
        members: MemberStore,
        registry: Registry,
        cluster: Cluster,
        queue: Queue,
        rules: ProvisioningRules,
        requests: ProvisioningRequests,
        changed: Callable[[GroupRecord, float], None],
    ) -> None:
        self._members = members
        self._registry = registry
        self._queue = queue
        self._rules = rules
        self._changed = changed
        self.requests = requests
        self._added = AddedNodes(registry, cluster)
        self._back_offs = BackOffs()
        self._due = Timers()
        #: Groups that are due, and looked at in turns of their namespaces.
        self._looking = NamespaceTurns()
        #: When `due` was called last.
        self._looked_s = 0.0
        #: The group of each request that is wanted, by key.
        self._group_of: dict[str, str] = {}
        #: When a request that no group wants is deleted.
        self._unwanted = Timers()
        self._actions: list[ProvisioningOrder] = []
        #: Why nothing can be asked for, "" if it can.
        self._obstacle = ""
        #: By class: when an autoscaler was seen to accept a request.
        self._accepted_s: dict[str, float] = {}
        #: Groups whose nodes may still come.
        self._provisioned: set[str] = set()
        self._changes = NodeChanges(cluster)

    # --- what happens ----------------------------------------------------------------------------

    def committed(self, group: GroupRecord, verdict: Verdict, now_s: float) -> None:
        """Record a committed verdict."""
        if not self._rules.is_on:
            return

        classes = self._classes_of(group)
        lacks_room = verdict.reason is Reason.UNSCHEDULABLE and not verdict.binds
        if not lacks_room or not classes or self._has_started(group):
            self.gone(group, now_s, started=bool(verdict.binds))
            return

        gangs = [self._registry.view(gang) for gang in group.gangs]
        owners = self._owners(group)
        what, shapes = wants(gangs)
        before = group.node_request
        # A request goes with its owner: with the oldest pod, if there is no PodGroup.
        if before is not None and before.wants == (what, classes, owners):
            return

        self.gone(group, now_s)
        asked = self._orders(gangs, owners, classes)
        if isinstance(asked, str):
            # It cannot be asked for as it is: its pods ask for single nodes.
            group.provisioning = NotAsking(Reason.UNSCHEDULABLE, NotProvided("", asked))
            self._changed(group, now_s)
        elif asked:
            self._begin(group, asked, (what, classes, owners), shapes, now_s)

    def _orders(
        self,
        gangs: list[Gang],
        owners: Mapping[str, RequestOwner],
        classes: frozenset[str],
    ) -> dict[str, RequestNodes] | str:
        """What is to be created for a group by key, or why nothing can be."""
        if len(classes) > 1:
            return DIFFERENT_CLASSES

        (class_name,) = classes
        asked = orders(gangs, owners, class_name, self.requests.requested_by)
        return TOO_MANY_KINDS if asked is None else asked

    def _begin(
        self,
        group: GroupRecord,
        asked: dict[str, RequestNodes],
        what: object,
        shapes: frozenset[Shape],
        now_s: float,
    ) -> None:
        """Follow the requests of a group, which are made soon or exist already."""
        request = NodeRequest(
            wants=what,
            shapes=shapes,
            orders=asked,
            since_s=now_s,
            until_s=now_s + self._rules.after_s,
        )
        group.node_request = request
        for key in asked:
            self._group_of[key] = group.id
            self._unwanted.drop(key)

        back_off = self._back_offs.of_gang(group.id, now_s)
        if self._known(request):
            # An earlier process made it.
            self._go(request, RequestStep.ASKED, now_s, ANSWERED_WITHIN_S)
            request.is_made = True
        elif back_off is not None and back_off.until_s > request.until_s:
            self._back_off(request, back_off, now_s)

        self._due.set(group.id, now_s)

    @staticmethod
    def _back_off(request: NodeRequest, back_off: BackOff, now_s: float) -> None:
        request.step = back_off.step
        request.since_s = now_s
        request.until_s = back_off.until_s
        request.why = back_off.why

    def answered(self, answer: NodesRequested | ProvisioningAvailable, now_s: float) -> None:
        """Record what became of an order, or whether any can be carried out."""
        if isinstance(answer, ProvisioningAvailable):
            self._obstacle = answer.obstacle
            for group_id in {*self._group_of.values()}:
                self._begin_again(group_id, now_s)

            return

        group = self._registry.groups.get(self._group_of.get(answer.key, ""))
        request = group.node_request if group is not None else None
        if group is None or request is None or request.step is not RequestStep.ASKED:
            return

        if answer.error:
            request.message = answer.error
            self._retry(group, request, "it could not be created", now_s)
        elif not request.is_made:
            # From now on somebody can accept it.
            request.is_made = True
            self._go(request, RequestStep.ASKED, now_s, ANSWERED_WITHIN_S)
            self._due.set(group.id, now_s)

    def _begin_again(self, group_id: str, now_s: float) -> None:
        """Whether requests can be made has changed."""
        self._due.set_sooner(group_id, now_s)
        request = self._registry.groups[group_id].node_request
        if request is not None and request.step is RequestStep.WAITING:
            request.until_s = now_s + self._rules.after_s

    def gone(self, group: GroupRecord, now_s: float, *, started: bool = False) -> None:
        """Withdraw what was asked for a group that has `started`, asks for something else, or is
        gone.
        """
        group.provisioning = None
        group.nodes_until_s = 0
        if started:
            self._back_offs.started(group.id)

        request = group.node_request
        if request is None:
            return

        if request.step in ASKING and not started:
            self._back_offs.changed(group.id, request.namespaces, now_s)

        self._withdraw(request)
        self._end_fence(group, request)
        for key in request.orders:
            if self._group_of.get(key) == group.id:
                del self._group_of[key]

        group.node_request = None
        self._due.drop(group.id)
        self._looking.discard(namespace_of(group.id), group.id)

    def changed(self, group: GroupRecord, now_s: float) -> None:
        """Withdraw what was asked for a group of which no gang waits: nothing is planned for it."""
        if group.node_request is not None and self._has_started(group):
            self.gone(group, now_s)

    def due(self, now_s: float, wall_s: float) -> list[ProvisioningOrder]:
        """Actions that are due now."""
        if not self._rules.is_on:
            return []

        self._looked_s = now_s
        self._follow_requests(now_s)
        self._follow_nodes(now_s)
        clocks = _Clocks(now_s, wall_s)

        for group_id in self._due.take_due(now_s):
            self._looking.add(namespace_of(group_id), group_id)

        for group_id in self._looking.take(LOOKS_PER_TURN):
            group = self._registry.groups.get(group_id)
            if group is not None and group.node_request is not None:
                self._look(group, group.node_request, clocks)

        for key in self._unwanted.take_due(now_s):
            if key not in self._group_of and key in self.requests.known:
                self._delete(self.requests.known[key])

        self._back_offs.forget(now_s)
        actions = self._actions
        self._actions = []
        return actions

    def fenced(self, now_s: float) -> tuple[NodeFence, ...]:
        """The nodes that were added for groups which have not started on them yet."""
        return self._added.fences(now_s)

    def next_deadline_s(self) -> float:
        """When `due` must be called although nothing changes."""
        if self._looking:
            return self._looked_s

        return min(self._due.next_s(), self._unwanted.next_s(), self._back_offs.next_s())

    def indexes(self) -> Iterator[tuple[str, Set[str], Callable[[GroupRecord], bool]]]:
        """For validation: each index with its groups, and a predicate for the groups that should be
        in it.
        """
        yield "fenced", self._added.groups, _has_fence

    # --- what is known ---------------------------------------------------------------------------

    def _classes_of(self, group: GroupRecord) -> frozenset[str]:
        """The classes that its gangs name, empty if all of them ask for nothing."""
        names: set[str] = set()
        for gang in group.gangs:
            spec = self._registry.gangs[gang].spec
            if spec is not None and spec.provisioning_class:
                names.add(spec.provisioning_class)

        return frozenset() if names == {NO_CLASS} else frozenset(names)

    def _has_started(self, group: GroupRecord) -> bool:
        """Whether no gang of it waits as a whole."""
        gangs = map(self._registry.view, group.gangs)
        return not any(gang.waiting and not gang.free_running for gang in gangs)

    def _owners(self, group: GroupRecord) -> dict[str, RequestOwner]:
        owners: dict[str, RequestOwner] = {}
        for gang in group.gangs:
            record = self._registry.gangs[gang]
            ref = gang_ref(record)
            if ref is not None:
                owners[gang] = RequestOwner(record.name, ref)

        return owners

    def _known(self, request: NodeRequest) -> list[ProvisioningRequest]:
        """The requests of the group that exist and are not being deleted."""
        known: list[ProvisioningRequest] = []
        for key, order in request.orders.items():
            existing = self.requests.known.get(key)
            if existing is None or existing.deleting or existing.uid in request.withdrawn:
                continue

            # That of an earlier gang of this name goes with its owner.
            if existing.owner_uid == order.owner.uid:
                known.append(existing)

        return known

    def _state(self, request: NodeRequest) -> ProvisioningRequest | None:
        """The request of the group that decides, None while one of them does not exist."""
        known = self._known(request)
        if len(known) < len(request.orders):
            return None

        return min(known, key=_precedence)

    # --- following -------------------------------------------------------------------------------

    def _follow_requests(self, now_s: float) -> None:
        for key in self.requests.take_changed():
            existing = self.requests.known.get(key)
            if key not in self._group_of and existing is not None:
                self._adopt(existing, now_s)

            group_id = self._group_of.get(key)
            if group_id is not None:
                self._hear(key, existing, now_s)
                self._lose(group_id, existing, now_s)
                self._due.set_sooner(group_id, now_s)
            elif existing is not None and key not in self._unwanted:
                # Its gang may not be known yet, after a restart.
                self._unwanted.set(key, now_s + ANSWERED_WITHIN_S)

        for orphaned in self.requests.take_orphaned():
            # Somebody deleted it: its templates are of no use to anybody.
            self._actions.append(_withdrawal(orphaned, uid=""))

    def _lose(
        self,
        group_id: str,
        existing: ProvisioningRequest | None,
        now_s: float,
    ) -> None:
        """A request that is gone before anybody has accepted it was deleted; one that was never
        seen may still come.
        """
        group = self._registry.groups[group_id]
        request = group.node_request
        if existing is not None or request is None or self._obstacle:
            return

        if request.step is RequestStep.ASKED and request.is_made:
            request.message = ""
            self._retry(group, request, "it was deleted", now_s)

    def _hear(self, key: str, existing: ProvisioningRequest | None, now_s: float) -> None:
        """Note that there is an autoscaler for a class: it may have many requests to look at."""
        if existing is None or existing.state is ProvisioningState.NEW:
            return

        request = self._registry.groups[self._group_of[key]].node_request
        if request is not None:
            self._accepted_s[request.orders[key].class_name] = now_s

    def _adopt(self, existing: ProvisioningRequest, now_s: float) -> None:
        """Follow a request of an earlier process before its gang is planned: else others would take
        its nodes first, or its gang would evict pods although nodes come.
        """
        group = self._group_of_owner(existing)
        if existing.deleting or group is None or group.node_request is not None:
            return

        classes = self._classes_of(group)
        if not classes or self._has_started(group):
            return

        gangs = [self._registry.view(gang) for gang in group.gangs]
        owners = self._owners(group)
        asked = self._orders(gangs, owners, classes)
        if not isinstance(asked, str) and existing.key in asked:
            what, shapes = wants(gangs)
            self._begin(group, asked, (what, classes, owners), shapes, now_s)

    def _group_of_owner(self, existing: ProvisioningRequest) -> GroupRecord | None:
        """The group of the gang that owns a request."""
        gang_id = f"{existing.namespace}/{existing.owner_name}"
        if existing.owner_kind == POD:
            member = self._members.get(existing.owner_uid)
            gang_id = member.gang if member is not None else ""

        group = self._registry.groups.get(self._registry.group_of.get(gang_id, ""))
        if group is None:
            return None

        owner = gang_ref(self._registry.gangs[gang_id])
        return group if owner is not None and owner.uid == existing.owner_uid else None

    def _follow_nodes(self, now_s: float) -> None:
        """Have groups looked at whose nodes may have come."""
        if not self._provisioned or not self._changes.any_new():
            return

        self._due.all_at_once(self._provisioned)

    # --- one group -------------------------------------------------------------------------------

    def _look(self, group: GroupRecord, request: NodeRequest, clocks: _Clocks) -> None:
        """Do what is due for a group."""
        if self._obstacle and request.step is not RequestStep.WAITING:
            # What was asked for cannot be followed any more.
            self._end_fence(group, request)
            self._go(request, RequestStep.WAITING, clocks.now_s, REST_S)

        match request.step:
            case RequestStep.WAITING:
                self._look_at_waiting(group, request, clocks)
            case RequestStep.RETRYING | RequestStep.RESTING:
                if clocks.now_s >= request.until_s:
                    self._ask(group, request, clocks)
                else:  # one whose creation was still under way when its step ended
                    self._withdraw(request)
            case RequestStep.ASKED | RequestStep.ACCEPTED | RequestStep.PROVISIONED:
                self._look_at_asked(group, request, clocks)

        if group.node_request is request:
            self._due.set(group.id, max(request.until_s, clocks.now_s))
            self._delay_evictions(group, request, clocks)
            self._tell(group, request, clocks)

    def _look_at_waiting(
        self,
        group: GroupRecord,
        request: NodeRequest,
        clocks: _Clocks,
    ) -> None:
        if self._obstacle:
            # It is looked at again when that changes.
            request.until_s = clocks.now_s + REST_S
        elif clocks.now_s >= request.until_s:
            self._ask(group, request, clocks)

    def _ask(self, group: GroupRecord, request: NodeRequest, clocks: _Clocks) -> None:
        may_ask_s = self._back_offs.of_namespaces(request.namespaces, clocks.now_s)
        if may_ask_s > clocks.now_s:
            request.why = TOO_OFTEN
            request.message = ""
            self._go(request, RequestStep.RETRYING, clocks.now_s, may_ask_s - clocks.now_s)
            return

        self._go(request, RequestStep.ASKED, clocks.now_s, CREATED_WITHIN_S)
        known = {existing.key for existing in self._known(request)}
        missing = [order for key, order in request.orders.items() if key not in known]
        request.is_made = not missing
        request.accepted_s = None
        if request.is_made:
            request.until_s = clocks.now_s + ANSWERED_WITHIN_S

        self._actions += missing

    def _look_at_asked(
        self,
        group: GroupRecord,
        request: NodeRequest,
        clocks: _Clocks,
    ) -> None:
        existing = self._state(request)
        state = existing.state if existing is not None else ProvisioningState.NEW
        request.message = existing.message if existing is not None else ""
        request.lacks_capacity = state is ProvisioningState.NOT_YET
        step = DECIDED.get(state, RequestStep.ASKED)

        if existing is None and request.step is not RequestStep.ASKED:
            self._retry(group, request, "it was deleted", clocks.now_s)
        elif state in ENDED:
            self._retry(group, request, state.value, clocks.now_s)
        elif step is not request.step:
            if request.step is RequestStep.PROVISIONED:
                # Else whoever writes its status could keep the nodes for as long as he likes.
                self._retry(group, request, "it is not provisioned any more", clocks.now_s)
            else:
                self._proceed(request, step, clocks.now_s)

        if request.step is RequestStep.PROVISIONED and existing is not None:
            self._provisioned.add(group.id)
            self._added.reserve(group, request, self._known(request))

        if clocks.now_s >= request.until_s:
            self._time_out(group, request, clocks.now_s)

    def _proceed(self, request: NodeRequest, step: RequestStep, now_s: float) -> None:
        """The autoscaler has answered."""
        if step is not RequestStep.ASKED and request.accepted_s is None:
            request.accepted_s = now_s

        lasts_s = {
            RequestStep.ASKED: ANSWERED_WITHIN_S,
            RequestStep.ACCEPTED: self._rules.patience_s or CAPACITY_S,
            RequestStep.PROVISIONED: self._rules.keep_s,
        }
        self._go(request, step, now_s, lasts_s[step])

    def _time_out(self, group: GroupRecord, request: NodeRequest, now_s: float) -> None:
        """The step that it is in has lasted for too long."""
        match request.step:
            case RequestStep.ACCEPTED:
                self._retry(group, request, "no capacity was found", now_s)
            case RequestStep.ASKED if not request.is_made:
                self._rest(group, request, "it was not created in time", now_s)
            case RequestStep.ASKED if self._answers_s(request) > now_s:
                request.until_s = self._answers_s(request)
            case RequestStep.ASKED:
                self._rest(group, request, "no autoscaler has accepted it", now_s)
            case RequestStep.PROVISIONED:
                request.message = ""
                self._rest(group, request, "the nodes that were added do not suffice", now_s)
            case _:
                pass

    def _answers_s(self, request: NodeRequest) -> float:
        """Until when a request may be one of many that an autoscaler takes up one by one."""
        accepted_s = [
            self._accepted_s.get(order.class_name, -inf) for order in request.orders.values()
        ]
        return min(min(accepted_s) + ANSWERED_WITHIN_S, request.since_s + CAPACITY_S)

    def _retry(
        self,
        group: GroupRecord,
        request: NodeRequest,
        why: str,
        now_s: float,
    ) -> None:
        """The request has ended without nodes: make another one later."""
        self._give_up(group, request)
        back_off = self._back_offs.failed(group.id, request.namespaces, why, now_s)
        self._back_off(request, back_off, now_s)
        self._due.set(group.id, now_s)

    def _rest(
        self,
        group: GroupRecord,
        request: NodeRequest,
        why: str,
        now_s: float,
    ) -> None:
        """Ask as any other pod for a while."""
        self._give_up(group, request)
        until_s = now_s + REST_S
        back_off = self._back_offs.rest(group.id, request.namespaces, why, until_s, now_s)
        self._back_off(request, back_off, now_s)

    def _give_up(self, group: GroupRecord, request: NodeRequest) -> None:
        """Withdraw the request, with what was reserved for it."""
        self._withdraw(request)
        self._end_fence(group, request)

    @staticmethod
    def _go(request: NodeRequest, step: RequestStep, now_s: float, lasts_s: float) -> None:
        request.step = step
        request.since_s = now_s
        request.until_s = now_s + lasts_s

    def _withdraw(self, request: NodeRequest) -> None:
        for existing in self._known(request):
            request.withdrawn.add(existing.uid)
            self._delete(existing)

    def _delete(self, existing: ProvisioningRequest) -> None:
        self._actions.append(_withdrawal(existing, uid=existing.uid))
        self.requests.withdrawn(existing)

    def _end_fence(self, group: GroupRecord, request: NodeRequest) -> None:
        self._added.release(group, request)
        self._provisioned.discard(group.id)

    # --- evictions -------------------------------------------------------------------------------

    def _delay_evictions(
        self,
        group: GroupRecord,
        request: NodeRequest,
        clocks: _Clocks,
    ) -> None:
        """Let the group evict nobody while an autoscaler may add nodes for it (V28)."""
        before_s = group.nodes_until_s
        until_s = self._evicts_from_s(group, request)
        group.nodes_until_s = clocks.wall_of(ceil(until_s)) if until_s > clocks.now_s else 0
        if group.nodes_until_s < before_s:
            self._queue.wake_at(group.id, clocks.now_s)

    def _evicts_from_s(self, group: GroupRecord, request: NodeRequest) -> float:
        """When the group may evict pods, as far as its request is concerned."""
        match request.step:
            case RequestStep.ACCEPTED if request.lacks_capacity:
                return 0.0
            case RequestStep.ACCEPTED | RequestStep.PROVISIONED:
                accepted_s = request.accepted_s if request.accepted_s is not None else 0.0
                return min(request.until_s, accepted_s + EVICTS_NOBODY_S)
            case RequestStep.WAITING | RequestStep.ASKED if not self._obstacle:
                # Who gives an autoscaler time gives it the time to answer.
                return request.until_s if self._has_delay(group) else 0.0
            case _:
                return 0.0

    def _has_delay(self, group: GroupRecord) -> bool:
        return any(self._registry.view(gang).preemption_delay_s for gang in group.gangs)

    # --- what is told ----------------------------------------------------------------------------

    def _tell(self, group: GroupRecord, request: NodeRequest, clocks: _Clocks) -> None:
        wait = self._wait(request, clocks)
        if wait != group.provisioning:
            group.provisioning = wait
            self._changed(group, clocks.now_s)

    def _wait(self, request: NodeRequest, clocks: _Clocks) -> NotAsking:
        """What its members say."""
        name = request.name
        until_s = clocks.wall_of(request.until_s)

        match request.step:
            case RequestStep.WAITING if self._obstacle:
                return NotAsking(Reason.UNSCHEDULABLE, NotProvided("", self._obstacle))
            case RequestStep.RESTING | RequestStep.RETRYING:
                message = request.told_message
                why = f"{request.why}: {message}" if message else request.why
                rests = request.step is RequestStep.RESTING
                reason = Reason.UNSCHEDULABLE if rests else Reason.PROVISIONING
                return NotAsking(reason, NotProvided(name, why, until_s, rests))
            case RequestStep.PROVISIONED:
                provided = Provided(name, len(request.fenced), until_s)
                return NotAsking(Reason.PROVISIONING, provided)
            case _:
                asked = NodesAskedFor(
                    request=name,
                    is_made=request.step is not RequestStep.WAITING,
                    is_accepted=request.step is RequestStep.ACCEPTED,
                    lacks_capacity=request.lacks_capacity,
                    message=request.told_message,
                )
                return NotAsking(Reason.PROVISIONING, asked)


def _withdrawal(request: ProvisioningRequest, *, uid: str) -> WithdrawNodes:
    return WithdrawNodes(
        request.namespace,
        request.name,
        uid,
        request.owner_uid,
        request.requested_by,
        request.templates,
    )


def _precedence(request: ProvisioningRequest) -> int:
    return ORDER.index(request.state)


def _has_fence(group: GroupRecord) -> bool:
    return group.node_request is not None and bool(group.node_request.fenced)
