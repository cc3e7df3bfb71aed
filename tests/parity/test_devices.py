"""A small live run of single pods with devices; `make parity-devices` is the large one."""

from __future__ import annotations

from contextlib import closing

import pytest
from control_plane import ControlPlane
from control_plane.api import Api
from control_plane.applying import apply_manifests

from tests.parity.devices import SCHEDULERS, Twin, reason, run

FIRST = 70_000


@pytest.mark.e2e
def test_devices_agree_with_kube_scheduler() -> None:
    """Bound or not, the very devices of each claim, and otherwise the reason."""
    with ControlPlane(kcm=True, scheduler=True) as plane:
        with closing(Api.of(plane)) as api:
            apply_manifests(api)
        seeds = [
            seed for seed in range(FIRST, FIRST + 150) if not Twin(seed, SCHEDULERS[0]).is_broken
        ]
        figures = run(plane, seeds)
    assert not figures.differences, "\n".join(figures.differences)
    assert figures.compared > 40
    assert figures.bound > 10


def test_only_the_reason_of_the_own_node_is_compared() -> None:
    """Names of the case, other nodes and what follows the reason are left out; of an error, its
    text is left.
    """
    none = "0/9 nodes are available: "
    others = "8 node(s) didn't match Pod's node affinity/selector"
    assert (
        reason(f"{none}1 cannot allocate all claims, {others}. More.")
        == "cannot allocate all claims"
    )
    ours = (
        f"{none}claim ns/g7-claim0, request r0, selector #0 on device gpu.x/g7-p1/d0: no such key:"
        " link."
    )
    theirs = (
        'running "DynamicResources" filter plugin: claim ns/k7-claim0: CEL runtime error: no such'
        " key: link"
    )
    assert reason(ours) == reason(theirs) == "no such key: link"
