"""B8 over histories: what is promised to members to come is theirs, whatever comes between, and it
always ends.
"""

from __future__ import annotations

import random

import pytest

from gangsched.api import keys
from gangsched.api.pod_metadata import pod_gang_metadata
from gangsched.model.objects import Pod
from tests.builders import amounts, node, pod, pod_group
from tests.sizes import of_size
from tests.world import World

GUARDED_S = 50
"""The policy that guards stamps is older than all pods."""
WAIT_S = 600.0


class Service:
    """One group of a LeaderWorkerSet as its controller makes it: the leader, and after it has a
    node the workers.
    """

    def __init__(self, world: World, dice: random.Random, number: int) -> None:
        self.world, self.name, self.size = world, f"serve{number}-0-r", dice.randint(2, 5)
        self.gpus, self.exclusive = dice.randint(1, 3), dice.random() < 0.5
        self.pods: list[Pod] = []
        self.least = self.size if self.exclusive else 1
        world.declare(
            pod_group(
                self.name,
                self.least,
                api_group=keys.VOLCANO,
                version="v1beta1",
                uid=f"pg-{self.name}",
                min_resources=amounts(gpus=self.gpus * self.size),
            )
        )
        self.create()

    def create(self) -> None:
        """The next pod that the controller makes, the leader first."""
        labels = dict(zip(keys.LWS_GROUP, self.name.split("-"), strict=True))
        stated = {keys.LWS_SIZE: str(self.size), "scheduling.k8s.io/group-name": self.name}
        if self.exclusive:
            stated[keys.LWS_EXCLUSIVE[0]] = "rack"
        metadata = pod_gang_metadata(labels, stated)
        number = len(self.pods)
        made = pod(f"{self.name}-{number}", gpus=self.gpus, gang_metadata=metadata, index=number)
        self.pods += self.world.create(made)

    @property
    def bound(self) -> int:
        """Its pods that have a node."""
        return sum(bool(self.world.pods[each.uid].node_name) for each in self.pods)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(of_size(14, 1_000)))
def test_workers_of_a_started_leader_always_start(seed: int) -> None:
    """B8, scenario 29: storms of small pods of the same priority, restarts, other groups: workers
    that come within the wait time start at once, in the rack of their leader if it is exclusive.
    """
    print(f"seed {seed}")
    dice = random.Random(seed)
    racks = dice.randint(1, 3)
    nodes = [
        node(f"n{n}", dice.randint(1, 8), labels={"rack": f"r{n % racks}"})
        for n in range(dice.randint(2, 6))
    ]
    world = World(*nodes)
    world.restart(guarded_since_s=GUARDED_S)
    services: list[Service] = []
    small: list[Pod] = []
    for _ in range(40):
        match dice.randrange(6):
            case 0 if len(services) < 5:
                services.append(Service(world, dice, len(services)))
            case 1 | 2:
                small += world.create(
                    pod(f"small-{len(small)}-{n}", gpus=dice.randint(1, 2)) for n in range(4)
                )
            case 3 if small:
                world.delete(
                    *(small.pop(dice.randrange(len(small))) for _ in range(min(len(small), 3)))
                )
            case 4:
                world.restart(guarded_since_s=GUARDED_S)
            case _:
                _let_come(services, dice)
        world.settle()
        _check(world, services)
    while any(each.bound and len(each.pods) < each.size for each in services):
        _let_come(services, dice)
        world.settle()
        _check(world, services)
    world.advance(WAIT_S + 1)
    assert not world.state.coming.shown()


def _let_come(services: list[Service], dice: random.Random) -> None:
    """The controller makes a worker of a group whose leader runs."""
    started = [each for each in services if each.bound and len(each.pods) < each.size]
    if started:
        dice.choice(started).create()


def _check(world: World, services: list[Service]) -> None:
    """A group has started with all its pods, or not at all."""
    for each in services:
        assert each.bound in {0, len(each.pods)}, (each.name, world.bound())
        where = {
            world.nodes[world.pods[pod.uid].node_name].labels["rack"]
            for pod in each.pods
            if each.bound
        }
        assert not each.exclusive or len(where) <= 1, (each.name, where)
