"""Groups of a LeaderWorkerSet as gangs, declared by a PodGroup of Volcano, or by the labels of pods
that ask for the gang of their owner.

Invariant: annotations of the pods count only if the gang is exactly one group. Workers that are
created after their leader runs are members to come (`api.later_members`).
"""

from __future__ import annotations

from typing import Final

from gangsched.api import keys
from gangsched.api.dialects.spec import PodMarks

READ_AT: Final = frozenset({keys.LWS_NAME})
"""See `pod_metadata.READ_AT`."""


def read_pod(gang_metadata: dict[str, str], marks: PodMarks) -> None:
    """Name the gang that a group is, if the pod asks for it, and keep what its annotations say of
    it.

    They count for that gang only: users may have one gang of several groups.
    """
    if keys.LWS_NAME not in marks.labels:
        return

    group = "-".join(marks.labels.get(key, "") for key in keys.LWS_GROUP)
    named = next(
        (
            gang_metadata[gang_key.key]
            for gang_key in keys.IDENTITIES
            if gang_metadata.get(gang_key.key)
        ),
        None,
    )
    if (
        named is None
        and keys.asks_for_owner(gang_metadata, marks.owner_gangs)
        and all(marks.labels.get(key) for key in keys.LWS_GROUP)
    ):
        gang_metadata[keys.LWS_NAME] = named = group

    if named == group:
        gang_metadata.update(
            (key, marks.annotations[key])
            for key in sorted(keys.OF_LWS)
            if marks.annotations.get(key)
        )
