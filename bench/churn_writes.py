"""Writes in churn: conditions, statuses and Events that are ordered while 1,000 pods wait for an
hour and the cluster changes every few seconds, on a virtual clock.

`python -m bench.churn_writes [--gangs 250] [--seconds 3600] [--every 5] [--seed 51] [--code FOLDER]
[--json]` plays one seeded hour on the cluster of `tests.scenarios`, which hands every report of the
scheduler to a fake API server; writes are counted where they are ordered, before writers merge
them. `--code` plays the same hour with the code of another checkout and its environment, to compare
with; it must have `tests.scenarios.virtual`. Gangs of four wait for whole nodes, for one rack, for
nodes apart from each other, for a pool, and for CPUs. Pods of another scheduler come and go, nodes
are cordoned and opened, members are replaced, and a gang starts and ends now and then.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).parents[1]
MEMBERS, GPUS, NODES = 4, 8, 12
RACK = "example.com/rack"
POOL = "example.com/pool"
KINDS = ("whole", "rack", "apart", "pool", "cpu")


def gang(maker: Any, name: str, kind: str, members: range = range(MEMBERS)) -> list[Any]:
    """The pods of one gang that waits, first its PodGroup if it is new."""
    words: dict[str, Any] = {"gpus": GPUS}
    if kind == "rack":
        words["group_annotations"] = {"gangsched.dev/topology": RACK}
    if kind == "pool":
        words["node_selector"] = {POOL: "a"}
    if kind == "cpu":
        words = {"cpu": "30"}
    if kind == "apart":
        term = {
            "labelSelector": {"matchLabels": {"app": name}},
            "topologyKey": "kubernetes.io/hostname",
        }
        required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        words = {"gpus": 2, "labels": {"app": name}, "affinity": {"podAntiAffinity": required}}

    bodies: list[Any] = maker.entry({"gang": name, "members": MEMBERS, **words})
    names = {f"{name}-{number}" for number in members}
    is_new = len(members) == MEMBERS
    return [
        body
        for body in bodies
        if body["metadata"]["name"] in names or (is_new and body["kind"] != "Pod")
    ]


def play(*, gangs: int, seconds: int, every: int, seed: int) -> Counter[str]:
    """What was written in an hour, by kind."""
    from tests.scenarios import virtual
    from tests.scenarios.objects import Maker

    writes: Counter[str] = Counter()
    most: Counter[str] = Counter()

    class Counting(virtual.VirtualCluster):
        """A cluster that counts what is written."""

        def _write(self, report: Any) -> None:
            kind = type(report).__name__
            writes[kind] += 1
            if kind == "SetPodCondition":
                most[report.uid] += 1

            super()._write(report)

    # A check of the whole state after each turn, which is not what is measured.
    vars(virtual)["validate"] = lambda _state: []
    random = Random(seed)
    maker = Maker("churn")
    cluster = Counting(one_by_one=False)
    for number in range(NODES):
        labels = {RACK: f"r{number % 3}", POOL: "a" if number < 4 else "b"}
        cluster.create([*maker.nodes(f"n{number}", {"gpus": GPUS, "cpu": "32", "labels": labels})])
        cluster.create(maker.entry(filler(number)))

    for number in range(gangs):
        cluster.create(gang(maker, f"g{number}", KINDS[number % len(KINDS)]))

    cluster.wait(60)
    writes["before the churn"] = writes["SetPodCondition"]
    churn(cluster, maker, random, gangs=gangs, seconds=seconds, every=every)
    writes["most of one pod"] = max(most.values(), default=0)
    return writes


def filler(number: int) -> dict[str, Any]:
    """A pod of another scheduler that fills a node up to one GPU and two CPUs."""
    busy = {"scheduler": "other", "gpus": GPUS - 1, "cpu": "30"}
    return {"pod": f"filler-{number}", "on": f"n{number}", **busy}


def churn(
    cluster: Any, maker: Any, random: Random, *, gangs: int, seconds: int, every: int
) -> None:
    """Something changes every few seconds, and back."""
    gone: set[int] = set()
    cordoned: set[int] = set()
    passing = 0

    for step in range(seconds // every):
        match step % 6:
            case 0 | 3 | 4:  # a node becomes free and full again
                number = random.randrange(NODES)
                if number in gone:
                    gone.discard(number)
                    cluster.create(maker.entry(filler(number)))
                elif len(gone) < 2:
                    gone.add(number)
                    cluster.delete("Pod", maker.key(f"filler-{number}"))
            case 1:  # a node is cordoned or opened
                number = random.randrange(NODES)
                cluster.patch(
                    "Node",
                    maker.node_name(f"n{number}"),
                    {"spec": {"unschedulable": number not in cordoned}},
                )
                cordoned ^= {number}
            case 2:  # a member is replaced
                name, member = f"g{random.randrange(gangs)}", random.randrange(MEMBERS)
                kind = KINDS[int(name[1:]) % len(KINDS)]
                key = maker.key(f"{name}-{member}")
                if "nodeName" not in cluster.view.pods[key]["spec"]:
                    cluster.delete("Pod", key)
                    cluster.create(gang(maker, name, kind, range(member, member + 1)))
            case 5:  # a small pod starts and ends
                cluster.create(maker.entry({"pod": f"small-{passing}", "cpu": "1", "runs": 2}))
                passing += 1

        cluster.wait(every)


def elsewhere(folder: str, arguments: Sequence[str]) -> int:
    """The same with the code and the environment of another checkout."""
    python = Path(folder) / ".venv/bin/python"
    paths = [folder, *(str(path) for path in Path(folder).glob("packages/*"))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [str(python), str(Path(__file__).resolve()), *arguments]
    return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


def main(arguments: Sequence[str] | None = None) -> int:
    """Play and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gangs", type=int, default=250)
    parser.add_argument("--seconds", type=int, default=3_600)
    parser.add_argument("--every", type=int, default=5, help="seconds between two changes")
    parser.add_argument("--seed", type=int, default=51)
    parser.add_argument("--code", default="", help="folder of another checkout")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(arguments)
    if given.code:
        numbers = ("gangs", "seconds", "every", "seed")
        passed = [f"--{name}={getattr(given, name)}" for name in numbers]
        return elsewhere(given.code, [*passed, *(["--json"] if given.json else [])])

    began_s = time.monotonic()
    writes = play(gangs=given.gangs, seconds=given.seconds, every=given.every, seed=given.seed)
    if given.json:
        print(json.dumps(writes))
        return 0

    for what, number in sorted(writes.items()):
        print(f"{what}: {number}")

    print(f"{given.gangs * MEMBERS} pods, {given.seconds} s, seed {given.seed}")
    print(f"{time.monotonic() - began_s:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
