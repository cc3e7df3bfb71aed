"""The cycle: `plan` decides the groups of the queue on one snapshot.

Invariant: the result depends on the arguments only. This module is the composition root: it names
the extensions of a plan, which `core.pipeline` and `core.decision` do not know. The steps, as they
are numbered in the code:

1. QueueSort: order the groups. 2. Release holds that timed out, lost their node or are no longer
   allowed. 3. PreFilter:
members (P1, P2), then arithmetic (P4). 4. One round for the gangs below their minimum: Filter,
Score, Reserve and Permit (R1-R3, B1). 5. Members that may start alone, one by one (P3, B3). 6.
Preemption (V15). 7. A reservation for each group that is entitled to one (H12). 8. PostFilter:
break a deadlock of holds (D1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

import numpy.ma  # noqa: F401  # else `np.unique` imports it in the middle of a plan, which takes 30 ms

from gangsched.core import tree_choices
from gangsched.core.decision import Decider
from gangsched.core.extensions import (
    ChooseDevices,
    KeepReservations,
    PromiseRoomToCome,
    RespectNominations,
    TrackEnds,
)
from gangsched.core.pipeline import Limits, Pipeline
from gangsched.core.plan_cache import PlanCache
from gangsched.core.plan_extension import PlanExtension, taking_part
from gangsched.core.preemption.preempt import room_maker_of
from gangsched.core.queue_sort import group_key
from gangsched.core.reserve import Ledger
from gangsched.core.work import Work
from gangsched.model.fault import AtWork
from gangsched.model.gang import Group
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.objects import Pod
from gangsched.model.plan import Plan, Unfinished
from gangsched.model.preemption import PreemptionInput
from gangsched.model.provisioning import NodeFence
from gangsched.model.reservation import Reserving
from gangsched.model.snapshot import Snapshot

__all__ = ["Limits", "plan"]


def plan(
    snapshot: Snapshot,
    queue: Sequence[Group],
    *,
    now_s: float,
    limits: Limits | None = None,
    policy: GpuPolicy | None = None,
    reserving: Reserving | None = None,
    preempting: PreemptionInput | None = None,
    looked_at: Set[str] = frozenset(),
    unfinished: Unfinished | None = None,
    without: Sequence[tuple[Pod, str]] = (),
    cache: PlanCache | None = None,
    at_work: AtWork | None = None,
    fenced: Sequence[NodeFence] = (),
) -> Plan:
    """Decide, on one ledger at monotonic second `now_s`, every group of `queue` that is not
    `unchanged`.

    At least one group is decided; groups beyond `limits` are returned in `Plan.left`. `looked_at`
    are the ids of the groups already decided in the current pass over the queue; a pass takes
    several plans if `limits` cut them short. These groups are decided last, so n ready groups are
    decided within n / `limits.groups` plans (decision 8). Namespaces alternate (Q4). A group that
    needs more work than one plan may do is returned as `unfinished`. The next plan receives it and
    continues with it, but spends half of its work on other groups. Without `reserving` no
    reservations are made, and without `preempting` no pod is preempted. Pods in `without`, each on
    its node, count as gone. `cache` comes from earlier
    plans on the same cluster; it saves work and does not affect decisions. `at_work` says at any
    time which group is being decided, "" between groups: whatever is raised then is its fault, and
    the plan is void (I10).
    """
    limits = limits or Limits()
    cache = cache or PlanCache()
    ledger, totals = _ledgers(snapshot, policy, cache, unfinished)
    if without:
        ledger.move(without, -1)
    ledger.promises.fence(fenced, snapshot.table)

    ordered = sorted(queue, key=group_key)
    declared = {group.id: group for group in ordered if group.starts_in_parts}
    ready = [tree_choices.needed(group) for group in ordered if not group.unchanged]

    extensions = [
        *_room_extensions(snapshot, ledger, declared, reserving),
        *_reservations(
            snapshot,
            ledger,
            ready,
            declared,
            reserving,
            preempting,
            unfinished,
            cache,
            limits,
        ),
        PromiseRoomToCome(ordered),
    ]
    choosers = taking_part(extensions, "choose")
    decider = Decider(ledger, totals, declared, now_s, at_work or AtWork(), choosers)

    # What is promised to a group is kept from all others until it is looked at, so that it is not
    # put off.
    nominated = preempting.nominated.keys() if preempting is not None else frozenset[str]()
    # Whatever their turn: a group that is decided early may take the room that a later one holds.
    holders = [group for group in ordered if group.yieldable]
    pipeline = Pipeline(
        ordered=ordered,
        holders=holders,
        ready=ready,
        decider=decider,
        room_maker=room_maker_of(preempting, decider, holders, cache.running),
        extensions=extensions,
        limits=limits,
        served=looked_at - nominated if looked_at else None,
        unfinished=unfinished,
    )
    return pipeline.run()


def _ledgers(
    snapshot: Snapshot,
    policy: GpuPolicy | None,
    cache: PlanCache,
    unfinished: Unfinished | None,
) -> tuple[Ledger, Ledger]:
    """The ledger of a plan, and one as if nothing ran, by which it is known what can never fit."""
    work = Work()
    ledger = Ledger(snapshot, policy=policy, work=work, counts=cache.counts)
    totals = Ledger(snapshot, empty=True, policy=policy, work=work, counts=cache.counts)

    # The same object: any change of a claim, a volume or a class makes a new one.
    if unfinished is not None and unfinished.storage is snapshot.storage:
        ledger.occupancy.storage.needs.known.update(unfinished.claim_needs)

    # Requirements of claims do not depend on what runs, so both ledgers share them.
    totals.occupancy.storage.derives_with(ledger.occupancy.storage)
    return ledger, totals


def _room_extensions(
    snapshot: Snapshot,
    ledger: Ledger,
    declared: dict[str, Group],
    reserving: Reserving | None,
) -> Iterator[PlanExtension]:
    """Those that concern the ledger's room; only the ones that this plan needs, since thousands of
    groups ask each.
    """
    if snapshot.nominated:
        yield RespectNominations(ledger, declared)

    if reserving is not None and reserving.limits.reservations and reserving.last_ends is not None:
        yield TrackEnds(ledger, snapshot.table, reserving.last_ends, reserving.wall_s)

    if ledger.occupancy.storage.devices is not None:
        yield ChooseDevices(ledger)


def _reservations(
    snapshot: Snapshot,
    ledger: Ledger,
    ready: Sequence[Group],
    declared: dict[str, Group],
    reserving: Reserving | None,
    preempting: PreemptionInput | None,
    unfinished: Unfinished | None,
    cache: PlanCache,
    limits: Limits,
) -> Iterator[PlanExtension]:
    if reserving is None or not reserving.limits.reservations:
        return

    yield KeepReservations(
        reserving,
        snapshot,
        ledger,
        [declared.get(group.id, group) for group in ready],
        most=limits.work,
        nominated=preempting.nominated if preempting is not None else {},
        cache=cache.reservations,
        # The whole work of this plan may be needed to make room for the unfinished group.
        begins=unfinished is None or not unfinished.goes_first,
    )
