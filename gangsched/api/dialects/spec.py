"""The declaration of a gang by an object, in any dialect.

Invariant: every dialect has one module with one `DialectSpec`: the fields of its kind that are read, and `declared`,
which translates them. A known field that is not supported refuses the gang; it is never ignored silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictInt
from pydantic.alias_generators import to_camel

from gangsched.api.values import INT32_MAX
from gangsched.model.objects import ClaimEntry, SubGroups

Count = Annotated[StrictInt, Field(ge=0, le=INT32_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """The values of a gang that its object sets; a default means that the object does not set the value."""

    min_member: int | None = None
    #: Quantities by resource, as written.
    min_resources: Mapping[str, Any] = field(default_factory=dict)
    schedule_timeout_s: int | None = None
    #: The members are disrupted together (V6).
    indivisible: bool = False
    #: Each member may be disrupted by itself (V6).
    disrupted_singly: bool = False
    never_preempts: bool = False
    #: Node labels for each of which one domain must hold the gang.
    topology: tuple[str, ...] = ()
    #: Node labels for each of which one domain must hold the whole tree of the gang (I9).
    tree_topology: tuple[str, ...] = ()
    priority: int = 0
    #: It consists of other gangs and composites, and has no pods of its own.
    is_composite: bool = False
    #: The composite that it is a child of, by the name of its object.
    parent: str = ""
    #: Children of a composite that start together; None for all.
    min_children: int | None = None
    #: ResourceClaims that are reserved for the object instead of for its pods.
    claims: tuple[ClaimEntry, ...] = ()
    #: Annotations that say what other fields state, of the weakest kind.
    gang_metadata: Mapping[str, str] = field(default_factory=dict)
    #: The minimum of each task by its name; together they do not exceed the minimum.
    of_tasks: Mapping[str, int] = field(default_factory=dict)
    #: Gangs that the object declares by labels of its pods.
    sub_groups: tuple[SubGroups, ...] = ()
    #: Gangs by name that the object declares in place of one of its own name.
    parts: Mapping[str, Declared] = field(default_factory=dict)
    #: Sentences about what is asked for and cannot be honoured: the gang waits, Unsupported.
    unsupported: tuple[str, ...] = ()
    #: Sentences about levels that cannot be read: the gang waits, InvalidGang.
    invalid: tuple[str, ...] = ()
    #: Sentences about what is left without effect on the gang's start: an Event NotUsed each.
    not_used: tuple[str, ...] = ()


class Readable(BaseModel):
    """An object whose unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel)


class DialectSpec(Readable):
    """The spec of one kind of object; every field is optional."""

    def declared(self, where: str) -> Declared:
        """Translate the spec; `where` names the object in sentences."""
        raise NotImplementedError
