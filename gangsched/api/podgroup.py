"""PodGroup objects: their spec and status, for every supported API group (semantics E3, E4).

Invariant: a PodGroup with a name and a uid can always be read; an invalid spec value is dropped and
reported, whatever the cluster's CRD allows. Nothing here writes or knows the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import Any, Final

import msgspec
from pydantic import ConfigDict, StrictInt, ValidationError

from gangsched.api import keys
from gangsched.api.dialects import DIALECTS
from gangsched.api.dialects.spec import PROBLEMS_TOLD, Count, DialectSpec, Readable, left_out
from gangsched.api.problem import quoted
from gangsched.api.timestamps import parse_timestamp
from gangsched.model.bounds import NESTS, BoundError, check_entries
from gangsched.model.objects import PodGroup


class _WrittenModel(Readable):
    # Only what we write ourselves may be built by its Python names; users spell min_member as
    # minMember or not at all.
    model_config = ConfigDict(populate_by_name=True)


SCHEDULED: Final = "Scheduled"
NATIVE_SCHEDULED: Final = "PodGroupScheduled"
NATIVE_INITIALLY_SCHEDULED: Final = "PodGroupInitiallyScheduled"
NATIVE_SATISFIED: Final = "PodGroupSatisfied"
"""Says whether a native PodGroup has its minimum now (KEP-6413); absent until it had it once."""
COMPOSITE_INITIALLY_SCHEDULED: Final = "CompositePodGroupInitiallyScheduled"


def scheduled_condition(api_group: str, version: str) -> str:
    """Type of the condition that says that a gang is scheduled, in this version of the API.

    It is PodGroupScheduled in Kubernetes 1.36 (v1alpha2). Version 1.37 (v1alpha3, v1beta1) renamed
    it to PodGroupInitiallyScheduled, which stays True after it first becomes True.
    """
    if api_group == keys.COMPOSITE:
        return COMPOSITE_INITIALLY_SCHEDULED
    if api_group != keys.NATIVE:
        return SCHEDULED
    if version in {"v1alpha1", "v1alpha2"}:
        return NATIVE_SCHEDULED

    return NATIVE_INITIALLY_SCHEDULED


class PodGroupPhase(StrEnum):
    """Phase of a gang as reported in its status (semantics E3)."""

    PENDING = "Pending"
    PRE_SCHEDULING = "PreScheduling"
    SCHEDULING = "Scheduling"
    SCHEDULED = "Scheduled"
    RUNNING = "Running"
    FINISHED = "Finished"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


class Condition(_WrittenModel):
    """A metav1.Condition; `last_transition_time` is RFC 3339, `status` is True, False
    or Unknown.
    """

    type: str
    status: str
    reason: str
    message: str = ""
    last_transition_time: str
    observed_generation: StrictInt | None = None


class PodGroupStatus(_WrittenModel):
    """The status of a PodGroup; a field that is None is not written. `occupied_by` are
    "namespace/owner", sorted and comma-separated.
    """

    phase: PodGroupPhase | None = None
    occupied_by: str | None = None
    scheduled: Count | None = None
    running: Count | None = None
    succeeded: Count | None = None
    failed: Count | None = None
    schedule_start_time: str | None = None
    #: `starts.start_status`.
    start: dict[str, object] | None = None
    observed_generation: StrictInt | None = None
    conditions: tuple[Condition, ...] | None = None

    def to_dict(self) -> dict[str, object]:
        """The JSON object for a merge patch: camelCase, without fields that are None."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def stored_conditions(status: Mapping[str, object]) -> tuple[Condition, ...]:
    """Conditions of a stored status; malformed ones are skipped."""
    raw = status.get("conditions")
    conditions = []

    for entry in raw if isinstance(raw, Sequence) and not isinstance(raw, str) else ():
        try:
            conditions.append(Condition.model_validate(entry))
        except ValidationError:
            # A condition that another writer left malformed must not keep ours from being written.
            continue

    return tuple(conditions)


def with_condition(conditions: Sequence[Condition], new: Condition) -> tuple[Condition, ...]:
    """Replace the condition of the same type as `new`. The transition time is kept if the
    condition's status does not change.
    """
    for place, old in enumerate(conditions):
        if old.type == new.type:
            if old.status == new.status:
                # As the API convention has it: the time of the change of the status, not of the
                # message.
                new = new.model_copy(update={"last_transition_time": old.last_transition_time})

            return (*conditions[:place], new, *conditions[place + 1 :])

    return (*conditions, new)


def parse_pod_group(body: Mapping[str, Any], *, api_group: str = "", version: str = "") -> PodGroup:
    """Parse an API object into a PodGroup. `api_group` and `version` apply to list items, which may
    lack apiVersion.

    Raises ValueError if metadata.name, namespace or uid is missing, or if there is no apiVersion;
    any other bad value is added to `problems`.
    """
    metadata = _mapping(body.get("metadata"))
    namespace, name, uid = _identity(metadata)
    known_as = api_group
    served = DIALECTS[api_group].api_group if api_group in DIALECTS else api_group

    # Items of a list have no apiVersion: the API server states it once, for the list.
    stated = str(body.get("apiVersion") or f"{served}/{version}")
    api_group, _, version = stated.rpartition("/")
    if not api_group or not version:
        raise ValueError(f"PodGroup {namespace}/{name} has no apiVersion.")

    if api_group == keys.NATIVE and keys.COMPOSITE in {known_as, _known_as(body)}:
        api_group = keys.COMPOSITE

    if api_group not in DIALECTS:
        raise ValueError(
            f"PodGroup {namespace}/{name} has API group {api_group}, which gangsched does not"
            " support."
        )

    where = f"{DIALECTS[api_group].kind} {namespace}/{name}"
    body, above = _within_bounds(body, DIALECTS[api_group].spec, where)
    metadata = _mapping(body.get("metadata"))
    reader = _PodGroupReader(where)
    spec = reader.spec(DIALECTS[api_group].spec, body.get("spec"))
    creation_s = reader.epoch_s(metadata.get("creationTimestamp"))
    pod_group = PodGroup(
        api_group=api_group,
        version=version,
        namespace=namespace,
        name=name,
        uid=uid,
        creation_s=creation_s,
        generation=generation if isinstance(generation := metadata.get("generation"), int) else 0,
        resource_version=str(metadata.get("resourceVersion") or ""),
        deleting=bool(metadata.get("deletionTimestamp")),
        gang_metadata=keys.pod_group_metadata(_texts(metadata.get("annotations"))),
        problems=tuple(reader.problems),
        status=dict(_mapping(body.get("status"))),
    )
    declared = spec.declared(pod_group, where)

    if above:
        return msgspec.structs.replace(declared, invalid=tuple(above), parts=())

    return declared


def _within_bounds(
    body: Mapping[str, Any],
    model: type[DialectSpec],
    where: str,
) -> tuple[Mapping[str, Any], Sequence[str]]:
    """The object without the fields that have more entries than are read, and a sentence about each
    of them.
    """
    spec = _mapping(body.get("spec"))
    metadata = _mapping(body.get("metadata"))
    status = _mapping(body.get("status"))
    above: list[str] = []

    def is_within(value: object, field: str) -> bool:
        if not isinstance(value, NESTS):
            return True

        try:
            check_entries(value, field, where)
        except BoundError as error:
            above.append(str(error))
            return False

        return True

    kept_spec = {}
    for name in _names(model):
        if name in spec and is_within(spec[name], f"spec.{name}"):
            kept_spec[name] = spec[name]

    annotations = metadata.get("annotations")
    conditions = status.get("conditions")

    if not is_within(annotations, "metadata.annotations"):
        annotations = None

    if not is_within(conditions, "status.conditions"):
        status = {}

    if not above:
        return body, ()

    return {
        **body,
        "spec": kept_spec if spec else body.get("spec"),
        "metadata": {**metadata, "annotations": annotations},
        "status": status,
    }, above


@cache
def _names(model: type[DialectSpec]) -> tuple[str, ...]:
    """The fields of a spec that are read."""
    return tuple(field.alias or name for name, field in model.model_fields.items())


def _known_as(body: Mapping[str, Any]) -> str:
    """The dialect of an object that says what kind it is; "" for any other."""
    kind = body.get("kind")
    return next(
        (name for name, dialect in DIALECTS.items() if dialect.known_as and dialect.kind == kind),
        "",
    )


def _identity(metadata: Mapping[str, object]) -> tuple[str, str, str]:
    namespace, name, uid = (metadata.get(key) for key in ("namespace", "name", "uid"))
    if (
        isinstance(namespace, str)
        and isinstance(name, str)
        and isinstance(uid, str)
        and namespace
        and name
        and uid
    ):
        return namespace, name, uid

    raise ValueError(
        f"A PodGroup without metadata.name, namespace or uid: {quoted(dict(metadata))}."
    )


class _PodGroupReader:
    """Reads the parts of one PodGroup; an invalid value is left out and reported in `problems`."""

    def __init__(self, where: str) -> None:
        self.problems: list[str] = []
        self._where = where

    def spec(self, model: type[DialectSpec], raw: object) -> DialectSpec:
        """The fields of `raw`, validated as `model`; fields that are not valid are left out."""
        if raw is not None and not isinstance(raw, Mapping):
            self._left_out("spec", raw, "is not an object")

        data: dict[str, object] = dict(_mapping(raw))
        while True:
            try:
                return model.model_validate(data)
            except ValidationError as refusal:
                # Every field is optional, so each pass leaves out the field of one error, and an
                # empty rest is valid.
                error = refusal.errors(include_url=False, include_context=False)[0]
                path = tuple(str(step) for step in error["loc"])
                self._left_out(
                    ".".join(("spec", *path)),
                    error["input"],
                    f"is not accepted ({error['msg']})",
                )
                del data[path[0]]

    def epoch_s(self, raw: object) -> int:
        """Parse a creationTimestamp into whole seconds since the epoch; 0 if it is malformed."""
        at_s = parse_timestamp(raw) if isinstance(raw, str) else None
        if at_s is not None:
            return at_s

        self._left_out("metadata.creationTimestamp", raw, "is not a time")
        return 0

    def _left_out(self, key: str, value: object, why: str) -> None:
        # What is used instead depends on the pods, too: `gang_spec` names every value's source.
        if len(self.problems) < PROBLEMS_TOLD:
            self.problems.append(left_out(key, value, why, self._where))


def _mapping(raw: object) -> Mapping[str, Any]:
    return raw if isinstance(raw, Mapping) else {}


def _texts(raw: object) -> dict[str, str]:
    texts: dict[str, str] = {}
    for key, value in _mapping(raw).items():
        if isinstance(key, str) and isinstance(value, str):
            texts[key] = value

    return texts
