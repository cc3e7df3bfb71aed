"""Pools that several nodes reach: what nodes see of them, where claims can be used, and how much is
looked at.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
from msgspec import structs

from gangsched.core.cycle import Limits, plan
from gangsched.core.devices.pools import SliceIndex
from gangsched.core.devices.views import MOST_JOINT, ClaimPlace, Views, cut, merged, reachable_from
from gangsched.core.filter.node_selector import any_term
from gangsched.model.devices import ALL, DeviceResult, NodeScope, ResourceSlice
from gangsched.model.inter_pod import Requirement
from gangsched.model.objects import Node, NodeSelectorTerm
from gangsched.model.reasons import Reason
from gangsched.model.snapshot import NodeTable
from tests.builders import gang, group, node, verdict_on
from tests.properties.device_gangs import ZONE, Cluster, JointPool, device, request

NODES = [node(f"n{number}", labels={ZONE: zone}) for number, zone in enumerate("yyzz")]


def of_zone(zone: str) -> NodeScope:
    """The nodes of a zone."""
    return NodeScope(terms=(NodeSelectorTerm(labels=(Requirement(ZONE, "In", (zone,)),)),))


def part(
    name: str, scope: NodeScope, *devices: str, pool: str = "", slices: int = 1
) -> ResourceSlice:
    """A slice."""
    made = tuple(device(each, "a") for each in devices)
    return ResourceSlice(
        name=name, driver="d", pool=pool or name, scope=scope, devices=made, slices=slices
    )


def views(slices: Sequence[ResourceSlice], nodes: Sequence[Node] = NODES) -> Views:
    """What these nodes see."""
    table = NodeTable.of(nodes)
    return Views(SliceIndex(slices), table, lambda terms: any_term(terms or (), table))


def test_nodes_that_see_the_same_have_one_view() -> None:
    """Zones are told apart; a pool of one node is no part of it, one that names two nodes is."""
    found = views(
        [
            part("y", of_zone("y"), "g0"),
            part("all", NodeScope(everywhere=True), "g0"),
            part("n0", NodeScope("n0")),
        ]
    )
    assert found.of.tolist() == [1, 1, 0, 0]
    assert found.sees.all()
    names = [
        ["/".join(each.id) for pool in found.pools((view,)) for each in pool.devices]
        for view in (1, 0)
    ]
    assert names == [["d/all/g0", "d/y/g0"], ["d/all/g0"]]
    both = [each.id[1] for pool in found.pools((1, 0)) for each in pool.devices if each.here]
    assert both == ["all"]
    two = views(
        [
            part("a", NodeScope("n0"), "g0", pool="p", slices=2),
            part("b", NodeScope("n1"), "g1", pool="p", slices=2),
        ]
    )
    assert two.sees.tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("slices", "components"),
    [
        ([part("y", of_zone("y"), "g0"), part("z", of_zone("z"), "g0")], 2),
        ([part("y", of_zone("y"), "g0"), part("all", NodeScope(everywhere=True), "g0")], 1),
        ([part(f"n{at}", NodeScope(f"n{at}"), "g0", pool="p", slices=4) for at in range(4)], 4),
        (
            [
                *(
                    part(f"n{at}", NodeScope(f"n{at}"), f"g{at}", pool="p", slices=5)
                    for at in range(4)
                ),
                structs.replace(
                    part("m", of_zone("y"), pool="p", slices=5), counters=(("s", (("c", 1),)),)
                ),
            ],
            1,
        ),
    ],
    ids=["zones", "zones and all", "devices of single nodes", "counters of all"],
)
def test_views_are_connected_by_devices_and_counters(
    slices: Sequence[ResourceSlice], components: int
) -> None:
    """Pods on nodes that are not connected are never searched together."""
    found = views(slices)
    assert len({found.component[view] for view in found.of.tolist()}) == components


@pytest.mark.parametrize(
    ("scopes", "required"),
    [
        ([NodeScope(everywhere=True)], None),
        ([of_zone("y"), NodeScope(everywhere=True)], of_zone("y").terms),
        ([of_zone("y"), of_zone("y")], of_zone("y").terms),
        (
            [of_zone("y"), of_zone("z")],
            (NodeSelectorTerm(labels=tuple(Requirement(ZONE, "In", (zone,)) for zone in "yz")),),
        ),
        (
            [of_zone("y"), NodeScope("n0")],
            (NodeSelectorTerm(fields=(Requirement("metadata.name", "In", ("n0",)),)),),
        ),
    ],
)
def test_where_a_claim_can_be_used(
    scopes: Sequence[NodeScope], required: tuple[NodeSelectorTerm, ...] | None
) -> None:
    """As kube-scheduler writes it: the requirements of all devices, or the node."""
    slices = SliceIndex(part(f"p{at}", scope, "g0") for at, scope in enumerate(scopes))
    devices = [each for at in range(len(scopes)) for each in slices.entire(("d", f"p{at}")).devices]
    assert reachable_from(devices, "n0") == required
    bound = [
        dataclasses.replace(each, device=structs.replace(each.device, binds_to_node=True))
        for each in devices
    ]
    assert reachable_from(bound, "n1") == (
        NodeSelectorTerm(fields=(Requirement("metadata.name", "In", ("n1",)),)),
    )


def test_what_is_in_use_and_what_does_not_match_is_left_out_first() -> None:
    """A search considers a bounded number of devices, of which none is useless."""
    names = [f"g{at}" for at in range(4 * MOST_JOINT)]
    (pool,) = views([part("net", NodeScope(everywhere=True), *names)]).pools((0,))
    used = {("d", "net", each) for each in names[:MOST_JOINT]}
    (found,) = cut([pool], used.__contains__, lambda each: int(each.id[2][1:]) % 2 == 0)
    assert len(found.devices) == MOST_JOINT
    assert found.is_cut
    assert not used & {each.id for each in found.devices}
    assert len(found.devices) + len(found.elsewhere) == len(names)
    (whole,) = merged(
        [
            cut([pool], used.__contains__, lambda _: False),
            cut([pool], used.__contains__, lambda _: True),
        ]
    )
    assert len(whole.devices) == MOST_JOINT
    assert len({each.id for each in (*whole.devices, *whole.elsewhere)}) == len(names)


def test_all_devices_of_a_pool_that_is_too_large() -> None:
    """What is not looked at may be in use: the request is refused, and a smaller pool is allocated
    whole.
    """
    for number, reason in ((MOST_JOINT + 1, Reason.UNSUPPORTED), (3, Reason.SCHEDULED)):
        cluster = Cluster(
            [[], []], pools=[JointPool("net", [device(f"g{at}", "a") for at in range(number)])]
        )
        verdict = cluster.decide([cluster.ask(structs.replace(request(), mode=ALL))])
        assert verdict.reason is reason


def test_a_node_that_moves_to_another_zone_sees_its_pools() -> None:
    """What was known of it is forgotten, and what is known of others is not."""
    cluster = Cluster([[], []], pools=[JointPool("net", [device("g0", "a")], "y")], zones="zz")
    pods = [cluster.ask(request())]
    assert not cluster.decide(pods).binds
    cluster.nodes[1] = node("n1", labels={ZONE: "y"})
    assert [each.node for each in cluster.decide(pods).binds] == ["n1"]
    cluster.nodes[1] = node("n1", labels={ZONE: "z"})
    assert not cluster.decide(pods).binds


def test_devices_that_come_and_go_are_seen() -> None:
    """A claim that takes or frees a device of several nodes, and a slice that changes, change what
    fits.
    """
    cluster = Cluster([[], []], pools=[JointPool("net", [device("g0", "a")])])
    pods = [cluster.ask(request())]
    assert cluster.decide(pods).binds
    nodes, is_less = cluster.index.hold("other", (DeviceResult("r", ("d", "net", "g0")),))
    assert (nodes, is_less) == ({""}, False)
    assert not cluster.decide(pods).binds
    assert cluster.index.hold("other", ()) == ({""}, True)
    assert cluster.decide(pods).binds
    assert "" in cluster.index.apply(part("net", of_zone("y"), "g0"))
    assert not cluster.decide(pods).binds


def test_a_pool_with_a_slice_for_each_of_many_nodes_is_looked_at_in_pieces() -> None:
    """No plan does more than its work; the gang starts some plans later."""
    number = 300
    cluster = Cluster([[] for _ in range(number)])
    for at in range(number):
        cluster.index.apply(
            part(f"s{at:03}", NodeScope(f"n{at}"), f"g{at}", pool="net", slices=number)
        )
        cluster.devices["net", f"g{at}"] = device(f"g{at}", "a")
    pods = [cluster.ask(request()) for _ in range(3)]
    seen, unfinished = cluster.snapshot(), None
    for _ in range(200):
        made = plan(
            seen,
            [group(gang("ns/g", pods))],
            now_s=0.0,
            unfinished=unfinished,
            limits=Limits(work=10_000),
        )
        assert made.work < 30_000
        if made.verdicts:
            break
        unfinished = made.unfinished
    assert len({each.node for each in verdict_on(made, "ns/g").binds}) == 3


def test_a_place_is_what_is_seen_there() -> None:
    """Of a node alone, of a view alone, or of both."""
    cluster = Cluster([[device("g0", "a")], []], pools=[JointPool("net", [device("g1", "a")])])
    cluster.decide([cluster.ask(request())])
    seen = [
        [each.id[1] for pool in cluster.index.pools_at(place) for each in pool.devices]
        for place in (ClaimPlace("n0"), ClaimPlace("", (0,)), ClaimPlace("n0", (0,)))
    ]
    assert seen == [["n0"], ["net"], ["n0", "net"]]


def test_a_node_without_a_view_changes_none_of_the_others() -> None:
    """A node that sees no pool may come first in the order of nodes; what was searched still means
    the same views.
    """
    pools = [
        JointPool("in-y", [device("g0", "a")], "y"),
        JointPool("in-z", [device("g1", "a")], "z"),
    ]
    cluster = Cluster([[], []], pools=pools, zones="yz")
    cluster.index.hold("other", (DeviceResult("r", ("d", "in-y", "g0")),))
    pods = [cluster.ask(request())]
    assert [each.node for each in cluster.decide(pods).binds] == ["n1"]
    cluster.nodes.insert(0, node("a0"))
    cluster.nodes[2] = node("n1", labels={ZONE: "z"}, unschedulable=True)
    assert not cluster.decide(pods).binds
    cluster.nodes[2] = node("n1", labels={ZONE: "z"})
    (placement,) = cluster.decide(pods).binds
    assert placement.node == "n1"
    chosen = (claim.allocation for claim in placement.claims if claim.allocation is not None)
    assert [each.id[1] for allocation in chosen for each in allocation.results] == ["in-z"]
