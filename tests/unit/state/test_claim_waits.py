"""Gangs that wait with claims, and are looked at again in turns."""

from __future__ import annotations

import pytest

from gangsched.model.objects import ClaimUse
from gangsched.model.protocol import Applied, Gone, Replaced
from gangsched.model.storage import Claim, ClaimRef, CsiNode, ResourceClaim, Volume
from gangsched.state.claim_waits import ClaimWait, ClaimWaits
from gangsched.state.scheduling import CLAIM_STEPS
from tests.builders import NAMESPACE, gang_metadata, node, pod
from tests.world import World

CROWD = 40


def waiting(number: int) -> ClaimWaits:
    """So many gangs of one namespace and one of another, each namespace with a claim."""
    waits = ClaimWaits()
    for each in range(number):
        waits.add(f"uid-{each}", ClaimWait(f"crowd/g{each}", "crowd", frozenset({"crowd/c"})))

    waits.add("uid-quiet", ClaimWait("quiet/g", "quiet", frozenset({"quiet/c", "quiet/d"})))
    return waits


def test_namespaces_take_turns() -> None:
    """Whoever has one gang waits for one of each other namespace; each gang is taken once."""
    waits = waiting(CROWD)
    waits.concern("crowd/c")
    waits.concern("crowd/c")
    waits.concern("quiet/d")
    assert waits.take(2) == ["crowd/g0", "quiet/g"]
    assert len(waits) == 2
    assert sorted(waits.take(None)) == sorted(f"crowd/g{each}" for each in range(1, CROWD))
    assert not waits
    assert waits.take(None) == []


def test_a_claim_that_keeps_changing_delays_nobody() -> None:
    """All gangs are taken after each change, also where it changes again before that."""
    waits = waiting(4)
    taken = []
    for _ in range(6):
        waits.concern("crowd/c")
        taken += waits.take(1)

    assert taken == [f"crowd/g{each}" for each in (0, 1, 2, 3)] + ["crowd/g0"]
    waits.concern("crowd/c")
    taken += waits.take(None)
    assert taken[4:] == [f"crowd/g{each}" for each in (0, 1, 2, 3)] * 2
    assert not waits


def test_who_waits_no_longer_is_not_taken() -> None:
    """A gang is taken while one of its pods waits, and a change of nobody is forgotten."""
    waits = waiting(3)
    waits.add("uid-more", ClaimWait("crowd/g1", "crowd", frozenset({"crowd/c"})))
    waits.concern("crowd/c")
    assert waits.take(1) == ["crowd/g0"]

    waits.discard("uid-1")
    waits.discard("uid-2")
    waits.discard("uid-2")
    assert waits.take(None) == ["crowd/g1"]
    waits.concern("crowd/c")
    for uid in ("uid-0", "uid-more"):
        waits.discard(uid)

    assert waits.take(None) == []
    waits.concern("crowd/c")
    waits.concern("crowd")
    assert not waits


def test_what_concerns_all_concerns_each_namespace() -> None:
    """One change of a class, and everybody who waits is taken in turns."""
    waits = waiting(3)
    waits.concern_all()
    assert waits.take(3) == ["crowd/g0", "quiet/g", "crowd/g1"]
    waits.add("uid-quiet", ClaimWait("quiet/other", "quiet", frozenset({"quiet/e"})))
    waits.concern("quiet/d")
    waits.concern("quiet/e")
    assert set(waits.take(None)) == {"crowd/g2", "quiet/other"}
    assert waits.gangs_of_pods()["uid-quiet"] == "quiet/other"


# --- who is looked at ----------------------------------------------------------------------------


def crowd() -> World:
    """Plain pods of one namespace that name one claim each, and a shared one."""
    world = World(node("n0"))
    own = ((ClaimUse(f"c{each}"), ClaimUse("shared")) for each in range(3 * CLAIM_STEPS))
    pods = [pod(f"p{number}", claims=claims) for number, claims in enumerate(own)]
    world.create(pods)
    world.settle()
    return world


def looked_at(world: World) -> set[str]:
    """The groups that one bounded turn reads."""
    before = {group.id: group.generation for group in world.state.registry.groups.values()}
    world.state.refresh(world.now_s, most_new=1e9)
    groups = world.state.registry.groups.values()
    return {group.id for group in groups if before.get(group.id) != group.generation}


def test_one_turn_looks_at_some_of_those_who_name_a_claim() -> None:
    """The others come in the turns that follow at once, and whoever names another claim does not
    come.
    """
    world = crowd()
    world.say(Applied(Claim(namespace=NAMESPACE, name="shared", uid="1")))
    turns: list[set[str]] = []
    while world.state.next_deadline_s(world.now_s) == world.now_s and len(turns) < 5:
        turns.append(looked_at(world))

    sizes = [len(each) for each in turns]
    assert sizes[:3] == [CLAIM_STEPS] * 3
    assert len(set().union(*turns)) == 3 * CLAIM_STEPS


def volume(name: str = "v", of: str = "") -> Volume:
    """A volume, of a claim if one is given."""
    claim = ClaimRef(NAMESPACE, of, "1") if of else None
    return Volume(name=name, claim=claim)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (Applied(Claim(namespace=NAMESPACE, name="c7", uid="1")), 1),
        (Applied(volume(of="c7")), 1),
        (Applied(volume()), CLAIM_STEPS),
        (Applied(CsiNode(name="n0")), CLAIM_STEPS),
        (Applied(ResourceClaim(namespace=NAMESPACE, name="c7", uid="1")), 0),
        (Applied(Claim(namespace="other", name="c7", uid="1")), 0),
    ],
)
def test_a_change_is_looked_at_by_those_whom_it_may_help(
    change: Applied,
    expected: int,
) -> None:
    """A claim and its volume are for those that name it; a free volume and a class for all."""
    world = crowd()
    world.say(change)
    assert len(looked_at(world)) == expected


def test_a_volume_that_is_given_back_is_for_all() -> None:
    """As long as it is of one claim it is for nobody else, also as it goes."""
    world = crowd()
    world.say(Applied(volume(of="c7")), Applied(volume("w", of="c7")))
    assert len(looked_at(world)) == 1
    world.say(Gone(Volume, "w"))
    assert len(looked_at(world)) == 1
    world.say(Applied(volume()))
    assert len(looked_at(world)) == CLAIM_STEPS


def test_those_whose_volume_is_asked_on_a_node_that_goes_are_looked_at() -> None:
    """Also where the claims were listed, and no longer once the volume exists."""
    world = crowd()
    world.say(Applied(node("n1")), Applied(node("n2")))
    asked = [
        Claim(namespace=NAMESPACE, name=f"c{each}", uid=f"{each}", selected_node="n1")
        for each in range(3)
    ]
    world.say(Replaced(Claim, tuple(asked)))
    made = Claim(
        namespace=NAMESPACE, name="c2", uid="2", selected_node="n1", volume_name="v", bound=True
    )
    world.say(Applied(made))
    world.settle()

    world.say(Gone(type(node("n2")), "n2"))
    assert looked_at(world) == set()
    world.say(Gone(type(node("n1")), "n1"))
    assert {each.rpartition("/")[2] for each in looked_at(world)} == {"p0", "p1"}


def test_a_gang_is_looked_at_once_however_many_of_its_pods_name_a_claim() -> None:
    """Each look reads all of its members."""
    world = World(node("n0"))
    stated = gang_metadata("g", min_member=CROWD)
    world.create(
        [pod(f"g-{each}", gang_metadata=stated, claims=(ClaimUse("c"),)) for each in range(CROWD)]
    )
    world.settle()
    world.say(Applied(Claim(namespace=NAMESPACE, name="c", uid="1")))
    assert world.state.cluster.storage_cache.waits.take(None) == [f"{NAMESPACE}/g"]
