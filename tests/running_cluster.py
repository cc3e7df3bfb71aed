"""A cluster on which work runs, as a plan sees it: its snapshot, and what preemption is told of it.

Invariant: pods are put on nodes by name and gangs are declared by their minimum; what follows from
that is filled in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from gangsched.core.cycle import Limits, plan
from gangsched.model.gang import Group
from gangsched.model.nominated_room import NominatedRoom, Nomination
from gangsched.model.objects import Node, Phase, Pod
from gangsched.model.plan import Verdict
from gangsched.model.preemption import (
    Budget,
    NotHelpful,
    Preemption,
    PreemptionInput,
    PreemptionSettings,
    Running,
    RunningGang,
    RunningPod,
)
from gangsched.model.reasons import Reason
from gangsched.model.snapshot import Snapshot
from gangsched.sentences import say
from tests import builders

WALL_S = 1_000_000
"""The present, in seconds since the epoch."""


@dataclass
class RunningCluster:
    """Nodes and what runs on them; `asked` counts how often a plan wanted to know it."""

    nodes: Sequence[Node]
    pods: list[RunningPod] = field(default_factory=list)
    gangs: list[RunningGang] = field(default_factory=list)
    budgets: list[Budget] = field(default_factory=list)
    held: list[tuple[Pod, str]] = field(default_factory=list)
    asked: int = 0

    def run(
        self,
        name: str,
        node: str,
        *,
        gang: str = "",
        leaving: bool = False,
        ran_s: int = 600,
        **rest: Any,
    ) -> Pod:
        """A pod that runs on a node for `ran_s` seconds; `rest` is as for `builders.pod`."""
        given = {
            "uid": f"u-{name}",
            "phase": Phase.RUNNING,
            "start_s": WALL_S - ran_s,
            "node_name": node,
        }
        pod = builders.pod(name, **{**given, **rest})
        self.pods.append(RunningPod(pod, node, gang, leaving, len(self.pods) + 1))
        return pod

    def gang(
        self, gang_id: str, min_member: int, nodes: str, *, group: str = "", **rest: Any
    ) -> list[Pod]:
        """A gang with a member for each of `nodes`, words with the node's name; `rest` is as for
        `run`.

        Members are created one second after the other.
        """
        of_gang = {
            key: rest.pop(key)
            for key in ("succeeded", "indivisible", "disrupted_singly", "binding")
            if key in rest
        }
        namespace, _, name = gang_id.partition("/")
        members = [
            self.run(
                f"{name}-{i}",
                node,
                gang=gang_id,
                uid=f"u-{gang_id}-{i}",
                namespace=namespace,
                creation_s=i,
                **rest,
            )
            for i, node in enumerate(nodes.split())
        ]
        uids = tuple(pod.uid for pod in members)
        self.gangs.append(
            RunningGang(
                id=gang_id, group=group or gang_id, min_member=min_member, uids=uids, **of_gang
            )
        )
        return members

    def budget(self, key: str, allowed: int, pods: Iterable[Pod]) -> None:
        """A PodDisruptionBudget over these pods."""
        self.budgets.append(Budget(key, allowed, frozenset(pod.uid for pod in pods)))

    def snapshot(self, *nominations: Nomination) -> Snapshot:
        """The columns, with these nominations."""
        placed = [*((each.pod, each.node) for each in self.pods), *self.held]
        picture = builders.snapshot(self.nodes, placed)
        return structs.replace(picture, nominated=NominatedRoom.of(nominations, picture.layout))

    def given(self, **rest: Any) -> PreemptionInput:
        """What a plan is told; `rest` are fields of it or of the settings."""
        known = PreemptionSettings.__dataclass_fields__
        settings = PreemptionSettings(**{key: rest.pop(key) for key in list(rest) if key in known})
        lowest = min((each.pod.priority for each in self.pods), default=None)
        fields = {"wall_s": WALL_S, "lowest_priority": lowest, "settings": settings, **rest}
        return PreemptionInput(running=self._tell, **fields)

    def verdicts(
        self,
        *groups: Group,
        nominations: Sequence[Nomination] = (),
        limits: Limits | None = None,
        **rest: Any,
    ) -> dict[str, Verdict]:
        """What a plan makes of these groups, by id; `rest` is as for `given`."""
        made = plan(
            self.snapshot(*nominations),
            groups,
            now_s=0.0,
            limits=limits,
            preempting=self.given(**rest),
        )
        return {verdict.group: verdict for verdict in made.verdicts}

    def _tell(self, _left: float) -> Running:
        self.asked += 1
        return Running(tuple(self.pods), tuple(self.gangs), tuple(self.budgets))


def high(
    name: str = "ns/high", number: int = 1, *, gpus: int = 1, priority: int = 1000, **rest: Any
) -> Group:
    """A group of one Strict gang of equal members that all must start; `rest` are fields
    of `Pod`.
    """
    members = [
        builders.pod(
            f"{name.partition('/')[2]}-{i}",
            gpus=gpus,
            priority=priority,
            uid=f"u-{name}-{i}",
            **rest,
        )
        for i in range(number)
    ]
    return builders.group(builders.gang(name, members), priority=priority)


def victims(verdict: Verdict) -> list[str]:
    """The names of the pods that a verdict evicts, sorted; fails if it made no room."""
    assert isinstance(verdict.preemption, Preemption), say(verdict.told).text
    return sorted(victim.name for victim in verdict.preemption.victims)


def nominated(verdict: Verdict) -> dict[str, str]:
    """Member to node of what a verdict nominates."""
    assert isinstance(verdict.preemption, Preemption), say(verdict.told).text
    return {placement.pod.name: placement.node for placement in verdict.preemption.placements}


def full_of_low(min_member: int = 2) -> RunningCluster:
    """Two nodes full of a gang of priority 1."""
    cluster = RunningCluster([builders.node("a"), builders.node("b")])
    cluster.gang("ns/low", min_member, "a b", gpus=8, priority=1)
    return cluster


def obstacle(cluster: RunningCluster, wants: Group, **rest: Any) -> tuple[str, str]:
    """Why nobody is evicted for the one group, as value and as the end of its sentence."""
    (verdict,) = cluster.verdicts(wants, **rest).values()
    assert isinstance(verdict.preemption, NotHelpful)
    assert verdict.reason is Reason.UNSCHEDULABLE
    return verdict.preemption.why, say(verdict.told).now.partition(" Preemption: ")[2]
