"""Rounds: one pass over a group's pending members (semantics R1-R3).

Law: a round tries each pending member at most once, closes in the plan that opened it, and leaves the ledger with what
it placed (permitted, holding) or exactly as found (refused). It never waits for a pod that is not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from gangsched.core import score, search, sentences
from gangsched.core.permit import missing, permitted
from gangsched.core.reserve import Ledger
from gangsched.model.gang import Gang, Group, Placement, Refusal
from gangsched.model.objects import Pod
from gangsched.model.plan import Round, RoundOutcome
from gangsched.model.reasons import Reason


@dataclass(slots=True)
class Trial:
    """What a pass over some gangs has come to so far; `placed` is by gang id, `failed` in the order tried."""

    placed: dict[str, list[Placement]] = field(default_factory=dict)
    failed: list[tuple[Pod, Refusal]] = field(default_factory=list)
    attempted: int = 0
    refusal: Refusal | None = None

    @property
    def counts(self) -> dict[str, int]:
        """Newly placed members by gang id."""
        return {gang_id: len(placements) for gang_id, placements in self.placed.items()}

    @property
    def placements(self) -> tuple[Placement, ...]:
        """All newly placed members."""
        return tuple(placement for placements in self.placed.values() for placement in placements)


def run_round(group: Group, gangs: Sequence[Gang], ledger: Ledger) -> tuple[Trial, Round]:
    """Open and close one round over `gangs`, the gangs of `group` that still must satisfy their minimum."""
    present = sum(len(gang.pending) for gang in gangs)
    mark = ledger.mark()
    trial = _try_all(group, gangs, ledger)
    placed = len(trial.placements)
    if trial.refusal is not None:
        ledger.rollback(mark)
        found = search.find(group, gangs, ledger, place_run)
        if found is not None:
            trial = _completed(found, group, gangs, ledger)
            placed = len(trial.placements)
    if trial.refusal is not None:
        outcome = RoundOutcome.REFUSED
    elif permitted(gangs, trial.counts):
        outcome = RoundOutcome.PERMITTED
    else:
        outcome = RoundOutcome.HOLDING
    return trial, Round(group.rounds + 1, present, trial.attempted, placed, outcome)


def place_alone(pods: Sequence[Pod], group: Group, ledger: Ledger) -> Trial:
    """Place pods that no gang rule holds back: each that fits is placed, the others are told why not (P3)."""
    trial = Trial()
    placements = trial.placed.setdefault("", [])
    for run in _runs(pods):
        found = place_run(run, group, ledger)
        placements.extend(found)
        trial.attempted += len(run)
        if len(found) < len(run):
            trial.failed.extend((pod, _refused(pod, group, ledger)) for pod in run[len(found) :])
    return trial


def place_run(run: Sequence[Pod], group: Group, ledger: Ledger) -> list[Placement]:
    """Reserve room for as many of these identical pods as fit, in the order given."""
    shape = run[0].shape
    room = ledger.room(shape)
    avoided = [ledger.table.index[name] for name in group.avoid if name in ledger.table.index]
    if avoided:
        room = room.copy()
        room[avoided] = 0
    nodes, counts = score.choose(shape, len(run), room, ledger)
    if not nodes.size:
        return []
    ledger.reserve(shape, nodes, counts)
    names = ledger.table.names
    return [Placement(pod, names[node]) for pod, node in zip(run, np.repeat(nodes, counts).tolist(), strict=False)]


def _try_all(group: Group, gangs: Sequence[Gang], ledger: Ledger) -> Trial:
    """Try every pending member back to back (Q5); a Strict round stops as soon as it cannot succeed any more (R2)."""
    trial = Trial()
    for gang in gangs:
        placements = trial.placed.setdefault(gang.id, [])
        untried = len(gang.pending)
        for run in _runs(gang.pending):
            found = place_run(run, group, ledger)
            placements.extend(found)
            trial.attempted += len(run)
            untried -= len(run)
            if len(found) == len(run):
                continue
            refusal = _refused(run[len(found)], group, ledger)
            if group.strict and missing(gang, len(placements) + untried):
                needed = sum(missing(each, 0) for each in gangs)
                failed = sentences.gang_failed(run[len(found)], refusal.message, len(trial.placements), needed)
                trial.refusal = Refusal(refusal.reason, failed)
                return trial
            trial.failed.extend((pod, refusal) for pod in run[len(found) :])
    return trial


def _completed(found: search.Found, group: Group, gangs: Sequence[Gang], ledger: Ledger) -> Trial:
    """The trial that the search made good: enough for every gang, and those above the minimum where they fit."""
    trial = Trial(placed=found)
    for gang in gangs:
        placed = {placement.pod.uid for placement in found[gang.id]}
        trial.attempted += len(gang.pending)
        for run in _runs([pod for pod in gang.pending if pod.uid not in placed]):
            more = place_run(run, group, ledger)
            found[gang.id] += more
            if len(more) < len(run):
                refusal = _refused(run[len(more)], group, ledger)
                trial.failed.extend((pod, refusal) for pod in run[len(more) :])
    return trial


def _refused(pod: Pod, group: Group, ledger: Ledger) -> Refusal:
    """Why `pod` found no node just now."""
    if pod.shape.unsupported:
        return Refusal(Reason.UNSUPPORTED, sentences.unsupported(pod))
    return Refusal(Reason.UNSCHEDULABLE, sentences.nodes_available(pod.shape, ledger, group.avoid))


def _runs(pods: Sequence[Pod]) -> Iterator[list[Pod]]:
    """Split into stretches of identical pods; they are placed in one step."""
    for _, run in groupby(pods, key=lambda pod: id(pod.shape)):
        yield list(run)
