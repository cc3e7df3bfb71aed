"""Admission policies that refuse writes of one namespace, on a real API server."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from control_plane.api import Api, ApiError, Object
from control_plane.daemon import ACCOUNT, NAMESPACE

API_VERSION = "admissionregistration.k8s.io/v1"
GANGSCHED = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
CANARY: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "canary"}}
IN_FORCE_WITHIN_S = 45.0
"""A policy is in force a moment after it is stored: on a busy machine a long one."""


def rule(resource: str, operation: str, api_group: str = "") -> Object:
    """Which writes a policy looks at."""
    return {
        "apiGroups": [api_group],
        "apiVersions": ["*"],
        "operations": [operation],
        "resources": [resource],
    }


def policy(
    name: str, namespace: str, rules: Sequence[Object], expression: str, message: str
) -> list[Object]:
    """A policy that denies such writes of gangsched in one namespace unless `expression` holds, and
    the canary of whoever asks.
    """
    canary = rule("configmaps", "CREATE")
    is_meant = f"request.userInfo.username == '{GANGSCHED}' || request.kind.kind == 'ConfigMap'"
    holds = f"request.kind.kind != 'ConfigMap' && ({expression})"
    spec: dict[str, Any] = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [*rules, canary]},
        "matchConditions": [{"name": "of-gangsched", "expression": is_meant}],
        "validations": [{"expression": holds, "message": message}],
    }
    where = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    binding = {"policyName": name, "validationActions": ["Deny"], "matchResources": where}
    kind = "ValidatingAdmissionPolicy"
    return [
        {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec},
        {
            "apiVersion": API_VERSION,
            "kind": f"{kind}Binding",
            "metadata": {"name": name},
            "spec": binding,
        },
    ]


def await_policy(api: Api, namespace: str) -> None:
    """Try, without effect, to create the canary until a policy says no."""
    deadline_s = time.monotonic() + IN_FORCE_WITHIN_S
    while True:
        try:
            api.post(f"/api/v1/namespaces/{namespace}/configmaps?dryRun=All", CANARY)
        except ApiError as error:
            if "ValidatingAdmissionPolicy" in error.message:
                return
            raise

        assert time.monotonic() < deadline_s, "the API server does not take up the policy"
        time.sleep(0.1)


@contextmanager
def refused(api: Api, namespace: str, rules: Sequence[Object], message: str) -> Iterator[None]:
    """All such writes of gangsched are refused inside."""
    bodies = policy(f"refuses-{namespace}", namespace, rules, "false", message)
    for body in bodies:
        api.post(api.path_of(body), body)
    await_policy(api, namespace)

    yield
    for body in reversed(bodies):
        api.delete(f"{api.path_of(body)}/{body['metadata']['name']}")
