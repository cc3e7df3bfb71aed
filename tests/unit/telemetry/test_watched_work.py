"""What is known of a process that ended in the middle of a plan (semantics I10)."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gangsched.telemetry import watched_work
from gangsched.telemetry.watched_work import PlanTooLongError, WatchedWork

ENDS = """
import os, signal, sys
from pathlib import Path
from gangsched.telemetry.watched_work import WatchedWork

work = WatchedWork(Path(sys.argv[1]))
work.begin()
for group in sys.argv[2:-1]:
    work.enter(group)
if sys.argv[-1] == "after":
    work.end()
os.kill(os.getpid(), signal.SIGKILL)
"""


def spin() -> None:
    """Work without an end."""
    while True:
        pass


def ended_at(directory: Path, *groups: str, when: str = "during") -> str:
    """What the next process learns of one that is killed."""
    ran = subprocess.run([sys.executable, "-c", ENDS, str(directory), *groups, when], check=False)
    assert ran.returncode == -signal.SIGKILL
    return WatchedWork(directory).before


def test_a_killed_process_leaves_the_group_at_work(tmp_path: Path) -> None:
    """I10: SIGKILL in the middle of a plan names the last group, and only once."""
    assert ended_at(tmp_path / "new", "a/long-name", "tree:b/c") == "tree:b/c"
    assert WatchedWork(tmp_path / "new").before == ""


def test_between_plans_nobody_is_suspected(tmp_path: Path) -> None:
    """I10: a process that ends after a plan, or before the first group of one, leaves no name."""
    assert ended_at(tmp_path, "a/b", when="after") == ""
    assert ended_at(tmp_path) == ""


def test_the_file_is_never_written_through_a_link(tmp_path: Path) -> None:
    """A link that somebody left in the directory is refused, and what it leads to stays."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / watched_work.FILE).symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        WatchedWork(tmp_path)
    assert victim.read_text() == "mine"


def test_a_file_of_anybody_is_read_as_nothing(tmp_path: Path) -> None:
    """Whatever the file holds, a start goes on."""
    for content in (b"", b"\1\xff\xff" + b"x" * 600, b"\1\0\0", b"\1\0\3\xff\xfe\xfd"):
        (tmp_path / watched_work.FILE).write_bytes(content)
        assert WatchedWork(tmp_path).before == ""


def test_a_plan_without_an_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """I10: its CPU time is limited, and the alarm is off between plans."""
    monkeypatch.setattr(watched_work, "PLAN_CPU_S", 0.05)
    before = signal.getsignal(signal.SIGVTALRM)
    try:
        work = WatchedWork(None)
        work.begin()
        with pytest.raises(PlanTooLongError):
            spin()
        work.end()
        assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
        signal.raise_signal(signal.SIGVTALRM)  # one that comes late is nobody's
    finally:
        signal.signal(signal.SIGVTALRM, before)
