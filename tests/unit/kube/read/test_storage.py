"""Storage off the wire: claims, volumes, classes, CSINodes, and the claims that pods name."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangsched.kube.read import resources, storage
from gangsched.kube.read.decode import DecodeFault, decode_pod
from gangsched.kube.read.shapes import ShapeTable
from gangsched.kube.read.storage_wire import (
    WireClaim,
    WireCsiNode,
    WireResourceClaim,
    WireStorageClass,
    WireVolume,
)
from gangsched.kube.read.store import Store
from gangsched.kube.read.wire import WirePod
from gangsched.model.devices import DeviceClaim
from gangsched.model.inter_pod import Requirement
from gangsched.model.objects import ClaimEntry, ClaimUse, NodeSelectorTerm
from gangsched.model.protocol import Applied, Gone, Message, Replaced
from gangsched.model.storage import Claim, ClaimRef, CsiNode, ResourceClaim, StorageClass, Volume


def read(raw: object, kind: Any) -> Any:
    """An object as it comes over the wire."""
    return msgspec.json.decode(msgspec.json.encode(raw), type=kind)


def test_a_claim() -> None:
    """Everything that a decision about a claim looks at; bound only once the controller says it is
    complete.
    """
    raw: dict[str, Any] = {
        "metadata": {
            "name": "c",
            "namespace": "ns",
            "uid": "u",
            "resourceVersion": "4",
            "annotations": {"volume.kubernetes.io/selected-node": "n0"},
            "ownerReferences": [{"name": "p", "uid": "pod-uid", "controller": True}],
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "late",
            "volumeName": "v",
            "volumeMode": "Block",
            "resources": {"requests": {"storage": "1Gi"}},
            "selector": {"matchLabels": {"tier": "fast"}},
        },
        "status": {"phase": "Pending"},
    }
    assert storage.decode_claim(read(raw, WireClaim)) == Claim(
        namespace="ns",
        name="c",
        uid="u",
        resource_version="4",
        storage_class="late",
        volume_name="v",
        selected_node="n0",
        owner_uid="pod-uid",
        access_modes=("ReadWriteOnce",),
        volume_mode="Block",
        request_bytes=2**30,
        selector=(Requirement("tier", "In", ("fast",)),),
    )
    raw["metadata"]["annotations"] = {
        "pv.kubernetes.io/bind-completed": "yes",
        "volume.beta.kubernetes.io/storage-class": "old",
    }
    bound = storage.decode_claim(read(raw, WireClaim))
    assert (bound.bound, bound.storage_class, bound.selected_node) == (True, "old", None)


def test_a_volume() -> None:
    """Node affinity, zone labels (two zones in one label), what it is kept for and what attaches
    it.
    """
    labels = {"topology.kubernetes.io/zone": "a__b", "failure-domain.beta.kubernetes.io/zone": "__"}
    raw = {
        "metadata": {"name": "v", "labels": labels},
        "spec": {
            "capacity": {"storage": "5G"},
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "s",
            "claimRef": {"namespace": "ns", "name": "c"},
            "csi": {"driver": "csi.test", "volumeHandle": "h"},
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
                    ]
                }
            },
        },
        "status": {"phase": "Available"},
    }
    volume = storage.decode_volume(read(raw, WireVolume))
    assert volume == Volume(
        name="v",
        labels=labels,
        storage_class="s",
        capacity_bytes=5 * 10**9,
        access_modes=("ReadWriteMany",),
        available=True,
        claim=ClaimRef("ns", "c"),
        required=(NodeSelectorTerm(labels=(Requirement("zone", "In", ("a",)),)),),
        zones=(("topology.kubernetes.io/zone", ("a", "b")),),
        driver="csi.test",
        handle="h",
    )


def test_classes_and_limits() -> None:
    """Which classes wait and where they reach; which drivers state a limit."""
    late = {
        "metadata": {"name": "late"},
        "provisioner": "csi.test",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}],
    }
    assert storage.decode_class(read(late, WireStorageClass)) == StorageClass(
        name="late",
        provisioner="csi.test",
        waits=True,
        topologies=((Requirement("zone", "In", ("a", "b")),),),
    )
    limited, unlimited = (
        {"name": "csi.test", "allocatable": {"count": 3}},
        {"name": "csi.other", "allocatable": {}},
    )
    drivers = [limited, unlimited, {"name": "csi.third"}]
    node = {"metadata": {"name": "n0"}, "spec": {"drivers": drivers}}
    assert storage.decode_csi_node(read(node, WireCsiNode)) == CsiNode("n0", (("csi.test", 3),))


def test_a_resource_claim() -> None:
    """Allocated or not, where its devices can be used, and by whom."""
    selector = {
        "nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}
        ]
    }
    raw: dict[str, Any] = {
        "metadata": {
            "name": "d",
            "namespace": "ns",
            "uid": "u",
            "ownerReferences": [{"name": "p", "uid": "pod-uid", "controller": True}],
        },
        "status": {
            "allocation": {"devices": {}, "nodeSelector": selector},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "pod-uid"}],
        },
    }
    given = storage.decode_resource_claim(read(raw, WireResourceClaim))
    here = (NodeSelectorTerm(fields=(Requirement("metadata.name", "In", ("n0",)),)),)
    assert given == ResourceClaim(
        namespace="ns",
        name="d",
        uid="u",
        owner_uid="pod-uid",
        allocated=True,
        required=here,
        reserved=("pod-uid",),
        asks=DeviceClaim(namespace="ns", name="d", uid="u", results=()),
    )
    assert not storage.decode_resource_claim(
        read({**raw, "status": {}}, WireResourceClaim)
    ).allocated


def test_the_devices_a_pod_names() -> None:
    """By name; by template once the status says what was made; nothing where the status says that
    none is needed.
    """
    spec = {
        "resourceClaims": [
            {"name": "a", "resourceClaimName": "d"},
            {"name": "b", "resourceClaimTemplateName": "t"},
            {"name": "c", "resourceClaimTemplateName": "t"},
            {"name": "e", "resourceClaimTemplateName": "t"},
        ]
    }
    made = [{"name": "b", "resourceClaimName": "p-b-x"}, {"name": "c", "resourceClaimName": None}]
    raw = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": spec,
        "status": {"resourceClaimStatuses": made},
    }
    found = decode_pod(read(raw, WirePod), ShapeTable())
    assert found is not None
    assert found.claims == (
        ClaimUse("d", device=True),
        ClaimUse("p-b-x", ephemeral=True, device=True),
        ClaimUse("", ephemeral=True, device=True),
    )
    assert found.shape.unsupported == ()
    raw["spec"] = {**spec, "schedulingGroup": {"podGroupName": "g"}}
    found = decode_pod(read(raw, WirePod), ShapeTable())
    assert found is not None
    entries = [
        ClaimEntry("a", claim="d"),
        ClaimEntry("b", template="t"),
        ClaimEntry("e", template="t"),
    ]
    assert [each.entry for each in found.claims] == entries


def test_a_bad_amount_is_named() -> None:
    """A volume whose size is no quantity is a fault that names it."""
    raw = {"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "much"}}}
    with pytest.raises(DecodeFault, match=r"The volume v cannot be understood: storage .*much"):
        storage.decode_volume(read(raw, WireVolume))


def test_the_claims_a_pod_names() -> None:
    """By name, or for an ephemeral volume after pod and volume; other volumes are none. Shapes do
    not hold them.
    """
    shapes = ShapeTable()
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "tmp", "emptyDir": {}},
    ]
    raw = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"volumes": volumes}}
    pod = decode_pod(read(raw, WirePod), shapes)
    bare = decode_pod(read({**raw, "spec": {}}, WirePod), shapes)
    assert pod is not None
    assert bare is not None
    assert pod.claims == (ClaimUse("c"), ClaimUse("p-scratch", ephemeral=True))
    assert bare.claims == ()
    assert pod.shape is bare.shape
    assert pod.shape.unsupported == ()


def test_each_kind_is_followed_by_its_own_key() -> None:
    """Lists and lines become messages of the right kind, claims keyed by namespace and name."""
    said: list[Message] = []
    store = Store(resources.CLAIMS, said.append, print)
    item = {"metadata": {"name": "c", "namespace": "ns", "resourceVersion": "2"}}
    store.add_page(msgspec.json.encode({"metadata": {"resourceVersion": "1"}, "items": [item]}))
    store.take_line(
        msgspec.json.encode({"type": "MODIFIED", "object": {**item, "spec": {"volumeName": "v"}}})
    )
    store.take_line(msgspec.json.encode({"type": "DELETED", "object": item}))
    known = Claim(namespace="ns", name="c", resource_version="2")
    assert said == [
        Replaced(Claim, (known,)),
        Applied(msgspec.structs.replace(known, volume_name="v")),
        Gone(Claim, "ns/c"),
    ]
