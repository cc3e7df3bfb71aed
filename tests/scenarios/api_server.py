"""What an API server makes of objects in the virtual form: keys, times, admission, merge patches.

Invariant: pure functions of JSON objects; the objects themselves are in `virtual`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from control_plane.api import Object

from gangsched.api.dialects import DIALECTS
from tests.scenarios.objects import NEVER, PRIORITIES


def rfc3339(wall_s: float) -> str:
    """A time as the API writes it."""
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def key_of(body: Object) -> str:
    """`namespace/name`, or the name of an object that is in no namespace."""
    metadata = body["metadata"]
    return (
        f"{metadata['namespace']}/{metadata['name']}"
        if "namespace" in metadata
        else str(metadata["name"])
    )


def admit(pod: Object, wall: str) -> None:
    """A new pod after defaulting and admission."""
    priority_class = pod["spec"].pop("priorityClassName", "")
    pod["spec"]["priority"] = PRIORITIES.get(priority_class, 0)
    pod["spec"]["preemptionPolicy"] = "Never" if priority_class in NEVER else "PreemptLowerPriority"
    for container in pod["spec"]["containers"]:
        resources = container["resources"]
        resources["requests"] = {**resources.get("limits", {}), **resources.get("requests", {})}
    pod["status"] |= (
        {"phase": "Running", "startTime": wall}
        if pod["spec"].get("nodeName")
        else {"phase": "Pending"}
    )


def merged(old: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    new = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        else:
            new[key] = merged(new.get(key), value)
    return new


def dialect_of(body: Object) -> str:
    """The dialect in which an object declares gangs; "" if it declares none."""
    api_group = body.get("apiVersion", "").partition("/")[0]
    of = (
        name
        for name, each in DIALECTS.items()
        if (each.api_group, each.kind) == (api_group, body["kind"])
    )
    return next(of, "")


def version_of(body: Object) -> str:
    """The version in an object's apiVersion."""
    return str(body["apiVersion"].partition("/")[2])
