"""Gangs that an autoscaler may break: it empties nodes, and evicts their pods one by one.

Invariant: only gangs that have started on nodes of an autoscaler, whose members a controller would
replace. Pods protect themselves by an annotation or a PodDisruptionBudget; gangsched writes none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec

from gangsched.api.gang_identity import gang_id
from gangsched.kube.http.blocking import BlockingClient
from gangsched.kube.read.decode import DecodeFault, decode_disruption_budget
from gangsched.kube.read.wire import WireDisruptionBudget
from gangsched.model.disruption import PodDisruptionBudget
from gangsched.model.objects import Pod
from gangsched.model.text import counted, named
from kubectl_gangsched.doctor.finding import Finding

NODES: Final = "/api/v1/nodes"
BUDGETS: Final = "/apis/policy/v1/poddisruptionbudgets"
TAINTS: Final = frozenset(
    {
        "ToBeDeletedByClusterAutoscaler",
        "DeletionCandidateOfClusterAutoscaler",
        "karpenter.sh/disrupted",
    }
)
"""Taints that only autoscalers set."""
POOLS: Final = frozenset(
    {
        "karpenter.sh/nodepool",
        "cloud.google.com/gke-nodepool",
        "eks.amazonaws.com/nodegroup",
        "kubernetes.azure.com/agentpool",
    }
)
"""Labels of nodes that belong to a pool."""
PROTECTING: Final = (
    ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
    ("karpenter.sh/do-not-disrupt", "true"),
)
"""Annotations of pods that autoscalers do not evict."""
MOST_READ: Final = 50
"""Gangs of which a member is read."""
REMEDY: Final = (
    'Set the annotation cluster-autoscaler.kubernetes.io/safe-to-evict: "false"'
    ' (karpenter.sh/do-not-disrupt: "true" for Karpenter) on their pods, or create'
    " PodDisruptionBudgets for them."
)


def breakable(client: BlockingClient, pods: Sequence[Pod]) -> Iterator[Finding]:
    """Started gangs that nothing keeps an autoscaler from breaking. Raises Fault."""
    members = [pod for pod in pods if pod.permitted is not None and pod.owner and pod.live]
    if not members:
        return

    nodes = _scaled(client.items(NODES))
    gangs = _by_gang(pod for pod in members if pod.node_name in nodes)
    if not gangs:
        return

    budgets = _budgets(client)
    open_gangs: dict[str, Pod] = {}
    for gang, members in gangs.items():
        if not any(budget.covers(member) for budget in budgets for member in members):
            open_gangs[gang] = members[0]

    exposed = _unprotected(client, open_gangs)
    if exposed:
        may = "is" if len(exposed) == 1 else "are"
        yield Finding(
            "autoscaler",
            f"{counted(len(exposed), 'gang')} {may} not protected from an autoscaler that empties"
            f" nodes, and would be broken: {named(exposed)}.",
            REMEDY,
        )


def _scaled(nodes: Sequence[Mapping[str, Any]]) -> set[str]:
    """Names of the nodes that an autoscaler manages."""
    names: set[str] = set()
    for node in nodes:
        labels = node["metadata"].get("labels") or {}
        taints = (node.get("spec") or {}).get("taints") or ()
        is_tainted = any(taint.get("key") in TAINTS for taint in taints)
        if is_tainted or not POOLS.isdisjoint(labels):
            names.add(node["metadata"]["name"])

    return names


def _by_gang(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """The members of each gang, the oldest first."""
    members: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        ref = gang_id(pod)
        if ref is not None:
            members[ref.id].append(pod)

    for alike in members.values():
        alike.sort(key=_age)

    return dict(sorted(members.items()))


def _budgets(client: BlockingClient) -> list[PodDisruptionBudget]:
    budgets: list[PodDisruptionBudget] = []
    for item in client.items(BUDGETS):
        try:
            wire = msgspec.convert(item, WireDisruptionBudget)
            budgets.append(decode_disruption_budget(wire))
        except (msgspec.ValidationError, DecodeFault):
            continue  # the scheduler reports it

    return budgets


def _unprotected(client: BlockingClient, gangs: Mapping[str, Pod]) -> list[str]:
    """Those of these gangs whose pod, given with each, has no annotation that protects it."""
    chosen = list(gangs)[:MOST_READ]
    paths = []
    for gang in chosen:
        pod = gangs[gang]
        namespace = quote(pod.namespace, safe="")
        paths.append(f"/api/v1/namespaces/{namespace}/pods/{quote(pod.name, safe='')}")

    exposed: list[str] = []
    for gang, body in zip(chosen, client.gets(paths), strict=True):
        if not isinstance(body, dict):
            continue  # it is gone, or may not be read

        annotations = body["metadata"].get("annotations") or {}
        if not any(annotations.get(key) == value for key, value in PROTECTING):
            exposed.append(gang)

    return exposed


def _age(pod: Pod) -> tuple[int, str]:
    return pod.creation_s, pod.name
