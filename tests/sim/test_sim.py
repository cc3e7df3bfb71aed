"""Histories: 200 of them in every run of the tests, those that once went wrong, and that a seed is
one history.
"""

from __future__ import annotations

import os
import subprocess
import sys

SEEDS = int(os.environ.get("SIM_SEEDS", "200"))


def sim(*options: str) -> subprocess.CompletedProcess[str]:
    """`python -m tests.sim`, in a process whose hashes of texts are the same in every run."""
    return subprocess.run(
        [sys.executable, "-m", "tests.sim", *options],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_must_hold_holds_in_every_history() -> None:
    """Faults of every kind, and after each step what must hold; in the end everything is bound."""
    ended = sim("--seeds", str(SEEDS), "--until-first")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{SEEDS} seeds, 0 violations" in ended.stdout.splitlines()[-1]


def test_what_must_hold_holds_while_functions_raise() -> None:
    """I10: whatever a few functions raise, no gang starts in half, no node is over-full, and in the
    end all start.
    """
    number = max(1, SEEDS // 5)
    ended = sim("--seeds", str(number), "--planted", "--until-first")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{number} seeds, 0 violations" in ended.stdout.splitlines()[-1]


def test_a_seed_is_one_history() -> None:
    """The same seeds give the same traces to the letter, in other processes and in another order as
    well.
    """
    first = sim("--seeds", "6", "--first", "40", "--batch", "6")
    again = sim("--seeds", "6", "--first", "40", "--batch", "2", "--workers", "2")
    assert first.returncode == again.returncode == 0, first.stdout + again.stdout
    traces = [line for line in first.stdout.splitlines() if line.startswith("trace")]
    assert traces
    assert traces == [line for line in again.stdout.splitlines() if line.startswith("trace")]
