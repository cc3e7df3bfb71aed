"""Injector: what is done to processes, watches, nodes, pods and leases while there is trouble, and
its repair.

Invariant: every deed is counted by its name when it is done, and none is done in peace. Times come
from one stream of random numbers, by the rates of the plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from control_plane import objects as make

from gangsched.api.keys import SIGS, TIMEOUT, X_K8S
from tests.sim.api_server.server import ENDED, LEASES
from tests.sim.api_server.store import Object, key_of
from tests.sim.cluster import admitted, fits, requests
from tests.sim.workload import Job

if TYPE_CHECKING:
    from tests.sim.process import Process
    from tests.sim.simulation import Simulation

GROUPS = (X_K8S, SIGS)


class Injector:
    """`begin` plans it, `end` ends it, `repair` undoes what would keep gangs from starting for
    good.
    """

    def __init__(self, simulation: Simulation) -> None:
        self.counts: Counter[str] = Counter()
        self._sim = simulation
        self._rng = simulation.rng("injector")
        self._is_over = False
        self._foreign = 0

    @property
    def _deeds(self) -> dict[str, Callable[[], bool]]:
        """What is done under each name; each deed says whether it found somebody to be done to."""
        return {
            "crash": self._crash,
            "crash in the middle": self._crash_in_the_middle,
            "SIGTERM": self._terminate,
            "pause": self._pause,
            "suspension": self._suspend,
            "cut off": self._cut_off,
            "clock jump": self._jump,
            "watch closed": self._close_watch,
            "watch reset": self._reset_watch,
            "watch frozen": self._freeze_watch,
            "410 in a watch": partial(self._fail_watch, 410, "Expired"),
            "500 in a watch": partial(self._fail_watch, 500, "InternalError"),
            "log compacted": self._compact,
            "pages forgotten": self._forget_pages,
            "watches skewed": self._skew,
            "node lost": self._lose_node,
            "node shrinks": partial(self._resize_node, (1, 2, 3)),
            "node grows": partial(self._resize_node, (8, 10)),
            "node closed": self._close_node,
            "rival binds its own": self._bind_foreign,
            "rival binds ours": self._bind_ours,
            "pod deleted": self._delete_pod,
            "gang deleted": self._delete_gang,
            "PodGroup deleted": self._delete_pod_group,
            "PodGroup edited": self._edit_pod_group,
            "API group goes": self._hide_group,
            "lease deleted": self._delete_lease,
        }

    def begin(self) -> None:
        """Plan all of it."""
        deeds = self._deeds
        for name, rate in self._sim.plan.rates.items():
            at_s = self._rng.expovariate(rate)
            while at_s < self._sim.plan.trouble_s:
                self._sim.timeline.at(at_s, partial(self._do, name, deeds[name]))
                at_s += self._rng.expovariate(rate)

    def end(self) -> None:
        """Let everything run, and everybody be reached, from now on."""
        self._is_over = True
        now_s = self._sim.timeline.now_s
        for process in self._sim.processes:
            process.cut_off_until_s = min(process.cut_off_until_s, now_s)
            process.lags_s.clear()
            process.crashes_after = None
        for wire in self._sim.network.watching:
            wire.frozen_until_s = min(wire.frozen_until_s, now_s)
        self._sim.server.absent.clear()

    def ended(self, process: Process) -> None:
        """A process has ended: another takes its name after a while."""
        name = process.name.rstrip("0123456789")
        if self._is_over:  # it was told to end before
            self._sim.timeline.after(0.5, partial(self._sim.start, name))
        else:
            self._sim.timeline.after(self._rng.uniform(0.05, 4), partial(self._restart, name))

    def repair(self) -> None:
        """Do what users and their controllers do in the end."""
        sim = self._sim
        for job in list(sim.cluster.jobs.values()):
            if job.ends and not job.is_over:
                sim.cluster.finish(job)
            if not job.is_over:
                self._repair(job)
        for pod in list(sim.store.all("pods")):
            is_foreign = pod["spec"]["schedulerName"] != "gangsched"
            if pod["status"].get("phase") in ENDED or (
                is_foreign and not pod["spec"].get("nodeName")
            ):
                sim.server.delete_pod(key_of(pod), grace_s=0)

    def _repair(self, job: Job) -> None:
        sim = self._sim
        if job.pod_group is not None:
            sim.cluster.create_pod_group(job)
            kind = f"podgroups.{job.pod_group['apiVersion'].partition('/')[0]}"
            sim.store.update(kind, job.key, lambda body: body["spec"].update(minMember=job.minimum))
        for body in job.pods.values():
            key = key_of(body)
            if (pod := sim.store.get("pods", key)) is None:
                sim.cluster.create_pod(job, body)
            elif TIMEOUT in pod["metadata"].get("annotations", {}):
                sim.store.update(
                    "pods", key, lambda new: new["metadata"]["annotations"].pop(TIMEOUT)
                )

    def _do(self, name: str, deed: Callable[[], bool]) -> None:
        if not self._is_over and deed():
            self.counts[name] += 1
            self._sim.oracle.disturb()
            self._sim.trace.add(f"injector: {name}")

    # --- processes -------------------------------------------------------------------------------

    def _process(self) -> Process | None:
        now_s = self._sim.timeline.now_s
        running = [
            each for each in self._sim.processes if each.runs and each.paused_until_s <= now_s
        ]
        return self._rng.choice(running) if running else None

    def _restart(self, name: str) -> None:
        if not self._is_over:
            self._sim.start(name)

    def _crash(self) -> bool:
        if (process := self._process()) is None:
            return False
        process.crash()
        self._sim.look(process)
        return True

    def _crash_in_the_middle(self) -> bool:
        if (process := self._process()) is None:
            return False
        process.crashes_after = self._rng.randint(1, 2_000)
        return True

    def _terminate(self) -> bool:
        if (process := self._process()) is None:
            return False
        process.stop()
        return True

    def _pause(self) -> bool:
        if (process := self._process()) is None:
            return False
        process.pause(self._rng.choice((0.3, 2, 6, 20)) * self._rng.random())
        return True

    def _suspend(self) -> bool:
        if (process := self._process()) is None:
            return False
        process.suspend(self._rng.choice((2, 6, 20)) * self._rng.random())
        return True

    def _cut_off(self) -> bool:
        if (process := self._process()) is None:
            return False
        process.cut_off_until_s = (
            self._sim.timeline.now_s + self._rng.choice((1, 5, 20)) * self._rng.random()
        )
        return True

    def _jump(self) -> bool:
        if (process := self._process()) is None:
            return False
        process.wall_off_s += self._rng.choice((-3_600, -30, -1, 1, 30, 3_600, 86_400))
        return True

    # --- watches ---------------------------------------------------------------------------------

    def _close_watch(self) -> bool:
        wires = self._sim.network.open_watches()
        if not wires:
            return False
        stream = self._rng.choice(wires).stream
        assert stream is not None
        stream.close()
        return True

    def _reset_watch(self) -> bool:
        wires = self._sim.network.open_watches()
        if wires:
            self._rng.choice(wires).cut()
        return bool(wires)

    def _freeze_watch(self) -> bool:
        wires = self._sim.network.open_watches()
        if wires:
            for_s = self._rng.choice((1, 5, 30)) * self._rng.random()
            self._rng.choice(wires).frozen_until_s = self._sim.timeline.now_s + for_s
        return bool(wires)

    def _fail_watch(self, code: int, reason: str) -> bool:
        wires = self._sim.network.open_watches()
        if not wires:
            return False
        stream = self._rng.choice(wires).stream
        assert stream is not None
        stream.fail(code, reason)
        return True

    def _compact(self) -> bool:
        for resource in list(self._sim.store.log):
            self._sim.store.compact(resource)
        return True

    def _forget_pages(self) -> bool:
        self._sim.server.forget_pages()
        return True

    def _skew(self) -> bool:
        if (process := self._process()) is None:
            return False
        for resource in ("pods", "nodes", "podgroups.scheduling.x-k8s.io"):
            process.lags_s[resource] = (
                self._rng.choice((0.0, 0.0, 0.2, 2.0, 8.0)) * self._rng.random()
            )
        return True

    # --- nodes -----------------------------------------------------------------------------------

    def _node(self) -> Object | None:
        nodes = list(self._sim.store.all("nodes"))
        return self._rng.choice(nodes) if nodes else None

    def _lose_node(self) -> bool:
        if (node := self._node()) is None:
            return False
        name = key_of(node)
        self._sim.store.remove("nodes", name)
        if self._rng.random() < 0.7:
            self._sim.timeline.after(self._rng.uniform(1, 15), partial(self._bring_back, node))
        return True

    def _bring_back(self, node: Object) -> None:
        if self._sim.store.get("nodes", key_of(node)) is None:
            self._sim.store.create("nodes", node)

    def _resize_node(self, gpus: tuple[int, ...]) -> bool:
        if (node := self._node()) is None:
            return False
        count = str(self._rng.choice(gpus))
        self._sim.store.update(
            "nodes",
            key_of(node),
            lambda new: new["status"]["allocatable"].update({make.GPU: count}),
        )
        return True

    def _close_node(self) -> bool:
        if (node := self._node()) is None:
            return False
        closed = not node["spec"].get("unschedulable", False)
        self._sim.store.update(
            "nodes", key_of(node), lambda new: new["spec"].update(unschedulable=closed)
        )
        return True

    # --- a rival ---------------------------------------------------------------------------------

    def _bind_foreign(self) -> bool:
        if (node := self._node()) is None:
            return False
        self._foreign += 1
        run_s = self._rng.choice((None, 3.0, 20.0))
        body = make.pod(
            f"foreign-{self._foreign}",
            "ops",
            gpus=self._rng.choice((0, 1, 4)),
            cpu="2",
            run_seconds=run_s,
            scheduler_name="default-scheduler",
            spec={"priority": self._rng.choice((0, 10))},
        )
        self._sim.store.create("pods", admitted(body))
        name, is_looking = key_of(node), self._rng.random() < 0.8
        self._sim.timeline.after(
            self._rng.uniform(0.01, 0.5), partial(self._rival, key_of(body), name, is_looking)
        )
        return True

    def _rival(self, key: str, node: str, is_looking: bool) -> None:
        pod = self._sim.store.get("pods", key)
        if pod is None or pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
            return
        if not is_looking or fits(requests(pod), self._sim.cluster.room(node)):
            self._sim.server.assign(key, node, {})

    def _bind_ours(self) -> bool:
        waiting = [pod for pod in self._sim.store.all("pods") if not pod["spec"].get("nodeName")]
        node = self._node()
        if not waiting or node is None:
            return False
        pod = self._rng.choice(waiting)
        self._rival(key_of(pod), key_of(node), True)
        return True

    # --- users -----------------------------------------------------------------------------------

    def _delete_pod(self) -> bool:
        pods = list(self._sim.store.all("pods"))
        if pods:
            self._sim.server.delete_pod(key_of(self._rng.choice(pods)))
        return bool(pods)

    def _job(self, *, with_pod_group: bool) -> Job | None:
        jobs = [
            job
            for job in self._sim.cluster.jobs.values()
            if not job.is_over and (job.pod_group is not None or not with_pod_group)
        ]
        return self._rng.choice(jobs) if jobs else None

    def _delete_gang(self) -> bool:
        if (job := self._job(with_pod_group=False)) is None:
            return False
        for body in job.pods.values():
            self._sim.server.delete_pod(key_of(body))
        return True

    def _pod_group(self) -> tuple[str, Job] | None:
        job = self._job(with_pod_group=True)
        if job is None or job.pod_group is None:
            return None
        kind = f"podgroups.{job.pod_group['apiVersion'].partition('/')[0]}"
        return (kind, job) if self._sim.store.get(kind, job.key) is not None else None

    def _delete_pod_group(self) -> bool:
        if (found := self._pod_group()) is None:
            return False
        kind, job = found
        self._sim.store.remove(kind, job.key)
        self._sim.timeline.after(self._rng.uniform(0.1, 8), partial(self._recreate_pod_group, job))
        return True

    def _recreate_pod_group(self, job: Job) -> None:
        if not job.is_over:
            self._sim.cluster.create_pod_group(job)

    def _edit_pod_group(self) -> bool:
        if (found := self._pod_group()) is None:
            return False
        kind, job = found
        minimum = self._rng.randint(0, job.members + 1)
        self._sim.store.update(kind, job.key, lambda body: body["spec"].update(minMember=minimum))
        return True

    def _hide_group(self) -> bool:
        group = self._rng.choice(GROUPS)
        self._sim.server.absent.add(group)
        for wire in self._sim.network.open_watches():
            if wire.stream is not None and wire.stream.resource.endswith(group):
                wire.stream.close()
        self._sim.timeline.after(
            self._rng.uniform(1, 10), partial(self._sim.server.absent.discard, group)
        )
        return True

    def _delete_lease(self) -> bool:
        settings = self._sim.plan.settings
        key = f"gangsched-system/{settings.get('lease_name', 'gangsched')}"
        if self._sim.store.get(LEASES, key) is None:
            return False
        self._sim.store.remove(LEASES, key)
        return True
