"""Plant each bug in a copy of the package and see that a test fails: `python -m tests.mutants.run [WORD]`.

Exit status 1 when a mutant survives or no longer applies, or when the tests fail without any. With WORD only mutants
whose name contains it. The checkout itself is never changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.mutants.mutant import Mutant
from tests.mutants.planted import MUTANTS

ROOT = Path(__file__).parent.parent.parent
LONGEST_S = 120.0


def main() -> int:
    """Run all, print the table mutant → failing test."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    chosen = [mutant for mutant in MUTANTS if wanted in mutant.name]
    console = Console(width=150)
    table = Table("rule", "planted bug", "found by", "s", title=f"{len(chosen)} planted bugs")
    survived = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder)
        copy_checkout(copy)
        for tests in sorted({mutant.tests for mutant in chosen}):
            if (failing := first_failure(copy, tests)) is not None:
                console.print(f"[red]without any planted bug {failing} fails[/]")
                return 1
        for mutant in chosen:
            began_s = time.monotonic()
            found = caught_by(mutant, copy)
            if found is None:
                survived.append(mutant.name)
            table.add_row(mutant.rule, mutant.name, found or "[red]nothing[/]", f"{time.monotonic() - began_s:.1f}")
    console.print(table)
    for name in survived:
        console.print(f"[red]survived: {name}[/]")
    return 1 if survived else 0


def copy_checkout(copy: Path) -> None:
    """What the tests need, and nothing that is not source."""
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in ("gangsched", "tests", "bench", "docs"):
        shutil.copytree(ROOT / name, copy / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", copy)


def caught_by(mutant: Mutant, copy: Path) -> str | None:
    """The test that fails on the mutant; None when it survives."""
    path = copy / "gangsched" / mutant.file
    source = path.read_text()
    if source.count(mutant.old) != 1:
        sys.exit(
            f'The planted bug "{mutant.name}" no longer applies: its text is {source.count(mutant.old)} times in '
            f"gangsched/{mutant.file}."
        )
    path.write_text(source.replace(mutant.old, mutant.new))
    try:
        return first_failure(copy, mutant.tests)
    finally:
        path.write_text(source)


def first_failure(copy: Path, tests: str) -> str | None:
    """The first test of the copy that fails, or ends too late; None when all pass."""
    env = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider", tests]
    try:
        ended = subprocess.run(
            command, cwd=copy, env=env, capture_output=True, text=True, timeout=LONGEST_S, check=False
        )
    except subprocess.TimeoutExpired:
        return "(did not end)"
    if ended.returncode == 0:
        return None
    lines = [line for line in ended.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if not lines:
        sys.exit(f"The tests did not run: {ended.stdout[-2000:]}{ended.stderr[-2000:]}")
    return lines[0].split("::", 1)[-1].split(" - ")[0]


if __name__ == "__main__":
    sys.exit(main())
