"""Counts of devices in the refusal of a gang (semantics E1)."""

from __future__ import annotations

import pytest

from gangsched.core.cycle import plan
from gangsched.model.devices import DeviceRequest
from gangsched.model.verdict_facts import DevicesShort, MemberFails
from gangsched.sentences import say
from tests.builders import gang, group
from tests.properties.device_gangs import Cluster, JointPool, device, request

EIGHT = [device(f"g{number}", "a") for number in range(8)]
FOUR = EIGHT[:4]


def refused(cluster: Cluster, number: int, asked: DeviceRequest) -> MemberFails:
    """The fact about a gang of so many pods, each with a claim for these devices."""
    verdict = cluster.decide([cluster.ask(asked) for _ in range(number)])
    fact = verdict.told.fact
    assert isinstance(fact, MemberFails)

    needs = f"gang ns/g needs {number} pods of {asked.count} devices of class gpu; "
    assert say(verdict.told).headline.startswith(needs) is (fact.devices is not None)
    return fact


@pytest.mark.parametrize("nodes", [[EIGHT], [FOUR, FOUR]])
def test_free_devices_are_counted(nodes: list[list[object]]) -> None:
    """E1: three pods of three devices, and eight are there."""
    fact = refused(Cluster(nodes), 3, request(3))  # type: ignore[arg-type]
    assert fact.devices == DevicesShort(
        device_class="gpu", by_pod=3, needed=9, free=8, on_one=len(nodes[0])
    )


@pytest.mark.parametrize(
    ("number", "asked", "best"),
    [
        (3, request(3), "6 of the 9 are free on eligible nodes"),
        (2, request(3), "1 of 2 could be placed, then no node has 3 that match"),
        (2, request(5), "no eligible node has more than 4 free"),
        (2, request(2, "b"), "none that matches is free on eligible nodes"),
    ],
)
def test_what_is_in_the_way(number: int, asked: DeviceRequest, best: str) -> None:
    """E1: too few, scattered over nodes, too many for one node, or none of that model; two devices
    of the first node are held by others.
    """
    cluster = Cluster([FOUR, FOUR], [(0, "g0"), (0, "g1")])
    verdict = cluster.decide([cluster.ask(asked) for _ in range(number)])
    assert say(verdict.told).headline.endswith(f"; {best}")


def test_gangs_that_start_together_are_told_what_they_lack_together() -> None:
    """E1: one of the three devices is there; a gang alone would find it."""
    cluster = Cluster([FOUR], [(0, "g0"), (0, "g1"), (0, "g2")])
    gangs = [
        gang("ns/a", [cluster.ask(request(1)), cluster.ask(request(1))]),
        gang("ns/b", [cluster.ask(request(1))]),
    ]
    made = plan(cluster.snapshot(), [group(*gangs)], now_s=0.0)
    told = made.verdicts[0].told
    assert say(told).headline == (
        "gang ns/a needs 2 pods of 1 device of class gpu;"
        " 1 of the 3 that its group needs is free on eligible nodes"
    )


def test_pods_that_ask_for_different_devices_have_no_count() -> None:
    """E1: their numbers would not add up."""
    cluster = Cluster([FOUR])
    verdict = cluster.decide([cluster.ask(request(3)), cluster.ask(request(2))])
    assert isinstance(verdict.told.fact, MemberFails)
    assert verdict.told.fact.devices is None


def test_devices_that_several_nodes_reach_have_no_count() -> None:
    """E1: each of these nodes has the same four devices."""
    cluster = Cluster([[], []], pools=[JointPool("all", FOUR)])
    assert refused(cluster, 2, request(3)).devices is None
