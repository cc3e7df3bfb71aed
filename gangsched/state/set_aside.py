"""Objects that could not be applied because of an exception, and the Events about them.

Invariant: no single object ends the process (semantics I8). An object is reported once while it
fails in the same way.
"""

from __future__ import annotations

import traceback
from typing import Any

from gangsched.api.dialects import api_version
from gangsched.model.objects import Namespace, Node, Pod, PodGroup
from gangsched.model.protocol import ObjectRef, RecordEvent
from gangsched.model.reasons import EventReason
from gangsched.state.reporting.gang_events import pod_ref

REMEMBERED = 10_000
"""Objects; more than that fail for one reason, and which of them is no news."""
CLUSTER_WIDE = (Node, Namespace)


class SetAside:
    """Objects that are set aside, by kind and identity, each with its failure."""

    def __init__(self) -> None:
        self._failed: dict[tuple[str, str], str] = {}

    def __len__(self) -> int:
        return len(self._failed)

    def add(self, item: Any, error: Exception) -> tuple[RecordEvent, ...]:
        """Set an object aside; return the Event, unless the same failure was reported before."""
        kind = type(item).__name__
        name = _name(item)

        # The innermost frame is the line that failed: with it an administrator's report can be
        # acted on.
        frame = traceback.extract_tb(error.__traceback__)[-1]
        cause = f"{type(error).__name__}: {error} ({frame.name}, line {frame.lineno})"
        key = (kind, _key(item))

        known = self._failed.get(key)
        # A list repeats every object, and each failure would be an Event again.
        if known == cause or (known is None and len(self._failed) >= REMEMBERED):
            return ()

        self._failed[key] = cause
        text = f"gangsched cannot process {kind} {name}{_meanwhile(item)}: {cause}"
        return (RecordEvent(_ref(item), EventReason.SET_ASIDE, text, warning=True),)

    def applied(self, item: Any) -> None:
        """Drop the failure of an object that could now be applied."""
        if self._failed:  # as good as always empty
            self.gone(type(item), _key(item))

    def gone(self, kind: type, key: str) -> None:
        """Drop the failure of a deleted object; `key` is as in `protocol.Gone`."""
        self._failed.pop((kind.__name__, key), None)


def _key(item: Any) -> str:
    """As `protocol.Gone` has it."""
    match item:
        case Pod(uid=uid):
            return uid
        case PodGroup(id=id_):
            return id_
        case _:
            return str(getattr(item, "key", item.name))


def _name(item: Any) -> str:
    namespace = getattr(item, "namespace", "")
    if namespace:
        return f"{namespace}/{item.name}"

    return str(item.name)


def _meanwhile(item: Any) -> str:
    """The part of the sentence that says what is assumed until the object changes."""
    match item:
        case Pod() if item.node_name:
            return f"; until the object changes, node {item.node_name} counts as full"
        case Pod():
            return "; until the object changes, it is not scheduled"
        case Node():
            return "; until the object changes, nothing is placed on it"
        case _:
            return "; until the object changes, its last valid version is used"


def _ref(item: Any) -> ObjectRef:
    if isinstance(item, Pod):
        return pod_ref(item)

    version = api_version(item.api_group, item.version) if isinstance(item, PodGroup) else "v1"
    return ObjectRef(
        version,
        type(item).__name__,
        getattr(item, "namespace", ""),
        item.name,
        getattr(item, "uid", ""),
    )
