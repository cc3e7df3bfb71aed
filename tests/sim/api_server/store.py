"""The objects of the API server: JSON objects by resource and key, one resourceVersion for all, and
a log for watches.

Invariant: a stored object is never changed, only replaced, and every change has its own
resourceVersion and its line in the log. Listeners hear of a change when it has happened. Not known
here: requests, rights, or what objects mean.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from tests.sim.timeline import Timeline

Object = dict[str, Any]
EPOCH_S = 1_763_800_000
ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"


@dataclass(frozen=True, slots=True)
class Change:
    """One line of the log; `raw` is the object as JSON."""

    version: int
    resource: str
    type: str
    key: str
    body: Object
    raw: bytes


Listener = Callable[[Change], None]


class Store:
    """`resource` is "pods" or, of other API groups, "podgroups.scheduling.x-k8s.io"; a key is
    "namespace/name".
    """

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.version = 100
        self.log: dict[str, list[Change]] = defaultdict(list)
        self.compacted: dict[str, int] = defaultdict(int)
        self.listeners: list[Listener] = []
        self._last: dict[str, dict[str, Change]] = defaultdict(dict)
        self._uids = 0

    def get(self, resource: str, key: str) -> Object | None:
        """The object; not to be changed."""
        change = self._last[resource].get(key)
        return change.body if change is not None else None

    def all(self, resource: str) -> Iterator[Object]:
        """Every object of a resource; not to be changed."""
        return iter([change.body for change in self._last[resource].values()])

    def changes(self, resource: str) -> list[Change]:
        """The last change of every object that exists, by key."""
        return [change for _, change in sorted(self._last[resource].items())]

    def last(self, resource: str, key: str) -> Change:
        """The last change of an object that exists."""
        return self._last[resource][key]

    def wall(self) -> str:
        """The server's time of day."""
        return rfc3339(EPOCH_S + self._timeline.now_s)

    def create(self, resource: str, body: Object) -> Object:
        """Store a new object, with uid and creation time; the key must be free."""
        stored = copied(body)
        metadata = stored["metadata"]
        key = key_of(stored)
        assert key not in self._last[resource], f"{resource} {key} is there already"
        self._uids += 1
        metadata |= {
            "uid": f"uid-{self._uids:05d}",
            "creationTimestamp": self.wall(),
            "generation": 1,
        }
        return self._record(resource, ADDED, key, stored)

    def update(self, resource: str, key: str, edit: Callable[[Object], object]) -> Object:
        """Change a copy of the object and store it; a change of the spec is a new generation."""
        old = self._last[resource][key]
        new = copied(old.body)
        edit(new)
        if new == old.body:
            return old.body
        if new.get("spec") != old.body.get("spec"):
            new["metadata"]["generation"] = old.body["metadata"].get("generation", 1) + 1
        return self._record(resource, MODIFIED, key, new)

    def remove(self, resource: str, key: str) -> None:
        """Delete the object."""
        self._record(resource, DELETED, key, copied(self._last[resource][key].body))

    def compact(self, resource: str) -> None:
        """Forget the log of a resource: whoever watches from an older version has to list again."""
        self.log[resource].clear()
        self.compacted[resource] = self.version

    def _record(self, resource: str, kind: str, key: str, body: Object) -> Object:
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        change = Change(self.version, resource, kind, key, body, msgspec.json.encode(body))
        if kind == DELETED:
            del self._last[resource][key]
        else:
            self._last[resource][key] = change
        self.log[resource].append(change)
        for listener in self.listeners:
            listener(change)
        return body


def key_of(body: Object) -> str:
    """`namespace/name`, or the name of an object that is in no namespace."""
    metadata = body["metadata"]
    return (
        f"{metadata['namespace']}/{metadata['name']}"
        if metadata.get("namespace")
        else str(metadata["name"])
    )


def copied(body: Any) -> Any:
    """A copy of a JSON value that shares nothing with it."""
    if isinstance(body, dict):
        return {key: copied(value) for key, value in body.items()}
    if isinstance(body, list):
        return [copied(value) for value in body]
    return body


def rfc3339(at_s: float) -> str:
    """A metav1.Time."""
    import time

    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_s))
