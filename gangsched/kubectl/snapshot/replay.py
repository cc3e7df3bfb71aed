"""`replay`: run the daemon's state and `plan()` on a snapshot, without a cluster, and print what it
would decide.

Invariant: objects are decoded as in the daemon. The replay starts like a daemon after a restart:
state that is only in memory (rounds, yields, waiting times) is not in a snapshot. The messages come
from the daemon's own reports.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from gangsched import parameters
from gangsched.api.dialects import DIALECTS
from gangsched.api.podgroup import parse_pod_group, scheduled_condition, stored_conditions
from gangsched.api.timestamps import parse_timestamp
from gangsched.configuration import load
from gangsched.console import DONE
from gangsched.kubectl.outputs import PrintedReason, PrintedVerdict, ReplayOutput
from gangsched.kubectl.session import CannotAnswer
from gangsched.kubectl.snapshot import file, kept
from gangsched.kubectl.snapshot.take import all_resources
from gangsched.kubectl.terminal import Cell, Output, columns, write, write_value
from gangsched.model.fault import InternalFault
from gangsched.model.objects import Pod, PodGroup
from gangsched.model.protocol import Message, Replaced, SetPodCondition, SetPodGroupStatus, Unread
from gangsched.model.reasons import Reason
from gangsched.model.text import counted
from gangsched.settings import Settings, SettingsError
from gangsched.state.debug_view import list_gangs
from gangsched.state.scheduling import SchedulingState
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


def replay(path: Path, config: Path | None, names: list[str] | None, output: Output) -> int:
    """Print the verdicts of a snapshot; return the exit code. Raises CannotAnswer."""
    taken = file.read(path)
    stated: dict[str, object] = dict(taken.settings) if config is None else {}

    if names:
        stated["scheduler_names"] = tuple(names)

    try:
        raised: list[InternalFault] = []
        verdicts = decide(taken, load(config, stated).settings, raised.append)
    except SettingsError as error:
        raise CannotAnswer(str(error)) from error

    if output is not Output.TEXT:
        write_value(
            ReplayOutput(gangs=[_printed(replayed_verdict) for replayed_verdict in verdicts]),
            output,
        )
        return DONE

    start = sum(bool(replayed_verdict.starts) for replayed_verdict in verdicts)
    waiting = (
        "1 gang or plain pod waits"
        if len(verdicts) == 1
        else f"{len(verdicts)} gangs and plain pods wait"
    )
    head = f"{waiting}; {start} would start now."
    rows = [
        (
            replayed_verdict.gang,
            Cell(replayed_verdict.reason, "green" if replayed_verdict.starts else "yellow"),
            _shown(replayed_verdict),
        )
        for replayed_verdict in verdicts
    ]
    write([[Cell(head, "bold")], "", *columns(("GANG OR POD", "REASON", "MESSAGE"), rows)])

    for trace in dict.fromkeys(internal_fault.trace for internal_fault in raised):
        print(trace, file=sys.stderr)

    return DONE


def _printed(verdict: ReplayedVerdict) -> PrintedVerdict:
    return PrintedVerdict(
        gang=verdict.gang,
        plain=verdict.plain,
        reason=verdict.reason,
        message=verdict.message,
        pods={
            pod: PrintedReason(reason=reason, message=message)
            for pod, (reason, message) in verdict.pods.items()
        },
        starts=verdict.starts,
    )


def _shown(verdict: ReplayedVerdict) -> str:
    if not verdict.starts:
        return verdict.message

    nodes = sorted(set(verdict.starts.values()))
    return (
        f"{counted(len(verdict.starts), 'pod')} on"
        f" {', '.join(nodes[:5])}{' …' if len(nodes) > 5 else ''}"
    )


def decide(
    taken: file.SnapshotFile,
    settings: Settings,
    hear: Callable[[InternalFault], None] = lambda fault: None,
) -> list[ReplayedVerdict]:
    """Verdicts on all waiting gangs and plain pods, by name; `hear` receives internal errors (I10).
    Raises CannotAnswer for objects that cannot be decoded.
    """
    wall_s = parse_timestamp(taken.taken_at)
    if wall_s is None:
        raise CannotAnswer(f"The snapshot's time is none: {taken.taken_at}.")

    state = SchedulingState(parameters.rules(settings))
    state.bulkhead.hears = lambda fault, error: hear(fault)

    # Everything has been known for a while: nothing waits for a PodGroup that may still arrive.
    for message in messages(taken):
        state.apply(message, now_s=-KNOWN_FOR_S)

    # Gangs form at that time, too: their waits for missing PodGroups are over at 0.
    state.refresh(-KNOWN_FOR_S)
    state.refresh(0.0)
    starts = _settle(state, settings, float(wall_s))
    told = state.take_reports(now_s=0.0, wall=taken.taken_at, everything=True)

    return list(_verdicts(state, starts, told))


def messages(taken: file.SnapshotFile) -> Iterator[Message]:
    """Messages that the daemon's informers would send about this cluster. Raises CannotAnswer."""
    if taken.decoded:
        try:
            yield from kept.messages(taken)
        except (msgspec.MsgspecError, KeyError) as error:
            raise CannotAnswer(f"The objects of the file are not understood: {error}.") from error

        return

    for name, resource in all_resources().items():
        if name in taken.unread:
            yield Unread(resource.kind)
            continue

        wires = (resource.item.decode(raw) for raw in taken.resources.get(name, ()))
        items = [item for wire in wires if (item := resource.convert(wire)) is not None]
        yield Replaced(resource.kind, tuple(_unsaid(item) for item in items))

    for api_group in DIALECTS:
        of = taken.pod_groups.get(api_group)
        if of is None:
            yield Unread(PodGroup, api_group)
            continue

        parsed = (
            parse_pod_group(body, api_group=api_group, version=of.version) for body in of.items
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
        made = plan_and_commit(state, 0.0, wall_s, limits=None)
        if made is None:
            break

        # Nothing changes between plan and commit: every bind is committed, also one that waits for
        # claims first.
        starts |= {
            placement.pod.uid: placement.node
            for verdict in made.plan.verdicts
            for placement in verdict.binds
        }
        state.refresh(0.0)

    return starts


def _verdicts(
    state: SchedulingState,
    starts: dict[str, str],
    told: list[Any],
) -> Iterator[ReplayedVerdict]:
    of_pods = {
        each.uid: (each.reason, each.message) for each in told if isinstance(each, SetPodCondition)
    }
    of_groups = {
        f"{each.namespace}/{each.name}": each
        for each in told
        if isinstance(each, SetPodGroupStatus)
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
            found = []

            for condition in stored_conditions(written.status):
                if condition.type == wanted and condition.status != "True":
                    found.append(condition)

            reason, message = (found[0].reason, found[0].message) if found else (reason, message)
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
