"""Dialects: kinds of objects, of Kubernetes and of other projects, that declare gangs. gangsched
fully supports an object or refuses it.

Invariant: pure functions; `DIALECTS` is the only list of dialects. An `optional` dialect is read
only if the API server serves its kind and gangsched may read it; without the permission, the gangs
of that dialect wait and all other pods are scheduled. `api.podgroup` converts the objects into
PodGroups.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from gangsched.api import keys
from gangsched.api.dialects.grove import PHASES as GROVE_PHASES
from gangsched.api.dialects.grove import GroveSpec
from gangsched.api.dialects.native import CompositeSpec, NativeSpec
from gangsched.api.dialects.scheduler_plugins import SchedulerPluginsSpec
from gangsched.api.dialects.spec import DialectSpec
from gangsched.api.dialects.volcano import PHASES, VolcanoSpec

DialectName: TypeAlias = Literal[
    "grove",
    "volcano",
]


@dataclass(frozen=True, slots=True)
class Dialect:
    """One kind of object in one API group.

    `name` is its name in the setting `dialects`, "" for a dialect that cannot be turned off.
    `known_as` distinguishes several kinds of one API group.
    """

    api_group: str
    spec: type[DialectSpec]
    name: DialectName | Literal[""] = ""
    kind: str = "PodGroup"
    plural: str = "podgroups"
    optional: bool = True
    #: Its phase for each of ours, where it is not the same; its status then has phase, counts of
    #: pods and conditions.
    phases: Mapping[str, str] | None = None
    #: Others write the rest of its status: a phase is only written where there is none, and no
    #: counts.
    conditions_only: bool = False
    #: Every definition of it has the status subresource.
    has_subresource: bool = True
    #: The file in manifests/ that grants what reading it needs.
    manifest: str = "rbac-dialects.yaml"
    known_as: str = ""


DIALECTS: Final = {
    dialect.known_as or dialect.api_group: dialect
    for dialect in (
        Dialect(keys.X_K8S, SchedulerPluginsSpec, optional=False),
        Dialect(keys.SIGS, SchedulerPluginsSpec, optional=False),
        Dialect(keys.NATIVE, NativeSpec, manifest="rbac.yaml"),
        Dialect(
            keys.NATIVE,
            CompositeSpec,
            kind="CompositePodGroup",
            plural="compositepodgroups",
            manifest="rbac.yaml",
            known_as=keys.COMPOSITE,
        ),
        Dialect(
            keys.GROVE,
            GroveSpec,
            name="grove",
            kind="PodGang",
            plural="podgangs",
            phases=GROVE_PHASES,
            conditions_only=True,
        ),
        Dialect(keys.VOLCANO, VolcanoSpec, name="volcano", phases=PHASES, has_subresource=False),
    )
}
"""By API group, or what else they are known as, in the order in which they are read."""
NAMES: Final[tuple[DialectName, ...]] = get_args(DialectName)
"""Names that the setting `dialects` may list."""
KINDS: Final = ", ".join(
    f"{dialect.name} ({dialect.kind}s)" for dialect in DIALECTS.values() if dialect.name
)
"""These names and what they stand for, as the setting is described."""


def read_groups(names: Collection[str]) -> tuple[str, ...]:
    """The API groups that are read if `names` is the value of the setting `dialects`."""
    return tuple(
        group for group, dialect in DIALECTS.items() if not dialect.name or dialect.name in names
    )


def api_version(api_group: str, version: str) -> str:
    """The apiVersion of an object of this dialect."""
    return f"{DIALECTS[api_group].api_group}/{version}"


def unread_marks(names: Collection[str]) -> frozenset[str]:
    """Identity keys that declare no gang, because no kind of object that they refer to is read."""
    groups = read_groups(names)
    return frozenset(
        mark.key
        for mark in keys.IDENTITIES
        if mark.api_groups and not set(mark.api_groups) & set(groups)
    )
