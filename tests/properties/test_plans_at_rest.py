"""A tree and a gang that wait for the same few nodes, with reservations: at rest nobody plans (Q3,
H5).
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from gangsched.api import keys
from gangsched.model.reservation import NotEntitled
from gangsched.state.rule_set import Rules
from tests.builders import gang_metadata, node, pod, pod_group, running
from tests.sizes import of_size
from tests.unit.state.reserving.test_reservations import LIMITS
from tests.world import World

SEED = 7
GPUS = 16
FENCED_S = 20.0
SETTLED_S = 200.0
"""In this time every reservation is made, and every search of it is over."""
PLANS_A_MINUTE = 2
LEVELS = ("", "kubernetes.io/hostname")


def crowded(dice: random.Random) -> World:
    """One or two nodes without free GPUs, and reservations that keep whole nodes after a while."""
    limits = replace(
        LIMITS,
        fence_after_s=FENCED_S,
        small_head_after_s=FENCED_S,
        small_head_latest_s=FENCED_S,
    )
    world = World(rules=Rules(reservations=limits))
    for number in range(dice.choice((1, 1, 2))):
        world.add_nodes(node(f"n{number}", GPUS, cpu_milli=dice.choice((8_000, 64_000))))
        world.create(running(pod(f"other-{number}", gpus=GPUS, scheduler_name="x"), f"n{number}"))

    return world


def waits(dice: random.Random, world: World, name: str, most: int, **stated: Any) -> None:
    """A gang whose members ask for different amounts, so that a search is long."""
    sizes = [dice.randint(1, 5) for _ in range(dice.randint(1, most))]
    metadata = gang_metadata(name, min_member=dice.randint(1, len(sizes)), **stated)
    created_s = world.wall_s()
    for number, gpus in enumerate(sizes):
        world.create(
            pod(
                f"{name}-{number}",
                gpus=gpus,
                cpu_milli=dice.randint(1, 40) * 37,
                gang_metadata=metadata,
                creation_s=created_s,
            )
        )


@pytest.mark.long
@pytest.mark.parametrize("seed", range(SEED, SEED + of_size(8, 400)))
def test_a_tree_and_a_gang_on_few_nodes_cause_few_plans(seed: int) -> None:
    """Two plans a minute at most; a third one where a start time takes longer than one plan."""
    print(f"seed {seed}")
    dice = random.Random(seed)
    world = crowded(dice)
    children = dice.randint(2, 10)
    stated = [(keys.MIN_CHILDREN[0], str(dice.randint(1, children)))]
    if level := dice.choice(LEVELS):
        stated.append((keys.TOPOLOGY[0], level))

    world.declare(pod_group("svc", None, gang_metadata=tuple(stated)))
    for number in range(children):
        waits(dice, world, f"c{number}", 5, parent="svc", topology=dice.choice(LEVELS))

    waits(dice, world, "h", 40)
    world.advance(SETTLED_S)

    for _ in range(3):
        before = len(world.plans)
        world.advance(60)
        reasons = [group.not_reserved for group in world.state.registry.groups.values()]
        is_long = any(
            each is not None and each.why is NotEntitled.TOO_MUCH_WORK for each in reasons
        )
        assert len(world.plans) - before <= PLANS_A_MINUTE + is_long
