"""manifests/monitoring asks for nothing that is not there, and every alert has its paragraph in the
runbook.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from control_plane.monitoring import (
    FOLDER,
    Alert,
    Panel,
    alerts,
    dashboard,
    panels,
    rules,
    selectors,
)

from tests.docs_tables import families

ROOT = Path(__file__).resolve().parents[1]
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
ALERTS = alerts()
PANELS = list(panels())
EXPRESSIONS = [
    *(query.expression for panel in PANELS for query in panel.queries),
    *(each.expression for each in ALERTS),
]
REPOSITORY = "https://github.com/gangsched/gangsched/blob/main"
OF_PROMETHEUS = {"up"}
OF_THE_PROCESS = {
    "process_resident_memory_bytes",
    "process_cpu_seconds_total",
    "process_start_time_seconds",
}


def known() -> dict[str, set[str]]:
    """The labels of every sample of ours, by its name."""
    found: dict[str, set[str]] = {name: set() for name in OF_PROMETHEUS | OF_THE_PROCESS}
    for family in families():
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_query_is_about_what_the_daemon_shows(expression: str) -> None:
    """Each name, and each label that a selector names, exists; each selector is of our job."""
    asked, have = selectors(expression), known()
    assert asked
    assert not re.findall(r"\bgangsched_\w+(?![\w{])", expression), "a name without labels"
    for selector in asked:
        name, _, labels = selector.rstrip("}").partition("{")
        assert name in have, selector
        stated = dict(part.split("=", 1) for part in re.findall(r'\w+=~?"[^"]*"', labels))
        assert stated.pop("job") == '"gangsched"'
        assert stated.keys() <= have[name], selector


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_every_alert_has_its_paragraph_in_the_runbook(alert: Alert) -> None:
    """The link leads to a heading of its name, under which there is a command to run first."""
    assert alert.annotations["runbook_url"] == f"{REPOSITORY}/docs/runbook.md#{alert.name.lower()}"
    (section,) = re.findall(rf"(?ms)^## {alert.name}\n(.*?)(?=^## |\Z)", RUNBOOK)
    assert re.search(r"(?m)^\$ (kubectl|curl|logs) ", section), section
    assert alert.annotations["summary"].endswith(".")


def test_the_runbook_defines_what_its_commands_use() -> None:
    """`logs` and `leader`, before the first alert; no paragraph spells the command out."""
    before, _, after = RUNBOOK.partition("\n## ")
    assert re.search(r"(?m)^\$ logs\(\) \{ kubectl -n gangsched-system logs .*; \}$", before)
    assert "$ leader=pod/" in before
    assert "gangsched-system logs -l" not in after


def test_the_runbook_has_no_alert_that_is_gone() -> None:
    """Its headings are the alerts, in their order."""
    assert re.findall(r"(?m)^## (\w+)$", RUNBOOK) == [alert.name for alert in ALERTS]


def test_every_alert_is_tried_by_promtool() -> None:
    """Each fires in some case of alerts.test.yaml, and each is told to be silent in the one where
    all is well.
    """
    cases = yaml.safe_load((ROOT / "tests" / "monitoring" / "alerts.yaml").read_text())["tests"]
    told = [each for case in cases for each in case["alert_rule_test"]]
    assert {each["alertname"] for each in told if each["exp_alerts"]} == {
        alert.name for alert in ALERTS
    }
    (well,) = [case for case in cases if case["name"] == "all is well"]
    assert {each["alertname"] for each in well["alert_rule_test"]} == {
        alert.name for alert in ALERTS
    }
    assert not any(each["exp_alerts"] for each in well["alert_rule_test"])


def test_rules_are_grouped_and_graded() -> None:
    """Each has a severity that a route can ask for."""
    found = [rule for group in rules()["groups"] for rule in group["rules"]]
    assert {rule["labels"]["severity"] for rule in found} == {"critical", "warning", "info"}
    assert len({rule["alert"] for rule in found}) == len(found)


def test_the_service_monitor_finds_the_service() -> None:
    """Its selector, port and job are those of manifests/service.yaml."""
    monitor = yaml.safe_load((FOLDER / "service-monitor.yaml").read_text())
    service = yaml.safe_load((ROOT / "manifests" / "service.yaml").read_text())
    labels = service["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert [each["port"] for each in monitor["spec"]["endpoints"]] == [
        port["name"] for port in service["spec"]["ports"]
    ]
    assert labels[monitor["spec"]["jobLabel"]] == "gangsched"
    assert monitor["metadata"]["namespace"] == service["metadata"]["namespace"]


def test_the_kustomization_names_every_file() -> None:
    """Nothing in the folder is forgotten."""
    listed = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    files = {
        *listed["resources"],
        *(name for each in listed["configMapGenerator"] for name in each["files"]),
    }
    assert files == {path.name for path in FOLDER.iterdir()} - {"kustomization.yaml"}


def overlap(one: Panel, other: Panel) -> bool:
    """Whether two panels cover one place."""
    return (
        one.x < other.x + other.width
        and other.x < one.x + one.width
        and one.y < other.y + other.height
        and other.y < one.y + one.height
    )


def test_the_panels_of_the_dashboard_lie_beside_each_other() -> None:
    """Each is on the grid of 24 columns and covers none other; each is explained, and has an id of
    its own.
    """
    assert all(
        panel.x + panel.width <= 24 and panel.description and panel.queries for panel in PANELS
    )
    assert not [(a.title, b.title) for a in PANELS for b in PANELS if a is not b and overlap(a, b)]
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(ids)) == len(ids)


def test_every_metric_of_gangs_is_on_the_page() -> None:
    """What is measured of gangs, plans, binds, preemption and reservations is shown, but what says
    the same again.
    """
    shown = {name for each in EXPRESSIONS for name in re.findall(r"gangsched_\w+", each)}
    names = {
        family.name
        for family in families()
        if "part" not in {k for s in family.samples for k in s.labels}
    }
    left_out = {name for name in names if not any(each.startswith(name) for each in shown)}
    assert left_out <= {
        "gangsched_loop_stall_max_seconds",
        "gangsched_pods",
        "gangsched_reserved_idle_seconds",
    } | {name for name in names if name.startswith("leader_election")}
