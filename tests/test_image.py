"""What the image leaves out (hack/image/trim.py): gangsched runs without it, and nothing that it
lists has moved.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
import uvloop

ROOT = Path(__file__).resolve().parents[1]
SITE = Path(msgspec.__file__).resolve().parents[1]
#: Where Python looks for `gangsched`: every other module is found in SITE, without what is trimmed.
REFUSES = """
import importlib, importlib.machinery, os, pkgutil, runpy, sys
GONE = set(open(os.environ["GONE"]).read().splitlines())

class Trimmed:
    def find_spec(self, name, path=None, target=None):
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin in GONE:
            refused.append(name)
            raise ModuleNotFoundError(name=name)
        return None

refused = []
sys.meta_path.insert(0, Trimmed())
"""


def trim() -> ModuleType:
    """The script of the Dockerfile."""
    spec = importlib.util.spec_from_file_location("trim", ROOT / "hack/image/trim.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def gone() -> str:
    """The paths of what is trimmed, one a line: what is installed is walked once."""
    found = {
        path
        for each in trim().unneeded(SITE)
        for path in ([each] if each.is_file() else each.rglob("*"))
    }
    return "\n".join(str(path) for path in found if path.suffix in {".py", ".so"})


def without_trimmed(code: str, tmp_path: Path) -> str:
    """What Python prints that refuses to load what is trimmed."""
    listed = tmp_path / "gone"
    listed.write_text(gone())
    done = subprocess.run(
        [sys.executable, "-c", REFUSES + code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "GONE": str(listed)},
        cwd=tmp_path,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_every_module_is_imported_without_what_the_image_leaves_out(tmp_path: Path) -> None:
    """Also by the detour that passes kubernetes_asyncio.client by, which has no other way in the
    image.
    """
    code = """
import gangsched
for module in pkgutil.walk_packages(gangsched.__path__, "gangsched."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print(*sorted({name.partition(".")[0] for name in refused}))
"""
    # structlog would use rich's tracebacks if it could; nothing else asks for anything that is
    # trimmed.
    assert without_trimmed(code, tmp_path).split() in ([], ["pygments"])


def test_jobs_are_planned_without_what_the_image_leaves_out(tmp_path: Path) -> None:
    """What NumPy loads when it is called, not when it is imported: `gangsched simulate` makes real
    plans.
    """
    nodes, jobs = tmp_path / "nodes.csv", tmp_path / "jobs.csv"
    nodes.write_text("gpus,count\n8,2\n")
    jobs.write_text("submitted,run_seconds,pods,gpus\n0,60,2,8\n1,60,1,8\n2,30,1,4\n")
    code = (
        f"sys.argv = ['gangsched', 'simulate', '--nodes', {str(nodes)!r}, '--jobs',"
        f" {str(jobs)!r}]\n"
    )
    code += "runpy.run_module('gangsched', run_name='__main__')\n"
    assert re.search(r"all +│ +3 │ +3 │", without_trimmed(code, tmp_path))


def test_a_pattern_that_matches_nothing_ends_the_build(tmp_path: Path) -> None:
    """An upgrade that moves files must be noticed."""
    with pytest.raises(SystemExit, match="matches nothing"):
        list(trim().unneeded(tmp_path))


def test_a_stripped_library_still_loads(tmp_path: Path) -> None:
    """Its symbols for debuggers are cut off: more than half of what uvloop ships."""
    (library,) = Path(uvloop.__file__).parent.glob("loop.*.so")
    copy = tmp_path / "uvloop" / library.name
    shutil.copytree(library.parent, copy.parent)
    trim().strip(copy)
    assert copy.stat().st_size < library.stat().st_size / 2
    code = "import uvloop.loop, asyncio; uvloop.run(asyncio.sleep(0)); print(uvloop.loop.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=60,
    )
    assert done.stdout.strip() == str(copy), done.stderr[-1000:]


def test_the_list_of_what_is_in_the_image_names_no_package_that_is_left_out() -> None:
    """`make sbom` and the script agree."""
    recipe = re.search(r"^sbom:.*\n(?:\t.*\n)+", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    assert set(re.findall(r"--no-emit-package (\S+)", recipe[0])) == set(trim().PACKAGES)
