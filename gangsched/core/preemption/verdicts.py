"""Verdicts of groups that preempt in vain, are nominated, or give up their holds.

Invariant: a verdict is only reworded; what was placed or refused stays.
"""

from __future__ import annotations

from msgspec import structs

from gangsched.core import findings
from gangsched.core.preemption.attempt import held
from gangsched.core.preemption.preemptor import Preemptor
from gangsched.model.gang import Group, Refusal
from gangsched.model.plan import Verdict
from gangsched.model.preemption import NotHelpful, Obstacle


def gives_up(
    holder: Group,
    beneficiary: Group,
) -> Verdict:
    """The verdict of a group of lower priority that gives up its holds (V6)."""
    releases = tuple(pod.uid for pod, _ in held(holder))
    refusal = findings.yielded(holder, beneficiary.id)
    return Verdict(
        group=holder.id,
        generation=holder.generation,
        told=refusal,
        releases=releases,
    )


def with_refusal(
    verdict: Verdict,
    refusal: Refusal,
    preemptor: Preemptor,
) -> Verdict:
    """The verdict with this refusal of the group, and of the needed members that had one of their
    own.
    """
    needed = {pod.uid for pod in preemptor.pods}
    notes = []
    for uid, note in verdict.notes:
        notes.append((uid, refusal if uid in needed else note))

    return structs.replace(verdict, told=refusal, notes=tuple(notes))


def as_of(
    verdict: Verdict,
    preemptor: Preemptor,
) -> Verdict:
    """The refusal of a single pod as that of another one which asks the same."""
    group = preemptor.group
    notes = []
    for pod in preemptor.pods:
        for _, note in verdict.notes:
            notes.append((pod.uid, note))

    summary = verdict.round
    if summary is not None:
        summary = structs.replace(summary, number=group.rounds + 1)

    return structs.replace(
        verdict,
        group=group.id,
        generation=group.generation,
        round=summary,
        notes=tuple(notes),
    )


def not_done(
    group: Group,
    verdict: Verdict,
    why: Obstacle,
) -> Verdict:
    """The refusal of a group whose preemption takes more work than is left, or than any
    plan has.
    """
    needed = 0
    for gang in group.gangs:
        needed += len(gang.pending) + len(gang.retry)

    return in_vain(verdict, NotHelpful(why=why, needed=needed), group)


def in_vain(
    verdict: Verdict,
    why: NotHelpful,
    group: Group,
) -> Verdict:
    """The verdict, which says why preemption does not help the pending members of `group`."""
    notes = verdict.notes
    if notes:
        needed = set()
        for gang in group.gangs:
            for pod in (*gang.pending, *gang.retry):
                needed.add(pod.uid)

        # Thousands of members share one note, by identity: its sentence is made once.
        distinct = {id(note): note for _, note in notes}
        with_why = {}
        for key, note in distinct.items():
            with_why[key] = findings.with_obstacle(note, why)

        notes = tuple((uid, with_why[id(note)] if uid in needed else note) for uid, note in notes)

    refusal = findings.with_obstacle(verdict.told, why)
    return structs.replace(verdict, told=refusal, notes=notes, preemption=why)
