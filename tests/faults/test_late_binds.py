"""Binds whose answer says no, or that get none, and which the API server carries out all the same,
or not.

`make faults` runs the long form: FAULT_SEEDS=1,2,3 FAULT_HITS=50.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Callable, Iterator

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api
from control_plane.checks import Checks
from control_plane.daemon import Daemon
from control_plane.following import Following
from control_plane.pods import nodes_of

from tests.crowd import GPUS, Crowd
from tests.faults.answers import etcd_timeout, gateway_page
from tests.faults.proxy import FaultProxy
from tests.faults.rules import BlackHole, Drop, Fault, Rule
from tests.kwok_plane import plane_with_nodes

pytestmark = pytest.mark.e2e

SEEDS = [int(seed) for seed in os.environ.get("FAULT_SEEDS", "1").split(",")]
HITS = int(os.environ.get("FAULT_HITS", "10"))
NODES = 4
WAITING_GANGS = 12
LATEST_S = 5.0
#: No gang may stay half bound longer than the fault lasts and this.
RECOVERS_WITHIN_S = 5.0
WITHIN_S = 400.0


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane whose nodes have a kubelet of kwok's, so that deleted pods go."""
    with plane_with_nodes(NODES, gpus=GPUS) as plane:
        yield plane


def some_of(rng: random.Random, hits: int, fault: Callable[[], Fault]) -> Iterator[Fault | None]:
    """About every fourth bind meets a fault, `hits` in all."""
    while hits:
        struck = rng.random() < 0.25
        hits -= struck
        yield fault() if struck else None


def late(rng: random.Random) -> Fault:
    """An answer that says no, and the bind is carried out 1 to 5 s later."""
    late_s = rng.uniform(1.0, LATEST_S)
    return rng.choice((etcd_timeout(late_s), gateway_page(502, late_s), gateway_page(504, late_s)))


def lost(rng: random.Random) -> Fault:
    """No answer, soon or after up to 5 s, whether or not the bind was carried out."""
    applied, silent_s = rng.random() < 0.5, rng.uniform(1.0, LATEST_S)
    return rng.choice((Drop(applied), Drop(applied, reset=True), BlackHole(silent_s, applied)))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", [late, lost])
def test_the_room_of_a_bind_is_never_given_away(
    plane: ControlPlane, kind: Callable[[random.Random], Fault], seed: int
) -> None:
    """No node is over-committed, and no gang is half bound for longer than the fault and five
    seconds (B3).
    """
    rng = random.Random(seed)
    api, checks = Api.of(plane), Checks(limit_s=LATEST_S + RECOVERS_WITHIN_S)
    crowd = Crowd(api, checks, rng, f"{kind.__name__}{seed}", NODES)
    with FaultProxy(plane) as proxy:
        rule = Rule(
            some_of(rng, HITS, lambda: kind(rng)),
            verb="create",
            resource="pods",
            subresource="binding",
        )
        proxy.rules.append(rule)
        with (
            Daemon(plane, url=proxy.url) as daemon,
            Following(api, "/api/v1/nodes", on_change=checks.node_changed),
            Following(api, "/api/v1/pods", on_change=checks.pod_changed) as pods,
        ):
            deadline_s = time.monotonic() + WITHIN_S
            while rule.struck < HITS or proxy.background:
                assert time.monotonic() < deadline_s, (
                    f"only {rule.struck} of {HITS} binds met a fault"
                )
                crowd.refill(WAITING_GANGS)
                daemon.check()
                # Started gangs run for a moment, others take their room, and what was answered late
                # lands meanwhile.
                started = pods.wait_for(
                    lambda _: crowd.started() or None, within_s=60.0, what="a gang to start"
                )
                time.sleep(rng.uniform(0.2, 1.0))
                crowd.take_away(started)
            checks.look(time.monotonic())
            crowd.take_away(list(crowd.jobs))
            pods.wait_for(lambda left: not left or None, within_s=30.0, what="the pods to go")
    api.close()
    print(
        f"seed {seed}: {rule.struck} {kind.__name__} binds, {len(checks.violations)} violations, "
        f"half bound for {checks.longest_partly_s:.1f} s at most"
    )
    assert checks.violations == []


def test_a_lost_bind_is_not_sent_to_a_node_that_is_gone(plane: ControlPlane) -> None:
    """Its pod is read until the bind cannot be carried out any more, and then placed elsewhere (B2,
    B3).
    """
    api = Api.of(plane)
    make.create_all(api, [make.node("short-lived", labels={"room": "x"})])
    with FaultProxy(plane) as proxy:
        rule = Rule(
            itertools.repeat(etcd_timeout(None)),
            verb="create",
            resource="pods",
            subresource="binding",
        )
        proxy.rules.append(rule)
        with Daemon(plane, url=proxy.url) as daemon, Following(api, "/api/v1/pods") as pods:
            api.post("/api/v1/namespaces/default/pods", make.pod("p", node_selector={"room": "x"}))
            wait_until(lambda: rule.struck > 0)
            api.delete("/api/v1/nodes/short-lived")
            wait_until(lambda: daemon.metrics()["gangsched_nodes"] == NODES)
            struck = rule.struck
            make.create_all(api, [make.node("lasting", labels={"room": "x"})])
            time.sleep(1.0)  # what must not be sent has this long to be sent
            assert rule.struck == struck
            proxy.rules.clear()
            bound = pods.wait_for(
                lambda items: nodes_of(items, "p") or None,
                within_s=40.0,
                what="the pod to be bound",
            )
            assert bound == {"p": "lasting"}
            api.delete("/api/v1/namespaces/default/pods/p")
    api.delete("/api/v1/nodes/lasting")
    api.close()


def wait_until(holds: Callable[[], bool], within_s: float = 20.0) -> None:
    """Look every 20 ms until it holds."""
    deadline_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
