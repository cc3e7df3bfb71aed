"""Meaning of each counter that its owner keeps as a plain integer: the HELP text of /metrics, and the table in the
manual.

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
        "unchanged": "of these, those that changed nothing relevant",
        "bad_objects": "objects that could not be decoded; the log names them",
    },
    "scheduler_names": {
        "misspelt": "names of schedulers that are within two letters of one of ours, each counted once; the log names "
        "the first 100 and a pod of each"
    },
    "volumes": {
        "submitted": "binds whose pods have claims to be provisioned or bound first",
        "bound": "of these, those whose claims are all bound",
        "failed": "of these, those whose claims could not be bound; tried again",
        "gone": "of these, those whose pod went meanwhile",
    },
    "operator": {
        "starts": "times that following PodGroups began",
        "sweeps": "full lists of PodGroups",
        "events": "PodGroup events heard",
        "faults": "times that following PodGroups failed",
    },
    "binder": {
        "submitted": "binds ordered",
        "sent_again": "binds sent again to the same node after an answer that decides nothing",
        "bound": "binds that succeeded",
        "gone": "binds whose pod was gone or bound by another scheduler",
        "failed": "binds that the API server refused",
        "lost_answers": "answers to binds that do not prove refusal, lost ones among them; the pod is read to know",
        "read_back_retries": "such readings that had to be repeated",
    },
    "preemption_writer": {
        "prepared": "nominations written, with the conditions of their victims",
        "not_prepared": "of which a write failed, so that nobody was evicted",
        "cancelled": "nominations taken back",
        "evicted": "evictions that the API server accepted",
        "gone": "evictions whose pod was gone",
        "delayed": "evictions refused at first, mostly for a PodDisruptionBudget",
        "blocked": "evictions refused until their nomination ended",
        "forbidden": "evictions for which the right is missing",
        "failed": "evictions without a certain answer, or not wanted any more",
        "sent_again": "evictions sent again",
        "marked_again": "conditions restored that an eviction had overwritten",
    },
    "recorder": {
        "ordered": "Events and series to be written",
        "written": "Events written",
        "skipped": "Events no longer worth writing",
        "dropped": "Events dropped",
        "faults": "writes of Events that failed",
        "recorded": "Events ordered",
        "repeated": "Events ordered that were counted in an existing one of the last ten minutes",
        "filtered": "Events not written because there were too many about one object",
    },
    "outbox": {
        "ordered": "conditions, timeout annotations and PodGroup statuses ordered",
        "written": "of these, written",
        "skipped": "of these, superseded before they were written",
        "dropped": "of these, dropped because the object is gone or the API server refused",
        "faults": "writes that failed; most are tried again",
    },
    "lease": {
        "acquired": "times that the Lease became ours; only with leader election, as all of this family",
        "lost": "times that it was lost",
        "released": "times that it was given up",
        "renewed": "renewals",
        "faults": "requests about the Lease that failed",
    },
}
"""By family and field; the metric is gangsched_<family>_<field>_total, its label `part` says what of."""
