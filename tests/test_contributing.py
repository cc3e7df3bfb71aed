"""CONTRIBUTING.md and the hooks of pre-commit: what they promise is there, and the diffs that they
show work.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from tests.density import density_of
from tests.test_density import SMALL, TOKENS_A_LINE

ROOT = Path(__file__).resolve().parents[1]
LONGEST_DIFF = 45


def test_pre_commit_runs_the_static_checks_of_make() -> None:
    """The hooks are the checks with which `make test` begins, the same commands on the
    same files.
    """
    (repo,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    makefile = (ROOT / "Makefile").read_text()
    found = re.search(r"^test: (.*) unit histories e2e\b", makefile, re.MULTILINE)
    assert found is not None
    assert [hook["entry"] for hook in repo["hooks"]] == [
        f"make {target}" for target in found[1].split()
    ]
    assert not any(hook["pass_filenames"] for hook in repo["hooks"])


def test_every_path_and_target_that_it_names_exists() -> None:
    """CONTRIBUTING.md names no file that has moved and no target that is gone."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    # their new files exist only in the copies below
    page = re.sub(r"```diff\n.*?```", "", page, flags=re.DOTALL)
    paths = re.findall(r"[\w./-]+/[\w./-]*\w\.(?:py|md|yaml)\b", page)
    assert [path for path in paths if not (ROOT / path).exists()] == []
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"[`$] ?make ([a-z][a-z-]*)", page))
    assert {
        target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)
    } == set()


ASK_THE_FILTER = """
from gangsched.core.findings import node_counts
from gangsched.sentences.words import nodes_available
from tests.builders import ledger, node, pod

nodes = [node("a", labels={"example.com/quarantine": "1"}), node("b", gpus=0)]
print(nodes_available(node_counts(pod("p"), ledger(nodes))))
print(ledger(nodes).room(pod("p", gpus=0).shape).tolist())
"""
ASK_THE_DIALECT = """
from gangsched.api.dialects import DIALECTS
from gangsched.api.gang_identity import gang_id
from gangsched.api.podgroup import parse_pod_group
from tests.builders import pod

metadata = {"namespace": "ml", "name": "train", "uid": "u"}
version = "batch.example.com/v1"
body = {"apiVersion": version, "kind": "PodSet", "metadata": metadata, "spec": {"size": 3}}
member = pod("a", namespace="ml", gang_metadata=(("batch.example.com/set", "train"),))
print(parse_pod_group(body).min_member)
print(gang_id(member).id, DIALECTS["batch.example.com"].name)
"""
ASK_THE_RULE = """
from gangsched.core import score
from tests.builders import ledger, node, pod

on = ledger([node("a", labels={"example.com/spot": "1"}), node("b")])
shape = pod("p").shape
nodes, counts = score.choose(shape, 9, on.room(shape), on)
print([(on.table.names[node], count) for node, count in zip(nodes.tolist(), counts.tolist())])
"""

ASK_THE_GROUP_RULE = """
from gangsched.core.placement_attempt import PlacementAttempt
from gangsched.core.scopes import usable
from tests.builders import gang, group, ledger, node, pod

on = ledger([node("a", labels={"example.com/retiring": "1"}), node("b")])
for priority in (0, 100):
    member = pod("p", gpus=8, priority=priority)
    whose = group(gang("ns/g", [member]), priority=priority)
    print(usable(member.shape, PlacementAttempt(whose, on)).tolist())
"""


def test_a_filter_is_one_module_and_one_line(tmp_path: Path) -> None:
    """The toy filter takes the labelled node from every pod, and its reason is in kube-scheduler's
    sentence.
    """
    said, room = run_in(patched_copy("Add a filter", tmp_path), "-c", ASK_THE_FILTER).splitlines()
    assert (
        said
        == "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) were in quarantine."
    )
    assert room == "[0, 110]"


def test_a_scoring_rule_is_one_function_and_one_line(tmp_path: Path) -> None:
    """Without the toy rule the first name wins; with it the labelled node gets only what is left
    over.
    """
    assert run_in(ROOT, "-c", ASK_THE_RULE) == "[('a', 8), ('b', 1)]"
    assert (
        run_in(patched_copy("Add a scoring rule", tmp_path), "-c", ASK_THE_RULE)
        == "[('b', 8), ('a', 1)]"
    )


def test_a_rule_about_groups_is_one_class_and_one_line(tmp_path: Path) -> None:
    """The toy rule takes the labelled node from groups of low priority only."""
    assert run_in(ROOT, "-c", ASK_THE_GROUP_RULE).splitlines() == ["[1, 1]", "[1, 1]"]
    copy = patched_copy("Add a rule about groups", tmp_path)
    assert run_in(copy, "-c", ASK_THE_GROUP_RULE).splitlines() == ["[0, 1]", "[1, 1]"]


def test_a_dialect_is_one_module_and_its_entries(tmp_path: Path) -> None:
    """An object of the toy dialect declares the minimum of the gang that its label names."""
    copy = patched_copy("Add a dialect", tmp_path)
    assert run_in(copy, "-c", ASK_THE_DIALECT).splitlines() == ["3", "ml/train podsets"]


def patched_copy(heading: str, folder: Path) -> Path:
    """A copy of the package in `folder` with the diff under `heading`, applied by content; it
    passes ruff.
    """
    shutil.copytree(
        ROOT / "gangsched", folder / "gangsched", ignore=shutil.ignore_patterns("__pycache__")
    )
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
            assert not before or text.count(before) == 1, (
                f"{path.name} has no single place for:\n{before}"
            )
            text = text.replace(before, after) if before else after
        path.write_text(text, encoding="utf-8")
        density = density_of([path])
        assert density.code_lines <= SMALL or density.tokens_a_line <= TOKENS_A_LINE, path.name
    for check in (("check",), ("format", "--check")):
        run_in(folder, "-m", "ruff", *check, "gangsched/core")
    return folder


def run_in(folder: Path, *command: str) -> str:
    """The output of a Python command that finds `gangsched` in `folder` first."""
    env = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()
