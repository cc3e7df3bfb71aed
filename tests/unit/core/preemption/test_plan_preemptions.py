"""Preemption through `plan`: who makes room for whom, and what is told where nobody does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from msgspec import structs

from gangsched.core.cycle import plan
from gangsched.model.gang import Group, Mode, Refusal
from gangsched.model.gpu_policy import PlacementConstraints
from gangsched.model.nominated_room import Nomination
from gangsched.model.preemption import Harm, NotHelpful, Obstacle, Preemption, UnitKind, VictimScope
from gangsched.model.reasons import Reason
from gangsched.model.verdict_facts import Worded
from gangsched.sentences import Sentences, say
from tests.builders import gang, group, holds, node, pod, shape, verdict_on
from tests.running_cluster import (
    WALL_S,
    RunningCluster,
    full_of_low,
    high,
    nominated,
    obstacle,
    victims,
)
from tests.unit.core.filter.volumes.test_volume_binding import (
    claim,
    on_node,
    storage,
    using,
    volume,
)

# --- who may preempt -----------------------------------------------------------------------------


def test_the_member_whose_priority_is_the_right_is_named() -> None:
    """V2, V21: one member without the priority class, and the whole gang may evict nobody."""
    members = [pod("m-0", gpus=8, priority=9), pod("m-1", gpus=8, priority=1)]
    _, told = obstacle(full_of_low(), group(gang("ns/high", members), priority=9))
    assert (
        told
        == "no pods of lower priority than 1, the priority of its member ns/m-1, run on eligible"
        " nodes."
    )


def test_gang_takes_the_room_of_a_gang_of_lower_priority() -> None:
    """V3, V20: all of it is evicted, every member is nominated, and the group is told until when it
    waits.
    """
    verdict = full_of_low().verdicts(high(number=2, gpus=8))["ns/high"]
    assert victims(verdict) == ["low-0", "low-1"]
    assert nominated(verdict) == {"high-0": "a", "high-1": "b"}
    assert verdict.binds == ()
    starts = "will start on a and b"
    waiting = "when ns/low (2 pods) has stopped; gives up at 1970-01-12T13:49Z"
    assert verdict.told.reason is Reason.PREEMPTING
    lack = "when pods that run there have stopped"
    assert say(verdict.told) == Sentences(starts, waiting, joint=" ", lack=lack)
    made = verdict.preemption
    assert isinstance(made, Preemption)
    assert made.stopped == ("ns/low",)
    assert (made.grace_s, made.deadline_s) == (30, WALL_S + 90)
    assert {victim.kind for victim in made.victims} == {UnitKind.CORE}
    assert made.harm == Harm(0, 1, 1, 2 * 8 * 1000 * 600, 2, 0, -2 * (WALL_S - 600))


def test_equal_priority_is_left_alone() -> None:
    """V2, V18, V25: victims are of strictly lower priority; where nothing is, nobody even asks what
    runs.
    """
    cluster = full_of_low()
    told = obstacle(cluster, high(number=2, gpus=8, priority=1))
    assert told == (Obstacle.NOTHING_LOWER, "no pods of lower priority run on eligible nodes.")
    assert cluster.asked == 0


def test_never_on_one_needed_member_is_never_for_all() -> None:
    """V2: preemptionPolicy Never of a needed member, or of the native PodGroup."""
    told = (Obstacle.POLICY_NEVER, "not allowed by preemptionPolicy Never.")
    members = [pod("h-0", gpus=8, priority=9), pod("h-1", gpus=8, priority=9, never_preempts=True)]
    assert obstacle(full_of_low(), group(gang("ns/high", members), priority=9)) == told
    alike = [pod(f"h-{n}", gpus=8, priority=9) for n in range(2)]
    assert (
        obstacle(full_of_low(), group(gang("ns/high", alike, never_preempts=True), priority=9))
        == told
    )


def test_right_is_that_of_the_weakest_needed_member() -> None:
    """V2: a pod of high priority lends its right to nobody; a member above the minimum takes none
    away.
    """
    members = [pod("h-0", gpus=8, priority=9), pod("h-1", gpus=8, priority=1)]
    assert (
        obstacle(full_of_low(), group(gang("ns/high", members), priority=9))[0]
        is Obstacle.NOTHING_LOWER
    )
    verdict = full_of_low(1).verdicts(group(gang("ns/high", members, 1), priority=9))["ns/high"]
    assert victims(verdict) == ["low-1"]


def test_members_above_the_minimum_preempt_for_nobody() -> None:
    """V1: a satisfied gang that has its minimum gets no room for more."""
    more = gang(
        "ns/high",
        [pod("h", gpus=8, priority=9)],
        1,
        bound=1,
        nodes=("a",),
        satisfied=True,
        permitted_min=1,
    )
    verdict = full_of_low().verdicts(group(more, priority=9))["ns/high"]
    assert verdict.preemption is None
    assert "Preemption" not in say(verdict.told).text


def test_broken_group_preempts_for_what_it_lacks() -> None:
    """V1, V19: the member that it lost is worth the surplus of another gang."""
    lost = gang(
        "ns/high",
        [pod("h", gpus=8, priority=9)],
        2,
        bound=1,
        nodes=("c",),
        satisfied=True,
        permitted_min=2,
    )
    verdict = full_of_low(1).verdicts(group(lost, priority=9, broken=True))["ns/high"]
    assert victims(verdict) == ["low-1"]


def test_plain_pod_preempts() -> None:
    """V1: it is a group of one, and is told itself."""
    one = pod("urgent", gpus=4, priority=9)
    cluster = RunningCluster([node("a")])
    cluster.run("cheap", "a", gpus=4, priority=1, ran_s=10)
    cluster.run("dear", "a", gpus=4, priority=1, ran_s=3000)
    verdict = cluster.verdicts(group(gang("ns/urgent", [one], plain=True), priority=9))["ns/urgent"]
    assert victims(verdict) == ["cheap"]
    assert dict(verdict.notes)[one.uid].reason is Reason.PREEMPTING


def test_nothing_is_done_where_the_group_fits() -> None:
    """V1: only a refusal for room leads to preemption."""
    cluster = RunningCluster([node("a"), node("b")])
    cluster.run("low", "a", gpus=8, priority=1)
    verdict = cluster.verdicts(high(gpus=8))["ns/high"]
    assert [placement.node for placement in verdict.binds] == ["b"]
    assert cluster.asked == 0


def test_off_is_off() -> None:
    """V5, V25: neither victims nor sentences, as without any preemption."""
    groups = [high(number=2, gpus=8)]
    (verdict,) = full_of_low().verdicts(*groups, scope=VictimScope.OFF).values()
    (without,) = plan(full_of_low().snapshot(), groups, now_s=0.0).verdicts
    assert verdict.preemption is without.preemption is None
    assert verdict.told == without.told


def test_group_that_waits_for_its_nomination_makes_no_other() -> None:
    """V11, V12: it is told what it waits for; after one that was lost it waits, and is told how
    long.
    """
    waiting = Refusal(Reason.PREEMPTING, Worded("nominated to a"))
    cluster = full_of_low()
    verdict = cluster.verdicts(high(number=2, gpus=8), nominated={"ns/high": waiting})["ns/high"]
    assert (verdict.told, verdict.preemption) == (waiting, None)
    told = obstacle(cluster, high(number=2, gpus=8), retry_at_s={"ns/high": 29.5})
    assert told == (Obstacle.BACK_OFF, "next attempt in 30s.")
    assert cluster.asked == 0


def test_what_was_found_in_vain_is_not_looked_for_again() -> None:
    """V25: while nothing changed, the state says what was found."""
    found = NotHelpful(why=Obstacle.TOO_LITTLE, pods=1, room=1, needed=2)
    cluster = full_of_low()
    told = obstacle(cluster, high(number=2, gpus=8), known={"ns/high": found})
    assert told == (
        Obstacle.TOO_LITTLE,
        "evicting the 1 pod of lower priority would make room for at most 1 of 2.",
    )
    assert cluster.asked == 0


# --- nothing in vain ----------------------------------------------------------------------------


def test_nobody_is_evicted_in_vain() -> None:
    """V3, V21: a group that would not fit even then evicts nobody, and is told how far all of it
    would go.
    """
    told = obstacle(full_of_low(), high(number=3, gpus=8))
    assert told == (
        Obstacle.TOO_LITTLE,
        "evicting all 2 pods of lower priority would make room for at most 2 of 3.",
    )


def test_a_gang_that_its_claims_keep_from_nodes_speaks_for_no_other() -> None:
    """V25: what preemption cannot do for members whose volume is on one node, it does for others of
    their shape.
    """
    cluster = full_of_low()
    disk = volume("v-c", required=on_node("a"), available=False)
    tied = [using(f"tied-{n}", "c", of=shape(8), priority=1000) for n in range(2)]
    free = [pod(f"free-{n}", gpus=8, priority=1000) for n in range(2)]
    made = plan(
        structs.replace(cluster.snapshot(), storage=storage(claim("c"), disk)),
        [
            group(gang("ns/a-tied", tied), priority=1000),
            group(gang("ns/b-free", free), priority=1000),
        ],
        now_s=0.0,
        preempting=cluster.given(hold_back_s=0),
    )
    assert isinstance(verdict_on(made, "ns/a-tied").preemption, NotHelpful)
    assert victims(verdict_on(made, "ns/b-free")) == ["low-0", "low-1"]


def test_free_room_counts_together_with_freed_room() -> None:
    """V3: only what is missing is taken."""
    cluster = RunningCluster([node("a"), node("b")])
    for i in range(8):
        cluster.run(f"low-{i}", "b", priority=1)
    verdict = cluster.verdicts(high(number=2, gpus=8))["ns/high"]
    assert victims(verdict) == [f"low-{i}" for i in range(8)]
    assert sorted(nominated(verdict).values()) == ["a", "b"]


def test_required_rack_is_made_free() -> None:
    """V3: free room in other racks does not help a group that must be in one."""
    racks = (("a1", "a"), ("a2", "a"), ("b1", "b"), ("c1", "c"))
    cluster = RunningCluster([node(name, labels={"rack": rack}) for name, rack in racks])
    cluster.gang("ns/low", 2, "a1 a2", gpus=8, priority=1)
    members = [pod(f"h-{i}", gpus=8, priority=9) for i in range(2)]
    wants = group(
        gang("ns/high", members, constraints=PlacementConstraints(topology=("rack",))), priority=9
    )
    verdict = cluster.verdicts(wants)["ns/high"]
    assert victims(verdict) == ["low-0", "low-1"]
    assert set(nominated(verdict).values()) == {"a1", "a2"}


def test_leaving_pods_count_as_gone() -> None:
    """V4: if the group fits once they are gone it is nominated there, and nobody is evicted."""
    cluster = RunningCluster([node("a"), node("b")])
    cluster.run("going", "a", gpus=8, priority=1, deleting=True, deletion_s=WALL_S + 20)
    cluster.run("low", "b", gpus=8, priority=1)
    verdict = cluster.verdicts(high(gpus=8))["ns/high"]
    assert victims(verdict) == []
    assert nominated(verdict) == {"high-0": "a"}
    made = verdict.preemption
    assert isinstance(made, Preemption)
    assert (made.awaited, made.deadline_s) == (("u-going",), WALL_S + 80)


def test_stuck_pods_do_not_count_as_gone() -> None:
    """V4: 60 s past its deletionTimestamp a pod will not go by itself, and evicting it again does
    not help.
    """
    cluster = RunningCluster([node("a"), node("b")])
    cluster.run("stuck", "a", gpus=8, priority=1, deleting=True, deletion_s=WALL_S - 61)
    cluster.run("low", "b", gpus=8, priority=1)
    assert victims(cluster.verdicts(high(gpus=8))["ns/high"]) == ["low"]


# --- in the plan --------------------------------------------------------------------------------


def test_groups_behind_see_the_room_as_taken() -> None:
    """V10, V15: what is freed for one is neither freed again nor planned by those behind it."""
    cluster = RunningCluster([node("a"), node("b")])
    cluster.run("low", "a", gpus=8, priority=1)
    cluster.run("other", "b", gpus=8, priority=2)
    late = high("ns/late", gpus=1, priority=1)
    made = cluster.verdicts(high("ns/first", gpus=8), high("ns/second", gpus=8), late)
    assert victims(made["ns/first"]) == ["low"]
    assert victims(made["ns/second"]) == ["other"]
    assert made["ns/late"].binds == ()


def test_nominated_room_is_not_taken_by_equals() -> None:
    """V10: members nominated in an earlier plan keep the room of their victims, who are still
    there.
    """
    cluster = RunningCluster([node("a")])
    cluster.run("low", "a", gpus=8, priority=1, leaving=True)
    promised = Nomination("a", pod("h", gpus=8, priority=1000), "ns/high")
    (verdict,) = cluster.verdicts(high("ns/equal", gpus=8), nominations=[promised]).values()
    assert isinstance(verdict.preemption, NotHelpful)
    (verdict,) = cluster.verdicts(
        high("ns/above", gpus=8, priority=2000), nominations=[promised]
    ).values()
    assert (victims(verdict), nominated(verdict)) == ([], {"above-0": "a"})


def test_a_plan_ends_with_as_many_nominations_as_are_allowed() -> None:
    """V15: the others are not refused, they are left for the next plan."""
    cluster = RunningCluster([node(f"n{n}") for n in range(6)])
    for n in range(6):
        cluster.run(f"low-{n}", f"n{n}", gpus=8, priority=1)
    made = cluster.verdicts(*(high(f"ns/h{n}", gpus=8) for n in range(6)), per_cycle=4)
    assert [isinstance(each.preemption, Preemption) for each in made.values()] == [True] * 4
    assert made.keys() == {f"ns/h{n}" for n in range(4)}


def test_a_plan_makes_no_more_attempts_than_it_has_time_for() -> None:
    """V25: what an attempt costs counts against the plan's work, also where few pods run."""
    cluster = RunningCluster([node(f"n{n}") for n in range(30)])
    for n in range(30):
        cluster.run(f"low-{n}", f"n{n}", gpus=8, priority=1)
    made = cluster.verdicts(*(high(f"ns/h{n}", gpus=8) for n in range(30)))
    assert 8 <= len(made) < 30


def test_fewer_attempts_in_vain_than_those_that_find_room() -> None:
    """Each looks for longer than it charges; the rest of them are the next plan's."""
    cluster = RunningCluster([node(f"n{n}") for n in range(30)])
    for n in range(30):
        cluster.run(f"low-{n}", f"n{n}", gpus=8, priority=1)

    cluster.budget("ns/all", 0, [each.pod for each in cluster.pods])
    made = cluster.verdicts(*(high(f"ns/h{n}", 30 - n, gpus=8) for n in range(28)))
    assert all(isinstance(each.preemption, NotHelpful) for each in made.values())
    assert 2 <= len(made) <= 5  # without: 7


def held_by_low(cluster: RunningCluster, nodes: str) -> Group:
    """A NonStrict group of priority 1 that holds whole nodes and waits for one more."""
    members = [pod(f"low-{i}", gpus=8, priority=1) for i in range(len(nodes.split()) + 1)]
    placed = holds(members[:-1], *nodes.split())
    cluster.held += [(each.pod, each.node) for each in placed]
    holder = gang("ns/low", members[-1:], len(members), held=placed, mode=Mode.NON_STRICT)
    return group(holder, priority=1, clock_started_s=0.0, unchanged=True)


def test_holds_of_lower_priority_are_released_at_once() -> None:
    """V6, V16: promises cost nothing; nobody is evicted where they do, and the group starts in the
    same plan.
    """
    cluster = RunningCluster([node(name) for name in "abcd"])
    low = held_by_low(cluster, "a b c")
    made = cluster.verdicts(high(number=4, gpus=8), low)
    assert len(made["ns/high"].binds) == 4
    assert len(made["ns/low"].releases) == 3
    assert made["ns/low"].yields_to == "ns/high"
    assert list(made) == ["ns/low", "ns/high"]


def test_holds_are_released_together_with_evictions() -> None:
    """V6: a group whose room is needed gives it up; it may try again elsewhere at once."""
    cluster = RunningCluster([node(name) for name in "ab"])
    low = held_by_low(cluster, "a")
    cluster.run("victim", "b", gpus=8, priority=0)
    made = cluster.verdicts(high(number=2, gpus=8), low)
    assert victims(made["ns/high"]) == ["victim"]
    assert (len(made["ns/low"].releases), made["ns/low"].yields_to) == (1, "")


def test_holds_that_are_not_in_the_way_are_kept() -> None:
    """V6: a promise is released only where it helps."""
    cluster = RunningCluster([node("a"), node("b")])
    low = held_by_low(cluster, "a")
    cluster.run("victim", "b", gpus=8, priority=0)
    pinned = pod("h", gpus=8, priority=1000)
    shape = replace(pinned.shape, node_selector=(("kubernetes.io/hostname", "b"),))
    wants = group(gang("ns/high", [structs.replace(pinned, shape=shape)]), priority=1000)
    made = cluster.verdicts(wants, low)
    assert victims(made["ns/high"]) == ["victim"]
    assert "ns/low" not in made


def test_group_that_holds_preempts_for_the_rest_where_nobody_yields() -> None:
    """V15, V16: a NonStrict group keeps its holds and is nominated for what is missing."""
    cluster = RunningCluster([node("a"), node("b")])
    members = [pod(f"h-{i}", gpus=8, priority=9) for i in range(2)]
    placed = holds(members[:1], "a")
    cluster.held = [(each.pod, each.node) for each in placed]
    cluster.run("low", "b", gpus=8, priority=1)
    holder = gang("ns/high", members[1:], 2, held=placed, mode=Mode.NON_STRICT)
    (verdict,) = cluster.verdicts(group(holder, priority=9, clock_started_s=0.0)).values()
    assert (victims(verdict), nominated(verdict)) == (["low"], {"h-1": "b"})
    assert (verdict.holds, verdict.releases) == ((), ())


def test_what_a_nominated_group_is_told_does_not_depend_on_what_still_runs() -> None:
    """V20: once its victims are gone nothing of lower priority may be left, and it waits all the
    same.
    """
    cluster = RunningCluster([node("a")])
    cluster.run("equal", "a", gpus=8, priority=1000)
    waiting = Refusal(Reason.PREEMPTING, Worded("nominated to a"))
    verdict = cluster.verdicts(high(gpus=8), nominated={"ns/high": waiting})["ns/high"]
    assert verdict.told == waiting


def test_room_left_over_by_victims_is_seen_by_those_behind() -> None:
    """V4, V15: what a large victim leaves beside the member it goes for is given to the next group,
    without victims.
    """
    cluster = RunningCluster([node("a"), node("b")])
    cluster.run("large", "a", gpus=8, priority=1)
    cluster.run("high", "b", gpus=8, priority=5000)
    made = cluster.verdicts(
        high("ns/first", gpus=4), high("ns/second", gpus=4), high("ns/third", gpus=4)
    )
    assert victims(made["ns/first"]) == ["large"]
    assert (victims(made["ns/second"]), nominated(made["ns/second"])) == ([], {"second-0": "a"})
    assert isinstance(made["ns/third"].preemption, NotHelpful)


# --- overruns (H11) -----------------------------------------------------------------------------


def overran() -> tuple[RunningCluster, dict[str, frozenset[str]]]:
    """Three full nodes of equal priority; a gang on two of them and a plain pod overran for
    `ns/head`.
    """
    cluster = RunningCluster([node(name) for name in "abc"])
    over = [
        *cluster.gang("ns/g", 1, "a b", gpus=4, priority=5),
        cluster.run("p", "c", gpus=8, priority=5),
    ]
    cluster.run("x", "a", gpus=4, priority=5)
    cluster.run("y", "b", gpus=4, priority=5)
    return cluster, {"ns/head": frozenset(each.uid for each in over)}


def test_overruns_go_for_the_head_whose_room_they_took() -> None:
    """H11: at equal priority, as few as it takes, and nobody goes for another group."""
    cluster, overdue = overran()
    verdict = cluster.verdicts(high("ns/head", gpus=8, priority=5), overdue=overdue)["ns/head"]
    assert victims(verdict) == ["p"]
    assert nominated(verdict) == {"head-0": "c"}
    assert isinstance(verdict.preemption, Preemption)
    assert [victim.overdue for victim in verdict.preemption.victims] == [True]
    assert (
        obstacle(cluster, high("ns/other", gpus=8, priority=5), overdue=overdue)[0]
        is Obstacle.NOTHING_LOWER
    )


def test_overruns_stay_for_groups_that_they_did_not_pass() -> None:
    """H11: also for one that looks for victims."""
    cluster, overdue = overran()
    cluster.nodes = [*cluster.nodes, node("d", gpus=1)]
    cluster.run("low", "d", gpus=1, priority=1)
    verdict = cluster.verdicts(high("ns/other", gpus=8, priority=5), overdue=overdue)["ns/other"]
    assert isinstance(verdict.preemption, NotHelpful)


def test_a_group_that_overran_goes_as_a_whole() -> None:
    """H11: members above its minimum, too."""
    cluster, overdue = overran()
    verdict = cluster.verdicts(high("ns/head", number=3, gpus=4, priority=5), overdue=overdue)[
        "ns/head"
    ]
    assert victims(verdict) in (["p"], ["g-0", "g-1", "p"])
    only_gang = {"ns/head": frozenset(uid for uid in overdue["ns/head"] if uid != "u-p")}
    verdict = cluster.verdicts(high("ns/head", gpus=4, priority=5), overdue=only_gang)["ns/head"]
    assert victims(verdict) == ["g-0", "g-1"]


def test_nobody_goes_in_vain() -> None:
    """H11: if the head does not start all the same; higher priority, a part of a gang, and budgets
    are left alone.
    """
    cluster, overdue = overran()
    wants = high("ns/head", number=2, gpus=8, priority=5)
    assert obstacle(cluster, wants, overdue=overdue)[0] is Obstacle.NOTHING_LOWER
    one = high("ns/head", gpus=8, priority=5)
    assert (
        obstacle(cluster, high("ns/head", gpus=8, priority=4), overdue=overdue)[0]
        is Obstacle.NOTHING_LOWER
    )
    part = {"ns/head": frozenset({"u-ns/g-0"})}
    assert (
        obstacle(cluster, high("ns/head", gpus=4, priority=5), overdue=part)[0]
        is Obstacle.NOTHING_LOWER
    )
    cluster.budget("ns/keep", 0, [each.pod for each in cluster.pods if each.pod.name == "p"])
    assert obstacle(cluster, one, overdue=overdue)[0] is Obstacle.NOTHING_LOWER


def test_nobody_is_preempted_before_the_delay_is_over() -> None:
    """V28: it is counted from the youngest needed pod; nothing is nominated, not even where pods
    leave anyway.
    """
    for delay_s, is_over in ((301.0, False), (300.0, True)):
        cluster = RunningCluster([node("a")])
        cluster.run("low", "a", gpus=8, priority=1, leaving=delay_s == 301.0)
        wants = high(number=1, gpus=8, creation_s=WALL_S - 300)
        wants = structs.replace(
            wants, gangs=(structs.replace(wants.gangs[0], preemption_delay_s=delay_s),)
        )
        (verdict,) = cluster.verdicts(wants).values()
        if is_over:
            assert victims(verdict) == ["low"]
            continue
        assert isinstance(verdict.preemption, NotHelpful)
        assert (verdict.reason, verdict.preemption.why) == (Reason.UNSCHEDULABLE, Obstacle.DELAYED)
        assert say(verdict.told).now.endswith(
            "The group preempts no pods before 1970-01-12T13:47Z (preemption-delay 5m1s)."
        )


def test_nobody_is_preempted_while_an_autoscaler_may_add_nodes() -> None:
    """V28, E10: the later of both times counts, and is told."""
    for delay_s, seconds, told in ((0.0, 61, True), (0.0, 0, False), (301.0, 61, True)):
        cluster = RunningCluster([node("a")])
        cluster.run("low", "a", gpus=8, priority=1)
        wants = high(number=1, gpus=8, creation_s=WALL_S - 300)
        wants = structs.replace(
            wants, gangs=(structs.replace(wants.gangs[0], preemption_delay_s=delay_s),)
        )
        until = {wants.id: WALL_S + seconds}
        (verdict,) = cluster.verdicts(wants, nodes_until_s=until).values()
        assert isinstance(verdict.preemption, NotHelpful) is told
        sentence = "before 1970-01-12T13:48Z (an autoscaler may add nodes for it)."
        assert say(verdict.told).now.endswith(sentence) is told


def test_overruns_stay_while_the_delay_of_the_head_lasts() -> None:
    """V28, H11: within the delay nobody is evicted for the group, whatever the reason."""
    cluster = RunningCluster([node("a")])
    over = cluster.run("over", "a", gpus=8, priority=1000)
    wants = high(number=1, gpus=8, creation_s=WALL_S)
    wants = structs.replace(
        wants, gangs=(structs.replace(wants.gangs[0], preemption_delay_s=60.0),)
    )
    (verdict,) = cluster.verdicts(wants, overdue={wants.id: frozenset({over.uid})}).values()
    assert isinstance(verdict.preemption, NotHelpful)


# --- how long to wait ---------------------------------------------------------------------------

YEAR_S = 31_536_000


def singles(cluster: RunningCluster, node: str, number: int, **fields: Any) -> None:
    """Plain pods of one GPU each, of priority 1."""
    for index in range(number):
        cluster.run(f"{node}-{index}", node, gpus=1, priority=1, **fields)


def test_a_year_of_grace_replaces_no_eviction() -> None:
    """V4: an attack. A pod that is being deleted, and may take a year to end, keeps nobody from
    evicting others.
    """
    cluster = RunningCluster([node("a", gpus=8), node("b", gpus=8)])
    cluster.run(
        "patient",
        "a",
        gpus=8,
        priority=-10,
        deleting=True,
        leaving=True,
        deletion_s=WALL_S + YEAR_S,
    )
    singles(cluster, "b", 8)
    verdict = cluster.verdicts(high(number=8))["ns/high"]
    assert victims(verdict) == [f"b-{index}" for index in range(8)]
    assert isinstance(verdict.preemption, Preemption)
    assert verdict.preemption.awaited == ()


def test_what_ends_within_the_bound_is_waited_for() -> None:
    """V4: ten minutes by default, or what the administrator says."""
    for ends_s, most_s, waits in ((600, 600, True), (601, 600, False), (3_000, 3_600, True)):
        cluster = RunningCluster([node("a", gpus=8), node("b", gpus=8)])
        cluster.run(
            "patient",
            "a",
            gpus=8,
            priority=1,
            deleting=True,
            leaving=True,
            deletion_s=WALL_S + ends_s,
        )
        singles(cluster, "b", 8)
        made = cluster.verdicts(high(number=8), max_wait_s=most_s)["ns/high"].preemption
        assert isinstance(made, Preemption)
        assert (made.awaited == ("u-patient",)) is waits
        assert bool(made.victims) is not waits


def test_victims_with_a_long_grace_period_are_the_last_choice() -> None:
    """V8: others are taken, also dearer ones; where no others help a long grace period makes nobody
    immune.
    """
    cluster = RunningCluster([node("a", gpus=8), node("b", gpus=8)])
    singles(cluster, "a", 8, grace_s=YEAR_S)
    singles(cluster, "b", 8, ran_s=3_000)
    made = cluster.verdicts(high(number=8))["ns/high"]
    assert victims(made) == [f"b-{index}" for index in range(8)]
    alone = RunningCluster([node("a", gpus=8)])
    singles(alone, "a", 8, grace_s=YEAR_S)
    made = alone.verdicts(high(number=8))["ns/high"]
    assert victims(made) == [f"a-{index}" for index in range(8)]
    assert isinstance(made.preemption, Preemption)
    assert made.preemption.deadline_s == WALL_S + 660


def test_a_deadline_is_rounded_up() -> None:
    """V20, E7: it has its date, and is never said too early."""
    cluster = RunningCluster([node("a", gpus=8)])
    singles(cluster, "a", 8, grace_s=50_000)
    told = say(cluster.verdicts(high(number=8), max_wait_s=86_400)["ns/high"].told).text
    assert told.endswith("gives up at 1970-01-13T03:41Z")
