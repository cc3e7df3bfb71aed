"""Patches by which somebody with the daemon's token could lie about pods, claims and volumes."""

from __future__ import annotations

from control_plane.api import Object

from gangsched.model.disruption import VICTIM_MESSAGE

TIMEOUT = "gang.scheduling.koordinator.sh/timeout"


def condition(kind: str, status: str, **more: str) -> Object:
    """A status with one condition."""
    return {"status": {"conditions": [{"type": kind, "status": status, **more}]}}


VICTIM = {"reason": "PreemptionByScheduler", "message": VICTIM_MESSAGE}
POD_FORGERIES: dict[str, Object] = {
    "a label": {"metadata": {"labels": {"app": "other"}}},
    "a label taken away": {"metadata": {"labels": {"app": None}}},
    "an annotation": {"metadata": {"annotations": {"x": "y"}}},
    "an annotation changed": {"metadata": {"annotations": {"kept": "no"}}},
    "an annotation taken away": {"metadata": {"annotations": {"kept": None}}},
    "another one for it": {"metadata": {"annotations": {"kept": None, TIMEOUT: "true"}}},
    "the stamp of a permit": {"metadata": {"annotations": {"gangsched.dev/permitted": "1/1"}}},
    "another text in the timeout annotation": {"metadata": {"annotations": {TIMEOUT: "false"}}},
    "a finalizer": {"metadata": {"finalizers": ["example.com/stay"]}},
    "the phase": {"status": {"phase": "Failed"}},
    "the address": {"status": {"podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}]}},
    "the node's address": {"status": {"hostIP": "10.0.0.9", "hostIPs": [{"ip": "10.0.0.9"}]}},
    "a reason": {"status": {"reason": "Evicted", "message": "by me"}},
    "what containers do": {
        "status": {
            "containerStatuses": [
                {"name": "main", "ready": True, "restartCount": 0, "image": "x", "imageID": "x", "state": {}}
            ]
        }
    },
    "another condition": condition("Ready", "True"),
    "another condition changed": condition("example.com/theirs", "False"),
    "that it is scheduled": condition("PodScheduled", "True"),
    "a long message": condition("PodScheduled", "False", reason="x", message="m" * 1025),
    "a disruption of somebody else": condition("DisruptionTarget", "True", reason="EvictionByEvictionAPI", message="m"),
    "a disruption in other words": condition("DisruptionTarget", "True", reason=VICTIM["reason"], message="m"),
    "that there is no disruption": condition("DisruptionTarget", "False", **VICTIM),
    "no condition": {"status": {"conditions": None}},
}


CLAIM_FORGERIES: dict[str, Object] = {
    "a label": {"metadata": {"labels": {"app": "other"}}},
    "an annotation": {"metadata": {"annotations": {"volume.kubernetes.io/storage-provisioner": "mine"}}},
    "no finalizer": {"metadata": {"finalizers": None}},
    "an owner": {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "1"}]}},
    "the volume": {"spec": {"volumeName": "theirs"}},
}
VOLUME_FORGERIES: dict[str, Object] = {
    "a label": {"metadata": {"labels": {"app": "other"}}},
    "an annotation": {"metadata": {"annotations": {"x": "y"}}},
    "no finalizer": {"metadata": {"finalizers": None}},
    "what becomes of its data": {"spec": {"persistentVolumeReclaimPolicy": "Delete"}},
    "its size": {"spec": {"capacity": {"storage": "1Ti"}}},
    "whose it is": {
        "spec": {"claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "c", "uid": "other"}}
    },
    "that it is nobody's": {"spec": {"claimRef": None}},
}
