"""The facts of a refusal as fields of the gangs API (docs/visibility.md, `status.facts`)."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import msgspec
import pytest
from msgspec import structs

from gangsched.model import verdict_facts, wait_facts
from gangsched.model.gang import Refusal
from gangsched.model.gpu_policy import SliceLayer
from gangsched.model.preemption import NotHelpful, Obstacle
from gangsched.model.reasons import Reason
from gangsched.model.verdict_facts import DomainsShort, Fact, GangNeed, Nominated, PodsEnd
from gangsched.sentences.fields import fields
from gangsched.visibility.fact_schemas import FACTS

LATER = {"Refusal": Refusal, "NotHelpful": NotHelpful}
KINDS: tuple[type, ...] = typing.get_args(Fact)
WITHOUT_VALUES = {
    verdict_facts.Worded,
    verdict_facts.OfAnotherNamespace,
    verdict_facts.Placed,
    verdict_facts.BeingPreempted,
    verdict_facts.Evicting,
    verdict_facts.DeviceSearchEnded,
}
"""Facts that have no value, or whose reason says all of it."""
NODES = verdict_facts.NodeCounts(
    total=3,
    excluded=(verdict_facts.ExcludedNodes("Insufficient cpu", 3),),
)
CAUSE = Refusal(Reason.UNSCHEDULABLE, NODES)


def sample(kind: Any) -> Any:
    """A value of a type, in which nothing is empty."""
    if kind is Refusal:
        return CAUSE
    if kind is SliceLayer:
        return SliceLayer(2, "rack")
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        modules = vars(verdict_facts) | vars(wait_facts) | LATER
        hints = typing.get_type_hints(kind, localns=modules)
        named = {name: sample(hints[name]) for name in kind.__struct_fields__}
        return typing.cast("Any", kind)(**named)

    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        is_long = len(arguments) == 2 and arguments[1] is Ellipsis
        return tuple(sample(each) for each in (arguments[:1] if is_long else arguments))
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return sample(next(each for each in arguments if each is not type(None)))

    values: dict[Any, Any] = {int: 7, str: "name", bool: True, float: 7.0}
    return values[kind]


def faults(value: object, schema: Any, path: str = "") -> Iterator[str]:
    """Where a value is not as its schema says."""
    match schema["type"]:
        case "object" if isinstance(value, dict):
            for name, inner in value.items():
                known = schema.get("properties", {}).get(name) or schema.get("additionalProperties")
                if known is None:
                    yield f"{path}.{name} is not described"
                else:
                    yield from faults(inner, known, f"{path}.{name}")
        case "array" if isinstance(value, list):
            for inner in value:
                yield from faults(inner, schema["items"], f"{path}[]")
        case "integer" if isinstance(value, int) and not isinstance(value, bool):
            pass
        case "number" if isinstance(value, float):
            pass
        case "boolean" if isinstance(value, bool):
            pass
        case "string" if isinstance(value, str) and not isinstance(value, StrEnum):
            pass
        case wanted:
            yield f"{path} is {value!r}, no {wanted}"


def names(value: object, path: str = "") -> Iterator[str]:
    """The paths of all fields of a value."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield f"{path}.{name}"
            yield from names(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for inner in value:
            yield from names(inner, path)


def described(schema: Any, path: str = "") -> Iterator[str]:
    """The paths of all fields of a schema."""
    for name, inner in schema.get("properties", {}).items():
        yield f"{path}.{name}"
        yield from described(inner, f"{path}.{name}")
    if "items" in schema:
        yield from described(schema["items"], path)


def refusals() -> Iterator[Refusal]:
    """One refusal for each kind of fact and each obstacle, and some with other branches."""
    for kind in KINDS:
        yield Refusal(Reason.UNSCHEDULABLE, sample(kind), never=True)

    for obstacle in Obstacle:
        why = NotHelpful(why=obstacle, name="name", amount=7, pods=7)
        yield Refusal(Reason.UNSCHEDULABLE, NODES, details=(why,))

    for lack in typing.get_args(verdict_facts.SliceLack):
        fails = verdict_facts.SlicesFail(need=sample(GangNeed), lack=sample(lack))
        yield Refusal(Reason.UNSCHEDULABLE, fails)

    alone = structs.replace(sample(verdict_facts.MemberFails), domains=None)
    yield Refusal(Reason.UNSCHEDULABLE, alone)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_fact_has_fields(kind: type) -> None:
    """A kind of fact that is new has fields, or is named as one without values."""
    found = fields(Refusal(Reason.UNSCHEDULABLE, sample(kind)))
    assert bool(found) is (kind not in WITHOUT_VALUES)


def test_fields_are_as_their_schema_says() -> None:
    """What `kubectl explain gangs.status.facts` prints is what the API returns."""
    found = [fault for refusal in refusals() for fault in faults(fields(refusal), FACTS)]
    assert found == []


def test_every_field_of_the_schema_is_used() -> None:
    """A field that nothing sets is a promise to readers that nobody keeps."""
    used = {name for refusal in refusals() for name in names(fields(refusal))}
    assert {*described(FACTS)} - used == set()


def test_a_sibling_that_lacks_a_rack() -> None:
    """The fields are about the gang that is waited for, which is named."""
    need = GangNeed(gang="ml/b", pods=3, requests=(("cpu", 4000),), levels=("rack",))
    domains = DomainsShort(keys=("rack",), number=2, best="r7", takes=2, needed=3, few=2)
    fails = structs.replace(sample(verdict_facts.MemberFails), need=need, domains=domains)
    refusal = Refusal(Reason.UNSCHEDULABLE, fails).of_gang("ml/a")
    found: Any = fields(refusal)

    assert (found["gang"], found["sibling"]) == ("ml/b", "ml/b")
    assert found["needs"] == {"pods": 3, "requests": {"cpu": "4"}, "levels": ["rack"]}
    assert found["requiredDomains"] == {
        "levels": ["rack"],
        "total": 2,
        "tooSmall": 2,
        "best": "r7",
        "takes": 2,
        "atMost": False,
        "needed": 3,
        "proven": True,
    }
    assert "fits" not in found


def test_what_a_nominated_gang_waits_for() -> None:
    """V20: nodes, who must stop, and when it gives up, rounded as in the sentence."""
    fact = Nominated(nodes=("a",), pods=3, named=(PodsEnd("ml/low", 2),), until_s=61)
    assert fields(Refusal(Reason.PREEMPTING, fact)) == {
        "starts": {
            "nodes": ["a"],
            "pods": 3,
            "after": [{"kind": "gang", "name": "ml/low", "pods": 2}],
            "givesUpAt": "1970-01-01T00:02:00Z",
        }
    }
