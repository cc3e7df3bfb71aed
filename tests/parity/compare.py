"""Give cases to both schedulers and count where they agree.

Invariant: the run follows our own placements, so that members that depend on each other are tested
step by step: if kube-scheduler chose another node, it must also accept ours when that is the only
one with room. A difference counts only if it is there after asking again.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, groupby

from control_plane.plane import ControlPlane

from tests.parity.generate import Case, case
from tests.parity.kube_scheduler import Answer, KubeScheduler
from tests.parity.ours import Ours
from tests.parity.pods import Object

ATTEMPTS = 4
PAUSE_S = 0.1
_NAME = re.compile(r'"[^"]*"')
_COUNTED = re.compile(r"((?P<nodes>\d+) )?(?P<text>.+)")


@dataclass(frozen=True)
class Difference:
    """A probe on which the two differ."""

    case: str
    probe: str
    what: str
    ours: Answer
    theirs: Answer

    def __str__(self) -> str:
        ours, theirs = (side.node or reasons(side.message) for side in (self.ours, self.theirs))
        return (
            f"{self.probe}: {self.what}\n  ours           {ours}\n  kube-scheduler {theirs}\n"
            f"  again with its objects: python -m tests.parity --case {self.case}"
        )


@dataclass
class Figures:
    """What was compared: probes, those refused by both, and all differences by kind.

    `said` and `agreed` are probes by reason: kube-scheduler gave it, and we gave it for as many
    nodes.
    """

    probes: int = 0
    refused: int = 0
    same_node: int = 0
    asked_again: int = 0
    said: Counter[str] = field(default_factory=Counter)
    agreed: Counter[str] = field(default_factory=Counter)
    fate: list[Difference] = field(default_factory=list)
    node: list[Difference] = field(default_factory=list)
    reasons: list[Difference] = field(default_factory=list)

    @property
    def differences(self) -> list[Difference]:
        """All of them."""
        return [*self.fate, *self.node, *self.reasons]

    @property
    def contradicts(self) -> bool:
        """Whether one side placed a pod where the other would not."""
        return bool(self.fate or self.node)

    def count(self, ours: Answer, theirs: Answer) -> None:
        """Count a probe that both refused, by reason."""
        mine = by_reason(ours.message)
        for text, nodes in by_reason(theirs.message).items():
            self.said[text] += 1
            self.agreed[text] += mine.get(text) == nodes

    def __str__(self) -> str:
        placed = self.probes - self.refused - len(self.fate)
        rows = [
            f"  {self.agreed[text]:5} of {total:5}  {text}"
            for text, total in self.said.most_common()
        ]
        return "\n".join(
            (
                (
                    f"{self.probes} probes: {_share(self.probes, len(self.fate))} agree on bound"
                    " or not"
                ),
                (
                    f"{placed} bound: {_share(placed, len(self.node))} on a node that"
                    f" kube-scheduler accepts, {self.same_node} of them on the one it chose"
                ),
                (
                    f"{self.refused} refused: {_share(self.refused, len(self.reasons))} in the same"
                    f" sentence; of {self.said.total()} reasons"
                    f" {_share(self.said.total(), self.said.total() - self.agreed.total())} for as"
                    " many nodes:"
                ),
                *rows,
                (
                    f"kube-scheduler was asked again {self.asked_again} times, when it might not"
                    " have seen everything yet"
                ),
            )
        )


def run(plane: ControlPlane, cases: Iterator[Case], number: int) -> Figures:
    """The figures of `cases`, until `number` probes were compared or no case is left."""
    figures, scheduler = Figures(), KubeScheduler(plane)
    try:
        for each in cases:
            _one(each, figures, scheduler, plane)
            if figures.probes >= number:
                break
    finally:
        scheduler.close()
    return figures


def cases(seed: int) -> Iterator[Case]:
    """The cases of a seed, an endless iterator."""
    return (case(seed, number) for number in count())


def _one(case: Case, figures: Figures, scheduler: KubeScheduler, plane: ControlPlane) -> None:
    scheduler.build(case)
    ours = Ours(plane)
    try:
        for batch in _batches(case.probes):
            for probe, answer in _decided(batch, scheduler, ours):
                figures.probes += 1
                if not _follow(probe, answer, case, figures, scheduler):
                    return  # from here on the two live in different worlds
    finally:
        scheduler.clear(case, case.probes)


def _batches(probes: list[Object]) -> Iterator[list[Object]]:
    """Batches of probes: those that differ only in their names are decided in one plan."""
    for _, batch in groupby(probes, key=lambda probe: id(probe["spec"])):
        yield list(batch)


def _decided(
    batch: list[Object], scheduler: KubeScheduler, ours: Ours
) -> list[tuple[Object, Answer]]:
    """Our answers, in the order of the plan."""
    ours.look()
    stored = [scheduler.create(probe, dry_run=True) for probe in batch]
    by_name = {probe["metadata"]["name"]: probe for probe in batch}
    return [(by_name[name], answer) for name, answer in ours.decide(stored)]


def _follow(
    probe: Object, mine: Answer, case: Case, figures: Figures, scheduler: KubeScheduler
) -> bool:
    """Give one probe to kube-scheduler and leave it on our node; False if that is not possible."""
    name = probe["metadata"]["name"]
    theirs = _asked(probe, scheduler, figures, lambda answer: _agrees(mine, answer))
    if bool(mine.node) != bool(theirs.node):
        figures.fate.append(Difference(case.seed, name, "bound or not", mine, theirs))
        return False
    if not mine.node:
        scheduler.delete(probe)
        figures.refused += 1
        figures.count(mine, theirs)
        if reasons(mine.message) != reasons(theirs.message):
            figures.reasons.append(Difference(case.seed, name, "reasons", mine, theirs))
        return True
    if mine.node == theirs.node:
        figures.same_node += 1
        return True
    scheduler.delete(probe)
    scheduler.close_nodes(case, but=mine.node)
    theirs = _asked(probe, scheduler, figures, lambda answer: answer.node == mine.node)
    scheduler.open_nodes(case, but=mine.node)
    if theirs.node != mine.node:
        figures.node.append(Difference(case.seed, name, "our node", mine, theirs))
    return theirs.node == mine.node


def _asked(
    probe: Object, scheduler: KubeScheduler, figures: Figures, expected: Callable[[Answer], bool]
) -> Answer:
    """kube-scheduler's answer; an unexpected one is asked for again once its caches are up
    to date.
    """
    answer = scheduler.ask(probe)
    for attempt in range(1, ATTEMPTS):
        if expected(answer):
            break
        figures.asked_again += 1
        scheduler.delete(probe)
        time.sleep(PAUSE_S * attempt)
        answer = scheduler.ask(probe)
    return answer


def _agrees(mine: Answer, theirs: Answer) -> bool:
    if mine.node or theirs.node:
        return bool(mine.node) == bool(theirs.node)
    return reasons(mine.message) == reasons(theirs.message)


def reasons(message: str) -> str:
    """The first sentence of a refusal, which has the counts; the rest is about preemption."""
    return message.split(". ", maxsplit=1)[0].removesuffix(".")


def by_reason(message: str) -> Mapping[str, int]:
    """The number of nodes per reason; 1 for a reason that applies to all nodes at once."""
    said = reasons(message).partition(" nodes are available: ")[2] or reasons(message)
    found = (_COUNTED.fullmatch(entry) for entry in re.split(r", (?=\d+ )", said))
    return {_NAME.sub("…", entry["text"]): int(entry["nodes"] or 1) for entry in found if entry}


def _share(total: int, differing: int) -> str:
    return f"{total - differing} ({100 * (total - differing) / max(1, total):.2f} %)"
