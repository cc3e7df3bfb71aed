"""What `manifests/monitoring` asks Prometheus: the panels of the dashboard and the alerts, read
from the files.

Invariant: it reads, and asks nobody. `$__rate_interval`, which Grafana fills in, becomes
`interval`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from control_plane.applying import ROOT

FOLDER = ROOT / "manifests" / "monitoring"
_SELECTOR = re.compile(r"\b([a-z_]+)(\{[^}]*\})")


@dataclass(frozen=True, slots=True)
class Query:
    """An expression, and how its series are called: `{{label}}` stands for a label's value."""

    expression: str
    legend: str

    def name(self, labels: dict[str, str]) -> str:
        """What a series is called."""
        return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), self.legend)


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel at its place on Grafana's grid of 24 columns; `row` is the title it stands under."""

    row: str
    title: str
    description: str
    unit: str
    is_number: bool
    is_stacked: bool
    x: int
    y: int
    width: int
    height: int
    queries: tuple[Query, ...]


@dataclass(frozen=True, slots=True)
class Alert:
    """An alerting rule."""

    name: str
    expression: str
    annotations: dict[str, str]


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    model: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
    return model


def panels(interval: str = "1m") -> Iterator[Panel]:
    """The panels with queries, in the order of the page."""
    row = ""
    for panel in dashboard()["panels"]:
        if panel["type"] == "row":
            row = panel["title"]
            continue
        place, defaults = panel["gridPos"], panel["fieldConfig"]["defaults"]
        yield Panel(
            row,
            panel["title"],
            panel["description"],
            defaults["unit"],
            panel["type"] == "stat",
            defaults.get("custom", {}).get("stacking", {}).get("mode") == "normal",
            place["x"],
            place["y"],
            place["w"],
            place["h"],
            tuple(
                Query(target["expr"].replace("$__rate_interval", interval), target["legendFormat"])
                for target in panel["targets"]
            ),
        )


def rules() -> dict[str, Any]:
    """The groups of rules, as a rule file of Prometheus has them."""
    spec: dict[str, Any] = yaml.safe_load((FOLDER / "rules.yaml").read_text())["spec"]
    return spec


def alerts() -> list[Alert]:
    """All alerting rules."""
    found = (rule for group in rules()["groups"] for rule in group["rules"])
    return [Alert(rule["alert"], rule["expr"], rule["annotations"]) for rule in found]


def selectors(expression: str) -> list[str]:
    """Every selector in an expression, as `name{labels}`; all of ours have labels."""
    return [name + labels for name, labels in _SELECTOR.findall(expression)]
