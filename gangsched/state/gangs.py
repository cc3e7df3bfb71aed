"""One gang as it is remembered between plans: its members, and what it was told to be.

Law: a record only stores; `view()` builds an immutable `Gang` from it and reads nothing else. Members are keyed by uid,
so a pod recreated under the same name is another member (semantics I6).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import assert_never

from gangsched.api import keys
from gangsched.api.gang_spec import GangDefaults, GangSpec, gang_id, gang_spec
from gangsched.core.queue_sort import size_key
from gangsched.model.gang import Gang, Placement, Refusal
from gangsched.model.objects import TERMINAL, PermitStamp, Phase, Pod, PodGroup, Shape
from gangsched.model.reasons import Reason
from gangsched.state.members import STARTED, Member, State

UNBOUND = frozenset({State.PENDING, State.GATED, State.HELD, State.RETRY, State.WAITING_FOR_CLAIMS, State.BINDING})
"""The states in which the timeout annotation of a member counts (T3)."""
API_GROUP_ORDER = (keys.X_K8S, keys.SIGS, keys.NATIVE)


@dataclass(slots=True, kw_only=True)
class GangRecord:
    """What is remembered of one gang.

    `members` are its own, by uid. `spec_of` is what `spec` was made from. `ours`: a member is (or, once none is left,
    was) for us to place; of any other gang nothing is ever told or written.
    """

    id: str
    plain: bool = False
    members: dict[str, Member] = field(default_factory=dict)
    pod_groups: dict[str, PodGroup] = field(default_factory=dict)
    spec: GangSpec | None = None
    spec_of: object = None
    native: bool = False
    named_natively: bool = False
    ours: bool = False

    @property
    def empty(self) -> bool:
        """Nothing is left to remember (semantics I6)."""
        return not self.members and not self.pod_groups

    @property
    def pod_group(self) -> PodGroup | None:
        """The PodGroup that describes the gang: of the API group its members name, else in a fixed order (I2).

        A native one counts only where `spec.schedulingGroup` names it: it may belong to others who share the name.
        """
        if self.native:
            return self.pod_groups.get(keys.NATIVE)
        groups = API_GROUP_ORDER if self.named_natively else API_GROUP_ORDER[:-1]
        return next((self.pod_groups[group] for group in groups if group in self.pod_groups), None)

    @property
    def creation_s(self) -> int:
        """The PodGroup's creation, else the oldest member's, in whole epoch seconds (semantics Q1)."""
        if (pod_group := self.pod_group) is not None:
            return pod_group.creation_s
        return min((member.pod.creation_s for member in self.members.values()), default=0)

    @property
    def pods(self) -> list[Pod]:
        """Of all members, in the order in which we learned of them."""
        return [member.pod for member in self.members.values()]

    @property
    def faults(self) -> list[str]:
        """Why binds of members failed, since the last verdict."""
        return [member.fault for member in self.members.values() if member.fault]

    def of(self, *states: State) -> list[Member]:
        """The members in any of these states."""
        return [member for member in self.members.values() if member.state in states]

    def oldest(self) -> Pod | None:
        """The member that speaks for the gang where there is no PodGroup."""
        return min(self.pods, key=lambda pod: (pod.creation_s, pod.name, pod.uid), default=None)

    @property
    def permit(self) -> PermitStamp | None:
        """The Permit that the gang has passed: the newest stamp of members bound or being bound; else None (B4, I6)."""
        return _newest(self.of(*STARTED))

    @property
    def incomplete(self) -> bool:
        """Whether it was permitted and has fewer members bound, or being bound, than that needs (semantics B3)."""
        permit, spec = self.permit, self.spec
        needed = 0 if permit is None or spec is None else min(permit.min_member, spec.min_member or 0)
        return len(self.of(*STARTED)) < needed

    def stamp(self) -> PermitStamp:
        """What a bind of a member is stamped with: the Permit passed, or the next one (semantics B4)."""
        if (permit := self.permit) is not None:
            return permit
        before = _newest(self.members.values())
        return PermitStamp(self.spec.min_member or 0 if self.spec else 0, before.epoch + 1 if before else 1)

    def read_spec(self, *, defaults: GangDefaults) -> bool:
        """Bring `spec` up to date; True when it changed. The oldest pod of each distinct declaration is asked.

        Members that have ended or are going are asked only where there are no others: a gang that has finished is still
        what they declared, and its siblings' (I4).
        """
        declared: dict[tuple[tuple[str, str], ...], Pod] = {}
        known: Pod | None = None
        members = self.pods
        for pod in [pod for pod in members if not (pod.deleting or pod.phase in TERMINAL)] or members:
            if (
                known is None or pod.gang_metadata is not known.gang_metadata
            ):  # equal marks are mostly one object: no need to hash them
                known = declared.get(pod.gang_metadata)
            if known is None or (pod.creation_s, pod.name) < (known.creation_s, known.name):
                known = declared[pod.gang_metadata] = pod
        asked = tuple(sorted(declared.values(), key=lambda pod: (pod.creation_s, pod.name, pod.uid)))
        mark = gang_id(asked[0]) if asked else None
        if asked:  # else the gang stays what its last members were
            self.native = mark is not None and mark.native
            self.named_natively = any(f"{pod.namespace}/{pod.native_group}" == self.id for pod in asked)
        needs_pod_group = mark is None or mark.needs_pod_group
        pod_group = self.pod_group
        spec_of = (tuple((pod.uid, pod.gang_metadata) for pod in asked), _declaration(pod_group))
        if spec_of == self.spec_of:
            return False
        self.spec_of = spec_of
        spec = gang_spec(self.id, asked, pod_group, needs_pod_group=needs_pod_group, defaults=defaults)
        changed = spec != self.spec
        self.spec = spec
        return changed

    def view(self, names: frozenset[str]) -> Gang:
        """Build the immutable view of the gang; `names` are our scheduler names (semantics I1, P1)."""
        count = _count(self)
        if self.members:
            self.ours = any(member.pod.scheduler_name in names for member in self.members.values())
        permit, spec = count.permit, self.spec
        counted = Gang(
            id=self.id,
            plain=True,
            pending=count.pending,
            retry=count.retry,
            kept=count.kept,
            held=count.held,
            bound=count.bound,
            nodes=count.nodes,
            gated=count.gated,
            terminating=count.terminating,
            foreign=tuple(sorted(count.foreign)),
            succeeded=count.succeeded,
            timed_out=tuple(sorted(count.timed_out)),
            satisfied=permit is not None,
            permitted_min=permit.min_member if permit else 0,
        )
        if self.plain or spec is None:
            return counted
        return replace(
            counted,
            plain=False,
            min_member=spec.min_member or 0,
            total=spec.total,
            mode=spec.mode,
            match_policy=spec.match_policy,
            wait_time_s=spec.wait_time_s,
            min_resources=spec.min_resources,
            constraints=spec.constraints,
            uninitialised=_uninitialised(spec),
        )


@dataclass(slots=True)
class _Count:
    pending: tuple[Pod, ...] = ()
    retry: tuple[Pod, ...] = ()
    kept: tuple[Placement, ...] = ()
    held: tuple[Placement, ...] = ()
    bound: int = 0
    nodes: tuple[str, ...] = ()
    permit: PermitStamp | None = None
    gated: int = 0
    terminating: int = 0
    succeeded: int = 0
    foreign: list[str] = field(default_factory=list)
    timed_out: list[str] = field(default_factory=list)


def _count(record: GangRecord) -> _Count:
    """Sort the members into what they are to a plan; each is counted once."""
    count = _Count()
    pending, retry, kept, held = [], [], [], []
    nodes: set[str] = set()
    for member in record.members.values():
        pod, state = member.pod, member.state
        match state:
            case State.PENDING:
                pending.append(pod)
            case State.BOUND | State.BINDING | State.WAITING_FOR_CLAIMS:
                count.bound += 1
                nodes.add(member.node)
            case State.ENDED:
                count.succeeded += pod.phase is Phase.SUCCEEDED
            case State.TERMINATING | State.WITHDRAWN | State.DELETED:
                count.terminating += 1
            case State.FOREIGN:
                count.foreign.append(pod.key)
            case State.GATED:
                count.gated += 1
            case State.HELD:
                held.append(Placement(pod, member.node))
            case State.KEPT:
                kept.append(Placement(pod, member.node))
            case State.RETRY:
                retry.append(pod)
            case _:
                assert_never(state)
        if (pod.timed_out or member.marking) and state in UNBOUND:
            count.timed_out.append(pod.key)
    count.permit = record.permit
    if count.permit is None:  # no bind went through: what failed is part of a whole gang again (decision 10)
        pending, retry = [*pending, *retry], []
    count.pending, count.retry = _in_order(pending), _in_order(retry)
    count.nodes = tuple(sorted(nodes))
    count.kept, count.held = (tuple(sorted(each, key=lambda placement: placement.pod.key)) for each in (kept, held))
    return count


def _newest(members: Iterable[Member]) -> PermitStamp | None:
    stamps = (member.permit for member in members if member.permit is not None)
    return max(stamps, key=lambda stamp: stamp.epoch, default=None)


def _in_order(pods: list[Pod]) -> tuple[Pod, ...]:
    """As `core.queue_sort.member_key`, asking each shape for its size once."""
    sizes: dict[Shape, tuple[int, int, int]] = {}
    for pod in pods:
        if pod.shape not in sizes:
            sizes[pod.shape] = size_key(pod.shape)
    return tuple(sorted(pods, key=lambda pod: (-pod.priority, sizes[pod.shape], pod.name, pod.uid)))


def _uninitialised(spec: GangSpec) -> Refusal | None:
    if spec.waiting_for is None:
        return None
    reason = Reason.POD_GROUP_MISSING if spec.pod_group_missing else Reason.INVALID_GANG
    return Refusal(reason, spec.waiting_for)


def _declaration(pod_group: PodGroup | None) -> object:
    """What of a PodGroup a spec is made from; its status is not."""
    if pod_group is None:
        return None
    return (
        pod_group.api_group,
        pod_group.uid,
        pod_group.generation,
        pod_group.gang_metadata,
        pod_group.min_member,
        pod_group.min_resources,
        pod_group.schedule_timeout_s,
        pod_group.problems,
    )
