"""Connection flags: what a request carries, wherever the flag stands."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from typer.testing import CliRunner

from kubectl_gangsched.connection import FLAGS, LEFT_OUT
from kubectl_gangsched.main import cli
from kubectl_gangsched.session import GANGS
from tests.fake_api import listed
from tests.server_thread import ServerThread


class Recorder:
    """A server with an empty queue in every namespace, and the headers and paths that it got."""

    def __init__(self) -> None:
        self.headers: list[list[tuple[str, str]]] = []
        self.paths: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.headers.append([(name.lower(), value) for name, value in request.headers.items()])
        self.paths.append(request.path)
        return web.json_response(listed())


@pytest.fixture
def server() -> Iterator[tuple[Recorder, str]]:
    recorder = Recorder()
    thread = ServerThread(recorder.handle)
    thread.start()
    yield recorder, thread.url
    thread.stop()


def config(path: Path, server: str, **user: Any) -> str:
    """Two clusters, of which "b" is away; two users; context "x" is of cluster "a" and
    user "one".
    """
    document = {
        "clusters": [
            {"name": "a", "cluster": {"server": server}},
            {"name": "b", "cluster": {"server": "http://127.0.0.1:1"}},
        ],
        "users": [
            {"name": "one", "user": user or {"token": "1"}},
            {"name": "two", "user": {"token": "2"}},
        ],
        "contexts": [
            {"name": "x", "context": {"cluster": "a", "user": "one", "namespace": "of-x"}},
            {"name": "y", "context": {"cluster": "b", "user": "one", "namespace": "of-y"}},
        ],
        "current-context": "x",
    }
    path.write_text(json.dumps(document))
    return str(path)


def basic(pair: str) -> str:
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


CASES: dict[str, tuple[Sequence[str], list[tuple[str, str]]]] = {
    "none": ((), [("authorization", "Bearer 1")]),
    "user": (("--user", "two"), [("authorization", "Bearer 2")]),
    "token": (("--token=3",), [("authorization", "Bearer 3")]),
    "password": (("--username", "me", "--password", "p"), [("authorization", basic("me:p"))]),
    "cluster": (("--context", "y", "--cluster", "a"), [("authorization", "Bearer 1")]),
    "as": (("--as", "bob"), [("authorization", "Bearer 1"), ("impersonate-user", "bob")]),
    "as everything": (
        (
            "--as",
            "bob",
            "--as-uid",
            "7",
            "--as-group",
            "g",
            "--as-group",
            "h,i",
            "--as-user-extra",
            "a/b=c",
        ),
        [
            ("authorization", "Bearer 1"),
            ("impersonate-extra-a%2fb", "c"),
            ("impersonate-group", "g"),
            ("impersonate-group", "h,i"),
            ("impersonate-uid", "7"),
            ("impersonate-user", "bob"),
        ],
    ),
    "a name that is not ASCII": (
        ("--as", "jürgen"),
        [("authorization", "Bearer 1"), ("impersonate-user", "jürgen")],
    ),
    "what changes nothing": (
        ("--cache-dir", "x", "--disable-compression=true"),
        [("authorization", "Bearer 1")],
    ),
}


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("case", CASES)
def test_a_flag_counts_before_and_after_the_command(
    case: str, place: str, server: tuple[Recorder, str], tmp_path: Path
) -> None:
    """The same headers either way."""
    flags, expected = CASES[case]
    recorder, url = server
    given = [*flags, "--kubeconfig", config(tmp_path / "k", url)]
    words = [*given, "queue"] if place == "before" else ["queue", *given]
    answer = CliRunner().invoke(cli, words)
    assert answer.exit_code == 0, answer.stderr
    (headers,) = recorder.headers
    found = [
        each for each in headers if each[0] == "authorization" or each[0].startswith("impersonate")
    ]
    assert (
        sorted((name, value.encode("utf-8", "surrogateescape").decode()) for name, value in found)
        == expected
    )


def test_what_follows_the_command_wins_and_lists_add_up(
    server: tuple[Recorder, str], tmp_path: Path
) -> None:
    """As if kubectl had parsed one list of flags."""
    recorder, url = server
    path = config(tmp_path / "k", url)
    words = [
        "-n",
        "a",
        "--as",
        "bob",
        "--as-group",
        "g",
        "queue",
        "-n",
        "b",
        "--as-group",
        "h",
        "--kubeconfig",
        path,
    ]
    assert CliRunner().invoke(cli, words).exit_code == 0
    assert recorder.paths == [f"{GANGS}/namespaces/b/gangs"]
    groups = [value for name, value in recorder.headers[0] if name == "impersonate-group"]
    assert groups == ["g", "h"]


def test_the_kubeconfigs_user_may_impersonate(server: tuple[Recorder, str], tmp_path: Path) -> None:
    """`as` and its kind are sent; a flag replaces the field that it names."""
    recorder, url = server
    user = {
        "token": "1",
        "as": "bob",
        "as-uid": "7",
        "as-groups": ["g"],
        "as-user-extra": {"Why": ["x", "y"]},
    }
    path = config(tmp_path / "k", url, **user)
    for words in (["queue"], ["queue", "--as", "eve"]):
        assert CliRunner().invoke(cli, words, env={"KUBECONFIG": path}).exit_code == 0
    found = [
        sorted(each for each in headers if each[0].startswith("imp"))
        for headers in recorder.headers
    ]
    rest = [
        ("impersonate-extra-why", "x"),
        ("impersonate-extra-why", "y"),
        ("impersonate-group", "g"),
    ]
    assert found[0] == [*rest, ("impersonate-uid", "7"), ("impersonate-user", "bob")]
    assert found[1] == [*rest, ("impersonate-uid", "7"), ("impersonate-user", "eve")]


def test_a_server_needs_no_kubeconfig(
    server: tuple[Recorder, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--server alone is enough, with or without a scheme."""
    recorder, url = server
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    for address in (url, url.removeprefix("http://")):
        answer = CliRunner().invoke(cli, ["-s", address, "--token", "t", "queue"])
        assert answer.exit_code == 0, answer.stderr
    assert recorder.paths == [f"{GANGS}/namespaces/default/gangs"] * 2


def test_no_flag_is_both_there_and_left_out() -> None:
    """The end-to-end test compares both with the list of kubectl."""
    spelled = {
        spelling.lstrip("-") for flag in FLAGS.values() for spelling in flag.spellings[0].split("/")
    }
    assert spelled.isdisjoint(LEFT_OUT)
