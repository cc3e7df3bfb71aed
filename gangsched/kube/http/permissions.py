"""The permissions of the daemon, and the check for them.

Invariant: the tables are complete, and `manifests/rbac*.yaml` grant exactly them. The check is one
SelfSubjectAccessReview per line, which every authenticated user may create (system:basic-user).
Without the permissions in `VOLUMES` and `PREEMPTION` the daemon runs with a warning: pods with
claims wait, or no pod is preempted; likewise without those in `EXTENDED_RESOURCES`, if it allocates
devices. Those in `ALLOCATION` and `PROVISIONING` are asked for while the daemon runs
(`kube.read.optional_rights`).
Permissions for native PodGroups, ResourceClaims and `STAMP_POLICY` are not checked, because many
clusters do not serve these resources; without permission they count as absent.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from gangsched.api.dialects import DIALECTS
from gangsched.api.keys import SIGS, X_K8S
from gangsched.kube.http.answers import decoded
from gangsched.kube.http.faults import (
    FORBIDDEN,
    NOT_FOUND,
    UNAUTHORIZED,
    ApiFault,
    Malformed,
    Misconfigured,
    is_away,
)
from gangsched.kube.ports import RestClient
from gangsched.model.owners import TABLE

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

    def attributes(self, lease: Lease | None = None) -> dict[str, str]:
        """The ResourceAttributes of an access review; with a `lease`, of that object alone."""
        fields = {
            "verb": self.verb,
            "group": self.api_group,
            "resource": self.resource,
            "subresource": self.subresource,
        }
        if lease is not None:
            # Who creates an object cannot be restricted to one name.
            fields |= {
                "namespace": lease.namespace,
                "name": "" if self.verb == "create" else lease.name,
            }

        return fields


def _verbs(verbs: str, api_group: str, resource: str) -> tuple[Permission, ...]:
    return tuple(Permission(verb, api_group, resource) for verb in verbs.split())


POD_GROUPS = tuple(
    permission
    for api_group in (X_K8S, SIGS)
    for permission in (
        *_verbs("list watch", api_group, "podgroups"),
        Permission("patch", api_group, "podgroups", "status"),
    )
)
WHOLE_POD_GROUPS = tuple(Permission("patch", api_group, "podgroups") for api_group in (X_K8S, SIGS))
"""Needed where a definition of PodGroups has no status subresource; ours have it."""
PERMISSIONS = (
    *_verbs("get list watch", "", "pods"),
    *_verbs("list watch", "", "nodes"),
    *_verbs("list watch", "", "namespaces"),
    Permission("create", "", "pods", "binding"),
    Permission("patch", "", "pods", "status"),
    *POD_GROUPS,
    *_verbs("create patch", "events.k8s.io", "events"),
)
VOLUMES = (
    *_verbs("get list watch patch", "", "persistentvolumeclaims"),
    *_verbs("list watch patch", "", "persistentvolumes"),
    *_verbs("list watch", "storage.k8s.io", "storageclasses"),
    *_verbs("list watch", "storage.k8s.io", "csinodes"),
)
PREEMPTION = (
    Permission("create", "", "pods", "eviction"),
    *_verbs("list watch", "policy", "poddisruptionbudgets"),
)
LAST_RESORT = (Permission("delete", "", "pods"),)
"""Needed beside `PREEMPTION` to break PodDisruptionBudgets (semantics V7)."""
DEVICES = (
    *_verbs("list watch", "resource.k8s.io", "resourceclaims"),
    Permission("patch", "resource.k8s.io", "resourceclaims", "status"),
    Permission("patch", "resource.k8s.io", "resourceclaims", "binding"),
)
ALLOCATION = (
    *_verbs("list watch", "resource.k8s.io", "resourceslices"),
    *_verbs("list watch", "resource.k8s.io", "deviceclasses"),
    *_verbs("list watch", "resource.k8s.io", "devicetaintrules"),
    *_verbs("get patch", "resource.k8s.io", "resourceclaims"),
)
"""Needed beside `DEVICES` to allocate devices."""
EXTENDED_RESOURCES = _verbs("create delete", "resource.k8s.io", "resourceclaims")
"""Needed beside `ALLOCATION` for extended resources that devices serve."""
PROVISIONING = (
    *_verbs("get list watch create delete", "autoscaling.x-k8s.io", "provisioningrequests"),
    *_verbs("get create delete", "", "podtemplates"),
)
"""To ask autoscalers for all nodes of a gang at once (semantics E10)."""
STAMP_POLICY = (
    Permission("get", "admissionregistration.k8s.io", "validatingadmissionpolicies"),
    Permission("get", "admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
)
"""To see whether stamps are guarded (semantics B4); without it they are not, and nothing else
depends on it.
"""
SERVICES = _verbs("list watch", "", "services")
"""To spread plain pods behind a Service; without them they are packed."""
NATIVE_POD_GROUPS = tuple(
    Permission(verb, "scheduling.k8s.io", plural, subresource)
    for plural in ("podgroups", "compositepodgroups")
    for verb, subresource in (("list", ""), ("watch", ""), ("patch", "status"))
)
DIALECT_KINDS = tuple(
    Permission(verb, dialect.api_group, dialect.plural, subresource)
    for dialect in DIALECTS.values()
    if dialect.name
    for verb, subresource in (
        ("list", ""),
        ("watch", ""),
        ("patch", "status"),
        *((("patch", ""),) if not dialect.has_subresource else ()),
    )
)
"""Not checked, either: without them the gangs of these kinds wait (`api.dialects`)."""


def _of_owners(manifest: str) -> tuple[Permission, ...]:
    """What reading the kinds of owners needs whose permissions are in a file."""
    needed: list[Permission] = []
    for kind in TABLE.values():
        if kind.manifest == manifest:
            needed += _verbs("list watch", kind.group, kind.plural)

    return tuple(needed)


OWNERS = _of_owners("rbac-owners.yaml")
JOBSET_OWNERS = _of_owners("rbac-owners-jobset.yaml")
KUBERAY_OWNERS = _of_owners("rbac-owners-kuberay.yaml")
KUBEFLOW_OWNERS = _of_owners("rbac-owners-kubeflow.yaml")
"""Not checked, either: asked for once a pod asks for the gang of its owner (semantics O7)."""

LEASES = _verbs("create get update watch", "coordination.k8s.io", "leases")
"""On one Lease in one namespace, with leader election; asked for only then."""


class Lease(NamedTuple):
    """The Lease of leader election."""

    namespace: str
    name: str


class _Decision(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Decision


class _Resource(msgspec.Struct):
    name: str


class _Served(msgspec.Struct):
    """metav1.APIResourceList."""

    resources: list[_Resource] = []


_decoder = msgspec.json.Decoder(_Review)
_served_decoder = msgspec.json.Decoder(_Served)

#: Reviews asked for at a time: each needs a connection, and opening one costs more than a review.
AT_A_TIME = 4


async def check_permissions(
    client: RestClient,
    optional: Sequence[Permission],
    lease: Lease | None = None,
) -> tuple[Permission, ...]:
    """Return the permissions in `optional` that are missing. With a `lease`, the permissions in
    `LEASES` are required on it.

    Raises Misconfigured, which names every other missing permission, or the fault of an unreachable
    server.
    """
    turn = asyncio.Semaphore(AT_A_TIME)
    try:
        # First, since the answers decide which permissions are required at all.
        lacking = await asyncio.gather(
            *(_lacks_status(client, permission.api_group, turn) for permission in WHOLE_POD_GROUPS)
        )
        required = (*PERMISSIONS, *itertools.compress(WHOLE_POD_GROUPS, lacking))
        asked = (*required, *optional)
        granted = await asyncio.gather(
            *(_granted(client, permission, turn) for permission in asked)
        )

        if lease is not None:
            required = (*LEASES, *required)
            asked = (*LEASES, *asked)
            granted = [
                *await asyncio.gather(
                    *(_granted(client, permission, turn, lease) for permission in LEASES)
                ),
                *granted,
            ]
    except ApiFault as fault:
        if fault.status in {UNAUTHORIZED, FORBIDDEN}:
            raise Misconfigured(
                f"The API server does not accept our credentials ({fault}): renew them."
            ) from fault
        if is_away(fault):
            raise

        raise Misconfigured(f"The API server cannot say what we may do: {fault}.") from fault
    except Malformed as fault:
        raise Misconfigured(f"The API server cannot say what we may do: {fault}") from fault

    lacks = [permission for permission, yes in zip(asked, granted, strict=True) if not yes]
    # One missing required permission ends the start; the sentence names all that are missing,
    # optional ones too.
    if any(permission in required for permission in lacks):
        raise Misconfigured(_refusal(lacks, lease))

    return tuple(lacks)


def _refusal(lacks: Sequence[Permission], lease: Lease | None) -> str:
    """The sentence about missing permissions. The manifest grants those on one Lease, which may not
    be the one that is set.
    """
    if lease is None or not all(permission in LEASES for permission in lacks):
        return may_not(lacks)

    return (
        f"The scheduler may not {'; '.join(map(str, lacks))} on Lease"
        f" {lease.namespace}/{lease.name}: apply manifests/rbac.yaml, or name it in its Role."
    )


def may_not(lacks: Sequence[Permission], file: str = "rbac.yaml") -> str:
    """One sentence that names the missing permissions and the remedy; `file` is the manifest that
    grants them.
    """
    return f"The scheduler may not {'; '.join(map(str, lacks))}: apply manifests/{file}."


class Warnings(NamedTuple):
    """Sentences about features that lack permissions; "" for a feature that works."""

    volumes: str
    preemption: str
    extended_resources: str


def warnings(lacks: Collection[Permission]) -> Warnings:
    """Effects of these missing permissions."""
    volumes = [permission for permission in lacks if permission in VOLUMES]
    preemption = [permission for permission in lacks if permission in (*PREEMPTION, *LAST_RESORT)]
    extended = [permission for permission in lacks if permission in EXTENDED_RESOURCES]

    return Warnings(
        f"Pods with persistent volume claims have to wait. {may_not(volumes)}" if volumes else "",
        f"Preemption is off. {may_not(preemption, 'rbac-preemption.yaml')}" if preemption else "",
        (
            "Devices do not serve extended resources."
            f" {may_not(extended, 'rbac-extended-resources.yaml')}"
            if extended
            else ""
        ),
    )


async def missing(client: RestClient, asked: Sequence[Permission]) -> tuple[Permission, ...]:
    """The permissions of `asked` that the client lacks. Raises Fault."""
    turn = asyncio.Semaphore(AT_A_TIME)
    granted = await asyncio.gather(*(_granted(client, permission, turn) for permission in asked))
    return tuple(permission for permission, yes in zip(asked, granted, strict=True) if not yes)


async def may_evict(client: RestClient, *, delete: bool) -> bool:
    """Whether the client may evict pods, or `delete` them, in every namespace. Raises Fault."""
    return await _granted(client, LAST_RESORT[0] if delete else PREEMPTION[0], asyncio.Semaphore())


async def _lacks_status(client: RestClient, api_group: str, turn: asyncio.Semaphore) -> bool:
    """Whether the API group's PodGroups have no status subresource; not where it is not served."""
    try:
        async with turn:
            answer = await client.request("GET", f"/apis/{api_group}/v1alpha1")
    except ApiFault as fault:
        # Not served, or no discovery for us: then there is nothing to patch.
        if fault.status in {NOT_FOUND, FORBIDDEN}:
            return False

        raise

    served = decoded(_served_decoder, answer, f"The list of what {api_group} serves is not one")
    names = {resource.name for resource in served.resources}
    return "podgroups" in names and "podgroups/status" not in names


async def _granted(
    client: RestClient,
    permission: Permission,
    turn: asyncio.Semaphore,
    lease: Lease | None = None,
) -> bool:
    """Whether we have a permission, in every namespace or on one Lease."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": permission.attributes(lease)},
    }
    async with turn:
        answer = await client.request("POST", PATH, msgspec.json.encode(review))

    return decoded(
        _decoder,
        answer,
        "The answer to a SelfSubjectAccessReview is not one",
    ).status.allowed
