"""What a gang asks for, when it runs and what is reserved for it, as fields of the gangs API.

Invariant: plain JSON values that stay the same while the gang does, since each change is an event
of every watch. Of other namespaces there are numbers only.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Final, TypeAlias

from gangsched.api.timestamps import format_timestamp
from gangsched.model.gang import Group, shown
from gangsched.model.objects import Shape
from gangsched.model.reservation import Reserved
from gangsched.model.resources import PODS, format_quantity
from gangsched.sentences.times import minute_by
from gangsched.state.gangs import GangRecord
from gangsched.state.group_record import GroupRecord

Json: TypeAlias = dict[str, object]
KINDS_SHOWN: Final = 8
"""Kinds of pods of one gang that are shown."""
BLOCKERS_NAMED: Final = 20


def declared(record: GangRecord, view: Group | None) -> Json:
    """Priority, parent, what its pods ask for, and when it started and is expected to end."""
    fields: Json = {"needs": _needs(record)}
    if view is not None:
        fields["priority"] = view.priority

    if record.spec is not None and record.spec.parent:
        fields["parent"] = record.spec.parent.partition("/")[2]

    run_time_s = record.run_time.seconds
    if run_time_s < math.inf:
        fields["runTimeSeconds"] = int(run_time_s)

    started_s = _started_s(record)
    if started_s is not None:
        fields["startedAt"] = format_timestamp(started_s)
        if run_time_s < math.inf:
            fields["expectedEnd"] = format_timestamp(int(started_s + run_time_s))

    return fields


def reserved_room(record: GangRecord, group: GroupRecord | None) -> Json:
    """The reservation as it was last told: another time here would be a second promise."""
    told = group.told_reserved if group is not None else None
    if told is None:
        return {}

    reserved = told.reserved
    room: Json = {
        "kind": "fence" if reserved.is_fence else "timed",
        "promised": reserved.is_promised,
        "message": told.text(record.namespace),
    }
    if reserved.at_s < math.inf:
        room["startTime"] = format_timestamp(minute_by(reserved.at_s))

    fields: Json = {"reserved": room}
    if reserved.waits_for:
        fields["waitsFor"] = _waits_for(reserved, record.namespace)

    return fields


def reserved_nodes(group: GroupRecord | None) -> list[str]:
    """The nodes of the reservation as it was last told, for those who may list nodes."""
    told = group.told_reserved if group is not None else None
    return sorted(told.reserved.nodes) if told is not None else []


def _needs(record: GangRecord) -> list[Json]:
    """Its pods by what they ask for, the most common first."""
    kinds: Counter[Shape] = Counter()
    for member in record.members.values():
        if member.pod.live:
            kinds[member.pod.shape] += 1

    needs: list[Json] = []
    for shape, number in kinds.most_common(KINDS_SHOWN):
        requests = {}
        for name, amount in shape.requests:
            if name != PODS:
                requests[name] = format_quantity(name, amount)

        needs.append({"pods": number, "requests": requests})

    return needs


def _started_s(record: GangRecord) -> int | None:
    """When the kubelets took over the first of its pods that run."""
    starts = []
    for member in record.members.values():
        if member.node and member.pod.start_s and member.pod.live:
            starts.append(member.pod.start_s)

    return min(starts, default=None)


def _waits_for(reserved: Reserved, namespace: str) -> Json:
    """What must end first: by name in the own namespace, as a number elsewhere."""
    own = []
    others = 0
    for blocker in reserved.waits_for:
        # A group of several namespaces may have the name of another one's gang.
        of, _, name = shown(blocker.id).removeprefix("pod ").partition("/")
        if namespace == blocker.namespace == of:
            own.append(name)
        else:
            others += 1

    return {"own": own[:BLOCKERS_NAMED], "ownCount": len(own), "others": others}
