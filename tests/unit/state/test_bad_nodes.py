"""Nodes that a gang avoids because its members died there (semantics L8)."""

from __future__ import annotations

from gangsched.api.gang_spec import GangDefaults
from gangsched.model.objects import Death, Phase, Pod
from gangsched.state.rule_set import Rules
from tests.builders import members, node, pod_group, running, stamped
from tests.world import World


def world(*nodes: str, strikes: int = 1, gpus: int = 8) -> World:
    """A cluster in which gangs that say nothing avoid a node after so many strikes."""
    rules = Rules(defaults=GangDefaults(bad_node_strikes=strikes))
    return World(*(node(name, gpus) for name in nodes), rules=rules)


def start(
    of: World,
    name: str,
    number: int,
    *,
    gpus: int = 8,
    least: int | None = None,
) -> list[Pod]:
    """A gang that runs, one member a node unless they ask for less."""
    of.declare(pod_group(name, number if least is None else least))
    pods = of.create(members(name, number, gpus=gpus, pod_group=True))
    of.settle()
    return [of.update(pod, phase=Phase.RUNNING) for pod in pods]


def die(of: World, pod: Pod, cause: str = "Error (1)") -> None:
    """The member ends as if its node had killed it."""
    of.update(pod, phase=Phase.FAILED, death=Death(cause, 0))
    of.settle()


def avoided(of: World, gang: str) -> set[str]:
    """The nodes that the gang avoids now."""
    of.settle()
    return set(of.state.registry.groups[f"ns/{gang}"].avoid)


def on(of: World, pod: Pod) -> str:
    """The node of a pod."""
    return of.bound()[pod.name]


def test_the_node_is_told_and_avoided_until_its_time_is_over() -> None:
    """L8: an hour by default."""
    cluster = world("a", "b", "c")
    pods = start(cluster, "g", 3)
    where = on(cluster, pods[0])
    die(cluster, pods[0], "OOMKilled (137)")

    assert avoided(cluster, "g") == {where}
    assert cluster.events("NodeAvoided") == [], "the others may follow at once"
    cluster.advance(2)
    ((about, _, message),) = cluster.events("NodeAvoided")
    assert about == "PodGroup ns/g"
    assert message.startswith(f"node {where} is avoided until ")
    assert message.endswith("ns/g-0 ended there: OOMKilled (137)")

    cluster.advance(3_600)
    assert cluster.state.registry.group("ns/g", 10_000.0).avoid == frozenset()


def test_evictions_and_completions_are_no_strikes() -> None:
    """L8: nor is what no node can be blamed for; the decoder says which those are."""
    cluster = world("a", "b", "c")
    one, two, _ = start(cluster, "g", 3)
    cluster.update(one, phase=Phase.FAILED, status_reason="Evicted")
    cluster.update(two, phase=Phase.SUCCEEDED)
    assert avoided(cluster, "g") == set()


def test_a_gang_avoids_three_nodes_at_most() -> None:
    """L8: or a tenth of its nodes; the newest wins over the oldest."""
    names = [f"n{number}" for number in range(8)]
    cluster = world(*names)
    pods = start(cluster, "g", 8, least=5)
    where = [on(cluster, pod) for pod in pods[:4]]
    for pod in pods[:4]:
        die(cluster, pod)
        cluster.advance(120)

    assert avoided(cluster, "g") == set(where[1:])


def test_a_node_on_which_most_of_the_gang_runs_is_not_avoided() -> None:
    """L8: more than half of its minimum has to run elsewhere."""
    cluster = world("a", "b")
    pods = start(cluster, "g", 4, gpus=2)
    assert set(cluster.bound().values()) == {"a"}
    die(cluster, pods[0])
    assert avoided(cluster, "g") == set()


def test_a_fault_of_half_of_the_members_is_no_strike() -> None:
    """L8: also if the first of them closed a node already."""
    cluster = world("a", "b", "c", "d")
    pods = start(cluster, "g", 4)
    die(cluster, pods[0])
    assert len(avoided(cluster, "g")) == 1

    cluster.advance(0.5)
    die(cluster, pods[1])
    die(cluster, pods[2])
    assert avoided(cluster, "g") == set()
    cluster.advance(5)
    assert cluster.events("NodeAvoided") == []


def test_strikes_add_up_within_the_window() -> None:
    """L8: two on one node within an hour, not within two."""
    for pause_s, expected in ((600, 1), (7_200, 0)):
        cluster = world("a", "b", "c", strikes=2)
        pods = start(cluster, "g", 3)
        where = on(cluster, pods[0])
        die(cluster, pods[0])
        (again,) = cluster.create(members("g", 1, gpus=8, first=3, pod_group=True))
        cluster.advance(pause_s)
        assert on(cluster, again) == where
        die(cluster, again)
        assert len(avoided(cluster, "g")) == expected


def test_a_node_that_three_gangs_avoid_is_told_once_an_hour() -> None:
    """L8: on the node, which is not tainted."""
    cluster = world("a", "b", "c", gpus=24)
    for name in "ghi":
        cluster.declare(pod_group(name, 1))
        pods = members(name, 3, gpus=8, pod_group=True)
        pairs = zip(pods, "abc", strict=True)
        cluster.create([stamped(running(pod, where), 1) for pod, where in pairs])

    cluster.settle()
    of_names = {pod.name: pod for pod in cluster.pods.values()}
    for number in (0, 1):
        for name in "ghi":
            die(cluster, of_names[f"{name}-{number}"])
            cluster.advance(90)

    told = [about for about, _, _ in cluster.events("NodeSuspected")]
    assert told == ["Node /a", "Node /b"]
    assert cluster.state.bad_nodes.nodes == {"a", "b"}

    (message,) = {text for _, _, text in cluster.events("NodeSuspected")}
    assert message.startswith("3 gangs avoid this node")
