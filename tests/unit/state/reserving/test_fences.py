"""Fences end by themselves: for gangs that can never start, that are too old, or that idle too much
(H3, H6, H14).
"""

from __future__ import annotations

from typing import Any

import pytest

from gangsched.model.objects import Pod
from gangsched.model.reservation import NotEntitled
from gangsched.state.reserving.fences import EMPTY_S
from tests.builders import members, node, pod, running, shape
from tests.sizes import of_size
from tests.unit.state.reserving.test_reservations import full, gang_of, plain, standing, world
from tests.world import EPOCH_S, World

CPU_MILLI = 64_000
TEAMS = 8


def with_agents(nodes: int, **limits: Any) -> World:
    """Nodes of 8 GPUs and 64 CPUs, on each of which a DaemonSet's pod takes a tenth of a CPU."""
    there = world(
        0, fence_after_s=20.0, small_head_after_s=20.0, small_head_latest_s=20.0, **limits
    )
    there.add_nodes(*(node(f"n{n:02}", cpu_milli=CPU_MILLI) for n in range(nodes)))
    for n in range(nodes):
        there.create(agent(n))
    return there


def agent(number: int, **fields: Any) -> Pod:
    """The pod of a DaemonSet on one of the nodes."""
    return running(
        pod(
            f"agent-{number}",
            of=shape(0, 100),
            scheduler_name="default-scheduler",
            controller_kind="DaemonSet",
            owner="agent",
            **fields,
        ),
        f"n{number:02}",
    )


def idle(there: World, nodes: int) -> int:
    """GPUs that no pod uses."""
    used = [
        dict(each.shape.requests).get("nvidia.com/gpu", 0)
        for each in there.pods.values()
        if each.node_name
    ]
    return 8 * nodes - sum(used)


def test_nothing_is_kept_for_a_gang_that_needs_the_room_of_a_daemonset() -> None:
    """H3: it asks for all CPU of four nodes; before, all 32 GPUs idled from `fence_after_s` on."""
    there = with_agents(4)
    there.create(members("g", 4, of=shape(8, CPU_MILLI), creation_s=int(EPOCH_S + there.now_s)))
    there.advance(60)
    assert standing(there) == []
    for n in range(32):
        plain(there, f"small-{n:02}", 1)
    there.settle()
    assert idle(there, 4) == 0


def test_teams_that_ask_for_a_whole_node_each_keep_none_idle() -> None:
    """H3: eight teams with one pod of 64 CPUs each; before, five of eight nodes idled."""
    there = with_agents(8)
    for team in range(TEAMS):
        since_s = int(EPOCH_S + there.now_s)
        there.create(
            pod(
                f"greedy-{team}",
                of=shape(0, CPU_MILLI),
                namespace=f"team-{team}",
                creation_s=since_s,
            )
        )
    there.advance(60)
    assert standing(there) == []
    for n in range(64):
        plain(there, f"small-{n:02}", 1)
    there.settle()
    assert idle(there, 8) == 0


def test_a_daemonset_that_comes_later_ends_the_fence_and_one_that_goes_gives_it_back() -> None:
    """H3: what could start on the empty nodes before cannot now."""
    there, _ = full(2, run_s=None, fence_after_s=20.0)
    there.add_nodes(*(node(f"n{n:02}", cpu_milli=CPU_MILLI) for n in range(2)))
    there.create(members("g", 2, of=shape(8, CPU_MILLI), creation_s=int(EPOCH_S + there.now_s)))
    there.advance(30)
    assert [group for group, *_ in standing(there)] == ["ns/g"]
    (came,) = there.create(agent(0))
    there.advance(2)
    assert standing(there) == []
    there.delete(came)
    there.advance(60)
    assert [group for group, *_ in standing(there)] == ["ns/g"]


def fenced(**limits: Any) -> tuple[World, list[Pod]]:
    """Two nodes are fenced for a gang, and both are in use."""
    there, taken = full(2, run_s=None, fence_after_s=20.0, **limits)
    gang_of(there, "g", 2)
    there.advance(25)
    assert [group for group, *_ in standing(there)] == ["ns/g"]
    return there, taken


def why_not(there: World, group: str = "ns/g") -> NotEntitled:
    """Why a group has no reservation, as the last plan that said anything of it said."""
    answers = [
        each.reservations.not_reserved for each in there.plans if each.reservations is not None
    ]
    return next(each[group].why for each in reversed(answers) if group in each)


def refuse(there: World) -> None:
    """Both nodes are promised to a pod of another scheduler, whose pod never comes (F1)."""
    for n in range(2):
        there.create(
            pod(
                f"foreign-{n}",
                gpus=8,
                priority=1_000,
                scheduler_name="other",
                nominated_node=f"n{n:02}",
                uid=f"f{n}",
            )
        )


def test_an_empty_fence_on_which_its_gang_does_not_start_ends() -> None:
    """H6: until a node changes its group has no reservation, whatever its owner edits; others are
    let in.
    """
    there, taken = fenced()
    refuse(there)
    there.delete(*taken)
    there.advance(EMPTY_S - 2)
    assert standing(there) != []
    there.advance(3)
    assert standing(there) == []
    assert why_not(there) is NotEntitled.REFUSED
    for each in [each for each in there.pods.values() if each.name.startswith("g-")]:
        there.update(each, labels={"touched": "again"})
    there.advance(300)
    assert standing(there) == []
    there.add_nodes(node("n01", labels={"new": "label"}))
    there.advance(60)
    assert [group for group, *_ in standing(there)] == ["ns/g"]


def test_a_fence_ends_with_its_age() -> None:
    """H6: and its group has none for as long as it waited for the first one."""
    there, _ = fenced(fence_age_s=100.0)
    there.advance(94)
    assert standing(there) != []
    there.advance(5)
    assert standing(there) == []
    assert why_not(there) is NotEntitled.FENCE_OVER
    there.advance(14)
    assert standing(there) == []
    there.advance(10)
    assert [group for group, *_ in standing(there)] == ["ns/g"]


def test_nothing_is_planned_for_a_gang_of_which_nothing_waits_when_it_may_have_a_fence_again() -> (
    None
):
    """H6: its pods are being deleted, and finalizers keep them. Entitled to a reservation, it
    called for plans without end, none of which could decide about it (fuzz seed 923559 of rests).
    """
    there, _ = fenced(fence_age_s=100.0)
    there.advance(99)
    assert why_not(there) is NotEntitled.FENCE_OVER
    for waiting in [member for member in there.pods.values() if member.name.startswith("g-")]:
        there.leaving[waiting.uid] = there.now_s + 600
        there.update(waiting, deleting=True, deletion_s=there.wall_s() + 600)

    there.advance(10)
    before = len(there.plans)
    there.advance(60)
    assert standing(there) == []
    assert len(there.plans) - before <= 2


def test_a_fence_that_ended_while_the_clock_was_ahead_delays_the_next_no_longer() -> None:
    """H6: an hour later by a clock that is set back then is 20 s later all the same."""
    there, _ = fenced(fence_age_s=100.0)
    there.clock_s = 3_600.0
    there.advance(99)
    assert why_not(there) is NotEntitled.FENCE_OVER
    there.clock_s = 0.0
    there.advance(14)
    assert standing(there) == []
    there.advance(10)
    assert [group for group, *_ in standing(there)] == ["ns/g"]


def test_a_fence_ends_once_it_idled_too_much() -> None:
    """H6: half of its GPUs idle for 100 s, so all of them for 50 s on average, which is what they
    may.
    """
    there, taken = fenced(fence_idle_s=50.0)
    there.advance(200)
    assert standing(there) != []
    there.delete(taken[0])
    there.advance(99)
    assert standing(there) != []
    there.advance(2)
    assert standing(there) == []
    assert why_not(there) is NotEntitled.FENCE_OVER


def test_others_are_told_why_room_is_kept() -> None:
    """H14: nodes that are reserved have a count of their own, where the list of reasons
    was empty.
    """
    there, taken = fenced()
    there.delete(taken[0])
    there.settle()
    late = plain(there, "late", 1)
    there.told()
    _, message = there.condition(late)
    said = (
        "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) are reserved for a gang"
        " that has waited"
    )
    assert message.startswith(said)


@pytest.mark.long
def test_days_of_jobs_behind_a_gang_that_can_never_start() -> None:
    """H3: a job of 1 to 8 GPUs for two hours comes each half hour; before, 132 of 144 waited after
    three days.
    """
    there = with_agents(4)
    gang_since_s = int(EPOCH_S + there.now_s)
    there.create(members("g", 4, of=shape(8, CPU_MILLI), creation_s=gang_since_s))
    jobs: list[tuple[float, Pod]] = []
    for number in range(of_size(20, 144)):
        jobs.append((there.now_s + 7_200.0, plain(there, f"job-{number:03}", 1 + number % 8)))
        there.advance(1_800.0)
        due = [
            each for each in jobs if there.pods[each[1].uid].node_name and each[0] <= there.now_s
        ]
        there.delete(*(each for _, each in due))
        jobs = [each for each in jobs if each not in due]
    there.settle()
    assert standing(there) == []
    assert not [each.name for _, each in jobs if not there.pods[each.uid].node_name]
