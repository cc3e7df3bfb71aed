"""Wait time and deadlock as one plan sees them: semantics T1, T2, D1."""

from __future__ import annotations

from msgspec import structs

from gangsched.core.cycle import Limits, plan
from gangsched.model.gang import Gang, Group, Mode, Placement
from gangsched.model.objects import Node
from gangsched.model.plan import Plan
from gangsched.model.reasons import Reason
from gangsched.model.resources import ResourceVector
from gangsched.sentences import say
from tests.builders import (
    amounts,
    gang,
    group,
    holds,
    node,
    pod,
    shape,
    snapshot,
    verdict_on,
    where,
)
from tests.running_cluster import RunningCluster


def holding(
    name: str,
    min_member: int,
    held: dict[str, int],
    *,
    gpus: int = 1,
    creation_s: int = 0,
    wait_s: float = 600.0,
    min_resources: ResourceVector = (),
) -> Group:
    """A NonStrict group of one gang that needs `min_member` and holds so many on each node, since
    second 0.
    """
    pods = [pod(f"{name}{n}", gpus=gpus) for n in range(min_member)]
    nodes = [each for each, number in held.items() for _ in range(number)]
    placements = tuple(Placement(each, where) for each, where in zip(pods, nodes, strict=False))
    ours = gang(
        f"ns/{name}",
        pods[len(nodes) :],
        min_member,
        mode=Mode.NON_STRICT,
        held=placements,
        wait_time_s=wait_s,
        min_resources=min_resources,
    )
    return group(ours, creation_s=creation_s, clock_started_s=0.0 if nodes else None)


def planned(nodes: list[Node], *groups: Group, now_s: float = 1.0) -> Plan:
    """The plan over these groups, their holds occupying their nodes."""
    held = [
        (hold.pod, hold.node) for each in groups for member in each.gangs for hold in member.held
    ]
    return plan(snapshot(nodes, held), list(groups), now_s=now_s)


def test_group_whose_wait_time_is_over_releases_everything() -> None:
    """T2: at the end of the wait time every hold of every gang of the group is released, and it is
    expired.
    """
    ours = holding("g", 3, {"a": 2}, wait_s=30)
    (verdict,) = planned([node("a", 2)], ours, now_s=30.0).verdicts
    assert verdict.expired
    assert verdict.reason is Reason.TIMED_OUT
    assert len(verdict.releases) == 2
    assert "30 s" in say(verdict.told).text
    (early,) = planned([node("a", 2)], ours, now_s=29.9).verdicts
    assert not early.expired


def test_shortest_wait_time_of_the_gangs_counts() -> None:
    """T1: the group gives up together, when the first of its gangs must."""
    patient, hasty = holding("a", 3, {"n": 1}, wait_s=600), holding("b", 3, {"n": 1}, wait_s=10)
    both = group(*patient.gangs, *hasty.gangs, clock_started_s=0.0)
    (verdict,) = planned([node("n", 2)], both, now_s=10.0).verdicts
    assert verdict.expired
    assert len(verdict.releases) == 2


def test_released_room_is_free_for_the_next_in_the_same_cycle() -> None:
    """T2, Q4: a group behind an expired one gets its room at once."""
    gone = holding("g", 3, {"a": 2}, wait_s=30)
    waiting = group(gang("ns/w", [pod("w0"), pod("w1")]), creation_s=9)
    verdicts = planned([node("a", 2)], gone, waiting, now_s=30.0)
    assert len(verdict_on(verdicts, "ns/w").binds) == 2


def test_lower_ranked_holder_yields_to_the_first() -> None:
    """D1: of two holders that block each other the later one gives up and the earlier
    one starts.
    """
    first, second = holding("a", 3, {"n": 2}), holding("b", 3, {"n": 2}, creation_s=1)
    verdicts = planned([node("n", 4)], first, second)
    yielded, permitted = verdict_on(verdicts, "ns/b"), verdict_on(verdicts, "ns/a")
    assert yielded.reason is Reason.YIELDED
    assert yielded.yields_to == "ns/a"
    assert set(yielded.releases) == {hold.pod.uid for hold in second.gangs[0].held}
    assert "ns/a" in say(yielded.told).text
    assert set(where(permitted)) == {"a0", "a1", "a2"}
    assert [each.group for each in verdicts.verdicts].index("ns/b") == 0, (
        "room must be free before it is taken"
    )


def test_first_holder_never_yields() -> None:
    """D1: when the first cannot be helped it keeps its holds, and a lower one may profit from one
    below it.
    """
    stuck = holding("a", 9, {"n": 1})
    second, third = holding("b", 3, {"n": 2}, creation_s=1), holding("c", 3, {"n": 1}, creation_s=2)
    verdicts = planned([node("n", 9, pods=4)], stuck, second, third)
    assert not verdict_on(verdicts, "ns/a").releases
    assert verdict_on(verdicts, "ns/c").yields_to == "ns/b"
    assert len(verdict_on(verdicts, "ns/b").binds) == 3


def test_fewest_and_lowest_ranked_yield() -> None:
    """D1: one group yields where one is enough, and it is the last one that is enough."""
    groups = [
        holding("a", 3, {"m": 2}, creation_s=0),
        holding("b", 3, {"n": 2}, creation_s=1),
        holding("c", 3, {"m": 2}, creation_s=2),
    ]
    verdicts = planned([node("m", 4), node("n", 2)], *groups)
    assert [each.group for each in verdicts.verdicts if each.yields_to] == ["ns/c"]


def test_several_yield_when_one_is_not_enough() -> None:
    """D1: as many as needed give up, but none whose room does not help."""
    groups = [
        holding("a", 4, {"n": 2}, gpus=1, creation_s=0),
        holding("b", 4, {"n": 1}, gpus=1, creation_s=1),
        holding("c", 4, {"x": 1}, gpus=0, creation_s=2),
        holding("d", 4, {"n": 1}, gpus=1, creation_s=3),
    ]
    nodes = [node("n", 4, pods=4), node("x", 0, pods=1)]
    verdicts = planned(nodes, *groups)
    assert {each.group for each in verdicts.verdicts if each.yields_to} == {"ns/b", "ns/d"}
    assert len(verdict_on(verdicts, "ns/a").binds) == 4


def test_nobody_yields_while_a_holder_progresses() -> None:
    """D1: as long as a cycle places, binds or releases anything of a holder there is
    no deadlock.
    """
    first, second = holding("a", 3, {"n": 2}), holding("b", 3, {"n": 2}, creation_s=1)
    third = holding("c", 3, {"m": 1}, gpus=0, creation_s=2)
    verdicts = planned([node("n", 4), node("m", 0)], first, second, third)
    assert len(verdict_on(verdicts, "ns/c").binds) == 3
    assert not any(each.yields_to for each in verdicts.verdicts)


def test_a_pod_that_holds_nothing_is_no_progress() -> None:
    """D1: pods that come and go all the time do not keep a deadlock alive."""
    first, second = holding("a", 3, {"n": 2}), holding("b", 3, {"n": 2}, creation_s=1)
    plain = group(gang("pod:ns/p", [pod("p", gpus=0, cpu_milli=100)], 1, plain=True))
    verdicts = planned([node("n", 4)], first, second, plain)
    assert verdict_on(verdicts, "ns/b").yields_to == "ns/a"
    assert verdict_on(verdicts, "pod:ns/p").binds


def test_holder_that_is_not_looked_at_may_yield() -> None:
    """D1: a plan's limits and holders that did not change keep nobody from yielding."""
    first, second = holding("a", 3, {"n": 2}), holding("b", 3, {"n": 2}, creation_s=1)
    decided = planned([node("n", 4)], first, structs.replace(second, unchanged=True))
    assert verdict_on(decided, "ns/b").yields_to == "ns/a"
    assert decided.left == ()


def test_nobody_yields_for_nothing() -> None:
    """D1: holds are not given up when that would let no group start."""
    verdicts = planned(
        [node("n", 4), node("m", 4, pods=0)], holding("a", 5, {"n": 2}), holding("b", 5, {"n": 2})
    )
    assert not any(each.releases for each in verdicts.verdicts)


def test_group_of_higher_priority_need_not_hold_to_profit() -> None:
    """D1: holds of a lower priority yield to any waiting group, a Strict one or a plain pod among
    them.
    """
    strict = group(gang("ns/s", [pod(f"s{n}") for n in range(4)]), priority=9)
    plain = group(gang("pod:ns/p", [pod("p", gpus=4)], 1, plain=True), priority=9)
    for high in (strict, plain):
        verdicts = planned([node("n", 4)], high, holding("b", 5, {"n": 4}))
        assert verdict_on(verdicts, "ns/b").yields_to == high.id
        assert len(verdict_on(verdicts, high.id).binds) == len(high.gangs[0].pending)


def test_room_that_was_given_up_in_a_plan_counts_once() -> None:
    """D1, V6: what waits for its claims yields to the gang that needs one of its nodes; a gang that
    needs the other one twice does not get it a second time.
    """
    waiting = [pod("low-a", gpus=4, priority=1), pod("low-b", gpus=4, priority=1)]
    room = holds(waiting, "a", "b")
    low = group(gang("ns/low", [], 2, unbound=room, total=2), priority=1)
    cluster = RunningCluster([node("a", 4), node("b", 4)], held=[*zip(waiting, "ab", strict=True)])

    on_b = pod("once", of=shape(4, node_name="b"), priority=9)
    twice = [pod(f"twice-{n}", of=shape(4, node_name="a"), priority=9) for n in range(2)]
    verdicts = cluster.verdicts(
        group(gang("ns/twice", twice), priority=9),
        group(gang("ns/once", [on_b]), priority=9, creation_s=1),
        low,
    )
    assert verdicts["ns/low"].yields_to == "ns/once"
    assert where(verdicts["ns/once"]) == {"once": "b"}
    assert not verdicts["ns/twice"].binds


def test_group_that_holds_nothing_makes_no_equal_yield() -> None:
    """D1: among equals only holders profit; a Strict group waits for holds to end."""
    strict = group(gang("ns/s", [pod(f"s{n}") for n in range(4)]), creation_s=0)
    verdicts = planned([node("n", 4)], strict, holding("b", 5, {"n": 4}, creation_s=1))
    assert not any(each.releases for each in verdicts.verdicts)


def test_yielded_group_waits_for_its_beneficiary() -> None:
    """D1: a group that yielded is not tried before its beneficiary was permitted or is gone."""
    ours = group(gang("ns/b", [pod("b0")]), yielded_to="ns/a")
    (verdict,) = planned([node("n", 4)], ours).verdicts
    assert verdict.reason is Reason.YIELDED
    assert say(verdict.told).text == "the group released its nodes so that ns/a can start"
    assert not verdict.binds


def test_beneficiary_of_another_namespace_is_not_named() -> None:
    """D1, V22: who yields learns no name of another tenant."""
    ours = group(gang("ns/b", [pod("b0")]), yielded_to="pod:other/secret")
    (verdict,) = planned([node("n", 4)], ours).verdicts
    assert (
        say(verdict.told).text
        == "the group released its nodes so that a group of another namespace can start"
    )


def test_beneficiary_must_have_its_min_resources() -> None:
    """D1, P4: a group whose minResources would still be short is not permitted by a yield."""
    poor = holding("a", 3, {"n": 2}, min_resources=amounts(gpus=5))
    verdicts = planned([node("n", 4)], poor, holding("b", 3, {"n": 2}, creation_s=1))
    assert not verdict_on(verdicts, "ns/a").binds


def test_holder_short_of_min_resources_may_profit() -> None:
    """D1, P4: a holder whose minResources are taken by another holder's room is part of the
    deadlock.
    """
    first = holding("a", 2, {"n": 1}, min_resources=amounts(gpus=4))
    verdicts = planned([node("n", 4)], first, holding("b", 4, {"n": 3}, creation_s=1))
    assert verdict_on(verdicts, "ns/b").yields_to == "ns/a"
    assert len(verdict_on(verdicts, "ns/a").binds) == 2


def test_free_running_gang_is_no_gang_of_a_deadlock() -> None:
    """D1: what has no gang rule left binds its holds instead of keeping them."""
    done = holding("a", 3, {"n": 2})
    free: Gang = gang(
        "ns/a",
        done.gangs[0].pending,
        3,
        mode=Mode.NON_STRICT,
        held=done.gangs[0].held,
        satisfied=True,
    )
    verdicts = planned(
        [node("n", 4)], group(free, clock_started_s=0.0), holding("b", 3, {"n": 2}, creation_s=1)
    )
    assert len(verdict_on(verdicts, "ns/a").binds) == 2


def test_lack_of_work_is_no_answer_to_who_yields() -> None:
    """D1, Z4: deciding many groups leaves too little work to ask for each of them whether holds
    would help; the next plans decide fewer, until it was asked for all.
    """
    low = holding("low", 9, {"a": 8})
    low = structs.replace(low, priority=-1)
    waiting = {}
    for number in range(40):
        pods = [pod(f"w{number}-{n}") for n in range(8 if number == 30 else 20)]
        waiting[f"ns/w{number}"] = group(gang(f"ns/w{number}", pods), creation_s=number)

    held = [(hold.pod, hold.node) for hold in low.gangs[0].held]
    cluster = snapshot([node("a", 8), *(node(f"n{n}", 1) for n in range(3))], held)
    limits = Limits(work=6_000)
    ready, asked, most = set(waiting), 0, limits.groups
    while ready:
        asked += 1
        assert asked < 100
        queue = [waiting[name] for name in sorted(ready)]
        unchanged = structs.replace(low, unchanged=True)
        made = plan(
            cluster,
            [*queue, unchanged],
            now_s=1.0,
            limits=structs.replace(limits, groups=min(limits.groups, most)),
        )
        if made.verdicts[0].reason is Reason.YIELDED:
            break
        most = len(made.verdicts) // 2 if made.is_overflowed else limits.groups
        ready = {*made.left} | made.again

    yielded, permitted, *_ = made.verdicts
    assert asked > 1
    assert (yielded.group, len(yielded.releases)) == ("ns/low", 8)
    assert permitted.group == "ns/w30"
