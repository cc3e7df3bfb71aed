"""Reserve and Unreserve: the ledger that one plan works on.

Invariant: a ledger starts as the snapshot's free room and journals every change, so a rollback
exactly restores the earlier state, including pods and storage (`occupancy`). The snapshot is never
changed. Room per shape and node is cached, and updated only for nodes that changed since it was
last read.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np

from gangsched.core.filter import may_stay, narrow, restricts, static_fit
from gangsched.core.filter.count_cache import CountCache
from gangsched.core.filter.node_resources_fit import room
from gangsched.core.filter.plugin import Occupancy, static_cost
from gangsched.core.filter.pod_counts import PodCounts
from gangsched.core.filter.replica_counts import FARTHEST
from gangsched.core.filter.volumes.storage_use import StorageUse
from gangsched.core.last_ends import LastEnds
from gangsched.core.promises import RoomPromises
from gangsched.core.work import Work
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.nominated_room import NominatedLevel, Nomination
from gangsched.model.objects import Pod, Shape
from gangsched.model.resources import CPU, MEMORY
from gangsched.model.snapshot import Ints, Snapshot

UNIT_BITS = 20
"""The most bits of an amount of accelerators in a cost."""

T = TypeVar("T")


@dataclass(slots=True)
class _Room:
    """`per_node[n]` pods of one shape fit, as of the first `seen` journal touches."""

    per_node: Ints
    seen: int


class Ledger:
    """Free room during a plan: `free[r][n]` in exact units."""

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        empty: bool = False,
        policy: GpuPolicy | None = None,
        work: Work | None = None,
        counts: CountCache | None = None,
    ) -> None:
        """Start from the snapshot's free room or, with `empty`, from the room that nodes offer when
        nothing runs on them.

        All ledgers of one plan share `work`, to which reads are charged. All ledgers of one cluster
        share `counts`, its pod counts.
        """
        self.table = snapshot.table
        self.resources: Mapping[str, int] = snapshot.resources
        self.allocatable: Ints = snapshot.allocatable
        self.free: Ints = snapshot.allocatable if empty else snapshot.free.copy()
        self.policy = policy or GpuPolicy()
        self.last_ends: LastEnds | None = None  # None where ends do not matter
        self.promises = RoomPromises()
        #: The rules about groups that apply, by situation (`core.group_rules.rules_of`).
        self.rules: dict[Hashable, Any] = {}
        self.work = Work() if work is None else work

        self.occupancy = Occupancy(
            snapshot.table,
            snapshot.resources,
            self.free,
            PodCounts(snapshot.table, snapshot.pods_by_node, self.work, counts),
            StorageUse(snapshot.table, snapshot.storage, self.work, snapshot.served),
            self.work,
        )

        # undo each change; a bound method would keep the ledger
        self._journal: list[Callable[[Ledger], None]] = []
        # Each change appends its nodes; a shape's room reads from where it stopped (`_Room.seen`).
        self._touched: list[Ints] = []
        self._rooms: dict[Shape, _Room] = {}
        self._recalled: dict[Hashable, tuple[int, Any]] = {}
        self._snapshot = snapshot
        self.begun_with = None if empty else snapshot.free  # read-only
        self._respected = 0  # levels of promises, from the highest priority on

        # promised room that is not taken twice, for who leaves for it is still there
        self._in_use: Ints | None = None
        self._spared = ""  # the group whose nominations among them are not
        self._fulfilled: dict[str, Nomination] = {}  # by uid, those of pods that are placed
        self._usual: dict[str, dict[str, int]] = {}
        self._packed_by: dict[Shape, tuple[str, int]] = {}

    @cached_property
    def largest(self) -> Sequence[int]:
        """`largest[r]`: the largest amount of a resource that a single node offers."""
        largest: list[int] = self.allocatable.max(axis=1, initial=0).tolist()
        return largest

    @cached_property
    def accelerators(self) -> Ints:
        """`accelerators[n]`: number of accelerators of all kinds that node `n` offers."""
        rows = []
        for name, row in self.resources.items():
            if self.policy.is_accelerator(name):
                rows.append(row)

        total: Ints = self.allocatable[rows].sum(axis=0)
        return total

    @cached_property
    def accelerated_nodes(self) -> Ints | None:
        """`accelerated_nodes[n]`: `FARTHEST` if node `n` offers an accelerator, else 0; None if no
        node offers one.
        """
        if self.accelerators.any():
            return np.where(self.accelerators > 0, FARTHEST, 0)

        return None

    def accelerated(self, shape: Shape) -> bool:
        """Whether pods of `shape` request an accelerator."""
        return bool(self.packed_by(shape)[0])

    def packed_by(self, shape: Shape) -> tuple[str, int]:
        """The accelerator of which `shape` requests the most, and the amount; ("", 1) if it
        requests none: pods are counted.
        """
        known = self._packed_by.get(shape)
        if known is None:
            asks = [
                (amount, name)
                for name, amount in shape.requests
                if self.policy.is_accelerator(name)
            ]
            amount, name = max(asks, default=(1, ""))
            known = self._packed_by[shape] = (name, amount)

        return known

    def unit(self, name: str) -> int:
        """Divisor for costs of the resource `name`: 1 for devices, more for bytes, so that squares
        fit into 64 bits.
        """
        return 1 << max(0, self.largest[self.resources[name]].bit_length() - UNIT_BITS)

    def usual(self, name: str) -> Mapping[str, int]:
        """CPU and memory in use per `unit` of `name` in use, in the snapshot; 0 while no `name` is
        in use.

        An average over all nodes with the accelerator; it estimates the requests of the next pods.
        """
        known = self._usual.get(name)
        if known is None:
            row = self.resources[name]
            rows = {
                other: self.resources[other] for other in (CPU, MEMORY) if other in self.resources
            }
            of = [row, *rows.values()]  # of all rows it took a tenth of a plan
            offered = self.allocatable[of]
            used = np.minimum(offered - self._snapshot.free[of], offered)
            used = np.where(offered[0] != 0, used, 0).sum(axis=1)
            unit = self.unit(name)
            taken = int(used[0])
            counted = zip(rows, used[1:].tolist(), strict=True) if taken > 0 else ()
            each = {other: amount * unit // taken for other, amount in counted}
            known = self._usual[name] = {
                other: amount for other, amount in each.items() if amount > 0
            }

        return known

    def recall(
        self,
        key: Hashable,
        make: Callable[[], T],
        *,
        lasting: bool = False,
    ) -> T:
        """The result of `make`, cached by `key`: if `lasting` for the whole plan, else until the
        ledger changes.
        """
        version = -1 if lasting else len(self._touched)
        known = self._recalled.get(key)
        if known is None or known[0] != version:
            known = self._recalled[key] = (version, make())

        value: T = known[1]
        return value

    @property
    def version(self) -> int:
        """A number that increases with every change of room."""
        return len(self._touched)

    def touched_since(self, version: int) -> Sequence[Ints]:
        """The nodes of each change since `version`."""
        return self._touched[version:]

    def checkpoint(self) -> int:
        """A point to roll back to."""
        return len(self._journal)

    def rollback(self, checkpoint: int) -> None:
        """Undo every reservation and release since `checkpoint`, latest first."""
        while len(self._journal) > checkpoint:
            self._journal.pop()(self)

    @contextmanager
    def tentative(self) -> Iterator[None]:
        """Undo every reservation and release made inside the context."""
        checkpoint = self.checkpoint()
        try:
            yield
        finally:
            self.rollback(checkpoint)

    def reserve(
        self,
        pods: Sequence[Pod],
        nodes: Ints,
        counts: Ints,
    ) -> None:
        """Reserve room for `pods`, all of one shape: the first `counts[0]` on node index
        `nodes[0]`, and so on.

        The nodes are distinct. Negative counts release room.
        """
        self.work.charge(40 + len(pods) // 2)
        # `where[i]` is the node of `pods[i]`; all counts have one sign.
        where = np.repeat(nodes, np.abs(counts)).tolist()
        sign = int(np.sign(counts[0]))
        undo = partial(
            Ledger._take_back,
            pods=pods,
            nodes=nodes,
            counts=counts,
            where=where,
            sign=sign,
        )
        self._journal.append(undo)
        self._add(pods[0].shape, nodes, -counts)
        self.occupancy.move(pods, where, sign)

    def residents(self, node: int) -> Mapping[str, Pod]:
        """The pods on a node in the snapshot, by uid."""
        residents = self._snapshot.pods_by_node.residents
        if node >= len(residents):
            return {}

        return residents[node]

    def release(self, pod: Pod, node: str) -> None:
        """Release the room of one pod, as Unreserve does; no effect if the node no
        longer exists.
        """
        index = self.table.index.get(node)
        if index is not None:
            self.reserve((pod,), np.array([index]), np.array([-1]))

    def reserve_many(
        self,
        pods: Sequence[Pod],
        nodes: Sequence[int],
    ) -> None:
        """Reserve room for pods of any shapes at once: `pods[i]` on `nodes[i]`."""
        self.work.charge(10 + 3 * len(pods))
        amounts = np.zeros_like(self.free)

        for pod, node in zip(pods, nodes, strict=True):
            for name, amount in pod.shape.requests:
                row = self.resources.get(name)
                if row is not None:
                    amounts[row, node] -= amount

        self._shift(pods, nodes, amounts, 1)

    def release_many(
        self,
        pods: Sequence[Pod],
        nodes: Ints,
        amounts: Ints,
        *,
        claiming: Sequence[int] = (),
    ) -> None:
        """Release the room of pods of any shapes at once: `pods[i]` on `nodes[i]`, `amounts[r][n]`
        in total.

        `claiming` are the indices of pods with claims.
        """
        self._shift(pods, nodes.tolist(), amounts, -1, claiming)

    def respect_nominations(self, priority: int, *, but: str = "") -> None:
        """Reserve the room of nominated pods with at least `priority`, except those of group `but`.

        This includes nominations by other schedulers (F1) and by gangsched (V10). Room that an
        earlier call reserved for lower priorities is released. The call costs nothing if nothing
        changed, otherwise one sum of columns per priority.
        """
        promises = self._snapshot.nominated
        respected = sum(level.priority >= priority for level in promises.levels)
        spared = but if but in promises.by_group else ""

        before = self._respected, self._spared
        if (respected, spared) == before:
            return

        with self.work.unlimited():  # nothing would roll back one half of it
            # Sums by priority contain everybody's: the room of a spared group is taken again before
            # they change, and given back after it.
            self.promise(self.respected(self._spared), 1)
            first, last = sorted((self._respected, respected))
            for level in promises.levels[first:last]:
                self._promise_level(level, 1 if respected > self._respected else -1)

            if first != last:  # the sums have the room of those who are placed, too
                lowest = promises.levels[last - 1].priority
                highest = promises.levels[first].priority
                moved = []

                for nomination in self._fulfilled.values():
                    if lowest <= nomination.pod.priority <= highest:
                        moved.append(nomination)

                self.promise(moved, -1 if respected > self._respected else 1)

            self._journal.append(partial(Ledger._respect, before=before))
            self._respected = respected
            self._spared = spared
            self.promise(self.respected(spared), -1)

    def _respect(self, before: tuple[int, str]) -> None:
        self._respected, self._spared = before

    def _promise_level(self, level: NominatedLevel, sign: int) -> None:
        """Take (+1) or give back (-1) what is promised at one priority, but for what is in use by
        those who leave.
        """
        nodes = self.table.index
        asked = -sign * level.asked
        there = []

        for nomination in level.filtered.values():
            if nomination.node in nodes:
                there.append((nomination.pod, nodes[nomination.node]))

        pods = [pod for pod, _ in there]
        where = [node for _, node in there]
        claiming = []
        for index, pod in enumerate(pods):
            if pod.claims:
                claiming.append(index)

        self._shift(pods, where, asked, sign, claiming)
        self.count_on(level.in_use, sign)

    def place_nominated(self, group: str, placed: Mapping[str, str]) -> None:
        """Record that pods of a group, by uid, are placed on these nodes: the nominations that
        they use up no longer reserve room.
        """
        used = self._snapshot.nominated.used_up(group, placed)
        self.fulfill(group, used)

    def fulfill(self, group: str, uids: Set[str]) -> None:
        """Record that these pods of a group are placed, so their nominations, if any, no longer
        reserve room.
        """
        there = self._snapshot.nominated.by_group.get(group, {}).values()
        if there and group != self._spared:
            self.promise(
                [nomination for nomination in self.respected(group) if nomination.pod.uid in uids],
                -1,
            )

        self._fulfilled |= {
            nomination.pod.uid: nomination for nomination in there if nomination.pod.uid in uids
        }

    def respected(self, group: str) -> Sequence[Nomination]:
        """The nominations of a group among the nominations that are currently respected."""
        promises = self._snapshot.nominated
        if not group or not self._respected:
            return []

        there = promises.by_group.get(group, {}).values()
        level = promises.levels[self._respected - 1]
        lowest = level.priority

        return [
            nomination
            for nomination in there
            if nomination.pod.priority >= lowest and nomination.pod.uid not in self._fulfilled
        ]

    @contextmanager
    def keeping(
        self,
        group: str,
        *,
        but: Set[str],
    ) -> Iterator[None]:
        """Inside the context, the group itself cannot use the room of its nominated pods either,
        except that of pods in `but`.
        """
        respected = self.respected(group)
        kept = []
        for nomination in respected:
            if nomination.pod.uid not in but:
                kept.append(nomination)

        with self.work.unlimited():  # nothing would roll back one half of it
            self.promise(kept, 1)

        try:
            yield
        finally:
            with self.work.unlimited():
                self.promise(kept, -1)

    def promise(self, nominations: Sequence[Nomination], sign: int) -> None:
        """Reserve (+1) or release (-1) the room of nominations, except the part that leaving pods
        still use.
        """
        self.move(((nomination.pod, nomination.node) for nomination in nominations), sign)
        if any(nomination.freed for nomination in nominations):
            self.count_on(
                self._snapshot.layout.sums(
                    (nomination.node, nomination.freed) for nomination in nominations
                ),
                sign,
            )

    def count_on(self, amounts: Ints, sign: int = 1) -> None:
        """Count `amounts[r][n]`, which leaving pods use and nominations reserve, only once (+1), or
        undo that (-1).
        """
        rows, nodes = np.nonzero(amounts)
        if rows.size:
            self._count_once(rows, nodes, sign * amounts[rows, nodes])

    def in_use(self) -> Ints:
        """`amounts[r][n]` of nominated room that leaving pods still use. Read-only."""
        if self._in_use is None:
            return np.zeros_like(self.free)

        return self._in_use

    def counted_on(self) -> Ints:
        """`in_use`, and that of all nominations of lower priorities than are respected now."""
        counted_on = self.in_use().copy()
        for level in self._snapshot.nominated.levels[self._respected :]:
            counted_on += level.in_use

        return counted_on

    def amounts(self, placed: Iterable[tuple[Pod, str]]) -> Ints:
        """`amounts[r][n]` that these pods request on their nodes."""
        return self._snapshot.layout.sums((node, pod.shape.requests) for pod, node in placed)

    def leave_for_promises(self) -> None:
        """Stop counting leaving pods as users of nominated room; call it before they are removed
        from the ledger.
        """
        if self._in_use is not None:
            rows, nodes = np.nonzero(self._in_use)
            self._count_once(rows, nodes, -self._in_use[rows, nodes])

    def _count_once(
        self,
        rows: Ints,
        nodes: Ints,
        amounts: Ints,
    ) -> None:
        self._journal.append(partial(Ledger._count, rows=rows, nodes=nodes, amounts=-amounts))
        self._count(rows, nodes, amounts)

    def _count(
        self,
        rows: Ints,
        nodes: Ints,
        amounts: Ints,
    ) -> None:
        if self._in_use is None:
            self._in_use = np.zeros_like(self.free)

        for counted in (self._in_use, self.free):
            # Unbuffered: an index pair may occur twice.
            np.add.at(counted, (rows, nodes), amounts)

        self._touched.append(np.unique(nodes))

    def move(
        self,
        placed: Iterable[tuple[Pod, str]],
        sign: int,
    ) -> None:
        """Reserve (+1) or release (-1) room for pods on their nodes, one shape at a time; nodes
        that no longer exist are skipped.
        """
        by_shape: dict[Shape, list[tuple[int, Pod]]] = {}
        for pod, node in placed:
            index = self.table.index.get(node)
            if index is not None:
                by_shape.setdefault(pod.shape, []).append((index, pod))

        for there in by_shape.values():
            there.sort(key=itemgetter(0))
            nodes, counts = np.unique([node for node, _ in there], return_counts=True)
            self.reserve([pod for _, pod in there], nodes, sign * counts)

    def keep_devices(self, pods: Iterable[Pod]) -> None:
        """Record that these pods gave their room up for somebody: their devices are in use until
        that is written, also for those who are decided after him.
        """
        devices = self.occupancy.storage.claim_devices
        if devices is None:
            return

        for pod in pods:
            if pod.claims_devices:
                devices.stay(pod)
                self._journal.append(partial(Ledger._free_devices, pod=pod))

    def _free_devices(self, pod: Pod) -> None:
        devices = self.occupancy.storage.claim_devices
        assert devices is not None
        devices.free_again(pod)

    def room(self, shape: Shape) -> Ints:
        """`room[n]`: how many more pods of `shape` fit on node `n`, 0 if Filter rejects the node.
        Read-only.
        """
        known = self._rooms.get(shape)
        if known is None:
            self.work.charge(20 + len(self.table) // 60)
            if shape not in self.table.static_fits:
                self.work.charge(static_cost(shape, self.table))

            mask = static_fit(shape, self.table).mask
            known = _Room(
                np.where(mask, room(shape, self.free, self.resources), 0),
                len(self._touched),
            )
            self._rooms[shape] = known
        elif known.seen < len(self._touched):
            self.work.charge(30 + (len(self._touched) - known.seen) // 2)
            nodes = np.concatenate(self._touched[known.seen :])
            mask = static_fit(shape, self.table).mask[nodes]
            known.per_node[nodes] = np.where(
                mask,
                room(shape, self.free[:, nodes], self.resources),
                0,
            )
            known.seen = len(self._touched)

        return known.per_node

    def only_room_counts(self, pods: Sequence[Pod]) -> bool:
        """Whether stateful filters can reject a node for any of `pods` only for lack of room."""
        alike = self.occupancy.equivalence(pods)
        return not any(
            restricts(pod, self.occupancy) for pod in {alike(pod): pod for pod in pods}.values()
        )

    def fits_still(self, pod: Pod, node: str) -> bool:
        """Whether a placed pod may stay on `node`: the node is still allowed, not over-committed,
        and there is no conflict.

        Spread and affinity are not checked again, because they apply only when a pod is placed.
        """
        index = self.table.index.get(node)
        shape = pod.shape
        if index is None or not static_fit(shape, self.table).mask[index]:
            return False

        rows = []
        for name, _ in shape.requests:
            rows.append(self.resources.get(name))

        if any(row is None or self.free[row, index] < 0 for row in rows):
            return False
        if not restricts(pod, self.occupancy):
            return True

        # The pod itself must not count as its own neighbour.
        self.occupancy.move((pod,), (index,), -1)
        stays = may_stay(pod, index, self.occupancy)
        self.occupancy.take_back((pod,), (index,), -1)

        return stays

    def takes(self, pod: Pod, node: str) -> bool:
        """Whether one more such pod passes Filter on `node` now."""
        index = self.table.index.get(node)
        if index is None:
            return False

        return bool(narrow(pod, self.room(pod.shape), self.occupancy)[index])

    def _take_back(
        self,
        pods: Sequence[Pod],
        nodes: Ints,
        counts: Ints,
        where: Sequence[int],
        sign: int,
    ) -> None:
        self._add(pods[0].shape, nodes, counts)
        self.occupancy.take_back(pods, where, sign)

    def _shift(
        self,
        pods: Sequence[Pod],
        where: Sequence[int],
        amounts: Ints,
        sign: int,
        claiming: Sequence[int] = (),
    ) -> None:
        """Reserve (+1) or release (-1) room for pods of any shapes: `amounts[r][n]` more are free
        then, in total.
        """
        self._journal.append(
            partial(
                Ledger._shift_back,
                pods=pods,
                where=where,
                amounts=amounts,
                leaves=claiming if sign < 0 else None,
            )
        )
        self._add_many(amounts)
        (
            self.occupancy.come(pods, where)
            if sign > 0
            else self.occupancy.leave(pods, where, claiming)
        )

    def _shift_back(
        self,
        pods: Sequence[Pod],
        where: Sequence[int],
        amounts: Ints,
        leaves: Sequence[int] | None,
    ) -> None:
        self._add_many(-amounts)
        if leaves is None:
            self.occupancy.take_back(pods, where, 1)
        else:
            self.occupancy.take_back_leave(pods, where, leaves)

    def _add_many(self, amounts: Ints) -> None:
        self.free += amounts
        self._touched.append(np.flatnonzero(amounts.any(axis=0)))

    def _add(
        self,
        shape: Shape,
        nodes: Ints,
        counts: Ints,
    ) -> None:
        for name, amount in shape.requests:
            row = self.resources.get(name)
            if row is not None:
                self.free[row, nodes] += counts * amount

        self._touched.append(nodes)
