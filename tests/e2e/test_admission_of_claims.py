"""What the daemon's account may do to claims for extended resources."""

from __future__ import annotations

from typing import Any

import pytest
from control_plane.api import Api, Object

from tests.e2e.test_admission import DENIED, OK, PLANE, answered, api, pod, thief
from tests.e2e.test_volumes import DEVICES

pytestmark = pytest.mark.e2e

__all__ = ["PLANE", "api", "pod", "thief"]

JSON = "application/json"


def extended_claim(
    pod: Object, name: str = "made", *, annotations: Object | None = None, **request: Any
) -> Object:
    """The claim for extended resources of a pod, with `request` beyond two devices of a class.

    The pod must exist: the garbage collector deletes objects whose owners are all gone.
    """
    exactly = {"deviceClassName": "gpu.test", "allocationMode": "ExactCount", "count": 2, **request}
    told = pod["metadata"]
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": told["name"],
        "uid": told["uid"],
        "controller": True,
    }
    notes = (
        {"resource.kubernetes.io/extended-resource-claim": "true"}
        if annotations is None
        else annotations
    )
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": name,
            "annotations": notes,
            "ownerReferences": [owner],
            "finalizers": ["resource.kubernetes.io/delete-protection"],
        },
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }


def test_only_claims_for_extended_resources_may_be_created(
    thief: Api, api: Api, pod: Object
) -> None:
    """A27: with the annotation, a pod as the controller, and nothing but a number of devices of a
    class.
    """
    denied = [
        extended_claim(pod, annotations={}),
        extended_claim(
            pod, annotations={"resource.kubernetes.io/extended-resource-claim": "true", "a": "b"}
        ),
        extended_claim(pod, selectors=[{"cel": {"expression": "true"}}]),
        extended_claim(pod, tolerations=[{"operator": "Exists"}]),
    ]
    owner = extended_claim(pod)["metadata"]["ownerReferences"][0]
    others: list[Object] = [
        {**owner, "controller": False},
        {**owner, "kind": "Job", "apiVersion": "batch/v1"},
    ]
    changes: list[Object] = [
        {"labels": {"a": "b"}},
        {"finalizers": ["example.com/x"]},
        {"ownerReferences": []},
    ]
    changes += [{"ownerReferences": [other]} for other in others]
    denied += [
        {**(made := extended_claim(pod)), "metadata": made["metadata"] | change}
        for change in changes
    ]
    config = {"config": [{"opaque": {"driver": "gpu.test", "parameters": {}}}]}
    denied.append(
        {**(made := extended_claim(pod)), "spec": {"devices": made["spec"]["devices"] | config}}
    )
    for body in denied:
        code, message = answered(thief, "POST", DEVICES, body)
        assert (code, "gangsched-extended-claim" in message) == (DENIED, True), (
            code,
            message,
            body,
        )
    assert answered(thief, "POST", DEVICES, extended_claim(pod)) == (OK, "")
    api.patch(f"{DEVICES}/made", {"metadata": {"finalizers": None}})
    api.delete(f"{DEVICES}/made")


def test_only_claims_for_extended_resources_may_be_deleted(
    thief: Api, api: Api, pod: Object
) -> None:
    """A27: and only without devices, which would be free while a pod uses them."""
    ours = "resource.kubernetes.io/delete-protection"
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.test"}}
    theirs = {**extended_claim(pod, "theirs"), "metadata": {"name": "theirs", "finalizers": [ours]}}
    api.post(DEVICES, {**theirs, "spec": {"devices": {"requests": [request]}}})
    assert answered(thief, "DELETE", f"{DEVICES}/theirs", {}, JSON)[0] == DENIED
    assert (
        answered(thief, "PATCH", f"{DEVICES}/theirs", {"metadata": {"finalizers": None}})[0]
        == DENIED
    )
    assert thief.post(DEVICES, extended_claim(pod))
    result = {"request": "gpu", "driver": "gpu.test", "pool": "p", "device": "d"}
    api.patch(
        f"{DEVICES}/made/status", {"status": {"allocation": {"devices": {"results": [result]}}}}
    )
    assert answered(thief, "DELETE", f"{DEVICES}/made", {}, JSON)[0] == DENIED
    assert (
        answered(thief, "PATCH", f"{DEVICES}/made", {"metadata": {"finalizers": None}})[0] == DENIED
    )
    assert (
        answered(thief, "PATCH", f"{DEVICES}/made/status", {"status": {"allocation": None}})[0]
        == OK
    )
    assert answered(thief, "PATCH", f"{DEVICES}/made", {"metadata": {"finalizers": None}})[0] == OK
    assert answered(thief, "DELETE", f"{DEVICES}/made", {}, JSON)[0] == OK
    api.patch(f"{DEVICES}/theirs", {"metadata": {"finalizers": None}})
    api.delete(f"{DEVICES}/theirs")
