"""Who is looked at first: semantics Q1, Q2, Q4, Q5."""

from __future__ import annotations

import random
from dataclasses import replace

from msgspec import structs

from gangsched.core.cycle import Limits, plan
from gangsched.core.placement_attempt import PlacementAttempt
from gangsched.core.queue_sort import group_key, in_member_order, in_turns, passing_key
from gangsched.core.reserve import Ledger
from gangsched.core.search.demand import Demand
from gangsched.model.gang import Group, Refusal
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.reasons import Reason
from gangsched.model.verdict_facts import Worded
from gangsched.state.rule_set import Rules
from tests.builders import gang, gang_metadata, group, node, pod, shape, snapshot, verdict_on
from tests.running_cluster import RunningCluster, high
from tests.world import World


def test_groups_are_ordered_by_priority_then_age_then_id() -> None:
    """Q1: priority descending, creation ascending, and the id decides ties."""
    one = [pod("p")]
    groups = [
        group(gang("ns/b", one), priority=1, creation_s=5),
        group(gang("ns/c", one), priority=9, creation_s=9),
        group(gang("ns/a", one), priority=1, creation_s=5),
        group(gang("ns/d", one), priority=1, creation_s=4),
    ]
    assert [each.id for each in sorted(groups, key=group_key)] == ["ns/c", "ns/d", "ns/a", "ns/b"]


def test_broken_groups_go_first_within_their_priority() -> None:
    """Q1, Q2: healing beats starting among equals, whatever the age; a higher priority
    goes first.
    """
    older, broken = (
        group(gang("ns/a"), creation_s=1),
        group(gang("ns/b"), broken=True, creation_s=2),
    )
    higher = group(gang("ns/c"), priority=1000, creation_s=3)
    assert sorted([older, broken, higher], key=group_key) == [higher, broken, older]


def test_the_rest_of_a_start_goes_before_every_priority() -> None:
    """B3, Q2: a higher priority that takes the room that it lacks would make half a group of what
    runs.
    """
    highest = group(gang("ns/a"), priority=2_000_000_000, creation_s=1)
    rest = group(gang("ns/b"), broken=True, rest=frozenset({"ns/b"}), creation_s=2)
    assert sorted([highest, rest], key=group_key) == [rest, highest]


def test_namespaces_take_turns() -> None:
    """Q4: within a priority one group of each namespace, then the next of each; a plain pod is of
    its namespace.
    """
    names = ["a/1", "a/2", "a/3", "b/1", "pod:a/p", "pod:b/p"]
    groups = [group(gang(name), creation_s=age) for age, name in enumerate(names)]
    first = group(gang("c/high"), priority=9, creation_s=99)
    seen = group(gang("d/1"), priority=99)
    turned = [
        each.id for each in in_turns(sorted([*groups, first, seen], key=group_key), {seen.id})
    ]
    assert turned == ["c/high", "a/1", "b/1", "a/2", "pod:b/p", "a/3", "pod:a/p", "d/1"]


def test_a_namespace_whose_groups_take_a_whole_plan_each_has_one_turn_a_round() -> None:
    """Q4: its first group was begun in the plan before, so the next turn is another namespace's."""
    names = ["a/1", "a/2", "a/3", "b/1", "b/2", "c/1"]
    groups = [group(gang(name), creation_s=age) for age, name in enumerate(names)]
    turned = [each.id for each in in_turns(groups, {"a/1", "b/1"})]
    assert turned == ["c/1", "a/2", "b/2", "a/3", "a/1", "b/1"]


def test_members_are_ordered_by_priority_size_and_name() -> None:
    """Q5: priority descending, larger request first, then name."""
    pods = [pod("c", gpus=1), pod("b", gpus=1), pod("a", gpus=4), pod("z", gpus=1, priority=5)]
    assert [each.name for each in in_member_order(pods, GpuPolicy())] == ["z", "a", "b", "c"]


def test_order_of_the_queue_does_not_matter() -> None:
    """Q1: the plan is the same whatever order its groups are handed over in (seeds 0 to 19)."""
    groups = [
        group(gang(f"ns/g{n}", [pod(f"g{n}-{i}", uid=f"{n}-{i}") for i in range(1 + n % 3)]))
        for n in range(6)
    ]
    picture = snapshot([node("a", 3), node("b", 4)])
    expected = plan(picture, groups, now_s=0.0)
    for seed in range(20):
        shuffled = groups.copy()
        random.Random(seed).shuffle(shuffled)
        assert plan(picture, shuffled, now_s=0.0) == expected, f"seed {seed}"


def test_refused_group_stops_nobody_behind_it() -> None:
    """Q4: a gang that cannot fit leaves the room to the next one, in the same cycle."""
    big, small = (
        group(gang("ns/big", [pod("b", gpus=9)]), priority=5),
        group(gang("ns/small", [pod("s", gpus=8)])),
    )
    verdicts = plan(snapshot([node("a", 8)]), [big, small], now_s=0.0)
    assert verdict_on(verdicts, "ns/big").reason is Reason.UNSCHEDULABLE
    assert [placement.node for placement in verdict_on(verdicts, "ns/small").binds] == ["a"]


def test_older_group_gets_the_room_first() -> None:
    """Q1, Q4: of two equals that both want the last room the older one gets it."""
    young, old = (
        group(gang("ns/a", [pod("y", gpus=8)]), creation_s=9),
        group(gang("ns/b", [pod("o", gpus=8)])),
    )
    verdicts = plan(snapshot([node("a", 8)]), [young, old], now_s=0.0)
    assert verdict_on(verdicts, "ns/b").binds
    assert not verdict_on(verdicts, "ns/a").binds


def test_members_of_a_gang_are_placed_back_to_back() -> None:
    """Q5: two gangs of four on five GPUs never get two and three; the first gets all it needs."""
    gangs = [gang(f"ns/{name}", [pod(f"{name}{n}") for n in range(4)]) for name in "ab"]
    verdicts = plan(snapshot([node("a", 5)]), [group(each) for each in gangs], now_s=0.0)
    assert [len(each.binds) for each in verdicts.verdicts] == [4, 0]


def test_plan_is_bounded_by_count_and_names_what_is_left() -> None:
    """Decision 8: a plan stops at its limits of groups or pods; at least one group is always looked
    at.
    """
    groups = [group(gang(f"ns/g{n}", [pod(f"g{n}-{i}") for i in range(4)])) for n in range(5)]
    picture = snapshot([node("a", 100)])
    by_groups = plan(picture, groups, now_s=0.0, limits=Limits(groups=2))
    assert [each.group for each in by_groups.verdicts] == ["ns/g0", "ns/g1"]
    assert by_groups.left == ("ns/g2", "ns/g3", "ns/g4")
    by_pods = plan(picture, groups, now_s=0.0, limits=Limits(pods=1))
    assert [each.group for each in by_pods.verdicts] == ["ns/g0"]
    assert by_pods.pods_tried == 4


def test_sizes_are_compared_by_accelerators_then_cpu_then_memory() -> None:
    """Q5: what is scarce decides which request is larger."""
    small_gpu, much_cpu = pod("a", of=shape(1, 100)), pod("b", of=shape(0, 64_000))
    assert in_member_order([much_cpu, small_gpu], GpuPolicy()) == (small_gpu, much_cpu)


def test_what_the_administrator_calls_an_accelerator_counts_as_one() -> None:
    """Q5: the setting `accelerators` decides which member is larger, in the order of the queue and
    in the search.
    """
    tpu = replace(shape(0, 100), requests=(("cpu", 100), ("example.com/tpu", 1)))
    small_tpu, much_cpu = pod("b", of=tpu), pod("a", of=shape(0, 64_000))
    policy = GpuPolicy(accelerators=frozenset({"example.com/tpu"}))
    assert in_member_order([much_cpu, small_tpu], GpuPolicy()) == (much_cpu, small_tpu)
    assert in_member_order([much_cpu, small_tpu], policy) == (small_tpu, much_cpu)
    for each, first in ((GpuPolicy(), "a"), (policy, "b")):
        world = World(rules=Rules(policy=each))
        stated = gang_metadata("g", min_member=2)
        world.create(
            *(structs.replace(member, gang_metadata=stated) for member in (much_cpu, small_tpu))
        )
        world.settle()
        assert world.state.registry.view("ns/g").pending[0].name == first
        view = world.state.registry.view("ns/g")
        ledger = Ledger(world.state.snapshot(), policy=each)
        demand = Demand.of([view], PlacementAttempt(group(view), ledger))
        assert demand.items[0].pods[0].name == first


def test_a_group_that_is_nominated_does_not_wait_behind_all_that_are_new() -> None:
    """Q4, V10: the plan that made room for it has looked at it; its victims are evicted when it is
    looked at again.
    """
    cluster = RunningCluster([node("a")])
    old, new = high("ns/old", gpus=8), [high(f"ns/new-{n}", gpus=8) for n in range(5)]
    told = Refusal(Reason.PREEMPTING, Worded("nominated"))
    for nominations, first in (({}, "ns/new-0"), ({old.id: told}, "ns/old")):
        made = plan(
            cluster.snapshot(),
            [
                structs.replace(old, creation_s=1),
                *(structs.replace(each, creation_s=2) for each in new),
            ],
            now_s=0.0,
            limits=Limits(groups=1),
            preempting=cluster.given(nominated=nominations),
            looked_at={old.id},
        )
        assert [verdict.group for verdict in made.verdicts] == [first]


def test_of_broken_groups_the_longest_broken_goes_first() -> None:
    """L10: since its oldest waiting member was created, whatever the age of the gang; then Q1."""

    def broken(name: str, since_s: int, age_s: int, namespace: str = "ns") -> Group:
        waits = [pod(f"{name}-1", creation_s=since_s + 5), pod(f"{name}-0", creation_s=since_s)]
        return group(gang(f"{namespace}/{name}", waits), creation_s=age_s, broken=True)

    groups = [
        broken("late", 900, 1),
        broken("young", 700, 20),
        broken("old", 700, 10),
        broken("first", 500, 30, namespace="other"),
        group(gang("ns/starts", [pod("s", creation_s=1)]), creation_s=0),
    ]
    expected = ["other/first", "ns/old", "ns/young", "ns/late", "ns/starts"]
    in_order = sorted(groups, key=group_key)
    assert [each.id for each in in_order] == expected
    assert [each.id for each in in_turns(in_order, set())] == expected
    assert [each.id for each in sorted(groups, key=passing_key)] == expected
