"""What pods wait for that have a node."""

from __future__ import annotations

from gangsched.model.wait_facts import AwaitsClaims, GangAwaitsClaims, UnboundClaim
from gangsched.sentences.waits import worded_wait

AT = 1_893_456_059


def claims(number: int) -> tuple[UnboundClaim, ...]:
    """So many claims of one class."""
    return tuple(UnboundClaim(f"data-{index}", "fast") for index in range(number))


def of_pod(number: int) -> str:
    """The sentence of a pod with so many claims."""
    stable, now = worded_wait(AwaitsClaims(claims=claims(number), node="a", since_s=AT))
    assert now == ""
    return stable


def test_two_claims_are_named_and_more_are_counted() -> None:
    """E5: the sentence stays short for a pod with many."""
    assert of_pod(1) == (
        "waits for claim data-0 (class fast) since 2030-01-01T00:00Z; node a is reserved for it"
    )
    assert "data-0 (class fast) and claim data-1 (class fast) and 2 more claims since" in of_pod(4)
    assert "the claims of pods that start with it since" in of_pod(0)


def test_a_gang_names_some_of_its_claims() -> None:
    """E5: what may change while it waits is apart from what stays."""
    stable, now = worded_wait(
        GangAwaitsClaims(gang="ns/g", claims=claims(1), pods=1, since_s=AT),
    )
    assert stable == "gang ns/g waits for 1 claim since 2030-01-01T00:00Z"
    assert now == "claim data-0 (class fast); 1 pod has its node reserved"

    stable, now = worded_wait(GangAwaitsClaims(gang="ns/g", claims=(), pods=3, since_s=AT))
    assert "the claims of gangs that start with it" in stable
    assert now == "3 pods have their nodes reserved"


def test_devices_are_claims_of_another_kind() -> None:
    """E5: users look for them elsewhere."""
    of = (UnboundClaim("gpus", devices=True),)
    assert worded_wait(AwaitsClaims(claims=of, node="a", since_s=AT))[0].startswith(
        "waits for resourceclaim gpus since"
    )
