"""When and where each job of a simulation ran: as lines of JSON, as a Chrome trace, and as a page.

Invariant: times are in seconds from the start of the trace, in a Chrome trace in microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from gangsched.model.objects import Node
from gangsched.simulate.simulator import Promises, Run
from gangsched.simulate.tables import InputError

PAGE = "kubectl_gangsched.page.simulated"
"""Of a package that is installed beside this one, or not: nothing here may import it."""
PROCESS = 1
Event: TypeAlias = dict[str, Any]


class Span(msgspec.Struct, rename="camel", kw_only=True):
    """One attempt of a job; of a job that never started the attempt is 0 and has no times."""

    #: namespace/name.
    job: str
    attempt: int
    priority: int
    pods: int
    gpus: int
    #: When the attempt was submitted: the job itself, or again after a preemption.
    submitted: float
    begin: float | None = msgspec.field(name="from", default=None)
    end: float | None = msgspec.field(name="to", default=None)
    preempted: bool = False
    #: GPUs by node.
    nodes: dict[str, int] = {}
    #: The latest start that was promised to the job, and when; only of the first attempt.
    promised: float | None = None
    promised_at: float | None = None


def spans_of(runs: Iterable[Run], promises: Promises) -> Iterator[Span]:
    """The spans of all jobs, in the order of their submission."""
    for run in runs:
        promised_s = promises.told_s.get(run.job.group, math.inf)
        is_promised = promised_s < math.inf
        first = Span(
            job=run.job.key,
            attempt=0,
            priority=run.job.priority,
            pods=len(run.job.pods),
            gpus=run.job.gpus,
            submitted=run.job.submit_s,
            promised=promised_s if is_promised else None,
            promised_at=promises.told_at_s[run.job.group] if is_promised else None,
        )
        if not run.spans:
            yield first

        yield from _attempts(run, first)


def _attempts(run: Run, first: Span) -> Iterator[Span]:
    submitted_s = first.submitted
    for number, (begin_s, end_s) in enumerate(run.spans, 1):
        yield Span(
            job=first.job,
            attempt=number,
            priority=first.priority,
            pods=first.pods,
            gpus=first.gpus,
            submitted=submitted_s,
            begin=begin_s,
            end=end_s,
            preempted=number <= run.preempted,
            nodes=run.places[number - 1],
            promised=first.promised if number == 1 else None,
            promised_at=first.promised_at if number == 1 else None,
        )
        submitted_s = end_s


def write_spans(file: Path, spans: Iterable[Span]) -> None:
    """Write one line of JSON per span. Raises InputError."""
    try:
        with file.open("wb") as out:
            for span in spans:
                out.write(msgspec.json.encode(span) + b"\n")
    except OSError as error:
        raise InputError(f"Cannot write {file}: {error.strerror}.") from error


def write_trace(file: Path, nodes: Sequence[Node], spans: Iterable[Span]) -> None:
    """Write a Chrome trace, which Perfetto and chrome://tracing open: a row per node. Raises
    InputError.
    """
    rows = {node.name: number for number, node in enumerate(nodes, 1)}
    try:
        with file.open("wb") as out:
            out.write(b'{"displayTimeUnit":"ms","traceEvents":[\n')
            separator = b""
            for event in _events(rows, spans):
                out.write(separator + msgspec.json.encode(event))
                separator = b",\n"

            out.write(b"\n]}\n")
    except OSError as error:
        raise InputError(f"Cannot write {file}: {error.strerror}.") from error


def _events(rows: Mapping[str, int], spans: Iterable[Span]) -> Iterator[Event]:
    for name, number in rows.items():
        yield {
            "ph": "M",
            "name": "thread_name",
            "pid": PROCESS,
            "tid": number,
            "args": {"name": name},
        }

    for span in spans:
        if span.begin is None or span.end is None:
            continue

        for node, gpus in span.nodes.items():
            yield {
                "ph": "X",
                "name": span.job,
                "cat": "preempted" if span.preempted else "job",
                "ts": _micros(span.begin),
                "dur": _micros(span.end - span.begin),
                "pid": PROCESS,
                "tid": rows[node],
                "args": {"gpus": gpus, "attempt": span.attempt, "submitted": span.submitted},
            }


def _micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


def write_page(file: Path, nodes: Sequence[Node], spans: Sequence[Span], title: str) -> None:
    """Write the page of `kubectl gangsched`, if that is installed. Raises InputError."""
    try:
        page = import_module(PAGE)
    except ModuleNotFoundError as error:
        raise InputError("--html needs kubectl-gangsched: install it as well.") from error

    page.write(file, nodes, spans, title)
