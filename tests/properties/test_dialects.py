"""Random objects of every dialect: each is read, and nothing that it may ask for is lost (A1, A2,
A5).
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from gangsched.api.dialects import DIALECTS
from gangsched.api.podgroup import parse_pod_group
from gangsched.model.objects import PodGroup
from tests.sizes import of_size

OBJECTS = of_size(1_500, 10_000)
SEED = 34
#: The fields of each kind; a value is one of its examples, or anything at all.
FIELDS: dict[str, dict[str, list[Any]]] = {
    "scheduling.x-k8s.io": {
        "minMember": [1, 0],
        "minResources": [{"cpu": 1}],
        "scheduleTimeoutSeconds": [5],
    },
    "scheduling.sigs.k8s.io": {
        "minMember": [1, 0],
        "minResources": [{"cpu": 1}],
        "scheduleTimeoutSeconds": [5],
    },
    "scheduling.k8s.io": {
        "schedulingPolicy": [{"gang": {"minCount": 2}}, {"basic": {}}],
        "disruptionMode": ["Pod", {"all": {}}],
        "preemptionPolicy": ["Never"],
        "priority": [10],
        "schedulingConstraints": [{"topology": [{"key": "rack"}]}],
        "resourceClaims": [[{"name": "a"}], [{"name": "a", "resourceClaimName": "a"}]],
        "parentCompositePodGroupName": ["all"],
    },
    "compositepodgroups.scheduling.k8s.io": {
        "schedulingPolicy": [{"gang": {"minGroupCount": 2}}, {"basic": {}}],
        "disruptionMode": [{"single": {}}, {"all": {}}],
        "preemptionPolicy": ["Never"],
        "priority": [10],
        "schedulingConstraints": [{"topology": [{"key": "rack"}]}],
        "parentCompositePodGroupName": ["all"],
    },
    "scheduling.volcano.sh": {
        "minMember": [1, 4],
        "minResources": [{"cpu": "1"}],
        "queue": ["default", "research"],
        "priorityClassName": ["high"],
        "networkTopology": [{"mode": "hard"}, {"mode": "soft"}],
        "minTaskMember": [{"worker": 2}],
        "subGroupPolicy": [
            [{"name": "a", "subGroupSize": 2}],
            [{"name": "a", "labelSelector": {}, "minSubGroups": 1}],
            [{"labelSelector": {"matchLabels": {"a": "b"}}, "matchLabelKeys": ["c"]}, {}],
        ],
    },
}
FIELDS["scheduler.grove.io"] = {
    "podgroups": [
        [{"name": "a", "minReplicas": 1, "podReferences": []}],
        [
            {"name": "a", "minReplicas": 1},
            {"name": "b", "minReplicas": 0, "topologyConstraint": {"packConstraint": 1}},
        ],
    ],
    "topologyConstraint": [
        {"packConstraint": {"required": "rack"}},
        {"packConstraint": {"preferred": "rack"}},
    ],
    "topologyConstraintGroupConfigs": [
        [
            {
                "name": "c",
                "podGroupNames": names,
                "topologyConstraint": {"packConstraint": {"required": "rack"}},
            }
        ]
        for names in (["a"], ["a", "b"], ["a", {}])
    ],
    "priorityClassName": ["high"],
    "reuseReservationRef": [{"name": "old"}],
}
BINDING = {
    "topologyConstraintGroupConfigs",
    "schedulingConstraints",
    "resourceClaims",
    "parentCompositePodGroupName",
    "networkTopology",
    "minTaskMember",
    "subGroupPolicy",
}
"""Fields that ask for more than a gang with a minimum."""


def anything(rng: random.Random, depth: int = 2) -> Any:
    """A random JSON value."""
    kinds = ["none", "bool", "int", "float", "text", *(["list", "dict"] if depth else [])]
    match rng.choice(kinds):
        case "none":
            return None
        case "bool":
            return rng.random() < 0.5
        case "int":
            return rng.choice([0, 1, -1, 2**31, 2**63, -(2**63)])
        case "float":
            return rng.choice([0.5, -1.5, 1e300])
        case "text":
            return rng.choice(
                ["", "1", "hard", "soft", "x" * 5000, "\x00", "no label", "kubernetes.io/hostname"]
            )
        case "list":
            return [anything(rng, depth - 1) for _ in range(rng.randrange(3))]
    words = ["mode", "key", "topology", "gang", "minCount", "name", "required", "packConstraint"]
    return {rng.choice(words): anything(rng, depth - 1) for _ in range(rng.randrange(3))}


def spec(rng: random.Random, fields: dict[str, list[Any]]) -> Any:
    """A random spec; now and then not even an object."""
    if rng.random() < 0.02:
        return anything(rng)
    chosen = rng.sample(sorted(fields), rng.randrange(len(fields) + 1))
    return {
        name: rng.choice(fields[name]) if rng.random() < 0.5 else anything(rng) for name in chosen
    }


def is_told(group: PodGroup, field: str) -> bool:
    """Whether the field has an effect, or somebody hears that it has none."""
    said = (*group.unsupported, *group.invalid, *group.not_used, *group.problems)
    levels = [
        level for each in (group, *group.parts) for level in (*each.topology, *each.tree_topology)
    ]
    is_honoured = bool(levels) or (field == "resourceClaims" and bool(group.claims))
    is_honoured = is_honoured or (field == "subGroupPolicy" and len(group.parts) > 2)
    is_honoured = is_honoured or (field == "minTaskMember" and bool(group.of_tasks))
    is_honoured = is_honoured or (field == "parentCompositePodGroupName" and bool(group.parent))
    return is_honoured or any(field in sentence for sentence in said)


@pytest.mark.long
@pytest.mark.parametrize("api_group", DIALECTS)
def test_random_objects_are_read_whole(api_group: str) -> None:
    """No exception; of a field that asks for a tree or a domain nothing is left out in silence."""
    print(f"seed {SEED}")
    rng = random.Random(f"{SEED}{api_group}")
    metadata = {
        "namespace": "ns",
        "name": "g",
        "uid": "u",
        "creationTimestamp": "2024-05-01T12:00:01Z",
    }
    told = 0
    for _ in range(OBJECTS):
        body = {"metadata": metadata, "spec": spec(rng, FIELDS[api_group])}
        group = parse_pod_group(body, api_group=api_group, version="v1")
        for part in group.parts:
            assert (part.of_object, part.unsupported, part.invalid) == (
                "g",
                group.unsupported,
                group.invalid,
            )
        asked = body["spec"] if isinstance(body["spec"], dict) else {}
        for field in BINDING & asked.keys():
            if asked[field] and not (
                isinstance(asked[field], dict) and not any(asked[field].values())
            ):
                assert is_told(group, field), (field, asked[field])
                told += 1
    print(f"{told} fields were honoured, refused or told")
    assert (told > 0) == bool(BINDING & FIELDS[api_group].keys())
