"""Kueue's keys on pods, which are ignored if Kueue has already chosen a domain for the pod."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from gangsched.api import keys
from gangsched.api.dialects.spec import PodMarks
from gangsched.model.objects import Pod

KUEUE_PLACES: Final = (*keys.KUEUE_TOPOLOGY, keys.SLICES[1])
"""Kueue states these for each set of pods, and chooses the domain itself where its own topology
scheduling is on.
"""
READ_AT: Final = keys.KUEUE_SLICE_KEYS | {keys.KUEUE_TOTAL}
"""See `pod_metadata.READ_AT`."""
HOSTNAME: Final = "kubernetes.io/hostname"


def read_pod(
    gang_metadata: dict[str, str],
    marks: PodMarks,
) -> None:
    """Keep Kueue's total only with Kueue's gang, and add its one layer of slices as a list."""
    # The total is about the gang that Kueue names, not about one of another convention.
    if keys.KUEUE_TOTAL in gang_metadata:
        names = [gang_metadata.get(key) for key in keys.NAMES_BEFORE_KUEUES]
        if any(names):
            del gang_metadata[keys.KUEUE_TOTAL]

    annotations = marks.annotations
    if not keys.KUEUE_SLICE_KEYS.isdisjoint(annotations):
        layers = _slices(annotations)
        gang_metadata[keys.SLICES[1]] = layers


def _slices(annotations: Mapping[str, str]) -> str:
    """Kueue's one layer of slices as a list of layers; not one, and so a bad value, if both forms
    are stated.
    """
    layer = {
        "size": annotations.get(keys.KUEUE_SLICE_SIZE),
        "topology": annotations.get(keys.KUEUE_SLICE_TOPOLOGY),
    }
    size = layer["size"]
    if size is not None and keys.NUMBER.fullmatch(size):
        stated = f'[{{"size": {int(size)}, "topology": {json.dumps(layer["topology"])}}}]'
    else:
        stated = json.dumps([layer])

    layers = (annotations.get(keys.SLICES[1]), stated)
    return " and ".join(filter(None, layers))


def stated_by(pod: Pod) -> dict[str, str]:
    """The keys of a pod; Kueue's keys are left out if Kueue has already added its domain to the
    pod's node selector.
    """
    stated = dict(pod.gang_metadata)
    if stated.keys().isdisjoint(KUEUE_PLACES) or not any(
        pod.labels.get(key) for key in keys.KUEUE_ADMITTED
    ):
        return stated

    places = "".join(stated.get(key, "") for key in KUEUE_PLACES)
    # Kueue's topology scheduling writes its choice there: the level again would only repeat it, or
    # contradict it.
    if any(key == HOSTNAME or key in places for key, _ in pod.shape.node_selector):
        return {key: text for key, text in stated.items() if key not in KUEUE_PLACES}

    return stated
