"""The comparison of gangs with devices: what it draws fits, and what does not fit it
never draws.
"""

from __future__ import annotations

import random

import pytest

from bench.device_gangs import (
    Ask,
    Device,
    Gang,
    drawn,
    fits,
    gang_bodies,
    half_and_half,
    node_bodies,
    parted,
    sharing,
)

ANY, A, B = Ask(("",)), Ask(("a",)), Ask(("b",))
PLAIN = (Device("g0", "a"), Device("g1", "b"))


@pytest.mark.parametrize(
    ("nodes", "members", "expected"),
    [
        ((PLAIN,), (ANY, A), True),
        ((PLAIN,), (ANY, A, B), False),
        ((PLAIN, PLAIN), (A, A), True),
        ((PLAIN,), (A, A), False),
        ((PLAIN,), (Ask(("",), 2),), True),
        ((PLAIN,), (Ask(("a",), 2),), False),
        ((parted(),), (Ask(("whole",)), Ask(("half",))), False),
        ((parted(),), (Ask(("half",)), Ask(("whole", "half"))), True),
        ((parted(),), (Ask(("half",)),) * 3, False),
    ],
)
def test_brute_force(
    nodes: tuple[tuple[Device, ...], ...], members: tuple[Ask, ...], expected: bool
) -> None:
    """Devices are taken once, and parts of one share its memory."""
    assert fits(Gang("", nodes, members)) is expected


def test_only_what_fits_is_drawn() -> None:
    """The known gang, and every random one."""
    rng = random.Random(1)
    assert all(map(fits, (half_and_half(), *(drawn(rng) for _ in range(50)))))


def test_objects_of_a_gang() -> None:
    """A PodGroup that needs all members; a template and a pod for each, and slices that name what
    parts share.
    """
    group, *rest = gang_bodies("x", half_and_half(), "second")
    assert group["spec"] == {"schedulingPolicy": {"gang": {"minCount": 2}}}
    assert [body["kind"] for body in rest] == ["ResourceClaimTemplate", "Pod"] * 2
    assert rest[1]["spec"]["resourceClaims"] == [
        {"name": "gpu", "resourceClaimTemplateName": "x-0"}
    ]
    kinds = [body["kind"] for body in gang_bodies("y", sharing(), "second")]
    assert kinds == ["PodGroup", "ResourceClaim", "Pod", "Pod", "Pod"]
    _, devices, shared = node_bodies("n", "x", parted())
    assert {each["spec"]["pool"]["resourceSliceCount"] for each in (devices, shared)} == {2}
    assert shared["spec"]["sharedCounters"][0]["counters"] == {"mem": {"value": "80"}}
