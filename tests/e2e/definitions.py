"""Definitions of other projects' kinds, as far as gangsched and their makers read and
write them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from control_plane.api import Api, Object
from control_plane.applying import apply, remove_definition

ANYTHING: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
COUNT: Object = {"type": "integer", "format": "int32"}
TEXT: Object = {"type": "string"}
CONDITIONS: Object = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "type": TEXT,
            "status": TEXT,
            "reason": TEXT,
            "message": TEXT,
            "transitionID": TEXT,
            "lastTransitionTime": {"type": "string", "format": "date-time"},
        },
    },
}


def definition(
    api_group: str,
    version: str,
    kind: str,
    spec: Mapping[str, Any],
    status: Mapping[str, Any],
    *,
    subresource: bool,
) -> Object:
    """A CustomResourceDefinition of a namespaced kind, whose spec and status have these properties
    and no others.
    """
    plural = f"{kind.lower()}s"
    fields = {
        name: {"type": "object", "properties": dict(of)}
        for name, of in (("spec", spec), ("status", status))
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{api_group}"},
        "spec": {
            "group": api_group,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "plural": plural,
                "singular": kind.lower(),
                "listKind": f"{kind}List",
            },
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": fields}},
                    "subresources": {"status": {}} if subresource else {},
                }
            ],
        },
    }


VOLCANO: Object = definition(
    "scheduling.volcano.sh",
    "v1beta1",
    "PodGroup",
    {
        "minMember": COUNT,
        "minTaskMember": {"type": "object", "additionalProperties": COUNT},
        "minResources": {
            "type": "object",
            "additionalProperties": {"x-kubernetes-int-or-string": True},
        },
        "queue": TEXT,
        "priorityClassName": TEXT,
        "networkTopology": {
            "type": "object",
            "properties": {
                "mode": {"type": "string", "default": "hard"},
                "highestTierAllowed": COUNT,
            },
        },
        "subGroupPolicy": {"type": "array", "items": ANYTHING},
    },
    {
        "phase": TEXT,
        "running": COUNT,
        "succeeded": COUNT,
        "failed": COUNT,
        "conditions": CONDITIONS,
    },
    subresource=False,
)
"""As most releases have it: without the status subresource."""


GROVE: Object = definition(
    "scheduler.grove.io",
    "v1alpha1",
    "PodGang",
    {
        "podgroups": {"type": "array", "items": ANYTHING},
        "topologyConstraint": ANYTHING,
        "topologyConstraintGroupConfigs": {"type": "array", "items": ANYTHING},
        "priorityClassName": TEXT,
        "reuseReservationRef": ANYTHING,
    },
    {
        "phase": TEXT,
        "placementScore": {"type": "number"},
        "conditions": {"type": "array", "items": ANYTHING},
    },
    subresource=True,
)
GROVE["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["required"] = [
    "phase"
]


def _owner(api_group: str, version: str, kind: str) -> Object:
    """A kind of owners, with anything in its spec and status."""
    body = definition(api_group, version, kind, {}, {}, subresource=True)
    schema = body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"] = {"spec": ANYTHING, "status": ANYTHING}
    return body


OWNERS = (
    _owner("jobset.x-k8s.io", "v1alpha2", "JobSet"),
    _owner("ray.io", "v1", "RayCluster"),
    _owner("kubeflow.org", "v1", "PyTorchJob"),
    _owner("kubeflow.org", "v2beta1", "MPIJob"),
)
"""Objects of operators whose pods are gangs of their owners."""


def install(api: Api, body: Object) -> None:
    """Apply a definition; its API is served some moments later."""
    apply(api, body)


def remove(api: Api, body: Object) -> None:
    """Delete a definition and all its objects; it is gone afterwards."""
    remove_definition(api, body["metadata"]["name"])


def provisioning(version: str = "v1") -> Object:
    """ProvisioningRequests of autoscaling.x-k8s.io, with the bounds of their definition."""
    pod_set = {
        "type": "object",
        "required": ["count", "podTemplateRef"],
        "properties": {
            "count": {**COUNT, "minimum": 1},
            "podTemplateRef": {"type": "object", "properties": {"name": TEXT}},
        },
    }
    spec = {
        "podSets": {"type": "array", "minItems": 1, "maxItems": 32, "items": pod_set},
        "provisioningClassName": {
            **TEXT,
            "maxLength": 253,
            "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        },
        "parameters": {
            "type": "object",
            "maxProperties": 100,
            "additionalProperties": {**TEXT, "maxLength": 255},
        },
    }
    status = {
        "conditions": CONDITIONS,
        "provisioningClassDetails": {
            "type": "object",
            "maxProperties": 64,
            "additionalProperties": {**TEXT, "maxLength": 32768},
        },
    }
    return definition(
        "autoscaling.x-k8s.io",
        version,
        "ProvisioningRequest",
        spec,
        status,
        subresource=True,
    )
