"""What of the rules takes a whole gang: its run time (H1), and what a native PodGroup asks
of it.
"""

from __future__ import annotations

import math

import msgspec
import pytest

from gangsched.api import keys
from gangsched.model.objects import Pod
from gangsched.model.protocol import Applied, Replaced
from tests.builders import members, node, pod, pod_group
from tests.world import World


def stating(text: str, deadline_s: int | None = None) -> tuple[tuple[str, str], ...]:
    """The metadata of a pod with this run time; "" for none."""
    return keys.run_time_metadata({}, {keys.EXPECTED_RUNTIME: text} if text else {}, deadline_s)


@pytest.mark.parametrize(
    ("texts", "of_group", "expected"),
    [
        (("1h", "2h"), "", 7200.0),
        (("1h", ""), "", math.inf),
        (("1h", ""), "3h", 10_800.0),
        (("", ""), "30m", 1800.0),
        (("", ""), "", math.inf),
    ],
)
def test_gang_runs_as_long_as_its_longest_member(
    texts: tuple[str, ...], of_group: str, expected: float
) -> None:
    """H1: a pod's own statement comes before its PodGroup's; one unknown member makes the gang
    unknown.
    """
    world = World()
    stated = keys.pod_group_metadata({keys.EXPECTED_RUNTIME: of_group} if of_group else {})
    world.declare(pod_group("g", 2, gang_metadata=stated))
    pods = members("g", 2, pod_group=True)
    world.create(
        *(
            msgspec.structs.replace(pod, run_time_metadata=stating(text))
            for pod, text in zip(pods, texts, strict=True)
        )
    )
    world.settle()
    assert world.state.registry.group("ns/g", world.now_s).run_time_s == expected


def test_deadline_caps_a_run_time() -> None:
    """H1: what the kubelet enforces counts before what the owner states, and an edit counts at
    once.
    """
    world = World()
    (single,) = world.create(pod("p", run_time_metadata=stating("1h", 30)))
    world.settle()
    assert world.state.registry.view("pod:ns/p").run_time_s == 30
    world.say(Applied(msgspec.structs.replace(single, run_time_metadata=stating("10s", 30))))
    world.settle()
    assert world.state.registry.view("pod:ns/p").run_time_s == 10


def test_ten_thousand_bad_run_times_are_a_few_problems() -> None:
    """H1, E4: whatever the members of one gang state, its condition stays short; those that go do
    not count.
    """
    world = World()
    pods = [
        msgspec.structs.replace(pod, run_time_metadata=stating(f"x{number}"))
        for number, pod in enumerate(members("g", 10_000))
    ]
    world.create(pods[:1], pods[1:])
    world.settle()
    record = world.state.registry.gangs["ns/g"]
    assert 0 < len(record.problems) <= 5
    assert record.run_time.seconds == math.inf
    world.say(Replaced(Pod, (msgspec.structs.replace(pods[0], run_time_metadata=stating("1h")),)))
    world.settle()
    assert (record.problems, record.run_time.seconds) == ((), 3600)


@pytest.mark.parametrize(
    "field", ["schedulingConstraints", "resourceClaims", "parentCompositePodGroupName"]
)
def test_a_native_podgroup_that_asks_for_more_than_can_be_honoured_waits(field: str) -> None:
    """Nothing a user writes is ignored: the gang waits and names the field, and starts when it is
    taken out.
    """
    world = World(node("a", 8))
    asks = pod_group(
        "g",
        2,
        api_group=keys.NATIVE,
        version="v1alpha2",
        unsupported=(f"spec.{field} of PodGroup ns/g",),
    )
    world.declare(asks)
    pods = world.create([pod(f"g-{number}", native_group="g") for number in range(2)])
    world.told()
    assert not world.bound()
    reason, message = world.condition(pods[0])
    assert (reason, message.partition(" of ")[0]) == ("Unsupported", f"spec.{field}")
    world.declare(msgspec.structs.replace(asks, unsupported=(), resource_version="2"))
    assert set(world.settle().bound()) == {"g-0", "g-1"}


def test_a_native_podgroup_with_another_priority_than_its_pods_waits() -> None:
    """Pods' priorities decide; a PodGroup that states another one is not started under that of the
    pods unseen.
    """
    world = World(node("a", 8))
    world.declare(pod_group("g", 1, api_group=keys.NATIVE, version="v1alpha2", priority=1000))
    (low,) = world.create([pod("g-0", native_group="g", priority=10)])
    world.told()
    assert (
        "spec.priority 1000 of PodGroup ns/g is not used, since its pods have another priority, 10"
        in world.condition(low)[1]
    )
    world.update(low, priority=1000)
    assert set(world.settle().bound()) == {"g-0"}


SLICES = ((keys.SLICES[0], '[{"size": 2, "topology": "rack"}]'),)


def test_members_with_slices_are_told_apart_by_index() -> None:
    """L6, E4: as long as each has one of its own; else by their order, which is told; those that
    run keep theirs.
    """
    world = World()
    world.say(Applied(node("a", labels={"rack": "r"})))
    world.declare(pod_group("g", 2, gang_metadata=SLICES))
    pods = members("g", 4, pod_group=True)
    numbered = [msgspec.structs.replace(each, index=index) for index, each in enumerate(pods)]
    world.create(*numbered[:3])
    world.settle()
    record = world.state.registry.gangs["ns/g"]
    view = world.state.registry.view("ns/g")
    assert (view.indexed, view.standing, record.problems) == (
        True,
        ((0, "a"), (1, "a"), (2, "a")),
        (),
    )
    world.create(msgspec.structs.replace(pods[3], index=2))
    world.settle()
    assert not world.state.registry.view("ns/g").indexed
    assert [problem.text for problem in record.problems] == [
        "Pods ns/g-2 and ns/g-3 have the same index, so slices cannot be formed by index. "
        "Used instead: the order of members."
    ]


def test_members_without_any_index_ask_for_none() -> None:
    """L6: slices are then made in the order of members, without a word; one without among others is
    told.
    """
    world = World()
    world.declare(pod_group("g", 2, gang_metadata=SLICES))
    world.create(*members("g", 2, pod_group=True))
    world.settle()
    record = world.state.registry.gangs["ns/g"]
    assert (world.state.registry.view("ns/g").indexed, record.problems) == (False, ())
    world.create(*members("g", 1, first=2, pod_group=True, index=2))
    world.settle()
    assert "Pod ns/g-0 has no index" in record.problems[0].text
