"""A scheduler that is killed -9 after any write for a gang with devices, and the one that follows
it (A21).

`make crashes` kills after each of the writes, `make device-kills` after each of them four times,
here and in `test_device_pools` and `test_group_claims`; otherwise a few are tried:
CRASH_AFTER=1,2,3, each CRASH_TIMES=1 times.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api
from control_plane.daemon import Daemon
from control_plane.following import Following

from tests.e2e import test_devices as devices
from tests.e2e import test_extended_resources as extended
from tests.e2e.conftest import PODS
from tests.e2e.test_preemption_crash import Deadly
from tests.faults.proxy import FaultProxy
from tests.faults.requests import ApiRequest

pytestmark = pytest.mark.e2e

PLANE = {"kcm": True}
MEMBERS = 3
#: A finalizer, a status and a bind for each member.
WRITES = 3 * MEMBERS
#: A finalizer and a status for all; a reservation for each but the first, and a bind for each.
SHARED_WRITES = 2 + 2 * MEMBERS - 1
#: A claim, its status, the pod's status and a bind for each member.
EXTENDED_WRITES = 4 * MEMBERS
SHORT = "2,6,8"
NUMBERS = [*map(int, os.environ.get("CRASH_AFTER", SHORT).split(","))]
AFTER = [number for number in NUMBERS if number <= WRITES]
TIMES = int(os.environ.get("CRASH_TIMES", "1"))
CASES = [
    pytest.param(
        number, fits, id=f"{number}-{'it fits still' if fits else 'its node is closed'}-{time}"
    )
    for time in range(TIMES)
    for number in AFTER
    for fits in (True, False)
    if fits or number <= 2 * MEMBERS  # a bound pod stays where it is
]
KILLS_SHARED = [
    pytest.param(number, id=f"{number}-{time}")
    for time in range(TIMES)
    for number in AFTER
    if number <= SHARED_WRITES
]
EXTENDED = [
    pytest.param(
        number, fits, id=f"{number}-{'it fits still' if fits else 'its node is closed'}-{time}"
    )
    for time in range(TIMES)
    for number in NUMBERS
    for fits in (True, False)
    if number <= (EXTENDED_WRITES if fits else 3 * MEMBERS)
]
WITHIN_S = 40.0

api = devices.api


class DeadlyForClaims(Deadly):
    """Counts writes to claims, too."""

    def fault_for(self, request: ApiRequest) -> Deadly | None:
        """Itself for every write of a start, and for every one of a dead scheduler."""
        is_claim = request.resource == "resourceclaims" and request.verb in {
            "create",
            "patch",
            "delete",
        }
        return self if is_claim else super().fault_for(request)


@pytest.fixture
def deadly(plane: ControlPlane) -> Iterator[tuple[FaultProxy, DeadlyForClaims]]:
    """A proxy that lets so many writes pass as a test says."""
    rule = DeadlyForClaims(faults=(), writes_left=10**6, within_s=WITHIN_S)
    with FaultProxy(plane) as proxy:
        proxy.rules.append(rule)
        yield proxy, rule


@pytest.mark.parametrize(("number", "fits"), CASES)
def test_a_kill_after_any_write_leaves_nothing_half(
    plane: ControlPlane,
    api: Api,
    deadly: tuple[FaultProxy, DeadlyForClaims],
    number: int,
    *,
    fits: bool,
) -> None:
    """The gang starts whole, each member with one device of its own node, and no device is taken by
    nobody.
    """
    proxy, rule = deadly
    with Following(api, PODS) as pods:
        daemon = Daemon(plane, url=proxy.url, extra_args=devices.ALL)
        daemon.start()
        try:
            devices.node(api, "n0", *(devices.gpu(f"g{each}") for each in range(MEMBERS)))
            uses = devices.template(api, "some", devices.asks())
            rule.kill_after(number, api, make.gang("g", members=MEMBERS, spec=uses), daemon, proxy)
            if not fits:
                api.patch("/api/v1/nodes/n0", {"spec": {"unschedulable": True}})
                devices.node(api, "n1", *(devices.gpu(f"g{each}") for each in range(MEMBERS)))
            daemon.start()
            nodes = devices.wait_bound(pods, "g-", MEMBERS)
            assert set(nodes.values()) == {"n0" if fits else "n1"}
            devices.one_each(api, MEMBERS)
            assert daemon.complaints() == []
        finally:
            daemon.kill()


@pytest.mark.parametrize("number", KILLS_SHARED)
def test_a_kill_after_any_write_for_a_claim_that_all_share(
    plane: ControlPlane, api: Api, deadly: tuple[FaultProxy, DeadlyForClaims], number: int
) -> None:
    """A13: the gang starts whole on the node of its one device, and each member is a consumer of
    its claim.
    """
    proxy, rule = deadly
    with Following(api, PODS) as pods:
        daemon = Daemon(plane, url=proxy.url, extra_args=devices.ALL)
        daemon.start()
        try:
            for name in ("n0", "n1"):
                devices.node(api, name, devices.gpu("g0"))
            uses = devices.direct(api, "common", devices.asks())
            rule.kill_after(number, api, make.gang("g", members=MEMBERS, spec=uses), daemon, proxy)
            daemon.start()
            nodes = devices.wait_bound(pods, "g-", MEMBERS)
            devices.all_share(api, "common", nodes)
            assert daemon.complaints() == []
        finally:
            daemon.kill()


@pytest.mark.parametrize(("number", "fits"), EXTENDED)
def test_a_kill_after_any_write_for_extended_resources(
    plane: ControlPlane,
    api: Api,
    deadly: tuple[FaultProxy, DeadlyForClaims],
    number: int,
    *,
    fits: bool,
) -> None:
    """A6: the gang starts whole, and each member has one claim, which its status names; none is
    left over.
    """
    proxy, rule = deadly
    serving = {
        "extendedResourceName": extended.NAME,
        "selectors": [devices.having("model", "h100")["selectors"][0]],
    }
    api.post(devices.CLASSES, devices.resource("DeviceClass", "served", serving))
    of_node = [devices.gpu(f"g{each}", model="h100") for each in range(MEMBERS)]
    with Following(api, PODS) as pods, Following(api, devices.CLAIMS) as claims:
        daemon = Daemon(plane, url=proxy.url, extra_args=devices.ALL)
        daemon.start()
        try:
            devices.node(api, "n0", *of_node)
            rule.kill_after(
                number, api, make.gang("g", members=MEMBERS, spec=extended.wants(1)), daemon, proxy
            )
            if not fits:
                api.patch("/api/v1/nodes/n0", {"spec": {"unschedulable": True}})
                devices.node(api, "n1", *of_node)
            daemon.start()
            nodes = devices.wait_bound(pods, "g-", MEMBERS)
            assert set(nodes.values()) == {"n0" if fits else "n1"}
            devices.one_each(api, MEMBERS)
            made = {item["metadata"]["name"] for item in claims.objects().values()}
            assert made == set(extended.claims_of(pods.objects()).values())
            assert len(made) == MEMBERS
            assert daemon.complaints() == []
        finally:
            daemon.kill()
