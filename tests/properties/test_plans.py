"""Plans over random clusters: order, rollback, and deadlocks that always end."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gangsched.core.cycle import plan
from gangsched.core.queue_sort import group_key
from gangsched.core.reserve import Ledger
from gangsched.model.gang import Group, Mode
from gangsched.model.objects import Phase, Pod
from gangsched.model.protocol import Applied, Message
from gangsched.model.reasons import Reason
from tests.builders import NAMESPACE, members, node, pod, pod_group, shape, snapshot
from tests.properties import promises
from tests.sizes import of_size
from tests.world import World

SHAPES = [shape(1, 100), shape(2, 50, 2**20), shape(0, 700), shape(4, 0)]

clusters = st.lists(
    st.tuples(st.integers(0, 8), st.integers(0, 3000), st.booleans()), min_size=1, max_size=5
)  # GPUs, milli-CPU, closed
gangs = st.lists(
    st.fixed_dictionaries(
        {
            "members": st.integers(1, 5),
            "gpus": st.sampled_from([1, 1, 2, 3, 4]),
            "min": st.sampled_from(["all", "all", "one less", "one"]),
            "mode": st.sampled_from(list(Mode)),
            "age": st.integers(0, 2),
            "priority": st.integers(0, 1),
            "paired": st.booleans(),
            "declared": st.booleans(),
        }
    ),
    min_size=1,
    max_size=5,
)


def history_of(
    drawn: list[dict[str, Any]], nodes: list[tuple[int, int, bool]]
) -> list[list[Message]]:
    """For each object the messages about it, in their order: created, and for some changed or gone
    again.
    """
    told: list[list[Message]] = [
        [
            Applied(node(f"n{n}", gpus, cpu_milli=cpu_milli)),
            Applied(node(f"n{n}", gpus, unschedulable=closed)),
        ]
        for n, (gpus, cpu_milli, closed) in enumerate(nodes)
    ]
    paired = [f"{NAMESPACE}/g{n}" for n, each in enumerate(drawn) if each["paired"]]
    for n, each in enumerate(drawn):
        least = {"all": each["members"], "one less": each["members"] - 1, "one": 1}[each["min"]]
        groups = paired if each["paired"] else ()
        stated = {} if each["declared"] else {"min_member": least, "mode": each["mode"].value}
        pods = members(
            f"g{n}",
            each["members"],
            gpus=each["gpus"],
            groups=groups,
            priority=each["priority"],
            creation_s=each["age"],
            pod_group=each["declared"],
            **stated,
        )
        pods = [
            pod(
                one.name,
                uid=f"{n}-{i}",
                of=one.shape,
                gang_metadata=one.gang_metadata,
                priority=one.priority,
                creation_s=one.creation_s,
            )
            for i, one in enumerate(pods)
        ]
        told += [[Applied(_gated(one)), Applied(one)] for one in pods]
        if each["declared"]:
            versions = [pod_group(f"g{n}", 9), pod_group(f"g{n}", least, generation=2)]
            told.append([Applied(version) for version in versions])
    return told


def _gated(one: Pod) -> Pod:
    return pod(
        one.name,
        uid=one.uid,
        of=one.shape,
        gang_metadata=one.gang_metadata,
        gated=True,
        creation_s=one.creation_s,
    )


def interleaved(told: list[list[Message]], seed: int) -> list[Message]:
    """The messages in an order of their own, those about one object in theirs."""
    queues = [list(each) for each in told]
    dice = random.Random(seed)
    order = [index for index, each in enumerate(queues) for _ in each]
    dice.shuffle(order)
    return [queues[index].pop(0) for index in order]


@settings(max_examples=of_size(20, 4_000))
@given(gangs, clusters, st.integers(0, 2**32), st.integers(0, 2**32))
def test_order_of_events_does_not_change_the_verdicts(
    drawn: list[dict[str, Any]], nodes: list[tuple[int, int, bool]], one: int, other: int
) -> None:
    """Q1, I4, I5: the same objects, heard of in any order, come to the same verdicts, binds and
    holds.
    """
    told = history_of(drawn, nodes)
    ends = []
    for seed in (one, other):
        world = World()
        for message in interleaved(told, seed):
            world.say(message)
            world.state.refresh(world.now_s)
        for message in [message for each in told for message in each[-1:]]:
            if isinstance(message, Applied) and isinstance(message.item, Pod):
                world.pods[message.item.uid] = message.item
        world.settle()
        verdicts = {name: record.verdict for name, record in world.state.registry.groups.items()}
        told_of = {name: (each.told, each.notes) for name, each in verdicts.items() if each}
        ends.append(
            (told_of, world.bound(), world.held(), sorted(world.state.registry.group_of.items()))
        )
    assert ends[0] == ends[1]


steps = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "reserve", "release", "mark", "rollback", "room"]),
        st.integers(0, 3),
        st.integers(0, 4),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=of_size(20, 4_000))
@given(clusters, steps)
def test_rollback_restores_exactly(
    nodes: list[tuple[int, int, bool]], taken: list[tuple[str, int, int, int]]
) -> None:
    """R2: whatever was reserved, released and rolled back in between, a rollback restores free room
    and rooms.
    """
    picture = snapshot(
        [node(f"n{n}", gpus, cpu_milli=cpu) for n, (gpus, cpu, _) in enumerate(nodes)]
    )
    ledger = Ledger(picture)
    start = ledger.checkpoint()
    checkpoints: list[tuple[int, Any]] = [(start, picture.free.copy())]
    for what, kind, where, number in taken:
        index = where % len(nodes)
        match what:
            case "reserve":
                ledger.reserve(
                    [pod("p", of=SHAPES[kind])] * number, np.array([index]), np.array([number])
                )
            case "release":
                ledger.release(pod("p", of=SHAPES[kind]), f"n{index}")
            case "mark":
                checkpoints.append((ledger.checkpoint(), ledger.free.copy()))
            case "rollback" if len(checkpoints) > 1:
                checkpoint, before = checkpoints.pop()
                ledger.rollback(checkpoint)
                assert np.array_equal(ledger.free, before)
            case _:
                assert ledger.room(SHAPES[kind]).min() >= 0
    ledger.rollback(start)
    assert np.array_equal(ledger.free, picture.free)
    fresh = Ledger(picture)
    for each in SHAPES:
        assert np.array_equal(ledger.room(each), fresh.room(each))


arrivals = st.lists(
    st.fixed_dictionaries(
        {
            "members": st.integers(1, 5),
            "gpus": st.sampled_from([1, 1, 1, 2, 3]),
            "age": st.integers(0, 9),
            "priority": st.integers(0, 1),
            "wait": st.sampled_from([20, 40]),
            "frees": st.integers(0, 3),
        }
    ),
    min_size=2,
    max_size=6,
)


def fits_alone(world: World, group: Group, beside: set[str]) -> bool:
    """Whether the group would be permitted if only bound pods and the holds of `beside`
    took room.
    """
    placed = [(one, one.node_name) for one in world.pods.values() if one.node_name]
    for other in world.state.registry.groups:
        if other in beside | {group.id}:
            gangs_of = world.state.registry.group(other, world.now_s).gangs
            placed += [(hold.pod, hold.node) for each in gangs_of for hold in each.held]
    (verdict,) = plan(snapshot(world.nodes.values(), placed), [group], now_s=world.now_s).verdicts
    return verdict.reason is Reason.SCHEDULED


def deadlock_has_ended(world: World) -> None:
    """D1: no holder could be permitted by the holds of those ranked behind it."""
    groups = [world.state.registry.group(name, world.now_s) for name in world.state.registry.groups]
    holders = sorted((each for each in groups if each.holds), key=group_key)
    for rank, holder in enumerate(holders):
        ahead = {each.id for each in holders[:rank]}
        assert not fits_alone(world, holder, ahead), (
            f"{holder.id} could start if those behind it yielded"
        )


@settings(max_examples=of_size(20, 4_000))
@given(arrivals, st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_deadlocks_of_holds_always_end(drawn: list[dict[str, Any]], sizes: list[int]) -> None:
    """D1, T2: NonStrict gangs come while room is freed bit by bit; at rest no holder is kept back
    by lower ranks, and when all wait times are over every gang has started, timed out, or does not
    fit even alone."""
    world = World(*[node(f"n{n}", gpus) for n, gpus in enumerate(sizes)])
    fillers = world.create(
        [
            pod(f"filler-{n}-{i}", uid=f"filler-{n}-{i}", node_name=f"n{n}", phase=Phase.RUNNING)
            for n, gpus in enumerate(sizes)
            for i in range(gpus)
        ]
    )
    for number, each in enumerate(drawn):
        world.create(
            members(
                f"g{number}",
                each["members"],
                gpus=each["gpus"],
                mode="NonStrict",
                wait=f"{each['wait']}s",
                creation_s=each["age"],
                priority=each["priority"],
            )
        )
        world.delete(*[fillers.pop() for _ in range(min(each["frees"], len(fillers)))])
        world.settle()
        deadlock_has_ended(world)
    world.delete(*fillers)
    world.settle()
    deadlock_has_ended(world)
    promises.never_over_committed(world)
    world.advance(200)
    assert not world.held()
    for name in world.state.registry.groups:
        group = world.state.registry.group(name, world.now_s)
        waits = any(gang.pending for gang in group.gangs)
        out = any(gang.timed_out for gang in group.gangs)
        assert not waits or out or not fits_alone(world, group, set()), f"{name} fits and waits"
