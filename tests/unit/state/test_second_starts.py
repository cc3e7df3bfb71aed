"""Runs that share a gang and overlap: each starts whole (I6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gangsched.model.objects import PermitStamp, Phase, Pod
from tests.builders import members, node, pod_group
from tests.world import EPOCH_S, World


def run_of(name: str, kind: str = "Job") -> dict[str, Any]:
    """What the pods of a run name as their controller."""
    return {"owner": name, "controller_kind": kind, "controller_uid": f"uid-of-{name}"}


def of_run(
    world: World,
    number: int,
    controller: Mapping[str, Any],
    first: int = 0,
    **fields: Any,
) -> list[Pod]:
    """Pods of a run are created now."""
    fields.setdefault("creation_s", int(EPOCH_S + world.now_s))
    return world.create(members("g", number, first=first, pod_group=True, **controller, **fields))


def running(gpus: int) -> tuple[World, list[Pod]]:
    """A run of three lives on a node of so many GPUs."""
    world = World(node("a", gpus))
    world.declare(pod_group("g", 3))
    pods = of_run(world, 3, run_of("nightly-1"))
    world.settle().advance(10)
    return world, pods


def bound(world: World, first: int) -> int:
    """Number of pods from this one on that are bound."""
    return sum(int(name.rpartition("-")[2]) >= first for name in world.bound())


@pytest.mark.parametrize("restarts", [True, False])
def test_a_second_run_starts_whole(*, restarts: bool) -> None:
    """I6: there is room for two of its three pods; then for all."""
    world, _ = running(5)
    if restarts:
        world.restart()
    of_run(world, 3, run_of("nightly-2"), first=3)
    world.told()
    assert bound(world, 3) == 0

    world.add_nodes(node("b", 1))
    world.told()
    assert bound(world, 3) == 3
    assert {bind.permitted for bind in world.sent[-3:]} == {world.sent[-1].permitted}
    assert world.sent[-1].permitted is not None
    assert world.sent[-1].permitted.epoch == 2


def test_a_second_run_is_told_what_it_is() -> None:
    """I6, E1: two of its three pods exist."""
    world, _ = running(8)
    of_run(world, 2, run_of("nightly-2"), first=3)
    world.told()

    assert bound(world, 3) == 0
    (scheduled,) = [each for each in world.status("g")["conditions"] if each["type"] == "Scheduled"]
    text = f"{scheduled['message']} {[pod.condition for pod in world.pods.values()]}"
    assert "Job ns/nightly-2 starts as a whole, beside Job ns/nightly-1" in text


def test_both_runs_go_on_after_they_have_started() -> None:
    """I6: what either loses is replaced at once."""
    world, pods = running(8)
    second = of_run(world, 3, run_of("nightly-2"), first=3)
    world.settle()
    assert bound(world, 3) == 3

    for number, (lost, run) in enumerate([(pods[0], "nightly-1"), (second[0], "nightly-2")]):
        world.delete(world.pods[lost.uid])
        of_run(world, 1, run_of(run), first=6 + number)
        world.settle()
        assert bound(world, 6) == number + 1


def test_what_the_first_run_lost_comes_first() -> None:
    """I6: the second run takes no room of a replacement."""
    world, pods = running(5)
    of_run(world, 3, run_of("nightly-2"), first=3)
    world.settle()
    world.delete(world.pods[pods[0].uid])
    of_run(world, 1, run_of("nightly-1"), first=6)
    world.told()

    assert bound(world, 3) == 1
    assert "g-6" in world.bound()


def test_a_bind_of_a_second_run_that_is_refused_starts_nothing() -> None:
    """B2: the node of one is cordoned before its bind; the members of the first run do not make up
    for it.
    """
    world, _ = running(3)
    world.add_nodes(node("b", 3))
    of_run(world, 3, run_of("nightly-2"), first=3)
    world.fate = lambda order: "failed"
    world.settle()
    world.fate = lambda order: "bound"
    world.add_nodes(node("b", 2))
    world.advance(60)

    assert bound(world, 3) == 0


@pytest.mark.parametrize(
    ("started", "later"),
    [
        (run_of("web-1", "ReplicaSet"), run_of("web-2", "ReplicaSet")),
        (run_of("mpi", "MPIJob"), run_of("mpi-launcher", "Job")),
        (run_of("train"), {**run_of("train"), "controller_uid": "uid-of-the-next"}),
        (run_of("train"), {"owner": "", "controller_kind": "", "controller_uid": ""}),
        (
            {**run_of("set-a"), "labels": {"jobset.sigs.k8s.io/jobset-name": "set"}},
            {**run_of("set-b"), "labels": {"jobset.sigs.k8s.io/jobset-name": "set"}},
        ),
    ],
)
def test_what_completes_a_start_is_no_second_one(
    started: dict[str, Any],
    later: dict[str, Any],
) -> None:
    """I6: an update of a Deployment, a launcher, a Job that a JobSet creates again or later."""
    world = World(node("a", 8))
    world.declare(pod_group("g", 3))
    of_run(world, 3, started)
    world.settle().advance(10)

    of_run(world, 1, later, first=3)

    assert bound(world.settle(), 3) == 1


def test_a_job_whose_pods_were_there_at_the_start_is_part_of_it() -> None:
    """I6: two Jobs share a gang whose minimum is that of the first."""
    world = World(node("a", 3))
    world.declare(pod_group("g", 3))
    world.create(
        members("g", 3, pod_group=True, priority=10, **run_of("workers")),
        members("g", 1, first=3, pod_group=True, **run_of("readers")),
    )
    world.settle()
    assert bound(world, 3) == 0

    world.add_nodes(node("b", 1))

    assert bound(world.settle(), 3) == 1


def test_the_stamps_of_the_first_run_stay() -> None:
    """B4: the second start has the next number."""
    world, pods = running(8)
    of_run(world, 3, run_of("nightly-2"), first=3)
    world.settle()
    world.update(world.pods[pods[0].uid], phase=Phase.SUCCEEDED)

    stamps = [world.pods[pod.uid].permitted for pod in pods]

    assert {stamp.epoch for stamp in stamps if isinstance(stamp, PermitStamp)} == {1}
