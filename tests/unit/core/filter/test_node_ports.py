"""NodePorts: what conflicts on a node, and where it stands among the refusals."""

from __future__ import annotations

import pytest

from gangsched.model.inter_pod import HostPort
from tests.builders import node
from tests.unit.core.filter.asking import ledger, open_nodes, refusal, tied


@pytest.mark.parametrize(
    ("there", "wanted", "conflicts"),
    [
        (HostPort("TCP", 80), HostPort("TCP", 80), True),
        (HostPort("TCP", 80), HostPort("TCP", 81), False),
        (HostPort("TCP", 80), HostPort("UDP", 80), False),
        (HostPort("TCP", 80), HostPort("TCP", 80, "10.0.0.1"), True),
        (HostPort("TCP", 80, "10.0.0.1"), HostPort("TCP", 80), True),
        (HostPort("TCP", 80, "10.0.0.1"), HostPort("TCP", 80, "10.0.0.2"), False),
        (HostPort("TCP", 80, "::"), HostPort("TCP", 80, "127.0.0.1"), False),
        (HostPort("TCP", 80, "::"), HostPort("TCP", 80), True),
    ],
)
def test_conflicts(there: HostPort, wanted: HostPort, conflicts: bool) -> None:
    """A port is taken by protocol and address; only 0.0.0.0 stands for every address, `::` does
    not.
    """
    on = ledger([node("a"), node("b")], [(tied("web", ports=(there,)), "a")])
    assert open_nodes(tied("p", ports=(wanted,)), on) == ({"b"} if conflicts else {"a", "b"})


def test_a_taken_port_is_told_before_a_lack_of_room() -> None:
    """The first filter that fails on a node ends it, and ports come before resources."""
    one = (HostPort("TCP", 80),)
    full = [node("a", cpu_milli=100), node("b", cpu_milli=50)]
    assert (
        refusal(tied("p", ports=one), ledger(full, [(tied("web", ports=one), "a")]))
        == "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't have free ports for the"
        " requested pod ports."
    )
