"""Room on nodes that is promised to pods which do not run there yet (semantics F1, V10).

Invariant: a `NominatedRoom` is immutable; `changed` returns a new one that shares the unchanged
parts. The promises of each priority are summed in columns, so a plan can reserve or release any
number of them at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gangsched.model.objects import Pod
from gangsched.model.resources import ResourceVector

Ints = npt.NDArray[np.int64]


class Nomination(NamedTuple):
    """Room on a node that is promised to a pod, by another scheduler (semantics F1) or by
    gangsched's preemption (V10).

    `pod` has only the pod's shape and priority. `group` is the id of the group that may use the
    room, "" for a pod of another scheduler. Victims and terminating pods still use `freed` of the
    room. When they are gone, only this nomination gets that part; until then the nomination
    reserves no other room for it.
    """

    node: str
    pod: Pod
    group: str = ""
    freed: ResourceVector = ()

    @classmethod
    def of_room(
        cls,
        node: str,
        pod: Pod,
        group: str = "",
        freed: ResourceVector = (),
        *,
        priority: int | None = None,
    ) -> Nomination:
        """The room of a pod, without its names, labels and claims: two versions of the pod that
        differ in these promise the same, and an equal nomination costs nothing.

        Its `priority` is that of the pod, unless another one is given.
        """
        stand_in = Pod(
            uid=pod.uid,
            namespace="",
            name="",
            creation_s=0,
            shape=pod.shape,
            priority=pod.priority if priority is None else priority,
        )
        return cls(node, stand_in, group, freed)


class ColumnLayout(NamedTuple):
    """The resource of each row and the node of each column."""

    resources: Mapping[str, int]
    nodes: Mapping[str, int]

    @property
    def shape(self) -> tuple[int, int]:
        """Number of resources and of nodes."""
        return len(self.resources), len(self.nodes)

    def sums(self, asked: Iterable[tuple[str, ResourceVector]]) -> Ints:
        """`sums[r][n]`: total of the requests on each node; nodes that no longer exist
        are skipped.
        """
        sums = np.zeros(self.shape, dtype=np.int64)
        alike: dict[ResourceVector, list[int]] = {}

        for node, requests in asked:
            # A node that is gone has no column; whoever was promised room there is told so by the
            # state.
            if node in self.nodes:
                alike.setdefault(requests, []).append(self.nodes[node])

        for requests, nodes in alike.items():
            for name, amount in requests:
                row = self.resources.get(name)
                if row is not None:
                    # `add.at`, because a node may be listed more than once, of which plain indexing
                    # would count only the last.
                    np.add.at(sums[row], nodes, amount)

        return sums


@dataclass(frozen=True, slots=True, eq=False)
class NominatedLevel:
    """Promises of one priority: `asked[r][n]` in total, including `in_use[r][n]`, which leaving
    pods still use.

    `filtered` are promises to pods that other filters must count as well, for example because of
    host ports.
    """

    priority: int
    asked: Ints
    in_use: Ints
    number: int = 0
    filtered: Mapping[str, Nomination] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class NominatedRoom:
    """All promises; `levels` has the highest priority first; `by_group` has "" for pods of other
    schedulers.
    """

    levels: tuple[NominatedLevel, ...] = ()
    by_key: Mapping[str, Nomination] = field(default_factory=dict)
    by_group: Mapping[str, Mapping[str, Nomination]] = field(default_factory=dict)

    @classmethod
    def of(cls, nominations: Iterable[Nomination], layout: ColumnLayout) -> NominatedRoom:
        """Sum up these nominations, which are keyed by pod."""
        return cls().changed({nomination.pod.uid: nomination for nomination in nominations}, layout)

    def __bool__(self) -> bool:
        return bool(self.levels)

    def used_up(self, group: str, placed: Mapping[str, str]) -> set[str]:
        """Uids of the group's nominations that end once these pods, by uid, are on these nodes."""
        there = self.by_group.get(group)
        return used_up(there.values(), placed) if there else set()

    def changed(
        self,
        changes: Mapping[str, Nomination | None],
        layout: ColumnLayout,
    ) -> NominatedRoom:
        """A copy in which the promises with these keys are replaced; None removes a promise."""
        by_key = dict(self.by_key)
        by_group = dict(self.by_group)
        levels = {level.priority: level for level in self.levels}
        own: set[str] = set()
        moves: dict[int, list[tuple[str, Nomination, int]]] = {}

        for key, new in changes.items():
            old = by_key.pop(key, None)
            for of_pod, sign in ((old, -1), (new, 1)):
                if of_pod is None:
                    continue

                moves.setdefault(of_pod.pod.priority, []).append((key, of_pod, sign))
                # The mapping of a group is shared with earlier objects until something in it
                # changes.
                if of_pod.group not in own:
                    own.add(of_pod.group)
                    by_group[of_pod.group] = dict(by_group.get(of_pod.group, {}))

                of_group = by_group[of_pod.group]
                assert isinstance(of_group, dict)

                if sign > 0:
                    by_key[key] = of_group[key] = of_pod
                else:
                    del of_group[key]

        for priority, listed in moves.items():
            level = levels.get(priority)
            if level is None:
                # In the layout of now: resources only ever get more rows, and other nodes make all
                # promises be read again (`RoomBook`).
                level = NominatedLevel(
                    priority,
                    np.zeros(layout.shape, np.int64),
                    np.zeros(layout.shape, np.int64),
                )

            levels[priority] = _moved(level, listed, layout)

        return NominatedRoom(
            tuple(levels[level] for level in sorted(levels, reverse=True) if levels[level].number),
            by_key,
            {group: listed for group, listed in by_group.items() if listed} if own else by_group,
        )


def _moved(
    level: NominatedLevel,
    moves: Sequence[tuple[str, Nomination, int]],
    layout: ColumnLayout,
) -> NominatedLevel:
    """The level once these promises, by key, were made (+1) or ended (-1)."""
    filtered = dict(level.filtered)
    asked = level.asked
    in_use = level.in_use

    for key, of_pod, sign in moves:
        if of_pod.pod.shape.inter_pod is not None and sign > 0:
            filtered[key] = of_pod
        elif of_pod.pod.shape.inter_pod is not None:
            del filtered[key]

    for sign in (1, -1):
        alike = [of_pod for _, of_pod, signed in moves if signed == sign]
        # New arrays: a snapshot that plans use now has the old ones.
        asked = asked + sign * layout.sums(
            (nomination.node, nomination.pod.shape.requests) for nomination in alike
        )
        in_use = in_use + sign * layout.sums(
            (nomination.node, nomination.freed) for nomination in alike
        )

    asked.flags.writeable = in_use.flags.writeable = False
    return NominatedLevel(
        level.priority,
        asked,
        in_use,
        level.number + sum(sign for *_, sign in moves),
        filtered,
    )


def used_up(nominations: Iterable[Nomination], placed: Mapping[str, str]) -> set[str]:
    """Uids of the nominations, all of one group, that end once these pods, by uid, are on these
    nodes.

    A pod on a node that is nominated for another pod like it uses up that nomination. The other pod
    still needs room, which is kept where the first one was nominated.
    """
    of_pod = {nomination.pod.uid: nomination for nomination in nominations}
    exchanged = of_pod.keys() & placed.keys()

    for uid in sorted(exchanged):
        node = placed[uid]
        own = of_pod[uid]
        if own.node == node:
            continue

        for other, nomination in of_pod.items():
            if (
                other not in exchanged
                and nomination.node == node
                and nomination.pod.shape is own.pod.shape
            ):
                of_pod[uid], of_pod[other] = nomination, own
                break

    return {of_pod[uid].pod.uid for uid in exchanged}
