"""Decode owners of gangs: Jobs, StatefulSets and the objects of operators, each to a few numbers
(semantics O3).

Invariant: an owner is decoded without its pod template, so that 10,000 of them take a few
megabytes. A new kind is a row in `model.owners.TABLE`, and here a wire type and a function, or a
row in `KUBEFLOW`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from sys import intern
from typing import Annotated, Final, TypeVar

import msgspec

from gangsched.api.keys import (
    JOBSET_EXCLUSIVE,
    JOBSET_NODE_SELECTOR,
    REPLICATED_JOB,
    pod_group_metadata,
)
from gangsched.kube.read.decode import NAME_KEPT, controller_of
from gangsched.kube.read.wire import ObjectIdentity, Owner, Wire
from gangsched.model.bounds import UP_TO_MANY, UP_TO_SOME
from gangsched.model.owners import (
    OWNER_KINDS,
    TABLE,
    ControllerRef,
    JobOwner,
    JobSetOwner,
    OwnerObject,
    OwnerPart,
    RayClusterOwner,
    StatefulSetOwner,
)

MEANWHILE: Final = "until then their pods that ask for a gang start one by one"
MEANWHILE_JOBS: Final = "until then each of their Jobs that asks for a gang is one of its own"
PARALLEL: Final = "Parallel"
IN_ORDER: Final = "InOrder"
LAUNCHER: Final = "Launcher"
LAUNCHER_LAST: Final = "WaitForWorkersReady"
Annotations = Annotated[dict[str, str], UP_TO_MANY]
T = TypeVar("T")


class OwnerMeta(ObjectIdentity):
    """The part of metav1.ObjectMeta that is read of owners."""

    annotations: Annotations | None = None


class JobMeta(OwnerMeta):
    """metav1.ObjectMeta of a Job, which may have an owner itself."""

    labels: Annotations | None = None
    owner_references: Annotated[list[Owner], UP_TO_SOME] | None = None


# --- Jobs and StatefulSets ------------------------------------------------------------------------


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

    metadata: JobMeta = msgspec.field(default_factory=JobMeta)
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

    labels = meta.labels or {}
    return JobOwner(
        uid=meta.uid,
        namespace=intern(meta.namespace),
        name=meta.name,
        minimum=minimum,
        succeeded=succeeded,
        suspended=bool(spec.suspend),
        gang_metadata=pod_group_metadata(meta.annotations or {}),
        controller=_controller(meta.owner_references or ()),
        part=intern(labels.get(REPLICATED_JOB, "")),
    )


def _controller(owners: Iterable[Owner]) -> ControllerRef | None:
    """The controller of a Job, if it is of a kind whose Jobs start together."""
    owner = controller_of(owners)
    kind = TABLE.get(owner.kind)
    if kind is None or kind.of_jobs is None:
        return None

    # Another project may have a kind of the same name.
    if owner.api_version.rpartition("/")[0] != kind.group:
        return None

    return ControllerRef(intern(owner.kind), owner.name, owner.uid)


def decode_stateful_set(wire: WireStatefulSet) -> StatefulSetOwner:
    """Decode a StatefulSet."""
    meta = wire.metadata
    spec = wire.spec

    return StatefulSetOwner(
        uid=meta.uid,
        namespace=intern(meta.namespace),
        name=meta.name,
        minimum=_number(spec.replicas, 1),
        one_by_one=spec.pod_management_policy != PARALLEL,
        gang_metadata=pod_group_metadata(meta.annotations or {}),
    )


# --- JobSets --------------------------------------------------------------------------------------


class TemplateMeta(Wire):
    """metav1.ObjectMeta of a template."""

    annotations: Annotations | None = None


class PodTemplate(Wire):
    """v1.PodTemplateSpec."""

    metadata: TemplateMeta = msgspec.field(default_factory=TemplateMeta)


class TemplateSpec(Wire):
    """v1.JobSpec of a template."""

    template: PodTemplate = msgspec.field(default_factory=PodTemplate)


class JobTemplate(Wire):
    """v1.JobTemplateSpec."""

    metadata: TemplateMeta = msgspec.field(default_factory=TemplateMeta)
    spec: TemplateSpec = msgspec.field(default_factory=TemplateSpec)


class Dependency(Wire):
    """An entry of dependsOn."""

    name: str = ""


class ReplicatedJob(Wire):
    """An entry of replicatedJobs."""

    name: str = ""
    replicas: int | None = None
    depends_on: Annotated[list[Dependency], UP_TO_SOME] | None = None
    template: JobTemplate = msgspec.field(default_factory=JobTemplate)


class StartupPolicy(Wire):
    """startupPolicy."""

    startup_policy_order: str = ""


class JobSetSpec(Wire):
    """v1alpha2.JobSetSpec."""

    replicated_jobs: Annotated[list[ReplicatedJob], UP_TO_SOME] | None = None
    startup_policy: StartupPolicy | None = None
    suspend: bool | None = None


class ReplicatedJobStatus(Wire):
    """v1alpha2.ReplicatedJobStatus."""

    name: str = ""
    succeeded: int = 0


class JobSetStatus(Wire):
    """v1alpha2.JobSetStatus."""

    replicated_jobs_status: Annotated[list[ReplicatedJobStatus], UP_TO_SOME] | None = None


class WireJobSet(Wire):
    """v1alpha2.JobSet."""

    metadata: OwnerMeta = msgspec.field(default_factory=OwnerMeta)
    spec: JobSetSpec = msgspec.field(default_factory=JobSetSpec)
    status: JobSetStatus = msgspec.field(default_factory=JobSetStatus)


def decode_job_set(wire: WireJobSet) -> JobSetOwner:
    """Decode a JobSet. Jobs that have a topology domain each create their pods one after the other,
    so they are no part of what starts together.
    """
    meta = wire.metadata
    spec = wire.spec
    succeeded = {}
    for status in wire.status.replicated_jobs_status or ():
        succeeded[status.name] = status.succeeded

    parts = []
    number = 0
    in_stages = spec.startup_policy is not None and (
        spec.startup_policy.startup_policy_order == IN_ORDER
    )

    for job in spec.replicated_jobs or ():
        jobs = _number(job.replicas, 1)
        number += jobs
        in_stages = in_stages or bool(job.depends_on)
        template = job.template
        pods = template.spec.template.metadata
        if not _has_domain_each(meta.annotations, template.metadata.annotations, pods.annotations):
            parts.append(OwnerPart(intern(job.name[:NAME_KEPT]), jobs, succeeded.get(job.name, 0)))

    return JobSetOwner(
        uid=meta.uid,
        namespace=intern(meta.namespace),
        name=meta.name,
        minimum=number,
        suspended=bool(spec.suspend),
        gang_metadata=pod_group_metadata(meta.annotations or {}),
        parts=tuple(parts),
        in_stages=in_stages,
    )


def _has_domain_each(*stated: Mapping[str, str] | None) -> bool:
    """Whether JobSet creates the other pods of each Job after the first one has a domain."""
    keys: set[str] = set()
    for of_one in stated:
        keys |= (of_one or {}).keys()

    return JOBSET_EXCLUSIVE in keys and JOBSET_NODE_SELECTOR not in keys


# --- RayClusters ----------------------------------------------------------------------------------


class WorkerGroup(Wire):
    """v1.WorkerGroupSpec of KubeRay."""

    replicas: int | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    num_of_hosts: int | None = None
    suspend: bool | None = None


class RayClusterSpec(Wire):
    """v1.RayClusterSpec of KubeRay."""

    worker_group_specs: Annotated[list[WorkerGroup], UP_TO_SOME] | None = None
    enable_in_tree_autoscaling: bool | None = None
    suspend: bool | None = None


class WireRayCluster(Wire):
    """v1.RayCluster of KubeRay."""

    metadata: OwnerMeta = msgspec.field(default_factory=OwnerMeta)
    spec: RayClusterSpec = msgspec.field(default_factory=RayClusterSpec)


def decode_ray_cluster(wire: WireRayCluster) -> RayClusterOwner:
    """Decode a RayCluster: its head and all desired workers. Ray's autoscaler creates workers while
    the others run, so with it only the minimum of each group is needed.
    """
    meta = wire.metadata
    spec = wire.spec
    minimum = 1
    for group in spec.worker_group_specs or ():
        minimum += _workers(group, only_least=bool(spec.enable_in_tree_autoscaling))

    return RayClusterOwner(
        uid=meta.uid,
        namespace=intern(meta.namespace),
        name=meta.name,
        minimum=minimum,
        suspended=bool(spec.suspend),
        gang_metadata=pod_group_metadata(meta.annotations or {}),
    )


def _workers(group: WorkerGroup, *, only_least: bool) -> int:
    """The pods of a group, as KubeRay counts them."""
    if group.suspend:
        return 0

    least = _number(group.min_replicas, 0)
    replicas = least
    if not only_least and group.replicas is not None:
        replicas = max(least, group.replicas)
        if group.max_replicas is not None and group.replicas > group.max_replicas:
            replicas = group.max_replicas

    return max(0, replicas) * _number(group.num_of_hosts, 1)


# --- Kubeflow -------------------------------------------------------------------------------------


class ReplicaSpec(Wire):
    """v1.ReplicaSpec of Kubeflow."""

    replicas: int | None = None


class ReplicaPolicy(Wire):
    """v1.SchedulingPolicy of Kubeflow."""

    min_available: int | None = None


class RunPolicy(Wire):
    """v1.RunPolicy of Kubeflow."""

    suspend: bool | None = None
    scheduling_policy: ReplicaPolicy | None = None


Replicas = Annotated[dict[str, ReplicaSpec], UP_TO_SOME]


class TrainingSpec(Wire):
    """The spec of every kind of Kubeflow: each has its replicas in a field of its own."""

    run_policy: RunPolicy | None = None
    pytorch_replica_specs: Replicas | None = None
    tf_replica_specs: Replicas | None = None
    xgb_replica_specs: Replicas | None = None
    paddle_replica_specs: Replicas | None = None
    jax_replica_specs: Replicas | None = None
    mpi_replica_specs: Replicas | None = None
    launcher_creation_policy: str = ""


class ReplicaStatus(Wire):
    """v1.ReplicaStatus of Kubeflow."""

    succeeded: int = 0


class TrainingStatus(Wire):
    """v1.JobStatus of Kubeflow."""

    replica_statuses: Annotated[dict[str, ReplicaStatus], UP_TO_SOME] | None = None


class WireTrainingJob(Wire):
    """A job of Kubeflow's training operator or mpi-operator."""

    metadata: OwnerMeta = msgspec.field(default_factory=OwnerMeta)
    spec: TrainingSpec = msgspec.field(default_factory=TrainingSpec)
    status: TrainingStatus = msgspec.field(default_factory=TrainingStatus)


KUBEFLOW: Final[Mapping[str, str]] = {
    "PyTorchJob": "pytorch_replica_specs",
    "TFJob": "tf_replica_specs",
    "XGBoostJob": "xgb_replica_specs",
    "PaddleJob": "paddle_replica_specs",
    "JAXJob": "jax_replica_specs",
    "MPIJob": "mpi_replica_specs",
}
"""The field with the replicas of each kind."""


def decode_training_job(wire: WireTrainingJob, kind: str) -> OwnerObject:
    """Decode a job of Kubeflow: all of its replicas, or its `minAvailable`.

    A launcher that is created when the workers are ready is not waited for: it starts after them.
    """
    meta = wire.metadata
    spec = wire.spec
    policy = spec.run_policy or RunPolicy()
    replicas: Mapping[str, ReplicaSpec] = getattr(spec, KUBEFLOW[kind]) or {}
    number = 0
    for name, replica in replicas.items():
        if name != LAUNCHER or spec.launcher_creation_policy != LAUNCHER_LAST:
            number += _number(replica.replicas, 1)

    succeeded = 0
    for status in (wire.status.replica_statuses or {}).values():
        succeeded += status.succeeded

    minimum = max(0, number - succeeded)
    out_of_reach = None
    stated = policy.scheduling_policy.min_available if policy.scheduling_policy else None
    if stated is not None and stated > 0:
        minimum = min(minimum, stated)
        if stated > number:
            out_of_reach = (stated, number)

    return OWNER_KINDS[kind](
        uid=meta.uid,
        namespace=intern(meta.namespace),
        name=meta.name,
        minimum=minimum,
        succeeded=succeeded,
        suspended=bool(policy.suspend),
        out_of_reach=out_of_reach,
        gang_metadata=pod_group_metadata(meta.annotations or {}),
    )


def _number(stated: int | None, default: int) -> int:
    """A number of pods or Jobs; CRDs of others may allow negative ones."""
    return default if stated is None else max(0, stated)
