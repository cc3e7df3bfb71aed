"""Pod templates: pods that do not exist yet, as the API server would create them.

Invariant: only two of the defaults of the API server and its admission plugins are applied: missing
requests default to limits, and the priority is that of the PriorityClass, which the caller looks
up. LimitRanges, RuntimeClasses and webhooks are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gangsched.api.timestamps import format_timestamp
from gangsched.kube.http.faults import Fault
from gangsched.kube.read.decode import decode_pod
from gangsched.kube.read.shapes import ShapeTable
from gangsched.kube.read.wire import WirePod
from gangsched.model.objects import Pod

_FOREIGN = ("nodeName", "schedulingGroup", "priority", "preemptionPolicy")
"""Fields that a template of a pod still to be scheduled leaves to others, or to the review."""


class TemplateError(ValueError):
    """A template that every API server would reject; the text says why."""


def template_pod(
    template: Mapping[str, Any],
    *,
    shapes: ShapeTable,
    namespace: str,
    name: str,
    created_s: int,
    priority: int,
) -> Pod:
    """Create a pod of a template; pods of one template differ only by name and uid. Raises
    TemplateError.
    """
    body = pod_body(
        template,
        namespace=namespace,
        name=name,
        created=format_timestamp(created_s),
        priority=priority,
    )
    try:
        pod = decode_pod(msgspec.convert(body, WirePod, strict=False), shapes)
    except (msgspec.ValidationError, Fault, OverflowError) as error:
        raise TemplateError(str(error)) from error

    assert pod is not None
    return pod


def pod_body(
    template: Mapping[str, Any],
    *,
    namespace: str,
    name: str,
    created: str,
    priority: int,
) -> dict[str, Any]:
    """The object that the API server would make of a template; its uid is its name. Raises
    TemplateError.
    """
    metadata = template.get("metadata") or {}
    spec = template.get("spec")
    if not isinstance(metadata, Mapping) or not isinstance(spec, Mapping):
        raise TemplateError("a template has metadata and spec")

    labels = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
    identity = {"namespace": namespace, "name": name, "uid": name, "creationTimestamp": created}
    kept = {key: value for key, value in spec.items() if key not in _FOREIGN}

    for field in ("containers", "initContainers"):
        if not isinstance(kept.get(field) or [], list):
            raise TemplateError(f"spec.{field}: Expected an array")

        kept[field] = [_with_requests(container) for container in kept.get(field) or ()]

    if not kept["containers"]:
        raise TemplateError("spec.containers: Required value")

    body = {"metadata": {**labels, **identity}, "spec": {**kept, "priority": priority}}
    if spec.get("preemptionPolicy") is not None:
        body["spec"]["preemptionPolicy"] = spec["preemptionPolicy"]

    return body


def _with_requests(container: Any) -> Any:
    """Limits are requests where there are none (API defaulting: pkg/apis/core/v1/defaults.go,
    SetDefaults_Pod).
    """
    resources = container.get("resources") if isinstance(container, Mapping) else None
    if not isinstance(resources, Mapping) or not isinstance(resources.get("limits"), Mapping):
        return container

    stated = resources.get("requests") or {}
    if not isinstance(stated, Mapping):
        return container  # which is refused as it is

    requests = {**resources["limits"], **stated}
    return {**container, "resources": {**resources, "requests": requests}}
