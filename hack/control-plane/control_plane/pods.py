"""What pods as the API server sends them say: their nodes, and why they have none. Pure functions
of JSON objects.
"""

from __future__ import annotations

from collections.abc import Mapping

from control_plane.api import Object


def nodes_of(pods: Mapping[str, Object], prefix: str = "") -> dict[str, str]:
    """Pod name → node, of the bound pods whose names start with `prefix`; `pods` by uid, as
    `Following` has them.
    """
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in pods.values()
        if pod["metadata"]["name"].startswith(prefix) and pod["spec"].get("nodeName")
    }


def refusal(pod: Object) -> tuple[str, str]:
    """Reason and message of a waiting pod's PodScheduled condition; empty until it has one."""
    for condition in pod["status"].get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("reason", "")), str(condition.get("message", ""))
    return "", ""
