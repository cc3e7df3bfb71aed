"""PodTopologySpread: which domains there are, whom they count, and what skew is refused."""

from __future__ import annotations

from typing import Any

from gangsched.model.inter_pod import InterPodConstraints, Requirement, Spread
from gangsched.model.objects import NodeSelectorTerm, Shape, Taint
from tests.builders import amounts, node, pod
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


def spread(key: str = ZONE, **fields: Any) -> Spread:
    """A constraint over pods labelled `app: p` with a skew of 1, unless told otherwise."""
    return Spread(**{"topology_key": key, "max_skew": 1, "selector": app("p"), **fields})


def test_no_domain_runs_ahead_of_the_emptiest() -> None:
    """With a skew of 1 the next pod goes where the fewest are; with 2 it may also be one ahead."""
    on = ledger(zoned(a="x", b="y", c="z"), [(tied("p"), "a"), (tied("p"), "b")])
    assert open_nodes(tied("p", spread=(spread(),)), on) == {"c"}
    assert open_nodes(tied("p", spread=(spread(max_skew=2),)), on) == {"a", "b", "c"}


def test_a_pod_that_the_selector_does_not_mean_adds_nothing() -> None:
    """Skew is that of the pods meant; the pod itself counts only if it is one of them."""
    on = ledger(zoned(a="x", b="y"), [(tied("p"), "a")])
    assert open_nodes(tied("other", spread=(spread(),)), on) == {"a", "b"}


def test_too_few_domains_make_the_minimum_zero() -> None:
    """Below minDomains nobody may be ahead of nothing."""
    on = ledger(zoned(a="x", b="y"), [(tied("p"), "a"), (tied("p"), "b")])
    assert open_nodes(tied("p", spread=(spread(),)), on) == {"a", "b"}
    assert open_nodes(tied("p", spread=(spread(min_domains=3),)), on) == set()


def test_a_node_without_the_key_is_no_domain() -> None:
    """It is refused under a text of its own; nodes that lack another constraint's key do not count
    either.
    """
    on = ledger(zoned(a="x", b=""), [(tied("p"), "a")])
    assert open_nodes(tied("p", spread=(spread(),)), on) == {"a"}
    assert (
        refusal(tied("p", spread=(spread("rack"),)), on)
        == "0/2 nodes are available: 2 node(s) didn't match pod topology spread constraints"
        " (missing required label)."
    )
    both = tied("p", spread=(spread(HOSTNAME), spread()))
    assert open_nodes(both, ledger(zoned(a="x", b=""), [(tied("p"), "b")])) == {"a"}


def test_only_pods_of_the_namespace_that_stay_are_counted() -> None:
    """Terminating pods and those of other namespaces are nobody here, and `{}` counts none
    at all.
    """
    there = [(tied("p", deleting=True), "a"), (tied("p", namespace="else"), "a"), (tied("p"), "b")]
    on = ledger(zoned(a="x", b="y"), there)
    assert open_nodes(tied("p", spread=(spread(),)), on) == {"a"}
    assert open_nodes(tied("p", spread=(spread(selector=()),)), on) == {"a", "b"}


def test_match_label_keys_count_pods_of_the_same_revision() -> None:
    """The pod's own values are added to the selector; a key that it lacks adds nothing."""
    old = pod("old", of=Shape(requests=amounts(pods=1)), labels={"app": "p", "rev": "1"})
    on = ledger(zoned(a="x", b="y"), [(old, "a")])
    constraint = spread(match_label_keys=("rev", "none"))
    shape = Shape(requests=amounts(pods=1), inter_pod=InterPodConstraints(spread=(constraint,)))
    assert open_nodes(pod("new", of=shape, labels={"app": "p", "rev": "2"}), on) == {"a", "b"}
    assert open_nodes(pod("same", of=shape, labels={"app": "p", "rev": "1"}), on) == {"b"}


def test_policies_say_which_nodes_are_domains() -> None:
    """Unless told otherwise, nodes that node affinity excludes are no domains, and tainted ones
    are.
    """
    nodes = [
        node("a", labels={ZONE: "x"}),
        node("b", labels={ZONE: "y", "old": "1"}),
        node("c", labels={ZONE: "z"}, taints=(Taint("k", "", "NoSchedule"),)),
    ]
    on = ledger(nodes, [(tied("p"), "a")])
    young = (NodeSelectorTerm(labels=(Requirement("old", "DoesNotExist"),)),)

    def allowed(**policies: Any) -> set[str]:
        shape = Shape(
            requests=amounts(pods=1),
            required=young,
            inter_pod=InterPodConstraints(spread=(spread(**policies),)),
        )
        return open_nodes(pod("p", of=shape, labels={"app": "p"}), on)

    assert allowed() == set()
    assert allowed(honor_taints=True) == {"a"}
    assert allowed(honor_taints=True, honor_affinity=False) == set()
