"""ProvisioningRequests: when a gang asks for all its nodes at once, and what follows (semantics
E10).
"""

from __future__ import annotations

import msgspec

from gangsched.api import keys
from gangsched.api.gang_spec import GangDefaults
from gangsched.model.objects import Pod
from gangsched.model.owners import JobOwner
from gangsched.model.protocol import (
    Applied,
    ProvisioningAvailable,
    Replaced,
    RequestNodes,
    Unread,
    WithdrawNodes,
)
from gangsched.model.provisioning import ProvisioningRequest, ProvisioningState
from gangsched.state.rule_set import ProvisioningRules, Rules
from tests.autoscaler import (
    CLASS,
    Autoscaler,
    message,
    new_node,
    provisioning_rules,
    reasons,
    waiting,
)
from tests.builders import members, node, pod, pod_group
from tests.world import World


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
    world.advance(500)
    assert reasons(world) == {"Provisioning"}
    world.advance(120)
    assert (scaler.requests, reasons(world)) == ({}, {"Unschedulable"})
    assert "ended (it was not created in time)" in message(world)
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


def test_an_autoscaler_takes_up_many_requests_one_by_one() -> None:
    """E10: that it accepts others shows that there is one; a class that nobody knows rests."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 0, answers=False)
    for number in range(8):
        waiting(world, 2, f"g{number}")

    stranger = pod_group("x", 2, gang_metadata=((keys.PROVISIONING_CLASS[0], "x.example.com"),))
    world.declare(stranger)
    world.create(members("x", 2, gpus=8, pod_group=True))
    for key in sorted(f"ns/gangsched-g{number}" for number in range(8)):
        scaler.run(40)
        (found,) = [each for each in scaler.requests if each.startswith(key)]
        scaler.say(found, ProvisioningState.ACCEPTED)

    assert (reasons(world), reasons(world, "x")) == ({"Provisioning"}, {"Unschedulable"})
    assert len([key for key in scaler.created if "-g" in key]) == 8


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


def test_another_process_finds_the_request_of_an_owner_that_was_created_again() -> None:
    """E10, O2: there, its gang has another id once no pod of the owner before is left."""

    def pods_of(uid: str, number: int) -> list[Pod]:
        return [
            pod(
                f"{uid}-{index}",
                gpus=8,
                owner="train",
                controller_kind="Job",
                controller_uid=uid,
                gang_metadata=((keys.OWNER_GANG, keys.OWNER),),
            )
            for index in range(number)
        ]

    rules = provisioning_rules()
    jobs = [JobOwner(uid=uid, namespace="ns", name="train", minimum=3) for uid in ("a", "b")]
    world = World(rules=rules)
    scaler = Autoscaler(world, 0)
    world.say(Replaced(JobOwner, (jobs[1],)))
    before = world.create(pods_of("a", 1))
    world.settle()
    world.create(pods_of("b", 3))
    scaler.run(14)
    ((request, _),) = scaler.requests.values()
    assert "ns/Job.train.b" in world.state.registry.gangs

    world.delete(*before)
    world.restart()
    world.say(Replaced(JobOwner, (jobs[1],)), Applied(request))
    scaler.run(60)
    assert "ns/Job.train" in world.state.registry.gangs
    assert len(scaler.created) == 1
    assert list(scaler.requests) == scaler.created


def test_a_gang_whose_oldest_pod_is_replaced_asks_with_another_one() -> None:
    """E10: its request goes with the pod that owns it, and another one is made that stays."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 3)
    pods = members("g", 4, gpus=8, min_member=3)
    world.create(pods[:3])
    scaler.answers = False
    scaler.run(20)
    ((first, _),) = scaler.requests.values()
    assert first.owner_uid in world.pods

    world.delete(*[each for each in world.pods.values() if each.uid == first.owner_uid])
    world.create(pods[3])
    # What the garbage collector does.
    scaler.delete(first.key)
    scaler.answers = True
    scaler.run(200)
    assert [order.owner.uid in world.pods for order in orders(world)] == [False, True]
    assert len(world.bound()) == 3


def test_two_processes_that_both_lead_ask_for_the_same() -> None:
    """E10: a leader that is late, or a second installation of the same name: whose order comes
    first makes the request, and neither deletes it.
    """
    worlds = [World(rules=provisioning_rules()) for _ in range(2)]
    pods = members("g", 2, gpus=8, pod_group=True)
    for world in worlds:
        world.declare(pod_group("g", 2, uid="uid-of-g"))
        world.create(pods)
        world.advance(12)

    first, second = [orders(world)[0] for world in worlds]
    assert first == second
    request = ProvisioningRequest(
        first.namespace,
        first.name,
        uid="pr",
        owner_uid=first.owner.uid,
        requested_by="gangsched",
        creation_s=worlds[0].wall_s(),
    )
    for state in (ProvisioningState.NEW, ProvisioningState.PROVISIONED):
        for world in worlds:
            world.say(Applied(msgspec.structs.replace(request, state=state)))
            world.add_nodes(new_node(world, "a"))
            world.advance(2)

    fences = [world.state.asks.fenced(world.now_s) for world in worlds]
    assert fences[0] == fences[1]
    assert [fence.nodes for fence in fences[0]] == [("a",)]
    assert all(len(world.node_orders) == 1 for world in worlds)


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
    told = message(world)
    assert "ended (no autoscaler has accepted it); each pod asks for a node until" in told

    scaler.run(610, 10)
    assert (reasons(world), len(scaler.created)) == ({"Provisioning"}, 2)


def test_without_the_right_a_gang_asks_as_any_other_and_says_so() -> None:
    """E10: also if the right is taken away later; once it is granted, the request is made."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 10)
    world.say(ProvisioningAvailable("The API server does not serve ProvisioningRequests."))
    waiting(world, 8)
    assert reasons(world) == {"Unschedulable"}
    assert "No autoscaler is asked for all nodes at once: the API server does not" in message(world)
    assert orders(world) == []

    world.say(ProvisioningAvailable())
    scaler.limit = 0
    scaler.run(20)
    assert (reasons(world), len(scaler.created)) == ({"Provisioning"}, 1)


def test_a_right_that_is_taken_away_is_told_at_once() -> None:
    """E10: the gang asks as any other, and does not say that its request was deleted."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 0)
    waiting(world, 8)
    scaler.run(20)
    ((request, _),) = scaler.requests.values()
    world.say(ProvisioningAvailable("gangsched may not watch provisioningrequests."))
    world.say(Unread(ProvisioningRequest))
    world.advance(2)
    assert reasons(world) == {"Unschedulable"}
    assert "No autoscaler is asked for all nodes at once: gangsched may not" in message(world)

    world.say(ProvisioningAvailable(), Replaced(ProvisioningRequest, (request,)))
    scaler.run(30)
    assert (reasons(world), scaler.created) == ({"Provisioning"}, [request.key])


def test_a_request_that_somebody_deletes_is_made_again() -> None:
    """E10: after a minute."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 0)
    waiting(world, 8)
    scaler.run(20)
    (key,) = scaler.requests
    templates = scaler.requests[key][0].templates
    scaler.delete(key)
    scaler.run(40)
    assert scaler.requests == {}
    left = [order for order in world.node_orders if isinstance(order, WithdrawNodes)]
    assert [(order.uid, order.owner_uid, order.templates) for order in left] == [
        ("", "uid-of-g", templates)
    ]
    scaler.run(30)
    assert len(scaler.created) == 2


def test_a_request_that_is_deleted_before_it_is_accepted_is_made_again() -> None:
    """E10: nobody says that no autoscaler answers."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 0, answers=False)
    waiting(world, 8)
    scaler.run(20)
    (key,) = scaler.requests
    scaler.delete(key)
    scaler.run(10)
    assert reasons(world) == {"Provisioning"}
    assert "ended (it was deleted); it is made again by" in message(world)
    scaler.run(60)
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


def test_namespaces_of_one_group_learn_nothing_of_each_others_requests() -> None:
    """E10, I4: an autoscaler's message may name objects of its request's namespace."""
    for state in (ProvisioningState.NOT_YET, ProvisioningState.FAILED):
        world = World(rules=provisioning_rules())
        scaler = Autoscaler(world, 10)
        scaler.fate = (state, "Bad: pod a/secret needs quota secret-of-a")
        both = ["a/g", "b/g"]
        pods = []
        for namespace in ("a", "b"):
            pods += world.create(members("g", 2, gpus=8, groups=both, namespace=namespace))

        scaler.run(20)
        texts = [world.condition(pod)[1] for pod in pods]
        assert not any("secret" in text or "gangsched-" in text for text in texts)
        wanted = "has no capacity yet." if state is ProvisioningState.NOT_YET else "ended (failed)"
        assert any(wanted in text for text in texts)


def test_gangs_of_one_group_name_one_class() -> None:
    """E10: else none is asked for, which is told; the same holds for more than 32 kinds of pods."""
    world = World(rules=provisioning_rules())
    both = ["ns/g", "ns/h"]
    for name, class_name in (("g", "a.example.com"), ("h", "none")):
        for made in members(name, 2, gpus=8, groups=both):
            stated = (*made.gang_metadata, (keys.PROVISIONING_CLASS[0], class_name))
            world.create(msgspec.structs.replace(made, gang_metadata=stated))

    world.advance(60)
    assert (orders(world), reasons(world)) == ([], {"Unschedulable"})
    told = world.condition(next(iter(world.pods.values())))[1]
    assert "at once: its gangs name different provisioning classes." in told


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
    assert "at once: its pods are of more than 32 kinds." in message(world)


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


def test_what_never_fits_is_said_of_the_existing_nodes_while_others_are_asked_for() -> None:
    """E10: "can never start" would be wrong, and is read at 3 a.m.; who rests asks for nodes like
    those that exist.
    """
    world = World(node("old", 4), rules=provisioning_rules())
    scaler = Autoscaler(world, 0, answers=False)
    pods = waiting(world, 2)
    for _ in range(2):
        assert "gang ns/g does not fit the existing nodes: each pod asks for 8" in message(world)
        assert "does not fit the existing nodes" in world.condition(pods[0])[1]
        scaler.run(14)

    scaler.run(80)
    assert "gang ns/g can never start" in message(world)


def test_a_namespace_asks_beside_hundreds_of_gangs_of_another() -> None:
    """E10: a turn looks at some gangs, of each namespace in turn."""
    world = World(rules=provisioning_rules(after_s=0))
    for number in range(200):
        waiting(world, 1, f"g{number}")
    world.declare(pod_group("quiet", 1, namespace="other", uid="uid-of-quiet"))
    world.create(members("quiet", 1, gpus=8, pod_group=True, namespace="other"))

    for _ in range(5):
        world.turn()
        world.answer()

    namespaces = [order.namespace for order in world.node_orders]
    assert "other" in namespaces
    assert len(namespaces) < 100
    world.advance(10)
    assert len(world.node_orders) == 201
