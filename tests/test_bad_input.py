"""Every command of `gangsched` under every bad condition: one sentence on stderr, exit code 2, and
never a traceback. Those of `kubectl gangsched` are in its own package.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gangsched.cli import cli

PROGRAM = Path(sys.executable).with_name("gangsched")
COMMANDS = {
    "run": ["run", "--health-port", "0", "--kubeconfig", "nobody"],
    "config": ["config"],
    "simulate": ["simulate", "--nodes", "nodes.csv", "--jobs", "jobs.csv"],
    "version": ["version"],
    "--help": ["--help"],
}
PRINTING = sorted(COMMANDS.keys() - {"run"})
AWAY = "http://127.0.0.1:1"


def kubeconfig(server: str, user: str = "{}") -> str:
    """A kubeconfig with this address."""
    cluster = f"{{name: c, cluster: {{server: '{server}'}}}}"
    return (
        f"clusters: [{cluster}]\nusers: [{{name: u, user: {user}}}]\n"
        "contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n"
    )


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_logging: None) -> None:
    """A small cluster, two jobs, and a kubeconfig whose server is away."""
    (tmp_path / "nodes.csv").write_text("name,gpus\nn0,8\nn1,8\n")
    (tmp_path / "jobs.csv").write_text(
        "name,submitted,run_seconds,pods,gpus\na,0,9,2,8\nb,1,9,1,8\n"
    )
    (tmp_path / "nobody").write_text(kubeconfig(AWAY))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GANGSCHED_API_SERVER_WAIT_S", "0")
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)


def refused(answer: Result) -> str:
    """The sentence, after code 2 and nothing on stdout."""
    assert answer.exit_code == 2, answer.output
    assert answer.stdout == ""
    assert is_one_sentence(answer.stderr), answer.stderr
    return answer.stderr


def is_one_sentence(stderr: str) -> bool:
    """Whether it is one line of ours that ends as a sentence does."""
    lines = stderr.splitlines()
    return len(lines) == 1 and lines[0].startswith("gangsched: ") and lines[0].endswith(".")


def call(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


def is_missing(path: Path) -> None:
    path.unlink(missing_ok=True)


def is_folder(path: Path) -> None:
    path.mkdir()


def has(content: str | bytes) -> Callable[[Path], None]:
    """A file with this content."""
    written = content if isinstance(content, bytes) else content.encode()

    def write(path: Path) -> None:
        path.write_bytes(written)

    return write


KUBECONFIGS: dict[str, Callable[[Path], None]] = {
    "missing": is_missing,
    "a folder": is_folder,
    "empty": has(""),
    "a list": has("[a, b]"),
    "a text": has("hello"),
    "no YAML": has("a: [b"),
    "bytes": has(b"\xff\xfe\x00"),
    "another object": has("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n"),
    "lists of texts": has("clusters: [a]\nusers: [b]\ncontexts: [c]\ncurrent-context: c\n"),
    "no address": has(kubeconfig("")),
    "an address without a host": has(kubeconfig("https://")),
    "a port that is none": has(kubeconfig("https://a:b")),
    "an unknown scheme": has(kubeconfig("ftp://a")),
    "half an address": has(kubeconfig("https://[::1")),
    "a token file that is missing": has(kubeconfig(AWAY, "{tokenFile: nowhere}")),
    "a plugin that is missing": has(
        kubeconfig(AWAY, "{exec: {apiVersion: client.authentication.k8s.io/v1, command: nope}}")
    ),
    "no server": has(kubeconfig(AWAY)),
}


@pytest.mark.parametrize("condition", KUBECONFIGS)
def test_a_kubeconfig_that_is_no_good(condition: str, tmp_path: Path) -> None:
    """It is named, whatever is wrong with it."""
    KUBECONFIGS[condition](tmp_path / "config")
    assert " config" in refused(call("run", "--health-port", "0", "--kubeconfig", "config"))


@pytest.mark.parametrize("server", ["", "https://", "https:", "ftp://a", "http://:1"])
def test_what_is_no_address_is_not_asked(server: str, tmp_path: Path) -> None:
    """It is refused at once, also where the library has cut it: nobody waits for its answer."""
    (tmp_path / "config").write_text(kubeconfig(server))
    said = refused(call("run", "--health-port", "0", "--kubeconfig", "config"))
    assert "is not the address of a server" in said


def test_a_kubeconfig_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor looked at: a folder above it is closed to the user, who is not root."""

    def denied(self: Path, **_: object) -> bool:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "exists", denied)
    monkeypatch.setattr(Path, "is_file", denied)
    refused(call(*COMMANDS["run"]))


def test_a_kubeconfig_of_a_pipe(tmp_path: Path) -> None:
    """`<(…)` of a shell is one; kubectl reads it, too."""
    line = f'"{PROGRAM}" run --health-port 0 --kubeconfig <(cat nobody)'
    ran = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 2
    assert f"Cannot reach the API server {AWAY}" in ran.stderr


FILES: dict[str, Callable[[Path], None]] = {
    "missing": is_missing,
    "a folder": is_folder,
    "empty": has(""),
    "bytes": has(b"\xff\xfe\x00"),
    "another format": has("a,b\n1,2\n"),
}


@pytest.mark.parametrize("condition", FILES)
@pytest.mark.parametrize("which", ["--nodes", "--jobs"])
def test_what_is_simulated_is_no_good(which: str, condition: str, tmp_path: Path) -> None:
    """The file is named."""
    FILES[condition](tmp_path / "file")
    words = {"--nodes": "nodes.csv", "--jobs": "jobs.csv", which: "file"}
    assert "file" in refused(call("simulate", *(word for pair in words.items() for word in pair)))


@pytest.mark.parametrize("condition", sorted(FILES.keys() - {"empty"}))
@pytest.mark.parametrize("command", ["run", "config", "simulate"])
def test_settings_that_are_no_good(command: str, condition: str, tmp_path: Path) -> None:
    """The file is named."""
    FILES[condition](tmp_path / "file")
    assert "file" in refused(call(*COMMANDS[command], "--config", "file"))


@pytest.mark.parametrize("place", ["/dev/full", "nowhere/file", "."])
@pytest.mark.parametrize("which", ["--out", "--spans", "--trace", "--html"])
def test_a_file_that_cannot_be_written(which: str, place: str) -> None:
    """It is named, after the tables."""
    answer = call(*COMMANDS["simulate"], which, place)
    assert answer.exit_code == 2
    assert is_one_sentence(answer.stderr), answer.stderr
    assert place in answer.stderr


WRONG = {
    "an option": ["run", "--nope"],
    "a command": ["nope"],
    "a number": ["run", "--health-port", "x"],
    "a port": ["run", "--health-port", "99999"],
    "a name": ["run", "--scheduler-name", ""],
    "a selector": ["run", "--node-selector", "a b="],
    "a format": ["config", "-o", "xml"],
    "run times": [*COMMANDS["simulate"], "--stated", "x"],
    "nothing": ["simulate"],
    "bytes": ["config", "--config", "a\udcff"],
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_usage(what: str) -> None:
    """In words for administrators: no value in the form that Python gives it."""
    said = refused(call(*WRONG[what]))
    assert "('" not in said
    assert "parse" not in said


def ended(command: str, stdout: int, *, stderr: int = subprocess.PIPE) -> tuple[int, str]:
    """Exit code and stderr."""
    words = [str(PROGRAM), *COMMANDS[command]]
    ran = subprocess.run(words, stdout=stdout, stderr=stderr, text=True, timeout=60, check=False)
    return ran.returncode, ran.stderr


@pytest.mark.parametrize("command", PRINTING)
def test_a_reader_that_has_gone(command: str) -> None:
    """It wants no more, so all is well."""
    reader, pipe = os.pipe()
    os.close(reader)
    assert ended(command, pipe) == (0, "")
    os.close(pipe)


@pytest.mark.parametrize("command", PRINTING)
def test_a_full_disk(command: str) -> None:
    """The answer is lost, which is said."""
    full = os.open("/dev/full", os.O_WRONLY)
    code, said = ended(command, full)
    os.close(full)
    assert (code, said) == (2, "gangsched: Cannot write the answer: No space left on device.\n")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("command", ["run", "config"])
def test_closed_streams(command: str, closed: str) -> None:
    """No file and no socket gets the number of one: the event loop of a daemon aborted on it."""
    line = f'"$@" {closed}'
    ran = subprocess.run(
        ["bash", "-c", line, "-", str(PROGRAM), *COMMANDS[command]],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    is_answered = command == "config" and ">&-" not in closed.replace("2>&-", "")
    assert ran.returncode == (0 if is_answered else 2), ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("command", PRINTING)
def test_a_narrow_terminal_without_utf8(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables keep all of their letters at 40 columns, and characters that are lacking are "?"."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    ran = subprocess.run(
        [PROGRAM, *COMMANDS[command]], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.isascii()
    assert "\x1b" not in ran.stdout
    if command == "simulate":
        assert "median, h" in ran.stdout
        assert "priority 0" in ran.stdout
