"""Who must notice nothing of an attack: another tenant who lists gangs, gangs that are bound, the
kubelet, the Lease.

Invariant: each asks from a thread of its own, waits for its answer, and then a little; a time
counts from the request to its whole answer, whatever the status.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.following import Following

from tests.e2e.visibility.attackers import GANGS, Target, as_user
from tests.e2e.visibility.conftest import Served

LISTS_EVERY_S, BINDS_EVERY_S, LIVEZ_EVERY_S = 0.1, 0.2, 0.1
LEASES = "/apis/coordination.k8s.io/v1/namespaces/gangsched-system/leases"
WITHIN_S = 30.0


@dataclass
class Seen:
    """Milliseconds of each, the statuses of the lists, and the longest time in seconds between two
    renewals.
    """

    lists: list[float] = field(default_factory=list)
    binds: list[float] = field(default_factory=list)
    livez: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    renewed_s: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, float]:
        """The 99th percentiles and the largest."""
        gaps = [after - before for before, after in itertools.pairwise(self.renewed_s)]
        return {
            "list_p99_ms": p99(self.lists),
            "refused_lists": sum(
                count for status, count in self.statuses.items() if status != http.client.OK
            ),
            "bind_p99_ms": p99(self.binds),
            "livez_max_ms": round(max(self.livez, default=0.0), 1),
            "renewal_gap_s": round(max(gaps, default=0.0), 2),
            "renewals": len(self.renewed_s),
            "lists": len(self.lists),
            "binds": len(self.binds),
        }


def p99(values: list[float]) -> float:
    """The value below which 99 of 100 are."""
    return round(sorted(values)[max(0, int(len(values) * 0.99) - 1)], 1) if values else 0.0


class Bystanders:
    """`watch` collects what they see while its block runs."""

    def __init__(self, served: Served, target: Target, api: Api) -> None:
        self._served, self._target, self._api = served, target, api
        self._numbers = itertools.count()

    @contextlib.contextmanager
    def watch(self) -> Iterator[Seen]:
        """What they see from here to the end of the block."""
        seen, ends = Seen(), threading.Event()
        failed: list[BaseException] = []

        def again(once: Callable[[Seen], None], every_s: float) -> None:
            try:
                while not ends.is_set():
                    once(seen)
                    ends.wait(every_s)
            except BaseException as error:
                failed.append(error)

        def renewed(kind: str, _: Object, seen_s: float) -> None:
            if kind == "MODIFIED":
                seen.renewed_s.append(seen_s)

        with (
            Following(self._api, "/api/v1/pods") as pods,
            Following(self._api, LEASES, on_change=renewed),
        ):
            work: list[tuple[Callable[[Seen], None], float]] = [
                (self._list, LISTS_EVERY_S),
                (lambda into: self._bind(into, pods), BINDS_EVERY_S),
                (self._livez, LIVEZ_EVERY_S),
            ]
            crowd = [threading.Thread(target=again, args=each, daemon=True) for each in work]
            for thread in crowd:
                thread.start()
            try:
                yield seen
            finally:
                ends.set()
                for thread in crowd:
                    thread.join(WITHIN_S)
        if failed:
            raise failed[0]

    def _list(self, seen: Seen) -> None:
        connection = self._target.through()
        with contextlib.closing(connection):
            began_s = time.perf_counter()
            connection.request("GET", f"{GANGS}/namespaces/bob/gangs", headers=as_user("bob"))
            answer = connection.getresponse()
            answer.read()
            seen.lists.append((time.perf_counter() - began_s) * 1e3)
            seen.statuses[answer.status] += 1

    def _bind(self, seen: Seen, pods: Following) -> None:
        name = f"quick-{next(self._numbers)}"

        def is_bound(found: Mapping[str, Object]) -> bool:
            mine = (pod for pod in found.values() if pod["metadata"]["name"] == name)
            return any(pod["spec"].get("nodeName") for pod in mine)

        began_s = time.perf_counter()
        self._api.post("/api/v1/namespaces/default/pods", make.pod(name))
        pods.wait_for(is_bound, within_s=WITHIN_S, what=f"the bind of {name}")
        seen.binds.append((time.perf_counter() - began_s) * 1e3)
        self._api.delete(f"/api/v1/namespaces/default/pods/{name}")

    def _livez(self, seen: Seen) -> None:
        began_s = time.perf_counter()
        with contextlib.closing(
            http.client.HTTPConnection(
                "127.0.0.1", self._served.daemon.health_port, timeout=WITHIN_S
            )
        ) as connection:
            connection.request("GET", "/livez")
            assert connection.getresponse().read() is not None
        seen.livez.append((time.perf_counter() - began_s) * 1e3)
