"""Rounds: one pass over a group's pending members (semantics R1-R3).

Invariant: a round tries each pending member at most once and ends in the plan in which it began.
Afterwards the ledger has the round's placements (permitted, holding) or is unchanged (refused). A
round never waits for a pod that does not exist yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from itertools import groupby
from math import inf

import numpy as np
from msgspec.structs import replace

from gangsched.core import findings, preferences, score
from gangsched.core.filter import cause, narrow, serial
from gangsched.core.filter.inter_pod_affinity import room_for_followers
from gangsched.core.filter.volumes.dynamic_resources import places_left, room_for_sharers
from gangsched.core.homes import has_room, is_inside, scopes_from_home
from gangsched.core.permit import missing, permitted
from gangsched.core.placement_attempt import PlacementAttempt
from gangsched.core.progress import Progress
from gangsched.core.queue_sort import size_key
from gangsched.core.reserve import Ledger
from gangsched.core.scope import Scope
from gangsched.core.scopes import usable
from gangsched.core.search.candidate import ScopeCandidate
from gangsched.core.search.domains import joined
from gangsched.core.search.find import STEPS, Found, find, find_slices, reserved
from gangsched.core.search.lacks import slices_lack
from gangsched.core.search.preferred import candidates
from gangsched.core.search.slices import Slice, alone, is_sliced, units
from gangsched.core.stand_ins import own_room
from gangsched.core.work import OutOfWork
from gangsched.model.gang import Gang, Group, Placement, Refusal
from gangsched.model.gpu_policy import PlainReplicas
from gangsched.model.objects import Pod
from gangsched.model.plan import Round, RoundOutcome
from gangsched.model.reasons import Reason
from gangsched.model.snapshot import Ints
from gangsched.model.verdict_facts import DomainsShort, SliceLack, Worded

PREFERENCE_STEPS = 200
"""Steps in which a run of pods that prefer nodes by each other is placed at most, each seeing those
before.
"""


@dataclass(slots=True)
class Trial:
    """Result of a pass over some gangs; `placed` is by gang id, `failed` in the order tried.

    `culprit` is the first failure after which a Strict gang cannot reach its minimum: gang, pod and
    reason. `domains` is what required domains lack, `lacks` what slices lack; None if the group
    requires neither.
    """

    placed: dict[str, list[Placement]] = field(default_factory=dict)
    failed: list[tuple[Pod, Refusal]] = field(default_factory=list)
    attempted: int = 0
    domains: DomainsShort | None = None
    culprit: tuple[Gang, Pod, Refusal] | None = None
    lacks: SliceLack | None = None

    @property
    def counts(self) -> dict[str, int]:
        """Number of newly placed members by gang id."""
        counts: dict[str, int] = {}
        for gang_id, placements in self.placed.items():
            counts[gang_id] = len(placements)

        return counts

    @property
    def placements(self) -> tuple[Placement, ...]:
        """All newly placed members."""
        result: list[Placement] = []
        for placements in self.placed.values():
            result += placements

        return tuple(result)

    @property
    def tried(self) -> list[Pod]:
        """All members with and without a node."""
        return [
            *(placement.pod for placement in self.placements),
            *(pod for pod, _ in self.failed),
        ]

    def add(self, other: Trial) -> None:
        """Add the result of a pass over other members."""
        for gang_id, placements in other.placed.items():
            self.placed.setdefault(gang_id, []).extend(placements)

        self.failed += other.failed
        self.attempted += other.attempted

    def attempt(
        self,
        gang_id: str,
        run: Sequence[Pod],
        attempt: PlacementAttempt,
    ) -> Sequence[tuple[Pod, Refusal]]:
        """Place as many of a run of identical members as fit; return the members without a node and
        their refusals.
        """
        progress = attempt.progress
        taken = _known_places(run, attempt)
        rest = run[len(taken) :]

        failed = progress.failures(rest) if progress is not None else None
        if failed is None:
            taken += _place_alike(rest, attempt) if rest else []
            failed = _refused(run[len(taken) :], attempt)

            if progress is not None:
                progress.fails(failed)

        self.placed.setdefault(gang_id, []).extend(taken)
        self.attempted += len(run)
        self.failed.extend(failed)

        return failed

    def attempt_closer(
        self,
        gang_id: str,
        run: Sequence[Pod],
        attempt: PlacementAttempt,
    ) -> Sequence[Pod]:
        """Place as many of a run of identical members as fit into a scope after which a wider one
        is tried; return the others, which have no refusal yet.
        """
        taken = _known_places(run, attempt)
        if len(taken) < len(run):
            taken += _place_alike(run[len(taken) :], attempt)

        self.placed.setdefault(gang_id, []).extend(taken)
        self.attempted += len(taken)

        return run[len(taken) :]

    def tell_outside(
        self,
        home: Scope,
        uids: Set[str],
        ledger: Ledger,
    ) -> None:
        """Note on the placements of these members which of them are outside of their home."""
        # By node, since an earlier plan may have chosen it.
        for placements in self.placed.values():
            for number, placement in enumerate(placements):
                pod = placement.pod
                if pod.uid in uids and not is_inside(placement.node, pod.shape, home, ledger):
                    placements[number] = replace(placement, outside=home.name)


def _known_places(
    run: Sequence[Pod],
    attempt: PlacementAttempt,
) -> list[Placement]:
    """Take the places that an earlier plan found for the first members of a run."""
    ledger = attempt.ledger
    ledger.work.charge(10)
    if attempt.progress is None:
        return []

    return attempt.progress.again(run, ledger)


def run_round(
    group: Group,
    gangs: Sequence[Gang],
    ledger: Ledger,
    progress: Progress | None = None,
) -> tuple[Trial, Round]:
    """Run one round over `gangs`, the gangs of `group` that are below their minimum.

    Scopes of the GPU policy are tried in order until an attempt succeeds or no scope is left;
    failed attempts are rolled back. `progress` has what earlier plans found out.
    """
    attempt = PlacementAttempt(group, ledger, progress)
    present = sum(len(gang.pending) for gang in gangs)
    checkpoint = ledger.checkpoint()
    trial = Trial()
    placed = 0

    for candidate in candidates(gangs, attempt):
        if progress is not None:
            # An earlier plan has left this scope without success.
            if progress.is_past(candidate.name) and not candidate.last:
                continue

            progress.enter(candidate.name)

        trial, placed = _try_candidate(candidate, gangs, attempt.within(candidate.scope))

        trial.domains = candidate.lack
        satisfied = trial.culprit is None and permitted(gangs, trial.counts)
        # A preferred scope succeeds only if it takes every member; a required one, if it takes the
        # minimum.
        if candidate.last or (satisfied and not (candidate.whole and trial.failed)):
            break

        ledger.rollback(checkpoint)

    if trial.culprit is not None:
        outcome = RoundOutcome.REFUSED
    elif permitted(gangs, trial.counts):
        outcome = RoundOutcome.PERMITTED
    else:
        outcome = RoundOutcome.HOLDING

    return trial, Round(group.rounds + 1, present, trial.attempted, placed, outcome)


def _try_candidate(
    candidate: ScopeCandidate,
    gangs: Sequence[Gang],
    attempt: PlacementAttempt,
) -> tuple[Trial, int]:
    """Make one pass over the members and, if it failed, a search; also return the number of members
    that found a node. A refusal is rolled back.
    """
    ledger = attempt.ledger
    progress = attempt.progress

    if attempt.group.apart or is_sliced(gangs):
        trial = _in_slices(candidate, gangs, attempt)
        return trial, len(trial.placements)

    if candidate.packed is not None and (solution := reserved(*candidate.packed)) is not None:
        trial = _completed(solution, gangs, attempt)
        return trial, len(trial.placements)

    if candidate.lacking is not None:
        trial = _untried(*candidate.lacking, gangs, attempt)
        return trial, 0

    checkpoint = ledger.checkpoint()
    if progress is not None:
        progress.resume([pod for gang in gangs for pod in gang.pending], ledger)

    trial = _try_all(gangs, attempt)
    placed = len(trial.placements)

    if trial.culprit is not None:
        ledger.rollback(checkpoint)
        is_searched = progress is not None and progress.searched
        solution = None
        if not (candidate.whole or candidate.refuted or is_searched):
            solution = find(gangs, attempt, place_run, whole=progress is not None)

        if progress is not None:
            progress.searched = solution is None

        if solution is not None:
            trial = _completed(solution, gangs, attempt.unrecorded())
            placed = len(trial.placements)

    return trial, placed


def place_needed(gangs: Sequence[Gang], attempt: PlacementAttempt) -> Trial:
    """Place alone as many members as gangs that have started lack, and none above that; first of
    the gangs for which the fewest nodes have room.
    """
    trial = Trial()
    for gang in fewest_nodes_first(gangs, attempt):
        lack = gang.lacks - len(gang.kept) - len(gang.held)
        pods = [*gang.unhindered]
        alike = attempt.ledger.occupancy.equivalence(pods)

        while lack > 0 and pods:
            # Slices are placed as wholes.
            number = len(pods) if gang.constraints.slices else lack
            placed = place_alone(pods[:number], attempt)
            trial.add(placed)
            lack -= len(placed.placements)

            in_vain = {alike(pod) for pod, _ in placed.failed}
            others = pods[number:]
            pods = []
            for pod in others:
                if alike(pod) not in in_vain:
                    pods.append(pod)

    return trial


def fewest_nodes_first(gangs: Sequence[Gang], attempt: PlacementAttempt) -> Sequence[Gang]:
    """Gangs that have started, in the order in which they get what they lack: others would take
    the only nodes of some.
    """
    if len(gangs) < 2:
        return gangs

    numbers = {gang.id: _nodes_with_room(gang, attempt) for gang in gangs}
    return sorted(gangs, key=lambda gang: numbers[gang.id])


def _nodes_with_room(gang: Gang, attempt: PlacementAttempt) -> int:
    """How many nodes have room for a member that the gang lacks, of the kind that has the
    fewest.
    """
    ledger = attempt.ledger
    pods = gang.unhindered[: gang.lacks]
    in_domain = attempt.within(joined(attempt.group, gang, pods, ledger))

    numbers: list[int] = []
    for alike in _runs(pods, ledger):
        room = narrow(alike[0], usable(alike[0].shape, in_domain), ledger.occupancy)
        numbers.append(int(np.count_nonzero(room)))

    return min(numbers, default=0)


def place_alone(pods: Sequence[Pod], attempt: PlacementAttempt) -> Trial:
    """Place pods that may start alone, one by one; each pod that does not fit gets its own refusal
    (P3).

    Those of a gang that runs are tried at its home first (L3).
    """
    group = attempt.group
    ledger = attempt.ledger
    trial = Trial()
    waiting = set[str]()
    if len(group.gangs) > 1:
        waiting = {pod.uid for pod in pods}

    if attempt.progress is not None:
        attempt.progress.resume(pods, ledger)

    for gang in group.gangs:
        own = pods
        if len(group.gangs) > 1:
            own = []
            for pod in (*gang.retry, *gang.pending):
                if pod.uid in waiting:
                    own.append(pod)

        in_domain = attempt.within(joined(group, gang, own, ledger))
        with own_room(gang, ledger):
            if gang.constraints.slices:
                _join(gang, own, "", trial, in_domain)
            else:
                _place_near_home(gang, own, trial, in_domain)

    return trial


def _place_near_home(
    gang: Gang,
    pods: Sequence[Pod],
    trial: Trial,
    attempt: PlacementAttempt,
) -> None:
    """Place members of a gang one by one: at its home, then wider and wider (L3)."""
    ledger = attempt.ledger
    *closer, last = scopes_from_home(gang, pods, attempt.scope, ledger)
    waiting = list(pods)

    for scope in closer:
        waiting = _placed_in(waiting, trial, attempt.within(scope))

    at_last = attempt.within(last)
    for run in _runs(waiting, ledger):
        trial.attempt("", run, at_last)

    if closer:
        trial.tell_outside(closer[0], {pod.uid for pod in pods}, ledger)


def _placed_in(
    pods: Sequence[Pod],
    trial: Trial,
    attempt: PlacementAttempt,
) -> list[Pod]:
    """Place as many of the pods as fit into a scope that is not the last one; return the others."""
    ledger = attempt.ledger
    others: list[Pod] = []
    for run in _runs(pods, ledger):
        if has_room(run[0].shape, attempt.scope, ledger):
            others += trial.attempt_closer("", run, attempt)
        else:
            others += run

    return others


def place_run(run: Sequence[Pod], attempt: PlacementAttempt) -> list[Placement]:
    """Reserve room for as many of these pods as fit, in the given order, up to the first one that
    does not fit; for searches, whose placements no later plan goes on with.
    """
    unrecorded = attempt.unrecorded()
    placed: list[Placement] = []
    for alike in _runs(run, attempt.ledger):
        taken = _place_alike(alike, unrecorded)
        placed += taken

        if len(taken) < len(alike):
            break

    return placed


def _place_alike(alike: Sequence[Pod], attempt: PlacementAttempt) -> list[Placement]:
    """Reserve room for as many of these pods, which no filter tells apart, as fit.

    They are placed at once if their filters do not read other pods; otherwise one by one, so that
    the filters of each pod see the pods before it in place.
    """
    group = attempt.group
    ledger = attempt.ledger
    first = alike[0]
    occupancy = ledger.occupancy
    step = len(alike)

    # Each one changes where the next may go, so they are filtered one by one.
    if serial(first, occupancy):
        step = 1
    elif preferences.prefers_company(first):
        # Rounded up: at most `PREFERENCE_STEPS` passes, however large the gang is.
        step = -(-len(alike) // PREFERENCE_STEPS)

    placed: list[Placement] = []
    while len(placed) < len(alike):
        rest = alike[len(placed) :]
        # The first is a consumer of its claims already, once it is placed.
        following = rest[0] if first.claims else first
        room = narrow(following, usable(first.shape, attempt), occupancy)
        room = room_for_followers(first, len(rest), group, room, occupancy)
        room = room_for_sharers(first, len(rest), room, occupancy)
        places = places_left(following, occupancy)

        # The API server takes no more consumers of a claim; the next one is refused for that.
        wanted = min(step, len(rest)) if places is None else max(1, min(step, len(rest), places))
        nodes, counts = _choose(first, wanted, room, group, ledger)
        chosen = rest[: int(counts.sum())]
        taken = []
        if chosen:
            taken = _reserve(chosen, nodes, counts, ledger)

        placed += taken

        if attempt.progress is not None:
            attempt.progress.took(taken)

        if len(chosen) < wanted:
            # the refusal says what the nodes lack that these pods have filled
            if chosen and first.claims:
                narrow(first, usable(first.shape, attempt), occupancy)

            break

    return placed


def _choose(
    first: Pod,
    wanted: int,
    room: Ints,
    group: Group,
    ledger: Ledger,
) -> tuple[Ints, Ints]:
    """The best nodes for so many pods that are alike, and how many of them each gets."""
    occupancy = ledger.occupancy
    shape = first.shape
    penalty = preferences.pod_penalty(first, room > 0, occupancy)
    asks = ledger.last_ends if ledger.accelerated(shape) else None
    pushed = None if asks is None else asks.pushed(group)
    spread = None
    if _spreads(first, group, ledger):
        spread = preferences.spread_cost(first, occupancy)

    return score.choose(shape, wanted, room, ledger, penalty=penalty, pushed=pushed, spread=spread)


def _spreads(pod: Pod, group: Group, ledger: Ledger) -> bool:
    """Whether the pod's peers count: it is plain, has no accelerators, and the setting says so."""
    if not group.gangs[0].plain or ledger.policy.replicas is PlainReplicas.PACK:
        return False

    return not ledger.accelerated(pod.shape)


def _reserve(
    pods: Sequence[Pod],
    nodes: Ints,
    counts: Ints,
    ledger: Ledger,
) -> list[Placement]:
    ledger.reserve(pods, nodes, counts)
    names = ledger.table.names
    where = [names[node] for node in np.repeat(nodes, counts).tolist()]

    if not pods[0].claims:
        return list(map(Placement, pods, where))

    storage = ledger.occupancy.storage
    return [
        Placement(pod, node, storage.selected(pod)) for pod, node in zip(pods, where, strict=True)
    ]


def _try_all(gangs: Sequence[Gang], attempt: PlacementAttempt) -> Trial:
    """Try every pending member back to back (Q5); a Strict round stops as soon as it cannot succeed
    any more (R2).
    """
    group = attempt.group
    trial = Trial({gang.id: [] for gang in gangs})
    for gang, run, untried in _in_turn(group, gangs, trial, attempt.ledger):
        failed = trial.attempt(gang.id, run, attempt)
        # Even if all untried members fit, the minimum is out of reach.
        if failed and group.strict and missing(gang, len(trial.placed[gang.id]) + untried):
            trial.culprit = (gang, *failed[0])
            break

    return trial


def _in_turn(
    group: Group,
    gangs: Sequence[Gang],
    trial: Trial,
    ledger: Ledger,
) -> Iterator[tuple[Gang, list[Pod], int]]:
    """Runs of identical members to try, and how many of the gang are untried after each.

    In a group of several gangs, members above one gang's minimum come after all that its siblings
    need; what `trial` has placed by then decides who they are. The rest of a start has none of
    them, and needs its smallest.
    """
    above: dict[str, list[Pod]] = {}
    for gang in gangs:
        enough = len(gang.pending)
        if len(gangs) > 1 or group.rest:
            enough = missing(gang, 0)
        untried = len(gang.pending)
        later = above.setdefault(gang.id, [])
        pending = gang.pending
        if group.rest and enough < untried:
            pending = _smallest_first(pending, enough, ledger)

        for run in _runs(pending, ledger):
            now = run[: enough - len(trial.placed[gang.id])]
            later += run[len(now) :]
            untried -= len(now)

            if now:
                yield gang, now, untried

    for gang in gangs:
        untried = len(above[gang.id])
        for run in _runs(above[gang.id], ledger):
            if group.rest and not missing(gang, len(trial.placed[gang.id])):
                break

            untried -= len(run)
            yield gang, run, untried


def _smallest_first(pods: Sequence[Pod], enough: int, ledger: Ledger) -> list[Pod]:
    """The smallest `enough` of these members, and the others after them, each in member order.

    The room that is left is promised to other interrupted starts as well, which were decided for
    the members that had room beside them: a larger one could take it (B3).
    """
    policy = ledger.policy
    by_size = sorted(
        pods,
        key=lambda pod: (pod.priority, size_key(pod.shape, policy)),
        reverse=True,
    )
    needed = {pod.uid for pod in by_size[:enough]}

    first = [pod for pod in pods if pod.uid in needed]
    return first + [pod for pod in pods if pod.uid not in needed]


def _completed(solution: Found, gangs: Sequence[Gang], attempt: PlacementAttempt) -> Trial:
    """The trial that the search made good: enough for every gang, and those above the minimum where
    they fit.
    """
    group = attempt.group
    trial = Trial(placed=solution)
    for gang in gangs:
        placed = {placement.pod.uid for placement in solution[gang.id]}
        trial.attempted += len(placed)

        if group.apart or group.rest:
            # The tree places members above a child's minimum, in the child's domain; another plan
            # those of a start.
            continue

        try:
            rest = []
            for pod in gang.pending:
                if pod.uid not in placed:
                    rest.append(pod)

            if gang.constraints.slices:
                _join(gang, rest, gang.id, trial, attempt)
                continue

            for run in _runs(rest, attempt.ledger):
                trial.attempt(gang.id, run, attempt)
        except OutOfWork:
            break  # members above the minimum are placed when the gang has started

    return trial


def _in_slices(
    candidate: ScopeCandidate,
    gangs: Sequence[Gang],
    attempt: PlacementAttempt,
) -> Trial:
    """One pass over gangs of which some have slices, by search alone; a refusal leaves no trace."""
    progress = attempt.progress
    everything = candidate.whole

    # Without progress there is no next plan that could go on, as when a deadlock is broken.
    most = STEPS if progress is None or everything else inf
    solution = None
    if not (candidate.refuted or (progress is not None and progress.searched)):
        solution = find_slices(gangs, attempt, place_run, everything=everything, most=most)

    if progress is not None:
        progress.searched = solution is None

    if solution is not None:
        return _completed(solution, gangs, attempt.unrecorded())

    first = next(gang for gang in gangs if gang.pending)
    trial = Trial(
        {gang.id: [] for gang in gangs},
        attempted=sum(len(gang.pending) for gang in gangs),
    )
    gang, lacks = slices_lack(gangs, attempt) if candidate.last else (first, None)
    trial.lacks = lacks
    trial.failed = _refused(gang.pending[:1], attempt)
    trial.culprit = (gang, *trial.failed[0])

    return trial


def _untried(
    gang: Gang,
    pod: Pod,
    gangs: Sequence[Gang],
    attempt: PlacementAttempt,
) -> Trial:
    """The trial in a scope that is too small for a member of a gang, as sums or a search have
    shown.
    """
    nodes = findings.why_no_node(pod, attempt, filled=True)
    refusal = Refusal(Reason.UNSCHEDULABLE, nodes)
    present = sum(len(other.pending) for other in gangs)
    return Trial(
        {other.id: [] for other in gangs},
        [(pod, refusal)],
        present,
        culprit=(gang, pod, refusal),
    )


def _join(
    gang: Gang,
    pods: Sequence[Pod],
    name: str,
    trial: Trial,
    attempt: PlacementAttempt,
) -> None:
    """Place members of a gang with slices: in the domain of their slice if it has one, else whole
    slices.
    """
    ledger = attempt.ledger

    for unit in units(gang, pods, ledger.table):
        in_unit = attempt.within(unit.within(attempt.scope, ledger.table))
        if unit.whole is None:
            for run in _runs(unit.alone, ledger):
                trial.attempt(name, run, in_unit)

            continue

        own = alone(gang, unit.whole)
        scopes = [in_unit.scope]
        if gang.satisfied and not unit.pins:
            scopes = scopes_from_home(gang, unit.pods, in_unit.scope, ledger)

        solution = _first_place(own, scopes, in_unit)
        trial.attempted += len(unit.pods)
        if solution is not None:
            trial.placed.setdefault(name, []).extend(solution[gang.id])
            if len(scopes) > 1:
                trial.tell_outside(scopes[0], {pod.uid for pod in unit.pods}, ledger)
        else:
            trial.failed += _slice_refused(own, unit.whole, in_unit)


def _first_place(
    own: Gang,
    scopes: Sequence[Scope],
    attempt: PlacementAttempt,
) -> Found | None:
    """The places of a slice of which no member runs: near the others of its gang, then wider and
    wider (L3).
    """
    for scope in scopes:
        solution = find_slices((own,), attempt.within(scope), place_run)
        if solution is not None:
            return solution

    return None


def _slice_refused(
    gang: Gang,
    slice_: Slice,
    attempt: PlacementAttempt,
) -> list[tuple[Pod, Refusal]]:
    """Why a slice found no place."""
    _, lacks = slices_lack((gang,), attempt)
    refusal = Refusal(Reason.UNSCHEDULABLE, lacks or Worded())
    return [(pod, refusal) for pod in slice_.pods]


def _refused(alike: Sequence[Pod], attempt: PlacementAttempt) -> list[tuple[Pod, Refusal]]:
    """Why each of these identical pods found no node; the nodes are looked at once."""
    if not alike:
        return []

    first = alike[0]
    if first.shape.unsupported:
        return [(pod, findings.unsupported(pod)) for pod in alike]

    why = cause(first, attempt.ledger.occupancy)
    nodes = findings.why_no_node(first, attempt)
    refusal = Refusal(why.reason if why is not None else Reason.UNSCHEDULABLE, nodes)

    return [(pod, refusal) for pod in alike]


def _runs(pods: Sequence[Pod], ledger: Ledger) -> Iterator[list[Pod]]:
    """Split into stretches of pods that are alike for every filter."""
    ledger.work.charge(len(pods))
    for _, run in groupby(pods, key=ledger.occupancy.equivalence(pods)):
        yield list(run)
