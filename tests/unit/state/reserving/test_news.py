"""What pods that go have to do with reservations: which are made anew, and which are not (H5, H6,
H12, H17).
"""

from __future__ import annotations

from gangsched.api import keys
from gangsched.model.reservation import ReservationLimits
from gangsched.state.rule_set import Rules
from tests.builders import members, node, pod, running, shape
from tests.world import EPOCH_S, World


def full(nodes: int, run_s: float | None, fence_after_s: float = 1e9) -> World:
    """A world of nodes with 8 GPUs, each taken by a pod that started a second after the one before
    it.
    """
    limits = ReservationLimits(share=1.0, fence_after_s=fence_after_s)
    there = World(*(node(f"n{n:02}") for n in range(nodes)), rules=Rules(reservations=limits))
    for n in range(nodes):
        states = ((keys.EXPECTED_RUNTIME, f"{run_s + n}s"),) if run_s else ()
        start_s = wall_s(there) if run_s else wall_s(there) - 9 + n
        there.create(
            running(pod(f"r{n}", gpus=8, run_time_metadata=states, start_s=start_s), f"n{n:02}")
        )
    return there


def wall_s(there: World) -> int:
    """The present."""
    return int(EPOCH_S + there.now_s)


def standing(there: World) -> list[tuple[str, float, str]]:
    """(group, seconds until it starts, its nodes) of what stands."""
    return [
        (each.group, each.at_s - wall_s(there), "".join(name[-1] for name in each.nodes))
        for each in there.state.reservations.standing
    ]


def test_what_goes_where_no_gpu_will_be_free_makes_no_plan() -> None:
    """H5, H17: CPU is nothing to a gang of whole nodes on a node whose GPUs nobody knows the end
    of.
    """
    there = full(3, run_s=100.0)
    there.add_nodes(node("n03"))
    there.create(running(pod("for-ever", gpus=8), "n03"))
    on = {name: running(pod(f"small-{name}", of=shape(0, 1_000)), name) for name in ("n00", "n03")}
    there.create(on.values())
    there.create(members("g", 3, gpus=8, creation_s=wall_s(there)))
    there.settle()
    assert standing(there) == [("ns/g", 102.0, "012")]
    there.advance(3)
    plans = len(there.plans)
    there.delete(on["n03"])
    there.settle()
    assert len(there.plans) == plans
    there.delete(on["n00"])
    there.settle()
    assert len(there.plans) > plans, "where the GPUs will be free, CPU may be what was lacking"
    assert standing(there) == [("ns/g", 99.0, "012")]


def test_a_fence_leaves_the_nodes_of_one_before_it() -> None:
    """H12: the older gang's fence is made anew in its own turn, after the younger one's, on a node
    of that.
    """
    there = full(4, run_s=None, fence_after_s=5.0)
    older = there.create(members("a", 2, gpus=8, creation_s=wall_s(there)))
    there.advance(1)
    there.create(members("b", 1, gpus=8, creation_s=wall_s(there)))
    there.advance(10)
    assert [nodes for _, _, nodes in standing(there)] == ["23", "1"]
    there.add_nodes(node("n03", unschedulable=True))
    there.update(older[0], labels={"turn": "mine"})
    there.advance(5)
    assert [nodes for _, _, nodes in standing(there)] == ["12", "0"]


def test_a_group_without_a_time_is_looked_at_again_when_a_reservation_goes() -> None:
    """H12: nothing but the older head's fence kept it from having one."""
    there = full(2, run_s=None, fence_after_s=5.0)
    first = there.create(members("a", 2, gpus=8, creation_s=wall_s(there)))
    there.advance(1)
    there.create(members("b", 2, gpus=8, creation_s=wall_s(there)))
    there.advance(10)
    assert [group for group, *_ in standing(there)] == ["ns/a"]
    there.delete(*first)
    there.advance(2)
    assert [group for group, *_ in standing(there)] == ["ns/b"]
