"""Builders of nodes, pods, gangs and groups, for tests and for the benchmarks that call `core`
directly.

Invariant: a builder makes a value of `gangsched.model` and fills in what its caller does not care
about. Pods made with the same amounts share one `Shape`, as the decoder makes them. JSON objects of
the API have builders of their own, in `control_plane.objects`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import count
from typing import Any

import msgspec

from gangsched.api import keys
from gangsched.core.reserve import Ledger
from gangsched.model.gang import Gang, Group, Placement
from gangsched.model.objects import Node, PermitStamp, Phase, Pod, PodGroup, Shape, Taint
from gangsched.model.plan import Plan, Verdict
from gangsched.model.resources import ResourceVector, from_dict
from gangsched.model.snapshot import Snapshot
from gangsched.state.cluster import Cluster
from gangsched.state.group_record import GroupRecord

GPU = "nvidia.com/gpu"
NAMESPACE = "ns"
OURS = frozenset({"gangsched"})
POD_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
MEMBER_VALUES = (
    "min_member",
    "total",
    "mode",
    "wait",
    "groups",
    "policy",
    "parent",
    "min_children",
    "topology",
)
_serial = count(1)


def amounts(
    *, gpus: int = 0, cpu_milli: int = 0, memory_bytes: int = 0, pods: int = 0
) -> ResourceVector:
    """A resource vector."""
    return from_dict({GPU: gpus, "cpu": cpu_milli, "memory": memory_bytes, "pods": pods})


def shape(gpus: int = 1, cpu_milli: int = 0, memory_bytes: int = 0, **rest: Any) -> Shape:
    """The one shape of these requests; `rest` are fields of `Shape`, hashable."""
    return _shape(
        amounts(gpus=gpus, cpu_milli=cpu_milli, memory_bytes=memory_bytes, pods=1),
        tuple(rest.items()),
    )


@cache
def _shape(requests: ResourceVector, rest: tuple[tuple[str, Any], ...]) -> Shape:
    return Shape(requests=requests, **dict(rest))


def node(
    name: str,
    gpus: int = 8,
    *,
    cpu_milli: int = 64_000,
    memory_bytes: int = 2**38,
    pods: int = 110,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Taint] = (),
    unschedulable: bool = False,
    creation_s: int = 0,
) -> Node:
    """A node with this much allocatable."""
    return Node(
        name=name,
        uid=f"uid-{name}",
        labels={"kubernetes.io/hostname": name, **(labels or {})},
        taints=tuple(taints),
        unschedulable=unschedulable,
        creation_s=creation_s,
        allocatable=amounts(gpus=gpus, cpu_milli=cpu_milli, memory_bytes=memory_bytes, pods=pods),
    )


def gang_metadata(  # one parameter a value of semantics I3
    gang: str = "",
    *,
    min_member: object = None,
    total: object = None,
    mode: str = "",
    wait: str = "",
    groups: Sequence[str] | str = (),
    policy: str = "",
    parent: str = "",
    min_children: object = None,
    topology: str = "",
    pod_group: bool = False,
) -> tuple[tuple[str, str], ...]:
    """The gang metadata of a member of `gang`: by annotation, or by the label that needs a PodGroup
    object.
    """
    listed = (
        groups if isinstance(groups, str) else str(list(groups)).replace("'", '"') if groups else ""
    )
    stated = {
        (POD_GROUP_LABEL if pod_group else keys.NAME): gang,
        keys.MIN[0]: "" if min_member is None else str(min_member),
        keys.TOTAL[0]: "" if total is None else str(total),
        keys.MODE[0]: mode,
        keys.WAIT_TIME[0]: wait,
        keys.GROUPS[0]: listed,
        keys.MATCH_POLICY[0]: policy,
        keys.PARENT[0]: parent,
        keys.MIN_CHILDREN[0]: "" if min_children is None else str(min_children),
        keys.TOPOLOGY[0]: topology,
    }
    return tuple(sorted((key, value) for key, value in stated.items() if value))


def pod(
    name: str,
    *,
    gpus: int = 1,
    cpu_milli: int = 0,
    of: Shape | None = None,
    uid: str = "",
    **fields: Any,
) -> Pod:
    """A pending pod of ours; `fields` are fields of `Pod`. A uid is made up when none is given."""
    given: dict[str, Any] = {
        "namespace": NAMESPACE,
        "creation_s": 100,
        "scheduler_name": "gangsched",
        "shape": of or shape(gpus, cpu_milli),
        "uid": uid or f"{name}#{next(_serial)}",
    }
    return Pod(name=name, **{**given, **fields})


def pods(name: str, of: Shape, number: int) -> list[Pod]:
    """`number` plain pods of one shape, named `name-0000` and so on."""
    return [pod(f"{name}-{index:04}", of=of) for index in range(number)]


def members(
    gang: str, number: int, *, gpus: int = 1, pod_group: bool = False, **rest: Any
) -> list[Pod]:
    """`number` members of `gang`, named `gang-0`…; values of semantics I3 and fields of `Pod`
    mixed.

    By annotation the minimum is `number` unless given; with `pod_group` the PodGroup states it.
    """
    stated = {key: rest.pop(key) for key in MEMBER_VALUES if key in rest}
    if not pod_group:
        stated.setdefault("min_member", number)
    first = rest.pop("first", 0)
    return [
        pod(
            f"{gang}-{index}",
            gpus=gpus,
            gang_metadata=gang_metadata(gang, pod_group=pod_group, **stated),
            **rest,
        )
        for index in range(first, first + number)
    ]


def pod_group(name: str, min_member: int | None = 1, **fields: Any) -> PodGroup:
    """A PodGroup of `scheduling.x-k8s.io`; `fields` are fields of `PodGroup`."""
    given: dict[str, Any] = {
        "api_group": keys.X_K8S,
        "version": "v1alpha1",
        "namespace": NAMESPACE,
        "uid": f"pg-{name}",
        "creation_s": 50,
        "generation": 1,
    }
    return PodGroup(name=name, min_member=min_member, **{**given, **fields})


def running(pod: Pod, node: str = "") -> Pod:
    """The pod as the API server shows it once it runs."""
    return msgspec.structs.replace(pod, node_name=node or pod.node_name, phase=Phase.RUNNING)


def stamped(pod: Pod, min_member: int) -> Pod:
    """The pod as our bind left it: permitted with its gang's minimum (semantics B4)."""
    return msgspec.structs.replace(pod, permitted=PermitStamp(min_member, 1))


# --- what core sees -----------------------------------------------------------------------------


def snapshot(nodes: Iterable[Node], placed: Iterable[tuple[Pod, str]] = ()) -> Snapshot:
    """The snapshot of a cluster with these pods on it, held pods among them."""
    cluster = Cluster()
    for each in nodes:
        cluster.apply_node(each)
    for each_pod, name in placed:
        cluster.occupy(each_pod, name)
    return cluster.snapshot()


def ledger(nodes: Iterable[Node]) -> Ledger:
    """The ledger of an empty cluster."""
    return Ledger(snapshot(nodes))


def gang(
    gang_id: str, pending: Sequence[Pod] = (), min_member: int | None = None, **fields: Any
) -> Gang:
    """A gang whose minimum is all its pending members, unless given."""
    return Gang(
        id=gang_id,
        pending=tuple(pending),
        min_member=len(pending) if min_member is None else min_member,
        **{"total": len(pending), **fields},
    )


def group(*gangs: Gang, **fields: Any) -> Group:
    """The group of these gangs, named after the first."""
    ordered = tuple(sorted(gangs, key=lambda each: each.id))
    return Group(gangs=ordered, **{"id": ordered[0].id, **fields})


def holds(pods: Sequence[Pod], *nodes: str) -> tuple[Placement, ...]:
    """These pods held on these nodes, one each."""
    return tuple(Placement(each, name) for each, name in zip(pods, nodes, strict=True))


def verdict_on(plan: Plan, group_id: str) -> Verdict:
    """The plan's one verdict on a group."""
    (found,) = [each for each in plan.verdicts if each.group == group_id]
    return found


def where(verdict: Verdict) -> dict[str, str]:
    """Pod name to node of what a verdict binds."""
    return {placement.pod.name: placement.node for placement in verdict.binds}


class Records(dict[str, GroupRecord]):
    """Records of groups, each made when it is first asked for."""

    def __missing__(self, group: str) -> GroupRecord:
        record = self[group] = GroupRecord(id=group, gangs=(group,))
        return record

    def get(self, group: str, default: object = None) -> GroupRecord:
        return self[group]
