"""The waves: what fills the cluster, what preempts it, and what others have published for the same.

Invariant: a case says nothing about a scheduler. Low pods are there before the clock starts; a
victim is created anew as soon as it is gone, unless the case says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from control_plane import objects as make
from control_plane.api import Object

ZONE = "topology.kubernetes.io/zone"
REQUIRED = "kai.scheduler/topology-required-placement"
LOW, HIGH = "wave-low", "wave-high"
NATIVE_API = "scheduling.k8s.io/v1alpha2"
GPUS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`nodes` of 8 GPUs, full of low pods of `low_gpus` GPUs; then `gangs` of `members` high pods
    of `gpus` GPUs.

    `surplus` of the low pods are above the minimum of one elastic gang, the others plain; 0 for
    plain pods alone. All members go into one of `zones`, if there is more than one. `theirs_s` are
    the seconds that KAI's scale tests report. Controllers create victims anew if `recreates`; in
    the cases of scheduler_perf nobody does.
    """

    name: str
    nodes: int
    members: int
    gangs: int
    gpus: int = 1
    low_gpus: int = 1
    surplus: int = 0
    zones: int = 1
    within_s: float = 120.0
    theirs_s: float | None = None
    recreates: bool = True

    @property
    def pods(self) -> int:
        """High pods in all."""
        return self.members * self.gangs

    @property
    def is_common(self) -> bool:
        """Whether kube-scheduler has objects for it, too."""
        return not self.surplus and self.zones == 1

    def node_bodies(self) -> Iterator[Object]:
        """The nodes, in turn in each zone."""
        for n in range(self.nodes):
            yield make.node(f"n{n:04}", gpus=GPUS, labels={ZONE: f"z{n % self.zones}"})

    def low_bodies(self, scheduler: str) -> Iterator[Object]:
        """The PodGroup of an elastic gang, and the low pods on their nodes."""
        number = self.nodes * GPUS // self.low_gpus
        if self.surplus:
            yield make.pod_group("elastic", min_member=number - self.surplus)
        for n in range(number):
            node = f"n{n * self.low_gpus // GPUS:04}"
            yield self._low(f"low-{n}", scheduler, {"nodeName": node})

    def again(self, name: str, scheduler: str) -> Object:
        """The body of a low pod that its controller creates anew."""
        return self._low(name, scheduler, {})

    def high_bodies(self, scheduler: str, *, native: bool = False) -> Iterator[Object]:
        """PodGroups, then pods; `native` gangs are those of kube-scheduler."""
        if native and self.members > 1:
            for gang in range(self.gangs):
                yield {
                    "apiVersion": NATIVE_API,
                    "kind": "PodGroup",
                    "metadata": {"name": f"high-{gang}", "namespace": "default"},
                    "spec": {
                        "schedulingPolicy": {"gang": {"minCount": self.members}},
                        "priorityClassName": HIGH,
                    },
                }
        elif self.members > 1:
            for gang in range(self.gangs):
                notes = {REQUIRED: ZONE} if self.zones > 1 else {}
                yield make.pod_group(f"high-{gang}", min_member=self.members, annotations=notes)
        for gang in range(self.gangs):
            for member in range(self.members):
                of = f"high-{gang}" if self.members > 1 else ""
                spec: Object = {"priorityClassName": HIGH}
                if of and native:
                    spec, of = {**spec, "schedulingGroup": {"podGroupName": of}}, ""
                yield make.pod(
                    f"high-{gang}-{member}",
                    gang=of,
                    gpus=self.gpus,
                    scheduler_name=scheduler,
                    spec=spec,
                )

    def _low(self, name: str, scheduler: str, spec: Object) -> Object:
        of = "elastic" if self.surplus else ""
        given = {"priorityClassName": LOW, **spec}
        return make.pod(
            name,
            gang=of,
            gpus=self.low_gpus,
            scheduler_name=scheduler,
            spec=given,
            labels={"wave": "low"},
        )


CASES = (
    Case(name="singles-1", nodes=1, members=1, gangs=8),
    Case(name="singles-4", nodes=4, members=1, gangs=32),
    Case(name="singles-20", nodes=20, members=1, gangs=160),
    Case(name="singles-100", nodes=100, members=1, gangs=800),
    Case(name="singles-500", nodes=500, members=1, gangs=4_000, theirs_s=694.5),
    Case(name="gangs-3", nodes=3, members=3, gangs=2, gpus=4, within_s=30.0),
    Case(name="gangs-20", nodes=20, members=4, gangs=40),
    Case(name="gangs-100", nodes=100, members=8, gangs=100),
    Case(name="reclaim-1", nodes=500, members=1, gangs=1, gpus=8, theirs_s=13.9),
    Case(name="reclaim-500x8", nodes=500, members=1, gangs=500, gpus=8, low_gpus=8, theirs_s=85.0),
    Case(name="reclaim-250x8", nodes=250, members=250, gangs=1, gpus=8, theirs_s=102.0),
    Case(
        name="reclaim-50x10x5",
        nodes=500,
        members=10,
        gangs=50,
        gpus=5,
        theirs_s=716.9,
        within_s=150.0,
    ),
    Case(name="hero-256", nodes=512, members=256, gangs=1, gpus=8, zones=2, theirs_s=41.4),
    Case(name="surplus-250", nodes=250, members=1, gangs=250, surplus=250, theirs_s=73.3),
    Case(name="one-of-100", nodes=125, members=100, gangs=1, gpus=8),
    Case(
        name="perf-basic-100", nodes=100, members=1, gangs=100, gpus=6, low_gpus=2, recreates=False
    ),
    Case(
        name="perf-basic-500", nodes=500, members=1, gangs=500, gpus=6, low_gpus=2, recreates=False
    ),
    Case(name="perf-gang-100", nodes=125, members=100, gangs=1, gpus=8, recreates=False),
)
