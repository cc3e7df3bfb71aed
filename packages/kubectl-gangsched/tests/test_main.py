"""Every command under every bad condition: one sentence on stderr, the documented exit code, and
never "a bug".
"""

from __future__ import annotations

import json
import os
import pty
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from aiohttp import web
from typer.testing import CliRunner, Result

from kubectl_gangsched.main import cli
from kubectl_gangsched.outputs import Outputs, schema
from kubectl_gangsched.session import BUG, GANGS
from tests.docs_tables import SCHEMA
from tests.fake_api import Json, kubeconfig, listed, node, pod, pod_group, served, status
from tests.server_thread import ServerThread

X = "scheduling.x-k8s.io"
CONTAINER = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": 1}}}
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train"},
    "spec": {
        "parallelism": 2,
        "template": {"spec": {"schedulerName": "gangsched", "containers": [CONTAINER]}},
    },
}
WAITING = pod("training-0", gang="training", message="gang team/träning needs room… for 1 more pod")
ANSWERS: dict[str, Json] = {
    "/api/v1/nodes": listed(node("n0", 8)),
    "/api/v1/pods": listed(WAITING, pod("running-0", gang="running", node="n0")),
    "/api/v1/namespaces/team/pods": listed(WAITING),
    "/api/v1/namespaces": listed({"metadata": {"name": "team"}}),
    f"/apis/{X}": {"versions": [{"version": "v1alpha1", "groupVersion": f"{X}/v1alpha1"}]},
    f"/apis/{X}/v1alpha1": {"resources": [{"name": "podgroups"}]},
    f"/apis/{X}/v1alpha1/podgroups": listed(pod_group("training", 1)),
    f"/apis/{X}/v1alpha1/namespaces/team/podgroups/training": pod_group("training", 1),
    f"{GANGS}/namespaces/team/gangs": listed(),
    f"{GANGS}/namespaces/team/gangs/training/history": {
        "completeSince": "2026-01-01T00:00:00Z",
        "servedBy": {"role": "leader"},
        "entries": [],
    },
    "/version": {"gitVersion": "v1.36.0"},
    "/apis": {"groups": [{"name": X, "preferredVersion": {"groupVersion": f"{X}/v1alpha1"}}]},
    "/apis/apiregistration.k8s.io/v1/apiservices": listed(),
    "/apis/authorization.k8s.io/v1/subjectaccessreviews": {"status": {"allowed": True}},
    "/apis/apps/v1/deployments": listed(),
    **{
        f"/api/v1/{name}": listed()
        for name in (
            "persistentvolumeclaims",
            "persistentvolumes",
            "services",
            "replicationcontrollers",
        )
    },
    **{
        f"/apis/{path}": listed()
        for path in (
            "storage.k8s.io/v1/storageclasses",
            "storage.k8s.io/v1/csinodes",
            "policy/v1/poddisruptionbudgets",
        )
    },
}
COMMANDS = {
    "why": ["why", "training"],
    "map": ["map"],
    "doctor": ["doctor"],
    "snapshot": ["snapshot", "-o", "taken.json.gz"],
    "replay": ["replay", "saved.json.gz"],
    "queue": ["queue"],
    "history": ["history", "training"],
    "plan": ["plan", "-f", "job.yaml"],
    "version": ["version"],
}
OFFLINE = {"replay", "version"}
ASKING = sorted(COMMANDS.keys() - OFFLINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A manifest, and a snapshot of the sound cluster."""
    folder = tmp_path_factory.mktemp("commands")
    (folder / "job.yaml").write_text(yaml.safe_dump(JOB))
    with served(folder, ANSWERS) as (_, config):
        answer = CliRunner().invoke(
            cli, ["snapshot", "-o", str(folder / "saved.json.gz"), "--kubeconfig", str(config)]
        )
    assert answer.exit_code == 0, answer.stderr
    return folder


@pytest.fixture(autouse=True)
def _in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(folder / "nowhere"))


def is_one_sentence(stderr: str) -> bool:
    """Whether it is one line of ours that ends as a sentence does, and blames nobody's code."""
    lines = stderr.splitlines()
    return (
        len(lines) == 1
        and lines[0].startswith("kubectl-gangsched: ")
        and lines[0].endswith((".", "?"))
    )


def refused(answer: Result) -> None:
    """Code 2, nothing on stdout, one sentence."""
    assert answer.exit_code == 2, answer.output
    assert answer.stdout == ""
    assert is_one_sentence(answer.stderr), answer.stderr


def invoke(*words: str, **environment: str) -> Result:
    return CliRunner().invoke(cli, list(words), env=environment)


@pytest.mark.parametrize("command", COMMANDS)
def test_on_a_sound_cluster_every_command_answers(command: str, tmp_path: Path) -> None:
    """So that what the other tests see is due to their condition."""
    with served(tmp_path, ANSWERS) as (_, config):
        answer = invoke(*COMMANDS[command], KUBECONFIG=str(config))
    assert answer.exit_code in {0, 1}, answer.output
    assert answer.stderr == ""


def unreadable(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that the user may not read, also if the user is root."""
    kubeconfig(path, "http://127.0.0.1:1")
    read_text = Path.read_text

    def denied(self: Path, *args: Any, **options: Any) -> str:
        if self == path:
            raise PermissionError(13, "Permission denied", str(path))
        return read_text(self, *args, **options)

    monkeypatch.setattr(Path, "read_text", denied)


def written(text: str | bytes) -> Callable[[Path, pytest.MonkeyPatch], None]:
    """A kubeconfig with this content."""
    content = text if isinstance(text, bytes) else text.encode()

    def write(path: Path, _: pytest.MonkeyPatch) -> None:
        path.write_bytes(content)

    return write


def context(cluster: str, user: str = "{}") -> str:
    return (
        f"clusters: [{{name: c, cluster: {cluster}}}]\nusers: [{{name: u, user: {user}}}]\n"
        "contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n"
    )


KUBECONFIGS: dict[str, Callable[[Path, pytest.MonkeyPatch], None]] = {
    "missing": lambda _, __: None,
    "a folder": lambda path, _: path.mkdir(),
    "unreadable": unreadable,
    "empty": written(""),
    "a list": written("[a, b]"),
    "a text": written("hello"),
    "a number": written("1"),
    "no YAML": written("a: [b"),
    "binary": written(b"\xff\xfe\x00"),
    "another object": written("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n"),
    "lists of texts": written("clusters: [a]\nusers: [b]\ncontexts: [c]\ncurrent-context: c\n"),
    "a context of nothing": written("contexts: [{name: x, context: {}}]\ncurrent-context: x\n"),
    "no address": written(context("{server: ''}")),
    "an address that is a word": written(context("{server: 'https://'}")),
    "a port that is none": written(context("{server: 'https://a:b'}")),
    "an unknown scheme": written(context("{server: 'ftp://a'}")),
    "a token of two lines": written(context("{server: 'http://127.0.0.1:1'}", '{token: "a\\nb"}')),
    "a token file that is missing": written(
        context("{server: 'http://127.0.0.1:1'}", "{tokenFile: nowhere}")
    ),
    "a certificate that is none": written(
        context("{server: 'https://127.0.0.1:1', certificate-authority-data: bm9uZQ==}")
    ),
    "a certificate of broken base64": written(
        context("{server: 'https://127.0.0.1:1', certificate-authority-data: a}")
    ),
    "a plugin that is missing": written(
        context(
            "{server: 'http://127.0.0.1:1'}",
            "{exec: {apiVersion: client.authentication.k8s.io/v1, command: nope}}",
        )
    ),
    "an impersonated group alone": written(
        context("{server: 'http://127.0.0.1:1'}", "{as-groups: [g]}")
    ),
    "a proxy of another kind": written(
        context("{server: 'http://127.0.0.1:1', proxy-url: 'socks5://127.0.0.1:1'}")
    ),
    "no server": written(context("{server: 'http://127.0.0.1:1'}")),
}


@pytest.mark.parametrize("condition", KUBECONFIGS)
@pytest.mark.parametrize("command", [*ASKING, "ui"])
def test_a_kubeconfig_that_is_no_good(
    command: str, condition: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code 2; the sentence has no traceback and no name of a type of ours."""
    path = tmp_path / "config"
    KUBECONFIGS[condition](path, monkeypatch)
    words = COMMANDS.get(command, ["ui", "--no-browser"])
    refused(invoke(*words, KUBECONFIG=str(path)))


Answer = Callable[[web.Request], web.StreamResponse]
SERVERS: dict[str, Answer] = {
    "not logged in": lambda _: web.json_response(
        status(401, "Unauthorized", "Unauthorized"), status=401
    ),
    "a page": lambda _: web.Response(text="<html>Welcome</html>", content_type="text/html"),
    "an empty object": lambda _: web.json_response({}),
    "a list": lambda _: web.json_response([]),
    "a text": lambda _: web.json_response("hello"),
    "null": lambda _: web.json_response(None),
    "items that are texts": lambda _: web.json_response(
        {"metadata": {}, "items": ["a"], "groups": ["b"]}
    ),
    "items without names": lambda _: web.json_response(
        {"metadata": {}, "items": [{}], "groups": [{}]}
    ),
    "no such page": lambda _: web.Response(status=404, text="404 page not found"),
    "a gateway's page": lambda _: web.Response(status=502, text="<html>Bad gateway</html>"),
    "overloaded": lambda _: web.json_response(status(429, "TooManyRequests", "later"), status=429),
    "a redirect": lambda _: web.Response(
        status=302, headers={"Location": "https://login.example.com"}
    ),
    "no text": lambda _: web.Response(body=b"\xff\xfe"),
}


@pytest.fixture(scope="module", params=SERVERS)
def foreign(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a server that is no API server, or none for us."""

    async def handle(asked: web.Request) -> web.StreamResponse:
        return SERVERS[request.param](asked)

    server = ServerThread(handle)
    server.start()
    yield server.url
    server.stop()


@pytest.mark.parametrize("command", ASKING)
def test_a_server_that_answers_something_else(command: str, foreign: str, tmp_path: Path) -> None:
    """Code 2, also if each answer is valid JSON."""
    config = kubeconfig(tmp_path / "config", foreign, namespace="team")
    refused(invoke(*COMMANDS[command], KUBECONFIG=str(config)))


@pytest.mark.parametrize("command", ASKING)
def test_no_right_at_all(command: str, tmp_path: Path) -> None:
    """Code 2, and the missing right; `doctor` lists what it could not check instead."""

    async def handle(asked: web.Request) -> web.StreamResponse:
        text = (
            f'{asked.path} is forbidden: User "alice" cannot get resource "things" in API group ""'
            " at the cluster scope"
        )
        return web.json_response(status(403, "Forbidden", text), status=403)

    server = ServerThread(handle)
    server.start()
    try:
        answer = invoke(
            *COMMANDS[command],
            KUBECONFIG=str(kubeconfig(tmp_path / "c", server.url, namespace="team")),
        )
    finally:
        server.stop()
    refused(answer)
    assert "You (user alice) may not get things" in answer.stderr


NAMES = {
    "a name": ["why", "nope"],
    "a pod": ["why", "pod/nope"],
    "a gang": ["why", "gang/nope"],
    "no name": ["why", ""],
    "a path": ["why", "pod/.."],
    "dots": ["why", ".."],
    "a history": ["history", "nope"],
    "a history of no name": ["history", ""],
    "a pod without a name": ["why", "pod/"],
    "a kind": ["why", "node/n0"],
    "control characters": ["why", "a\x1b[2J"],
    "spaces": ["why", "a b?c#d%e"],
    "a namespace that is a path": ["why", "training", "-n", "../.."],
    "a namespace with capitals": ["queue", "-n", "TEAM"],
    "a resource": ["map", "--resource", "nvidia.com/gpux"],
    "a selector": ["map", "-l", "no=such"],
    "a manifest": ["plan", "-f", "nope.yaml"],
    "a manifest that is a folder": ["plan", "-f", "."],
    "a manifest of bytes": ["plan", "-f", "saved.json.gz"],
    "a snapshot": ["replay", "nope.gz"],
    "a snapshot that is none": ["replay", "job.yaml"],
    "a place for a snapshot": ["snapshot", "-o", "nope/taken.gz"],
    "a full disk for a snapshot": ["snapshot", "-o", "/dev/full"],
    "settings": ["replay", "saved.json.gz", "--config", "nope.yaml"],
    "an output": ["map", "-o", "xml"],
    "a minimum": ["plan", "-f", "job.yaml", "--min", "-1"],
    "a flag": ["queue", "--nope"],
    "a command": ["nope"],
    "an argument": ["why"],
    "a context": ["queue", "--context", "nope"],
    "a cluster": ["queue", "--cluster", "nope"],
    "a user": ["queue", "--user", "nope"],
    "a duration": ["queue", "--request-timeout", "soon"],
    "an extra": ["queue", "--as", "a", "--as-user-extra", "b"],
    "a group without a user": ["queue", "--as-group", "g"],
    "two credentials": ["queue", "--token", "t", "--username", "u"],
    "two ways to verify": [
        "queue",
        "--certificate-authority",
        "job.yaml",
        "--insecure-skip-tls-verify",
    ],
    "bytes": ["why", "a\udcff"],
}


@pytest.mark.parametrize("what", NAMES)
def test_what_does_not_exist(what: str, tmp_path: Path) -> None:
    """Code 2 and one sentence, without usage text and without words of a library."""
    with served(tmp_path, ANSWERS) as (_, config):
        answer = invoke(*NAMES[what], KUBECONFIG=str(config))
    refused(answer)
    assert "Value error" not in answer.stderr
    assert "Usage" not in answer.stderr


def test_a_resource_that_is_misspelt_gets_the_nearest(tmp_path: Path) -> None:
    """As do names of gangs and pods."""
    with served(tmp_path, ANSWERS) as (_, config):
        answer = invoke("map", "--resource", "nvidia.com/gpux", KUBECONFIG=str(config))
    assert (
        answer.stderr
        == 'kubectl-gangsched: None of 1 node has the resource "nvidia.com/gpux"; did you mean'
        " nvidia.com/gpu?\n"
    )


PROGRAM = Path(sys.executable).with_name("kubectl-gangsched")
SHELL = {
    "a full disk": ('"$@" > /dev/full', 2),
    "a closed descriptor": ('"$@" >&-', 2),
    "everything closed": ('"$@" >&- 2>&- <&-', 2),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_output_that_cannot_be_written(command: str, tmp_path: Path) -> None:
    """Code 2 and one sentence; the interpreter adds nothing."""
    with served(tmp_path, ANSWERS) as (_, config):
        for condition, (line, code) in SHELL.items():
            ran = run(
                ["bash", "-c", line, "-", str(PROGRAM), *COMMANDS[command]], KUBECONFIG=str(config)
            )
            assert ran.returncode == code, (condition, ran.stderr)
            told = (
                is_one_sentence(ran.stderr)
                if condition != "everything closed"
                else ran.stderr == ""
            )
            assert told, (condition, ran.stderr)


@pytest.mark.parametrize("command", [*COMMANDS, "--help"])
def test_a_reader_that_has_gone(command: str, tmp_path: Path) -> None:
    """It wants no more, so all is well, whatever the answer is."""
    reader, pipe = os.pipe()
    os.close(reader)
    with served(tmp_path, ANSWERS) as (_, config):
        words = COMMANDS.get(command, [command])
        ran = run([str(PROGRAM), *words], stdout=pipe, KUBECONFIG=str(config))
    os.close(pipe)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("command", COMMANDS)
def test_without_utf8(command: str, tmp_path: Path) -> None:
    """Characters that the terminal lacks are "?"."""
    with served(tmp_path, ANSWERS) as (_, config):
        ran = run(
            [str(PROGRAM), *COMMANDS[command]],
            KUBECONFIG=str(config),
            PYTHONIOENCODING="ascii",
            LC_ALL="C",
        )
    assert ran.returncode in {0, 1}, ran.stderr
    assert ran.stderr == ""
    assert ran.stdout.isascii()
    assert ran.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_a_narrow_terminal_without_colour(command: str, tmp_path: Path) -> None:
    """No line is cut or broken at 40 columns, and NO_COLOR leaves no escape sequence."""
    with served(tmp_path, ANSWERS) as (_, config):
        words = [str(PROGRAM), *COMMANDS[command]]
        plain = run(words, KUBECONFIG=str(config)).stdout
        reader, terminal = pty.openpty()
        narrow = {"KUBECONFIG": str(config), "COLUMNS": "40", "NO_COLOR": "1", "TERM": "xterm"}
        done = run(words, stdout=terminal, **narrow)
        os.close(terminal)
        shown = drained(reader)
    assert done.returncode in {0, 1}, done.stderr
    assert timeless(shown) == timeless(plain)


def timeless(text: str) -> list[str]:
    """The lines without what changes from second to second."""
    return [line for line in text.replace("\r\n", "\n").splitlines() if "s ago" not in line]


def drained(reader: int) -> str:
    """Everything that a terminal got, whose other end is closed."""
    parts: list[bytes] = []
    while True:
        try:
            part = os.read(reader, 1 << 16)
        except OSError:  # how Linux tells that the other end was closed
            part = b""
        if not part:
            os.close(reader)
            return b"".join(parts).decode()
        parts.append(part)


def run(
    words: list[str], stdout: int = subprocess.PIPE, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    env = {**os.environ, **environment}
    return subprocess.run(
        words, env=env, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )


def test_a_silent_server_is_given_up_in_time(tmp_path: Path) -> None:
    """--request-timeout limits a request to a server that accepts and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        config = kubeconfig(tmp_path / "config", f"http://127.0.0.1:{mute.getsockname()[1]}")
        answer = invoke("queue", "--request-timeout", "200ms", KUBECONFIG=str(config))
    refused(answer)
    assert "timed out" in answer.stderr


def test_a_bug_is_code_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only an error of ours says so."""
    monkeypatch.setattr("kubectl_gangsched.waiting.queue", lambda *_, **__: json.loads("{"))
    with served(tmp_path, ANSWERS) as (_, config):
        answer = invoke("queue", KUBECONFIG=str(config))
    assert answer.exit_code == BUG
    assert "a bug: JSONDecodeError" in answer.stderr


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - {"snapshot", "version"}))
def test_what_is_printed_as_data_is_as_the_schema_says(command: str, tmp_path: Path) -> None:
    """No field is missing and none is unknown; YAML says the same as JSON."""
    with served(tmp_path, ANSWERS) as (_, config):
        as_json = invoke(*COMMANDS[command], "-o", "json", KUBECONFIG=str(config))
        as_yaml = invoke(*COMMANDS[command], "-o", "yaml", KUBECONFIG=str(config))
    printed = msgspec.json.decode(as_json.stdout, type=Outputs)
    assert json.loads(as_json.stdout) == msgspec.to_builtins(printed)
    assert timeless(yaml.safe_dump(yaml.safe_load(as_yaml.stdout))) == timeless(
        yaml.safe_dump(json.loads(as_json.stdout))
    )
    assert not [key for key in keys_of(json.loads(as_json.stdout)) if "_" in key]


def keys_of(value: Any) -> Iterator[str]:
    """Names of fields; those of maps whose keys are names of objects are none."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from (
                keys_of(inner)
                if key not in {"users", "resources", "notChecked", "starts", "pods"}
                else ()
            )
    if isinstance(value, list):
        for inner in value:
            yield from keys_of(inner)


def test_the_schema_in_the_manual_is_that_of_the_code() -> None:
    """`make docs-tables` writes it."""
    assert json.loads(SCHEMA.read_text()) == schema()
