"""Pods that end together share nodes (H10)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from gangsched.core.cycle import plan
from gangsched.model.plan import Plan
from gangsched.model.reservation import ReservationLimits, Reserving
from gangsched.model.snapshot import Floats, NodeTable
from tests.builders import gang, group, node, pod, snapshot

WALL_S = 1e9
HOUR_S = 3600.0
NEVER = math.inf
EMPTY = -math.inf


def nobody() -> Any:
    """No reservation stands, so that nobody asks for occupants."""
    raise AssertionError


def planned(
    run_time_s: float | list[float],
    last_hours: list[float],
    *,
    gpus: int = 1,
    used: int = 4,
    on: bool = True,
) -> Plan:
    """A plan for pods of these run times on nodes `a`, `b`, … of 8 GPUs; others use `used` for so
    many hours.
    """
    names = "abcdef"[: len(last_hours)]
    taken = [
        (pod(f"on-{name}", gpus=used), name)
        for name, end in zip(names, last_hours, strict=True)
        if end != EMPTY
    ]
    asked: list[NodeTable] = []

    def ask(table: NodeTable) -> Floats:
        asked.append(table)
        return WALL_S + HOUR_S * np.array(last_hours)

    times = run_time_s if isinstance(run_time_s, list) else [run_time_s]
    queue = [
        group(
            gang(f"ns/g{number}", [pod(f"p{number}", gpus=gpus)], run_time_s=each),
            creation_s=number,
        )
        for number, each in enumerate(times)
    ]
    reserving = Reserving(
        limits=ReservationLimits(reservations=8 if on else 0),
        wall_s=WALL_S,
        occupants=nobody,
        last_ends=ask,
    )
    found = plan(
        snapshot([node(name) for name in names], taken), queue, now_s=0.0, reserving=reserving
    )
    assert len(asked) <= 1
    assert bool(asked) == (on and gpus > 0 and any(each < math.inf for each in times))
    return found


def places(found: Plan) -> list[str]:
    """Where its pods go, in the order of its groups."""
    return [bind.node for verdict in found.verdicts for bind in verdict.binds]


@pytest.mark.parametrize(
    ("run_hours", "last_hours", "where"),
    [
        (4.0, [1, 2, 4], "c"),  # it keeps a for 3 hours longer, b for 2
        (4.0, [1, 3, 3.5], "b"),  # an hour is as good as none: the rules after this one decide
        (4.0, [1, NEVER, 2], "b"),
        (0.5, [EMPTY, 0.1, 9], "b"),  # within the hour everywhere, and the whole node is worth more
        (4.0, [EMPTY, 1, 9], "c"),
        (4.0, [EMPTY, 1, 2], "b"),  # every node would be kept for longer
        (math.inf, [1, 2, NEVER], "a"),  # nobody knows: as without the rule
    ],
)
def test_pods_go_where_others_end_as_late(
    run_hours: float, last_hours: list[float], where: str
) -> None:
    """H10: first to nodes whose last end is not pushed back by more than an hour; unknown ends are
    never pushed.
    """
    assert places(planned(run_hours * HOUR_S, last_hours)) == [where]


def test_those_placed_before_count() -> None:
    """H10: in one plan the second long pod joins the first, and the short one keeps off."""
    assert places(planned([8 * HOUR_S, 8 * HOUR_S], [EMPTY, EMPTY])) == ["a", "a"]
    assert places(planned([8 * HOUR_S, 0.5 * HOUR_S], [2.0, 1.0], used=7)) == ["a", "b"]


def test_pods_without_accelerators_push_nothing() -> None:
    """H10: they leave a GPU node to those that need it, however long they run."""
    assert places(planned(9 * HOUR_S, [1, 9], gpus=0)) == ["a"]


def test_without_reservations_nobody_is_asked() -> None:
    """H10: with the setting 0 placement is as it was."""
    assert places(planned(4 * HOUR_S, [1, 2, 4], on=False)) == ["a"]


def test_the_fewest_nodes_come_first() -> None:
    """H10 is asked among equals only: a gang keeps together although that keeps a node
    for longer.
    """
    members = [pod(f"p{number}") for number in range(4)]
    taken = [(pod("x", gpus=6), "a"), (pod("y", gpus=6), "b")]
    reserving = Reserving(
        limits=ReservationLimits(),
        wall_s=WALL_S,
        occupants=nobody,
        last_ends=lambda _: WALL_S + np.array([NEVER, NEVER, 0.0]),
    )
    found = plan(
        snapshot([node(name) for name in "abc"], taken),
        [group(gang("ns/g", members, run_time_s=9 * HOUR_S))],
        now_s=0.0,
        reserving=reserving,
    )
    assert set(places(found)) == {"c"}
