"""Nodes and jobs in several formats, recognised by their columns (docs/simulate.md).

Invariant: a file is read as a whole or refused with one sentence that names the line
(`InputError`). Values that a trace lacks are derived only here: a job larger than a node becomes
pods that use whole nodes and one for the rest, and a fraction of a GPU counts as a whole GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from gangsched.model.gpu_policy import PRODUCT_LABEL
from gangsched.model.inter_pod import Requirement
from gangsched.model.objects import Node, NodeSelectorTerm, Shape
from gangsched.model.resources import CPU, MEMORY, PODS, ResourceVector, add, from_dict
from gangsched.simulate.tables import InputError, Row, read_table
from gangsched.simulate.workload import GPU, Job, gpus_of, split

Made = TypeVar("Made", Node, Job)

MIB = 2**20
PODS_OF_A_NODE = 110
QUANTITIES = {CPU: "cpu", MEMORY: "memory", GPU: "gpus"}


def read_nodes(file: Path) -> list[Node]:
    """Nodes of a file in gangsched's format or openb's. Raises InputError."""
    return _read(file, {frozenset({"gpus"}): _nodes, frozenset({"sn", "gpu"}): _openb_nodes})


def read_jobs(file: Path, nodes: Sequence[Node]) -> list[Job]:
    """Jobs of a file in gangsched's, openb's or Philly's format, to run on `nodes`. Raises
    InputError.
    """
    per_node = max(map(gpus_of, nodes), default=0)
    return _read(
        file,
        {
            frozenset({"submitted", "run_seconds"}): _jobs,
            frozenset({"num_gpu", "scheduled_time", "deletion_time"}): _openb_job,
            frozenset({"timestamp", "duration", "num_gpus"}): lambda row: _philly_job(
                row,
                per_node,
            ),
        },
    )


# Equal pods must share one Shape object, since the planner caches by its identity.
@lru_cache(maxsize=65_536)
def make_shape(requests: ResourceVector, products: tuple[str, ...] = ()) -> Shape:
    """The shape of pods with these requests; if GPU products are given, it requires a node with one
    of them.
    """
    required = None
    if products:
        required = (NodeSelectorTerm(labels=(Requirement(PRODUCT_LABEL, "In", products),)),)

    return Shape(requests=add(requests, ((PODS, 1),)), required=required)


def _read(file: Path, formats: Mapping[frozenset[str], Callable[[Row], list[Made]]]) -> list[Made]:
    columns, rows = read_table(file)
    for needed, convert in formats.items():
        if needed <= columns:
            return list(_distinct(rows, convert))

    known = "; or ".join(", ".join(sorted(needed)) for needed in formats)
    raise InputError(f"The file {file} is of no known format: it lacks the columns {known}.")


def _distinct(rows: Sequence[Row], convert: Callable[[Row], list[Made]]) -> Iterator[Made]:
    """The objects of the rows; a name that occurs twice is refused, because objects are told apart
    by name.
    """
    known_ids: set[str] = set()
    for row in rows:
        for job in convert(row):
            key = job.name if isinstance(job, Node) else job.key
            if key in known_ids:
                raise row.refused(f'the name "{key}" occurs twice')

            known_ids.add(key)
            yield job


def _nodes(row: Row) -> list[Node]:
    """One line, `count` nodes; a column with a slash in its name is a label."""
    name = row.text("name", f"node-{row.line}")
    count = row.whole("count", 1)
    labels = {key: value for key, value in row.values.items() if "/" in key and value}
    allocatable = add(row.resources(QUANTITIES), ((PODS, row.whole("pods", PODS_OF_A_NODE)),))
    names = [name] if count == 1 else [f"{name}-{index:04}" for index in range(count)]

    return [Node(name=name, labels=labels, allocatable=allocatable) for name in names]


def _openb_nodes(row: Row) -> list[Node]:
    model = row.text("model")
    offers = {
        CPU: row.whole("cpu_milli"),
        MEMORY: row.whole("memory_mib") * MIB,
        GPU: row.whole("gpu"),
        PODS: PODS_OF_A_NODE,
    }
    return [
        Node(
            name=row.text("sn"),
            labels={PRODUCT_LABEL: model} if model else {},
            allocatable=from_dict(offers),
        )
    ]


def _jobs(row: Row) -> list[Job]:
    pod = make_shape(row.resources(QUANTITIES))
    stated = row.text("expected_run_seconds")
    return [
        Job(
            name=row.text("name", f"job-{row.line:06}"),
            namespace=row.text("namespace", "default"),
            submit_s=row.time_s("submitted"),
            run_s=row.number("run_seconds"),
            pods=(pod,) * max(1, row.whole("pods", 1)),
            priority=row.signed("priority", 0),
            stated_s=row.number("expected_run_seconds") if stated else None,
        )
    ]


def _openb_job(row: Row) -> list[Job]:
    """A pod that was never scheduled has no run time, and is left out."""
    if not row.text("scheduled_time"):
        return []

    asks = {
        CPU: row.whole("cpu_milli"),
        MEMORY: row.whole("memory_mib") * MIB,
        GPU: row.whole("num_gpu"),
    }
    products = tuple(product for product in row.text("gpu_spec").split("|") if product)
    run_s = row.number("deletion_time") - row.number("scheduled_time")
    pod = make_shape(from_dict(asks), products)

    return [
        Job(
            name=row.text("name"),
            submit_s=row.time_s("creation_time"),
            run_s=max(0.0, run_s),
            pods=(pod,),
        )
    ]


def _philly_job(row: Row, per_node: int) -> list[Job]:
    gpus = row.whole("num_gpus")
    if gpus and not per_node:
        raise row.refused("it asks for GPUs, and no node has any")

    return [
        Job(
            name=f"job-{row.line:06}",
            namespace=row.text("cluster", "default"),
            submit_s=row.time_s("timestamp"),
            run_s=row.number("duration"),
            pods=tuple(
                make_shape(from_dict({GPU: gpus_of_pod})) for gpus_of_pod in split(gpus, per_node)
            ),
        )
    ]
