"""What people are told: conditions on pods, the status of PodGroups, Events (semantics E1-E4).

Law: a verdict is told once it stood for `settle_s` (a gang whose members are still being created changes its verdict
with each of them), at most once, and only where it differs from what was told last. Telling never changes a decision.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gangsched.model.gang import Gang, Refusal
from gangsched.model.objects import Pod
from gangsched.model.plan import Verdict
from gangsched.model.protocol import ObjectRef, RecordEvent, Report, SetPodCondition, SetPodGroupStatus
from gangsched.model.reasons import EventReason, Reason
from gangsched.state.gangs import GangRecord
from gangsched.state.groups import GroupRecord, Registry, broken
from gangsched.state.status import status


class Reports:
    """Remembers what was told and when the next thing is due."""

    def __init__(self, *, settle_s: float) -> None:
        self._settle_s = settle_s
        self._due_s: dict[str, float] = {}
        self._pods: dict[str, dict[str, tuple[str, str]]] = {}
        self._events: dict[str, set[tuple[str, str]]] = {}
        self._statuses: dict[str, tuple[str, object]] = {}

    def note(self, group_id: str, now_s: float) -> None:
        """Something about the group changed: look at it when it has settled."""
        self._due_s.setdefault(group_id, now_s + self._settle_s)

    def forget(self, gang_ids: set[str]) -> None:
        """The gangs are gone."""
        for gang_id in gang_ids:
            self._pods.pop(gang_id, None)
            self._events.pop(gang_id, None)
            self._statuses.pop(gang_id, None)

    def next_deadline_s(self) -> float | None:
        """When `take` has something to say."""
        return min(self._due_s.values(), default=None)

    def take(self, registry: Registry, *, now_s: float, wall: str, everything: bool = False) -> list[Report]:
        """All that is due now (with `everything`, all that is waiting), in group order."""
        due = sorted(group_id for group_id, due_s in self._due_s.items() if everything or due_s <= now_s)
        reports: list[Report] = []
        for group_id in due:
            del self._due_s[group_id]
            group = registry.groups.get(group_id)
            if group is not None:
                reports += self._group(group, registry, wall)
        return reports

    def announce(self, record: GangRecord, verdict: Verdict) -> list[RecordEvent]:
        """The Event of a verdict that must be told whatever follows it (semantics T2, D1)."""
        return list(self._event(record, verdict.reason.value, verdict.message, warning=True, once=True))

    def _group(self, group: GroupRecord, registry: Registry, wall: str) -> Iterator[Report]:
        faults = [text for gang_id in group.gangs for text in registry.gangs[gang_id].faults.values()]
        for gang_id in group.gangs:
            record, gang = registry.gangs[gang_id], registry.view(gang_id)
            if group.verdict is not None:
                yield from self._tell_pods(record, gang, group.verdict, faults)
            if record.plain or not record.ours:
                continue
            yield from self._tell_gang(record, gang, group.verdict, registry.accusers(gang_id))
            yield from self._tell_status(record, gang, group.verdict, wall)
        for accused in group.accused:  # the other side of a mismatch (semantics I4)
            assert group.refusal is not None
            yield from self._event(
                registry.gangs[accused], Reason.INVALID_GANG.value, group.refusal.message, warning=True
            )

    def _tell_pods(self, record: GangRecord, gang: Gang, verdict: Verdict, faults: Sequence[str]) -> Iterator[Report]:
        """Conditions where they changed; `faults` of its group keep a pod waiting that nothing else is known of."""
        notes = {note.uid: Refusal(note.reason, note.message) for note in verdict.notes}
        of_gang: Refusal | None = dict(verdict.gangs).get(gang.id, Refusal(verdict.reason, verdict.message))
        if of_gang is not None and of_gang.reason is Reason.SCHEDULED:
            of_gang = None
        if of_gang is None and faults:
            of_gang = Refusal(Reason.BACK_OFF, faults[0])
        told = self._pods.setdefault(gang.id, {})
        waiting = [*gang.pending, *gang.retry, *(placement.pod for placement in gang.held)]
        for pod in waiting:
            fault = record.faults.get(pod.uid)
            refusal = Refusal(Reason.BACK_OFF, fault) if fault else notes.get(pod.uid, of_gang)
            if refusal is None:
                continue
            before = told.get(pod.uid) or _stored(pod)
            now = (refusal.reason.value, refusal.message)
            told[pod.uid] = now
            if before == now:
                continue
            yield SetPodCondition(pod.uid, pod.namespace, pod.name, *now)
            if gang.plain or before is None or before[0] != now[0]:
                yield RecordEvent(pod_ref(pod), EventReason.FAILED_SCHEDULING, refusal.message, warning=True)
        if len(told) > 2 * len(record.members):
            self._pods[gang.id] = {uid: said for uid, said in told.items() if uid in record.members}

    def _tell_gang(
        self, record: GangRecord, gang: Gang, verdict: Verdict | None, accusers: Sequence[GroupRecord]
    ) -> Iterator[Report]:
        """Events on the PodGroup (or the oldest pod): what is wrong for as long as it is, and the change of verdict."""
        refusal = None
        if verdict is not None:
            refusal = dict(verdict.gangs).get(gang.id, Refusal(verdict.reason, verdict.message))
        lasting = list(_wrong(record, gang, accusers))
        told = self._events.setdefault(record.id, set())
        is_lasting = refusal is not None and refusal.reason is Reason.INVALID_GANG
        true = {*lasting, (refusal.reason.value, refusal.message)} if refusal and is_lasting else set(lasting)
        told.difference_update([said for said in told if said[0] in _LASTING and said not in true])
        for reason, text in lasting:
            yield from self._event(record, reason, text, warning=True)
        if refusal is None or verdict is None:
            return
        if refusal.reason is Reason.SCHEDULED:
            if verdict.binds and refusal.message:
                yield from self._event(record, EventReason.GANG_SCHEDULED, refusal.message, warning=False, once=True)
        else:
            yield from self._event(record, refusal.reason.value, refusal.message, warning=True, once=True)

    def _event(
        self, record: GangRecord, reason: str, message: str, *, warning: bool, once: bool = False
    ) -> Iterator[RecordEvent]:
        """An Event on the gang, unless it was told; `once` things replace each other, so a return to them is news."""
        told = self._events.setdefault(record.id, set())
        if (reason, message) in told or not record.ours:
            return
        if once:
            told.difference_update([said for said in told if said[0] not in _LASTING])
        told.add((reason, message))
        ref = gang_ref(record)
        if ref is not None:
            yield RecordEvent(ref, reason, message, warning=warning)

    def _tell_status(
        self, record: GangRecord, gang: Gang, verdict: Verdict | None, wall: str
    ) -> Iterator[SetPodGroupStatus]:
        pod_group = record.pod_group
        if pod_group is None or pod_group.deleting:
            return
        uid, written = self._statuses.get(record.id, ("", None))
        told = frozenset(_types(written)) if uid == pod_group.uid else frozenset[str]()
        wanted = status(record, pod_group, gang, verdict, wall=wall, told=told)
        if uid == pod_group.uid and _unchanged(wanted, written):
            return
        if written is None and _unchanged(wanted, pod_group.status):
            return
        self._statuses[record.id] = (pod_group.uid, wanted)
        yield SetPodGroupStatus(
            pod_group.api_group,
            pod_group.version,
            pod_group.namespace,
            pod_group.name,
            pod_group.uid,
            wanted,
            urgent=gang.waiting or gang.quorum < gang.min_member,
        )


_LASTING = frozenset({Reason.INVALID_GANG.value, EventReason.MIXED_SCHEDULERS.value, EventReason.DEGRADED.value})


def _wrong(record: GangRecord, gang: Gang, accusers: Sequence[GroupRecord]) -> Iterator[tuple[str, str]]:
    """(reason, sentence) of bad values, groups tied without consent, foreign members, and being below the minimum."""
    for problem in record.spec.problems if record.spec else ():
        yield Reason.INVALID_GANG.value, problem.text
    for accuser in accusers:  # told to it when it was accused, unless it has become ours since
        if accuser.refusal is not None:
            yield Reason.INVALID_GANG.value, accuser.refusal.message
    if gang.foreign:
        named = ", ".join(gang.foreign[:5]) + (", …" if len(gang.foreign) > 5 else "")
        one = len(gang.foreign) == 1
        does = "member has another schedulerName and does" if one else "members have another schedulerName and do"
        yield EventReason.MIXED_SCHEDULERS.value, f"{len(gang.foreign)} pending {does} not count: {named}"
    if broken(gang):
        text = f"{gang.bound + gang.succeeded} of {gang.min_member} members are bound; the others are placed first"
        yield EventReason.DEGRADED.value, text


def pod_ref(pod: Pod) -> ObjectRef:
    """A pod as the object of an Event."""
    return ObjectRef("v1", "Pod", pod.namespace, pod.name, pod.uid)


def gang_ref(record: GangRecord) -> ObjectRef | None:
    """The PodGroup as the object of an Event, else the oldest pod (semantics E2)."""
    pod_group = record.pod_group
    if pod_group is not None:
        version = f"{pod_group.api_group}/{pod_group.version}"
        return ObjectRef(version, "PodGroup", pod_group.namespace, pod_group.name, pod_group.uid)
    oldest = record.oldest()
    return pod_ref(oldest) if oldest is not None else None


def _stored(pod: Pod) -> tuple[str, str] | None:
    """What the pod's condition says already, e.g. after a restart."""
    if pod.condition is None or pod.condition.status != "False":
        return None
    return (pod.condition.reason, pod.condition.message)


def _unchanged(wanted: dict[str, object], stored: object) -> bool:
    """Whether every field to write is stored as wanted, transition times and the start time aside."""
    if not isinstance(stored, Mapping):
        return False
    return all(_bare(key, value) == _bare(key, stored.get(key, _ABSENT.get(key))) for key, value in wanted.items())


def _types(written: object) -> Iterator[str]:
    """The types of the conditions in a status."""
    conditions = written.get("conditions") if isinstance(written, Mapping) else None
    for entry in conditions if isinstance(conditions, list) else ():
        yield entry["type"]


_ABSENT: dict[str, object] = {"occupiedBy": "", "scheduled": 0, "running": 0, "succeeded": 0, "failed": 0}


def _bare(key: str, value: object) -> object:
    if key == "scheduleStartTime":
        return value is not None
    if key == "conditions" and isinstance(value, list):
        return [
            {name: entry[name] for name in entry if name != "lastTransitionTime"}
            for entry in value
            if isinstance(entry, Mapping)
        ]
    return value
