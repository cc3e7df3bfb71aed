"""What may be added to a plan: extensions, and one that makes room.

The pipeline (`core.pipeline`) calls each extension at each of its steps, in the order in which
`core.cycle` names them. It knows none of them, so a capability is added, changed or left out in one
place.

Invariant: an extension changes the ledger only through what it was given, and only in the step that
says so.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, TypeAlias

from gangsched.core.plan_queue import PlanQueue
from gangsched.model.gang import Group
from gangsched.model.plan import Plan, Verdict
from gangsched.model.preemption import Obstacle

Behind: TypeAlias = Callable[[int], Sequence[Group]]
"""The next groups of the queue, at most so many."""


class PlanExtension:
    """Takes part in each plan; every step does nothing unless an extension says otherwise.

    Groups are given as the queue has them: of a tree, the gangs that its minimum needs.
    """

    def sort(self, ready: list[Group]) -> None:
        """Change the order of the ready groups, in place (step 1)."""

    def begin(self) -> None:
        """Prepare the ledger before the first group is decided."""

    def before(self, group: Group) -> None:
        """Prepare the ledger for one group, before steps 2 to 6."""

    def choose(self) -> None:
        """Choose for all placements so far; runs within the work of the group that was just
        decided.
        """

    def reserve(self, group: Group, verdict: Verdict) -> Verdict:
        """Follow a verdict before the groups behind it are tried, and return it, perhaps changed
        (step 7).
        """
        return verdict

    def finish(self, plan: Plan) -> None:
        """Complete the plan in place; all that was asked for is decided."""


def taking_part(extensions: Sequence[PlanExtension], step: str) -> list[Callable[..., Any]]:
    """The methods of the extensions that do something in a step, in their order.

    A plan asks thousands of groups, so a step that does nothing is not called.
    """
    default = getattr(PlanExtension, step)
    return [
        getattr(extension, step)
        for extension in extensions
        if getattr(type(extension), step) is not default
    ]


class RoomMaker:
    """Makes room for a group that was refused (step 6). This one never does."""

    #: Groups for which the last call of `make_room` made room as well.
    alike: Sequence[Group] = ()

    def begin(self, verdicts: Mapping[str, Verdict], behind: Behind) -> None:
        """A plan begins: `verdicts` will have those so far, and `behind` gives the groups that
        come next.
        """

    @property
    def is_full(self) -> bool:
        """Whether this plan has made room as often as it may."""
        return False

    def make_room(self, group: Group, verdict: Verdict) -> dict[str, Verdict]:
        """The verdicts on the group, on those that release holds for it, and on those behind it
        that profit.

        Raises OutOfWork; the ledger is then rolled back by the caller.
        """
        return {group.id: verdict}

    def put_off(
        self,
        group: Group,
        verdict: Verdict,
        obstacle: Obstacle,
    ) -> Verdict:
        """The verdict on a group for which making room takes more work than there is."""
        return verdict

    def take_unpaid(self) -> int:
        """Units of work that `make_room` took beyond the group's share; the groups behind it pay
        for them.
        """
        return 0

    def make_room_for_holders(
        self,
        ordered: Sequence[Group],
        verdicts: Mapping[str, Verdict],
        queue: PlanQueue,
        *,
        but: Container[str],
    ) -> tuple[dict[str, Verdict], frozenset[str]]:
        """The verdicts that follow for groups that hold room and still wait, and the groups to
        decide again (step 8).

        Groups in `but` are left out.
        """
        return {}, frozenset()

    def releases(self) -> dict[str, Verdict]:
        """The verdicts of groups that release their holds for others, which are committed before
        theirs.
        """
        return {}
