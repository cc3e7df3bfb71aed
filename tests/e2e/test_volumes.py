"""Gangs with volumes on a real API server: its own controller binds claims, the test stands in for
a provisioner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.daemon import Daemon
from control_plane.following import Following
from control_plane.pods import nodes_of, refusal

from tests.e2e.conftest import PODS, delete_all

pytestmark = pytest.mark.e2e

CLAIMS = "/api/v1/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
DEVICES = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gangsched"
SELECTED = "volume.kubernetes.io/selected-node"
PROVISIONER = "csi.test"
ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
POD_GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"
WITHIN_S = 20.0
PLANE = {"kcm": True}


@pytest.fixture
def api(plane: ControlPlane) -> Iterator[Api]:
    """An administrator's client with the classes `late` and `now`; leaves no pod, claim, volume or
    node behind.
    """
    api = Api.of(plane)
    make.create_all(api, [storage_class("late"), storage_class("now", waits=False)])
    yield api
    delete_all(api, PODS, POD_GROUPS, CLAIMS, VOLUMES, CLASSES, "/api/v1/nodes")
    with Following(api, CLAIMS) as claims, Following(api, VOLUMES) as volumes:
        for collection in (claims, volumes):
            collection.wait_for(
                lambda items: not items, within_s=WITHIN_S, what="the end of protection"
            )
    api.close()


# --- objects ------------------------------------------------------------------------------------


def storage_class(name: str, *, provisioner: str = PROVISIONER, waits: bool = True) -> Object:
    """A class whose claims wait for their first consumer, or do not."""
    mode = "WaitForFirstConsumer" if waits else "Immediate"
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
    }


def claim(name: str, storage: str = "late", *, volume: str = "") -> Object:
    """A claim of one GiB."""
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    if volume:
        spec["volumeName"] = volume
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": spec,
    }


def volume(
    name: str,
    storage: str = "late",
    *,
    key: str = ZONE,
    value: str = "",
    owner: Object | None = None,
) -> Object:
    """A volume of one GiB, within reach of the nodes whose label `key` is `value`; `owner` is the
    claim it is for.
    """
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage,
        "capacity": {"storage": "1Gi"},
        "csi": {"driver": PROVISIONER, "volumeHandle": name},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    if value:
        here = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [here]}}
    if owner is not None:
        meta = owner["metadata"]
        spec["claimRef"] = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": meta.get("namespace", "default"),
            "name": meta["name"],
            **({"uid": meta["uid"]} if "uid" in meta else {}),
        }
    labels = {ZONE: value} if value and key == ZONE else {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
    }


def gang(name: str, *claims: str, gpus: int = 1) -> list[Object]:
    """A gang of one member a claim."""
    volumes = [[{"name": "data", "persistentVolumeClaim": {"claimName": each}}] for each in claims]
    return [
        make.pod_group(name, min_member=len(claims)),
        *(
            make.pod(f"{name}-{index}", gang=name, gpus=gpus, spec={"volumes": each})
            for index, each in enumerate(volumes)
        ),
    ]


def zones(api: Api, **zone_of: str) -> None:
    """Nodes of 4 GPUs, each in a zone."""
    make.create_all(
        api, [make.node(name, gpus=4, labels={ZONE: zone}) for name, zone in zone_of.items()]
    )


# --- what is looked at --------------------------------------------------------------------------


def wait_bound(pods: Following, gang: str, members: int) -> dict[str, str]:
    """Where the members of a gang are, once all of them are bound."""
    pods.wait_for(
        lambda items: len(nodes_of(items, f"{gang}-")) == members,
        within_s=WITHIN_S,
        what=f"all of {gang}",
    )
    return nodes_of(pods.objects(), f"{gang}-")


def wait_said(pods: Following, name: str, fragment: str) -> None:
    """Until the condition of a pod says this."""
    pods.wait_for(
        lambda items: any(
            fragment in refusal(pod)[1] for pod in items.values() if pod["metadata"]["name"] == name
        ),
        within_s=WITHIN_S,
        what=f"{name} saying {fragment!r}",
    )


def wait_told(api: Api, gang: str, fragment: str) -> None:
    """Until a condition of a gang's PodGroup says this: facts that move are told there."""
    with Following(api, POD_GROUPS) as seen:
        seen.wait_for(
            lambda items: any(
                fragment in condition["message"]
                for item in items.values()
                if item["metadata"]["name"] == gang
                for condition in item.get("status", {}).get("conditions", ())
            ),
            within_s=WITHIN_S,
            what=f"PodGroup {gang} saying {fragment!r}",
        )


def selected(claims: Mapping[str, Object]) -> dict[str, str]:
    """The nodes selected for claims, by the claim's name."""
    notes = {
        item["metadata"]["name"]: item["metadata"].get("annotations", {})
        for item in claims.values()
    }
    return {name: note[SELECTED] for name, note in notes.items() if SELECTED in note}


def wait_selected(claims: Following, number: int) -> dict[str, str]:
    """The nodes selected for claims, once there are so many."""
    claims.wait_for(
        lambda items: len(selected(items)) == number,
        within_s=WITHIN_S,
        what=f"{number} selected nodes",
    )
    return selected(claims.objects())


def wait_event(api: Api, fragment: str) -> None:
    """Until an Event FailedBinding says this."""
    with Following(api, "/apis/events.k8s.io/v1/events") as seen:
        seen.wait_for(
            lambda items: any(
                e["reason"] == "FailedBinding" and fragment in e["note"] for e in items.values()
            ),
            within_s=WITHIN_S,
            what=f"an Event that says {fragment!r}",
        )


@contextmanager
def provisioning(api: Api, *, gives_up_on: str = "", but: str = "") -> Iterator[None]:
    """As an external provisioner: volumes in the selected node's zone, none for `but`; gives up
    once on one claim.
    """
    given_up: list[str] = []

    def heard(kind: str, item: Object, seen_s: float) -> None:
        meta, name = item["metadata"], item["metadata"]["name"]
        notes = meta.get("annotations", {})
        ours = (
            notes.get("volume.kubernetes.io/storage-provisioner") == PROVISIONER
            and SELECTED in notes
        )
        if kind == "DELETED" or not ours or item["spec"].get("volumeName") or name == but:
            return
        if name == gives_up_on and not given_up:
            given_up.append(name)
            path = f"/api/v1/namespaces/default/persistentvolumeclaims/{name}"
            api.patch(path, {"metadata": {"annotations": {SELECTED: None}}})
            return
        zone = api.get(f"/api/v1/nodes/{notes[SELECTED]}")["metadata"]["labels"][ZONE]
        made = f"pvc-{meta['uid']}"
        if made not in {each["metadata"]["name"] for each in api.list(VOLUMES).items}:
            api.post(VOLUMES, volume(made, value=zone, owner=item))

    with Following(api, CLAIMS, on_change=heard):
        yield


# --- tests --------------------------------------------------------------------------------------


def test_claims_that_wait_for_their_first_consumer(plane: ControlPlane, api: Api) -> None:
    """No volume is asked for before the whole gang has nodes; then each member gets one where it
    runs.
    """
    zones(api, a0="a", b0="b")
    make.create_all(api, [claim(f"c{index}") for index in range(3)])
    with (
        Daemon(plane),
        provisioning(api),
        Following(api, PODS) as pods,
        Following(api, CLAIMS) as claims,
    ):
        make.create_all(api, gang("big", "c0", "c1", "c2", gpus=4))
        wait_said(pods, "big-0", "needs 3 pods")
        wait_told(api, "big", "hold 2 even when empty")
        assert selected(claims.objects()) == {}
        zones(api, b1="b")
        nodes = wait_bound(pods, "big", 3)
        assert set(nodes.values()) == {"a0", "b0", "b1"}
        assert selected(claims.objects()) == {
            f"c{index}": nodes[f"big-{index}"] for index in range(3)
        }
        zone_of = {
            item["spec"]["claimRef"]["name"]: item["metadata"]["labels"][ZONE]
            for item in api.list(VOLUMES).items
        }
        assert zone_of == {f"c{index}": nodes[f"big-{index}"][0] for index in range(3)}


def test_volumes_of_a_zone(plane: ControlPlane, api: Api) -> None:
    """A gang whose volumes lie in one zone starts there, and not before there is room for all of it
    there.
    """
    zones(api, a0="a", a1="a", b0="b")
    make.create_all(
        api, [volume(f"v{index}", value="b", owner=claim(f"c{index}")) for index in range(2)]
    )
    make.create_all(api, [claim(f"c{index}", volume=f"v{index}") for index in range(2)])
    with Daemon(plane), Following(api, PODS) as pods:
        make.create_all(api, gang("zonal", "c0", "c1", gpus=4))
        wait_told(api, "zonal", "2 node(s) didn't match PersistentVolume's node affinity")
        assert nodes_of(pods.objects(), "zonal-") == {}
        zones(api, b1="b")
        assert set(wait_bound(pods, "zonal", 2).values()) == {"b0", "b1"}


def test_unbound_claims_are_waited_for(plane: ControlPlane, api: Api) -> None:
    """Missing, then unbound: told in kube-scheduler's words; the gang starts once its claims are
    bound.
    """
    zones(api, a0="a")
    with Daemon(plane), Following(api, PODS) as pods:
        make.create_all(api, gang("patient", "c0", "c1"))
        wait_said(pods, "patient-1", 'persistentvolumeclaim "c0" not found')
        make.create_all(api, [claim("c0", "now"), claim("c1", "now")])
        wait_said(pods, "patient-1", "pod has unbound immediate PersistentVolumeClaims")
        for item in api.list(CLAIMS).items:
            api.post(VOLUMES, volume(f"for-{item['metadata']['name']}", "now", owner=item))
        assert set(wait_bound(pods, "patient", 2).values()) == {"a0"}


def test_existing_volumes(plane: ControlPlane, api: Api) -> None:
    """Local volumes that nobody provisions are each kept for one member, on the node where they
    are.
    """
    zones(api, a0="a", b0="b")
    make.create_all(api, [storage_class("local", provisioner="kubernetes.io/no-provisioner")])
    make.create_all(
        api, [volume(f"disk-{node}", "local", key=HOST, value=node) for node in ("a0", "b0")]
    )
    make.create_all(api, [claim(f"c{index}", "local") for index in range(2)])
    with Daemon(plane), Following(api, PODS) as pods, Following(api, VOLUMES) as volumes:
        volumes.wait_for(
            lambda items: all(
                item["status"].get("phase") == "Available" for item in items.values()
            ),
            within_s=WITHIN_S,
            what="available volumes",
        )
        make.create_all(api, gang("local", "c0", "c1"))
        nodes = wait_bound(pods, "local", 2)
        kept = {
            item["metadata"]["name"]: item["spec"]["claimRef"]["name"]
            for item in api.list(VOLUMES).items
        }
        assert kept == {f"disk-{nodes[f'local-{index}']}": f"c{index}" for index in range(2)}


def test_a_provisioner_that_gives_up_once(plane: ControlPlane, api: Api) -> None:
    """The member is tried again, with an Event; the gang is complete in the end."""
    zones(api, a0="a", b0="b")
    make.create_all(api, [claim("c0"), claim("c1")])
    with Daemon(plane), provisioning(api, gives_up_on="c1"), Following(api, PODS) as pods:
        make.create_all(api, gang("retried", "c0", "c1", gpus=4))
        assert set(wait_bound(pods, "retried", 2).values()) == {"a0", "b0"}
        wait_event(api, 'provisioning failed for PVC "c1"')


def wait_claims_bound(claims: Following, *names: str) -> None:
    """Until these claims are bound."""
    claims.wait_for(
        lambda items: (
            {i["metadata"]["name"] for i in items.values() if i["status"].get("phase") == "Bound"}
            >= {*names}
        ),
        within_s=WITHIN_S,
        what=f"{names} bound",
    )


def test_nobody_is_bound_before_the_last_volume(plane: ControlPlane, api: Api) -> None:
    """B7: two of three volumes are made; nobody is bound, also after a kill between claims and
    binds; then all are.

    The gang is one of a group of two, and the other, which has no volumes, waits with it.
    """
    zones(api, a0="a", b0="b", c0="c")
    make.create_all(api, [claim(f"c{index}") for index in range(3)])
    notes = {"gang.scheduling.koordinator.sh/groups": '["default/whole", "default/other"]'}
    whole, other = gang("whole", "c0", "c1", "c2"), make.gang("other", members=2, gpus=1)
    for body in (*whole, *other):
        body["metadata"].setdefault("annotations", {}).update(notes)
    with Following(api, PODS) as pods, Following(api, CLAIMS) as claims:
        with provisioning(api, but="c2"):
            daemon = Daemon(plane)
            daemon.start()
            make.create_all(api, [*whole, *other])
            wait_claims_bound(claims, "c0", "c1")
            make.create_all(api, make.gang("later", members=2))
            # the daemon has had turns enough to bind those whose volumes are there
            wait_bound(pods, "later", 2)
            assert (nodes_of(pods.objects(), "whole-"), nodes_of(pods.objects(), "other-")) == (
                {},
                {},
            )
            daemon.kill()
        with Daemon(plane):
            make.create_all(api, make.gang("last", members=2))
            wait_bound(pods, "last", 2)
            assert (nodes_of(pods.objects(), "whole-"), nodes_of(pods.objects(), "other-")) == (
                {},
                {},
            )
            with provisioning(api):
                wait_bound(pods, "whole", 3)
                wait_bound(pods, "other", 2)


def test_killed_while_volumes_are_made(plane: ControlPlane, api: Api) -> None:
    """After kill -9 a restart completes the gang on the nodes that were selected; others do not
    take its room.
    """
    zones(api, a0="a", b0="b", c0="c")
    make.create_all(api, [claim("c0"), claim("c1")])
    with Following(api, PODS) as pods, Following(api, CLAIMS) as claims:
        daemon = Daemon(plane)
        daemon.start()
        make.create_all(api, gang("crash", "c0", "c1", gpus=4))
        nodes = wait_selected(claims, 2)
        daemon.kill()
        assert nodes_of(pods.objects(), "crash-") == {}
        with Daemon(plane):
            make.create_all(api, make.gang("rival", members=2, gpus=4))
            wait_said(pods, "rival-0", "needs 2 pods")
            wait_told(api, "rival", "1 fits")
            with provisioning(api):
                assert wait_bound(pods, "crash", 2) == {
                    f"crash-{index}": nodes[f"c{index}"] for index in range(2)
                }
        assert nodes_of(pods.objects(), "rival-") == {}


def test_what_happens_during_the_wait(plane: ControlPlane, api: Api) -> None:
    """A waiting member takes room; its deletion gives that back; a claim deleted is told; SIGTERM
    waits for none.
    """
    zones(api, a0="a")
    make.create_all(api, [claim("c0"), claim("c1")])
    with Following(api, PODS) as pods, Following(api, CLAIMS) as claims:
        with Daemon(plane):
            make.create_all(api, gang("first", "c0", gpus=4))
            wait_selected(claims, 1)
            make.create_all(api, gang("second", "c1", gpus=4))
            wait_told(api, "second", "Insufficient nvidia.com/gpu")
            api.delete("/api/v1/namespaces/default/pods/first-0")
            wait_selected(claims, 2)
            api.delete("/api/v1/namespaces/default/persistentvolumeclaims/c1")
            wait_event(api, 'persistentvolumeclaim "c1"')
            wait_said(pods, "second-0", 'persistentvolumeclaim "c1" not found')
            make.create_all(api, [claim("c1")])
            wait_selected(claims, 2)
        # the daemon has ended, within 10 s and with exit code 0
        assert nodes_of(pods.objects(), "second-") == {}


def test_allocated_devices(plane: ControlPlane, api: Api) -> None:
    """A gang that shares an allocated ResourceClaim runs where it is, entered in it; one without
    allocation waits.
    """
    zones(api, a0="a", b0="b", b1="b")
    for name in ("shared", "bare"):
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.test"}}
        meta = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name},
        }
        api.post(DEVICES, {**meta, "spec": {"devices": {"requests": [request]}}})
    here = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]}]}
    result = {"request": "gpu", "driver": "gpu.test", "pool": "p", "device": "d"}
    allocation = {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [here]}}
    api.patch(f"{DEVICES}/shared/status", {"status": {"allocation": allocation}})
    with Daemon(plane, extra_args=("--devices", "allocated")), Following(api, PODS) as pods:
        for name in ("shared", "bare"):
            uses = {"resourceClaims": [{"name": "gpu", "resourceClaimName": name}]}
            make.create_all(api, make.gang(name, members=2, gpus=4, spec=uses))
        assert set(wait_bound(pods, "shared", 2).values()) == {"b0", "b1"}
        reserved = api.get(f"{DEVICES}/shared")["status"]["reservedFor"]
        assert {each["name"] for each in reserved} == {"shared-0", "shared-1"}
        wait_told(api, "bare", 'is not allocated, and the setting "devices" is "allocated"')
    for name in ("shared", "bare"):
        api.delete(f"{DEVICES}/{name}")


def test_without_the_rights(plane: ControlPlane, api: Api) -> None:
    """A role from before volumes is enough to run: gangs without volumes start, the others say what
    is missing.
    """
    zones(api, a0="a")
    make.create_all(api, [claim("c0")])
    role = api.get(ROLE)
    kinds = {"persistentvolumeclaims", "persistentvolumes", "storageclasses", "csinodes"}
    api.patch(
        ROLE, {"rules": [rule for rule in role["rules"] if kinds.isdisjoint(rule["resources"])]}
    )
    try:
        with Daemon(plane) as daemon, Following(api, PODS) as pods:
            make.create_all(api, [*gang("with", "c0"), *make.gang("plain", members=2)])
            wait_bound(pods, "plain", 2)
            wait_said(
                pods,
                "with-0",
                "gangsched has no permission to read csinodes, persistentvolumeclaims",
            )
            assert any(
                "Pods with persistent volume claims have to wait" in line.get("event", "")
                for line in daemon.log_lines()
            )
    finally:
        api.patch(ROLE, {"rules": role["rules"]})
