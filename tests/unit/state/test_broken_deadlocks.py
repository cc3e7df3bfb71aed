"""Running gangs that each hold the room that the other needs (D2)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangsched.model.gang import namespace_of
from gangsched.model.objects import PermitStamp, Pod
from gangsched.model.preemption import BrokenDeadlock
from gangsched.model.protocol import Replaced
from gangsched.model.storage import ResourceClaim
from gangsched.state.broken_deadlocks import Question, deadlock_text
from gangsched.state.rule_set import Rules
from tests.builders import gang_metadata, members, node, pod, pod_group
from tests.unit.core.filter.volumes.test_extended_claims import holding
from tests.unit.state.test_served import devices_of, wanting, world_of
from tests.world import World

YIELDS = Rules(broken_deadlock=BrokenDeadlock.YIELD, broken_deadlock_after_s=600)
TEXT = "each of ns/a and ns/b waits for room that the other holds"


def deadlocked(rules: Rules | None = None, *, room: int = 2, preempts: bool = True) -> World:
    """Each of two gangs of two has lost a node; one GPU each is left, on one node."""
    world = World(
        node("n", room), node("a", 1), node("b", 1), rules=rules or Rules(), preempts=preempts
    )
    for place, name in enumerate(("a", "b")):
        world.declare(pod_group(name, 2))
        first = members(name, 1, pod_group=True, node_name="", creation_s=100 + place)
        second = members(name, 1, first=1, pod_group=True, creation_s=100 + place)
        world.create(on(first, "n"), on(second, name))
        world.settle()

    for name in ("a", "b"):
        lost = [pod for pod in world.pods.values() if pod.node_name == name]
        world.remove_node(name)
        world.delete(*lost)

    for place, name in enumerate(("a", "b")):
        world.create(members(name, 1, first=2, pod_group=True, creation_s=100 + place))
    return world.settle()


def on(pods: list[Pod], where: str) -> list[Pod]:
    """Pods that only one node takes."""
    selector = (("kubernetes.io/hostname", where),)
    return [msgspec.structs.replace(pod, shape=_on(pod, selector)) for pod in pods]


def _on(pod: Pod, selector: tuple[tuple[str, str], ...]) -> Any:
    key = (pod.shape, selector)
    if key not in _SHAPES:
        _SHAPES[key] = type(pod.shape)(requests=pod.shape.requests, node_selector=selector)
    return _SHAPES[key]


_SHAPES: dict[Any, Any] = {}


def test_both_are_told() -> None:
    """D2: by default nobody yields, however long it takes."""
    world = deadlocked()
    world.advance(2_000)

    told = {regarding: text for regarding, _, text in world.events("Degraded") if TEXT in text}
    assert told.keys() == {"PodGroup ns/a", "PodGroup ns/b"}
    assert world.gang_condition("a", "Degraded") == "True"
    assert set(world.bound()) == {"a-0", "b-0"}
    assert not world.ordered


def test_the_lower_rank_yields_as_a_whole() -> None:
    """D2, V13, V17: after ten minutes the younger one is evicted; then it queues as a whole."""
    world = deadlocked(YIELDS)
    world.advance(590)
    assert set(world.bound()) == {"a-0", "b-0"}

    world.advance(60)

    assert set(world.bound()) == {"a-0", "a-2"}
    world.create(members("b", 1, first=3, pod_group=True, creation_s=900))
    world.add_nodes(node("c", 1))
    world.advance(10)
    assert not {"b-2", "b-3"} & set(world.bound()), "one of its two members has no place"
    world.add_nodes(node("d", 1))
    world.advance(10)
    assert {"b-2", "b-3"} <= set(world.bound())


def test_nobody_yields_without_preemption() -> None:
    """D2: it is told."""
    world = deadlocked(YIELDS, preempts=False)
    world.advance(1_000)

    assert set(world.bound()) == {"a-0", "b-0"}
    assert any(TEXT in text for _, _, text in world.events("Degraded"))


def test_it_is_over_once_there_is_room() -> None:
    """D2: what was told is taken back, and the time begins anew."""
    world = deadlocked(YIELDS)
    world.advance(500)
    world.add_nodes(node("c", 1))
    world.advance(500)

    assert {"a-0", "a-2", "b-0"} <= set(world.bound())
    assert not world.ordered
    assert world.state.registry.gangs["ns/b"].deadlock == ""


def test_a_third_one_in_the_way_is_no_deadlock_of_two() -> None:
    """D2: even without the other one, neither would get its room."""
    world = deadlocked(room=2)
    world.delete(*(waits for waits in [*world.pods.values()] if not waits.node_name))
    for place, name in enumerate(("a", "b")):
        world.create(members(name, 1, first=3, gpus=2, pod_group=True, creation_s=100 + place))
    world.advance(1_000)

    assert not any(TEXT in text for _, _, text in world.events("Degraded"))


@pytest.mark.parametrize(
    ("pair", "namespace", "text"),
    [
        (("ml/a", "ml/b"), "ml", "each of ml/a and ml/b waits for room that the other holds"),
        (("ml/b", "ml/a"), "ml", "each of ml/a and ml/b waits for room that the other holds"),
        (
            ("ml/a", "of/b"),
            "ml",
            "it and a gang of another namespace each wait for room that the other holds",
        ),
    ],
)
def test_no_name_of_another_namespace_is_told(
    pair: tuple[str, str],
    namespace: str,
    text: str,
) -> None:
    """I4."""
    assert deadlock_text(*pair, namespace) == text
    assert namespace_of(pair[0]) == namespace or "of/" not in text


def test_devices_are_room_that_the_other_holds() -> None:
    """D2: two devices of one node serve one member of each gang, and each waits for another one."""
    world = world_of([node("n0", gpus=0)], [devices_of("n0", "aa")])
    claims = []
    for place, (name, device) in enumerate((("a", "a0"), ("b", "a1"))):
        world.declare(pod_group(name, 2))
        stated = gang_metadata(name, pod_group=True)
        fields: dict[str, Any] = {"gang_metadata": stated, "creation_s": 100 + place}
        runs, claim = holding(f"{name}-0", device, permitted=PermitStamp(2, 1), **fields)
        claims.append(claim)
        world.say(Replaced(ResourceClaim, tuple(claims)))
        world.create([runs, pod(f"{name}-1", of=wanting(1), **fields)])

    world.settle()
    world.advance(30)
    told = {about: text for about, _, text in world.told().events("Degraded")}
    assert TEXT in told["PodGroup ns/a"]
    assert TEXT in told["PodGroup ns/b"]


def test_who_waits_for_its_controller_is_not_asked_about() -> None:
    """D2: its lost member has no replacement yet, so that it waits for no room."""
    world = deadlocked()
    (waiting,) = (each for each in world.pods.values() if each.name == "b-2")
    world.delete(waiting)

    deadlocks = world.state.deadlocks
    asked: list[str] = []
    question = deadlocks.question

    def recorded(now_s: float) -> Question | None:
        made = question(now_s)
        if made is not None and not any(gang.waiting for gang in made.group.gangs):
            asked.append(made.group.id)
        return made

    deadlocks.question = recorded  # type: ignore[method-assign]
    world.advance(60)

    assert asked == []
    assert world.gang_condition("b", "Degraded") == "True"
