"""Claims, volumes and classes as last read, and the pods that use them.

Invariant: each object is stored as last sent by the API server; decisions about a claim are stored
with its member. `storage()` returns all objects, as the same value until something changes. The
gangs that a change may help are in `waits`, until they are taken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, TypeAlias

from gangsched.core.devices.device_index import DeviceIndex
from gangsched.core.devices.located import EVERY_NODE
from gangsched.model.devices import DeviceResult, DeviceTaintRule, ResourceSlice
from gangsched.model.objects import Pod, PodGroup
from gangsched.model.storage import (
    ALLOCATING,
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
from gangsched.state.claim_waits import ClaimWaits, claim_wait, claims_of
from gangsched.state.group_claims import GroupClaims
from gangsched.state.members import Member, State
from gangsched.state.sets_by_key import SetsByKey

#: Devices by claim.
Chosen: TypeAlias = dict[str, tuple[DeviceResult, ...]]


class StorageCache:
    """Storage objects, and who waits for them."""

    def __init__(self, *, allocates: bool = False) -> None:
        """`allocates`: devices are allocated to ResourceClaims, once all kinds that this requires
        have been read.
        """
        self._allocator = DeviceIndex() if allocates else None
        self._awaits = ALLOCATING if allocates else frozenset()

        # by pod and claim, not seen in the claim yet
        self._chosen: dict[str, Chosen] = {}
        self._chosen_for: dict[str, dict[str, Chosen]] = defaultdict(dict)

        # versions of claims that our own writes made, or are under way to
        self._written: dict[str, str] = {}
        self._releasing: set[str] = set()
        self._strangers: set[str] = set()  # unbound pods of other schedulers with ResourceClaims
        self._freed: set[str] = set()
        self._sliced: set[str] = set()
        self._lost: set[str] = set()  # claims that were deleted while devices were chosen for them
        self._kinds: dict[type, dict[str, Any]] = {kind: {} for kind in RESOURCES}
        self._users: dict[str, dict[str, Member]] = defaultdict(dict)  # by claim, then by uid
        self._lasting = SetsByKey()  # those of them that end with their node
        self._requested = SetsByKey()  # claims, by the node that a volume is asked on
        self.waits = ClaimWaits()
        self.groups = GroupClaims()
        self._changed: set[str] = set()
        self._shown: set[type] = set()
        self._unread: frozenset[type[StorageObject]] = frozenset()
        self._photo: Storage | None = None

    # --- objects ---------------------------------------------------------------------------------

    def apply(self, item: StorageObject) -> None:
        """Add or update an object."""
        key = storage_key(item)
        # Controllers touch claims and volumes often, and nearly always in fields that are not read.
        kind = type(item)
        before = self._kinds[kind].get(key)
        if before == item:
            return

        self._to_change(kind)[key] = item
        self._note_request(key, before, item)
        self._allocate(kind, key, item)
        self._changed.add(key)

        if isinstance(item, Volume) and item.claim is not None:
            # A claim may show its volume before the volume itself is shown; whoever waits for the
            # claim looks again.
            self._changed.add(f"{item.claim.namespace}/{item.claim.name}")

        self._concern(kind, key, before, item)

    def drop(self, kind: type, key: str) -> None:
        """Remove a deleted object."""
        if key not in self._kinds[kind]:
            return

        before = self._to_change(kind).pop(key)
        self._note_request(key, before, None)
        self._allocate(kind, key, None)
        self._changed.add(key)
        self._concern(kind, key, before, None)

    def replace(self, kind: type, items: Iterable[StorageObject]) -> None:
        """Replace all objects of a kind."""
        items = list(items)
        listed = {storage_key(item): item for item in items}
        # The first list counts though it is empty: until then, pods with claims are not placed.
        if listed == self._kinds[kind] and kind not in self._unread | self._awaits:
            return

        self._unread -= {kind}
        self._awaits -= {kind}
        self._changed |= listed.keys() | self._kinds[kind].keys()
        before = self._kinds[kind]

        self._kinds[kind] = listed
        if kind is Claim:
            self._requested = SetsByKey()
            for key, claim in listed.items():
                self._note_request(key, None, claim)

        if kind is ResourceClaim:
            for key in before.keys() | listed.keys():
                self._allocate(kind, key, listed.get(key))
        # As a whole: a pool is usable only once all of its slices are known.
        elif kind in ALLOCATING and self._allocator is not None:
            self._reallocate(kind, self._allocator.replace(kind, items))  # type: ignore[arg-type]

        self._photo = None
        self.waits.concern_all()

    def miss(self, kind: type, *, forbidden: bool = False) -> None:
        """Record that a kind cannot be read; until it is listed, pods with claims are not placed.

        Taint rules that are not served count as an empty list.
        """
        # The kind is optional: where it is not served, none of its objects can exist.
        is_unread = kind is not DeviceTaintRule or forbidden
        if is_unread and kind in self._unread:
            return

        self._awaits -= {kind}
        self._unread = self._unread | {kind} if is_unread else self._unread - {kind}
        self._photo = None
        self.waits.concern_all()

    @property
    def awaited(self) -> frozenset[type]:
        """Kinds that are needed to allocate devices and are not read yet."""
        return self._awaits

    def _to_change(self, kind: type) -> dict[str, Any]:
        """A kind's objects, copied first if a snapshot has them."""
        if kind in self._shown:
            # Plans and reviews read it meanwhile; at the next change it is not shown any more and
            # changed in place.
            self._kinds[kind] = dict(self._kinds[kind])
            self._shown.discard(kind)

        self._photo = None
        return self._kinds[kind]

    def claim(self, key: str) -> Claim | None:
        """PersistentVolumeClaim by its key."""
        found: Claim | None = self._kinds[Claim].get(key)
        return found

    def requested_by(self, member: Member) -> Iterator[Claim]:
        """Yield the claims of a member for which a volume is requested on a node and not made
        yet.
        """
        for key in _keys(member.pod):
            claim = self.claim(key)
            if claim is not None and claim.selected_node and not claim.volume_name:
                yield claim

    def node_gone(self, node: str) -> None:
        """Those for whose claims a volume is requested on this node wait in vain."""
        for key in self._requested.of(node):
            self.waits.concern(key)

    def _note_request(self, key: str, before: Any, item: Any) -> None:
        """Keep the claims by the node on which a volume is requested for them."""
        if isinstance(before, Claim) and before.selected_node:
            self._requested.discard(before.selected_node, key)

        if isinstance(item, Claim) and item.selected_node and not item.volume_name:
            self._requested.add(item.selected_node, key)

    @property
    def volumes(self) -> Mapping[str, Volume]:
        """PersistentVolumes by name."""
        return self._kinds[Volume]

    def take_changed(self) -> set[str]:
        """Keys of claims and volumes that changed since the last call, and of claims whose volume
        changed.
        """
        changed = self._changed
        self._changed = set()
        return changed

    # --- devices ---------------------------------------------------------------------------------

    @property
    def allocator(self) -> DeviceIndex | None:
        """The devices of nodes; None if gangsched does not allocate devices."""
        return self._allocator

    def take_freed(self, nodes: Set[str]) -> set[str]:
        """The subset of `nodes` whose devices changed since the last call."""
        freed = self._freed
        self._freed = set()
        if EVERY_NODE in freed:
            return {*nodes}

        return freed & nodes

    def take_sliced(self) -> set[str]:
        """Nodes whose slices changed since the last call."""
        sliced = self._sliced
        self._sliced = set()
        return sliced

    @property
    def has_rivals(self) -> bool:
        """Whether pods of other schedulers wait for devices, so that another scheduler may allocate
        the same devices.
        """
        return bool(self._strangers)

    def is_outdated(self, key: str) -> bool:
        """Whether gangsched's own writes to a ResourceClaim are in flight or have not been seen in
        the watch.
        """
        return key in self._written or key in self._releasing

    def fixes_node(self, pod: Pod) -> bool:
        """Whether a claim of the pod is bound to, or asked for on, some nodes only."""
        for use in pod.claims:
            key = use.key(pod.namespace)
            if use.device:
                devices = self.resource_claim(key)
                if devices is not None and devices.pins:
                    return True

                continue

            claim = self.claim(key)
            if claim is None:
                continue
            if claim.selected_node and not claim.volume_name:
                return True

            volume = self.volumes.get(claim.volume_name)
            if volume is not None and volume.pins:
                return True

        return False

    def chosen_for(self, key: str) -> Set[str]:
        """The pods for which a plan chose devices for a ResourceClaim, by uid, without those whose
        writes failed: they keep the devices for their next try, and nobody else may wait for it.
        """
        users = self._users.get(key, {})
        return {
            uid
            for uid in self._chosen_for.get(key, {})
            if uid in users and users[uid].state is not State.KEPT
        }

    def was_deleted(self, key: str) -> bool:
        """Whether a claim was deleted since a plan chose devices for it."""
        return key in self._lost

    def resource_claim(self, key: str) -> ResourceClaim | None:
        """ResourceClaim by its key."""
        found: ResourceClaim | None = self._kinds[ResourceClaim].get(key)
        return found

    def declare(self, group_id: str, group: PodGroup | None) -> None:
        """Record the ResourceClaims of a native PodGroup, None for one that is gone."""
        if self.groups.declare(group_id, group):
            self._photo = None
            self.waits.concern(claims_of(group_id))

    def releasing(self, keys: Iterable[str]) -> None:
        """Record that ResourceClaims are being deallocated; no pod may use them before `wrote`."""
        new = set(keys) - self._releasing
        if new:
            self._releasing |= new
            self._photo = None

    def wrote(self, versions: Mapping[str, str]) -> None:
        """Record the versions of ResourceClaims that result from gangsched's own writes; no pod may
        use a claim before the watch shows this version.
        """
        for key, version in versions.items():
            self._releasing.discard(key)
            claim = self.resource_claim(key)
            # The watch may have been faster than the answer to our own write.
            if claim is not None and is_older(claim.resource_version, version):
                self._written[key] = version
            else:
                self._written.pop(key, None)

            self.waits.concern(key)

        self._photo = None

    def _allocate(self, kind: type, key: str, item: Any) -> None:
        """Keep the allocator up to date with an object, None for one that is gone."""
        if kind is ResourceClaim:
            if item is None:
                self._releasing.discard(key)
                # Only where somebody waits for it: else every deleted claim would be remembered.
                self._lost |= {key} & self._chosen_for.keys()

            version = self._written.get(key)
            is_seen = item is None or (
                version is not None and not is_older(item.resource_version, version)
            )
            if is_seen:
                self._written.pop(key, None)

            self._hold(key)
        elif kind in ALLOCATING and self._allocator is not None:
            self._reallocate(
                kind,
                self._allocator.drop(kind, key) if item is None else self._allocator.apply(item),
            )

    def _reallocate(self, kind: type, nodes: set[str]) -> None:
        self._freed |= nodes
        self._sliced |= nodes if kind is ResourceSlice else set()

    def _hold(self, key: str) -> None:
        """Record the devices that a claim has, or that were chosen for it."""
        if self._allocator is None:
            return

        claim = self.resource_claim(key)
        results = None
        if claim is not None and claim.asks is not None:
            results = claim.asks.results

        if results is None:
            # A shared claim is allocated for one of its pods, and the others follow (decision 90).
            choices = self._chosen_for.get(key, {}).values()
            results = next((chosen[key] for chosen in choices), ())

        # Devices of a DaemonSet's pod become free with the node at the earliest; reservations must
        # not count on them.
        is_lasting = bool(self._lasting.of(key))
        nodes, is_less = self._allocator.hold(key, results, is_lasting=is_lasting)
        self._freed |= nodes if is_less else set()

    def _choose(self, member: Member) -> None:
        """Keep the devices that a plan chose for a member as long as it has them."""
        uid = member.pod.uid
        chosen: Chosen = {}

        for selection in member.selections:
            if selection.allocation is not None:
                chosen[selection.key] = selection.allocation.results

        if self._allocator is None or chosen == self._chosen.get(uid, {}):
            return

        before = self._forget_chosen(uid)
        if chosen:
            self._chosen[uid] = chosen

        for key in chosen:
            self._chosen_for[key][uid] = chosen

        for key in before | chosen.keys():
            self._hold(key)

    def _forget_chosen(self, uid: str) -> Set[str]:
        """Drop what was chosen for a pod; the claims concerned."""
        before = self._chosen.pop(uid, {})
        for key in before:
            self._chosen_for[key].pop(uid)
            if not self._chosen_for[key]:
                del self._chosen_for[key]
                self._lost.discard(key)

            self._hold(key)

        return before.keys()

    def _concern(self, kind: type, key: str, before: Any, item: Any) -> None:
        """A change may help those that name the claim, or all with claims.

        What devices change is woken for by node (`take_freed`).
        """
        if kind is ResourceSlice or kind is DeviceTaintRule:  # of nodes
            return
        if kind is Claim or kind is ResourceClaim:
            self.waits.concern(key)
            return

        # A volume that is some claim's before and after is for nobody else.
        claims = []
        for volume in (before, item):
            if isinstance(volume, Volume):
                claims.append(volume.claim)

        if not claims or None in claims:
            self.waits.concern_all()
            return

        for claim in claims:
            if claim is not None:
                self.waits.concern(f"{claim.namespace}/{claim.name}")

    # --- pods ------------------------------------------------------------------------------------

    def keep(self, member: Member, old: Pod, *, known: bool) -> None:
        """Update the claims that a pod names; `old` is its previous version, `known` is False once
        it is deleted.
        """
        pod = member.pod
        keys = _keys(pod) if known and pod.live else set()
        self._choose(member)
        is_rival = bool(keys) and member.state is State.FOREIGN and pod.claims_devices
        self._strangers.discard(pod.uid)
        if is_rival:
            self._strangers.add(pod.uid)

        for key in _keys(old) - keys:
            users = self._users.get(key, {})
            users.pop(pod.uid, None)
            self._lasting.discard(key, pod.uid)
            if not users:
                self._users.pop(key, None)

        for key in keys:
            self._users[key][pod.uid] = member
            if pod.ends_with_node:
                self._lasts(key, pod.uid)
            else:
                self._lasting.discard(key, pod.uid)

        if keys and not member.node and member.gang:
            self.waits.add(pod.uid, claim_wait(member, keys))
        else:
            self.waits.discard(pod.uid)

        self._photo = None

    def _lasts(self, key: str, uid: str) -> None:
        """A pod that ends with its node uses a claim; the first one changes what is held for it."""
        is_first = not self._lasting.of(key)
        self._lasting.add(key, uid)
        if is_first:
            self._hold(key)

    def expel(self, uid: str) -> None:
        """Remove a pod from all claims, whatever its state."""
        self._strangers.discard(uid)
        self._forget_chosen(uid)

        for key in [*self._users]:
            users = self._users[key]
            if uid not in users:
                continue

            del users[uid]
            self._lasting.discard(key, uid)
            if not users:
                del self._users[key]

        self.waits.discard(uid)
        self._photo = None

    def users(self) -> Mapping[str, Mapping[str, Member]]:
        """Live members that name each claim, by claim key, then uid."""
        return self._users

    def storage(self) -> Storage:
        """All storage objects now; the same object until something changes."""
        if self._photo is None:
            # From now on each kind is copied before it changes.
            self._shown = set(self._kinds)
            placed = self._placed()
            self._photo = Storage(
                self._kinds[Claim],
                self._kinds[Volume],
                self._kinds[StorageClass],
                self._kinds[CsiNode],
                self._kinds[ResourceClaim],
                users=placed,
                selections=self._selections(),
                shared=self._shared(),
                groups=self.groups.shown(),
                unread=self._unread,
                allocator=self._allocator,
                awaits=self._awaits,
                outdated=frozenset(self._written) | self._releasing,
            )

        return self._photo

    def _placed(self) -> dict[str, tuple[Pod, str]]:
        """The users that have a node, by uid, each with the node."""
        placed = {}
        for users in self._users.values():
            for uid, member in users.items():
                if member.node:
                    placed[uid] = (member.pod, member.node)

        return placed

    def _selections(self) -> dict[str, tuple[Selection, ...]]:
        """What was decided about the claims of each user that has a node, by uid."""
        selections = {}
        for users in self._users.values():
            for uid, member in users.items():
                if member.node and member.selections:
                    selections[uid] = member.selections

        return selections

    def _shared(self) -> dict[str, int]:
        """The number of users of each claim that has several."""
        shared = {}
        for key, users in self._users.items():
            if len(users) > 1:
                shared[key] = len(users)

        return shared


def is_older(version: str, written: str | None) -> bool:
    """Whether a version seen in the watch is older than the one that gangsched wrote; versions are
    increasing numbers (KEP-5504).
    """
    return (
        written is not None
        and version.isdigit()
        and written.isdigit()
        and int(version) < int(written)
    )


def _keys(pod: Pod) -> set[str]:
    """The keys of the claims of a pod."""
    return {use.key(pod.namespace) for use in pod.claims}
