"""What gangsched decides about the same objects, without a daemon: store, state and plan in this
process.

Invariant: everything is decoded from the API server's own bytes. One state is kept for a case, so
that what it remembers between plans is tested too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from control_plane.api import Api
from control_plane.plane import ControlPlane

from gangsched.core.cycle import plan
from gangsched.kube.read import resources
from gangsched.kube.read.shapes import ShapeTable
from gangsched.kube.read.store import Store
from gangsched.model.objects import Pod
from gangsched.model.protocol import Applied, Message
from gangsched.sentences import say
from gangsched.state.rule_set import Rules
from gangsched.state.scheduling import SchedulingState
from tests.parity.kube_scheduler import Answer
from tests.parity.pods import Object

NOW_S = 1_000.0


class Ours:
    """The state of one case; kube-scheduler's pods count as ours."""

    def __init__(self, plane: ControlPlane) -> None:
        self._api = Api.of(plane)
        self._state = SchedulingState(Rules(scheduler_names=frozenset({"default-scheduler"})))
        shapes = ShapeTable()
        self._pods = Store(resources.pods(shapes), self._apply, _refuse)
        self._stores: tuple[Store[Any, Any], ...] = (
            Store(resources.nodes(_refuse), self._apply, _refuse),
            Store(resources.NAMESPACES, self._apply, _refuse),
            *(Store(each, self._apply, _refuse) for each in resources.STORAGE[:4]),
            self._pods,
        )

    def look(self) -> None:
        """Apply everything as the API server has it now."""
        for each in self._stores:
            each.begin_list()
            each.add_page(json.dumps(self._api.get(each.resource.path)).encode())

    def decide(self, stored: Sequence[Object]) -> list[tuple[str, Answer]]:
        """The node of each of these pods, by name, in the order of their one plan; nothing is
        committed.
        """
        pods: dict[str, Pod] = {}
        for body in stored:
            pod = self._pods.resource.convert(
                self._pods.resource.item.decode(json.dumps(body).encode())
            )
            assert pod is not None
            pods[f"pod:{pod.key}"] = pod
            self._apply(Applied(pod))
        self._state.refresh(NOW_S)
        ready = [
            group for group in self._state.ready(NOW_S) if any(gang.pending for gang in group.gangs)
        ]
        proposal = plan(self._state.snapshot(), ready, now_s=NOW_S)
        nodes = {p.pod.uid: p.node for verdict in proposal.verdicts for p in verdict.binds}
        said: dict[str, str] = {}
        for verdict in proposal.verdicts:
            for uid, note in verdict.notes:
                sentences = say(note)
                # kube-scheduler's own sentence is a detail, which the pod's condition begins with.
                said[uid] = ". ".join(sentences.details) or sentences.stable

        decided = [pods[verdict.group] for verdict in proposal.verdicts]
        answers = [
            (pod.name, Answer(nodes.get(pod.uid, ""), said.get(pod.uid, ""))) for pod in decided
        ]
        # What the API server itself said when it created them stands.
        gated = [pod for pod in pods.values() if pod.gated and pod.condition is not None]
        return answers + [
            (pod.name, Answer("", pod.condition.message))
            for pod in gated
            if pod.condition is not None
        ]

    def _apply(self, message: Message) -> None:
        self._state.apply(message, now_s=NOW_S)


def _refuse(sentence: str) -> None:
    raise AssertionError(sentence)
