"""Plain pods behind a Service are spread; a Service is created, changed and deleted, and may not be
read at all.

Pods and Services come by two watches, so that a pod may be read before a Service that was created
earlier. Therefore pods are created again until they go where the Services say, which they must
within seconds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import count
from typing import Final

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.daemon import Daemon
from control_plane.following import Following

pytestmark = pytest.mark.e2e

PODS: Final = "/api/v1/namespaces/default/pods"
SERVICES: Final = "/api/v1/namespaces/default/services"
ROLE: Final = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gangsched"
WITHIN_S: Final = 20.0
NODES: Final = 3

_numbers = count(1)


def create_nodes(api: Api) -> None:
    """Three nodes in two zones."""
    for number in range(NODES):
        zone = {"topology.kubernetes.io/zone": "ab"[number % 2]}
        api.post("/api/v1/nodes", make.node(f"n{number}", gpus=0, labels=zone))


def apply_service(api: Api, **selector: str | None) -> None:
    """The one Service, which selects these pods; None takes a label out."""
    if not api.list(SERVICES, labelSelector="test=spread").items:
        body = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "s", "labels": {"test": "spread"}},
            "spec": {
                "clusterIP": "None",
                "selector": {key: value for key, value in selector.items() if value},
            },
        }
        api.post(SERVICES, body)
    else:
        api.patch(f"{SERVICES}/s", {"spec": {"selector": selector}})


def used(api: Api, pods: Following, **labels: str) -> int:
    """How many nodes as many new pods with these labels are bound to; afterwards they are gone."""
    names = {f"p{next(_numbers)}" for _ in range(NODES)}
    make.create_all(api, [make.pod(name, gpus=0, labels=labels) for name in sorted(names)])

    def where(items: Mapping[str, Object]) -> set[str] | None:
        ours = [
            each["spec"].get("nodeName", "")
            for each in items.values()
            if each["metadata"]["name"] in names
        ]
        return set(ours) if len(ours) == NODES and all(ours) else None

    found = pods.wait_for(where, within_s=WITHIN_S, what=f"{sorted(names)} to be bound")
    for name in names:
        api.delete(f"{PODS}/{name}")
    pods.wait_for(
        lambda items: names.isdisjoint(each["metadata"]["name"] for each in items.values()),
        within_s=WITHIN_S,
        what=f"{sorted(names)} to be gone",
    )
    return len(found)


def until_used(api: Api, pods: Following, nodes: int, **labels: str) -> None:
    """New pods with these labels go to that many nodes, sooner or later."""
    deadline_s = time.monotonic() + WITHIN_S
    while (found := used(api, pods, **labels)) != nodes:
        assert time.monotonic() < deadline_s, (
            f"pods with {labels} use {found} nodes and not {nodes}"
        )


def test_services_that_come_change_and_go(plane: ControlPlane, api: Api) -> None:
    create_nodes(api)
    try:
        with Daemon(plane) as daemon, Following(api, PODS) as pods:
            assert used(api, pods, app="web") == 1
            apply_service(api, app="web")
            until_used(api, pods, NODES, app="web", tier="front")
            assert used(api, pods, app="api") == 1
            apply_service(api, app="api")
            until_used(api, pods, NODES, app="api")
            until_used(api, pods, 1, app="web", tier="front")
            api.delete(f"{SERVICES}/s")
            until_used(api, pods, 1, app="api")
            assert daemon.complaints() == []
            daemon.kill()
            apply_service(api, app="web")
            daemon.start()
            # what is there at the start is read before anything is decided
            assert used(api, pods, app="web") == NODES
    finally:
        api.delete(f"{SERVICES}/s")


def test_without_the_right_it_is_said_once_and_nothing_is_spread(
    plane: ControlPlane, api: Api
) -> None:
    """A role from before Services were read is enough to run, and one that is extended meanwhile is
    noticed.
    """
    create_nodes(api)
    role = api.get(ROLE)
    api.patch(
        ROLE, {"rules": [rule for rule in role["rules"] if "services" not in rule["resources"]]}
    )
    try:
        apply_service(api, app="web")
        with Daemon(plane) as daemon, Following(api, PODS) as pods:
            until_used(api, pods, 1, app="web")
            said = [
                line["event"] for line in daemon.log_lines() if "services" in line.get("event", "")
            ]
            assert len(said) == 1
            assert said[0].startswith("Cannot follow services")
            assert "apply manifests/rbac.yaml" in said[0]
            assert said[0].endswith(
                "until then pods behind Services are packed unless a controller replicates them."
            )
            api.patch(ROLE, {"rules": role["rules"]})
            until_used(api, pods, NODES, app="web")
    finally:
        api.patch(ROLE, {"rules": role["rules"]})
        api.delete(f"{SERVICES}/s")


def test_nothing_is_read_of_services_where_pods_are_packed(plane: ControlPlane, api: Api) -> None:
    create_nodes(api)
    apply_service(api, app="web")
    try:
        with (
            Daemon(plane, extra_args=("--plain-replicas", "pack")) as daemon,
            Following(api, PODS) as pods,
        ):
            assert used(api, pods, app="web") == 1
            assert "services" not in daemon.http("/metrics")[1]
    finally:
        api.delete(f"{SERVICES}/s")
