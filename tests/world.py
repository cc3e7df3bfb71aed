"""A simulation around `SchedulingState`: the API server's pods, a virtual clock, answers to binds.

Invariant: its turns are those of the daemon's loop (`gangsched.turn`), and it does what the API
server does with the actions (bindings, conditions, the timeout annotation). A test decides how
binds end (`fate`) and when. Evicted pods are gone after their grace period.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from gangsched.core.cycle import Limits
from gangsched.model.disruption import PodDisruptionBudget
from gangsched.model.fault import InternalFault
from gangsched.model.objects import Node, Phase, Pod, PodGroup, ScheduledCondition
from gangsched.model.plan import Plan, Verdict
from gangsched.model.protocol import (
    Action,
    Applied,
    Bind,
    BindClaims,
    BindFailed,
    BindGone,
    Bound,
    CancelPreemption,
    ClaimsWritten,
    Evict,
    Evicted,
    EvictionDelayed,
    EvictionResult,
    Gone,
    MarkTimedOut,
    Message,
    PreemptionOrder,
    PreemptionPrepared,
    PreparePreemption,
    ProvisioningOrder,
    RecordEvent,
    ReleaseClaims,
    Replaced,
    Report,
    RequestNodes,
    SetPodCondition,
    SetPodGroupStatus,
    StampsGuarded,
    WithdrawNodes,
)
from gangsched.model.reasons import EventReason
from gangsched.model.snapshot import Snapshot
from gangsched.model.storage import Claim, ClaimRef, Selection, Volume
from gangsched.sentences.placing import NODE_CLOSED
from gangsched.state.members import State
from gangsched.state.rule_set import Rules
from gangsched.state.scheduling import SchedulingState
from gangsched.state.validate import validate
from gangsched.turn import plan_and_commit, prepare

WALL = "2030-01-01T00:00:00Z"
EPOCH_S = 1_893_456_000 - 1_000
"""`WALL` is the time of day at the beginning of a world."""
WRITTEN = str(10**9)
"""The version that every write of a volume makes."""
MOST_TURNS = 2_000


class World:
    """`create`, `update`, `delete` are what users and kubelets do; `turn` and `settle` what
    gangsched does.
    """

    def __init__(
        self,
        *nodes: Node,
        rules: Rules | None = None,
        limits: Limits | None = None,
        preempts: bool = False,
    ) -> None:
        """With `preempts`, PodDisruptionBudgets are listed, of which there are none; else nobody is
        evicted.
        """
        self.rules = rules or Rules()
        self.limits = limits
        self.faults: list[InternalFault] = []
        self.has_faults = False  # whether internal errors are expected, which are raised otherwise
        self.state = self._new_state()
        self.now_s = 1_000.0
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, Node] = {}
        self.pod_groups: dict[tuple[str, str], PodGroup] = {}
        # lists of other kinds, which a restart does not read again
        self.others: dict[type, Replaced] = {}
        self.fate: Callable[[Any], str] = lambda _: "bound"
        self.unanswered: list[Bind | BindClaims] = []
        self.objected: list[BindFailed] = []
        self.unwritten: list[PreemptionOrder] = []
        self.ordered: list[PreemptionOrder] = []
        self.leaving: dict[str, float] = {}
        self.delayed: set[str] = set()
        self.claims_sent: list[BindClaims] = []
        self.released: list[ReleaseClaims] = []
        self.controller = True
        self.sent: list[Bind] = []
        self.reports: list[Report] = []
        self.node_orders: list[ProvisioningOrder] = []
        self.plans: list[Plan] = []
        self.mark_pods = True
        self.sets_aside = False  # whether objects may fail to be applied
        self.show_binds = True
        self.preempts = preempts
        self.clock_s = 0.0  # how far the wall clock was moved
        # what the last turn was checked on, which did nothing
        self._idle: tuple[Snapshot, float] | None = None
        self._list_budgets()
        self.add_nodes(*nodes)

    def _new_state(self) -> SchedulingState:
        state = SchedulingState(self.rules)
        state.bulkhead.hears = self._hear_fault
        return state

    def _hear_fault(self, fault: InternalFault, error: BaseException) -> None:
        """A bug is a failed test, unless the test planted it."""
        if not self.has_faults:
            raise error
        self.faults.append(fault)

    # --- what happens in the cluster -------------------------------------------------------------

    def say(self, *messages: Message) -> None:
        """Messages arrive."""
        for message in messages:
            self._idle = None
            if isinstance(message, Replaced) and message.kind not in {Pod, Node, PodGroup}:
                self.others[message.kind] = message
            told = self.state.apply(message, now_s=self.now_s)
            assert self.sets_aside or not any(
                event.reason == EventReason.SET_ASIDE for event in told
            ), told
            self.reports += told

    def add_nodes(self, *nodes: Node) -> None:
        """Nodes appear or change."""
        for each in nodes:
            self.nodes[each.name] = each
            self.say(Applied(each))

    def remove_node(self, name: str) -> None:
        """A node goes away."""
        self.nodes.pop(name, None)
        self.say(Gone(Node, name))

    def create(self, *pods: Pod | Iterable[Pod]) -> list[Pod]:
        """Pods appear."""
        flat = [pod for each in pods for pod in ([each] if isinstance(each, Pod) else each)]
        for pod in flat:
            self.pods[pod.uid] = pod
            self.say(Applied(pod))
        return flat

    def update(self, pod: Pod, **changes: Any) -> Pod:
        """A pod changes in the API, and the watch shows it."""
        changed = msgspec.structs.replace(self.pods[pod.uid], **changes)
        self.pods[pod.uid] = changed
        self.say(Applied(changed))
        return changed

    def delete(self, *pods: Pod) -> None:
        """Pods go away."""
        for pod in pods:
            if self.pods.pop(pod.uid, None) is not None:
                self.say(Gone(Pod, pod.uid))

    def declare(self, *pod_groups: PodGroup) -> None:
        """PodGroups appear or change."""
        for each in pod_groups:
            self.pod_groups[each.api_group, each.id] = each
            self.say(Applied(each))

    def withdraw(self, pod_group: PodGroup) -> None:
        """A PodGroup is deleted."""
        self.pod_groups.pop((pod_group.api_group, pod_group.id), None)
        self.say(Gone(PodGroup, pod_group.id, pod_group.api_group, pod_group.uid))

    def restart(self, *, guarded_since_s: int | None = None) -> None:
        """The daemon dies and another starts, knowing only what the API server lists.

        An admission policy guards stamps since `guarded_since_s`.
        """
        for bind in self.unanswered:
            self._carry_out(bind)
        self.unanswered.clear()
        self.unwritten.clear()
        self.state = self._new_state()
        self.say(StampsGuarded(guarded_since_s), *self.known())
        self._list_budgets()

    def store_statuses(self) -> World:
        """The API server stores the statuses of PodGroups that were reported so far, and the watch
        shows them.
        """
        newest: dict[tuple[str, str], SetPodGroupStatus] = {}
        for report in self.reports:
            if isinstance(report, SetPodGroupStatus):
                newest[report.api_group, f"{report.namespace}/{report.name}"] = report

        for key, report in newest.items():
            if key in self.pod_groups:
                status = {**self.pod_groups[key].status, **report.status}
                self.declare(msgspec.structs.replace(self.pod_groups[key], status=status))

        return self

    def known(self) -> list[Message]:
        """What the API server lists."""
        lists: list[Message] = []
        for api_group in sorted({api_group for api_group, _ in self.pod_groups}):
            listed = tuple(each for (of, _), each in self.pod_groups.items() if of == api_group)
            lists.append(Replaced(PodGroup, listed, api_group))
        return [
            *lists,
            Replaced(Node, tuple(self.nodes.values())),
            Replaced(Pod, tuple(self.pods.values())),
        ]

    def _list_budgets(self) -> None:
        """There is no PodDisruptionBudget; without that list nobody is evicted."""
        if self.preempts:
            self.say(Replaced(PodDisruptionBudget, ()))

    # --- what gangsched does ---------------------------------------------------------------------

    def turn(self) -> Plan | None:
        """One turn of the loop; returns the plan, if there was something to plan."""
        # as the loop of a leader that is paused
        if self.state.orders.paused:
            self.state.refresh(self.now_s, in_turn=False)
            self._do(self.state.take_reports(now_s=self.now_s, wall=WALL))
            return None
        wall_s = EPOCH_S + self.clock_s + self.now_s
        actions = prepare(self.state, self.now_s, wall_s).actions
        self._do(actions)
        made = plan_and_commit(self.state, self.now_s, wall_s, limits=self.limits)
        if made is not None:
            self.plans.append(made.plan)
            self._do(made.actions, are_new=True)
        self._do(self.state.take_reports(now_s=self.now_s, wall=WALL))
        idle = None if made is not None or actions else (self.state.snapshot(), self.now_s)
        if (
            idle is None
            or self._idle is None
            or idle[0] is not self._idle[0]
            or idle[1] != self._idle[1]
        ):
            # nothing was said or done since an idle turn at this moment that was checked
            self.check()
        self._idle = idle
        return made.plan if made is not None else None

    def check(self) -> None:
        """What the state keeps of its members is what they are."""
        assert validate(self.state) == []

    def answer(self) -> None:
        """Every bind and every order under way ends as `fate` says; "later" leaves it under way."""
        objected, self.objected = self.objected, []
        self.say(*objected)
        waiting, self.unanswered = self.unanswered, []
        for bind in waiting:
            self._carry_out(bind)
        unwritten, self.unwritten = self.unwritten, []
        for order in unwritten:
            self._preempt(order)

    def settle(self) -> World:
        """Turn, answering binds, until nothing is left to do at this moment."""
        for _ in range(MOST_TURNS):
            proposal = self.turn()
            before = len(self.unanswered) + len(self.unwritten) + len(self.objected)
            self.answer()
            if proposal is None and len(self.unanswered) + len(self.unwritten) == before:
                return self
        raise AssertionError(f"still planning after {MOST_TURNS} turns")

    def advance(self, seconds: float) -> World:
        """Let time pass, waking up at every deadline on the way, as the loop does; evicted pods end
        on the way.
        """
        return self.settle().advance_settled(seconds)

    def advance_settled(self, seconds: float) -> World:
        """`advance` where nothing is left to do at this moment."""
        until_s, settled_s = self.now_s + seconds, self.now_s
        for _ in range(MOST_TURNS):
            ends_s = min(self.leaving.values(), default=math.inf)
            deadline_s = min(self.state.next_deadline_s(self.now_s) or math.inf, ends_s)
            if deadline_s > until_s:
                break
            self.now_s = max(self.now_s, deadline_s)
            for uid in [uid for uid, at_s in self.leaving.items() if at_s <= self.now_s]:
                del self.leaving[uid]
                if uid in self.pods:
                    self.delete(self.pods[uid])
            self.settle()
            settled_s = self.now_s
        else:
            raise AssertionError(f"more than {MOST_TURNS} deadlines in {seconds} s")
        self.now_s = until_s
        return self.settle() if until_s > settled_s else self

    def told(self) -> World:
        """Advance by the time after which a verdict is reported."""
        return self.advance(0.5)

    # --- what can be seen ------------------------------------------------------------------------

    def bound(self) -> dict[str, str]:
        """Pod name to node name of every live bound pod."""
        return {pod.name: pod.node_name for pod in self.pods.values() if pod.node_name and pod.live}

    def pending(self) -> set[str]:
        """Names of live unbound pods."""
        return {pod.name for pod in self.pods.values() if not pod.node_name and pod.live}

    def held(self) -> dict[str, str]:
        """Pod name to node name of every hold."""
        return {
            member.pod.name: member.node
            for member in self.state.members.all()
            if member.state is State.HELD
        }

    def condition(self, pod: Pod) -> tuple[str, str]:
        """The pod's PodScheduled condition: (reason, message)."""
        condition = self.pods[pod.uid].condition
        return (condition.reason, condition.message) if condition else ("", "")

    def verdict(self, group: str) -> Verdict:
        """The last verdict on a group."""
        found = self.state.registry.groups[group].verdict
        assert found is not None, f"{group} has no verdict"
        return found

    def events(self, reason: str = "") -> list[tuple[str, str, str]]:
        """(object, reason, message) of the Events recorded so far."""
        return [
            (
                f"{event.regarding.kind} {event.regarding.namespace}/{event.regarding.name}",
                event.reason,
                event.message,
            )
            for event in self.reports
            if isinstance(event, RecordEvent) and reason in {"", event.reason}
        ]

    def status(self, name: str) -> dict[str, Any]:
        """The status last written to a PodGroup."""
        written = [
            each
            for each in self.reports
            if isinstance(each, SetPodGroupStatus) and each.name == name
        ]
        return dict(written[-1].status)

    def gang_condition(self, name: str, kind: str) -> str:
        """The status of one condition last written to a PodGroup; "" if it has none of
        that type.
        """
        found: dict[str, str] = {
            each["type"]: each["status"] for each in self.status(name)["conditions"]
        }
        return found.get(kind, "")

    # --- the API server --------------------------------------------------------------------------

    def _do(self, actions: Iterable[Action], *, are_new: bool = False) -> None:
        for action in actions:
            match action:
                case Bind():
                    if why := self.state.start_check.objection(action):
                        # Its start waits for an answer; that its own node is not fit would have
                        # been seen by the plan.
                        assert not (are_new and why == NODE_CLOSED), (
                            f"{action.name} was just decided: {why}"
                        )
                        self.objected.append(BindFailed(action.uid, action.node, why))
                        continue
                    self.sent.append(action)
                    self.unanswered.append(action)
                    continue
                case BindClaims():
                    self.claims_sent.append(action)
                    self.unanswered.append(action)
                    continue
                case ReleaseClaims():
                    self._withdraw(action)
                    continue
                case SetPodCondition() if action.uid in self.pods:
                    condition = ScheduledCondition("False", action.reason, action.message)
                    self.update(self.pods[action.uid], condition=condition)
                case MarkTimedOut() if action.uid in self.pods and self.mark_pods:
                    self.update(self.pods[action.uid], timed_out=True)
                case PreparePreemption() | Evict() | CancelPreemption():
                    self.ordered.append(action)
                    self.unwritten.append(action)
                    continue
                case RequestNodes() | WithdrawNodes():
                    self.node_orders.append(action)
                    continue
                case _:
                    pass
            self.reports.append(action)

    def _carry_out(self, order: Bind | BindClaims) -> None:
        if isinstance(order, Bind):
            self._bind(order)
        elif (fate := self.fate(order)) == "later":
            self.unanswered.append(order)
        elif fate == "failed":
            self.say(BindFailed(order.uid, order.node, "the server said 500"))
        else:
            self.say(
                ClaimsWritten(
                    order.uid, {each.volume or each.key: self._write(each) for each in order.claims}
                )
            )
            for selection in order.claims if self.controller else ():
                self.bind_claim(selection.key, selection.volume)

    def _write(self, selection: Selection) -> str:
        """Ask for a volume for a node, as the watch shows it; returns the version of the claim, or
        of a volume.
        """
        claim = self.state.cluster.storage_cache.claim(selection.key)
        if claim is None or not selection.node:
            return WRITTEN
        version = _next_version(claim)
        self.say(
            Applied(
                msgspec.structs.replace(
                    claim, selected_node=selection.node, resource_version=version
                )
            )
        )
        return version

    def _withdraw(self, order: ReleaseClaims) -> None:
        """Nobody asks for these volumes any more; a test answers for devices."""
        self.released += [order] if any(each.reserve for each in order.claims) else []
        for selection in (each for each in order.claims if not each.reserve):
            claim = self.state.cluster.storage_cache.claim(selection.key)
            assert claim is not None
            self.say(
                Applied(
                    msgspec.structs.replace(
                        claim, selected_node=None, resource_version=_next_version(claim)
                    )
                )
            )

    def _preempt(self, order: PreemptionOrder) -> None:
        """`fate` of a PreparePreemption may be "failed"; of an Evict "later", "blocked",
        "forbidden" or "failed". As of the writer, an eviction that is not needed any more is
        withdrawn.
        """
        fate = self.fate(order)
        if fate == "later":
            self.unwritten.append(order)
            return
        match order:
            case PreparePreemption() if fate == "failed":
                self.say(PreemptionPrepared(order.id, "the server said 500"))
            case PreparePreemption():
                for each in order.members:
                    if each.uid in self.pods and not self.pods[each.uid].node_name:
                        self.update(self.pods[each.uid], nominated_node=each.node)
                for victim in order.victims:
                    if victim.uid in self.pods:
                        self.update(self.pods[victim.uid], disruption_target=True)
                self.say(PreemptionPrepared(order.id))
            case Evict():
                self._evict(order, fate)
            case CancelPreemption():
                self.unwritten = [
                    each
                    for each in self.unwritten
                    if not isinstance(each, Evict) or each.id != order.id
                ]
                for each in order.members:
                    if each.uid in self.pods and not self.pods[each.uid].node_name:
                        self.update(self.pods[each.uid], nominated_node="")

    def _evict(self, order: Evict, fate: str) -> None:
        pod = self.pods.get(order.uid)
        if not self.state.preemptions.nominations.wants(order):
            self.say(Evicted(order.id, order.uid, EvictionResult.WITHDRAWN, "not needed"))
        elif pod is None:
            self.say(Evicted(order.id, order.uid, EvictionResult.GONE, "pods not found"))
        elif fate == "blocked" and self.now_s < order.deadline_s:
            if order.uid not in self.delayed:
                self.delayed.add(order.uid)
                self.say(
                    EvictionDelayed(
                        order.id, order.uid, "The disruption budget w needs 3 healthy pods"
                    )
                )
            self.unwritten.append(order)
        elif fate in {"blocked", "forbidden", "failed"}:
            self.say(
                Evicted(order.id, order.uid, EvictionResult(fate), "the server does not want it")
            )
        else:
            if not pod.deleting:
                self.leaving[pod.uid] = self.now_s + pod.grace_s
                self.update(pod, deleting=True, deletion_s=self.wall_s() + pod.grace_s)
            self.say(Evicted(order.id, order.uid, EvictionResult.DONE))

    def wall_s(self) -> int:
        """The present in seconds since the epoch."""
        return EPOCH_S + int(self.clock_s + self.now_s)

    def bind_claim(self, key: str, volume: str = "") -> None:
        """The volume controller binds a claim, to a new volume if none is named."""
        storage = self.state.cluster.storage_cache
        claim = storage.claim(key)
        assert claim is not None
        name = volume or f"pv-{claim.name}"
        ref = ClaimRef(claim.namespace, claim.name, claim.uid)
        made = msgspec.structs.replace(
            storage.volumes.get(name, Volume(name=name)), claim=ref, available=False
        )
        self.say(
            Applied(made), Applied(msgspec.structs.replace(claim, volume_name=name, bound=True))
        )

    def _bind(self, bind: Bind) -> None:
        pod = self.pods.get(bind.uid)
        fate = self.fate(bind)
        if fate == "later":
            self.unanswered.append(bind)
        elif pod is None or pod.deleting or pod.gated or pod.node_name or fate == "gone":
            self.say(BindGone(bind.uid, bind.node, "pods not found"))
        elif fate == "failed":
            self.say(BindFailed(bind.uid, bind.node, "the server said 500"))
        else:
            stamp = bind.permitted or pod.permitted
            self.pods[bind.uid] = msgspec.structs.replace(
                pod, node_name=bind.node, phase=Phase.RUNNING, permitted=stamp
            )
            if self.show_binds:
                self.say(Applied(self.pods[bind.uid]))
            self.say(Bound(bind.uid, bind.node))


def _next_version(claim: Claim) -> str:
    """The version that a write makes."""
    return str(int(claim.resource_version or "0") + 1)
