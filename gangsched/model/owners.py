"""Owners: controllers whose pods may be one gang, reduced to the numbers that a gang needs.

Invariant: values only. An owner is identified by its uid, so one that is created again under the
same name is another owner, with another gang. The table names each kind that is read once; nothing
else in the package is per kind but how it is decoded (`kube.read.owner_kinds`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec


class OwnerGangs(StrEnum):
    """Whose pods become gangs of their owners."""

    ASKED = "asked"  # those that ask for it, or whose namespace does
    ALL = "all"  # all but those that opt out
    OFF = "off"  # nobody's


class ControllerRef(msgspec.Struct, frozen=True, gc=False):
    """The controller of an owner, as the owner names it."""

    kind: str
    name: str
    uid: str


class OwnerPart(msgspec.Struct, frozen=True, gc=False):
    """Jobs that an owner creates from one template: their number, and how many have succeeded."""

    name: str
    jobs: int
    succeeded: int = 0


class OwnerObject(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One controller of pods; each kind that is read has a class of its own."""

    uid: str
    namespace: str
    name: str
    #: Pods that it has at the same time now, which start together.
    minimum: int
    #: Pods that have succeeded, which `minimum` leaves out.
    succeeded: int = 0
    #: It creates each pod when the one before is ready.
    one_by_one: bool = False
    #: It has no pods until a user resumes it.
    suspended: bool = False
    #: A minimum that it states and cannot reach, with the number of pods that it makes; None if it
    #: states none or can.
    out_of_reach: tuple[int, int] | None = None
    #: Its annotations that declare values of a gang (I3), as sorted (key, value) pairs.
    gang_metadata: tuple[tuple[str, str], ...] = ()


class JobOwner(OwnerObject, frozen=True, gc=False, kw_only=True):
    """A Job of `batch`."""

    #: Its controller, if Jobs of this kind of controller start together.
    controller: ControllerRef | None = None
    #: The name of the `OwnerPart` that it is one of.
    part: str = ""


class StatefulSetOwner(OwnerObject, frozen=True, gc=False, kw_only=True):
    """A StatefulSet of `apps`."""


class JobSetOwner(OwnerObject, frozen=True, gc=False, kw_only=True):
    """A JobSet; its `minimum` is the number of Jobs."""

    #: Those whose Jobs start together; not those that have a topology domain for each Job.
    parts: tuple[OwnerPart, ...] = ()
    #: It creates the Jobs of a part when those of another one are ready or have ended.
    in_stages: bool = False


class RayClusterOwner(OwnerObject, frozen=True, gc=False, kw_only=True):
    """A RayCluster."""


class PyTorchJobOwner(OwnerObject, frozen=True, gc=False, kw_only=True):
    """A PyTorchJob."""


class TFJobOwner(OwnerObject, frozen=True, gc=False, kw_only=True):
    """A TFJob."""


class MPIJobOwner(OwnerObject, frozen=True, gc=False, kw_only=True):
    """A MPIJob, of either operator."""


class XGBoostJobOwner(OwnerObject, frozen=True, gc=False, kw_only=True):
    """A XGBoostJob."""


class PaddleJobOwner(OwnerObject, frozen=True, gc=False, kw_only=True):
    """A PaddleJob."""


class JAXJobOwner(OwnerObject, frozen=True, gc=False, kw_only=True):
    """A JAXJob."""


class OfJobs(StrEnum):
    """What the pods of a Job are to the controller of the Job."""

    #: Members of the gang of the controller's own pods.
    MEMBERS = "members"
    #: A gang of their own, which starts together with those of the other Jobs.
    PARTS = "parts"


class OwnerKind(NamedTuple):
    """A kind of owners that is read: where it is served, and which file has the permission.

    `versions` are tried in this order. `of_jobs`: it creates Jobs. `built_in`: every API server
    serves it.
    """

    owner: type[OwnerObject]
    group: str
    versions: tuple[str, ...]
    plural: str
    manifest: str
    of_jobs: OfJobs | None = None
    built_in: bool = False

    @property
    def api_version(self) -> str:
        """The apiVersion that references to its objects have."""
        return f"{self.group}/{self.versions[0]}"


_BUILT_IN: Final = "rbac-owners.yaml"
_JOBSET: Final = "rbac-owners-jobset.yaml"
_KUBERAY: Final = "rbac-owners-kuberay.yaml"
_KUBEFLOW: Final = "rbac-owners-kubeflow.yaml"


def _of_kubeflow(owner: type[OwnerObject], plural: str) -> OwnerKind:
    """A kind of the training operator, version 1."""
    return OwnerKind(
        owner,
        "kubeflow.org",
        ("v1",),
        plural,
        _KUBEFLOW,
    )


TABLE: Final[Mapping[str, OwnerKind]] = {
    "Job": OwnerKind(
        JobOwner,
        "batch",
        ("v1",),
        "jobs",
        _BUILT_IN,
        built_in=True,
    ),
    "StatefulSet": OwnerKind(
        StatefulSetOwner,
        "apps",
        ("v1",),
        "statefulsets",
        _BUILT_IN,
        built_in=True,
    ),
    "JobSet": OwnerKind(
        JobSetOwner,
        "jobset.x-k8s.io",
        ("v1alpha2",),
        "jobsets",
        _JOBSET,
        OfJobs.PARTS,
    ),
    "RayCluster": OwnerKind(
        RayClusterOwner,
        "ray.io",
        ("v1", "v1alpha1"),
        "rayclusters",
        _KUBERAY,
    ),
    "PyTorchJob": _of_kubeflow(PyTorchJobOwner, "pytorchjobs"),
    "TFJob": _of_kubeflow(TFJobOwner, "tfjobs"),
    "XGBoostJob": _of_kubeflow(XGBoostJobOwner, "xgboostjobs"),
    "PaddleJob": _of_kubeflow(PaddleJobOwner, "paddlejobs"),
    "JAXJob": _of_kubeflow(JAXJobOwner, "jaxjobs"),
    # mpi-operator, and the training operator, of which a cluster has one.
    "MPIJob": OwnerKind(
        MPIJobOwner,
        "kubeflow.org",
        ("v2beta1", "v1"),
        "mpijobs",
        _KUBEFLOW,
        OfJobs.MEMBERS,
    ),
}
"""The kinds that are read, by the name that pods have of them (`controller_kind`)."""
OWNER_KINDS: Final[Mapping[str, type[OwnerObject]]] = {
    name: kind.owner for name, kind in TABLE.items()
}
OWNER_VERSIONS: Final[Mapping[str, str]] = {
    "ReplicaSet": "apps/v1",
    **{name: kind.api_version for name, kind in TABLE.items()},
}
"""The apiVersion of kinds on which Events are written."""


def controller_kind(api_version: str, kind: str) -> str:
    """A kind of controllers as pods have it: with the API group, as in `Job.batch.volcano.sh`, if
    the table has another kind of this name.
    """
    known = TABLE.get(kind)
    group = api_version.rpartition("/")[0]
    if known is None or not group or group == known.group:
        return kind

    return f"{kind}.{group}"
