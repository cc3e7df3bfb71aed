"""Bodies of reviews that nobody should send: each is answered or refused, none is an error of ours
(0044).
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from gangsched.visibility.ports import Json
from gangsched.visibility.statuses import RequestRefused
from tests.builders import node
from tests.sizes import of_size
from tests.unit.visibility.reviews.test_review import Asked
from tests.world import World

CASES = 2_000
LONG_CHARACTERS = 2_048


def nested(depth: int) -> Json:
    """So many objects within each other."""
    found: Json = {}
    for _ in range(depth):
        found = {"matchExpressions": [found]}
    return found


ODD: list[Any] = [
    *(
        None,
        True,
        0,
        -1,
        5,
        2**63,
        10**40,
        1e40,
        0.5,
        "",
        "x",
        "1e40",
        "-1",
        "9" * 400,
        "1e400",
        "0x10",
        "\x00",
        "\ud800",
    ),
    *(
        [],
        [[]],
        [None],
        [1],
        [{}],
        {},
        {"": ""},
        {"x": 1},
        {"key": {"key": []}},
        "x" * 5_000,
        ["x"] * 100,
        nested(90),
    ),
]


def whole() -> Json:
    """A review that states everything."""
    selector = {
        "matchLabels": {"a": "b"},
        "matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}],
    }
    term = {
        "topologyKey": "zone",
        "labelSelector": selector,
        "namespaces": ["ns"],
        "namespaceSelector": selector,
    }
    node_term = {
        "matchExpressions": [{"key": "k", "operator": "Gt", "values": ["1"]}],
        "matchFields": [],
    }
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "1", "nvidia.com/gpu": "1"}}
    container = {
        "name": "c",
        "image": "i",
        "resources": resources,
        "ports": [{"hostPort": 1, "protocol": "TCP"}],
    }
    spec = {
        "schedulerName": "gangsched",
        "containers": [container],
        "initContainers": [{**container, "restartPolicy": "Always"}],
        "nodeSelector": {"a": "b"},
        "tolerations": [
            {
                "key": "k",
                "operator": "Exists",
                "value": "",
                "effect": "NoSchedule",
                "tolerationSeconds": 1,
            }
        ],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [node_term]
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "preference": node_term}
                ],
            },
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "podAffinityTerm": term}
                ]
            },
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "minDomains": 1,
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": selector,
                "matchLabelKeys": ["a"],
                "nodeAffinityPolicy": "Honor",
            }
        ],
        "overhead": {"cpu": "1"},
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
        "resourceClaims": [{"name": "r", "resourceClaimName": "r"}],
        "schedulingGates": [{"name": "g"}],
        "priorityClassName": "",
        "preemptionPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
    }
    metadata = {
        "labels": {"a": "b"},
        "annotations": {"gang.scheduling.koordinator.sh/min-available": "1"},
    }
    gang = {"name": "g", "min": 1, "mode": "Strict", "priority": 0, "priorityClassName": ""}
    sets = [{"name": "w", "count": 2, "template": {"metadata": metadata, "spec": spec}}]
    kind = {
        "apiVersion": "visibility.gangsched.dev/v1alpha1",
        "kind": "PlacementReview",
        "metadata": {"name": "r"},
    }
    return {**kind, "spec": {"gang": gang, "podSets": sets}}


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container within a value, with a key or index of it."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places(value[key])


def mutated(rng: random.Random) -> bytes:
    """The whole review with one to three places changed."""
    body = copy.deepcopy(whole())
    for _ in range(rng.randint(1, 3)):
        found, key = rng.choice(list(places(body)))
        match rng.randrange(3):
            case 0:
                del found[key]
            case 1 if isinstance(found, dict):
                found[rng.choice(("spec", "x", "", "min", "cpu"))] = copy.deepcopy(rng.choice(ODD))
            case _:
                found[key] = copy.deepcopy(rng.choice(ODD))
    return json.dumps(body).encode("utf-8", "replace")


async def refusal(asked: Asked, body: bytes) -> tuple[int, str]:
    """Code and words of a refusal; 201 for an answer."""
    try:
        await asked.review(body)
    except RequestRefused as refused:
        return refused.code, str(refused)
    return 201, ""


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, CASES, of_size(800, 200)))
async def test_a_changed_review_is_answered_or_refused(first: int) -> None:
    """400, 403 or 422 in few words, or a status; never an error."""
    asked = Asked(World(node("a")).settle())
    for seed in range(first, first + 200):
        body = mutated(random.Random(seed))
        try:
            code, words = await refusal(asked, body)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}: {body[:2_000]!r}") from error
        assert (code in {201, 400, 403, 422}, len(words) <= LONG_CHARACTERS) == (
            True,
            True,
        ), f"seed {seed}: {words}"


DEEP = '{"a": [' * 600 + "]}" * 600


@pytest.mark.parametrize(
    ("changed", "into", "expected"),
    [
        ('[{"name": "c"', '[5, {"name": "c"', 422),
        ('"cpu": "1"', '"cpu": "1e40"', 201),  # a pod that no node takes
        ('"cpu": "1"', '"cpu": 1e40', 201),
        ('"requests": {"cpu": "1"}', '"requests": [["cpu"]]', 422),
        ('"initContainers": [', '"initContainers": 5, "x": [', 422),
        ('"hostPort": 1', f'"hostPort": {10**40}', 422),
        ('"matchFields": []', f'"matchFields": {DEEP}', 400),
        ('"podSets": [', f'"podSets": [{DEEP}, ', 400),
        ('"metadata": {"name": "r"}', f'"metadata": {DEEP}', 400),
        ('{"apiVersion"', "[" * 100_000 + '{"apiVersion"', 400),
        ('{"apiVersion"', "\xff", 400),
    ],
)
async def test_what_was_an_error_once_has_an_answer(changed: str, into: str, expected: int) -> None:
    """In few words."""
    body = json.dumps(whole())
    assert changed in body
    code, words = await refusal(
        Asked(World(node("a")).settle()), body.replace(changed, into).encode()
    )
    assert code == expected, words
    assert len(words) <= LONG_CHARACTERS
