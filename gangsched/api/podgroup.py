"""PodGroup objects: their spec and status, for every supported API group (semantics E3, E4).

Invariant: a PodGroup with a name and a uid can always be read; an invalid spec value is dropped and reported, whatever
the cluster's CRD allows. Nothing here writes or knows the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field, StrictInt, ValidationError
from pydantic.alias_generators import to_camel

from gangsched.api import keys
from gangsched.api.problem import quoted
from gangsched.api.timestamps import parse_timestamp
from gangsched.api.values import INT32_MAX, BadValue, parse_level
from gangsched.model.objects import PodGroup
from gangsched.model.resources import QuantityError, ResourceVector, add, parse_resources

Count = Annotated[StrictInt, Field(ge=0, le=INT32_MAX)]

PROBLEMS_TOLD: Final = 20
KEY_SHOWN: Final = 320


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel)


class _WrittenModel(_Model):
    # Only what we write ourselves may be built by its Python names; users spell min_member as minMember or not at all.
    model_config = ConfigDict(populate_by_name=True)


class PodGroupSpec(_Model):
    """The spec of `scheduling.x-k8s.io` and `scheduling.sigs.k8s.io` PodGroups; a timeout of 0 means the default."""

    min_member: Count | None = None
    schedule_timeout_seconds: Count | None = None
    min_resources: dict[str, Any] | None = None
    indivisible: ClassVar[bool] = False
    disrupted_singly: ClassVar[bool] = False
    never_preempts: ClassVar[bool] = False
    unsupported: ClassVar[tuple[str, ...]] = ()
    topology: ClassVar[tuple[str, ...]] = ()
    priority: ClassVar[int] = 0


class GangPolicy(_Model):
    """Gang scheduling: all or nothing, from `min_count` members on."""

    min_count: Count | None = None


class SchedulingPolicy(_Model):
    """Either `basic` (every member alone) or `gang`."""

    basic: dict[str, Any] | None = None
    gang: GangPolicy | None = None


class NativePodGroupSpec(_Model):
    """The spec of a `scheduling.k8s.io` PodGroup (v1alpha2 and later, KEP-4671)."""

    scheduling_policy: SchedulingPolicy | None = None
    disruption_mode: str | dict[str, Any] | None = None
    preemption_policy: str | None = None
    priority: int | None = None
    scheduling_constraints: dict[str, Any] | None = None
    resource_claims: list[Any] | None = None
    parent_composite_pod_group_name: str | None = None
    min_resources: ClassVar[None] = None
    schedule_timeout_seconds: ClassVar[None] = None

    @property
    def unsupported(self) -> tuple[str, ...]:
        """Fields that are set but not supported by gangsched; such a gang is not started."""
        constraints = any((self.scheduling_constraints or {}).values()) and not self.topology
        return tuple(
            name
            for name, is_set in (
                ("schedulingConstraints", constraints),
                ("resourceClaims", self.resource_claims),
                ("parentCompositePodGroupName", self.parent_composite_pod_group_name),
            )
            if is_set
        )

    @property
    def topology(self) -> tuple[str, ...]:
        """Node labels for each of which one domain must hold the group; none unless all are understood."""
        constraints = {name: value for name, value in (self.scheduling_constraints or {}).items() if value}
        stated = constraints.pop("topology", None)
        if constraints or not isinstance(stated, list):
            return ()
        found = [each.get("key") for each in stated if isinstance(each, dict) and len(each) == 1]
        levels = [each for each in found if isinstance(each, str) and each]
        if len(levels) < len(stated):
            return ()
        try:
            return tuple(sorted({str(parse_level(each)) for each in levels}))
        except BadValue:
            return ()

    @property
    def indivisible(self) -> bool:
        """Whether all pods are disrupted together (KEP-5710): "PodGroup" in Kubernetes 1.36, `all` later."""
        mode = self.disruption_mode
        return mode == "PodGroup" or (isinstance(mode, dict) and "all" in mode)

    @property
    def disrupted_singly(self) -> bool:
        """Whether each pod may be disrupted by itself: "Pod" in Kubernetes 1.36, `single` later.

        Kubernetes 1.37 stores `single` if nothing is set.
        """
        mode = self.disruption_mode
        return mode == "Pod" or (isinstance(mode, dict) and "single" in mode)

    @property
    def never_preempts(self) -> bool:
        """Whether the group never preempts."""
        return self.preemption_policy == "Never"

    @property
    def min_member(self) -> int | None:
        """Minimum that follows from the policy; None without a policy."""
        policy = self.scheduling_policy
        if policy is None:
            return None
        if policy.gang is not None:
            return policy.gang.min_count
        return 0 if policy.basic is not None else None


SCHEDULED: Final = "Scheduled"
NATIVE_SCHEDULED: Final = "PodGroupScheduled"
NATIVE_INITIALLY_SCHEDULED: Final = "PodGroupInitiallyScheduled"


def scheduled_condition(api_group: str, version: str) -> str:
    """Condition type for "the gang has its nodes" in this version of the API.

    Kubernetes 1.36 (v1alpha2) has PodGroupScheduled; 1.37 (v1alpha3, v1beta1) renamed it to PodGroupInitiallyScheduled,
    which stays True once it is.
    """
    if api_group != keys.NATIVE:
        return SCHEDULED
    return NATIVE_SCHEDULED if version in {"v1alpha1", "v1alpha2"} else NATIVE_INITIALLY_SCHEDULED


class PodGroupPhase(StrEnum):
    """Phase of a gang (semantics E3)."""

    PENDING = "Pending"
    PRE_SCHEDULING = "PreScheduling"
    SCHEDULING = "Scheduling"
    SCHEDULED = "Scheduled"
    RUNNING = "Running"
    FINISHED = "Finished"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


class Condition(_WrittenModel):
    """A metav1.Condition; `last_transition_time` is RFC 3339, `status` is True, False or Unknown."""

    type: str
    status: str
    reason: str
    message: str = ""
    last_transition_time: str
    observed_generation: StrictInt | None = None


class PodGroupStatus(_WrittenModel):
    """The status of a PodGroup; None means "leave it as stored". `occupied_by`: sorted "ns/owner", comma-separated."""

    phase: PodGroupPhase | None = None
    occupied_by: str | None = None
    scheduled: Count | None = None
    running: Count | None = None
    succeeded: Count | None = None
    failed: Count | None = None
    schedule_start_time: str | None = None
    observed_generation: StrictInt | None = None
    conditions: tuple[Condition, ...] | None = None

    def to_dict(self) -> dict[str, object]:
        """The JSON object for a merge patch: camelCase, without None."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def stored_conditions(status: Mapping[str, object]) -> tuple[Condition, ...]:
    """Conditions of a stored status; malformed ones are skipped."""
    raw = status.get("conditions")
    conditions = []
    for entry in raw if isinstance(raw, Sequence) and not isinstance(raw, str) else ():
        try:
            conditions.append(Condition.model_validate(entry))
        except ValidationError:
            continue
    return tuple(conditions)


def with_condition(conditions: Sequence[Condition], new: Condition) -> tuple[Condition, ...]:
    """`conditions` with `new` replacing the one of its type; the transition time is kept if the status is unchanged."""
    for place, old in enumerate(conditions):
        if old.type == new.type:
            if old.status == new.status:
                new = new.model_copy(update={"last_transition_time": old.last_transition_time})
            return (*conditions[:place], new, *conditions[place + 1 :])
    return (*conditions, new)


def parse_pod_group(body: Mapping[str, Any], *, api_group: str = "", version: str = "") -> PodGroup:
    """The PodGroup of an API object; `api_group` and `version` are for list items, which may lack apiVersion.

    Raises ValueError without metadata.name, namespace or uid, or without any apiVersion; any other bad value is added
    to `problems`.
    """
    metadata = _mapping(body.get("metadata"))
    namespace, name, uid = _identity(metadata)
    stated = str(body.get("apiVersion") or f"{api_group}/{version}")
    api_group, _, version = stated.rpartition("/")
    if not api_group or not version:
        raise ValueError(f"PodGroup {namespace}/{name} has no apiVersion.")
    reader = _PodGroupReader(f"PodGroup {namespace}/{name}")
    spec = reader.spec(NativePodGroupSpec if api_group == keys.NATIVE else PodGroupSpec, body.get("spec"))
    return PodGroup(
        api_group=api_group,
        version=version,
        namespace=namespace,
        name=name,
        uid=uid,
        creation_s=reader.epoch_s(metadata.get("creationTimestamp")),
        generation=generation if isinstance(generation := metadata.get("generation"), int) else 0,
        resource_version=str(metadata.get("resourceVersion") or ""),
        deleting=bool(metadata.get("deletionTimestamp")),
        gang_metadata=keys.pod_group_metadata(_texts(metadata.get("annotations"))),
        min_member=spec.min_member,
        min_resources=reader.resources(spec.min_resources or {}),
        schedule_timeout_s=spec.schedule_timeout_seconds or None,
        indivisible=spec.indivisible,
        disrupted_singly=spec.disrupted_singly,
        never_preempts=spec.never_preempts,
        unsupported=spec.unsupported,
        topology=spec.topology,
        priority=spec.priority or 0,
        problems=tuple(reader.problems),
        status=dict(_mapping(body.get("status"))),
    )


def _identity(metadata: Mapping[str, object]) -> tuple[str, str, str]:
    namespace, name, uid = (metadata.get(key) for key in ("namespace", "name", "uid"))
    if isinstance(namespace, str) and isinstance(name, str) and isinstance(uid, str) and namespace and name and uid:
        return namespace, name, uid
    raise ValueError(f"A PodGroup without metadata.name, namespace or uid: {quoted(dict(metadata))}.")


class _PodGroupReader:
    """Reads the parts of one PodGroup; an invalid value is left out and reported in `problems`."""

    def __init__(self, where: str) -> None:
        self.problems: list[str] = []
        self._where = where

    def spec(self, model: type[PodGroupSpec | NativePodGroupSpec], raw: object) -> PodGroupSpec | NativePodGroupSpec:
        """`raw` as `model`, without the fields that do not validate."""
        if raw is not None and not isinstance(raw, Mapping):
            self._left_out("spec", raw, "is not an object")
        data: dict[str, object] = dict(_mapping(raw))
        while True:
            try:
                return model.model_validate(data)
            except ValidationError as refusal:
                # Every field is optional, so each pass leaves out the field of one error, and an empty rest is valid.
                error = refusal.errors(include_url=False, include_context=False)[0]
                path = tuple(str(step) for step in error["loc"])
                self._left_out(".".join(("spec", *path)), error["input"], f"is not accepted ({error['msg']})")
                del data[path[0]]

    def resources(self, raw: Mapping[str, object]) -> ResourceVector:
        """The vector of minResources, without amounts that are no quantities."""
        total: ResourceVector = ()
        for name, amount in raw.items():
            try:
                total = add(total, parse_resources({name: amount}))
            except QuantityError:
                self._left_out(f"spec.minResources.{name}", amount, "is not a quantity")
                continue
            if isinstance(amount, int | float | str) and str(amount).strip().startswith("-"):
                self._left_out(f"spec.minResources.{name}", amount, "is negative")
        return total

    def epoch_s(self, raw: object) -> int:
        """Whole seconds since the epoch of a creationTimestamp; 0 for a text that is none."""
        at_s = parse_timestamp(raw) if isinstance(raw, str) else None
        if at_s is not None:
            return at_s
        self._left_out("metadata.creationTimestamp", raw, "is not a time")
        return 0

    def _left_out(self, key: str, value: object, why: str) -> None:
        # What is used instead depends on the pods, too: `gang_spec` names every value's source.
        if len(self.problems) < PROBLEMS_TOLD:
            self.problems.append(f"{key[:KEY_SHOWN]} of {self._where} {why}: {quoted(value)}; it is ignored.")


def _mapping(raw: object) -> Mapping[str, Any]:
    return raw if isinstance(raw, Mapping) else {}


def _texts(raw: object) -> dict[str, str]:
    return {key: value for key, value in _mapping(raw).items() if isinstance(key, str) and isinstance(value, str)}
