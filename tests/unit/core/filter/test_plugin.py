"""Members see each other: within one plan, those already placed count for the filters of the next
ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gangsched.core import preferences
from gangsched.core.cycle import plan
from gangsched.core.filter import refusals
from gangsched.core.reserve import Ledger
from gangsched.model.gang import Group
from gangsched.model.inter_pod import (
    HostPort,
    InterPodConstraints,
    PodTerm,
    Requirement,
    Selector,
    Spread,
    WeightedPodTerm,
)
from gangsched.model.objects import Node, Pod, Shape
from gangsched.model.reasons import Reason
from tests.builders import amounts, gang, group, node, pod, snapshot, verdict_on, where
from tests.unit.core.filter.asking import HOSTNAME, ZONE, app, ledger, open_nodes, tied, zoned


def placed(*pods: Pod, nodes: Sequence[Node]) -> list[str]:
    """Where a Strict gang of these pods goes, sorted; empty if it is refused."""
    verdict = verdict_on(plan(snapshot(nodes), [whole(*pods)], now_s=0.0), "ns/g")
    return sorted(where(verdict).values())


def whole(*pods: Pod) -> Group:
    """The group of one Strict gang that needs all of these."""
    return group(gang("ns/g", pods))


def test_members_with_one_port_go_apart() -> None:
    """Two members that want the same host port need two nodes; a third has none, so the gang is
    refused.
    """
    pods = [tied(f"p{n}", ports=(HostPort("TCP", 80),)) for n in range(3)]
    assert placed(*pods[:2], nodes=zoned(a="x", b="x")) == ["a", "b"]
    assert placed(*pods, nodes=zoned(a="x", b="x")) == []


def test_members_that_avoid_each_other_go_apart() -> None:
    """Anti-affinity towards one's own gang is one member per domain."""
    pods = [tied(f"p{n}", "web", anti_affinity=(PodTerm(ZONE, app("web")),)) for n in range(2)]
    assert placed(*pods, nodes=zoned(a="x", b="x", c="y")) in (["a", "c"], ["b", "c"])
    assert placed(*pods, nodes=zoned(a="x", b="x")) == []


def test_anti_affinity_of_a_member_concerns_members_that_state_none() -> None:
    """A member keeps another kind of member away that says nothing itself."""
    loner = tied("loner", anti_affinity=(PodTerm(HOSTNAME, app("web")),))
    assert placed(loner, tied("web"), nodes=zoned(a="x", b="y")) == ["a", "b"]
    assert placed(loner, tied("web"), nodes=zoned(a="x")) == []


def test_members_that_need_each_other_start_together() -> None:
    """The first of them needs nobody; it goes where the others have room beside it."""
    pods = [tied(f"p{n}", "web", affinity=(PodTerm(ZONE, app("web")),)) for n in range(3)]
    nodes = [
        node("a", cpu_milli=100, labels={ZONE: "x"}),
        node("b", cpu_milli=200, labels={ZONE: "y"}),
        node("c", cpu_milli=100, labels={ZONE: "y"}),
    ]
    assert placed(*pods, nodes=nodes) == ["b", "b", "c"]
    assert (
        placed(*pods, tied("p3", "web", affinity=(PodTerm(ZONE, app("web")),)), nodes=nodes) == []
    )


def test_members_spread_over_domains() -> None:
    """Each next member counts those before it."""
    even = Spread(topology_key=ZONE, max_skew=1, selector=app("web"))
    pods = [tied(f"p{n}", "web", spread=(even,)) for n in range(4)]
    assert placed(*pods, nodes=zoned(a="x", b="y")) == ["a", "a", "b", "b"]


def test_a_refused_gang_is_no_company_for_the_next() -> None:
    """What a gang had placed before it failed keeps nobody away."""
    loner = tied("loner", anti_affinity=(PodTerm(HOSTNAME, app("web")),))
    failing = group(
        gang("ns/a", [loner, tied("big", ports=(HostPort("TCP", 80),)), pod("none", gpus=99)])
    )
    following = group(gang("ns/b", [tied("web", ports=(HostPort("TCP", 80),))]))
    decided = plan(snapshot([node("a")]), [failing, following], now_s=0.0)
    assert verdict_on(decided, "ns/a").reason is Reason.UNSCHEDULABLE
    assert where(verdict_on(decided, "ns/b")) == {"web": "a"}


# --- what holds for any ties --------------------------------------------------------------------

KEYS = st.sampled_from((HOSTNAME, ZONE, "rack"))
SELECTORS: st.SearchStrategy[Selector] = st.one_of(
    st.none(),
    st.just(()),
    st.sampled_from("abc").map(app),
    st.just((Requirement("app", "NotIn", ("a",)),)),
)
TERMS = st.builds(
    PodTerm, KEYS, SELECTORS, st.sampled_from(((), ("other",))), st.sampled_from((None, ()))
)
SPREADS = st.builds(
    lambda key, selector, skew, least: Spread(
        topology_key=key, selector=selector, max_skew=skew, min_domains=least
    ),
    KEYS,
    SELECTORS,
    st.integers(1, 2),
    st.integers(1, 3),
)
PORTS = st.builds(
    HostPort,
    st.just("TCP"),
    st.integers(80, 81),
    st.sampled_from(("0.0.0.0", "10.0.0.1", "10.0.0.2")),
)
TIES = st.builds(
    lambda ports, near, away, spread, preferred, soft: InterPodConstraints(
        ports=tuple(ports),
        affinity=tuple(near),
        anti_affinity=tuple(away),
        spread=tuple(spread),
        preferred=tuple(WeightedPodTerm(7, term) for term in preferred),
        soft_spread=tuple(soft),
    ),
    *(st.lists(each, max_size=1) for each in (PORTS, TERMS, TERMS, SPREADS, TERMS, SPREADS)),
)
SHAPES = st.builds(
    lambda inter_pod: Shape(requests=amounts(cpu_milli=100, pods=1), inter_pod=inter_pod),
    st.none() | TIES,
)
PODS = st.builds(
    lambda shape, label, namespace, deleting: pod(
        f"p-{label}", of=shape, labels={"app": label}, namespace=namespace, deleting=deleting
    ),
    SHAPES,
    st.sampled_from("abc"),
    st.sampled_from(("ns", "other")),
    st.booleans(),
)
NODES = [
    node("a", labels={ZONE: "x", "rack": "1"}),
    node("b", labels={ZONE: "x", "rack": "2"}),
    node("c", labels={ZONE: "y"}),
    node("d", labels={"rack": "1"}),
]
PLACED = st.lists(st.tuples(PODS, st.sampled_from("abcd")), max_size=5)
NAMESPACES = {"ns": {}, "other": {"tier": "1"}}


def told(probes: Sequence[Pod], on: Ledger) -> list[object]:
    """Everything that filters and soft preferences say of these pods."""
    said: list[object] = []
    for probe in probes:
        feasible = on.room(probe.shape) > 0
        penalty = preferences.pod_penalty(probe, feasible, on.occupancy)
        minded = None if penalty is None or not penalty.any() else penalty[feasible].tolist()
        refused = {
            (reason, name)
            for reason, nodes in refusals(probe, on.occupancy, on.table.everywhere())
            for name, is_refused in zip(on.table.names, nodes.tolist(), strict=True)
            if is_refused
        }
        said.append((refused, minded, open_nodes(probe, on)))
    return said


def reserve(placing: Sequence[tuple[Pod, str]], on: Ledger) -> None:
    """Place these pods one by one."""
    for each, name in placing:
        on.reserve((each,), np.array([on.table.index[name]]), np.array([1]))


@given(
    there=PLACED,
    first=PLACED,
    second=PLACED,
    probes=st.lists(PODS, min_size=1, max_size=3),
    looks=st.booleans(),
)
def test_rollback_restores_who_is_where(
    there: list[tuple[Pod, str]],
    first: list[tuple[Pod, str]],
    second: list[tuple[Pod, str]],
    probes: list[Pod],
    looks: bool,
) -> None:
    """After a rollback every filter says of any pod what it said before, whether or not anybody had
    asked between.
    """
    on = ledger(NODES, there, NAMESPACES)
    reserve(first, on)
    before, free = told(probes, on), on.free.copy()
    checkpoint = on.checkpoint()
    reserve(second, on)
    if looks:
        told(probes, on)
    on.rollback(checkpoint)
    assert told(probes, on) == before
    assert (on.free == free).all()


@given(there=PLACED, placing=PLACED, probes=st.lists(PODS, min_size=1, max_size=3))
def test_members_placed_count_as_if_they_had_been_there(
    there: list[tuple[Pod, str]], placing: list[tuple[Pod, str]], probes: list[Pod]
) -> None:
    """What filters say after placing pods in a plan is what they say of a cluster that has them."""
    on = ledger(NODES, there, NAMESPACES)
    told(probes, on)
    reserve(placing, on)
    assert told(probes, on) == told(probes, ledger(NODES, [*there, *placing], NAMESPACES))
