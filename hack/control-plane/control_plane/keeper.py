"""The keeper starts the components and outlives its owner just long enough to end them.

Invariant: no component survives its owner. The keeper watches the owner through a pidfd and its own
standard input; when either ends (by a return, ctrl-C, SIGTERM, kill -9), it stops the components in
the reverse order of their start and removes the directories registered with it. If the keeper
itself is killed, the kernel kills the components (`PR_SET_PDEATHSIG`). That works because its only
thread forks them: the kernel watches the *thread*.

It knows nothing of Kubernetes and uses only the standard library; it is run by file name as `python
-I -S keeper.py PIDFD`. Requests are JSON lines on standard input, each answered by one JSON line.
"""

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from typing import Any

PR_SET_PDEATHSIG = 1
#: How long a component may take after SIGTERM before it gets SIGKILL.
GRACE_S = 4.0

_libc = ctypes.CDLL(None, use_errno=True)


class Keeper:
    """The components it started, in the order of their start."""

    def __init__(self) -> None:
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self.remove: list[str] = []

    def start(self, *, name: str, argv: list[str], log: str) -> int:
        """Start one component with its output in `log`; its pid. Raises OSError when it cannot be
        run.
        """
        keeper = os.getpid()

        def tie_to_keeper() -> None:
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != keeper:  # the keeper died between fork and prctl
                os._exit(1)

        with open(log, "ab") as out:
            # A session of its own: a ctrl-C at the terminal is the owner's business, and so is a
            # SIGHUP. And Linux shares the cores between sessions (autogroup), as a cluster shares
            # them between containers.
            self.children[name] = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=os.path.dirname(log),
                start_new_session=True,
                preexec_fn=tie_to_keeper,  # noqa: PLW1509 - the keeper has one thread, see above
            )
        return self.children[name].pid

    def dead(self) -> dict[str, int]:
        """The exit codes of components that ended by themselves."""
        return {
            name: code
            for name, child in self.children.items()
            if (code := child.poll()) is not None
        }

    def stop(self, name: str) -> None:
        """End one component: SIGTERM, then SIGKILL."""
        child = self.children.pop(name, None)
        if child is None or child.poll() is not None:
            return
        child.terminate()
        # A component may be under SIGSTOP (tests do that): SIGTERM waits until it continues.
        child.send_signal(signal.SIGCONT)
        try:
            child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def stop_all(self) -> None:
        """End everything, the last started first, then remove the directories."""
        for name in reversed(list(self.children)):
            self.stop(name)
        for path in self.remove:
            shutil.rmtree(path, ignore_errors=True)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Carry out one request."""
        match request.pop("do"):
            case "start":
                return {"pid": self.start(**request)}
            case "dead":
                return {"dead": self.dead()}
            case "stop":
                self.stop(request["name"])
            case "remove-at-end":
                self.remove.append(request["path"])
        return {}


def serve(owner_pidfd: int) -> None:
    """Answer requests until the owner is gone or closes the pipe; then end everything."""
    keeper = Keeper()
    ask_r, ask_w = os.pipe()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda _n, _f: os.write(ask_w, b"x"))
    poll = select.poll()
    for fd in (0, owner_pidfd, ask_r):
        poll.register(fd, select.POLLIN | select.POLLHUP)
    pending = b""
    try:
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if ready & {owner_pidfd, ask_r}:
                return
            chunk = os.read(0, 65536)
            if not chunk:
                return
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                try:
                    reply = keeper.answer(json.loads(line))
                except OSError as error:
                    reply = {"error": str(error)}
                os.write(1, json.dumps(reply).encode() + b"\n")
    except BrokenPipeError:  # the owner went away without waiting for its answer
        return
    finally:
        keeper.stop_all()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
