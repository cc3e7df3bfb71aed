"""The owner's side of the keeper: start components, ask which are dead, and close it to end them
all.

Invariant: this side never forks a component and never sends it a signal; `keeper.py` does, since it
outlives this process. Any thread may use it, also one that ends before the components do.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from control_plane.errors import ControlPlaneError

KEEPER = Path(__file__).with_name("keeper.py")


class Keeping:
    """A running keeper process; `close()` ends it and everything it started."""

    def __init__(self, log: Path) -> None:
        # The pidfd names this very process, so that a reused pid cannot be mistaken for it.
        if not hasattr(os, "pidfd_open"):
            raise ControlPlaneError(
                "The control plane needs Linux: nothing else can promise to leave no process"
                " behind."
            )
        owner = os.pidfd_open(os.getpid())
        try:
            with log.open("ab") as err:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(KEEPER), str(owner)],
                    bufsize=0,  # nothing may be left to flush when the keeper is gone
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=err,
                    pass_fds=(owner,),
                    start_new_session=True,
                )
        finally:
            os.close(owner)
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        """The keeper's own pid."""
        return self._process.pid

    def start(self, name: str, argv: Sequence[str | Path], log: Path) -> int:
        """Start a component, its output appended to `log`; its pid."""
        pid = self._ask(do="start", name=name, argv=[str(word) for word in argv], log=str(log))[
            "pid"
        ]
        return int(pid)

    def stop(self, name: str) -> None:
        """End one component, with SIGKILL if it takes longer than the keeper's grace period."""
        self._ask(do="stop", name=name)

    def dead(self) -> dict[str, int]:
        """Exit codes (negative: a signal) of the components that ended by themselves."""
        return dict(self._ask(do="dead")["dead"])

    def remove_at_end(self, folder: Path) -> None:
        """Have a directory removed once everything has ended, also if this process is killed."""
        self._ask(do="remove-at-end", path=str(folder))

    def close(self, timeout_s: float = 40.0) -> None:
        """End everything and wait for it; idempotent."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # Closing is the request: an answer to something interrupted half-way may still be in the
        # pipe.
        self._process.stdin.close()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()  # the kernel takes the components with it
            self._process.wait()
        self._process.stdout.close()

    def _ask(self, **request: Any) -> dict[str, Any]:
        """One request, one answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            try:
                self._process.stdin.write(json.dumps(request).encode() + b"\n")
                line = self._process.stdout.readline()
            except (OSError, ValueError):
                line = b""
        if not line:
            raise ControlPlaneError(
                "The keeper process of this control plane has ended, and the components with it."
            )
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ControlPlaneError(
                f"Cannot run {request.get('name', 'the request')}: {answer['error']}."
            )
        return answer
