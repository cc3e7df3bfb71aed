"""What lists and watches of gangs leave out: their places in the queue, and the nodes that are
reserved for them.

Invariant: places change all the time and cause no event, so they are asked for now and then, never
for more than a tenth of the time. An older scheduler has no such answer, and is asked once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from gangsched.kube.http.blocking import BlockingClient
from gangsched.kube.http.faults import Fault
from kubectl_gangsched.page.cluster import Cluster, GangObject
from kubectl_gangsched.session import GANGS

EVERY_S = 2.0
SHARE = 10
"""A wait is at least so many times as long as asking took."""
PAGE = 5_000
RESERVED_ASKED = 32
"""Gangs whose nodes are asked for at a time; a scheduler has eight reservations unless told."""


class Places:
    """Asks for places and nodes."""

    def __init__(self, client: BlockingClient, cluster: Cluster, lock: threading.Lock) -> None:
        """`lock` is held while the cluster is changed."""
        self._client = client
        self._cluster = cluster
        self._lock = lock
        self._has_queue = True

    def ask(self, path: str) -> float:
        """Ask for everything once; `path` is where gangs are listed, "" if they are not. Seconds
        until the next time.
        """
        if not path:
            return EVERY_S

        began_s = time.monotonic()
        try:
            self._ask_places(path)
            self._ask_nodes()
        except (Fault, LookupError, TypeError, ValueError):
            return EVERY_S  # the page has what it had

        took_s = time.monotonic() - began_s
        return max(EVERY_S, SHARE * took_s)

    def _ask_places(self, path: str) -> None:
        positions: dict[str, int] = {}
        while self._has_queue:
            offset = len(positions)
            query = f"view=queue&limit={PAGE}&offset={offset}"
            answer = self._client.get(f"{path}?{query}")
            self._has_queue = answer.get("kind") == "GangQueue"
            rows = answer.get("items") or ()

            for row in rows if self._has_queue else ():
                positions[f"{row['namespace']}/{row['name']}"] = int(row["position"])

            if len(rows) < PAGE:
                break

        if self._has_queue:
            with self._lock:
                self._cluster.put_positions(positions)

    def _ask_nodes(self) -> None:
        with self._lock:
            wanted = _without_nodes(self._cluster)

        for key in wanted[:RESERVED_ASKED]:
            namespace, _, name = key.partition("/")
            path = f"{GANGS}/namespaces/{quote(namespace, safe='')}/gangs/{quote(name, safe='')}"
            body = self._client.get(path)
            with self._lock:
                self._put(key, body)

    def _put(self, key: str, body: GangObject) -> None:
        """Store the nodes, unless the gang has changed meanwhile."""
        known = (self._cluster.gangs or {}).get(key)
        reserved = _reserved(body)
        if known is not None and _is_same(_reserved(known), reserved):
            self._cluster.put_gang(key, with_nodes(known, reserved.get("nodes") or []))


def _without_nodes(cluster: Cluster) -> list[str]:
    """The gangs whose reserved nodes are not known, and may be."""
    if cluster.gangs is None or cluster.nodes is None:
        return []

    found = []
    for key, gang in cluster.gangs.items():
        reserved = _reserved(gang)
        if reserved and "nodes" not in reserved:
            found.append(key)

    return found


def kept_nodes(before: GangObject | None, after: GangObject) -> GangObject:
    """A gang as a watch has it, with the nodes that are known if its reservation is the same."""
    if before is None:
        return after

    known = _reserved(before)
    if "nodes" not in known or not _is_same(known, _reserved(after)):
        return after

    return with_nodes(after, known["nodes"])


def with_nodes(gang: GangObject, nodes: list[str]) -> GangObject:
    """The gang with these reserved nodes."""
    status = dict(gang.get("status") or {})
    status["reserved"] = {**status["reserved"], "nodes": nodes}
    return {**gang, "status": status}


def _reserved(gang: GangObject) -> Mapping[str, Any]:
    return (gang.get("status") or {}).get("reserved") or {}


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two reservations are the same but for their nodes."""
    fields = ("kind", "startTime", "promised", "message")
    return bool(one) and bool(other) and all(one.get(name) == other.get(name) for name in fields)
