"""Nodes and the pods on them, as columns for `core`.

Invariant: the columns are the exact sum of the pods put on the nodes, limited to `OVERFULL`.
`member_store` decides which pods these are. Pods on unknown nodes are counted once the node
appears; until then they change no snapshot and wake no group, since with a node selector most pods
may be on such nodes (semantics I7). The pods of a node are copied only when they change after a
snapshot has shared them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Set

import numpy as np
from msgspec import structs

from gangsched.core.filter import static_fit
from gangsched.core.filter.count_cache import CountCache
from gangsched.model.nominated_room import ColumnLayout, Nomination
from gangsched.model.objects import Node, Pod
from gangsched.model.pods_by_node import PodsByNode, Residents
from gangsched.model.resources import AMOUNT_LIMIT, OVERFULL, PODS
from gangsched.model.snapshot import Ints, NodeTable, Snapshot
from gangsched.model.term_index import TermBook
from gangsched.state.replicas import Replicas
from gangsched.state.room_book import RoomBook
from gangsched.state.served import ServedResources
from gangsched.state.storage_cache import StorageCache

NOBODY: Residents = {}
SNAPSHOTS_IN_AN_AGE = 250  # counts that no plan used for as long are dropped
MOST_USED = AMOUNT_LIMIT - OVERFULL
"""Leaves `OVERFULL` of whatever a node offers."""


class Cluster:
    """Nodes and their pods: `move`, `occupy` and `vacate` change pods, `apply_node` and `drop_node`
    nodes.
    """

    def __init__(
        self,
        *,
        allocates: bool = False,
        extends: bool = True,
        topology_keys: tuple[str, ...] = (),
    ) -> None:
        """`allocates`: devices are allocated to claims; `extends`: also for extended resources that
        devices serve. `topology_keys`: labels of the known levels, smallest domains first.
        """
        self._topology_keys = topology_keys
        self.storage_cache = StorageCache(allocates=allocates)
        self.served = ServedResources(self.storage_cache if allocates and extends else None)
        self._nodes: dict[str, Node] = {}

        # in whole numbers, which may exceed every limit
        self._used: dict[str, dict[str, int]] = defaultdict(dict)
        self._overhead: dict[str, Counter[str]] = {}  # what of `_used` ends with its node

        # never changed in place, since snapshots share it
        self._overhead_columns: Ints | None = None
        self._resources: dict[str, int] = {PODS: 0}
        self._table = NodeTable.of(())
        self._allocatable: Ints = np.zeros((1, 0), dtype=np.int64)
        self._free: Ints = np.zeros((1, 0), dtype=np.int64)

        # so that many changes between two plans cost one copy
        self._stale_table = self._stale_columns = False
        self._stale_rows: set[str] = set()  # resources, if not all columns are stale
        self._through: Set[str] = frozenset()  # resources that devices serve, as the columns show
        self._snapshot: Snapshot | None = None
        self._freed = set[str]()
        self._all_freed = False  # a flag, since all nodes for each of 1,000 pods took 60 ms

        # by node; who was too large for a reservation may get one now
        self._offers_more: dict[str, set[str]] = {}
        self._pods_changed = False
        self._narrowed = False
        self._came_with_terms = False
        self._touched: set[str] = set()
        self._on_touched = 0
        self._moved: set[str] = set()
        self._residents: dict[str, dict[str, Pod]] = {}

        # nodes whose residents no snapshot shows, so that they may be changed in place
        self._unshown: set[str] = set()
        self._rows: list[Residents] = []
        self._versions: Ints = np.zeros(0, dtype=np.int64)
        self._version = 0
        self.counts = CountCache()  # of the pods that snapshots show, for all ledgers
        self._shown = 0
        self._terms = TermBook()
        self.replicas = Replicas()
        self.namespaces: Mapping[str, Mapping[str, str]] = {}
        self._namespaces_are_shown = False  # so that they are copied before one changes
        self._promises = RoomBook()

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def nodes(self) -> Mapping[str, Node]:
        """Known nodes by name."""
        return self._nodes

    def apply_node(self, node: Node) -> None:
        """Add or update a node; an irrelevant change is ignored."""
        old = self._nodes.get(node.name)
        if old == node:
            return

        self._nodes[node.name] = node
        self._snapshot = None
        self._freed.add(node.name)
        self.served.forget_masks()

        if old is None:
            # pods may have come while it was not there
            self._touched.discard(node.name)
            self._touch(node.name)

            for pod in self.residents(node.name).values():
                self._count_terms(pod, +1)

        if old is None or any(name not in self._resources for name, _ in node.allocatable):
            self._stale_columns = self._stale_table = True
            # of columns made anew it is not known what became less
            self._narrowed |= old is not None
            return

        if _attributes(old) != _attributes(node):
            self._stale_table = self._pods_changed = self._narrowed = True

        if old.allocatable != node.allocatable:
            self._offer(node, self.served.offered(old))

    def reoffer(self) -> None:
        """Update what nodes offer through devices, after their slices changed."""
        if self.served.recount_all():
            self.serve()

        for node in map(self._nodes.get, self.storage_cache.take_sliced()):
            if node is not None and self.served.names:
                before = self.served.offered(node)
                self.served.recount(node.name)
                self._offer(node, before)

    def serve(self) -> None:
        """Recount what nodes offer, because devices now serve other extended resources
        than before.
        """
        self._stale_rows |= self._through | self.served.names
        self._all_freed = True
        self._narrowed = True
        self._snapshot = None

    def _offer(self, node: Node, before: Mapping[str, int]) -> None:
        """Update the columns of a node that offered other amounts before."""
        offered = self.served.offered(node)
        self._narrowed |= any(offered.get(name, 0) < amount for name, amount in before.items())

        more = set()
        for name, amount in offered.items():
            if amount > before.get(name, 0):
                more.add(name)

        if more:
            self._offers_more.setdefault(node.name, set()).update(more)

        self._snapshot = None
        if not self._stale_columns:  # else all columns are filled with the next snapshot
            self._fill_column(self._table.index[node.name], node)

    def drop_node(self, name: str) -> None:
        """Remove a node; its pods are kept until they are deleted."""
        if self._nodes.pop(name, None) is not None:
            self._touch(name)  # who held or promised room there has lost it
            self._offers_more.pop(name, None)

            for pod in self.residents(name).values():
                self._count_terms(pod, -1)
                self._all_freed |= bool(pod.shape.constraints.anti_affinity)

            # A topology domain may be gone.
            self._stale_columns = self._stale_table = self._narrowed = self._pods_changed = True
            self.served.forget(name)
            self._snapshot = None

    def label_namespaces(self, namespaces: Mapping[str, Mapping[str, str]]) -> None:
        """Set the labels of all namespaces, which namespace selectors match."""
        if namespaces != self.namespaces:
            self.replicas.forget(self.namespaces.keys() - namespaces.keys())
            self.namespaces = dict(namespaces)
            self._namespaces_are_shown = False
            self._snapshot = None
            self._pods_changed = True

    def label_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """Set the labels of one namespace, None if it is gone; snapshots keep what they show."""
        if self.namespaces.get(name) == labels:
            return

        if self._namespaces_are_shown:
            self.namespaces = dict(self.namespaces)
            self._namespaces_are_shown = False

        assert isinstance(self.namespaces, dict)
        if labels is None:
            del self.namespaces[name]
            self.replicas.forget({name})
        else:
            self.namespaces[name] = labels

        self._snapshot = None
        self._pods_changed = True

    def move(
        self,
        old: Pod,
        left: str,
        pod: Pod,
        node: str,
    ) -> None:
        """Move a pod, whose previous version is `old`, from node `left` to `node`; "" stands for no
        node.
        """
        if left == node and _same(old, pod):
            self.renew(pod, node)
            return

        if left:
            self.vacate(old, left)

        if node:
            self.occupy(pod, node)

    def occupy(self, pod: Pod, node: str) -> None:
        """Put a pod on a node."""
        self._take(pod, node, +1)
        self._came_with_terms |= bool(pod.shape.constraints.anti_affinity)

    def vacate(self, pod: Pod, node: str) -> None:
        """Remove a pod from a node."""
        self._take(pod, node, -1)
        here = {node} & self._nodes.keys()  # room on a node that nobody may use wakes no group (I7)
        self._freed |= here
        self._all_freed |= bool(pod.claims or (here and pod.shape.constraints.anti_affinity))

    def expel(
        self,
        uids: Set[str],
        nodes: Iterable[str],
    ) -> None:
        """Remove every trace of these pods from `nodes`, and recompute the sums over their pods."""
        for node in nodes:
            left = {
                each: pod
                for each, pod in self._residents.pop(node, NOBODY).items()
                if each not in uids
            }
            self._unshown.discard(node)
            self._used.pop(node, None)
            self._overhead.pop(node, None)

            for pod in left.values():
                for name, amount in pod.shape.requests:
                    self._used[node][name] = self._used[node].get(name, 0) + amount

                self._count_overhead(pod, node, +1)

            if left:
                self._residents[node] = left

            self.open((node,))
            self.touch(node)

        self.replicas.recount(self._residents)
        self._terms = TermBook()
        for node in self._nodes:
            for pod in self.residents(node).values():
                self._count_terms(pod, +1)

        for uid in uids:
            self.nominate(uid, None)
            self.storage_cache.expel(uid)

        self._stale_columns = self._stale_table = self._pods_changed = True
        self._snapshot = None

    def renew(self, pod: Pod, node: str) -> None:
        """Replace a pod by a version that differs only in what no filter reads; a snapshot may have
        either version.
        """
        self._residents[node][pod.uid] = pod
        self.touch(node)

    def touch(self, node: str) -> None:
        """Record that the pods of a node have changed in any way."""
        if node in self._nodes:
            self._touch(node)

    def nominate(
        self,
        uid: str,
        nomination: Nomination | None,
        *,
        grows: bool = True,
    ) -> None:
        """Set or remove the nomination of a pod to a node, by gangsched (V10) or another scheduler
        (F1).

        `grows`: removing the nomination frees room for other pods, because the nominated pod does
        not occupy it.
        """
        old = self._promises.get(uid)
        if old == nomination:
            return

        self._promises.set(uid, nomination)
        self._snapshot = None

        # who was refused in the same plan saw the labels of its pods there
        self._pods_changed |= old is None
        if grows and old is not None and (nomination is None or nomination[:3] != old[:3]):
            self._freed.add(old.node)

        if nomination is not None and not nomination.group:
            self._freed.add(nomination.node)  # members that are held there may be held no more

    def use_up(self, uid: str) -> None:
        """A pod was placed that uses up this nomination; it ends when that is seen (V11)."""
        self._promises.use_up(uid)

    def forget_used_up(self) -> None:
        """All nominations that are used up have ended; others are kept again."""
        self._promises.forget_used_up()

    def open(self, nodes: Iterable[str]) -> None:
        """Record that these nodes are no longer held back."""
        self._freed.update(self._nodes.keys() & set(nodes))

    def residents(self, node: str) -> Residents:
        """Pods that use room on a node, by uid."""
        return self._residents.get(node, NOBODY)

    def used(self) -> Mapping[str, Mapping[str, int]]:
        """Amounts in use on each node that has pods, whether the node is known or not; some amounts
        may be zero.
        """
        return self._used

    @property
    def offers_more(self) -> bool:
        """Whether a node offers more of a resource since the last `take_offers`."""
        return bool(self._offers_more)

    def take_offers(self) -> dict[str, set[str]]:
        """By node, the resources whose allocatable increased since the last call."""
        offers = self._offers_more
        self._offers_more = {}
        return offers

    def take_freed(self) -> set[str]:
        """Nodes with a change since the last call that may help a refused group (semantics Q3)."""
        freed = set(self._nodes) if self._all_freed else self._freed
        self._freed = set()
        self._all_freed = False

        return freed | self.storage_cache.take_freed(self._nodes.keys())

    def take_pods_changed(self) -> bool:
        """Whether pods moved or changed labels since the last call, which may affect inter-pod
        constraints (Q3).
        """
        pods_changed = self._pods_changed
        self._pods_changed = False
        return pods_changed

    def take_came_with_terms(self) -> bool:
        """Whether pods came since the last call that keep others off the domains of their nodes."""
        came = self._came_with_terms
        self._came_with_terms = False
        return came

    def take_narrowed(self) -> bool:
        """Whether a node was removed or may take fewer pods since the last call, so that victims
        may change.
        """
        narrowed = self._narrowed
        self._narrowed = False
        return narrowed

    @property
    def touched(self) -> Set[str]:
        """Nodes whose pods changed since `take_touched` was called for them; some may no longer
        exist.
        """
        return self._touched

    @property
    def on_touched(self) -> int:
        """At least the number of pods on the touched nodes, kept up with each change: to count them
        takes 0.3 ms of every turn where there are thousands.
        """
        return self._on_touched

    def counted_touched(self, pods: int) -> None:
        """The touched nodes have so many pods now."""
        self._on_touched = pods

    def take_touched(self, nodes: Iterable[str]) -> None:
        """Of these nodes the changes were seen; some may no longer exist."""
        self._touched.difference_update(nodes)
        if not self._touched:
            self._on_touched = 0

    def _holds(
        self,
        pod: Pod,
        node: str,
        promised: Mapping[str, int],
    ) -> bool:
        self._refresh()
        index = self._table.index.get(node)
        if index is None:
            return False

        for name, _ in pod.shape.requests:
            row = self._resources.get(name)
            if row is None or self._free[row, index] < promised.get(name, 0):
                return False

        return True

    def takes(
        self,
        pod: Pod,
        node: str,
        own: Set[str],
    ) -> bool:
        """Whether `node` is schedulable and has room for its held or bound `pod` plus nominations
        of others; the pod may use those of the groups `own`.

        A nomination whose room a pod of higher priority took since is kept from it no more: both
        were placed by right, one after the other.
        """
        promised: dict[str, int] = {}
        for nomination in self._promises.kept_on(node):
            if nomination.group in own or nomination.pod.priority < pod.priority:
                continue

            for name, amount in nomination.pod.shape.requests:
                promised[name] = promised.get(name, 0) + amount

            for name, amount in nomination.freed:
                promised[name] = promised.get(name, 0) - amount

        if not self._holds(pod, node, promised):
            return False

        return bool(static_fit(pod.shape, self._table).mask[self._table.index[node]])

    def table(self) -> NodeTable:
        """Current node table."""
        self._refresh()
        return self._table

    def snapshot(self) -> Snapshot:
        """Current columns; the same object until something changes."""
        self._refresh()
        storage = self.storage_cache.storage()

        if self._snapshot is None or self.replicas.is_stale:
            allocatable = self._allocatable.copy()
            free = self._free.copy()
            allocatable.flags.writeable = free.flags.writeable = False
            self._snapshot = Snapshot(
                self._table,
                self._resources,
                allocatable,
                free,
                self._pods_by_node(),
                storage,
                self._promises.current(ColumnLayout(self._resources, self._table.index)),
                self._overhead_columns,
                self.served.masks(self._in_order),
            )
        elif self._snapshot.storage is not storage:
            self._snapshot = structs.replace(self._snapshot, storage=storage)

        return self._snapshot

    def without_promised(self, priority: int, of: Snapshot | None = None) -> Snapshot:
        """Snapshot `of` (default: the current one) without the room nominated to pods of at least
        this priority.
        """
        return self._promises.taken_from(of or self.snapshot(), priority)

    def _pods_by_node(self) -> PodsByNode:
        versions = self._versions.copy()
        versions.flags.writeable = False
        self._unshown.clear()
        self._namespaces_are_shown = True

        self._shown += 1
        if self._shown % SNAPSHOTS_IN_AN_AGE == 0:
            self.counts.new_age()

        terms = self._terms.shown()
        peers = self.replicas.shown(self._residents)
        return PodsByNode(tuple(self._rows), versions, terms, self.namespaces, peers)

    def take_moved(self) -> set[str]:
        """Nodes whose pods changed or that were deleted since the last call (semantics V25)."""
        moved = self._moved
        self._moved = set()
        return moved

    def _touch(self, node: str) -> None:
        """The pods of a node changed, by one if it was touched before."""
        if node in self._touched:
            self._on_touched += 1
        else:
            self._touched.add(node)
            self._on_touched += len(self.residents(node))

        self._moved.add(node)

    def _take(
        self,
        pod: Pod,
        node: str,
        sign: int,
    ) -> None:
        before = self._left(node) if self._promises.on(node) else {}
        used = self._used[node]
        for name, amount in pod.shape.requests:
            used[name] = used.get(name, 0) + sign * amount

        if not any(used.values()):
            del self._used[node]

        if before:
            self._promises.used(node, before, self._left(node), pod.priority)

        residents = self._settle(pod, node, sign)
        self.replicas.count(pod, node, sign)
        self._count_overhead(pod, node, sign)

        if node not in self._nodes:
            return

        self._snapshot = None
        self._pods_changed = True
        self._touch(node)
        self._count_terms(pod, sign)

        index = None
        if not self._stale_columns:
            index = self._table.index.get(node)

        if index is None:
            return

        self._rows[index] = residents
        self._version += 1
        self._versions[index] = self._version  # caches of counts by node compare it

        for name, _ in pod.shape.requests:
            row = self._resources.get(name)
            if row is not None:
                # Recounted, since a sum that saturated cannot be counted back.
                self._free[row, index] = max(
                    int(self._allocatable[row, index]) - used[name],
                    OVERFULL,
                )

    def _left(self, node: str) -> dict[str, int]:
        """The amounts that a node has free, {} of an unknown one."""
        offering = self._nodes.get(node)
        if offering is None:
            return {}

        used = self._used.get(node, {})
        left = {}
        for name, amount in self.served.offered(offering).items():
            left[name] = amount - used.get(name, 0)

        return left

    def _count_overhead(
        self,
        pod: Pod,
        node: str,
        sign: int,
    ) -> None:
        """Count the pod among what ends with its node; when it goes, the node offers more."""
        if not pod.ends_with_node:
            return

        amounts = self._overhead.setdefault(node, Counter())
        for name, amount in pod.shape.requests:
            amounts[name] += sign * amount

        if not any(amounts.values()):
            del self._overhead[node]

        index = None
        if not self._stale_columns:
            index = self._table.index.get(node)

        if index is None:
            return  # counted with all others once the node's columns are made

        if sign < 0:
            self._offers_more.setdefault(node, set()).update(name for name, _ in pod.shape.requests)

        columns = (
            np.zeros_like(self._allocatable)
            if self._overhead_columns is None
            else self._overhead_columns.copy()
        )
        columns[:, index] = self._filled((self._overhead.get(node, {}),))[:, 0]
        self._overhead_columns = columns

    def _settle(
        self,
        pod: Pod,
        node: str,
        sign: int,
    ) -> Residents:
        """Update the residents of one node; these."""
        if node not in self._unshown:
            self._residents[node] = dict(self._residents.get(node, NOBODY))
            self._unshown.add(node)

        residents = self._residents[node]
        if sign > 0:
            residents[pod.uid] = pod
        else:
            del residents[pod.uid]

        if not residents:
            del self._residents[node]
            self._unshown.discard(node)

        return residents

    def _count_terms(self, pod: Pod, sign: int) -> None:
        """Count the pod among those with inter-pod terms on a node that is known."""
        if pod.shape.inter_pod is not None and pod.shape.inter_pod.has_terms:
            self._terms.count((pod.shape, pod.namespace), sign)

    def _refresh(self) -> None:
        if self._stale_table:
            nodes = self._nodes.values()
            self._table = NodeTable.of(nodes, self._table, topology_keys=self._topology_keys)
            self._stale_table = False
            self._rows = [self._residents.get(name, NOBODY) for name in self._table.names]
            self._versions = np.arange(len(self._rows), dtype=np.int64) + self._version + 1
            self._version += len(self._rows)

        if self._stale_columns:
            self._fill_columns()
        elif self._stale_rows:
            self._fill_rows(self._stale_rows)
        else:
            return

        self._stale_columns = False
        self._stale_rows = set()
        self._through = frozenset(self.served.names)

    def _in_order(self) -> list[Node]:
        """The nodes as they are now, in the order of the table: they may offer other amounts than
        the table's, which alone does not make a new table.
        """
        return [self._nodes[name] for name in self._table.names]

    def _fill_columns(self) -> None:
        """Fill all columns."""
        of_nodes = (name for node in self._table.nodes for name, _ in node.allocatable)
        self._know((*of_nodes, *sorted(self.served.names)))

        self._allocatable = self._filled(self.served.offered(node) for node in self._in_order())
        used = self._filled(self._used.get(name, {}) for name in self._table.names)
        self._free = np.maximum(self._allocatable - used, OVERFULL)
        self._fill_overhead()

    def _fill_rows(self, names: Set[str]) -> None:
        """Fill the rows of some resources, when other ones are served by devices than before."""
        self._know(sorted(names & self.served.names))
        nodes = self._in_order()
        more = len(self._resources) - len(self._allocatable)
        if more:
            size = (more, len(nodes))
            no_rows = np.zeros(size, dtype=np.int64)
            self._allocatable = np.vstack((self._allocatable, no_rows))
            self._free = np.vstack((self._free, no_rows))

        for name in names & self._resources.keys():
            row = self._resources[name]
            offered = []
            used = []
            for node in nodes:
                of_node = self._used.get(node.name, {})
                offered.append(self.served.offered_of(name, node))
                used.append(of_node.get(name, 0))

            free = np.subtract(_limited(offered), _limited(used))
            self._allocatable[row] = _limited(offered)
            self._free[row] = np.maximum(free, OVERFULL)

        if more:
            self._fill_overhead()

    def _fill_overhead(self) -> None:
        if not self._overhead:
            self._overhead_columns = None
            return

        names = self._table.names
        self._overhead_columns = self._filled(self._overhead.get(name, {}) for name in names)

    def _know(self, names: Iterable[str]) -> None:
        """Have a row for each of these resources."""
        resources = dict(self._resources)
        for name in names:
            resources.setdefault(name, len(resources))

        # Not in place: snapshots share it, and whoever remembers rows knows it by identity.
        if len(resources) > len(self._resources):
            self._resources = resources

    def _filled(self, amounts: Iterable[Mapping[str, int]]) -> Ints:
        """A column for each of `amounts`; row by row, because NumPy takes a list faster than single
        numbers.
        """
        columns = tuple(amounts)
        rows = []

        for name in self._resources:
            rows.append(_limited(column.get(name, 0) for column in columns))

        return np.array(rows, dtype=np.int64).reshape(len(rows), len(columns))

    def _fill_column(self, index: int, node: Node) -> None:
        offered = self.served.offered(node)
        of_node = self._used.get(node.name, {})
        self._allocatable[:, index] = self._filled((offered,))[:, 0]
        used = self._filled((of_node,))[:, 0]
        self._free[:, index] = np.maximum(self._allocatable[:, index] - used, OVERFULL)


def _limited(amounts: Iterable[int]) -> list[int]:
    """The amounts, so that they can be added up in columns."""
    return [min(amount, MOST_USED) for amount in amounts]


def _attributes(node: Node) -> tuple[object, ...]:
    """The attributes of a node that filters read, without its room."""
    return (node.labels, node.taints, node.unschedulable)


def _same(old: Pod, new: Pod) -> bool:
    """Whether two versions of a placed pod are equal in everything that decisions read."""
    # Of an answer to a bind the pod is the one that was placed.
    return old is new or (
        old.shape is new.shape
        and (old.deleting, old.replica_of) == (new.deleting, new.replica_of)
        and old.ends_with_node == new.ends_with_node
        and old.namespace == new.namespace
        and old.labels == new.labels
    )
