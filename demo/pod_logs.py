"""The logs of the pods that kwok plays, as a kubelet has them on disk.

Invariant: each whole line of the process's log is copied once, in order. kwok reads these files for
`kubectl logs` (pod_logs.yaml).
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

STAGES = Path(__file__).with_name("pod_logs.yaml")
OURS, OTHERS = "gangsched.pod-log", "others.pod-log"
SILENT = "kwok plays this pod: nothing runs in it, and it prints nothing"


class PodLogs:
    """Copies what gangsched logs into the log of its pods."""

    def __init__(self, folder: Path, log: Path) -> None:
        """`folder` is the one that pod_logs.yaml names; `log` is written by gangsched."""
        self._log = log
        self._copy = folder / OURS
        self._copied_bytes = 0
        self._copy.touch()
        (folder / OTHERS).write_bytes(_line(SILENT.encode()))

    def update(self) -> None:
        """Copy the lines that are new."""
        with self._log.open("rb") as file:
            file.seek(self._copied_bytes)
            lines, _, _ = file.read().rpartition(b"\n")

        if lines:
            self._copied_bytes += len(lines) + 1
            with self._copy.open("ab") as copy:
                copy.writelines(_line(line) for line in lines.split(b"\n"))


def _line(text: bytes) -> bytes:
    """A line as container runtimes write it: when it was seen, the stream, and that it is whole."""
    seen = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return f"{seen} stderr F ".encode() + text + b"\n"
