"""Devices for the claims of the pods that a plan places; a claim that several pods use gets its
devices once.

Invariant: a claim must be usable on the nodes of all pods that share it. If its devices belong to
one node, all pods that share it run on the node of the first one; devices of joint pools, which
several nodes can use, are chosen again for each pod that the plan places. The claim is allocated
for the pod placed first. Undoing a move restores everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from typing import Final, NamedTuple
from uuid import UUID, uuid5

from msgspec.structs import replace

from gangsched.core.devices.device_use import DeviceUse
from gangsched.core.devices.located import DeviceKind
from gangsched.core.filter.volumes.claim_needs import ClaimNeeds
from gangsched.core.filter.volumes.extended_claims import ExtendedClaims, ExtendedNeed, OnNodes
from gangsched.core.work import Work
from gangsched.model.devices import (
    DeviceAllocation,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    DeviceResult,
    MadeClaim,
)
from gangsched.model.objects import NodeSelectorTerm, Pod
from gangsched.model.snapshot import Bools, NodeTable, RefusedNodes
from gangsched.model.storage import GroupConsumer, ResourceClaim, Selection, Storage

SHARES: Final = UUID("5b1c1a4c-3f0c-4f0e-9c5f-1d2f3a8e6b70")
"""Namespace of the ids of shares, which are made of the claim, the request and the number of the
device.
"""


def allocating(
    claim: ResourceClaim,
    results: Sequence[DeviceResult],
    required: tuple[NodeSelectorTerm, ...] | None,
    classes: Mapping[str, DeviceClass],
    consumer: GroupConsumer | None = None,
) -> Selection:
    """The decision to allocate these devices to a claim. `required` selects the nodes that can use
    them. `consumer` is the PodGroup that the claim is reserved for, None if it is reserved for the
    pod.
    """
    assert claim.asks is not None
    # The search names shares by request and number; the API wants a UUID, which must be the same in
    # each attempt.
    named = tuple(
        (
            replace(
                each,
                share=str(uuid5(SHARES, f"{claim.uid or claim.name}/{each.request}/{number}")),
            )
            if each.share
            else each
        )
        for number, each in enumerate(results)
    )
    configs = tuple(_configs(claim.asks, named, classes))

    return Selection(
        namespace=claim.namespace,
        name=claim.name,
        uid=claim.uid,
        resource_version=claim.resource_version,
        reserve=True,
        required=required,
        allocation=DeviceAllocation(named, configs, claim.has_more),
        finalizers=claim.finalizers,
        consumer=consumer,
    )


def following(
    claim: ResourceClaim,
    required: tuple[NodeSelectorTerm, ...] | None,
    consumer: GroupConsumer | None = None,
) -> Selection:
    """The decision that a pod uses, and waits for, a claim whose devices are allocated for another
    pod.
    """
    return Selection(
        namespace=claim.namespace,
        name=claim.name,
        uid=claim.uid,
        reserve=True,
        required=required,
        follows=True,
        consumer=consumer,
    )


def _configs(
    asks: DeviceClaim,
    results: Sequence[DeviceResult],
    classes: Mapping[str, DeviceClass],
) -> list[tuple[tuple[str, ...], str]]:
    """The configs of the classes of which devices were taken, each once, with the requests of its
    class.
    """
    requests: dict[str, list[str]] = {}
    for alternatives in asks.requests:
        taken = _taken(alternatives, results)
        # With alternatives, only the class that was used contributes its configs.
        if taken is not None:
            requests.setdefault(taken.class_name, []).append(taken.full_name)

    configs: list[tuple[tuple[str, ...], str]] = []
    for name, named in requests.items():
        for config in classes[name].configs if name in classes else ():
            configs.append((tuple(named), config))

    return configs


def _taken(
    alternatives: Sequence[DeviceRequest],
    results: Sequence[DeviceResult],
) -> DeviceRequest | None:
    """The alternative that has devices."""
    had = {result.request for result in results}
    return next(
        (device_request for device_request in alternatives if device_request.full_name in had), None
    )


NO_DEVICES = "cannot allocate all claims"
INVALID_POOLS = "invalid resource pools were encountered"


class WantedOnNodes(NamedTuple):
    """A pod's `claims` for which devices are still to be chosen on `nodes`, None for all nodes.
    `kind` has their requests, None if the pod needs no devices there.
    """

    nodes: Bools | None
    claims: tuple[ResourceClaim, ...]
    kind: DeviceKind | None

    def includes(self, node: int) -> bool:
        """Whether the node is one of `nodes`."""
        return self.nodes is None or bool(self.nodes[node])


class WantedDevices(NamedTuple):
    """Devices that a pod needs, by node; it cannot use nodes outside `on`.

    The other fields are about shared claims that already have devices. `at` is the node to which
    these devices belong, None for none, -1 for several nodes. `required` selects the nodes that can
    use devices chosen in earlier plans. `other` are the keys of claims that can be used on further
    nodes, too.
    """

    on: tuple[WantedOnNodes, ...] = (WantedOnNodes(None, (), None),)
    at: int | None = None
    required: tuple[tuple[NodeSelectorTerm, ...], ...] = ()
    other: tuple[str, ...] = ()


class _Freed(NamedTuple):
    """Claims whose devices became free when a pod left the node where they are."""

    node: int
    claims: tuple[str, ...]


class _Move(NamedTuple):
    """What undoes that a pod left its node: whether the plan placed it there, and reserved devices
    for it, the order of its own devices, those of the pod among the sharers of a claim (key,
    number, order of the claim), and the claims whose devices became free. `is_again`: they had
    become free before, until the plan put the pod back.
    """

    is_come: bool = True
    is_placed: bool = True
    order: int | None = None
    shared: tuple[tuple[str, int, int | None], ...] = ()
    freed: _Freed | None = None
    is_again: bool = False


class ClaimDevices:
    """The claims of a plan's pods that have devices, and their nodes; `needs` looks up the
    requirements of a pod.
    """

    def __init__(
        self,
        table: NodeTable,
        storage: Storage,
        devices: DeviceUse,
        extended: ExtendedClaims,
        work: Work,
        needs: Callable[[Pod], ClaimNeeds],
    ) -> None:
        self._table = table
        self._storage = storage
        self._devices = devices
        self._extended = extended
        self._by_node: dict[ExtendedNeed, tuple[OnNodes, ...]] = {}
        self._work = work
        self._needs = needs
        self._gone: set[str] = set()  # pods that the plan removes from their nodes
        self._moves: dict[str, list[_Move]] = {}  # the latest last
        # by pod that was put back: what it has again
        self._returned: dict[str, _Freed] = {}

        # by claim: the pods that the plan placed, and their nodes
        self._sharers: dict[str, list[tuple[str, int]]] = {}
        self._placed: set[str] = set()  # pods that need devices

        # all that the plan places, also those whose claims have devices already
        self._come: set[str] = set()

    # --- moves -----------------------------------------------------------------------------------

    def come(self, pod: Pod, node: int) -> None:
        """Reserve devices for a pod that is placed."""
        self._come.add(pod.uid)
        self._give_back(pod)
        self._take(pod, node, _Move())

    def take_back(self, pod: Pod) -> None:
        """Undo `come`: release what was reserved for the pod."""
        self._remove(pod)
        returned = self._returned.pop(pod.uid, None)
        if returned is not None:
            self._devices.free(*returned)

    def go(self, pod: Pod, node: int) -> None:
        """Release the devices of a pod that is removed from its node."""
        is_come = pod.uid in self._come
        returned = self._returned.pop(pod.uid, None)
        move = self._remove(pod)
        freed = returned
        # A pod that the plan takes back leaves its claim as it was, with devices or without.
        if not is_come:
            claims = self._freed(pod)
            freed = _Freed(node, claims) if claims else None

        moves = self._moves.setdefault(pod.uid, [])
        moves.append(move._replace(freed=freed, is_again=returned is not None))

        if freed is not None:
            self._devices.free(*freed)

    def come_back(self, pod: Pod, node: int) -> None:
        """Undo `go`: give the pod the devices that it had."""
        move = self._moves[pod.uid].pop()
        if move.is_come:
            self._come.add(pod.uid)
        else:
            self._gone.discard(pod.uid)

        if move.is_placed:
            self._take(pod, node, move)

        if move.freed is not None:
            self._devices.hold(*move.freed)
            if move.is_again:
                self._returned[pod.uid] = move.freed

    def stay(self, pod: Pod) -> None:
        """Keep what a pod that gave way has in the API: it is free once that is written."""
        written = self._written(pod)
        if written is not None:
            self._devices.hold(*written)

    def free_again(self, pod: Pod) -> None:
        """Undo `stay`."""
        written = self._written(pod)
        if written is not None:
            self._devices.free(*written)

    def _give_back(self, pod: Pod) -> None:
        """A pod that had left, and is placed again, has the devices that its claims have in the
        API; what was only decided for the others is chosen anew.
        """
        written = self._written(pod)
        if written is not None:
            self._returned[pod.uid] = written
            self._devices.hold(*written)

    def _written(self, pod: Pod) -> _Freed | None:
        """Of the claims that became free as a pod left, those that have devices in the API."""
        moves = self._moves.get(pod.uid)
        freed = moves[-1].freed if moves else None
        if freed is None:
            return None

        allocated = []
        for key in freed.claims:
            if self._storage.devices[key].allocated:
                allocated.append(key)

        return _Freed(freed.node, tuple(allocated)) if allocated else None

    def _remove(self, pod: Pod) -> _Move:
        """Remove a pod from what it takes; what undoes that, without what becomes free."""
        is_come = pod.uid in self._come
        is_placed = pod.uid in self._placed
        self._come.discard(pod.uid)
        self._placed.discard(pod.uid)
        own = self._devices.go(pod.uid)
        shared = tuple(self._leave(pod))
        order = None if own is None else own.order
        return _Move(is_come, is_placed, order, shared)

    def _take(
        self,
        pod: Pod,
        node: int,
        move: _Move,
    ) -> None:
        with self._work.unlimited():  # the pod is being placed, which must not be cut short
            needs = self._needs(pod)

        own = self._own(needs, node)
        if own or needs.sharing:
            self._placed.add(pod.uid)

        before = {key: (number, order) for key, number, order in move.shared}
        # An undo runs backwards, so that each claim gets the order that it had.
        for claim, kind in reversed(needs.sharing) if before else needs.sharing:
            pods = self._sharers.get(claim.key, [])
            # Devices that an earlier plan decided stay where they are; the filter has checked that
            # the node can use them.
            if self._allocating(claim.key) is not None or not self._may_be_on(kind, pods, node):
                continue

            number, order = before.get(claim.key, (len(pods), None))
            # The position matters: the claim is allocated for the pod placed first (`decided`).
            pods.insert(number, (pod.uid, node))
            self._sharers[claim.key] = pods
            self._move_claim(claim.key, kind, order)

        if own:
            self._devices.come(pod.uid, self._kind(own), (node,), move.order)

    def _may_be_on(
        self,
        kind: DeviceKind,
        pods: list[tuple[str, int]],
        node: int,
    ) -> bool:
        with self._work.unlimited():
            nodes = [at for _, at in pods]
            return self._devices.places.may_join(kind, dict.fromkeys([*nodes, node]))

    def _move_claim(
        self,
        key: str,
        kind: DeviceKind,
        order: int | None,
    ) -> None:
        """Let a claim be usable where its pods are."""
        nodes = tuple(dict.fromkeys(node for _, node in self._sharers[key]))
        before = self._devices.placed(key)
        if before is not None and before.nodes == nodes:
            return

        if before is not None:
            self._devices.go(key)

        self._devices.come(key, kind, nodes, order if before is None else before.order)

    def _leave(self, pod: Pod) -> Iterator[tuple[str, int, int | None]]:
        """Remove a pod from the claims that it shares; the last one to go gives the
        devices back.
        """
        # Without shared claims in the plan, pods that leave pay nothing.
        for use in pod.claims if self._sharers else ():
            pods = self._sharers.get(key := use.key(pod.namespace), [])
            number = next((number for number, (uid, _) in enumerate(pods) if uid == pod.uid), None)

            item = None
            if number is not None:
                item = self._devices.placed(key)

            if number is None or item is None:
                continue

            del pods[number]
            if pods:
                yield key, number, None
                self._move_claim(key, item.kind, item.order)
            else:
                del self._sharers[key]
                self._devices.go(key)
                yield key, number, item.order

    def _freed(self, pod: Pod) -> tuple[str, ...]:
        """The claims whose devices are free once this pod has left its node, too."""
        self._gone.add(pod.uid)
        gone = self._gone.difference(self._returned) if self._returned else self._gone
        freed = []

        for use in pod.claims:
            claim = None
            if use.device:
                claim = self._storage.devices.get(use.key(pod.namespace))

            # Devices become free only when the last consumer has left.
            if claim is not None and gone.issuperset(self._consumers(claim)):
                freed.append(claim.key)

        return tuple(freed)

    def _consumers(self, claim: ResourceClaim) -> Iterable[str]:
        """The pods that keep a claim's devices in use: its consumers, or those for which it is
        being allocated.
        """
        if claim.allocated:
            return claim.reserved

        return self._allocations.get(claim.key, (None, frozenset[str]()))[1]

    # --- where devices are -----------------------------------------------------------------------

    @cached_property
    def _allocations(self) -> Mapping[str, tuple[Selection | None, Set[str]]]:
        """By key of the claim: what a plan before decided about its devices, and the placed pods
        that use them.
        """
        decided = [
            (uid, selection)
            for uid, selections in self._storage.selections.items()
            for selection in selections
        ]
        users: dict[str, set[str]] = {}

        for uid, each in decided:
            users.setdefault(each.key, set()).add(uid)

        return {
            each.key: (each, users[each.key]) for _, each in decided if each.allocation is not None
        }

    def _allocating(self, key: str) -> Selection | None:
        """The decision about a claim that is being allocated for pods that stay; None if it
        is not.
        """
        selection, users = self._allocations.get(key, (None, frozenset[str]()))
        # If all its users leave, the claim is deallocated and may be allocated anew.
        return None if self._gone >= users else selection

    def wanted(self, pod: Pod) -> WantedDevices:
        """Devices that a pod needs; shared claims that already have devices are
        listed separately.
        """
        needs = self._needs(pod)
        if not needs.sharing:
            return WantedDevices(self._on_nodes(needs, needs.unallocated))

        nodes: set[int] = set()
        required = []
        other = []
        chosen = set[str]()

        for claim, kind in needs.sharing:
            decided = self._allocating(claim.key)
            placed = self._devices.placed(claim.key)

            if decided is not None:
                # None means that every node can use the devices.
                required += [decided.required] if decided.required is not None else []
            elif placed is not None and self._devices.places.is_shared(kind):
                other.append(claim.key)
            elif placed is not None:
                nodes.update(placed.nodes)
            else:
                continue

            chosen.add(claim.key)

        claims = tuple(claim for claim in needs.unallocated if claim.key not in chosen)
        # Devices of two different nodes: no node can have both, so -1 closes all.
        at = None
        if nodes:
            at = nodes.pop() if len(nodes) == 1 else -1

        return WantedDevices(self._on_nodes(needs, claims), at, tuple(required), tuple(other))

    def _on_nodes(
        self,
        needs: ClaimNeeds,
        claims: tuple[ResourceClaim, ...],
    ) -> tuple[WantedOnNodes, ...]:
        if needs.extended is None:
            return (WantedOnNodes(None, claims, self._kind(claims) if claims else None),)

        on_nodes = []
        for nodes, claim, _ in self._of_extended(needs.extended):
            all_claims = (*claims, claim) if claim is not None and not claim.allocated else claims
            on_nodes.append(
                WantedOnNodes(nodes, all_claims, self._kind(all_claims) if all_claims else None)
            )

        return tuple(on_nodes)

    def _own(self, needs: ClaimNeeds, node: int) -> list[ResourceClaim]:
        """The claims of a pod alone that get devices on the node."""
        sharing = {claim.key for claim, _ in needs.sharing}
        own = []
        for claim in needs.unallocated:
            if claim.key not in sharing:
                own.append(claim)

        opened = _open(self._extended_on(needs, node))

        if opened is None:
            return own

        return [*own, opened]

    def _kind(self, claims: Iterable[ResourceClaim]) -> DeviceKind:
        kind: DeviceKind = self._storage.allocator.kind(claim.asks for claim in claims)
        return kind

    def _of_extended(self, need: ExtendedNeed) -> tuple[OnNodes, ...]:
        """The claim for extended resources by node, found once for pods that need the same."""
        known = self._by_node.get(need.like)
        if known is None:
            self._work.charge(20 + len(self._table) // 50)
            known = self._by_node[need.like] = tuple(self._extended.by_node(need.like))

        return known

    def _extended_on(self, needs: ClaimNeeds, node: int) -> OnNodes | None:
        """The claim for extended resources on a node; None without such resources, or if the pod
        cannot run there.
        """
        if needs.extended is None:
            return None

        return next(
            (on_nodes for on_nodes in self._of_extended(needs.extended) if on_nodes.nodes[node]),
            None,
        )

    def made(self, needs: ClaimNeeds, node: int) -> MadeClaim | None:
        """The claim for a pod's extended resources on a node; None if it needs none there."""
        on_node = self._extended_on(needs, node)
        return None if on_node is None else on_node.made

    def shares(self, pod: Pod) -> int:
        """Largest number of pods that use the same unallocated claim as this pod; 0 if it shares
        none.
        """
        return max(
            (self._storage.shared[claim.key] for claim, _ in self._needs(pod).sharing), default=0
        )

    @property
    def is_used(self) -> bool:
        """Whether the plan has placed pods that need devices."""
        return bool(self._placed)

    def places(self, pod: Pod) -> bool:
        """Whether this plan placed the pod. Pods placed by earlier plans already have their
        decisions.
        """
        return pod.uid in self._placed

    # --- the decision ----------------------------------------------------------------------------

    def decided(
        self,
        pod: Pod,
        node: str,
    ) -> tuple[Selection, ...] | None:
        """The decisions about the unallocated claims of a pod that the plan placed on this node;
        None if the plan found no devices within its work.

        Devices are chosen once for all pods of the plan (`DeviceUse`).
        """
        index = self._table.index[node]
        needs = self._needs(pod)
        sharing = dict(needs.sharing)
        own = self._own(needs, index)
        extended = self._extended_on(needs, index)

        chosen = self._devices.chosen(pod.uid) if own else ()
        if chosen is None:
            return None

        opened = _open(extended)
        if needs.extended is not None and opened is not None and needs.extended.claim is None:
            # Equal needs share one nameless claim per set of nodes; the decision is about the pod's
            # own.
            own[-1] = replace(own[-1], namespace=needs.extended.namespace, name=needs.extended.name)

        decisions = [
            self._allocating_to(claim, results, node, needs)
            for claim, results in zip(own, chosen, strict=True)
        ]
        if extended is not None and opened is not None:
            decisions[-1] = replace(decisions[-1], makes=extended.made)

        for claim in sharing:
            decided = self._allocating(claim.key)
            if decided is not None:
                decisions.append(following(claim, decided.required, needs.consumers.get(claim.key)))
                continue

            pods = self._sharers.get(claim.key, [])
            chosen = self._devices.chosen(claim.key)
            if chosen is None or pod.uid not in {uid for uid, _ in pods}:
                return None

            # Exactly one pod has the claim allocated; the others follow it once it is.
            if pods[0][0] == pod.uid:
                decisions.append(self._allocating_to(claim, chosen[0], node, needs))
            else:
                first = self._table.names[pods[0][1]]
                required = self._devices.index.required(chosen[0], first)
                decisions.append(following(claim, required, needs.consumers.get(claim.key)))

        return tuple(decisions)

    def _allocating_to(
        self,
        claim: ResourceClaim,
        results: Sequence[DeviceResult],
        node: str,
        needs: ClaimNeeds,
    ) -> Selection:
        required = self._devices.index.required(results, node)
        classes = self._devices.index.classes
        return allocating(claim, results, required, classes, needs.consumers.get(claim.key))


def _open(extended: OnNodes | None) -> ResourceClaim | None:
    """The claim for extended resources for which devices are to be chosen; None if there
    is none.
    """
    claim = extended.claim if extended is not None else None
    if claim is not None and not claim.allocated:
        return claim

    return None


def without_devices(nodes: Bools, devices: DeviceUse) -> Iterator[RefusedNodes]:
    """The refusal of nodes that lack devices for a pod, worded as in kube-scheduler. Only nodes
    whose pools were read are refused.
    """
    invalid = devices.places.invalid
    yield RefusedNodes(INVALID_POOLS, nodes & invalid)
    yield RefusedNodes(NO_DEVICES, nodes & ~invalid)
