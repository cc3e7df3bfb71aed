"""Gangs with claims."""

from __future__ import annotations

from typing import Any

from control_plane import objects as make
from control_plane.api import Api, Object

from tests.newcomer.case import Case, create, gang, nodes, patch, until

ZONE = "topology.kubernetes.io/zone"
DRIVER = "csi.example.com"
DATA = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}


def storage_class(name: str, *, waits: bool = True, provisioner: str = DRIVER) -> Object:
    """A class whose claims wait for their first consumer, or do not."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer" if waits else "Immediate",
    }


def claim(storage: str) -> Object:
    """The claim `data`, which all members share."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": storage,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def volume(storage: str, zone: str = "") -> Object:
    """A volume that the claim may have, within reach of one zone only if that is given."""
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": storage,
        "capacity": {"storage": "1Gi"},
        "csi": {"driver": DRIVER, "volumeHandle": "shared"},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    if zone:
        here = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [here]}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "shared"},
        "spec": spec,
    }


def available(api: Api) -> None:
    """Wait until the volume may be taken: before that, one would be provisioned for a claim that
    waits.
    """
    until(
        lambda: (
            api.get("/api/v1/persistentvolumes/shared").get("status", {}).get("phase")
            == "Available"
        ),
        "a volume",
    )


def offered(api: Api) -> None:
    """Wait until the volume may be taken, and let the controller look at the claim again, as it
    does every 15 s.
    """
    available(api)
    patch("PersistentVolumeClaim", "data", {"metadata": {"labels": {"looked-at": "again"}}})(api)


def in_zones() -> list[Object]:
    """A node in each of two zones."""
    return [make.node("gpu-1", labels={ZONE: "a"}), make.node("gpu-2", labels={ZONE: "b"})]


CASES = (
    Case(
        slug="claim-missing",
        nodes=nodes(2),
        applied=gang(2, spec=DATA),
        mend=[
            create(storage_class("shared"), volume("shared")),
            available,
            create(claim("shared")),
        ],
        starts=2,
    ),
    Case(
        slug="class-of-the-claim-missing",
        nodes=nodes(2),
        applied=[claim("shraed"), *gang(2, spec=DATA)],
        mend=[create(volume("shraed")), offered],
        starts=2,
    ),
    Case(
        slug="claim-never-provisioned",
        nodes=nodes(2),
        applied=[storage_class("fast", waits=False), claim("fast"), *gang(2, spec=DATA)],
        mend=[create(volume("fast")), offered],
        starts=2,
    ),
    Case(
        slug="no-volume-for-a-claim-that-waits",
        nodes=nodes(2),
        applied=[
            storage_class("local", provisioner="kubernetes.io/no-provisioner"),
            claim("local"),
            *gang(2, spec=DATA),
        ],
        mend=[create(volume("local"))],
        starts=2,
    ),
    Case(
        slug="volume-in-another-zone",
        nodes=in_zones(),
        before=[create(storage_class("zonal"), volume("zonal", "a")), available],
        applied=[claim("zonal"), *gang(2, spec=DATA)],
        mend=[create(make.node("gpu-3", labels={ZONE: "a"}))],
        starts=2,
    ),
)
