"""gangsched as a process beside a control plane, with the rights it has in a cluster.

    with Daemon(plane) as daemon:
        ...  # daemon.metrics(), daemon.log_lines()

Invariant: it runs with a token of the ServiceAccount that `manifests/` define (apply them first)
and with no other credentials, so a missing right fails here. Nothing of it outlives the owner (see
`keeper.py`). It does not restart a dead process.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from control_plane.applying import SCHEDULER_NAMES
from control_plane.errors import ControlPlaneError
from control_plane.keeping import Keeping
from control_plane.plane import ControlPlane
from control_plane.ports import free_ports

NAMESPACE, ACCOUNT = "gangsched-system", "gangsched"
COMMAND = Path(sys.executable).with_name("gangsched")
#: `USER` of the Dockerfile.
CONTAINER_UID = 65532
LOG_LINES = 15
ASK_AGAIN_S = 0.02


class Daemon:
    """`gangsched run` beside `plane`, ready once `start` returns.

    It runs as in its container: under a UID without a passwd entry (`as_in_a_container`) and
    without HOME, USER or anything else of our environment. `environment` is all it gets beside PATH
    and TMPDIR; GANGSCHED_BIND_ADDRESS is set to 127.0.0.1, and both ports to free ones, so that
    several may run side by side. `log_path`: its log is appended there (default: beside the control
    plane's logs). At the end of a `with` block its state must be sound (`complaints`). `url` is
    that of a proxy before the API server, `command` a program that runs in the place of
    `gangsched`.
    """

    def __init__(
        self,
        plane: ControlPlane,
        *,
        scheduler_names: Sequence[str] = SCHEDULER_NAMES,
        extra_args: Sequence[str] = (),
        log_path: Path | None = None,
        environment: Mapping[str, str] | None = None,
        ready_timeout_s: float = 30.0,
        url: str | None = None,
        command: Sequence[str] = (str(COMMAND),),
    ) -> None:
        self._plane, self._names, self._extra = plane, tuple(scheduler_names), tuple(extra_args)
        self._given_log = log_path
        self._environment = {"GANGSCHED_BIND_ADDRESS": "127.0.0.1", **(environment or {})}
        self._ready_timeout_s = ready_timeout_s
        self._url = url
        self._command = tuple(command)
        self._keeping: Keeping | None = None
        self._log_start = 0
        #: Where /livez, /readyz and /metrics are, on 127.0.0.1; 0 before the start.
        self.health_port = 0
        #: Where /debug is, on 127.0.0.1.
        self.debug_port = 0
        #: Its process; 0 when it does not run.
        self.pid = 0

    # --- its life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start it and wait for /readyz. Raises ControlPlaneError with the end of its log if that
        fails.
        """
        if self._keeping is not None:
            raise ControlPlaneError("This daemon is running already.")
        token = self._plane.service_account_token(NAMESPACE, ACCOUNT)
        kubeconfig = self._plane.write_kubeconfig(
            self._plane.workdir / "gangsched.kubeconfig", token=token, url=self._url
        )
        self.health_port, self.debug_port = free_ports(2)
        self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        self._keeping = Keeping(self._plane.logs / "keeper-of-gangsched.log")
        try:
            self.pid = self._keeping.start("gangsched", self._argv(kubeconfig), self.log_path)
            self._await_ready()
        except BaseException:
            self.kill()
            raise

    def stop(self, *, within_s: float = 10.0) -> int:
        """Send SIGTERM and wait. Raises ControlPlaneError, after SIGKILL, unless it ends with exit
        code 0 in time.
        """
        if self._keeping is None:
            return 0
        try:
            code = self._signal(signal.SIGTERM, within_s)
            if code is None:
                raise ControlPlaneError(
                    self._told(f"gangsched still runs {within_s:g} s after SIGTERM")
                )
            if code != 0:
                raise ControlPlaneError(self._told(f"gangsched ended with {code} instead of 0"))
            return code
        finally:
            self.kill()

    def kill(self) -> None:
        """SIGKILL, as when a machine fails; idempotent."""
        if self._keeping is None:
            return
        if self.pid:
            self._signal(signal.SIGKILL, 10.0)
        self._keeping.close()
        self._keeping, self.pid = None, 0

    def check(self) -> None:
        """Raise ControlPlaneError with the end of its log if it has died."""
        code = None if self._keeping is None else self._keeping.dead().get("gangsched")
        if code is not None:
            raise ControlPlaneError(self._told(f"gangsched ended by itself with {code}"))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            found = self.complaints()
            self.stop()
            if found:
                raise ControlPlaneError(f"gangsched's state is not sound: {'; '.join(found)}")
        else:
            self.kill()

    # --- what it says ----------------------------------------------------------------------------

    @property
    def log_path(self) -> Path:
        """Where its log is."""
        return self._given_log or self._plane.logs / "gangsched.log"

    def log_lines(self) -> list[dict[str, Any]]:
        """Its log since this start, one object per line; a line that is no JSON object is {"text":
        line}.
        """
        text = (
            self.log_path.read_bytes()[self._log_start :].decode(errors="replace")
            if self.log_path.exists()
            else ""
        )
        return [_entry(line) for line in text.splitlines() if line.strip()]

    def metrics(self) -> dict[str, float]:
        """Prometheus samples as `name{labels}` → value."""
        samples = (
            line.rpartition(" ")
            for line in self.http("/metrics")[1].splitlines()
            if line[:1] not in {"", "#"}
        )
        return {name: float(value) for name, _, value in samples}

    def internal_errors(self) -> float:
        """How often it has set a group aside because of an error of its own."""
        name = "gangsched_internal_errors_total"
        return sum(value for key, value in self.metrics().items() if key.startswith(name))

    def complaints(self) -> list[str]:
        """What does not agree in its state; nothing when it does not run."""
        try:
            found: list[str] = json.loads(self.http("/debug/validate", port=self.debug_port)[1])[
                "complaints"
            ]
        except OSError:
            return []
        return found

    def http(self, path: str, *, port: int = 0) -> tuple[int, str]:
        """Status and text of a GET on its health port, or another. Raises OSError without an
        answer.
        """
        connection = http.client.HTTPConnection("127.0.0.1", port or self.health_port, timeout=5.0)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")
        except http.client.HTTPException as error:
            raise ConnectionError(
                f"127.0.0.1:{port or self.health_port} does not speak HTTP: {error!r}"
            ) from error
        finally:
            connection.close()

    # --- inside ----------------------------------------------------------------------------------

    def _argv(self, kubeconfig: Path) -> list[str]:
        names = [word for name in self._names for word in ("--scheduler-name", name)]
        return [
            # `unshare` and `env` become the daemon (exec), so the keeper's child is the daemon
            # itself. Its temporary files (certificates out of the kubeconfig) go with the control
            # plane, also after a kill.
            *as_in_a_container(),
            "env",
            "--ignore-environment",
            f"PATH={os.defpath}",
            f"TMPDIR={self._plane.workdir}",
            f"GANGSCHED_DEBUG_PORT={self.debug_port}",
            *(f"{key}={value}" for key, value in self._environment.items()),
            *self._command,
            "run",
            "--kubeconfig",
            str(kubeconfig),
            *names,
            "--health-port",
            str(self.health_port),
            "--log-format",
            "json",
            *self._extra,
        ]

    def _await_ready(self) -> None:
        deadline_s = time.monotonic() + self._ready_timeout_s
        while True:
            self.check()
            try:
                if self.http("/readyz")[0] == http.client.OK:
                    return
            except OSError:
                pass  # it does not listen yet
            if time.monotonic() > deadline_s:
                raise ControlPlaneError(
                    self._told(f"gangsched is not ready after {self._ready_timeout_s:g} s")
                )
            time.sleep(ASK_AGAIN_S)

    def _signal(self, number: signal.Signals, within_s: float) -> int | None:
        """Send a signal and wait; returns the exit code (negative: a signal), None if it did not
        end.
        """
        assert self._keeping is not None
        code = self._keeping.dead().get("gangsched")
        if code is not None:
            return code
        # The keeper has not reaped it, so the pid is still its own.
        process = os.pidfd_open(self.pid)
        try:
            os.kill(self.pid, number)
            select.select([process], [], [], within_s)
        finally:
            os.close(process)
        return self._keeping.dead().get("gangsched")

    def _told(self, what: str) -> str:
        lines = [line for entry in self.log_lines()[-LOG_LINES:] for line in _lines(entry)]
        return "\n".join([f"{what}; the end of its log:", *(f"  {line[:600]}" for line in lines)])


@cache
def as_in_a_container() -> tuple[str, ...]:
    """The command prefix that gives a process the UID of the image, which has no passwd entry; it
    keeps its files.

    A user namespace with one user in it: libraries that ask who they are (`getpass`,
    `pathlib.Path.home`) fail as in the container, while the kernel still knows the caller, so that
    no file has to be opened to others. Empty where the kernel makes no user namespaces for this
    user.
    """
    prefix = ("unshare", "--user", f"--map-user={CONTAINER_UID}", f"--map-group={CONTAINER_UID}")
    try:
        allowed = (
            subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0
        )
    except OSError:  # no util-linux
        allowed = False
    return prefix if allowed else ()


def _lines(entry: dict[str, Any]) -> list[str]:
    """A log entry as text: a traceback, whose end says most, on lines of its own."""
    if "text" in entry:
        return [entry["text"]]
    trace = str(entry.get("exception", "")).splitlines()[-LOG_LINES:]
    return [json.dumps({key: value for key, value in entry.items() if key != "exception"}), *trace]


def _entry(line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        return {"text": line}
    return entry if isinstance(entry, dict) else {"text": line}
