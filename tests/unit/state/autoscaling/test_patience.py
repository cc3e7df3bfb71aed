"""When a gang stops to ask for nodes that do not suffice, and asks again (semantics E9)."""

from __future__ import annotations

from typing import Any

from gangsched.model.objects import Node, Pod, Taint
from gangsched.state.rule_set import Rules
from tests.builders import members, node, pod, pod_group
from tests.world import World

PATIENT = Rules(autoscaler_patience_s=600.0)


class Pool:
    """A node pool of an autoscaler that buys a node for each pod that is Unschedulable, up to a
    limit, and gives back what stands idle while no pod is.
    """

    def __init__(self, world: World, limit: int, gpus: int = 8) -> None:
        self.world = world
        self.limit = limit
        self.gpus = gpus
        self.bought = 0
        self.names: list[str] = []

    def look(self) -> None:
        """One loop of the autoscaler."""
        asking = self.asking()
        if asking:
            self._buy(len(asking))
        else:
            self._give_back()

    def asking(self) -> list[Pod]:
        """Pods for which an autoscaler buys nodes."""
        return [
            pod
            for pod in self.world.pods.values()
            if not pod.node_name
            and not pod.nominated_node
            and self.world.condition(pod)[0] == "Unschedulable"
        ]

    def _buy(self, number: int) -> None:
        for _ in range(min(number, self.limit) - len(self.names)):
            name = f"pool-{self.bought}"
            self.bought += 1
            self.names.append(name)
            self.world.add_nodes(new_node(self.world, name, self.gpus))

    def _give_back(self) -> None:
        used = set(self.world.bound().values())
        for name in list(self.names):
            if name not in used:
                self.names.remove(name)
                self.world.remove_node(name)

    def run(self, seconds: float) -> None:
        """Let time pass, with a loop each ten seconds."""
        for _ in range(int(seconds / 10)):
            self.world.advance(10)
            self.look()


def new_node(world: World, name: str, gpus: int = 8, **fields: Any) -> Node:
    """A node that is created now."""
    return node(name, gpus, creation_s=world.wall_s(), **fields)


def waiting(world: World, number: int, **fields: Any) -> list[Pod]:
    """A gang that asks for as many nodes."""
    world.declare(pod_group("g", number))
    return world.create(members("g", number, gpus=8, pod_group=True, **fields))


def reasons(world: World) -> set[str]:
    """The reasons of all pods that wait."""
    world.told()
    return {world.condition(pod)[0] for pod in world.pods.values() if not pod.node_name}


def test_nodes_are_bought_once_and_only_for_a_gang_that_is_complete() -> None:
    """E1, E9: none for three of eight members, and each of eight once, for twenty gangs one after
    the other.
    """
    world = World(rules=PATIENT)
    pool = Pool(world, 10)
    for number in range(1, 21):
        name = f"g{number}"
        world.declare(pod_group(name, 8))
        pods = members(name, 8, gpus=8, pod_group=True)
        first = world.create(pods[:3])
        pool.run(60)
        assert (pool.bought, reasons(world)) == (8 * (number - 1), {"WaitingForMembers"})

        others = world.create(pods[3:])
        pool.run(300)
        assert (pool.bought, len(world.bound())) == (8 * number, 8)
        world.delete(*(world.pods[each.uid] for each in (*first, *others)))
        pool.run(60)
        assert pool.names == []


def test_nodes_that_do_not_suffice_are_given_back() -> None:
    """E9: twelve nodes are needed of a pool of ten: they are asked for again only after a pause,
    which doubles.
    """
    world = World(rules=PATIENT)
    pool = Pool(world, 10)
    waiting(world, 12)

    pool.run(300)
    assert (len(pool.names), reasons(world)) == (10, {"Unschedulable"})
    pool.run(400)
    assert (len(pool.names), reasons(world)) == (0, {"WaitingForCapacity"})

    pool.run(400)
    assert pool.bought == 10, "nothing is bought during the pause"
    pool.run(200)
    assert pool.bought == 20
    pool.run(600)
    assert len(pool.names) == 0
    pool.run(1_000)
    assert pool.bought == 20, "the second pause is twice as long"


def test_the_message_has_the_nodes_and_the_time() -> None:
    """E9: the PodGroup says how many nodes came, since when, and when nodes are asked for again."""
    world = World(rules=PATIENT)
    pool = Pool(world, 10)
    waiting(world, 12)
    pool.run(700)

    (condition,) = [
        condition
        for condition in world.status("g")["conditions"]
        if condition["type"] == "Scheduled"
    ]
    assert condition["reason"] == "WaitingForCapacity"
    assert (
        "10 nodes were added since 2030-01-01T00:00Z and do not suffice: nodes are requested again"
        " by 2030-01-01T00:"
    ) in condition["message"]
    assert +world.state.pending.now().pods == {"WaitingForCapacity": 12}


def test_a_gang_asks_while_nodes_are_being_added() -> None:
    """E9: a node that is young, or boots, may be followed by others."""
    world = World(rules=PATIENT)
    waiting(world, 3)
    world.told()
    world.advance(590)
    world.add_nodes(new_node(world, "a"))
    world.advance(290)
    assert reasons(world) == {"Unschedulable"}, "the node is not 300 s old"

    boots = (Taint("node.kubernetes.io/not-ready", "", "NoSchedule"),)
    world.add_nodes(new_node(world, "b", taints=boots))
    world.advance(1_190)
    assert reasons(world) == {"Unschedulable"}, "a node boots"
    world.advance(20)
    assert reasons(world) == {"WaitingForCapacity"}, "it boots for too long"


def test_a_gang_asks_on_where_no_node_came() -> None:
    """E9: there is nothing that could be given back."""
    world = World(node("old", 8), rules=PATIENT)
    waiting(world, 3)
    world.advance(5_000)
    assert reasons(world) == {"Unschedulable"}


def test_nodes_of_another_pool_do_not_count() -> None:
    """E9: only those that its members may use."""
    world = World(rules=PATIENT)
    waiting(world, 3)
    world.told()
    world.add_nodes(new_node(world, "a", taints=(Taint("other", "", "NoSchedule"),)))
    world.advance(5_000)
    assert reasons(world) == {"Unschedulable"}


def test_a_change_of_the_gang_ends_the_pause() -> None:
    """E9: it asks at once, and its next pause is a first one."""
    world = World(rules=PATIENT)
    pool = Pool(world, 10)
    waiting(world, 12)
    pool.run(2_500)
    assert reasons(world) == {"WaitingForCapacity"}

    world.create(members("g", 1, first=12, gpus=8, pod_group=True))
    assert reasons(world) == {"Unschedulable"}
    asking = world.state.registry.groups["ns/g"].asking
    assert asking is not None
    assert asking.pause_s == 600


def test_more_usable_nodes_end_the_pause() -> None:
    """E9: more than there were when it began; as many as were given back are no news."""
    world = World(rules=PATIENT)
    pool = Pool(world, 2)
    waiting(world, 4)
    pool.run(700)
    assert (reasons(world), pool.names) == ({"WaitingForCapacity"}, [])

    world.add_nodes(new_node(world, "x"), new_node(world, "y"))
    assert reasons(world) == {"WaitingForCapacity"}
    world.add_nodes(new_node(world, "z"))
    assert reasons(world) == {"Unschedulable"}


def test_room_that_becomes_free_is_used_during_a_pause() -> None:
    """E9: it changes what is told, not what is decided."""
    world = World(rules=PATIENT)
    pool = Pool(world, 2)
    waiting(world, 3)
    pool.run(700)
    assert reasons(world) == {"WaitingForCapacity"}

    world.add_nodes(*(node(f"n{number}", 8) for number in range(3)))
    world.settle()
    assert len(world.bound()) == 3
    assert world.state.registry.groups["ns/g"].pause is None


def test_a_level_that_no_node_has_is_not_waited_for() -> None:
    """E9: no number of such nodes helps, so that they are given back as soon as they have come."""
    world = World(rules=Rules(autoscaler_patience_s=3_600.0))
    pool = Pool(world, 10)
    waiting(world, 4, topology="topology.kubernetes.io/rack")
    pool.run(320)
    assert (pool.bought, len(pool.names)) == (4, 0)
    assert reasons(world) == {"WaitingForCapacity"}


def test_plain_pods_ask_on() -> None:
    """E9: a node that comes for single pods is of use."""
    world = World(rules=PATIENT)
    world.create(pod("a", gpus=8), pod("b", gpus=8))
    world.told()
    world.add_nodes(new_node(world, "n"))
    world.advance(2_000)
    assert reasons(world) == {"Unschedulable"}


def test_a_pause_goes_on_after_a_restart() -> None:
    """E9: else each restart would buy the nodes again; it begins again, at its first length."""
    world = World(rules=PATIENT)
    pool = Pool(world, 10)
    waiting(world, 12)
    pool.run(700)
    assert reasons(world) == {"WaitingForCapacity"}

    world.restart()
    pool.run(500)
    assert (reasons(world), pool.bought) == ({"WaitingForCapacity"}, 10)
    pool.run(150)
    assert reasons(world) == {"Unschedulable"}


def test_without_the_setting_nothing_is_remembered() -> None:
    """E9: patience is off by default."""
    world = World()
    pool = Pool(world, 10)
    waiting(world, 12)
    pool.run(2_000)
    assert (reasons(world), len(pool.names)) == ({"Unschedulable"}, 10)
    assert world.state.registry.groups["ns/g"].asking is None
