"""The store: the last version of each object of one resource, and the messages about changes.

Invariant: it converts pages and watch lines into messages, without awaits and without a clock. A
list replaces everything; a line changes one object; a line without a relevant change is dropped. A
first list of many pages is reported page by page, because one message would block the loop: until
`resource_version` is set, the reports are incomplete. For an optional resource the whole list is
reported again at the end, which shows that the resource can be read. An object that cannot be
decoded is reported once and skipped; its last valid version stays, because room in use must not
look free. A pod without a valid version uses all room of its node (semantics I8).
"""

from __future__ import annotations

import re
from collections.abc import ItemsView
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic

import msgspec
from msgspec import Raw

from gangsched.kube.http.answers import decoded
from gangsched.kube.http.faults import ApiFault
from gangsched.kube.ports import Sink, Warn
from gangsched.kube.read.decode import DecodeFault
from gangsched.kube.read.resources import Resource, T, W
from gangsched.kube.read.wire import ErrorStatus, Identified, Line, ObjectIdentity, Page
from gangsched.model.counter import counter
from gangsched.model.protocol import Applied, Gone, Message, Replaced, Unread
from gangsched.model.storage import ALLOCATING

_ITEMS = b',"items":['
# Enough for the metadata of a list with its continue token.
HEAD_BYTES = 4_096
TOLD_AT_ONCE = 1_000
SENTENCE_CHARACTERS = 500

UNDECODABLE = (msgspec.DecodeError, RecursionError)
"""RecursionError: no API server sends what is nested more deeply than the daemon's limit
(`app.MOST_NESTED`).
"""
_ABOVE = re.compile(r"Expected `(?:array|object)` of length <= (\d+) - at `\$\.?(.*)`")
"""What msgspec says of a list or map that is longer than its type allows."""

_loose_line = msgspec.json.Decoder(Line[Raw])
_loose_page = msgspec.json.Decoder(Page[Raw])
_identity = msgspec.json.Decoder(Identified)
_status = msgspec.json.Decoder(ErrorStatus)


class WatchError(ApiFault):
    """An ERROR line in a stream: changes may be missing, so the resource must be listed again."""


@dataclass(slots=True)
class StoreCounts:
    """Counters for metrics."""

    lines: int = counter("watch lines read")
    unchanged: int = counter("watch lines that changed no relevant field")
    bad_objects: int = counter("objects that could not be decoded; the log names them")


def continue_token(page: bytes) -> str:
    """Continue token of a page, read from its first bytes; "" if there is none, or if these bytes
    have an unusual form.

    API servers write `metadata` before `items`, so the next page can be requested before this one
    is decoded.
    """
    head, items, _ = page[:HEAD_BYTES].partition(_ITEMS)
    if not items:
        return ""

    try:
        return _loose_page.decode(head + b"}").metadata.continue_token
    except UNDECODABLE:
        return ""


class Store(Generic[W, T]):
    """The objects of one resource. `resource_version` is where a watch continues; "" before the
    first list.
    """

    def __init__(self, resource: Resource[W, T], sink: Sink, warn: Warn) -> None:
        self.resource: Resource[W, T] = resource
        self.resource_version = ""
        self.counts = StoreCounts()
        self._unread: Unread | None = None
        self._sink = sink
        self._warn = warn
        self._items: dict[str, T] = {}
        self._listing: dict[str, T] = {}
        self._untold: list[str] = []
        self._complaints: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._items)

    def items(self) -> ItemsView[str, T]:
        """Known objects by key."""
        return self._items.items()

    def get(self, key: str) -> T | None:
        """Last version of an object."""
        return self._items.get(key)

    def known(self) -> list[Message]:
        """Messages about everything that was reported so far, for a new receiver; a long list is
        split.
        """
        if self._unread is not None:
            lasting = Replaced(self.resource.kind, tuple(self._items.values()))
            return [lasting, self._unread] if self.resource.lasts else [self._unread]

        messages: list[Message] = []
        # One Replaced of 100,000 pods would block the loop.
        if len(self._items) > TOLD_AT_ONCE:
            messages += [Applied(item) for item in self._items.values()]
            # no object of these kinds is used before the list is complete
            if self.resource.kind not in ALLOCATING:
                return messages

        if self.resource_version:
            messages.append(Replaced(self.resource.kind, tuple(self._items.values())))

        return messages

    def refused(self, *, forbidden: bool = False) -> None:
        """Record that the resource cannot be read: it is not served, or `forbidden`."""
        self._unread = Unread(
            self.resource.kind,
            forbidden=forbidden and self.resource.kind in ALLOCATING,
        )
        self._sink(self._unread)

    def begin_list(self) -> None:
        """Drop the pages of an unfinished list."""
        self._listing = {}
        self._untold.clear()

    def add_page(self, raw: bytes) -> str:
        """Add one page of a list; return its continue token. The last page has the token "", and
        then the list replaces everything.

        Raises Malformed if the page is not a list.
        """
        try:
            page = self.resource.page.decode(raw)
            for wire in page.items or ():
                self._list_item(wire)

            meta = page.metadata
        except UNDECODABLE:
            meta = self._add_page_loosely(raw).metadata

        # Only in the first list: later ones must replace everything at once, or deleted objects
        # would seem to exist.
        if not self.resource_version and (meta.continue_token or self._items):
            self._tell_page()

        if not meta.continue_token:
            # Every object was sent as Applied already; the list adds nothing.
            all_told = (
                not self.resource_version
                and self._items
                and self._items.keys() == self._listing.keys()
            )
            self.resource_version = meta.resource_version
            self._unread = None
            self._items = self._listing
            self._listing = {}
            self._untold.clear()

            if not all_told or self.resource.optional:
                self._sink(Replaced(self.resource.kind, tuple(self._items.values())))

        return meta.continue_token

    def _tell_page(self) -> None:
        for key in self._untold:
            item = self._listing[key]
            if self._items.get(key) is not item:
                self._items[key] = item
                self._sink(Applied(item))

        self._untold.clear()

    def take_line(self, raw: bytes) -> None:
        """Apply one line of a watch. Raises WatchError for an ERROR line, Malformed if it is not
        JSON.
        """
        self.counts.lines += 1
        try:
            line = self.resource.line.decode(raw)
        except UNDECODABLE:
            self._take_line_loosely(raw)
            return

        kind = line.type
        wire = line.object

        if kind in {"ADDED", "MODIFIED"}:
            self._apply(wire)
        elif kind == "DELETED":
            self._remove(self.resource.key(wire.metadata))
        elif kind == "ERROR":
            self._take_line_loosely(raw)

        # After the object was applied: a bug in between resumes the watch before it, not behind it.
        self.resource_version = wire.metadata.resource_version or self.resource_version

    def _apply(self, wire: W) -> None:
        key = self.resource.key(wire.metadata)
        item, is_understood = self._convert(key, wire)
        if item is None and is_understood:
            self._remove(key)
        elif item is None:
            return
        # Most lines change only fields that are not decoded: heartbeats of nodes, conditions of
        # pods.
        elif self._items.get(key) == item:
            self.counts.unchanged += 1
        else:
            self._items[key] = item
            self._sink(Applied(item))

    def _convert(self, key: str, wire: W) -> tuple[T | None, bool]:
        """The object, and whether it is understood; what counts instead if it is not."""
        try:
            item = self.resource.convert(wire)
        # of one object; a DecodeFault names it, anything else is a bug that it found
        except Exception as error:
            who = f"{wire.metadata.namespace}/{wire.metadata.name}".strip("/")
            bug = (
                f"One of the {self.resource.name}, {who}, cannot be understood:"
                f" {type(error).__name__}: {error}."
            )
            why = str(error) if isinstance(error, DecodeFault) else bug
            self._complain(key, why)

            return self.resource.instead(wire, self._items.get(key), _cause(why)), False

        self._complaints.pop(key, None)
        return item, True

    def _remove(self, key: str) -> None:
        self._complaints.pop(key, None)
        if self._items.pop(key, None) is not None:
            self._sink(Gone(self.resource.kind, key))

    def _list_item(self, wire: W) -> None:
        key = self.resource.key(wire.metadata)
        item, _ = self._convert(key, wire)
        if item is not None:
            self._list(key, item)

    def _list(self, key: str, item: T) -> None:
        # Equal objects stay the same object, so that comparing and caching by identity goes on
        # working.
        old = self._items.get(key)
        self._listing[key] = old if old is not None and old == item else item
        self._untold.append(key)

    def _add_page_loosely(self, raw: bytes) -> Page[Raw]:
        """Take a page that contains an object with wrong types, the others as usual."""
        page = decoded(_loose_page, raw, f"A page of {self.resource.name} is not a list")
        for item in page.items or ():
            try:
                wire = self.resource.item.decode(item)
            except UNDECODABLE as error:
                identity, instead = self._complain_about(item, error)
                if instead is not None:
                    self._list(self.resource.key(identity), instead)
            else:
                self._list_item(wire)

        return page

    def _take_line_loosely(self, raw: bytes) -> None:
        """Take a line whose object is of an unexpected form: an ERROR's Status, or an object with
        wrong types.
        """
        line = decoded(_loose_line, raw, f"A line in the watch of {self.resource.name} is not JSON")
        if line.type == "ERROR":
            raise _watch_error(line.object)

        try:
            self.resource.item.decode(line.object)
        except UNDECODABLE as error:
            identity, instead = self._complain_about(line.object, error)
            key = self.resource.key(identity)

            if line.type == "DELETED":
                self._remove(key)
            elif instead is not None and self._items.get(key) != instead:
                self._items[key] = instead
                self._sink(Applied(instead))

            self.resource_version = identity.resource_version or self.resource_version

    def _complain_about(self, raw: Raw, error: Exception) -> tuple[ObjectIdentity, T | None]:
        """Warn of an object with wrong types, or above a bound; returns its identity as far as that
        can be read, and what counts instead of it.
        """
        identity = Identified()
        instead = None
        why = _shown(error)

        with suppress(*UNDECODABLE):
            identity = _identity.decode(raw)
            outline = self.resource.outline.decode(raw)
            instead = self.resource.instead(
                outline,
                self._items.get(self.resource.key(identity.metadata)),
                why,
            )

        who = (
            f"{identity.metadata.namespace}/{identity.metadata.name}".strip("/") or "without a name"
        )
        self._complain(
            self.resource.key(identity.metadata),
            f"One of the {self.resource.name}, {who}, cannot be understood: {why}.",
        )
        return identity.metadata, instead

    def _complain(self, key: str, sentence: str) -> None:
        self.counts.bad_objects += 1
        # The error quotes the object, which its author may make as long as 1.5 MB.
        sentence = sentence[:SENTENCE_CHARACTERS]
        if self._complaints.get(key) != sentence:
            self._complaints[key] = sentence
            self._warn(sentence)


def _cause(sentence: str) -> str:
    """The cause in a sentence about an object that cannot be understood."""
    return sentence.partition("cannot be understood: ")[2].removesuffix(".")[:SENTENCE_CHARACTERS]


def _shown(error: Exception) -> str:
    """A fault of the decoder; one about a bound as the sentence of `model.bounds`."""
    text = str(error)
    bound = _ABOVE.match(text)
    if bound is None:
        return text[:SENTENCE_CHARACTERS]

    most = int(bound[1])
    path = bound[2]
    return (
        f"{path} has more than {most:,} entries, and gangsched reads at most {most:,}: remove some"
    )


def _watch_error(raw: Raw) -> WatchError:
    try:
        status = _status.decode(raw)
    except UNDECODABLE:
        return WatchError(0, "Unknown", "The watch ended with an error that is no Status.")

    return WatchError(status.code, status.reason, status.message)
