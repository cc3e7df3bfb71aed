"""One wave on a control plane with kwok, under one scheduler.

Invariant: figures come from a watch of our own and from the scheduler's process. The clock starts
with the first high pod and stops with the last that is bound. Controllers replace every low pod
that is gone, if the case has any.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import count
from types import MappingProxyType

from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, ApiError, Object
from control_plane.applying import apply_manifests
from control_plane.following import Following

from bench.gangs.cases import Dialect
from bench.gangs.contenders import Contender, Running
from bench.waves.cases import GPUS, HIGH, LOW, NATIVE_API, Case

PODS = "/api/v1/pods"
EVENTS = "/apis/events.k8s.io/v1/events"
SETTLED_S = 2.0
NAMES = re.compile(r"n\d{4}|(default/)?(high|low)-[\d-]+")
REFUSED = frozenset({"Unschedulable", "Preempting", "WaitingForMembers"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What came of a wave; None where a scheduler does not tell."""

    case: str
    scheduler: str
    pods: int
    started: int
    seconds: float
    cpu_s: float
    writes: float | None
    refusals: int | None
    stall_ms: float | None
    lost: int
    why_lost: dict[str, int]


class Controllers:
    """Replaces low pods that are gone, under new names, and sees when high ones are bound.

    Under the same name a pod may be deleted by kwok, which deletes by name, up to a second after
    its predecessor.
    """

    def __init__(self, case: Case, scheduler: str, api: Api, workers: ThreadPoolExecutor) -> None:
        self._case, self._scheduler, self._api, self._workers = case, scheduler, api, workers
        self._bound_s: dict[str, float] = {}
        self._replaced = count()
        self._done = threading.Event()
        self.open = True

    def pod_changed(self, kind: str, pod: Object, seen_s: float) -> None:
        """Do what a controller does."""
        name = pod["metadata"]["name"]
        if name.startswith("low-"):
            if kind == "DELETED" and self.open and self._case.recreates:
                self._workers.submit(
                    self._create, f"low-{self._case.nodes * GPUS + next(self._replaced)}"
                )
        elif pod["spec"].get("nodeName") and name not in self._bound_s:
            self._bound_s[name] = seen_s
            if len(self._bound_s) == self._case.pods:
                self._done.set()

    def wait(self, since_s: float) -> tuple[int, float]:
        """Until all high pods are bound, or time is over: how many are, and after how many seconds
        the last was.
        """
        self._done.wait(max(0.0, since_s + self._case.within_s - time.monotonic()))
        bound = dict(self._bound_s)
        last_s = max(bound.values(), default=time.monotonic()) - since_s
        return len(bound), last_s if len(bound) == self._case.pods else time.monotonic() - since_s

    def _create(self, name: str) -> None:
        body = self._case.again(name, self._scheduler)
        try:
            self._api.post(self._api.path_of(body), body)
        except (ApiError, OSError) as error:
            if self.open:
                print(f"not replaced: {error}")


def play(case: Case, contender: Contender) -> Figures:
    """The whole wave on a control plane of its own."""
    ours = contender.dialect is Dialect.GANGSCHED
    scheduler = "gangsched" if ours else "default-scheduler"
    with ExitStack() as stack:
        native = contender.dialect is Dialect.NATIVE
        api, plane = prepared(
            case,
            scheduler,
            stack,
            contender.gates,
            runtime=[f"{NATIVE_API}=true"] if native else [],
        )
        running = Running(contender, plane)
        stack.callback(running.stop)
        running.start()
        running.await_ready()
        controllers = Controllers(case, scheduler, api, stack.enter_context(ThreadPoolExecutor(16)))
        with Following(api, PODS, on_change=controllers.pod_changed):
            time.sleep(SETTLED_S)
            before_s, began_s = running.cpu_s(), time.monotonic()
            make.create_all(api, case.high_bodies(scheduler, native=native))
            started, seconds = controllers.wait(began_s)
            cpu_s = running.cpu_s() - before_s
            samples = running.samples() if ours else {}
            controllers.open = False
        events = api.list(EVENTS).items if ours else ()
        lost = Counter(
            NAMES.sub("…", each["note"])
            for each in events
            if each.get("reason") == "NominationLost"
        )
    return Figures(
        case=case.name,
        scheduler=contender.name,
        pods=case.pods,
        started=started,
        seconds=seconds,
        cpu_s=cpu_s,
        writes=_writes(samples, case) / case.pods if ours else None,
        refusals=_refusals(samples) if ours else None,
        stall_ms=samples["gangsched_loop_stall_max_seconds"] * 1e3 if ours else None,
        lost=lost.total(),
        why_lost=dict(lost.most_common(5)),
    )


def prepared(
    case: Case,
    scheduler: str,
    stack: ExitStack,
    gates: Mapping[str, bool] = MappingProxyType({}),
    runtime: Sequence[str] = (),
) -> tuple[Api, ControlPlane]:
    """A control plane with the nodes and the low pods of the case, in the stack."""
    plane = stack.enter_context(
        ControlPlane(kwok=True, for_load=True, feature_gates=gates, runtime_config=runtime)
    )
    api = stack.enter_context(closing(Api.of(plane)))
    apply_manifests(api)
    for name, value in ((LOW, 0), (HIGH, 1000)):
        body = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
        }
        api.post(api.path_of(body), {**body, "value": value})
    make.create_all(api, case.node_bodies())
    make.create_all(api, case.low_bodies(scheduler))
    return api, plane


def _writes(samples: dict[str, float], case: Case) -> float:
    """Binds, nominations, what evictions take, Events, conditions and statuses."""
    binds = _sum(samples, "gangsched_binder_bound_total")
    # members of gangs are, plain pods are not (semantics V13)
    marked_first = 1 if case.surplus else 0
    evictions = (1 + marked_first) * _sum(samples, "gangsched_preemption_writer_evicted_total")
    evictions += _sum(samples, "gangsched_preemption_writer_marked_again_total")
    told = _sum(samples, "gangsched_recorder_written_total") + _sum(
        samples, "gangsched_outbox_written_total"
    )
    return binds + case.pods + evictions + told


def _sum(samples: dict[str, float], family: str) -> float:
    return sum(value for name, value in samples.items() if name.partition("{")[0] == family)


def _refusals(samples: dict[str, float]) -> int:
    found = (
        samples.get(f'gangsched_verdicts_total{{reason="{reason}"}}', 0.0) for reason in REFUSED
    )
    return int(sum(found))
