"""Objects of the API with many entries in one place, made from the types that gangsched decodes.

Invariant: a place is a list or map that is read, found in the types themselves (msgspec structs,
models of dialects), so a field that is added is covered without a change here. Entries have
distinct names, since equal ones may be cheap.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Final, TypeAlias

from msgspec import inspect

from gangsched.kube.read import resources
from gangsched.kube.read.resources import Resource
from gangsched.kube.read.shapes import ShapeTable
from gangsched.kube.read.wire import Conditions, Statuses
from tests.properties.test_dialects import FIELDS

Path: TypeAlias = tuple[str, ...]

ENTRY: Final = "[]"
"""The step of a path into the entries of a list or map."""
RAW: Final[dict[str, Any]] = {
    "conditions": Conditions,
    "containerStatuses": Statuses,
    "initContainerStatuses": Statuses,
}
"""The types of raw fields, which are decoded for few objects."""
EACH: Final[tuple[Resource[Any, Any], ...]] = (
    resources.NAMESPACES,
    resources.DISRUPTION_BUDGETS,
    resources.SERVICES,
    *resources.STORAGE,
    *resources.ALLOCATED,
)
SELECTOR: Final = {"cel": {"expression": "a"}}
ANY: Final[dict[str, dict[str, Any]]] = {
    "resourceclaims": {
        "devices": {
            "requests": [
                {
                    "name": "r",
                    "exactly": {
                        "deviceClassName": "c",
                        "selectors": [{"cel": {"expression": "a"}}],
                    },
                }
            ],
            "constraints": [{"matchAttribute": "a", "requests": ["r"]}],
        }
    },
    "resourceslices": {
        "driver": "d",
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "n-0",
        "devices": [
            {
                "name": "d",
                "attributes": {"a": {"int": 1}},
                "capacity": {"c": {"value": "1"}},
                "taints": [{"key": "k", "effect": "NoSchedule"}],
                "consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": "1"}}}],
            }
        ],
        "sharedCounters": [{"name": "s", "counters": {"c": {"value": "2"}}}],
    },
    "deviceclasses": {"selectors": [SELECTOR], "config": [{"opaque": {"driver": "d"}}]},
    "devicetaintrules": {
        "deviceSelector": {"driver": "d"},
        "taint": {"key": "k", "effect": "NoSchedule"},
    },
}
"""Specs that are decoded without a type, with an entry in each list and map that is read."""


RESOURCES: Final[dict[str, Callable[[], Resource[Any, Any]]]] = {
    "pods": lambda: resources.pods(ShapeTable()),
    "nodes": lambda: resources.nodes(lambda _: None),
    **{each.name: partial(lambda same: same, each) for each in EACH},
}
"""The kinds that are read by types of their own."""


@dataclass(frozen=True, slots=True)
class Place:
    """A list or map in the objects of a kind; `most` is its bound in the type, None without one."""

    kind: str
    path: Path
    most: int | None

    def __str__(self) -> str:
        """As in a message, such as `spec.containers[].ports`."""
        return ".".join(self.path).replace(f".{ENTRY}", ENTRY)


def places(resource: Resource[Any, Any]) -> list[Place]:
    """The lists and maps in the typed fields of a resource."""
    found = inspect.type_info(resource.wire)
    return [Place(resource.name, path, most) for path, most in _places(found, ())]


def sized(resource: Resource[Any, Any], place: Place, sizes: dict[Path, int]) -> dict[str, Any]:
    """An object in which each list and map on the way to a place has as many entries as `sizes`
    says, else one.
    """
    body: dict[str, Any] = _value(inspect.type_info(resource.wire), (), place.path, sizes, count())
    if resource.name in ANY:
        body["spec"] = ANY[resource.name]
    metadata = {
        "name": "x",
        "namespace": "ns",
        "uid": "u-x",
        "resourceVersion": "2",
        **body.get("metadata", {}),
    }
    return {**body, "metadata": metadata}


def texts(resource: Resource[Any, Any]) -> list[Path]:
    """The paths of all texts in the typed fields of a resource but the keys of maps."""
    return [*dict.fromkeys(_texts(inspect.type_info(resource.wire), ()))]


def with_text(resource: Resource[Any, Any], path: Path, text: str) -> dict[str, Any]:
    """An object with this text, and otherwise only what must be there."""
    body: dict[str, Any] = _with_text(inspect.type_info(resource.wire), path, text)
    if resource.name in ANY:
        body["spec"] = ANY[resource.name]

    metadata = body.get("metadata", {})
    for owner in metadata.get("ownerReferences", ()):
        owner["controller"] = True

    given = {"name": "x", "namespace": "ns", "uid": "u", "resourceVersion": "2"}
    return {**body, "metadata": {**given, **metadata}}


def _texts(of: inspect.Type, path: Path) -> Iterator[Path]:
    match of:
        case inspect.UnionType(types=types):
            for each in types:
                yield from _texts(each, path)
        case inspect.StructType(fields=fields):
            for field in fields:
                yield from _texts(_typed(field), (*path, field.encode_name))
        case inspect.DictType(value_type=inner):
            yield from _texts(inner, (*path, ENTRY))
        case inspect.ListType(item_type=inner) | inspect.VarTupleType(item_type=inner):
            yield from _texts(inner, (*path, ENTRY))
        case inspect.StrType():
            yield path


def _with_text(of: inspect.Type, way: Path, text: str) -> Any:
    """A value with the text at the end of the way; None if the type has no such way."""
    match of:
        case inspect.UnionType(types=types):
            values = (_with_text(each, way, text) for each in types)
            return next((value for value in values if value is not None), None)
        case inspect.StructType(fields=fields):
            body = {}
            for field in fields:
                if way and field.encode_name == way[0]:
                    body[field.encode_name] = _with_text(_typed(field), way[1:], text)
                elif field.required:
                    body[field.encode_name] = _value(
                        _typed(field), (field.encode_name,), (), {}, count()
                    )
            return body
        case inspect.DictType(value_type=inner):
            return {"k": _with_text(inner, way[1:], text)}
        case inspect.ListType(item_type=inner) | inspect.VarTupleType(item_type=inner):
            return [_with_text(inner, way[1:], text)]
        case inspect.StrType() if not way:
            return text
        case _:
            return None


def inflated(value: Any, path: Path, size: int) -> Any:
    """A copy of a JSON value in which the list or map at `path` has `size` entries."""
    if not path:
        return _many(value, size)
    step, *rest = path
    if step == ENTRY:
        first = next(iter(value)) if isinstance(value, dict) else 0
        grown = copy.copy(value)
        grown[first] = inflated(value[first], tuple(rest), size)
        return grown
    return {**value, step: inflated(value[step], tuple(rest), size)}


def places_in(value: Any, path: Path = ()) -> Iterator[Path]:
    """The lists and maps in a JSON value, those in the first entry of each included."""
    if isinstance(value, dict):
        yield path
        for name, inner in value.items():
            yield from places_in(inner, (*path, name))
    elif isinstance(value, list) and value:
        yield path
        yield from places_in(value[0], (*path, ENTRY))


def specs(api_group: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """A spec of a dialect for each example of each field, with the name of the field."""
    fields = FIELDS[api_group]
    minimum: dict[str, Any] = {
        name: fields[name][0] for name in ("minMember", "podgroups") if name in fields
    }
    for name, examples in fields.items():
        for example in examples:
            yield name, {**minimum, name: example}


def _many(value: Any, size: int) -> Any:
    """A list or map with `size` entries like its first one, with distinct names."""
    if isinstance(value, list):
        return [_renamed(value[0], number) for number in range(size)]
    pattern = next(iter(value.values()), 1)
    return {
        **value,
        **{f"k-{number}": _renamed(pattern, number) for number in range(size - len(value))},
    }


def _renamed(value: Any, number: int) -> Any:
    if isinstance(value, str):
        return f"{value}-{number}"
    if isinstance(value, dict) and isinstance(value.get("name"), str):
        return {**value, "name": f"{value['name']}-{number}"}
    return value


def _places(of: inspect.Type, path: Path) -> Iterator[tuple[Path, int | None]]:
    match of:
        case inspect.UnionType(types=types):
            for each in types:
                yield from _places(each, path)
        case inspect.StructType(fields=fields):
            for field in fields:
                yield from _places(_typed(field), (*path, field.encode_name))
        case inspect.DictType(value_type=inspect.AnyType()):
            return  # its bound is that of `check_entries`
        case inspect.DictType(value_type=inner, max_length=most):
            yield path, most
            yield from _places(inner, (*path, ENTRY))
        case (
            inspect.ListType(item_type=inner, max_length=most)
            | inspect.VarTupleType(item_type=inner, max_length=most)
        ):
            yield path, most
            yield from _places(inner, (*path, ENTRY))


def _value(
    of: inspect.Type, path: Path, way: Path, sizes: dict[Path, int], serial: Iterator[int]
) -> Any:
    """A value of a type, with what is on the `way` only, and required fields."""
    match of:
        case inspect.UnionType(types=types):
            return _value(types[0], path, way, sizes, serial)
        case inspect.StructType(fields=fields):
            return {
                each.encode_name: _value(
                    _typed(each), (*path, each.encode_name), way, sizes, serial
                )
                for each in fields
                if each.required or way[: len(path) + 1] == (*path, each.encode_name)
            }
        case inspect.DictType(value_type=inner):
            numbers = range(sizes.get(path, 1))
            return {
                f"example.com/k{next(serial)}": _value(inner, (*path, ENTRY), way, sizes, serial)
                for _ in numbers
            }
        case inspect.ListType(item_type=inner) | inspect.VarTupleType(item_type=inner):
            return [
                _value(inner, (*path, ENTRY), way, sizes, serial) for _ in range(sizes.get(path, 1))
            ]
        case inspect.IntType() | inspect.FloatType():
            return 1
        case inspect.BoolType():
            return True
        case _:
            return _text(path, serial)


def _typed(field: inspect.Field) -> inspect.Type:
    raw = RAW.get(field.encode_name) if isinstance(field.type, inspect.RawType) else None
    return inspect.type_info(raw) if raw is not None else field.type


def _text(path: Path, serial: Iterator[int]) -> str:
    """A text that the field accepts."""
    if path[-1] == "operator":
        return "In"
    if {"resources", "overhead", "allocatable", "capacity", "allocatedResources"} & {*path}:
        return str(1 + next(serial) % 1_000)
    return f"v{next(serial)}"
