"""Builds a plan's view of one gang from its record.

Invariant: the view is immutable and derived from the record alone; each member is counted once, by
its state.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from msgspec import structs

from gangsched.api import keys
from gangsched.api.gang_spec import GangSpec
from gangsched.api.problem import Problem, instead, quoted
from gangsched.api.sub_groups import misplaced
from gangsched.core.queue_sort import in_member_order
from gangsched.model.fault import UNKNOWN_REFERENCE, not_planned
from gangsched.model.gang import Disruption, Gang, MatchPolicy, Placement, Refusal
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.objects import JointStart, PermitStamp, Phase, Pod, PodGroup
from gangsched.model.reasons import Reason
from gangsched.model.verdict_facts import Worded
from gangsched.state.gangs import WAITING, GangRecord, newest
from gangsched.state.members import STARTED, Member, State
from gangsched.state.members_to_come import with_members_to_come
from gangsched.state.second_starts import of_another_run

UNBOUND = frozenset(
    {
        State.PENDING,
        State.GATED,
        State.HELD,
        State.KEPT,
        State.RETRY,
        State.WAITING_FOR_CLAIMS,
        State.BINDING,
    }
)
"""The states in which the timeout annotation of a member counts (T3)."""
UNKNOWN_MEMBERS = (
    "how its other members ended is not known after a restart; with a PodGroup it is remembered"
)
GOING = (State.TERMINATING, State.WITHDRAWN, State.DELETED)


def gang_view(record: GangRecord, policy: GpuPolicy) -> Gang:
    """The current view of the gang (semantics I1, P1); `policy` names the resources that determine
    the order of members (Q5).

    Also updates the gang's roster, and records whether its members lack indexes for slices.
    """
    # Here, since a view is built after each change of a member: a roster that missed one would
    # count a replacement as new.
    record.roster.observe(record.members.values())
    record.start.learn(record.members.values())
    by_state = _by_state(record)

    started = [member for state in STARTED for member in by_state[state]]
    pending = by_state[State.PENDING]
    retry = by_state[State.RETRY]

    waiting = [*pending, *retry, *by_state[State.KEPT]]
    others = _of_another_run(record, started, waiting)
    record.begins_beside = bool(others) and len(others) == len(waiting)
    before = [member.pod for member in started]
    if record.begins_beside:
        started = record.of_start(started)
    elif others:
        # What the earlier run lost comes first.
        pending = [member for member in pending if member not in others]

    # By stamps and not by numbers: after a restart nothing else says which members gangsched bound.
    permit = newest(started) or (None if record.begins_beside else record.continued())

    kept = _placements(by_state[State.KEPT])
    refused: tuple[Placement, ...] = ()
    # no bind went through: what failed is part of a whole gang again (decision 10)
    if permit is None:
        pending = [*pending, *retry]
        retry = []
        refused, kept = kept, refused

    gang = Gang(
        id=record.id,
        plain=True,
        pending=in_member_order((member.pod for member in pending), policy),
        retry=in_member_order((member.pod for member in retry), policy),
        kept=kept,
        refused=refused,
        held=_placements(by_state[State.HELD]),
        unbound=_placements(_waiting_for_claims(by_state)),
        # Another scheduler's binds count towards the minimum, too, and never make a gang satisfied
        # (B4).
        bound=len(started),
        nodes=tuple(sorted({member.node for member in started})),
        gated=len(by_state[State.GATED]),
        terminating=sum(len(by_state[state]) for state in GOING),
        foreign=tuple(sorted(member.pod.key for member in by_state[State.FOREIGN])),
        # A failed member is no part of what the gang has: its controller makes another one.
        succeeded=0 if record.begins_beside else record.succeeded,
        timed_out=tuple(
            sorted(
                member.pod.key
                for state in UNBOUND
                for member in by_state[state]
                if _timed_out(member)
            )
        ),
        satisfied=permit is not None,
        permitted_min=permit.min_member if permit else 0,
        together=_together(started, permit),
        unsent=record.unsent,
        sent_with=record.roster.sent_with,
        replaces=record.roster.replaces(record.members.values()),
        run_time_s=record.counted_s,
        preemption_delay_s=record.delay_s,
    )
    if record.plain or record.spec is None:
        return gang

    gang = _declared(gang, record.spec, record.pod_group)
    if record.owner is not None and record.spec.is_minimum_of_owner:
        gang = structs.replace(gang, min_note=record.owner.note)
    if permit is None and _may_have_succeeded(record, gang):
        gang = structs.replace(gang, min_note=UNKNOWN_MEMBERS)
    if others:
        gang = _beside_another_run(gang, others, before, policy)
    if record.pod_group is not None and record.pod_group.of_tasks:
        gang = _within_tasks(
            gang,
            dict(record.pod_group.of_tasks),
            [member.pod for member in started],
            [member.pod for member in by_state[State.ENDED] if is_of_start(member, permit)],
        )

    gang = with_members_to_come(gang, record, policy)
    if gang.constraints.same_product:
        nodes = _accelerated_nodes(started, policy)
        gang = structs.replace(gang, accelerated_nodes=nodes)
    if not gang.constraints.slices:
        record.index_problem = None
        return gang

    members = [member for state in WAITING for member in by_state.get(state, ())]
    members += started
    record.index_problem = _index_problem([member.pod for member in members])

    # Those with a node fix the domains of their slices: later members of the same slice must join
    # them.
    with_room = [*by_state[State.KEPT], *by_state[State.HELD]]
    there = [*started, *with_room]
    return structs.replace(
        gang,
        indexed=record.index_problem is None and all(member.pod.index >= 0 for member in members),
        standing=tuple(sorted((member.pod.index, member.node) for member in there)),
    )


def _accelerated_nodes(members: Sequence[Member], policy: GpuPolicy) -> tuple[str, ...]:
    """The nodes of members with accelerators, which fix the GPU product of the others."""
    nodes: set[str] = set()
    for member in members:
        names = [name for name, _ in member.pod.shape.requests]
        if any(map(policy.is_accelerator, names)):
            nodes.add(member.node)

    return tuple(sorted(nodes))


def _may_have_succeeded(record: GangRecord, gang: Gang) -> bool:
    """Whether members of the last start are gone of which it is not known how they ended, so that
    the rest of it may wait in vain.
    """
    start = record.start
    if not start.is_incomplete or gang.quorum >= gang.min_member:
        return False
    if gang.match_policy is MatchPolicy.ONLY_WAITING:
        return False

    return any(member.pod.controller_uid in start.controllers for member in record.of(*WAITING))


def _of_another_run(
    record: GangRecord,
    started: Sequence[Member],
    pending: Sequence[Member],
) -> list[Member]:
    spec = record.spec
    # The gangs of a group, or below a parent, start and live together.
    if record.plain or spec is None or spec.parent or len(spec.group) > 1:
        return []

    return of_another_run(record.start, started, pending)


def _beside_another_run(
    gang: Gang,
    others: Sequence[Member],
    started: Sequence[Pod],
    policy: GpuPolicy,
) -> Gang:
    """The gang with what is told of pods that start beside an earlier run; they wait while members
    of that run wait.
    """
    others_pods = [member.pod for member in others]
    first = min(others_pods, key=lambda pod: pod.key)
    owned = [pod for pod in started if pod.owner]
    before = min(owned, key=lambda pod: pod.key, default=first)
    note = (
        f"{first.controller_kind} {first.namespace}/{first.owner} starts as a whole, beside"
        f" {before.controller_kind} {before.namespace}/{before.owner}"
    )
    if gang.satisfied:
        later = in_member_order((member.pod for member in others), policy)
        return structs.replace(gang, later=(*gang.later, *later), min_note=note)

    return structs.replace(gang, min_note=note)


def _by_state(record: GangRecord) -> defaultdict[State, list[Member]]:
    by_state: defaultdict[State, list[Member]] = defaultdict(list)
    for member in record.members.values():
        by_state[member.state].append(member)

    return by_state


def _waiting_for_claims(by_state: Mapping[State, list[Member]]) -> list[Member]:
    waiting: list[Member] = []
    for member in by_state.get(State.WAITING_FOR_CLAIMS, ()):
        # While its claims are being written it is not known what would have to be taken back.
        if member.wait is not None and member.wait.is_written:
            waiting.append(member)

    return waiting


def is_of_start(member: Member, permit: PermitStamp | None) -> bool:
    """Whether a member has succeeded in the gang's last start."""
    if member.pod.phase is not Phase.SUCCEEDED:
        return False

    return permit is None or member.permit is None or member.permit.epoch == permit.epoch


def stand_in_view(record: GangRecord) -> Gang:
    """The view of a gang that cannot be read: its pods by their states, and a refusal (I10)."""
    return Gang(
        id=record.id,
        plain=record.plain,
        min_member=max(1, len(record.members)),
        pending=tuple(member.pod for member in record.of(State.PENDING)),
        retry=tuple(member.pod for member in record.of(State.RETRY)),
        kept=_placements(record.of(State.KEPT)),
        held=_placements(record.of(State.HELD)),
        bound=len(record.of(*STARTED)),
        uninitialised=not_planned(UNKNOWN_REFERENCE),
    )


def _together(started: Sequence[Member], permit: PermitStamp | None) -> JointStart | None:
    """What the gang's last start says of the gangs that started with it, if no owner of a pod can
    have written it.
    """
    if permit is None or permit.together is None:
        return None
    if any(member.is_proven and member.permit == permit for member in started):
        return permit.together

    return None


def _index_problem(pods: Sequence[Pod]) -> Problem | None:
    """Why slices cannot be made by index although members have some, as a Master and a Worker may
    have the same.

    Where no member has any, nothing was asked for.
    """
    by_index: dict[int, Pod] = {}
    for pod in sorted(pods, key=lambda each: each.key):
        # In order of names, so that the message is the same after a restart.
        other = by_index.setdefault(pod.index, pod)
        if other is not pod and pod.index >= 0:
            return _unnumbered(
                f"Pods {other.key} and {pod.key} have the same index",
                str(pod.index),
                pod,
            )

    if -1 in by_index and len(by_index) > 1:
        return _unnumbered(f"Pod {by_index[-1].key} has no index", "", by_index[-1])

    return None


def _unnumbered(
    why: str,
    value: str,
    pod: Pod,
) -> Problem:
    used = "the order of members"
    text = f"{why}, so slices cannot be formed by index. {instead(used)}"
    return Problem(keys.SLICES[0], quoted(value), used, text, pod.key)


def _declared(
    gang: Gang,
    spec: GangSpec,
    pod_group: PodGroup | None,
) -> Gang:
    """The gang with what its pods and its PodGroup declare."""
    return structs.replace(
        gang,
        plain=False,
        min_member=spec.min_member or 0,
        total=spec.total,
        mode=spec.mode,
        match_policy=spec.match_policy,
        wait_time_s=spec.wait_time_s,
        min_resources=spec.min_resources,
        constraints=spec.constraints,
        preemption_delay_s=spec.preemption_delay_s,
        indivisible=spec.disruption is Disruption.ALL,
        disrupted_singly=spec.disruption is Disruption.SINGLE,
        never_preempts=pod_group is not None and pod_group.never_preempts,
        # First what is wrong with the PodGroup: a field that cannot be read may be the one that
        # states the minimum.
        uninitialised=_refused(gang, pod_group) or _uninitialised(spec),
        min_note=_min_note(spec, pod_group),
    )


def _within_tasks(
    gang: Gang,
    minimums: Mapping[str, int],
    started: Sequence[Pod],
    succeeded: Sequence[Pod],
) -> Gang:
    """The gang of which members beyond the minimums of its tasks, and beyond what its own minimum
    adds to them, wait until it started, and again while a task has lost members.

    So they never take the room of a member that its task lacks. Where the gang's minimum exceeds
    the sum of its tasks', the smallest further members count: they are the likeliest to fit. A
    minimum below the sum, which pods may state themselves, counts instead of those of tasks (I3).
    """
    # Volcano checks tasks only if their sum does not exceed minMember, and its Jobs state such sums
    # by default.
    further = gang.min_member - sum(minimums.values())
    if further < 0:
        return gang

    left = Counter(minimums)
    placed = (placement.pod for placement in (*gang.kept, *gang.held))
    for pod in (*started, *succeeded, *gang.retry, *placed):
        left[_task(pod)] -= 1
        # Started members that their task did not need have taken one of the further places already.
        further -= left[_task(pod)] < 0

    lacks = _lacks_of_tasks(gang, left, minimums, gang.succeeded - len(succeeded))
    needed = set[str]()
    beyond = list[Pod]()

    for pod in gang.pending:
        left[_task(pod)] -= 1
        if left[_task(pod)] >= 0:
            needed.add(pod.uid)
        else:
            beyond.append(pod)

    needed.update(pod.uid for pod in _smallest_first(beyond)[: max(0, further)])
    pending = tuple(pod for pod in gang.pending if pod.uid in needed)
    later = tuple(pod for pod in gang.pending if pod.uid not in needed)
    note = f"minTaskMember: {_tasks_text(gang, minimums)}"

    if gang.satisfied and lacks:
        return structs.replace(
            gang, pending=pending, later=later, lacks_of_tasks=lacks, min_note=note
        )
    if gang.satisfied:
        return structs.replace(gang, pending=(*pending, *later))

    return structs.replace(gang, pending=pending, later=later, min_note=note)


def _lacks_of_tasks(
    gang: Gang,
    left: Mapping[str, int],
    minimums: Mapping[str, int],
    unknown: int,
) -> int:
    """Members that tasks of a gang that has started lack; of `unknown` members that have succeeded
    and are gone, the task is not known any more.
    """
    if not gang.satisfied:
        return 0

    lacks = sum(max(0, left[task]) for task in minimums)
    return max(0, lacks - max(0, unknown))


def _tasks_text(gang: Gang, minimums: Mapping[str, int]) -> str:
    tasks = [f"{number} of task {name}" for name, number in minimums.items()]
    if (more := gang.min_member - sum(minimums.values())) > 0:
        tasks.append(f"{more} more")

    return ", ".join(tasks)


def _smallest_first(pods: Sequence[Pod]) -> list[Pod]:
    """Members, which are in order (Q5), by priority and then from the smallest shape to the
    largest.
    """
    place = {pod.shape: number for number, pod in enumerate(pods)}
    return sorted(pods, key=lambda pod: (-pod.priority, -place[pod.shape]))


def _task(pod: Pod) -> str:
    stated = dict(pod.gang_metadata)
    return stated.get(keys.VOLCANO_TASK, "")


def _min_note(spec: GangSpec, pod_group: PodGroup | None) -> str:
    stated = pod_group.min_member if pod_group is not None else None
    if stated is None or stated == spec.min_member:
        return ""

    return f"{dict(spec.sources)['min']} overrides minMember {stated} of the PodGroup"


def _timed_out(member: Member) -> bool:
    return member.pod.timed_out or member.marking


def _placements(members: list[Member]) -> tuple[Placement, ...]:
    return tuple(
        Placement(member.pod, member.node)
        for member in sorted(members, key=lambda each: each.pod.key)
    )


def _refused(gang: Gang, pod_group: PodGroup | None) -> Refusal | None:
    """The refusal of a PodGroup with a field that cannot be honoured; the refusal names
    the field.
    """
    if pod_group is None:
        return None
    # Its pods belong to gangs below it; any that are still here matched none of them, or two.
    if pod_group.sub_groups:
        return Refusal(
            Reason.INVALID_GANG, Worded(misplaced((*gang.pending, *gang.retry), pod_group))
        )
    if pod_group.invalid:
        return Refusal(Reason.INVALID_GANG, Worded("; ".join(pod_group.invalid)))
    if pod_group.unsupported:
        return Refusal(Reason.UNSUPPORTED, Worded("; ".join(pod_group.unsupported)))

    where = f"of PodGroup {pod_group.id}"
    others = {pod.priority for pod in gang.pending} - {pod_group.priority}
    if pod_group.priority and others:
        text = (
            f"spec.priority {pod_group.priority} {where} is not used, since its pods have another "
            f"priority, {min(others)}"
        )
        return Refusal(
            Reason.UNSUPPORTED, Worded(f"{text}: give the pods the same priorityClassName")
        )

    return None


def _uninitialised(spec: GangSpec) -> Refusal | None:
    if spec.waiting_for is None:
        if spec.unsupported is not None:
            return Refusal(Reason.UNSUPPORTED, Worded(spec.unsupported))

        return None

    reason = Reason.POD_GROUP_MISSING if spec.pod_group_missing else Reason.INVALID_GANG
    if spec.awaits_owner:
        reason = Reason.WAITING_FOR_MEMBERS

    return Refusal(reason, Worded(spec.waiting_for))
