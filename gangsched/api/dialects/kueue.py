"""Kueue's keys on pods, which are ignored if Kueue has already chosen a domain for the pod."""

from __future__ import annotations

from typing import Final

from gangsched.api import keys
from gangsched.model.objects import Pod

KUEUE_PLACES: Final = (*keys.KUEUE_TOPOLOGY, keys.SLICES[1])
"""Kueue states these for each set of pods, and chooses the domain itself where its own topology
scheduling is on.
"""
HOSTNAME: Final = "kubernetes.io/hostname"


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
