"""Homes: where waiting members of a gang that runs are tried (semantics L3)."""

from __future__ import annotations

import numpy as np
from msgspec import structs

from gangsched.core.homes import home_full, required_home, scopes_from_home
from gangsched.core.reserve import Ledger
from gangsched.core.scope import EVERYWHERE, Scope
from gangsched.core.search.domains import pinned
from gangsched.model.gang import Gang
from gangsched.model.gpu_policy import PlacementConstraints
from gangsched.model.inter_pod import InterPodConstraints, Spread
from tests import builders

RACK = "topology.kubernetes.io/rack"
ZONE = "topology.kubernetes.io/zone"
SITES = {"n0": "y a", "n1": "y a", "n2": "y b", "n3": "z a", "n4": ""}


def ledger() -> Ledger:
    """Racks a and b of zone y, rack a of zone z, and a node without labels."""
    nodes = []
    for name, where in SITES.items():
        labels = dict(zip((ZONE, RACK), where.split(), strict=False))
        nodes.append(builders.node(name, labels=labels))

    return builders.ledger(nodes)


def gang(*nodes: str, preferred: str = "") -> Gang:
    """A gang with members on these nodes, of which one more waits."""
    return builders.gang(
        "ns/g",
        [builders.pod("w")],
        bound=len(nodes),
        nodes=nodes,
        satisfied=True,
        constraints=PlacementConstraints(preferred=preferred),
    )


def names(of: Gang, outermost: Scope = EVERYWHERE) -> list[str]:
    """The names of the scopes, "" for everywhere."""
    return [scope.name for scope in scopes_from_home(of, of.pending, outermost, ledger())]


def test_the_closest_level_that_all_members_share_is_their_home() -> None:
    """L3: then one level up at a time, then anywhere; racks of two zones are told apart."""
    assert names(gang("n0", "n1")) == [f"{RACK}=a, {ZONE}=y", f"{ZONE}=y", ""]


def test_a_level_with_members_in_several_domains_is_skipped() -> None:
    """L3: also if most of them, or the first one, are in one domain."""
    assert names(gang("n0", "n1", "n2")) == [f"{ZONE}=y", ""]
    assert names(gang("n0", "n1", "n3")) == [""]


def test_a_member_outside_of_all_domains_leaves_no_home() -> None:
    """L3: a node without the label is in no domain; one that is gone does not count."""
    assert names(gang("n0", "n4")) == [""]
    assert names(gang("n0", "gone")) == [f"{RACK}=a, {ZONE}=y", f"{ZONE}=y", ""]


def test_without_bound_members_there_is_no_home() -> None:
    """L3: so a plain pod has none."""
    assert names(gang()) == [""]


def test_required_levels_are_never_left() -> None:
    """L3: a level that is as wide as what is required is not tried twice."""
    of_ledger = ledger()
    zone = np.array([where.startswith("y") for where in SITES.values()])
    required = Scope(zone, zone, name="required")
    found = scopes_from_home(gang("n0", "n1"), [builders.pod("w")], required, of_ledger)

    assert [scope.name for scope in found] == [f"{RACK}=a, {ZONE}=y", "required"]
    assert found[-1] is required


def test_members_that_would_be_apart_have_no_home() -> None:
    """L3: unless their gang states a preferred level."""
    spread = InterPodConstraints(soft_spread=(Spread(topology_key=ZONE, max_skew=1),))
    apart = builders.pod("w", of=builders.shape(1, inter_pod=spread))

    found = scopes_from_home(gang("n0", "n1"), [apart], EVERYWHERE, ledger())
    assert [scope.name for scope in found] == [""]

    stated = gang("n0", "n1", preferred=ZONE)
    found = scopes_from_home(stated, [apart], EVERYWHERE, ledger())
    assert [scope.name for scope in found] == [f"{RACK}=a, {ZONE}=y", f"{ZONE}=y", ""]


def test_a_stated_level_that_is_not_known_is_one_of_the_levels() -> None:
    """L3: the gang's own level counts where the setting lacks it."""
    host = "kubernetes.io/hostname"
    found = names(gang("n0", preferred=host))
    assert found[0] == f"{host}=n0"
    assert found[-2:] == [f"{ZONE}=y", ""]


def test_the_nodes_of_a_full_home_are_counted() -> None:
    """L6: those that are closed, full, and used by work that may be preempted; the time is that of
    the oldest waiting member.
    """
    nodes = [
        builders.node("n0", 4, labels={RACK: "a"}),
        builders.node("n1", 4, labels={RACK: "a"}),
        builders.node("n2", 4, labels={RACK: "a"}, unschedulable=True),
        builders.node("n3", 4, labels={RACK: "b"}),
    ]
    placed = [
        (builders.pod("w-0", gpus=4, priority=5), "n0"),
        (builders.pod("low", gpus=4, priority=1), "n1"),
    ]
    of_ledger = Ledger(builders.snapshot(nodes, placed))
    waits = [
        builders.pod("w-1", gpus=4, priority=5, creation_s=200),
        builders.pod("w-2", gpus=4, priority=5, creation_s=100),
    ]
    of = builders.gang(
        "ns/g",
        waits,
        bound=1,
        nodes=("n0",),
        satisfied=True,
        constraints=PlacementConstraints(topology=(RACK,)),
    )
    required = pinned(builders.group(of), of_ledger)
    home = required_home(of, waits[0], required, of_ledger)
    assert home is not None

    told = home_full(of, waits[0], home, of_ledger)
    assert (told.home, told.nodes, told.free) == (f"{RACK}=a", 3, 0)
    assert (told.closed, told.lower, told.since_s) == (1, 1, 100)

    preferred = structs.replace(of, constraints=PlacementConstraints())
    assert required_home(preferred, waits[0], None, of_ledger) is None
