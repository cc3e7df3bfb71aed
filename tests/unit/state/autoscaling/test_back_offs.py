"""When a gang, or a namespace, may ask an autoscaler again (semantics E10)."""

from __future__ import annotations

from gangsched.api import keys
from gangsched.model.provisioning import ProvisioningState
from tests.autoscaler import Autoscaler, message, provisioning_rules, waiting
from tests.builders import pod_group
from tests.world import World


def test_a_gang_that_changes_for_each_request_asks_ever_less_often() -> None:
    """E10: the first change is free; also if it is deleted and created again."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 0)
    waiting(world, 3)
    for number in range(200):
        scaler.run(20)
        world.declare(pod_group("g", 2 + number % 2, uid="uid-of-g"))

    # 4,000 s: at once twice, then after 60 s, 120 s, ... 1,800 s.
    assert 6 <= len(scaler.created) <= 9
    assert "ended (the gang has changed again); it is made again by" in message(world)

    before = len(scaler.created)
    for _ in range(10):
        world.delete(*world.pods.values())
        world.withdraw(world.pod_groups[keys.X_K8S, "ns/g"])
        scaler.run(10)
        waiting(world, 3)
        scaler.run(20)

    assert len(scaler.created) <= before + 1


def test_a_gang_that_starts_begins_anew() -> None:
    """E10: what was asked for in vain before a start delays nothing after it."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 10)
    fails = (ProvisioningState.FAILED, "QuotaExceeded")
    scaler.fate = fails
    pods = waiting(world, 2)
    scaler.run(100)
    scaler.fate = None
    scaler.run(140)
    assert (len(scaler.created), len(world.bound())) == (3, 2)

    world.delete(*pods)
    world.withdraw(world.pod_groups[keys.X_K8S, "ns/g"])
    scaler.fate = fails
    scaler.run(10)
    waiting(world, 2)
    scaler.run(16)
    assert len(scaler.created) == 4
    scaler.run(70)
    assert len(scaler.created) == 5, "after a minute, as the first time"


def test_a_namespace_asks_in_vain_a_hundred_times_an_hour() -> None:
    """E10: under whatever names."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 0)
    for number in range(130):
        pods = waiting(world, 2, f"g{number}")
        scaler.run(14)
        if number < 129:
            world.delete(*pods)
            world.withdraw(world.pod_groups[keys.X_K8S, f"ns/g{number}"])

    assert len(scaler.created) == 100
    told = message(world, "g129")
    assert "ended (too many requests of its namespace have ended without a start)" in told
    scaler.run(3_700, 50)
    assert len(scaler.created) == 101


def test_requests_that_fail_are_made_again_ever_less_often() -> None:
    """E10: after one minute, doubling to half an hour; the gang asks for no single nodes."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 10)
    scaler.fate = (ProvisioningState.FAILED, "QuotaExceeded: no more of them")
    waiting(world, 8)
    scaler.run(2_000, 4)

    assert scaler.bought == 0
    assert 4 <= len(scaler.created) <= 6
    assert "ended (failed: QuotaExceeded: no more of them); it is made again by" in message(world)

    scaler.fate = None
    scaler.run(2_000, 4)
    assert len(world.bound()) == 8
