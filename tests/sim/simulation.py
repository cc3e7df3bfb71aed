"""One history: the parts, put together from one seed, and the order of what happens.

Invariant: all chance comes from streams of random numbers that are made of the seed, so a seed is
the same history in every run. First there is trouble, then peace: faults end, users repair what
they broke, and there is room for everything.
"""

from __future__ import annotations

import gc
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TextIO

from control_plane import objects as make

from gangsched.parameters import gpu_policy
from gangsched.settings import Settings
from gangsched.state.bulkhead import LONGEST_RETRY_S
from gangsched.state.members import State
from gangsched.state.validate import validate
from tests.rest_oracle import sleepers
from tests.sim import workload
from tests.sim.api_server.server import LEASES, ApiServer
from tests.sim.api_server.store import Object, Store, key_of
from tests.sim.api_server.watch import BOOKMARK_EVERY_S
from tests.sim.cluster import Cluster
from tests.sim.network import Network
from tests.sim.oracle import Oracle
from tests.sim.planted import PlantedFaults
from tests.sim.process import Process
from tests.sim.timeline import Timeline
from tests.sim.trace import Trace
from tests.sim.trouble.faults import RequestFaults
from tests.sim.trouble.injector import Injector
from tests.sim.trouble.plan import Plan
from tests.tuned import split, tuned

PEACE_S = 240.0
"""In this time all must be bound: undecided binds stay so for 70 s, and everything is tried again
every 60 s.
"""
CALM_S = 90.0
"""Trees must rest by then, though undecided binds stay so for 70 s."""
REST_S = 3.0
LOOK_EVERY_S = 1.0


@dataclass(slots=True)
class Result:
    """What came of a seed; `violations` is empty if all that must hold did."""

    seed: int
    violations: list[str]
    faults: Counter[str] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)
    digest: str = ""
    virtual_s: float = 0.0


class Simulation:
    """The history of one seed; `run` plays it."""

    def __init__(
        self,
        seed: int,
        out: TextIO | None = None,
        *,
        only: frozenset[str] = frozenset(),
        replicas: int = 0,
        trees: bool = False,
        planted: bool = False,
    ) -> None:
        """For `only` and `replicas` see `Plan.draw`, for `trees` `workload.jobs`, for `planted`
        `planted`.
        """
        self.seed, self._trees = seed, trees
        self.plan = Plan.draw(self.rng("plan"), only, replicas)
        self.timeline = Timeline()
        self.trace = Trace(self.timeline, out)
        self.store = Store(self.timeline)
        self.server = ApiServer(self.timeline, self.store)
        self.oracle = Oracle()
        self.requests = RequestFaults(
            self.rng("requests"), self.plan.request_rate, self.plan.request_faults
        )
        self.network = Network(
            self.timeline, self.server, self.oracle, self.requests, self.rng("network"), self.trace
        )
        self.cluster = Cluster(self.timeline, self.server, self.rng("cluster"))
        self.oracle.begin(self.cluster)
        self.processes: list[Process] = []
        self.dead: list[Process] = []
        self.injector = Injector(self)
        self.checks: Counter[str] = Counter()
        self.planted = PlantedFaults(self.rng("planted")) if planted else None
        self._starts = 0

    def rng(self, name: str) -> Random:
        """A stream of random numbers of its own for each purpose, so that one does not move the
        others.
        """
        return Random(f"{self.seed}/{name}")

    # --- the history -----------------------------------------------------------------------------

    def run(self) -> Result:
        """Play it; ends at the first violation."""
        try:
            raising = self.planted.planted() if self.planted is not None else nullcontext()
            with tuned(split(self.plan.settings)[1]), raising:
                self._set_up()
                self._until(self.plan.trouble_s)
                self._end_trouble()
                if self._trees and not self.oracle.found:
                    self._until(self.timeline.now_s + CALM_S)
                    # without PodGroups nobody knows the minimums
                    if not self.injector.counts["API group goes"]:
                        self.oracle.rests()
                self._make_peace()
                self._wait_for_all()
        except AssertionError as error:
            self.oracle.found.append(str(error) or repr(error))
        finally:
            self._bury()
        counts = self.requests.counts + self.injector.counts
        if self.planted is not None:
            counts += self.planted.counts
        if self.network.repeated:
            counts["line twice"] += self.network.repeated
        if self.cluster.rejected:
            counts["rejected by a kubelet"] += self.cluster.rejected
        return Result(
            self.seed,
            self.oracle.found,
            counts,
            self.oracle.checks + self.checks,
            self.trace.digest(),
            self.timeline.now_s,
        )

    def _set_up(self) -> None:
        rng = self.rng("workload")
        for namespace in (*workload.NAMESPACES, "gangsched-system"):
            self.store.create("namespaces", make.namespace(namespace))
        for node in workload.nodes(rng):
            self.store.create("nodes", node)
        for job in workload.jobs(rng, within_s=self.plan.trouble_s * 0.7, trees=self._trees):
            self.timeline.at(job.arrives_s, partial(self.cluster.submit, job))
            if rng.random() < self.plan.budgets:
                self.store.create(
                    "poddisruptionbudgets.policy", workload.budget(job, rng.randint(0, job.members))
                )
        for name in self.plan.names:
            self.start(name)
        if self.seed % 4:
            self.store.create(LEASES, make.released_lease())
        self._bookmark()
        self.network.repeats = self.plan.repeats
        self.cluster.rejects = self.plan.rejects
        self.injector.begin()

    def start(self, name: str) -> None:
        """Start a process under this name."""
        self._starts += 1
        number = self._starts
        identity = f"{name}{number}"
        settings = Settings(**split(self.plan.settings)[0], identity=identity)
        process = Process(
            identity, settings, self.timeline, self.network, self.rng(f"process {number}")
        )
        self.trace.add(f"{identity} starts")
        self.oracle.disturb()
        self.processes.append(process)

    def _until(self, end_s: float) -> None:
        while not self.oracle.found:
            process = min(self.processes, key=Process.due_s, default=None)
            due_s = process.due_s() if process is not None else float("inf")
            if min(due_s, self.timeline.next_s()) > end_s:
                self.timeline.now_s = end_s
                return
            if self.timeline.next_s() <= due_s:
                self.timeline.pop()()
                continue
            assert process is not None
            self.timeline.now_s = max(self.timeline.now_s, due_s)
            process.step()
            self.look(process)

    def look(self, process: Process) -> None:
        """What must hold in a process after each of its steps."""
        if not process.runs:
            self._ended(process)
            return
        if process.loop.failures:
            self.oracle.complain(f"{process.name}: {process.loop.failures[0]}")
        daemon = process.daemon
        fault = daemon.internal_faults.last if daemon is not None else None
        if fault is not None and self.planted is None:
            self.oracle.complain(f"{process.name}: internal error: {fault.trace}")
        # A group that is set aside sleeps although it could start.
        if (
            daemon is not None
            and process.is_quiet
            and self.planted is None
            and process.rested != process.heard
        ):
            process.rested = process.heard
            self.checks["nobody sleeps wrongly"] += 1
            wall_s = process.wall().timestamp()
            for sentence in sleepers(
                daemon.state, process.monotonic_s(), wall_s, gpu_policy(process.settings)
            ):
                self.oracle.complain(f"{process.name}: {sentence}")
        looked_s, heard = process.looked
        if (
            daemon is None
            or heard == process.heard
            or self.timeline.now_s < looked_s + self.plan.validate_every_s
        ):
            return
        process.looked = (self.timeline.now_s, process.heard)
        self.checks["validate()"] += 1
        for sentence in validate(daemon.state):
            self.oracle.complain(f"{process.name}: {sentence}")

    def _ended(self, process: Process) -> None:
        self.processes.remove(process)
        self.oracle.disturb()
        self.dead.append(process)
        how = "crashed" if process.has_crashed else f"ended: {process.ended}"
        self.trace.add(f"{process.name} {how}")
        if process.ended:
            self.oracle.complain(f"{process.name} ended by itself: {process.ended}")
        if len(self.dead) > 2:
            self.dead.pop(0).bury()
        self.injector.ended(process)

    def _bookmark(self) -> None:
        for wire in self.network.watching:
            if wire.stream is not None:
                wire.stream.bookmark()
        self.timeline.after(BOOKMARK_EVERY_S, self._bookmark)

    # --- peace -----------------------------------------------------------------------------------

    def _end_trouble(self) -> None:
        if self.oracle.found:
            return
        self.trace.add("no more trouble")
        self.injector.end()
        if self.planted is not None:
            self.planted.end()
        self.requests.stop()
        self.network.repeats = self.cluster.rejects = 0.0
        running = {process.name.rstrip("0123456789") for process in self.processes}
        for name in self.plan.names:
            if name not in running:
                self.start(name)

    def _make_peace(self) -> None:
        if self.oracle.found:
            return
        self.trace.add("peace")
        for number in range(2):
            self.store.create("nodes", workload.node(f"spare-{number}", gpus=200, cpu="400"))
        self.injector.repair()

    def _wait_for_all(self) -> None:
        peace_s = PEACE_S
        if self.planted is not None:
            # A group at which functions raised is tried again after its back-off (I10).
            peace_s += LONGEST_RETRY_S

        ends_s = self.timeline.now_s + peace_s
        rests_s: float | None = None
        while not self.oracle.found and self.timeline.now_s < ends_s:
            self._until(self.timeline.now_s + LOOK_EVERY_S)
            self.injector.repair()
            if self.unfinished():
                rests_s = None
            elif rests_s is None:
                rests_s = self.timeline.now_s
            elif self.timeline.now_s >= rests_s + REST_S:
                return
        if not self.oracle.found:
            self.oracle.complain(
                f"in {peace_s:g} s of peace there is still: " + "; ".join(self.unfinished()[:5])
            )

    def unfinished(self) -> list[str]:
        """What is to end in peace and has not: pods that wait, holds, reservations, nominations,
        work left over.
        """
        found = []
        for job in self.cluster.jobs.values():
            if job.is_over:
                continue
            bound = [
                pod
                for pod in map(self._pod, job.pods.values())
                if pod is not None and pod["spec"].get("nodeName")
            ]
            if len(bound) < len(job.pods):
                waiting = [
                    pod
                    for pod in map(self._pod, job.pods.values())
                    if pod and not pod["spec"].get("nodeName")
                ]
                why = [_condition(pod) for pod in waiting[:1]]
                found.append(f"{job.key} has {len(bound)} of {len(job.pods)} bound {why}")
        for process in self.processes:
            if process.daemon is None:
                found.append(f"{process.name} has no daemon yet")
                continue
            state = process.daemon.state
            held = [member.pod.name for member in state.members.all() if member.state in _PASSING]
            if held:
                found.append(f"{process.name} has members under way: {held}")
            if process.leads and state.reservations.standing:
                found.append(f"{process.name} reserves room")
            if state.preemptions.nominations.all():
                found.append(f"{process.name} has nominations")
        return found

    def _pod(self, body: Object) -> Object | None:
        return self.store.get("pods", key_of(body))

    def _bury(self) -> None:
        for process in (*self.dead, *self.processes):
            process.bury()
        gc.unfreeze()


_PASSING = frozenset(
    {State.HELD, State.WAITING_FOR_CLAIMS, State.BINDING, State.WITHDRAWN, State.KEPT, State.RETRY}
)


def _condition(pod: Object) -> str:
    conditions = pod["status"].get("conditions", [])
    return next(
        (f"{c['reason']}: {c['message']}" for c in conditions if c["type"] == "PodScheduled"),
        "never told",
    )
