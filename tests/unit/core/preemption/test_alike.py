"""One attempt for many single pods that ask the same (V8-V10, V15)."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from gangsched.core.cycle import Limits
from gangsched.core.preemption import plan_preemptions
from gangsched.core.preemption.alike import MAX_TOGETHER
from gangsched.core.preemption.attempt import Attempt
from gangsched.model.gang import Group
from gangsched.model.plan import Verdict
from gangsched.model.preemption import Preemption
from tests.builders import gang, group, node, pod
from tests.running_cluster import RunningCluster
from tests.sizes import of_size

GPUS = 8
UNCUT = Limits(work=1_000_000)


def singles(number: int, *, gpus: int = 1, priority: int = 1000) -> list[Group]:
    """Plain pods that ask the same."""
    pods = [
        pod(f"high-{n:03}", gpus=gpus, priority=priority, uid=f"u-high-{n:03}")
        for n in range(number)
    ]
    plain = [gang(f"pod:ns/{each.name}", [each], plain=True) for each in pods]
    return [group(each, priority=priority) for each in plain]


def full_of_singles(*nodes: str, gpus: int = 1, priority: int = 0) -> RunningCluster:
    """Nodes full of plain pods of low priority."""
    cluster = RunningCluster([node(name, GPUS) for name in nodes])
    for name in nodes:
        for n in range(GPUS // gpus):
            cluster.run(f"low-{name}-{n}", name, gpus=gpus, priority=priority)
    return cluster


def made(verdicts: dict[str, Verdict]) -> dict[str, Preemption]:
    """By group the preemptions among these verdicts."""
    return {
        id_: each.preemption
        for id_, each in verdicts.items()
        if isinstance(each.preemption, Preemption)
    }


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For how many pods each attempt made room was to be made."""
    seen: list[int] = []
    attempt = Attempt.make_room

    def counted(self: Attempt) -> object:
        seen.append(len(self.preemptor.pods))
        return attempt(self)

    monkeypatch.setattr(Attempt, "make_room", counted)
    return seen


def test_one_attempt_makes_room_for_many_equal_pods(attempts: list[int]) -> None:
    """V15: all of a wave's pods are nominated in one plan, each with a victim of its own."""
    verdicts = full_of_singles("a", "b", "c").verdicts(*singles(20))
    assert attempts == [20]
    victims = [victim.name for each in made(verdicts).values() for victim in each.victims]
    assert len(made(verdicts)) == len(victims) == len(set(victims)) == 20
    for name, each in made(verdicts).items():
        assert [placement.pod.name for placement in each.placements] == [name.rpartition("/")[2]]
        assert {victim.node for victim in each.victims} == {
            placement.node for placement in each.placements
        }


def test_no_more_than_a_plan_may_nominate_preempt_together(attempts: list[int]) -> None:
    """V15: `preempt_per_cycle` counts groups, not attempts; and an attempt is bounded by itself."""
    verdicts = full_of_singles("a", "b").verdicts(*singles(10), per_cycle=3)
    assert (len(made(verdicts)), attempts) == (3, [3])
    attempts.clear()
    verdicts = full_of_singles(*"abcdef").verdicts(*singles(MAX_TOGETHER + 2))
    assert (len(made(verdicts)), attempts) == (MAX_TOGETHER + 2, [MAX_TOGETHER, 2])


def test_where_not_all_find_room_those_that_do_are_nominated(attempts: list[int]) -> None:
    """V3: who comes too late is refused, and the room of the others is the same."""
    verdicts = full_of_singles("a").verdicts(*singles(GPUS + 2))
    assert len(made(verdicts)) == GPUS
    assert attempts[0] == GPUS + 2


def test_pods_of_other_shape_or_with_a_node_to_avoid_are_no_part_of_it(attempts: list[int]) -> None:
    """V1: only what is known of one is known of the other."""
    two, four = singles(2), singles(4, gpus=2)[2:]
    made_ = made(full_of_singles("a").verdicts(*two, *four))
    assert len(made_) == 4
    assert attempts == [2, 2]


def test_the_lowest_priority_goes_first_for_each(attempts: list[int]) -> None:
    """V8: together they would take the cheaper pod of a higher priority; so where both must go each
    tries alone.
    """
    cluster = RunningCluster([node("a", 2)])
    cluster.run("lower", "a", priority=1, ran_s=6_000)
    cluster.run("higher", "a", priority=2, ran_s=1)
    first, second = (each.victims for each in made(cluster.verdicts(*singles(2))).values())
    assert [victim.name for victim in (*first, *second)] == ["lower", "higher"]
    assert attempts == [2, 1, 1]


def test_a_budget_counts_for_all_of_them() -> None:
    """V7: the budget of the victims is spent once."""
    cluster = full_of_singles("a")
    cluster.budget("ns/few", 3, [each.pod for each in cluster.pods])
    assert len(made(cluster.verdicts(*singles(5)))) == 3


@pytest.mark.long
@pytest.mark.parametrize("seed", range(of_size(20, 300)))
def test_room_is_made_for_as_many_as_one_by_one_at_least(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V8, V9: nobody is evicted twice or in vain, all places have room, and no more pods go than
    one by one.
    """
    print(f"seed {seed}")
    rng = random.Random(seed)
    names = [f"n{n}" for n in range(rng.randint(1, 5))]
    cluster = RunningCluster([node(name, GPUS) for name in names])
    free = dict.fromkeys(names, GPUS)
    for n in range(rng.randint(1, 40)):
        name, gpus = rng.choice(names), rng.choice((1, 1, 2, 3))
        if free[name] >= gpus:
            free[name] -= gpus
            cluster.run(f"low-{n}", name, gpus=gpus, priority=0, ran_s=rng.choice((60, 600, 3_000)))
    wanted = singles(rng.randint(2, 20), gpus=rng.choice((1, 2, 4)))
    # Enough work that neither plan is cut short: what they choose is compared.
    together = cluster.verdicts(*wanted, limits=UNCUT)
    monkeypatch.setattr(plan_preemptions, "is_single", lambda _: False)
    alone = cluster.verdicts(*wanted, limits=UNCUT)
    assert len(made(together)) >= len(made(alone))
    victims = [victim.uid for each in made(together).values() for victim in each.victims]
    assert len(victims) == len(set(victims))
    more = len(made(together)) > len(made(alone))
    assert more or len(victims) <= sum(len(each.victims) for each in made(alone).values())
    left = Counter(free)
    amounts = {
        each.pod.uid: (each.node, dict(each.pod.shape.requests)["nvidia.com/gpu"])
        for each in cluster.pods
    }
    for uid in victims:
        left[amounts[uid][0]] += amounts[uid][1]
    for verdict in together.values():
        starts = (
            verdict.preemption.placements
            if isinstance(verdict.preemption, Preemption)
            else verdict.binds
        )
        for placement in starts:
            left[placement.node] -= dict(placement.pod.shape.requests)["nvidia.com/gpu"]
    assert min(left.values()) >= 0
    assert all(left[amounts[uid][0]] < amounts[uid][1] for uid in victims)
