"""Gangs of owners: which pods ask for one, what their owners declare, and whether they are one
(semantics O1 to O8).

Invariant: only owners with a pod that asks cost anything beyond what was read. An owner is known by
its uid, and what it declared last is remembered while it has pods that ask. Pods that change
between their gang and plain pods do so a bounded number at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, TypeAlias

from gangsched.api import keys
from gangsched.api.owner_declarations import LATE_S, OwnerDeclaration, owner_name, states_minimum
from gangsched.model.objects import Pod
from gangsched.model.owners import OWNER_KINDS, OWNER_VERSIONS, OwnerGangs, OwnerObject
from gangsched.model.protocol import ObjectRef, RecordEvent
from gangsched.model.reasons import EventReason
from gangsched.sentences import owning as sentences
from gangsched.state.groups import Registry
from gangsched.state.reporting.gang_events import pod_ref
from gangsched.state.timers import Timers

OWNER_WAIT_S: Final = 2.0
"""How long pods wait for an owner that is not known, once owners of its kind are read (O8): they
come by two watches, and no order holds between them.
"""
MOVED_AT_A_TIME: Final = 60
"""Pods that one turn assigns again, as those of sub groups (`state.divided_pods`)."""
UID_SHOWN: Final = 8
NamespaceLabels: TypeAlias = Mapping[str, Mapping[str, str]]


@dataclass(slots=True)
class _AskedOwner:
    """An owner of which a pod asks for a gang."""

    #: Id of the gang.
    gang: str
    kind: str
    key: str
    #: Namespace and uid of the owner.
    uid: str
    #: As it was read last.
    owner: OwnerObject | None = None
    #: Uids of the pods that ask.
    pods: set[str] = field(default_factory=set)
    #: Its pods are plain unless they state a minimum.
    is_plain: bool = False
    is_reported: bool = False
    #: Since when it has not created all of its pods.
    is_late: bool = False


class OwnerGangRegister:
    """Assigns pods to the gangs of their owners."""

    def __init__(self, registry: Registry, owner_gangs: OwnerGangs) -> None:
        self._registry = registry
        self._setting = owner_gangs
        #: Namespaces whose label asks for all of their pods, or opts out.
        self._asking: frozenset[str] = frozenset()
        self._owners: dict[type[OwnerObject], dict[str, OwnerObject]] = {}
        #: By kind, whether its objects can be read; kinds that were not read yet are missing.
        self._is_read: dict[type[OwnerObject], bool] = {}
        #: By uid of the owner.
        self._asked: dict[str, _AskedOwner] = {}
        self._owner_of: dict[str, str] = {}
        #: By id of the gang, the uid of its owner.
        self._uid_of: dict[str, str] = {}
        #: Pods that are to be assigned again, by uid, in order.
        self._moving: dict[str, None] = {}
        #: By uid of the owner: when pods stop to wait for it, and when it is late.
        self._waits = Timers()
        self._lates = Timers()
        self._events: list[RecordEvent] = []

    def __len__(self) -> int:
        """Number of stored owners and pods."""
        known = 0
        for owners in self._owners.values():
            known += len(owners)

        return known + len(self._asked) + len(self._owner_of) + len(self._moving)

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

    # --- pods ------------------------------------------------------------------------------------

    def gang_of(self, pod: Pod, now_s: float, *, waits: bool) -> str:
        """The id of the gang that the pod is in, "" if the pods of its owner are plain.

        `waits`: the pod is ours to place, so that its owner is told why they are.
        """
        asked = self._enter(pod, now_s)
        if not asked.is_plain or self._starts_together(asked, pod):
            self._declare(asked)
            return asked.gang

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
        asked = self._asked.get(_id(pod.namespace, pod.controller_uid))
        if asked is None:
            asked = self._ask(pod, now_s)

        if pod.uid not in asked.pods:
            self.left(pod.uid)
            asked.pods.add(pod.uid)
            self._owner_of[pod.uid] = asked.uid

        return asked

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

    def _ask(self, pod: Pod, now_s: float) -> _AskedOwner:
        """The first pod of an owner asks."""
        gang = f"{pod.namespace}/{owner_name(pod)}"
        # An owner that was created again, while pods of the one before still end.
        owner_id = _id(pod.namespace, pod.controller_uid)
        if self._uid_of.get(gang, owner_id) != owner_id:
            gang += f".{pod.controller_uid[:UID_SHOWN]}"

        asked = _AskedOwner(
            gang=gang,
            kind=pod.controller_kind,
            key=f"{pod.namespace}/{pod.owner}",
            uid=owner_id,
        )
        kind = OWNER_KINDS.get(pod.controller_kind)
        if kind is not None:
            asked.owner = self._find(kind, asked.uid)

        self._asked[asked.uid] = asked
        self._uid_of[gang] = asked.uid
        self._lates.set(asked.uid, now_s + LATE_S)
        if asked.owner is None:
            self._waits.set(asked.uid, now_s + OWNER_WAIT_S)

        self._judge(asked, now_s)
        return asked

    def _forget(self, asked: _AskedOwner) -> None:
        del self._asked[asked.uid]
        self._uid_of.pop(asked.gang, None)
        self._waits.drop(asked.uid)
        self._lates.drop(asked.uid)

    # --- owners ----------------------------------------------------------------------------------

    def apply(self, owner: OwnerObject, now_s: float) -> None:
        """An owner exists or has changed."""
        self._owners.setdefault(type(owner), {})[owner.uid] = owner
        self._update(owner, now_s)

    def drop(self, kind: type[OwnerObject], uid: str) -> None:
        """An owner is gone; its pods keep what it declared last."""
        self._owners.get(kind, {}).pop(uid, None)

    def replace(self, kind: type[OwnerObject], owners: Iterable[OwnerObject], now_s: float) -> None:
        """All owners of a kind."""
        self._owners[kind] = {owner.uid: owner for owner in owners}
        self._is_read[kind] = True

        for asked in self._of_kind(kind):
            owner = self._find(kind, asked.uid)
            if owner is not None:
                self._update(owner, now_s)
                continue

            if asked.owner is None:
                self._waits.set(asked.uid, now_s + OWNER_WAIT_S)

            self._judge(asked, now_s)

    def miss(self, kind: type[OwnerObject], now_s: float) -> None:
        """Owners of a kind cannot be read, or no longer."""
        if self._is_read.get(kind) is False:
            return

        self._is_read[kind] = False
        for asked in self._of_kind(kind):
            self._judge(asked, now_s)

    def _find(self, kind: type[OwnerObject], owner_id: str) -> OwnerObject | None:
        """An owner that was read, in the namespace of the pods that name it."""
        namespace, _, uid = owner_id.partition("/")
        owner = self._owners.get(kind, {}).get(uid)
        # The owner reference of a pod is written by its user, who may name any uid.
        if owner is None or owner.namespace != namespace:
            return None

        return owner

    def _of_kind(self, kind: type[OwnerObject]) -> list[_AskedOwner]:
        found = []
        for asked in self._asked.values():
            if OWNER_KINDS.get(asked.kind) is kind:
                found.append(asked)

        return found

    def _update(self, owner: OwnerObject, now_s: float) -> None:
        asked = self._asked.get(_id(owner.namespace, owner.uid))
        if asked is None:
            return

        if asked.owner is None or asked.owner.minimum != owner.minimum:
            asked.is_late = False
            self._lates.set(asked.uid, now_s + LATE_S)

        asked.owner = owner
        self._waits.drop(asked.uid)
        self._judge(asked, now_s)

    def _judge(self, asked: _AskedOwner, now_s: float) -> None:
        """Decide whether the pods of an owner are a gang; move them if that changed."""
        before = asked.is_plain
        asked.is_plain = self._plain_because(asked, now_s) != ""
        if asked.is_plain != before:
            self._moving |= dict.fromkeys(asked.pods)

        if asked.gang in self._registry.gangs:
            self._declare(asked)

    def _plain_because(self, asked: _AskedOwner, now_s: float) -> str:
        """Why the pods of an owner start one by one; "" if they start together."""
        kind = OWNER_KINDS.get(asked.kind)
        if kind is None:
            return sentences.no_minimum(asked.kind, asked.key)

        if asked.owner is not None:
            if asked.owner.one_by_one:
                return sentences.one_by_one(asked.kind, asked.key)

            return ""

        is_read = self._is_read.get(kind)
        if is_read is False:
            return sentences.unread(asked.kind, asked.key)
        # While they are being read, which takes as long as it takes, the pods wait.
        if is_read is None:
            return ""
        if asked.uid in self._waits and self._waits.get(asked.uid) > now_s:
            return ""

        return sentences.unknown(asked.kind, asked.key)

    def _starts_together(self, asked: _AskedOwner, pod: Pod) -> bool:
        """Whether the pod states the minimum that its owner does not declare."""
        is_ordered = asked.owner is not None and asked.owner.one_by_one
        return not is_ordered and states_minimum(dict(pod.gang_metadata))

    def _declare(self, asked: _AskedOwner) -> None:
        """Give the gang what its owner declares."""
        declared = OwnerDeclaration(
            kind=asked.kind,
            key=asked.key,
        )
        if asked.owner is not None:
            declared = self._declaration(declared, asked, asked.owner)
        elif asked.kind in OWNER_KINDS:
            declared = replace(
                declared,
                waits=sentences.awaited(declared.who),
            )

        record = self._registry.gangs.get(asked.gang)
        if record is None:
            record = self._registry.gang(asked.gang)

        if record.owner != declared:
            record.owner = declared
            self._registry.touch(asked.gang)

    def _declaration(
        self,
        of_nobody: OwnerDeclaration,
        asked: _AskedOwner,
        owner: OwnerObject,
    ) -> OwnerDeclaration:
        """What an owner declares that was read."""
        if owner.suspended:
            return replace(
                of_nobody,
                waits=sentences.suspended(of_nobody.who),
            )

        minimum: int | None = owner.minimum
        waits = ""
        if not owner.minimum and not owner.succeeded:
            # Its pods are known before its new size, by another watch: they would start alone.
            minimum = None
            waits = sentences.without_pods(of_nobody.who)

        return replace(
            of_nobody,
            minimum=minimum,
            waits=waits,
            succeeded=owner.succeeded,
            gang_metadata=owner.gang_metadata,
            is_late=asked.is_late,
            is_unread=self._is_read.get(type(owner)) is False,
        )

    # --- time, and reports -----------------------------------------------------------------------

    @property
    def is_behind(self) -> bool:
        """Whether pods still have to be assigned again."""
        return bool(self._moving)

    def move(self, uids: Iterable[str]) -> None:
        """Assign these pods again in the next turns."""
        self._moving |= dict.fromkeys(uids)

    def take_moving(self) -> list[str]:
        """Uids of some pods that are to be assigned again."""
        taken = list(islice(self._moving, MOVED_AT_A_TIME))
        for uid in taken:
            del self._moving[uid]

        return taken

    def next_deadline_s(self) -> float | None:
        """When `look` must be called although nothing changes."""
        wait_s = self._waits.next_s()
        late_s = self._lates.next_s()
        if wait_s is None:
            return late_s
        if late_s is None:
            return wait_s

        return min(wait_s, late_s)

    def look(self, now_s: float) -> None:
        """Stop to wait for owners that are not found, and report those that are late."""
        for uid in self._waits.take_due(now_s):
            self._judge(self._asked[uid], now_s)

        for uid in self._lates.take_due(now_s):
            asked = self._asked[uid]
            if asked.owner is None or asked.is_plain:
                continue

            if len(asked.pods) < asked.owner.minimum:
                asked.is_late = True
                self._declare(asked)

    def take_events(self) -> list[RecordEvent]:
        """Events since the last call."""
        events = self._events
        self._events = []
        return events

    def _report_plain(self, asked: _AskedOwner, pod: Pod) -> None:
        """Report once on an owner why its pods start one by one."""
        if asked.is_reported:
            return

        asked.is_reported = True
        text = self._plain_because(asked, float("inf"))
        version = OWNER_VERSIONS.get(asked.kind)
        ref = pod_ref(pod)
        if version is not None:
            ref = ObjectRef(
                version,
                asked.kind,
                pod.namespace,
                pod.owner,
                pod.controller_uid,
            )

        event = RecordEvent(
            ref,
            EventReason.NOT_A_GANG,
            text,
            warning=True,
        )
        self._events.append(event)


def _id(namespace: str, uid: str) -> str:
    """What an owner is known by."""
    return f"{namespace}/{uid}"
