"""Devices during a plan: gangs beside all choices of nodes and devices, and moves that are undone."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from random import Random

import numpy as np
import pytest
from msgspec import structs

from gangsched.core.cycle import Limits, plan
from gangsched.core.devices.device_index import DeviceIndex, DeviceKind
from gangsched.core.reserve import Ledger
from gangsched.model.devices import (
    Device,
    DeviceClaim,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceResult,
    NodeScope,
    ResourceSlice,
)
from gangsched.model.objects import ClaimUse, Pod
from gangsched.model.plan import Verdict
from gangsched.model.reasons import Reason
from gangsched.model.snapshot import Snapshot
from gangsched.model.storage import ResourceClaim, Storage
from tests.builders import NAMESPACE, gang, group, node, pod, shape, snapshot, verdict_on

LIKE = DeviceConstraint("d/link")


def request(count: int = 1, model: str = "", *, name: str = "r", parent: str = "") -> DeviceRequest:
    """A request for devices, of one model if it is named."""
    selectors = (f'device.attributes["d"].model == "{model}"',) if model else ()
    return DeviceRequest(name=name, parent=parent, class_name="gpu", count=count, selectors=selectors)


def device(name: str, model: str, link: int = 0) -> Device:
    """A device with two attributes."""
    return Device(name=name, attributes={"model": ("string", model), "link": ("int", link)})


class Cluster:
    """Nodes with devices, the claims that hold some, and claims to be allocated, one for each pod."""

    def __init__(self, nodes: Sequence[Sequence[Device]], held: Sequence[tuple[int, str]] = ()) -> None:
        self.nodes, self.held = nodes, set(held)
        self.claims: list[DeviceClaim] = []
        self.pods: list[list[int]] = []  # by number of the pod, those of its claims
        self.index = DeviceIndex()
        self.index.apply(DeviceClass("gpu"))
        for number, devices in enumerate(nodes):
            name = f"n{number}"
            self.index.apply(
                ResourceSlice(name=name, driver="d", pool=name, scope=NodeScope(name), devices=tuple(devices))
            )
        for number, name in held:
            self.index.hold(f"held-{number}-{name}", (DeviceResult("r", ("d", f"n{number}", name)),))

    def ask(self, *alternatives: DeviceRequest, like: bool = False) -> Pod:
        """A pod with a claim for the first of these that can be had."""
        return self.using(self.claim(*alternatives, like=like))

    def using(self, *claims: int) -> Pod:
        """A pod with these claims, which other pods may have, too."""
        self.pods.append([*claims])
        name = f"p{len(self.pods) - 1}"
        return pod(name, uid=name, claims=tuple(ClaimUse(self.claims[each].name, device=True) for each in claims))

    def claim(self, *alternatives: DeviceRequest, like: bool = False) -> int:
        """The number of a new claim for the first of these that can be had."""
        name = f"c{len(self.claims)}"
        asks = DeviceClaim(
            namespace=NAMESPACE, name=name, uid=name, requests=(alternatives,), constraints=(LIKE,) if like else ()
        )
        self.claims.append(asks)
        return len(self.claims) - 1

    def snapshot(self) -> Snapshot:
        """What a plan sees."""
        made = [ResourceClaim(namespace=NAMESPACE, name=each.name, uid=each.uid, asks=each) for each in self.claims]
        users = Counter(each for claims in self.pods for each in claims)
        shared = {made[each].key: number for each, number in users.items() if number > 1}
        store = Storage(devices={each.key: each for each in made}, allocator=self.index, shared=shared)
        return dataclasses.replace(snapshot([node(f"n{number}") for number in range(len(self.nodes))]), storage=store)

    def decide(self, pods: Sequence[Pod], *, work: int = 30_000) -> Verdict:
        """The verdict on a Strict gang of these pods, however many plans it takes."""
        seen, unfinished = self.snapshot(), None
        for _ in range(100):
            made = plan(seen, [group(gang("ns/g", pods))], now_s=0.0, unfinished=unfinished, limits=Limits(work=work))
            if made.verdicts:
                return verdict_on(made, "ns/g")
            unfinished = made.unfinished
        raise AssertionError("no verdict within 100 plans")

    def check(self, verdict: Verdict) -> None:
        """Each pod's claims have devices of its node that match, none has another's, and each is allocated once."""
        had, allocated, followed = set(self.held), dict[str, str](), dict[str, str]()
        for placed in verdict.binds:
            claims = self.pods[int(placed.pod.uid[1:])]
            assert {each.name for each in placed.claims} == {self.claims[each].name for each in claims}
            for selection in placed.claims:
                if selection.allocation is None:
                    assert selection.follows
                    followed[selection.name] = placed.node
                    continue
                asks = next(each for each in self.claims if each.name == selection.name)
                own = [each.id for each in selection.allocation.results]
                assert {pool for _, pool, _ in own} == {placed.node}
                number = int(placed.node[1:])
                chosen = [each for each in self.nodes[number] if each.name in {name for _, _, name in own}]
                assert any(_matches(alternative, asks, chosen) for alternative in asks.requests[0])
                assert had.isdisjoint((number, name) for _, _, name in own)
                had |= {(number, name) for _, _, name in own}
                assert selection.name not in allocated
                allocated[selection.name] = placed.node
        assert followed.items() <= allocated.items()

    # What follows knows nothing of the search.

    def fits(self) -> bool:
        """Whether any nodes and devices let all pods start."""
        return any(map(self._fits_on, product(range(len(self.nodes)), repeat=len(self.pods))))

    def _fits_on(self, chosen: Sequence[int]) -> bool:
        """Whether devices can be had together if each pod runs on this node."""
        where: dict[int, set[int]] = {}
        for at, claims in zip(chosen, self.pods, strict=True):
            for each in claims:
                where.setdefault(each, set()).add(at)
        return all(len(nodes) == 1 for nodes in where.values()) and all(
            self._together(number, [self.claims[each] for each, nodes in where.items() if number in nodes])
            for number in set(chosen)
        )

    def _together(self, number: int, claims: Sequence[DeviceClaim], used: frozenset[str] = frozenset()) -> bool:
        if not claims:
            return True
        free = [each for each in self.nodes[number] if (number, each.name) not in self.held and each.name not in used]
        return any(
            self._together(number, claims[1:], used | {each.name for each in chosen})
            for alternative in claims[0].requests[0]
            for chosen in combinations(free, alternative.count)
            if _matches(alternative, claims[0], chosen)
        )


def _matches(alternative: DeviceRequest, asks: DeviceClaim, chosen: Sequence[Device]) -> bool:
    models = {each.attributes["model"][1] for each in chosen}
    links = {each.attributes["link"] for each in chosen}
    wanted = {source.split('"')[3] for source in alternative.selectors}
    return (
        len(chosen) == alternative.count and models <= (wanted or models) and (not asks.constraints or len(links) < 2)
    )


def random_cluster(seed: int) -> tuple[Cluster, list[Pod]]:
    """One to three nodes of at most four devices, and two or three pods."""
    rng = Random(seed)
    nodes = [
        [device(f"g{number}", rng.choice("aab"), rng.randrange(2)) for number in range(rng.randrange(1, 5))]
        for _ in range(rng.randrange(1, 4))
    ]
    held = [(number, each.name) for number, own in enumerate(nodes) for each in own if rng.random() < 0.15]
    cluster = Cluster(nodes, held)
    kinds = list(some_requests(rng))
    return cluster, [cluster.ask(*each, like=like) for each, like in rng.choices(kinds, k=rng.choice([2, 3]))]


def some_requests(rng: Random) -> Iterator[tuple[tuple[DeviceRequest, ...], bool]]:
    """Two kinds of claims."""
    for _ in range(2):
        if rng.random() < 0.3:
            pair = (request(2, "b", name="s0", parent="r"), request(1, rng.choice(["", "a"]), name="s1", parent="r"))
            yield pair, rng.random() < 0.3
        else:
            yield (request(rng.choice([1, 1, 2]), rng.choice(["", "a", "b"])),), rng.random() < 0.4


@pytest.mark.parametrize("block", range(4))
def test_a_gang_starts_if_any_choice_lets_it(block: int) -> None:
    """A9, A12: up to three pods on up to three nodes start if and only if devices for all can be had together."""
    for seed in range(block * 150, block * 150 + 150):
        cluster, pods = random_cluster(seed)
        verdict = cluster.decide(pods)
        assert bool(verdict.binds) == cluster.fits(), seed
        cluster.check(verdict)


def test_what_pods_share_is_taken_once() -> None:
    """A13: of three that share a claim, the first decides for a node where all find room, and the others follow."""
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


@pytest.mark.parametrize("block", range(4))
def test_a_gang_whose_pods_share_claims_starts_if_any_choice_lets_it(block: int) -> None:
    """A13: up to four pods with claims of their own, shared ones or both start if and only if all can."""
    for seed in range(block * 100, block * 100 + 100):
        rng = Random(seed)
        cluster, _ = random_cluster(seed)
        cluster.pods.clear()
        claims = range(len(cluster.claims))
        pods = [cluster.using(*sorted(rng.sample(claims, rng.choice([1, 1, 2])))) for _ in range(rng.choice([2, 3, 4]))]
        verdict = cluster.decide(pods)
        assert bool(verdict.binds) == cluster.fits(), seed
        cluster.check(verdict)


def test_the_first_choice_of_one_does_not_exclude_another() -> None:
    """Kubernetes #138765's kind: whatever the order, who takes any device leaves what others need."""
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


def test_what_is_undone_leaves_no_trace() -> None:
    """Random moves and rollbacks: room is that of a new ledger, and devices are chosen in the order of placing."""
    rng = Random(3)
    print("seed 3")
    cluster = Cluster([[device(f"g{each}", rng.choice("ab"), each % 2) for each in range(4)] for _ in range(3)])
    pods = [cluster.ask(request(rng.choice([1, 2]), rng.choice(["", "a"]))) for _ in range(12)]
    seen = cluster.snapshot()
    ledger = Ledger(seen)
    kinds = {kind for each in pods if (kind := ledger.occupancy.storage.needs(each).kind) is not None}
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
    """A22: once every consumer of a claim has left, within the plan, and again in use when that is undone."""
    cluster = Cluster([[device("g0", "a")]])
    waiting = cluster.ask(request())
    seen = cluster.snapshot()
    users = [pod(name, claims=(ClaimUse("shared", device=True),), uid=name) for name in ("a", "b")]
    results = (DeviceResult("r", ("d", "n0", "g0")),)
    shared = ResourceClaim(namespace=NAMESPACE, name="shared", uid="s", allocated=True, reserved=("a", "b"))
    cluster.index.hold(shared.key, results)
    storage = dataclasses.replace(seen.storage, devices={**seen.storage.devices, shared.key: shared})
    ledger = Ledger(dataclasses.replace(seen, storage=storage))
    for each in users:
        ledger.reserve((each,), np.array([0]), np.array([1]))
    checkpoint = ledger.checkpoint()
    ledger.release(users[0], "n0")
    assert not ledger.takes(waiting, "n0")
    ledger.release(users[1], "n0")
    assert ledger.takes(waiting, "n0")
    ledger.rollback(checkpoint)
    assert not ledger.takes(waiting, "n0")


def test_what_is_wrong_with_a_claim_refuses_the_pod() -> None:
    """A5: a key that a device lacks is told by the names of claim and device; a node without devices says nothing."""
    cluster = Cluster([[], [device("g0", "a")]])
    asked = DeviceRequest(name="r", class_name="gpu", selectors=('device.attributes["d"].absent == 1',))
    verdict = cluster.decide([cluster.ask(asked)])
    assert verdict.reason is Reason.INVALID_CLAIM
    assert f"claim {NAMESPACE}/c0, request r, selector #0 on device d/n1/g0: no such key: absent" in (
        verdict.told.message + verdict.told.now
    )


def test_a_fault_is_found_again() -> None:
    """A5: a selector without an answer refuses the pod in the next plans as well, which know the node's room (A10)."""
    cluster = Cluster([[device("g0", "a")]])
    keyless = DeviceRequest(name="r", class_name="gpu", selectors=('device.attributes["d"].absent == 1',))
    pods = [cluster.ask(keyless), cluster.ask(keyless)]
    for _ in range(3):
        verdict = cluster.decide(pods)
        assert verdict.reason is Reason.INVALID_CLAIM
        assert "no such key: absent" in verdict.told.text
    assert cluster.index.searches == 1


def test_a_slice_that_is_rewritten_changes_nothing() -> None:
    """A23: a new generation with the same devices frees no node and searches none again; one with others does."""
    cluster = Cluster([[device("g0", "a")]])
    pods = [cluster.ask(request(2))]
    cluster.decide(pods)
    searches = cluster.index.searches
    more = (device("g0", "a"), device("g1", "a"))
    for generation, devices in ((1, more[:1]), (2, more)):
        again = ResourceSlice(
            name="n0", driver="d", pool="n0", generation=generation, scope=NodeScope("n0"), devices=devices
        )
        changed = cluster.index.apply(again)
        verdict = cluster.decide(pods)
        assert (changed, bool(verdict.binds)) == ((set(), False) if generation == 1 else ({"n0"}, True))
        assert (cluster.index.searches > searches) == (generation == 2)
