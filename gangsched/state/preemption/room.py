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
            on_node = self._others.setdefault(nomination.node, [])
            on_node.append(nomination)

    def obstacle(self, claim: RoomClaim, places: Sequence[Placement]) -> str:
        """Why a member does not fit on its node, "" if all do."""
        self._fill(places)
        for placement in places:
            if not self._fits(claim, placement):
                return self._why(placement)

        return ""

    def keeps(self, nodes: Set[str]) -> bool:
        """Whether all members that were promised room on these nodes fit there, by totals of room
        alone.

        Evaluated once per node, however many nominations depend on it.
        """
        new = nodes - self._keeping.keys()
        if new:
            promised: list[tuple[RoomClaim, Placement]] = []
            for node in new:
                promised += self._claims.places_on(node)
                self._keeping[node] = node in self._ledger.table.index

            self._fill([placement for _, placement in promised])
            for claim, placement in promised:
                node = placement.node
                self._keeping[node] = self._keeping[node] and self._fits(claim, placement)

        return all(self._keeping[node] for node in nodes)

    def admits(self, places: Sequence[Placement]) -> str:
        """Why Filter now rejects one of these members on its node, when they are placed one after
        the other; "" if it accepts all.
        """
        ledger = self._ledger
        self._fill(places)
        # If only room counts, all are in the ledger already, and their order does not matter.
        if ledger.only_room_counts([placement.pod for placement in places]):
            for placement in places:
                if not ledger.fits_still(placement.pod, placement.node):
                    return self._why(placement)

            return ""

        checkpoint = ledger.checkpoint()
        self._move(places, -1)
        try:
            for placement in places:
                if not ledger.takes(placement.pod, placement.node):
                    return self._why(placement)

                self._move((placement,), 1)

            return ""
        finally:
            ledger.rollback(checkpoint)

    def gives_way(self, claim: RoomClaim, places: Sequence[Placement]) -> RoomClaim:
        """Return the nomination to drop because not all `places` of `claim` fit, and free its nodes
        in the ledger.

        Nominations are tried by lowest priority, then the youngest first; the result is the first
        one whose removal lets the others fit. The youngest is not dropped unconditionally, because
        this does not help while its victims still run.
        """
        in_the_way = [placement for placement in places if not self._fits(claim, placement)]
        if not all(map(self._is_open, in_the_way)):
            self._take_out(claim)
            return claim

        nodes = {placement.node for placement in in_the_way}
        claims: dict[int, RoomClaim] = {}
        for node in nodes:
            for rival, _ in self._claims.places_on(node):
                claims[id(rival)] = rival

        rivals = list(claims.values()) or [claim]
        rivals.sort(key=lambda rival: (rival.lowest_priority, -rival.serial))
        for rival in rivals:
            checkpoint = self._ledger.checkpoint()
            self._take_out(rival)
            if self._fit_without(rival, nodes):
                return rival

            self._ledger.rollback(checkpoint)

        self._take_out(rivals[0])
        return rivals[0]

    def _fit_without(self, dropped: RoomClaim, nodes: Set[str]) -> bool:
        """Whether all members fit that other claims promised these nodes."""
        for node in nodes:
            for claim, placement in self._claims.places_on(node):
                if claim is not dropped and not self._fits(claim, placement):
                    return False

        return True

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

        staying = [Placement(pod, node) for pod, node in pods]
        self._fill(staying)
        checkpoint = self._ledger.checkpoint()
        self._ledger.move(pods, 1)
        if self._all_fit({node for _, node in pods}) and not self.admits(places):
            self._keeping.clear()
            return True

        self._ledger.rollback(checkpoint)
        return False

    def _all_fit(self, nodes: Set[str]) -> bool:
        """Whether all members fit that were promised these nodes."""
        for node in nodes:
            for claim, placement in self._claims.places_on(node):
                if not self._fits(claim, placement):
                    return False

        return True

    def _overfill(self, pods: Sequence[Placed]) -> bool:
        """Whether somebody loses room by sums alone if these pods stay; False if that takes a
        closer look.

        Nothing is moved to find that out: of thousands of victims, nearly all are needed.
        """
        returning: Counter[tuple[str, str]] = Counter()
        for pod, node in pods:
            for name, amount in pod.shape.requests:
                returning[node, name] += amount

        free = self._ledger.free
        resources = self._ledger.resources
        index = self._ledger.table.index
        for (node, name), amount in returning.items():
            if name not in self._asked_on(node):
                continue
            if free[resources[name], index[node]] < amount:
                return True

        return False

    def _asked_on(self, node: str) -> Set[str]:
        """Resources that somebody who was promised room on the node asks of it; none where a closer
        look is needed.
        """
        known = self._asked.get(node)
        if known is not None:
            return known

        asked: set[str] = set()
        if node in self._filled and node not in self._others:
            for _, placement in self._claims.places_on(node):
                for name, _ in placement.pod.shape.requests:
                    asked.add(name)

        self._asked[node] = asked & self._ledger.resources.keys()
        return self._asked[node]

    def _fill(self, places: Sequence[Placement]) -> None:
        """Bring the nodes of these places up to date, and all others if somebody there looks at
        other nodes.
        """
        ledger = self._ledger
        nodes = {placement.node for placement in places}
        if not ledger.only_room_counts([placement.pod for placement in places]):
            nodes.update(self._claims.nodes())

        new = (nodes & ledger.table.index.keys()) - self._filled
        if new:
            self._filled |= new
            self._asked.clear()

        leaving: list[Placed] = []
        promised: list[Placed] = []
        others: list[Placed] = []
        # Sorted, so that the order of moves does not depend on that of a set.
        for node in sorted(new):
            leaving += self._claims.leaving(node)
            for _, placement in self._claims.places_on(node):
                promised.append((placement.pod, node))

            for nomination in self._others.get(node, ()):
                others.append((nomination.pod, node))

        ledger.move(leaving, -1)
        ledger.move(promised, 1)
        ledger.move(others, 1)

    def _take_out(self, claim: RoomClaim) -> None:
        self._keeping.clear()
        self._asked.clear()

        promised = []
        for node in self._filled:
            for other, placement in self._claims.places_on(node):
                if other is claim:
                    promised.append(placement)

        returning = []
        for pod, node in self._claims.returning(claim):
            if node in self._filled:
                returning.append((pod, node))

        self._move(promised, -1)
        self._ledger.move(returning, 1)

    def _fits(self, claim: RoomClaim, place: Placement) -> bool:
        """Whether the member fits, with what others were promised of its priority and above."""
        ledger = self._ledger
        if ledger.fits_still(place.pod, place.node):
            return True

        lower = []
        for nomination in self._others.get(place.node, ()):
            if nomination.pod.priority < claim.lowest_priority:
                lower.append((nomination.pod, nomination.node))

        if not lower:
            return False

        checkpoint = ledger.checkpoint()
        ledger.move(lower, -1)
        fits = ledger.fits_still(place.pod, place.node)
        ledger.rollback(checkpoint)

        return fits

    def _move(self, places: Iterable[Placement], sign: int) -> None:
        self._ledger.move(((placement.pod, placement.node) for placement in places), sign)

    def _is_open(self, place: Placement) -> bool:
        """Whether the node is there and takes such pods, room aside."""
        table = self._ledger.table
        index = table.index.get(place.node)
        if index is None:
            return False

        fit = static_fit(place.pod.shape, table)
        return bool(fit.mask[index])

    def _why(self, place: Placement) -> str:
        table = self._ledger.table
        name = place.node
        index = table.index.get(name)
        if index is None:
            return f"node {name} is gone"
        if table.nodes[index].unschedulable:
            return f"node {name} was cordoned"

        rows = [self._ledger.resources[resource] for resource, _ in place.pod.shape.requests]
        free = self._ledger.free[rows, index]
        if (free >= 0).all() or not self._is_open(place):
            return f"pod {place.pod.key} no longer fits on node {name}"

        return f"the room on node {name} is used by other pods"
