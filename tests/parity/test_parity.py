"""A small differential run against the real kube-scheduler; `make parity` is the large one."""

from __future__ import annotations

import pytest
from control_plane import ControlPlane

from tests.parity.compare import by_reason, cases, reasons, run
from tests.parity.generate import case
from tests.parity.kube_scheduler import ADMISSION_OFF

SEED = 20_260


@pytest.mark.e2e
def test_agrees_with_kube_scheduler() -> None:
    """Filter agrees with kube-scheduler: bound or not, our node accepted, the same reasons and
    counts.
    """
    with ControlPlane(scheduler=True, disable_admission=ADMISSION_OFF) as plane:
        figures = run(plane, cases(SEED), 100)
    assert not figures.differences, "\n".join(map(str, figures.differences))
    assert figures.refused > 25
    assert figures.probes - figures.refused > 25


def test_cases_come_from_the_seed() -> None:
    """A difference can be looked at again: same seed, same case."""
    assert vars(case(3, 7).storage) | {"_rng": 0} == vars(case(3, 7).storage) | {"_rng": 0}
    assert case(3, 7).probes == case(3, 7).probes
    assert case(3, 7).nodes != case(4, 7).nodes


def test_only_the_counts_are_compared() -> None:
    """What kube-scheduler adds about preemption is not part of the comparison."""
    first = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    assert reasons(
        f"{first} no new claims to deallocate, preemption: 0/1 nodes are available."
    ) == reasons(first)


def test_reasons_are_counted_one_by_one() -> None:
    """A reason that is given for another number of nodes is seen as such, whatever the other
    reasons say.
    """
    said = by_reason(
        "0/12 nodes are available: 3 Insufficient cpu, 9 node(s) were unschedulable. preemption:"
        " none."
    )
    assert said == {"Insufficient cpu": 3, "node(s) were unschedulable": 9}
    assert by_reason("0/3 nodes are available: pod affinity terms conflict.") == {
        "pod affinity terms conflict": 1
    }
    assert by_reason("no nodes available to schedule pods") == {
        "no nodes available to schedule pods": 1
    }
