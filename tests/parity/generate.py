"""Clusters and probes from a seed: small, crowded and unusual, so that every filter has something
to refuse.

Invariant: plain JSON of the API; the same seed gives the same case; the API server accepts every
object. Names are new in every case, so that cases cannot be confused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from tests.parity.pods import (
    FOO,
    GPU,
    HOSTNAME,
    RACK,
    TASTES,
    ZONE,
    Object,
    Taste,
    bound_pod,
    probe,
    resized,
)
from tests.parity.volumes import Storage

LARGE = {"cpu": "32", "memory": "64Gi", "pods": "110", "ephemeral-storage": "1Ti", GPU: "8"}


@dataclass
class Case:
    """Nodes, storage, pods that are bound to nodes, and probes: pods to place one after the other.

    `ended` and `leaving` name bound pods that have Succeeded or are terminating; `resized` has
    statuses to patch in.
    """

    seed: str
    storage: Storage
    nodes: list[Object] = field(default_factory=list)
    bound: list[Object] = field(default_factory=list)
    probes: list[Object] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)
    leaving: set[str] = field(default_factory=set)
    resized: dict[str, Object] = field(default_factory=dict)


def case(seed: int, number: int) -> Case:
    """Case `number` of `seed`."""
    rng = Random(f"{seed}/{number}")
    prefix, taste = f"c{number}", rng.choice(TASTES)
    tight = rng.random() < (0.8 if taste.resources > 0.5 else 0.3)
    count = 0 if rng.random() < 0.01 else rng.randint(1, 6)
    nodes = [_node(f"{prefix}-n{index}", rng, tight=tight) for index in range(count)]
    names = [node["metadata"]["name"] for node in nodes]
    made = Case(
        f"{seed}/{number}", Storage(prefix, names if taste.volumes > 0.1 else [], rng), nodes
    )
    for index in range(rng.randint(0, 9)):
        pod = bound_pod(f"{prefix}-b{index}", taste, rng)
        pod["spec"]["nodeName"] = (
            rng.choice(names) if names and rng.random() < 0.97 else f"{prefix}-gone"
        )
        _mount(pod, taste, made, rng)
        made.bound.append(pod)
        _settle(pod, made, rng)
    for index in range(rng.randint(1, 3)):
        first = probe(f"{prefix}-p{index}", taste, rng, names or ["none"])
        _mount(first, taste, made, rng)
        made.probes.append(first)
        for twin in range(1, rng.choice((1, 1, 1, 2, 4, 7))):
            made.probes.append(
                {**first, "metadata": {**first["metadata"], "name": f"{prefix}-p{index}-{twin}"}}
            )
    return made


def _mount(pod: Object, taste: Taste, made: Case, rng: Random) -> None:
    if rng.random() < taste.volumes:
        made.storage.give(pod)


def _settle(pod: Object, made: Case, rng: Random) -> None:
    """The state of a bound pod: most run, some are terminating, ended or resized."""
    name, fate = pod["metadata"]["name"], rng.random()
    if fate < 0.08:
        made.ended.add(name)
    elif fate < 0.18:
        made.leaving.add(name)
        pod["metadata"]["finalizers"] = ["example.com/hold"]
    elif fate < (0.6 if "resources" in pod["spec"] else 0.3):
        made.resized[name] = resized(pod, rng)


def _node(name: str, rng: Random, *, tight: bool) -> Object:
    labels = {HOSTNAME: name} if rng.random() < 0.95 else {}
    if rng.random() < 0.9:
        labels[ZONE] = rng.choice("xyz") if rng.random() < 0.97 else ""
    if rng.random() < 0.5:
        labels[RACK] = rng.choice("12")
    if rng.random() < 0.6:
        labels["size"] = rng.choice(("007", "9.5", "12", "3", "big", "99999999999999999999"))
    spec: Object = {"taints": _taints(rng)} if rng.random() < 0.18 else {}
    if rng.random() < 0.06:
        spec["unschedulable"] = True
    room = _small(rng) if tight else dict(LARGE)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"allocatable": room, "capacity": room},
    }


def _small(rng: Random) -> dict[str, str]:
    room = {
        "cpu": rng.choice(("1", "2", "1500m", "999999u", "4")),
        "memory": rng.choice(("1Gi", "2Gi", "4Gi")),
        "pods": rng.choice(("0", "2", "3", "5", "110", "110")),
        "ephemeral-storage": "10Gi",
    }
    for resource, amounts in ((GPU, "1248"), (FOO, "13")):
        if rng.random() < 0.5:
            room[resource] = rng.choice(amounts)
    if rng.random() < 0.3:
        room["hugepages-2Mi"] = rng.choice(("64Mi", "256Mi"))
    if rng.random() < 0.05:
        del room[rng.choice(list(room))]
    return room


def _taints(rng: Random) -> list[Object]:
    keys = rng.sample(("k1", "k2", "k3"), rng.randint(1, 2))
    effects = ("NoSchedule", "NoExecute", "PreferNoSchedule")
    return [{"key": key, "value": rng.choice("uv"), "effect": rng.choice(effects)} for key in keys]
