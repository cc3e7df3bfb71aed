"""Gangs whose members wait with claims, and which of them are to be looked at again because
something changed that they may wait for.

Invariant: a change takes the same time however many gangs it concerns. It is remembered by what
changed, and the gangs are taken a bounded number at a time, one namespace after the other. A gang
that waited when it changed, and still does, is taken after that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from gangsched.state.members import Member
from gangsched.state.namespace_turns import NamespaceTurns


@dataclass(frozen=True, slots=True)
class ClaimWait:
    """A pod without a node: its gang, and the keys of what it names."""

    gang: str
    namespace: str
    names: frozenset[str]


@dataclass(slots=True)
class _Topic:
    """What may change, and who waits for it."""

    namespace: str
    #: The number of pods of each gang.
    gangs: dict[str, int] = field(default_factory=dict)
    #: The gangs that are not taken yet, once the first one was.
    left: Iterator[str] | None = None
    #: It has changed since the first one was.
    has_changed: bool = False


class ClaimWaits:
    """The pods that wait, and the gangs that are to be looked at again."""

    def __init__(self) -> None:
        self._waits: dict[str, ClaimWait] = {}  # by uid of the pod
        #: By key; what concerns all pods of a namespace has its name.
        self._topics: dict[str, _Topic] = {}
        #: By namespace, the number of pods.
        self._pods: dict[str, int] = {}
        #: Keys of topics with gangs that are to be looked at again.
        self._changed = NamespaceTurns()

    def __len__(self) -> int:
        """Number of changes of which gangs are left."""
        return len(self._changed)

    def gangs_of_pods(self) -> dict[str, str]:
        """The gang of each pod that waits, by uid."""
        return {uid: wait.gang for uid, wait in self._waits.items()}

    def add(self, uid: str, wait: ClaimWait) -> None:
        """The pod waits, or names something else."""
        if self._waits.get(uid) == wait:
            return

        self.discard(uid)
        self._waits[uid] = wait
        namespace = wait.namespace
        self._pods[namespace] = self._pods.get(namespace, 0) + 1

        for key in (namespace, *wait.names):
            topic = self._topics.get(key)
            if topic is None:
                topic = self._topics[key] = _Topic(namespace)

            topic.gangs[wait.gang] = topic.gangs.get(wait.gang, 0) + 1

    def discard(self, uid: str) -> None:
        """The pod waits no longer, if it did."""
        wait = self._waits.pop(uid, None)
        if wait is None:
            return

        _count_down(self._pods, wait.namespace)
        for key in (wait.namespace, *wait.names):
            topic = self._topics[key]
            _count_down(topic.gangs, wait.gang)
            if not topic.gangs:
                del self._topics[key]

    def concern(self, key: str) -> None:
        """What pods name by this key has changed."""
        topic = self._topics.get(key)
        if topic is None:
            return

        topic.has_changed = topic.left is not None
        self._changed.add(topic.namespace, key)

    def concern_all(self) -> None:
        """Something changed that any of them may wait for."""
        for namespace in self._pods:
            self.concern(namespace)

    def take(self, most: int | None) -> list[str]:
        """The gangs that are to be looked at again, in at most so many steps; all if None."""
        gangs: list[str] = []
        steps = 0
        while self._changed and (most is None or steps < most):
            steps += 1
            (key,) = self._changed.take()
            topic = self._topics.get(key)
            if topic is None:
                continue

            gang = _next_of(topic)
            if gang:
                gangs.append(gang)

            is_done = not gang and not topic.has_changed  # else it begins anew
            if not is_done:
                self._changed.add(topic.namespace, key)

        return gangs


def claim_wait(member: Member, keys: set[str]) -> ClaimWait:
    """The wait of a member of a gang that names these claims."""
    pod = member.pod
    names = frozenset(keys)
    if pod.native_group:
        names |= {claims_of(f"{pod.namespace}/{pod.native_group}")}

    return ClaimWait(member.gang, pod.namespace, names)


def claims_of(group_id: str) -> str:
    """The claims of a native PodGroup, by a key that no claim has."""
    return f"{group_id}/claims"


def _next_of(topic: _Topic) -> str:
    """The next gang that still waits; "" if none is left."""
    if topic.left is None:
        topic.left = iter([*topic.gangs])
        topic.has_changed = False

    for gang in topic.left:
        if gang in topic.gangs:
            return gang

    topic.left = None
    return ""


def _count_down(numbers: dict[str, int], key: str) -> None:
    """One less; what has none is not kept."""
    numbers[key] -= 1
    if not numbers[key]:
        del numbers[key]
