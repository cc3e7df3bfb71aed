"""The four kinds of gang that meet every fault: what is created, and what must become of it.

Invariant: each takes the whole cluster of `NODES` nodes, and a rival that wants the same room comes
after it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from control_plane import objects as make
from control_plane.api import Api, Object

NODES, GPUS = 2, 8
OTHER = "faults-other"
"""The second namespace of a gang group."""
PRIORITIES = {"lowest": -10, "never": 0, "high": 1000}


@dataclass(frozen=True)
class Cast:
    """`before` starts first and goes for the gang; `gang` must start; `expects` has the minimum of
    each gang in it.
    """

    gang: list[Object]
    expects: dict[str, int]
    before: list[Object] = field(default_factory=list)

    def pod_groups(self) -> list[str]:
        """The PodGroups of the gang, "namespace/name"."""
        found = (each["metadata"] for each in self.gang if each["kind"] == "PodGroup")
        return [f"{metadata['namespace']}/{metadata['name']}" for metadata in found]


def with_pod_group(name: str) -> Cast:
    """A PodGroup and four members."""
    return Cast(make.gang(name, members=4, gpus=4), {f"default/{name}": 4})


def with_annotations(name: str) -> Cast:
    """Four pods that say what gang they are of."""
    marks = make.gang_annotations(name, 4)
    return Cast(
        [make.pod(f"{name}-{i}", gpus=4, annotations=marks) for i in range(4)],
        {f"default/{name}": 4},
    )


def of_two_namespaces(name: str) -> Cast:
    """A gang group: one gang with a PodGroup, and one of annotations in another namespace."""
    ids = [f"default/{name}", f"{OTHER}/{name}"]
    first = make.gang(name, members=2, gpus=4)
    first[0]["metadata"]["annotations"] = {f"{make.KOORDINATOR}groups": json.dumps(ids)}
    marks = make.gang_annotations(name, 2, groups=ids)
    second = [make.pod(f"{name}-{i}", OTHER, gpus=4, annotations=marks) for i in range(2)]
    return Cast([*first, *second], dict.fromkeys(ids, 2))


def preempting(name: str) -> Cast:
    """A gang of high priority, and one of low priority that has all the room."""
    low = {"priorityClassName": "lowest", "terminationGracePeriodSeconds": 1}
    before = make.gang(f"{name}-victim", members=4, gpus=4, spec=low)
    return Cast(
        make.gang(name, members=4, gpus=4, spec={"priorityClassName": "high"}),
        {f"default/{name}": 4},
        before,
    )


KINDS: dict[str, Callable[[str], Cast]] = {
    "PodGroup": with_pod_group,
    "annotations": with_annotations,
    "gang group": of_two_namespaces,
    "preempting": preempting,
}


def rival(name: str) -> list[Object]:
    """A younger gang that would take any room that is given away, and preempts nobody."""
    return make.gang(f"{name}-rival", members=NODES, gpus=GPUS, spec={"priorityClassName": "never"})


def prepare(api: Api) -> None:
    """What these gangs need: a namespace, and priorities."""
    api.post("/api/v1/namespaces", make.namespace(OTHER))
    for name, value in PRIORITIES.items():
        body = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
        }
        policy = {"preemptionPolicy": "Never"} if name == "never" else {}
        api.post("/apis/scheduling.k8s.io/v1/priorityclasses", {**body, **policy, "value": value})
