"""Claims, volumes and classes as the API server says they are, who uses them, and what is decided about them.

Law: the last word of the API server on each object is kept as it is; what we decided (`select`) lies beside it until
the pod is bound or has lost its place. `storage()` photographs all of it, the same object until something changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from gangsched.model.objects import Pod
from gangsched.model.storage import (
    RESOURCES,
    Claim,
    CsiNode,
    ResourceClaim,
    Selection,
    Storage,
    StorageClass,
    StorageObject,
    Volume,
    storage_key,
)


class StorageCache:
    """`apply`, `drop` and `replace` answer with the uids of pods without a place that the change may help."""

    def __init__(self) -> None:
        self._kinds: dict[type, dict[str, Any]] = {kind: {} for kind in RESOURCES}
        self._users: dict[str, tuple[Pod, str]] = {}
        self._selections: dict[str, tuple[Selection, ...]] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        self._namers: dict[str, set[str]] = defaultdict(set)
        self._shared: set[str] = set()
        self._waiting: set[str] = set()  # pods that name claims and have no place
        self._shown: set[type] = set()
        self._unread: frozenset[type[StorageObject]] = frozenset()
        self._photo: Storage | None = None

    # --- objects ----------------------------------------------------------------------------------------------------

    def apply(self, item: StorageObject) -> set[str]:
        """An object is there or has changed."""
        key = storage_key(item)
        if self._kinds[type(item)].get(key) == item:
            return set()
        self._to_change(type(item))[key] = item
        return self._helped(type(item), key)

    def drop(self, kind: type, key: str) -> set[str]:
        """An object is gone."""
        if key not in self._kinds[kind]:
            return set()
        del self._to_change(kind)[key]
        return self._helped(kind, key)

    def replace(self, kind: type, items: Iterable[StorageObject]) -> set[str]:
        """These objects of a kind and no others."""
        listed = {storage_key(item): item for item in items}
        if listed == self._kinds[kind] and kind not in self._unread:
            return set()
        self._unread -= {kind}
        self._kinds[kind] = listed
        self._photo = None
        return set(self._waiting)

    def miss(self, kind: type[StorageObject]) -> set[str]:
        """Objects of a kind cannot be read; until they are listed again nobody with claims gets a place."""
        if kind in self._unread:
            return set()
        self._unread |= {kind}
        self._photo = None
        return set(self._waiting)

    def _to_change(self, kind: type) -> dict[str, Any]:
        """A kind's objects, copied if a photograph shows them."""
        if kind in self._shown:
            self._kinds[kind] = dict(self._kinds[kind])
            self._shown.discard(kind)
        self._photo = None
        return self._kinds[kind]

    def _helped(self, kind: type, key: str) -> set[str]:
        """A claim matters to the pods that name it, anything else to all that name claims."""
        return self._waiting & self._namers.get(key, set()) if kind in {Claim, ResourceClaim} else set(self._waiting)

    # --- pods -------------------------------------------------------------------------------------------------------

    def name(self, pod: Pod) -> None:
        """A live pod names these claims, placed or not."""
        keys = tuple(dict.fromkeys(use.key(pod.namespace) for use in pod.claims)) if pod.claims else ()
        if self._names.get(pod.uid, ()) == keys:
            return
        self.unname(pod.uid)  # a ResourceClaim gets its name when it is made
        if not keys:
            return
        self._names[pod.uid] = keys
        if pod.uid not in self._users:
            self._waiting.add(pod.uid)
        for key in keys:
            self._namers[key].add(pod.uid)
            self._share(key)

    def unname(self, uid: str) -> None:
        """The pod has ended or is gone."""
        self._waiting.discard(uid)
        for key in self._names.pop(uid, ()):
            self._namers[key].discard(uid)
            self._share(key)
            if not self._namers[key]:
                del self._namers[key]

    def named(self) -> Iterable[str]:
        """The uids of all pods known to name a claim."""
        return self._names.keys()

    def _share(self, key: str) -> None:
        shared = len(self._namers[key]) > 1
        if shared != (key in self._shared):
            (self._shared.add if shared else self._shared.discard)(key)
            self._photo = None

    def place(self, pod: Pod, node: str) -> None:
        """A pod has a place; once it is bound nothing is left to decide about its claims."""
        if pod.claims:
            self._users[pod.uid] = (pod, node)
            self._waiting.discard(pod.uid)
            self._photo = None
            if pod.node_name:
                self._selections.pop(pod.uid, None)

    def unplace(self, uid: str) -> None:
        """A pod has lost its place, and what was picked for it."""
        if self._users.pop(uid, None) is not None:
            self._selections.pop(uid, None)
            if uid in self._names:
                self._waiting.add(uid)
            self._photo = None

    def select(self, uid: str, selections: tuple[Selection, ...]) -> None:
        """What was decided about the claims of a pod that got a place."""
        if selections:
            self._selections[uid] = selections
            self._photo = None

    def selections(self, uid: str) -> tuple[Selection, ...]:
        """What was decided about the claims of a pod that is not bound yet."""
        return self._selections.get(uid, ())

    def storage(self) -> Storage:
        """All of it as of now."""
        if self._photo is None:
            self._shown = set(self._kinds)
            self._photo = Storage(
                self._kinds[Claim],
                self._kinds[Volume],
                self._kinds[StorageClass],
                self._kinds[CsiNode],
                self._kinds[ResourceClaim],
                users=dict(self._users),
                selections=dict(self._selections),
                shared=frozenset(self._shared),
                unread=self._unread,
            )
        return self._photo
