"""ProvisioningRequests as they are read, and whether they can be made (semantics E10)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from gangsched.kube.http.faults import ApiFault
from gangsched.kube.read.optional_rights import ASK_EVERY_S
from gangsched.kube.read.provisioning import (
    ProvisioningRights,
    WireProvisioningRequest,
    decode_provisioning_request,
)
from gangsched.model.provisioning import ProvisioningRequest
from tests.unit.kube.fakes import Answer, FakeRequests, FakeTime, Sent


def read(*conditions: tuple[str, str, str], **meta: Any) -> ProvisioningRequest:
    """A request with conditions of this type, status and reason."""
    body = {
        "metadata": {
            "name": "r",
            "namespace": "ns",
            "uid": "u",
            "creationTimestamp": "2026-01-01T00:00:10Z",
            "labels": {"gangsched.dev/requested-by": "gangsched"},
            "ownerReferences": [{"kind": "PodGroup", "name": "g", "uid": "o"}],
            **meta,
        },
        "spec": {
            "provisioningClassName": "c",
            "podSets": [{"podTemplateRef": {"name": "r-0"}, "count": 2}],
        },
        "status": {
            "conditions": [
                {
                    "type": kind,
                    "status": status,
                    "reason": reason,
                    "message": "why",
                    "lastTransitionTime": "2026-01-01T00:00:20Z",
                }
                for kind, status, reason in conditions
            ],
            "provisioningClassDetails": {"x": "y", "ResizeRequestName": "resize-1"},
        },
    }
    wire = msgspec.json.decode(json.dumps(body), type=WireProvisioningRequest)
    return decode_provisioning_request(wire)


ACCEPTED = ("Accepted", "True", "Accepted")
CASES: tuple[tuple[tuple[tuple[str, str, str], ...], str, str], ...] = (
    ((), "new", ""),
    ((ACCEPTED,), "accepted", ""),
    ((("Provisioned", "False", "Unknown"),), "new", ""),
    ((ACCEPTED, ("Provisioned", "Unknown", "Unknown")), "accepted", ""),
    (
        (ACCEPTED, ("Provisioned", "False", "CapacityIsNotFound")),
        "not yet",
        "CapacityIsNotFound: why",
    ),
    (
        (ACCEPTED, ("Provisioned", "True", "CapacityIsFound")),
        "provisioned",
        "CapacityIsFound: why",
    ),
    ((ACCEPTED, ("Failed", "True", "Bad"), ("Provisioned", "False", "x")), "failed", "Bad: why"),
    (
        (ACCEPTED, ("Provisioned", "True", "x"), ("BookingExpired", "True", "Late")),
        "expired",
        "Late: why",
    ),
    (
        (ACCEPTED, ("Provisioned", "True", "x"), ("CapacityRevoked", "True", "Lost")),
        "revoked",
        "Lost: why",
    ),
    ((ACCEPTED, ("Failed", "False", "x"), ("Other", "True", "y")), "accepted", ""),
)


@pytest.mark.parametrize(("conditions", "state", "text"), CASES)
def test_what_an_autoscaler_says_is_one_state(
    conditions: tuple[tuple[str, str, str], ...],
    state: str,
    text: str,
) -> None:
    """E10: what ends a request wins over what came before."""
    found = read(*conditions)
    assert (found.state.value, found.message) == (state, text)


def test_owner_scheduler_and_templates_are_read() -> None:
    """E10: a request with several owners is nobody's."""
    found = read()
    assert (found.owner_uid, found.requested_by, found.templates) == ("o", "gangsched", ("r-0",))
    assert (found.owner_kind, found.owner_name, found.resize_request) == (
        "PodGroup",
        "g",
        "resize-1",
    )
    assert found.key == "ns/r"
    assert not found.deleting
    assert (found.accepted_s, read(ACCEPTED).accepted_s - found.creation_s) == (0, 10)

    strange = read(ownerReferences=[{"uid": "a"}, {"uid": "b"}], labels=None)
    assert (strange.owner_uid, strange.requested_by) == ("", "")


async def test_rights_and_versions_are_asked_for_while_it_runs() -> None:
    """E10: v1beta1 where it is served alone; each change is said once, and told."""
    versions: list[Answer] = [ApiFault(404, "NotFound", "no such group")]
    denied: set[str] = set()

    def answer(sent: Sent) -> Answer:
        if sent.method == "GET":
            return versions[0]
        attributes = sent.body["spec"]["resourceAttributes"]
        return {"status": {"allowed": attributes["resource"] not in denied}}

    clock = FakeTime()
    said: list[str] = []
    told: list[str] = []
    rights = ProvisioningRights(FakeRequests(answer), clock.runtime(said.append), asks=True)
    rights.hears = told.append
    running = asyncio.create_task(rights.run())
    await clock.advance(2 * ASK_EVERY_S)
    assert told == ["The API server does not serve ProvisioningRequests."]
    assert said == [f"No autoscaler is asked for nodes by ProvisioningRequests. {told[0]}"]

    versions[0] = {"versions": [{"version": "v1beta1"}, {"version": "v2"}]}
    await clock.advance(ASK_EVERY_S)
    assert (rights.version, rights.granted.is_set(), told[1:]) == ("v1beta1", True, [""])

    denied.add("podtemplates")
    await clock.advance(2 * ASK_EVERY_S)
    assert rights.denied.is_set()
    assert told[2:] == [
        "The scheduler may not get podtemplates; create podtemplates; delete podtemplates: apply"
        " manifests/rbac-provisioning.yaml."
    ]
    assert len(said) == 3
    running.cancel()
