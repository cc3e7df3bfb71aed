"""Objects of all dialects with hostile values, from their JSON to what their pods are told
(semantics A2, A5, I8, E1).

A history declares a gang by one object, edits it, and deletes it, while two of its pods wait. No
value raises, sets anything aside, or leaves a pod without a word.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from gangsched.api import keys
from gangsched.api.dialects import DIALECTS
from gangsched.api.pod_metadata import pod_gang_metadata
from gangsched.kube.read.podgroup_store import PodGroupStore
from gangsched.model.gang import COMPOSITE_PREFIX
from gangsched.model.objects import Pod
from tests.builders import node, pod, pod_group
from tests.properties.sized_objects import inflated, places_in
from tests.properties.test_dialects import FIELDS, anything
from tests.sizes import of_size
from tests.world import World

SEED = 48
HISTORIES = of_size(100, 4_000)
"""For each of the dialects."""
NUMBERS = (0, -1, 2**31, 2**63, -(2**63), 10**400, 1e308, -0.0, 1e-320, True)
TEXTS = (
    "",
    " ",
    "0",
    "-1",
    "1e999",
    "\x00",
    "\ud7ff",
    "🜲" * 300,
    "x" * 70_000,
    "a/b/c",
    "g",
    "../../etc",
    "\u202e",
)


def hostile(rng: random.Random, value: Any) -> Any:
    """A valid value with something wrong in it."""
    match rng.randrange(8):
        case 0:
            return anything(rng, 3)
        case 1:
            return rng.choice(NUMBERS)
        case 2:
            return rng.choice(TEXTS)
        case 3:
            return nested(rng.choice([31, 33, 200]), rng)
        case 4 if places := list(places_in(value)):
            return inflated(value, rng.choice(places), rng.choice([0, 2, 130, 1_025, 5_000]))
        case 5 if isinstance(value, dict) and value:
            name = rng.choice(sorted(value))
            return {**value, name: hostile(rng, value[name])}
        case 6 if isinstance(value, list) and value:
            return [hostile(rng, value[0]), *value, *value]
    return value


def nested(depth: int, rng: random.Random) -> Any:
    """Lists and maps inside each other."""
    value: Any = rng.choice([1, {}, []])
    for _ in range(depth):
        value = [value] if rng.random() < 0.5 else {rng.choice(["topology", "gang", "name"]): value}
    return value


def spec(rng: random.Random, api_group: str) -> Any:
    """A spec of which some fields are hostile."""
    fields = FIELDS[api_group]
    if rng.random() < 0.03:
        return anything(rng)
    chosen = rng.sample(sorted(fields), rng.randrange(1, len(fields) + 1))
    valid = {name: rng.choice(fields[name]) for name in chosen}
    return {
        name: hostile(rng, value) if rng.random() < 0.6 else value for name, value in valid.items()
    }


def member(api_group: str, index: int) -> Pod:
    """A pod whose gang the object declares."""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    native_group = ""
    match api_group:
        case keys.NATIVE:
            native_group = "g"
        case keys.COMPOSITE:
            native_group = "child"
        case keys.VOLCANO:
            annotations = {keys.VOLCANO_GROUP: "g"}
            labels = {"a": "b", "c": str(index)}
        case keys.GROVE:
            labels = {keys.GROVE_GANG: "g", keys.GROVE_CLIQUE: "a"}
        case _:
            own = [mark for mark in keys.IDENTITIES if api_group in mark.api_groups]
            (labels if own[0].label else annotations)[own[0].key] = "g"
    metadata = pod_gang_metadata(labels, annotations)
    return pod(
        f"p-{index}", gpus=1, gang_metadata=metadata, labels=labels, native_group=native_group
    )


def run(rng: random.Random, api_group: str) -> int:
    """One history; the number of pods that were told why they wait."""
    world = World(node("n-0", gpus=1, labels={"rack": "r"}))
    complaints: list[str] = []
    store = PodGroupStore(api_group, world.say, complaints.append)
    if api_group == keys.COMPOSITE:
        parent = f"{COMPOSITE_PREFIX}g"
        child = pod_group("child", 2, api_group=keys.NATIVE, version="v1alpha3", parent=parent)
        world.declare(child)
    world.create([member(api_group, index) for index in range(2)])

    dialect = DIALECTS[api_group]
    for version in range(2):
        metadata = {"namespace": "ns", "name": "g", "uid": "u", "resourceVersion": str(version + 1)}
        metadata["creationTimestamp"] = rng.choice(["2030-01-01T00:00:00Z", "never", ""])
        annotations = (
            {rng.choice(sorted(keys.VALUE_KEYS)): rng.choice(TEXTS)}
            if rng.random() < 0.3
            else anything(rng)
        )
        body = {
            "apiVersion": f"{dialect.api_group}/v1",
            "kind": dialect.kind,
            "metadata": {**metadata, "annotations": annotations},
            "spec": spec(rng, api_group),
            "status": (
                anything(rng)
                if rng.random() < 0.5
                else {"conditions": hostile(rng, [{"type": "Scheduled"}])}
            ),
        }
        raw = msgspec.json.encode(body)
        store.applied(msgspec.json.decode(raw), "v1")
        assert not complaints, complaints
        world.settle().advance_settled(2.0)
        check(world)

    told = check(world)
    store.gone(body)
    world.settle().advance_settled(2.0)
    check(world)
    return told


def check(world: World) -> int:
    """Fail if a pod waits without a word, or for an error of ours; the number of those
    that wait.
    """
    waiting = [each for each in world.pods.values() if not each.node_name]
    for each in waiting:
        reason, message = world.condition(each)
        assert reason, each.name
        assert message, each.name
        assert reason != "InternalError", message
    return len(waiting)


@pytest.mark.long
@pytest.mark.parametrize("api_group", DIALECTS)
def test_hostile_values_are_told(api_group: str) -> None:
    """A2, A5, I8: whatever an object says, nothing raises, and pods that wait know why."""
    told = 0
    for number in range(HISTORIES):
        seed = f"{SEED}-{api_group}-{number}"
        try:
            told += run(random.Random(seed), api_group)
        except Exception:
            print(f"seed {seed}")
            raise
    print(f"{HISTORIES} histories of {api_group}, {told} pods told")
    assert told > 0
