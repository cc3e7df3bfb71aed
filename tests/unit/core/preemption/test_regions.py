"""Which of the sets of units that help is taken (V8, V9)."""

from __future__ import annotations

import numpy as np
import pytest

from gangsched.core.cycle import Limits, plan
from gangsched.core.preemption import by_rounds
from gangsched.core.preemption.sums import Ask, NeededSums
from gangsched.core.queue_sort import group_key
from gangsched.core.scope import Scope
from gangsched.core.work import OutOfWork, Work
from gangsched.model.gang import Group
from gangsched.model.gpu_policy import PlacementConstraints
from gangsched.model.inter_pod import InterPodConstraints, PodTerm, Requirement
from gangsched.model.objects import Shape
from gangsched.model.preemption import BudgetRule, HeldBack, NotHelpful, Obstacle, Preemption
from gangsched.sentences import say
from tests import builders
from tests.builders import gang, group, node, pod
from tests.running_cluster import RunningCluster, full_of_low, high, nominated, obstacle, victims


def test_lowest_priority_goes_first() -> None:
    """V8, key 2: of two gangs either of which would do, the lower one."""
    cluster = RunningCluster([node("a"), node("b")])
    cluster.gang("ns/five", 2, "a a", gpus=4, priority=5, ran_s=1)
    cluster.gang("ns/one", 2, "b b", gpus=4, priority=1, ran_s=9999)
    assert victims(cluster.verdicts(high(gpus=8))["ns/high"]) == ["one-0", "one-1"]


def test_no_gang_is_stopped_where_plain_pods_do() -> None:
    """V8, key 3: eight plain pods rather than one gang of two."""
    cluster = RunningCluster([node("a"), node("b")])
    for i in range(8):
        cluster.run(f"plain-{i}", "a", priority=1)
    cluster.gang("ns/low", 2, "b b", gpus=4, priority=1)
    assert victims(cluster.verdicts(high(gpus=8))["ns/high"]) == [f"plain-{i}" for i in range(8)]


def test_least_work_is_lost() -> None:
    """V8, key 4: what started two minutes ago rather than what ran for ten hours."""
    cluster = RunningCluster([node("a"), node("b")])
    cluster.gang("ns/old", 2, "a a", gpus=4, priority=1, ran_s=36_000)
    cluster.gang("ns/new", 2, "b b", gpus=4, priority=1, ran_s=120)
    assert victims(cluster.verdicts(high(gpus=8))["ns/high"]) == ["new-0", "new-1"]


def test_whole_nodes_are_emptied_one_by_one() -> None:
    """V9: for members of a whole node, the cheapest nodes go and not the cheapest pods of all
    nodes.
    """
    cluster = RunningCluster([node(f"n{n}") for n in range(6)])
    for n in range(6):
        for i in range(4):
            ran_s = 1 if i < 3 else 300 if n in {2, 4} else 600
            cluster.run(f"p{n}{i}", f"n{n}", gpus=2, priority=1, ran_s=ran_s)
    found = victims(cluster.verdicts(high(number=2, gpus=8))["ns/high"])
    assert found == [f"p{n}{i}" for n in (2, 4) for i in range(4)]


def test_order_in_which_pods_are_told_does_not_matter() -> None:
    """V9: equal snapshots give equal choices."""
    cluster = RunningCluster([node("a"), node("b")])
    for i in range(8):
        cluster.run(f"p{i}", "ab"[i % 2], gpus=2, priority=1)
    first = victims(cluster.verdicts(high(number=3, gpus=2))["ns/high"])
    cluster.pods.reverse()
    assert victims(cluster.verdicts(high(number=3, gpus=2))["ns/high"]) == first


def test_too_many_victims_are_not_taken() -> None:
    """V15: the sentence has the limit."""
    told = obstacle(full_of_low(), high(number=2, gpus=8), max_pods=1)
    assert told == (
        Obstacle.TOO_MANY,
        "2 pods would have to be evicted, but at most 1 may be evicted for one gang.",
    )


@pytest.mark.parametrize("shapes", [1, 2])
def test_fewer_victims_that_cost_more_go_where_the_cheapest_are_too_many(shapes: int) -> None:
    """V15, by sums and by rounds: else it depended on how long others had run whether a gang got
    room.
    """
    cluster = RunningCluster([node(name, 8, labels={"rack": name}) for name in "ab"])
    for i in range(8):
        cluster.run(f"plain-{i}", "a", priority=1, ran_s=1)

    cluster.gang("ns/low", 2, "b b", gpus=4, priority=1, ran_s=3000)
    sizes = [8] if shapes == 1 else [5, 3]
    members = [pod(f"h-{i}", gpus=gpus, priority=9) for i, gpus in enumerate(sizes)]
    constraints = PlacementConstraints(topology=("rack",))
    wants = group(gang("ns/high", members, constraints=constraints), priority=9)

    assert victims(cluster.verdicts(wants, max_pods=4)["ns/high"]) == ["low-0", "low-1"]
    told = obstacle(cluster, wants, max_pods=1)
    assert told[0] is Obstacle.TOO_MANY


def test_what_is_not_needed_is_given_back() -> None:
    """V9: the large pod comes last and is enough alone, so the small ones before it stay."""
    cluster = RunningCluster([node("a")])
    cluster.run("small", "a", gpus=1, priority=1, ran_s=1)
    cluster.run("large", "a", gpus=7, priority=1, ran_s=3000)
    assert victims(cluster.verdicts(high(gpus=7))["ns/high"]) == ["large"]


def test_members_of_several_shapes_are_made_room_for_by_rounds() -> None:
    """V9: where sums do not decide a round does; what it shows to be needless is given back."""
    cluster = RunningCluster([node("a"), node("b")])
    for name in "ab":
        cluster.run(f"{name}-small", name, gpus=1, priority=1, ran_s=1)
        cluster.run(f"{name}-large", name, gpus=7, priority=1, ran_s=3000)
    members = [pod("h-0", gpus=7, priority=9), pod("h-1", gpus=1, priority=9)]
    verdict = cluster.verdicts(group(gang("ns/high", members), priority=9))["ns/high"]
    assert victims(verdict) in (
        ["a-large", "a-small"],
        ["a-large", "b-small"],
        ["a-small", "b-large"],
    )


def repelling() -> tuple[RunningCluster, Group]:
    """Two full nodes, of which the first is the cheaper, and two members that repel each other."""
    apart = PodTerm("kubernetes.io/hostname", (Requirement("app", "In", ("x",)),))
    shape = Shape(
        requests=builders.shape(gpus=2).requests,
        inter_pod=InterPodConstraints(anti_affinity=(apart,)),
    )
    cluster = RunningCluster([node("a"), node("b")])
    for name in "ab":
        for i in range(4):
            cluster.run(
                f"{name}{i}", name, gpus=2, priority=1, ran_s=10 * i + (500 if name == "b" else 1)
            )
    members = [pod(f"h-{i}", of=shape, priority=9, labels={"app": "x"}) for i in range(2)]
    return cluster, group(gang("ns/high", members), priority=9)


def test_members_that_must_be_apart_are_made_room_for_by_rounds() -> None:
    """V3, V9: filters that look at other pods count, and one pod of each node goes."""
    cluster, wants = repelling()
    verdict = cluster.verdicts(wants)["ns/high"]
    assert sorted(name[0] for name in victims(verdict)) == ["a", "b"]
    assert set(nominated(verdict).values()) == {"a", "b"}


def test_a_cheap_pod_near_which_the_member_must_run_is_spared() -> None:
    """V9: no set of victims that contains it helps, and it is the cheapest."""
    near = PodTerm("kubernetes.io/hostname", (Requirement("app", "In", ("x",)),))
    cluster = RunningCluster([node("a")])
    cluster.run("near", "a", gpus=2, priority=1, ran_s=1, labels={"app": "x"})
    cluster.run("far", "a", gpus=6, priority=1, ran_s=3000)

    terms = InterPodConstraints(affinity=(near,))
    member = pod("h", of=builders.shape(4, inter_pod=terms), priority=9)
    verdict = cluster.verdicts(group(gang("ns/high", [member]), priority=9))["ns/high"]
    assert victims(verdict) == ["far"]


@pytest.mark.parametrize("rounds", [5, 6, 8])
def test_rounds_that_are_used_up_go_on_in_the_next_plan(
    rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V25: a decision that needs more rounds than a plan has comes down to the same set over
    several plans.
    """
    cluster, wants = repelling()
    at_once = victims(cluster.verdicts(wants)["ns/high"])
    monkeypatch.setattr(by_rounds, "ROUNDS", rounds)
    known: dict[str, NotHelpful] = {}
    for _ in range(20):
        made = cluster.verdicts(wants, known=known)["ns/high"].preemption
        if isinstance(made, Preemption):
            break
        assert isinstance(made, NotHelpful)
        assert made.why is Obstacle.LATER
        known = {"ns/high": made}
    assert known
    assert isinstance(made, Preemption)
    assert sorted(victim.name for victim in made.victims) == at_once


def test_victims_are_chosen_by_rounds_in_turn() -> None:
    """V25: who waits for its turn is put off at once, and what is known of it is kept."""
    cluster, wants = repelling()
    for searching in ("", "ns/other"):
        made = cluster.verdicts(wants, searching=searching)["ns/high"].preemption
        assert isinstance(made, NotHelpful)
        assert (made.why, made.begun) == (Obstacle.LATER, True)

    known = {"ns/high": NotHelpful(why=Obstacle.LATER, begun=True, passed=("a",))}
    waits = cluster.verdicts(wants, searching="", postponed={"ns/high"}, known=known)
    assert waits["ns/high"].preemption is known["ns/high"]
    for whose_turn in (None, "ns/high"):
        assert victims(cluster.verdicts(wants, searching=whose_turn)["ns/high"])


@pytest.mark.parametrize("share", [0.9, 0.8, 0.7, 0.6, 0.5])
def test_work_that_is_used_up_goes_on_in_the_next_plan(share: float) -> None:
    """V25: a decision that needs more work than a plan has comes down to the same set over several
    plans.
    """
    cluster, wants = repelling()
    whole = plan(cluster.snapshot(), [wants], now_s=0.0, preempting=cluster.given())
    known, unfinished = dict[str, NotHelpful](), None
    for _ in range(20):
        limits, given = Limits(work=int(share * whole.work)), cluster.given(known=known)
        made = plan(
            cluster.snapshot(),
            [wants],
            now_s=0.0,
            limits=limits,
            preempting=given,
            unfinished=unfinished,
        )
        unfinished, found = made.unfinished, [each.preemption for each in made.verdicts]
        if any(isinstance(each, Preemption) for each in found):
            break
        known = {
            each.group: each.preemption
            for each in made.verdicts
            if isinstance(each.preemption, NotHelpful)
        }
        assert all(each.why is Obstacle.LATER for each in known.values())
    assert known
    assert victims(made.verdicts[0]) == victims(whole.verdicts[0])


@pytest.mark.parametrize("held", [False, True])
def test_others_stay_held_back_while_the_next_plans_search_for_victims(
    held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V27: else what starts meanwhile takes the room. A search alone holds nobody back: its end
    would wake the group, which searched again, and so on without end (history 6999).
    """
    cluster, wants = repelling()
    cluster.nodes = (*cluster.nodes, node("c", 2))
    cluster.run("peer", "c", gpus=1, priority=1000)
    monkeypatch.setattr(by_rounds, "ROUNDS", 5)
    before = HeldBack("ns/high", 1000, ("a",), group_key(wants)) if held else None
    verdicts = cluster.verdicts(wants, high("ns/late", priority=1), held_back=before)
    found = verdicts["ns/high"].preemption
    assert isinstance(found, NotHelpful)
    assert (found.why, found.wanted) == (Obstacle.LATER, ("a", "b", "c") if held else ())
    assert bool(verdicts["ns/late"].binds) is not held


@pytest.mark.parametrize("rounds", [2, 3, 5, 24])
@pytest.mark.parametrize("last_resort", [False, True])
def test_rounds_that_are_used_up_end_in_a_bounded_number_of_plans(
    rounds: int, last_resort: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V25: budgets and priorities are tried one after the other; what one plan is done with is not
    tried again, and a search that takes more rounds than a plan has is given up and told."""
    cluster, wants = repelling()
    for i, priority in enumerate((2, 3, 4)):
        cluster.run(f"c{i}", "a", gpus=0, priority=priority)
    cluster.budget("ns/w", 0, [each.pod for each in cluster.pods])
    rule = BudgetRule.LAST_RESORT if last_resort else BudgetRule.RESPECT
    monkeypatch.setattr(by_rounds, "ROUNDS", rounds)
    known: dict[str, NotHelpful] = {}
    for _ in range(30):
        verdict = cluster.verdicts(wants, known=known, budgets=rule)["ns/high"]
        made = verdict.preemption
        if not isinstance(made, NotHelpful) or made.why is not Obstacle.LATER:
            break
        assert known.get("ns/high") != made
        known = {"ns/high": made}
    if rounds == 2:
        assert isinstance(made, NotHelpful)
        assert made.why is Obstacle.TOO_MUCH_WORK
        assert "choosing pods to evict for 2 pods takes too long" in say(verdict.told).text
    elif last_resort:
        assert isinstance(made, Preemption)
    else:
        assert isinstance(made, NotHelpful)
        assert made.why is Obstacle.BUDGET


@pytest.mark.parametrize("work", [2_000, 6_000, 200_000])
def test_a_preemptor_of_many_shapes_is_decided_and_told_in_a_few_plans(work: int) -> None:
    """Q4, V21: where the choice of victims does not fit into a plan that is said; a plan that it
    fits into evicts.
    """
    cluster = RunningCluster([node(f"n{i}") for i in range(40)])
    for i in range(40):
        cluster.run(f"low-{i}", f"n{i}", gpus=8, priority=1)
    members = [pod(f"h-{i}", gpus=2, cpu_milli=100 + i, priority=9) for i in range(30)]
    wants, unfinished, plans = group(gang("ns/high", members), priority=9), None, 0
    while True:
        plans += 1
        assert plans < 8
        snapshot, given = cluster.snapshot(), cluster.given()
        made = plan(
            snapshot,
            [wants],
            now_s=0.0,
            preempting=given,
            limits=Limits(work=work),
            unfinished=unfinished,
        )
        unfinished = made.unfinished
        if made.verdicts:
            break
    (verdict,) = made.verdicts
    if work == 200_000:
        assert isinstance(verdict.preemption, Preemption)
    else:
        assert "takes too long" in say(verdict.told).text


def test_sums_of_many_shapes_are_charged_for_each_domain() -> None:
    """V25: hundreds of domains times hundreds of shapes took 0.7 s of one plan."""
    work = Work()
    mask = np.ones(5_000, dtype=np.bool_)
    sums = NeededSums(
        ("cpu",), tuple(Ask((1,), 1, mask, False) for _ in range(256)), mask, (), False, work
    )
    sums.within(Scope(mask, mask))
    assert work.used >= 256 * 4
    with pytest.raises(OutOfWork), work.at_most(100):
        sums.within(Scope(mask, mask))
