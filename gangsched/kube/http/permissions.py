"""What the daemon must be allowed to do, and asking whether it is.

Law: the tables are the whole of it; `manifests/rbac.yaml` grants exactly this. Asking is one SelfSubjectAccessReview
per line, which every authenticated user may send (system:basic-user). Without what `VOLUMES` lists the daemon runs,
and says so: pods with claims wait. What native PodGroups and ResourceClaims need is not asked for: many clusters do not
serve them, and without it they count as absent or unread.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import msgspec

from gangsched.kube.http.faults import FORBIDDEN, UNAUTHORIZED, ApiFault, Fault, Malformed, Misconfigured
from gangsched.kube.ports import RestClient

PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Permission(NamedTuple):
    """One verb on one resource, in every namespace."""

    verb: str
    api_group: str
    resource: str
    subresource: str = ""

    def __str__(self) -> str:
        resource = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        return f"{self.verb} {resource}" + (f" in {self.api_group}" if self.api_group else "")


POD_GROUPS = tuple(
    permission
    for api_group in ("scheduling.x-k8s.io", "scheduling.sigs.k8s.io")
    for permission in (
        Permission("list", api_group, "podgroups"),
        Permission("watch", api_group, "podgroups"),
        Permission("patch", api_group, "podgroups"),
        Permission("patch", api_group, "podgroups", "status"),
    )
)
PERMISSIONS = (
    Permission("get", "", "pods"),
    Permission("list", "", "pods"),
    Permission("watch", "", "pods"),
    Permission("list", "", "nodes"),
    Permission("watch", "", "nodes"),
    Permission("list", "", "namespaces"),
    Permission("watch", "", "namespaces"),
    Permission("create", "", "pods", "binding"),
    Permission("patch", "", "pods", "status"),
    *POD_GROUPS,
    Permission("create", "events.k8s.io", "events"),
    Permission("patch", "events.k8s.io", "events"),
)
VOLUMES = (
    Permission("get", "", "persistentvolumeclaims"),
    Permission("list", "", "persistentvolumeclaims"),
    Permission("watch", "", "persistentvolumeclaims"),
    Permission("patch", "", "persistentvolumeclaims"),
    Permission("list", "", "persistentvolumes"),
    Permission("watch", "", "persistentvolumes"),
    Permission("patch", "", "persistentvolumes"),
    Permission("list", "storage.k8s.io", "storageclasses"),
    Permission("watch", "storage.k8s.io", "storageclasses"),
    Permission("list", "storage.k8s.io", "csinodes"),
    Permission("watch", "storage.k8s.io", "csinodes"),
)
DEVICES = (
    Permission("list", "resource.k8s.io", "resourceclaims"),
    Permission("watch", "resource.k8s.io", "resourceclaims"),
    Permission("patch", "resource.k8s.io", "resourceclaims", "status"),
    Permission("patch", "resource.k8s.io", "resourceclaims", "binding"),
)
NATIVE_POD_GROUPS = (
    Permission("list", "scheduling.k8s.io", "podgroups"),
    Permission("watch", "scheduling.k8s.io", "podgroups"),
    Permission("patch", "scheduling.k8s.io", "podgroups", "status"),
)


class _Decision(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Decision


_decoder = msgspec.json.Decoder(_Review)

#: Reviews asked for at a time: each needs a connection, and opening one costs more than a review.
AT_A_TIME = 4


async def check_permissions(client: RestClient) -> str:
    """Raise Misconfigured naming every permission that is missing; returns what the lack of `VOLUMES` means, or ""."""
    asked = (*PERMISSIONS, *VOLUMES)
    turn = asyncio.Semaphore(AT_A_TIME)
    try:
        granted = await asyncio.gather(*(_granted(client, permission, turn) for permission in asked))
    except ApiFault as fault:
        if fault.status in {UNAUTHORIZED, FORBIDDEN}:
            raise Misconfigured(f"The API server does not accept our credentials ({fault}): renew them.") from fault
        raise Misconfigured(f"The API server cannot say what we may do: {fault}.") from fault
    except Fault as fault:
        raise Misconfigured(f"The API server cannot say what we may do: {fault}") from fault
    missing = [permission for permission, yes in zip(asked, granted, strict=True) if not yes]
    sentence = f"The scheduler may not {'; '.join(map(str, missing))}: apply manifests/rbac.yaml."
    if any(permission in PERMISSIONS for permission in missing):
        raise Misconfigured(sentence)
    return f"Pods with persistent volume claims have to wait. {sentence}" if missing else ""


async def _granted(client: RestClient, permission: Permission, turn: asyncio.Semaphore) -> bool:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {
            "resourceAttributes": {
                "verb": permission.verb,
                "group": permission.api_group,
                "resource": permission.resource,
                "subresource": permission.subresource,
            }
        },
    }
    async with turn:
        answer = await client.request("POST", PATH, msgspec.json.encode(review))
    try:
        return _decoder.decode(answer).status.allowed
    except msgspec.DecodeError as error:
        raise Malformed(f"The answer to a SelfSubjectAccessReview is not one: {error}.") from error
