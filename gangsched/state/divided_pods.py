"""Sub groups, which are gangs that a PodGroup declares by labels of its pods: the sub group of each
pod, and pods that must change theirs.

Invariant: the declaration of a sub group is in its record while it has pods, and reflects the
newest version of the PodGroup. Pods are moved between gangs a bounded number at a time; until all
are, the tree is refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from gangsched.api.gang_identity import GangRef
from gangsched.api.sub_groups import sub_group_of
from gangsched.model.objects import Pod, PodGroup
from gangsched.state.groups import Registry
from gangsched.state.namespace_turns import NamespaceTurns

MOVED_AT_A_TIME = 60
"""Pods that one turn assigns anew: each may be a gang of its own, which takes 0.5 ms to read,
decide and report.
"""
REMEMBERED = 256
"""Gangs of one PodGroup that are remembered before those without pods are looked for, then again at
twice as many.
"""


class SubGroupGangs:
    """The gangs of PodGroups with sub groups."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        #: By the id of the PodGroup: its gangs, each with the version of the PodGroup that declares
        #: it.
        self._gangs: dict[str, dict[str, PodGroup]] = {}

        #: Uids of pods that are to be assigned anew.
        self._moving = NamespaceTurns()

    def __len__(self) -> int:
        """Number of stored gangs and pods."""
        declared = sum(map(len, self._gangs.values()))
        return declared + len(self._moving)

    @property
    def is_behind(self) -> bool:
        """Whether pods still have to be reassigned."""
        return bool(self._moving)

    def gang_of(self, pod: Pod, named: GangRef) -> str:
        """The id of the gang that a pod is in: the one that it names, or a sub group of
        that gang.
        """
        record = self._registry.gangs.get(named.id)
        if record is None or not record.pod_groups:
            return named.id

        root: PodGroup | None = None
        # a loop, because this is asked for every version of every pod
        for group in named.api_groups:
            root = record.pod_groups.get(group)
            if root is not None:
                break

        if root is None or not root.sub_groups:
            return named.id

        part = sub_group_of(pod, root)
        if isinstance(part, str):
            return named.id

        gangs = self._gangs.setdefault(named.id, {})
        is_declared = gangs.get(part.id) is root
        if is_declared and part.id in self._registry.gangs:
            return part.id

        gangs[part.id] = root
        self._registry.gang(part.id).pod_groups[part.api_group] = part

        # At powers of two only: gangs of pods that come and go are found at a constant cost for
        # each new one.
        number = len(gangs)
        if number >= REMEMBERED and number.bit_count() == 1:
            self._forget_those_without_pods(named.id, besides=part.id)

        return part.id

    def changed(
        self,
        gang_id: str,
        old: PodGroup | None,
        new: PodGroup | None,
    ) -> None:
        """Record that the PodGroup of this gang changed or, if `new` is None, was deleted with its
        sub groups.
        """
        known = self._registry.gangs.get(gang_id)
        stated = known.pod_groups.values() if known is not None else ()
        # Objects without sub groups, which are nearly all, cost nothing.
        versions = (old, *stated)
        if not any(version is not None and version.sub_groups for version in versions):
            return

        gangs = self._gangs.pop(gang_id, {})
        for part_id in (gang_id, *gangs):
            record = self._registry.gangs.get(part_id)
            if record is None:
                continue

            self._moving.add_all(record.namespace, record.members)
            if new is None and old is not None and part_id != gang_id:
                record.pod_groups.pop(old.api_group, None)
                self._registry.touch(part_id)

        if new is not None and old is not None:  # whose pods have not moved yet
            self._gangs[gang_id] = dict.fromkeys(gangs, old)

    def take_moving(self) -> Iterable[str]:
        """Uids of some pods that still have to be reassigned."""
        return self._moving.take(MOVED_AT_A_TIME)

    def _forget_those_without_pods(self, gang_id: str, besides: str) -> None:
        known = self._registry.gangs
        with_pods = {}
        for part_id, declared_by in self._gangs[gang_id].items():
            has_pods = part_id in known and bool(known[part_id].members)
            if has_pods or part_id == besides:
                with_pods[part_id] = declared_by

        self._gangs[gang_id] = with_pods
