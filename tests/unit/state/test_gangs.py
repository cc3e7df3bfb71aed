"""What a gang is, who belongs to it and when it is forgotten: semantics I1 to I6, P1, B1, B4."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangsched.api import keys
from gangsched.model.gang import Mode
from gangsched.model.objects import Phase, Pod, PodGroup
from gangsched.model.protocol import Applied, Replaced
from gangsched.model.reasons import Reason
from gangsched.state.groups import POD_GROUP_WAIT_S
from tests.builders import NAMESPACE, gang_metadata, members, node, pod, pod_group, running, stamped
from tests.world import World


def test_only_unbound_live_pods_of_ours_are_scheduled() -> None:
    """I1: pods of other schedulers, bound and ended ones only occupy nodes."""
    world = World(node("a", 8))
    world.create(
        pod("theirs", scheduler_name="default-scheduler"),
        pod("bound", node_name="a", gpus=6),
        pod("ended", phase=Phase.SUCCEEDED),
        pod("big", gpus=3),
        pod("small", gpus=2),
    )
    world.settle()
    assert [bind.name for bind in world.sent] == ["small"]


def test_gang_waits_for_the_pod_group_its_label_names() -> None:
    """I2: pods may come before their PodGroup; they wait, and start at once when it comes."""
    world = World(node("a", 8))
    pods = world.create(members("g", 2, pod_group=True))
    world.advance(POD_GROUP_WAIT_S).told()
    assert world.condition(pods[0])[0] == "PodGroupMissing"
    world.declare(pod_group("g", 2))
    world.settle()
    assert set(world.bound()) == {"g-0", "g-1"}


def test_annotated_gang_needs_no_pod_group() -> None:
    """I2: an annotation gang is complete in itself."""
    world = World(node("a", 8))
    world.create(members("g", 2))
    assert set(world.settle().bound()) == {"g-0", "g-1"}


def test_gangs_of_one_name_in_two_namespaces_are_two() -> None:
    """I2: a gang's id has the namespace in it."""
    world = World(node("a", 8))
    world.create(members("g", 2, min_member=4), members("g", 2, min_member=4, namespace="other"))
    assert not world.settle().bound()


def test_no_gang_has_the_id_of_a_plain_pod() -> None:
    """I2: a gang with a slash in its name shares nothing with a plain pod, whatever its namespace
    is called.
    """
    world = World(node("a", 8))
    world.create(pod("single", gpus=1))
    gang = members(f"{NAMESPACE}/single", 2, min_member=3, namespace="pod")
    world.create(
        [msgspec.structs.replace(each, name=f"member-{index}") for index, each in enumerate(gang)]
    )
    world.settle()
    assert set(world.bound()) == {"single"}


def test_members_that_disagree_are_named_and_the_oldest_decides() -> None:
    """I3: the oldest pod's minimum counts, an Event names the others."""
    world = World(node("a", 8))
    world.create(
        members("g", 2, min_member=2, creation_s=5),
        members("g", 1, first=2, min_member=9, creation_s=6),
    )
    world.told()
    assert len(world.bound()) == 3
    assert any("g-2" in message for _, _, message in world.events("InvalidGang"))


def test_group_needs_the_consent_of_every_gang() -> None:
    """I4: a gang may not tie another one: it stays unscheduled, both sides are told, the other one
    starts.
    """
    world = World(node("a", 8))
    tying = world.create(members("a", 1, groups=[f"{NAMESPACE}/a", f"{NAMESPACE}/b"]))
    world.create(members("b", 1))
    world.told()
    assert set(world.bound()) == {"b-0"}
    assert world.condition(tying[0])[0] == "InvalidGang"
    assert {about for about, _, _ in world.events("InvalidGang")} == {"Pod ns/a-0", "Pod ns/b-0"}


def test_gang_that_is_tied_without_consent_is_told_once_it_has_members() -> None:
    """I4, E2: the Event on the other side comes when that gang becomes ours, and only once."""
    world = World(node("a", 8))
    world.declare(pod_group("b", 1))
    world.create(members("a", 1, groups=[f"{NAMESPACE}/a", f"{NAMESPACE}/b"]))
    world.told()
    assert {about for about, _, _ in world.events("InvalidGang")} == {"Pod ns/a-0"}
    world.create(members("b", 1, pod_group=True))
    world.told()
    world.create(members("b", 1, first=1, pod_group=True))
    world.told()
    assert [about for about, _, _ in world.events("InvalidGang")] == ["Pod ns/a-0", "PodGroup ns/b"]


def test_another_namespace_is_not_told_of() -> None:
    """I4: who names a gang of another namespace is told the same whether it exists or not; nothing
    is written there.
    """
    told = set()
    for other in ("b", "nowhere"):
        world = World(node("a", 8))
        world.create(
            members("b", 1, namespace="far"),
            members("a", 1, groups=[f"{NAMESPACE}/a", f"far/{other}"]),
        )
        world.told()
        (waiting,) = [pod for pod in world.pods.values() if not pod.node_name]
        told |= {
            (reason, text.replace(f"far/{other}", "…"))
            for reason, text in [world.condition(waiting)]
        }
        assert {reason for about, reason, _ in world.events() if "far/" in about} == {
            "Scheduled",
            "GangScheduled",
        }
    assert len(told) == 1


def test_list_without_the_gang_itself_is_refused() -> None:
    """I4: a gang that lists others but not itself stays unscheduled and says so."""
    world = World(node("a", 8))
    pods = world.create(members("a", 1, groups=[f"{NAMESPACE}/b"]), members("b", 1))
    world.told()
    assert world.condition(pods[0])[0] == "InvalidGang"
    assert "a-0" not in world.bound()


def test_group_waits_for_a_gang_that_is_not_there_yet() -> None:
    """I4, P1: a listed gang of which nothing is known yet is waited for, and the group starts when
    it is complete.
    """
    both = [f"{NAMESPACE}/a", f"{NAMESPACE}/b"]
    world = World(node("n", 8))
    first = world.create(members("a", 2, groups=both))
    world.told()
    assert world.condition(first[0])[0] == "WaitingForGang"
    second = world.create(members("b", 1, groups=both, min_member=2))
    world.told()
    assert not world.bound()
    assert world.condition(second[0])[0] == "WaitingForMembers"
    world.create(members("b", 1, first=1, groups=both, min_member=2))
    assert len(world.settle().bound()) == 4


def test_groups_may_span_namespaces() -> None:
    """I4: gangs of two namespaces that list each other are decided together."""
    both = [f"{NAMESPACE}/a", "other/b"]
    world = World(node("n", 2))
    world.create(members("a", 2, groups=both), members("b", 1, groups=both, namespace="other"))
    assert not world.settle().bound()
    world.add_nodes(node("m", 1))
    assert len(world.settle().bound()) == 3


def test_leaving_a_group_frees_both_sides() -> None:
    """I4, I5: a gang that edits itself out of a group is alone again at once; whoever still lists
    it is refused.
    """
    both = [f"{NAMESPACE}/a", f"{NAMESPACE}/b"]
    world = World(node("n", 2))
    world.create(members("a", 2, groups=both))
    (b,) = world.create(members("b", 1, groups=both))
    assert not world.settle().bound()
    world.update(b, gang_metadata=gang_metadata("b", min_member=1))
    world.told()
    assert set(world.bound()) == {"b-0"}
    assert world.verdict("ns/a").reason is Reason.INVALID_GANG


@pytest.mark.parametrize(("before", "after", "bound"), [(5, 3, 3), (3, 5, 0)])
def test_edit_of_the_minimum_takes_effect_at_the_next_round(
    before: int, after: int, bound: int
) -> None:
    """I5: raising or lowering minMember counts at once for what is not bound yet."""
    world = World(node("a", 2))
    world.declare(pod_group("g", before))
    world.create(members("g", 3, pod_group=True))
    world.settle()
    world.declare(pod_group("g", after, generation=2))
    world.settle()
    world.add_nodes(node("b", 1))
    assert len(world.settle().bound()) == bound


def test_edit_to_non_strict_begins_to_hold() -> None:
    """I5, R3: a gang edited to NonStrict takes what there is."""
    world = World(node("a", 4), node("b", 4))
    world.create(pod("other", gpus=4, node_name="b"), members("g", 8, pod_group=True))
    world.declare(pod_group("g", 8))
    assert not world.settle().held()
    world.declare(
        pod_group("g", 8, generation=2, gang_metadata=((keys.MODE[0], Mode.NON_STRICT.value),))
    )
    assert len(world.settle().held()) == 4


def test_edit_to_strict_gives_every_hold_back() -> None:
    """I5, T1: a gang edited to Strict holds nothing, others get the room, and its clock stops."""
    world = World(node("a", 4), node("b", 4))
    world.create(pod("other", gpus=4, node_name="b"), members("g", 8, pod_group=True))
    world.declare(pod_group("g", 8, gang_metadata=((keys.MODE[0], Mode.NON_STRICT.value),)))
    assert len(world.settle().held()) == 4
    world.declare(pod_group("g", 8, generation=2))
    assert not world.settle().held()
    world.create(members("h", 4))
    assert len(world.settle().bound()) == 5
    world.advance(1000)
    assert not any(each.timed_out for each in world.pods.values())


def test_deleted_pod_group_makes_its_gang_wait_and_recreated_starts_it() -> None:
    """I5: without its PodGroup a gang is uninitialised, bound members stay, and it goes on when it
    is back.
    """
    world = World(node("a", 2))
    group = pod_group("g", 1)
    world.declare(group)
    world.create(members("g", 2, pod_group=True))
    assert len(world.settle().bound()) == 2
    world.withdraw(group)
    (late,) = world.create(members("g", 1, first=2, pod_group=True))
    world.add_nodes(node("b", 1))
    world.advance(POD_GROUP_WAIT_S).told()
    assert len(world.bound()) == 2
    assert world.condition(late)[0] == "PodGroupMissing"
    world.declare(pod_group("g", 1, uid="another"))
    assert len(world.settle().bound()) == 3


def test_late_news_of_an_old_pod_group_drops_nothing() -> None:
    """I5: a deletion that names another uid is about an object since recreated."""
    world = World(node("a", 2))
    world.declare(pod_group("g", 2, uid="new"))
    world.withdraw(pod_group("g", 2, uid="old"))
    world.create(members("g", 2, pod_group=True))
    assert len(world.settle().bound()) == 2


def test_new_gang_of_an_old_name_starts_unsatisfied() -> None:
    """I6: when the last member and the PodGroup are gone everything is forgotten."""
    world = World(node("a", 4))
    old = world.create(members("g", 2))
    assert len(world.settle().bound()) == 2
    world.delete(*old)
    world.settle()
    assert not world.state.registry.gangs
    assert not world.state.registry.groups
    world.create(members("g", 1, min_member=2))
    assert not world.settle().bound()


def test_satisfied_is_dropped_when_no_live_member_is_left() -> None:
    """I6: a gang whose members all ended starts anew as a whole, even if its PodGroup and ended
    pods stay.
    """
    world = World(node("a", 4))
    world.declare(pod_group("g", 2))
    old = world.create(members("g", 2, pod_group=True))
    world.settle()
    for each in old:
        world.update(each, phase=Phase.SUCCEEDED)
    world.settle()
    world.create(members("g", 1, first=5, pod_group=True))
    assert not world.settle().bound()


def test_satisfied_gang_outlives_its_sibling() -> None:
    """P3, I6: when a sibling has finished and is gone, a running gang's replaced member is bound at
    once.
    """
    both = [f"{NAMESPACE}/a", f"{NAMESPACE}/b"]
    world = World(node("n", 8))
    first = world.create(members("a", 2, groups=both))
    done = world.create(members("b", 1, groups=both))
    world.settle()
    world.delete(*done, first[0])
    world.told()
    world.create(members("a", 1, first=2, min_member=2, groups=both))
    assert set(world.settle().bound()) == {"a-1", "a-2"}
    assert not world.events("WaitingForGang"), "nothing of it waits"


def test_gang_whose_members_have_ended_is_still_what_they_declared() -> None:
    """I3, I4, P3: a sibling that has finished, its pods still there, has not left the group."""
    both = [f"{NAMESPACE}/a", f"{NAMESPACE}/b"]
    world = World(node("n", 8))
    world.declare(pod_group("b", 1))
    first = world.create(members("a", 2, groups=both))
    (done,) = world.create(members("b", 1, groups=both, pod_group=True))
    world.settle()
    world.update(done, phase=Phase.SUCCEEDED)
    world.told()
    assert not world.events("InvalidGang")
    world.delete(first[0])
    world.create(members("a", 1, first=2, min_member=2, groups=both))
    assert set(world.settle().bound()) == {"a-1", "a-2"}


def test_minimum_of_zero_satisfies_no_gang_without_members() -> None:
    """I6: a gang that had no member when its group started has reached nothing, whatever its
    minimum becomes.
    """
    both = [f"{NAMESPACE}/a", f"{NAMESPACE}/b"]
    world = World(node("n", 8))
    world.declare(pod_group("b", 0, gang_metadata=gang_metadata(groups=both)))
    world.create(members("a", 1, groups=both))
    assert set(world.settle().bound()) == {"a-0"}
    world.declare(pod_group("b", 2, gang_metadata=gang_metadata(groups=both), generation=2))
    world.create(members("b", 1, groups=both, pod_group=True))
    assert set(world.settle().bound()) == {"a-0"}


def test_member_recreated_under_its_name_is_another_member() -> None:
    """I6: pods are told apart by uid; the one with a bound predecessor's name joins its satisfied
    gang.
    """
    world = World(node("a", 4))
    old = world.create(members("g", 2))
    world.settle()
    world.delete(old[0])
    (new,) = world.create([pod("g-0", gang_metadata=gang_metadata("g", min_member=2))])
    world.settle()
    assert world.bound() == {"g-0": "a", "g-1": "a"}
    assert world.pods[new.uid].node_name


@pytest.mark.parametrize("is_ours", [True, False])
def test_stamped_members_make_a_gang_satisfied(is_ours: bool) -> None:
    """B4: after a restart a gang with a member that we bound goes on member by member; one bound by
    others is none.
    """
    world = World(node("a", 2))
    first = [running(each, "a") for each in members("g", 1, min_member=3)]
    world.create(
        [stamped(each, 3) if is_ours else each for each in first],
        members("g", 2, first=1, min_member=3),
    )
    assert len(world.settle().bound()) == (2 if is_ours else 1)


@pytest.mark.parametrize(
    "fields",
    [
        {"deleting": True},
        {"gated": True},
        {"scheduler_name": "default-scheduler"},
        {"phase": Phase.FAILED},
    ],
)
def test_members_that_cannot_run_do_not_make_a_quorum(fields: dict[str, Any]) -> None:
    """P1: terminating, gated, foreign and failed members do not count."""
    world = World(node("a", 8))
    world.create(members("g", 2, min_member=3), members("g", 1, first=2, min_member=3, **fields))
    assert not world.settle().sent
    assert world.verdict("ns/g").reason is Reason.WAITING_FOR_MEMBERS


def test_foreign_members_are_named_in_an_event() -> None:
    """P1: a pending member with somebody else's schedulerName is named; a bound one counts."""
    world = World(node("a", 8))
    world.create(
        members("g", 2, min_member=3),
        members("g", 1, first=2, min_member=3, scheduler_name="default"),
    )
    world.told()
    ((_, _, message),) = world.events("MixedSchedulers")
    assert "ns/g-2" in message
    foreign = next(each for each in world.pods.values() if each.name == "g-2")
    world.update(foreign, node_name="a")
    assert len(world.settle().bound()) == 3


def test_ungated_member_completes_its_gang_at_once() -> None:
    """P1, Q3: taking the gate off a member wakes its gang."""
    world = World(node("a", 8))
    pods = world.create(
        members("g", 1, min_member=2, gated=True), members("g", 1, first=1, min_member=2)
    )
    assert not world.settle().bound()
    world.update(pods[0], gated=False)
    assert len(world.settle().bound()) == 2


def test_relist_replaces_what_was_known() -> None:
    """I6: pods and PodGroups that a full list lacks are gone, and their room is free."""
    world = World(node("a", 4))
    world.declare(pod_group("g", 2))
    pods = world.create(members("g", 2, pod_group=True), [pod("other", node_name="a", gpus=2)])
    world.settle()
    world.say(
        Replaced(Pod, tuple(world.pods[each.uid] for each in pods[:1])),
        Replaced(PodGroup, (), keys.X_K8S),
    )
    world.settle()
    record = world.state.registry.gangs["ns/g"]
    assert list(record.members) == [pods[0].uid]
    assert record.pod_group is None
    world.create(pod("big", gpus=3))
    assert "big" in world.settle().bound()


def test_member_that_changes_its_gang_moves() -> None:
    """I2: a relabelled member counts for its new gang and no more for the old one."""
    world = World(node("a", 8))
    pods = world.create(members("g", 2, min_member=2), members("h", 1, min_member=2))
    world.state.refresh(world.now_s)
    world.update(pods[1], gang_metadata=gang_metadata("h", min_member=2))
    world.settle()
    assert set(world.bound()) == {"g-1", "h-0"}


def test_member_relabelled_while_it_is_being_bound_is_not_bound_twice() -> None:
    """B3: a bind under way counts in the new gang; when it fails the room is free again."""
    world = World(node("a", 2))
    world.fate = lambda _: "later"
    (moving,) = world.create(members("g", 1))
    world.settle()
    world.update(moving, gang_metadata=gang_metadata("h", min_member=1))
    world.settle()
    assert len(world.sent) == 1
    world.fate = lambda _: "gone"
    world.settle()
    world.create(pod("big", gpus=2))
    world.fate = lambda _: "bound"
    assert "big" in world.settle().bound()


def test_member_relabelled_after_its_bind_was_answered_is_not_bound_twice() -> None:
    """B3: the answer may come before the watch shows the relabelled pod, and that before it shows
    the binding.
    """
    world = World(node("a", 2))
    world.show_binds = False
    (moving,) = world.create(members("g", 1))
    world.settle()
    world.say(
        Applied(
            msgspec.structs.replace(
                world.pods[moving.uid],
                node_name="",
                phase=Phase.PENDING,
                gang_metadata=gang_metadata("h", min_member=1),
            )
        )
    )
    world.settle()
    assert len(world.sent) == 1
    assert world.state.members.node_of(moving.uid) == "a"


def test_update_that_changes_nothing_wakes_nobody() -> None:
    """Q3: our own condition writes come back as updates; they cause no plan."""
    world = World(node("a", 1))
    (waiting,) = world.create(members("g", 1, gpus=2))
    world.told()
    plans = len(world.plans)
    world.update(
        waiting,
        condition=msgspec.structs.replace(world.pods[waiting.uid].condition, message="x"),  # type: ignore[type-var]
    )
    world.settle()
    assert len(world.plans) == plans


def test_groups_that_are_gone_leave_nothing_behind() -> None:
    """I6: also what gangs said of each other is forgotten with them."""
    world = World(node("a", 8))
    for number in range(3):
        both = [f"{NAMESPACE}/x{number}", f"{NAMESPACE}/y{number}"]
        pods = world.create(
            members(f"x{number}", 1, groups=both), members(f"y{number}", 1, groups=both)
        )
        world.told()
        assert len(world.bound()) == 2
        world.delete(*pods)
        world.told()
    registry = world.state.registry
    kept = (
        registry.gangs,
        registry.groups,
        registry.group_of,
        registry._listed_by,
        registry._named_by,
    )
    assert not any((*kept, registry._views))
