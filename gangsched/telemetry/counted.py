"""The meaning of each counter that another component counts as a plain integer: the HELP text of /metrics, and the
table in the manual.

Invariant: `Metrics.publish` accepts only fields listed here, so that every counter is documented.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MEANINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "reflector": {
        "lists": "full lists of a resource; expected once per start and once per expired resourceVersion",
        "watches": "watches opened; each lives for about 25 seconds",
        "silences": "watches closed because no event and no bookmark came",
        "faults": "lists and watches that failed",
    },
    "store": {
        "lines": "watch lines read",
        "unchanged": "watch lines that changed no relevant field",
        "bad_objects": "objects that could not be decoded; the log names them",
    },
    "scheduler_names": {
        "misspelt": "scheduler names within two letters of a name of gangsched, each counted once; the log has the "
        "first 100 and a pod of each"
    },
    "volumes": {
        "submitted": "binds whose pods have claims to be provisioned or bound first",
        "bound": "such binds whose claims were all bound",
        "failed": "such binds whose claims could not be bound; retried",
        "gone": "such binds whose pod was deleted meanwhile",
    },
    "operator": {
        "starts": "starts of the PodGroup watch",
        "sweeps": "full lists of PodGroups",
        "events": "PodGroup events received",
        "faults": "failures of the PodGroup watch",
    },
    "binder": {
        "submitted": "binds requested",
        "sent_again": "binds sent again to the same node after an inconclusive answer",
        "bound": "binds that succeeded",
        "gone": "binds whose pod was gone or bound by another scheduler",
        "failed": "binds that the API server refused",
        "lost_answers": "lost or inconclusive answers to binds, after which the pod is read",
        "read_back_retries": "such reads that had to be repeated",
    },
    "preemption_writer": {
        "prepared": "nominations written, with the conditions of their victims",
        "not_prepared": "nominations of which a write failed, so that no pod was evicted",
        "cancelled": "nominations cancelled",
        "evicted": "evictions that the API server accepted",
        "gone": "evictions whose pod was gone",
        "delayed": "evictions refused at first, mostly for a PodDisruptionBudget",
        "blocked": "evictions refused until their nomination ended",
        "forbidden": "evictions for which the permission is missing",
        "failed": "evictions whose result is unknown, or that are no longer needed",
        "sent_again": "evictions sent again",
        "marked_again": "conditions restored that an eviction had overwritten",
    },
    "recorder": {
        "ordered": "Events and series to be written",
        "written": "Events written",
        "skipped": "Events no longer worth writing",
        "dropped": "Events dropped",
        "faults": "writes of Events that failed",
        "recorded": "Events requested",
        "repeated": "Events counted in an existing Event of the last ten minutes",
        "filtered": "Events not written because there were too many about one object",
    },
    "outbox": {
        "ordered": "writes of conditions, timeout annotations and PodGroup statuses requested",
        "written": "such writes that succeeded",
        "skipped": "such writes that were not needed: the object says so already, or a nomination said it",
        "dropped": "such writes that were dropped because the object is gone or the API server refused",
        "faults": "such writes that failed; most are retried",
    },
    "lease": {
        "acquired": "times that this instance acquired the Lease; this family exists only with leader election",
        "lost": "times that it lost the Lease",
        "released": "times that it released the Lease",
        "renewed": "renewals of the Lease",
        "faults": "requests about the Lease that failed",
    },
}
"""By family and field; the metric is gangsched_<family>_<field>_total, its label `part` says what of."""
