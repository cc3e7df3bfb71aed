"""The page of a simulation: its moments, from the spans of its jobs.

Invariant: it is written by `gangsched simulate`, which knows this module by its name only. At each
moment the page has what was known then: a promise only once it was told, and no end of a job that
still runs. Times are simulated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from copy import copy
from pathlib import Path

from gangsched import __version__
from gangsched.model.objects import Node
from gangsched.model.text import counted
from gangsched.simulate.spans import Span
from gangsched.simulate.tables import InputError
from kubectl_gangsched.page import file_host
from kubectl_gangsched.page.changes import between
from kubectl_gangsched.page.cluster import Cluster
from kubectl_gangsched.page.document import (
    Bar,
    Document,
    Health,
    Moment,
    Need,
    PageGang,
    Promise,
    Unknown,
)
from kubectl_gangsched.page.moments import by_age, sentence, totals_of
from kubectl_gangsched.page.rows import node_row
from kubectl_gangsched.session import CannotAnswer
from kubectl_gangsched.terminal import clean

MOMENTS = 240
"""Moments of a simulation, however long it is: a slider has no more."""
GPU = "nvidia.com/gpu"
LATE_S = 60.0
ENDS, ARRIVES, BEGINS, ENDS_AT_ONCE = range(4)
"""What happens at one time, in this order; a job without a run time ends after its begin."""
NO_ORDER = Unknown("order", "A simulation has no places in the queue: it is shown by age.")


def write(file: Path, nodes: Sequence[Node], spans: Sequence[Span], title: str) -> None:
    """Write the page. Raises InputError."""
    try:
        file_host.write(document(nodes, spans, title), file)
    except CannotAnswer as refusal:
        raise InputError(str(refusal)) from refusal


def document(nodes: Sequence[Node], spans: Sequence[Span], title: str) -> Document:
    """The document of a simulation."""
    course = _Course(nodes, spans)
    first = moment = course.at(0.0)
    first.health = Health(promises=_promises(spans))
    changes = []

    for number in range(1, MOMENTS + 1):
        later = course.at(course.last_s * number / MOMENTS)
        later.health = first.health
        changes.append(between(moment, later))
        moment = later

    return Document(
        source="simulation",
        clock="simulated",
        title=clean(title),
        made_by=__version__,
        moment=first,
        changes=changes if course.last_s else [],
    )


class _Course:
    """The simulation as it goes on."""

    def __init__(self, nodes: Sequence[Node], spans: Sequence[Span]) -> None:
        self._spans = spans
        self._events = sorted(_events(spans))
        self._next = 0
        cluster = Cluster()
        self._levels = list(cluster.levels)
        self._nodes = {node.name: node_row(cluster, node, ()) for node in nodes}
        self._gangs: dict[str, PageGang] = {}
        self._bars: dict[str, list[Bar]] = {}
        self._past: dict[str, list[Bar]] = {}
        #: Spans of jobs that wait and have a promise, until it is told.
        self._untold: dict[str, Span] = {}
        self.last_s = self._events[-1][0] if self._events else 0.0

    def at(self, at_s: float) -> Moment:
        """The moment at a time that is not before the last one."""
        while self._next < len(self._events) and self._events[self._next][0] <= at_s:
            _, kind, number = self._events[self._next]
            self._next += 1
            self._apply(kind, self._spans[number])

        self._tell(at_s)
        queue = by_age(self._gangs)
        totals = totals_of(self._nodes)
        return Moment(
            at_s=at_s,
            sentence=sentence(totals, queue, {}),
            levels=self._levels,
            totals=totals,
            nodes=dict(self._nodes),
            gangs=dict(self._gangs),
            queue=queue,
            order="age",
            bars=dict(self._bars),
            unknown=[NO_ORDER],
        )

    def _apply(self, kind: int, span: Span) -> None:
        if kind == ARRIVES:
            self._arrive(span)
        elif kind == BEGINS:
            self._begin(span)
        else:
            self._end(span)

    def _arrive(self, span: Span) -> None:
        row = _row(span)
        row.waits = True
        row.phase = "Pending"
        row.waiting_since_s = int(span.submitted)
        row.sentence = f"Job {row.namespace}/{row.name} waits for {_asked(span)}."
        self._gangs[span.job] = row
        self._bars[span.job] = [*self._past.get(span.job, ()), Bar("waited", int(span.submitted))]
        if span.promised is not None:
            self._untold[span.job] = span

    def _tell(self, at_s: float) -> None:
        """Show the promises that have been told by now."""
        for job, span in list(self._untold.items()):
            if span.promised_at is not None and span.promised_at <= at_s:
                del self._untold[job]
                row = copy(self._gangs[job])
                row.promised_s = math.ceil(span.promised or 0.0)
                self._gangs[job] = row
                promised = Bar("promised", row.promised_s)
                self._bars[job] = [*self._bars[job], promised]

    def _begin(self, span: Span) -> None:
        self._untold.pop(span.job, None)
        begin_s = int(span.begin or 0.0)
        row = _row(span)
        row.phase = "Running"
        row.bound = span.pods
        row.started_s = begin_s
        places = counted(len(span.nodes), "node")
        row.sentence = f"Job {row.namespace}/{row.name} runs on {places}, with {_asked(span)}."
        self._gangs[span.job] = row
        self._use(span, 1)

        waited = Bar("waited", int(span.submitted), begin_s)
        is_late = span.promised is not None and begin_s > span.promised + LATE_S
        happened = Bar("happened", begin_s, late=is_late, nodes=list(span.nodes))
        self._past.setdefault(span.job, []).append(waited)
        self._bars[span.job] = [*self._past[span.job], happened]

    def _end(self, span: Span) -> None:
        self._gangs.pop(span.job, None)
        self._use(span, -1)
        *_, happened = self._bars[span.job]
        ended = Bar(
            "happened",
            happened.from_s,
            int(span.end or 0.0),
            late=happened.late,
            nodes=happened.nodes,
        )
        self._past[span.job].append(ended)
        self._bars[span.job] = list(self._past[span.job])

    def _use(self, span: Span, sign: int) -> None:
        """Give the job its GPUs, or take them away."""
        for name, gpus in span.nodes.items():
            if not gpus:
                continue

            row = copy(self._nodes[name])
            row.devices = [copy(devices) for devices in row.devices]
            for devices in row.devices:
                if devices.resource == GPU:
                    devices.users = dict(devices.users)
                    devices.users[span.job] = devices.users.get(span.job, 0) + sign * gpus
                    devices.free -= sign * gpus
                    if not devices.users[span.job]:
                        del devices.users[span.job]

            self._nodes[name] = row


def _events(spans: Iterable[Span]) -> Iterable[tuple[float, int, int]]:
    """(time, what, number of the span)."""
    for number, span in enumerate(spans):
        yield span.submitted, ARRIVES, number
        if span.begin is not None and span.end is not None:
            is_short = span.end <= span.begin
            yield span.begin, BEGINS, number
            yield span.end, ENDS_AT_ONCE if is_short else ENDS, number


def _row(span: Span) -> PageGang:
    namespace, _, name = span.job.partition("/")
    each = span.gpus // span.pods
    return PageGang(
        clean(namespace),
        clean(name),
        pods=span.pods,
        min_member=span.pods,
        priority=span.priority,
        needs=[Need(span.pods, {GPU: str(each)})] if each else [],
        created_s=int(span.submitted),
    )


def _asked(span: Span) -> str:
    return f"{counted(span.pods, 'pod')} and {counted(span.gpus, 'GPU')}"


def _promises(spans: Iterable[Span]) -> list[Promise]:
    promises = []
    for span in spans:
        if span.promised is not None:
            started_s = int(span.begin) if span.begin is not None else None
            promises.append(Promise(span.job, math.ceil(span.promised), started_s))

    return promises
