"""What is made from the code and the manifests is as it would be made: `make docs-tables packages`
changes nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from control_plane.applying import load_yaml

from gangsched.api import gang_spec, keys
from gangsched.api.stated import Value
from gangsched.settings import Settings
from tests.docs_tables import FILES, ROOT, TABLES, marked, with_tables
from tests.packaging import (
    CHART,
    CHART_README,
    COPIES,
    INSTALL,
    SCHEMA,
    VALUES,
    chart_readme,
    described_values,
    values_schema,
)
from tests.test_docs_length import documents


@pytest.mark.parametrize("file", FILES)
def test_the_tables_are_as_the_code_makes_them(file: str) -> None:
    """After a change of a setting, a metric, a key or a right: run `make docs-tables`."""
    text = (ROOT / file).read_text()
    assert text == with_tables(text)


def test_every_table_stands_in_the_manual_once() -> None:
    """None is forgotten, and none is marked in a way that nobody finds."""
    assert sorted(name for _, name in marked()) == sorted(TABLES)
    texts = [(ROOT / file).read_text() for file in FILES]
    assert sum(len(re.findall(r"(?:<!--|#) table:", text)) for text in texts) == len(TABLES)


def test_a_table_that_differs_is_seen() -> None:
    """A row that somebody edits by hand, or deletes, is written anew."""
    text = (ROOT / "docs/reference/metrics.md").read_text()
    row = next(line for line in text.splitlines() if line.startswith("| `gangsched_cycles_total`"))
    for edited in (text.replace(row, row.replace("cycles", "turns")), text.replace(f"{row}\n", "")):
        assert edited != text
        assert with_tables(edited) == text


def test_the_config_map_has_every_setting_as_its_default() -> None:
    """With every comment taken away it is a settings file that changes nothing; as it stands it
    sets nothing.
    """
    (body,) = load_yaml(ROOT / "manifests" / "config.yaml")
    text = body["data"]["config.yaml"]
    assert yaml.safe_load(text) is None
    lines = [line.removeprefix("# ") for line in text.splitlines()]
    stated = yaml.safe_load(
        "\n".join(line for line in lines if line.partition(":")[0] in Settings.model_fields)
    )
    assert stated.keys() == Settings.model_fields.keys()
    assert (
        Settings(**{name: value for name, value in stated.items() if value is not None})
        == Settings()
    )


def test_the_deployment_reads_the_config_map() -> None:
    """The file that --config names is the key of the ConfigMap that is mounted there."""
    (body,) = load_yaml(ROOT / "manifests" / "config.yaml")
    (deployment,) = load_yaml(ROOT / "manifests" / "deployment.yaml")
    spec = deployment["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    config = Path(container["args"][container["args"].index("--config") + 1])
    (mount,) = [
        each for each in container["volumeMounts"] if each["mountPath"] == str(config.parent)
    ]
    (volume,) = [each for each in spec["volumes"] if each["name"] == mount["name"]]
    assert volume["configMap"]["name"] == body["metadata"]["name"]
    assert list(body["data"]) == [config.name]
    assert body["metadata"]["namespace"] == deployment["metadata"]["namespace"]


def test_the_table_of_keys_is_that_of_the_code() -> None:
    """I3: each value's keys, in their order of precedence; the marks of I2 likewise."""
    text = (ROOT / "docs" / "semantics" / "identity.md").read_text().replace("`K/", f"`{keys.K}")
    section = text.split("**I3. Values", 1)[1].split("**I4.", 1)[0]
    told: dict[str, tuple[str, ...]] = {}
    known: frozenset[str] = keys.VALUE_KEYS | {keys.LWS_SIZE}
    for name, cell in re.findall(r"(?m)^\| ([^|]+) \| ([^|]*)", section):
        if found := tuple(key for key in re.findall(r"`([^`]+)`", cell) if key in known):
            told.setdefault(name, found)
    values = [value for value in vars(gang_spec).values() if isinstance(value, Value)]
    read = {value.name: value.keys for value in values if known.issuperset(value.keys)}
    assert frozenset().union(*read.values()) == known
    assert told == read
    marks = text.split("**I2.", 1)[1].split("**I3.", 1)[0]
    identities = tuple(identity.key for identity in keys.IDENTITIES)
    named = [key for key in re.findall(r"`([^`]+)`", marks) if key in identities]
    assert tuple(dict.fromkeys(named)) == identities


def test_every_row_is_in_a_table() -> None:
    """A blank line in a table would end it, and its last rows would be shown as they are."""
    for name in documents():
        lines = ["", *(ROOT / name).read_text(encoding="utf-8").splitlines()]
        rows = [n for n, line in enumerate(lines) if line.lstrip().startswith("|")]
        heads = [n for n in rows if n - 1 not in rows]
        assert [lines[n] for n in heads if not re.fullmatch(r" *\|[-:| ]+\|", lines[n + 1])] == []


@pytest.mark.parametrize("copy", COPIES)
def test_the_chart_has_the_manifests_as_they_are(copy: str) -> None:
    """After a change of a manifest: run `make packages`."""
    assert (CHART / copy).read_text() == (ROOT / COPIES[copy]).read_text()


def test_no_copy_is_left_over() -> None:
    kept = [
        path
        for folder in ("files", "crds")
        for path in (CHART / folder).rglob("*")
        if path.is_file()
    ]
    assert {str(path.relative_to(CHART)) for path in kept} == set(COPIES)


def test_the_schema_of_the_chart_has_every_setting() -> None:
    """After a change of a setting: run `make packages`."""
    assert SCHEMA.read_text() == values_schema()


def test_the_charts_readme_describes_each_value() -> None:
    """After a change of values.yaml: run `make packages`."""
    assert CHART_README.read_text() == chart_readme()
    described = described_values(VALUES.read_text())
    properties = json.loads(SCHEMA.read_text())["properties"]
    sections = {path.partition(".")[0] for path in described if "." in path}
    for name in properties.keys() - sections - {"global"}:
        assert described[name]
    for name in sections:
        for key in properties[name]["properties"]:
            assert described[f"{name}.{key}"]


def sent(folder: Path) -> Iterator[Any]:
    """The objects of a kustomization, before it changes them."""
    for name in yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]:
        path = (folder / name).resolve()
        yield from sent(path) if path.is_dir() else load_yaml(path)


def test_install_yaml_has_the_manifests() -> None:
    """After a change of a manifest: run `make packages`. An e2e test asks kustomize itself."""
    image = yaml.safe_load((ROOT / "manifests" / "kustomization.yaml").read_text())["images"][0]
    named = f'"image": "{image["newName"]}:{image["newTag"]}"'
    ours = [plain(body).replace('"image": "gangsched"', named) for body in sent(ROOT / "manifests")]
    assert sorted(ours) == sorted(plain(body) for body in load_yaml(INSTALL))


def plain(body: Any) -> str:
    """An object as one text; kustomize doubles line breaks of folded texts, which are CEL
    expressions here.
    """
    return json.dumps(body, sort_keys=True).replace("\\n\\n", "\\n")
