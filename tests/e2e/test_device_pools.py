"""Pools of devices that several nodes reach, on a real API server: network devices of a zone, or of
the whole cluster.

CRASH_AFTER and CRASH_TIMES as in `test_device_crash`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.daemon import Daemon
from control_plane.following import Following

from tests.e2e import test_device_crash as crash
from tests.e2e import test_devices as devices
from tests.e2e import test_extended_resources as extended
from tests.e2e.conftest import PODS
from tests.e2e.test_device_crash import KILLS_SHARED, SHARED_WRITES, DeadlyForClaims
from tests.faults.proxy import FaultProxy

pytestmark = pytest.mark.e2e

PLANE = {"kcm": True}
ZONE = "topology.kubernetes.io/zone"
MEMBERS = 3

api, deadly = devices.api, crash.deadly


def pool(api: Api, name: str, *own: Mapping[str, Any], zone: str = "") -> None:
    """A pool of the nodes of a zone, or of all nodes."""
    spec: Object = {
        "driver": devices.DRIVER,
        "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
    }
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    spec |= {"nodeSelector": {"nodeSelectorTerms": [term]}} if zone else {"allNodes": True}
    api.post(
        devices.SLICES, devices.resource("ResourceSlice", name, {**spec, "devices": list(own)})
    )


def nodes(api: Api, *zones: str, cpu: str = "4") -> None:
    """A node of each zone: `a0`, `b1` …"""
    make.create_all(
        api,
        [
            make.node(f"{zone}{at}", gpus=0, cpu=cpu, labels={ZONE: zone})
            for at, zone in enumerate(zones)
        ],
    )


def test_one_claim_of_a_pool_of_a_zone(plane: ControlPlane, api: Api) -> None:
    """A13, scenario 7: one allocation, all members are its consumers, on several nodes of the zone
    and on no other.
    """
    with Daemon(plane, extra_args=devices.ALL), Following(api, PODS) as pods:
        nodes(api, "b", "a", "b", "a", "a", "b")
        pool(api, "net", devices.gpu("g0"), zone="a")
        uses = devices.direct(api, "common", devices.asks())
        make.create_all(api, make.gang("g", members=MEMBERS, spec=uses, cpu="3"))
        found = devices.wait_bound(pods, "g-", MEMBERS)
        assert {*found.values()} == {"a1", "a3", "a4"}
        claim = api.get(f"{devices.HERE}/resourceclaims/common")
        assert devices.allocated({"common": claim}) == {"common": ["net/g0"]}
        assert {each["name"] for each in claim["status"]["reservedFor"]} == {*found}
        (term,) = claim["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"]
        assert term == {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a"]}]}
        late = make.pod("g-late", gang="g", spec=uses, cpu="1")
        make.create_all(api, [late])
        assert devices.wait_bound(pods, "g-", MEMBERS + 1)["g-late"][0] == "a"


def test_devices_of_all_nodes_are_taken_once(plane: ControlPlane, api: Api) -> None:
    """A9: two gangs share four devices; a third waits, and starts when a driver publishes more."""
    with Daemon(plane, extra_args=devices.ALL), Following(api, PODS) as pods:
        nodes(api, "a", "a", "b", "b")
        pool(api, "net", *(devices.gpu(f"g{at}") for at in range(4)))
        uses = devices.template(api, "some", devices.asks())
        make.create_all(
            api,
            make.gang("g", members=2, spec=uses, cpu="3")
            + make.gang("h", members=2, spec=uses, cpu="1"),
        )
        devices.wait_bound(pods, "g-", 2)
        devices.wait_bound(pods, "h-", 2)
        devices.one_each(api, 4)
        claims = {item["metadata"]["name"]: item for item in api.list(devices.CLAIMS).items}
        assert not any(
            "nodeSelector" in claims[name]["status"]["allocation"]
            for name in devices.allocated(claims)
        )
        make.create_all(api, make.gang("late", members=2, spec=uses, cpu="1"))
        devices.wait_told(api, "late", "cannot allocate all claims")
        pool(api, "more", *(devices.gpu(f"g{at}") for at in range(2)), zone="b")
        assert {each[0] for each in devices.wait_bound(pods, "late-", 2).values()} == {"b"}
        devices.one_each(api, 6)
        for name in ("g-0", "g-1"):
            api.delete(f"/api/v1/namespaces/default/pods/{name}?gracePeriodSeconds=0")
        make.create_all(api, make.gang("last", members=2, spec=uses, cpu="1"))
        devices.wait_bound(pods, "last-", 2)
        devices.one_each(api, 6)


def test_devices_of_nodes_and_of_a_pool_in_one_claim(plane: ControlPlane, api: Api) -> None:
    """Each member has a device of its node and one of the zone; the claim keeps to the node."""
    spec = {
        "devices": {
            "requests": [
                {
                    "name": name,
                    "exactly": {"deviceClassName": "gpu", **devices.having("kind", name)},
                }
                for name in ("gpu", "nic")
            ]
        }
    }
    with Daemon(plane, extra_args=devices.ALL), Following(api, PODS) as pods:
        for at in range(2):
            devices.node(api, f"n{at}", devices.gpu("g0", kind="gpu"))
        pool(api, "net", devices.gpu("x0", kind="nic"), devices.gpu("x1", kind="nic"))
        uses = devices.template(api, "both", spec)
        make.create_all(api, make.gang("g", members=2, spec=uses))
        assert {*devices.wait_bound(pods, "g-", 2).values()} == {"n0", "n1"}
        claims = {each["metadata"]["name"]: each for each in api.list(devices.CLAIMS).items}
        had = [each for own in devices.allocated(claims).values() for each in own]
        assert sorted(had) == ["n0/g0", "n1/g0", "net/x0", "net/x1"]


def test_extended_resources_of_a_pool(plane: ControlPlane, api: Api) -> None:
    """A6: nodes that a pool reaches serve them, and no others; what waits starts when a driver
    publishes more.
    """
    serving = {
        "extendedResourceName": extended.NAME,
        "selectors": devices.having("kind", "nic")["selectors"],
    }
    api.post(devices.CLASSES, devices.resource("DeviceClass", "served", serving))
    with Daemon(plane, extra_args=devices.ALL), Following(api, PODS) as pods:
        nodes(api, "b", "a", "a")
        pool(api, "net", devices.gpu("x0", kind="nic"), devices.gpu("x1", kind="nic"), zone="a")
        wants = extended.wants(1)
        wants["containers"][0]["resources"]["requests"]["cpu"] = "3"
        make.create_all(api, make.gang("g", members=2, spec=wants))
        assert {*devices.wait_bound(pods, "g-", 2).values()} == {"a1", "a2"}
        devices.one_each(api, 2)
        claim, _ = api.list(devices.CLAIMS).items
        (term,) = claim["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"]
        assert term == {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a"]}]}
        make.create_all(api, make.gang("late", members=1, spec=wants))
        devices.wait_told(api, "late", "cannot allocate all claims")
        pool(api, "more", devices.gpu("x0", kind="nic"))
        assert devices.wait_bound(pods, "late-", 1) == {"late-0": "b0"}
        devices.one_each(api, 3)


@pytest.mark.parametrize("number", KILLS_SHARED)
def test_a_kill_after_any_write_for_a_claim_of_a_pool(
    plane: ControlPlane, api: Api, deadly: tuple[FaultProxy, DeadlyForClaims], number: int
) -> None:
    """A21: the gang starts whole in the zone of its one device, and each member is a consumer of
    its claim.
    """
    assert number <= SHARED_WRITES
    proxy, rule = deadly
    with Following(api, PODS) as pods:
        daemon = Daemon(plane, url=proxy.url, extra_args=devices.ALL)
        daemon.start()
        try:
            nodes(api, "b", "a", "a", "a")
            for zone in "ab":
                pool(api, f"net-{zone}", devices.gpu("g0"), zone=zone)
            uses = devices.direct(api, "common", devices.asks())
            rule.kill_after(
                number, api, make.gang("g", members=MEMBERS, spec=uses, cpu="3"), daemon, proxy
            )
            daemon.start()
            found = devices.wait_bound(pods, "g-", MEMBERS)
            assert {*found.values()} == {"a1", "a2", "a3"}
            claim = api.get(f"{devices.HERE}/resourceclaims/common")
            assert {each["name"] for each in claim["status"]["reservedFor"]} == {*found}
            assert daemon.complaints() == []
        finally:
            daemon.kill()
