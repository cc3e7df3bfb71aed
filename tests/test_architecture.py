"""The house rules: who may import whom, what each package says of itself, and how long a file may grow."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "gangsched"
LONGEST_FILE = 450
SOURCES = [
    path
    for folder in ("gangsched", "tests", "bench", "demo", "hack")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "__pycache__" not in path.parts
]


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the contracts of the checkout in `folder`, on the package that lies there."""
    program = Path(sys.executable).parent / "lint-imports"
    env = {**os.environ, "PYTHONPATH": str(folder), "NO_COLOR": "1", "COLUMNS": "200"}
    return subprocess.run(
        [program, "--no-cache", "--no-logo"],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package and its contracts, to break things in."""
    shutil.copytree(PACKAGE, tmp_path / "gangsched", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".importlinter", tmp_path)
    return tmp_path


def test_contracts_hold() -> None:
    """Imports go down only, kube decides nothing, and what decides knows no clock and no network."""
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


FORBIDDEN_BELOW_THE_DOOR = (
    "asyncio",
    "time",
    "datetime",
    "random",
    "logging",
    "structlog",
    "kopf",
    "aiohttp",
    "kubernetes_asyncio",
)

PLANTS = [
    *[("core/score.py", f"import {module}", module) for module in FORBIDDEN_BELOW_THE_DOOR],
    *[(f"{pure}/__init__.py", "import time", "time") for pure in ("state", "api", "model")],
    ("core/filter/node_name.py", "def late() -> None:\n    from time import monotonic", "time"),
    ("kube/write/binder.py", "from gangsched.core import cycle", "gangsched.core"),
    ("kube/write/binder.py", "from gangsched.state import queue", "gangsched.state"),
    ("kube/write/binder.py", "import gangsched.loop", "gangsched.loop"),
    ("loop.py", "from gangsched.kube.write import binder", "gangsched.kube"),
    ("model/plan.py", "from gangsched.api import keys", "gangsched.api"),
    ("api/keys.py", "from gangsched.core import score", "gangsched.core"),
    ("core/score.py", "from gangsched.state import queue", "gangsched.state"),
    ("state/queue.py", "import gangsched.settings", "gangsched.settings"),
    ("settings.py", "from gangsched.telemetry import logs", "gangsched.telemetry"),
    ("telemetry/logs.py", "from gangsched.kube.http import faults", "gangsched.kube"),
    ("app.py", "import gangsched.cli", "gangsched.cli"),
    ("daemon.py", "import gangsched.app", "gangsched.app"),
    ("kube/read/informers.py", "import gangsched.daemon", "gangsched.daemon"),
]


@pytest.mark.parametrize(("file", "code", "imported"), PLANTS)
def test_a_forbidden_import_breaks_a_contract(copy: Path, file: str, code: str, imported: str) -> None:
    """Each kind of import that the architecture rules out makes the check fail and is named by it."""
    planted = copy / "gangsched" / file
    planted.write_text(f"{planted.read_text(encoding='utf-8')}\n\n{code}\n", encoding="utf-8")
    done = lint_imports(copy)
    assert done.returncode == 1, done.stdout + done.stderr
    module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    assert f"gangsched.{module} -> {imported}" in done.stdout


def test_a_package_without_a_place_breaks_a_contract(copy: Path) -> None:
    """A new package must be given its layer before it can be merged."""
    (copy / "gangsched" / "helpers.py").write_text('"""No place for this."""\n')
    done = lint_imports(copy)
    assert done.returncode == 1
    assert "helpers" in done.stdout + done.stderr


def test_the_copy_itself_is_sound(copy: Path) -> None:
    """The tests above fail for what they plant, not for being a copy."""
    done = lint_imports(copy)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_says_what_it_is(path: Path) -> None:
    """Every module has a docstring, every package's `__init__` included."""
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_grows_without_end(path: Path) -> None:
    """A file that long has mixed deciding and doing."""
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_FILE


def test_every_folder_with_code_is_a_package() -> None:
    """import-linter sees packages only: a folder without `__init__.py` would escape the contracts."""
    folders = {path.parent for path in PACKAGE.rglob("*.py") if "__pycache__" not in path.parts}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_what_decides_rolls_no_dice() -> None:
    """NumPy has a random generator of its own, which an import contract cannot see."""
    for package in ("state", "core", "api", "model"):
        for path in (PACKAGE / package).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            dice = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "random"]
            assert dice == [], f"{path} uses random numbers in lines {dice}"


def test_the_picture_names_every_file() -> None:
    """docs/architecture.md shows where every module of the package is, and none that is not there."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    picture = page.split("```\ngangsched/\n")[1].split("```")[0]
    named = set(re.findall(r"\b(\w+\.py)\b", picture))
    modules = {path.name for path in PACKAGE.rglob("*.py")} - {"__init__.py"}
    assert modules - named == set()
    assert named - modules == {path.name for path in (ROOT / "tests").glob("*.py")} & named
