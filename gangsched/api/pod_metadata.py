"""The gang metadata of a pod, read from its labels and annotations (semantics I2, I3).

Invariant: a key is read in the same way whatever project defines it; what is peculiar to a project
is its dialect's, in `READERS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gangsched.api import keys
from gangsched.api.dialects import grove, kueue, leader_worker_set, volcano
from gangsched.api.dialects.spec import PodMarks, PodReader
from gangsched.api.keys import GangMetadata
from gangsched.model.owners import OwnerGangs

READERS: Final[tuple[PodReader, ...]] = (
    kueue.read_pod,
    grove.read_pod,
    volcano.read_pod,
    leader_worker_set.read_pod,
)
"""What each dialect adds to the metadata of a pod, or takes away, in this order."""
READ_AT: Final = frozenset().union(
    kueue.READ_AT,
    grove.READ_AT,
    volcano.READ_AT,
    leader_worker_set.READ_AT,
)
"""Labels and annotations without which no dialect adds or takes away anything."""


def pod_gang_metadata(
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    unread: frozenset[str] = frozenset(),
    owner_gangs: OwnerGangs = OwnerGangs.ASKED,
) -> GangMetadata:
    """The pod's gang metadata: (key, value) pairs sorted by key, one per key. Equal results are the
    same object.

    Keys in `unread` are left out. `owner_gangs` is `all` in namespaces that ask for the gangs of
    owners. An annotation overrides a label of the same key, unless the annotation is empty. An
    empty identity counts as absent; an empty value is kept, because it is reported as invalid
    (semantics E4).
    """
    stated_labels = keys.GANG_LABELS.intersection(labels)
    stated_annotations = keys.GANG_ANNOTATIONS.intersection(annotations)
    # Nearly all pods of a cluster, of each of which this is asked with each change.
    if (
        not stated_labels
        and not stated_annotations
        and (owner_gangs is not OwnerGangs.ALL or keys.LWS_NAME not in labels)
    ):
        return ()

    gang_metadata = {key: labels[key] for key in stated_labels}
    for key in stated_annotations:
        value = annotations[key]
        if value and key not in keys.KUEUE_SLICE_KEYS:
            gang_metadata[key] = value
        elif key in keys.VALUE_KEYS:
            gang_metadata.setdefault(key, value)

    if not (READ_AT.isdisjoint(labels) and READ_AT.isdisjoint(annotations)):
        marks = PodMarks(labels, annotations, owner_gangs)
        for read_pod in READERS:
            read_pod(gang_metadata, marks)

    kept = []
    is_short = True

    for key in sorted(gang_metadata):
        text = gang_metadata[key]
        if len(text) > keys.SHORT:
            # One character too many shows that it is too long; the rest of up to 256 KiB is not
            # kept.
            text = text[: keys.LONGEST_VALUE + 1]
            is_short = False

        if (text or key in keys.VALUE_KEYS) and key not in unread:
            kept.append((key, text))

    return keys.interned(tuple(kept)) if is_short else tuple(kept)
