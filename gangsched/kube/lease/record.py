"""The record: a coordination.k8s.io/v1 Lease as candidates read and write it.

Invariant: any object can be read, and its values are bounded: a holder that is not a text counts as
an unknown holder, a missing duration is replaced by this process's own, and no duration exceeds
`LONGEST_S`. Writing changes only the fields of leader election and keeps the rest, including the
resourceVersion, without which no Lease is changed. Names follow client-go's `resourcelock`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from gangsched.api import keys
from gangsched.kube.http.answers import ANY_JSON, decoded
from gangsched.kube.http.faults import Malformed

LONGEST_S = 300.0
"""No candidate waits longer than this for a holder that is silent, whatever duration it claims."""
MOST_TRANSITIONS = 2**31 - 1
NOBODY = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Holder of the Lease. `acquired` and `renewed` are times of the holder's own clock; other
    processes only compare them.

    `rest` is the object that it was read from; equal records may have different ones.
    """

    holder: str
    duration_s: float
    acquired: str
    renewed: str
    transitions: int = 0
    rest: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def annotations(self) -> Mapping[str, Any]:
        """Annotations of the object."""
        annotations = self.rest.get("metadata", {}).get("annotations")
        return annotations if isinstance(annotations, dict) else {}

    @property
    def is_free(self) -> bool:
        """Whether the holder has released the Lease, or it never had a holder."""
        return self.holder == NOBODY


def decode(body: bytes, *, duration_s: float) -> Record:
    """Decode the record of an object; `duration_s` is used if the object has no duration. Raises
    Malformed if it is not an API object.
    """
    parsed = decoded(ANY_JSON, body, "A Lease is not JSON")
    metadata = parsed.get("metadata") if isinstance(parsed, dict) else None
    if not isinstance(metadata, dict) or not metadata.get("resourceVersion"):
        raise Malformed("What was read in place of a Lease is no object of the API.")

    spec = parsed.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    holder = spec.get("holderIdentity")

    return Record(
        holder=holder if isinstance(holder, str) else NOBODY if holder is None else repr(holder),
        duration_s=_duration_s(spec.get("leaseDurationSeconds"), duration_s),
        acquired=str(spec.get("acquireTime", "")),
        renewed=str(spec.get("renewTime", "")),
        transitions=_transitions(spec.get("leaseTransitions")),
        rest=parsed,
    )


def encode(record: Record, *, namespace: str, name: str) -> bytes:
    """Encode the record as an object: `rest` with the record's values, or a new object."""
    rest = record.rest
    known = rest.get("spec")
    spec = {
        **(known if isinstance(known, dict) else {}),
        "holderIdentity": record.holder,
        "leaseDurationSeconds": max(1, math.ceil(record.duration_s)),
        "acquireTime": record.acquired,
        "renewTime": record.renewed,
        "leaseTransitions": record.transitions,
    }

    return msgspec.json.encode(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {**rest.get("metadata", {}), "namespace": namespace, "name": name},
            "spec": spec,
        }
    )


def suspects_of(record: Record | None) -> str:
    """The suspects in the annotation of a Lease, for `Suspects.merge`; "" for none."""
    annotations = _annotations(record) if record is not None else {}
    text = annotations.get(keys.SUSPECTS, "")
    return text if isinstance(text, str) else ""


def with_suspects(record: Record, text: str) -> Record:
    """The record with this annotation, without one if `text` is empty; a new Lease gets it with the
    next write.
    """
    if not record.rest or text == suspects_of(record):
        return record

    annotations = {}
    for name, value in _annotations(record).items():
        if name != keys.SUSPECTS:
            annotations[name] = value

    if text:
        annotations[keys.SUSPECTS] = text

    return replace(
        record,
        rest={**record.rest, "metadata": {**record.rest["metadata"], "annotations": annotations}},
    )


def _annotations(record: Record) -> Mapping[str, Any]:
    metadata = record.rest.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return annotations if isinstance(annotations, dict) else {}


def _duration_s(value: object, default_s: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        return default_s

    # Anybody with the permission to write Leases could otherwise lock out all candidates.
    return min(float(value), LONGEST_S)


def _transitions(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return min(max(0, value), MOST_TRANSITIONS)

    return 0
