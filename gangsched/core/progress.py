"""Progress of a group that needs more work than one plan may do.

Invariant: a plan could recompute all of it, so dropping it costs only work. The node chosen for a
member is reused only if the member still fits there. The result that a member found no node is
reused without a check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gangsched.core.reserve import Ledger
from gangsched.model.gang import Group, Placement, Refusal
from gangsched.model.objects import Pod, Shape
from gangsched.model.plan import Unfinished
from gangsched.model.snapshot import Bools
from gangsched.model.verdict_facts import Shortage

MOST_PLANS = 400
"""Plans that one decision may take; beyond it something else changes all the time."""
MAX_CHOICES = 2_000_000
"""Choices of exact searches that one decision may take."""
MOST_IN_VAIN = 3
"""Plans in a row that may come no further: then a single step takes more than a plan does."""


def _first_without_node(chosen: Sequence[tuple[Pod, int]]) -> int | None:
    """The number of the first pod whose node is gone; None if there is none."""
    for number, (_, node) in enumerate(chosen):
        if node < 0:
            return number

    return None


_NOTHING = Unfinished(group="", generation=0, plans=0)
"""What a group begins with."""


class Progress:
    """Results of earlier plans for one group; rounds read these results and add their own.

    For a tree, `parts` has the decisions about its parts, by name, and `refuted` the numbers of the
    choices of children that were refuted, by composite.
    """

    def __init__(
        self,
        before: Unfinished | None = None,
        choices: int = 0,
    ) -> None:
        """Continue from `before`; exact searches of the plan have made so many `choices` so far."""
        self._before = before
        self._choices_before = choices
        earlier = before or _NOTHING

        self._scope = earlier.scope
        self._part = ""
        self.parts: dict[str, Any] = {**earlier.parts}
        self.refuted: dict[str, int] = {**earlier.refuted}
        self._passed = set(earlier.passed)
        self._earlier: Mapping[str, str] = earlier.placed
        self._resumed: dict[str, str] = {}

        # few groups take a second plan: names are looked up for those
        self._placed: list[Sequence[Placement]] = []
        self._versions = earlier.versions
        self._storage = earlier.storage
        self._failed_earlier: Mapping[str, Refusal] = earlier.failed
        self._failed: dict[str, Refusal] = {}
        self.searched = earlier.searched
        self._rooms: dict[tuple[str, Shape], int] = {}
        self._shortages: dict[Shape, Shortage] = {}

    # --- scopes ----------------------------------------------------------------------------------

    def begin(self, part: str) -> None:
        """Start a part, by name, of a group that is decided in parts; each part has scopes of its
        own.
        """
        self._part = part

    def is_past(self, scope: str) -> bool:
        """Whether a scope was tried without success, in this plan or an earlier one."""
        return self._named(scope) in self._passed

    def enter(self, scope: str) -> None:
        """Start a scope, by name. Results from other scopes do not apply in it."""
        name = self._named(scope)
        if name == self._scope:
            return

        part, _, _ = self._scope.partition("\n")
        if self._scope and part in {self._part, self._scope}:
            self._passed.add(self._scope)

        # Nodes chosen in another scope may be outside of this one.
        self._earlier = {}
        self._resumed = {}
        self._placed = []
        self._scope = name
        self._failed_earlier = {}
        self._failed = {}
        self.searched = False

    def _named(self, scope: str) -> str:
        return f"{self._part}\n{scope}" if self._part else scope

    # --- members ---------------------------------------------------------------------------------

    def resume(self, pods: Sequence[Pod], ledger: Ledger) -> None:
        """Reserve the nodes that an earlier plan chose for these pods, up to the first pod that no
        longer fits.
        """
        index = ledger.table.index
        names = ledger.table.names
        earlier = self._earlier
        if not earlier:
            return

        chosen = []
        for pod in pods:
            if pod.uid in earlier:
                node = index.get(earlier[pod.uid], -1)
                chosen.append((pod, node))

        ledger.work.charge(len(pods) // 4 + 4 * len(chosen))
        is_cut = False

        while chosen:
            checkpoint = ledger.checkpoint()
            conflict = _first_without_node(chosen)
            if conflict is None:
                # All at once, and only then checked: checking one by one would cost as much as
                # placing them again.
                ledger.reserve_many([pod for pod, _ in chosen], [node for _, node in chosen])
                conflict = self._first_conflict(chosen, ledger)

            if conflict is None:
                break

            ledger.rollback(checkpoint)
            is_cut = True
            chosen = chosen[:conflict]  # later pods were placed in addition to that one

        for pod, node in chosen:
            self._resumed[pod.uid] = names[node]

        self._earlier = {}
        if not is_cut:
            asked = {pod.uid for pod in pods}
            self._earlier = {uid: node for uid, node in earlier.items() if uid not in asked}

    def _first_conflict(
        self,
        chosen: Sequence[tuple[Pod, int]],
        ledger: Ledger,
    ) -> int | None:
        """The first of these pods, which have their room, whose node does not take it; None if all
        do.
        """
        moved = self._moved(ledger)
        full: Bools = np.any(ledger.free < 0, axis=0)
        table = ledger.table
        is_other_storage = self._storage is not ledger.occupancy.storage.storage

        for number, (pod, node) in enumerate(chosen):
            fit = table.static_fits.get(pod.shape)
            if fit is None:
                ledger.room(pod.shape)
                fit = table.static_fits[pod.shape]

            if full[node] or not fit.mask[node]:
                return number

            may_conflict = moved[node] or (pod.claims and is_other_storage)
            if may_conflict and not ledger.fits_still(pod, table.names[node]):
                return number

        return None

    def _moved(self, ledger: Ledger) -> Bools:
        """`moved[node]`: a pod that came or went since the last plan may keep others off
        the node.
        """
        pods = ledger.occupancy.pods
        before = self._versions

        now = pods.versions
        if before is None or not len(before) == len(now) == len(ledger.table):
            return ledger.table.everywhere()

        changed: Bools = before != now
        moved: Bools = changed.copy()

        if changed.any():
            for key in pods.anti_affinity_keys():
                # A pod that came may keep others off its whole domain, not only off its node.
                codes = pods.domains(key)
                moved |= np.isin(codes, codes[changed & (codes >= 0)])

        return moved

    def again(
        self,
        run: Sequence[Pod],
        ledger: Ledger,
    ) -> list[Placement]:
        """The placements of the first pods of this run that `resume` reserved again."""
        storage = ledger.occupancy.storage
        placements = []

        for pod in run:
            node = self._resumed.get(pod.uid)
            if node is None:
                break

            placements.append(Placement(pod, node, storage.selected(pod)))

        return placements

    def took(self, placements: Sequence[Placement]) -> None:
        """Record that members were placed."""
        self._placed.append(placements)

    def failures(self, run: Sequence[Pod]) -> list[tuple[Pod, Refusal]] | None:
        """The refusals of an earlier plan for the pods of a run; None unless they are known for all
        pods of the run.
        """
        earlier = self._failed_earlier
        if not earlier:
            return None

        refusals = []
        for pod in run:
            if pod.uid not in earlier:
                return None

            refusals.append((pod, earlier[pod.uid]))

        return refusals

    def fails(self, failed: Sequence[tuple[Pod, Refusal]]) -> None:
        """Record that members found no node."""
        for pod, refusal in failed:
            self._failed[pod.uid] = refusal

    # --- sums ------------------------------------------------------------------------------------

    def room(
        self,
        gang: str,
        shape: Shape,
        count: int,
    ) -> int | None:
        """Room that an earlier plan found for a gang's pods of a shape, if it sufficed for all
        `count` pods.
        """
        known = None
        if self._before is not None:
            known = self._before.rooms.get((gang, shape))

        if known is not None and known >= count:
            return known

        return None

    def has_room(
        self,
        gang: str,
        shape: Shape,
        room: int,
    ) -> None:
        """Record the room for a gang's pods of a shape, computed from totals."""
        self._rooms[gang, shape] = room

    def shortage(self, shape: Shape) -> Shortage | None:
        """The shortage that an earlier plan found for pods of a shape; None if it found none."""
        if self._before is not None:
            return self._before.shortages.get(shape)

        return None

    def is_short(self, shape: Shape, shortage: Shortage) -> None:
        """Record the shortage of room for pods of a shape."""
        self._shortages[shape] = shortage

    # --- between plans ---------------------------------------------------------------------------

    @property
    def ends(self) -> bool:
        """Whether the next plan will give up the group."""
        before = self._before
        if before is None:
            return False
        if before.plans >= MOST_PLANS or before.in_vain >= MOST_IN_VAIN:
            return True

        return before.choices >= MAX_CHOICES

    def so_far(self, group: Group, ledger: Ledger) -> Unfinished:
        """The progress made so far, as input of the next plan."""
        before = self._before or _NOTHING
        occupancy = ledger.occupancy
        needs = occupancy.storage.needs

        placed = {**self._earlier, **self._resumed}
        for placements in self._placed:
            for placement in placements:
                placed[placement.pod.uid] = placement.node

        failed = {**self._failed_earlier, **self._failed}
        rooms = {**before.rooms, **self._rooms}
        shortages = {**before.shortages, **self._shortages}
        choices = ledger.work.choices - self._choices_before

        # A measure of progress: whatever makes it grow, the group came further in this plan.
        known = len(placed) + len(failed) + len(rooms) + len(shortages) + self.searched
        known += len(self.parts) + sum(self.refuted.values())
        known += len(needs.known)  # derived by this plan and those before
        known += occupancy.pods.read
        devices = occupancy.storage.devices
        if devices is not None:
            known += devices.index.searches

        is_further = self._before is None or choices > 0
        is_further |= (len(self._passed), known) > (len(before.passed), before.known)

        return Unfinished(
            group=group.id,
            generation=group.generation,
            plans=before.plans + 1,
            in_vain=0 if is_further else before.in_vain + 1,
            known=known,
            scope=self._scope,
            passed=frozenset(self._passed),
            parts=self.parts,
            refuted=self.refuted,
            choices=before.choices + choices,
            placed=placed,
            failed=failed,
            rooms=rooms,
            shortages=shortages,
            searched=self.searched,
            versions=occupancy.pods.versions,
            storage=occupancy.storage.storage,
            claim_needs=dict(needs.known),
        )
