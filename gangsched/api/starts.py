"""The start of a gang in the status of its PodGroup: `status.start` (semantics I6).

Invariant: no stored value raises an error; what cannot be read is as if it were not stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from gangsched.model.start import GoneMembers, StoredStart

MOST_CONTROLLERS: Final = 512
"""Controllers of one start that are stored: 20 kB of uids."""
MOST: Final = 2**31 - 1
"""The largest number of the type that definitions name, int32."""
_Number = Annotated[int, msgspec.Meta(ge=0, le=MOST)]


class _GoneJson(msgspec.Struct, frozen=True):
    succeeded: _Number = 0
    failed: _Number = 0
    deleted: _Number = 0


class _StartJson(msgspec.Struct, rename="camel"):
    epoch: _Number
    min_member: _Number
    controllers: list[str] = []
    gone: _GoneJson = _GoneJson()


def parse_start(status: Mapping[str, object]) -> StoredStart | None:
    """The start that a PodGroup's status has; None if it has none."""
    try:
        stored = msgspec.convert(status.get("start"), _StartJson)
    except msgspec.ValidationError:
        return None

    if stored.epoch == 0 or len(stored.controllers) > MOST_CONTROLLERS:
        return None

    gone = GoneMembers(stored.gone.succeeded, stored.gone.failed, stored.gone.deleted)
    return StoredStart(
        stored.epoch,
        stored.min_member,
        tuple(stored.controllers),
        gone,
        succeeded=_count(status, "succeeded"),
        failed=_count(status, "failed"),
    )


def start_status(start: StoredStart) -> dict[str, object]:
    """The start as JSON of a merge patch.

    The counts in `gone` are always present, since a merge patch would keep an old one that is left
    out.
    """
    return {
        "epoch": start.epoch,
        "minMember": start.min_member,
        "controllers": list(start.controllers[:MOST_CONTROLLERS]),
        "gone": {
            "succeeded": min(start.gone.succeeded, MOST),
            "failed": min(start.gone.failed, MOST),
            "deleted": min(start.gone.deleted, MOST),
        },
    }


def _count(status: Mapping[str, object], field: str) -> int:
    value = status.get(field)
    return value if isinstance(value, int) and 0 < value <= MOST else 0
