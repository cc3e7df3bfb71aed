"""What a PodGroup's status stores, compared with what was and will be written (semantics E3).

Invariant: pure, except that `show` records in the gang's record what the watch has shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from gangsched.api.dialects import DIALECTS
from gangsched.api.podgroup import (
    COMPOSITE_INITIALLY_SCHEDULED,
    NATIVE_INITIALLY_SCHEDULED,
    NATIVE_SATISFIED,
    NATIVE_SCHEDULED,
    SCHEDULED,
    PodGroupPhase,
)
from gangsched.model.objects import PodGroup
from gangsched.state.gangs import GangRecord
from gangsched.state.reporting.reported import WrittenStatus
from gangsched.state.reporting.reserved import RESERVED

FACTUAL_TYPES = frozenset(
    {
        SCHEDULED,
        NATIVE_SCHEDULED,
        NATIVE_INITIALLY_SCHEDULED,
        COMPOSITE_INITIALLY_SCHEDULED,
        RESERVED,
    }
)

LATE_S = 60.0
"""How long after our first report a write of the process before may be carried out: an API server
ends requests that take longer. What is written later than that is not believed, and restored.
"""


def written_on(record: GangRecord, pod_group: PodGroup) -> WrittenStatus | None:
    """The last status that was written to this object."""
    written = record.reported.status
    # Deleted and created again under the same name: nothing is written on this one yet.
    if written is not None and written.uid == pod_group.uid:
        return written

    return None


def may_be_of_another(record: GangRecord, pod_group: PodGroup, now_s: float) -> bool:
    """Whether a stored status may tell what this process does not know: what the process before
    knew, or another one that leads.
    """
    first = record.reported.first
    if first is None:
        return True

    uid, since_s = first
    return uid == pod_group.uid and now_s < since_s + LATE_S


def show(record: GangRecord, pod_group: PodGroup) -> bool:
    """Record that the watch shows another status of a gang's PodGroup: our own last write, or what
    somebody else made of it. Returns whether it must be compared with what is to be reported.
    """
    written = written_on(record, pod_group)
    if written is None:
        return record.ours

    if not written.is_shown:
        written = record.reported.status = _compared(written, pod_group.status)

    return not unchanged(written.kept, pod_group.status)


def _compared(written: WrittenStatus, stored: Mapping[str, object]) -> WrittenStatus:
    """What was written, and how this stored status shows it.

    Definitions of other projects lack some fields: the first status that shows the phase tells
    which, since the watch shows every version.
    """
    missing = differing(written.status, stored)
    is_lacking = all(key not in stored for key in missing)
    if "phase" in missing or not is_lacking or not (missing < written.status.keys()):
        return replace(written, is_contested=True)

    return replace(written, is_shown=True, dropped=missing)


def is_finished(pod_group: PodGroup) -> bool:
    """Whether the stored phase says that the gang has finished."""
    return _stored_phase(pod_group) is PodGroupPhase.FINISHED


def has_ended(pod_group: PodGroup) -> bool:
    """Whether the stored phase says that the gang has finished or failed."""
    return _stored_phase(pod_group) in {PodGroupPhase.FINISHED, PodGroupPhase.FAILED}


def _stored_phase(pod_group: PodGroup) -> PodGroupPhase | None:
    """The phase of ours that an object of any kind stores; None if that is not certain."""
    stored = pod_group.status.get("phase")
    words = DIALECTS[pod_group.api_group].phases
    phases = []

    for phase in PodGroupPhase:
        word = words[phase] if words is not None else phase.value
        if word == stored:
            phases.append(phase)

    return phases[0] if len(phases) == 1 else None


_ABSENT: dict[str, object] = {
    "occupiedBy": "",
    "scheduled": 0,
    "running": 0,
    "succeeded": 0,
    "failed": 0,
}


def unchanged(wanted: Mapping[str, object], stored: object) -> bool:
    """Whether every field to write is already stored, ignoring transition times and the start time.

    Conditions are compared by type: those of other writers do not matter.
    """
    return not differing(wanted, stored)


def differing(wanted: Mapping[str, object], stored: object) -> frozenset[str]:
    """The fields to write that are not stored."""
    if not isinstance(stored, Mapping):
        return frozenset(wanted)

    missing = set()
    for key, value in wanted.items():
        stored_value = stored.get(key, _ABSENT.get(key))
        if not _is_stored(key, value, stored_value):
            missing.add(key)

    return frozenset(missing)


def _is_stored(key: str, wanted: object, stored: object) -> bool:
    # Set once, and in another second by each process that looks: only whether it is there counts.
    if key == "scheduleStartTime":
        return stored is not None
    # Nearly always: the watch shows what was written.
    if wanted == stored:
        return True
    if key != "conditions":
        return False

    by_type = _by_type(stored)
    asked = _by_type(wanted)
    return all(by_type.get(kind) == entry for kind, entry in asked.items())


def _by_type(conditions: object) -> dict[str, dict[str, object]]:
    """Conditions by type, as far as they are compared; what others stored may be anything."""
    by_type = {}
    for entry in _entries({"conditions": conditions}):
        kind = entry.get("type")
        if isinstance(kind, str):
            by_type[kind] = _bare(entry)

    return by_type


def facts_aside(status: Mapping[str, object]) -> dict[str, object]:
    """The status without the messages of the conditions `Scheduled` and `Reserved`, whose counts
    and times change often.
    """
    entries = (
        entry | {"message": ""} if entry["type"] in FACTUAL_TYPES else entry
        for entry in _entries(status)
    )
    return {**status, "conditions": list(entries)}


def stored_condition(status: Mapping[str, object], kind: str) -> Mapping[str, object] | None:
    """Stored condition of a type; None if there is none."""
    return next((entry for entry in _entries(status) if entry.get("type") == kind), None)


def condition_types(status: Mapping[str, object]) -> frozenset[str]:
    """Types of the conditions in a status."""
    return frozenset(str(entry["type"]) for entry in _entries(status))


def _entries(status: Mapping[str, object]) -> Iterator[dict[str, object]]:
    conditions = status.get("conditions")
    return (
        dict(entry)
        for entry in (conditions if isinstance(conditions, list) else ())
        if isinstance(entry, Mapping)
    )


def _bare(entry: Mapping[str, object]) -> dict[str, object]:
    """A condition without its transition time, which is that of this report where nothing
    changed.
    """
    left_out = {"lastTransitionTime"}
    # Its counts go with other writes, and are none of their own.
    if entry.get("type") == NATIVE_SATISFIED:
        left_out.add("message")

    return {name: field for name, field in entry.items() if name not in left_out}
