"""Rounds: one pass over a group's pending members (semantics R1-R3).

Law: a round tries each pending member at most once, closes in the plan that opened it, and leaves the ledger with what
it placed (permitted, holding) or exactly as found (refused). It never waits for a pod that is not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from gangsched.core import messages, score, search
from gangsched.core.filter.outlook import Outlook
from gangsched.core.filter.volume_outlook import reason_of
from gangsched.core.permit import missing, permitted
from gangsched.core.reserve import Ledger
from gangsched.core.scopes import closed, home, scopes, usable
from gangsched.model.gang import Gang, Group, Placement, Refusal
from gangsched.model.objects import Pod
from gangsched.model.plan import Round, RoundOutcome
from gangsched.model.snapshot import Ints

LEANING_STEPS = 200
"""Steps in which a run of pods with soft preferences about each other is placed at most, each seeing those before."""


@dataclass(slots=True)
class Trial:
    """What a pass over some gangs has come to so far; `placed` is by gang id, `failed` in the order tried.

    `culprit` is whose turn failed so that a Strict gang cannot reach its minimum any more: the gang, its pod, and why.
    """

    placed: dict[str, list[Placement]] = field(default_factory=dict)
    failed: list[tuple[Pod, Refusal]] = field(default_factory=list)
    attempted: int = 0
    culprit: tuple[Gang, Pod, Refusal] | None = None

    @property
    def counts(self) -> dict[str, int]:
        """Newly placed members by gang id."""
        return {gang_id: len(placements) for gang_id, placements in self.placed.items()}

    @property
    def placements(self) -> tuple[Placement, ...]:
        """All newly placed members."""
        return tuple(placement for placements in self.placed.values() for placement in placements)


def run_round(group: Group, gangs: Sequence[Gang], ledger: Ledger) -> tuple[Trial, Round]:
    """Open and close one round over `gangs`, the gangs of `group` that still must satisfy their minimum.

    Every scope that the GPU policy names is tried, until an attempt counts; all but that one are taken back.
    """
    present = sum(len(gang.pending) for gang in gangs)
    mark = ledger.mark()
    trial, placed = Trial(), 0
    for scope in scopes(group, gangs, ledger):
        with ledger.within(scope):
            trial, placed = _attempt(group, gangs, ledger)
        satisfied = trial.culprit is None and permitted(gangs, trial.counts)
        if scope.last or (satisfied and not (scope.whole and trial.failed)):
            break
        ledger.rollback(mark)
    if trial.culprit is not None:
        outcome = RoundOutcome.REFUSED
    elif permitted(gangs, trial.counts):
        outcome = RoundOutcome.PERMITTED
    else:
        outcome = RoundOutcome.HOLDING
    return trial, Round(group.rounds + 1, present, trial.attempted, placed, outcome)


def _attempt(group: Group, gangs: Sequence[Gang], ledger: Ledger) -> tuple[Trial, int]:
    """One pass over the members, a search if it failed, and how many had found a node; a refusal leaves no trace."""
    mark = ledger.mark()
    trial = _try_all(group, gangs, ledger)
    placed = len(trial.placements)
    if trial.culprit is not None:
        ledger.rollback(mark)
        found = None if ledger.scope.whole else search.find(group, gangs, ledger, place_run)
        if found is not None:
            trial = _completed(found, group, gangs, ledger)
            placed = len(trial.placements)
    return trial, placed


def place_alone(pods: Sequence[Pod], group: Group, ledger: Ledger) -> Trial:
    """Place pods that no gang rule holds back: each that fits is placed, the others are told why not (P3)."""
    trial = Trial()
    placements = trial.placed.setdefault("", [])
    with ledger.within(home(group, ledger)):
        for run in _runs(pods, ledger):
            found = place_run(run, group, ledger)
            placements.extend(found)
            trial.attempted += len(run)
            if len(found) < len(run):
                trial.failed.extend(_all_refused(run[len(found) :], group, ledger))
    return trial


def place_run(run: Sequence[Pod], group: Group, ledger: Ledger) -> list[Placement]:
    """Reserve room for as many of these pods as fit, in the order given, up to the first that does not.

    All at once where their filters do not look at other pods; one by one, each seeing those before it, where they do.
    """
    placed: list[Placement] = []
    for alike in _runs(run, ledger):
        found = _place_alike(alike, group, ledger)
        placed += found
        if len(found) < len(alike):
            break
    return placed


def _place_alike(alike: Sequence[Pod], group: Group, ledger: Ledger) -> list[Placement]:
    outlook = Outlook(alike[0], ledger.company)
    step = 1 if outlook.tied else -(-len(alike) // LEANING_STEPS) if outlook.leaning else len(alike)
    placed: list[Placement] = []
    while len(placed) < len(alike):
        rest = alike[len(placed) :]
        room = usable(alike[0].shape, group, ledger)
        room = outlook.narrow(room, len(rest), group)
        found = _place_together(rest[:step], room, outlook, ledger)
        placed += found
        if len(found) < min(step, len(rest)):
            break
    return placed


def _place_together(pods: Sequence[Pod], room: Ints, outlook: Outlook, ledger: Ledger) -> list[Placement]:
    nodes, counts = score.choose(pods[0].shape, len(pods), room, ledger, penalty=outlook.penalty(room))
    if not nodes.size:
        return []
    placed = pods[: int(counts.sum())]
    ledger.reserve(placed, nodes, counts)
    names = ledger.table.names
    where = (names[node] for node in np.repeat(nodes, counts).tolist())
    return [Placement(pod, node, ledger.company.volumes.selected(pod)) for pod, node in zip(placed, where, strict=True)]


def _try_all(group: Group, gangs: Sequence[Gang], ledger: Ledger) -> Trial:
    """Try every pending member back to back (Q5); a Strict round stops as soon as it cannot succeed any more (R2).

    In a group of several gangs, members above one gang's minimum come after all that its siblings need.
    """
    trial = Trial()
    above: dict[str, list[Pod]] = {gang.id: [] for gang in gangs}
    for gang in gangs:
        placements = trial.placed.setdefault(gang.id, [])
        enough = missing(gang, 0) if len(gangs) > 1 else len(gang.pending)
        untried = len(gang.pending)
        for run in _runs(gang.pending, ledger):
            now = run[: enough - len(placements)]
            above[gang.id] += run[len(now) :]
            untried -= len(now)
            failed = _try(now, placements, trial, group, ledger)
            if _hopeless(failed, untried, gang, trial, group):
                return trial
    for gang in gangs:
        untried = len(above[gang.id])
        for run in _runs(above[gang.id], ledger):
            untried -= len(run)
            failed = _try(run, trial.placed[gang.id], trial, group, ledger)
            if _hopeless(failed, untried, gang, trial, group):
                return trial
    return trial


def _hopeless(failed: Sequence[tuple[Pod, Refusal]], untried: int, gang: Gang, trial: Trial, group: Group) -> bool:
    """Whether a Strict gang cannot reach its minimum any more; then `trial.culprit` says whose turn failed."""
    if not failed or not group.strict or not missing(gang, len(trial.placed[gang.id]) + untried):
        return False
    trial.culprit = (gang, *failed[0])
    return True


def _try(
    run: Sequence[Pod], placements: list[Placement], trial: Trial, group: Group, ledger: Ledger
) -> list[tuple[Pod, Refusal]]:
    """Place a run of pods that are alike; those that found no node, and why."""
    if not run:
        return []
    found = place_run(run, group, ledger)
    placements.extend(found)
    trial.attempted += len(run)
    failed = _all_refused(run[len(found) :], group, ledger) if len(found) < len(run) else []
    trial.failed.extend(failed)
    return failed


def _completed(found: search.Found, group: Group, gangs: Sequence[Gang], ledger: Ledger) -> Trial:
    """The trial that the search made good: enough for every gang, and those above the minimum where they fit."""
    trial = Trial(placed=found)
    for gang in gangs:
        placed = {placement.pod.uid for placement in found[gang.id]}
        trial.attempted += len(gang.pending)
        for run in _runs([pod for pod in gang.pending if pod.uid not in placed], ledger):
            more = place_run(run, group, ledger)
            found[gang.id] += more
            if len(more) < len(run):
                trial.failed.extend(_all_refused(run[len(more) :], group, ledger))
    return trial


def _refused(pod: Pod, group: Group, ledger: Ledger) -> Refusal:
    """Why `pod` found no node just now."""
    if pod.shape.unsupported:
        return messages.unsupported(pod)
    reason = reason_of(pod, ledger.company.volumes)
    return Refusal(reason, "", messages.nodes_available(pod, ledger, closed(group, pod.shape, ledger)))


def _all_refused(alike: Sequence[Pod], group: Group, ledger: Ledger) -> list[tuple[Pod, Refusal]]:
    """Why each of these found no node; the nodes are looked at once, unless the sentence names the pod."""
    if alike[0].shape.unsupported:
        return [(pod, _refused(pod, group, ledger)) for pod in alike]
    refusal = _refused(alike[0], group, ledger)
    return [(pod, refusal) for pod in alike]


def _runs(pods: Sequence[Pod], ledger: Ledger) -> Iterator[list[Pod]]:
    """Split into stretches of pods that are alike for every filter."""
    for _, run in groupby(pods, key=ledger.company.kind(pods)):
        yield list(run)
