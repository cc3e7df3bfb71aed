"""What a benchmark printed."""

import json
from typing import Any

import pytest


def figures(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """The JSON objects printed, one a line."""
    return [
        json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")
    ]
