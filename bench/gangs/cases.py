"""The cases: which cluster, which pods, in which order, and which contenders.

Invariant: data and builders only. A case is the same for every contender; only the API objects of a
gang differ.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from control_plane.api import Object
from control_plane.objects import node, pod, pod_group

NAMESPACE = "default"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
NATIVE_VERSIONS = {"": "v1alpha2", "1.37": "v1beta1"}
"""By release of Kubernetes the version of native gangs; "" is what is built by default."""
GATES_GONE = {"1.37": {"GangScheduling"}}
"""Gates that a release does not know any more, because what they switched on is always there."""
GROUPS = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{NAMESPACE}/podgroups"

SEED = 1
RACK, RACK_SIZE = "topology.kubernetes.io/rack", 10


class Mode(StrEnum):
    """When pods are created: while the scheduler runs, before it starts, or each gang in place of
    one that ended.

    PACED: gangs come as a Poisson process at half the rate of the raw client, whether or not the
    scheduler keeps up.
    """

    PACED = "paced"
    ARRIVE = "arrive"
    BACKLOG = "backlog"
    WAVES = "waves"
    CHURN = "churn"


class Dialect(StrEnum):
    """How a gang is declared: by gangsched's PodGroups, by native ones, or not at all."""

    GANGSCHED = "gangsched"
    NATIVE = "native"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """`members` pods that start together; 1 is a plain pod."""

    name: str
    members: int
    gpus: int = 0

    @property
    def pods(self) -> list[str]:
        """The names of its pods."""
        return [f"{self.name}-{index}" for index in range(self.members)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One load on one cluster. `impossible` gangs of two 8-GPU pods wait beside it; each node then
    has 7 GPUs free.
    """

    name: str
    title: str
    mode: Mode
    nodes: int
    gangs: int
    members: int
    gpus: int = 0
    impossible: int = 0
    waves: int = 1
    """WAVES: so many times `gangs`, each deleted when it is bound; CHURN: gangs in flight at a
    time.
    """
    filled: int = 0
    """CHURN: gangs that run at any time."""
    sizes: tuple[tuple[int, int], ...] = ()
    """PACED: (members, gangs) of each size, in place of `gangs` and `members`."""
    release: str = ""
    """Of Kubernetes, if not what is built by default."""
    racks: bool = False
    """Nodes are in racks of `RACK_SIZE`, and gangs are native ones."""
    one_rack: bool = False
    """Each of these gangs must be in one rack."""
    against: tuple[str, ...] = ("kube-scheduler", "native", "raw")

    @property
    def contenders(self) -> tuple[str, ...]:
        """All that are measured."""
        return self.against if self.racks else ("gangsched", *self.against)

    @property
    def pods(self) -> int:
        """Pods measured."""
        if self.sizes:
            return sum(members * gangs for members, gangs in self.sizes)
        return self.gangs * self.members * (self.waves if self.mode is Mode.WAVES else 1)

    def load(self, wave: int = 0) -> list[Gang]:
        """The gangs of one wave, in the order of their creation; of several sizes, in an order
        drawn from `SEED`.
        """
        if self.sizes:
            sizes = [members for members, gangs in self.sizes for _ in range(gangs)]
            random.Random(SEED).shuffle(sizes)
            return [
                Gang(name=f"paced-{index}", members=members) for index, members in enumerate(sizes)
            ]
        return [
            Gang(name=f"w{wave}-g{index}", members=self.members, gpus=self.gpus)
            for index in range(self.gangs)
        ]

    def arrivals_s(self, pods_per_s: float) -> list[float]:
        """PACED: when each gang of `load` comes, in seconds from the start."""
        rng, rate, at_s, arrivals = (
            random.Random(SEED),
            pods_per_s * self.gangs / self.pods,
            0.0,
            [],
        )
        for _ in range(self.gangs):
            arrivals.append(at_s)
            at_s += rng.expovariate(rate)
        return arrivals

    def waiting(self) -> list[Gang]:
        """The gangs that never fit."""
        return [
            Gang(name=f"impossible-{index}", members=2, gpus=8) for index in range(self.impossible)
        ]


_SIZES = ((1, 300), (8, 300), (64, 30))
_WAVES: dict[str, Any] = {
    "mode": Mode.WAVES,
    "nodes": 20,
    "gangs": 10,
    "members": 8,
    "gpus": 1,
    "waves": 10,
    "against": ("native",),
}
_SMALL: dict[str, Any] = {
    "nodes": 200,
    "gangs": 100,
    "members": 20,
    "against": ("served", "newcomer", "kube-scheduler", "native", "raw"),
}
_LARGE: dict[str, Any] = {"nodes": 1_000, "gangs": 4, "members": 500}
CASES = (
    Case(
        name="half-load",
        title="gangs of 1, 8 and 64 pods at half the API server's rate",
        mode=Mode.PACED,
        nodes=200,
        gangs=sum(gangs for _, gangs in _SIZES),
        members=0,
        sizes=_SIZES,
        against=("kube-scheduler", "native"),
    ),
    Case(
        name="small-arrive", title="100 gangs × 20 on 200 nodes, arrive", mode=Mode.ARRIVE, **_SMALL
    ),
    Case(
        name="small-backlog",
        title="100 gangs × 20 on 200 nodes, backlog",
        mode=Mode.BACKLOG,
        **_SMALL,
    ),
    Case(
        name="large-arrive",
        title="4 gangs × 500 on 1,000 nodes, arrive",
        mode=Mode.ARRIVE,
        **_LARGE,
    ),
    Case(
        name="large-backlog",
        title="4 gangs × 500 on 1,000 nodes, backlog",
        mode=Mode.BACKLOG,
        **_LARGE,
    ),
    Case(
        name="plain",
        title="2,000 plain pods on 200 nodes, arrive",
        mode=Mode.ARRIVE,
        nodes=200,
        gangs=2_000,
        members=1,
        against=("kube-scheduler", "raw"),
    ),
    Case(name="feasible", title="waves of 10 gangs × 8 GPU, nothing waiting", **_WAVES),
    Case(
        name="impossible",
        title="waves of 10 gangs × 8 GPU, 1,000 impossible gangs waiting",
        impossible=1_000,
        **_WAVES,
    ),
    Case(
        name="wide",
        title="300 gangs × 8 GPU on 5,000 nodes, arrive",
        mode=Mode.ARRIVE,
        nodes=5_000,
        gangs=300,
        members=8,
        gpus=1,
    ),
    *(
        Case(
            name=name,
            title=f"300 native gangs × 8 GPU on 5,000 nodes of Kubernetes 1.37{where}",
            mode=Mode.ARRIVE,
            nodes=5_000,
            gangs=300,
            members=8,
            gpus=1,
            release="1.37",
            racks=True,
            one_rack=bool(where),
            against=("gangsched-native", "native"),
        )
        for name, where in (("native", ""), ("native-rack", ", each in one rack"))
    ),
    Case(
        name="churn",
        title="8-GPU gangs end and start, 90 % of 800 GPUs in use",
        mode=Mode.CHURN,
        nodes=100,
        gangs=300,
        members=8,
        gpus=1,
        waves=8,
        filled=90,
        against=("kube-scheduler", "native"),
    ),
)
PROBE = Case(name="probe", title="what the raw client reaches", mode=Mode.ARRIVE, **_SMALL)


def node_bodies(case: Case) -> Iterator[Object]:
    """Nodes of 64 CPUs, 512 GiB and 8 GPUs."""
    return (
        node(f"node-{index:04}", labels={RACK: f"r{index // RACK_SIZE:03}"} if case.racks else {})
        for index in range(case.nodes)
    )


def filler_bodies(case: Case) -> Iterator[Object]:
    """A bound pod of one GPU on each node, so that an 8-GPU pod fits nowhere now."""
    for index in range(case.nodes if case.impossible else 0):
        place = {"nodeName": f"node-{index:04}"}
        yield pod(f"filler-{index}", NAMESPACE, gpus=1, scheduler_name="nobody", spec=place)


def groups_path(case: Case, dialect: Dialect) -> str:
    """Where the PodGroups of a case are created."""
    if dialect is Dialect.GANGSCHED:
        return GROUPS
    return (
        f"/apis/scheduling.k8s.io/{NATIVE_VERSIONS[case.release]}/namespaces/{NAMESPACE}/podgroups"
    )


def group_body(case: Case, gang: Gang, dialect: Dialect) -> Object:
    """The PodGroup of a gang."""
    if dialect is Dialect.GANGSCHED:
        return pod_group(gang.name, NAMESPACE, gang.members)
    one_rack = {"schedulingConstraints": {"topology": [{"key": RACK}]}} if case.one_rack else {}
    return {
        "apiVersion": f"scheduling.k8s.io/{NATIVE_VERSIONS[case.release]}",
        "kind": "PodGroup",
        "metadata": {"name": gang.name, "namespace": NAMESPACE},
        "spec": {"schedulingPolicy": {"gang": {"minCount": gang.members}}, **one_rack},
    }


def pod_body(gang: Gang, name: str, dialect: Dialect, scheduler: str) -> Object:
    """One member of a gang that is declared in `dialect`, for this scheduler."""
    if gang.members == 1 or dialect is Dialect.PLAIN:
        return pod(name, NAMESPACE, gpus=gang.gpus, scheduler_name=scheduler)
    if dialect is Dialect.NATIVE:
        grouped = {"schedulingGroup": {"podGroupName": gang.name}}
        return pod(name, NAMESPACE, gpus=gang.gpus, scheduler_name=scheduler, spec=grouped)
    return pod(name, NAMESPACE, gang=gang.name, gpus=gang.gpus)


def encoded(body: Object) -> bytes:
    """JSON as it goes over the wire."""
    return json.dumps(body, separators=(",", ":")).encode()
