"""Numbers of peers that are kept as pods and Services come and go."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from gangsched.model.objects import Namespace, Pod, Service
from gangsched.model.peers import Behind, PeerKey
from gangsched.model.protocol import Applied, Gone, Replaced, Unread
from gangsched.state.cluster import Cluster
from gangsched.state.replicas import Replicas
from tests import builders
from tests.world import World


def test_numbers_are_those_of_the_pods_and_what_was_shown_never_changes() -> None:
    for seed in range(30):
        dice, replicas = random.Random(seed), Replicas()
        there: list[tuple[Pod, str]] = []
        seen: list[tuple[object, object]] = []
        for turn in range(60):
            if there and dice.random() < 0.4:
                pod, node = there.pop(dice.randrange(len(there)))
                replicas.count(pod, node, -1)
            else:
                kind = dice.choice(("ReplicaSet", "ReplicaSet", "StatefulSet", "Job", ""))
                pod = builders.pod(
                    f"p{turn}", controller_uid=f"c{dice.randrange(3)}", controller_kind=kind
                )
                there.append((pod, node := dice.choice("ab")))
                replicas.count(pod, node, +1)
            if dice.random() < 0.3:
                shown = replicas.shown({}).counts
                seen.append((shown, {uid: dict(counts) for uid, counts in shown.items()}))
        expected: dict[str, Counter[str]] = {}
        for pod, node in there:
            if pod.controller_kind in {"ReplicaSet", "StatefulSet"}:
                expected.setdefault(pod.controller_uid, Counter())[node] += 1
        assert replicas.shown({}).counts == expected, seed
        assert all(shown == then for shown, then in seen), seed
        again = Replicas()
        again.recount({node: {pod.uid: pod for pod, on in there if on == node} for node in "ab"})
        assert again.shown({}).counts == expected, seed


def replica(uid: str, **fields: Any) -> Pod:
    """A pod of a ReplicaSet."""
    return builders.pod(
        "p", uid="u", **{"controller_uid": uid, "controller_kind": "ReplicaSet", **fields}
    )


def test_a_pod_that_terminates_or_changes_its_controller_is_counted_again() -> None:
    cluster = Cluster()
    cluster.apply_node(builders.node("a"))
    first, adopted, ends = replica("x"), replica("y"), replica("y", deleting=True)
    told = []
    for old, pod in ((first, first), (first, adopted), (adopted, ends)):
        cluster.move(old, "" if old is pod else "a", pod, "a")
        told.append(cluster.snapshot().pods_by_node.peers.counts)
    assert told == [{"x": {"a": 1}}, {"y": {"a": 1}}, {}]


def test_a_pod_that_is_set_aside_counts_nowhere() -> None:
    cluster = Cluster()
    cluster.apply_node(builders.node("a"))
    cluster.occupy(replica("x"), "a")
    other = builders.pod("other", uid="other", controller_uid="x", controller_kind="StatefulSet")
    cluster.occupy(other, "a")
    cluster.expel({"u"}, ["a"])
    assert cluster.snapshot().pods_by_node.peers.counts == {"x": {"a": 1}}


def service(name: str, namespace: str = "ns", **selector: str) -> Service:
    """A Service of these labels."""
    return Service(namespace, name, frozenset(selector.items()))


def expected_numbers(
    there: dict[str, tuple[Pod, str]], services: dict[str, Service], followed: set[str]
) -> dict[PeerKey, Counter[str]]:
    """Every pod compared with every Service."""
    numbers: dict[PeerKey, Counter[str]] = {}
    for pod, node in there.values():
        if pod.deleting:
            continue
        if pod.replica_of:
            numbers.setdefault(pod.replica_of, Counter())[node] += 1
        selecting = [
            each.selector
            for each in services.values()
            if each.namespace == pod.namespace and each.selector <= pod.labels.items()
        ]
        if selecting and pod.namespace in followed:
            numbers.setdefault(Behind(pod.namespace, frozenset().union(*selecting)), Counter())[
                node
            ] += 1
    return numbers


def test_numbers_behind_services_are_those_of_comparing_all() -> None:
    """Whatever comes first of pods, Services and whoever asks; and what was shown never changes."""
    for seed in range(40):
        dice, replicas = random.Random(seed), Replicas()
        there: dict[str, tuple[Pod, str]] = {}
        services: dict[str, Service] = {}
        followed: set[str] = set()
        seen: list[tuple[object, object]] = []
        for turn in range(80):
            namespace = dice.choice(("x", "y"))
            match dice.randrange(8):
                case 0 | 1 | 2:
                    pod = builders.pod(
                        f"p{turn}",
                        namespace=namespace,
                        labels={
                            key: dice.choice("12") for key in dice.sample("abc", dice.randint(0, 3))
                        },
                        controller_uid=(uid := dice.choice(("", "c1"))),
                        controller_kind="ReplicaSet" if uid else "",
                        deleting=dice.random() < 0.2,
                    )
                    there[pod.uid] = (pod, node := dice.choice("mn"))
                    replicas.count(pod, node, +1)
                case 3 if there:
                    pod, node = there.pop(dice.choice(list(there)))
                    replicas.count(pod, node, -1)
                case 4 | 5:
                    made = service(
                        f"s{dice.randrange(4)}",
                        namespace,
                        **{key: dice.choice("12") for key in dice.sample("abc", 2)},
                    )
                    services[made.key] = made
                    replicas.apply(made)
                case 6 if services:
                    del services[key := dice.choice(list(services))]
                    replicas.drop(key)
                case 7:
                    followed.add(namespace)
                    replicas.follow(namespace)
            if dice.random() < 0.05:
                services = dict(list(services.items())[::2])
                replicas.replace(services.values())
            if dice.random() < 0.05 and not any(pod.namespace == "x" for pod, _ in there.values()):
                followed.discard("x")
                replicas.forget({"x"})
            if dice.random() < 0.4:
                residents: dict[str, dict[str, Pod]] = {"m": {}, "n": {}}
                for pod, node in there.values():
                    residents[node][pod.uid] = pod
                shown = replicas.shown(residents)
                assert shown.counts == expected_numbers(there, services, followed), (seed, turn)
                assert set(shown.listed()) == {
                    key for key in shown.counts if isinstance(key, Behind)
                }, (seed, turn)
                seen.append(
                    (shown.counts, {key: dict(counts) for key, counts in shown.counts.items()})
                )
        assert all(shown == then for shown, then in seen), seed


class Looked(dict[str, dict[str, Pod]]):
    """Residents that count how often all pods are looked through."""

    looks = 0

    def items(self) -> Any:
        self.looks += 1
        return super().items()


def test_all_pods_are_looked_through_once_for_a_namespace() -> None:
    """Not for a namespace that nobody follows, nor again when its Services change."""
    replicas, residents = Replicas(), Looked()
    for number in range(100):
        replicas.apply(service(f"s{number}", f"other-{number}", app="web"))
        replicas.shown(residents)
    replicas.follow("jobs")
    replicas.shown(residents)
    assert residents.looks == 0
    replicas.follow("other-0")
    for number in range(100):
        replicas.apply(service("s0", "other-0", app=str(number)))
        assert replicas.is_stale
        replicas.shown(residents)
        assert not replicas.is_stale
    replicas.drop("other-0/s0")
    replicas.apply(service("s0", "other-0", app="web"))
    replicas.shown(residents)
    assert residents.looks == 1


def nodes_of(world: World, *names: str, **of: str) -> set[str]:
    """Where plain pods with these labels are bound, which are created at once."""
    pods = [builders.pod(name, gpus=0, labels=of) for name in names]
    world.create(*pods)
    world.settle()
    return {world.state.members[pod.uid].node for pod in pods}


def test_plain_pods_of_a_service_are_spread_by_the_state() -> None:
    """A Service that comes later, one that goes, a namespace that is made again, and Services that
    may not be read.
    """
    world = World()
    world.add_nodes(*(builders.node(f"n{number}", gpus=0) for number in range(4)))
    assert len(nodes_of(world, "a", "b", app="web")) == 1
    world.say(Applied(service("s", app="web")))
    assert len(nodes_of(world, "c", "d", "e", app="web")) == 3
    world.say(Gone(Service, "ns/s"))
    assert len(nodes_of(world, "f", "g", "h", app="web")) == 1
    world.say(Replaced(Service, (service("s", app="web"), service("t", app="other"))))
    assert len(nodes_of(world, "i", "j", "k", app="other")) == 3
    world.say(Unread(Service))
    assert len(nodes_of(world, "l", "m", "n", app="other")) == 1
    world.say(Applied(Namespace("ns")), Applied(service("t", app="other")), Gone(Namespace, "ns"))
    assert len(nodes_of(world, "o", "p", "q", app="other")) == 3
