"""Checks that the setting `provisioning`, its permissions and the definition of
ProvisioningRequests go together.

Invariant: nothing is found where the settings cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gangsched.kube.http.answers import understood
from gangsched.kube.http.blocking import BlockingClient
from gangsched.kube.http.permissions import PROVISIONING
from gangsched.kube.read.provisioning import GROUP
from gangsched.model.text import named
from kubectl_gangsched.doctor.finding import Finding
from kubectl_gangsched.doctor.rights import may

CHECK: Final = "provisioning"
ROLE: Final = "gangsched-provisioning"
BINDING: Final = f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{ROLE}"
ON: Final = frozenset({"true", "1", "yes", "on"})
"""Texts of the setting in the environment that switch it on."""


def unmatched(
    client: BlockingClient,
    namespace: str,
    account: str,
    settings: Mapping[str, Any],
) -> Iterator[Finding]:
    """What one of them has and another one lacks. Raises Fault."""
    if str(settings.get("provisioning", "")).lower() in ON:
        yield from _lacking(client, namespace, account)
        return

    (binding,) = client.gets([BINDING])
    if isinstance(binding, dict):
        yield Finding(
            CHECK,
            f"ClusterRoleBinding {ROLE} exists, but the setting provisioning is off: no autoscaler"
            " is asked by ProvisioningRequests.",
            f"Set provisioning: true, or kubectl delete clusterrolebinding {ROLE}",
        )


def _lacking(client: BlockingClient, namespace: str, account: str) -> Iterator[Finding]:
    instead = "gangs ask autoscalers as plain pods do, although the setting provisioning is on"
    missing: list[str] = []
    for permission in PROVISIONING:
        if not may(client, namespace, account, permission):
            missing.append(str(permission))

    if missing:
        yield Finding(
            CHECK,
            f"The scheduler's ServiceAccount {namespace}/{account} may not {named(missing)}:"
            f" {instead}.",
            "Apply manifests/rbac-provisioning.yaml.",
        )

    with understood("The list of API groups"):
        served = {group["name"] for group in client.get("/apis")["groups"]}

    if GROUP not in served:
        yield Finding(
            CHECK,
            f"The API server does not serve ProvisioningRequests ({GROUP}): {instead}.",
            "Install the definition that cluster-autoscaler has, or set provisioning: false.",
        )
