"""Whether the daemon knows exactly what the API server lists.

Invariant: the daemon is asked by its own pages, the API server by LIST; nothing of gangsched's code
takes part.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence

from control_plane.api import Api, Object
from control_plane.checks import gang_of
from control_plane.daemon import Daemon

from bench.soak.churn import SIGS_LABEL

ENDED = {"Succeeded": "succeeded", "Failed": "failed"}
UNBOUND = frozenset({"pending", "held", "binding", "retry", "kept"})


def differences(api: Api, daemon: Daemon) -> list[str]:
    """Everything in which the daemon's caches and a LIST disagree, as sentences; empty
    if nothing.
    """
    pods, nodes = api.list("/api/v1/pods").items, api.list("/api/v1/nodes").items
    groups = [each for name in ("x-k8s", "sigs") for each in _pod_groups(api, name)]
    metrics = daemon.metrics()
    of_gang: dict[str, list[Object]] = defaultdict(list)
    for pod in pods:
        of_gang[gang(pod)].append(pod)
    plain = of_gang.pop("", [])
    known = {
        "gangsched_nodes": len(nodes),
        "gangsched_pods": len(pods) - sum(pod["status"].get("phase") in ENDED for pod in plain),
        "gangsched_gangs": (
            len(
                of_gang.keys()
                | {f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in groups}
            )
            + sum(not pod["spec"].get("nodeName") for pod in plain)
        ),
    }
    found = [
        f"{name} is {metrics[name]:g}, and {count} are listed"
        for name, count in known.items()
        if metrics[name] != count
    ]
    for name, members in of_gang.items():
        found += _of_gang(daemon, name, members)
    return found + daemon.complaints()


def gang(pod: Object) -> str:
    """The gang that a pod of the churn names, "namespace/name"; "" for a plain pod."""
    labels = pod["metadata"].get("labels", {})
    return (
        f"{pod['metadata']['namespace']}/{labels[SIGS_LABEL]}"
        if SIGS_LABEL in labels
        else gang_of(pod)
    )


def _pod_groups(api: Api, name: str) -> Sequence[Object]:
    return api.list(
        f"/apis/scheduling.{name}.k8s.io/v1alpha1/podgroups".replace("x-k8s.k8s.io", "x-k8s.io")
    ).items


def _of_gang(daemon: Daemon, name: str, members: Sequence[Object]) -> list[str]:
    """Each member is known with its uid, its node and its state."""
    status, text = daemon.http(f"/debug/gangs/{name}", port=daemon.debug_port)
    if status != 200:
        return [f"gang {name} of {len(members)} pods is not known"]
    told = {
        each["uid"]: (kind, each.get("node", ""))
        for kind, found in json.loads(text)["members"].items()
        for each in found
    }
    listed = {pod["metadata"]["uid"]: pod for pod in members}
    found = [
        f"gang {name} is said to have the member {uid}, which is not listed"
        for uid in told.keys() - listed.keys()
    ]
    for uid, pod in listed.items():
        kind, node = told.get(uid, ("unknown", ""))
        expected = ENDED.get(
            pod["status"].get("phase", ""), "bound" if pod["spec"].get("nodeName") else "pending"
        )
        is_same = kind == expected or (expected == "pending" and kind in UNBOUND)
        if not is_same or (expected != "pending" and node != pod["spec"].get("nodeName", "")):
            found.append(
                f"pod {uid} of gang {name} is known as {kind} on {node!r}, and is {expected}"
            )
    return found
