"""Members that wait for their claims: what is ordered, what is waited for, and how a wait ends."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
import pytest

from gangsched.model.inter_pod import Requirement
from gangsched.model.objects import ClaimUse, Node, NodeSelectorTerm, Pod
from gangsched.model.protocol import Applied, ClaimsWritten, Gone, Message, Replaced
from gangsched.model.storage import (
    NO_PROVISIONER,
    Claim,
    ClaimRef,
    ResourceClaim,
    StorageClass,
    Volume,
)
from gangsched.state.members import State
from tests.builders import gang_metadata, node, pod
from tests.world import World

LATE = StorageClass(name="late", provisioner="csi.test", waits=True)
LOCAL = StorageClass(name="local", provisioner=NO_PROVISIONER, waits=True)
CLAIM = Claim(namespace="ns", name="c", uid="claim-1", resource_version="5", storage_class="late")
ASKED = msgspec.structs.replace(CLAIM, resource_version="7", selected_node="n0")
DONE = msgspec.structs.replace(ASKED, resource_version="9", volume_name="v", bound=True)
VOLUME = Volume(name="v", resource_version="3", available=True)
FREE = msgspec.structs.replace(VOLUME, storage_class="local", capacity_bytes=2**30)
ZONE_A = (NodeSelectorTerm(labels=(Requirement("zone", "In", ("a",)),)),)
WRITTEN = {"ns/c": "7", "v": "7"}


def waiting(
    *storage: Claim | Volume | ResourceClaim, uses: tuple[ClaimUse, ...] = (ClaimUse("c"),)
) -> World:
    """A gang of one whose claims are ordered and not written yet; nothing is told by the volume
    controller.
    """
    world = World(node("n0", labels={"zone": "b"}))
    world.controller = False
    world.fate = lambda _: "later"
    world.say(*map(Applied, (LATE, LOCAL, *storage)))
    world.create([pod("p", uid="p", claims=uses, gang_metadata=gang_metadata("g", min_member=1))])
    world.settle()
    return world


def written(world: World) -> World:
    """The claims are written, at version 7."""
    (order,) = world.unanswered
    world.unanswered.clear()
    world.say(ClaimsWritten(order.uid, WRITTEN))
    return world.settle()


def state(world: World) -> State:
    """What the member is."""
    return world.state.members["p"].state


def why(world: World) -> list[str]:
    """Why its binds failed."""
    return [message.partition("again: ")[2] for _, _, message in world.events("FailedBinding")]


def test_a_claim_is_ordered_then_awaited_then_the_pod_is_bound() -> None:
    """The bind is sent once claim and volume are both seen bound, and not before."""
    world = waiting(CLAIM)
    (order,) = world.claims_sent
    assert [(each.name, each.node) for each in order.claims] == [("c", "n0")]
    written(world)
    for item in (ASKED, DONE):
        world.say(Applied(item))
        assert (state(world.settle()), world.sent) == (State.WAITING_FOR_CLAIMS, [])
    world.say(Applied(msgspec.structs.replace(VOLUME, claim=ClaimRef("ns", "c", "claim-1"))))
    world.settle()
    assert state(world) is State.BINDING
    assert [(bind.name, bind.node, bind.claims) for bind in world.sent] == [("p", "n0", ())]
    counts = world.state.claims.counts
    assert (counts.submitted, counts.bound, counts.failed, counts.gone) == (1, 1, 0, 0)


def test_a_volume_that_nobody_has_kept_is_marked_as_free() -> None:
    """The controller may undo what is done to it; one that names a claim already is its maker's."""
    kept = msgspec.structs.replace(FREE, available=False, claim=ClaimRef("ns", "c"))
    for volume, free in ((FREE, {"v"}), (kept, set())):
        world = waiting(
            msgspec.structs.replace(CLAIM, storage_class="local", request_bytes=1), volume
        )
        (order,) = world.claims_sent
        assert [each.volume for each in order.claims] == ["v"]
        assert order.free == free


def test_a_claim_that_is_asked_for_already_is_only_awaited() -> None:
    """After a restart a gang finds its claims as it left them."""
    world = waiting(ASKED)
    assert (world.claims_sent, state(world)) == ([], State.WAITING_FOR_CLAIMS)
    world.say(Applied(VOLUME), Applied(DONE))
    world.settle()
    assert [bind.uid for bind in world.sent] == ["p"]


def test_another_members_claim_is_only_awaited() -> None:
    """One of two members that share a claim has it made; both go on when it is bound."""
    world = World(node("n0"))
    world.controller = False
    world.say(
        Applied(LATE), Applied(msgspec.structs.replace(CLAIM, access_modes=("ReadWriteMany",)))
    )
    stated = gang_metadata("g", min_member=2)
    world.create(
        [pod(name, uid=name, claims=(ClaimUse("c"),), gang_metadata=stated) for name in ("p", "q")]
    )
    world.settle()
    assert len(world.claims_sent) == 1
    assert world.sent == []
    world.say(Applied(VOLUME), Applied(DONE))
    world.settle()
    assert {bind.uid for bind in world.sent} == {"p", "q"}


def test_devices_are_carried_by_the_bind() -> None:
    """A ResourceClaim needs no waiting: the pod is entered in it just before it is bound."""
    device = ResourceClaim(namespace="ns", name="d", uid="device-1", allocated=True)
    world = waiting(CLAIM, device, uses=(ClaimUse("c"), ClaimUse("d", device=True)))
    assert [each.name for order in world.claims_sent for each in order.claims] == ["c"]
    world.say(Applied(VOLUME), Applied(DONE))
    written(world)
    assert [(each.name, each.reserve) for bind in world.sent for each in bind.claims] == [
        ("d", True)
    ]


FAILURES: dict[str, tuple[list[Message], str]] = {
    "provisioner gave up": (
        [Applied(msgspec.structs.replace(CLAIM, resource_version="8"))],
        'provisioning failed for PVC "c"',
    ),
    "claim deleted": ([Gone(Claim, "ns/c")], 'persistentvolumeclaim "c" not found'),
    "no claim in a list": ([Replaced(Claim, ())], 'persistentvolumeclaim "c" not found'),
    "claim recreated": (
        [Applied(msgspec.structs.replace(CLAIM, uid="claim-2"))],
        'persistentvolumeclaim "c" not found',
    ),
    "claim being deleted": (
        [Applied(msgspec.structs.replace(CLAIM, deleting=True, resource_version="8"))],
        'persistentvolumeclaim "c" is being deleted',
    ),
    "node gone": ([Gone(Node, "n0")], 'node "n0" is gone'),
    "volume elsewhere": (
        [Applied(msgspec.structs.replace(VOLUME, required=ZONE_A)), Applied(DONE)],
        'pv "v" node affinity doesn\'t match node "n0"',
    ),
}


@pytest.mark.parametrize("case", FAILURES)
def test_what_cannot_come_ends_the_wait_at_once(case: str) -> None:
    """The member is to be tried again, with the reason kube-scheduler gives; it is not bound, and
    its room is free.
    """
    messages, reason = FAILURES[case]
    world = written(waiting(CLAIM))
    world.say(*messages)
    world.turn()
    assert why(world) == [f"binding volumes: {reason}"]
    assert world.sent == []
    assert world.state.members.node_of("p") == ""
    assert world.state.claims.counts.failed == 1


@pytest.mark.parametrize("case", FAILURES)
def test_what_cannot_come_while_claims_are_written_is_said_when_they_are(case: str) -> None:
    """The order is answered before the member is planned again."""
    messages, reason = FAILURES[case]
    world = waiting(CLAIM)
    world.say(*messages)
    world.turn()
    assert state(world) is State.WAITING_FOR_CLAIMS
    world.unanswered.clear()
    world.say(ClaimsWritten("p", WRITTEN))
    world.turn()
    assert why(world) == [f"binding volumes: {reason}"]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Gone(Volume, "v"), 'pv "v" is gone'),
        (Replaced(Volume, ()), 'pv "v" is gone'),
        (
            Applied(msgspec.structs.replace(FREE, resource_version="8")),
            'ClaimRef got reset for pv "v"',
        ),
    ],
)
def test_a_given_volume_that_is_taken_away(message: Message, reason: str) -> None:
    """A volume that is deleted, or whose claim is taken off it, ends the wait at once."""
    world = written(
        waiting(msgspec.structs.replace(CLAIM, storage_class="local", request_bytes=1), FREE)
    )
    world.say(message)
    world.turn()
    assert why(world) == [f"binding volumes: {reason}"]


def test_news_from_before_our_write_is_no_failure() -> None:
    """A claim seen without our annotation, but older than our write, has not been refused."""
    world = written(waiting(CLAIM))
    world.say(Applied(msgspec.structs.replace(CLAIM, resource_version="6", request_bytes=1)))
    world.settle()
    assert (why(world), state(world)) == ([], State.WAITING_FOR_CLAIMS)


def test_patience_ends() -> None:
    """After the time that kube-scheduler gives it too, a claim that is still unbound fails its
    pod's bind.

    Its request is withdrawn, so that the next plan may choose another node, and the room is free
    for half a minute.
    """
    world = written(waiting(CLAIM))
    world.say(Applied(ASKED))
    world.advance(599.0)
    assert why(world) == []
    world.advance(2.0)
    late = (
        "binding volumes: claim ns/c was not bound within 600 s. The request for ns/c is withdrawn"
    )
    assert why(world) == [late]
    claim = world.state.cluster.storage_cache.claim("ns/c")
    assert claim is not None
    assert claim.selected_node is None
    assert (world.advance(28.0).state.members.node_of("p"), len(world.claims_sent)) == ("", 1)
    assert (world.advance(2.0).state.members.node_of("p"), len(world.claims_sent)) == ("n0", 2)


def test_writes_that_failed_are_tried_again() -> None:
    """Nothing of its gang has started, so that it gives its room back; it goes again after a
    backoff, with its claims as they are then.
    """
    world = waiting(CLAIM)
    world.fate = lambda _: "failed"
    world.answer()
    world.turn()
    assert (state(world), world.state.claims.counts.failed) == (State.RETRY, 1)
    world.fate = lambda _: "bound"
    world.controller = True
    assert world.advance(1.5).bound() == {"p": "n0"}
    assert len(world.claims_sent) == 2


ENDS: dict[str, Callable[[World], object]] = {
    "deleted": lambda world: world.delete(world.pods["p"]),
    "no pod in a list": lambda world: world.say(Replaced(Pod, ())),
    "terminating": lambda world: world.update(world.pods["p"], deleting=True),
    "bound by others": lambda world: world.update(world.pods["p"], node_name="n0"),
}


@pytest.mark.parametrize("case", ENDS)
@pytest.mark.parametrize("is_written", [True, False])
def test_a_pod_that_went_waits_for_nothing(case: str, is_written: bool) -> None:
    """Its wait is over, whichever way we learn of it, and a late answer is passed over."""
    world = waiting(CLAIM)
    if is_written:
        written(world)
    ENDS[case](world)
    world.turn()
    world.unanswered.clear()
    world.say(ClaimsWritten("p", WRITTEN), Applied(VOLUME), Applied(DONE))
    world.settle()
    assert (world.sent, why(world)) == ([], [])
    assert world.state.claims.counts.gone == 1
    assert world.state.claims.next_deadline_s() == math.inf
