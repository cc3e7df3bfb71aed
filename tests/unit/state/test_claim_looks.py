"""Members that wait for their claims, of which a turn looks at some."""

from __future__ import annotations

import pytest

from gangsched.model.objects import ClaimUse, Node
from gangsched.model.protocol import Applied, Gone
from gangsched.model.storage import Claim, StorageClass
from gangsched.state.claim_binding import TIMEOUT_S
from gangsched.state.claim_looks import ClaimLooks
from gangsched.state.members import ClaimsWait, Member, State
from tests.builders import NAMESPACE, node, pod
from tests.world import World

NODES = frozenset({"n0", "n1"})
LATE = StorageClass(name="late", provisioner="csi.test", waits=True)


def waiting(uid: str, on: str = "n0") -> Member:
    """A member that waits on a node."""
    return Member(
        pod(uid, uid=uid), State.WAITING_FOR_CLAIMS, gang=f"g-{uid}", node=on, wait=ClaimsWait()
    )


def three() -> ClaimLooks:
    """One waits for a claim, one for that and a volume on another node, one follows the second."""
    looks = ClaimLooks()
    looks.begin(waiting("third"), frozenset({"ns/shared"}), follows=True)
    looks.begin(waiting("first"), frozenset({"ns/c"}), follows=False)
    looks.begin(waiting("second", "n1"), frozenset({"ns/c", "v"}), follows=False)
    return looks


def taken(
    looks: ClaimLooks,
    *changed: str,
    nodes: frozenset[str] = NODES,
    now_s: float = 0.0,
) -> list[str]:
    """The uids of those that a turn looks at."""
    return [member.pod.uid for member in looks.take(changed, nodes, now_s)]


def test_a_turn_looks_at_those_whose_claims_changed() -> None:
    """Followers come in each turn, after all others."""
    looks = three()
    assert taken(looks) == ["third"]
    assert taken(looks, "ns/other", "ns/c") == ["first", "second", "third"]
    assert taken(looks, "v") == ["second", "third"]
    assert taken(looks, "ns/shared") == ["third"]


def test_whose_node_is_gone_is_looked_at_in_each_turn() -> None:
    """Until its wait ends."""
    looks = three()
    left = frozenset({"n0"})
    assert taken(looks, nodes=left) == ["second", "third"]
    assert taken(looks, nodes=left) == ["second", "third"]
    looks.end("second")
    assert taken(looks, nodes=left) == ["third"]


def test_a_mark_and_a_time_count_once() -> None:
    """The newest time counts, and neither outlasts the wait."""
    looks = three()
    looks.mark("first")
    looks.mark("nobody")
    looks.look_at("second", 5.0)
    looks.look_at("second", 7.0)
    assert taken(looks, now_s=6.0) == ["first", "third"]
    assert looks.next_s() == 7.0
    assert taken(looks, now_s=7.0) == ["second", "third"]
    assert taken(looks, now_s=9.0) == ["third"]

    looks.mark("first")
    looks.look_at("first", 5.0)
    for uid in ("first", "third", "third"):
        looks.end(uid)

    assert taken(looks, "ns/c", now_s=9.0) == ["second"]
    assert set(looks.members) == {"second"}
    assert (looks.any_of("g-first"), looks.any_of("g-second")) == (False, True)
    assert looks.next_s() == float("inf")


# --- in the state --------------------------------------------------------------------------------


def test_a_turn_looks_at_few_of_thousands_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only at the one whose claim changed; then nothing is due before their time limit."""
    number = 60
    world = World(node("n0", pods=number))
    world.controller = False  # nobody provisions
    world.say(Applied(LATE))
    names = [f"c{each}" for each in range(number)]
    world.say(
        *(
            Applied(Claim(namespace=NAMESPACE, name=name, uid=name, storage_class="late"))
            for name in names
        )
    )
    world.create([pod(name, gpus=0, claims=(ClaimUse(name),)) for name in names])
    world.settle()
    claims = world.state.claims
    assert len(claims.waiting()) == number

    looked_at: list[str] = []
    look = type(claims)._look_at_claims

    def counted(self: object, member: Member, wait: ClaimsWait, now_s: float) -> None:
        looked_at.append(member.pod.name)
        look(claims, member, wait, now_s)

    monkeypatch.setattr(type(claims), "_look_at_claims", counted)
    world.settle()
    assert looked_at == []
    assert claims.next_deadline_s() == world.now_s + TIMEOUT_S

    world.bind_claim(f"{NAMESPACE}/c7")
    world.settle()
    assert looked_at == ["c7"]
    assert set(world.bound()) == {"c7"}

    (there,) = {member.node for member in claims.waiting().values()}
    world.say(Gone(Node, there))
    world.settle()
    assert len(looked_at) == number
    assert not claims.waiting()
