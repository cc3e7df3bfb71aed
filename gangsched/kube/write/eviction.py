"""The requests of an eviction, and the meaning of an answer or of the pod that is read back
(semantics V14).

Invariant: pure functions, tested against kube-apiserver 1.36. An eviction has ended only if that is
certain: 409 may mean another uid or a conflict in storage, and 500 a pod with two
PodDisruptionBudgets or any other error, so after these answers the pod itself is read.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from gangsched.kube.http.faults import (
    BAD_REQUEST,
    FORBIDDEN,
    NOT_FOUND,
    TOO_MANY_REQUESTS,
    UNPROCESSABLE,
    ApiFault,
    Fault,
    Fenced,
    is_denied,
)
from gangsched.kube.write.binding import pod_path, read_back_decoder
from gangsched.model.disruption import DISRUPTION_TARGET, PREEMPTED_BY_SCHEDULER, VICTIM_MESSAGE
from gangsched.model.protocol import Evict, EvictionResult

DISRUPTION_BUDGET = "DisruptionBudget"
"""The cause in a 429 that comes of a PodDisruptionBudget and not of a busy server (policy/v1)."""


class Said(NamedTuple):
    """Meaning of an answer; `result` is set if the eviction has ended, otherwise it is retried.

    `is_refused`: the API server refuses it for now. `is_open`: the pod must be read to know the
    result; `is_unread`: that failed. `may_lack_right`: the permission to evict may be missing,
    which must be checked.
    """

    message: str
    result: EvictionResult | None = None
    is_refused: bool = False
    is_open: bool = False
    is_unread: bool = False
    may_lack_right: bool = False


def evict_request(order: Evict) -> tuple[str, str, bytes]:
    """(method, path, body); both kinds have the uid as a precondition, and keep the pod's grace
    period.
    """
    preconditions = {"preconditions": {"uid": order.uid}}
    if order.delete:
        body: dict[str, object] = {"apiVersion": "v1", "kind": "DeleteOptions", **preconditions}
        return "DELETE", pod_path(order), msgspec.json.encode(body)

    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": order.name, "namespace": order.namespace},
        "deleteOptions": preconditions,
    }
    return "POST", f"{pod_path(order)}/eviction", msgspec.json.encode(body)


def disruption_target(at: str) -> dict[str, str]:
    """Condition of a victim.

    `at` is the current time: the controller manager removes a condition that is older than two
    minutes.
    """
    return {
        "type": DISRUPTION_TARGET,
        "status": "True",
        "reason": PREEMPTED_BY_SCHEDULER,
        "message": VICTIM_MESSAGE,
        "lastTransitionTime": at,
    }


def after(fault: Fault) -> Said:
    """Meaning of the answer to a failed eviction request."""
    text = str(fault)
    if isinstance(fault, Fenced):
        return Said(text, EvictionResult.FAILED)
    if not isinstance(fault, ApiFault) or not fault.is_status:
        return Said(text, is_open=True)
    if fault.status == NOT_FOUND:
        return Said(text, EvictionResult.GONE)
    if fault.status == FORBIDDEN:
        # An admission webhook answers 403 as well: whether the permission is missing must be asked
        # separately.
        return Said(text, is_refused=True, may_lack_right=True)

    if is_denied(fault):
        return Said(text, is_refused=True)

    if fault.status == TOO_MANY_REQUESTS:
        # 429 of an overloaded server has no such cause, and is no refusal.
        messages = [cause.message for cause in fault.causes if cause.reason == DISRUPTION_BUDGET]
        if messages:
            return Said(messages[0] or text, is_refused=True)

        return Said(text)

    if fault.status in {BAD_REQUEST, UNPROCESSABLE}:
        return Said(text, EvictionResult.FAILED)

    return Said(text, is_refused=True, is_open=True)


def read_back(order: Evict, answer: bytes, verdict: Said) -> Said:
    """Result according to the pod that was read; `said` if the pod does not change it. Raises
    msgspec.DecodeError.
    """
    meta = read_back_decoder.decode(answer).metadata
    if meta.uid != order.uid:
        return Said("the pod was deleted and recreated", EvictionResult.GONE)
    if meta.deletion_timestamp is not None:
        return Said("", EvictionResult.DONE)

    return verdict
