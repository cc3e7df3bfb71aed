"""Current reservations, and the last reports about them (semantics H13, H14).

Invariant: a reservation is reported again only if it differs enough from the last report
(`Told.is_out_of_date`), and its end is reported once. From an earlier process only the stored
condition of the PodGroup is known; it stays until this process has a result (H16).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from typing import TypeAlias

from gangsched.model.plan import Verdict
from gangsched.model.reasons import Reason
from gangsched.model.reservation import (
    NotEntitled,
    NotReserved,
    ReservationLimits,
    Reservations,
    Reserved,
)
from gangsched.sentences import reserving
from gangsched.state.gangs import GangRecord
from gangsched.state.group_record import GroupRecord
from gangsched.state.reporting.reserved import Told, with_tail

Fact: TypeAlias = tuple[bool, str, str]
"""Whether a condition is true, its reason and its message."""
OVER = frozenset({reserving.STARTED, reserving.NOT_NEEDED})


class ReservationReports:
    """The last reports on reservations, which are in the records of groups and gangs.

    `standing` are the reservations after the last plan, in the order of heads.
    """

    def __init__(self, limits: ReservationLimits, groups: Mapping[str, GroupRecord]) -> None:
        self._limits = limits
        self._groups = groups
        self.standing: tuple[Reserved, ...] = ()
        self._told: set[GroupRecord] = set()

    def update(self, reservations: Reservations, *, wall_s: float) -> set[str]:
        """Record the reservations after a plan; return the groups whose report changes."""
        news: set[str] = set()
        self.standing = reservations.standing

        current = {reserved.group: reserved for reserved in reservations.standing}
        for group in [self._groups[each] for each in current if each in self._groups]:
            reserved = current[group.id]
            told = group.told_reserved
            group.told_not_reserved = None

            # Compared with what was told and not with the last plan: many small moves add up to one
            # that is told.
            if told is None or told.is_out_of_date(reserved, wall_s=wall_s):
                group.told_reserved = Told(reserved)
                group.had_reservation = True
                self._told.add(group)
                news.add(group.id)

        for group in [record for record in self._told if record.id not in current]:
            self._told.remove(group)
            group.told_reserved = None
            news.add(group.id)

        for group_id, why in reservations.not_reserved.items():
            if (other := self._groups.get(group_id)) is not None and other.told_not_reserved != why:
                other.told_not_reserved = why
                news.add(group_id)

        return news

    def gone(self, group: GroupRecord) -> None:
        """Remove a group that is gone."""
        self._told.discard(group)

    def indexes(self) -> Iterator[tuple[str, Set[str], Callable[[GroupRecord], bool]]]:
        """For validation: each index with its groups, and a predicate for the groups that should be
        in it.
        """
        yield (
            "told reserved",
            {group.id for group in self._told},
            lambda group: group.told_reserved is not None,
        )

    def completed(self, verdict: Verdict, namespace: str) -> Verdict:
        """The verdict as reported in this namespace: refusals end with the reservation, or with the
        reason why the group has no reservation.
        """
        if verdict.reason is not Reason.UNSCHEDULABLE:
            return verdict

        tail = self._tail(verdict, namespace)
        return with_tail(verdict, tail) if tail else verdict

    def _tail(self, verdict: Verdict, namespace: str) -> str:
        group = self._groups.get(verdict.group)
        if group is not None and group.told_reserved is not None:
            return group.told_reserved.text(namespace)
        if verdict.kept_for is not None:
            return reserving.kept_for(verdict.kept_for)

        why = (group.told_not_reserved if group is not None else None) or self._by_number(namespace)
        if why is None or (verdict.told.never and why.needs <= why.offers):
            # Two sentences with one cause read like two causes, and "not reserved before" like a
            # start later.
            return ""

        return reserving.not_reserved(why, namespace)

    def _by_number(self, namespace: str) -> NotReserved | None:
        """Why a group has none that is too far behind for plans to say so (H7)."""
        have = sum(namespace in reservation.namespaces for reservation in self.standing)
        if self.standing and have >= self._limits.per_namespace:
            return NotReserved(why=NotEntitled.NAMESPACE, namespace=namespace, offers=have)
        if self.standing and len(self.standing) >= self._limits.reservations:
            return NotReserved(why=NotEntitled.LATER)

        return None

    def condition(
        self,
        group: GroupRecord,
        gang: GangRecord,
        verdict: Verdict | None,
        stored: Mapping[str, object] | None,
    ) -> Fact | None:
        """The condition `Reserved` of a gang's PodGroup; None leaves it as `stored`."""
        reported = gang.reported
        if (told := group.told_reserved) is not None:
            reported.reservation_end = None
            return True, told.reason, told.text(gang.namespace)

        before = reported.reservation_end
        if before is not None and before[1] in OVER:
            return before
        # Of a gang that never had a reservation the condition would be noise on its PodGroup.
        if (
            before is None
            and not group.had_reservation
            and not self._may_end(group, verdict, stored)
        ):
            return None

        reported.reservation_end = reserving.ended(
            verdict,
            group.told_not_reserved,
            gang.namespace,
        )
        return reported.reservation_end

    def _may_end(
        self,
        group: GroupRecord,
        verdict: Verdict | None,
        stored: Mapping[str, object] | None,
    ) -> bool:
        """Whether a reservation that another process told is known to stand no more."""
        if (
            stored is None
            or verdict is None
            or (stored.get("status") != "True" and stored.get("reason") != reserving.LOST)
        ):
            return False

        return verdict.reason is not Reason.UNSCHEDULABLE or group.told_not_reserved is not None
