"""Claims, volumes and classes as last read, and the pods that use them.

Invariant: each object is stored as last sent by the API server; decisions about a claim are stored with its member.
`storage()` returns all of it, the same object until something changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from gangsched.model.objects import Pod
from gangsched.model.storage import (
    RESOURCES,
    Claim,
    CsiNode,
    ResourceClaim,
    Storage,
    StorageClass,
    StorageObject,
    Volume,
    storage_key,
)
from gangsched.state.members import Member


class StorageCache:
    """`apply`, `drop` and `replace` return the members without a node that the change may help."""

    def __init__(self) -> None:
        self._kinds: dict[type, dict[str, Any]] = {kind: {} for kind in RESOURCES}
        self._users: dict[str, dict[str, Member]] = defaultdict(dict)  # by claim, then by uid
        self._unplaced: dict[str, Member] = {}  # those of them that have no node
        self._changed: set[str] = set()
        self._shown: set[type] = set()
        self._unread: frozenset[type[StorageObject]] = frozenset()
        self._photo: Storage | None = None

    # --- objects ----------------------------------------------------------------------------------------------------

    def apply(self, item: StorageObject) -> list[Member]:
        """Add or update an object."""
        key = storage_key(item)
        if self._kinds[type(item)].get(key) == item:
            return []
        self._to_change(type(item))[key] = item
        self._changed.add(key)
        if isinstance(item, Volume) and item.claim is not None:
            self._changed.add(f"{item.claim.namespace}/{item.claim.name}")
        return self._helped(type(item), key)

    def drop(self, kind: type, key: str) -> list[Member]:
        """Remove a deleted object."""
        if key not in self._kinds[kind]:
            return []
        del self._to_change(kind)[key]
        self._changed.add(key)
        return self._helped(kind, key)

    def replace(self, kind: type, items: Iterable[StorageObject]) -> list[Member]:
        """Replace all objects of a kind."""
        listed = {storage_key(item): item for item in items}
        if listed == self._kinds[kind] and kind not in self._unread:
            return []
        self._unread -= {kind}
        self._changed |= listed.keys() | self._kinds[kind].keys()
        self._kinds[kind] = listed
        self._photo = None
        return list(self._unplaced.values())

    def miss(self, kind: type) -> list[Member]:
        """Record that a kind cannot be read; until it is listed, pods with claims are not placed."""
        if kind in self._unread:
            return []
        self._unread |= {kind}
        self._photo = None
        return list(self._unplaced.values())

    def _to_change(self, kind: type) -> dict[str, Any]:
        """A kind's objects, copied first if a snapshot has them."""
        if kind in self._shown:
            self._kinds[kind] = dict(self._kinds[kind])
            self._shown.discard(kind)
        self._photo = None
        return self._kinds[kind]

    def claim(self, key: str) -> Claim | None:
        """PersistentVolumeClaim by its key."""
        found: Claim | None = self._kinds[Claim].get(key)
        return found

    @property
    def volumes(self) -> Mapping[str, Volume]:
        """PersistentVolumes by name."""
        return self._kinds[Volume]

    def take_changed(self) -> set[str]:
        """Keys of claims and volumes that changed since the last call, and of claims whose volume did."""
        changed, self._changed = self._changed, set()
        return changed

    def _helped(self, kind: type, key: str) -> list[Member]:
        """The members that a change may help: those that name the claim, or all with claims for other objects."""
        if kind in {Claim, ResourceClaim}:
            return [member for member in self._users.get(key, {}).values() if not member.node]
        return list(self._unplaced.values())

    # --- pods -------------------------------------------------------------------------------------------------------

    def keep(self, member: Member, old: Pod, *, known: bool) -> None:
        """Update which members name which claims; `old` is the pod's previous version, `known`
        false once it is deleted.
        """
        pod = member.pod
        keys = _keys(pod) if known and pod.live else set()
        for key in _keys(old) - keys:
            users = self._users.get(key, {})
            users.pop(pod.uid, None)
            if not users:
                self._users.pop(key, None)
        for key in keys:
            self._users[key][pod.uid] = member
        if keys and not member.node:
            self._unplaced[pod.uid] = member
        else:
            self._unplaced.pop(pod.uid, None)
        self._photo = None

    def expel(self, uid: str) -> None:
        """Remove a pod from all claims, whatever its state."""
        for key in [key for key, users in self._users.items() if uid in users]:
            del self._users[key][uid]
            if not self._users[key]:
                del self._users[key]
        self._unplaced.pop(uid, None)
        self._photo = None

    def users(self) -> Mapping[str, Mapping[str, Member]]:
        """Live members that name each claim, by claim key, then uid."""
        return self._users

    def unplaced(self) -> Mapping[str, Member]:
        """Users without a node, by uid."""
        return self._unplaced

    def storage(self) -> Storage:
        """Current state."""
        if self._photo is None:
            self._shown = set(self._kinds)
            placed = {uid: member for users in self._users.values() for uid, member in users.items() if member.node}
            self._photo = Storage(
                self._kinds[Claim],
                self._kinds[Volume],
                self._kinds[StorageClass],
                self._kinds[CsiNode],
                self._kinds[ResourceClaim],
                users={uid: (member.pod, member.node) for uid, member in placed.items()},
                selections={uid: member.selections for uid, member in placed.items() if member.selections},
                shared=frozenset(key for key, users in self._users.items() if len(users) > 1),
                unread=self._unread,
            )
        return self._photo


def _keys(pod: Pod) -> set[str]:
    """The keys of the claims of a pod."""
    return {use.key(pod.namespace) for use in pod.claims}
