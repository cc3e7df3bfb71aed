"""Random lives of one gang: its controllers create pods, which run, end and are deleted; its
PodGroup is edited and overwritten; gangsched restarts.

Invariant: a life is determined by its seed, and knows nothing of phases. What is stored of a status
is what was written last, as on an API server.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from gangsched.model.objects import Phase, Pod, PodGroup
from gangsched.model.protocol import SetPodGroupStatus
from tests.builders import members, node, pod_group
from tests.world import World

STEPS: Final = 18
SEATS: Final = 4
"""Members that have room at the same time."""
EVENTS: Final = (
    "create",
    "create",
    "run",
    "run",
    "succeed",
    "succeed",
    "fail",
    "ask to go",
    "delete",
    "clean",
    "end all",
    "end all",
    "another controller",
    "cordon",
    "restart",
    "restart while writing",
    "lost while away",
    "overwrite",
    "finalizer",
    "minimum",
)


@dataclass(slots=True)
class GangLife:
    """One life: `step` lets one thing happen, and `pass_time` lets gangsched report it."""

    seed: int
    dice: random.Random = field(init=False)
    world: World = field(init=False)
    controller: str = "job-0"
    made: int = 0
    #: What happened, for the message of a failure.
    story: list[str] = field(default_factory=list)
    #: The phase that was stored when gangsched was started last.
    said: str = ""
    #: Statuses as they were stored, one after the other.
    stored: list[dict[str, Any]] = field(default_factory=list)
    _taken: int = 0

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.world = World(node("a", SEATS))
        self.world.declare(pod_group("g", self.dice.randint(1, 3)))
        self.create(self.dice.randint(1, SEATS))

    @property
    def pod_group(self) -> PodGroup:
        """The PodGroup as it is stored."""
        return next(iter(self.world.pod_groups.values()))

    @property
    def pods(self) -> list[Pod]:
        """The pods that exist, in the order of their names."""
        return sorted(self.world.pods.values(), key=lambda pod: pod.index)

    def step(self) -> str:
        """One thing happens; returns what."""
        event = self.dice.choice(EVENTS)
        self.story.append(f"{self.world.now_s:.1f} {event}")
        getattr(self, f"_{event.replace(' ', '_')}")()
        self.world.settle()
        return event

    def pass_time(self) -> float:
        """Some time passes, and the API server stores what was reported meanwhile."""
        seconds = self.dice.choice((0.0, 1.0, 7.0, 7.0, 12.0, 70.0))
        left_s = seconds
        while left_s > 0:
            self.world.advance(min(1.0, left_s))
            self.store()
            left_s -= 1.0

        return seconds

    def writes(self) -> int:
        """How many statuses gangsched wrote."""
        return sum(isinstance(report, SetPodGroupStatus) for report in self.world.reports)

    def store(self) -> None:
        """The API server merges what was written since the last call, and the watch shows it."""
        new = self.world.reports[self._taken :]
        self._taken = len(self.world.reports)

        for report in new:
            if isinstance(report, SetPodGroupStatus):
                self._declare(status={**self.pod_group.status, **report.status})
                self.stored.append(dict(self.pod_group.status))

    def create(self, number: int) -> None:
        """The controller makes pods."""
        owner: dict[str, Any] = {
            "owner": self.controller,
            "controller_kind": "Job",
            "controller_uid": f"uid-{self.controller}" if self.controller else "",
        }
        pods = members("g", number, first=self.made, pod_group=True, **owner)
        numbered = [
            msgspec.structs.replace(pod, index=self.made + place) for place, pod in enumerate(pods)
        ]
        self.made += number
        self.world.create(numbered)

    # --- what may happen -------------------------------------------------------------------------

    def _create(self) -> None:
        self.create(self.dice.randint(1, 3))

    def _another_controller(self) -> None:
        self.controller = self.dice.choice(("", "job-1", "job-2", f"job-{self.made}"))
        self.create(self.dice.randint(1, 3))

    def _run(self) -> None:
        self._change([pod for pod in self._bound() if pod.phase is Phase.PENDING], Phase.RUNNING)

    def _succeed(self) -> None:
        self._change(self._some(self._bound()), Phase.SUCCEEDED)

    def _fail(self) -> None:
        self._change(self._some(self._bound()), Phase.FAILED)

    def _end_all(self) -> None:
        how = self.dice.choice((Phase.SUCCEEDED, Phase.SUCCEEDED, Phase.FAILED))
        self._change(self._bound(), how)

    def _ask_to_go(self) -> None:
        for pod in self._some(self._bound()):
            self.world.update(pod, deleting=True)

    def _delete(self) -> None:
        self.world.delete(*self._some(self.pods))

    def _clean(self) -> None:
        self.world.delete(*[pod for pod in self.pods if not pod.live])

    def _cordon(self) -> None:
        closed = not self.world.nodes["a"].unschedulable
        self.world.add_nodes(node("a", SEATS, unschedulable=closed))

    def _restart(self) -> None:
        self._come_to_rest()
        self._begin_again()

    def _restart_while_writing(self) -> None:
        """What the process before reported last is stored after this one has read the PodGroup."""
        self.world.advance(13)
        self._begin_again()
        self.world.settle()
        self.store()

    def _lost_while_away(self) -> None:
        self._come_to_rest()
        for pod in self._some(self.pods):
            del self.world.pods[pod.uid]

        self._begin_again()

    def _overwrite(self) -> None:
        self.world.advance(1)
        self.store()
        self._declare(status={**self.pod_group.status, "phase": "Pending", "running": 9})

    def _finalizer(self) -> None:
        self._declare(deleting=True)

    def _minimum(self) -> None:
        self._declare(min_member=self.dice.randint(1, 3))

    # --- small parts -----------------------------------------------------------------------------

    def _begin_again(self) -> None:
        self.said = str(self.pod_group.status.get("phase"))
        self.world.restart()

    def _come_to_rest(self) -> None:
        """Everything is reported and stored: what happens after that is all that can be missed."""
        self.world.advance(13)
        self.store()
        self.world.advance(1)

    def _declare(self, **changes: Any) -> None:
        self.world.declare(msgspec.structs.replace(self.pod_group, **changes))

    def _bound(self) -> list[Pod]:
        return [pod for pod in self.pods if pod.node_name and pod.live]

    def _some(self, pods: list[Pod]) -> list[Pod]:
        return self.dice.sample(pods, self.dice.randint(0, len(pods)))

    def _change(self, pods: list[Pod], to: Phase) -> None:
        for pod in pods:
            self.world.update(pod, phase=to)
