"""Settings on the command line: each is an option, and `gangsched config` says what is in effect
and why.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gangsched import __version__
from gangsched.cli import cli
from gangsched.options import written
from gangsched.settings import Settings


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the machine that runs the tests takes part."""
    for name in Settings.model_fields:
        monkeypatch.delenv(f"GANGSCHED_{name.upper()}", raising=False)


def call(*arguments: str) -> Result:
    """Run a command line."""
    return CliRunner().invoke(cli, list(arguments))


def told(*arguments: str) -> dict[str, tuple[object, str]]:
    """Value and source of each setting, as `gangsched config -o json` has them."""
    result = call("config", "-o", "json", *arguments)
    assert result.exit_code == 0, result.output
    return {
        name: (each["value"], each["source"]) for name, each in json.loads(result.stdout).items()
    }


def test_every_setting_is_a_flag() -> None:
    """Each takes its own default as a flag, in the form that the environment has it, and is then
    said to be one.
    """
    given: list[str] = []
    expected = set()
    for name, field in Settings.model_fields.items():
        if isinstance(field.default, bool):
            given.append(f"--no-{name.replace('_', '-')}")
        elif field.default in {None, "", ()}:
            continue
        else:
            given += [f"--{name.replace('_', '-')}", written(field.default)]
        expected.add(name)
    found = told(*given)
    assert {name for name, (_, source) in found.items() if source.startswith("flag --")} == expected
    assert {name: value for name, (value, _) in found.items()} == Settings().model_dump(mode="json")


def test_where_each_value_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flag over environment over file over default; each says so."""
    config = tmp_path / "c.yaml"
    config.write_text("reservations: 1\nhealth_port: 1\nbind_connections: 1\n")
    monkeypatch.setenv("GANGSCHED_HEALTH_PORT", "2")
    monkeypatch.setenv("GANGSCHED_BIND_CONNECTIONS", "2")
    found = told(
        "--config",
        str(config),
        "--bind-connections",
        "3",
        "--scheduler-name",
        "a",
        "--scheduler-name",
        "b",
    )
    assert found["reservations"] == (1, f"file {config}")
    assert found["health_port"] == (2, "environment variable GANGSCHED_HEALTH_PORT")
    assert found["bind_connections"] == (3, "flag --bind-connections")
    assert found["scheduler_names"] == (["a", "b"], "flag --scheduler-names")
    assert found["wait_time_s"] == (600.0, "default")


def test_the_table_has_a_line_for_each() -> None:
    """As people read it: name, value, source; nothing is shown as a dash."""
    lines = call("config", "--leader-elect").stdout.splitlines()
    assert lines[0].split() == ["SETTING", "VALUE", "SOURCE"]
    assert [line.split()[0] for line in lines[1:]] == list(Settings.model_fields)
    rows = {line.split()[0]: line.split()[1:] for line in lines[1:]}
    assert rows["leader_elect"] == ["true", "flag", "--leader-elect"]
    assert rows["kubeconfig"] == ["-", "default"]


def test_a_wrong_flag_is_one_sentence() -> None:
    """A flag's value is judged as that of a variable or a file, with the same words."""
    result = call("config", "--health-port", "70000")
    assert result.exit_code == 2
    assert (
        result.stderr
        == 'gangsched: health_port is "70000" in the flags: it should be less than or equal to'
        " 65535.\n"
    )


def test_the_version_is_an_option_too() -> None:
    """As other programs have it."""
    result = call("--version")
    assert (result.exit_code, result.stdout) == (0, f"gangsched {__version__}\n")
