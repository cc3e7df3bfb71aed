"""The API of gangs: how long `kubectl get gangs -A` takes, and what a flood of requests does to the
scheduler.

`python -m bench.visibility [--gangs 1000] [--samples 20] [--flood-s 10] [--json]` has that many
gangs of two wait behind a real API server with the aggregation layer. It times kubectl, which
starts anew each time, and PlacementReviews of a gang of 64. Then small gangs are bound one after
the other, at first quietly and then while threads ask past the API server, with the front proxy's
certificate, as fast as they can. The event loop's lateness is the daemon's own metric, over each of
the two times.
"""

from __future__ import annotations

import argparse
import http.client
import json
import ssl
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass

from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, ApiError
from control_plane.applying import apply_manifests, apply_visibility
from control_plane.components import KUBECTL
from control_plane.daemon import Daemon
from control_plane.ports import free_ports

GANGS = "/apis/visibility.gangsched.dev/v1alpha1"
GOAL_MS = 300.0
THREADS = 8
WITHIN_S = 120.0


@dataclass(frozen=True, slots=True)
class Result:
    """Medians in milliseconds; `worst_` is the largest. Lateness is the largest of the event loop,
    in milliseconds.
    """

    gangs: int
    kubectl_ms: float
    worst_kubectl_ms: float
    review_ms: float
    bind_ms: float
    bind_in_flood_ms: float
    late_ms: float
    late_in_flood_ms: float
    asked_per_s: float
    answered_per_s: float
    goal_ms: float = GOAL_MS


class Bench:
    """One control plane with a daemon and its load."""

    def __init__(self, plane: ControlPlane, daemon: Daemon, api: Api, port: int) -> None:
        self._plane, self._daemon, self._api, self._port = plane, daemon, api, port
        self._number = 0
        self._asked = self._answered = 0
        self._ends = threading.Event()

    def fill(self, gangs: int) -> None:
        """Gangs that wait for more than there is."""
        bodies = [
            body
            for number in range(gangs)
            for body in make.gang(f"wait-{number:05}", members=2, gpus=8)
        ]
        groups = [body for body in bodies if body["kind"] == "PodGroup"]
        make.create_all(self._api, [*groups, *(body for body in bodies if body["kind"] == "Pod")])
        deadline_s = time.monotonic() + WITHIN_S
        while True:
            listed = self._api.list(f"{GANGS}/gangs").items
            if len(listed) == gangs and all(
                each["status"]["reason"] == "Unschedulable" for each in listed
            ):
                return
            if time.monotonic() > deadline_s:
                raise RuntimeError(
                    f"only {len(listed)} of {gangs} gangs were decided in {WITHIN_S:g} s"
                )
            time.sleep(0.5)

    def kubectl_ms(self) -> float:
        """One `kubectl get gangs -A`, process and all."""
        began_s = time.perf_counter()
        argv = [str(KUBECTL), "--kubeconfig", str(self._plane.kubeconfig), "get", "gangs", "-A"]
        cache = ["--cache-dir", str(self._plane.workdir / "kubectl-cache")]
        subprocess.run([*argv, *cache], capture_output=True, check=True)
        return (time.perf_counter() - began_s) * 1e3

    def review_ms(self) -> float:
        """One PlacementReview of a gang that does not fit."""
        template = {"spec": make.gang("x", members=1, gpus=8)[1]["spec"]}
        spec = {"podSets": [{"name": "worker", "count": 64, "template": template}]}
        body = {
            "apiVersion": "visibility.gangsched.dev/v1alpha1",
            "kind": "PlacementReview",
            "spec": spec,
        }
        began_s = time.perf_counter()
        self._api.post(f"{GANGS}/namespaces/default/placementreviews", body)
        return (time.perf_counter() - began_s) * 1e3

    def bind_ms(self) -> float:
        """From the creation of a gang of one without accelerators to its bind."""
        self._number += 1
        name = f"quick-{self._number}"
        began_s = time.perf_counter()
        make.create_all(self._api, make.gang(name, members=1, gpus=0))
        path = f"/api/v1/namespaces/default/pods/{name}-0"
        while not self._api.get(path)["spec"].get("nodeName"):
            if time.perf_counter() > began_s + WITHIN_S:
                raise RuntimeError(f"{name} is not bound after {WITHIN_S:g} s")
            time.sleep(0.002)
        return (time.perf_counter() - began_s) * 1e3

    def late_ms(self) -> float:
        """How late the event loop is now."""
        return self._daemon.metrics()["gangsched_loop_lag_seconds"] * 1e3

    @contextmanager
    def flood(self) -> Iterator[None]:
        """Threads that ask for all gangs as fast as they can, each as a user of its own."""
        threads = [
            threading.Thread(target=self._ask, args=(number,), daemon=True)
            for number in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._ends.set()
            for thread in threads:
                thread.join(WITHIN_S)

    def counts(self) -> tuple[int, int]:
        """Requests of the flood, and those that were let in."""
        return self._asked, self._answered

    def _ask(self, number: int) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(self._plane.pki.proxy_cert, self._plane.pki.proxy_key)
        with closing(
            http.client.HTTPSConnection("127.0.0.1", self._port, context=context, timeout=60)
        ) as connection:
            while not self._ends.is_set():
                connection.request(
                    "GET", f"{GANGS}/gangs", headers={"X-Remote-User": f"flood-{number}"}
                )
                answer = connection.getresponse()
                answer.read()
                self._asked += 1
                self._answered += answer.status == http.client.OK


def measure(gangs: int, samples: int, flood_s: float) -> Result:
    """All of it on one control plane."""
    with ControlPlane(for_load=True) as plane, closing(Api.of(plane)) as api:
        apply_manifests(api)
        # they are never deleted
        make.create_all(api, [make.node("n0", gpus=4, cpu="1000", memory="8Ti", pods=10_000)])
        _let_the_flood_in(api)
        (port,) = free_ports(1)
        apply_visibility(api, port)
        environment = {
            "GANGSCHED_VISIBILITY_PORT": str(port),
            "GANGSCHED_BIND_ADDRESS": "127.0.0.1",
        }
        with Daemon(plane, environment=environment) as daemon:
            bench = Bench(plane, daemon, api, port)
            _await_served(api)
            bench.fill(gangs)
            bench.kubectl_ms()  # discovery is cached from here on
            kubectl_ms = [bench.kubectl_ms() for _ in range(samples)]
            review_ms = [bench.review_ms() for _ in range(samples)]
            quiet = _binds(bench, flood_s)
            with bench.flood():
                before, began_s = bench.counts(), time.monotonic()
                loud = _binds(bench, flood_s)
                took_s, after = time.monotonic() - began_s, bench.counts()
    return Result(
        gangs=gangs,
        kubectl_ms=round(statistics.median(kubectl_ms), 1),
        worst_kubectl_ms=round(max(kubectl_ms), 1),
        review_ms=round(statistics.median(review_ms), 1),
        bind_ms=round(statistics.median(quiet[0]), 1),
        bind_in_flood_ms=round(statistics.median(loud[0]), 1),
        late_ms=round(max(quiet[1]), 2),
        late_in_flood_ms=round(max(loud[1]), 2),
        asked_per_s=round((after[0] - before[0]) / took_s, 1),
        answered_per_s=round((after[1] - before[1]) / took_s, 1),
    )


def _binds(bench: Bench, for_s: float) -> tuple[list[float], list[float]]:
    """Binds one after the other for a while, and how late the loop was meanwhile."""
    binds: list[float] = []
    late: list[float] = []
    until_s = time.monotonic() + for_s
    while time.monotonic() < until_s or not binds:
        binds.append(bench.bind_ms())
        late.append(bench.late_ms())
    return binds, late


def _let_the_flood_in(api: Api) -> None:
    rules = [{"apiGroups": ["visibility.gangsched.dev"], "resources": ["gangs"], "verbs": ["list"]}]
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "metadata": {"name": "flood"},
        "kind": "ClusterRole",
    }
    api.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", {**role, "rules": rules})
    subject = {
        "kind": "Group",
        "apiGroup": "rbac.authorization.k8s.io",
        "name": "system:authenticated",
    }
    reference = {"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": "flood"}
    binding = {"metadata": {"name": "flood"}, "roleRef": reference, "subjects": [subject]}
    api.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)


def _await_served(api: Api) -> None:
    deadline_s = time.monotonic() + WITHIN_S
    while True:
        try:
            api.get(f"{GANGS}/gangs")
            return
        except ApiError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.1)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns 1 if the goal is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gangs", type=int, default=1_000)
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--flood-s", type=float, default=10.0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    found = asdict(measure(given.gangs, given.samples, given.flood_s))
    if given.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:>20} {value:>10}")
    return int(found["kubectl_ms"] > GOAL_MS)


if __name__ == "__main__":
    sys.exit(main())
