"""The extensions of a plan, other than preemption (`core.preemption.preempt`).

Invariant: each adapts one capability to the steps of the pipeline, and decides nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence

from gangsched.core import stand_ins
from gangsched.core.chosen_devices import with_devices
from gangsched.core.last_ends import LastEnds
from gangsched.core.plan_extension import PlanExtension
from gangsched.core.reservations.records import ReservationCache
from gangsched.core.reservations.standing import Standing
from gangsched.core.reserve import Ledger
from gangsched.model.gang import Group
from gangsched.model.plan import Plan, Verdict
from gangsched.model.reservation import Reserving
from gangsched.model.snapshot import Floats, NodeTable, Snapshot


class RespectNominations(PlanExtension):
    """Keeps the room that is nominated for others from each group (F1, V10), and ends what a group
    made use of.
    """

    def __init__(self, ledger: Ledger, declared: Mapping[str, Group]) -> None:
        self._ledger = ledger
        self._declared = declared

    def before(self, group: Group) -> None:
        """Respect nominations by the lowest priority of the group's members, since they hold for
        all of them.
        """
        lowest = self._declared.get(group.id, group).lowest_priority
        self._ledger.respect_nominations(lowest, but=group.id)

    def reserve(self, group: Group, verdict: Verdict) -> Verdict:
        """End the promises to members that have their nodes now, and to members that were to come
        (B8).
        """
        placed = {
            placement.pod.uid: placement.node for placement in (*verdict.binds, *verdict.holds)
        }
        self._ledger.place_nominated(group.id, placed)
        stand_ins.fulfill(self._declared.get(group.id, group).gangs, verdict, self._ledger)

        return verdict


class TrackEnds(PlanExtension):
    """Tells the ledger when each node is expected to be empty, so that pods which end together
    share nodes (H10).
    """

    def __init__(
        self,
        ledger: Ledger,
        table: NodeTable,
        ask: Callable[[NodeTable], Floats],
        wall_s: float,
    ) -> None:
        self._ends = LastEnds(ask, table, wall_s)
        ledger.last_ends = self._ends

    def reserve(self, group: Group, verdict: Verdict) -> Verdict:
        """Count the group's own end on its nodes."""
        self._ends.take(verdict.binds, group)
        return verdict


class ChooseDevices(PlanExtension):
    """Chooses devices for all members of a plan together."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def choose(self) -> None:
        """Solve for the placements so far: at the end of a plan, its work may be used up."""
        devices = self._ledger.occupancy.storage.devices
        assert devices is not None
        devices.solve()

    def finish(self, plan: Plan) -> None:
        """Add the chosen devices to the placements."""
        claims = self._ledger.occupancy.storage.claim_devices
        if claims is None or not claims.is_used:
            return

        plan.verdicts = tuple([with_devices(verdict, self._ledger) for verdict in plan.verdicts])


class KeepReservations(PlanExtension):
    """Keeps room for the groups that have waited longest (H8, H12)."""

    def __init__(
        self,
        reserving: Reserving,
        snapshot: Snapshot,
        ledger: Ledger,
        ready: Collection[Group],
        *,
        most: int,
        nominated: Container[str],
        cache: ReservationCache,
        begins: bool,
    ) -> None:
        """The arguments of `Standing`; `begins` if the plan may spend work on reservations before
        its first group.
        """
        self._standing = Standing(
            reserving,
            snapshot,
            ledger,
            ready,
            most=most,
            nominated=nominated,
            cache=cache,
        )
        self._begins = begins

    def sort(self, ready: list[Group]) -> None:
        """Put shorter groups of equal priority behind the head first, which are likelier to be
        backfilled (H9).
        """
        if not self._standing.keeps_order:
            ready.sort(key=self._standing.order)

    def begin(self) -> None:
        """Make stale reservations again whose heads this plan does not decide."""
        if self._begins:
            self._standing.begin()

    def reserve(self, group: Group, verdict: Verdict) -> Verdict:
        """Reserve room for a refused head before those behind it are tried."""
        return self._standing.turn(group, verdict)

    def finish(self, plan: Plan) -> None:
        """Add the reservations after this plan."""
        verdicts = {verdict.group: verdict for verdict in plan.verdicts}
        plan.reservations = self._standing.result(verdicts)


class PromiseRoomToCome(PlanExtension):
    """Turns the places of members that do not exist yet into promised room (B8)."""

    def __init__(self, ordered: Sequence[Group]) -> None:
        # Of a thousand binds each would be looked at, for a few gangs that have members to come.
        self._groups = {group.id for group in ordered for gang in group.gangs if gang.to_come}

    def finish(self, plan: Plan) -> None:
        """Move those places from the binds to the rooms of their verdicts."""
        if not self._groups:
            return

        verdicts = []
        for verdict in plan.verdicts:
            verdicts.append(stand_ins.split(verdict) if verdict.group in self._groups else verdict)

        plan.verdicts = tuple(verdicts)
