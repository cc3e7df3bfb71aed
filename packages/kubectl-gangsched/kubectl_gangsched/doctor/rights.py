"""Checks which permissions of `kube.http.permissions` the scheduler's ServiceAccount lacks.

Invariant: one SubjectAccessReview per permission; nothing is stored. If the user may not create
SubjectAccessReviews, the check counts as skipped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from gangsched.api import keys
from gangsched.kube.http.blocking import AT_A_TIME, BlockingClient
from gangsched.kube.http.permissions import (
    ALLOCATION,
    DIALECT_KINDS,
    EXTENDED_RESOURCES,
    LEASES,
    PERMISSIONS,
    PREEMPTION,
    SERVICES,
    VOLUMES,
    Lease,
    Permission,
)
from gangsched.model.objects import Pod
from gangsched.model.owners import TABLE, OwnerGangs
from gangsched.model.text import named
from kubectl_gangsched.doctor.finding import Finding

PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
NAMESPACES = "/api/v1/namespaces"
LEASE = "gangsched"


def lacking(
    client: BlockingClient,
    namespace: str,
    account: str,
    serving: Collection[str],
) -> Iterator[Finding]:
    """Missing permissions of the ServiceAccount; `serving` are API groups of PodGroups. Raises
    Fault.
    """
    lease = Lease(namespace, LEASE)
    dialects = [permission for permission in DIALECT_KINDS if permission.api_group in serving]
    asked: list[tuple[Permission, Lease | None]] = [
        *(
            (permission, None)
            for permission in (
                *PERMISSIONS,
                *VOLUMES,
                *SERVICES,
                *PREEMPTION,
                *dialects,
                *ALLOCATION,
                *EXTENDED_RESOURCES,
            )
        ),
        *((permission, lease) for permission in LEASES),
    ]

    # Alone first: if the user may not ask at all, one request shows it instead of fifty.
    allowed = _allowed(client, namespace, account, asked[0])
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        granted = [
            allowed,
            *pool.map(lambda question: _allowed(client, namespace, account, question), asked[1:]),
        ]

    missing = {question for (question, _), yes in zip(asked, granted, strict=True) if not yes}
    # Without any of them devices are not to be allocated, as by default (`devices: auto`).
    some_devices = () if missing.issuperset(ALLOCATION) else ALLOCATION
    some_claims = EXTENDED_RESOURCES if some_devices else ()
    who = f"The scheduler's ServiceAccount {namespace}/{account}"

    for table, file, means in (
        (PERMISSIONS, "rbac.yaml", "it cannot work without that"),
        (VOLUMES, "rbac.yaml", "pods with persistent volume claims have to wait"),
        (
            SERVICES,
            "rbac.yaml",
            "pods behind Services are packed unless a controller replicates them",
        ),
        (PREEMPTION, "rbac-preemption.yaml", "preemption is off"),
        (dialects, "rbac-dialects.yaml", "gangs of these kinds have to wait"),
        (
            some_devices,
            "rbac-devices.yaml",
            "pods whose resource claims have no devices have to wait",
        ),
        (
            some_claims,
            "rbac-extended-resources.yaml",
            "devices that serve extended resources are not used for pods without resource claims",
        ),
        (LEASES, "rbac.yaml", "with --leader-elect it cannot start"),
    ):
        if lacks := [str(permission) for permission in table if permission in missing]:
            yield Finding(
                "rights",
                f"{who} may not {named(lacks)}: {means}.",
                f"Apply manifests/{file}.",
            )


def lacking_for_owners(
    client: BlockingClient,
    namespace: str,
    account: str,
    pods: Iterable[Pod],
) -> Iterator[Finding]:
    """Missing permissions to read the owners of pods that ask for their gang. Raises Fault."""
    who = f"The scheduler's ServiceAccount {namespace}/{account}"
    lacks: dict[str, list[str]] = {}
    kinds: dict[str, list[str]] = {}

    for name in sorted(_kinds_asked(client, pods)):
        kind = TABLE[name]
        for verb in ("list", "watch"):
            permission = Permission(verb, kind.group, kind.plural)
            if not _allowed(client, namespace, account, (permission, None)):
                lacks.setdefault(kind.manifest, []).append(str(permission))
                kinds.setdefault(kind.manifest, []).append(f"{name}s")

    for manifest, permissions in lacks.items():
        of_kinds = named(list(dict.fromkeys(kinds[manifest])))
        yield Finding(
            "rights",
            f"{who} may not {named(permissions)}: pods ask for the gang of their owner, and those"
            f" of {of_kinds} do not start together.",
            f"Apply manifests/{manifest}.",
        )


def _kinds_asked(client: BlockingClient, pods: Iterable[Pod]) -> set[str]:
    """Kinds of owners of which a pod, or its namespace, asks for the gang."""
    asking = set()
    for body in client.items(NAMESPACES):
        metadata = body["metadata"]
        if (metadata.get("labels") or {}).get(keys.OWNER_GANG) == keys.OWNER:
            asking.add(metadata["name"])

    kinds = set()
    for pod in pods:
        setting = OwnerGangs.ALL if pod.namespace in asking else OwnerGangs.ASKED
        if not keys.asks_for_owner(dict(pod.gang_metadata), setting):
            continue

        kinds.add(pod.controller_kind)
        if keys.JOBSET_NAME in pod.labels:
            kinds.add("JobSet")

    return kinds & TABLE.keys()


def may(client: BlockingClient, namespace: str, account: str, permission: Permission) -> bool:
    """Whether the ServiceAccount has a permission in the whole cluster. Raises Fault."""
    return _allowed(client, namespace, account, (permission, None))


def _allowed(
    client: BlockingClient,
    namespace: str,
    account: str,
    asked: tuple[Permission, Lease | None],
) -> bool:
    permission, lease = asked
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{namespace}:{account}",
            "groups": _groups(namespace),
            "resourceAttributes": permission.attributes(lease),
        },
    }
    return bool(client.json("POST", PATH, review)["status"].get("allowed"))


def _groups(namespace: str) -> Sequence[str]:
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
