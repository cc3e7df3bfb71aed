"""Current reservations, and the last reports about them (semantics H13, H14).

Invariant: a reservation is reported again only if it differs enough from the last report (`Told.is_out_of_date`), and
its end is reported once. From an earlier process only the stored condition of the PodGroup is known; it stays until
this process has a result (H16).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from gangsched.core.messages import reserving
from gangsched.model.plan import Verdict
from gangsched.model.reasons import Reason
from gangsched.model.reservation import NotEntitled, NotReserved, ReservationLimits, Reservations, Reserved
from gangsched.state.reporting.reserved import Told, with_tail

Fact: TypeAlias = tuple[bool, str, str]
"""Whether a condition is true, its reason and its message."""
OVER = frozenset({reserving.STARTED, reserving.NOT_NEEDED})


class ReservationReports:
    """The last reports on reservations by group id, and the condition after their end by gang id.

    `standing` are the reservations after the last plan, in the order of heads.
    """

    def __init__(self, limits: ReservationLimits) -> None:
        self._limits = limits
        self.standing: tuple[Reserved, ...] = ()
        self._told: dict[str, Told] = {}
        self._why: dict[str, NotReserved] = {}
        self._had: set[str] = set()
        self._ended: dict[str, Fact] = {}

    def update(self, reservations: Reservations, *, wall_s: float) -> set[str]:
        """Record the reservations after a plan; return the groups whose report changes."""
        news: set[str] = set()
        self.standing = reservations.standing
        standing = {reserved.group: reserved for reserved in reservations.standing}
        for group_id, reserved in standing.items():
            self._why.pop(group_id, None)
            told = self._told.get(group_id)
            if told is None or told.is_out_of_date(reserved, wall_s=wall_s):
                self._told[group_id] = Told(reserved, wall_s)
                self._had.add(group_id)
                news.add(group_id)
        for group_id in self._told.keys() - standing.keys():
            del self._told[group_id]
            news.add(group_id)
        for group_id, why in reservations.not_reserved.items():
            if self._why.get(group_id) != why:
                self._why[group_id] = why
                news.add(group_id)
        return news

    def forget(self, ids: set[str]) -> None:
        """Drop gangs that are gone, and the groups with the same ids."""
        for each in ids:
            for known in (self._told, self._why, self._ended):
                known.pop(each, None)
        self._had -= ids

    def completed(self, verdict: Verdict, namespace: str, *, wall_s: float) -> Verdict:
        """The verdict as reported in this namespace: refusals end with the reservation, or with the reason why there is
        none.
        """
        if verdict.reason is not Reason.UNSCHEDULABLE:
            return verdict
        said = self._tail(verdict, namespace, wall_s)
        return with_tail(verdict, said) if said else verdict

    def _tail(self, verdict: Verdict, namespace: str, wall_s: float) -> str:
        told = self._told.get(verdict.group)
        if told is not None:
            return told.text(namespace)
        if verdict.kept_for is not None:
            return reserving.kept_for(verdict.kept_for, wall_s=wall_s)
        why = self._why.get(verdict.group) or self._by_number(namespace)
        if why is not None and verdict.told.never and why.why is NotEntitled.IMPOSSIBLE and not why.needs:
            return ""  # the refusal has said it, with amounts
        return reserving.not_reserved(why, wall_s=wall_s) if why is not None else ""

    def _by_number(self, namespace: str) -> NotReserved | None:
        """Why a group has none that is too far behind for plans to say so (H7)."""
        have = sum(namespace in each.namespaces for each in self.standing)
        if self.standing and have >= self._limits.per_namespace:
            return NotReserved(why=NotEntitled.NAMESPACE, namespace=namespace, offers=have)
        if self.standing and len(self.standing) >= self._limits.reservations:
            return NotReserved(why=NotEntitled.LATER)
        return None

    def condition(
        self,
        group_id: str,
        gang_id: str,
        verdict: Verdict | None,
        stored: Mapping[str, object] | None,
        *,
        wall_s: float,
    ) -> Fact | None:
        """The condition `Reserved` of a gang's PodGroup; None leaves it as `stored`."""
        told = self._told.get(group_id)
        if told is not None:
            self._ended.pop(gang_id, None)
            return True, told.reason, told.text(gang_id.partition("/")[0])
        before = self._ended.get(gang_id)
        if before is not None and before[1] in OVER:
            return before
        if before is None and group_id not in self._had and not self._may_end(group_id, verdict, stored):
            return None
        self._ended[gang_id] = fact = reserving.ended(verdict, self._why.get(group_id), wall_s=wall_s)
        return fact

    def _may_end(self, group_id: str, verdict: Verdict | None, stored: Mapping[str, object] | None) -> bool:
        """Whether a reservation that another process told is known to stand no more."""
        if (
            stored is None
            or verdict is None
            or (stored.get("status") != "True" and stored.get("reason") != reserving.LOST)
        ):
            return False
        return verdict.reason is not Reason.UNSCHEDULABLE or group_id in self._why
