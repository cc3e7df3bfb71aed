"""Gangs as objects: versions, changes and what others may make of them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gangsched.api import keys
from gangsched.api.timestamps import parse_timestamp
from gangsched.model.objects import Phase
from gangsched.model.reservation import ReservationLimits
from gangsched.state.rule_set import Rules
from gangsched.telemetry.history import History
from gangsched.visibility.gangs import store as store_module
from gangsched.visibility.gangs.store import GangStore
from gangsched.visibility.ports import Clocks
from tests.builders import members, node, pod, pod_group
from tests.world import World


async def no_pause() -> None:
    """Nothing else has to run."""


class Store:
    """The store of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        clocks = Clocks(now_s=lambda: world.now_s, wall_s=lambda: 2_000_000_000 + world.now_s)
        self.store = GangStore(
            world.state, clocks, served_by=lambda: {"role": "leader"}, history=History(lambda: 0.0)
        )

    async def read(self, namespace: str = "") -> list[dict[str, Any]]:
        """All gangs, a moment later."""
        self.world.now_s += 1.1
        keys = await self.store.keys(namespace, no_pause)
        return [json.loads(entry.body) async for entry in self.store.entries(keys, no_pause)]


async def test_every_gang_of_ours_is_shown_and_no_plain_pod() -> None:
    """By annotation and by PodGroup; pods of other schedulers and plain pods are left out."""
    world = World(node("a", 4))
    world.declare(pod_group("declared", 2))
    world.create(
        members("declared", 2, gpus=3, pod_group=True), members("Odd name/1", 1), [pod("plain")]
    )
    world.create(members("foreign", 2, scheduler_name="other"))
    gangs = await Store(world.settle()).read()
    assert [each["metadata"]["name"] for each in gangs] == ["Odd name/1", "declared"]
    odd, declared = gangs
    assert odd["spec"]["declaredBy"] == "annotation gang.scheduling.koordinator.sh/name"
    assert odd["status"]["members"] == {"total": 1, "byState": {"bound": 1}}
    assert odd["status"]["nodes"] == ["a"]
    assert declared["metadata"]["uid"] == "pg-declared"
    assert declared["spec"] == {
        "declaredBy": "PodGroup scheduling.x-k8s.io/v1alpha1",
        "mode": "Strict",
        "waitTimeSeconds": 600.0,
        "min": 2,
        "group": [],
    }


async def test_watches_are_woken_for_what_a_list_has_noted() -> None:
    """A change that somebody's list has found first is told with the next look at all gangs, and
    not a minute later.
    """
    store = Store(World(node("a", 1)))
    await store.read()
    seen = store.store.version
    store.world.create(members("g", 2))
    store.world.advance(1)
    await store.read()
    assert store.store.version > seen

    async def woken() -> None:
        async with store.store.changed:
            await store.store.changed.wait()

    watch = asyncio.create_task(woken())
    await asyncio.sleep(0)
    await store.store.observe(no_pause)
    await asyncio.wait_for(watch, 5)


async def test_a_gang_that_waits_says_where_and_what_it_lacks() -> None:
    """Position among all groups, plain pods among them; two pods of three GPUs where one node has
    four.
    """
    world = World(node("a", 4), node("b", 2))
    world.create(
        [pod("first", gpus=8, creation_s=10)], members("g", 2, gpus=3), members("later", 1, gpus=8)
    )
    gangs = {
        each["metadata"]["name"]: each["status"] for each in await Store(world.settle()).read()
    }
    assert (gangs["g"]["position"], gangs["g"]["before"], gangs["later"]["position"]) == (2, 1, 3)
    assert gangs["g"]["reason"] == "Unschedulable"
    assert gangs["g"]["lacks"] == {
        "resource": "nvidia.com/gpu",
        "amount": "3",
        "freeOnOneNode": "4",
        "largestHole": "4",
    }
    facts: Any = gangs["g"]["facts"]
    assert (facts["gang"], facts["fits"], facts["atMost"]) == ("ns/g", 1, False)
    assert facts["needs"] == {"pods": 2, "requests": {"nvidia.com/gpu": "3"}}
    assert facts["scarcest"]["freeOnOneNode"] == "4"
    assert gangs["g"]["queue"] == "parked"
    assert gangs["g"]["lastDecisionAgeSeconds"] == 1


async def test_versions_change_with_the_gang_and_not_with_time() -> None:
    """Each change has a later version, in the order of a watch; the age of a decision is none."""
    world = World(node("a", 4))
    world.create(members("g", 2, gpus=3))
    store = Store(world.settle())
    (before,) = await store.read()
    version = store.store.version
    (same,) = await store.read()
    assert same["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert store.store.changes_after(version, "") == []
    world.add_nodes(node("b", 4))
    world.settle()
    (bound,) = await store.read()
    world.delete(*world.pods.values())
    world.settle()
    assert await store.read() == []
    changes = store.store.changes_after(version, "ns")
    assert changes is not None
    assert [change.kind for change in changes] == ["MODIFIED", "DELETED"]
    versions = [version, *(change.version for change in changes)]
    assert versions == sorted(set(versions))
    assert int(bound["metadata"]["resourceVersion"]) == changes[0].version
    assert store.store.changes_after(version, "other") == []


async def test_a_gang_that_was_asked_for_by_name_is_still_news_for_who_lists() -> None:
    """A get takes no change away from a watch, and its answer says what is true now."""
    world = World(node("a", 4))
    store = Store(world.settle())
    await store.read()
    version = store.store.version
    world.create(members("g", 1))
    world.settle()
    world.now_s += 2
    entry = await store.store.entry(("ns", "g"), no_pause)
    assert entry is not None
    assert store.store.version == version
    await store.read()
    changes = store.store.changes_after(version, "")
    assert changes is not None
    assert [change.kind for change in changes] == ["ADDED"]
    assert await store.store.entry(("ns", "nosuch"), no_pause) is None


async def test_a_version_of_another_replica_or_of_long_ago_is_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Then a watch is answered 410, and what is remembered of changes is bounded."""
    monkeypatch.setattr(store_module, "MOST_CHANGES", 256)
    world = World(node("a", 4))
    world.create(members("g", 1))
    store, other = Store(world.settle()), Store(world)
    await store.read()
    first = store.store.version
    assert store.store.knows(first)
    if other.store.version % 1024 != first % 1024:
        assert not other.store.knows(first)
    assert not store.store.knows(first + 1024)
    for _ in range(2):  # they come, and go
        many = [
            each for number in range(256 // 4 + 1) for each in members(f"h{number}", 1, gpus=99)
        ]
        world.create(many)
        world.settle()
        await store.read()
        world.delete(*many)
        world.settle()
        await store.read()
    assert not store.store.knows(first)
    assert store.store.changes_after(first, "") is None


def reserved_world() -> World:
    """One gang and one of another namespace have all room until their ends; a gang waits for both,
    and has a reservation.
    """
    world = World(
        node("a", 4),
        node("b", 4),
        rules=Rules(reservations=ReservationLimits(share=1.0)),
    )
    created_s = world.wall_s()
    ends: dict[str, Any] = {
        "run_time_metadata": ((keys.EXPECTED_RUNTIME, "3600s"),),
        "creation_s": created_s,
    }
    runs = members("runs", 1, gpus=4, priority=9, **ends)
    world.create(runs, members("theirs", 1, gpus=4, priority=9, namespace="other", **ends))
    world.settle()
    for one in world.pods.values():
        world.update(one, start_s=created_s, phase=Phase.RUNNING)
    world.create(members("waits", 2, gpus=4, priority=7, **ends))
    world.advance(60)
    assert world.state.reservations.standing
    return world


async def test_what_is_reserved_is_told_without_names_of_others() -> None:
    """H13: the promise with the time and the sentence of the condition; what must end first is
    named in the own namespace and counted elsewhere. Nodes are not in it.
    """
    world = reserved_world()
    told = {each["metadata"]["name"]: each["status"] for each in await Store(world).read("ns")}
    waits = told["waits"]
    reserved = waits["reserved"]
    assert (reserved["kind"], reserved["promised"]) == ("timed", True)
    assert reserved["startTime"][:16] in reserved["message"]
    assert waits["message"].endswith(f"R{reserved['message'][1:]}.")
    assert waits["waitsFor"] == {"own": ["runs"], "ownCount": 1, "others": 1}
    assert "theirs" not in json.dumps(waits)
    assert "nodes" not in reserved
    assert waits["priority"] == 7
    assert waits["needs"] == [{"pods": 2, "requests": {"nvidia.com/gpu": "4"}}]
    assert waits["runTimeSeconds"] == 3_600
    assert "startedAt" not in waits


async def test_a_gang_that_runs_has_a_start_and_no_place_in_the_queue() -> None:
    """The expected end is the start and the declared run time."""
    world = reserved_world()
    told = {each["metadata"]["name"]: each["status"] for each in await Store(world).read("ns")}
    runs = told["runs"]
    started_s, end_s = (parse_timestamp(runs[key]) for key in ("startedAt", "expectedEnd"))
    assert started_s is not None
    assert end_s == started_s + 3_600
    assert not {"queue", "position", "waitingSince", "reserved", "waitsFor"} & set(runs)
    assert told["waits"]["queue"] == "parked"


async def test_the_queue_has_places_only_and_in_order() -> None:
    """Positions count the groups of all namespaces; those that run are not in it."""
    world = World(node("a", 1))
    world.create(members("runs", 1))
    world.settle()
    world.create(members("low", 1), members("high", 1, priority=5))
    world.create(members("theirs", 1, namespace="other", priority=9))
    store = Store(world.settle()).store
    assert await store.queue("", no_pause) == [
        {"namespace": "other", "name": "theirs", "position": 1},
        {"namespace": "ns", "name": "high", "position": 2},
        {"namespace": "ns", "name": "low", "position": 3},
    ]
    own = await store.queue("ns", no_pause)
    assert [(each["name"], each["position"]) for each in own] == [("high", 2), ("low", 3)]
