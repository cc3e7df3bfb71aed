"""Room that other schedulers made for pods of their own: semantics F1."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangsched.core.cycle import plan
from gangsched.model.inter_pod import HostPort, InterPodConstraints, PodTerm, Requirement
from gangsched.model.objects import Phase, Pod
from gangsched.model.protocol import Bind, BindGone, Replaced
from gangsched.state.cluster import Cluster
from tests.builders import members, node, pod, shape
from tests.world import World

PORT = InterPodConstraints(ports=(HostPort("TCP", 80),))


def promised(
    name: str = "urgent", *, gpus: int = 4, priority: int = 100, on: str = "a", **fields: Any
) -> Pod:
    """A pod of another scheduler with a nominated node."""
    return pod(
        name,
        gpus=gpus,
        priority=priority,
        scheduler_name="default-scheduler",
        nominated_node=on,
        **fields,
    )


def started(world: World) -> set[str]:
    """The pods of ours that are bound once everything has settled."""
    world.settle()
    return {
        each.name
        for each in world.pods.values()
        if each.scheduler_name == "gangsched" and each.node_name
    }


@pytest.mark.parametrize(("priority", "bound"), [(101, True), (100, False), (0, False)])
def test_promised_room_is_taken_for_groups_of_at_most_its_priority(
    priority: int, *, bound: bool
) -> None:
    """F1: equal and lower priorities find the node full; a higher one may still use it."""
    world = World(node("a", 4))
    world.create(promised(), members("g", 2, priority=priority))
    assert started(world) == ({"g-0", "g-1"} if bound else set())


@pytest.mark.parametrize(
    "end", ["bound elsewhere", "gone", "not nominated", "nominated elsewhere", "failed", "relisted"]
)
def test_promised_room_is_free_once_the_promise_ends(end: str) -> None:
    """F1: it ends when the pod is bound, gone, un-nominated or nominated elsewhere, and who waits
    is tried at once.
    """
    world = World(node("a", 4), node("b", 4, unschedulable=True))
    (urgent,) = world.create(promised())
    world.create(members("g", 4))
    assert not started(world)
    match end:
        case "bound elsewhere":
            world.update(urgent, node_name="b", nominated_node="")
        case "gone":
            world.delete(urgent)
        case "not nominated":
            world.update(urgent, nominated_node="")
        case "nominated elsewhere":
            world.update(urgent, nominated_node="b")
        case "failed":
            world.update(urgent, phase=Phase.FAILED)
        case "relisted":
            del world.pods[urgent.uid]
            world.say(Replaced(Pod, tuple(world.pods.values())))
    assert len(started(world)) == 4


def test_promise_is_kept_while_victims_leave_one_by_one() -> None:
    """F1: what the victims of a preemption give back is not given away; the urgent pod finds all of
    it.
    """
    world = World(node("a", 4))
    victims = world.create(
        pod(f"v{n}", gpus=1, node_name="a", scheduler_name="x") for n in range(4)
    )
    world.create(members("waiting", 1), members("other", 2))
    (urgent,) = world.create(promised())
    for victim in victims:
        world.delete(victim)
        assert not started(world)
    world.update(urgent, node_name="a", nominated_node="")
    assert not started(world)


def test_promise_takes_ports_and_a_pod_slot() -> None:
    """F1: as kube-scheduler counts it, not resources alone."""
    world = World(node("a", 4, pods=2))
    with_port = shape(1, inter_pod=PORT)
    world.create(promised(of=with_port), pod("same-port", of=with_port), pod("any"))
    assert started(world) == {"any"}
    world.create(pod("third"))
    assert started(world) == {"any"}


def test_our_own_pods_and_unknown_nodes_are_promised_nothing() -> None:
    """F1: a nomination of ours is nobody's, and one on a node that is not there takes no room
    anywhere.
    """
    world = World(node("a", 4))
    world.create(
        msgspec.structs.replace(promised(), scheduler_name="gangsched", gated=True),
        promised("u2", on="gone"),
    )
    world.create(members("g", 4))
    assert len(started(world)) == 4


def test_holds_give_way_to_a_promise() -> None:
    """F1, R3: a member that is held where a promise of higher priority comes is held no more."""
    world = World(node("a", 4))
    world.create(pod("other", gpus=2, node_name="a"), members("g", 4, mode="NonStrict"))
    assert len(world.settle().held()) == 2
    world.create(promised())
    assert not world.settle().held()


def test_last_look_sees_a_promise() -> None:
    """B2, F1: a nomination that arrives after the snapshot drops the verdict; one of lower priority
    does not.
    """
    for priority, bound in ((100, 0), (-1, 2)):
        world = World(node("a", 4))
        world.create(members("g", 2))
        world.state.refresh(world.now_s)
        queue, snapshot = world.state.ready(world.now_s), world.state.snapshot()
        proposal = plan(snapshot, queue, now_s=world.now_s)
        world.create(promised(priority=priority))
        actions = world.state.commit(proposal, snapshot, now_s=world.now_s)
        assert sum(isinstance(action, Bind) for action in actions) == bound, priority


def test_bind_is_not_sent_again_into_promised_room() -> None:
    """B2, F1: just before each sending the node is asked once more."""
    world = World(node("a", 4))
    world.fate = lambda _: "later"
    world.create(members("g", 2))
    world.settle()
    bind, _ = world.sent
    assert not world.state.start_check.objection(bind)
    world.create(promised(gpus=2))
    assert not world.state.start_check.objection(bind)
    world.create(promised("more", gpus=1))
    assert world.state.start_check.objection(bind)


@pytest.mark.parametrize("what", ["overtaken", "taken by others", "freed and taken", "renewed"])
def test_bind_is_sent_where_only_who_ranks_higher_took_the_promised_room(what: str) -> None:
    """B2, F1: it was placed beside the promise, and a pod that may ignore the promise came after
    it; whoever else takes that room stops the bind, and so does a promise that came later.
    """
    world = World(node("a", 4))
    world.fate = lambda _: "later"
    (urgent,) = world.create(promised(gpus=2, priority=100))
    world.create(pod("beside", gpus=2, priority=100))
    world.turn()
    (bind,) = world.sent
    assert bind.name == "beside"
    if what == "taken by others":
        world.create(pod("low", gpus=2, scheduler_name="other", node_name="a"))
        assert world.state.start_check.objection(bind)
        world.create(pod("higher", gpus=0, priority=101))
        world.turn()
        assert world.state.start_check.objection(bind)
        return

    (higher,) = world.create(pod("higher", gpus=2, priority=101))
    world.turn()
    assert [each.name for each in world.sent] == ["beside", "higher"]
    assert not world.state.start_check.objection(bind)

    if what == "freed and taken":
        world.say(BindGone(higher.uid, "a", "it is gone"))
        assert not world.state.start_check.objection(bind)
        world.create(pod("low", gpus=2, scheduler_name="other", node_name="a"))
        assert world.state.start_check.objection(bind)
    elif what == "renewed":
        world.update(urgent, nominated_node="")
        world.update(urgent, nominated_node="a")
        assert world.state.start_check.objection(bind)


def test_ranks_between_two_promises_see_only_the_higher() -> None:
    """F1: in one plan each group meets the promises of at least its own priority."""
    world = World(node("a", 3))
    world.create(promised("high", gpus=1, priority=100), promised("low", gpus=1, priority=10))
    world.create(
        members("middle", 3, priority=50),
        members("first", 2, priority=50),
        members("last", 1, priority=5),
    )
    assert started(world) == {"first-0", "first-1"}


def test_a_pod_with_anti_affinity_that_goes_frees_all_nodes_once() -> None:
    """Q3: whoever was kept off any node by it looks again, on the nodes that there are then."""
    cluster = Cluster()
    for name in ("a", "b"):
        cluster.apply_node(node(name))
    apart = InterPodConstraints(
        anti_affinity=(PodTerm("rack", (Requirement("app", "In", ("x",)),)),)
    )
    placed = pod("p", of=shape(inter_pod=apart))
    cluster.occupy(placed, "a")
    cluster.take_freed()
    cluster.vacate(placed, "a")
    cluster.drop_node("b")
    cluster.apply_node(node("c"))
    assert cluster.take_freed() == {"a", "c"}
    assert cluster.take_freed() == set()


def test_many_namespaces_change_between_two_snapshots_at_the_cost_of_one_copy() -> None:
    """What a snapshot shows stays; then each change costs the same, however many there are."""
    cluster = Cluster()
    cluster.label_namespaces({f"n{number}": {"team": "a"} for number in range(100)})
    shown = cluster.snapshot().pods_by_node
    cluster.label_namespace("n0", {"team": "b"})
    copied = cluster.namespaces
    for number in range(1, 50):
        cluster.label_namespace(f"n{number}", {"team": "b"})
        assert cluster.namespaces is copied

    cluster.label_namespace("n99", None)
    cluster.label_namespace("new", {})
    assert shown.namespaces == {f"n{number}": {"team": "a"} for number in range(100)}
    now = cluster.snapshot().pods_by_node.namespaces
    assert [now.get(each) for each in ("n0", "n49", "n50", "n99", "new")] == [
        {"team": "b"},
        {"team": "b"},
        {"team": "a"},
        None,
        {},
    ]
    cluster.label_namespace("new", {})
    assert cluster.snapshot().pods_by_node.namespaces is now
