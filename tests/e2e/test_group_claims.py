"""Claims of native PodGroups on a real API server: made by its controller, allocated once, freed
with the PodGroup.

CRASH_AFTER and CRASH_TIMES as in `test_device_crash`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

import pytest
import yaml
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.applying import ROOT
from control_plane.daemon import Daemon
from control_plane.following import Following

from tests.e2e import test_device_crash as crash
from tests.e2e import test_devices as devices
from tests.e2e.conftest import PODS, delete_all
from tests.e2e.test_device_crash import AFTER, TIMES, DeadlyForClaims
from tests.e2e.test_native import NATIVE, native_gang
from tests.e2e.test_native import PLANE as NATIVE_PLANE
from tests.faults.proxy import FaultProxy

pytestmark = pytest.mark.e2e

PLANE = NATIVE_PLANE | {"kcm": True}
MEMBERS = 3
#: A finalizer and a status for the claim, and a bind for each member.
WRITES = 2 + MEMBERS
KILLS = (
    [
        pytest.param(number, id=f"{number}-{time}")
        for time in range(TIMES)
        for number in AFTER
        if number <= WRITES
    ]
    if "CRASH_AFTER" in os.environ
    else [1, 2, 4]
)
WITHIN_S = 40.0

devices_api, deadly = devices.api, crash.deadly


@pytest.fixture
def api(devices_api: Api) -> Iterator[Api]:
    """As for devices; leaves no PodGroup behind."""
    yield devices_api
    delete_all(devices_api, PODS, NATIVE)


def gang(name: str, uses: Mapping[str, object], members: int = MEMBERS) -> list[Object]:
    """A native gang whose members use the claims of their PodGroup."""
    group, *pods = native_gang(
        name, members=members, gpus=0, policy={"gang": {"minCount": members}}
    )
    group["spec"] |= uses
    for pod in pods:
        pod["spec"] |= uses
    return [group, *pods]


def only_claim(api: Api) -> Object:
    """The one claim that exists."""
    (claim,) = api.list(devices.CLAIMS).items
    return claim


def reserved_for_the_group(api: Api, name: str, nodes: Mapping[str, str]) -> None:
    """The claim has a device of the node where all pods run, and its only consumer is
    the PodGroup.
    """
    claim, group = (
        only_claim(api),
        api.get(f"{NATIVE.replace('podgroups', 'namespaces/default/podgroups')}/{name}"),
    )
    ((device,),) = devices.allocated({"c": claim}).values()
    assert set(nodes.values()) == {device.partition("/")[0]}
    consumer = {
        "apiGroup": "scheduling.k8s.io",
        "resource": "podgroups",
        "name": name,
        "uid": group["metadata"]["uid"],
    }
    assert claim["status"]["reservedFor"] == [consumer]
    assert devices.FINALIZER in claim["metadata"]["finalizers"]


@pytest.mark.parametrize("made", ["by template", "by name"])
def test_a_claim_of_a_podgroup(plane: ControlPlane, api: Api, made: str) -> None:
    """Scenario 9: reservedFor is the PodGroup, also once a member came later; it frees the devices
    when it goes.
    """
    with Daemon(plane, extra_args=devices.ALL) as daemon, Following(api, PODS) as pods:
        for name in ("n0", "n1"):
            devices.node(api, name, devices.gpu("g0"))
        uses = (devices.template if made == "by template" else devices.direct)(
            api, "common", devices.asks()
        )
        make.create_all(api, gang("g", uses))
        reserved_for_the_group(api, "g", devices.wait_bound(pods, "g-", MEMBERS))
        late = gang("g", uses, MEMBERS + 1)[-1]
        make.create_all(api, [late])
        reserved_for_the_group(api, "g", devices.wait_bound(pods, "g-", MEMBERS + 1))
        assert not [
            line
            for line in daemon.log_lines()
            if line.get("level") in {"warning", "error", "critical"}
        ]
    delete_all(api, PODS)
    # the devices are the PodGroup's, not its pods'
    assert devices.allocated({"c": only_claim(api)})
    delete_all(api, NATIVE)
    with Following(api, devices.CLAIMS) as claims:
        claims.wait_for(
            lambda items: not devices.allocated(items),
            within_s=WITHIN_S,
            what="the end of the allocation",
        )


def test_the_manifest_of_the_guide(plane: ControlPlane, api: Api) -> None:
    """What docs/guides/devices.md shows of a PodGroup with a claim is created as it stands, and
    starts.
    """
    page = (ROOT / "docs" / "guides" / "devices.md").read_text()
    (manifest,) = re.findall(r"(?ms)^```yaml\n(.*?)^```", page)
    selector = {"cel": {"expression": f'device.driver == "{devices.DRIVER}"'}}
    api.post(
        devices.CLASSES,
        devices.resource("DeviceClass", "gpu.example.com", {"selectors": [selector]}),
    )
    with Daemon(plane, extra_args=devices.ALL), Following(api, PODS) as pods:
        for name in ("n0", "n1"):
            devices.node(api, name, devices.gpu("g0"))
        for each in yaml.safe_load_all(manifest):
            api.post(api.path_of(each, namespace="default"), each)
        reserved_for_the_group(api, "many", devices.wait_bound(pods, "many-", 2))
    delete_all(api, "/apis/batch/v1/jobs")


def test_two_groups_have_claims_of_their_own(plane: ControlPlane, api: Api) -> None:
    """One device each; the third group waits, takes nothing, and starts when a PodGroup goes."""
    with Daemon(plane, extra_args=devices.ALL), Following(api, PODS) as pods:
        for name in ("n0", "n1"):
            devices.node(api, name, devices.gpu("g0"))
        uses = devices.template(api, "common", devices.asks())
        make.create_all(api, gang("a", uses) + gang("b", uses))
        nodes = devices.wait_bound(pods, "a-", MEMBERS), devices.wait_bound(pods, "b-", MEMBERS)
        assert {len(set(each.values())) for each in nodes} == {1}
        assert set(nodes[0].values()) != set(nodes[1].values())
        make.create_all(api, gang("c", uses))
        devices.wait_said(pods, "c-0", "")
        for number in range(MEMBERS):
            api.delete(f"/api/v1/namespaces/default/pods/a-{number}?gracePeriodSeconds=0")
        api.delete("/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups/a")
        assert set(devices.wait_bound(pods, "c-", MEMBERS).values()) == set(nodes[0].values())


@pytest.mark.parametrize("number", KILLS)
def test_a_kill_after_any_write_for_a_claim_of_a_podgroup(
    plane: ControlPlane, api: Api, deadly: tuple[FaultProxy, DeadlyForClaims], number: int
) -> None:
    """A21: the gang starts whole on the node of its one device, which the PodGroup has."""
    proxy, rule = deadly
    with Following(api, PODS) as pods:
        daemon = Daemon(plane, url=proxy.url, extra_args=devices.ALL)
        daemon.start()
        try:
            for name in ("n0", "n1"):
                devices.node(api, name, devices.gpu("g0"))
            uses = devices.template(api, "common", devices.asks())
            rule.kill_after(number, api, gang("g", uses), daemon, proxy)
            daemon.start()
            reserved_for_the_group(api, "g", devices.wait_bound(pods, "g-", MEMBERS))
            assert daemon.complaints() == []
        finally:
            daemon.kill()
