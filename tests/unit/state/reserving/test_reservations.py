"""Reservations over several plans: what stands, who passes, what wakes whom (H3-H9, H12, H16, H17)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gangsched.api import keys
from gangsched.model.objects import Pod
from gangsched.model.reservation import ReservationLimits
from gangsched.state.scheduling import Rules
from tests.builders import members, node, pod
from tests.world import EPOCH_S, World

LIMITS = ReservationLimits(share=1.0)


def world(nodes: int = 4, **limits: Any) -> World:
    """Nodes of 8 GPUs, with reservations on."""
    return World(
        *(node(f"n{n:02}") for n in range(nodes)),
        rules=Rules(reservations=replace(LIMITS, **limits) if limits else LIMITS),
    )


def states(run_s: float) -> tuple[tuple[str, str], ...]:
    """What a pod states of its run time."""
    return ((keys.EXPECTED_RUNTIME, f"{run_s}s"),)


def plain(there: World, name: str, gpus: int = 8, *, run_s: float | None = None, **fields: Any) -> Pod:
    """A plain pod is created now."""
    fields.setdefault("creation_s", int(EPOCH_S + there.now_s))
    made = pod(name, gpus=gpus, run_time_metadata=states(run_s) if run_s else (), **fields)
    there.create(made)
    return made


def gang_of(
    there: World, name: str, number: int, gpus: int = 8, *, run_s: float | None = None, **fields: Any
) -> list[Pod]:
    """A gang is created now."""
    fields.setdefault("creation_s", int(EPOCH_S + there.now_s))
    return there.create(members(name, number, gpus=gpus, run_time_metadata=states(run_s) if run_s else (), **fields))


def full(nodes: int = 4, run_s: float = 100.0, **limits: Any) -> tuple[World, list[Pod]]:
    """A world each node of which is taken by a pod that states its run time."""
    there = world(nodes, **limits)
    taken = [plain(there, f"r{n}", run_s=run_s + n) for n in range(nodes)]
    there.settle()
    return there, taken


def standing(there: World) -> list[tuple[str, float, str]]:
    """(group, seconds until it starts, its nodes) of what stands."""
    now_s = EPOCH_S + there.now_s
    return [
        (each.group, each.at_s - now_s, "".join(name[-1] for name in each.nodes))
        for each in there.state.reservations.standing
    ]


def test_a_gang_that_does_not_fit_has_a_reservation_at_once() -> None:
    """Whole nodes: the first two that end."""
    there, _ = full()
    gang_of(there, "g", 2)
    there.settle()
    assert standing(there) == [("ns/g", 101.0, "01")]


def test_a_plan_without_the_head_keeps_off_its_room() -> None:
    """H12: the pod ends early, and nobody who comes later gets its node, but who is over in time does."""
    there, taken = full()
    gang_of(there, "g", 2)
    there.settle()
    there.advance(10)
    there.delete(taken[0])
    there.settle()
    for n in range(5):
        plain(there, f"long-{n}", 1)
    short = plain(there, "short", 1, run_s=80)
    there.settle()
    assert set(there.bound()) == {"r1", "r2", "r3", "short"}
    assert there.pods[short.uid].node_name == "n00"


def test_it_starts_when_its_room_is_free() -> None:
    """And the reservation is gone."""
    there, taken = full()
    gang_of(there, "g", 2)
    there.settle()
    there.delete(taken[0], taken[1])
    there.settle()
    assert {"g-0", "g-1"} <= set(there.bound())
    assert standing(there) == []
