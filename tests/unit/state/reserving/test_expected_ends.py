"""When pods that take room are expected to end, as far as the state knows (H1, H2)."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import msgspec
import pytest

from gangsched.api import keys
from gangsched.api.gang_spec import GangDefaults
from gangsched.model.objects import Pod
from gangsched.model.protocol import Applied, Gone, Replaced
from gangsched.state.reserving.expected_ends import PODS_A_NODE, ExpectedEnds
from gangsched.state.rule_set import Rules
from tests.builders import members, node, pod, pod_group
from tests.world import World

WALL_S = 100_000.0


def stating(text: str = "", deadline_s: int | None = None) -> tuple[tuple[str, str], ...]:
    """The metadata of a pod with this run time."""
    return keys.run_time_metadata({}, {keys.EXPECTED_RUNTIME: text} if text else {}, deadline_s)


def ends_of(world: World, default_s: float | None = None) -> ExpectedEnds:
    """What is asked."""
    state = world.state
    rules = Rules(scheduler_names=state.names, defaults=GangDefaults(expected_runtime_s=default_s))
    return ExpectedEnds(state.cluster, state.members, state.registry, rules, late_s=0.0)


def by_name(ends: ExpectedEnds, wall_s: float = WALL_S) -> dict[str, float]:
    """Seconds from now to each pod's end."""
    return {
        each.pod.name: each.ends_s - wall_s
        for there in ends.occupants(wall_s).values()
        for each in there
    }


def bound(
    name: str, text: str = "", *, ago_s: float = 0, deadline_s: int | None = None, **fields: Any
) -> Pod:
    """A pod of another scheduler on node `a` that started so long ago."""
    given = {
        "scheduler_name": "default-scheduler",
        "node_name": "a",
        "start_s": int(WALL_S - ago_s),
    }
    return pod(name, run_time_metadata=stating(text, deadline_s), **{**given, **fields})


def test_an_end_is_start_and_run_time() -> None:
    """H2: of pods of ours and of others; the deadline caps it (scenario 16); unknown is never."""
    world = World(node("a"))
    world.create(
        bound("theirs", "1h", ago_s=600),
        bound("ours", "2h", scheduler_name="gangsched"),
        bound("capped", "1h", deadline_s=30),
        bound("unknown"),
    )
    assert by_name(ends_of(world)) == {
        "theirs": 3000,
        "ours": 7200,
        "capped": 30,
        "unknown": math.inf,
    }


def test_an_end_that_has_passed_moves_again_and_again() -> None:
    """H2: to twice the time run, at least 10 minutes; between, it stays, and nothing is
    looked at.
    """
    world = World(node("a"))
    world.create(bound("p", "1h"), bound("short", "1s"))
    ends = ends_of(world)
    assert by_name(ends) == {"p": 3600, "short": 1}
    assert ends.passes_s == WALL_S + 1
    told = ends.occupants(WALL_S)["a"]
    assert ends.occupants(WALL_S + 0.5)["a"] is told
    assert by_name(ends, WALL_S + 1) == {"p": 3599, "short": 600}
    assert by_name(ends, WALL_S + 3600) == {"p": 3600, "short": 1208}


def test_a_terminating_pod_ends_when_it_is_to_be_gone() -> None:
    """H2: whatever it states; one that does not go is looked for ten minutes later, not in
    a day.
    """
    world = World(node("a"))
    world.create(bound("p", "48h", ago_s=86_400, deleting=True, deletion_s=int(WALL_S) + 30))
    ends = ends_of(world)
    assert by_name(ends) == {"p": 30}
    assert by_name(ends, WALL_S + 30) == {"p": 600}


def test_until_a_pod_starts_its_bind_is_its_start() -> None:
    """H2: it does not move while the kubelet says nothing; the kubelet's word then counts."""
    world = World(node("a"))
    (single,) = world.create(pod("p", run_time_metadata=stating("1h")))
    world.settle()
    ends = ends_of(world)
    assert by_name(ends) == {"p": 3600}
    other = world.create(bound("q"))
    assert by_name(ends, WALL_S + 100)["p"] == 3500
    started = msgspec.structs.replace(single, node_name="a", start_s=int(WALL_S) + 50)
    world.say(Applied(started), Gone(Pod, other[0].uid))
    assert by_name(ends, WALL_S + 100) == {"p": 3550}


def test_held_pods_have_no_end() -> None:
    """H2, R3: a hold has not started; it has an end as soon as its bind is sent."""
    world = World(node("a", 2), node("b", 1))
    stated: dict[str, Any] = {
        "mode": "NonStrict",
        "min_member": 3,
        "run_time_metadata": stating("1h"),
    }
    world.create(members("g", 1, gpus=2, **stated), members("g", 2, first=1, **stated))
    world.settle()
    ends = ends_of(world)
    assert by_name(ends) == {"g-0": math.inf, "g-1": math.inf}
    world.add_nodes(node("b", 2))
    world.settle()
    assert by_name(ends) == {"g-0": 3600, "g-1": 3600, "g-2": 3600}


def test_a_pod_group_states_it_for_its_members() -> None:
    """H1: an edit of the PodGroup moves the ends of pods that run, and so does its end."""
    world = World(node("a"))
    stated = keys.pod_group_metadata({keys.EXPECTED_RUNTIME: "1h"})
    world.declare(pod_group("g", 2, gang_metadata=stated))
    world.create(members("g", 2, pod_group=True))
    world.settle()
    ends = ends_of(world)
    assert set(by_name(ends).values()) == {3600}
    assert {each.group for each in ends.occupants(WALL_S)["a"]} == {"ns/g"}
    world.declare(
        pod_group(
            "g",
            2,
            generation=2,
            gang_metadata=keys.pod_group_metadata({keys.EXPECTED_RUNTIME: "2h"}),
        )
    )
    assert set(by_name(ends).values()) == {7200}
    world.withdraw(pod_group("g", 2))
    assert set(by_name(ends).values()) == {math.inf}


def test_the_default_is_for_pods_of_ours() -> None:
    """H1: what other schedulers run may be there for good."""
    world = World(node("a"), rules=Rules(defaults=GangDefaults(expected_runtime_s=60)))
    world.create(bound("theirs"), bound("ours", scheduler_name="gangsched"))
    assert by_name(ends_of(world, 60)) == {"theirs": math.inf, "ours": 60}


@pytest.mark.parametrize(
    "fields", [{"controller_kind": "DaemonSet"}, {"controller_kind": "Node"}, {"mirror": True}]
)
def test_pods_that_end_with_their_node_are_left_out(fields: dict[str, Any]) -> None:
    """H2: their room is never for others, and they do not make a node look used."""
    world = World(node("a"))
    world.create(bound("agent", **fields), bound("p"))
    assert by_name(ends_of(world)) == {"p": math.inf}


def test_clocks_that_are_wrong_do_no_lasting_harm() -> None:
    """H2: a start in the future counts as now; a clock that went far ahead and came back is
    forgiven.
    """
    world = World(node("a"))
    world.create(bound("p", "1h", start_s=2**40), bound("q", "1h"))
    ends = ends_of(world)
    assert by_name(ends) == {"p": 3600, "q": 3600}
    assert by_name(ends, WALL_S + 10 * 86_400)["q"] > 0
    assert by_name(ends) == {"p": 3600, "q": 3600}


def test_nodes_and_pods_that_come_and_go_are_followed() -> None:
    """H2: a pod may be known before its node, a node may go and come back, and pods vanish from a
    list.
    """
    world = World(node("b"))
    world.create(bound("p", "1h"))
    ends = ends_of(world)
    assert by_name(ends) == {}
    world.add_nodes(node("a"))
    assert by_name(ends) == {"p": 3600}
    world.remove_node("a")
    assert by_name(ends) == {}
    world.add_nodes(node("a"))
    world.create(bound("q", "2h"))
    assert by_name(ends) == {"p": 3600, "q": 7200}
    world.say(Replaced(Pod, ()))
    assert by_name(ends) == {}


def test_nodes_are_looked_at_in_parts_with_the_same_result() -> None:
    """H2: where pods changed, and where ends have passed; what is left is looked at when asked."""
    world = World(*(node(name) for name in "abcdef"))
    for name in "abcdef":
        world.create(bound(f"{name}1", "1h", node_name=name))
        world.create(bound(f"{name}2", "2h", node_name=name))

    ends = ends_of(world)
    hour_s = 3_600.0
    for at_s, first_s in ((WALL_S, hour_s), (WALL_S + hour_s, hour_s)):
        of_a_node = PODS_A_NODE + 2
        left = 6 * of_a_node
        while ends.exceeds(of_a_node, at_s):
            assert ends.exceeds(left - 1, at_s)
            assert not ends.exceeds(left, at_s)
            ends.catch_up(of_a_node, at_s)
            left -= of_a_node

        assert left == of_a_node
        second_s = WALL_S + 2 * hour_s - at_s
        expected = {f"{name}1": first_s for name in "abcdef"}
        expected |= {f"{name}2": second_s for name in "abcdef"}
        assert by_name(ends, at_s) == expected
        assert not ends.exceeds(0, at_s)


@pytest.mark.parametrize("seed", range(20))
def test_the_bound_of_pods_on_touched_nodes_is_never_too_low(seed: int) -> None:
    """Pods and nodes come and go, some are looked at; a turn that trusts the bound does no more."""
    rng = Random(seed)
    world = World()
    cluster = world.state.cluster
    names = "abc"
    pods: dict[str, Pod] = {}

    for number in range(300):
        name = rng.choice(names)
        match rng.randrange(6):
            case 0:
                world.add_nodes(node(name))
            case 1 if name in cluster.nodes:
                world.remove_node(name)
            case 2:
                cluster.take_touched(rng.sample(sorted(cluster.touched), len(cluster.touched) // 2))
            case 3 if pods:
                uid = rng.choice(sorted(pods))
                world.delete(pods.pop(uid))
            case _:
                pod = bound(f"p{number}", "1h", node_name=name)
                pods[pod.uid] = pod
                world.create(pod)

        there = cluster.touched & cluster.nodes.keys()
        assert cluster.on_touched >= sum(len(cluster.residents(name)) for name in there), number


def test_the_last_end_of_a_node_is_that_of_its_accelerators() -> None:
    """H10: pods without accelerators do not keep a node from others; one unknown end is
    the last.
    """
    world = World(*(node(name) for name in "abcd"))
    world.create(
        bound("p", "1h"),
        bound("q", "2h"),
        bound("monitor", gpus=0, cpu_milli=1),
        bound("r", "1h", node_name="b"),
        bound("unknown", node_name="b"),
        bound("cpu", "1h", node_name="c", gpus=0, cpu_milli=1),
    )
    ends = ends_of(world)
    assert (ends.last_ends(world.state.cluster.table(), WALL_S) - WALL_S).tolist() == [
        7200,
        math.inf,
        -math.inf,
        -math.inf,
    ]


def test_pods_that_are_gone_are_kept_no_longer_than_anybody_wants_news() -> None:
    """H2: what is told afterwards is the same, the first sight of a pod that has not started
    included.
    """
    world = World(node("a"), node("b"))
    pods = world.create(
        *(bound(f"p{n}", "1h") for n in range(3)),
        bound("waits", "1h", start_s=0),
        bound("on-b", "1h", node_name="b"),
    )
    ends = ends_of(world)
    assert by_name(ends).keys() == {each.name for each in pods}
    world.delete(pods[4])
    assert len(ends) == 5
    ends.forget_gone()
    assert len(ends) == 4
    assert by_name(ends).keys() == {"p0", "p1", "p2", "waits"}
    world.delete(pods[0])
    assert by_name(ends).keys() == {"p1", "p2", "waits"}
    ends.forget_gone()
    assert not ends.take_news().left, "p0 went before anybody wanted news"
    world.create(bound("q", "2h"))
    ends.forget_gone()
    assert by_name(ends, WALL_S + 60) == {"p1": 3540, "p2": 3540, "waits": 3540, "q": 7140}
