"""A collection followed by a thread, so that callers wait for changes instead of polling.

    with Following(api, "/api/v1/pods") as pods:
        pods.wait_for(lambda all_pods: len(all_pods) == 3, within_s=10)

Invariant: `objects` is always a state the server had, changes come in the server's order, and after
a gap (410) the difference comes as changes. Times are when *we* saw a change, a moment after the
server made it.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self, TypeVar

from control_plane.api import Api, ApiError, Object, Watch

T = TypeVar("T")
Heard = Callable[[str, Object, float], None]


class Following:
    """The objects of one collection, by uid.

    `on_change(kind, object, seen_s)` is called from the following thread for each change, ADDED for
    objects that exist at the start; `seen_s` is monotonic. An exception in it ends the thread;
    `wait_for` and `close` raise it again.
    """

    def __init__(
        self, api: Api, path: str, *, on_change: Heard | None = None, selector: str = ""
    ) -> None:
        self._api, self._path, self._on_change = api, path, on_change
        self._query: dict[str, str | int] = {"labelSelector": selector} if selector else {}
        self._objects: dict[str, Object] = {}
        self._changed = threading.Condition()
        self._failed: BaseException | None = None
        self._watch: Watch | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._follow, name=f"following {path}", daemon=True)

    def start(self) -> None:
        """List, and follow from there."""
        self._watch = self._list()
        self._thread.start()

    def close(self) -> None:
        """Stop following and raise its exception, if any; idempotent."""
        self._closing = True
        if self._watch is not None:
            self._watch.close()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._failed = None  # one error is enough
        self.close()

    def objects(self) -> dict[str, Object]:
        """All objects as last seen, by uid; do not change them."""
        with self._changed:
            return dict(self._objects)

    def check(self) -> None:
        """Raise the exception of the following thread, if any."""
        with self._changed:
            if self._failed is not None:
                raise self._failed

    def wait_for(
        self, look: Callable[[Mapping[str, Object]], T | None], *, within_s: float, what: str = ""
    ) -> T:
        """The first result of `look` on the objects that is neither None nor False.

        `look` sees changes that arrive together in one call. Raises TimeoutError naming `what` at
        the deadline.
        """
        deadline_s = time.monotonic() + within_s
        with self._changed:
            while True:
                if self._failed is not None:
                    raise self._failed
                found = look(self._objects)
                if found is not None and found is not False:
                    return found
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    raise TimeoutError(f"not within {within_s:g} s: {what or look}")
                self._changed.wait(left_s)

    # --- inside ----------------------------------------------------------------------------------

    def _list(self) -> Watch:
        """Bring `objects` up to date by a full list; a watch that goes on from there."""
        listed = self._api.list(self._path, **self._query)
        there = {item["metadata"]["uid"]: item for item in listed.items}
        for uid in [uid for uid in self._objects if uid not in there]:
            self._apply("DELETED", self._objects[uid])
        for uid, item in there.items():
            old = self._objects.get(uid)
            if (
                old is None
                or old["metadata"]["resourceVersion"] != item["metadata"]["resourceVersion"]
            ):
                self._apply("ADDED" if old is None else "MODIFIED", item)
        return self._api.watch(self._path, listed.resource_version, **self._query)

    def _apply(self, kind: str, item: Object) -> None:
        seen_s = time.monotonic()
        with self._changed:
            if kind == "DELETED":
                self._objects.pop(item["metadata"]["uid"], None)
            else:
                self._objects[item["metadata"]["uid"]] = item
            if self._on_change is not None:
                self._on_change(kind, item, seen_s)
            self._changed.notify_all()

    def _follow(self) -> None:
        try:
            while not self._closing:
                assert self._watch is not None
                try:
                    for kind, item in self._watch:
                        self._apply(kind, item)
                except ApiError as error:
                    if error.status != http.client.GONE:
                        raise
                    self._watch = self._list()
        except BaseException as error:
            if self._closing:
                return
            with self._changed:
                self._failed = error
                self._changed.notify_all()
