"""What is made from the manifests: install.yaml, and the files of the chart. `make packages`
writes, tests check.

Invariant: nothing of what is made is edited by hand. manifests/install.yaml is what kustomize makes
of manifests/. The chart has copies of the manifests that it does not template, and the schema of
its value `settings` is that of `Settings`.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml
from control_plane.components import KUBECTL

from gangsched.removed import REMOVED, was_removed
from gangsched.settings import Settings

ROOT = Path(__file__).resolve().parents[1]
INSTALL = ROOT / "manifests" / "install.yaml"
CHART = ROOT / "charts" / "gangsched"
SCHEMA = CHART / "values.schema.json"
VALUES = CHART / "values.yaml"
CHART_README = CHART / "README.md"

COPIES = {
    "crds/scheduling.x-k8s.io_podgroups.yaml": "crds/scheduling.x-k8s.io_podgroups.yaml",
    **{
        f"files/{name}": f"manifests/{name}"
        for name in (
            "admission.yaml",
            "pdb.yaml",
            "priority-class.yaml",
            "rbac.yaml",
            "rbac-preemption.yaml",
            "rbac-dialects.yaml",
            "rbac-owners.yaml",
            "rbac-owners-jobset.yaml",
            "rbac-owners-kuberay.yaml",
            "rbac-owners-kubeflow.yaml",
            "rbac-devices.yaml",
            "rbac-extended-resources.yaml",
            "rbac-provisioning.yaml",
            "rbac-users.yaml",
            "service.yaml",
        )
    },
    **{
        f"files/{name}": f"manifests/monitoring/{name}"
        for name in ("dashboard.json", "rules.yaml", "service-monitor.yaml")
    },
    **{
        f"files/visibility/{path.name}": f"manifests/visibility/{path.name}"
        for path in (ROOT / "manifests" / "visibility").glob("*.yaml")
        if path.name != "kustomization.yaml"
    },
}
"""The file in the chart → the one that it is a copy of."""

CHOSEN_BY_THE_CHART = {
    "kubeconfig",
    "bind_address",
    "health_port",
    "visibility_port",
    "visibility_cert_dir",
    "leader_elect",
    "state_dir",
    "lease_namespace",
    "identity",
}
"""Settings that a user of the chart cannot give: flags and other objects of the chart depend on
them.
"""

SPELLED = {"preemption": {"const": False, "description": "YAML reads off so."}}
"""What `Settings` takes beside what its schema says."""


def kustomized(folder: Path) -> str:
    """What `kubectl apply -k` would send."""
    done = subprocess.run(
        [KUBECTL, "kustomize", folder], capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode:
        raise RuntimeError(f"kubectl kustomize {folder}: {done.stderr.strip()}")
    return done.stdout


def install_yaml() -> str:
    """manifests/ as one file."""
    return f"# Made from manifests/ by `make packages`.\n{kustomized(ROOT / 'manifests')}"


def settings_schema() -> dict[str, Any]:
    """The JSON schema of the chart's value `settings`: every setting by its name, and what took the
    place of others.
    """
    whole = Settings.model_json_schema()
    definitions = whole.get("$defs", {})
    properties = {
        name: _plain(name, schema, definitions)
        for name, schema in whole["properties"].items()
        if name not in CHOSEN_BY_THE_CHART
    }
    # JSON Schema has no sentence of its own for a property that is not there any more; Helm prints
    # what it must be.
    properties |= {name: {"const": f"{name} {was_removed(name)}"} for name in REMOVED}
    return {
        "type": "object",
        "description": "Settings of the daemon, as in its YAML file.",
        "additionalProperties": False,
        "properties": properties,
    }


def _plain(name: str, schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """A property without references, titles, defaults and formats; lists may be written with
    commas, too.
    """
    kept = {
        key: value
        for key, value in schema.items()
        if key not in {"title", "default", "format", "$ref"}
    }
    if "$ref" in schema:
        target = definitions[schema["$ref"].rpartition("/")[2]]
        kept = {"type": target["type"], "enum": target["enum"], **kept}
    if kept.get("type") == "array":
        return _either(kept, {"type": "string", "minLength": 1})
    return _either(kept, SPELLED[name]) if name in SPELLED else kept


def _either(schema: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """This or the other; the description stays where it is looked for."""
    description = schema.pop("description")
    return {"description": description, "anyOf": [schema, other]}


def values_schema() -> str:
    """values.schema.json with the settings and the permissions as they are now."""
    schema = json.loads(SCHEMA.read_text())
    schema["properties"]["settings"] = settings_schema()

    # Each switch of values.yaml turns the role of that name on: one that the schema lacks could not
    # be turned off either, since the schema takes no other names.
    permissions = yaml.safe_load(VALUES.read_text())["rbac"]
    schema["properties"]["rbac"]["properties"] = {
        permission: {"type": "boolean"} for permission in permissions
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


# --- the chart's values -------------------------------------------------------------------------

HEAD_OF_VALUES = "| value | default | for |\n|---|---|---|\n"
LONGEST_DEFAULT = 40
"""Characters; longer ones are looked up in values.yaml."""


def described_values(text: str) -> dict[str, str]:
    """The path of each value that a comment `# -- …` describes, with the comment."""
    found: dict[str, str] = {}
    words: list[str] = []
    parent = ""
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("# -- ") or (words and stripped.startswith("# ")):
            words.append(stripped.removeprefix("# ").removeprefix("-- "))
            continue
        key = re.match(r"( *)(\w+):", line)
        if key and not key[1]:
            parent = key[2]
        if key and words:
            found[f"{parent}.{key[2]}" if key[1] else key[2]] = " ".join(words)
        words = []
    return found


def values_table() -> str:
    """The values of the chart as Markdown."""
    text = VALUES.read_text()
    values = yaml.safe_load(text)
    lines = []
    for path, description in described_values(text).items():
        default = values
        for key in path.split("."):
            default = default[key]
        shown = json.dumps(default, ensure_ascii=False)
        cell = f"`{shown}`" if len(shown) <= LONGEST_DEFAULT else "values.yaml"
        lines.append(f"| `{path}` | {cell} | {description} |\n")
    return HEAD_OF_VALUES + "".join(lines)


def chart_readme() -> str:
    """The chart's README with the table of its values as they are now."""
    head = re.escape(HEAD_OF_VALUES)
    made = values_table()
    return re.sub(rf"{head}(?:\|.*\n)*", lambda _: made, CHART_README.read_text())


def main() -> None:
    """Write what is made."""
    for copy, original in COPIES.items():
        (CHART / copy).write_text((ROOT / original).read_text())
    SCHEMA.write_text(values_schema())
    CHART_README.write_text(chart_readme())
    INSTALL.write_text(install_yaml())


if __name__ == "__main__":
    main()
