"""The demo keeps its promises to newcomers: exit code 0 when its claims hold, 1 when one does not,
nothing left.
"""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
DEMO = [sys.executable, "-m", "demo"]
PLAYGROUND = [sys.executable, "-m", "demo.playground"]
#: The environment of a new user's other terminal.
BARE = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent"}
A_FALSE_CLAIM = """
import sys, demo.__main__ as main
main.SCENES = (("A lie", lambda stage: stage.claim("pigs fly", False)),)
sys.exit(main.main())
"""


def environment(tmp_path: Path, **more: str) -> Mapping[str, str]:
    """Ours, with everything temporary below `tmp_path`, so that leftovers can be told from others'
    processes.
    """
    return {**os.environ, "TMPDIR": str(tmp_path), "PACE": "", **more}


def leftovers(tmp_path: Path) -> list[str]:
    """Command lines of processes that work below `tmp_path`, and what lies there."""
    found = [str(path) for path in tmp_path.iterdir()]
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and str(tmp_path) in os.readlink(entry / "cwd"):
                found.append((entry / "cmdline").read_text().replace("\0", " "))
    return found


LOGS = "-n gangsched-system logs -l app.kubernetes.io/name=gangsched --tail=-1"


def test_every_claim_holds_and_nothing_is_left(tmp_path: Path) -> None:
    """Without a terminal: eight scenes in plain lines, every claim checked, exit code 0 in under a
    minute.
    """
    begun_s = time.monotonic()
    done = subprocess.run(
        DEMO,
        cwd=ROOT,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - begun_s < 60
    assert re.findall(r"^(\d)/8  ", done.stdout, re.MULTILINE) == list("12345678")
    assert done.stdout.count("\n  ok ") == 16
    assert "red has 8 of 16 pods and blue 8" in done.stdout
    assert "$ kubectl gangsched why llm\n       Gang demo/llm needs 12 pods" in done.stdout
    assert "11 fit" in done.stdout
    assert "is reserved; starts at " in done.stdout
    assert "\x1b" not in done.stdout
    assert leftovers(tmp_path) == []


def test_a_false_claim_ends_it_with_1(tmp_path: Path) -> None:
    """A claim that does not hold is named in one sentence, the exit code is 1, and nothing
    is left.
    """
    done = subprocess.run(
        [sys.executable, "-c", A_FALSE_CLAIM],
        cwd=ROOT,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "demo: This should be so, and is not: pigs fly"
    assert "Traceback" not in done.stderr
    assert leftovers(tmp_path) == []


def test_ctrl_c_in_the_middle_takes_everything_down(tmp_path: Path) -> None:
    """A ctrl-C during a scene ends with 130 and one sentence, and nothing is left."""
    with subprocess.Popen(
        DEMO,
        cwd=ROOT,
        env=environment(tmp_path, PYTHONUNBUFFERED="1"),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert any(line.startswith("1/8") for line in process.stdout)
        assert leftovers(tmp_path) != []
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said == "demo: interrupted, everything has been taken down\n"
    assert leftovers(tmp_path) == []


def test_on_a_terminal_there_is_a_live_picture_and_time_to_read(tmp_path: Path) -> None:
    """On a terminal the nodes are drawn, and a sentence stays for as long as it takes to read it;
    PACE changes that.
    """
    with on_a_terminal(
        DEMO, environment(tmp_path, TERM="xterm-256color", COLUMNS="120", LINES="40")
    ) as (process, ours):
        read_until(ours, "Applied for kube-scheduler.*")
        began_s = time.monotonic()
        shown = read_until(ours, "neither can train")
        assert time.monotonic() - began_s > 2
        assert re.search(r"node-12 +A100 .*■", shown)
        os.write(ours, b"\x03")
        read_until(ours, None)
        assert process.wait(30) == 130
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("pace", ["soon", "-1", "nan", "1e9"])
def test_a_pace_that_is_none_is_refused_in_one_sentence(tmp_path: Path, pace: str) -> None:
    """Before anything is started."""
    done = subprocess.run(
        DEMO,
        cwd=ROOT,
        env=environment(tmp_path, PACE=pace),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"demo: PACE is a number from 0 to 100, such as 0.5; it is {pace!r}.\n"


def test_the_playground_prints_what_a_shell_needs_and_leaves_nothing(tmp_path: Path) -> None:
    """Two lines, pasted into a shell, give it the cluster, kubectl, its plugin and completion, and
    gangsched's pods have its log; ctrl-C ends with 0.
    """
    with on_a_terminal(PLAYGROUND, environment(tmp_path, SHELL="/bin/bash", COLUMNS="120")) as (
        process,
        ours,
    ):
        shown = read_until(ours, r"takes everything down\.")
        pasted = [line.strip() for line in shown.splitlines() if line.startswith("  ")][:2]
        typed = (
            "kubectl get nodes -o name; kubectl get pg,gangs; kubectl gangsched map; complete -p"
            f" kubectl; until kubectl {LOGS} | grep -qo leading; do sleep 0.2; done; echo logged"
        )
        done = subprocess.run(
            ["bash", "-c", "\n".join([*pasted, typed])],
            env=BARE,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stdout.startswith("node/gpu-1\nnode/gpu-2\n16 of 16 nvidia.com/gpu are free"), (
            done
        )
        assert done.stdout.endswith("-F __start_kubectl kubectl\nlogged\n"), done
        assert done.stderr == "No resources found in default namespace.\n"
        os.write(ours, b"\x03")
        read_until(ours, None)
        assert process.wait(30) == 0
    assert leftovers(tmp_path) == []


@contextlib.contextmanager
def on_a_terminal(
    argv: list[str], env: Mapping[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process with a terminal of its own, and our end of it."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        argv,
        cwd=ROOT,
        env=env,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - one ioctl, no lock
    ) as process:
        os.close(theirs)
        try:
            yield process, ours
        except BaseException:
            process.kill()  # it may wait for somebody to read its terminal
            raise
        finally:
            os.close(ours)


def read_until(terminal: int, pattern: str | None, *, within_s: float = 60.0) -> str:
    """What the terminal showed, without its control sequences, up to `pattern` (None: up to its
    end).
    """
    shown = b""
    deadline_s = time.monotonic() + within_s
    while pattern is None or not re.search(pattern + r"\s", plain(shown)):
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline_s - time.monotonic()))
        assert ready, f"not within {within_s} s: {pattern!r}"
        try:
            chunk = os.read(terminal, 1 << 16)
        except OSError:  # how Linux tells that the other end was closed
            break
        shown += chunk
    return plain(shown)


def plain(shown: bytes) -> str:
    """What a terminal got, without control sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode(errors="replace"))
