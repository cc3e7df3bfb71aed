"""Validation: nothing to complain of wherever a member may be, and every wrong entry is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec import structs

from gangsched.api.keys import EXPECTED_RUNTIME
from gangsched.model.objects import ClaimUse, Node, Phase, Pod
from gangsched.model.protocol import Applied, Bind, BindGone, Gone, Replaced
from gangsched.model.reservation import ReservationLimits
from gangsched.model.storage import Claim, StorageClass
from gangsched.state.members import State
from gangsched.state.rule_set import Rules
from gangsched.state.validate import validate
from tests.builders import gang_metadata, members, node, pod
from tests.world import World


def sound(world: World) -> None:
    """Nothing to complain of."""
    assert validate(world.state) == []


def state_of(world: World, one: Pod) -> State:
    """What a pod is to us."""
    return world.state.members[one.uid].state


def test_every_way_of_a_member_keeps_everything_counted() -> None:
    """Held, labelled, bound, deleted, ended, gone: after each message the recount agrees."""
    world = World(node("a", 3))
    (busy,) = world.create(pod("busy", node_name="a", scheduler_name="other"))
    world.fate = lambda _: "later"
    first, second, third = world.create(members("g", 3, mode="NonStrict"))
    world.settle()
    assert [state_of(world, each) for each in (first, second, third)] == [
        State.HELD,
        State.HELD,
        State.PENDING,
    ]
    sound(world)
    world.update(first, labels={"seen": "yes"})
    sound(world)
    world.delete(busy)
    world.turn()
    assert state_of(world, first) is State.BINDING
    sound(world)
    world.update(second, deleting=True)
    assert state_of(world, second) is State.WITHDRAWN
    sound(world)
    world.update(third, gang_metadata=gang_metadata("h", min_member=1))
    sound(world)
    world.fate = lambda _: "bound"
    world.answer()
    sound(world)
    world.update(first, labels={"seen": "twice"})
    sound(world)
    world.update(first, deleting=True)
    sound(world)
    world.update(first, phase=Phase.SUCCEEDED)
    assert state_of(world, first) is State.ENDED
    sound(world)
    world.delete(first, second)
    sound(world)


def test_a_kept_member_keeps_its_volumes() -> None:
    """B3: whose bind failed has room and volumes for the next try, and both are given back
    together.
    """
    world = World(node("a", 2))
    claim = Claim(namespace="ns", name="c", uid="claim-1", storage_class="late")
    world.say(
        Applied(StorageClass(name="late", provisioner="csi.test", waits=True)), Applied(claim)
    )
    world.fate = lambda order: "failed" if isinstance(order, Bind) and order.uid == "p" else "bound"
    pods = [pod("p", claims=(ClaimUse("c"),)), pod("q")]
    for each in pods:
        world.create(
            structs.replace(each, uid=each.name, gang_metadata=gang_metadata("g", min_member=2))
        )
    world.settle()
    kept = world.state.members["p"]
    assert (kept.state, bool(kept.selections), bool(kept.node)) == (State.KEPT, True, True)
    sound(world)
    world.advance(world.rules.bind_retry_keep_s + 1)
    assert (kept.state, bool(kept.selections), bool(kept.node)) != (State.KEPT, True, True)
    sound(world)


def test_pods_of_nobody_are_counted_while_they_take_room_or_claims() -> None:
    """Plain pods, those of other schedulers, nodes that come late, and relists."""
    world = World(node("a", 4))
    other = pod("other", node_name="late", scheduler_name="other", claims=(ClaimUse("c"),))
    waits = pod("waits", scheduler_name="other", claims=(ClaimUse("c"),))
    plain = pod("plain", gpus=2)
    world.create(other, waits, plain, pod("nobody", scheduler_name="other"))
    sound(world)
    world.settle()
    sound(world)
    world.add_nodes(node("late", 2))
    sound(world)
    world.say(BindGone(plain.uid, "a", "bound already, so this says nothing"), Gone(Node, "a"))
    sound(world)
    world.update(other, phase=Phase.FAILED)
    sound(world)
    world.say(Replaced(Pod, (waits,)), Applied(node("a", 1)))
    sound(world)
    assert list(world.state.members.uids()) == [waits.uid]


def _state(world: World) -> None:
    next(iter(world.state.members.all())).state = State.RETRY


def _gang(world: World) -> None:
    next(iter(world.state.members.all())).gang = "ns/other"


def _index(world: World) -> None:
    world.state.registry.gangs["ns/g"].members.clear()


def _room(world: World) -> None:
    member = next(iter(world.state.members.all()))
    world.state.cluster.vacate(member.pod, member.node)


def _twice(world: World) -> None:
    member = next(iter(world.state.members.all()))
    world.state.cluster.occupy(member.pod, member.node)


def _version(world: World) -> None:
    member = next(iter(world.state.members.all()))
    world.state.cluster.renew(pod("p", uid=member.pod.uid), member.node)


def _claims(world: World) -> None:
    member = next(iter(world.state.members.all()))
    world.state.cluster.storage_cache.keep(member, member.pod, known=False)


@pytest.mark.parametrize("break_it", [_state, _gang, _index, _room, _twice, _version, _claims])
def test_every_wrong_entry_is_complained_of(break_it: Callable[[World], None]) -> None:
    """A member in a wrong state or gang, a gang without it, room that is not taken or taken twice,
    an old entry.
    """
    world = World(node("a", 4))
    world.create(
        [
            pod(
                "g-0",
                gang_metadata=gang_metadata("g", min_member=1),
                node_name="a",
                claims=(ClaimUse("c"),),
            )
        ]
    )
    sound(world)
    break_it(world)
    assert validate(world.state)


def test_a_reservation_for_a_group_that_was_let_through_in_part_is_looked_at_next() -> None:
    """A group may be bound in part by the plan that keeps room for the rest of it."""
    world = World(node("a"), rules=Rules(reservations=ReservationLimits()))
    world.create(
        pod(
            "busy",
            gpus=8,
            node_name="a",
            scheduler_name="other",
            run_time_metadata=((EXPECTED_RUNTIME, "9h"),),
        )
    )
    world.create(pod("head", gpus=8))
    world.settle()
    (stands,) = world.state.reservations.standing
    world.state.reservations.waiting.remove(world.state.registry.groups[stands.group])
    assert validate(world.state) == [
        "room is reserved for pod:ns/head, which does not wait for room"
    ]
    world.state.registry.touch("pod:ns/head")
    sound(world)


def test_a_reservation_for_a_group_that_is_gone_is_found() -> None:
    """Also one for a group that runs, and a first one that is not called so."""
    world = World(node("a"), rules=Rules(reservations=ReservationLimits()))
    world.create(
        pod(
            "busy",
            gpus=8,
            node_name="a",
            scheduler_name="other",
            run_time_metadata=((EXPECTED_RUNTIME, "9h"),),
        )
    )
    (head,) = world.create(pod("head", gpus=8))
    world.settle()
    kept = world.state.reservations
    (stands,) = kept.standing
    kept.stand((structs.replace(stands, first=False),))
    assert validate(world.state) == [
        "room is reserved for pod:ns/head, which is not called the first"
    ]
    world.delete(head)
    kept.stand(())
    world.settle()
    kept.stand((stands,))
    assert validate(world.state) == [
        "room is reserved for pod:ns/head, which is gone, and no plan is due"
    ]
