"""A gang of four whole nodes against a stream of small pods that never stops, on a real API server.

`python -m bench.reservation [--runs 20] [--without 3] [--minutes 10] [--seed 1]`. Four nodes are
full of pods of one GPU, of which more always wait; each states a run time and ends a little
earlier. In each run a gang that needs all four nodes whole is created; its PodGroup is told a
latest start, and the clock of a watch of ours says when its last member was bound. A run succeeds
if that is no later than the time told first. Then the gang ends, and the stream fills the nodes
again. `--without` puts as many gangs, each with nodes and a stream of its own, before a scheduler
whose setting `reservations` is 0, and waits for `--minutes`. Exit code 1 when a run fails, or a
gang starts without reservations.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import count

from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.applying import apply_manifests
from control_plane.daemon import Daemon
from control_plane.following import Following

from gangsched.api.keys import EXPECTED_RUNTIME

PODS = "/api/v1/pods"
GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"
NODES, GPUS = 4, 4
BACKLOG = 8
"""Pods of the stream that wait at any time."""
STATED_S, LEAST_RUN_S, MOST_RUN_S = 20, 5.0, 17.0
WITHIN_S = 180.0
FEED_EVERY_S = 0.2
PROMISE = re.compile(r"starts at (\S+Z) at the latest")


@dataclass(frozen=True, slots=True)
class Run:
    """One gang, in seconds after its creation: when a latest start was told, that start, and the
    start; None: never.
    """

    told_s: float | None
    promised_s: float | None
    started_s: float | None

    @property
    def kept(self) -> bool:
        """Whether it started by the time that was told."""
        known = self.promised_s is not None and self.started_s is not None
        return known and self.started_s <= self.promised_s  # type: ignore[operator]


class Cell:
    """Four nodes, and a namespace whose pods use no others."""

    def __init__(self, api: Api, name: str, *, seed: int) -> None:
        self.name = name
        self._api = api
        self._rng = random.Random(seed)
        self._numbers = count()
        self._label = {"bench.example.com/cell": name}
        api.post("/api/v1/namespaces", make.namespace(name))
        make.create_all(
            api, [make.node(f"{name}-{n}", gpus=GPUS, labels=self._label) for n in range(NODES)]
        )

    @contextmanager
    def stream(self, pods: Following) -> Iterator[None]:
        """Keep `BACKLOG` small pods waiting while the block runs."""
        closing, failed = threading.Event(), list[BaseException]()

        def feed() -> None:
            try:
                while not closing.wait(FEED_EVERY_S):
                    waiting = sum(not _bound(pod) for pod in self._small(pods.objects()))
                    make.create_all(
                        self._api, [self._pod() for _ in range(BACKLOG - waiting)], connections=4
                    )
            except BaseException as error:  # told by the thread that waits
                failed.append(error)

        thread = threading.Thread(target=feed, daemon=True)
        thread.start()
        try:
            yield
        finally:
            closing.set()
            thread.join()
        if failed:
            raise failed[0]

    def wait_until_full(self, pods: Following) -> None:
        """Every GPU is used by the stream."""
        pods.wait_for(
            lambda items: sum(_runs(pod) for pod in self._small(items)) == NODES * GPUS,
            within_s=WITHIN_S,
            what=f"{NODES * GPUS} small pods that run",
        )

    def create_gang(self, name: str) -> float:
        """Create a gang of all nodes; returns when, in epoch seconds."""
        bodies = make.gang(name, self.name, members=NODES, gpus=GPUS, node_selector=self._label)
        make.create_all(self._api, bodies)
        return time.time()

    def started(self, name: str, pods: Following, *, within_s: float) -> bool:
        """Wait for the last member to be bound; False if that takes longer than `within_s`."""
        try:
            pods.wait_for(
                lambda items: sum(_bound(pod) for pod in self._of(items, f"{name}-")) == NODES,
                within_s=within_s,
            )
        except TimeoutError:
            return False
        return True

    def delete_gang(self, name: str) -> None:
        """The gang ends."""
        for index in range(NODES):
            self._api.delete(f"/api/v1/namespaces/{self.name}/pods/{name}-{index}")

    def _pod(self) -> Object:
        return make.pod(
            f"small-{next(self._numbers)}",
            self.name,
            gpus=1,
            run_seconds=round(self._rng.uniform(LEAST_RUN_S, MOST_RUN_S), 1),
            annotations={EXPECTED_RUNTIME: f"{STATED_S}s"},
            node_selector=self._label,
        )

    def _small(self, items: Mapping[str, Object]) -> list[Object]:
        return self._of(items, "small-")

    def _of(self, items: Mapping[str, Object], prefix: str) -> list[Object]:
        return [
            pod
            for pod in items.values()
            if pod["metadata"]["namespace"] == self.name
            and pod["metadata"]["name"].startswith(prefix)
        ]


class Promises:
    """The latest start that each PodGroup was told first, and when."""

    def __init__(self) -> None:
        self.told: dict[str, tuple[float, float]] = {}

    def changed(self, _kind: str, group: Object, _seen_s: float) -> None:
        """A PodGroup was written."""
        conditions = (group.get("status") or {}).get("conditions") or ()
        text = next(
            (str(each.get("message")) for each in conditions if each["type"] == "Reserved"), ""
        )
        if match := PROMISE.search(text):
            latest_s = datetime.fromisoformat(match[1]).timestamp()
            self.told.setdefault(group["metadata"]["name"], (time.time(), latest_s))


def _bound(pod: Object) -> bool:
    return bool(pod["spec"].get("nodeName"))


def _runs(pod: Object) -> bool:
    return _bound(pod) and pod["status"].get("phase") not in {"Succeeded", "Failed"}


@contextmanager
def _cluster(environment: Mapping[str, str]) -> Iterator[Api]:
    with ControlPlane(kwok=True, for_load=True) as plane:
        api = Api.of(plane)
        apply_manifests(api)
        with Daemon(plane, environment=environment):
            yield api
        api.close()


def with_reservations(runs: int, *, seed: int) -> list[Run]:
    """One gang after the other against the same stream."""
    promises, results = Promises(), list[Run]()
    with (
        _cluster({}) as api,
        Following(api, PODS) as pods,
        Following(api, GROUPS, on_change=promises.changed),
    ):
        cell = Cell(api, "cell", seed=seed)
        with cell.stream(pods):
            for number in range(runs):
                name = f"gang-{number}"
                cell.wait_until_full(pods)
                created_s = cell.create_gang(name)
                started = cell.started(name, pods, within_s=WITHIN_S)
                started_s = time.time() - created_s if started else None
                told_s, latest_s = promises.told.get(name, (None, None))
                results.append(
                    Run(
                        None if told_s is None else told_s - created_s,
                        None if latest_s is None else latest_s - created_s,
                        started_s,
                    )
                )
                print(_line(number, results[-1]), flush=True)
                cell.delete_gang(name)
    return results


def without_reservations(gangs: int, *, minutes: float, seed: int) -> int:
    """How many of these gangs start within so many minutes, each in a cell of its own."""
    with _cluster({"GANGSCHED_RESERVATIONS": "0"}) as api, Following(api, PODS) as pods:
        started = [False] * gangs

        def watch(number: int) -> None:
            cell = Cell(api, f"cell-{number}", seed=seed + number)
            with cell.stream(pods):
                cell.wait_until_full(pods)
                cell.create_gang("gang")
                started[number] = cell.started("gang", pods, within_s=60 * minutes)

        threads = [threading.Thread(target=watch, args=(number,)) for number in range(gangs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return sum(started)


def _line(number: int, run: Run) -> str:
    times = (run.told_s, run.promised_s, run.started_s)
    cells = " | ".join("–" if each is None else f"{each:.1f}" for each in times)
    return f"| {number + 1} | {cells} | {'kept' if run.kept else 'BROKEN'} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--without", type=int, default=0, help="gangs without reservations")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long these are waited for")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    kept = started = 0
    if asked.runs:
        print(
            f"{NODES} nodes of {GPUS} GPUs; small pods state {STATED_S} s; seed {asked.seed};"
            " seconds after creation"
        )
        print("| run | told | promised | started | |\n|--:|--:|--:|--:|---|", flush=True)
        kept = sum(run.kept for run in with_reservations(asked.runs, seed=asked.seed))
        print(f"{kept} of {asked.runs} gangs started by the time that they were told.")
    if asked.without:
        started = without_reservations(asked.without, minutes=asked.minutes, seed=asked.seed)
        print(
            f"Without reservations {started} of {asked.without} started within {asked.minutes:g}"
            " minutes."
        )
    return int(kept < asked.runs or started > 0)


if __name__ == "__main__":
    sys.exit(main())
