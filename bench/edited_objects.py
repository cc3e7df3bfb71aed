"""One object that is edited while thousands of gangs wait for what it says, for `bench.floods`.

Invariant: each row of `EDITED` has a crowd, and the messages that come at once: one in each second
that is even and 50 in the others, each another version of the object, or of `EACH` one another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import msgspec

from bench.flooded import CROWD, NODES, WAITS, Flooded, pod
from gangsched.api import keys
from gangsched.model.devices import (
    Device,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    DeviceTaintRule,
    NodeScope,
    ResourceSlice,
)
from gangsched.model.disruption import PodDisruptionBudget
from gangsched.model.inter_pod import InterPodConstraints, PodTerm, Requirement
from gangsched.model.objects import (
    ClaimUse,
    ExtendedResource,
    Namespace,
    Node,
    PodGroup,
    Shape,
    Taint,
)
from gangsched.model.orders import Orders
from gangsched.model.owners import JobOwner
from gangsched.model.protocol import Applied, Gone, Ordered, Replaced, Unread
from gangsched.model.storage import Claim, CsiNode, ResourceClaim, StorageClass, Volume
from gangsched.state.rule_set import Rules
from tests import builders

Edit: TypeAlias = Applied | Gone | Replaced | Unread | Ordered
Crowd: TypeAlias = Callable[[Flooded, int], None]

MANY_NODES = 5_000
IN_A_ROW = 50
HOSTNAME = "kubernetes.io/hostname"
POOL = "pool"
POOLS = 50
SERVED = "example.com/gpu"
ALLOCATES = Rules(allocates=True)


@dataclass(frozen=True, slots=True)
class Edited:
    """What is edited, and who waits for it."""

    name: str
    crowd: Crowd
    #: By number.
    version: Callable[[int], Edit]
    nodes: int = NODES
    rules: Rules | None = None
    #: How many come at once, in seconds that are even and in others.
    at_once: tuple[int, int] = (1, IN_A_ROW)

    def edits(self, second: int) -> list[Edit]:
        """What comes in a second."""
        first = second * max(self.at_once)
        return [self.version(first + number) for number in range(self.at_once[second % 2])]


# --- who waits -----------------------------------------------------------------------------------


def _shapes(number: int) -> list[Shape]:
    """As many shapes that fit nowhere, no two alike."""
    return [builders.shape(100, 10 + index) for index in range(number)]


def plain(daemon: Flooded, gangs: int) -> None:
    """Pods of as many shapes."""
    shapes = _shapes(gangs)
    daemon.create(*(pod(f"p{number}", of=shapes[number]) for number in range(gangs)))


def in_pools(daemon: Flooded, gangs: int) -> None:
    """Pods that select nodes, and want two of them: each node has room for one."""
    pods = []
    for number in range(gangs):
        selector = ((POOL, f"p{number % POOLS}"),)
        of = builders.shape(5, 10 + number, node_selector=selector)
        stated = builders.gang_metadata(f"g{number}", min_member=2 * MANY_NODES)
        pods += [pod(f"p{number}-{part}", of=of, gang_metadata=stated) for part in range(2)]

    daemon.create(*pods)


def nearly(daemon: Flooded, gangs: int) -> None:
    """Gangs of two pods that fit on one node each, of which one is there."""
    pods = []
    for number in range(gangs):
        of = builders.shape(5, 10 + number, node_selector=((POOL, "edited"),))
        stated = builders.gang_metadata(f"g{number}", min_member=2)
        pods += [pod(f"p{number}-{part}", of=of, gang_metadata=stated) for part in range(2)]

    daemon.create(*pods)


def beside_others(daemon: Flooded, gangs: int) -> None:
    """Pods that must be on a node with a pod of namespaces that have a label."""
    term = PodTerm(
        HOSTNAME,
        (Requirement("app", "In", ("x",)),),
        namespace_selector=(Requirement("team", "In", ("a",)),),
    )
    near = InterPodConstraints(affinity=(term,))
    pods = []
    for number in range(gangs):
        of = builders.shape(0, 10 + number, inter_pod=near)
        pods.append(pod(f"p{number}", of=of))

    daemon.create(*pods)


def of_jobs(daemon: Flooded, gangs: int) -> None:
    """Pods of Jobs, which are gangs while their namespace asks for it."""
    jobs = (
        JobOwner(uid=f"j{number}", namespace=CROWD, name=f"j{number}", minimum=1)
        for number in range(gangs)
    )
    daemon.say(Replaced(JobOwner, tuple(jobs)))
    pods = []
    for number in range(gangs):
        pods.append(
            pod(
                f"p{number}",
                owner=f"j{number}",
                controller_kind="Job",
                controller_uid=f"j{number}",
            )
        )

    daemon.create(*pods)


def without_volumes(daemon: Flooded, gangs: int) -> None:
    """Pods with a claim each that has no volume."""
    for number in range(gangs):
        daemon.say(Applied(_claim(number)))

    shapes = _shapes(gangs)
    pods = []
    for number in range(gangs):
        uses = (ClaimUse(f"c{number}"),)
        pods.append(pod(f"p{number}", of=shapes[number], claims=uses))

    daemon.create(*pods)


def without_pod_groups(daemon: Flooded, gangs: int) -> None:
    """Members of gangs whose PodGroups nobody created."""
    pods = []
    for number in range(gangs):
        stated = builders.gang_metadata(f"g{number}", pod_group=True)
        pods.append(pod(f"p{number}", gang_metadata=stated))

    daemon.create(*pods)


def preemptors(daemon: Flooded, gangs: int) -> None:
    """Pods of a high priority, beside running ones that a budget keeps."""
    for number in range(NODES):
        low = builders.pod(
            f"low{number}",
            uid=f"low{number}",
            of=builders.shape(8),
            namespace=CROWD,
            labels={"app": "x"},
        )
        daemon.create(builders.running(low, f"n{number:04}"))

    daemon.say(_budget(0))
    pods = []
    for number in range(gangs):
        of = builders.shape(8, 10 + number)
        pods.append(pod(f"p{number}", of=of, priority=1_000))

    daemon.create(*pods)


def with_devices(daemon: Flooded, gangs: int) -> None:
    """Pods with a claim each for more devices than a node has."""
    _offer_devices(daemon)
    for number in range(gangs):
        daemon.say(Applied(_device_claim(number, 3)))

    shapes = [builders.shape(0, 10 + number) for number in range(gangs)]
    pods = []
    for number in range(gangs):
        uses = (ClaimUse(f"d{number}", device=True),)
        pods.append(pod(f"p{number}", of=shapes[number], claims=uses))

    daemon.create(*pods)


def with_extended(daemon: Flooded, gangs: int) -> None:
    """Pods that request more of a resource than a node's devices serve."""
    _offer_devices(daemon)
    asked = ExtendedResource(SERVED, (("r", 3),), (("main", "r"),))
    pods = []
    for number in range(gangs):
        requests = (*builders.amounts(cpu_milli=10 + number, pods=1), (SERVED, 3))
        of = Shape(requests=tuple(sorted(requests)), extended=(asked,))
        pods.append(pod(f"p{number}", of=of))

    daemon.create(*pods)


def _offer_devices(daemon: Flooded) -> None:
    daemon.say(Replaced(DeviceClass, (_class(0),)))
    slices = tuple(_slice(f"n{number:04}", 2) for number in range(len(daemon.state.cluster)))
    daemon.say(Replaced(ResourceSlice, slices))
    daemon.say(Replaced(DeviceTaintRule, ()), Replaced(ResourceClaim, ()))


# --- what is edited ------------------------------------------------------------------------------


def _claim(number: int) -> Claim:
    return Claim(
        namespace=CROWD,
        name=f"c{number}",
        uid=f"c{number}",
        storage_class=WAITS.name,
        access_modes=("ReadWriteOnce",),
        request_bytes=1 << 30,
    )


def _device_claim(number: int, count: int) -> ResourceClaim:
    request = DeviceRequest(name="r", class_name="gpu", count=count)
    name = f"d{number}"
    asks = DeviceClaim(namespace=CROWD, name=name, uid=name, requests=((request,),))
    return ResourceClaim(namespace=CROWD, name=name, uid=name, resource_version="1", asks=asks)


def _slice(node: str, devices: int) -> ResourceSlice:
    made = tuple(Device(name=f"d{number}") for number in range(devices))
    return ResourceSlice(
        name=node,
        driver="d",
        pool=node,
        generation=devices,
        scope=NodeScope(node),
        devices=made,
    )


def _class(version: int) -> DeviceClass:
    """Serves the resource in versions that are even."""
    resource = SERVED if version % 2 == 0 else ""
    return DeviceClass("gpu", (), resource, configs=(str(version),))


def _budget(version: int) -> Applied:
    """Allows nothing, over more and more labels that nobody has."""
    values = ("x", f"y{version}")
    selector = (Requirement("app", "In", values),)
    return Applied(PodDisruptionBudget(namespace=CROWD, name="b", selector=selector))


def _labelled(number: int) -> Applied:
    """The namespace with another label."""
    return Applied(Namespace(CROWD, {"team": f"t{number}"}))


def _asking(number: int) -> Applied:
    """The namespace that asks for the gangs of owners, or does not."""
    labels = {keys.OWNER_GANG: keys.OWNER} if number % 2 == 0 else {}
    return Applied(Namespace(CROWD, labels))


def _namespace(number: int) -> Applied:
    """One of many namespaces, each with a label that changes."""
    return Applied(Namespace(f"ns{number % MANY_NODES}", {"team": f"t{number}"}))


@cache
def _node(index: int) -> Node:
    return builders.node(f"n{index % MANY_NODES:04}", 8)


def _first(number: int) -> Node:
    return _node(0)


def _next(number: int) -> Node:
    return _node(number % MANY_NODES)


def _node_labels(which: Callable[[int], Node]) -> Callable[[int], Edit]:
    def version(number: int) -> Edit:
        node = which(number)
        labels = {**node.labels, POOL: f"p{number % POOLS}", "version": str(number)}
        return Applied(msgspec.structs.replace(node, labels=labels))

    return version


def _node_taints(which: Callable[[int], Node]) -> Callable[[int], Edit]:
    def version(number: int) -> Edit:
        taint = Taint("dedicated", f"t{number}", "NoSchedule")
        taints = (taint,) if number % 2 else ()
        return Applied(msgspec.structs.replace(which(number), taints=taints))

    return version


def _cordon(which: Callable[[int], Node]) -> Callable[[int], Edit]:
    def version(number: int) -> Edit:
        is_cordoned = bool((number + number // MANY_NODES) % 2)
        return Applied(msgspec.structs.replace(which(number), unschedulable=is_cordoned))

    return version


def _node_room(which: Callable[[int], Node]) -> Callable[[int], Edit]:
    """Room for one pod of five, more or less of it."""

    def version(number: int) -> Edit:
        node = which(number)
        changed = builders.node(node.name, 5 + number % 4, labels={POOL: "edited"})
        return Applied(changed)

    return version


def _node_comes_and_goes(number: int) -> Edit:
    if number % 2 == 0:
        return Gone(Node, _node(0).name)

    return Applied(_node(0))


def _listed_nodes(number: int) -> Edit:
    """All nodes again, of which one has changed."""
    nodes = [_node(index) for index in range(MANY_NODES)]
    nodes[0] = msgspec.structs.replace(nodes[0], labels={"version": str(number)})
    return Replaced(Node, tuple(nodes))


def _storage_class(number: int) -> Edit:
    return Applied(msgspec.structs.replace(WAITS, provisioner=f"csi{number}.example"))


def _other_class(number: int) -> Edit:
    """A class that nobody's claim names."""
    return Applied(StorageClass(name="other", provisioner=f"csi{number}.example"))


def _volume(number: int) -> Edit:
    """A volume that is too small for any of the claims."""
    return Applied(
        Volume(
            name="v",
            uid="v",
            resource_version=str(number),
            storage_class=WAITS.name,
            capacity_bytes=1 + number,
            access_modes=("ReadWriteOnce",),
            available=True,
        )
    )


def _csi_node(number: int) -> Edit:
    return Applied(CsiNode("n0000", (("csi.example", 8 + number),)))


def _any_csi_node(number: int) -> Edit:
    return Applied(CsiNode(f"n{number % MANY_NODES:04}", (("csi.example", 8 + number),)))


def _device_class(number: int) -> Edit:
    return Applied(_class(number + 1))


def _resource_slice(number: int) -> Edit:
    return Applied(_slice("n0000", 1 + number % 2))


def _taint_rule(number: int) -> Edit:
    taint = Taint("broken", f"t{number}", "NoSchedule")
    return Applied(DeviceTaintRule("rule", taint, driver="d", device="d0"))


def _shared_device_claim(number: int) -> Edit:
    return Applied(_device_claim(0, 3 + number))


def _set_aside(number: int) -> Edit:
    """An order about all gangs, or none."""
    gangs = frozenset(f"{CROWD}/g{index}" for index in range(10_000))
    return Ordered(Orders(set_aside=gangs if number % 2 else frozenset()))


def _unreserved(number: int) -> Edit:
    gangs = frozenset(f"{CROWD}/g{index}" for index in range(10_000))
    return Ordered(Orders(unreserved=gangs if number % 2 else frozenset()))


def _paused(number: int) -> Edit:
    return Ordered(Orders(paused="" if number % 2 else "look"))


def _no_preemption(number: int) -> Edit:
    return Ordered(Orders(no_preemption="look" if number % 2 else ""))


def _pod_groups_are_served(number: int) -> Edit:
    if number % 2:
        return Unread(PodGroup, api_group=keys.X_K8S)

    return Replaced(PodGroup, (), api_group=keys.X_K8S)


EACH = (MANY_NODES, MANY_NODES)
EDITED = (
    Edited("namespace_labels", beside_others, _labelled),
    Edited("namespace_asks", of_jobs, _asking),
    Edited("namespaces", beside_others, _namespace, at_once=EACH),
    Edited("node_labels", in_pools, _node_labels(_first), MANY_NODES),
    Edited("all_node_labels", in_pools, _node_labels(_next), MANY_NODES, at_once=EACH),
    Edited("node_taints", plain, _node_taints(_first), MANY_NODES),
    Edited("all_node_taints", in_pools, _node_taints(_next), MANY_NODES, at_once=EACH),
    Edited("cordon", in_pools, _cordon(_first), MANY_NODES),
    Edited("all_cordons", plain, _cordon(_next), MANY_NODES, at_once=EACH),
    Edited("node_room", nearly, _node_room(_first), MANY_NODES),
    Edited("all_node_rooms", nearly, _node_room(_next), MANY_NODES, at_once=EACH),
    Edited("node_goes", plain, _node_comes_and_goes, MANY_NODES),
    Edited("listed_nodes", in_pools, _listed_nodes, MANY_NODES, at_once=(1, 1)),
    Edited("budget", preemptors, _budget),
    Edited("no_preemption", preemptors, _no_preemption),
    Edited("storage_class", without_volumes, _storage_class),
    Edited("other_class", without_volumes, _other_class),
    Edited("volume", without_volumes, _volume),
    Edited("csi_node", without_volumes, _csi_node),
    Edited("all_csi_nodes", without_volumes, _any_csi_node, MANY_NODES, at_once=EACH),
    Edited("device_class", with_devices, _device_class, MANY_NODES, ALLOCATES),
    Edited("device_class_of_pods", with_extended, _device_class, MANY_NODES, ALLOCATES),
    Edited("resource_slice", with_devices, _resource_slice, MANY_NODES, ALLOCATES),
    Edited("taint_rule", with_devices, _taint_rule, MANY_NODES, ALLOCATES),
    Edited("served_slice", with_extended, _resource_slice, MANY_NODES, ALLOCATES),
    Edited("set_aside", nearly, _set_aside),
    Edited("unreserved", nearly, _unreserved),
    Edited("paused", nearly, _paused),
    Edited("pod_groups_served", without_pod_groups, _pod_groups_are_served),
)
