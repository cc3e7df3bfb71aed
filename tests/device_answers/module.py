"""Builds and asks hack/device-answers, a Go program around k8s.io/dynamic-resource-allocation."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "hack" / "device-answers"
PROGRAM = ROOT / ".cache" / "device-answers"


def answers(questions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One answer for each question, built first if need be; needs Go and, the first time, its
    module proxy.
    """
    subprocess.run(["go", "build", "-o", str(PROGRAM), "."], cwd=SOURCE, check=True)
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    done = subprocess.run([str(PROGRAM)], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]
