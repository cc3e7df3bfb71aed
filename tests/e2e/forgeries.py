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
                {
                    "name": "main",
                    "ready": True,
                    "restartCount": 0,
                    "image": "x",
                    "imageID": "x",
                    "state": {},
                }
            ]
        }
    },
    "another condition": condition("Ready", "True"),
    "another condition changed": condition("example.com/theirs", "False"),
    "that it is scheduled": condition("PodScheduled", "True"),
    "a long message": condition("PodScheduled", "False", reason="x", message="m" * 1025),
    "a disruption of somebody else": condition(
        "DisruptionTarget", "True", reason="EvictionByEvictionAPI", message="m"
    ),
    "a disruption in other words": condition(
        "DisruptionTarget", "True", reason=VICTIM["reason"], message="m"
    ),
    "that there is no disruption": condition("DisruptionTarget", "False", **VICTIM),
    "no condition": {"status": {"conditions": None}},
}


FOREIGN_POD_FORGERIES: dict[str, Object] = {
    "a nomination": {"status": {"nominatedNodeName": "n"}},
    "that a gang timed out": {"metadata": {"annotations": {TIMEOUT: "true"}}},
    "that it is not scheduled": condition(
        "PodScheduled", "False", reason="Unschedulable", message="m"
    ),
    "that it is preempted": condition("DisruptionTarget", "True", **VICTIM),
}
"""What is said of pods of our schedulers, on a pod of another one."""

NO_VICTIMS: dict[str, Object] = {
    "a pod that waits": {},
    "a pod of another scheduler": {"schedulerName": "other", "nodeName": "n"},
    "a pod of system-critical priority": {
        "priorityClassName": "system-node-critical",
        "nodeName": "n",
    },
    "a pod of a DaemonSet": {"nodeName": "n"},
}
"""Specs of pods that V5 never lets be preempted."""

LEASE_FORGERIES: dict[str, Object] = {
    "a label": {"metadata": {"labels": {"a": "b"}}},
    "an annotation": {"metadata": {"annotations": {"a": "b"}}},
    "a finalizer": {"metadata": {"finalizers": ["example.com/x"]}},
}
API_SERVICE_FORGERIES: dict[str, Object] = {
    "another service": {"spec": {"service": {"namespace": "default", "name": "mine"}}},
    "another port": {"spec": {"service": {"port": 8443}}},
    "that its certificate is not verified": {
        "spec": {"insecureSkipTLSVerify": True, "caBundle": None}
    },
    "its place in discovery": {"spec": {"groupPriorityMinimum": 20_000}},
    "a label": {"metadata": {"labels": {"a": "b"}}},
    "a finalizer": {"metadata": {"finalizers": ["example.com/x"]}},
}
SECRET_FORGERIES: dict[str, Object] = {
    "a label": {"metadata": {"labels": {"a": "b"}}},
    "a finalizer": {"metadata": {"finalizers": ["example.com/x"]}},
    "another key": {"data": {"loot": "YQ=="}},
}
CLAIM_FORGERIES: dict[str, Object] = {
    "a label": {"metadata": {"labels": {"app": "other"}}},
    "an annotation": {
        "metadata": {"annotations": {"volume.kubernetes.io/storage-provisioner": "mine"}}
    },
    "no finalizer": {"metadata": {"finalizers": None}},
    "an owner": {
        "metadata": {
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "1"}]
        }
    },
    "the volume": {"spec": {"volumeName": "theirs"}},
}
VOLUME_FORGERIES: dict[str, Object] = {
    "a label": {"metadata": {"labels": {"app": "other"}}},
    "an annotation": {"metadata": {"annotations": {"x": "y"}}},
    "no finalizer": {"metadata": {"finalizers": None}},
    "what becomes of its data": {"spec": {"persistentVolumeReclaimPolicy": "Delete"}},
    "its size": {"spec": {"capacity": {"storage": "1Ti"}}},
    "whose it is": {
        "spec": {
            "claimRef": {
                "kind": "PersistentVolumeClaim",
                "namespace": "default",
                "name": "c",
                "uid": "other",
            }
        }
    },
    "that it is nobody's": {"spec": {"claimRef": None}},
}


PODGROUP_CONSUMER: Object = {
    "apiGroup": "scheduling.k8s.io",
    "resource": "podgroups",
    "name": "g",
    "uid": "3",
}
CONSUMER_FORGERIES: list[Object] = [
    {"resource": "jobs", "uid": "2"},
    {"resource": "podgroups", "uid": "2"},
    {**PODGROUP_CONSUMER, "apiGroup": "scheduling.x-k8s.io"},
]
"""Consumers of resource claims that are neither pods nor native PodGroups."""
