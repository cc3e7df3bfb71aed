"""The declaration of a gang by an object, in any dialect.

Invariant: every dialect has one module with one `DialectSpec`: the fields that are read, and
`declared`, which adds them to a PodGroup. A known field that is not supported refuses the gang; it
is never ignored silently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, Field, StrictInt
from pydantic.alias_generators import to_camel

from gangsched.api.problem import quoted
from gangsched.api.values import INT32_MAX
from gangsched.model.objects import PodGroup
from gangsched.model.owners import OwnerGangs
from gangsched.model.resources import from_dict, parse_resources
from kubernetes_cel.amounts import QuantityError

PROBLEMS_TOLD: Final = 20
KEY_SHOWN: Final = 320
Count = Annotated[StrictInt, Field(ge=0, le=INT32_MAX)]


class PodMarks(NamedTuple):
    """What a pod says of its gang in any dialect, and which owners are gangs."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    owner_gangs: OwnerGangs


PodReader: TypeAlias = Callable[[dict[str, str], PodMarks], None]
"""Changes the metadata of a pod that was read so far."""


class Readable(BaseModel):
    """An object whose unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel)


class DialectSpec(Readable):
    """The spec of one kind of object; every field is optional."""

    def declared(self, pod_group: PodGroup, where: str) -> PodGroup:
        """Add the values of the spec to those of the object's metadata; `where` names the object in
        messages.
        """
        raise NotImplementedError


def with_resources(pod_group: PodGroup, raw: Mapping[str, Any] | None, where: str) -> PodGroup:
    """Add the spec's minResources, `raw`; amounts that are not quantities are left out."""
    total: dict[str, int] = {}
    problems = list(pod_group.problems)

    for name, amount in (raw or {}).items():
        field = f"spec.minResources.{name}"
        try:
            total |= parse_resources({name: amount})
        except QuantityError:
            problems.append(left_out(field, amount, "is not a quantity", where))
            continue

        # `parse_resources` counts a negative amount as 0, so it has to be told beside it.
        if isinstance(amount, int | float | str) and str(amount).strip().startswith("-"):
            problems.append(left_out(field, amount, "is negative", where))

    return replace(
        pod_group,
        min_resources=from_dict(total),
        problems=tuple(problems[:PROBLEMS_TOLD]),
    )


def left_out(key: str, value: object, why: str, where: str) -> str:
    """The message about a value that is not used."""
    return f"{key[:KEY_SHOWN]} of {where} {why}: {quoted(value)}; it is ignored."
