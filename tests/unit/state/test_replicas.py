"""Numbers of replicas that are kept as pods come and go."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from gangsched.model.objects import Pod
from gangsched.state.cluster import Cluster
from gangsched.state.replicas import Replicas
from tests import builders


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
                pod = builders.pod(f"p{turn}", controller_uid=f"c{dice.randrange(3)}", controller_kind=kind)
                there.append((pod, node := dice.choice("ab")))
                replicas.count(pod, node, +1)
            if dice.random() < 0.3:
                shown = replicas.shown()
                seen.append((shown, {uid: dict(counts) for uid, counts in shown.items()}))
        expected: dict[str, Counter[str]] = {}
        for pod, node in there:
            if pod.controller_kind in {"ReplicaSet", "StatefulSet"}:
                expected.setdefault(pod.controller_uid, Counter())[node] += 1
        assert replicas.shown() == expected, seed
        assert all(shown == then for shown, then in seen), seed
        again = Replicas()
        again.recount({node: {pod.uid: pod for pod, on in there if on == node} for node in "ab"})
        assert again.shown() == expected, seed


def replica(uid: str, **fields: Any) -> Pod:
    """A pod of a ReplicaSet."""
    return builders.pod("p", uid="u", **{"controller_uid": uid, "controller_kind": "ReplicaSet", **fields})


def test_a_pod_that_terminates_or_changes_its_controller_is_counted_again() -> None:
    cluster = Cluster()
    cluster.apply_node(builders.node("a"))
    first, adopted, ends = replica("x"), replica("y"), replica("y", deleting=True)
    told = []
    for old, pod in ((first, first), (first, adopted), (adopted, ends)):
        cluster.move(old, "" if old is pod else "a", pod, "a")
        told.append(cluster.snapshot().pods_by_node.replicas)
    assert told == [{"x": {"a": 1}}, {"y": {"a": 1}}, {}]


def test_a_pod_that_is_set_aside_counts_nowhere() -> None:
    cluster = Cluster()
    cluster.apply_node(builders.node("a"))
    cluster.occupy(replica("x"), "a")
    other = builders.pod("other", uid="other", controller_uid="x", controller_kind="StatefulSet")
    cluster.occupy(other, "a")
    cluster.expel("u", ["a"])
    assert cluster.snapshot().pods_by_node.replicas == {"x": {"a": 1}}
