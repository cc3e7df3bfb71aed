"""The record: what is read of a Lease whatever it holds, and what is written back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gangsched.kube.http.faults import Malformed
from gangsched.kube.lease.record import LONGEST_S, MOST_TRANSITIONS, Record, decode, encode

OURS = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "l", "namespace": "ns", "resourceVersion": "7", "labels": {"team": "a"}},
    "spec": {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": "2026-01-01T00:00:02.000000Z",
        "leaseTransitions": 3,
        "strategy": "OldestEmulationVersion",
    },
}


def read(body: Any, duration_s: float = 15.0) -> Record:
    return decode(json.dumps(body).encode(), duration_s=duration_s)


def test_a_lease_of_client_go_is_understood() -> None:
    """Holder, duration, times and transitions are those of the object."""
    record = read(OURS)
    assert (record.holder, record.duration_s, record.transitions) == ("a", 15.0, 3)
    assert (record.acquired[-10:], record.renewed[-10:]) == ("00.000000Z", "02.000000Z")


def test_what_is_written_keeps_all_that_is_not_ours() -> None:
    """Labels, fields of other features and the resourceVersion go back as they came; the duration
    is rounded up.
    """
    written = json.loads(encode(read(OURS | {"status": {}}), namespace="ns", name="l"))
    assert written["metadata"] == OURS["metadata"]
    assert written["spec"] == OURS["spec"]
    fresh = Record(holder="b", duration_s=2.5, acquired="x", renewed="y")
    made = json.loads(encode(fresh, namespace="ns", name="l"))
    assert made["metadata"] == {"namespace": "ns", "name": "l"}
    assert made["spec"]["leaseDurationSeconds"] == 3


@pytest.mark.parametrize(
    ("spec", "holder", "duration_s", "transitions"),
    [
        (None, "", 15.0, 0),
        ("garbage", "", 15.0, 0),
        ({}, "", 15.0, 0),
        ({"holderIdentity": None}, "", 15.0, 0),
        ({"holderIdentity": 7}, "7", 15.0, 0),
        ({"holderIdentity": ["a"]}, "['a']", 15.0, 0),
        ({"holderIdentity": "a", "leaseDurationSeconds": -1}, "a", 15.0, 0),
        ({"holderIdentity": "a", "leaseDurationSeconds": True}, "a", 15.0, 0),
        ({"holderIdentity": "a", "leaseDurationSeconds": "60"}, "a", 15.0, 0),
        ({"holderIdentity": "a", "leaseDurationSeconds": 2**31}, "a", LONGEST_S, 0),
        ({"holderIdentity": "a", "leaseTransitions": 2**40}, "a", 15.0, MOST_TRANSITIONS),
        ({"holderIdentity": "a", "leaseTransitions": -5}, "a", 15.0, 0),
        ({"holderIdentity": "a", "leaseTransitions": "5"}, "a", 15.0, 0),
    ],
)
def test_garbage_is_read_within_bounds(
    spec: Any, holder: str, duration_s: float, transitions: int
) -> None:
    """No value of an object is trusted: a holder that is no text is somebody, a duration that is
    none is our own.
    """
    record = read({"metadata": {"resourceVersion": "1"}, "spec": spec})
    assert (record.holder, record.duration_s, record.transitions) == (
        holder,
        duration_s,
        transitions,
    )
    assert json.loads(encode(record, namespace="ns", name="l"))["spec"]["holderIdentity"] == holder


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b"{}", b'{"metadata": 3}', b'{"metadata": {}}', b"\xff"]
)
def test_what_is_no_object_is_malformed(body: bytes) -> None:
    """A gateway's page is no Lease, and nobody holds anything because of it."""
    with pytest.raises(Malformed):
        decode(body, duration_s=15.0)
