"""A filter is added as CONTRIBUTING.md says: one module and one line in the registry."""

from __future__ import annotations

from pathlib import Path

from tests.unit.core.contributing import patched_copy, run_in

CHECK = """
from gangsched.core.messages import nodes_available
from tests.builders import ledger, node, pod

nodes = [node("a", labels={"example.com/quarantine": "1"}), node("b", gpus=0)]
print(nodes_available(pod("p"), ledger(nodes)))
print(ledger(nodes).room(pod("p", gpus=0).shape).tolist())
"""


def test_the_filter_refuses_with_its_text(tmp_path: Path) -> None:
    """The toy filter takes the labelled node from every pod, says so in kube-scheduler's sentence, and passes lint."""
    folder = patched_copy("Add a filter", tmp_path)
    told, room = run_in(folder, "-c", CHECK).splitlines()
    assert told == "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) were in quarantine."
    assert room == "[0, 110]"
    run_in(folder, "-m", "ruff", "check", "gangsched/core")
    run_in(folder, "-m", "ruff", "format", "--check", "gangsched/core")
