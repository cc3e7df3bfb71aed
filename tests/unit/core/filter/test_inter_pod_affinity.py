"""InterPodAffinity: whom terms mean, the first pod of its kind, and which rule a node reports."""

from __future__ import annotations

import random

import pytest
from msgspec import structs

from gangsched.core.filter import existing_terms
from gangsched.core.filter.existing_terms import MOST_QUESTIONS
from gangsched.core.preferences import pod_penalty
from gangsched.model.inter_pod import HostPort, PodTerm, Requirement, Spread, WeightedPodTerm
from gangsched.model.objects import Pod
from tests.builders import node, running
from tests.unit.core.filter.asking import (
    HOSTNAME,
    ZONE,
    app,
    ledger,
    open_nodes,
    refusal,
    tied,
    zoned,
)
from tests.world import World

NAMESPACES = {"ns": {}, "labelled": {"tier": "1"}, "other": {}}


def test_affinity_asks_for_a_pod_in_the_domain() -> None:
    """Near means within the same value of the topology key; a node without the key is
    nowhere near.
    """
    on = ledger(zoned(a="x", b="x", c="y", d=""), [(tied("web"), "a")])
    near = tied("p", affinity=(PodTerm(ZONE, app("web")),))
    assert open_nodes(near, on) == {"a", "b"}


def test_anti_affinity_on_a_key_that_no_node_has_blocks_nothing() -> None:
    """Where there is no domain nobody is in it; affinity on such a key blocks everywhere."""
    on = ledger(zoned(a="x", b="y"), [(tied("web"), "a")])
    assert open_nodes(tied("p", anti_affinity=(PodTerm("none", app("web")),)), on) == {"a", "b"}
    assert not open_nodes(tied("web", affinity=(PodTerm("none", app("web")),)), on)


def test_all_terms_of_affinity_must_be_met_by_the_same_pod() -> None:
    """Two terms met by two different pods are not met."""
    selectors = (app("web"), (Requirement("app", "NotIn", ("web",)),))
    on = ledger(zoned(a="x"), [(tied("web"), "a"), (tied("db"), "a")])
    both = tied("p", affinity=tuple(PodTerm(ZONE, selector) for selector in selectors))
    assert (
        refusal(both, on) == "0/1 nodes are available: 1 node(s) didn't match pod affinity rules."
    )


def test_the_first_of_its_kind_needs_no_company() -> None:
    """A pod that asks for itself may start where all its keys exist, until one like it
    is anywhere.
    """
    itself = (PodTerm(ZONE, app("web")),)
    assert open_nodes(tied("web", affinity=itself), ledger(zoned(a="x", b="y", c=""))) == {"a", "b"}
    on = ledger(zoned(a="x", b="y", c=""), [(tied("web"), "b")])
    assert open_nodes(tied("web", affinity=itself), on) == {"b"}
    assert not open_nodes(tied("db", affinity=itself), ledger(zoned(a="x")))


def test_anti_affinity_works_both_ways() -> None:
    """A pod keeps away from those it names, and from those that name it."""
    loner = tied("web", anti_affinity=(PodTerm(ZONE, app("web", "db")),))
    on = ledger(zoned(a="x", b="x", c="y"), [(loner, "a")])
    assert open_nodes(tied("db"), on) == {"c"}
    assert open_nodes(tied("cache"), on) == {"a", "b", "c"}
    assert open_nodes(tied("p", anti_affinity=(PodTerm(HOSTNAME, app("web")),)), on) == {"b", "c"}


def test_pods_that_came_and_went_in_a_plan_keep_nobody_away_and_others_do() -> None:
    """Of a pod that is placed, taken back, placed again and released; one that runs counts until it
    is released.
    """
    loner, there = (
        tied(name, anti_affinity=(PodTerm(ZONE, app("db")),)) for name in ("web", "old")
    )
    on = ledger(zoned(a="x", b="y", c="z"), [(there, "c")])
    assert open_nodes(tied("db"), on) == {"a", "b"}
    with on.tentative():
        on.move([(loner, "a")], 1)
        assert open_nodes(tied("db"), on) == {"b"}
    assert open_nodes(tied("db"), on) == {"a", "b"}
    on.reserve_many([loner], [0])
    assert open_nodes(tied("db"), on) == {"b"}
    on.move([(loner, "a")], -1)
    assert open_nodes(tied("db"), on) == {"a", "b"}
    with on.tentative():
        on.move([(there, "c")], -1)
        assert open_nodes(tied("db"), on) == {"a", "b", "c"}
    assert open_nodes(tied("db"), on) == {"a", "b"}


def test_a_node_reports_the_first_rule_that_fails() -> None:
    """Affinity, then the pod's own anti-affinity, then that of the pods there."""
    loner = tied("web", anti_affinity=(PodTerm(ZONE, app("p")),))
    on = ledger(zoned(a="x", b="y", c="z"), [(loner, "a"), (tied("db"), "b"), (tied("db"), "a")])
    both = tied(
        "p", affinity=(PodTerm(ZONE, app("db")),), anti_affinity=(PodTerm(HOSTNAME, app("db")),)
    )
    assert (
        refusal(both, on) == "0/3 nodes are available: 1 node(s) didn't match pod affinity rules, "
        "2 node(s) didn't match pod anti-affinity rules."
    )
    assert (
        refusal(tied("p"), ledger(zoned(a="x"), [(loner, "a")]))
        == "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules."
    )


def test_a_term_means_the_namespace_of_its_pod_unless_it_says_more() -> None:
    """Named namespaces and those that a selector finds add up; an empty selector means all."""
    there = [
        (tied("web", namespace=namespace), name)
        for namespace, name in (("ns", "a"), ("labelled", "b"))
    ]
    on = ledger(
        zoned(a="x", b="y", c="z"), [*there, (tied("web", namespace="other"), "c")], NAMESPACES
    )

    def met(**scope: object) -> set[str]:
        return open_nodes(tied("p", affinity=(PodTerm(ZONE, app("web"), **scope),)), on)  # type: ignore[arg-type]

    assert met() == {"a"}
    assert met(namespaces=("other",)) == {"c"}
    assert met(namespace_selector=(Requirement("tier", "In", ("1",)),)) == {"b"}
    assert met(namespaces=("other",), namespace_selector=(Requirement("tier", "In", ("1",)),)) == {
        "b",
        "c",
    }
    assert met(namespace_selector=()) == {"a", "b", "c"}


def test_a_namespace_selector_that_no_label_satisfies_means_all_in_an_own_term() -> None:
    """kube-scheduler 1.36 asks it without labels for the pod to be placed, but with them for pods
    that are there.
    """
    unlabelled = (Requirement("tier", "DoesNotExist"),)
    on = ledger(zoned(a="x", b="y"), [(tied("web", namespace="labelled"), "a")], NAMESPACES)
    assert open_nodes(tied("p", affinity=(PodTerm(ZONE, app("web"), (), unlabelled),)), on) == {"a"}
    loner = tied("web", anti_affinity=(PodTerm(ZONE, app("p"), (), unlabelled),))
    on = ledger(zoned(a="x", b="y"), [(loner, "a")], NAMESPACES)
    assert open_nodes(tied("p", namespace="labelled"), on) == {"a", "b"}
    assert open_nodes(tied("p", namespace="other"), on) == {"b"}


def loners(number: int, terms: int = 1, **selected: str) -> list[Pod]:
    """Pods of another namespace, each with terms of its own that keep all pods of all namespaces
    away, or those with this label value.
    """
    result = []
    for each in range(number):
        own = []
        for index in range(terms):
            key = f"k{each}-{index}"
            without = Requirement(key, "NotIn", ("v",))
            chosen = [Requirement(name, "In", (value,)) for name, value in selected.items()]
            own.append(PodTerm(HOSTNAME, (without, *chosen), namespace_selector=()))

        result.append(tied(f"l{each}", namespace="other", anti_affinity=tuple(own)))

    return result


def test_many_pods_that_keep_others_away_are_counted_together() -> None:
    """The answer is that of a few, also for pods that come and go in the plan."""
    for number in (2, MOST_QUESTIONS + 5):
        there = loners(number)
        on = ledger(zoned(a="x", b="y", c="z"), [(each, "a") for each in there])
        nodes = {"a", "b", "c"}
        more = loners(number, app="web")
        assert open_nodes(tied("web"), on) == {"b", "c"}
        with on.tentative():
            on.move([(each, "b") for each in more], 1)
            assert open_nodes(tied("web"), on) == {"c"}
            assert open_nodes(tied("db"), on) == {"b", "c"}

        assert open_nodes(tied("web"), on) == {"b", "c"}
        on.move([(each, "a") for each in there], -1)
        assert open_nodes(tied("web"), on) == nodes
        counted = on.occupancy.pods.existing_terms(tied("db")).anti_affinity
        assert len(counted) <= MOST_QUESTIONS


def test_any_number_of_terms_is_less_than_a_plan_may_do() -> None:
    """Whoever has pods with thousands of terms, about all pods or about their own, keeps nobody of
    another namespace waiting.
    """
    for selected in ({}, {"app": "own"}):
        world = World(node("n0"), node("n1"))
        world.create(
            [
                structs.replace(running(each, "n0"), scheduler_name="other")
                for each in loners(250, 50, **selected)
            ]
        )
        world.create(tied("web", namespace="quiet"))
        world.settle()
        assert world.bound()["web"] in ({"n0", "n1"} if selected else {"n1"})


def keyed(number: int) -> list[Pod]:
    """Pods whose terms are about all pods, each of a topology key that no node has."""
    result = []
    for each in range(number):
        term = PodTerm(f"key-{each}", (), namespace_selector=())
        result.append(tied(f"k{each}", namespace="other", anti_affinity=(term,)))

    return result


def test_topology_keys_that_no_node_has_keep_nobody_waiting() -> None:
    """However many terms have one each: none of them is asked about."""
    world = World(node("n0"), node("n1"))
    there = [structs.replace(running(each, "n0"), scheduler_name="other") for each in keyed(2_000)]
    world.create(there)
    world.create(tied("web", namespace="quiet"))
    world.settle()
    assert world.bound()["web"] in {"n0", "n1"}

    for number in (50, 500):
        on = ledger(zoned(a="x", b="y"), [(each, "a") for each in keyed(number)])
        came = keyed(number + 10)
        on.move([(each, "b") for each in came], 1)
        terms = on.occupancy.pods.existing_terms(tied("web"))
        assert not terms.anti_affinity
        assert on.occupancy.pods.anti_affinity_keys() == set()


def test_many_preferences_are_weighed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The penalty is the same as where each pod's terms are weighed alone."""
    chance = random.Random(7)
    placed = []
    for each in range(MOST_QUESTIONS + 10):
        preferred = tuple(
            WeightedPodTerm(chance.randint(-100, 100), PodTerm(key, app("web", f"{each}")))
            for key in (ZONE, HOSTNAME, HOSTNAME)
        )
        affinity = (PodTerm(ZONE, app("web", f"{each}")),)
        placed.append(
            (tied(f"l{each}", preferred=preferred, affinity=affinity), chance.choice("abcd"))
        )

    penalties = []
    for most in (MOST_QUESTIONS, 1_000):
        monkeypatch.setattr(existing_terms, "MOST_QUESTIONS", most)
        on = ledger(zoned(a="x", b="x", c="y", d=""), placed)
        everywhere = on.occupancy.table.everywhere()
        penalty = pod_penalty(tied("web"), everywhere, on.occupancy)
        assert penalty is not None
        penalties.append(penalty.tolist())

    assert penalties[0] == penalties[1]
    assert len(set(penalties[0])) > 1


def test_a_new_question_about_all_pods_is_less_than_a_plan_may_do() -> None:
    """In a cluster of 15,000 pods a pod with several selectors of its own is placed."""
    nodes = [node(f"n{number}", cpu_milli=10**6, pods=8_000) for number in range(2)]
    world = World(*nodes)
    there = tied("there", namespace="other")
    world.create(
        [
            structs.replace(
                running(there, f"n{number % 2}"),
                uid=f"{number}",
                name=f"{number}",
                scheduler_name="other",
            )
            for number in range(15_000)
        ]
    )
    terms = tuple(PodTerm(HOSTNAME, app(f"a{number}", "web")) for number in range(3))
    spread = (Spread(topology_key=HOSTNAME, max_skew=1, selector=app("web")),)
    ports = (HostPort("TCP", 80),)
    pods = [
        tied(f"web{number}", "web", anti_affinity=terms, spread=spread, ports=ports)
        for number in range(2)
    ]
    world.create(pods)
    world.settle()
    assert {world.bound().get(pod.name) for pod in pods} == {"n0", "n1"}
