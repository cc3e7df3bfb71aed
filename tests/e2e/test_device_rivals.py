"""Two gangscheds allocate from one pool of devices (A17): no device is in the claims of two bound
pods.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, zip_longest

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.daemon import Daemon
from control_plane.following import Following
from control_plane.pods import nodes_of, refusal

from tests.e2e import test_devices as devices
from tests.e2e.conftest import PODS

pytestmark = pytest.mark.e2e

PLANE = {"kcm": True}
NODES, DEVICES, ROUNDS = 4, 4, 3
ROOM = NODES * DEVICES
WITHIN_S = 60.0
NAMES = ("gangsched", "second")

api = devices.api


def all_at_once(uses: Object, number: int) -> Iterator[Object]:
    """Gangs of two for as many devices as there are, and as many single pods of the other
    scheduler, in turn.
    """
    gangs = [make.gang(f"gang-{number}-{n}", members=2, spec=uses) for n in range(ROOM // 2)]
    others = [
        make.pod(f"single-{number}-{n}", scheduler_name=NAMES[1], spec=uses) for n in range(ROOM)
    ]
    rounds = zip_longest(chain.from_iterable(gangs), others)
    return (body for pair in rounds for body in pair if body is not None)


def owners(api: Api, pods: Following) -> dict[str, list[str]]:
    """By device the bound pods whose claims have it."""
    bound = nodes_of(pods.objects(), "")
    found: dict[str, list[str]] = {}
    for claim in api.list(devices.CLAIMS).items:
        for each in claim.get("status", {}).get("reservedFor") or ():
            if each["name"] in bound:
                for result in devices.results(claim):
                    found.setdefault(f"{result['pool']}/{result['device']}", []).append(
                        each["name"]
                    )
    return found


def wait_full(api: Api, pods: Following) -> None:
    """Until as many pods are bound as there are devices."""
    try:
        pods.wait_for(lambda items: len(nodes_of(items, "")) == ROOM, within_s=WITHIN_S)
    except TimeoutError as error:
        told = {
            item["metadata"]["name"]: " ".join(refusal(item)) for item in pods.objects().values()
        }
        claims = {item["metadata"]["name"]: item for item in api.list(devices.CLAIMS).items}
        raise AssertionError(
            f"bound: {nodes_of(pods.objects(), '')}; {told}; {devices.allocated(claims)}"
        ) from error


def test_no_device_is_in_the_claims_of_two_bound_pods(plane: ControlPlane, api: Api) -> None:
    """Both schedulers want all devices at once; every one is used, each by one pod on its own node,
    until all ran.
    """
    first, second = (
        Daemon(
            plane,
            scheduler_names=(name,),
            extra_args=devices.ALL,
            log_path=plane.logs / f"{name}.log",
        )
        for name in NAMES
    )
    with first, second, Following(api, PODS) as pods:
        for number in range(NODES):
            devices.node(api, f"n{number}", *(devices.gpu(f"g{each}") for each in range(DEVICES)))
        uses = devices.template(api, "some", devices.asks()) | {"terminationGracePeriodSeconds": 0}
        for number in range(ROUNDS):
            make.create_all(api, list(all_at_once(uses, number)), connections=4)
            for left in (2, 1):
                wait_full(api, pods)
                had, nodes = owners(api, pods), nodes_of(pods.objects(), "")
                assert {device: names for device, names in had.items() if len(names) != 1} == {}
                assert len(had) == ROOM
                assert all(
                    nodes[name] == device.partition("/")[0] for device, (name,) in had.items()
                )
                gangs = {name.rpartition("-")[0] for name in nodes if name.startswith("gang-")}
                assert all(f"{gang}-{member}" in nodes for gang in gangs for member in (0, 1))
                assert len(pods.objects()) == left * ROOM
                for name in nodes:
                    api.delete(f"/api/v1/namespaces/default/pods/{name}?gracePeriodSeconds=0")
            pods.wait_for(lambda items: not items, within_s=WITHIN_S, what="no pods")
        yields = [
            each.metrics()['gangsched_volumes_failed_total{part="binds"}']
            for each in (first, second)
        ]
        print(f"binds that failed because of the other scheduler: {yields}")
