"""Binds whose answer says no, or nothing, and which the API server carries out seconds later all the same.

`make faults` runs the long form: FAULT_SEEDS=1,2,3 FAULT_HITS=50.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Iterator

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.applying import apply_manifests
from control_plane.checks import Checks
from control_plane.daemon import Daemon
from control_plane.following import Following

from tests.faults.proxy import FaultProxy
from tests.faults.rules import Answer, Rule, etcd_timeout, gateway_page

pytestmark = pytest.mark.e2e

SEEDS = [int(seed) for seed in os.environ.get("FAULT_SEEDS", "1").split(",")]
HITS = int(os.environ.get("FAULT_HITS", "10"))
NODES, GPUS = 4, 8
WAITING_GANGS = 12
LATEST_S = 5.0
#: No gang may stay half bound longer than the fault lasts and this.
RECOVERS_WITHIN_S = 5.0
WITHIN_S = 400.0


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane whose nodes have a kubelet of kwok's, so that deleted pods go."""
    with ControlPlane(kwok=True) as plane:
        api = Api.of(plane)
        apply_manifests(api)
        make.create_all(api, [make.node(f"n{index}", gpus=GPUS) for index in range(NODES)])
        api.close()
        yield plane


class Crowd:
    """Gangs that want more than there is, so that room which is given back is taken at once."""

    def __init__(self, api: Api, checks: Checks, rng: random.Random, prefix: str) -> None:
        self._api, self._checks, self._rng, self._prefix = api, checks, rng, prefix
        self._number = itertools.count()
        #: Objects by gang of the gangs that have not been taken away.
        self.gangs: dict[str, list[Object]] = {}

    def refill(self) -> None:
        """Keep gangs of several sizes waiting."""
        while len(self.gangs) < WAITING_GANGS:
            name = f"{self._prefix}-{next(self._number)}"
            gpus, members = self._rng.choice(((1, 12), (2, 6), (4, 3), (4, 4), (8, 2), (8, 1)))
            self._checks.expect(f"default/{name}", members)
            objects = make.gang(name, members=members, min_member=members, gpus=gpus)
            self.gangs[name] = make.create_all(self._api, objects)

    def started(self) -> list[str]:
        """Gangs all of whose members are bound."""
        return [name for name in self.gangs if self._checks.started_s(f"default/{name}") is not None]

    def take_away(self, names: list[str]) -> None:
        """Delete gangs with all that belongs to them."""
        for name in names:
            for item in reversed(self.gangs.pop(name)):
                self._api.delete(f"{self._api.path_of(item)}/{item['metadata']['name']}")


def late_answers(rng: random.Random, hits: int) -> Iterator[Answer | None]:
    """About every fourth bind, `hits` in all, is answered wrongly and carried out 1 to 5 s later."""
    struck = 0
    while struck < hits:
        if rng.random() < 0.75:
            yield None
            continue
        struck += 1
        late_s = rng.uniform(1.0, LATEST_S)
        yield rng.choice((etcd_timeout(late_s), gateway_page(502, late_s), gateway_page(504, late_s)))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_late_bind_never_finds_its_room_given_away(plane: ControlPlane, seed: int) -> None:
    """No node is over-committed, and no gang is half bound for longer than the fault and five seconds (B3)."""
    rng = random.Random(seed)
    api, checks = Api.of(plane), Checks(limit_s=LATEST_S + RECOVERS_WITHIN_S)
    crowd = Crowd(api, checks, rng, f"s{seed}")
    with FaultProxy(plane) as proxy:
        rule = Rule(late_answers(rng, HITS), verb="create", resource="pods", subresource="binding")
        proxy.rules.append(rule)
        with (
            Daemon(plane, url=proxy.url) as daemon,
            Following(api, "/api/v1/nodes", on_change=checks.node_changed),
            Following(api, "/api/v1/pods", on_change=checks.pod_changed) as pods,
        ):
            deadline_s = time.monotonic() + WITHIN_S
            while rule.struck < HITS or proxy.background:
                assert time.monotonic() < deadline_s, f"only {rule.struck} of {HITS} binds were answered late"
                crowd.refill()
                daemon.check()
                # Started gangs run for a moment, others take their room, and what was answered late lands meanwhile.
                started = pods.wait_for(lambda _: crowd.started() or None, within_s=60.0, what="a gang to start")
                time.sleep(rng.uniform(0.2, 1.0))
                crowd.take_away(started)
            checks.look(time.monotonic())
            crowd.take_away(list(crowd.gangs))
            pods.wait_for(lambda left: not left or None, within_s=30.0, what="the pods to go")
    api.close()
    print(
        f"seed {seed}: {rule.struck} binds answered late, {len(checks.violations)} violations, "
        f"half bound for {checks.longest_partly_s:.1f} s at most"
    )
    assert checks.violations == []
