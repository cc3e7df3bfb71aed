"""Sums of room: they refuse nothing that a round permits, and are exact where they say so."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gangsched.core.reservations.head_sums import HeadSums
from gangsched.core.reservations.heads import Head, empty_ledger
from gangsched.core.reserve import Ledger
from gangsched.core.rounds import run_round
from gangsched.model.gang import Gang, Group
from gangsched.model.gpu_policy import PlacementConstraints
from gangsched.model.plan import RoundOutcome
from tests.builders import gang, group, node, pod, running, snapshot
from tests.sizes import of_size

NODES = [node(name, labels={"rack": rack}) for name, rack in zip("abcdef", "xxxyyy", strict=True)]


def both(owner: Group, taken: list[int]) -> tuple[bool, bool]:
    """Whether sums and a round permit the group, with so many GPUs taken on each node."""
    there = [
        (running(pod(f"on-{n}", gpus=gpus), NODES[n].name), NODES[n].name)
        for n, gpus in enumerate(taken)
        if gpus
    ]
    now = snapshot(NODES, there)
    ledger = Ledger(now)
    sums = HeadSums(Head(owner, owner, owner.gangs, 0), empty_ledger(now))
    only = np.full_like(ledger.free, -(10**6))
    only[sums.rows] = ledger.free[sums.rows]
    return (
        sums.enough(only),
        run_round(owner, owner.gangs, ledger)[1].outcome is RoundOutcome.PERMITTED,
    )


@pytest.mark.long
@pytest.mark.parametrize("topology", ["", "rack"])
def test_sums_refuse_nothing_that_a_round_permits(topology: str) -> None:
    """Gangs of mixed sizes on nodes in use; where sizes divide one another sums and round agree."""
    dice, agreed, number = random.Random(7), 0, of_size(120, 400)
    for _ in range(number):
        asked = [dice.choice((1, 2, 3, 4, 8)) for _ in range(dice.randint(1, 5))]
        pods = [pod(f"p{n}", gpus=gpus) for n, gpus in enumerate(sorted(asked, reverse=True))]
        least = dice.choice((len(pods), dice.randint(1, len(pods))))
        constraints = PlacementConstraints(topology=(topology,) if topology else ())
        one = gang("ns/g", pods, min_member=least, constraints=constraints)
        summed, permitted = both(
            group(one), [dice.choice((0, 0, 1, 2, 4, 5, 6, 8, 8, 8)) for _ in NODES]
        )
        assert summed or not permitted, asked
        if 3 not in asked and least == len(pods):
            assert summed == permitted, asked
            agreed += 1
    assert agreed > number // 8


def two(*sizes: int) -> tuple[Gang, Gang]:
    """Two gangs of these pods each."""
    first, second = (
        [pod(f"{name}{n}", gpus=gpus) for n, gpus in enumerate(sizes)] for name in "ab"
    )
    return gang("ns/a", first), gang("ns/b", second)


def test_gangs_of_a_group_do_not_share_room() -> None:
    """Each gang alone would fit into what is free."""
    owner = group(*two(8, 4))
    assert both(owner, [0, 4, 8, 8, 8, 8]) == (False, False)
    assert both(owner, [0, 0, 4, 4, 8, 8]) == (True, True)


def test_min_resources_must_be_free_in_sum() -> None:
    """P4, though the round alone would permit the gang."""
    one = gang("ns/g", [pod("p")], min_resources=(("nvidia.com/gpu", 17),))
    assert both(group(one), [0, 0, 8, 8, 8, 8]) == (False, True)
    assert both(group(one), [0, 0, 7, 8, 8, 8]) == (True, True)
