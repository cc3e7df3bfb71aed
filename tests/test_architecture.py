"""The house rules: who may import whom, what each package says of itself, and how long a file may
grow.
"""

from __future__ import annotations

import ast
import io
import os
import re
import shutil
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Mapping, Set
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "gangsched"
CEL = ROOT / "packages" / "kubernetes-cel" / "kubernetes_cel"
PLUGIN = ROOT / "packages" / "kubectl-gangsched" / "kubectl_gangsched"
LONGEST_FILE = 900
"""Only against files that hold two things: how full a line is has a bound of its own, and air must
not be paid for with it.
"""
"""Files that became longer than that when they were reformatted: how long each may be at most."""
LEAST_COMMENTED = 0.038
"""Share of the package's lines, without blank ones, that have a comment."""
SOURCES = [
    path
    for folder in ("gangsched", "packages", "tests", "bench", "demo", "hack")
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


def test_contracts_hold() -> None:
    """Imports go down only, kube decides nothing, and what decides knows no clock and
    no network.
    """
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


PURE = ("state", "core", "sentences", "api", "model")
IMPURE = (
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
PLANTS = (
    *[("core/score.py", f"import {module}", module) for module in IMPURE],
    *[(f"{package}/__init__.py", "import time", "time") for package in PURE],
    ("core/filter/node_name.py", "def late() -> None:\n    from time import monotonic", "time"),
    ("kube/write/binder.py", "from gangsched.core import cycle", "gangsched.core"),
    ("kube/write/binder.py", "from gangsched.state import queue", "gangsched.state"),
    ("kube/write/binder.py", "import gangsched.loop", "gangsched.loop"),
    ("loop.py", "from gangsched.kube.write import binder", "gangsched.kube.write.binder"),
    ("model/plan.py", "from gangsched.api import keys", "gangsched.api.keys"),
    ("api/keys.py", "from gangsched.core import score", "gangsched.core.score"),
    ("core/decision.py", "from gangsched.sentences import say", "gangsched.sentences"),
    ("sentences/say.py", "from gangsched.core import score", "gangsched.core.score"),
    (
        "core/pipeline.py",
        "from gangsched.core.reservations import standing",
        "gangsched.core.reservations",
    ),
    (
        "core/decision.py",
        "from gangsched.core.preemption import attempt",
        "gangsched.core.preemption",
    ),
    ("core/score.py", "from gangsched.core import last_ends", "gangsched.core.last_ends"),
    (
        "core/rounds.py",
        "from gangsched.core import chosen_devices",
        "gangsched.core.chosen_devices",
    ),
    (
        "core/score.py",
        "from gangsched.state.queueing import queue",
        "gangsched.state.queueing.queue",
    ),
    ("state/queueing/queue.py", "import gangsched.settings", "gangsched.settings"),
    ("settings.py", "from gangsched.telemetry import logs", "gangsched.telemetry.logs"),
    ("settings.py", "import gangsched.parameters", "gangsched.parameters"),
    ("loop.py", "from gangsched.simulate import simulator", "gangsched.simulate.simulator"),
    ("simulate/simulator.py", "from gangsched import loop", "gangsched.loop"),
    (
        "visibility/server.py",
        "from gangsched.kube.http import client",
        "gangsched.kube.http.client",
    ),
    ("visibility/server.py", "from gangsched import loop", "gangsched.loop"),
    ("telemetry/logs.py", "from gangsched.kube.http import faults", "gangsched.kube.http.faults"),
    ("app.py", "import gangsched.cli", "gangsched.cli"),
    ("daemon.py", "import gangsched.app", "gangsched.app"),
    ("daemon.py", "from gangsched.snapshots import kept", "gangsched.snapshots.kept"),
    ("daemon.py", "from kubectl_gangsched import session", "kubectl_gangsched.session"),
    ("kube/read/informers.py", "import gangsched.daemon", "gangsched.daemon"),
    ("helpers.py", '"""A module without a layer."""', ""),
)
"""(file, code planted in it, module that the report must name as imported there)."""


def test_each_forbidden_import_breaks_a_contract(tmp_path: Path) -> None:
    """The check names each kind of import that the architecture rules out, and a module without a
    layer.
    """
    for package in (PACKAGE, CEL, PLUGIN):
        shutil.copytree(
            package, tmp_path / package.name, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / ".importlinter", tmp_path)
    sound = lint_imports(tmp_path)
    assert sound.returncode == 0, (
        "the copy must be sound before anything is planted: " + sound.stdout
    )
    for file, code, _ in PLANTS:
        with (tmp_path / "gangsched" / file).open("a", encoding="utf-8") as planted:
            planted.write(f"\n\n{code}\n")
    report = lint_imports(tmp_path).stdout
    unnoticed = [plant for plant in PLANTS if not _is_reported(plant, report)]
    assert unnoticed == [], report


def _is_reported(plant: tuple[str, str, str], report: str) -> bool:
    """Whether the planted import is a broken chain of its own: one link, which no other plant can
    account for.
    """
    file, _, imported = plant
    module = re.escape(
        "gangsched." + file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    )
    if not imported:
        return re.search(rf"\b{module.removeprefix('gangsched.')}\b", report) is not None
    return (
        re.search(rf"^-\s+{module} -> {re.escape(imported)}\b.*\n(?:\s*$|-)", report, re.MULTILINE)
        is not None
    )


def test_no_file_grows_without_end() -> None:
    """A file that long has mixed deciding and doing."""
    lines = {str(path.relative_to(ROOT)): path.read_bytes().count(b"\n") for path in SOURCES}
    assert {path: count for path, count in lines.items() if count > LONGEST_FILE} == {}


def _commented(source: str) -> int:
    """Lines with a comment for readers, not for tools."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = (each.string for each in tokens if each.type == tokenize.COMMENT)
    return sum(re.match(r"# (noqa|type:|---)", comment) is None for comment in comments)


def test_reasons_stand_beside_the_lines_that_need_them() -> None:
    """What code does is read from it; why, who changes it must not have to find out again."""
    package = [path.read_text() for path in PACKAGE.rglob("*.py")]
    lines = sum(bool(line.strip()) for source in package for line in source.splitlines())
    assert sum(map(_commented, package)) / lines >= LEAST_COMMENTED
    assert _commented('a = "# 1"  # why\n# --- part ---\nb = 1  # noqa: E501\n# why b') == 2


NAMED_OTHERWISE = {
    # hack/control-plane/build.py, a script beside the package control_plane
    "control_plane/test_build.py"
}
"""Unit tests that are not named for a module of that place."""


def test_every_unit_test_stands_where_its_module_stands() -> None:
    """tests/unit/<package>/test_<module>.py tests gangsched/<package>/<module>.py; bench,
    control_plane and what is in packages/ likewise.
    """
    homes = {
        ROOT / "tests" / "unit": (PACKAGE, ROOT, ROOT / "hack" / "control-plane"),
        CEL.parent / "tests": (CEL,),
        PLUGIN.parent / "tests": (PLUGIN,),
    }
    homeless = {
        str(test.relative_to(folder))
        for folder, packages in homes.items()
        for test in folder.rglob("test_*.py")
        if not any(_tested_by(test.relative_to(folder), package) for package in packages)
    }
    assert homeless == NAMED_OTHERWISE


def _tested_by(test: Path, package: Path) -> bool:
    """Whether the package has the module that the path of a test names."""
    return (package / test.parent / f"{test.stem.removeprefix('test_')}.py").is_file()


def test_what_tries_less_in_the_gate_is_part_of_make_properties() -> None:
    """It selects what has the marker `long`, and properties of hypothesis."""
    files = [
        path
        for folder in ("unit", "properties")
        for path in (ROOT / "tests" / folder).rglob("test_*.py")
    ]
    sized = {path.name: text for path in files if "of_size(" in (text := path.read_text())}
    assert len(sized) > 20
    assert [name for name, text in sized.items() if not re.search(r"mark\.long|@given", text)] == []


def test_every_folder_with_code_is_a_package() -> None:
    """import-linter sees packages only: a folder without `__init__.py` would escape
    the contracts.
    """
    folders = {
        path.parent
        for package in (PACKAGE, CEL, PLUGIN)
        for path in package.rglob("*.py")
        if "__pycache__" not in path.parts
    }
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


@cache
def _classes(source: str) -> list[str]:
    return [node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]


def homonyms(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Names that several classes have, with the files of these."""
    found: dict[str, list[str]] = {}
    for path, source in sources.items():
        for name in _classes(source):
            found.setdefault(name, []).append(path)
    return {name: paths for name, paths in found.items() if len(paths) > 1}


def test_no_two_classes_have_one_name() -> None:
    """Who reads a name in a message, a traceback or a review knows which class it is."""
    package = {str(path.relative_to(PACKAGE)): path.read_text() for path in PACKAGE.rglob("*.py")}
    assert homonyms(package) == {}
    planted = homonyms({**package, "core/new.py": "class Snapshot: ..."})
    assert planted == {"Snapshot": ["model/snapshot.py", "core/new.py"]}


def test_no_two_modules_that_decide_have_one_name() -> None:
    """What plans and keeps is one vocabulary; what reads or writes (kube, telemetry) may share a
    name with it.
    """
    decide = [
        *PACKAGE.glob("*.py"),
        *(path for package in PURE for path in (PACKAGE / package).rglob("*.py")),
    ]
    names = Counter(path.name for path in decide if path.name != "__init__.py")
    assert {name: count for name, count in names.items() if count > 1} == {}


def _imported(source: str, modules: Set[str]) -> set[str]:
    """The modules among these that a source imports, wherever in it."""
    names = set[str]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inside = f"{node.module}.{alias.name}"
                names.add(inside if inside in modules else node.module)

    return names & modules


def circle(sources: Mapping[str, str]) -> list[str]:
    """Modules, by name, that import each other in a circle, also for their types only; [] if none
    do.
    """
    imports = {}
    for name, source in sources.items():
        imports[name] = _imported(source, sources.keys()) - {name}

    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])

    return []


def test_the_core_has_no_circle_of_imports() -> None:
    """Each module can be read after those that it imports: no type is imported behind the back."""
    sources = {}
    for path in (PACKAGE / "core").rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        sources[name] = path.read_text(encoding="utf-8")

    assert [name for name, source in sources.items() if "TYPE_CHECKING" in source] == []
    assert circle(sources) == []

    scope = "gangsched.core.scope"
    behind = "if TYPE_CHECKING:\n    from gangsched.core.search.demand import Demand\n"
    assert scope in circle({**sources, scope: f"{sources[scope]}\n{behind}"})
    late = "def f():\n    from gangsched.core.search import demand\n"
    assert scope in circle({**sources, scope: f"{sources[scope]}\n{late}"})


def _carries(source: str) -> set[str]:
    """The frozen dataclasses that have a field for something that can change: a container, or a
    cache.
    """
    frozen = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
        and any("frozen=True" in ast.unparse(each) for each in node.decorator_list)
    ]
    changing = re.compile(
        r"\b(dict|list|set|MutableMapping|defaultdict|Counter|\w*(?:Memo|Cache))\b"
    )
    fields = (
        (each.name, field)
        for each in frozen
        for field in each.body
        if isinstance(field, ast.AnnAssign)
    )
    return {name for name, field in fields if changing.search(ast.unparse(field.annotation))}


def test_no_input_of_a_plan_carries_a_cache() -> None:
    """The state hands caches to `plan` beside its input. A node table has facts about its own nodes
    only.
    """
    assert set().union(
        *(_carries(path.read_text()) for path in (PACKAGE / "model").rglob("*.py"))
    ) == {"NodeTable"}
    assert _carries(
        "@dataclass(frozen=True)\nclass A:\n    kept: dict[str, int]\n    of: frozenset[str]"
    ) == {"A"}
    assert _carries("@dataclass(frozen=True)\nclass A:\n    kept: CountCache") == {"A"}


FORMS_GROUPS = {"model/gang.py", "model/tree.py", "state/group_record.py", "state/groups.py"}
"""The modules that make groups of what objects declare, and give each its root."""


def test_nobody_asks_whether_a_group_has_a_tree() -> None:
    """Every group is a part: what differs is a property of parts, asked of its `root`."""
    asks: list[str] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if name in FORMS_GROUPS:
            continue

        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Attribute) or node.attr != "tree":
                continue

            # A decision about parts has the root that it was given.
            is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
            if not is_own:
                asks.append(f"{name}:{node.lineno}")

    assert not asks, "these ask for a declared tree instead of the root of the group"


def test_what_decides_rolls_no_dice() -> None:
    """NumPy has a random generator of its own, which an import contract cannot see."""
    for package in PURE:
        for path in (PACKAGE / package).rglob("*.py"):
            dice = re.findall(r".*\.random\b.*", path.read_text(encoding="utf-8"))
            assert dice == [], f"{path} uses random numbers: {dice}"


def test_the_picture_names_every_file() -> None:
    """docs/architecture.md shows where every module of the package is, and none that is
    not there.
    """
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    picture = page.split("```\ngangsched/\n")[1].split("```")[0]
    named = set(re.findall(r"\b(\w+\.py)\b", picture))
    modules = {
        path.name for package in (PACKAGE, CEL, PLUGIN) for path in package.rglob("*.py")
    } - {"__init__.py"}
    assert modules - named == set()
    assert named - modules == {path.name for path in (ROOT / "tests").glob("*.py")} & named


def test_the_page_names_everything_that_is_imported_from_core() -> None:
    """docs/architecture.md: others import `plan`, its limits and the helpers that the
    page names.
    """
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    law = page.split("**The core decides")[1].split("```")[0]
    named = set(re.findall(r"`(?:core\.cycle\.)?(\w+)(?:\([^`]*)?`", law)) - {
        "now_s",
        "core",
        "state",
    }
    imported = {
        alias.name
        for path in PACKAGE.rglob("*.py")
        if "core" not in path.relative_to(PACKAGE).parts
        if "gangsched.core" in (text := path.read_text(encoding="utf-8"))
        for statement in ast.walk(ast.parse(text))
        if isinstance(statement, ast.ImportFrom)
        and (statement.module or "").startswith("gangsched.core")
        for alias in statement.names
    }
    assert imported == named
