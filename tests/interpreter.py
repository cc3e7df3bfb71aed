"""A fresh interpreter: what an import does can be seen only once in a process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping


def printed_by(code: str, environment: Mapping[str, str] | None = None) -> str:
    """What `code` prints, stripped; ours is its environment unless another is given. Raises
    CalledProcessError.
    """
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
