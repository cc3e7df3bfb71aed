"""How long counts of pods are kept from plan to plan."""

from __future__ import annotations

import gc
import weakref

import numpy as np

from gangsched.core.filter.count_cache import QUESTIONS_IN_AN_AGE, CountCache
from gangsched.core.work import OutOfWork, Work
from gangsched.model.inter_pod import Requirement
from gangsched.model.objects import Shape
from gangsched.model.pods_by_node import OwnedBy, PodsByNode
from tests.builders import pod

A = pod("a")


def owned(shape: Shape) -> OwnedBy:
    """The question about the pods of a shape in one namespace."""
    return OwnedBy((shape, A.namespace))


def pods(*numbers: int) -> PodsByNode:
    """So many pods of one shape on each node; the version of a node is their number plus 1."""
    return PodsByNode(
        residents=[{str(n): A for n in range(number)} for number in numbers],
        versions=np.array(numbers) + 1,
    )


def test_a_count_in_use_is_kept() -> None:
    """Ages pass over a question that is asked in each."""
    cache, question = CountCache(), owned(A.shape)
    assert units(cache, question, pods(3, 2)) == 5
    for _ in range(5):
        assert cache.counts(question, pods(3, 2)).tolist() == [3, 2]
        cache.new_age()
        assert units(cache, question, pods(3, 2)) == 0
        assert units(cache, question, pods(3, 1)) == 1


def units(cache: CountCache, question: OwnedBy, of: PodsByNode) -> int:
    """What counting is charged: a unit for each pod on a node that changed."""
    work = Work()
    cache.counts(question, of, work)
    return work.used


def test_a_count_goes_with_the_shape_that_nobody_asks_about() -> None:
    """After two ages nothing keeps the shape of pods that are gone."""
    cache, shape = CountCache(), Shape(requests=())
    cache.counts(owned(shape), pods(0))
    gone = weakref.ref(shape)
    del shape
    cache.new_age()
    cache.new_age()
    gc.collect()
    assert gone() is None
    assert len(cache) == 0


def test_counts_are_bounded() -> None:
    """More questions than the limit begin a new age, whatever the clock says."""
    cache = CountCache()
    shapes = [Shape(requests=()) for _ in range(5 * QUESTIONS_IN_AN_AGE)]
    for shape in shapes:
        cache.counts(owned(shape), pods(0))
    assert len(cache) <= 2 * QUESTIONS_IN_AN_AGE


def test_counts_are_right_across_ages() -> None:
    """Forgetting costs a look at every node, never an answer."""
    cache = CountCache()
    for _ in range(3):
        assert cache.counts(owned(A.shape), pods(1, 2)).tolist() == [1, 2]
        cache.new_age()
        cache.new_age()


def test_counts_of_one_cluster_are_none_of_a_smaller_or_larger_one() -> None:
    """A node that is added or deleted gives every node another index."""
    cache = CountCache()
    for numbers in ((1, 2), (4,), (5, 6, 7), ()):
        assert cache.counts(owned(A.shape), pods(*numbers)).tolist() == [*numbers]


def test_namespaces_are_selected_once_and_charged() -> None:
    """Who has many selectors goes on in the next plan, while no namespace changes."""
    namespaces = {f"ns-{number}": {"team": f"t{number % 3}"} for number in range(2_000)}
    cache = CountCache()
    selectors = [(Requirement("team", "In", (f"t{number}",)),) for number in range(8)]
    plans = 0
    while plans < 9:
        plans += 1
        read, work = cache.read, Work(2_500)
        try:
            chosen = [cache.namespaces(selector, namespaces, work) for selector in selectors]
            break
        except OutOfWork:
            assert cache.read > read

    assert 2 < plans < 9
    assert [len(names) for names in chosen] == [667, 667, 666, 0, 0, 0, 0, 0]
    assert cache.namespaces(selectors[0], {"other": {"team": "t0"}}, Work()) == {"other"}
