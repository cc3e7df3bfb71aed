"""The last version of each PodGroup of one API group, from an event stream and periodic lists.

Invariant: no awaits, no clock. A list corrects what the stream lost, but is outdated about changes
after its resourceVersion: an object that the stream has shown since stays, and an object that the
stream has since shown as deleted stays deleted. No change is reported twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gangsched.api.podgroup import parse_pod_group
from gangsched.kube.ports import Sink, Warn
from gangsched.model.objects import PodGroup
from gangsched.model.protocol import Applied, Followed, Gone, Message, Replaced, Unread


class PodGroupStore:
    """Turns events and lists of one API group's PodGroups into messages."""

    def __init__(
        self,
        api_group: str,
        sink: Sink,
        warn: Warn,
    ) -> None:
        self.api_group = api_group
        self._sink = sink
        self._warn = warn
        self._known: dict[str, PodGroup] = {}
        self._deleted: dict[str, int] = {}
        self._as_of = -1  # resourceVersion of the last list
        self._served: bool | None = None
        self._forbidden = False

        #: Whether changes are received; only a fault makes this false.
        self.live = True

    def __len__(self) -> int:
        return len(self._known)

    def known(self) -> list[Message]:
        """Messages about everything that was reported so far, for a new receiver."""
        if self._served is None:
            return []

        replaced = Replaced(PodGroup, tuple(self._known.values()), self.api_group)
        last: Message = replaced
        if not self._served:
            last = Unread(PodGroup, self.api_group, self._forbidden)

        if not self.live:
            return [last, Followed(self.api_group, live=False)]

        return [last]

    def follow(self, *, live: bool) -> None:
        """Record whether the watch is live, and send `Followed` if that has changed."""
        if live is not self.live:
            self.live = live
            self._sink(Followed(self.api_group, live))

    def applied(self, body: Mapping[str, Any], version: str) -> None:
        """Apply an object from the stream: new, changed, or listed again."""
        uid, at = _identity(body)

        known = self._known.get(uid)
        # Two streams bring each version: the later one is done before anything is parsed.
        if known is not None and revision(known.resource_version) >= at:
            return
        # The slower of two streams brings an object that the faster one has seen deleted.
        if uid and self._deleted.get(uid, -1) >= at:
            return
        # A stream behind the last list brings an object that was gone by then: it would replace its
        # successor of the same name, and take it along when it is deleted.
        if known is None and 0 <= at <= self._as_of:
            return

        pod_group = self.parse(body, version)
        if pod_group is None:
            return

        self._known[pod_group.uid] = pod_group
        self._sink(Applied(pod_group))

    def gone(self, body: Mapping[str, Any]) -> None:
        """Apply a deletion from the stream."""
        uid, at = _identity(body)
        self._deleted[uid] = at

        known = self._known.pop(uid, None)
        if known is not None:
            self._sink(Gone(PodGroup, known.id, self.api_group, uid))

    def read(
        self,
        body: Mapping[str, Any],
        version: str,
    ) -> PodGroup | None:
        """One object of a list, for `replace`; None if it is not a PodGroup, which is reported."""
        metadata = body.get("metadata") or {}
        uid = str(metadata.get("uid", ""))
        known = self._known.get(uid)
        if known is None:
            return self.parse(body, version)

        # Most of a periodic list is known; parsing costs a hundred times the comparison.
        if known.resource_version == metadata.get("resourceVersion"):
            return known

        return self.parse(body, version)

    def replace(self, pod_groups: Iterable[PodGroup], resource_version: str) -> None:
        """Replace all objects by a complete list as of `resource_version`. The first list is always
        reported, a later one if it changes anything.
        """
        listed: dict[str, PodGroup] = {}
        for pod_group in pod_groups:
            known = self._known.get(pod_group.uid, pod_group)
            at = revision(pod_group.resource_version)
            # The list may be older than a deletion in the stream.
            if self._deleted.get(pod_group.uid, -1) >= at:
                continue

            is_newer = revision(known.resource_version) >= at
            listed[pod_group.uid] = known if is_newer else pod_group

        at = revision(resource_version)
        for uid, known in self._known.items():
            is_later = revision(known.resource_version) > at
            if is_later and uid not in listed:
                listed[uid] = known

        self._as_of = at
        # What the list is newer than cannot come back; so the dict stays small.
        outdated = [uid for uid, deleted_at in self._deleted.items() if deleted_at <= at]
        for uid in outdated:
            del self._deleted[uid]

        self._tell(listed)

    def replace_with_none(self, *, forbidden: bool = False) -> None:
        """Remove all objects, because the API group is not served or `forbidden`."""
        if self._known or self._served is not False or self._forbidden is not forbidden:
            self._known = {}
            self._deleted = {}
            self._as_of = -1
            self._served = False
            self._forbidden = forbidden
            self._sink(Unread(PodGroup, self.api_group, forbidden))

    def parse(
        self,
        body: Mapping[str, Any],
        version: str,
    ) -> PodGroup | None:
        """Parse a PodGroup; None if the object is not one, which is reported."""
        try:
            return parse_pod_group(body, api_group=self.api_group, version=version)
        except ValueError as error:
            self._warn(str(error))
            return None

    def _tell(self, listed: dict[str, PodGroup]) -> None:
        # Equal revisions are the same object here, so identity is enough.
        before = self._known
        changed = listed.keys() != before.keys()
        changed = changed or any(before[uid] is not read for uid, read in listed.items())

        self._known = listed
        if changed or not self._served:
            self._served = True
            self._sink(Replaced(PodGroup, tuple(listed.values()), self.api_group))


def revision(resource_version: str) -> int:
    """A resourceVersion as a number, since they are comparable (KEP-5504). A text that is not a
    number counts as the oldest.
    """
    if resource_version.isdigit():
        return int(resource_version)

    return -1


def _identity(body: Mapping[str, Any]) -> tuple[str, int]:
    """The uid of an object, and its revision."""
    metadata = body.get("metadata") or {}
    uid = str(metadata.get("uid", ""))
    version = str(metadata.get("resourceVersion", ""))
    return uid, revision(version)
