"""Score: which feasible nodes a run of identical pods gets."""

import re
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gangsched.core import score
from gangsched.core.reserve import Ledger
from gangsched.model.objects import Shape
from gangsched.model.snapshot import Snapshot
from tests import builders


def chosen(shape: Shape, count: int, ledger: Ledger) -> dict[str, int]:
    """How many of `count` pods each node gets, by node name."""
    nodes, counts = score.choose(shape, count, ledger.room(shape), ledger)
    return {
        ledger.table.names[node]: number
        for node, number in zip(nodes.tolist(), counts.tolist(), strict=True)
    }


def test_resource_that_no_node_has() -> None:
    """A pod that asks for a device which no node offers gets no node, and nothing breaks."""
    assert (
        chosen(
            builders.shape(gpus=1), 1, builders.ledger([builders.node("a", cpu_milli=1000, gpus=0)])
        )
        == {}
    )


def used(ledger: Ledger, shape: Shape, **already: int) -> Ledger:
    """`ledger` after `already` pods of `shape` were put on the named nodes."""
    for name, count in already.items():
        node = ledger.table.index[name]
        ledger.reserve(
            builders.pods(f"on-{name}", shape, count), np.array([node]), np.array([count])
        )
    return ledger


ONE = builders.shape(gpus=1)


def test_pods_without_accelerators_leave_gpu_nodes_alone() -> None:
    """A CPU pod goes to a GPU node only where no other has room."""
    nodes = [builders.node("a", cpu_milli=8000, gpus=8), builders.node("b", cpu_milli=8000, gpus=0)]
    assert chosen(builders.shape(cpu_milli=4000, gpus=0), 3, builders.ledger(nodes)) == {
        "b": 2,
        "a": 1,
    }


def test_a_gang_keeps_together() -> None:
    """Pods that fit on one node go to one node, also where two smaller rests would be used up."""
    ledger = builders.ledger(
        [builders.node(name, gpus=size) for name, size in (("a", 2), ("b", 2), ("c", 8))]
    )
    assert chosen(ONE, 4, ledger) == {"c": 4}


def test_whole_nodes_stay_whole() -> None:
    """A small pod fills a rest before it breaks a free node, and the smaller rest first."""
    ledger = used(builders.ledger([builders.node(name, gpus=8) for name in "abc"]), ONE, b=4, c=6)
    assert chosen(ONE, 2, ledger) == {"c": 2}


def test_the_odd_gpu_is_used_first() -> None:
    """One GPU is taken where it leaves gangs of every size the most: from three free ones rather
    than from two.
    """
    ledger = used(builders.ledger([builders.node(name, gpus=8) for name in "ab"]), ONE, a=6, b=5)
    assert chosen(ONE, 1, ledger) == {"b": 1}


def test_nodes_that_are_nearly_empty_may_empty() -> None:
    """A pair on a busy node is broken rather than the seven on a node that one pod leaves soon."""
    ledger = used(builders.ledger([builders.node(name, gpus=8) for name in "ab"]), ONE, a=1, b=6)
    assert chosen(ONE, 1, ledger) == {"b": 1}


def with_cpu(*free: tuple[int, int], gpus: int = 8, cpu: int = 80_000) -> Ledger:
    """Nodes a, b, … of `gpus` GPUs of which (GPUs, milli-CPU) are free; a last one where each GPU
    has 10 CPUs.
    """
    names = "abcdefgh"[: len(free) + 1]
    empty = builders.snapshot([builders.node(name, cpu_milli=cpu, gpus=gpus) for name in names])
    left = empty.free.copy()
    for index, (gpu, milli) in enumerate((*free, (0, cpu - gpus * 10_000))):
        left[empty.resources["nvidia.com/gpu"], index] = gpu
        left[empty.resources["cpu"], index] = milli
    return Ledger(Snapshot(empty.table, empty.resources, empty.allocatable, left))


def test_no_accelerator_is_left_without_cpu() -> None:
    """Of two nodes with the same devices free a pod takes the one that keeps enough CPU beside the
    others.
    """
    hungry = builders.shape(cpu_milli=18_000, gpus=1)
    assert chosen(hungry, 1, with_cpu((3, 31_000), (3, 39_000))) == {"b": 1}
    modest = builders.shape(cpu_milli=2_000, gpus=1)
    assert chosen(modest, 1, with_cpu((3, 21_000), (3, 39_000))) == {"a": 1}


def test_what_pods_usually_ask_is_read_off_the_cluster() -> None:
    """CPU and memory in use beside each device in use, on nodes that have the device; nothing where
    none is.
    """
    ledger = with_cpu((3, 30_000))
    assert ledger.usual("nvidia.com/gpu") == {"cpu": (50_000 + 80_000) // (5 + 8)}
    assert (
        builders.ledger([builders.node("a", cpu_milli=1000, gpus=1)]).usual("nvidia.com/gpu") == {}
    )


def test_the_best_equipped_whole_node_is_broken_last() -> None:
    """A small pod that must break a whole node of the largest size takes the least CPU, though it
    strands a device.
    """
    nodes = [
        builders.node("a", cpu_milli=128_000, gpus=8),
        builders.node("b", cpu_milli=96_000, gpus=8),
    ]
    empty = builders.snapshot([*nodes, builders.node("c", cpu_milli=96_000, gpus=8)])
    left = empty.free.copy()
    left[:, 2] = 0
    ledger = Ledger(Snapshot(empty.table, empty.resources, empty.allocatable, left))
    assert chosen(builders.shape(cpu_milli=30_000, gpus=1), 1, ledger) == {"b": 1}


def test_the_smaller_machine_first() -> None:
    """Where the same is left over, the machine with fewer devices is used up."""
    ledger = used(
        builders.ledger([builders.node("a", gpus=8), builders.node("b", gpus=2)]), ONE, a=7, b=1
    )
    assert chosen(ONE, 1, ledger) == {"b": 1}


def test_well_equipped_nodes_stay_for_those_who_need_them() -> None:
    """Among nodes with the same devices, the one with the least memory and CPU that is enough."""
    nodes = [
        builders.node("a", cpu_milli=96_000, memory_bytes=800, gpus=8),
        builders.node("b", cpu_milli=96_000, memory_bytes=400, gpus=8),
    ]
    assert chosen(
        builders.shape(cpu_milli=8000, memory_bytes=300, gpus=8), 1, builders.ledger(nodes)
    ) == {"b": 1}


def harm(shape: Shape, count: int, ledger: Ledger) -> list[int]:
    """What `count` pods of `shape` on one node would cost each node."""
    room, takes = ledger.room(shape), np.full(len(ledger.table), count)
    cost = score.least_harm(
        shape, score.Candidates(np.arange(len(ledger.table)), room, takes, last=True), ledger
    )
    assert cost is not None
    found: list[int] = cost.tolist()
    return found


def test_a_node_that_shrank_below_its_use_gets_nothing() -> None:
    """Where a device fell out, free is negative; that counts as no room, and as no reason to break
    a plan.
    """
    ledger = used(
        builders.ledger([builders.node("a", gpus=2), builders.node("b", gpus=2)]), ONE, a=3
    )
    assert chosen(ONE, 4, ledger) == {"b": 2}


def test_large_amounts_are_priced_like_small_ones() -> None:
    """Devices that are counted by the thousand (memory of a GPU) follow the same rule."""
    ledger = used(
        builders.ledger([builders.node(name, gpus=1024) for name in "ab"]), ONE, a=512, b=1016
    )
    assert harm(ONE, 1, ledger) == [
        1000 * (10 * 512 - sum(511 >> bit << bit for bit in range(9))) + 500 * (512**2 - 511**2),
        1000 * (4 * 8 - (7 + 6 + 4)) + 500 * (64 - 49),
    ]


@given(st.lists(st.integers(10, 640), min_size=2, max_size=4))
def test_accelerators_counted_in_bytes_are_priced_without_overflow(free_gib: list[int]) -> None:
    """GPU memory in bytes: a smaller rest costs less to use than a larger one, and no price exceeds
    64 bits.
    """
    one = builders.shape(gpus=10 * 2**30)
    ledger = builders.ledger(
        [builders.node(f"n{n}", gpus=640 * 2**30) for n in range(len(free_gib))]
    )
    ledger.free[ledger.resources["nvidia.com/gpu"]] = np.array(free_gib) * 2**30
    exact = [500 * (free**2 - (free - 10) ** 2) for free in free_gib]
    assert (
        np.argsort(harm(one, 1, ledger), kind="stable").tolist()
        == np.argsort(exact, kind="stable").tolist()
    )


def test_worth_counts_every_size() -> None:
    """Eight in one piece are worth more than the same eight in two pieces, and those more than in
    eight.
    """
    assert score.worth(np.array([8, 4, 2, 1, 0])).tolist() == [32, 12, 4, 1, 0]


def test_the_example_in_the_manual_has_these_costs() -> None:
    """docs/placement.md: the table of the example, whose last column is the harm in units of a
    thousand.
    """
    page = (Path(__file__).parents[3] / "docs" / "placement.md").read_text()
    rows = re.findall(r"(?m)^\| (\w) \| (\d) → \d \| .* \| \**([\d.]+)\** \|$", page)
    assert [name for name, _, _ in rows] == ["a", "b", "c", "d"]
    one, ledger = (
        builders.shape(gpus=1),
        builders.ledger([builders.node(name) for name, _, _ in rows]),
    )
    ledger.free[ledger.resources["nvidia.com/gpu"]] = [int(free) for _, free, _ in rows]
    nodes = score.Candidates(np.arange(4), ledger.room(one), np.ones(4, dtype=int), last=True)
    harm = score.least_harm(one, nodes, ledger)
    assert harm is not None
    assert harm.tolist() == [float(cost) * 1000 for _, _, cost in rows]
