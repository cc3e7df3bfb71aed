"""The command line: what each ending of the daemon looks like to the one who started it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner, Result

from gangsched import __version__
from gangsched.cli import cli, guarded
from gangsched.kube.http.faults import Misconfigured
from gangsched.removed import REMOVED
from gangsched.settings import LogFormat, LogLevel, Settings, SettingsError
from tests.interpreter import printed_by


class FakeApp(ModuleType):
    """A `gangsched.app` whose daemon notes its settings and ends as told."""

    def __init__(self, ending: BaseException | int = 0) -> None:
        super().__init__("gangsched.app")
        self.ending = ending
        self.given: list[Settings] = []

    def run_daemon(self, settings: Settings, read: object = None, file: object = None) -> int:
        """End at once."""
        self.given.append(settings)
        if isinstance(self.ending, BaseException):
            raise self.ending
        return self.ending


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch, own_logging: None) -> FakeApp:
    """The fake daemon, in a process whose logging and environment are its own."""
    fake = FakeApp()
    monkeypatch.setitem(sys.modules, "gangsched.app", fake)
    for name in Settings.model_fields:
        monkeypatch.delenv(f"GANGSCHED_{name.upper()}", raising=False)
    return fake


def call(*arguments: str) -> Result:
    """Run a command line."""
    return CliRunner().invoke(cli, list(arguments))


def test_run_hands_the_flags_to_the_daemon(app: FakeApp) -> None:
    """Every flag becomes its setting, and the daemon's exit code is ours."""
    app.ending = 7
    result = call(
        "run",
        "--kubeconfig",
        "/k",
        "--scheduler-name",
        "a",
        "--scheduler-name",
        "b",
        "--node-selector",
        "pool=a",
        "--health-port",
        "0",
        "--log-format",
        "console",
        "--log-level",
        "debug",
    )
    assert result.exit_code == 7
    assert app.given == [
        Settings(
            kubeconfig=Path("/k"),
            scheduler_names=("a", "b"),
            node_selector="pool=a",
            health_port=0,
            log_format=LogFormat.CONSOLE,
            log_level=LogLevel.DEBUG,
        )
    ]


def test_run_without_flags_takes_the_defaults(app: FakeApp) -> None:
    """A flag that was not given overrides nothing."""
    assert call("run").exit_code == 0
    assert app.given == [Settings()]


def test_run_reads_the_config_file(app: FakeApp, tmp_path: Path) -> None:
    """--config names the settings file, and a flag wins over it."""
    config = tmp_path / "c.yaml"
    config.write_text("health_port: 1\nbind_connections: 2\n")
    assert call("run", "--config", str(config), "--health-port", "3").exit_code == 0
    assert (app.given[0].health_port, app.given[0].bind_connections) == (3, 2)


@pytest.mark.parametrize("name", sorted(REMOVED))
def test_a_removed_flag_starts_nothing(app: FakeApp, name: str) -> None:
    """Exit code 2 and the sentence that names its replacement; `--help` does not show it."""
    result = call("run", f"--{name.replace('_', '-')}", "1")
    assert (result.exit_code, app.given) == (2, [])
    assert (
        result.stderr
        == f"gangsched: {name} (flag --{name.replace('_', '-')}) was removed: {REMOVED[name]}.\n"
    )
    assert f"--{name.replace('_', '-')}" not in call("run", "--help").stdout.split()


def test_a_wrong_setting_is_one_sentence_and_code_2(app: FakeApp, tmp_path: Path) -> None:
    """An unknown field ends the start with its name; the daemon is not started."""
    config = tmp_path / "c.yaml"
    config.write_text("helth_port: 1\n")
    result = call("run", "--config", str(config))
    assert result.exit_code == 2
    assert (
        result.stderr
        == f'gangsched: the file {config} has "helth_port", which is no setting (did you mean'
        ' "health_port"?).\n'
    )
    assert app.given == []


@pytest.mark.parametrize(
    "ending",
    [
        Misconfigured("No cluster: start one."),
        SettingsError("No cluster: start one."),
        ExceptionGroup(
            "tasks", [ExceptionGroup("inner", [Misconfigured("No cluster: start one.")])]
        ),
    ],
)
def test_what_can_be_mended_is_one_sentence_and_code_2(app: FakeApp, ending: Exception) -> None:
    """No cluster, missing RBAC, a port in use: the sentence, no traceback, also out of a task
    group.
    """
    app.ending = ending
    result = call("run")
    assert result.exit_code == 2
    assert result.stderr == "gangsched: No cluster: start one.\n"
    assert result.stdout == ""


@pytest.mark.parametrize(
    "ending",
    [
        ZeroDivisionError("oops"),
        ExceptionGroup("tasks", [Misconfigured("x."), ZeroDivisionError("oops")]),
    ],
)
def test_a_bug_is_a_traceback_in_the_log_and_code_1(app: FakeApp, ending: Exception) -> None:
    """A bug is never hidden behind something that can be mended, and its traceback is in
    the log.
    """
    app.ending = ending
    result = call("run")
    assert result.exit_code == 1
    assert '"level": "critical"' in result.stderr
    assert "Traceback" in result.stderr
    assert "ZeroDivisionError: oops" in result.stderr


def test_ctrl_c_is_quiet(app: FakeApp) -> None:
    """An interrupted daemon says nothing more."""
    app.ending = KeyboardInterrupt()
    result = call("run")
    assert result.exit_code == 130
    assert result.output == ""
    assert guarded(lambda: app.run_daemon(Settings())) == 130


@pytest.mark.parametrize("wrong", [["run", "--log-format", "xml"], ["run", "--nope"], ["nope"]])
def test_a_wrong_command_line_is_code_2(app: FakeApp, wrong: list[str]) -> None:
    """What the command line does not know is named on stderr."""
    result = call(*wrong)
    assert result.exit_code == 2
    assert wrong[-1] in result.stderr
    assert "Traceback" not in result.output


def test_module_and_script_are_the_same() -> None:
    """`python -m gangsched version` prints the version without touching the daemon's parts."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "gangsched", "version"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert done.stdout == f"gangsched {__version__}\n"
    assert "kubernetes_asyncio" not in done.stderr
    assert "numpy" not in done.stderr


def test_help_names_the_commands() -> None:
    """--help lists what there is, and `run --help` every flag."""
    assert "run" in call("--help").stdout
    for flag in (
        "--kubeconfig",
        "--config",
        "--scheduler-name",
        "--health-port",
        "--log-format",
        "--log-level",
    ):
        assert flag in call("run", "--help").stdout


CALLED = """
import gc, sys
from gangsched.__main__ import main
sys.argv = ["gangsched", "version"]
try:
    main()
except SystemExit as ended:
    assert not ended.code
assert gc.isenabled() and gc.get_freeze_count()
"""


def test_garbage_is_collected_again_once_the_command_line_is_imported() -> None:
    """What the imports made is never looked through; a command that runs for long, like simulate,
    needs the rest.
    """
    assert printed_by(CALLED).startswith("gangsched ")
