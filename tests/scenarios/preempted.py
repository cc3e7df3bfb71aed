"""What can be seen of preemptions: who was nominated, marked and evicted, and in which order.

Invariant: everything is taken from the changes of pods, which come in the API server's order. A pod
counts as evicted when it is being deleted and carries the condition DisruptionTarget; users'
deletions do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from control_plane.api import Object

from gangsched.model.disruption import DISRUPTION_TARGET, VICTIM_MESSAGE
from tests.scenarios.objects import Maker

DEEDS: Final = ("nominated", "marked", "evicted", "bound", "cleared", "refused")
"""The last two of pods that were nominated: the nomination was cleared, another reason than
Preempting was told.
"""


@dataclass(slots=True)
class Preempted:
    """`deeds` are (deed, "namespace/name", uid) in the order seen, each once for a pod and, of
    nominations, a node.
    """

    deeds: list[tuple[str, str, str]] = field(default_factory=list)
    _seen: set[tuple[str, str, str]] = field(default_factory=set)
    #: What each nominated pod was refused for before, until it is told that it preempts.
    _before: dict[str, tuple[str, str]] = field(default_factory=dict)

    def pod_changed(self, pod: Object) -> None:
        """Take in a change of a pod."""
        meta, status = pod["metadata"], pod.get("status", {})
        target = next(
            (each for each in status.get("conditions") or () if each["type"] == DISRUPTION_TARGET),
            None,
        )
        is_target = target is not None and target["status"] == "True"
        node = status.get("nominatedNodeName", "")
        self._add("nominated", pod, bool(node), node)
        self._add(
            "marked", pod, is_target and target is not None and target["message"] == VICTIM_MESSAGE
        )
        self._add("evicted", pod, is_target and "deletionTimestamp" in meta)
        is_bound = bool(pod["spec"].get("nodeName"))
        self._add("bound", pod, is_bound)
        if not is_bound and any(
            deed == "nominated" and uid == meta["uid"] for deed, uid, _ in self._seen
        ):
            refusal: Object = next(
                (each for each in status.get("conditions") or () if each["type"] == "PodScheduled"),
                {},
            )
            told = refusal.get("reason", "Preempting"), refusal.get("message", "")
            if told[0] == "Preempting":
                self._before[meta["uid"]] = told
            self._add("cleared", pod, not node)
            self._add(
                "refused",
                pod,
                told[0] != "Preempting" and told != self._before.setdefault(meta["uid"], told),
            )

    def _add(self, deed: str, pod: Object, done: bool, node: str = "") -> None:
        meta = pod["metadata"]
        if done and (deed, meta["uid"], node) not in self._seen:
            self._seen.add((deed, meta["uid"], node))
            self.deeds.append((deed, f"{meta['namespace']}/{meta['name']}", meta["uid"]))


def evicted(preempted: Preempted, name: str, wanted: Any, maker: Maker) -> Iterator[str]:
    """How many pods of a name were evicted so far; one that was created anew counts again."""
    found = [
        key for deed, key, _ in preempted.deeds if deed == "evicted" and _is_of(key, name, maker)
    ]
    if len(found) != wanted:
        yield f"{len(found)} were evicted, not {wanted}: {sorted(found)}"


def sequence(preempted: Preempted, wanted: list[str], maker: Maker) -> Iterator[str]:
    """Each of `nominated a`, `marked b`, `evicted b`, `bound a` was done in whole before the first
    of the next.
    """
    last, before = -1, ""
    for step in wanted:
        deed, _, name = step.partition(" ")
        if deed not in DEEDS:
            raise ValueError(f"a sequence is of {', '.join(DEEDS)}, not {deed}")
        places = [
            place
            for place, (done, key, _) in enumerate(preempted.deeds)
            if done == deed and _is_of(key, name, maker)
        ]
        if not places:
            yield f"sequence: {step} was not seen"
            return
        if min(places) < last:
            yield f"sequence: {step} began before the end of: {before}"
        last, before = max(places), step


def _is_of(key: str, name: str, maker: Maker) -> bool:
    wanted = maker.key(name)
    return fnmatchcase(key, wanted) or fnmatchcase(key, f"{wanted}-*")
