"""Devices during a plan: gangs beside all choices of nodes and devices, and moves that
are undone.
"""

from __future__ import annotations

import dataclasses
import gc
from random import Random

import numpy as np
import pytest
from msgspec import structs

from gangsched.core.devices.located import DeviceKind
from gangsched.core.reserve import Ledger
from gangsched.model.devices import DeviceRequest, DeviceResult, NodeScope, ResourceSlice
from gangsched.model.objects import ClaimUse, Pod
from gangsched.model.reasons import Reason
from gangsched.model.storage import ResourceClaim, Selection
from gangsched.sentences import say
from tests.builders import NAMESPACE, pod, shape
from tests.properties.device_gangs import KINDS, Cluster, compared, device, request
from tests.sizes import of_size


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", range(4))
def test_a_gang_starts_if_any_choice_lets_it(block: int, kind: str) -> None:
    """A9, A12, A13: up to four pods on up to three nodes start if and only if devices for all can
    be had together.
    """
    number = of_size(25, 100)
    assert (
        sum(compared(seed, kind) for seed in range(block * 100, block * 100 + number)) > number // 8
    )


def test_nodes_whose_devices_are_not_had_together_are_left_for_others() -> None:
    """A12: on the first nodes that have devices for each member, not all have some together; a
    search in vain ends.
    """
    assert compared(3903, "joint pools and shared claims")


def test_what_pods_share_is_taken_once() -> None:
    """A13: of three that share a claim, the first decides for a node where all find room, and the
    others follow.
    """
    cluster = Cluster([[device("g0", "a")], [device("g0", "a")], []])
    claim = cluster.claim(request())
    pods = [cluster.using(claim) for _ in range(3)]
    verdict = cluster.decide(pods)
    assert len(verdict.binds) == 3
    cluster.check(verdict)
    assert [each.claims[0].follows for each in verdict.binds] == [False, True, True]


def test_sharers_that_no_node_can_hold_do_not_start() -> None:
    """Two pods that fit on no node together: none is placed, whatever devices there are."""
    cluster = Cluster([[device("g0", "a")], [device("g0", "a")]])
    claim = cluster.claim(request())
    big = shape(cpu_milli=60_000)
    pods = [structs.replace(cluster.using(claim), shape=big) for _ in range(2)]
    assert cluster.decide(pods).binds == ()


def test_the_first_choice_of_one_does_not_exclude_another() -> None:
    """Kubernetes #138765's kind: whatever the order, who takes any device leaves what
    others need.
    """
    for order in ((0, 1), (1, 0)):
        cluster = Cluster([[device("g0", "h100"), device("g1", "a100")]])
        pods = [cluster.ask(request()), cluster.ask(request(1, "h100"))]
        verdict = cluster.decide([pods[each] for each in order])
        assert len(verdict.binds) == 2
        cluster.check(verdict)


def test_a_plan_that_runs_out_of_work_is_continued() -> None:
    """Nodes that were searched are not searched again, and the gang starts some plans later."""
    cluster = Cluster([[device("g0", "a")] for _ in range(40)])
    pods = [cluster.ask(request()) for _ in range(40)]
    verdict = cluster.decide(pods, work=3_000)
    assert len({each.node for each in verdict.binds}) == 40
    assert cluster.index.searches == 40 + 40  # for room, and for the devices that were chosen then
    cluster.check(verdict)


def test_a_plan_leaves_nothing_to_the_garbage_collector() -> None:
    """What a plan has made is free when it ends, also if it ran out of work: to collect that of 50
    plans takes as long as a plan may.
    """
    cluster = Cluster([[device("g0", "a")] for _ in range(10)])
    pods = [cluster.ask(request()) for _ in range(10)]
    cluster.decide(pods)
    gc.collect()
    gc.disable()
    try:
        cluster.index.hold("another", (DeviceResult("r", ("d", "n0", "g0")),))
        assert cluster.decide(pods, work=3_000).binds == ()
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_running_pods_with_devices_cost_a_plan_nothing() -> None:
    """Of running pods only those with volumes are looked at: whoever has devices is known beside
    them.
    """
    cluster = Cluster([[device("g0", "a")]])
    seen, waiting = cluster.snapshot(), cluster.ask(request())
    claims = (ClaimUse("other", device=True),)
    looked: list[str] = []

    class Selections(dict[str, tuple[Selection, ...]]):
        def get(self, uid: str, default: object = None) -> tuple[Selection, ...]:
            looked.append(uid)
            return ()

    users = {f"u{n}": (pod(f"u{n}", claims=claims), "n0") for n in range(100)}
    users["v"] = (pod("v", claims=(ClaimUse("volume"),)), "n0")
    storage = dataclasses.replace(cluster.snapshot().storage, users=users, selections=Selections())
    ledger = Ledger(structs.replace(seen, storage=storage))
    ledger.reserve((waiting,), np.array([0]), np.array([1]))
    assert looked == []
    ledger.reserve((pod("w", claims=(ClaimUse("volume"),)),), np.array([0]), np.array([1]))
    assert looked == ["v"]


def test_what_is_undone_leaves_no_trace() -> None:
    """Random moves and rollbacks: room is that of a new ledger, and devices are chosen in the order
    of placing.
    """
    rng = Random(3)
    print("seed 3")
    cluster = Cluster(
        [[device(f"g{each}", rng.choice("ab"), each % 2) for each in range(4)] for _ in range(3)]
    )
    pods = [cluster.ask(request(rng.choice([1, 2]), rng.choice(["", "a"]))) for _ in range(12)]
    seen = cluster.snapshot()
    ledger = Ledger(seen)
    kinds = {
        kind for each in pods if (kind := ledger.occupancy.storage.needs(each).kind) is not None
    }
    for _ in range(60):
        checkpoint, unplaced = ledger.checkpoint(), list(pods)
        rng.shuffle(unplaced)
        placed: list[tuple[Pod, int]] = []
        for _ in range(rng.randrange(1, 8)):
            if placed and rng.random() < 0.3:
                gone, at = placed.pop(rng.randrange(len(placed)))
                ledger.release(gone, f"n{at}")
            else:
                placed.append((unplaced.pop(), rng.randrange(3)))
                ledger.reserve((placed[-1][0],), np.array([placed[-1][1]]), np.array([1]))
        other = Ledger(seen)
        for each, at in placed:
            other.reserve((each,), np.array([at]), np.array([1]))
        for kind in kinds:
            assert room(ledger, kind) == room(other, kind)
        ledger.rollback(checkpoint)
        for kind in kinds:
            assert room(ledger, kind) == room(Ledger(seen), kind)


def room(ledger: Ledger, kind: DeviceKind) -> list[int]:
    """Pods of a kind that each of three nodes has devices for."""
    devices = ledger.occupancy.storage.devices
    assert devices is not None
    found: list[int] = devices.room(kind, np.ones(3, dtype=np.int64)).tolist()
    return found


def test_devices_of_pods_that_leave_are_free() -> None:
    """A22: once every consumer of a claim has left, within the plan, and again in use when that is
    undone.
    """
    cluster = Cluster([[device("g0", "a")]])
    waiting = cluster.ask(request())
    seen = cluster.snapshot()
    users = [pod(name, claims=(ClaimUse("shared", device=True),), uid=name) for name in ("a", "b")]
    results = (DeviceResult("r", ("d", "n0", "g0")),)
    shared = ResourceClaim(
        namespace=NAMESPACE, name="shared", uid="s", allocated=True, reserved=("a", "b")
    )
    cluster.index.hold(shared.key, results)
    there = {each.uid: (each, "n0") for each in users}
    storage = dataclasses.replace(
        seen.storage, devices={**seen.storage.devices, shared.key: shared}, users=there
    )
    ledger = Ledger(structs.replace(seen, storage=storage))
    checkpoint = ledger.checkpoint()
    ledger.release(users[0], "n0")
    assert not ledger.takes(waiting, "n0")
    ledger.release(users[1], "n0")
    assert ledger.takes(waiting, "n0")
    ledger.rollback(checkpoint)
    assert not ledger.takes(waiting, "n0")


def test_devices_of_a_pod_that_a_plan_takes_back_stay_in_use() -> None:
    """A22: its claim has them, as an earlier start left it: in no round may another pod get them,
    also in the next.
    """
    cluster = Cluster([[device("g0", "a")]])
    waiting = cluster.ask(request())
    seen = cluster.snapshot()
    starting = pod("a", claims=(ClaimUse("own", device=True),), uid="a")
    own = ResourceClaim(namespace=NAMESPACE, name="own", uid="o", allocated=True, reserved=("a",))
    cluster.index.hold(own.key, (DeviceResult("r", ("d", "n0", "g0")),))
    storage = dataclasses.replace(seen.storage, devices={**seen.storage.devices, own.key: own})
    ledger = Ledger(structs.replace(seen, storage=storage))
    for _ in range(2):
        with ledger.tentative():
            ledger.reserve((starting,), np.array([0]), np.array([1]))
            assert not ledger.takes(waiting, "n0")
        assert not ledger.takes(waiting, "n0")


def test_what_is_wrong_with_a_claim_refuses_the_pod() -> None:
    """A5: a key that a device lacks is told by the names of claim and device; a node without
    devices says nothing.
    """
    cluster = Cluster([[], [device("g0", "a")]])
    asked = DeviceRequest(
        name="r", class_name="gpu", selectors=('device.attributes["d"].absent == 1',)
    )
    verdict = cluster.decide([cluster.ask(asked)])
    assert verdict.reason is Reason.INVALID_CLAIM
    assert (
        f"claim {NAMESPACE}/c0, request r, selector #0 on device d/n1/g0: no such key: absent"
        in (say(verdict.told).stable + say(verdict.told).now)
    )


def test_members_that_fill_a_node_are_told_of() -> None:
    """A24: of three equal members two have found the last devices; the third is told that no more
    can be had.
    """
    cluster = Cluster([[device("g0", "a"), device("g1", "a")], []])
    verdict = cluster.decide([cluster.ask(request()) for _ in range(3)])
    assert (
        "2 of the 3 are free on eligible nodes. Pod ns/p2: 0/2 nodes are available:"
        " 2 cannot allocate all claims" in (say(verdict.told).now)
    )


def test_a_fault_is_found_again() -> None:
    """A5: a selector without an answer refuses the pod in the next plans as well, which know the
    node's room (A10).
    """
    cluster = Cluster([[device("g0", "a")]])
    keyless = DeviceRequest(
        name="r", class_name="gpu", selectors=('device.attributes["d"].absent == 1',)
    )
    pods = [cluster.ask(keyless), cluster.ask(keyless)]
    for _ in range(3):
        verdict = cluster.decide(pods)
        assert verdict.reason is Reason.INVALID_CLAIM
        assert "no such key: absent" in say(verdict.told).text
    assert cluster.index.searches == 1


def test_a_slice_that_is_rewritten_changes_nothing() -> None:
    """A23: a new generation with the same devices frees no node and searches none again; one with
    others does.
    """
    cluster = Cluster([[device("g0", "a")]])
    pods = [cluster.ask(request(2))]
    cluster.decide(pods)
    searches = cluster.index.searches
    more = (device("g0", "a"), device("g1", "a"))
    for generation, devices in ((1, more[:1]), (2, more)):
        again = ResourceSlice(
            name="n0",
            driver="d",
            pool="n0",
            generation=generation,
            scope=NodeScope("n0"),
            devices=devices,
        )
        changed = cluster.index.apply(again)
        verdict = cluster.decide(pods)
        assert (changed, bool(verdict.binds)) == (
            (set(), False) if generation == 1 else ({"n0"}, True)
        )
        assert (cluster.index.searches > searches) == (generation == 2)
