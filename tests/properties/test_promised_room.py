"""Nominations and reservations promise room in two ways (decision 0116), which leave others the
same room.
"""

from __future__ import annotations

import random
from math import inf

import numpy as np
import pytest
from msgspec import structs

from gangsched.core.placement_attempt import PlacementAttempt
from gangsched.core.reservations.passing import Backfill, Kept
from gangsched.core.reserve import Ledger
from gangsched.core.scopes import usable
from gangsched.model.nominated_room import NominatedRoom, Nomination
from tests import builders
from tests.sizes import of_size

NODES, PRIORITIES = 6, 5


@pytest.mark.long
@pytest.mark.parametrize("seed", range(of_size(40, 4_000)))
def test_a_nomination_leaves_as_much_room_as_a_reservation_without_a_start(seed: int) -> None:
    """V10, H8: of those of at least its lowest priority, without its own, and without what leaving
    pods still use.
    """
    dice = random.Random(seed)
    nodes = [builders.node(f"n{number}", 8) for number in range(NODES)]
    empty = builders.snapshot(nodes)
    nominations = [
        Nomination(
            dice.choice(nodes).name,
            builders.pod(
                f"p{number}", gpus=dice.randint(1, 4), priority=dice.randrange(PRIORITIES)
            ),
            f"ns/g{dice.randrange(4)}",
            ((builders.GPU, 1),) if dice.random() < 0.3 else (),
        )
        for number in range(dice.randint(1, 8))
    ]
    promised = structs.replace(empty, nominated=NominatedRoom.of(nominations, empty.layout))
    nominating, reserving = Ledger(promised), Ledger(empty)
    for priority, name in (
        (priority, name) for priority in range(PRIORITIES) for name in ("ns/other", "ns/g0")
    ):
        pod = builders.pod("waits", gpus=dice.randint(1, 4), priority=priority)
        group = builders.group(builders.gang(name, [pod]), priority=priority)
        nominating.respect_nominations(priority, but=name)
        others = [
            each for each in nominations if each.pod.priority >= priority and each.group != name
        ]
        change = empty.layout.sums((each.node, each.freed) for each in others)
        change -= empty.layout.sums((each.node, each.pod.shape.requests) for each in others)
        kept = [Kept("head", priority, -inf, np.arange(NODES), change)]
        reserving.promises.reserved = Backfill(kept, reserving, wall_s=0.0)
        attempts = [PlacementAttempt(group, ledger) for ledger in (nominating, reserving)]
        there = [usable(pod.shape, attempt).tolist() for attempt in attempts]
        assert there[0] == there[1], f"seed {seed}, priority {priority}, {name}"
