"""Members that are created after others run: started only with room for all, which is kept until
they come (B8).
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from gangsched.api import keys
from gangsched.api.pod_metadata import pod_gang_metadata
from gangsched.core.cycle import plan
from gangsched.model.objects import Node, Pod, PodGroup
from gangsched.model.protocol import Applied, Bind, Replaced, StampsGuarded
from gangsched.state import room_to_come
from gangsched.state.rule_set import Rules
from gangsched.state.scheduling import SchedulingState
from gangsched.turn import plan_and_commit, prepare
from tests.builders import GPU, amounts, members, node, pod, pod_group, running
from tests.sizes import of_size
from tests.world import World

LABELS = dict(zip(keys.LWS_GROUP, ("serve", "0", "abc"), strict=True))
MARK = "scheduling.k8s.io/group-name"
WAIT_S = 600
HOLD_MAX_S = 3_600
GUARDED_S = 40
"""The policy that guards stamps is older than all pods."""


def provided(index: int = 0, *, size: int = 3, least: int = 1, gpus: int = 1) -> PodGroup:
    """The object that the gang provider makes of a group, `startupPolicy: LeaderReady` unless
    `least` is its size.
    """
    return pod_group(
        f"serve-{index}-abc",
        least,
        api_group=keys.VOLCANO,
        version="v1beta1",
        min_resources=amounts(gpus=gpus * size),
        uid=f"pg-{index}",
    )


def lws_pod(
    worker: int, group: int = 0, *, annotations: Mapping[str, str] | None = None, **fields: Any
) -> Pod:
    """A pod of one group, the leader or a worker."""
    labels = LABELS | {keys.LWS_GROUP[1]: str(group)}
    stated = {keys.LWS_SIZE: "3", MARK: f"serve-{group}-abc", **(annotations or {})}
    name = f"serve-{group}-{worker}" if worker else f"serve-{group}"
    return pod(name, gang_metadata=pod_gang_metadata(labels, stated), index=worker, **fields)


def started(world: World, **fields: Any) -> Pod:
    """The leader of a group for which there is room; it runs."""
    world.declare(provided())
    (leader,) = world.create(lws_pod(0, **fields))
    world.settle()
    assert leader.name in world.bound()
    return leader


def test_a_leader_starts_only_where_its_workers_fit() -> None:
    """B8, scenario 29: two nodes are too few for three members of 2 GPUs, though only the leader
    exists.
    """
    world = World(node("a", 3), node("b", 3))
    world.declare(provided(gpus=2))
    (leader,) = world.create(lws_pod(0, gpus=2))
    assert world.settle().told().bound() == {}
    reason, text = world.condition(leader)
    assert reason == "Unschedulable"
    assert text.startswith("gang ns/serve-0-abc needs 3 pods")
    world.add_nodes(node("c", 2))
    assert set(world.settle().bound()) == {"serve-0"}


def test_a_resource_that_min_resources_leaves_out_is_asked_for_like_the_leaders() -> None:
    """B8: LeaderWorkerSet leaves out GPUs that are in limits alone, as they are in
    most manifests.
    """
    world = World(node("a", 2))
    world.declare(msgspec.structs.replace(provided(), min_resources=amounts(cpu_milli=300)))
    (leader,) = world.create(lws_pod(0, cpu_milli=100))
    assert world.settle().told().bound() == {}
    assert world.condition(leader)[1].startswith("gang ns/serve-0-abc needs 3 pods")


def test_nobody_takes_the_room_of_workers_to_come() -> None:
    """B8, scenario 29: small pods that come later wait, whatever their number, and the workers
    start.
    """
    world = World(node("a", 2), node("b", 2))
    started(world)
    world.create(pod(f"small-{index}") for index in range(10))
    assert len(world.settle().bound()) == 2
    ((_, _, text),) = world.events("RoomKept")
    assert text.startswith("room for 2 members to come is reserved on ")
    world.create(lws_pod(1), lws_pod(2))
    bound = world.settle().bound()
    assert {"serve-0", "serve-0-1", "serve-0-2"} <= bound.keys()
    assert len(bound) == 4
    assert not world.events("RoomReleased")


def test_room_to_come_is_offered_at_once_to_a_higher_priority() -> None:
    """B8, Q3: the pod comes after the leader and before the workers, and was refused in the plan
    that started them.
    """
    world = World(node("a", 3), rules=Rules(unattended=True))
    world.declare(provided())
    world.create(lws_pod(0, priority=1000), lws_pod(1, priority=10), pod("between", priority=500))
    assert world.settle().bound().keys() == {"serve-0", "serve-0-1", "between"}


def test_a_restart_keeps_the_room() -> None:
    """B8: the room is in the stamp of the leader, which a policy guards: a process that knows
    nothing else keeps it.
    """
    world = World(node("a", 3))
    started(world, creation_s=100)
    world.create(pod(f"small-{index}") for index in range(3))
    world.restart(guarded_since_s=50)
    assert set(world.settle().bound()) == {"serve-0"}
    world.create(lws_pod(1), lws_pod(2))
    assert set(world.settle().bound()) == {"serve-0", "serve-0-1", "serve-0-2"}


def test_room_that_an_owner_wrote_is_not_kept() -> None:
    """B8: without a policy that guards stamps, the text may be of the pod's owner, who would jump
    the queue.
    """
    world = World(node("a", 3))
    started(world)
    world.create(pod(f"small-{index}") for index in range(2))
    world.restart(guarded_since_s=None)
    assert len(world.settle().bound()) == 3


def test_the_room_is_released_after_the_wait_time() -> None:
    """B8, scenario 30: workers that never come keep it no longer than the wait time; an Event says
    so.
    """
    world = World(node("a", 3))
    started(world)
    world.create(pod("small"))
    world.advance(WAIT_S - 5)
    assert set(world.bound()) == {"serve-0"}
    world.advance(10)
    assert set(world.bound()) == {"serve-0", "small"}
    ((_, _, text),) = world.events("RoomReleased")
    assert text.startswith(
        "room for 2 members to come is no longer reserved on a: they were not created within the"
    )
    world.create(lws_pod(1))
    assert "serve-0-1" in world.settle().bound()


@pytest.mark.parametrize("waited_s", [300, 700])
def test_the_wait_time_goes_on_over_a_restart(waited_s: int) -> None:
    """B8: it ends at the time that was promised."""
    world = World(node("a", 3))
    started(world)
    world.create(pod("small"))
    world.now_s += waited_s  # while no process runs
    world.restart(guarded_since_s=50)
    world.settle()
    assert ("small" in world.bound()) is (waited_s > WAIT_S)
    world.advance(WAIT_S - waited_s + 5 if waited_s < WAIT_S else 0)
    assert "small" in world.bound()


def test_the_room_ends_with_the_leader() -> None:
    """B8, scenario 30: a leader that is gone keeps nothing for its workers."""
    world = World(node("a", 3))
    leader = started(world)
    world.create(pod(f"small-{index}") for index in range(3))
    assert len(world.settle().bound()) == 1
    world.delete(leader)
    assert len(world.settle().bound()) == 3


def test_higher_priority_takes_the_room() -> None:
    """B8: the promise binds equal and lower priorities; an Event tells what it lost."""
    world = World(node("a", 3))
    started(world)
    world.create(pod("small"), pod("urgent", priority=100))
    assert set(world.settle().bound()) == {"serve-0", "urgent"}
    ((_, _, text),) = world.events("RoomReleased")
    assert (
        text
        == "room for 1 member to come is no longer reserved on a: other pods use the room on node a"
        or "a" in text
    )
    world.create(lws_pod(1))
    assert "serve-0-1" in world.settle().bound() or "small" in world.bound()


def test_a_node_that_goes_ends_its_room() -> None:
    """B8: what was kept there is lost, and told."""
    world = World(node("a", 1), node("b", 2))
    started(world)
    gone = "b" if world.bound() == {"serve-0": "a"} else "a"
    world.remove_node(gone)
    world.settle()
    assert "gone" in world.events("RoomReleased")[0][2]


def test_exclusive_topology_is_a_required_level_with_room_for_all() -> None:
    """B8, scenario 35: of three racks one is too small; two groups start, each in a rack with room
    for three.
    """
    racks = {"r1": 2, "r2": 3, "r3": 3}
    world = World(
        *(
            node(f"{rack}-{n}", 1, labels={"rack": rack})
            for rack, size in racks.items()
            for n in range(size)
        )
    )
    exclusive = {keys.LWS_EXCLUSIVE[0]: "rack"}
    for group in range(3):
        world.declare(provided(group, least=3))
        world.create(lws_pod(0, group, annotations=exclusive))
    bound = world.settle().bound()
    assert len(bound) == 2
    assert {each.split("-")[0] for each in bound.values()} == {"r2", "r3"}
    world.create(pod(f"small-{index}") for index in range(8))
    assert len([name for name in world.settle().bound() if name.startswith("small")]) == 2
    for name in list(bound):
        group = int(name.split("-")[1])
        world.create(
            lws_pod(1, group, annotations=exclusive), lws_pod(2, group, annotations=exclusive)
        )
    after = world.settle().bound()
    for name, where in bound.items():
        assert {after[f"{name}-{worker}"].split("-")[0] for worker in (1, 2)} == {
            where.split("-")[0]
        }


def test_a_leader_waits_for_the_object_of_its_gang_provider() -> None:
    """B8: the PodGroup comes after the leader, and says what its workers ask for; without it
    nothing starts.
    """
    world = World(node("a", 3))
    (leader,) = world.create(
        lws_pod(0, annotations={keys.LWS_EXCLUSIVE[0]: "kubernetes.io/hostname"})
    )
    world.add_nodes(node("a", 2, labels={"kubernetes.io/hostname": "a"}))
    world.advance(2).told()
    assert (world.bound(), world.condition(leader)[0]) == ({}, "PodGroupMissing")
    world.declare(provided(least=3))
    assert world.settle().told().bound() == {}
    assert world.condition(leader)[0] == "Unschedulable"


def test_any_gang_can_keep_room_by_annotation() -> None:
    """B8: a driver with the number of its executors and the resources of all of them."""
    stated = {keys.KEEP_ROOM[0]: "true", keys.TOTAL[0]: "3"}
    world = World(node("a", 3))
    world.declare(
        pod_group(
            "job", 1, min_resources=amounts(gpus=3), gang_metadata=tuple(sorted(stated.items()))
        )
    )
    (driver,) = members("job", 1, pod_group=True)
    world.create(driver, pod("small-0", creation_s=200), pod("small-1", creation_s=200))
    assert set(world.settle().bound()) == {"job-0"}
    world.create(members("job", 2, pod_group=True, first=1))
    assert set(world.settle().bound()) == {"job-0", "job-1", "job-2"}


def test_room_of_unknown_size_is_refused() -> None:
    """B8: without the number of members, or what they ask for, nobody knows what to keep."""
    world = World(node("a", 3))
    world.declare(pod_group("job", 1, gang_metadata=((keys.KEEP_ROOM[0], "true"),)))
    (driver,) = world.create(members("job", 1, pod_group=True))
    assert world.settle().told().bound() == {}
    reason, text = world.condition(driver)
    assert reason == "InvalidGang"
    assert text.startswith(
        "gangsched.dev/keep-room of gang ns/job has no effect without these: set minResources"
    )


def test_workers_of_a_sibling_group_say_what_workers_ask_for() -> None:
    """B8: without minResources the first group starts by itself, told; the second one
    knows better.
    """
    owner = {keys.OWNER_GANG: keys.OWNER, MARK: "", keys.LEADER_FIRST[0]: "true"}
    world = World(node("a", 1), node("b", 4))
    world.create(lws_pod(0, annotations=owner))
    assert len(world.settle().told().bound()) == 1
    ((_, _, text),) = world.events("InvalidGang")
    assert text.startswith("No room is kept for the 2 members to come of gang ns/serve-0-abc")
    world.create(lws_pod(1, annotations=owner), lws_pod(2, annotations=owner))
    assert len(world.settle().bound()) == 3
    (other,) = world.create(lws_pod(0, 1, annotations=owner))
    assert "serve-1" not in world.settle().told().bound()
    assert world.condition(other)[1].startswith("gang ns/serve-1-abc needs 3 pods")


def test_room_is_made_for_members_to_come_too() -> None:
    """B8, V3: victims are evicted only if all members fit, and their room is nobody else's."""
    world = World(node("a", 3), preempts=True)
    low = world.create(pod(f"low-{index}", priority=-10) for index in range(3))
    world.settle()
    world.declare(provided())
    world.create(lws_pod(0))
    world.settle()
    assert len(world.leaving) == 3
    world.create(pod(f"small-{index}") for index in range(3))
    world.advance(60)
    assert set(world.bound()) == {"serve-0"}
    world.create(lws_pod(1), lws_pod(2))
    assert set(world.settle().bound()) == {"serve-0", "serve-0-1", "serve-0-2"}
    assert len(low) == 3


def test_a_pod_that_says_that_it_started_is_a_member() -> None:
    """B8: the text of a stamp that is not exactly one promises nothing, and breaks nothing."""
    world = World(node("a", 3))
    leader = started(world)
    stamp = world.pods[leader.uid].permitted
    assert stamp is not None
    assert stamp.room is not None
    assert stamp.room.places == (("a", 3),)
    assert stamp.room.each == amounts(gpus=1, pods=1)
    world.update(leader, **{field: getattr(running(leader, "a"), field) for field in ("phase",)})
    assert msgspec.structs.replace(leader, node_name="a").uid == leader.uid
    assert GPU in dict(stamp.room.each)


def test_room_is_trusted_until_the_policy_was_asked_for() -> None:
    """B8: between a start and the first answer about the policy, small pods do not take what may be
    promised.
    """
    world = World(node("a", 3))
    started(world)
    world.create(pod(f"small-{index}") for index in range(2))
    world.state = SchedulingState(world.rules)
    world.say(*(Replaced(PodGroup, tuple(world.pod_groups.values()), keys.VOLCANO),))
    world.say(
        Replaced(Node, tuple(world.nodes.values())), Replaced(Pod, tuple(world.pods.values()))
    )
    assert len(world.settle().bound()) == 1
    world.say(StampsGuarded(None))
    assert len(world.settle().bound()) == 3


def test_a_leader_whose_bind_fails_keeps_nothing() -> None:
    """B8: the promise begins with the bind; refused, the group is planned again as a whole."""
    world = World(node("a", 3))
    fates = iter(["failed", "bound"])
    world.fate = lambda _: next(fates, "bound")
    world.declare(provided())
    world.create(lws_pod(0))
    world.advance(30)
    assert set(world.bound()) == {"serve-0"}
    world.create(pod("small"))
    assert "small" not in world.settle().bound()
    world.create(lws_pod(1), lws_pod(2))
    assert len(world.settle().bound()) == 3


@pytest.mark.parametrize(("gpus", "number"), [(5, 0), (6, 2), (9, 3)])
def test_children_of_a_tree_have_members_to_come(gpus: int, number: int) -> None:
    """B8, I9: two of three groups start together, each leader with room for its own workers; the
    third one later.
    """
    parent = {keys.PARENT[0]: "service", keys.MIN_CHILDREN[0]: "2"}
    world = World(node("a", gpus))
    for group in range(3):
        world.declare(
            msgspec.structs.replace(provided(group), gang_metadata=tuple(sorted(parent.items())))
        )
        world.create(lws_pod(0, group))
    leaders = set(world.settle().bound())
    assert len(leaders) == number
    world.create(pod(f"small-{index}") for index in range(gpus))
    assert len(world.settle().bound()) == number + gpus - 3 * number
    for name in leaders:
        world.create(lws_pod(worker, int(name.split("-")[1])) for worker in (1, 2))
    assert len([each for each in world.settle().bound() if each.startswith("serve")]) == 3 * number


@pytest.mark.long
def test_room_for_thousands_costs_what_changes() -> None:
    """B8: with thousands of promises a turn for one more pod looks at none of them, and nobody
    takes any.
    """
    number = of_size(200, 2_000)
    world = World(*(node(f"n-{n}", 8) for n in range(number * 2 // 5)))
    for group in range(number):
        world.declare(provided(group))
        world.create(lws_pod(0, group))
    world.settle()
    assert len(world.bound()) == number
    assert sum(map(len, world.state.coming.shown().values())) == 2 * number
    world.create(pod(f"small-{index}") for index in range(number * 3 // 10))
    world.settle()
    assert len(world.bound()) == number * 6 // 5
    for group in range(0, number, number // 10):
        world.create(lws_pod(1, group), lws_pod(2, group))
    world.settle()
    assert len(world.bound()) == number * 6 // 5 + 20


def test_a_member_larger_than_expected_uses_the_room_of_its_own_gang() -> None:
    """B8: of two members to come the first needs the room of both. It starts, and the promise to
    the other one ends with a message.
    """
    world = World(node("a", 3))
    started(world)
    world.create(lws_pod(1, gpus=2))
    world.settle().told()
    assert set(world.bound()) == {"serve-0", "serve-0-1"}

    ((_, _, text),) = world.events("RoomReleased")
    assert "other pods use the room on node a" in text
    assert not world.state.coming.shown()
    world.add_nodes(node("b", 1))
    world.create(lws_pod(2))
    assert world.settle().bound()["serve-0-2"] == "b"


def test_a_larger_member_is_checked_without_the_room_of_its_own_gang() -> None:
    """B2, B8: something changed between plan and commit, so that its place is checked again."""
    world = World(node("a", 3))
    started(world)
    world.create(lws_pod(1, gpus=2))
    world.state.refresh(world.now_s)
    picture = world.state.snapshot()
    proposal = plan(picture, world.state.ready(world.now_s), now_s=world.now_s)
    world.say(Applied(node("b", 1)))
    binds = world.state.commit(proposal, picture, now_s=world.now_s)
    assert [bind.name for bind in binds if isinstance(bind, Bind)] == ["serve-0-1"]


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        (
            {keys.LWS_SUBGROUP_EXCLUSIVE: "rack"},
            "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology of gang ns/",
        ),
        (
            {keys.LWS_SIZE: "514"},
            "gang ns/serve-0-abc has 513 members to come: gangsched keeps room for at most 512",
        ),
    ],
)
def test_what_cannot_be_kept_is_refused(stated: dict[str, str], said: str) -> None:
    """A2: one sentence names it."""
    world = World(node("a", 8))
    world.declare(provided())
    (leader,) = world.create(lws_pod(0, annotations=stated))
    world.settle().told()
    reason, text = world.condition(leader)
    assert (reason, world.bound()) == ("Unsupported", {})
    assert text.startswith(said)


@pytest.mark.long
def test_promised_room_delays_others_no_longer_than_its_wait_time() -> None:
    """Attack: one namespace keeps a cluster for 511 members to come of each of its gangs, which
    never come, and creates its leaders again and again. Another one's gang, older than those,
    starts when the first promise ends; one of higher priority at once.
    """
    stated = tuple(sorted({keys.KEEP_ROOM[0]: "true", keys.TOTAL[0]: "512"}.items()))

    def leader(number: int, created_s: int) -> None:
        name = f"greedy-{number}"
        resources = amounts(gpus=512)
        world.declare(
            pod_group(name, 1, min_resources=resources, gang_metadata=stated, creation_s=created_s)
        )
        world.create(members(name, 1, pod_group=True, creation_s=created_s))

    world = World(*(node(f"n{each}", 64) for each in range(16)))
    leader(0, 50)
    leader(1, 50)
    assert len(world.settle().bound()) == 2
    world.create(pod("modest", namespace="other", creation_s=100))
    for number in range(2, of_size(40, 200)):
        leader(number, 200)
    assert len(world.settle().bound()) == 2
    world.create(pod("urgent", namespace="other", creation_s=300, priority=10))
    assert "urgent" in world.settle().bound()
    # a leader that goes gives up its room; the next one of its name is younger
    for step in range(1, 6):
        world.advance(WAIT_S // 6)
        world.delete(*[each for each in world.pods.values() if each.name == "greedy-0-0"])
        world.create(members("greedy-0", 1, pod_group=True, creation_s=1_000 + step))
    assert "modest" in world.advance(WAIT_S // 6 + 10).bound()


@pytest.mark.long
@pytest.mark.parametrize("recreates", [False, True])
def test_unused_room_delays_a_younger_gang_once(*, recreates: bool) -> None:
    """Attack: many gangs of one namespace keep all GPUs one after the other for members that never
    come, and may recreate their leaders just before the wait time is over. A younger gang of
    another one waits for one of them.
    """
    stated = tuple(sorted({keys.KEEP_ROOM[0]: "true", keys.TOTAL[0]: "9"}.items()))
    world = World(node("a", 8))
    for number in range(of_size(30, 200)):
        name = f"greedy-{number}"
        world.declare(
            pod_group(name, 1, min_resources=amounts(gpus=8), gang_metadata=stated, creation_s=50)
        )
        world.create(members(name, 1, gpus=0, pod_group=True, creation_s=50))
    started = len(world.settle().bound())
    assert started == 1
    for number in range(4):
        world.create(
            members(
                f"modest-{number}", 1, gpus=8, namespace="other", creation_s=int(world.wall_s())
            )
        )
        if recreates:
            world.advance(WAIT_S - 10)
            (name,) = (each.removeprefix("ns/") for each in world.state.coming.shown())
            world.delete(*[each for each in world.pods.values() if each.name == f"{name}-0"])
            world.create(members(name, 1, gpus=0, pod_group=True, creation_s=int(world.wall_s())))
        if number == 2:
            world.restart(guarded_since_s=GUARDED_S)
        assert f"modest-{number}-0" in world.advance(WAIT_S + 10).bound(), number
        world.delete(*[each for each in world.pods.values() if each.namespace == "other"])
        world.settle()
        assert len(world.state.coming.shown()) == 1, "the next of them has its turn"


def with_a_clock_ahead() -> World:
    """Three gangs that each want the node for members that never come; the first promise is over
    while the clock is ahead by a day, and the second made.
    """
    stated = tuple(sorted({keys.KEEP_ROOM[0]: "true", keys.TOTAL[0]: "9"}.items()))
    world = World(node("a", 8))
    world.clock_s = 86_400.0
    for number in range(3):
        name = f"greedy-{number}"
        world.declare(
            pod_group(name, 1, min_resources=amounts(gpus=8), gang_metadata=stated, creation_s=50)
        )
        world.create(members(name, 1, gpus=0, pod_group=True, creation_s=50))

    assert len(world.settle().bound()) == 1
    assert len(world.advance(WAIT_S + 10).bound()) == 2
    world.clock_s = 0.0
    return world


def test_room_promised_while_the_clock_was_ahead_is_kept_no_longer_than_any() -> None:
    """B8: by the longest wait time it is over, and not a day later."""
    world = with_a_clock_ahead()
    world.advance(1)
    modest(world, "modest")

    assert "modest" not in world.bound()
    assert "modest" in world.advance(HOLD_MAX_S + 10).bound()


def test_where_the_clock_is_set_the_ends_of_thousands_follow_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """B8: one a turn here. None ends by the clock of before, nor is forgotten."""
    monkeypatch.setattr(room_to_come, "DUE_AT_ONCE", 1)
    world = World(*(node(f"n{number}", 3) for number in range(4)))
    for number in range(4):
        world.declare(provided(number))
        world.create(lws_pod(0, number))

    world.settle()
    assert len(world.state.coming.shown()) == 4

    world.advance(100)
    world.clock_s = -50.0
    world.turn()
    assert world.state.coming.next_deadline_s() == world.now_s

    world.advance(1)
    assert world.state.coming.next_deadline_s() > world.now_s

    # over by the clock that is set again before anybody looks
    world.advance(WAIT_S - 56)
    world.now_s += 10
    world.clock_s = -150.0
    world.settle()
    world.advance(85)
    assert world.events("RoomReleased") == []

    world.advance(20)
    assert len(world.events("RoomReleased")) == 4


def test_who_waits_behind_unused_room_ranks_by_the_clock_that_is_set() -> None:
    """B8, Q1: a gang created after the room was found unused is younger."""
    world = with_a_clock_ahead()
    world.advance(1)
    (first,) = modest(world, "first")
    assert "first" in world.advance(HOLD_MAX_S + 10).bound()

    world.advance(60)
    modest(world, "second")
    world.delete(first)
    world.settle()

    assert "greedy-2-0" in world.bound()
    assert "second" not in world.bound()


def modest(world: World, name: str) -> list[Pod]:
    """A pod of another namespace that needs the whole node and was created now."""
    return world.create(pod(name, namespace="other", gpus=8, creation_s=int(world.wall_s())))


def test_members_to_come_are_a_number_and_a_shape() -> None:
    """B8: 300 gangs with 512 members to come each take the memory of their 300 pods, before and
    after a plan.
    """
    world = World(node("n-0", 4))
    number = 300
    stated = keys.pod_group_metadata({keys.TOTAL[0]: "513", keys.KEEP_ROOM[0]: "true"})
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for each in range(number):
            world.say(
                Applied(
                    pod_group(f"g-{each}", 1, min_resources=amounts(gpus=513), gang_metadata=stated)
                )
            )
            world.say(*map(Applied, members(f"g-{each}", 1, pod_group=True)))
        prepare(world.state, world.now_s, world.wall_s())
        plan_and_commit(world.state, world.now_s, world.wall_s(), limits=None)
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    views = [world.state.registry.view(f"ns/g-{each}") for each in range(number)]
    assert [len(view.to_come) for view in views] == [512] * number
    # The pods of stand-ins would be 90 MB; those of the last few gangs that a plan decided are
    # kept.
    assert used < 12 * 10**6, used


def test_plans_are_charged_for_members_to_come() -> None:
    """B8: deciding a gang with 512 members to come takes more of a plan's work than one without."""
    work = []
    for total in ("2", "513"):
        world = World(node("n-0", 1))
        stated = keys.pod_group_metadata({keys.TOTAL[0]: total, keys.KEEP_ROOM[0]: "true"})
        world.declare(
            pod_group("g", 1, min_resources=amounts(gpus=int(total)), gang_metadata=stated)
        )
        world.create(members("g", 1, pod_group=True))
        world.turn()
        work.append(world.plans[-1].work)
    assert work[1] > work[0] + 100
