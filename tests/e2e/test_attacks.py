"""Gangs of all kinds come and go while something is against them: a second scheduler that knows
nothing of gangs, answers that are lost, late or refusals, kills of the leader at any instant.

`make attacks MINUTES=20 SEED=1` runs the long form, so long each.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from random import Random

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api
from control_plane.applying import apply
from control_plane.daemon import Daemon
from control_plane.following import Following
from control_plane.pods import refusal

from tests.crowd import GPUS, KINDS, Crowd, with_claims
from tests.e2e import test_devices as devices
from tests.e2e.conftest import PODS
from tests.e2e.rival import Beside, Bystander, Rival, Witness
from tests.e2e.test_leader import DURATION_S, Pair, other
from tests.faults import answers
from tests.faults.proxy import FaultProxy
from tests.faults.recording import by_non_holders
from tests.faults.rules import Delay, Fault, Rule
from tests.faults.test_late_binds import LATEST_S, late, lost

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

PLANE = {"kcm": True, "kwok": True, "scheduler": True}
MINUTES = float(os.environ.get("ATTACK_MINUTES", "0"))
SEED = int(os.environ.get("ATTACK_SEED", "1"))
ATTACK_S = 60.0 * MINUTES or 10.0
NODES, DEVICES, JOBS = 6, 2, 10
PAUSE_S, ATTACKS_EVERY_S, BYSTANDER_EVERY_S = 0.1, 0.2, 0.3
ENDS = 0.2
"""How likely a job that has started ends in a turn: some last, so that room is scarce."""
PARTLY_S = 4.0
"""How long the binds of a gang may take on a busy machine, beside what the attack delays them."""
STARTS_WITHIN_S = 200.0 if MINUTES else 60.0
"""Devices are kept for 70 s where their allocation got no answer."""
BOUND_S = 1.0
"""Half of the pods of another namespace wait no longer than that."""
REFUSALS = (403, 409, 429, 500, 503)

api = devices.api


def _nothing() -> None:
    """Nothing is against them, or nothing is left of it."""


@dataclass
class Scene:
    """A cluster full of jobs, and who watches them."""

    api: Api
    random: Random
    nodes: list[str]
    witness: Witness
    crowd: Crowd
    pods: Following
    bystander: Bystander

    def play(
        self,
        attack: Callable[[], None] = _nothing,
        ends: Callable[[], None] = _nothing,
        *,
        daemons: Sequence[Daemon] = (),
    ) -> None:
        """Jobs come and go for a while, beside an attack; all that are there when it ends must
        start.
        """
        with ExitStack() as stack:
            acts = (
                Beside(self.bystander.act, every_s=BYSTANDER_EVERY_S),
                Beside(attack, every_s=ATTACKS_EVERY_S),
            )
            for beside in acts:
                stack.enter_context(beside)

            until_s = time.monotonic() + ATTACK_S
            while time.monotonic() < until_s:
                self.crowd.refill(JOBS)
                started = self.crowd.started()
                self._turn([name for name in started if self.random.random() < ENDS])
                for beside in acts:
                    beside.check()
                for daemon in daemons:
                    daemon.check()

        ends()
        self._calm_down()
        took_s = sorted(self.bystander.took_s)
        print(
            f"{self.crowd.created} jobs; {len(took_s)} pods of another namespace were bound after"
            f" {statistics.median(took_s):.2f} s, at most {took_s[-1]:.2f} s"
        )

    def _calm_down(self) -> None:
        deadline_s = time.monotonic() + STARTS_WITHIN_S
        while self.crowd.jobs:
            started = self.crowd.started()
            if started:
                deadline_s = time.monotonic() + STARTS_WITHIN_S

            self._turn(started)
            told = [
                (pod["metadata"]["name"], pod["spec"].get("nodeName"), *refusal(pod))
                for pod in self.pods.objects().values()
            ]
            assert time.monotonic() < deadline_s, f"{sorted(self.crowd.jobs)} never start: {told}"

    def _turn(self, ended: list[str]) -> None:
        self.crowd.replace_lost(self.pods.objects())
        self.crowd.take_away(ended)
        assert self.witness.found() == []
        time.sleep(PAUSE_S)


@contextmanager
def scene(
    api: Api,
    name: str,
    *,
    partly_s: float,
    claiming: bool = True,
) -> Iterator[Scene]:
    """Six nodes with GPUs and devices. `partly_s`: how long a gang may be partly bound. `claiming`:
    some gangs claim devices.
    """
    print(f"ATTACK_SEED={SEED} ATTACK_MINUTES={MINUTES:g}")
    random, witness = Random(f"{name} {SEED}"), Witness(partly_s=partly_s)
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
    apply(api, high | {"metadata": {"name": "high"}})
    apply(api, make.namespace("bystander"))
    nodes = [f"n{number}" for number in range(NODES)]
    for node in nodes:
        devices.node(api, node, *(devices.gpu(f"g{n}") for n in range(DEVICES)), gpus=GPUS)

    claims = with_claims(devices.template(api, "some", devices.asks()))
    kinds = (*KINDS, claims, claims) if claiming else KINDS
    crowd = Crowd(api, witness.checks, random, name, NODES, kinds=kinds)
    with (
        Following(api, "/api/v1/nodes", on_change=witness.heard_node),
        Following(api, devices.CLAIMS, on_change=witness.heard_claim),
        Following(api, PODS, on_change=witness.heard_pod) as pods,
    ):
        bystander = Bystander(api, pods, "bystander")
        yield Scene(api, random, nodes, witness, crowd, pods, bystander)


def test_a_second_scheduler_beside(plane: ControlPlane, api: Api) -> None:
    """B1, B2, B3, F1, A17: no over-commit, half gang, closed node or shared device of our own
    doing, and a pod of another namespace is bound within a second.
    """
    with (
        scene(api, "rival", partly_s=PARTLY_S) as played,
        Daemon(plane, extra_args=devices.ALL) as daemon,
    ):
        rival = Rival(api, played.pods, played.nodes, Random(SEED), played.witness)
        played.play(rival.act, rival.leave, daemons=[daemon])
        print(f"the rival: {dict(rival.counts)}")
        assert daemon.internal_errors() == 0
        assert statistics.median(played.bystander.took_s) < BOUND_S


def refused(random: Random) -> Fault:
    """An answer of the API server that nothing was carried out."""
    return answers.refusal(random.choice(REFUSALS))


def delayed(random: Random) -> Fault:
    """The request or its answer is late."""
    return Delay(random.uniform(0.0, 2.0), applied=random.random() < 0.5)


FAULTS = (delayed, refused, late, lost) if MINUTES else (delayed, refused)
"""After a lost answer about devices a gang may wait for a minute: too long for the short form."""


def a_tenth(random: Random) -> Iterator[Fault | None]:
    """Every tenth request or so meets a fault, without end."""
    while True:
        yield random.choice(FAULTS)(random) if random.random() < 0.1 else None


def test_a_tenth_of_the_writes_lost_late_or_refused(plane: ControlPlane, api: Api) -> None:
    """B2, B3, B7: whatever is written: binds, claims, conditions, statuses and Events."""
    partly_s = 2 * LATEST_S + PARTLY_S
    # Now and then a gang of which some claims were written and others refused waits for more than
    # a minute: not understood yet, and left to the long form.
    claiming = MINUTES > 0
    with (
        FaultProxy(plane) as proxy,
        scene(api, "faults", partly_s=partly_s, claiming=claiming) as played,
    ):
        rule = Rule(a_tenth(played.random), where=lambda asked: asked.is_write)
        proxy.rules.append(rule)
        with Daemon(plane, url=proxy.url, extra_args=devices.ALL) as daemon:
            played.play(daemons=[daemon])
            assert daemon.internal_errors() == 0
            proxy.rules.clear()
        print(f"{rule.struck} writes were struck")


def test_the_leader_is_killed_and_stopped_at_any_instant(plane: ControlPlane, api: Api) -> None:
    """B3, B7: nobody writes without the Lease, and every gang completes."""
    with (
        scene(api, "leaders", partly_s=2 * DURATION_S + PARTLY_S) as played,
        Pair(plane, extra_args=devices.ALL) as pair,
    ):
        hurt: list[str] = []

        def attack() -> None:
            """Kill or stop who leads, after any time; the other leads before it is back."""
            time.sleep(played.random.uniform(0.0, 1.0))
            leader = pair.await_leader()
            replica = pair.replicas[leader]
            if played.random.random() < 0.5:
                replica.kill()
                pair.await_leader()
                replica.start()
            else:
                os.kill(replica.pid, signal.SIGSTOP)
                try:
                    pair.await_leader(other(leader))
                finally:
                    os.kill(replica.pid, signal.SIGCONT)
            hurt.append(leader)

        played.play(attack)
        print(f"hurt: {hurt}; {len(pair.writes)} writes")
        for replica in pair.replicas.values():
            assert replica.complaints() == []
            assert replica.internal_errors() == 0
        assert by_non_holders(pair.writes) == []
