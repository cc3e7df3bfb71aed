"""All promised room together: the cluster as if leaving pods were gone and nominated members on
their nodes (V10, V13).

Invariant: all nominations are evaluated together, including all their victims; if each were
evaluated alone, nominations on the same node would exclude each other. It works on a ledger of one
snapshot, in which only the requested nodes are filled in, and changes nothing else. Stuck pods stay
(V4).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from itertools import chain
from typing import Protocol

from gangsched.core.filter import static_fit
from gangsched.core.filter.count_cache import CountCache
from gangsched.core.reserve import Ledger
from gangsched.model.gang import Placement
from gangsched.model.nominated_room import Nomination
from gangsched.model.objects import Pod
from gangsched.model.snapshot import Snapshot

Placed = tuple[Pod, str]
"""A pod and its node."""


class RoomClaim(Protocol):
    """A promise of room to a group; a higher `serial` is a younger promise."""

    serial: int

    @property
    def lowest_priority(self) -> int:
        """The lowest priority of the group's members; promises to groups of at least this priority
        restrict the claim.
        """


class Claims(Protocol):
    """Promised places by node."""

    def nodes(self) -> Iterable[str]:
        """Nodes with promised places or leaving pods."""

    def places_on(self, node: str) -> Iterable[tuple[RoomClaim, Placement]]:
        """Members that are promised the node and have no room yet."""

    def leaving(self, node: str) -> Iterable[Placed]:
        """Pods on the node that will be gone."""

    def returning(self, claim: RoomClaim) -> Iterable[Placed]:
        """Pods that stay if this claim is dropped."""


class Room:
    """The cluster of one snapshot after all claims are fulfilled."""

    def __init__(
        self,
        snapshot: Snapshot,
        claims: Claims,
        counts: CountCache | None = None,
    ) -> None:
        self._ledger = Ledger(snapshot, counts=counts)
        self._claims = claims
        self._filled: set[str] = set()

        # The places of the last `spares`, by identity: it is asked for one victim after the other,
        # of thousands.
        self._filled_for: Sequence[Placement] = ()
        # Caches by node, dropped when a promise ends: whether all promises can be kept there, and
        # what those ask.
        self._keeping: dict[str, bool] = {}
        self._asked: dict[str, Set[str]] = {}

        # What other schedulers promised (F1), by node.
        self._others: dict[str, list[Nomination]] = {}
        for nomination in snapshot.nominated.by_group.get("", {}).values():
            self._others.setdefault(nomination.node, []).append(nomination)

    def obstacle(self, claim: RoomClaim, places: Sequence[Placement]) -> str:
        """Why a member does not fit on its node, "" if all do."""
        self._fill(places)
        return next(
            (self._why(placement) for placement in places if not self._fits(claim, placement)), ""
        )

    def keeps(self, nodes: Set[str]) -> bool:
        """Whether all members that were promised room on these nodes fit there, by totals of room
        alone.

        Evaluated once per node, however many nominations depend on it.
        """
        new = nodes - self._keeping.keys()
        if new:
            places = [each for node in new for each in self._claims.places_on(node)]
            self._fill([place for _, place in places])

            for node in new:
                self._keeping[node] = node in self._ledger.table.index

            for claim, place in places:
                self._keeping[place.node] = self._keeping[place.node] and self._fits(claim, place)

        return all(self._keeping[node] for node in nodes)

    def admits(self, places: Sequence[Placement]) -> str:
        """Why Filter now rejects one of these members on its node, when they are placed one after
        the other; "" if it accepts all.
        """
        self._fill(places)
        # If only room counts, all are in the ledger already, and their order does not matter.
        if self._ledger.only_room_counts([placement.pod for placement in places]):
            return next(
                (
                    self._why(placement)
                    for placement in places
                    if not self._ledger.fits_still(placement.pod, placement.node)
                ),
                "",
            )

        checkpoint = self._ledger.checkpoint()
        self._move(places, -1)

        try:
            for placement in places:
                if not self._ledger.takes(placement.pod, placement.node):
                    return self._why(placement)

                self._move((placement,), 1)

            return ""
        finally:
            self._ledger.rollback(checkpoint)

    def gives_way(self, claim: RoomClaim, places: Sequence[Placement]) -> RoomClaim:
        """Return the nomination to drop because not all `places` of `claim` fit, and free its nodes
        in the ledger.

        Nominations are tried by lowest priority, then the youngest first; the result is the first
        one whose removal lets the others fit. The youngest is not dropped unconditionally, because
        this does not help while its victims still run.
        """
        in_the_way = [placement for placement in places if not self._fits(claim, placement)]
        if any(not self._is_open(placement) for placement in in_the_way):
            self._take_out(claim)
            return claim

        nodes = {placement.node for placement in in_the_way}
        there = {id(each): each for node in nodes for each, _ in self._claims.places_on(node)} or {
            id(claim): claim
        }

        in_turn = sorted(there.values(), key=lambda each: (each.lowest_priority, -each.serial))
        for each in in_turn:
            checkpoint = self._ledger.checkpoint()
            self._take_out(each)

            if all(
                self._fits(*left)
                for node in nodes
                for left in self._claims.places_on(node)
                if left[0] is not each
            ):
                return each

            self._ledger.rollback(checkpoint)

        self._take_out(in_turn[0])
        return in_turn[0]

    def spares(
        self,
        claim: RoomClaim,
        places: Sequence[Placement],
        pods: Sequence[Placed],
    ) -> bool:
        """Whether all promises can be kept if these pods stay; if so, later calls treat them as
        staying.

        Filters check the members of `claim` again, since spread and affinity may require that other
        pods are gone.
        """
        if self._overfill(pods):
            return False

        if self._filled_for is not places:
            self._fill(places)
            self._filled_for = places

        self._fill([Placement(pod, node) for pod, node in pods])
        checkpoint = self._ledger.checkpoint()
        self._ledger.move(pods, 1)

        there = chain.from_iterable(
            self._claims.places_on(node) for node in {node for _, node in pods}
        )
        if all(self._fits(*each) for each in there) and not self.admits(places):
            self._keeping.clear()
            return True

        self._ledger.rollback(checkpoint)
        return False

    def _overfill(self, pods: Sequence[Placed]) -> bool:
        """Whether somebody loses room by sums alone if these pods stay; False if that takes a
        closer look.

        Nothing is moved to find that out: of thousands of victims, nearly all are needed.
        """
        back: Counter[tuple[str, str]] = Counter()
        for pod, node in pods:
            for name, amount in pod.shape.requests:
                back[node, name] += amount

        free = self._ledger.free
        resources = self._ledger.resources
        index = self._ledger.table.index

        return any(
            name in self._asked_on(node) and free[resources[name], index[node]] < amount
            for (node, name), amount in back.items()
        )

    def _asked_on(self, node: str) -> Set[str]:
        """Resources that somebody who was promised room on the node asks of it; none where a closer
        look is needed.
        """
        if (known := self._asked.get(node)) is None:
            open_there = node in self._filled and node not in self._others
            places = [place for _, place in self._claims.places_on(node)] if open_there else []
            asked = {name for place in places for name, _ in place.pod.shape.requests}
            known = self._asked[node] = asked & self._ledger.resources.keys()

        return known

    def _fill(self, places: Sequence[Placement]) -> None:
        """Bring the nodes of these places up to date, and all others if somebody there looks at
        other nodes.
        """
        nodes = {placement.node for placement in places}
        if not self._ledger.only_room_counts([placement.pod for placement in places]):
            nodes.update(self._claims.nodes())

        new = (nodes & self._ledger.table.index.keys()) - self._filled
        if new:
            self._filled |= new
            self._asked.clear()

        # Sorted, so that the order of moves does not depend on that of a set.
        leaving = [each for node in sorted(new) for each in self._claims.leaving(node)]
        self._ledger.move(leaving, -1)
        self._move([place for node in sorted(new) for _, place in self._claims.places_on(node)], 1)
        self._ledger.move(
            ((nomination.pod, node) for node in new for nomination in self._others.get(node, ())), 1
        )

    def _take_out(self, claim: RoomClaim) -> None:
        self._keeping.clear()
        self._asked.clear()
        self._move(
            [
                place
                for node in self._filled
                for each, place in self._claims.places_on(node)
                if each is claim
            ],
            -1,
        )
        self._ledger.move(
            ((pod, node) for pod, node in self._claims.returning(claim) if node in self._filled), 1
        )

    def _fits(self, claim: RoomClaim, place: Placement) -> bool:
        """Whether the member fits, with what others were promised of its priority and above."""
        if self._ledger.fits_still(place.pod, place.node):
            return True

        lower = [
            nomination
            for nomination in self._others.get(place.node, ())
            if nomination.pod.priority < claim.lowest_priority
        ]
        if not lower:
            return False

        checkpoint = self._ledger.checkpoint()
        self._ledger.move(((nomination.pod, nomination.node) for nomination in lower), -1)
        fits = self._ledger.fits_still(place.pod, place.node)
        self._ledger.rollback(checkpoint)

        return fits

    def _move(self, places: Iterable[Placement], sign: int) -> None:
        self._ledger.move(((placement.pod, placement.node) for placement in places), sign)

    def _is_open(self, place: Placement) -> bool:
        """Whether the node is there and takes such pods, room aside."""
        index = self._ledger.table.index.get(place.node)
        return index is not None and bool(
            static_fit(place.pod.shape, self._ledger.table).mask[index]
        )

    def _why(self, place: Placement) -> str:
        table = self._ledger.table
        name = place.node

        index = table.index.get(name)
        if index is None:
            return f"node {name} is gone"
        if table.nodes[index].unschedulable:
            return f"node {name} was cordoned"
        if not self._is_open(place) or all(
            self._ledger.free[self._ledger.resources[each], index] >= 0
            for each, _ in place.pod.shape.requests
        ):
            return f"pod {place.pod.key} no longer fits on node {name}"

        return f"the room on node {name} is used by other pods"
