"""What lists and watches of gangs leave out: their places in the queue, and the nodes that are
reserved for them.

Invariant: places change all the time and cause no event, so they are asked for now and then, never
for more than a tenth of the time. An older scheduler has no such answer, and is asked once a
minute, since it may be replaced. What is refused holds up nothing else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from gangsched.kube.http.blocking import BlockingClient
from gangsched.kube.http.faults import ApiFault, Fault, Unreachable
from kubectl_gangsched.page.cluster import Cluster, GangObject
from kubectl_gangsched.session import GANGS, told
from kubectl_gangsched.terminal import clean, sentence

EVERY_S = 2.0
SHARE = 10
"""A wait is at least so many times as long as asking took."""
PAGE = 5_000
UNSERVED_S = 60.0
"""How often something is asked for that was not there, or was refused."""
RESERVED_ASKED = 32
"""Gangs whose nodes are asked for at a time; a scheduler has eight reservations unless told."""


class Places:
    """Asks for places and nodes."""

    def __init__(self, client: BlockingClient, cluster: Cluster, lock: threading.Lock) -> None:
        """`lock` is held while the cluster is changed."""
        self._client = client
        self._cluster = cluster
        self._lock = lock
        self._no_queue_until_s = 0.0
        #: Gangs whose nodes were refused, and until when they are not asked for.
        self._refused_until_s: dict[str, float] = {}
        #: Why places may be old, one sentence; "" if they are not.
        self.trouble = ""
        #: The leader answered last.
        self.is_of_leader = False

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
        except Unreachable:
            return EVERY_S  # the page says that the API server is away
        except (Fault, LookupError, TypeError, ValueError) as error:
            # The page has what it had.
            text = told(error) if isinstance(error, Fault) else f"{type(error).__name__} {error}"
            self.trouble = clean(sentence(f"Places in the queue cannot be read now: {text}"))
            return EVERY_S

        self.trouble = ""
        took_s = time.monotonic() - began_s
        return max(EVERY_S, SHARE * took_s)

    def _ask_places(self, path: str) -> None:
        if time.monotonic() < self._no_queue_until_s:
            return

        positions: dict[str, int] = {}
        offset = total = 0
        while offset == 0 or offset < total:
            query = f"view=queue&limit={PAGE}&offset={offset}"
            answer = self._client.get(f"{path}?{query}")
            if answer.get("kind") != "GangQueue":
                self._no_queue_until_s = time.monotonic() + UNSERVED_S
                positions = {}  # those of the gangs are as new
                break

            self.is_of_leader = not is_of_standby(answer)
            rows = answer.get("items") or ()
            for row in rows:
                positions[f"{row['namespace']}/{row['name']}"] = int(row["position"])

            # By rows, not by gangs: one that moves meanwhile is in two answers, or in none.
            offset += len(rows)
            total = int(answer.get("total") or 0)
            if not rows:
                break

        with self._lock:
            self._cluster.put_positions(positions)

    def _ask_nodes(self) -> None:
        now_s = time.monotonic()
        with self._lock:
            without = _without_nodes(self._cluster)

        refused = self._refused_until_s
        self._refused_until_s = {
            key: refused[key] for key in without if refused.get(key, 0) > now_s
        }
        wanted = [key for key in without if key not in self._refused_until_s]

        for key in wanted[:RESERVED_ASKED]:
            namespace, _, name = key.partition("/")
            path = f"{GANGS}/namespaces/{quote(namespace, safe='')}/gangs/{quote(name, safe='')}"
            try:
                body = self._client.get(path)
            except ApiFault:
                # It has gone, or may be listed and not read: the next one may be there.
                self._refused_until_s[key] = now_s + UNSERVED_S
                continue

            with self._lock:
                self._put(key, body)

    def _put(self, key: str, body: GangObject) -> None:
        """Store the nodes, unless the gang has changed meanwhile."""
        known = (self._cluster.gangs or {}).get(key)
        reserved = _reserved(body)
        if known is not None and _is_same(_reserved(known), reserved):
            self._cluster.put_gang(key, with_nodes(known, reserved.get("nodes") or []))


def is_of_standby(answer: Mapping[str, Any]) -> bool:
    """Whether a replica answered that does not lead; of a gang, the status says so."""
    served_by = answer.get("servedBy") or {}
    return served_by.get("role") == "standby"


def _without_nodes(cluster: Cluster) -> list[str]:
    """The gangs whose reserved nodes are not known, and may be."""
    if cluster.gangs is None or cluster.nodes is None:
        return []

    without_nodes = []
    for key, gang in cluster.gangs.items():
        reserved = _reserved(gang)
        if reserved and "nodes" not in reserved:
            without_nodes.append(key)

    return without_nodes


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
