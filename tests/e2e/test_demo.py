"""The demo keeps its promises to newcomers: exit code 0 when its claims hold, 1 when one does not, nothing left."""

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
from collections.abc import Mapping
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
DEMO = [sys.executable, "-m", "demo"]
A_FALSE_CLAIM = """
import sys, demo.__main__ as main
main.SCENES = (("A lie", lambda stage: stage.claim("pigs fly", False)),)
sys.exit(main.main())
"""


def environment(tmp_path: Path, **more: str) -> Mapping[str, str]:
    """Ours, with everything temporary below `tmp_path`, so that leftovers can be told from others' processes."""
    return {**os.environ, "TMPDIR": str(tmp_path), "KEEP": "", **more}


def leftovers(tmp_path: Path) -> list[str]:
    """Command lines of processes that work below `tmp_path`, and what lies there."""
    found = [str(path) for path in tmp_path.iterdir()]
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and str(tmp_path) in os.readlink(entry / "cwd"):
                found.append((entry / "cmdline").read_text().replace("\0", " "))
    return found


def test_every_claim_holds_and_nothing_is_left(tmp_path: Path) -> None:
    """Without a terminal: eight scenes in plain lines, every claim checked, exit code 0 in under a minute."""
    begun_s = time.monotonic()
    done = subprocess.run(
        DEMO, cwd=ROOT, env=environment(tmp_path), capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - begun_s < 60
    assert re.findall(r"^(\d)/8  ", done.stdout, re.MULTILINE) == list("12345678")
    assert done.stdout.count("\n  ok ") == 13
    assert "needs room for 4 more pods, each asking for 100m cpu, 64Mi memory, 8 nvidia.com/gpu" in done.stdout
    assert "there is room for 3" in done.stdout
    assert "\x1b" not in done.stdout
    assert leftovers(tmp_path) == []


def test_a_false_claim_ends_it_with_1(tmp_path: Path) -> None:
    """A claim that does not hold is named in one sentence, the exit code is 1, and nothing is left."""
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


def test_keep_leaves_everything_up_until_ctrl_c(tmp_path: Path) -> None:
    """On a terminal with KEEP=1: a live picture, the KUBECONFIG line, everything up; ctrl-C takes it down with 0."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        DEMO,
        cwd=ROOT,
        env=environment(tmp_path, KEEP="1", TERM="xterm-256color", COLUMNS="120", LINES="40"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - one ioctl, no lock
    ) as process:
        os.close(theirs)
        shown = read_until(ours, rb"export KUBECONFIG=(\S+)")
        match = re.search(r"export KUBECONFIG=(\S+)", shown)
        assert match is not None
        kubeconfig = Path(match[1])
        assert kubeconfig.is_relative_to(tmp_path)
        assert kubeconfig.exists()
        assert {"etcd", "kube-apiserver", "kwok"} <= {Path(line.split()[0]).name for line in leftovers(tmp_path)}
        assert re.search(r"node-12 +A100 .*■", shown)
        os.write(ours, b"\x03")
        read_until(ours, None)
        assert process.wait(30) == 0
    os.close(ours)
    assert leftovers(tmp_path) == []


def read_until(terminal: int, pattern: bytes | None, *, within_s: float = 60.0) -> str:
    """What the terminal showed, without its control sequences, up to `pattern` (None: up to its end)."""
    shown = b""
    deadline_s = time.monotonic() + within_s
    while pattern is None or not re.search(pattern + rb"\s", shown):
        ready, _, _ = select.select([terminal], [], [], deadline_s - time.monotonic())
        assert ready, f"not within {within_s} s: {pattern!r}"
        try:
            chunk = os.read(terminal, 1 << 16)
        except OSError:  # how Linux tells that the other end was closed
            break
        shown += chunk
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode(errors="replace"))
