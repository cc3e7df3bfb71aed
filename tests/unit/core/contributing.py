"""The diffs that CONTRIBUTING.md shows, applied to a copy of the package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
LONGEST_DIFF = 25


def patched_copy(heading: str, folder: Path) -> Path:
    """Copy the package to `folder` and apply the diff under `heading`, by content and not by line number."""
    shutil.copytree(ROOT / "gangsched", folder / "gangsched", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    diff = page.split(f"## {heading}\n")[1].split("```diff\n")[1].split("```")[0]
    assert len(diff.splitlines()) <= LONGEST_DIFF
    for part in diff.split("--- ")[1:]:
        header, *hunks = part.split("\n@@ ")
        path = folder / header.partition("+++ b/")[2].strip()
        text = "" if header.startswith("/dev/null") else path.read_text(encoding="utf-8")
        for hunk in hunks:
            lines = hunk.splitlines()[1:]
            before = "".join(f"{line[1:]}\n" for line in lines if line[:1] != "+")
            after = "".join(f"{line[1:]}\n" for line in lines if line[:1] != "-")
            assert not before or text.count(before) == 1, f"{path.name} has no single place for:\n{before}"
            text = text.replace(before, after) if before else after
        path.write_text(text, encoding="utf-8")
    return folder


def run_in(folder: Path, *command: str) -> str:
    """What a Python command prints that finds `gangsched` in `folder` first."""
    env = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()
