"""What is committed and how binds end: semantics B2 to B6, Q2, decision 10."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from gangsched.api import keys
from gangsched.core.cycle import plan
from gangsched.model.objects import Node, Phase, Pod
from gangsched.model.protocol import (
    Applied,
    BindFailed,
    BindGone,
    BindUndecided,
    Bound,
    Gone,
    Replaced,
)
from gangsched.model.reasons import Reason
from gangsched.state.group_record import QueueCause
from gangsched.state.queueing.queue import SPREAD
from gangsched.state.scheduling import SchedulingState
from tests.builders import gang_metadata, members, node, pod, pod_group, running, stamped
from tests.world import World


def half_committed(world: World) -> tuple[object, ...]:
    """Snapshot and plan of what is ready now, not yet committed."""
    world.state.refresh(world.now_s)
    queue = world.state.ready(world.now_s)
    picture = world.state.snapshot()
    return picture, plan(picture, queue, now_s=world.now_s)


def commit(world: World, made: tuple[object, ...]) -> list[object]:
    """Commit such a plan."""
    picture, proposal = made
    return list(world.state.commit(proposal, picture, now_s=world.now_s))  # type: ignore[arg-type]


def test_plan_is_refused_when_a_member_went_meanwhile() -> None:
    """B2: a member deleted after the snapshot refuses its gang before anything is bound; others go
    on.
    """
    world = World(node("a", 8))
    gone, *_ = world.create(members("g", 3), members("h", 2))
    made = half_committed(world)
    world.say(Gone(Pod, gone.uid))
    assert {action.name for action in commit(world, made)} == {"h-0", "h-1"}  # type: ignore[attr-defined]
    del world.pods[gone.uid]
    world.settle()
    assert world.verdict("ns/g").reason is Reason.WAITING_FOR_MEMBERS


def test_plan_is_refused_when_the_pod_group_changed_meanwhile() -> None:
    """B2: an edit after the snapshot refuses the plan; the next one follows the edit."""
    world = World(node("a", 8))
    world.declare(pod_group("g", 2))
    world.create(members("g", 2, pod_group=True))
    made = half_committed(world)
    world.declare(pod_group("g", 3, generation=2))
    assert commit(world, made) == []
    world.settle()
    assert not world.bound()


def test_plan_is_refused_when_a_node_went_or_closed_meanwhile() -> None:
    """B2: a node that is gone, cordoned or full since the snapshot refuses what was planned
    for it.
    """
    for change in (
        [Gone(Node, "a")],
        [Applied(node("a", 8, unschedulable=True))],
        [Applied(pod("foreign", gpus=8, node_name="a", scheduler_name="other"))],
    ):
        world = World(node("a", 8))
        world.create(members("g", 2))
        made = half_committed(world)
        world.say(*change)
        world.add_nodes(node("b", 8))
        assert commit(world, made) == []
        assert world.settle().bound() == {"g-0": "b", "g-1": "b"}


def test_group_refused_for_room_that_a_dropped_verdict_would_have_taken_is_planned_again() -> None:
    """B2, Q3: when a verdict is not committed, those that were refused behind it are not left
    asleep.
    """
    world = World(node("a", 4))
    first, *_ = world.create(members("g", 4, creation_s=1), members("h", 4, creation_s=2))
    made = half_committed(world)
    world.delete(first)
    assert commit(world, made) == []
    assert set(world.settle().bound()) == {"h-0", "h-1", "h-2", "h-3"}


def test_room_freed_while_a_plan_was_made_is_not_missed() -> None:
    """Q3: what grew between snapshot and commit wakes the groups that the plan refuses."""
    world = World(node("a", 4))
    (old,) = world.create(pod("old", gpus=4, node_name="a"))
    world.create(members("g", 4))
    made = half_committed(world)
    world.delete(old)
    commit(world, made)
    assert len(world.settle().bound()) == 4


def test_failed_bind_is_retried_alone_after_a_backoff() -> None:
    """B3, Q3: the member whose bind failed goes again within 1 s, in the room it keeps; the others
    are not touched.
    """
    world = World(node("a", 3))
    world.fate = lambda bind: "failed" if bind.name == "g-1" else "bound"
    world.create(members("g", 3))
    world.settle()
    assert set(world.bound()) == {"g-0", "g-2"}
    assert world.state.cluster.snapshot().free[0].sum() == 110 - 3
    world.fate = lambda _: "bound"
    world.advance(0.5)
    assert len(world.bound()) == 2
    world.advance(0.6)
    assert len(world.bound()) == 3
    assert any("g-1" in message for _, _, message in world.events("FailedBinding"))


def test_backoff_doubles_to_ten_seconds_and_starts_again_after_a_success() -> None:
    """Q3: bind faults back off 1, 2, 4, 8, 10, 10 s, each time up to two fifths less."""
    world = World(node("a", 3))
    times: list[float] = []
    world.fate = lambda bind: (times.append(world.now_s), "failed")[1]  # type: ignore[func-returns-value]
    world.create(pod("p"))
    world.advance(40)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert len(gaps) >= 6
    for gap_s, most_s in zip(gaps, (1, 2, 4, 8, 10, 10), strict=False):
        assert most_s * (1 - SPREAD) - 0.01 <= gap_s <= most_s + 0.01


def test_bind_faults_of_one_plan_back_off_once() -> None:
    """Q3: sixty failed binds of one gang are one fault, not sixty."""
    world = World(node("a", 80))
    world.fate = lambda _: "failed"
    world.create(members("g", 60))
    world.settle()
    world.fate = lambda _: "bound"
    assert len(world.advance(1.1).bound()) == 60


def test_pods_that_back_off_are_told_so() -> None:
    """E1: a member whose bind failed has the reason BackOff on it within a second."""
    world = World(node("a", 3))
    world.fate = lambda bind: "failed" if bind.name == "g-1" else "bound"
    pods = world.create(members("g", 3))
    world.told()
    assert world.condition(pods[1])[0] == "BackOff"
    assert "500" in world.condition(pods[1])[1]


def test_pod_that_comes_while_its_gang_backs_off_is_told_so() -> None:
    """E1: a member that nothing was decided about yet is told what its gang waits for."""
    world = World(node("a", 3))
    world.fate = lambda _: "failed"
    world.create(members("g", 1, min_member=0))
    world.settle()
    (late,) = world.create(members("g", 1, first=1, min_member=0))
    world.told()
    assert world.condition(late)[0] == "BackOff"


def test_gang_that_is_regrouped_while_it_backs_off_is_told_what_is_true_now() -> None:
    """E1, B3: a group formed anew is looked at once, so that its members are not left without a
    word.
    """
    both = ["ns/g", "ns/h"]
    world = World(node("a", 8))
    world.fate = lambda _: "failed"
    world.declare(pod_group("g", 1, gang_metadata=gang_metadata(groups=both)))
    (one,) = world.create(members("g", 1, pod_group=True))
    world.create(members("h", 1, groups=both))
    world.settle()
    world.withdraw(pod_group("g", 1))
    world.told()
    assert world.condition(one)[0] == "PodGroupMissing"


def test_gang_of_which_every_bind_failed_is_whole_again() -> None:
    """Decision 10: nothing started, so the gang is all or nothing again."""
    world = World(node("a", 3))
    world.fate = lambda _: "failed"
    pods = world.create(members("g", 3))
    world.settle()
    world.fate = lambda _: "bound"
    world.delete(pods[0])
    world.advance(2)
    assert not world.bound()
    assert sum(len(each.binds) for made in world.plans for each in made.verdicts) == 3, (
        "none is planned again"
    )
    assert world.verdict("ns/g").reason is Reason.WAITING_FOR_MEMBERS


def test_gang_whose_binds_all_failed_or_found_nobody_is_whole_again() -> None:
    """Decision 10: a bind that failed and one whose pod is gone start nothing either, in whatever
    order they end.
    """
    for order in (("failed", "gone"), ("gone", "failed")):
        world = World(node("a", 3))
        world.fate = lambda bind, order=order: order[int(bind.name[-1])]  # type: ignore[misc]
        world.create(members("g", 2))
        world.settle()
        world.fate = lambda _: "bound"
        world.advance(5)
        assert not world.bound(), order


def test_answer_about_members_that_have_ended_starts_nothing() -> None:
    """Decision 10, I6: binds answered after all their pods had ended do not count for the gang's
    next members.
    """
    world = World(node("a", 8))
    world.declare(pod_group("g", 2))
    pods = world.create(members("g", 2, pod_group=True))
    world.fate = lambda _: "later"
    world.settle()
    for each in pods:
        world.update(each, node_name="a", phase=Phase.SUCCEEDED)
        world.say(Bound(each.uid, "a"))
    world.unanswered.clear()
    world.create(members("g", 2, first=2, pod_group=True))
    world.fate = lambda bind: "failed" if bind.name == "g-2" else "gone"
    world.settle()
    assert world.state.registry.gangs["ns/g"].permit is None


def test_gang_of_which_a_member_runs_is_not_whole_again() -> None:
    """Decision 10, P1: a gang that runs keeps what it was; a failed bind of a replacement is only
    retried.
    """
    world = World(node("a", 4))
    pods = world.create(members("g", 3))
    world.settle()
    for each in pods[:2]:
        world.update(each, phase=Phase.SUCCEEDED)
    world.fate = lambda _: "failed"
    world.create([pod("g-3", gang_metadata=gang_metadata("g", min_member=3))])
    world.settle()
    world.fate = lambda _: "bound"
    world.advance(2)
    assert {"g-2", "g-3"} <= set(world.bound())


def test_gone_member_is_not_retried_until_it_is_heard_of() -> None:
    """B3: after 404 or 409 the member is gone; the others go on, and nothing is bound to
    it again.
    """
    world = World(node("a", 3))
    world.fate = lambda bind: "gone" if bind.name == "g-1" else "bound"
    pods = world.create(members("g", 3))
    world.advance(200)
    assert [bind.name for bind in world.sent].count("g-1") == 1
    assert set(world.bound()) == {"g-0", "g-2"}
    world.fate = lambda _: "bound"
    world.update(pods[1], gated=True)
    world.update(pods[1], gated=False)
    assert len(world.settle().bound()) == 3


def test_full_list_that_shows_a_gone_member_brings_it_back() -> None:
    """B3: what the API server lists is not gone."""
    world = World(node("a", 3))
    world.fate = lambda bind: "gone" if bind.name == "g-1" else "bound"
    world.create(members("g", 3))
    world.settle()
    world.fate = lambda _: "bound"
    world.say(Replaced(Pod, tuple(world.pods.values())))
    assert len(world.settle().bound()) == 3


def test_gone_answer_about_a_pod_bound_elsewhere_frees_nothing() -> None:
    """B3: when the watch has shown the pod bound to another node its room there stays taken, plain
    pod or member.
    """
    for pods in ([pod("p")], members("g", 1)):
        world = World(node("a", 1), node("b", 1))
        world.fate = lambda _: "later"
        (one,) = world.create(pods)
        world.settle()
        (bind,) = world.sent
        other = "b" if bind.node == "a" else "a"
        world.update(one, node_name=other, phase=Phase.RUNNING)
        world.say(BindGone(bind.uid, bind.node, f"the pod is bound to {other}"))
        assert world.state.members.node_of(one.uid) == other
        world.unanswered.clear()
        world.fate = lambda _: "bound"
        world.create(members("h", 2))
        assert not any(name.startswith("h") for name in world.settle().bound())


def test_bound_answer_before_or_after_the_watch_is_the_same() -> None:
    """B3: the answer and the watch may come in either order; room is taken once."""
    for show_first in (True, False):
        world = World(node("a", 2))
        world.show_binds = show_first
        (one,) = world.create(pod("p"))
        world.settle()
        world.say(Applied(world.pods[one.uid]))
        world.create(pod("q"), pod("r"))
        assert len(world.settle().bound()) == 2


def test_answer_nobody_waits_for_is_passed_over() -> None:
    """B3: an answer about an unknown pod changes nothing."""
    world = World(node("a", 2))
    world.say(Bound("nobody", "a"), BindGone("nobody", "a", ""))
    assert not world.reports


def test_gang_left_below_its_minimum_is_degraded_and_healed_first() -> None:
    """B5, Q2: a started gang short of its minimum says so at once and goes before all others of its
    priority.
    """
    world = World(node("a", 2))
    world.declare(pod_group("g", 2))
    pods = world.create(members("g", 2, pod_group=True))
    world.settle()
    world.create(members("x", 1))
    world.told()
    world.delete(pods[1])
    world.create(members("g", 1, first=5, pod_group=True))
    world.settle()
    assert "g-5" in world.bound()
    assert "x-0" not in world.bound()


def test_degraded_is_told_once_and_again_when_it_returns() -> None:
    """B5, E2: the Event is not repeated while the gang stays degraded, whatever else is told
    meanwhile.
    """
    world = World(node("a", 1))
    world.declare(pod_group("g", 2))
    world.create([stamped(running(each, "a"), 2) for each in members("g", 1, pod_group=True)])
    world.create(members("g", 1, first=1, pod_group=True))
    world.told()
    assert len(world.events("Degraded")) == 1
    assert world.gang_condition("g", "Degraded") == "True"
    for number in range(3):
        world.add_nodes(node(f"n{number}", 8, unschedulable=True))
        world.told()
    assert len(world.events("Degraded")) == 1
    world.add_nodes(node("b", 1))
    world.told()
    assert world.gang_condition("g", "Degraded") == "False"


def test_kubelet_rejection_is_told_and_the_node_avoided_for_a_while() -> None:
    """B6: the Event names the node; the replacement goes elsewhere, or waits until the node is
    worth a try again.
    """
    world = World(node("a", 8))
    world.declare(pod_group("g", 1))
    (one,) = world.create(members("g", 1, pod_group=True))
    world.settle()
    world.update(
        one,
        phase=Phase.FAILED,
        status_reason="OutOfnvidia.com/gpu",
        rejection="OutOfnvidia.com/gpu",
    )
    ((about, _, message),) = world.events("KubeletRejected")
    assert about == "PodGroup ns/g"
    assert "node a" in message
    assert "OutOfnvidia.com/gpu" in message
    world.create(members("g", 1, first=1, pod_group=True))
    world.advance(59)
    assert not world.bound()
    assert world.advance(1.5).bound() == {"g-1": "a"}


def test_kubelet_rejection_of_a_plain_pod_is_no_gangs_business() -> None:
    """B6 is about gangs: a plain pod that a kubelet rejects has ended, and nothing is told of a
    gang.
    """
    world = World(node("a", 8))
    (one,) = world.create([pod("plain")])
    world.settle()
    world.update(one, phase=Phase.RUNNING)
    world.update(one, phase=Phase.FAILED, status_reason="OutOfcpu", rejection="OutOfcpu")
    assert world.events("KubeletRejected") == []


def test_rejecting_node_is_avoided_across_a_regrouping() -> None:
    """B6, I5: joining a group does not make a node worth a try again."""
    both = ["ns/g", "ns/h"]
    world = World(node("a", 8))
    one, other = world.create(members("g", 2))
    world.settle()
    world.update(one, phase=Phase.FAILED, status_reason="OutOfcpu", rejection="OutOfcpu")
    world.update(other, gang_metadata=gang_metadata("g", min_member=2, groups=both))
    world.create(members("g", 1, first=2, min_member=2, groups=both), members("h", 1, groups=both))
    assert set(world.advance(1).bound()) == {"g-1"}
    assert set(world.advance(60).bound()) == {"g-1", "g-2", "h-0"}


def test_other_failures_of_pods_avoid_no_node() -> None:
    """B6: a pod that failed by itself says nothing about its node."""
    world = World(node("a", 8))
    (one,) = world.create(members("g", 1))
    world.settle()
    world.update(one, phase=Phase.FAILED, status_reason="Evicted")
    world.create(members("g", 1, first=1))
    assert world.settle().bound() == {"g-1": "a"}


def test_last_look_before_each_send() -> None:
    """B2: a bind is not sent (again) once its node is gone, cordoned or too small for what is on
    it.
    """
    world = World(node("a", 8), node("b", 8))
    world.fate = lambda _: "later"
    world.create(members("g", 2, gpus=8))
    world.turn()
    first, _ = sorted(world.sent, key=lambda bind: bind.node)
    assert not world.state.start_check.objection(first)
    world.add_nodes(replace(world.nodes["a"], unschedulable=True))
    assert world.state.start_check.objection(first)
    world.add_nodes(node("a", 7))
    assert world.state.start_check.objection(first)
    world.add_nodes(node("a", 8))
    assert not world.state.start_check.objection(first)
    world.remove_node("a")
    assert world.state.start_check.objection(first)


def test_nothing_keeps_the_unbound_copies_of_pods_that_run() -> None:
    """A running gang is remembered once: the verdict that started it does not hold its pods as they
    were before.
    """
    world = World(node("a", 4))
    world.create(members("g", 3), pod("p"))
    world.settle()
    assert len(world.bound()) == 4
    verdicts = [
        group.verdict for group in world.state.registry.groups.values() if group.verdict is not None
    ]
    assert [(verdict.binds, verdict.sent) for verdict in verdicts if verdict.sent == 3] == [((), 3)]
    assert not any(verdict.binds or verdict.holds for verdict in verdicts)


@pytest.mark.parametrize(("priority", "times"), [(0, 1), (5, 2)])
def test_a_holder_that_progresses_wakes_only_refused_gangs_of_higher_priority(
    priority: int, times: int
) -> None:
    """D1, Q3: of gangs that hold nothing only those of higher priority may profit from a yield."""
    world = World(node("a", 4))
    activated: list[str] = []
    activate = world.state.queue.activate

    def spy(group: str, cause: QueueCause) -> None:
        activated.append(group)
        activate(group, cause)

    world.state.queue.activate = spy  # type: ignore[method-assign]
    refused = members("r", 3, gpus=2, priority=priority)
    world.create(pod("other", gpus=2, node_name="a"), members("g", 4, mode="NonStrict"), refused)
    world.settle()
    assert len(world.held()) == 2
    assert activated.count("ns/r") == times


def test_a_bind_from_before_the_lease_was_lost_keeps_its_room() -> None:
    """B3: nobody is planned onto the room of a pod that may be bound any moment, and its answer
    counts.
    """
    world = World(node("a", 8))
    first = world.create(pod("first", gpus=8))[0]
    world.state = SchedulingState(world.rules)
    world.say(Replaced(Pod, (first,)), Applied(world.nodes["a"]), BindUndecided(first.uid, "a"))
    world.create(pod("second", gpus=8))
    world.settle()
    assert world.sent == []
    world.say(BindFailed(first.uid, "a", "unbound after all"))
    world.advance(60.0)
    assert len(world.bound()) == 1


def test_an_undecided_bind_of_a_pod_that_is_gone_or_bound_is_nothing() -> None:
    """B3: what the API server shows counts more."""
    world = World(node("a", 8))
    bound = world.create(pod("bound", node_name="a", gpus=4))[0]
    world.say(BindUndecided("nobody", "a"), BindUndecided(bound.uid, "a"))
    world.create(pod("second", gpus=4))
    world.settle()
    assert len(world.bound()) == 2


def test_a_tree_that_lost_a_member_is_no_start_to_be_completed() -> None:
    """B3, I9: nothing that its start needs waits, so that a further child starts, and is no rest of
    it.
    """
    world = World(node("a", 4))
    world.declare(pod_group("svc", 1, gang_metadata=((keys.MIN_CHILDREN[0], "2"),)))
    lost = world.create(members("a", 2, parent="svc"))[0]
    world.create(members("b", 2, parent="svc"), members("c", 1, parent="svc"))
    assert set(world.settle().bound()) == {"a-0", "a-1", "b-0", "b-1"}
    world.delete(lost)
    assert "c-0" in world.settle().bound()
