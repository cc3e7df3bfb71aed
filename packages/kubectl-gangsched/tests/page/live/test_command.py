"""`ui` as a process: its link, its file, and what is left of it."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kubectl_gangsched.main import cli
from kubectl_gangsched.page.live import command
from tests.fake_api import forbidden, kubeconfig
from tests.fake_watches import watched
from tests.live_page import WITHIN_S, cluster

LINK = re.compile(r"http://127\.0\.0\.1:(\d+)/#([\w-]{43})")


@contextmanager
def running(tmp_path: Path, *words: str, browser: str = "") -> Iterator[subprocess.Popen[str]]:
    """The process; it is killed if it does not end."""
    scratch = tmp_path / "tmp"
    scratch.mkdir(exist_ok=True)
    environment = {**os.environ, "TMPDIR": str(scratch), "BROWSER": browser}
    with watched(tmp_path, cluster()) as (_, config):
        call = [sys.executable, "-c", "from kubectl_gangsched.main import main; main()", "ui"]
        process = subprocess.Popen(
            [*call, "--kubeconfig", str(config), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def link_of(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The port and the code that it prints."""
    assert process.stdout is not None
    match = LINK.search(process.stdout.readline())
    assert match is not None
    return int(match[1]), match[2]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_end_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    """No process, no port and no file, also while a tab is open; within two seconds."""
    with running(tmp_path, browser="true %s") as process:
        port, code = link_of(process)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WITHIN_S)
        connection.request("GET", "/api/session", headers={"Authorization": f"Code {code}"})
        key = json.loads(connection.getresponse().read())["key"]
        headers = {"Authorization": f"Bearer {key}"}
        connection.request("GET", "/api/document", headers=headers)
        number_of = json.loads(connection.getresponse().read())["id"]
        connection.request("GET", f"/api/changes?after={number_of}", headers=headers)
        stream = connection.getresponse()
        assert stream.status == 200
        process.send_signal(number)
        assert process.wait(5) == 130
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", port), 1)
        assert list((tmp_path / "tmp").iterdir()) == []
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_the_browser_is_opened_by_a_file_of_the_user(tmp_path: Path) -> None:
    """The link is in no argument, which other users see: a 0600 file in a 0700 folder redirects to
    it, until the link is used.
    """
    opened = tmp_path / "opened"
    script = tmp_path / "browser"
    script.write_text(f'#!/bin/sh\nprintf "%s" "$1" > {opened}.new && mv {opened}.new {opened}\n')
    script.chmod(0o700)
    with running(tmp_path, browser=str(script)) as process:
        port, code = link_of(process)
        deadline_s = time.monotonic() + WITHIN_S
        while not opened.exists() and time.monotonic() < deadline_s:
            time.sleep(0.02)
        address = opened.read_text()
        assert address.startswith("file:///")
        assert code not in address
        file = Path(address.removeprefix("file://"))
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert f"http://127.0.0.1:{port}/#{code}" in file.read_text()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WITHIN_S)
        connection.request("GET", "/api/session", headers={"Authorization": f"Code {code}"})
        assert connection.getresponse().status == 200
        assert not file.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_of_the_machine_gets_nothing(tmp_path: Path) -> None:
    """Neither the link, from the file that opens the browser or from the arguments of a process,
    nor an answer without it.
    """
    tmp_path.chmod(0o755)
    with running(tmp_path, browser="true %s") as process:
        port, code = link_of(process)
        (folder,) = (tmp_path / "tmp").iterdir()
        script = f"""
import encodings.idna, glob, http.client, json, os, urllib.error, urllib.request
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
answers = []
for path in ("api/document", "api/session", "api/health", "api/gang?id=team/runs"):
    try:
        urllib.request.urlopen("http://127.0.0.1:{port}/" + path, timeout=20)
        answers.append(200)
    except urllib.error.HTTPError as error:
        answers.append(error.code)
try:
    open("{folder}/open.html")
    answers.append("read")
except PermissionError:
    answers.append("denied")
arguments = b""
for path in glob.glob("/proc/[0-9]*/cmdline"):
    try:
        arguments += open(path, "rb").read()
    except OSError:
        pass
answers.append(b"{code[:20]}" + b"{code[20:]}" in arguments)
print(json.dumps(answers))
"""
        other = subprocess.run(
            [sys.executable, "-"],
            input=script,
            capture_output=True,
            text=True,
            check=True,
        )
        assert json.loads(other.stdout) == [401, 401, 401, 401, "denied", False]


def test_without_a_browser_there_is_no_file(tmp_path: Path) -> None:
    """--no-browser: the link is printed only."""
    with running(tmp_path, "--no-browser", browser="false") as process:
        link_of(process)
        assert list((tmp_path / "tmp").iterdir()) == []


def test_a_page_that_nobody_looks_at_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the idle time, with exit code 0 and a sentence."""
    monkeypatch.setattr(command, "IDLE_S", 0.2)
    with watched(tmp_path, cluster()) as (_, config):
        answer = CliRunner().invoke(cli, ["ui", "--no-browser", "--kubeconfig", str(config)])
    assert answer.exit_code == 0, answer.output
    assert answer.output.endswith("Nobody has looked at the page for an hour: it has ended.\n")


def test_a_server_that_is_away_is_one_sentence(tmp_path: Path) -> None:
    """And credentials that it does not accept; nothing is served then."""
    config = kubeconfig(tmp_path / "away", "http://127.0.0.1:9")
    answer = CliRunner().invoke(cli, ["ui", "--no-browser", "--kubeconfig", str(config)])
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert answer.stderr.startswith("kubectl-gangsched: No answer from http://127.0.0.1:9 of ")
    refused = cluster(**{"/version": {**forbidden("get", "version"), "code": 401}})
    with watched(tmp_path, refused) as (_, config):
        answer = CliRunner().invoke(cli, ["ui", "--no-browser", "--kubeconfig", str(config)])
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert "log in again" in answer.stderr
