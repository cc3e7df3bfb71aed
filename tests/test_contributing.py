"""CONTRIBUTING.md and the hooks of pre-commit: what they promise is there."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]


def test_pre_commit_runs_the_static_checks_of_make() -> None:
    """The hooks are the checks with which `make test` begins, the same commands on the same files."""
    (repo,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    makefile = (ROOT / "Makefile").read_text()
    found = re.search(r"^test: (.*) unit e2e\b", makefile, re.MULTILINE)
    assert found is not None
    assert [hook["entry"] for hook in repo["hooks"]] == [f"make {target}" for target in found[1].split()]
    assert not any(hook["pass_filenames"] for hook in repo["hooks"])


def test_every_path_and_target_that_it_names_exists() -> None:
    """CONTRIBUTING.md names no file that has moved and no target that is gone."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    page = re.sub(r"```diff\n.*?```", "", page, flags=re.DOTALL)  # tests/unit/core/contributing.py applies these
    paths = re.findall(r"[\w./-]+/[\w./-]*\w\.(?:py|md|yaml)\b", page)
    assert [path for path in paths if not (ROOT / path).exists()] == []
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"[`$] ?make ([a-z][a-z-]*)", page))
    assert {target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)} == set()
