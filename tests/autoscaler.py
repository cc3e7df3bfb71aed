"""A player of an autoscaler on a `World`: it answers ProvisioningRequests, and buys nodes for
single pods that are Unschedulable, as cluster-autoscaler does.

Invariant: what it bought is told apart: `bought` for pods, `provided` for requests. It gives back
what stands idle while nothing asks.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gangsched.api.gang_spec import GangDefaults
from gangsched.model.objects import Node, Pod
from gangsched.model.protocol import Applied, Gone, NodesRequested, RequestNodes
from gangsched.model.provisioning import ProvisioningRequest, ProvisioningState
from gangsched.state.rule_set import ProvisioningRules, Rules
from tests.builders import members, node, pod_group
from tests.world import World

CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"


def provisioning_rules(**fields: Any) -> Rules:
    """Requests are on, for all gangs."""
    return Rules(
        defaults=GangDefaults(provisioning_class=CLASS),
        provisioning=ProvisioningRules(is_on=True, **fields),
    )


def waiting(world: World, number: int, name: str = "g", **fields: Any) -> list[Pod]:
    """A gang that asks for as many nodes; `fields` are of its PodGroup."""
    world.declare(pod_group(name, number, uid=f"uid-of-{name}", **fields))
    return world.create(members(name, number, gpus=8, pod_group=True))


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


def world_with_new_node(*nodes: Node, **fields: Any) -> World:
    """A world with these nodes, and another one, `new`, which is reserved for a gang of two that
    still lacks one.
    """
    world = World(*nodes, rules=provisioning_rules())
    scaler = Autoscaler(world, 0)
    waiting(world, 2, "asks")
    scaler.run(14)
    (key,) = scaler.requests
    scaler.answers = False
    scaler.say(key, ProvisioningState.PROVISIONED)
    world.add_nodes(new_node(world, "new", **fields))
    world.advance(1)
    return world


def new_node(world: World, name: str, gpus: int = 8, **fields: Any) -> Node:
    """A node that is created now."""
    return node(name, gpus, creation_s=world.wall_s(), **fields)


class Autoscaler:
    """A pool of `limit` nodes with `gpus` each; without `answers`, requests are ignored."""

    def __init__(
        self,
        world: World,
        limit: int,
        *,
        gpus: int = 8,
        answers: bool = True,
        boots_s: float = 0.0,
    ) -> None:
        self.world = world
        self.limit = limit
        self.gpus = gpus
        self.answers = answers
        self.boots_s = boots_s
        self.bought = 0
        self.provided = 0
        self.names: list[str] = []
        #: Those that exist, by key, with what each asks for.
        self.requests: dict[str, tuple[ProvisioningRequest, int]] = {}
        self.created: list[str] = []
        #: Requests that get this answer instead of nodes.
        self.fate: tuple[ProvisioningState, str] | None = None
        self._done = 0
        self._number = 0
        self._coming: list[tuple[float, str]] = []

    def run(self, seconds: float, step_s: float = 2.0) -> None:
        """Let time pass, with a loop of the autoscaler in each step."""
        for _ in range(int(seconds / step_s)):
            self.world.advance(step_s)
            self.look()

        self.world.settle()

    def look(self) -> None:
        """One loop: what gangsched ordered, requests, pods, idle nodes."""
        self.carry_out()
        self._boot()
        if self.answers:
            for key in [*self.requests]:
                self._answer(key)

        asking = self.asking()
        if asking:
            self.bought += self._buy(len(asking))
        else:
            self._give_back()

    def asking(self) -> list[Pod]:
        """Pods for which an autoscaler buys nodes."""
        found = []
        for pod in self.world.pods.values():
            reason = self.world.condition(pod)[0]
            if not pod.node_name and not pod.nominated_node and reason == "Unschedulable":
                found.append(pod)

        return found

    def carry_out(self) -> None:
        """The API server creates and deletes what gangsched ordered since the last call."""
        orders = self.world.node_orders[self._done :]
        self._done = len(self.world.node_orders)
        for order in orders:
            if isinstance(order, RequestNodes):
                self._create(order)
            else:
                self.delete(f"{order.namespace}/{order.name}", order.uid)

    def delete(self, key: str, uid: str = "") -> None:
        """A request is deleted."""
        found = self.requests.get(key)
        if found is not None and uid in {"", found[0].uid}:
            del self.requests[key]
            self.world.say(Gone(ProvisioningRequest, key))

    def say(self, key: str, state: ProvisioningState, message: str = "") -> None:
        """The autoscaler writes its answer."""
        request, pods = self.requests[key]
        changed = msgspec.structs.replace(request, state=state, message=message)
        self.requests[key] = (changed, pods)
        self.world.say(Applied(changed))

    def _create(self, order: RequestNodes) -> None:
        key = f"{order.namespace}/{order.name}"
        if key in self.requests:
            self.world.say(NodesRequested(key))
            return

        self.created.append(key)
        request = ProvisioningRequest(
            namespace=order.namespace,
            name=order.name,
            uid=f"pr-{len(self.created)}",
            owner_uid=order.owner.uid,
            owner_kind=order.owner.kind,
            owner_name=order.owner.name,
            requested_by=order.requested_by,
            creation_s=self.world.wall_s(),
            templates=tuple(f"{order.name}-{n}" for n in range(len(order.pod_sets))),
        )
        self.requests[key] = (request, sum(pod_set.count for pod_set in order.pod_sets))
        self.world.say(Applied(request), NodesRequested(key))

    def _answer(self, key: str) -> None:
        request, pods = self.requests[key]
        match request.state:
            case ProvisioningState.NEW:
                self.say(key, ProvisioningState.ACCEPTED)
            case ProvisioningState.ACCEPTED | ProvisioningState.NOT_YET if self.fate is not None:
                self.say(key, *self.fate)
            case ProvisioningState.ACCEPTED | ProvisioningState.NOT_YET:
                self._provide(key, pods)
            case _:
                pass

    def _provide(self, key: str, pods: int) -> None:
        """All or nothing."""
        if pods > self.limit - len(self.names):
            message = "CapacityIsNotFound: Capacity is not found"
            self.say(key, ProvisioningState.NOT_YET, message)
            return

        self.provided += self._buy(pods)
        self.say(key, ProvisioningState.PROVISIONED, "CapacityIsFound")

    def _buy(self, number: int) -> int:
        number = min(number, self.limit - len(self.names))
        for _ in range(max(0, number)):
            name = f"pool-{self._number}"
            self._number += 1
            self.names.append(name)
            self._coming.append((self.world.now_s + self.boots_s, name))

        self._boot()
        return max(0, number)

    def _boot(self) -> None:
        ready = [name for at_s, name in self._coming if at_s <= self.world.now_s]
        self._coming = [each for each in self._coming if each[1] not in ready]
        for name in ready:
            self.world.add_nodes(new_node(self.world, name, self.gpus))

    def _give_back(self) -> None:
        wanted = any(
            request.state is ProvisioningState.PROVISIONED for request, _ in self.requests.values()
        )
        used = set(self.world.bound().values())
        coming = {name for _, name in self._coming}
        for name in [] if wanted else [*self.names]:
            if name not in used and name not in coming:
                self.names.remove(name)
                self.world.remove_node(name)
