"""Evictions on the wire: what each answer of kube-apiserver 1.36 says (semantics V14)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gangsched.kube.http.answers import fault_of
from gangsched.kube.http.faults import Fault, Fenced, Unreachable
from gangsched.kube.write.eviction import Said, after, disruption_target, evict_request, read_back
from gangsched.model.protocol import Evict, EvictionResult
from tests.unit.kube.fakes import status

ORDER = Evict("1", "u1", "ns", "p", 100.0)
NEEDS = "The disruption budget w needs 3 healthy pods and has 3 currently"
BUSY = status(429, "TooManyRequests", "please try again later")
BUDGET = status(
    429,
    "TooManyRequests",
    "Cannot evict pod as it would violate the pod's disruption budget.",
    causes=[{"reason": "DisruptionBudget", "message": NEEDS}],
)
TWO = (
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not"
    " support."
)


def said(body: dict[str, Any]) -> Said:
    """What this Status says."""
    return after(fault_of(body["code"], json.dumps(body).encode(), None))


def test_an_eviction_has_the_uid_and_leaves_the_grace_period_to_the_pod() -> None:
    """V13: policy/v1 Eviction; as a last resort a DELETE with the same precondition."""
    method, path, body = evict_request(ORDER)
    assert (method, path) == ("POST", "/api/v1/namespaces/ns/pods/p/eviction")
    assert json.loads(body) == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "p", "namespace": "ns"},
        "deleteOptions": {"preconditions": {"uid": "u1"}},
    }
    method, path, body = evict_request(Evict("1", "u1", "ns", "p", 100.0, delete=True))
    assert (method, path) == ("DELETE", "/api/v1/namespaces/ns/pods/p")
    assert json.loads(body)["preconditions"] == {"uid": "u1"}


def test_the_condition_is_that_of_kube_scheduler_in_our_words() -> None:
    """V22: type, status and reason are those that controllers look for."""
    assert disruption_target("2026-01-01T00:00:00Z") == {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "gangsched: preempting to accommodate a higher priority pod group",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


DENIED = "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: not before Monday"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            status(404, "NotFound", 'pods "p" not found'),
            Said('pods "p" not found', EvictionResult.GONE),
        ),
        (status(409, "Conflict", "uid"), Said("uid", is_refused=True, is_open=True)),
        (BUDGET, Said(NEEDS, is_refused=True)),
        (BUSY, Said("please try again later")),
        (status(500, "InternalError", TWO), Said(TWO, is_refused=True, is_open=True)),
        (status(504, "Timeout", "t"), Said("t", is_refused=True, is_open=True)),
        (status(403, "Forbidden", "no"), Said("no", is_refused=True, may_lack_right=True)),
        (status(422, "Invalid", DENIED), Said(DENIED, is_refused=True)),
        (status(422, "Invalid", "bad"), Said("bad", EvictionResult.FAILED)),
    ],
)
def test_answers(body: dict[str, Any], expected: Said) -> None:
    """V14: 404 is gone; 409 and 5xx leave it open; a PodDisruptionBudget's 429 is a refusal, and so
    is what a policy denies.
    """
    assert said(body) == expected


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Unreachable("No answer."), Said("No answer.", is_open=True)),
        (fault_of(404, b"<html>", None), Said("<html>", is_open=True)),
        (Fenced("not ours"), Said("not ours", EvictionResult.FAILED)),
    ],
)
def test_what_is_no_answer_of_the_api_server(fault: Fault, expected: Said) -> None:
    """V14: a lost answer and a proxy's page prove nothing; what the fence kept back was
    never sent.
    """
    assert after(fault) == expected


@pytest.mark.parametrize(
    ("meta", "result"),
    [
        ({"uid": "u2"}, EvictionResult.GONE),
        ({"uid": "u1", "deletionTimestamp": "2026-01-01T00:00:00Z"}, EvictionResult.DONE),
        ({"uid": "u1"}, None),
    ],
)
def test_a_pod_read_back(meta: dict[str, str], result: EvictionResult | None) -> None:
    """V14: another uid is gone, a terminating pod is done, and one that lives is tried again."""
    why = Said("why", is_refused=True, is_open=True)
    found = read_back(ORDER, json.dumps({"metadata": meta}).encode(), why)
    assert found.result is result
    assert result is not None or found is why
