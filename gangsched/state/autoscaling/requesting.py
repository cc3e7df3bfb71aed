"""ProvisioningRequests: when a gang asks an autoscaler for all its nodes at once, and what follows
from the answers (semantics E10).

Invariant: pure bookkeeping between plans; off, it does nothing. A request is created and deleted
only by the actions that `due` returns, and belongs to one group, or is deleted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass
from itertools import chain
from typing import Final

from gangsched.model.capacity_facts import NodesAskedFor, NotAsking, NotProvided, Provided
from gangsched.model.plan import Verdict
from gangsched.model.protocol import (
    NodesRequested,
    ObjectRef,
    ProvisioningAvailable,
    ProvisioningOrder,
    WithdrawNodes,
)
from gangsched.model.provisioning import ENDED, NodeFence, ProvisioningRequest, ProvisioningState
from gangsched.model.reasons import Reason
from gangsched.model.snapshot import NodeTable
from gangsched.state.autoscaling.asking import wants
from gangsched.state.autoscaling.new_nodes import NewNodes
from gangsched.state.autoscaling.node_request import NodeRequest, RequestStep
from gangsched.state.autoscaling.pod_sets import orders
from gangsched.state.autoscaling.request_book import ProvisioningRequests
from gangsched.state.cluster import Cluster
from gangsched.state.group_record import GroupRecord
from gangsched.state.groups import Registry
from gangsched.state.reporting.gang_events import gang_ref
from gangsched.state.rule_set import ProvisioningRules
from gangsched.state.timers import Timers

ANSWERED_WITHIN_S: Final = 60.0
"""An autoscaler that knows the class accepts a request within one of its loops."""
REST_S: Final = 600.0
"""How long a group asks as any other pod, where no autoscaler answers or the nodes do not
suffice.
"""
RETRY_S: Final = 60.0
LONGEST_RETRY_S: Final = 1_800.0
CAPACITY_S: Final = 3_600.0
"""How long an autoscaler may try to find capacity, without a patience of its own."""
LOOKS_PER_TURN: Final = 10
"""Each may look at thousands of new nodes."""
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
        registry: Registry,
        cluster: Cluster,
        rules: ProvisioningRules,
        requests: ProvisioningRequests,
        changed: Callable[[GroupRecord, float], None],
    ) -> None:
        self._registry = registry
        self._cluster = cluster
        self._rules = rules
        self._changed = changed
        self._nodes = NewNodes(cluster)
        self.requests = requests
        self._due = Timers()
        #: The group of each request that is wanted, by key.
        self._group_of: dict[str, str] = {}
        #: When a request that no group wants is deleted.
        self._unwanted = Timers()
        self._actions: list[ProvisioningOrder] = []
        #: Why nothing can be asked for, "" if it can.
        self._obstacle = ""
        #: Groups whose nodes may still come, and those of which some have come.
        self._provisioned: set[str] = set()
        self._fenced: set[str] = set()
        self._table: NodeTable | None = None

    # --- what happens ----------------------------------------------------------------------------

    def committed(self, group: GroupRecord, verdict: Verdict, now_s: float) -> None:
        """Record a committed verdict."""
        if not self._rules.is_on:
            return

        class_name = self._class_of(group)
        lacks_room = verdict.reason is Reason.UNSCHEDULABLE and not verdict.binds
        if not lacks_room or not class_name or self._has_started(group):
            self.gone(group)
            return

        gangs = [self._registry.view(gang) for gang in group.gangs]
        what, shapes = wants(gangs)
        before = group.node_request
        if before is not None and before.wants == (what, class_name):
            return

        self.gone(group)
        owners = self._owners(group)
        asked = orders(gangs, owners, class_name, self.requests.requested_by)
        if not asked:
            return

        request = NodeRequest(
            wants=(what, class_name),
            shapes=shapes,
            orders=asked,
            since_s=now_s,
            until_s=now_s + self._rules.after_s,
            retry_s=RETRY_S,
        )
        group.node_request = request
        for key in asked:
            self._group_of[key] = group.id
            self._unwanted.drop(key)

        if self._known(request):
            # An earlier process made it.
            request.step = RequestStep.ASKED
            request.until_s = now_s + ANSWERED_WITHIN_S

        self._due.set(group.id, now_s)

    def answered(self, answer: NodesRequested | ProvisioningAvailable, now_s: float) -> None:
        """Record what became of an order, or whether any can be carried out."""
        if isinstance(answer, ProvisioningAvailable):
            self._obstacle = answer.obstacle
            for group_id in {*self._group_of.values()}:
                self._begin_again(group_id, now_s)

            return

        group = self._registry.groups.get(self._group_of.get(answer.key, ""))
        if group is not None and group.node_request is not None and answer.error:
            self._retry(group, group.node_request, answer.error, now_s)

    def _begin_again(self, group_id: str, now_s: float) -> None:
        """Whether requests can be made has changed."""
        self._due.set_sooner(group_id, now_s)
        request = self._registry.groups[group_id].node_request
        if request is not None and request.step is RequestStep.WAITING:
            request.until_s = now_s + self._rules.after_s

    def gone(self, group: GroupRecord) -> None:
        """Withdraw what was asked for a group that starts, asks for something else or is gone."""
        request = group.node_request
        if request is None:
            return

        self._withdraw(request)
        self._end_fence(group, request)
        for key in request.orders:
            if self._group_of.get(key) == group.id:
                del self._group_of[key]

        group.node_request = None
        group.provisioning = None
        self._due.drop(group.id)

    def changed(self, group: GroupRecord) -> None:
        """Withdraw what was asked for a group of which no gang waits: nothing is planned for it."""
        if group.node_request is not None and self._has_started(group):
            self.gone(group)

    def due(self, now_s: float, wall_s: float) -> list[ProvisioningOrder]:
        """Actions that are due now."""
        if not self._rules.is_on:
            return []

        self._follow_requests(now_s)
        self._follow_nodes(now_s)
        clocks = _Clocks(now_s, wall_s)

        for _ in range(LOOKS_PER_TURN):
            group_id = self._due.take_next(now_s)
            if group_id is None:
                break

            group = self._registry.groups.get(group_id)
            if group is not None and group.node_request is not None:
                self._look(group, group.node_request, clocks)

        for key in self._unwanted.take_due(now_s):
            if key not in self._group_of and key in self.requests.known:
                self._delete(self.requests.known[key])

        actions = self._actions
        self._actions = []
        return actions

    def fenced(self, now_s: float) -> tuple[NodeFence, ...]:
        """The nodes that were added for groups which have not started on them yet."""
        fences: list[NodeFence] = []
        for group_id in sorted(self._fenced):
            request = self._registry.groups[group_id].node_request
            if request is not None:
                group = self._registry.group(group_id, now_s)
                fences.append(NodeFence(group_id, group.priority, request.fenced))

        return tuple(fences)

    def next_deadline_s(self) -> float | None:
        """When `due` must be called although nothing changes."""
        times_s = (self._due.next_s(), self._unwanted.next_s())
        return min((at_s for at_s in times_s if at_s is not None), default=None)

    def indexes(self) -> Iterator[tuple[str, Set[str], Callable[[GroupRecord], bool]]]:
        """For validation: each index with its groups, and a predicate for the groups that should be
        in it.
        """
        yield "fenced", self._fenced, _has_fence

    # --- what is known ---------------------------------------------------------------------------

    def _class_of(self, group: GroupRecord) -> str:
        """The class that its gangs name; "" for none."""
        for gang in group.gangs:
            record = self._registry.gangs[gang]
            if record.spec is not None and record.spec.provisioning_class:
                name = record.spec.provisioning_class
                return "" if name == NO_CLASS else name

        return ""

    def _has_started(self, group: GroupRecord) -> bool:
        """Whether no gang of it waits as a whole."""
        gangs = map(self._registry.view, group.gangs)
        return not any(gang.waiting and not gang.free_running for gang in gangs)

    def _owners(self, group: GroupRecord) -> dict[str, ObjectRef]:
        owners: dict[str, ObjectRef] = {}
        for gang in group.gangs:
            owner = gang_ref(self._registry.gangs[gang])
            if owner is not None:
                owners[gang] = owner

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
            group_id = self._group_of.get(key)
            if group_id is not None:
                self._due.set_sooner(group_id, now_s)
            elif key in self.requests.known and key not in self._unwanted:
                # The gangs may not have been planned yet, after a restart.
                self._unwanted.set(key, now_s + ANSWERED_WITHIN_S)

    def _follow_nodes(self, now_s: float) -> None:
        """Have groups looked at whose nodes may have come."""
        if not self._provisioned:
            return

        table = self._cluster.table()
        if table is self._table:
            return

        self._table = table
        for group_id in self._provisioned:
            self._due.set_sooner(group_id, now_s)

    # --- one group -------------------------------------------------------------------------------

    def _look(self, group: GroupRecord, request: NodeRequest, clocks: _Clocks) -> None:
        """Do what is due for a group."""
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
        if self._obstacle:
            self._go(request, RequestStep.WAITING, clocks.now_s, REST_S)
            return

        self._go(request, RequestStep.ASKED, clocks.now_s, ANSWERED_WITHIN_S)
        known = {existing.key for existing in self._known(request)}
        for key, order in request.orders.items():
            if key not in known:
                self._actions.append(order)

    def _look_at_asked(
        self,
        group: GroupRecord,
        request: NodeRequest,
        clocks: _Clocks,
    ) -> None:
        existing = self._state(request)
        state = existing.state if existing is not None else ProvisioningState.NEW
        request.message = existing.message if existing is not None else ""

        if existing is None and request.step is not RequestStep.ASKED:
            # Somebody deleted it.
            self._retry(group, request, "it was deleted", clocks.now_s)
        elif state in ENDED:
            self._retry(group, request, f"{state.value}: {request.message}", clocks.now_s)
        elif DECIDED.get(state, RequestStep.ASKED) is not request.step:
            if request.step is RequestStep.PROVISIONED:
                # Else whoever writes its status could keep the nodes for as long as he likes.
                self._retry(group, request, "it is not provisioned any more", clocks.now_s)
            else:
                self._proceed(request, DECIDED.get(state, RequestStep.ASKED), clocks.now_s)

        if request.step is RequestStep.PROVISIONED and existing is not None:
            self._provisioned.add(group.id)
            self._fence(group, request, existing.creation_s)

        if clocks.now_s >= request.until_s:
            self._time_out(group, request, clocks.now_s)

    def _proceed(self, request: NodeRequest, step: RequestStep, now_s: float) -> None:
        """The autoscaler has answered."""
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
                self._retry(group, request, request.message or "no capacity was found", now_s)
            case RequestStep.ASKED:
                self._rest(group, request, "no autoscaler has accepted it", now_s)
            case RequestStep.PROVISIONED:
                self._rest(group, request, "the nodes that were added do not suffice", now_s)
            case _:
                pass

    def _retry(
        self,
        group: GroupRecord,
        request: NodeRequest,
        why: str,
        now_s: float,
    ) -> None:
        """The request has ended without nodes: make another one later."""
        self._give_up(group, request, why)
        self._go(request, RequestStep.RETRYING, now_s, request.retry_s)
        request.retry_s = min(2 * request.retry_s, LONGEST_RETRY_S)
        self._due.set(group.id, now_s)

    def _rest(
        self,
        group: GroupRecord,
        request: NodeRequest,
        why: str,
        now_s: float,
    ) -> None:
        """Ask as any other pod for a while."""
        self._give_up(group, request, why)
        self._go(request, RequestStep.RESTING, now_s, REST_S)

    def _give_up(self, group: GroupRecord, request: NodeRequest, why: str) -> None:
        """Withdraw the request, with what was reserved for it."""
        self._withdraw(request)
        self._end_fence(group, request)
        request.message = why

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
        order = WithdrawNodes(existing.namespace, existing.name, existing.uid, existing.templates)
        self._actions.append(order)

    # --- nodes -----------------------------------------------------------------------------------

    def _fence(self, group: GroupRecord, request: NodeRequest, created_s: int) -> None:
        """Reserve the nodes that were added since, as many as the group needs."""
        needed = sum(
            pod_set.count for order in request.orders.values() for pod_set in order.pod_sets
        )
        added = self._nodes.added(request.shapes, created_s)
        kept = [name for name in request.fenced if name in added]
        candidates = self._candidates(group, added.difference(kept))
        fenced = self._enough(chain(kept, candidates), request, needed)
        lost = {*request.fenced}.difference(fenced)
        request.fenced = tuple(fenced)
        self._cluster.open(lost)
        if fenced:
            self._fenced.add(group.id)
        else:
            self._fenced.discard(group.id)

    def _candidates(self, group: GroupRecord, added: frozenset[str]) -> Iterator[str]:
        """Those of the nodes that are nobody's, the oldest first; nothing is looked at before one
        is needed, as thousands may be new.
        """
        for name in sorted(added.difference(self._taken(group)), key=self._age):
            if self._is_empty(name):
                yield name

    def _enough(self, nodes: Iterable[str], request: NodeRequest, needed: int) -> list[str]:
        """The first of these nodes that hold so many pods."""
        fenced: list[str] = []
        places = 0
        for name in nodes:
            places += self._places(name, request)
            fenced.append(name)
            if places >= needed:
                break

        return fenced

    def _places(self, name: str, request: NodeRequest) -> int:
        """How many pods of the largest shape the node holds if it is empty; at least one."""
        offered = dict(self._cluster.nodes[name].allocatable)
        least = math.inf
        for shape in request.shapes:
            for resource, amount in shape.requests:
                if amount:
                    least = min(least, offered.get(resource, 0) // amount)

        return max(1, int(least)) if least < math.inf else 1

    def _taken(self, group: GroupRecord) -> set[str]:
        """Nodes that are reserved for other groups."""
        taken: set[str] = set()
        for group_id in self._fenced - {group.id}:
            other = self._registry.groups[group_id].node_request
            if other is not None:
                taken.update(other.fenced)

        return taken

    def _is_empty(self, name: str) -> bool:
        return all(pod.ends_with_node for pod in self._cluster.residents(name).values())

    def _age(self, name: str) -> tuple[int, str]:
        return self._cluster.nodes[name].creation_s, name

    def _end_fence(self, group: GroupRecord, request: NodeRequest) -> None:
        self._cluster.open(request.fenced)
        request.fenced = ()
        self._fenced.discard(group.id)
        self._provisioned.discard(group.id)

    # --- what is told ----------------------------------------------------------------------------

    def _tell(self, group: GroupRecord, request: NodeRequest, clocks: _Clocks) -> None:
        wait = self._wait(request, clocks)
        if wait != group.provisioning:
            group.provisioning = wait
            self._changed(group, clocks.now_s)

    def _wait(self, request: NodeRequest, clocks: _Clocks) -> NotAsking:
        """What its members say."""
        # A group of several namespaces has a request in each, which others do not learn of.
        keys = [*request.orders]
        name = keys[0] if len(keys) == 1 else ""
        until_s = clocks.wall_of(request.until_s)

        match request.step:
            case RequestStep.WAITING if self._obstacle:
                return NotAsking(Reason.UNSCHEDULABLE, NotProvided("", self._obstacle))
            case RequestStep.RESTING:
                why = NotProvided(name, request.message, until_s)
                return NotAsking(Reason.UNSCHEDULABLE, why)
            case RequestStep.RETRYING:
                why = NotProvided(name, request.message, until_s)
                return NotAsking(Reason.PROVISIONING, why)
            case RequestStep.PROVISIONED:
                provided = Provided(name, len(request.fenced), until_s)
                return NotAsking(Reason.PROVISIONING, provided)
            case _:
                asked = NodesAskedFor(
                    request=name,
                    is_made=request.step is not RequestStep.WAITING,
                    is_accepted=request.step is RequestStep.ACCEPTED,
                    message=request.message,
                )
                return NotAsking(Reason.PROVISIONING, asked)


def _precedence(request: ProvisioningRequest) -> int:
    return ORDER.index(request.state)


def _has_fence(group: GroupRecord) -> bool:
    return group.node_request is not None and bool(group.node_request.fenced)
