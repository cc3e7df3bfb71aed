"""Moments of a cluster: all rows, of which only those are made again that a change touched."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec import structs

from gangsched.model.objects import Pod
from gangsched.sentences.times import by
from kubectl_gangsched.page import rows
from kubectl_gangsched.page.cluster import Cluster, GangObject, nodes_of
from kubectl_gangsched.page.document import (
    PLAIN,
    Bar,
    Moment,
    Order,
    PageGang,
    PageNode,
    Place,
    Total,
)

Waiting: TypeAlias = defaultdict[str, dict[str, GangObject]]
BARS_KEPT = 2_000
"""Bars of gangs and pods that have ended, the latest ones."""


class Moments:
    """Makes the moments of one cluster, one after the other."""

    def __init__(self, cluster: Cluster) -> None:
        """Nothing is made yet."""
        self._cluster = cluster
        self._nodes: dict[str, PageNode] = {}
        self._gangs: dict[str, PageGang] = {}
        self._bars: dict[str, list[Bar]] = {}
        self._ended: dict[str, list[Bar]] = {}
        #: Gangs of the gangs API that hold or reserve room, by node.
        self._waiting_on: Waiting = defaultdict(dict)
        self._room_of: dict[str, list[str]] = {}
        #: The ids of plain pods with bars, by uid.
        self._plain: dict[str, str] = {}

    def at(self, at_s: float) -> Moment:
        """The cluster as it is known at a time."""
        cluster = self._cluster
        self._renew_gangs(at_s)
        self._renew_nodes()
        self._renew_pods(at_s)
        if cluster.is_past_lost:
            self._ended.clear()
            cluster.is_past_lost = False

        queue, order = self._queue()
        totals = totals_of(self._nodes) if cluster.all_pods else []

        return Moment(
            at_s=at_s,
            sentence=sentence(totals, queue, self._gangs),
            remark=remark(totals),
            levels=list(cluster.levels),
            totals=totals,
            nodes=dict(self._nodes),
            gangs=dict(self._gangs),
            queue=queue,
            order=order,
            bars={**self._ended, **self._bars},
            health=cluster.health,
            unknown=list(cluster.unknown),
        )

    def _renew_nodes(self) -> None:
        cluster = self._cluster
        for name in cluster.stale_nodes:
            node = (cluster.nodes or {}).get(name)
            if node is None or not cluster.all_pods:
                self._nodes.pop(name, None)
                continue

            waiting = self._waiting_on.get(name, {}).values()
            self._nodes[name] = rows.node_row(cluster, node, waiting)

        cluster.stale_nodes.clear()

    def _renew_gangs(self, at_s: float) -> None:
        cluster = self._cluster
        for key in cluster.stale_gangs:
            pods = cluster.members.of(key)
            row = self._gang_row(key, pods, at_s)

            if row is None:
                self._gangs.pop(key, None)
                self._end_bars(key, at_s)
                continue

            self._gangs[key] = row
            bars = rows.bars_of(row, rows.nodes_of(pods))
            if bars:
                self._bars[key] = bars
            else:
                self._end_bars(key, at_s)

        cluster.stale_gangs.clear()

    def _gang_row(self, key: str, pods: list[Pod], at_s: float) -> PageGang | None:
        cluster = self._cluster
        if cluster.gangs is not None:
            gang = cluster.gangs.get(key)
            self._note_room(key, gang)
            return rows.row_of_api(gang, pods) if gang is not None else None

        body = cluster.pod_groups.get(key)
        return rows.row_of_pods(key, pods, body, at_s) if pods else None

    def _note_room(self, key: str, gang: GangObject | None) -> None:
        for node in self._room_of.pop(key, ()):
            self._waiting_on[node].pop(key, None)

        status = gang.get("status") if gang is not None else None
        if gang is not None and status and status.get("position"):
            self._room_of[key] = list(nodes_of(gang))
            for node in self._room_of[key]:
                self._waiting_on[node][key] = gang

    def _renew_pods(self, at_s: float) -> None:
        """The bars of plain pods that use accelerators."""
        cluster = self._cluster
        for uid in cluster.stale_pods:
            pod = (cluster.pods or {}).get(uid)
            if pod is not None and self._is_shown(pod):
                key = rows.user_of(pod)
                self._plain[uid] = key
                self._bars[key] = rows.bars_of_pod(pod)
            elif uid in self._plain:
                self._end_bars(self._plain.pop(uid), at_s)

        cluster.stale_pods.clear()

    def _is_shown(self, pod: Pod) -> bool:
        """Whether it is a plain pod that uses an accelerator."""
        if not pod.node_name or not pod.live or not rows.user_of(pod).startswith(PLAIN):
            return False

        is_accelerator = self._cluster.policy.is_accelerator
        if any(is_accelerator(name) for name, _ in pod.shape.requests):
            return True

        return self._cluster.devices.has(pod.uid)

    def _end_bars(self, key: str, at_s: float) -> None:
        """What happened until now stays, as long as it is one of the latest."""
        happened = []
        for bar in self._bars.pop(key, ()):
            if bar.kind == "happened":
                ended = structs.replace(bar, to_s=int(at_s))
                happened.append(ended)

        if happened:
            self._ended[key] = happened
            if len(self._ended) > BARS_KEPT:
                self._ended.pop(next(iter(self._ended)))

    def _queue(self) -> tuple[list[Place], Order]:
        """The gangs that wait, in order."""
        gangs = self._cluster.gangs
        if gangs is None:
            return by_age(self._gangs), "age"

        positions = {}
        for key, row in self._gangs.items():
            if row.waits:
                newest = self._cluster.positions.get(key)
                positions[key] = newest or int(gangs[key]["status"]["position"])

        return places(positions), "scheduler"


def places(positions: Mapping[str, int]) -> list[Place]:
    """The queue of gangs with these positions."""
    queue = []
    before = 0
    for key in sorted(positions, key=lambda key: (positions[key], key)):
        queue.append((key, positions[key] - before))
        before = positions[key]

    return queue


def by_age(gangs: Mapping[str, PageGang]) -> list[Place]:
    """The gangs that wait, oldest first."""
    waiting = []
    for row in gangs.values():
        if row.waits:
            waiting.append(row)

    waiting.sort(key=_age)
    return [(f"{row.namespace}/{row.name}", 1) for row in waiting]


def _age(row: PageGang) -> tuple[int, str, str]:
    return row.waiting_since_s or 0, row.namespace, row.name


def totals_of(nodes: Mapping[str, PageNode]) -> list[Total]:
    """The sums of each resource, the one that most nodes have first."""
    totals: dict[str, Total] = {}
    for node in nodes.values():
        for devices in node.devices:
            resource = devices.resource
            total = totals.get(resource)
            if total is None:
                total = totals[resource] = Total(resource, 0, 0)

            total.total += devices.total
            total.free += devices.free
            total.most_free = max(total.most_free, devices.free)
            total.nodes += 1

            unused = devices.total - sum(devices.users.values())
            if node.closed and unused > 0:
                closed = Counter(total.closed)
                closed[node.closed] += unused
                total.closed = dict(closed)

    return sorted(totals.values(), key=_most_nodes_first)


def _most_nodes_first(total: Total) -> tuple[int, str]:
    return -total.nodes, total.resource


def sentence(
    totals: Sequence[Total],
    queue: Sequence[Place],
    gangs: Mapping[str, PageGang],
) -> str:
    """The sentence about the cluster: what is free, who waits, and the next promised start."""
    parts = []
    if totals:
        first = totals[0]
        most = f", at most {first.most_free:,} on one node" if first.free else ""
        parts.append(f"{first.free:,} of {first.total:,} {first.resource} are free{most}.")

    promises = _promises(queue, gangs)
    if not queue:
        parts.append("No gang waits.")
    elif len(queue) == 1:
        start = f"; it starts at {by(promises[0])} at the latest" if promises else ""
        parts.append(f"1 gang waits{start}.")
    else:
        start = f"; the next promised start is at {by(promises[0])}" if promises else ""
        parts.append(f"{len(queue):,} gangs wait{start}.")

    return " ".join(parts)


def _promises(queue: Iterable[Place], gangs: Mapping[str, PageGang]) -> list[int]:
    promises = []
    for gang, _ in queue:
        row = gangs.get(gang)
        if row is not None and row.promised_s is not None:
            promises.append(row.promised_s)

    return sorted(promises)


def remark(totals: Sequence[Total]) -> str:
    """What is to be added to the sentence: unused room on nodes that take no pods."""
    if not totals or not totals[0].closed:
        return ""

    parts = []
    for word, number in sorted(totals[0].closed.items()):
        parts.append(f"{number:,} on nodes that are {word}")

    return f"Not free, though unused: {', '.join(parts)}."
