"""Jobs and nodes of a simulation, and the pods of a job.

Invariant: a job is one gang that needs all its pods at once. The simulation knows its run time; the
scheduler knows only `stated_s`. Pods request only the resources that their job lists.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gangsched.api import keys
from gangsched.model.objects import Node, Pod, Shape

GPU = "nvidia.com/gpu"
GANG_MARK = "pod-group.scheduling.sigs.k8s.io/name"
"""The identity that needs no PodGroup object (semantics I2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """`pods` are the shapes of its members; `submit_s` (from any epoch) and `run_s` are in seconds.

    `stated_s` is the run time that its owner declares, None for none.
    """

    name: str
    submit_s: float
    run_s: float
    pods: tuple[Shape, ...]
    namespace: str = "default"
    priority: int = 0
    stated_s: float | None = None

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def group(self) -> str:
        """Id of the group of its pods."""
        return self.key if len(self.pods) > 1 else f"pod:{self.key}-0"

    @property
    def gpus(self) -> int:
        """Total number of GPUs of its pods."""
        return sum(gpus_of(shape) for shape in self.pods)

    @property
    def run_time_metadata(self) -> keys.GangMetadata:
        """The run time that its pods declare, in whole seconds and at least one; empty if it
        declares none.
        """
        if self.stated_s is None:
            return ()

        # The annotation's grammar has whole seconds.
        return ((keys.EXPECTED_RUNTIME, f"{max(1, math.ceil(self.stated_s))}s"),)

    def make_pods(self, scheduler_name: str) -> list[Pod]:
        """The pods of the job as the API server would return them; a job of one pod is a
        plain pod.
        """
        gang: keys.GangMetadata = ()
        if len(self.pods) > 1:
            gang = tuple(sorted({GANG_MARK: self.name, keys.MIN[0]: str(len(self.pods))}.items()))

        result: list[Pod] = []
        for index, shape in enumerate(self.pods):
            result.append(
                Pod(
                    uid=f"{self.key}/{index}",
                    namespace=self.namespace,
                    name=f"{self.name}-{index}",
                    creation_s=int(self.submit_s),
                    shape=shape,
                    scheduler_name=scheduler_name,
                    priority=self.priority,
                    gang_metadata=gang,
                    run_time_metadata=self.run_time_metadata,
                )
            )

        return result


def gpus_of(asking: Shape | Node) -> int:
    """Number of GPUs that one pod of a shape requests, or that a node offers."""
    vector = asking.requests if isinstance(asking, Shape) else asking.allocatable
    return dict(vector).get(GPU, 0)


def split(gpus: int, per_node: int) -> tuple[int, ...]:
    """GPUs of each pod of a job: whole nodes, and one pod for the rest, since traces do not say how
    jobs were split.
    """
    if gpus <= per_node:
        return (gpus,)

    full_pods, rest = divmod(gpus, per_node)
    return (per_node,) * full_pods + ((rest,) if rest else ())
