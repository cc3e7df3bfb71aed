"""The loads, and the jobs that come of them: the same for every scheduler."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from control_plane import objects as make
from control_plane.api import Object

NODES, GPUS = 8, 8
PRIORITIES = {"low": 10, "middle": 100, "high": 1000}
OURS, THEIRS = "gangsched", "kube-scheduler"
SCHEDULERS = {OURS: "gangsched", THEIRS: "default-scheduler"}


@dataclass(frozen=True, slots=True)
class Kind:
    """Jobs of one priority: one every `every_s`, of `members` pods of which `minimum` must run
    together.
    """

    priority: str
    every_s: float
    members: int
    minimum: int
    gpus: int
    run_s: float

    @property
    def offered_gpus(self) -> float:
        """GPUs that these jobs would use on average if all ran at once."""
        return self.members * self.gpus * self.run_s / self.every_s


LOW = Kind("low", 12.0, members=8, minimum=4, gpus=1, run_s=80.0)
LOADS = {
    "small": (
        LOW,
        Kind("middle", 18.0, members=3, minimum=3, gpus=4, run_s=40.0),
        Kind("high", 30.0, members=2, minimum=2, gpus=8, run_s=30.0),
    ),
    "large": (
        LOW,
        Kind("middle", 24.0, members=6, minimum=6, gpus=4, run_s=40.0),
        Kind("high", 40.0, members=4, minimum=4, gpus=8, run_s=30.0),
    ),
    "wide": (
        Kind("low", 6.0, members=4, minimum=2, gpus=2, run_s=60.0),
        Kind("middle", 45.0, members=8, minimum=8, gpus=4, run_s=50.0),
        Kind("high", 90.0, members=6, minimum=6, gpus=8, run_s=40.0),
    ),
}
"""small: every gang fits once it is its turn. large: gangs of up to half the cluster, which compete
with their like. wide: gangs of up to three quarters of it, beside many small ones."""


@dataclass(slots=True)
class Job:
    """A job under way. `bound` and `ended` are names of its pods; `whole_s` is since when it has
    its minimum.
    """

    name: str
    kind: Kind
    bodies: dict[str, Object]
    created_s: float = 0.0
    started_s: float | None = None
    whole_s: float | None = None
    bound: dict[str, float] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    counted_s: float = 0.0

    @property
    def is_done(self) -> bool:
        """Whether all its pods have succeeded."""
        return len(self.ended) == len(self.bodies)

    def run_s(self, name: str) -> float:
        """How long a pod of it runs."""
        return float(self.bodies[name]["metadata"]["annotations"][make.RUN_SECONDS])

    def grace_s(self, name: str) -> int:
        """The grace period of a pod of it."""
        return int(self.bodies[name]["spec"]["terminationGracePeriodSeconds"])

    @property
    def gpus_in_vain(self) -> int:
        """GPUs that its pods use while they are fewer than the minimum."""
        return (
            0 if self.whole_s is not None else self.kind.gpus * len(self.bound.keys() - self.ended)
        )


def arrivals(
    scheduler: str, load: str, minutes: float, seed: int
) -> Iterator[tuple[float, Job, list[Object]]]:
    """(when it comes, the job, its objects), in order; the same for both schedulers."""
    rng, kinds = random.Random(seed), LOADS[load]
    times = sorted(
        (number * kind.every_s + rng.uniform(0.0, 0.5) * kind.every_s, kind.priority, number)
        for kind in kinds
        for number in range(int(minutes * 60 / kind.every_s))
    )
    by_priority = {kind.priority: kind for kind in kinds}
    for at_s, priority, number in times:
        kind, name = by_priority[priority], f"{priority}-{number}"
        pods = [
            _pod(f"{name}-{index}", name, kind, scheduler, rng) for index in range(kind.members)
        ]
        group = [make.pod_group(name, min_member=kind.minimum)] if scheduler == OURS else []
        yield at_s, Job(name, kind, {pod["metadata"]["name"]: pod for pod in pods}), [*group, *pods]


def _pod(name: str, job: str, kind: Kind, scheduler: str, rng: random.Random) -> Object:
    grace_s = rng.randrange(5)
    return make.pod(
        name,
        gang=job if scheduler == OURS else "",
        gpus=kind.gpus,
        labels={"job": job},
        annotations={make.STOPS_SLOWLY: "true"} if grace_s else {},
        run_seconds=round(kind.run_s * rng.uniform(0.8, 1.2), 1),
        scheduler_name=SCHEDULERS[scheduler],
        spec={"priorityClassName": kind.priority, "terminationGracePeriodSeconds": grace_s},
    )
