"""What is measured of reservations (H15)."""

from __future__ import annotations

import math
from typing import Any

from gangsched.model.gang import Group, Placement, Refusal
from gangsched.model.plan import Plan, Round, RoundOutcome, Verdict
from gangsched.model.reasons import Reason
from gangsched.model.reservation import How, Reservations, Reserved
from gangsched.model.verdict_facts import Worded
from gangsched.telemetry.metrics import Metrics
from tests.builders import GPU, gang, group, members, node, pod, running, snapshot
from tests.unit.telemetry.seen import samples

NODES = [node("n1", 8, cpu_milli=4_000), node("n2", 8, cpu_milli=4_000)]
PODS = members("g", 2, gpus=8, creation_s=1_000)


def reserved(**fields: Any) -> Reserved:
    """Both nodes for the gang `ns/g`, at second 2000."""
    given: dict[str, Any] = {
        "group": "ns/g",
        "namespaces": frozenset({"ns"}),
        "priority": 0,
        "since_s": 1_000,
        "run_time_s": math.inf,
        "at_s": 2_000.0,
        "nodes": ("n1", "n2"),
        "placements": (Placement(PODS[0], "n1"), Placement(PODS[1], "n2")),
        "first": True,
        "promised_s": 2_000.0,
    }
    return Reserved(**{**given, **fields})


class Measured:
    """Plans, told one after the other."""

    def __init__(self, *placed: tuple[Any, str]) -> None:
        self.metrics = Metrics()
        self.snapshot = snapshot(NODES, placed)

    def plan(
        self, *standing: Reserved, at_s: float, groups: tuple[Group, ...] = (), **verdict: Any
    ) -> dict[str, float]:
        """A plan that leaves these standing, with a verdict on the gang; what is shown then."""
        verdicts = (Verdict(group="ns/g", generation=1, **verdict),) if verdict else ()
        proposal = Plan(verdicts, reservations=Reservations(standing=standing))
        self.metrics.reservations.planned(proposal, groups, self.snapshot, wall_s=at_s)
        return samples(self.metrics)


STARTED = {
    "told": Refusal(Reason.SCHEDULED, Worded("")),
    "binds": (Placement(PODS[0], "n1"), Placement(PODS[1], "n2")),
    "round": Round(1, 2, 2, 2, RoundOutcome.PERMITTED),
}


def test_series_begin_at_zero() -> None:
    """H15: a dashboard sees zeros before the first reservation."""
    shown = samples(Metrics())
    assert shown["gangsched_reservations{kind=fence}"] == 0
    assert shown["gangsched_reserved_idle_seconds_total{resource=accelerators}"] == 0
    assert shown["gangsched_backfilled_groups_total{how=short}"] == 0
    assert shown["gangsched_reservation_seconds_count{kind=timed}{result=lost}"] == 0
    assert shown["gangsched_group_wait_seconds_count{size=nodes}"] == 0


def test_idle_behind_a_reservation() -> None:
    """H15: what is free of what is reserved, by the amounts its pods ask for, and the same times
    seconds.
    """
    old = running(pod("old", gpus=6), "n1")
    measured = Measured((old, "n1"))
    shown = measured.plan(reserved(), at_s=1_100.0)
    assert shown["gangsched_reservations{kind=timed}"] == 1
    assert shown["gangsched_reserved_idle{resource=accelerators}"] == 2 + 8
    shown = measured.plan(reserved(), at_s=1_110.0)
    assert shown["gangsched_reserved_idle_seconds_total{resource=accelerators}"] == 100
    shown = measured.plan(at_s=1_120.0)
    assert shown["gangsched_reserved_idle{resource=accelerators}"] == 0
    assert shown["gangsched_reserved_idle_seconds_total{resource=accelerators}"] == 200


def test_a_fence_keeps_nodes_whole() -> None:
    """H15: all that is free of its nodes is idle, cores and bytes too."""
    shown = Measured().plan(reserved(at_s=math.inf, placements=()), at_s=1_100.0)
    assert shown["gangsched_reservations{kind=fence}"] == 1
    assert shown["gangsched_reserved_idle{resource=accelerators}"] == 16
    assert shown["gangsched_reserved_idle{resource=cpu}"] == 8


def test_a_start_in_time() -> None:
    """H15: how long the reservation stood, how the start differs from the promise, and what was
    waited.
    """
    measured = Measured()
    measured.plan(reserved(), at_s=1_100.0)
    one = group(gang("ns/g", PODS))
    shown = measured.plan(at_s=1_990.0, groups=(one,), **STARTED)
    assert shown["gangsched_reservation_seconds_sum{kind=timed}{result=started}"] == 890
    assert _between(shown, "first", -60.0, 0.0) == 1
    assert shown["gangsched_group_wait_seconds_sum{size=nodes}"] == 990
    assert shown["gangsched_group_run_times_total{run_time=unknown}"] == 1


def _between(shown: dict[str, float], head: str, low: float, high: float) -> float:
    """How many errors are above `low` and at most `high`."""
    name = f"gangsched_start_error_seconds_bucket{{head={head}}}"
    return shown[f"{name}{{le={high}}}"] - shown[f"{name}{{le={low}}}"]


def test_an_estimate_is_apart_from_a_promise() -> None:
    """H15: of one that never was the first, the first estimate counts."""
    measured = Measured()
    measured.plan(reserved(first=False, promised_s=math.inf), at_s=1_100.0)
    measured.plan(reserved(first=False, promised_s=math.inf, at_s=5_000.0), at_s=1_200.0)
    shown = measured.plan(at_s=2_500.0, groups=(group(gang("ns/g", PODS)),), **STARTED)
    assert _between(shown, "other", 60.0, 600.0) == 1
    assert shown["gangsched_start_error_seconds_count{head=first}"] == 0


def test_other_ends() -> None:
    """H15: lost while the group still waits for room, not needed when it is gone."""
    measured = Measured()
    measured.plan(reserved(), at_s=1_100.0)
    shown = measured.plan(at_s=1_200.0, told=Refusal(Reason.UNSCHEDULABLE, Worded("")))
    assert shown["gangsched_reservation_seconds_sum{kind=timed}{result=lost}"] == 100
    measured.plan(reserved(), at_s=1_300.0)
    shown = measured.plan(at_s=1_310.0)
    assert shown["gangsched_reservation_seconds_sum{kind=timed}{result=not_needed}"] == 10


def test_who_passes() -> None:
    """H15: by how it passed."""
    shown = Measured().plan(
        at_s=1_200.0, groups=(group(gang("ns/g", PODS)),), how=How.SHORT, **STARTED
    )
    assert shown["gangsched_backfilled_groups_total{how=short}"] == 1


def test_sizes() -> None:
    """H15: waits are told apart by whether a group takes part of a node, a node or more."""
    for gpus, nodes, size in (
        (4, ("n1",), "part"),
        (8, ("n1",), "node"),
        (4, ("n1", "n1"), "node"),
        (8, ("n1", "n2"), "nodes"),
    ):
        pods = members("g", len(nodes), gpus=gpus, creation_s=1_000)
        binds = tuple(Placement(each, name) for each, name in zip(pods, nodes, strict=True))
        shown = Measured().plan(
            at_s=1_007.0, groups=(group(gang("ns/g", pods)),), **{**STARTED, "binds": binds}
        )
        assert shown[f"gangsched_group_wait_seconds_sum{{size={size}}}"] == 7


def test_names_of_users_make_no_series() -> None:
    """H15: a resource that a tenant or a device plugin made up is no label."""
    assert not any(
        GPU in name or "ns/g" in name for name in Measured().plan(reserved(), at_s=1_100.0)
    )
