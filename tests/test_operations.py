"""docs/operations.md and docs/reference tell the operator of everything: metrics, reasons,
permissions.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from gangsched.api.podgroup import NATIVE_SATISFIED
from gangsched.kube.http import permissions
from gangsched.model.disruption import DISRUPTION_TARGET
from gangsched.model.reasons import EventReason, GangReason, Reason
from gangsched.settings import Settings
from gangsched.state.debug_view import describe_gang
from gangsched.state.reporting.reserved import RESERVED
from gangsched.state.reporting.status import DEGRADED, INVALID_GANG, TIMED_OUT
from tests.builders import members, node
from tests.world import World

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("operations.md", "reference/metrics.md", "reference/permissions.md")
TEXT = "\n".join((ROOT / "docs" / page).read_text() for page in PAGES)


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading, without its head."""
    section = TEXT.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    found: list[list[str]] = []
    for line in section.splitlines():
        if line.startswith("|"):
            found.append([cell.strip() for cell in line.strip("|").split(" | ")])
        elif found:
            break
    return found[2:]


@pytest.mark.parametrize(
    "reason",
    [*Reason, *GangReason, *EventReason],
    ids=lambda each: f"{type(each).__name__}.{each}",
)
def test_every_reason_says_what_to_do_next(reason: Reason | GangReason | EventReason) -> None:
    """Each reason has a row with its meaning and what to do next."""
    heading = "Events" if isinstance(reason, EventReason) else "Reasons"
    (row,) = [row for row in rows(heading) if row[0] == f"`{reason.value}`"]
    assert len(row) == 3
    assert all(row), row


@pytest.mark.parametrize("reason", [*Reason, *GangReason], ids=str)
def test_every_reason_has_an_example(reason: Reason | GangReason) -> None:
    """A sentence in its row, or a case under its heading in the page for newcomers."""
    (row,) = [row for row in rows("Reasons") if row[0] == f"`{reason.value}`"]
    newcomers = (ROOT / "docs" / "troubleshooting.md").read_text()
    section = newcomers.partition(f"\n## {reason.value}\n")[2].partition("\n## ")[0]
    assert re.search(r"`[^` ]+ [^`]+`", row[1]) or "<!-- case: " in section


def test_the_tables_have_no_reason_that_is_gone() -> None:
    """No row outlives its reason."""
    for heading, known in (("Reasons", (*Reason, *GangReason)), ("Events", EventReason)):
        assert {row[0].strip("`") for row in rows(heading)} == {reason.value for reason in known}


@pytest.mark.parametrize(
    "condition",
    [
        "PodScheduled",
        "Scheduled",
        RESERVED,
        DEGRADED,
        DISRUPTION_TARGET,
        TIMED_OUT,
        INVALID_GANG,
        "PodGroupScheduled",
        "PodGroupInitiallyScheduled",
        NATIVE_SATISFIED,
    ],
)
def test_every_condition_is_explained(condition: str) -> None:
    """Each condition type that is written has a row."""
    assert f"`{condition}`" in {row[0] for row in rows("Conditions")}


def granted(role: str) -> set[tuple[str, str, str]]:
    """(verb, API group, resource) of all rules of a role in the manifests."""
    files = sorted((ROOT / "manifests").glob("rbac*.yaml"))
    documents = [document for file in files for document in yaml.safe_load_all(file.read_text())]
    (found,) = [
        each
        for each in documents
        if each["kind"].endswith("Role") and each["metadata"]["name"] == role
    ]
    return {
        (verb, api_group, resource)
        for rule in found["rules"]
        for verb in rule["verbs"]
        for api_group in rule["apiGroups"]
        for resource in rule["resources"]
    }


ROLES = {
    "gangsched-preemption": "PREEMPTION",
    "gangsched-devices": "ALLOCATION",
    "gangsched-extended-resources": "EXTENDED_RESOURCES",
    "gangsched-provisioning": "PROVISIONING",
    "gangsched-dialects": "DIALECT_KINDS",
    "gangsched-owners": "OWNERS",
    "gangsched-owners-jobset": "JOBSET_OWNERS",
    "gangsched-owners-kuberay": "KUBERAY_OWNERS",
    "gangsched-owners-kubeflow": "KUBEFLOW_OWNERS",
    "gangsched-preemption-last-resort": "LAST_RESORT",
    "gangsched-leader-election": "LEASES",
}
"""The tables with roles of their own; one role has all others."""


@pytest.mark.parametrize("role", ["gangsched", *ROLES])
def test_a_role_grants_exactly_what_is_needed(role: str) -> None:
    """The manifests grant the permissions of the tables, and nothing else."""
    needed = {
        (
            each.verb,
            each.api_group,
            "/".join(part for part in (each.resource, each.subresource) if part),
        )
        for name, table in vars(permissions).items()
        if isinstance(table, tuple)
        and (name == ROLES[role] if role in ROLES else name not in ROLES.values())
        for each in table
        if isinstance(each, permissions.Permission)
    }
    assert granted(role) == needed


def test_leader_election_has_one_lease_in_one_namespace() -> None:
    """Its role is no ClusterRole, and names the Lease but for `create`, which cannot be restricted
    so.
    """
    documents = yaml.safe_load_all((ROOT / "manifests" / "rbac.yaml").read_text())
    (role,) = [each for each in documents if each["kind"] == "Role"]
    assert role["metadata"]["namespace"] == Settings().lease_namespace
    named = {verb: rule.get("resourceNames") for rule in role["rules"] for verb in rule["verbs"]}
    assert named.pop("create") is None
    assert set(named) == {"get", "update", "watch"}
    assert all(names == [Settings().lease_name] for names in named.values())


def test_the_last_resort_is_bound_to_nobody() -> None:
    """V26: `delete pods` is granted by an administrator's own binding only."""
    files = sorted((ROOT / "manifests").glob("rbac*.yaml"))
    documents = [document for file in files for document in yaml.safe_load_all(file.read_text())]
    bound = {each["roleRef"]["name"] for each in documents if each["kind"] == "ClusterRoleBinding"}
    optional = {
        f"gangsched-{each}"
        for each in (
            "preemption",
            "dialects",
            "owners",
            "owners-jobset",
            "owners-kuberay",
            "owners-kubeflow",
            "devices",
            "extended-resources",
            "provisioning",
        )
    }
    assert bound == {"gangsched", *optional}


@pytest.mark.parametrize(
    "permission",
    [
        each
        for table in vars(permissions).values()
        if isinstance(table, tuple)
        for each in table
        if isinstance(each, permissions.Permission)
    ],
    ids=str,
)
def test_every_right_is_explained(permission: permissions.Permission) -> None:
    """What is asked for has a row that says why: the resource, its API group's own name aside, and
    the verb.
    """
    resource = "/".join(part for part in (permission.resource, permission.subresource) if part)
    words = [re.split(r"[ ,;]+", row[0]) for row in rows("Rights")]
    assert any(resource in row and permission.verb in row for row in words)


def test_every_field_of_the_debug_page_is_explained() -> None:
    """Each key of a gang's JSON is named in the first section, and none that is gone."""
    world = World(node("a"))
    world.create(members("g", 2, mode="NonStrict"))
    described = describe_gang(world.settle().state, "ns/g", now_s=world.now_s)
    assert described is not None
    section = TEXT.split("shows one gang as JSON", 1)[1].split("\n## ", 1)[0]
    named = {
        name
        for cell in re.findall(r"(?m)^- (`.*?): ", section)
        for name in re.findall(r"`(\w+)`", cell)
    }
    assert named == set(described)


RECIPES = (
    "/livez",
    "/readyz",
    "/metrics",
    "/debug/gangs",
    "port-forward",
    "describe podgroup",
    "-o jsonpath",
    "gang.scheduling.koordinator.sh/timeout",
    "delete -k manifests",
)


@pytest.mark.parametrize("word", RECIPES)
def test_the_recipes_are_there(word: str) -> None:
    """What one types at three in the morning is in the text."""
    assert word in TEXT
