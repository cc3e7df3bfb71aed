"""The resources that a snapshot holds: those that the daemon reads."""

from __future__ import annotations

from typing import Any

from gangsched.kube.ports import silent
from gangsched.kube.read import resources
from gangsched.kube.read.shapes import ShapeTable


def all_resources() -> dict[str, resources.Resource[Any, Any]]:
    """Resources that the daemon reads, by plural name, except PodGroups."""
    required: tuple[Any, ...] = (
        resources.pods(ShapeTable()),
        resources.nodes(silent),
        resources.NAMESPACES,
    )
    storage = (*resources.STORAGE, *resources.ALLOCATED)
    optional: tuple[Any, ...] = (
        *storage,
        resources.DISRUPTION_BUDGETS,
        resources.SERVICES,
        *resources.OWNERS,
    )

    return {resource.name: resource for resource in (*required, *optional)}
