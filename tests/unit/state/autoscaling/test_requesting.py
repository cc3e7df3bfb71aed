"""ProvisioningRequests: when a gang asks for all its nodes at once, and what follows (semantics
E10).
"""

from __future__ import annotations

import msgspec
import pytest

from gangsched.api import keys
from gangsched.api.gang_spec import GangDefaults
from gangsched.model.owners import JobOwner
from gangsched.model.protocol import (
    Applied,
    ProvisioningAvailable,
    Replaced,
    RequestNodes,
    WithdrawNodes,
)
from gangsched.model.provisioning import ProvisioningRequest, ProvisioningState
from gangsched.state.autoscaling.requesting import Provisioning
from gangsched.state.rule_set import ProvisioningRules, Rules
from tests.autoscaler import CLASS, Autoscaler, new_node, provisioning_rules, waiting
from tests.builders import members, node, pod, pod_group
from tests.world import World


def reasons(world: World, name: str = "g") -> set[str]:
    """The reasons of its pods that wait."""
    world.told()
    return {
        world.condition(pod)[0]
        for pod in world.pods.values()
        if not pod.node_name and pod.name.startswith(name)
    }


def message(world: World, name: str = "g") -> str:
    """What the PodGroup says."""
    world.told()
    for condition in world.status(name)["conditions"]:
        if condition["type"] == "Scheduled":
            return str(condition["message"])

    return ""


def orders(world: World) -> list[RequestNodes]:
    """All requests that were ordered so far."""
    return [order for order in world.node_orders if isinstance(order, RequestNodes)]


def test_one_request_brings_all_nodes_and_goes_once_the_gang_has_started() -> None:
    """E10: nothing is bought for single pods meanwhile, and no pod needs an annotation."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 10, boots_s=6)
    waiting(world, 8)
    assert reasons(world) == {"Provisioning"}

    scaler.run(40)
    assert len(world.bound()) == 8
    assert (scaler.provided, scaler.bought) == (8, 0)
    assert (len(scaler.created), scaler.requests) == (1, {})


def test_nothing_is_bought_for_a_gang_that_the_pool_cannot_hold() -> None:
    """E10: the gang says what the autoscaler says."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 10)
    waiting(world, 12)
    scaler.run(300)

    assert (scaler.provided, scaler.bought, reasons(world)) == (0, 0, {"Provisioning"})
    assert "is accepted and has no capacity yet: CapacityIsNotFound" in message(world)
    scaler.run(4_000, 20)
    assert (scaler.provided, scaler.bought) == (0, 0)
    assert len(scaler.created) == 2, "the request is made again after an hour"


def test_room_that_becomes_free_is_used_before_anything_is_asked_for() -> None:
    """E10: a gang asks after it has lacked room for a while."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 10)
    waiting(world, 2)
    scaler.run(8)
    assert (scaler.created, reasons(world)) == ([], {"Provisioning"})
    world.add_nodes(node("a"), node("b"))
    scaler.run(30)
    assert (scaler.created, len(world.bound())) == ([], 2)


def test_new_nodes_are_reserved_for_the_gang_that_asked() -> None:
    """E10: plain pods that wait do not take them before the gang starts."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 8, boots_s=4)
    waiting(world, 8)
    world.told()
    scaler.run(12)
    # The first three come alone.
    plain = world.create([pod(f"p{number}", gpus=8, creation_s=1) for number in range(20)])
    scaler.limit = 0
    scaler.run(10)

    nodes = set(world.bound().values())
    assert len(nodes) == 8
    assert not any(world.pods[each.uid].node_name for each in plain)


def test_nodes_that_come_one_by_one_are_kept_from_others() -> None:
    """E10: as many as the gang needs; what comes beyond that is anybody's."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 0)
    waiting(world, 3)
    world.told()
    scaler.run(14)
    (key,) = scaler.requests
    scaler.answers = False
    scaler.say(key, ProvisioningState.PROVISIONED)
    world.create([pod(f"p{number}", gpus=8, creation_s=1) for number in range(4)])

    world.add_nodes(new_node(world, "a"))
    world.advance(2)
    world.add_nodes(new_node(world, "b"))
    world.advance(6)
    assert world.bound() == {}
    assert "2 new nodes are reserved until" in message(world)

    world.add_nodes(new_node(world, "c"), new_node(world, "d"))
    world.settle()
    assert {world.bound()[f"g-{number}"] for number in range(3)} == {"a", "b", "c"}
    assert list(world.bound().values()).count("d") == 1


def test_reserved_nodes_are_free_again_after_a_while() -> None:
    """E10: what the gang still lacks then, it asks for as any other."""
    world = World(rules=provisioning_rules(keep_s=100.0))
    scaler = Autoscaler(world, 0)
    waiting(world, 3)
    scaler.run(14)
    (key,) = scaler.requests
    scaler.answers = False
    scaler.say(key, ProvisioningState.PROVISIONED)
    world.create(pod("p", gpus=8))
    world.add_nodes(new_node(world, "a"))
    world.advance(95)
    assert world.bound() == {}

    world.advance(10)
    scaler.carry_out()
    assert world.bound() == {"p": "a"}
    assert (scaler.requests, reasons(world)) == ({}, {"Unschedulable"})
    assert "the nodes that were added do not suffice" in message(world)


def test_a_gang_that_is_deleted_withdraws_its_request() -> None:
    """E10: and its nodes are anybody's."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 0)
    pods = waiting(world, 2)
    scaler.run(14)
    (key,) = scaler.requests
    scaler.say(key, ProvisioningState.PROVISIONED)
    world.add_nodes(new_node(world, "a"))
    world.advance(1)
    world.create(pod("p", gpus=8))
    world.settle()
    assert world.bound() == {}

    world.delete(*pods)
    world.withdraw(world.pod_groups[keys.X_K8S, "ns/g"])
    world.settle()
    scaler.carry_out()
    assert scaler.requests == {}
    assert world.bound() == {"p": "a"}


def test_a_gang_whose_pods_are_gone_withdraws_its_request() -> None:
    """E10: also if its PodGroup stays; no nodes are kept for nobody."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 0)
    pods = waiting(world, 2)
    scaler.run(14)
    (key,) = scaler.requests
    scaler.say(key, ProvisioningState.PROVISIONED)
    world.add_nodes(new_node(world, "a"))
    world.advance(1)
    world.create(pod("p", gpus=8))
    assert world.settle().bound() == {}

    world.delete(*pods)
    world.settle()
    scaler.carry_out()
    world.advance(1)
    assert (scaler.requests, world.bound()) == ({}, {"p": "a"})
    scaler.run(1_000, 20)
    assert len(scaler.created) == 1, "nothing is asked for later"


def test_gangs_with_names_that_read_alike_ask_by_themselves() -> None:
    """E10: names of gangs may have characters that names of objects may not."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 10)
    for name in ("Train.a", "train-a"):
        waiting(world, 2, name)

    scaler.run(40)
    assert len(set(scaler.created)) == 2
    assert len(world.bound()) == 4


def test_a_request_that_is_made_too_late_is_withdrawn() -> None:
    """E10: its gang asks for single nodes meanwhile, and nothing is bought twice."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 10, answers=False)
    waiting(world, 8)
    world.advance(80)
    assert (scaler.requests, reasons(world)) == ({}, {"Unschedulable"})
    scaler.carry_out()
    assert len(scaler.requests) == 1

    world.advance(1)
    scaler.carry_out()
    assert scaler.requests == {}


def test_a_request_that_is_provisioned_no_more_keeps_no_nodes() -> None:
    """E10: also if its status goes back and forth, it ends, and is made again later."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 0)
    waiting(world, 3)
    scaler.run(14)
    (key,) = scaler.requests
    scaler.answers = False
    scaler.say(key, ProvisioningState.PROVISIONED)
    world.create(pod("p", gpus=8))
    world.add_nodes(new_node(world, "a"))
    world.advance(2)
    assert world.bound() == {}

    scaler.say(key, ProvisioningState.ACCEPTED)
    world.advance(20)
    assert world.bound() == {"p": "a"}
    assert "ended (it is not provisioned any more)" in message(world)
    scaler.carry_out()
    assert scaler.requests == {}


def test_a_changed_gang_asks_under_another_name() -> None:
    """E10: the earlier request is withdrawn."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 0)
    waiting(world, 3)
    scaler.run(14)
    (first,) = scaler.requests

    world.declare(pod_group("g", 2, uid="uid-of-g"))
    scaler.run(14)
    (second,) = scaler.requests
    assert first != second
    assert scaler.requests[second][1] == 2


def test_another_process_finds_the_request() -> None:
    """E10: by its name, so that nothing is asked for twice."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 0)
    waiting(world, 3)
    scaler.run(14)
    ((request, _),) = scaler.requests.values()

    world.restart()
    world.say(Applied(request))
    scaler.run(60)
    assert len(scaler.created) == 1
    assert list(scaler.requests) == scaler.created
    assert reasons(world) == {"Provisioning"}


def test_a_request_that_nobody_wants_is_deleted() -> None:
    """E10: for example one whose gang has started while no scheduler ran; those of others stay."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 0, answers=False)
    ours = ProvisioningRequest("ns", "gangsched-x-1", uid="1", requested_by="gangsched")
    other = ProvisioningRequest("ns", "gangsched-x-2", uid="2", requested_by="another")
    world.say(Applied(ours), Applied(other))
    world.advance(70)
    withdrawn = [order.uid for order in world.node_orders if isinstance(order, WithdrawNodes)]
    assert withdrawn == ["1"]
    assert scaler.created == []


def test_requests_that_fail_are_made_again_ever_less_often() -> None:
    """E10: after one minute, doubling to half an hour; the gang asks for no single nodes."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 10)
    scaler.fate = (ProvisioningState.FAILED, "QuotaExceeded: no more of them")
    waiting(world, 8)
    scaler.run(2_000, 4)

    assert scaler.bought == 0
    assert 4 <= len(scaler.created) <= 6
    assert "ended (failed: QuotaExceeded: no more of them); it is made again by" in message(world)

    scaler.fate = None
    scaler.run(2_000, 4)
    assert len(world.bound()) == 8


def test_capacity_that_expires_or_is_revoked_is_asked_for_again() -> None:
    """E10: as after a failure."""
    for state in (ProvisioningState.EXPIRED, ProvisioningState.REVOKED):
        world = World(rules=provisioning_rules())
        scaler = Autoscaler(world, 10)
        scaler.fate = (state, "too late")
        waiting(world, 8)
        scaler.run(20)
        assert f"ended ({state.value}: too late)" in message(world)
        scaler.fate = None
        scaler.run(80)
        assert len(world.bound()) == 8


def test_a_gang_asks_as_any_other_where_no_autoscaler_answers() -> None:
    """E10: for ten minutes, then it tries again."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 0, answers=False)
    waiting(world, 8)
    scaler.run(60)
    assert reasons(world) == {"Provisioning"}
    scaler.run(20)
    assert (reasons(world), scaler.requests) == ({"Unschedulable"}, {})
    assert "ended (no autoscaler has accepted it); it is made again by" in message(world)

    scaler.run(610, 10)
    assert (reasons(world), len(scaler.created)) == ({"Provisioning"}, 2)


def test_without_the_right_a_gang_asks_as_any_other_and_says_so() -> None:
    """E10: also if the right is taken away later; once it is granted, the request is made."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 10)
    world.say(ProvisioningAvailable("The API server does not serve ProvisioningRequests."))
    waiting(world, 8)
    assert reasons(world) == {"Unschedulable"}
    assert "No autoscaler is asked for all nodes at once: The API server does not" in message(world)
    assert orders(world) == []

    world.say(ProvisioningAvailable())
    scaler.limit = 0
    scaler.run(20)
    assert (reasons(world), len(scaler.created)) == ({"Provisioning"}, 1)


def test_a_request_that_somebody_deletes_is_made_again() -> None:
    """E10: after a minute."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 0)
    waiting(world, 8)
    scaler.run(20)
    (key,) = scaler.requests
    scaler.delete(key)
    scaler.run(40)
    assert scaler.requests == {}
    scaler.run(30)
    assert len(scaler.created) == 2


def test_a_request_of_somebody_else_under_our_name_is_not_used() -> None:
    """E10: its owner is another; the error of the API server is told."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 0)
    waiting(world, 8)
    scaler.run(14)
    ((request, _),) = scaler.requests.values()
    scaler.delete(request.key)
    stranger = msgspec.structs.replace(request, uid="x", owner_uid="other")
    world.say(Applied(stranger))
    world.advance(200)
    withdrawn = [order.uid for order in world.node_orders if isinstance(order, WithdrawNodes)]
    assert "x" not in withdrawn


def test_a_gang_without_a_class_does_not_ask() -> None:
    """E10: nor one whose class is none, nor a plain pod, nor anybody while the setting is off."""
    for given, stated in (
        (Rules(provisioning=ProvisioningRules(is_on=True)), ""),
        (provisioning_rules(), "none"),
        (Rules(defaults=GangDefaults(provisioning_class=CLASS)), ""),
    ):
        world = World(rules=given)
        group = pod_group("g", 2)
        if stated:
            metadata = ((keys.PROVISIONING_CLASS[0], stated),)
            group = pod_group("g", 2, gang_metadata=metadata)

        world.declare(group)
        world.create(members("g", 2, gpus=8, pod_group=True))
        world.create(pod("p", gpus=8))
        world.advance(60)
        assert (orders(world), reasons(world)) == ([], {"Unschedulable"})
        assert reasons(world, "p") == {"Unschedulable"}


def test_a_group_of_two_namespaces_asks_in_both() -> None:
    """E10: its nodes are reserved once both requests are provisioned."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 10)
    both = ["a/g", "b/g"]
    for namespace in ("a", "b"):
        made = members("g", 2, gpus=8, groups=both, namespace=namespace)
        world.create(made)

    scaler.run(40)
    assert sorted(key.partition("/")[0] for key in scaler.created) == ["a", "b"]
    assert (len(world.bound()) > 0, scaler.bought, scaler.requests) == (True, 0, {})


def test_a_request_has_a_pod_set_for_each_kind_of_pod() -> None:
    """E10: of what the minimum lacks, by its oldest pod; for more than 32 kinds there is none."""
    world = World(rules=provisioning_rules())
    world.declare(pod_group("g", 4))
    world.create(members("g", 3, gpus=8, pod_group=True))
    world.create(members("g", 2, first=3, gpus=2, pod_group=True))
    world.advance(15)
    (order,) = orders(world)
    assert [(pod_set.name, pod_set.count) for pod_set in order.pod_sets] == [("g-0", 3), ("g-3", 1)]
    assert (order.owner.kind, order.class_name) == ("PodGroup", CLASS)

    world = World(rules=provisioning_rules())
    world.declare(pod_group("g", 33))
    for number in range(33):
        world.create(members("g", 1, first=number, gpus=100 + number, pod_group=True))

    world.advance(15)
    assert (orders(world), reasons(world)) == ([], {"Unschedulable"})


def test_room_of_members_to_come_is_asked_for_with_the_first() -> None:
    """E10, O5: the first pod starts only where all have room, so one node would not help."""
    world = World(rules=provisioning_rules())
    job = JobOwner(uid="u", namespace="ns", name="train", minimum=4)
    world.say(Replaced(JobOwner, (job,)))
    first = pod(
        "train-0",
        gpus=8,
        owner="train",
        controller_kind="Job",
        controller_uid="u",
        gang_metadata=((keys.OWNER_GANG, keys.OWNER), (keys.JOBSET_EXCLUSIVE, "rack")),
    )
    scaler = Autoscaler(world, 0)
    world.create(first)
    scaler.run(14)
    (order,) = orders(world)
    assert [(pod_set.name, pod_set.count) for pod_set in order.pod_sets] == [("train-0", 4)]

    (key,) = scaler.requests
    scaler.answers = False
    scaler.say(key, ProvisioningState.PROVISIONED)
    world.create([pod(f"p{number}", gpus=8, creation_s=1) for number in range(4)])
    for name in ("a", "b", "c", "d"):
        world.add_nodes(new_node(world, name, labels={"rack": "r"}))
        world.advance(2)

    assert set(world.settle().bound()) == {"train-0"}


def test_gangs_that_have_their_nodes_do_not_look_at_all_new_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """E10: hundreds of gangs with requests, and thousands of new nodes, delay no turn."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 0)
    for number in range(20):
        waiting(world, 2, f"g{number}")

    scaler.run(14)
    scaler.answers = False
    for key in scaler.requests:
        scaler.say(key, ProvisioningState.PROVISIONED)

    world.add_nodes(*(new_node(world, f"first-{number}") for number in range(20)))
    for _ in range(4):
        world.state.asks.due(world.now_s, world.wall_s())

    looked: list[str] = []
    is_empty = Provisioning._is_empty

    def counted(self: Provisioning, name: str) -> bool:
        looked.append(name)
        return is_empty(self, name)

    monkeypatch.setattr(Provisioning, "_is_empty", counted)
    world.add_nodes(*(new_node(world, f"more-{number}") for number in range(100)))
    for _ in range(4):
        world.state.asks.due(world.now_s, world.wall_s())

    fences = world.state.asks.fenced(world.now_s)
    assert [len(fence.nodes) for fence in fences] == 20 * [2]
    assert len(looked) == 20, "those that still lacked nodes looked at two each"
