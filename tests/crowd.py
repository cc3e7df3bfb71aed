"""Gangs of many kinds that come and go, for tests that disturb a real API server.

    crowd = Crowd(api, checks, random, "x")
    crowd.refill(12)
    crowd.take_away(crowd.started())

Invariant: each job fits the empty cluster, and has started once all of its gangs have their
minimum. It does what job controllers do: it replaces members that others removed, and nothing else.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from control_plane import objects as make
from control_plane.api import Api, ApiError, Object
from control_plane.checks import Checks

GPUS = 8
"""GPUs of each node."""
MOST_MEMBERS = 12
CONFLICT = 409
Made = tuple[list[Object], dict[str, int]]
"""Objects, and the minimum of each gang among them by name."""
Kind = Callable[[str, Random, int], Made]
"""Makes a job of a name, for so many nodes."""


def with_pod_group(name: str, random: Random, nodes: int) -> Made:
    """A PodGroup and its members, perhaps with one above the minimum, or NonStrict."""
    gpus, members, minimum = _size(random, nodes)
    objects = make.gang(name, members=members, min_member=minimum, gpus=gpus)
    objects[0]["metadata"]["annotations"] = {f"{make.KOORDINATOR}mode": _mode(random)}
    return objects, {name: minimum}


def with_annotations(name: str, random: Random, nodes: int) -> Made:
    """The same, declared by the pods alone."""
    gpus, members, minimum = _size(random, nodes)
    marks = make.gang_annotations(name, minimum, total=members, mode=_mode(random))
    objects = [
        make.pod(f"{name}-{index}", gpus=gpus, annotations=marks) for index in range(members)
    ]
    return objects, {name: minimum}


def tree(name: str, random: Random, nodes: int) -> Made:
    """A parent and two children that it needs."""
    gpus, members, _ = _size(random, nodes)
    width = max(1, members // 2)
    annotations = {"gangsched.dev/min-children": "2"}
    objects = [make.pod_group(name, annotations=annotations)]
    minimums: dict[str, int] = {}
    for child in (f"{name}-a", f"{name}-b"):
        group, *pods = make.gang(child, members=width, gpus=gpus)
        group["metadata"]["annotations"] = {"gangsched.dev/parent": name}
        objects += [group, *pods]
        minimums[child] = width

    return objects, minimums


def with_claims(uses: Mapping[str, object]) -> Kind:
    """Gangs of up to four whose members each claim what a template says; `uses` is in their
    specs.
    """

    def made(name: str, random: Random, nodes: int) -> Made:
        members = random.randint(1, min(4, nodes))
        return make.gang(name, members=members, spec=uses), {name: members}

    return made


def _size(random: Random, nodes: int) -> tuple[int, int, int]:
    """GPUs of a member, members, and minimum."""
    gpus = random.choice((1, 2, 4, 8))
    members = random.randint(1, min(MOST_MEMBERS, nodes * (GPUS // gpus)))
    return gpus, members, random.randint(max(1, members - 1), members)


def _mode(random: Random) -> str:
    return random.choice(("Strict", "Strict", "NonStrict"))


KINDS: tuple[Kind, ...] = (with_pod_group, with_pod_group, with_annotations, tree)


@dataclass
class Job:
    """What was created, and the gangs in it, "namespace/name"."""

    objects: list[Object]
    gangs: list[str]


@dataclass
class Crowd:
    """`jobs` are those that have not been taken away, by name. `create`: how objects are created,
    where the API server comes and goes.
    """

    api: Api
    checks: Checks
    random: Random
    prefix: str
    nodes: int
    kinds: Sequence[Kind] = KINDS
    create: Callable[[Api, Sequence[Object]], object] = make.create_all
    jobs: dict[str, Job] = field(default_factory=dict)
    created: int = 0
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def refill(self, most: int) -> None:
        """Create jobs until there are so many."""
        while len(self.jobs) < most:
            self.add()

    def add(self) -> None:
        """Create a job of a random kind."""
        name = f"{self.prefix}-{next(self._numbers)}"
        kind = self.random.choice(self.kinds)
        objects, minimums = kind(name, self.random, self.nodes)
        gangs = [f"default/{gang}" for gang in minimums]
        for gang, minimum in zip(gangs, minimums.values(), strict=True):
            self.checks.expect(gang, minimum)

        self.jobs[name] = Job(objects, gangs)
        self.create(self.api, objects)
        self.created += 1

    def started(self, *, ran_s: float = 0.0) -> list[str]:
        """Jobs that have started, and that long ago."""
        latest_s = time.monotonic() - ran_s
        found = []
        for name, job in self.jobs.items():
            started = [self.checks.started_s(gang) for gang in job.gangs]
            if all(at_s is not None and at_s <= latest_s for at_s in started):
                found.append(name)

        return found

    def take_away(self, names: Sequence[str]) -> None:
        """Delete jobs with all that belongs to them."""
        for name in names:
            for body in reversed(self.jobs.pop(name).objects):
                self.api.delete(f"{self.api.path_of(body)}/{body['metadata']['name']}")

    def replace_lost(self, pods: Mapping[str, Object]) -> None:
        """Create the members again that are not there; `pods` by uid."""
        there = {pod["metadata"]["name"] for pod in pods.values()}
        for job in self.jobs.values():
            for body in job.objects:
                if body["kind"] == "Pod" and body["metadata"]["name"] not in there:
                    self._replace(body)

    def _replace(self, body: Object) -> None:
        try:
            self.api.post(self.api.path_of(body), body)
        except ApiError as error:
            if error.status != CONFLICT:  # it was not seen yet
                raise
