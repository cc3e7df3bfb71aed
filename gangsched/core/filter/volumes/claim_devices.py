"""Devices for the claims of the pods that a plan places: each claim's once, also of one that several pods use (A13).

Invariant: the devices of a claim are of one node. The first pod that the plan places decides for all that share it: the
others go there too, and the pod placed first gets the claim allocated. Undoing a move restores everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from functools import cached_property
from typing import NamedTuple

from gangsched.core.devices.device_index import DeviceKind
from gangsched.core.devices.device_use import DeviceUse
from gangsched.core.filter.volumes.allocating import allocating, following
from gangsched.core.filter.volumes.claim_needs import ClaimNeeds
from gangsched.core.work import Work
from gangsched.model.objects import Pod
from gangsched.model.snapshot import NodeTable
from gangsched.model.storage import ResourceClaim, Selection, Storage


class WantedDevices(NamedTuple):
    """`claims` of a pod for which devices are still to be chosen, asking for `kind`, and the node on which devices were
    chosen for claims that it shares: -1 if there are several, None if none were.
    """

    claims: tuple[ResourceClaim, ...] = ()
    kind: DeviceKind | None = None
    at: int | None = None


class _Move(NamedTuple):
    """What undoes that a pod left its node: whether the plan placed it there, the position of its own devices, those of
    the pod among the sharers of a claim (key, number, position of the claim), and the claims whose devices became free.
    """

    is_placed: bool = True
    at: int | None = None
    shared: tuple[tuple[str, int, int | None], ...] = ()
    freed: tuple[str, ...] = ()


class ClaimDevices:
    """Which claims of a plan's pods have devices, and on which node; `needs` looks up the requirements of a pod."""

    def __init__(
        self, table: NodeTable, storage: Storage, devices: DeviceUse, work: Work, needs: Callable[[Pod], ClaimNeeds]
    ) -> None:
        self._table = table
        self._storage = storage
        self._devices = devices
        self._work = work
        self._needs = needs
        self._gone: set[str] = set()  # pods that the plan removes from their nodes
        self._moves: dict[str, _Move] = {}
        self._sharers: dict[str, tuple[int, list[str]]] = {}  # by claim: its node, and the pods that the plan placed
        self._placed: set[str] = set()  # pods that need devices

    # --- moves ------------------------------------------------------------------------------------------------------

    def come(self, pod: Pod, node: int) -> None:
        """Reserve devices for a pod that is placed."""
        self._take(pod, node, _Move())

    def go(self, pod: Pod, node: int) -> None:
        """Give back the devices of a pod that leaves its node."""
        is_placed = pod.uid in self._placed
        self._placed.discard(pod.uid)
        at, shared = self._devices.go(pod.uid, node), tuple(self._leave(pod))
        freed = () if is_placed else self._freed(pod)
        self._moves[pod.uid] = _Move(is_placed, at, shared, freed)
        if freed:
            self._devices.free(node, freed)

    def come_back(self, pod: Pod, node: int) -> None:
        """Undo `go`."""
        move = self._moves.pop(pod.uid)
        if move.is_placed:
            self._take(pod, node, move)
        if move.freed:
            self._devices.hold(node, move.freed)
        self._gone.discard(pod.uid)

    def _take(self, pod: Pod, node: int, move: _Move) -> None:
        with self._work.unlimited():  # the pod is being placed, which must not be cut short
            needs = self._needs(pod)
        if needs.kind is not None:
            self._placed.add(pod.uid)
        before = {key: (number, at) for key, number, at in move.shared}
        for claim, kind in reversed(needs.sharing) if before else needs.sharing:
            if self._place_of(claim.key) not in {None, node} or self._allocating_on(claim.key) is not None:
                continue
            _, pods = self._sharers.setdefault(claim.key, (node, []))
            number, at = before.get(claim.key, (len(pods), None))
            if not pods:
                self._devices.come(claim.key, kind, node, at)
            pods.insert(number, pod.uid)
        if needs.own is not None:
            self._devices.come(pod.uid, needs.own, node, move.at)

    def _leave(self, pod: Pod) -> Iterator[tuple[str, int, int | None]]:
        """Remove a pod from the claims that it shares; the last one to go gives the devices back."""
        for use in pod.claims if self._sharers else ():
            node, pods = self._sharers.get(key := use.key(pod.namespace), (-1, []))
            if pod.uid in pods:
                number = pods.index(pod.uid)
                del pods[number]
                yield key, number, None if pods else self._devices.go(key, node)
                if not pods:
                    del self._sharers[key]

    def _freed(self, pod: Pod) -> tuple[str, ...]:
        """The claims whose devices are free once this pod has left its node, too."""
        self._gone.add(pod.uid)
        found = []
        for use in pod.claims:
            claim = self._storage.devices.get(use.key(pod.namespace)) if use.device else None
            if claim is not None and self._gone.issuperset(self._consumers(claim)):
                found.append(claim.key)
        return tuple(found)

    def _consumers(self, claim: ResourceClaim) -> Iterable[str]:
        """The pods that keep a claim's devices in use: its consumers, or those for which it is being allocated."""
        return claim.reserved if claim.allocated else self._allocations.get(claim.key, (-1, frozenset[str]()))[1]

    # --- where devices are ------------------------------------------------------------------------------------------

    @cached_property
    def _allocations(self) -> Mapping[str, tuple[int, Set[str]]]:
        """By key of the claim: the node of the devices that a plan before chose for it, and the placed pods that use
        them.
        """
        decided = [(uid, each) for uid, selections in self._storage.selections.items() for each in selections]
        users: dict[str, set[str]] = {}
        for uid, each in decided:
            users.setdefault(each.key, set()).add(uid)
        return {
            each.key: (self._table.index.get(each.allocation.node, -1), users[each.key])
            for _, each in decided
            if each.allocation is not None
        }

    def _allocating_on(self, key: str) -> int | None:
        """The node on which a claim is being allocated for pods that stay; None if it is not."""
        node, users = self._allocations.get(key, (None, frozenset[str]()))
        return None if self._gone >= users else node

    def _place_of(self, key: str) -> int | None:
        """The node on which a claim's devices were chosen, in this plan or before; None if they were not."""
        node = self._allocating_on(key)
        return self._sharers[key][0] if node is None and key in self._sharers else node

    def wanted(self, pod: Pod) -> WantedDevices:
        """Devices that a pod needs, beside those that were chosen for claims which it shares with other pods."""
        needs = self._needs(pod)
        if not needs.sharing:
            return WantedDevices(needs.unallocated, needs.kind)
        places = {claim.key: self._place_of(claim.key) for claim, _ in needs.sharing}
        nodes = {node for node in places.values() if node is not None}
        claims = tuple(each for each in needs.unallocated if places.get(each.key) is None)
        kind = self._storage.allocator.kind(each.asks for each in claims) if claims else None
        return WantedDevices(claims, kind, None if not nodes else nodes.pop() if len(nodes) == 1 else -1)

    def shares(self, pod: Pod) -> int:
        """Number of pods that use a claim which the pod shares with them and which has no devices yet, at most."""
        return max((self._storage.shared[claim.key] for claim, _ in self._needs(pod).sharing), default=0)

    @property
    def is_used(self) -> bool:
        """Whether the plan has placed pods that need devices."""
        return bool(self._placed)

    def places(self, pod: Pod) -> bool:
        """Whether the plan has placed the pod, which needs devices; what holds a node since before has decisions."""
        return pod.uid in self._placed

    # --- the decision -----------------------------------------------------------------------------------------------

    def decided(self, pod: Pod, node: str) -> tuple[Selection, ...] | None:
        """The decisions about the unallocated claims of a pod that the plan placed on this node; None if devices were
        not found in time.

        Devices are chosen once for all pods of the plan (`DeviceUse`).
        """
        index, needs, classes = self._table.index[node], self._needs(pod), self._devices.index.classes
        sharing = {claim.key for claim, _ in needs.sharing}
        own = [each for each in needs.unallocated if each.key not in sharing]
        chosen = self._devices.chosen(pod.uid, index) if own else ()
        if chosen is None or any(self._place_of(key) != index for key in sharing):
            return None
        found = [
            allocating(claim, results, node, classes, needs.consumers.get(claim.key))
            for claim, results in zip(own, chosen, strict=True)
        ]
        for claim, _ in needs.sharing:
            _, pods = self._sharers.get(claim.key, (-1, []))
            if pods[:1] != [pod.uid]:
                found.append(following(claim, node, needs.consumers.get(claim.key)))
            elif (results := self._devices.chosen(claim.key, index)) is not None:
                found.append(allocating(claim, results[0], node, classes, needs.consumers.get(claim.key)))
            else:
                return None
        return tuple(found)
