"""`kubectl_complete-gangsched`: completion for `kubectl gangsched …`.

Invariant: typer finds the candidates, as for the shell's own completion of `kubectl-gangsched`. The
output has cobra's format: one candidate per line, then `:` and a directive. Names of gangs and pods
are asked of the cluster, for at most two seconds; it never fails.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import redirect_stdout, suppress

from kubectl_gangsched.main import cli

PROGRAM = "kubectl-gangsched"
FILES = ":0"
NO_FILES = ":4"
"""Cobra's directives: the shell may complete names of files, or not."""


def candidates(words: list[str]) -> list[str]:
    """Output lines for these words, the last of which is incomplete. If there is no candidate, the
    shell may complete file names.
    """
    asked = {
        "_KUBECTL_GANGSCHED_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join([PROGRAM, *words]),
        "COMP_CWORD": str(max(1, len(words))),
    }
    # typer reads the words from the environment, as bash's completion sets it.
    printed = io.StringIO()
    before = {name: os.environ.get(name) for name in asked}
    os.environ.update(asked)

    try:
        with redirect_stdout(printed), suppress(SystemExit, ValueError):
            cli(prog_name=PROGRAM)
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})

    lines = [line for line in printed.getvalue().splitlines() if line]
    return [*lines, NO_FILES if lines else FILES]


def main() -> None:
    """Run the console script."""
    sys.stdout.write("\n".join(candidates(sys.argv[1:])) + "\n")
