"""Gangs of owners: which pods ask for one, what their owners declare, and whether they are one
(semantics O1 to O8).

Invariant: only owners with a pod that asks cost anything beyond what was read. An owner is known by
its uid, and what it declared last is remembered while it has pods that ask. Pods that change
between their gang and plain pods do so a bounded number at a time, and so are owners judged again
whose own owner has changed, or that were listed: one namespace after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum, auto
from typing import Final, TypeAlias

from gangsched.api import keys
from gangsched.api.owner_declarations import LATE_S, OwnerDeclaration, states_minimum
from gangsched.model.objects import Pod
from gangsched.model.owners import (
    OWNER_KINDS,
    OWNER_VERSIONS,
    TABLE,
    ControllerRef,
    JobOwner,
    OfJobs,
    OwnerGangs,
    OwnerObject,
)
from gangsched.model.protocol import ObjectRef, RecordEvent
from gangsched.model.reasons import EventReason
from gangsched.sentences import owning as sentences
from gangsched.state.groups import Registry
from gangsched.state.known_owners import KnownOwners
from gangsched.state.namespace_turns import NamespaceTurns
from gangsched.state.owner_trees import ALONE, OWNER_WAIT_S, UID_SHOWN, OwnerTrees, TreePlace
from gangsched.state.reporting.gang_events import pod_ref
from gangsched.state.timers import Timers

MOVED_AT_A_TIME: Final = 60
"""Pods that one turn assigns again, as those of sub groups (`state.divided_pods`)."""
JUDGED_AT_A_TIME: Final = 100
"""Owners that one turn judges again because of another object."""
NamespaceLabels: TypeAlias = Mapping[str, Mapping[str, str]]


class WhyPlain(StrEnum):
    """Why the pods of an owner start one by one."""

    NO_MINIMUM = auto()
    ONE_BY_ONE = auto()
    BEGUN = auto()
    UNREAD = auto()
    UNKNOWN = auto()


SENTENCES: Final[Mapping[WhyPlain, Callable[[str, str], str]]] = {
    WhyPlain.NO_MINIMUM: sentences.no_minimum,
    WhyPlain.ONE_BY_ONE: sentences.one_by_one,
    WhyPlain.BEGUN: sentences.begun,
    WhyPlain.UNREAD: sentences.unread,
    WhyPlain.UNKNOWN: sentences.unknown,
}
"""What an owner is told, by its kind and key."""


@dataclass(slots=True)
class _AskedOwner:
    """An owner of which a pod asks for a gang."""

    #: Id of the gang.
    gang: str
    ref: ControllerRef
    namespace: str
    #: Namespace and uid of the owner.
    uid: str
    #: As it was read last.
    owner: OwnerObject | None = None
    #: Uids of the pods that ask.
    pods: set[str] = field(default_factory=set)
    #: Its pods are plain unless they state a minimum.
    is_plain: bool = False
    #: Why they are, as far as it was told.
    told_reasons: set[WhyPlain] = field(default_factory=set)
    #: A pod of it has a node that it got as a plain pod: the others stay plain, too.
    has_begun: bool = False
    #: A pod of it was ours to place, so that its owner is told what hinders that.
    is_ours: bool = False
    #: Since when it has not created all of its pods.
    is_late: bool = False

    @property
    def kind(self) -> str:
        """Its kind, as pods have it."""
        return self.ref.kind

    @property
    def key(self) -> str:
        """`namespace/name` of the owner."""
        return f"{self.namespace}/{self.ref.name}"


class OwnerGangRegister:
    """Assigns pods to the gangs of their owners."""

    def __init__(self, registry: Registry, owner_gangs: OwnerGangs) -> None:
        self._registry = registry
        self._setting = owner_gangs
        #: Namespaces whose label asks for all of their pods, or opts out.
        self._asking: frozenset[str] = frozenset()
        self._known = KnownOwners()
        self._trees = OwnerTrees(registry, self._known)
        #: By uid of the owner.
        self._asked: dict[str, _AskedOwner] = {}
        self._owner_of: dict[str, str] = {}
        #: By id of the gang, the uid of its owner.
        self._uid_of: dict[str, str] = {}
        #: Uids of pods that are to be assigned again.
        self._moving = NamespaceTurns()
        #: Ids of owners that are to be judged again.
        self._judging = NamespaceTurns()
        #: By uid of the owner: when pods stop to wait for it, and when it is late.
        self._waits = Timers()
        self._lates = Timers()
        self._events: list[RecordEvent] = []

    def __len__(self) -> int:
        """Number of stored owners and pods."""
        asking = len(self._asked) + len(self._owner_of)
        queued = len(self._moving) + len(self._judging)
        return len(self._known) + len(self._trees) + asking + queued

    # --- who asks --------------------------------------------------------------------------------

    def asking(self, namespace: str) -> OwnerGangs:
        """Whose pods in a namespace become gangs of their owners."""
        if self._setting is OwnerGangs.ASKED and namespace in self._asking:
            return OwnerGangs.ALL

        return self._setting

    def label_namespaces(self, labels: NamespaceLabels) -> frozenset[str]:
        """Follow the labels of all namespaces; return those that ask now and did not, or no
        longer ask.
        """
        found = set()
        for name, of_name in labels.items():
            if of_name.get(keys.OWNER_GANG) == keys.OWNER:
                found.add(name)

        before = self._asking
        self._asking = frozenset(found)
        if self._setting is OwnerGangs.ASKED:
            return before ^ self._asking

        return frozenset()

    def label_namespace(self, name: str, labels: Mapping[str, str]) -> bool:
        """Follow the labels of one namespace; whether it asks now or did, and not both."""
        asks = labels.get(keys.OWNER_GANG) == keys.OWNER
        if asks == (name in self._asking):
            return False

        self._asking ^= {name}
        return self._setting is OwnerGangs.ASKED

    # --- pods ------------------------------------------------------------------------------------

    def gang_of(self, pod: Pod, now_s: float, *, waits: bool) -> str:
        """The id of the gang that the pod is in, "" if the pods of its owner are plain.

        `waits`: the pod is ours to place, so that its owner is told why they are.
        """
        asked = self._enter(pod, now_s)
        if not asked.is_plain or self._starts_together(asked, pod):
            is_news = waits and not asked.is_ours
            asked.is_ours = asked.is_ours or waits
            if is_news or not self._is_declared(asked):
                self._declare(asked, now_s)

            return asked.gang

        # It has started alone, so that the others need not wait for it any more.
        asked.has_begun = asked.has_begun or bool(pod.node_name)
        if waits:
            self._report_plain(asked, pod)
        if not pod.live:  # of no gang, and so of no interest
            self.left(pod.uid)

        return ""

    def refuse(
        self,
        pod: Pod,
        owner_gangs: OwnerGangs,
        now_s: float,
        *,
        waits: bool,
    ) -> None:
        """Report once on the owner of a pod that it is never a gang, although that is asked for."""
        named = dict(pod.gang_metadata)
        # Whoever asked for all owners has not asked for this one.
        asks = self._setting is not OwnerGangs.ALL and keys.asks_for_owner(named, owner_gangs)
        if not asks or not pod.owner or pod.ends_with_node or not pod.live:
            self.left(pod.uid)
            return

        asked = self._enter(pod, now_s)
        if waits:
            self._report_plain(asked, pod)

    def _enter(self, pod: Pod, now_s: float) -> _AskedOwner:
        ref = self._owner_for(pod)
        asked = self._asked.get(_id(pod.namespace, ref.uid))
        if asked is None:
            asked = self._ask(pod, ref, now_s)

        if pod.uid not in asked.pods:
            self.left(pod.uid)
            asked.pods.add(pod.uid)
            self._owner_of[pod.uid] = asked.uid

        return asked

    def _owner_for(self, pod: Pod) -> ControllerRef:
        """The owner whose gang the pod asks for: its controller, or for a Job whose pods are
        members of the gang of the Job's controller, that one.
        """
        controller = ControllerRef(pod.controller_kind, pod.owner, pod.controller_uid)
        if OWNER_KINDS.get(pod.controller_kind) is not JobOwner:
            return controller

        job = self._known.find(JobOwner, pod.namespace, pod.controller_uid)
        if job is not None:
            return job.controller if _is_member(job) and job.controller else controller

        # A Job that is deleted while it has pods leaves them where they are.
        before = self._asked.get(self._owner_of.get(pod.uid, ""))
        return before.ref if before is not None else controller

    def left(self, uid: str) -> None:
        """The pod is gone, or is in no gang of its owner any more."""
        owner_uid = self._owner_of.pop(uid, None)
        if owner_uid is None:
            return

        asked = self._asked[owner_uid]
        asked.pods.discard(uid)
        if not asked.pods:
            self._forget(asked)

    def knows(self, uid: str) -> bool:
        """Whether the pod asked for the gang of its owner."""
        return uid in self._owner_of

    def _ask(self, pod: Pod, ref: ControllerRef, now_s: float) -> _AskedOwner:
        """The first pod of an owner asks."""
        owner_id = _id(pod.namespace, ref.uid)
        gang = self._free_name(f"{pod.namespace}/{ref.kind}.{ref.name}", ref.uid, owner_id)
        asked = _AskedOwner(
            gang=gang,
            ref=ref,
            namespace=pod.namespace,
            uid=owner_id,
        )
        kind = OWNER_KINDS.get(ref.kind)
        if kind is not None:
            asked.owner = self._known.find(kind, pod.namespace, ref.uid)

        self._asked[asked.uid] = asked
        self._uid_of[gang] = asked.uid
        self._lates.set(asked.uid, now_s + LATE_S)
        if asked.owner is None:
            self._waits.set(asked.uid, now_s + OWNER_WAIT_S)

        self._judge(asked, now_s)
        return asked

    def _free_name(self, gang: str, uid: str, owner_id: str) -> str:
        """The id of an owner's gang, with its uid while another gang or tree has this id: of an
        owner that was created again, pods of the one before still end.
        """
        # Pods name any uid, of which two may begin alike.
        for name in (gang, f"{gang}.{uid[:UID_SHOWN]}"):
            is_taken = self._uid_of.get(name, owner_id) != owner_id or self._trees.is_parent(name)
            if not is_taken and not self._is_named(name):
                return name

        return f"{gang}.{uid}"

    def _is_named(self, gang: str) -> bool:
        """Whether pods of others name this gang as theirs."""
        record = self._registry.gangs.get(gang)
        return record is not None and record.owner is None and bool(record.members)

    def is_of_owner(self, gang: str) -> bool:
        """Whether the pods of an owner are this gang, or its Jobs have this parent, which no other
        pod may name as its own gang.
        """
        return gang in self._uid_of or self._trees.is_parent(gang)

    def _forget(self, asked: _AskedOwner) -> None:
        self._trees.leave(asked.uid)
        del self._asked[asked.uid]
        self._uid_of.pop(asked.gang, None)
        self._waits.drop(asked.uid)
        self._lates.drop(asked.uid)
        self._judging.discard(asked.namespace, asked.uid)

    # --- owners ----------------------------------------------------------------------------------

    def apply(self, owner: OwnerObject, now_s: float) -> None:
        """An owner exists or has changed."""
        self._known.apply(owner)
        self._update(owner, now_s)
        self._trees.changed(type(owner), _id(owner.namespace, owner.uid), now_s)

    def drop(self, kind: type[OwnerObject], uid: str) -> None:
        """An owner is gone; its pods keep what it declared last."""
        self._known.drop(kind, uid)

    def replace(self, kind: type[OwnerObject], owners: Iterable[OwnerObject], now_s: float) -> None:
        """All owners of a kind."""
        was_read = self._known.is_read(kind)
        self._known.replace(kind, owners)

        for asked in self._of_kind(kind):
            owner = self._known.find(kind, asked.namespace, asked.ref.uid)
            # A later list mostly shows what is known.
            if was_read and owner is not None and owner == asked.owner:
                continue

            if owner is not None:
                self._note(asked, owner, now_s)
            elif asked.owner is None:
                self._waits.set(asked.uid, now_s + OWNER_WAIT_S)

            self._judging.add(asked.namespace, asked.uid)

        self._trees.changed(kind, None, now_s)
        if was_read is not None:
            return

        # The first list, before which nothing is planned: a plan would serve some out of order.
        while self._judging or self._trees.is_behind:
            self._judge_some(now_s)

    def miss(self, kind: type[OwnerObject], now_s: float) -> None:
        """Owners of a kind cannot be read, or no longer."""
        if not self._known.miss(kind):
            return

        for asked in self._of_kind(kind):
            self._judging.add(asked.namespace, asked.uid)

        self._trees.changed(kind, None, now_s)

    def _place_job(self, asked: _AskedOwner, now_s: float) -> None:
        """A Job is known, which may have an owner itself."""
        job = asked.owner
        if not isinstance(job, JobOwner):
            return

        if _is_member(job):
            # Its pods are to be members of another gang.
            self._moving.add_all(asked.namespace, asked.pods)
        else:
            self._trees.enter(asked.uid, job, now_s)

    def _of_kind(self, kind: type[OwnerObject]) -> list[_AskedOwner]:
        found = []
        for asked in self._asked.values():
            if OWNER_KINDS.get(asked.kind) is kind:
                found.append(asked)

        return found

    def _update(self, owner: OwnerObject, now_s: float) -> None:
        asked = self._asked.get(_id(owner.namespace, owner.uid))
        if asked is not None:
            self._note(asked, owner, now_s)
            self._judge(asked, now_s)

    def _note(self, asked: _AskedOwner, owner: OwnerObject, now_s: float) -> None:
        """An owner was read, which is to be judged."""
        if asked.owner is None or asked.owner.minimum != owner.minimum:
            asked.is_late = False
            self._lates.set(asked.uid, now_s + LATE_S)

        asked.owner = owner
        self._waits.drop(asked.uid)

    def _judge(self, asked: _AskedOwner, now_s: float) -> None:
        """Decide whether the pods of an owner are a gang; move them if that changed."""
        self._place_job(asked, now_s)
        before = asked.is_plain
        asked.is_plain = self._plain_because(asked, now_s) is not None
        if asked.is_plain != before:
            self._moving.add_all(asked.namespace, asked.pods)

        if asked.gang in self._registry.gangs:
            self._declare(asked, now_s)

    def _plain_because(self, asked: _AskedOwner, now_s: float) -> WhyPlain | None:
        """Why the pods of an owner start one by one; None if they start together."""
        kind = OWNER_KINDS.get(asked.kind)
        if kind is None:
            return WhyPlain.NO_MINIMUM

        if asked.owner is not None:
            if asked.owner.one_by_one:
                return WhyPlain.ONE_BY_ONE

            return WhyPlain.BEGUN if asked.has_begun else None

        is_read = self._known.is_read(kind)
        if is_read is False:
            return WhyPlain.UNREAD
        # While they are being read, which takes as long as it takes, the pods wait.
        if is_read is None:
            return None
        if asked.uid in self._waits and self._waits.get(asked.uid) > now_s:
            return None

        return WhyPlain.UNKNOWN

    def _starts_together(self, asked: _AskedOwner, pod: Pod) -> bool:
        """Whether the pod states the minimum that its owner does not declare."""
        is_ordered = asked.owner is not None and asked.owner.one_by_one
        return not is_ordered and states_minimum(dict(pod.gang_metadata))

    def _is_declared(self, asked: _AskedOwner) -> bool:
        """Whether the gang has what its owner declares: whatever changes that declares it anew."""
        record = self._registry.gangs.get(asked.gang)
        return record is not None and record.owner is not None

    def _declare(self, asked: _AskedOwner, now_s: float) -> None:
        """Give the gang what its owner declares."""
        record = self._registry.gangs.get(asked.gang)
        job = asked.owner
        is_behind = isinstance(job, JobOwner) and self._trees.is_outdated(job)
        if is_behind and record is not None and record.owner is not None:
            # It is judged again with all Jobs of its owner.
            return

        declared = OwnerDeclaration(
            kind=asked.kind,
            key=asked.key,
        )
        if asked.owner is not None:
            declared = self._declaration(declared, asked, asked.owner, now_s)
        elif asked.kind in OWNER_KINDS:
            declared = replace(
                declared,
                waits=sentences.awaited(declared.who),
            )

        if record is None:
            record = self._registry.gang(asked.gang)

        if record.owner != declared:
            record.owner = declared
            self._registry.touch_unhurried((asked.gang,))

        if asked.is_ours:
            self._report_apart(asked, now_s)

    def _declaration(
        self,
        of_nobody: OwnerDeclaration,
        asked: _AskedOwner,
        owner: OwnerObject,
        now_s: float,
    ) -> OwnerDeclaration:
        """What an owner declares that was read."""
        place = self._place(owner, now_s)
        if owner.suspended or place.waits:
            return replace(
                of_nobody,
                waits=place.waits or sentences.suspended(of_nobody.who),
            )

        minimum: int | None = owner.minimum
        waits = ""
        if not owner.minimum and not owner.succeeded:
            # Its pods are known before its new size, by another watch: they would start alone.
            minimum = None
            waits = sentences.without_pods(of_nobody.who)

        problem = ""
        if owner.out_of_reach is not None:
            problem = sentences.out_of_reach(of_nobody.who, *owner.out_of_reach)

        return replace(
            of_nobody,
            minimum=minimum,
            waits=waits,
            succeeded=owner.succeeded,
            gang_metadata=self._metadata(owner),
            problem=problem,
            parent=place.parent,
            is_late=asked.is_late,
            is_unread=self._known.is_read(type(owner)) is False,
        )

    def _metadata(self, owner: OwnerObject) -> keys.GangMetadata:
        """The values that an owner states; those of the owner of a Job that starts by itself are
        the Job's, unless it states others.
        """
        if not isinstance(owner, JobOwner):
            return owner.gang_metadata

        of_its_owner = self._trees.metadata_of_owner(owner)
        if not of_its_owner:
            return owner.gang_metadata

        return tuple(sorted((dict(of_its_owner) | dict(owner.gang_metadata)).items()))

    def _place(self, owner: OwnerObject, now_s: float) -> TreePlace:
        """The place of an owner in the tree of its own owner."""
        if not isinstance(owner, JobOwner) or owner.controller is None:
            return ALONE
        if _is_member(owner):
            return TreePlace(
                waits=sentences.awaited(f"{owner.controller.kind} {owner.controller.name}")
            )

        return self._trees.place(owner, now_s)

    # --- time, and reports -----------------------------------------------------------------------

    @property
    def is_behind(self) -> bool:
        """Whether pods still have to be assigned again, or owners judged."""
        return bool(self._moving or self._judging or self._trees.is_behind)

    def move(self, pods: Iterable[Pod]) -> None:
        """Assign these pods again in the next turns."""
        for pod in pods:
            self._moving.add(pod.namespace, pod.uid)

    def take_moving(self) -> list[str]:
        """Uids of some pods that are to be assigned again."""
        return self._moving.take(MOVED_AT_A_TIME)

    def next_deadline_s(self) -> float:
        """When `look` must be called although nothing changes."""
        return min(self._waits.next_s(), self._lates.next_s(), self._trees.next_s())

    def look(self, now_s: float) -> None:
        """Stop to wait for owners that are not found, and report those that are late."""
        for uid in self._waits.take_due(now_s):
            self._judging.add(self._asked[uid].namespace, uid)

        for uid in self._lates.take_due(now_s):
            self._look_at_late(self._asked[uid])

        self._judge_some(now_s)

    def _judge_some(self, now_s: float) -> None:
        """Judge a bounded number of owners again that wait for it."""
        for namespace, job_ids in self._trees.look(now_s):
            self._judging.add_all(namespace, job_ids)

        for uid in self._judging.take(JUDGED_AT_A_TIME):
            asked = self._asked.get(uid)
            if asked is not None:
                self._judge(asked, now_s)

    def _look_at_late(self, asked: _AskedOwner) -> None:
        """An owner has had the time to create all of its pods."""
        if asked.owner is None or asked.is_plain or asked.is_late:
            return

        if self._living(asked) < asked.owner.minimum:
            asked.is_late = True
            self._judging.add(asked.namespace, asked.uid)

    def _living(self, asked: _AskedOwner) -> int:
        """Pods of an owner that have not ended: it creates others in place of those that failed."""
        record = self._registry.gangs.get(asked.gang)
        number = 0
        for member in record.members.values() if record is not None else ():
            number += member.pod.live

        return number

    def take_events(self) -> list[RecordEvent]:
        """Events since the last call."""
        events = self._events
        self._events = []
        return events

    def _report_apart(self, asked: _AskedOwner, now_s: float) -> None:
        """Report once on the owner of a Job why its Jobs do not start together."""
        job = asked.owner
        if not isinstance(job, JobOwner) or job.controller is None or _is_member(job):
            return

        report = self._trees.report(job, now_s)
        if report is not None:
            about, text = report
            self._tell(about, text)

    def _report_plain(self, asked: _AskedOwner, pod: Pod) -> None:
        """Report on an owner why its pods start one by one, each reason once."""
        why = self._plain_because(asked, float("inf"))
        if why is None or why in asked.told_reasons:
            return

        asked.told_reasons.add(why)
        text = SENTENCES[why](asked.kind, asked.key)
        version = OWNER_VERSIONS.get(asked.kind)
        ref = pod_ref(pod)
        if version is not None:
            ref = ObjectRef(
                version,
                asked.kind,
                asked.namespace,
                asked.ref.name,
                asked.ref.uid,
            )

        self._tell(ref, text)

    def _tell(self, about: ObjectRef, text: str) -> None:
        """Tell on an object why pods do not start together."""
        event = RecordEvent(
            about,
            EventReason.NOT_A_GANG,
            text,
            warning=True,
        )
        self._events.append(event)


def _is_member(job: JobOwner) -> bool:
    """Whether the pods of the Job are members of the gang of its controller."""
    return job.controller is not None and TABLE[job.controller.kind].of_jobs is OfJobs.MEMBERS


def _id(namespace: str, uid: str) -> str:
    """What an owner is known by."""
    return f"{namespace}/{uid}"
