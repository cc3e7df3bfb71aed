"""Replacements: from the creation of a lost member's replacement to its bind, on a large cluster.

`python -m bench.replacements [--nodes 5000] [--gangs 625] [--members 32] [--trials 100] [--seed 1]
[--json]` runs the daemon beside a real API server, with gangs that were bound before it started.
In each trial a member of a random gang is deleted, and then one is created in its place; at last a
whole gang loses its members and gets all of them back at once, as after the loss of a rack. The
clock starts before the POST is sent and stops when a watch of our own shows the bind, so it holds
two watches, a plan and the answer. What it does *not* show: nodes that go, and controllers that
take their time to create the replacement.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.applying import apply_manifests
from control_plane.daemon import Daemon
from control_plane.following import Following
from control_plane.pods import nodes_of

from bench.gangs.cases import PODS, encoded
from bench.gangs.http import Pool
from gangsched.simulate.figures import percentile

RACK = "topology.kubernetes.io/rack"
NODES_A_RACK = 50
GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
REPLACEMENT = "example.com/replacement"
WITHIN_S = 60.0
CONNECTIONS = 32
GOAL_P50_MS, GOAL_P99_MS, GOAL_ALL_MS = 100.0, 500.0, 1_000.0


@dataclass(frozen=True, slots=True)
class Result:
    """Latencies in milliseconds; `all_ms` is that of the last member of a gang that lost all."""

    nodes: int
    pods: int
    trials: int
    seed: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    all_ms: float

    @property
    def is_reached(self) -> bool:
        """Whether all goals are met."""
        if self.p50_ms > GOAL_P50_MS or self.p99_ms > GOAL_P99_MS:
            return False

        return self.all_ms <= GOAL_ALL_MS


@dataclass(frozen=True, slots=True)
class Cluster:
    """Gangs of `members` pods of 1 GPU, each gang on nodes of one rack, side by side."""

    nodes: int
    gangs: int
    members: int

    def __post_init__(self) -> None:
        """Raises ValueError if a node would have more pods than GPUs."""
        if self.gangs * self.members > self.nodes * 8:
            raise ValueError(
                f"{self.gangs} gangs of {self.members} pods need more than {self.nodes} nodes of 8"
                " GPUs."
            )

    @property
    def node_names(self) -> list[str]:
        """All nodes; `NODES_A_RACK` that follow each other are in one rack."""
        return [f"node-{number:05}" for number in range(self.nodes)]

    def node_objects(self) -> Iterator[Object]:
        """The nodes to be created."""
        for number, name in enumerate(self.node_names):
            yield make.node(name, labels={RACK: f"rack-{number // NODES_A_RACK}"})

    def pod_groups(self) -> Iterator[Object]:
        """The PodGroups to be created."""
        for number in range(self.gangs):
            yield make.pod_group(f"g{number}", min_member=self.members)

    def bound_members(self) -> Iterator[Object]:
        """The members to be created, which have their nodes already."""
        names = self.node_names
        for number in range(self.gangs):
            for index in range(self.members):
                place = (number * self.members + index) * self.nodes // (self.gangs * self.members)
                yield make.pod(
                    f"g{number}-{index}", gang=f"g{number}", gpus=1, spec={"nodeName": names[place]}
                )


def replacement(gang: str, name: str) -> Object:
    """A new member, which our watch follows."""
    return make.pod(name, gang=gang, gpus=1, labels={REPLACEMENT: "true"})


class Trials:
    """Members that are lost and replaced, one gang after the other."""

    def __init__(self, pool: Pool, replacements: Following) -> None:
        self._pool = pool
        self._replacements = replacements

    async def lose(self, gang: str, indexes: Iterable[int]) -> float:
        """Delete these members and create as many; milliseconds from the first creation to the last
        bind.
        """
        lost = [f"{gang}-{index}" for index in indexes]
        await self._pool.send_all(self._pool.request("DELETE", f"{PODS}/{name}") for name in lost)

        names = [f"{name}-again" for name in lost]
        requests = [
            self._pool.request("POST", PODS, encoded(replacement(gang, name))) for name in names
        ]
        began_s = time.monotonic()
        await self._pool.send_all(requests)
        await asyncio.to_thread(self._await_bound, set(names))

        return (time.monotonic() - began_s) * 1e3

    def _await_bound(self, names: set[str]) -> None:
        self._replacements.wait_for(
            lambda pods: names <= nodes_of(pods).keys(),
            within_s=WITHIN_S,
            what=f"{len(names)} bound replacements",
        )


async def play(plane: ControlPlane, cluster: Cluster, *, trials: int, seed: int) -> Result:
    """Fill the cluster, start the daemon and run the trials."""
    rng = random.Random(seed)
    api = Api.of(plane)
    async with Pool(plane.url, plane.ssl_context(), CONNECTIONS) as pool:
        for path, objects in (
            ("/api/v1/nodes", cluster.node_objects()),
            (GROUPS, cluster.pod_groups()),
            (PODS, cluster.bound_members()),
        ):
            await pool.send_all(pool.request("POST", path, encoded(body)) for body in objects)

        with Daemon(plane), Following(api, PODS, selector=REPLACEMENT) as followed:
            losses = Trials(pool, followed)
            # Nobody loses twice, and the last one loses all of its members.
            *singles, rack = rng.sample(range(cluster.gangs), trials + 1)
            took_ms: list[float] = []
            for number in singles:
                took_ms.append(await losses.lose(f"g{number}", [rng.randrange(cluster.members)]))

            all_ms = await losses.lose(f"g{rack}", range(cluster.members))

    api.close()

    return Result(
        nodes=cluster.nodes,
        pods=cluster.gangs * cluster.members,
        trials=trials,
        seed=seed,
        p50_ms=round(percentile(took_ms, 0.5), 1),
        p99_ms=round(percentile(took_ms, 0.99), 1),
        max_ms=round(max(took_ms), 1),
        all_ms=round(all_ms, 1),
    )


def measure(cluster: Cluster, *, trials: int, seed: int) -> Result:
    """The figures, on a control plane of their own."""
    with ControlPlane(for_load=True) as plane:
        api = Api.of(plane)
        apply_manifests(api)
        api.close()
        return asyncio.run(play(plane, cluster, trials=trials, seed=seed))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; exit code 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--gangs", type=int, default=625)
    parser.add_argument("--members", type=int, default=32)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    asked = parser.parse_args(arguments)
    if asked.trials >= asked.gangs:
        parser.error(f"{asked.trials} trials need more than {asked.gangs} gangs")

    cluster = Cluster(asked.nodes, asked.gangs, asked.members)
    result = measure(cluster, trials=asked.trials, seed=asked.seed)
    if asked.json:
        print(json.dumps(asdict(result)))
    else:
        print(
            f"{result.trials} replacements on {result.nodes} nodes with {result.pods} pods, seed"
            f" {result.seed}: p50 {result.p50_ms} ms (goal {GOAL_P50_MS:g}), p99 {result.p99_ms} ms"
            f" (goal {GOAL_P99_MS:g}), worst {result.max_ms} ms; {asked.members} at once"
            f" {result.all_ms} ms (goal {GOAL_ALL_MS:g})"
        )
    return 0 if result.is_reached else 1


if __name__ == "__main__":
    sys.exit(main())
