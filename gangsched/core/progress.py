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


class Progress:
    """Results of earlier plans for one group; rounds read these results and add their own.

    For a tree, `parts` has the decisions about its parts, by name, and `refuted` the numbers of the
    choices of children that were refuted, by composite.
    """

    def __init__(self, before: Unfinished | None = None, choices: int = 0) -> None:
        """Continue from `before`; exact searches of the plan have made so many `choices` so far."""
        self._before = before
        self._choices_before = choices
        self._scope = before.scope if before is not None else ""
        self._part = ""
        self.parts: dict[str, Any] = {**before.parts} if before is not None else {}
        self.refuted: dict[str, int] = {**before.refuted} if before is not None else {}
        self._passed = set(before.passed) if before is not None else set[str]()
        self._earlier: Mapping[str, str] = before.placed if before is not None else {}
        self._resumed: dict[str, str] = {}

        # few groups take a second plan: names are looked up for those
        self._placed: list[Sequence[Placement]] = []
        self._versions = before.versions if before is not None else None
        self._storage = before.storage if before is not None else None
        self._failed_earlier: Mapping[str, Refusal] = before.failed if before is not None else {}
        self._failed: dict[str, Refusal] = {}
        self.searched = before.searched if before is not None else False
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
        if name != self._scope:
            if self._scope and self._scope.partition("\n")[0] in {self._part, self._scope}:
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
        earlier = self._earlier
        if not earlier:
            return

        found = []
        for pod in pods:
            if pod.uid in earlier:
                found.append((pod, index.get(earlier[pod.uid], -1)))

        ledger.work.charge(len(pods) // 4 + 4 * len(found))
        is_cut = False

        while found:
            checkpoint = ledger.checkpoint()
            known = next((n for n, (_, node) in enumerate(found) if node < 0), None)
            if known is None:
                # All at once, and only then checked: checking one by one would cost as much as
                # placing them again.
                ledger.reserve_many([pod for pod, _ in found], [node for _, node in found])
                known = self._first_conflict(found, ledger)

            if known is None:
                break

            ledger.rollback(checkpoint)
            is_cut = True
            found = found[:known]  # later pods were placed in addition to that one

        names = ledger.table.names
        self._resumed.update((pod.uid, names[node]) for pod, node in found)
        asked = {pod.uid for pod in pods}
        self._earlier = (
            {} if is_cut else {uid: node for uid, node in earlier.items() if uid not in asked}
        )

    def _first_conflict(
        self,
        found: Sequence[tuple[Pod, int]],
        ledger: Ledger,
    ) -> int | None:
        """The first of these pods, which have their room, whose node does not take it; None if all
        do.
        """
        moved = self._moved(ledger)
        full: Bools = np.any(ledger.free < 0, axis=0)
        table = ledger.table

        for number, (pod, node) in enumerate(found):
            fit = table.static_fits.get(pod.shape)
            if fit is None:
                ledger.room(pod.shape)
                fit = table.static_fits[pod.shape]

            if full[node] or not fit.mask[node]:
                return number

            looks = moved[node] or (
                pod.claims and self._storage is not ledger.occupancy.storage.storage
            )
            if looks and not ledger.fits_still(pod, table.names[node]):
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

    def again(self, run: Sequence[Pod], ledger: Ledger) -> list[Placement]:
        """The placements of the first pods of this run that `resume` reserved again."""
        storage = ledger.occupancy.storage
        found = []

        for pod in run:
            node = self._resumed.get(pod.uid)
            if node is None:
                break

            found.append(Placement(pod, node, storage.selected(pod)))

        return found

    def took(self, placements: Sequence[Placement]) -> None:
        """Record that members were placed."""
        self._placed.append(placements)

    def failures(self, run: Sequence[Pod]) -> list[tuple[Pod, Refusal]] | None:
        """The refusals of an earlier plan for the pods of a run; None unless they are known for all
        pods of the run.
        """
        if not self._failed_earlier or any(pod.uid not in self._failed_earlier for pod in run):
            return None

        return [(pod, self._failed_earlier[pod.uid]) for pod in run]

    def fails(self, failed: Sequence[tuple[Pod, Refusal]]) -> None:
        """Record that members found no node."""
        self._failed.update((pod.uid, refusal) for pod, refusal in failed)

    # --- sums ------------------------------------------------------------------------------------

    def room(self, gang: str, shape: Shape, count: int) -> int | None:
        """Room that an earlier plan found for a gang's pods of a shape, if it sufficed for all
        `count` pods.
        """
        known = None
        if self._before is not None:
            known = self._before.rooms.get((gang, shape))

        if known is not None and known >= count:
            return known

        return None

    def has_room(self, gang: str, shape: Shape, room: int) -> None:
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
        return before is not None and (
            before.plans >= MOST_PLANS
            or before.in_vain >= MOST_IN_VAIN
            or before.choices >= MAX_CHOICES
        )

    def so_far(self, group: Group, ledger: Ledger) -> Unfinished:
        """The progress made so far, as input of the next plan."""
        before = self._before
        placed = {**self._earlier, **self._resumed}
        placed.update(
            (placement.pod.uid, placement.node)
            for placements in self._placed
            for placement in placements
        )
        failed = {**self._failed_earlier, **self._failed}
        rooms = {**(before.rooms if before is not None else {}), **self._rooms}
        shortages = {**(before.shortages if before is not None else {}), **self._shortages}
        choices = ledger.work.choices - self._choices_before

        # A measure of progress: whatever makes it grow, the group came further in this plan.
        known = len(placed) + len(failed) + len(rooms) + len(shortages) + self.searched
        known += len(self.parts) + sum(self.refuted.values())
        known += len(ledger.occupancy.storage.needs.known)  # derived by this plan and those before
        devices = ledger.occupancy.storage.devices
        known += devices.index.searches if devices is not None else 0
        is_further = (
            before is None
            or choices > 0
            or (len(self._passed), known) > (len(before.passed), before.known)
        )

        return Unfinished(
            group=group.id,
            generation=group.generation,
            plans=1 if before is None else before.plans + 1,
            in_vain=0 if is_further or before is None else before.in_vain + 1,
            known=known,
            scope=self._scope,
            passed=frozenset(self._passed),
            parts=self.parts,
            refuted=self.refuted,
            choices=choices + (before.choices if before is not None else 0),
            placed=placed,
            failed=failed,
            rooms=rooms,
            shortages=shortages,
            searched=self.searched,
            versions=ledger.occupancy.pods.versions,
            storage=ledger.occupancy.storage.storage,
            claim_needs=dict(ledger.occupancy.storage.needs.known),
        )
