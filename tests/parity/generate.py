"""Clusters and probes from a seed: small, crowded and odd, so that every filter has something to refuse.

Law: plain JSON of the API; the same seed gives the same case; every object is one that the API server accepts. Names
are new in every case, so that nothing of one case can be mistaken for something of another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

Object = dict[str, Any]

NAMESPACES: dict[str, dict[str, str]] = {"p-a": {"team": "x"}, "p-b": {"team": "y", "tier": "1"}, "p-c": {}}
RUNTIME_CLASS = "p-heavy"
HOSTNAME, ZONE, RACK = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "rack"
FOO = "example.com/foo"
APPS = ("a", "b", "c")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@dataclass
class Case:
    """Nodes, pods that are bound to them, and probes: pods to place one after the other.

    `ended` and `leaving` name bound pods that have Succeeded or are terminating; `resized` has statuses to patch in.
    """

    seed: str
    nodes: list[Object] = field(default_factory=list)
    bound: list[Object] = field(default_factory=list)
    probes: list[Object] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)
    leaving: set[str] = field(default_factory=set)
    resized: dict[str, Object] = field(default_factory=dict)


def case(seed: int, number: int) -> Case:
    """Case `number` of `seed`."""
    rng = Random(f"{seed}/{number}")
    prefix = f"c{number}"
    roomy = rng.random() < 0.6
    count = 0 if rng.random() < 0.01 else rng.randint(1, 6)
    made = Case(f"{seed}/{number}", nodes=[_node(f"{prefix}-n{index}", rng, roomy=roomy) for index in range(count)])
    for index in range(rng.randint(0, 7) if made.nodes else 0):
        pod = _pod(f"{prefix}-b{index}", rng, bound=True)
        pod["spec"]["nodeName"] = rng.choice(made.nodes)["metadata"]["name"]
        made.bound.append(pod)
        fate = rng.random()
        if fate < 0.08:
            made.ended.add(pod["metadata"]["name"])
        elif fate < 0.18:
            made.leaving.add(pod["metadata"]["name"])
            pod["metadata"]["finalizers"] = ["example.com/hold"]
        elif fate < 0.25:
            made.resized[pod["metadata"]["name"]] = _resized(pod, rng)
    names = [node["metadata"]["name"] for node in made.nodes]
    for index in range(rng.randint(1, 3)):
        probe = _pod(f"{prefix}-p{index}", rng, bound=False, node_names=names)
        made.probes.append(probe)
        for twin in range(1, rng.choice((1, 1, 1, 2, 4))):
            made.probes.append({**probe, "metadata": {**probe["metadata"], "name": f"{prefix}-p{index}-{twin}"}})
    return made


# --- nodes ----------------------------------------------------------------------------------------------------------


def _node(name: str, rng: Random, *, roomy: bool) -> Object:
    labels = {HOSTNAME: name} if rng.random() < 0.95 else {}
    if rng.random() < 0.85:
        labels[ZONE] = rng.choice("xyz")
    if rng.random() < 0.5:
        labels[RACK] = rng.choice("12")
    if rng.random() < 0.5:
        labels["size"] = rng.choice(("007", "9.5", "12", "3", "big"))
    room = {
        "cpu": rng.choice(("1", "2", "1500m", "999999u", "4")), "memory": rng.choice(("1Gi", "2Gi", "4Gi")),
        "pods": rng.choice(("2", "3", "5", "110")), "ephemeral-storage": "10Gi",
    }  # fmt: skip
    for resource, amounts in (("nvidia.com/gpu", "1248"), (FOO, "13")):
        if rng.random() < 0.4:
            room[resource] = rng.choice(amounts)
    if rng.random() < 0.2:
        room["hugepages-2Mi"] = "64Mi"
    if roomy:
        room |= {"cpu": "32", "memory": "64Gi", "pods": "110", "ephemeral-storage": "100Gi", "nvidia.com/gpu": "8"}
    spec: Object = {"taints": _taints(rng)} if rng.random() < 0.3 else {}
    if rng.random() < 0.12:
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": spec,
        "status": {"allocatable": room, "capacity": room},
    }  # fmt: skip


def _taints(rng: Random) -> list[Object]:
    keys = rng.sample(("k1", "k2", "k3"), rng.randint(1, 2))
    effects = ("NoSchedule", "NoExecute", "PreferNoSchedule")
    return [{"key": key, "value": rng.choice("uv"), "effect": rng.choice(effects)} for key in keys]


# --- pods -----------------------------------------------------------------------------------------------------------


def _pod(name: str, rng: Random, *, bound: bool, node_names: list[str] | None = None) -> Object:
    """Bound pods carry what matters to others; probes everything. Most have few features, some many."""
    often = rng.choice((0.15, 0.3, 0.6))
    labels = {"app": rng.choice(APPS)} if rng.random() < 0.9 else {}
    if rng.random() < 0.5:
        labels["rev"] = rng.choice("12")
    spec: Object = {"terminationGracePeriodSeconds": 0, "containers": _containers(rng, often)}
    if rng.random() < 0.1:
        spec["runtimeClassName"] = RUNTIME_CLASS
    if rng.random() < 0.1:  # pod-level amounts must not be below what the containers ask for
        spec["resources"] = {"requests": {"cpu": "1200m", "memory": "1Gi"}}
        for container in spec["containers"]:
            container["resources"] = {"requests": {"cpu": "100m", "memory": "128Mi"}}
    elif rng.random() < often * 0.4:
        spec["initContainers"] = _init_containers(rng)
    affinity: Object = {}
    if rng.random() < often:
        affinity["podAntiAffinity"] = {REQUIRED: [_term(labels, rng) for _ in range(rng.randint(1, 2))]}
    if rng.random() < often * 0.7:
        affinity["podAffinity"] = {REQUIRED: [_term(labels, rng) for _ in range(rng.choice((1, 1, 2)))]}
    if rng.random() < 0.15:
        preferred = {"weight": rng.randint(1, 100), "podAffinityTerm": _term(labels, rng)}
        affinity.setdefault("podAffinity", {})[PREFERRED] = [preferred]
    if not bound:
        if rng.random() < often * 0.5:
            affinity["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": _node_terms(rng, node_names or ["none"])}}
        if rng.random() < often * 0.4:
            spec["nodeSelector"] = dict([rng.choice(((ZONE, "x"), (ZONE, "y"), (RACK, "1"), ("size", "12")))])
        if rng.random() < often:
            spec["topologySpreadConstraints"] = _spreads(rng)
        if rng.random() < 0.4:
            spec["tolerations"] = [_toleration(rng) for _ in range(rng.randint(1, 2))]
    if affinity:
        spec["affinity"] = affinity
    metadata = {"name": name, "namespace": rng.choice(list(NAMESPACES)), "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _containers(rng: Random, often: float) -> list[Object]:
    containers = []
    for index in range(rng.choice((1, 1, 2))):
        container: Object = {"name": f"m{index}", "image": "i", "resources": _resources(rng)}
        if rng.random() < often:
            container["ports"] = [_port(8000 + 10 * index, rng)]
        containers.append(container)
    return containers


def _init_containers(rng: Random) -> list[Object]:
    plain: Object = {"name": "i0", "image": "i", "resources": {"requests": {"cpu": rng.choice(("100m", "3"))}}}
    sidecar: Object = {
        "name": "s0", "image": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "200m"}},
    }  # fmt: skip
    for container in (plain, sidecar):
        if rng.random() < 0.4:
            container["ports"] = [_port(9000, rng)]
    return rng.choice(([plain], [sidecar], [plain, sidecar], [sidecar, plain]))


def _resources(rng: Random) -> Object:
    requests = {}
    if rng.random() < 0.8:
        requests["cpu"] = rng.choice(("0", "100u", "100m", "500m", "1", "2"))
    if rng.random() < 0.6:
        requests["memory"] = rng.choice(("0", "256Mi", "1Gi", "1073741824001m", "3Gi"))
    if rng.random() < 0.15:
        requests["ephemeral-storage"] = rng.choice(("1Gi", "11Gi"))
    exact = {}
    if rng.random() < 0.25:
        exact[rng.choice(("nvidia.com/gpu", FOO))] = rng.choice("124")
    if rng.random() < 0.05:
        exact["hugepages-2Mi"] = rng.choice(("32Mi", "128Mi"))
        requests.setdefault("cpu", "100m")
    return {"requests": {**requests, **exact}, "limits": exact}


def _port(base: int, rng: Random) -> Object:
    port: Object = {"containerPort": base + rng.randint(0, 1)}
    port["hostPort"] = port["containerPort"]
    if rng.random() < 0.4:
        port["hostIP"] = rng.choice(("127.0.0.1", "10.0.0.1", "0.0.0.0", "::"))
    if rng.random() < 0.3:
        port["protocol"] = "UDP"
    return port


def _selector(rng: Random) -> Object | None:
    return rng.choice((
        {"matchLabels": {"app": rng.choice(APPS)}},
        {"matchLabels": {"app": rng.choice(APPS)}},
        {"matchExpressions": [{"key": "app", "operator": "In", "values": rng.sample(APPS, 2)}]},
        {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [rng.choice(APPS)]}]},
        {"matchExpressions": [{"key": "rev", "operator": rng.choice(("Exists", "DoesNotExist"))}]},
        {},
        None,
    ))  # fmt: skip


def _term(labels: dict[str, str], rng: Random) -> Object:
    """An inter-pod affinity term; a pod that selects itself is common, as with replicas."""
    own = {"matchLabels": {"app": labels["app"]}} if "app" in labels else {}
    selector = own if rng.random() < 0.4 else _selector(rng)
    term: Object = {"topologyKey": rng.choice((HOSTNAME, HOSTNAME, ZONE, ZONE, RACK, "nowhere"))}
    if selector is not None:
        term["labelSelector"] = selector
        if rng.random() < 0.12:
            term[rng.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["rev" if "rev" not in str(selector) else "v"]
    if rng.random() < 0.25:
        term["namespaces"] = rng.sample(list(NAMESPACES), rng.randint(1, 2))
    if rng.random() < 0.3:
        term["namespaceSelector"] = rng.choice((
            {}, {"matchLabels": {"team": "x"}}, {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]},
            {"matchLabels": {"team": "none"}},
        ))  # fmt: skip
    return term


def _spreads(rng: Random) -> list[Object]:
    return [_spread(key, rng) for key in rng.sample((HOSTNAME, ZONE, RACK), rng.choice((1, 1, 2)))]


def _spread(key: str, rng: Random) -> Object:
    constraint: Object = {
        "topologyKey": key, "maxSkew": rng.choice((1, 1, 2)),
        "whenUnsatisfiable": "DoNotSchedule" if rng.random() < 0.85 else "ScheduleAnyway",
    }  # fmt: skip
    selector = _selector(rng)
    if selector is not None:
        constraint["labelSelector"] = selector
        if rng.random() < 0.15 and "rev" not in str(selector):
            constraint["matchLabelKeys"] = ["rev"]
    if constraint["whenUnsatisfiable"] == "DoNotSchedule" and rng.random() < 0.25:
        constraint["minDomains"] = rng.randint(1, 4)
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if rng.random() < 0.3:
            constraint[policy] = rng.choice(("Honor", "Ignore"))
    return constraint


def _node_terms(rng: Random, node_names: list[str]) -> list[Object]:
    return [_node_term(rng, node_names) for _ in range(rng.choice((1, 1, 2)))]


def _node_term(rng: Random, node_names: list[str]) -> Object:
    term: Object = {}
    if rng.random() < 0.7:
        term["matchExpressions"] = [_node_requirement(rng) for _ in range(rng.choice((1, 1, 2)))]
    if rng.random() < 0.35:
        names = [*node_names, "c-none"]
        operators = rng.choice((["In"], ["In"], ["NotIn"], ["In", "In"], ["In", "NotIn"]))
        term["matchFields"] = [
            {"key": "metadata.name", "operator": operator, "values": [rng.choice(names)]} for operator in operators
        ]
    return term


def _node_requirement(rng: Random) -> Object:
    operator = rng.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    key = "size" if operator in {"Gt", "Lt"} else rng.choice((ZONE, RACK, "size"))
    values = {
        "In": rng.sample(("x", "y", "1", "12"), 2), "NotIn": ["x"], "Gt": [rng.choice(("5", "8", "x"))], "Lt": ["10"],
    }.get(operator)  # fmt: skip
    return {"key": key, "operator": operator, **({"values": values} if values else {})}


def _toleration(rng: Random) -> Object:
    return rng.choice((
        {"operator": "Exists"},
        {"key": "k1", "operator": "Exists"},
        {"key": "k2", "operator": "Equal", "value": "u", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoExecute"},
        {"operator": "Exists", "effect": "NoExecute"},
    ))  # fmt: skip


def _resized(pod: Object, rng: Random) -> Object:
    """A status in which the first container has more or less cpu than its spec asks for."""
    has = {"cpu": rng.choice(("50m", "1500m", "3"))}
    status: Object = {
        "containerStatuses": [{
            "name": pod["spec"]["containers"][0]["name"], "image": "i", "imageID": "i", "ready": True,
            "restartCount": 0, "allocatedResources": has, "resources": {"requests": has},
        }]
    }  # fmt: skip
    if rng.random() < 0.5:
        status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
    return status
