"""Which Services select a pod, and so whose pods it is spread from: kube-scheduler's
helper.DefaultSelector.
"""

from __future__ import annotations

import random

import pytest

from gangsched.model.objects import Labels, Pod
from gangsched.model.peers import (
    COMPARED_PER_POD,
    NO_LABELS,
    Behind,
    PeerKey,
    PeerNumbers,
    Selectors,
)
from tests import builders


def labels(**pairs: str) -> Labels:
    """A selector, or what several ask for together."""
    return frozenset(pairs.items())


WEB, FRONT, API = labels(app="web"), labels(app="web", tier="front"), labels(app="api")


@pytest.mark.parametrize(
    ("of", "merged"),
    [
        ({"app": "web"}, WEB),
        ({"app": "web", "tier": "front", "version": "2"}, FRONT),
        ({"tier": "front"}, NO_LABELS),
        ({"app": "other"}, NO_LABELS),
        ({}, NO_LABELS),
    ],
)
def test_selectors_that_match_are_merged(of: dict[str, str], merged: Labels) -> None:
    assert Selectors([WEB, FRONT, API, WEB]).merged(of) == merged


def test_selectors_are_found_as_by_comparing_all() -> None:
    for seed in range(200):
        dice = random.Random(seed)
        pairs = [(key, value) for key in "abc" for value in "xy"]
        selectors = [
            frozenset(dice.sample(pairs, dice.randint(1, 3))) for _ in range(dice.randint(0, 8))
        ]
        pod = {key: dice.choice("xyz") for key in dice.sample("abc", dice.randint(0, 3))}
        expected = NO_LABELS.union(*(each for each in selectors if each <= pod.items()))
        assert Selectors(selectors).merged(pod) == expected, seed


def test_a_pod_is_compared_with_a_bounded_number_of_selectors() -> None:
    """However many Services a tenant makes for one label, a pod of theirs delays nobody."""
    many = [labels(app="web", number=str(number)) for number in range(10 * COMPARED_PER_POD)]
    few = many[: COMPARED_PER_POD // 2]
    assert Selectors(few).merged({"app": "web", "number": "7"}) == labels(app="web", number="7")
    compared = 0

    class Counted(frozenset[tuple[str, str]]):
        def __le__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return super().__le__(other)  # type: ignore[operator]

    same = [
        Counted({("app", "web"), (f"l{number}", "1")}) for number in range(10 * COMPARED_PER_POD)
    ]
    pod = {"app": "web", **{f"l{number}": "1" for number in range(10 * COMPARED_PER_POD)}}
    Selectors(same).merged(pod)
    assert 0 < compared <= COMPARED_PER_POD


def peers(counts: dict[PeerKey, dict[str, int]] | None = None) -> PeerNumbers:
    """Peers where the namespace has the Services `WEB`, `FRONT` and `API`."""
    behind = tuple(key.labels for key in counts or () if isinstance(key, Behind))
    return PeerNumbers(
        counts or {}, {"ns": behind} if behind else {}, {"ns": Selectors([WEB, FRONT, API])}
    )


def pod(kind: str = "", namespace: str = "ns", *, deleting: bool = False, **of: str) -> Pod:
    """A pod with these labels, of a controller of that kind."""
    uid = "uid" if kind else ""
    return builders.pod(
        "p",
        labels=of,
        controller_kind=kind,
        controller_uid=uid,
        namespace=namespace,
        deleting=deleting,
    )


@pytest.mark.parametrize(
    ("asks", "keys"),
    [
        (pod(app="web"), [Behind("ns", WEB)]),
        (pod("Job", app="web", tier="front"), [Behind("ns", FRONT)]),
        (pod("ReplicaSet", app="web"), ["uid", Behind("ns", WEB)]),
        (pod("StatefulSet"), ["uid"]),
        (pod("ReplicaSet", app="web", deleting=True), []),
        (pod(app="none"), []),
        (pod("Job"), []),
        (pod(namespace="other", app="web"), []),
    ],
)
def test_a_pod_counts_for_its_controller_first_and_for_its_services(
    asks: Pod, keys: list[PeerKey]
) -> None:
    assert list(peers().keys(asks)) == keys


def test_pods_behind_more_services_count_for_those_behind_fewer() -> None:
    """The leader of a database is behind two Services, and a replica keeps away from it."""
    found = peers(
        {
            Behind("ns", WEB): {"a": 1},
            Behind("ns", FRONT): {"a": 2, "b": 1},
            Behind("ns", API): {"c": 9},
        }
    )
    assert sorted(found.numbers(Behind("ns", WEB))) == [("a", 1), ("a", 2), ("b", 1)]
    assert sorted(found.numbers(Behind("ns", FRONT))) == [("a", 2), ("b", 1)]
    assert list(found.numbers(Behind("other", WEB))) == []
