"""All promised room together: several nominations on one node, and whom the last look spares
(semantics V10, V13).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import permutations

import pytest

from gangsched.core.reserve import Ledger
from gangsched.model.gang import Placement
from gangsched.model.inter_pod import InterPodConstraints, Requirement, Spread
from gangsched.model.objects import Node, Phase, Pod
from gangsched.model.preemption import UnitKind
from gangsched.model.protocol import Evict, PreparePreemption
from gangsched.state.preemption.room import Placed, Room
from tests.builders import members, node, pod, running, shape, snapshot
from tests.sizes import of_size
from tests.unit.state.preemption.decided import DecidedWorld

SEVERAL = 3
LATE_S = 1_000


def full_of_low(*nodes: Node, grace_s: int = LATE_S) -> tuple[DecidedWorld, list[Pod]]:
    """Nodes full of pods of one GPU and low priority, each of which goes when a test deletes it."""
    world = DecidedWorld(*nodes, preempts=True)
    gpus = sum(dict(each.allocatable)["nvidia.com/gpu"] for each in nodes)
    low = world.create([pod(f"low-{index}", priority=0, grace_s=grace_s) for index in range(gpus)])
    world.settle()
    assert len(world.bound()) == gpus
    return world, low


@pytest.mark.parametrize("order", list(permutations(range(SEVERAL))))
def test_nominations_on_one_node_start_in_whatever_order_their_victims_go(
    order: tuple[int, ...],
) -> None:
    """V10, V11: each counts the places of the others together with the victims that free them. So
    none is lost, one pod is evicted for each, and with each that goes one of them starts; nobody
    else gets that room.
    """
    world, low = full_of_low(node("a", SEVERAL))
    high = world.create([pod(f"high-{index}", priority=1000) for index in range(SEVERAL)])
    world.settle()
    assert sorted(world.evicted()) == sorted(each.name for each in low)
    again = world.create(pod("low-again", priority=0), pod("late", priority=1000))
    for number, index in enumerate(order, start=1):
        world.delete(low[index])
        world.settle()
        assert len({each.name for each in high} & world.bound().keys()) == number, order
    assert world.events("NominationLost") == []
    assert world.pending() == {each.name for each in again}


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_evictions_are_answered_in_whatever_order(order: tuple[int, ...]) -> None:
    """V13: the last look of one nomination finds the others at any stage."""
    world, low = full_of_low(node("a", 3), grace_s=0)
    world.fate = lambda each: "later"
    high = world.create([pod(f"high-{index}", priority=1000) for index in range(3)])
    world.settle()
    for index in order:
        waiting = [each for each in world.ordered if isinstance(each, PreparePreemption)]
        let = {waiting[index].id}
        world.fate = lambda each, let=let: "bound" if getattr(each, "id", "") in let else "later"  # type: ignore[misc]
        world.settle()
        world.settle()
    world.fate = lambda each: "bound"
    world.advance(1)
    assert {each.name for each in high} == world.bound().keys()
    assert world.events("NominationLost") == []
    assert len(world.evicted()) == len(low)


@pytest.mark.parametrize("seed", range(8))
def test_gangs_on_the_same_nodes_do_not_defeat_each_other(seed: int) -> None:
    """V10: two gangs of 3 x 4 GPUs on three nodes full of low pods: both start as soon as the last
    victim is gone.
    """
    print(f"seed {seed}")
    rng = random.Random(seed)
    world, low = full_of_low(*(node(name, 8) for name in "abc"))
    longest_s = 0
    for each in low:
        grace_s = rng.choice((0, 1, 1, 2))
        longest_s = max(longest_s, grace_s)
        world.update(each, grace_s=grace_s)
    world.create(*(members(f"high-{gang}", 3, gpus=4, priority=1000) for gang in range(2)))
    world.advance(longest_s)
    assert len({name for name in world.bound() if name.startswith("high")}) == 6
    assert world.events("NominationLost") == []


def test_who_counts_on_the_victims_of_another_has_them_evicted_itself() -> None:
    """V10, V12: the first needs one of the eight GPUs that a gang gives up, the second the other
    seven. When the first is deleted before anybody was evicted, the gang is evicted for the second,
    whose nomination is not lost.
    """
    world = DecidedWorld(node("a", 8), preempts=True)
    world.create(members("low", 8, min_member=8))
    world.settle()
    world.fate = lambda order: "later"
    (first,) = world.create(pod("first", gpus=1, priority=1000))
    world.settle()
    (second,) = world.create(pod("second", gpus=7, priority=1000))
    world.settle()
    assert world.evicted() == []
    world.delete(first)
    world.settle()
    world.fate = lambda order: "bound"
    world.advance(31)
    assert world.bound() == {"second": "a"}
    assert len(world.evicted()) == 8
    assert world.events("NominationLost") == []
    assert second.name == "second"


def test_one_is_lost_when_somebody_else_takes_room_and_the_others_are_kept() -> None:
    """V12: of several nominations on a node one gives way, the one whose victim is gone already."""
    world, low = full_of_low(node("a", SEVERAL))
    world.create([pod(f"high-{index}", priority=1000) for index in range(SEVERAL)])
    world.settle()
    world.fate = lambda order: "later"  # or who starts first would be bound at once
    world.create(running(pod("foreign", scheduler_name="other"), "a"))
    world.delete(low[2])
    world.settle()
    assert len(world.events("NominationLost")) == 1
    assert len(world.state.preemptions.nominations.all()) == SEVERAL - 1


def spread_pod(name: str, gpus: int, priority: int) -> Pod:
    """A pod labelled `app: p` that keeps within one of its like on every host."""
    even = Spread(
        topology_key="kubernetes.io/hostname",
        max_skew=1,
        selector=(Requirement("app", "In", ("p",)),),
    )
    of = (
        shape(gpus, inter_pod=InterPodConstraints(spread=(even,)))
        if priority == 100
        else shape(gpus)
    )
    return pod(name, of=of, priority=priority, labels={"app": "p"})


def test_a_victim_that_spread_needs_is_not_spared() -> None:
    """V13: one of the three low pods would be room enough, but only without two of them is the
    spread kept.
    """
    world = DecidedWorld(node("a", 10), node("b", 10), preempts=True)
    world.create(running(spread_pod("high", 9, 1000), "a"))
    world.create([running(spread_pod(f"low-{index}", 3, 0), "b") for index in range(3)])
    world.create(spread_pod("medium", 3, 100))
    world.advance(40)
    assert len(world.evicted()) == 2
    assert world.bound()["medium"] == "b"


def test_nobody_is_evicted_where_spread_is_lost_meanwhile() -> None:
    """V13: what nobody's going makes good ends the nomination before anybody goes."""
    world = DecidedWorld(node("a", 10), node("b", 10), preempts=True)
    (high,) = world.create(running(spread_pod("high", 9, 1000), "a"))
    world.create([running(spread_pod(f"low-{index}", 3, 0), "b") for index in range(3)])
    world.fate = lambda order: "later"
    world.create(spread_pod("medium", 3, 100))
    world.settle()
    assert len(world.prepared()) == 1
    world.create(
        running(
            pod("more", gpus=1, priority=1000, labels={"app": "p"}, scheduler_name="other"), "b"
        )
    )
    world.update(high, labels={"app": "q"})
    world.fate = lambda order: "bound"
    world.settle()
    assert world.evicted() == []
    assert "pod ns/medium no longer fits on node" in world.events("NominationLost")[0][2]


def test_a_nomination_is_looked_at_when_what_it_rests_on_changes() -> None:
    """V25: not because something changed elsewhere; but when its group, its nodes or who leaves for
    it did.
    """
    world, _ = full_of_low(node("a", 2), node("b", 2))
    world.create(pod("high", gpus=1, priority=1000))
    world.fate = lambda order: "later" if isinstance(order, Evict) else "bound"
    world.settle()
    (record,) = world.state.preemptions.nominations.all()
    (there,) = record.nominees.values()
    other = next(name for name in ("a", "b") if name != there.node)
    looks = world.state.preemptions.nominations.looks
    world.create(running(pod("small", gpus=0), other))
    world.settle()
    assert world.state.preemptions.nominations.looks == looks
    world.create(
        pod("foreign", gpus=1, node_name=there.node, scheduler_name="other", phase=Phase.RUNNING)
    )
    world.settle()
    assert world.state.preemptions.nominations.looks > looks
    assert UnitKind.POD in {each.kind for each in record.decision.victims}


def test_each_of_a_wave_is_planned_for_three_times() -> None:
    """V25: when it is nominated, for the last look, and when it starts, on one node all together;
    and those that come back in the place of victims once, and once more because what they were told
    of free room has changed (E1).
    """
    world, low = full_of_low(node("a", 4), node("b", 4), grace_s=1)
    high = world.create([pod(f"high-{index}", priority=1000) for index in range(8)])
    world.settle()
    world.create([pod(f"again-{index}", priority=0) for index in range(len(low))])
    world.advance(1)
    assert {each.name for each in high} == world.bound().keys()
    planned = Counter(verdict.group for plan in world.plans for verdict in plan.verdicts)
    assert {planned[f"pod:ns/{each.name}"] for each in high} == {3}
    assert max(planned[f"pod:ns/again-{index}"] for index in range(len(low))) <= 2


def test_room_that_comes_free_for_one_is_not_open_to_others_while_victims_of_others_are_left() -> (
    None
):
    """V10: a victim stands in for one place. The first starts a moment later than its victim is
    gone, and nobody of equal or lower priority gets there before it."""
    world, low = full_of_low(node("a", 2))
    high = world.create([pod(f"high-{index}", priority=1000) for index in range(2)])
    world.settle()
    world.delete(low[0])
    world.state.refresh(world.now_s)
    world.state.preemptions.due(world.now_s, world.wall_s())
    ledger = Ledger(world.state.snapshot())
    ledger.respect_nominations(1000)
    assert ledger.room(high[0].shape).tolist() == [0]
    nominations = world.state.preemptions.nominations
    rooms = {}
    for record in nominations.all():
        ledger.respect_nominations(1000, but=record.group)
        (victim,) = record.victims
        rooms[victim] = ledger.room(high[0].shape).tolist()
    assert rooms == {low[0].uid: [1], low[1].uid: [0]}


def test_room_that_comes_free_for_others_is_no_news_to_those_that_wait() -> None:
    """V10, E1: the room that victims leave as they end one by one is promised: nobody is planned
    again for it.
    """
    world = DecidedWorld(node("a"), node("b"), preempts=True)
    world.create(
        running(pod(f"low-{n}", gpus=4, priority=0, grace_s=20 + n), "ab"[n % 2]) for n in range(4)
    )
    world.create(members("high", 4, gpus=4, priority=1000))
    world.advance(1.0)
    world.create(pod(f"late-{n}", gpus=4, priority=0) for n in range(20))
    world.advance(2.0)
    before = len(world.plans)
    world.advance(18.5)
    assert sum(name.startswith("low") for name in world.bound()) == 2, (
        "some of the victims have ended"
    )
    looked_at = Counter(verdict.group for plan in world.plans[before:] for verdict in plan.verdicts)
    assert not [group for group in looked_at if "late" in group]
    world.advance(10.0)
    assert "high-0" in world.bound()


# --- sums and a closer look ---------------------------------------------------------------------

GPUS = 4


@dataclass(eq=False)
class Claimed:
    """Who is promised room, and on which nodes."""

    serial: int
    places: list[Placement]
    lowest_priority: int = 1000


@dataclass
class FakeClaims:
    """Claims, and the pods that leave for them by node."""

    claims: list[Claimed] = field(default_factory=list)
    victims: dict[str, list[Placed]] = field(default_factory=dict)

    def nodes(self) -> list[str]:
        """Every node."""
        return list(self.victims)

    def places_on(self, node: str) -> Iterator[tuple[Claimed, Placement]]:
        """The places there."""
        return (
            (claim, each) for claim in self.claims for each in claim.places if each.node == node
        )

    def leaving(self, node: str) -> list[Placed]:
        """The victims there."""
        return self.victims.get(node, [])

    def returning(self, _claim: object) -> list[Placed]:
        """Nobody comes back."""
        return []


def promised(seed: int) -> tuple[FakeClaims, Room, Room]:
    """Nodes with pods that leave and places for which they do, not always enough; and two equal
    rooms.
    """
    rng = random.Random(seed)
    names = [f"n{n}" for n in range(rng.randint(1, 4))]
    claims = FakeClaims(victims={name: [] for name in names})
    there = []
    for name in names:
        for n in range(rng.randint(0, GPUS)):
            low = running(pod(f"low-{name}-{n}", gpus=1, priority=0), name)
            there.append((low, name))
            if rng.random() < 0.7:
                claims.victims[name].append((low, name))
    for n in range(rng.randint(1, 2 * len(names))):
        place = Placement(
            pod(f"high-{n}", gpus=rng.choice((1, 2, 3)), priority=1000), rng.choice(names)
        )
        claims.claims.append(Claimed(n, [place]))
    picture = snapshot([node(name, GPUS) for name in names], there)
    return claims, Room(picture, claims), Room(picture, claims)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(of_size(40, 400)))
def test_a_node_keeps_its_promises_where_no_claim_meets_an_obstacle(seed: int) -> None:
    """V10: one look at a node does for all nominations there."""
    print(f"seed {seed}")
    claims, room, other = promised(seed)
    for name in claims.victims:
        there = [claim for claim in claims.claims if claim.places[0].node == name]
        assert room.keeps({name}) == all(not other.obstacle(claim, claim.places) for claim in there)
        assert not room.keeps({name, "gone"})


@pytest.mark.long
@pytest.mark.parametrize("seed", range(of_size(40, 400)))
def test_sums_spare_exactly_those_that_a_closer_look_spares(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V13: whoever is refused by sums would be refused by moving it back; what was known of a node
    is not stale.
    """
    print(f"seed {seed}")
    claims, room, other = promised(seed)
    quick = []
    for claim in claims.claims:
        for each in claims.victims[claim.places[0].node]:
            if not room.keeps({each[1]}) or room.obstacle(claim, claim.places):
                continue
            quick.append((claim, each, room.spares(claim, claim.places, [each])))
    monkeypatch.setattr(Room, "_overfill", lambda self, pods: False)
    for claim, each, spared in quick:
        assert other.spares(claim, claim.places, [each]) == spared
    for name in claims.victims:
        assert room.keeps({name}) == other.keeps({name})


@pytest.mark.long
@pytest.mark.parametrize("seed", range(of_size(40, 400)))
def test_where_only_room_counts_sums_admit_whom_filter_admits(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V13: the last look places hundreds of members one after the other only where it matters who
    came before.
    """
    print(f"seed {seed}")
    claims, room, other = promised(seed)
    places = [each for claim in claims.claims for each in claim.places]
    by_sums = room.admits(places)
    monkeypatch.setattr(Ledger, "only_room_counts", lambda self, pods: False)
    assert bool(other.admits(places)) == bool(by_sums)
