"""The scenes of the waiting cases: a world in which a pod is in a state, for a reason.

Invariant: a scene says nothing beforehand of what another state would say: where a pod passes
through several, the earlier sentences have been written.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from gangsched.api import keys
from gangsched.api.gang_spec import GangDefaults
from gangsched.model.objects import ClaimUse, Phase, Pod
from gangsched.model.orders import Orders
from gangsched.model.protocol import Applied, Bind, Evict, Followed, Ordered
from gangsched.model.reasons import Reason
from gangsched.model.reservation import ReservationLimits
from gangsched.model.storage import READ_WRITE_ONCE_POD, Claim, ClaimRef, StorageClass, Volume
from gangsched.state.rule_set import ProvisioningRules, Rules
from tests.builders import members, node, pod, pod_group
from tests.unit.state.planting import Plant
from tests.world import World

FAST = StorageClass(name="fast", provisioner="csi.test", waits=True)
GANG = "ns/g"


class Scene(NamedTuple):
    """A world, and the pod that the case is about."""

    world: World
    pod: Pod


def _gang(world: World, number: int = 2, **fields: Any) -> list[Pod]:
    return world.create(members("g", number, **fields))


def _told(world: World, *pods: Pod) -> Scene:
    world.told()
    return Scene(world, pods[0])


def lacks_members() -> Scene:
    world = World(node("a"))
    return _told(world, *_gang(world, 1, min_member=2))


def lacks_pod_group() -> Scene:
    world = World(node("a"))
    pods = world.create(members("g", 1, pod_group=True))
    world.advance(60)
    return Scene(world, pods[0])


def pod_groups_unreadable() -> Scene:
    world = World(node("a"))
    world.say(Followed(keys.X_K8S, live=False))
    pods = world.create(members("g", 1, pod_group=True))
    world.advance(60)
    return Scene(world, pods[0])


def pauses() -> Scene:
    """An autoscaler added a node of two."""
    world = World(rules=Rules(autoscaler_patience_s=600.0))
    pods = _gang(world, gpus=4)
    world.told()
    world.add_nodes(node("a", 4, creation_s=world.wall_s()))
    world.advance(700)
    return Scene(world, pods[0])


def provisioning() -> Scene:
    """It asks by a ProvisioningRequest."""
    rules = Rules(
        defaults=GangDefaults(provisioning_class="queued"),
        provisioning=ProvisioningRules(is_on=True),
    )
    world = World(rules=rules)
    return _told(world, *_gang(world, gpus=4))


def no_room() -> Scene:
    world = World(node("a", 8))
    world.create(pod("other", gpus=4))
    world.settle()
    return _told(world, *_gang(world, gpus=4))


def can_never_fit() -> Scene:
    world = World(node("a", 8))
    return _told(world, *_gang(world, gpus=9))


def plain_pod() -> Scene:
    world = World(node("a", 8))
    return _told(world, *world.create(pod("p", gpus=9)))


def sibling_lacks_members() -> Scene:
    world = World(node("a", 8))
    pods = _gang(world, 1, groups=["ns/g", "ns/h"])
    world.create(members("h", 1, min_member=2, groups=["ns/g", "ns/h"]))
    return _told(world, *pods)


def sibling_lacks_room() -> Scene:
    world = World(node("a", 8))
    pods = _gang(world, 1, groups=["ns/g", "ns/h"])
    world.create(members("h", 2, gpus=5, groups=["ns/g", "ns/h"]))
    return _told(world, *pods)


def child_of_a_tree() -> Scene:
    world = World(node("a", 8))
    world.declare(pod_group("tree", None, gang_metadata=((keys.MIN_CHILDREN[0], "2"),)))
    pods = _gang(world, 1, parent="tree")
    world.create(members("h", 2, gpus=5, parent="tree"))
    world.advance(30)
    return Scene(world, pods[0])


def invalid() -> Scene:
    world = World(node("a"))
    world.declare(pod_group("g", 1, invalid=("spec.minMember is not a number",)))
    return _told(world, *world.create(members("g", 1, pod_group=True)))


def unsupported() -> Scene:
    world = World(node("a"))
    world.declare(pod_group("g", 1, unsupported=("spec.x is not supported",)))
    return _told(world, *world.create(members("g", 1, pod_group=True)))


def set_aside() -> Scene:
    world = World(node("a"))
    world.say(Ordered(Orders(set_aside=frozenset({GANG}))))
    return _told(world, *_gang(world))


def paused() -> Scene:
    """It was told that it lacks room before."""
    scene = no_room()
    scene.world.say(Ordered(Orders(paused="INC-7")))
    return _told(scene.world, scene.pod)


def created_while_paused() -> Scene:
    world = World(node("a", 8))
    world.say(Ordered(Orders(paused="INC-7")))
    return _told(world, *_gang(world))


def internal_error() -> Scene:
    world = World(node("a"))
    world.has_faults = True
    plant = Plant("core.rounds:run_round", lambda namespace: namespace == "ns")
    pods = _gang(world)
    with plant.planted(world):
        world.told()

    return Scene(world, pods[0])


def _full(**of_low: Any) -> tuple[World, list[Pod]]:
    """A node full of a gang of lower priority, whose members are evicted and do not end."""
    world = World(node("a", 8), preempts=True)
    low = world.create(members("low", 2, gpus=4, grace_s=30, **of_low))
    world.settle()
    return world, low


def nominated() -> Scene:
    world, _ = _full()
    return _told(world, *_gang(world, 2, gpus=4, priority=1000))


def being_preempted() -> Scene:
    """It grows by a member while it is preempted."""
    world = World(node("a", 8), preempts=True)
    _gang(world, 2, gpus=4, grace_s=30)
    world.settle()
    world.create(members("high", 2, gpus=4, priority=1000))
    world.fate = lambda order: "later" if isinstance(order, Evict) else "bound"
    world.settle()
    return _told(world, *world.create(members("g", 1, first=2, min_member=2, gpus=4)))


def reserved() -> Scene:
    rules = Rules(reservations=ReservationLimits(share=1.0))
    world = World(node("a", 8), node("b", 8), rules=rules)
    ends = ((keys.EXPECTED_RUNTIME, "3600s"),)
    created_s = int(world.wall_s())
    for name in ("x", "y"):
        world.create(pod(name, gpus=8, run_time_metadata=ends, creation_s=created_s))

    world.settle()
    pods = _gang(world, gpus=8, run_time_metadata=ends, creation_s=created_s)
    world.advance(60)
    return Scene(world, pods[0])


def timed_out() -> Scene:
    world = World(node("a", 8))
    world.create(pod("other", gpus=4))
    world.settle()
    pods = _gang(world, 2, gpus=4, mode="NonStrict", wait="10s")
    world.advance(20)
    return Scene(world, pods[1])


def more_than_the_minimum() -> Scene:
    """The gang runs, and a member beyond its minimum finds no node."""
    world = World(node("a", 8))
    _gang(world, 2, gpus=4)
    world.settle()
    return _told(world, *world.create(members("g", 1, first=2, min_member=2, gpus=4)))


def held() -> Scene:
    world = World(node("a", 8))
    world.create(pod("other", gpus=4))
    world.settle()
    return _told(world, *_gang(world, 2, gpus=4, mode="NonStrict"))


def _claim(name: str, **fields: Any) -> Claim:
    given = {"uid": f"uid-{name}", "resource_version": "5", "storage_class": "fast"}
    return Claim(namespace="ns", name=name, **given | fields)


def _with_claims(free: int = 8) -> tuple[World, list[Pod]]:
    """A gang of two with a claim each, which nobody provisions."""
    world = World(node("a", free))
    world.controller = False
    world.say(Applied(FAST), Applied(_claim("data-0")), Applied(_claim("data-1")))
    pods = []
    for number, member in enumerate(members("g", 2)):
        pods.append(msgspec.structs.replace(member, claims=(ClaimUse(f"data-{number}"),)))

    return world, world.create(pods)


def waits_for_its_claim() -> Scene:
    world, pods = _with_claims()
    return _told(world, *pods)


def waits_for_its_claim_after_a_refusal() -> Scene:
    """First there was no room, which is over."""
    world, pods = _with_claims(free=1)
    world.told()
    assert world.condition(pods[0])[0] == Reason.UNSCHEDULABLE
    world.add_nodes(node("b"))
    return _told(world, *pods)


def waits_for_another_claim() -> Scene:
    world, pods = _with_claims()
    world.settle()
    world.bind_claim("ns/data-0")
    return _told(world, *pods)


def claim_is_missing() -> Scene:
    world = World(node("a"))
    stated = members("g", 1)[0].gang_metadata
    return _told(world, *world.create(pod("p", claims=(ClaimUse("data"),), gang_metadata=stated)))


def claim_of_one_pod() -> Scene:
    world = World(node("a"))
    for_one = _claim(
        "data",
        access_modes=(READ_WRITE_ONCE_POD,),
        bound=True,
        volume_name="v",
    )
    world.say(Applied(Volume(name="v", claim=ClaimRef("ns", "data", "uid-data"))), Applied(for_one))
    pods = []
    for member in members("g", 2):
        pods.append(msgspec.structs.replace(member, claims=(ClaimUse("data"),)))

    return _told(world, *world.create(pods))


def home_is_full() -> Scene:
    """The gang runs in a rack, lost a member there, and another pod took the room."""
    world = World(node("a", 8, labels={"rack": "r0"}), node("b", 8, labels={"rack": "r1"}))
    created_s = int(world.wall_s())
    _, lost = _gang(world, gpus=4, topology="rack")
    world.settle()
    world.delete(lost)
    world.create(pod("thief", gpus=4))
    world.settle()
    late = members("g", 1, first=2, min_member=2, gpus=4, topology="rack", creation_s=created_s)
    return _told(world, *world.create(late))


def gave_way() -> Scene:
    """Two gangs held half of a node each, and the later one released its half (D1)."""
    world = World(node("a", 4))
    other = world.create(pod("other", gpus=2))
    world.settle()
    pods = _gang(world, 4, gpus=1, mode="NonStrict", creation_s=2)
    world.settle()
    world.delete(*other)
    world.create(members("first", 4, gpus=1, mode="NonStrict", creation_s=1))
    return _told(world, *pods)


def bind_is_sent() -> Scene:
    world = World(node("a"))
    world.fate = lambda order: "later"
    pods = _gang(world)
    world.told()
    return Scene(world, pods[0])


def kept() -> Scene:
    """One bind of two failed: the other pod runs, and this one keeps its node."""
    world = World(node("a"))
    world.fate = lambda bind: "failed" if isinstance(bind, Bind) and bind.name == "g-1" else "bound"
    pods = _gang(world)
    return _told(world, pods[1])


def retry() -> Scene:
    """The minimum runs, so that no node is reserved for the pod whose bind failed."""
    world = World(node("a"))
    world.fate = lambda bind: "failed" if isinstance(bind, Bind) and bind.name == "g-1" else "bound"
    pods = _gang(world, min_member=1)
    return _told(world, pods[1])


def gated() -> Scene:
    world = World(node("a"))
    return _told(world, *_gang(world, 2, gated=True))


def foreign() -> Scene:
    world = World(node("a"))
    first, second = members("g", 2)
    other = msgspec.structs.replace(first, scheduler_name="other")
    return _told(world, *world.create(other, second))


def bound() -> Scene:
    world = World(node("a"))
    return _told(world, *_gang(world))


def lost_a_member() -> Scene:
    scene = bound()
    lost = next(each for each in scene.world.pods.values() if each.uid != scene.pod.uid)
    scene.world.delete(lost)
    return _told(scene.world, scene.pod)


def withdrawn() -> Scene:
    scene = bind_is_sent()
    scene.world.update(scene.pod, deleting=True)
    return _told(scene.world, scene.pod)


def terminating() -> Scene:
    scene = bound()
    scene.world.update(scene.pod, deleting=True)
    return _told(scene.world, scene.pod)


def ended() -> Scene:
    scene = bound()
    scene.world.update(scene.pod, phase=Phase.SUCCEEDED)
    return _told(scene.world, scene.pod)


def deleted() -> Scene:
    scene = no_room()
    scene.world.update(scene.pod, deleting=True)
    return _told(scene.world, scene.pod)
