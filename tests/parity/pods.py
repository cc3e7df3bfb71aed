"""Pods from a seed: plain JSON of the API, with one or more features that filters look at.

Invariant: see `generate`; a `Taste` says which features are common in a case.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

Object = dict[str, Any]

NAMESPACES: dict[str, dict[str, str]] = {
    "p-a": {"team": "x"},
    "p-b": {"team": "y", "tier": "1"},
    "p-c": {},
}
RUNTIME_CLASS = "p-heavy"
HOSTNAME, ZONE, RACK = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "rack"
FOO = "example.com/foo"
GPU = "nvidia.com/gpu"
APPS = ("a", "b", "c")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True)
class Taste:
    """How likely a pod has each kind of feature; `scores` must not change where it fits."""

    resources: float = 0.1
    ports: float = 0.05
    near: float = 0.05
    away: float = 0.05
    spread: float = 0.05
    nodes: float = 0.08
    tolerations: float = 0.3
    scores: float = 0.15
    gates: float = 0.01
    volumes: float = 0.03


TASTES = (
    Taste(),
    Taste(resources=0.9, tolerations=0.1),
    Taste(ports=0.9),
    Taste(near=0.8),
    Taste(away=0.8),
    Taste(near=0.5, away=0.5),
    Taste(spread=0.9),
    Taste(spread=0.7, nodes=0.4, tolerations=0.5),
    Taste(nodes=0.9),
    Taste(tolerations=0.9, gates=0.1),
    Taste(volumes=0.9),
    Taste(volumes=0.5, spread=0.5, near=0.3, away=0.3),
    Taste(resources=0.4, ports=0.3, near=0.3, away=0.3, spread=0.3, nodes=0.3, scores=0.4),
)
"""One of these is drawn for each case."""


def bound_pod(name: str, taste: Taste, rng: Random) -> Object:
    """A running pod, with the features that matter to others."""
    return _pod(name, taste, rng)


def probe(name: str, taste: Taste, rng: Random, node_names: list[str]) -> Object:
    """A pod to place."""
    pod = _pod(name, taste, rng)
    spec = pod["spec"]
    affinity = spec.setdefault("affinity", {})
    if rng.random() < taste.nodes * 0.7:
        affinity["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": _node_terms(rng, node_names)}}
    if rng.random() < taste.nodes * 0.4:
        spec["nodeSelector"] = dict(
            [rng.choice(((ZONE, "x"), (ZONE, "y"), (RACK, "1"), ("size", "12")))]
        )
    if rng.random() < taste.scores:
        preferred = {
            "weight": rng.randint(1, 100),
            "preference": _node_term(rng, node_names, odd=False),
        }
        affinity.setdefault("nodeAffinity", {})[PREFERRED] = [preferred]
    spreads = _spreads(rng, pod["metadata"]["labels"]) if rng.random() < taste.spread else []
    if rng.random() < taste.scores:
        spreads += _spreads(rng, pod["metadata"]["labels"], hard=False)
    if spreads:
        spec["topologySpreadConstraints"] = spreads
    if rng.random() < taste.tolerations:
        spec["tolerations"] = [_toleration(rng) for _ in range(rng.randint(1, 2))]
    if rng.random() < taste.gates:
        spec["schedulingGates"] = [{"name": "example.com/wait"}]
    return pod


def resized(pod: Object, rng: Random) -> Object:
    """A status in which the pod or its containers have more or less than the spec requests."""
    spec = pod["spec"]
    sidecars = [each for each in spec.get("initContainers", ()) if each.get("restartPolicy")]
    status: Object = {"containerStatuses": [_container_status(spec["containers"][0], rng)]}
    if "resources" in spec:
        status["resources"] = {"requests": {"cpu": rng.choice(("1500m", "3")), "memory": "2Gi"}}
        status["allocatedResources"] = {"cpu": rng.choice(("1300m", "2500m"))}
    if sidecars:
        status["initContainerStatuses"] = [_container_status(sidecars[0], rng)]
    if rng.random() < 0.5:
        stands = rng.choice(("True", "False"))
        status["conditions"] = [
            {"type": "PodResizePending", "status": stands, "reason": "Infeasible"}
        ]
    return status


def _container_status(container: Object, rng: Random) -> Object:
    has = {"cpu": rng.choice(("50m", "1500m", "3"))}
    return {
        "name": container["name"],
        "image": "i",
        "imageID": "i",
        "ready": True,
        "restartCount": 0,
        "allocatedResources": has if rng.random() < 0.8 else {"cpu": "2500m"},
        "resources": {"requests": has},
    }


def _pod(name: str, taste: Taste, rng: Random) -> Object:
    labels = {"app": rng.choice(APPS)} if rng.random() < 0.9 else {}
    if rng.random() < 0.5:
        labels["rev"] = rng.choice("12")
    spec: Object = {"terminationGracePeriodSeconds": 0, "containers": _containers(taste, rng)}
    _ask_for_more(spec, taste, rng)
    affinity: Object = {}
    if rng.random() < taste.away:
        affinity["podAntiAffinity"] = {
            REQUIRED: [_term(labels, rng) for _ in range(rng.choice((1, 1, 2)))]
        }
    if rng.random() < taste.near:
        affinity["podAffinity"] = {
            REQUIRED: [_term(labels, rng) for _ in range(rng.choice((1, 1, 2)))]
        }
    if rng.random() < taste.scores:
        preferred = {"weight": rng.randint(1, 100), "podAffinityTerm": _term(labels, rng)}
        affinity.setdefault(rng.choice(("podAffinity", "podAntiAffinity")), {})[PREFERRED] = [
            preferred
        ]
    if affinity:
        spec["affinity"] = affinity
    metadata = {"name": name, "namespace": rng.choice(list(NAMESPACES)), "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


# --- resources and ports ------------------------------------------------------------------------


def _containers(taste: Taste, rng: Random) -> list[Object]:
    containers = []
    for index in range(rng.choice((1, 1, 2))):
        container: Object = {"name": f"m{index}", "image": "i", "resources": _resources(taste, rng)}
        if rng.random() < taste.ports:
            container["ports"] = [_port(8000 + 10 * index, rng)]
        containers.append(container)
    return containers


def _ask_for_more(spec: Object, taste: Taste, rng: Random) -> None:
    """Add overhead, pod-level amounts, init containers and the host's network to a spec."""
    if rng.random() < taste.resources * 0.3:
        spec["runtimeClassName"] = RUNTIME_CLASS
    # pod-level amounts must not be below what the containers ask for
    if rng.random() < taste.resources * 0.2:
        requests = rng.choice(({"cpu": "1200m", "memory": "1Gi"}, {"memory": "3Gi"}, {"cpu": "2"}))
        spec["resources"] = {"requests": requests}
        for container in spec["containers"]:
            container["resources"] = {"requests": {"cpu": "100m", "memory": "128Mi"}}
    elif rng.random() < max(taste.resources, taste.ports) * 0.4:
        spec["initContainers"] = _init_containers(taste, rng)
    if rng.random() < taste.ports * 0.2:
        spec["hostNetwork"] = True
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            for port in container.get("ports", ()):
                port["hostPort"] = port["containerPort"]


def _init_containers(taste: Taste, rng: Random) -> list[Object]:
    plain: Object = {
        "name": "i0",
        "image": "i",
        "resources": {"requests": {"cpu": rng.choice(("100m", "3"))}},
    }
    sidecar: Object = {
        "name": "s0",
        "image": "i",
        "restartPolicy": "Always",
        "resources": {"requests": {"cpu": "200m"}},
    }
    for container in (plain, sidecar):
        if rng.random() < taste.ports:
            container["ports"] = [_port(9000, rng)]
    return rng.choice(([plain], [sidecar], [plain, sidecar], [sidecar, plain]))


def _resources(taste: Taste, rng: Random) -> Object:
    requests = {}
    if rng.random() < 0.8:
        requests["cpu"] = rng.choice(("0", "100u", "100m", "500m", "1", "2"))
    if rng.random() < 0.6:
        requests["memory"] = rng.choice(("0", "256Mi", "1Gi", "1073741824001m", "3Gi"))
    if rng.random() < taste.resources * 0.3:
        requests["ephemeral-storage"] = rng.choice(("1Gi", "6Gi", "11Gi"))
    exact = {}
    if rng.random() < taste.resources * 0.5:
        exact[rng.choice((GPU, FOO))] = rng.choice("124")
    if rng.random() < taste.resources * 0.15:
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


# --- other pods ---------------------------------------------------------------------------------


def _selector(rng: Random, own: dict[str, str]) -> Object | None:
    """A label selector; one that selects the pod itself is common, as with replicas. None selects
    nothing.
    """
    if "app" in own and rng.random() < 0.5:
        return {"matchLabels": {"app": own["app"]}}
    return rng.choice(
        (
            {"matchLabels": {"app": rng.choice(APPS)}},
            {"matchLabels": {"app": rng.choice(APPS)}},
            {"matchExpressions": [{"key": "app", "operator": "In", "values": rng.sample(APPS, 2)}]},
            {
                "matchExpressions": [
                    {"key": "app", "operator": "NotIn", "values": [rng.choice(APPS)]}
                ]
            },
            {
                "matchExpressions": [
                    {"key": "rev", "operator": rng.choice(("Exists", "DoesNotExist"))}
                ]
            },
            {},
            None,
        )
    )


def _term(labels: dict[str, str], rng: Random) -> Object:
    """An inter-pod affinity term."""
    selector = _selector(rng, labels)
    term: Object = {
        "topologyKey": rng.choice((HOSTNAME, HOSTNAME, HOSTNAME, ZONE, ZONE, ZONE, RACK, "nowhere"))
    }
    if selector is not None:
        term["labelSelector"] = selector
        if rng.random() < 0.15:
            term[rng.choice(("matchLabelKeys", "mismatchLabelKeys"))] = [
                "rev" if "rev" not in str(selector) else "v"
            ]
    if rng.random() < 0.25:
        term["namespaces"] = rng.sample(list(NAMESPACES), rng.randint(1, 2))
    if rng.random() < 0.3:
        term["namespaceSelector"] = rng.choice(
            (
                {},
                {"matchLabels": {"team": "x"}},
                {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]},
                {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["y"]}]},
                {"matchLabels": {"team": "none"}},
            )
        )
    return term


def _spreads(rng: Random, labels: dict[str, str], *, hard: bool = True) -> list[Object]:
    return [
        _spread(key, rng, labels, hard=hard)
        for key in rng.sample((HOSTNAME, ZONE, RACK), rng.choice((1, 1, 2)))
    ]


def _spread(key: str, rng: Random, labels: dict[str, str], *, hard: bool) -> Object:
    constraint: Object = {
        "topologyKey": key,
        "maxSkew": rng.choice((1, 1, 2)),
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
    }
    selector = _selector(rng, labels)
    if selector is not None:
        constraint["labelSelector"] = selector
        if rng.random() < 0.2 and "rev" not in str(selector):
            constraint["matchLabelKeys"] = ["rev"]
    if hard and rng.random() < 0.25:
        constraint["minDomains"] = rng.randint(1, 4)
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if rng.random() < 0.3:
            constraint[policy] = rng.choice(("Honor", "Ignore"))
    return constraint


# --- nodes --------------------------------------------------------------------------------------


def _node_terms(rng: Random, node_names: list[str]) -> list[Object]:
    named = rng.random() < 0.25  # then every term names nodes, which is decided before any filter
    return [_node_term(rng, node_names, named=named) for _ in range(rng.choice((1, 1, 2, 3)))]


def _node_term(
    rng: Random, node_names: list[str], *, named: bool = False, odd: bool = True
) -> Object:
    """A term; `odd` ones compare with a non-number, which makes kube-scheduler fail for a
    preference.
    """
    term: Object = {}
    if rng.random() < 0.75:
        term["matchExpressions"] = [
            _node_requirement(rng, odd=odd) for _ in range(rng.choice((1, 1, 2)))
        ]
    if named or rng.random() < 0.2:
        names = [*node_names, "c-none"]
        operators = (
            ["In"] if named else rng.choice((["In"], ["NotIn"], ["In", "In"], ["In", "NotIn"]))
        )
        term["matchFields"] = [
            {"key": "metadata.name", "operator": operator, "values": [rng.choice(names)]}
            for operator in operators
        ]
    return term


def _node_requirement(rng: Random, *, odd: bool) -> Object:
    operator = rng.choice(("In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    key = "size" if operator in {"Gt", "Lt"} else rng.choice((ZONE, ZONE, RACK, "size"))
    values = {
        "In": rng.sample(("x", "y", "z", "1", "12"), 2),
        "NotIn": ["x"],
        "Lt": [rng.choice(("10", "007"))],
        "Gt": [rng.choice(("5", "8", "x", "99999999999999999998") if odd else ("5", "8"))],
    }.get(operator)
    return {"key": key, "operator": operator, **({"values": values} if values else {})}


def _toleration(rng: Random) -> Object:
    return rng.choice(
        (
            {"operator": "Exists"},
            {"key": "k1", "operator": "Exists"},
            {"key": "k2", "operator": "Equal", "value": "u", "effect": "NoSchedule"},
            {"key": "k3", "value": "v"},
            {
                "key": "node.kubernetes.io/unschedulable",
                "operator": "Exists",
                "effect": "NoSchedule",
            },
            {
                "key": "node.kubernetes.io/unschedulable",
                "operator": "Exists",
                "effect": "NoExecute",
            },
            {"operator": "Exists", "effect": "NoExecute"},
        )
    )
