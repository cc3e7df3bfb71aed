"""CompositePodGroups of Kubernetes 1.37, and PodGroups that name one as their parent (KEP-6012)."""

from __future__ import annotations

from typing import Any

import pytest

from gangsched.api import keys
from gangsched.api.podgroup import parse_pod_group
from gangsched.model.objects import PodGroup

RACK = "example.com/rack"


def composite(name: str = "svc", least: Any = 2, parent: str = "", **spec: Any) -> PodGroup:
    """CompositePodGroup ns/NAME as the API server returns it; `least` is its minGroupCount, or None
    for basic.
    """
    policy = {"basic": {}} if least is None else {"gang": {"minGroupCount": least}}
    stated = {
        "schedulingPolicy": policy,
        "disruptionMode": {"single": {}},
        "workloadRef": {"name": "w"},
        **spec,
    }
    if parent:
        stated["parentCompositePodGroupName"] = parent
    return parse_pod_group(body("CompositePodGroup", name, stated))


def native(name: str, least: int = 2, parent: str = "svc", **spec: Any) -> PodGroup:
    """Native PodGroup ns/NAME with a minimum, in a composite."""
    stated = {
        "schedulingPolicy": {"gang": {"minCount": least}},
        "parentCompositePodGroupName": parent,
        **spec,
    }
    return parse_pod_group(body("PodGroup", name, stated))


def body(kind: str, name: str, spec: Any) -> dict[str, Any]:
    """An object of `scheduling.k8s.io`."""
    metadata = {
        "namespace": "ns",
        "name": name,
        "uid": f"{kind}-{name}",
        "creationTimestamp": "2026-08-01T12:00:01Z",
    }
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha3",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    }


def test_a_composite_states_a_minimum_of_children_a_parent_and_levels() -> None:
    """Its id is no PodGroup's, since one may have the same name."""
    found = composite(
        parent="all", schedulingConstraints={"topology": [{"key": RACK}]}, preemptionPolicy="Never"
    )
    assert (found.api_group, found.version, found.id) == (
        keys.COMPOSITE,
        "v1alpha3",
        "ns/composite:svc",
    )
    assert (found.object_name, found.parent, found.min_children) == ("svc", "composite:all", 2)
    assert (found.topology, found.is_composite, found.never_preempts) == ((RACK,), True, True)
    assert (found.unsupported, found.invalid, found.not_used, found.problems) == ((), (), (), ())
    assert composite(least=None).min_children == 0
    assert composite(disruptionMode={"all": {}}).indivisible
    assert native("a").parent == "composite:svc"


def test_items_of_a_list_have_no_kind() -> None:
    """Who lists says of which kind they are."""
    item = body("", "svc", {"schedulingPolicy": {"gang": {"minGroupCount": 3}}})
    del item["apiVersion"], item["kind"]
    assert parse_pod_group(item, api_group=keys.COMPOSITE, version="v1alpha3").min_children == 3
    assert not parse_pod_group(item, api_group=keys.NATIVE, version="v1alpha3").is_composite


@pytest.mark.parametrize(
    "policy",
    [
        None,
        {},
        [],
        {"gang": {}},
        {"gang": {"minGroupCount": 0}},
        {"gang": {"minGroupCount": "2"}},
        {"basic": 1},
    ],
)
def test_a_policy_that_cannot_be_read_refuses(policy: Any) -> None:
    """A5: not all children, and not each by itself."""
    found = parse_pod_group(body("CompositePodGroup", "svc", {"schedulingPolicy": policy}))
    assert (
        "of CompositePodGroup ns/svc has neither basic nor a minGroupCount above 0"
        in found.invalid[0]
    )


def test_what_is_not_used_or_supported_is_named() -> None:
    """A2."""
    assert composite(priority=7).not_used == (
        (
            "spec.priority 7 of CompositePodGroup ns/svc is not used: gangsched uses the priorities"
            " of its pods"
        ),
    )
    (refused,) = composite(
        schedulingConstraints={"topology": [{"key": RACK, "mode": "x"}]}
    ).unsupported
    assert refused.startswith(
        "spec.schedulingConstraints of CompositePodGroup ns/svc is not supported"
    )
    (unread,) = composite(parentCompositePodGroupName=["x"]).invalid
    assert unread.startswith("spec.parentCompositePodGroupName")
