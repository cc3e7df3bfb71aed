"""ResourceClaims in the core: members run where allocated devices are; what is not allocated is not
supported.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from gangsched.core.cycle import plan
from gangsched.model.inter_pod import Requirement
from gangsched.model.objects import ClaimUse, NodeSelectorTerm, Pod
from gangsched.model.plan import Verdict
from gangsched.model.reasons import Reason
from gangsched.model.storage import Claim, ResourceClaim, Storage
from gangsched.sentences import say
from tests.builders import NAMESPACE, gang, group, node, pod, snapshot, verdict_on, where

NODES = [
    node("n0", labels={"rack": "a"}),
    node("n1", labels={"rack": "b"}),
    node("n2", labels={"rack": "b"}),
]


def on_node(*names: str) -> tuple[NodeSelectorTerm, ...]:
    """Where devices of a node can be used, as allocators write it."""
    return (NodeSelectorTerm(fields=(Requirement("metadata.name", "In", names),)),)


def claim(name: str, **fields: Any) -> ResourceClaim:
    """An allocated claim whose devices can be used anywhere."""
    return ResourceClaim(
        **{"namespace": NAMESPACE, "name": name, "uid": f"uid-{name}", "allocated": True, **fields}
    )


def using(name: str, *claims: str, made: bool = False, **fields: Any) -> Pod:
    """A pod with these ResourceClaims, which were `made` for it by a template or are there
    by name.
    """
    return pod(
        name, claims=tuple(ClaimUse(each, ephemeral=made, device=True) for each in claims), **fields
    )


def decide(
    *pods: Pod, claims: tuple[ResourceClaim, ...], unread: frozenset[Any] = frozenset()
) -> Verdict:
    """The verdict on a Strict gang of these pods."""
    store = Storage(devices={each.key: each for each in claims}, unread=unread)
    seen = structs.replace(snapshot(NODES), storage=store)
    return verdict_on(plan(seen, [group(gang("ns/g", pods))], now_s=0.0), "ns/g")


def test_members_run_where_their_devices_are() -> None:
    """The allocation's node selector counts, node names and labels alike; the pod is to be entered
    in each claim.
    """
    rack = (NodeSelectorTerm(labels=(Requirement("rack", "In", ("a",)),)),)
    verdict = decide(
        using("p0", "d0"),
        using("p1", "d1", "any"),
        claims=(claim("d0", required=on_node("n2")), claim("d1", required=rack), claim("any")),
    )
    assert where(verdict) == {"p0": "n2", "p1": "n0"}
    entered = {
        each.pod.name: [(c.key, c.uid, c.reserve) for c in each.claims] for each in verdict.binds
    }
    assert entered == {
        "p0": [("resourceclaims/ns/d0", "uid-d0", True)],
        "p1": [
            ("resourceclaims/ns/d1", "uid-d1", True),
            ("resourceclaims/ns/any", "uid-any", True),
        ],
    }


def test_a_pod_that_may_use_its_claim_is_not_entered_again() -> None:
    """A reservation that is there, ours from before a restart or another's, is left as it is."""
    one = using("p0", "d0")
    verdict = decide(one, claims=(claim("d0", reserved=("other", one.uid)),))
    assert [each.claims for each in verdict.binds] == [()]


def test_devices_out_of_reach() -> None:
    """Told as kube-scheduler counts it, after room."""
    verdict = decide(using("p0", "d0"), claims=(claim("d0", required=on_node("gone")),))
    assert verdict.reason is Reason.UNSCHEDULABLE
    assert (
        "0/3 nodes are available: 3 resourceclaim not available on the node"
        in say(verdict.told).text
    )
    full = decide(using("p0", "d0", gpus=99), claims=(claim("d0", required=on_node("gone")),))
    assert "3 Insufficient nvidia.com/gpu" in say(full.told).text


MANY = tuple(f"uid-{index}" for index in range(256))
PROBLEMS: dict[str, tuple[str, bool, tuple[ResourceClaim, ...], Reason, str]] = {
    "not made": (
        "",
        True,
        (),
        Reason.WAITING_FOR_VOLUMES,
        'pod "ns/p": ResourceClaim not created yet',
    ),
    "missing": ("d", False, (), Reason.WAITING_FOR_VOLUMES, 'could not find ResourceClaim "ns/d"'),
    "deleting": (
        "d",
        False,
        (claim("d", deleting=True),),
        Reason.WAITING_FOR_VOLUMES,
        'resourceclaim "d" is being deleted',
    ),
    "another's": (
        "d",
        True,
        (claim("d", owner_uid="other"),),
        Reason.WAITING_FOR_VOLUMES,
        "ResourceClaim ns/d was not created for Pod ns/p (Pod is not owner)",
    ),
    "full": (
        "d",
        False,
        (claim("d", reserved=MANY),),
        Reason.WAITING_FOR_VOLUMES,
        'resourceclaim "d" has 256 consumers, the maximum',
    ),
    "not allocated": (
        "d",
        False,
        (claim("d", allocated=False),),
        Reason.UNSUPPORTED,
        'resourceclaim "d" is not allocated, and the setting "devices" is "allocated"',
    ),
}


@pytest.mark.parametrize("case", PROBLEMS)
def test_claims_that_cannot_be_used(case: str) -> None:
    """The gang stays pending with one sentence that names the claim."""
    name, made, claims, reason, text = PROBLEMS[case]
    verdict = decide(using("p", name, made=made), claims=claims)
    assert (verdict.binds, verdict.reason) == ((), reason)
    assert say(verdict.told).stable == f"gang ns/g waits for pod ns/p: {text}"


def test_unread_kinds_matter_to_those_who_use_them() -> None:
    """Without ResourceClaims only pods with such wait; without PersistentVolumeClaims those with
    devices do not.
    """
    verdict = decide(using("p", "d"), claims=(claim("d"),), unread=frozenset({ResourceClaim}))
    assert "gangsched has no permission to read resourceclaims" in say(verdict.told).text
    assert where(decide(using("p", "d"), claims=(claim("d"),), unread=frozenset({Claim}))) != {}


def test_members_that_share_a_claim_share_its_place() -> None:
    """All members with one claim go where it is, and what does not fit there keeps the gang from
    starting.
    """
    claims = (claim("d", required=on_node("n1")),)
    assert set(
        where(decide(*(using(f"p{i}", "d", gpus=4) for i in range(2)), claims=claims)).values()
    ) == {"n1"}
    assert where(decide(*(using(f"p{i}", "d", gpus=4) for i in range(3)), claims=claims)) == {}
