"""Decode owners of gangs: Jobs and StatefulSets, each to a few numbers (semantics O3).

Invariant: an owner is decoded without its pod template, so that 10,000 of them take a few
megabytes. A new kind is a wire type, a function here, and a class in `model.owners`.
"""

from __future__ import annotations

from sys import intern
from typing import Annotated, Final

import msgspec

from gangsched.api.keys import pod_group_metadata
from gangsched.kube.read.wire import ObjectIdentity, Wire
from gangsched.model.bounds import UP_TO_MANY
from gangsched.model.owners import JobOwner, StatefulSetOwner

MEANWHILE: Final = "until then their pods that ask for a gang start one by one"
MANIFEST: Final = "rbac-owners.yaml"
PARALLEL: Final = "Parallel"


class OwnerMeta(ObjectIdentity):
    """The part of metav1.ObjectMeta that is read of owners."""

    annotations: Annotated[dict[str, str], UP_TO_MANY] | None = None


class JobSpec(Wire):
    """v1.JobSpec."""

    parallelism: int | None = None
    completions: int | None = None
    suspend: bool | None = None


class JobStatus(Wire):
    """v1.JobStatus."""

    succeeded: int = 0


class WireJob(Wire):
    """v1.Job."""

    metadata: OwnerMeta = msgspec.field(default_factory=OwnerMeta)
    spec: JobSpec = msgspec.field(default_factory=JobSpec)
    status: JobStatus = msgspec.field(default_factory=JobStatus)


class StatefulSetSpec(Wire):
    """v1.StatefulSetSpec."""

    replicas: int | None = None
    pod_management_policy: str = ""


class WireStatefulSet(Wire):
    """v1.StatefulSet."""

    metadata: OwnerMeta = msgspec.field(default_factory=OwnerMeta)
    spec: StatefulSetSpec = msgspec.field(default_factory=StatefulSetSpec)


def decode_job(wire: WireJob) -> JobOwner:
    """Decode a Job. Its pods at a time are the parallelism, and at the end the completions that are
    left; without completions one that has succeeded ends them all.
    """
    meta = wire.metadata
    spec = wire.spec
    minimum = 1 if spec.parallelism is None else spec.parallelism
    succeeded = 0

    if spec.completions is not None:
        succeeded = wire.status.succeeded
        minimum = max(0, min(minimum, spec.completions - succeeded))

    return JobOwner(
        uid=meta.uid,
        namespace=intern(meta.namespace),
        name=meta.name,
        minimum=minimum,
        succeeded=succeeded,
        suspended=bool(spec.suspend),
        gang_metadata=pod_group_metadata(meta.annotations or {}),
    )


def decode_stateful_set(wire: WireStatefulSet) -> StatefulSetOwner:
    """Decode a StatefulSet."""
    meta = wire.metadata
    spec = wire.spec

    return StatefulSetOwner(
        uid=meta.uid,
        namespace=intern(meta.namespace),
        name=meta.name,
        minimum=1 if spec.replicas is None else spec.replicas,
        one_by_one=spec.pod_management_policy != PARALLEL,
        gang_metadata=pod_group_metadata(meta.annotations or {}),
    )
