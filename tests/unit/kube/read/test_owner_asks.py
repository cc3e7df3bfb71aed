"""Which owners are read: none where nobody asks (semantics O1, O7)."""

from __future__ import annotations

import pytest

from gangsched.api import keys
from gangsched.kube.read.owner_asks import OwnerAsks
from gangsched.model.objects import Namespace
from gangsched.model.owners import (
    ControllerRef,
    JobOwner,
    JobSetOwner,
    OwnerGangs,
    RayClusterOwner,
    StatefulSetOwner,
)
from gangsched.model.protocol import Applied, Gone, Replaced
from tests.builders import pod

ASKS = ((keys.OWNER_GANG, keys.OWNER),)
BUILT_IN = {JobOwner, StatefulSetOwner}


def asked(asks: OwnerAsks) -> set[type]:
    """The kinds that must be read."""
    return {kind for kind, event in asks.asked.items() if event.is_set()}


def test_nothing_is_read_where_nobody_asks() -> None:
    """O7: pods of Jobs, marked pods and pods without a controller ask for nothing."""
    asks = OwnerAsks(OwnerGangs.ASKED)
    asks.take(Applied(pod("p", owner="j", controller_kind="Job")))
    asks.take(Applied(pod("q", gang_metadata=ASKS)))
    out = ((keys.OWNER_GANG, keys.NO_OWNER),)
    asks.take(Applied(pod("r", owner="j", controller_kind="Job", gang_metadata=out)))
    asks.take(Applied(pod("s", owner="r", controller_kind="ReplicaSet", gang_metadata=ASKS)))
    asks.take(Applied(Namespace("ns", {"team": "a"})))
    assert asked(asks) == set()


@pytest.mark.parametrize(
    ("kind", "owner"),
    [("Job", JobOwner), ("StatefulSet", StatefulSetOwner), ("RayCluster", RayClusterOwner)],
)
def test_a_pod_asks_for_its_kind_of_owner(kind: str, owner: type) -> None:
    """O7: and for no other."""
    asks = OwnerAsks(OwnerGangs.ASKED)
    asking = pod("p", owner="j", controller_kind=kind, gang_metadata=ASKS)
    asks.take(Replaced(type(asking), (asking,)))
    assert asked(asks) == {owner}


def test_a_namespace_asks_for_all_kinds() -> None:
    """O1: as long as it has the label, its pods ask; what is read once is read further."""
    asks = OwnerAsks(OwnerGangs.ASKED)
    asks.take(Applied(Namespace("ml", {keys.OWNER_GANG: keys.OWNER})))
    assert asked(asks) == BUILT_IN
    assert (asks.of("ml"), asks.of("web")) == (OwnerGangs.ALL, OwnerGangs.ASKED)
    asks.take(Applied(Namespace("ml", {})))
    assert asks.of("ml") is OwnerGangs.ASKED
    asks.take(Replaced(Namespace, (Namespace("web", {keys.OWNER_GANG: keys.OWNER}),)))
    assert asks.of("web") is OwnerGangs.ALL
    asks.take(Gone(Namespace, "web"))
    assert asks.of("web") is OwnerGangs.ASKED


def test_objects_of_an_operator_are_read_from_its_first_pod_on() -> None:
    """O7: also where a namespace or the setting asks for all, since most clusters have none."""
    asking = pod("p", owner="r", controller_kind="RayCluster", namespace="ml")
    by_namespace = OwnerAsks(OwnerGangs.ASKED)
    by_namespace.take(Applied(asking))
    by_namespace.take(Applied(Namespace("ml", {keys.OWNER_GANG: keys.OWNER})))
    assert asked(by_namespace) == BUILT_IN
    by_namespace.take(Applied(pod("q", owner="r", controller_kind="RayCluster")))
    assert asked(by_namespace) == BUILT_IN
    by_namespace.take(Applied(asking))
    assert asked(by_namespace) == BUILT_IN | {RayClusterOwner}
    by_setting = OwnerAsks(OwnerGangs.ALL)
    by_setting.take(Applied(asking))
    assert asked(by_setting) == BUILT_IN | {RayClusterOwner}


def test_a_job_asks_for_its_own_owner() -> None:
    """O7: a pod does not show that its Job is one of a JobSet."""
    asks = OwnerAsks(OwnerGangs.ASKED)
    asks.take(Applied(JobOwner(uid="j", namespace="ns", name="j", minimum=1)))
    assert asked(asks) == set()
    of_set = ControllerRef("JobSet", "s", "u")
    job = JobOwner(uid="k", namespace="ns", name="k", minimum=1, controller=of_set)
    asks.take(Replaced(JobOwner, (job,)))
    assert asked(asks) == {JobSetOwner}


def test_the_setting_asks_for_all_or_for_nothing() -> None:
    """O1: whatever pods and namespaces say."""
    everything = OwnerAsks(OwnerGangs.ALL)
    assert asked(everything) == BUILT_IN
    assert everything.of("any") is OwnerGangs.ALL
    nothing = OwnerAsks(OwnerGangs.OFF)
    nothing.take(Applied(Namespace("ml", {keys.OWNER_GANG: keys.OWNER})))
    assert (asked(nothing), nothing.of("ml")) == (set(), OwnerGangs.OFF)


def test_pods_are_decoded_again_when_their_namespace_asks_otherwise() -> None:
    """O1: not of namespaces that are new, which have no pods yet."""
    asks = OwnerAsks(OwnerGangs.ASKED)
    label = {keys.OWNER_GANG: keys.OWNER}
    asks.take(Replaced(Namespace, (Namespace("ml", {}), Namespace("web", label))))
    asks.take(Applied(Namespace("new", label)))
    asks.take(Applied(Namespace("web", {**label, "team": "a"})))
    assert not asks.pods_again.is_set()
    for labels in (label, {}):
        asks.take(Applied(Namespace("ml", labels)))
        assert asks.pods_again.is_set()
        asks.pods_again.clear()

    asks.take(Replaced(Namespace, (Namespace("web", {}),)))  # after a watch that broke off
    assert asks.pods_again.is_set()
    asks.pods_again.clear()
    asks.take(Gone(Namespace, "ml"))
    asks.take(Applied(Namespace("ml", label)))
    assert not asks.pods_again.is_set()
