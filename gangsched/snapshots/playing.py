"""Play a snapshot: run the daemon's state and `plan()` on it, without a cluster.

Invariant: objects are decoded as in the daemon. It starts like a daemon after a restart: state that
is only in memory (rounds, yields, waiting times) is not in a snapshot. The messages come from the
daemon's own reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gangsched import parameters
from gangsched.api.dialects import DIALECTS
from gangsched.api.podgroup import parse_pod_group, scheduled_condition, stored_conditions
from gangsched.api.timestamps import parse_timestamp
from gangsched.model.fault import InternalFault
from gangsched.model.objects import Pod, PodGroup
from gangsched.model.protocol import Message, Replaced, SetPodCondition, SetPodGroupStatus, Unread
from gangsched.model.reasons import Reason
from gangsched.settings import Settings
from gangsched.snapshots import file, kept
from gangsched.snapshots.file import SnapshotError
from gangsched.snapshots.kinds import all_resources
from gangsched.state.debug_view import list_gangs
from gangsched.state.scheduling import SchedulingState
from gangsched.state.visibility import Json, Moment, describe, queue_rank, visible_gangs
from gangsched.turn import plan_and_commit

MOST_TURNS = 10_000
KNOWN_FOR_S = 60.0


@dataclass(slots=True)
class ReplayedVerdict:
    """The daemon's report about one gang or plain pod, and about each of its waiting pods.

    `starts` maps pods that would be bound to their nodes.
    """

    gang: str
    plain: bool
    reason: str
    message: str
    pods: dict[str, tuple[str, str]] = field(default_factory=dict)
    starts: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Played:
    """A snapshot after its plans: the verdicts, and the state, in which it is `wall_s`."""

    verdicts: list[ReplayedVerdict]
    state: SchedulingState
    wall_s: float


def decide(taken: file.SnapshotFile, settings: Settings) -> list[ReplayedVerdict]:
    """Verdicts on all waiting gangs and plain pods, by name. Raises SnapshotError."""
    return play(taken, settings).verdicts


def play(
    taken: file.SnapshotFile,
    settings: Settings,
    hear: Callable[[InternalFault], None] = lambda fault: None,
) -> Played:
    """Verdicts on all waiting gangs and plain pods, by name; `hear` receives internal errors (I10).
    Raises SnapshotError for objects that cannot be decoded.
    """
    wall_s = parse_timestamp(taken.taken_at)
    if wall_s is None:
        raise SnapshotError(f"The snapshot's time is none: {taken.taken_at}.")

    state = SchedulingState(parameters.rules_alone(settings))
    state.bulkhead.hears = lambda fault, error: hear(fault)

    # Everything has been known for a while: nothing waits for a PodGroup that may still arrive.
    for message in messages(taken):
        state.apply(message, now_s=-KNOWN_FOR_S)

    # Gangs form at that time, too: their waits for missing PodGroups are over at 0.
    state.refresh(-KNOWN_FOR_S)
    state.refresh(0.0)
    starts = _settle(state, settings, float(wall_s))
    reports = state.take_reports(now_s=0.0, wall=taken.taken_at, everything=True)

    verdicts = list(_verdicts(state, starts, reports))
    return Played(verdicts, state, float(wall_s))


def gangs_of(played: Played) -> dict[str, Json]:
    """The gangs as the gangs API would show them, by id."""
    state = played.state
    moment = Moment(0.0, played.wall_s)
    ranks = []
    for group_id in state.registry.groups:
        rank = queue_rank(state, group_id, moment)
        if rank is not None:
            ranks.append(rank)

    positions = {rank[-1]: position for position, rank in enumerate(sorted(ranks), 1)}
    gangs = {}
    for namespace, name in visible_gangs(state):
        key = f"{namespace}/{name}"
        position = positions.get(state.registry.group_of.get(key, ""))
        described = describe(state, namespace, name, moment, position=position)
        if described is not None:
            gangs[key] = described

    return gangs


def messages(taken: file.SnapshotFile) -> Iterator[Message]:
    """Messages that the daemon's informers would send about this cluster. Raises SnapshotError."""
    if taken.decoded:
        try:
            yield from kept.messages(taken)
        except (msgspec.MsgspecError, KeyError) as error:
            raise SnapshotError(f"The objects of the file are not understood: {error}.") from error

        return

    for name, resource in all_resources().items():
        if name in taken.unread:
            yield Unread(resource.kind)
            continue

        wires = (resource.item.decode(raw) for raw in taken.resources.get(name, ()))
        items = [item for wire in wires if (item := resource.convert(wire)) is not None]
        yield Replaced(resource.kind, tuple(_unsaid(item) for item in items))

    for api_group in DIALECTS:
        pod_groups = taken.pod_groups.get(api_group)
        if pod_groups is None:
            yield Unread(PodGroup, api_group)
            continue

        parsed = (
            parse_pod_group(body, api_group=api_group, version=pod_groups.version)
            for body in pod_groups.items
        )
        yield Replaced(PodGroup, tuple(parsed), api_group)


def _unsaid(item: Any) -> Any:
    """A pod of which nothing was told yet, so that everything is."""
    if isinstance(item, Pod):
        return msgspec.structs.replace(item, condition=None)

    return item


def _settle(state: SchedulingState, settings: Settings, wall_s: float) -> dict[str, str]:
    """Plan until there is nothing left to decide; the nodes of pods that start, by uid."""
    starts: dict[str, str] = {}
    for _ in range(MOST_TURNS):
        # The clock stands still: the snapshot is one moment.
        planned = plan_and_commit(state, 0.0, wall_s, limits=None)
        if planned is None:
            break

        # Nothing changes between plan and commit: every bind is committed, also one that waits for
        # claims first.
        starts |= {
            placement.pod.uid: placement.node
            for verdict in planned.plan.verdicts
            for placement in verdict.binds
        }
        state.refresh(0.0)

    return starts


def _verdicts(
    state: SchedulingState,
    starts: dict[str, str],
    reports: list[Any],
) -> Iterator[ReplayedVerdict]:
    of_pods = {
        report.uid: (report.reason, report.message)
        for report in reports
        if isinstance(report, SetPodCondition)
    }
    of_groups = {
        f"{report.namespace}/{report.name}": report
        for report in reports
        if isinstance(report, SetPodGroupStatus)
    }

    for line in list_gangs(state):
        gang_id = str(line["gang"])
        record = state.registry.gangs[gang_id]
        pods = {pod.name: of_pods[pod.uid] for pod in record.pods if pod.uid in of_pods}

        bound = {pod.name: starts[pod.uid] for pod in record.pods if pod.uid in starts}
        if not pods and not bound:
            continue

        reason = str(line["reason"])
        message = str(line["message"])

        written = of_groups.get(gang_id)
        if written is not None:
            wanted = scheduled_condition(written.api_group, written.version)
            conditions = []

            for condition in stored_conditions(written.status):
                if condition.type == wanted and condition.status != "True":
                    conditions.append(condition)

            reason, message = (
                (conditions[0].reason, conditions[0].message) if conditions else (reason, message)
            )
        elif pods and not bound:
            oldest = min(
                (pod for pod in record.pods if pod.uid in of_pods),
                key=lambda pod: (pod.creation_s, pod.name, pod.uid),
            )
            reason, message = of_pods[oldest.uid]

        yield ReplayedVerdict(
            gang_id.removeprefix("pod:"),
            record.plain,
            str(Reason.SCHEDULED) if bound else reason,
            message,
            pods,
            bound,
        )
