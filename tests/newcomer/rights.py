"""A scheduler that lacks a right, or a definition, while it runs."""

from __future__ import annotations

from control_plane import objects as make
from control_plane.api import Api
from control_plane.applying import apply_crds, apply_yaml

from tests.newcomer.case import GANG, ROOT, Case, Deed, create, nodes, pods, until

ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gangsched"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAMES = ("podgroups.scheduling.x-k8s.io", "podgroups.scheduling.sigs.k8s.io")
REVIEW = {
    "apiVersion": "authorization.k8s.io/v1",
    "kind": "SubjectAccessReview",
    "spec": {
        "user": "system:serviceaccount:gangsched-system:gangsched",
        "resourceAttributes": {
            "verb": "create",
            "resource": "pods",
            "subresource": "binding",
            "namespace": "default",
        },
    },
}


def may_bind(api: Api) -> bool:
    """Whether the daemon's account may bind pods now."""
    return bool(
        api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", REVIEW)["status"]["allowed"]
    )


def without(*resources: str) -> Deed:
    """Take every rule of the daemon's role away that names one of these."""

    def deed(api: Api) -> None:
        kept = [
            rule for rule in api.get(ROLE)["rules"] if not set(resources) & set(rule["resources"])
        ]
        api.patch(ROLE, {"rules": kept})
        if "pods/binding" in resources:
            until(lambda: not may_bind(api), "the right is gone")

    return deed


def as_in_the_manifests(api: Api) -> None:
    """Give the rights back."""
    apply_yaml(api, ROOT / "manifests" / "rbac.yaml")
    until(lambda: may_bind(api), "the right is there")


def no_definitions(api: Api) -> None:
    """Delete the definitions of PodGroups, and wait until the API server has forgotten them."""
    for name in NAMES:
        api.delete(f"{DEFINITIONS}/{name}")
    until(
        lambda: not any(api.healthy(f"{DEFINITIONS}/{name}") for name in NAMES),
        "the definitions are gone",
    )


CASES = (
    Case(
        slug="right-to-bind-missing",
        nodes=nodes(1),
        applied=[],
        deeds=[without("pods/binding"), create(*pods(1, group=""))],
        mend=[as_in_the_manifests],
        starts=1,
    ),
    Case(
        slug="definition-missing",
        nodes=nodes(2),
        applied=[],
        deeds=[no_definitions, create(*pods(2))],
        mend=[apply_crds, create(make.pod_group(GANG, min_member=2))],
        starts=2,
    ),
)
