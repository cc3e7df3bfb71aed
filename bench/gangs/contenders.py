"""The contenders: gangsched, kube-scheduler with and without its native gangs, and a binder that
schedules nothing.

Invariant: each measurement starts its own process. gangsched runs as its console script with a
token of its ServiceAccount; kube-scheduler with no limit on its requests.
"""

from __future__ import annotations

import http.client
import os
import ssl
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from control_plane import components
from control_plane.api import Api
from control_plane.applying import apply_visibility
from control_plane.keeping import Keeping
from control_plane.plane import ControlPlane
from control_plane.ports import free_ports

from bench.gangs.cases import Dialect

NAMESPACE, ACCOUNT = "gangsched-system", "gangsched"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One entry of the comparison; `gates` are of the whole control plane, `bin` holds gangsched's
    console script.

    `serves_gangs`: it serves the API of gangs, which is registered with the API server. `arguments`
    are more of gangsched's command line.
    """

    name: str
    title: str
    dialect: Dialect
    gates: Mapping[str, bool] = field(default_factory=dict)
    bin: Path = Path(sys.executable).parent
    serves_gangs: bool = False
    scheduler: str = "default-scheduler"
    arguments: tuple[str, ...] = ()

    @property
    def is_ours(self) -> bool:
        """Whether gangsched runs."""
        return self.scheduler == "gangsched"


GANGSCHED = Contender(
    name="gangsched", title="gangsched", dialect=Dialect.GANGSCHED, scheduler="gangsched"
)
NEWCOMER = Contender(
    name="newcomer",
    title="gangsched, Python of `make install`",
    dialect=Dialect.GANGSCHED,
    bin=Path(".venv/bin").absolute(),
    scheduler="gangsched",
)
SERVED = replace(
    GANGSCHED, name="served", title="gangsched, API of gangs served", serves_gangs=True
)
KUBE_SCHEDULER = Contender(
    name="kube-scheduler", title="kube-scheduler (no gangs)", dialect=Dialect.PLAIN
)
NATIVE = Contender(
    name="native",
    title="kube-scheduler, native gangs",
    dialect=Dialect.NATIVE,
    gates={"GenericWorkload": True, "GangScheduling": True},
)
OURS_NATIVE = replace(
    NATIVE, name="gangsched-native", title="gangsched, native gangs", scheduler="gangsched"
)
RAW = Contender(name="raw", title="raw binder, no scheduler", dialect=Dialect.PLAIN)
COMPARED = (GANGSCHED, NEWCOMER, KUBE_SCHEDULER, NATIVE, RAW)
"""Those that tables and plots have a column for."""
CONTENDERS = {each.name: each for each in (*COMPARED, SERVED, OURS_NATIVE)}
REGISTERED_AFTER_S = 3.0
SERVED_PATH = "apis/visibility.gangsched.dev/v1alpha1"


class Running:
    """One process under test; `start` it, `stop` it."""

    def __init__(self, contender: Contender, plane: ControlPlane) -> None:
        self._contender, self._plane = contender, plane
        self._port, self._visibility_port = free_ports(2)
        if contender.serves_gangs:
            apply_visibility(Api.of(plane), self._visibility_port)
        self._keeping = Keeping(plane.logs / f"keeper-of-{contender.name}.log")
        self._log = plane.logs / f"{contender.name}.log"
        self._argv = self._command_line()
        self.pid = 0
        self.started_s = 0.0

    def start(self) -> None:
        """Start it and return at once."""
        self.started_s = time.monotonic()
        self.pid = self._keeping.start("contender", self._argv, self._log)

    def await_ready(self, within_s: float = 60.0) -> float:
        """Wait until it is ready; returns the seconds."""
        while not self._ready():
            if self._keeping.dead() or time.monotonic() - self.started_s > within_s:
                log = self._log.read_text(errors="replace")
                raise RuntimeError(
                    f"{self._contender.name} is not ready; the end of its log:\n{log[-3000:]}"
                )
            time.sleep(0.02)
        return time.monotonic() - self.started_s

    def await_served(self, within_s: float = 60.0) -> None:
        """Wait until the API server knows what the API of gangs looks like, if this contender
        serves it.

        To register it is work of a few seconds, once in the life of an installation. It ends with
        the API server's second look at the new API, one to two seconds after it knows it; from then
        on it looks every half minute.
        """
        if not self._contender.serves_gangs:
            return
        api, until_s = Api.of(self._plane), time.monotonic() + within_s
        while SERVED_PATH not in api.get("/openapi/v3")["paths"]:
            if time.monotonic() > until_s:
                raise RuntimeError(
                    f"The API server does not know {SERVED_PATH} after {within_s:.0f} s."
                )
            time.sleep(0.1)
        time.sleep(REGISTERED_AFTER_S)

    def cpu_s(self) -> float:
        """CPU seconds it has used so far."""
        return cpu_s(self.pid)

    def starved_s(self) -> float:
        """How long its main thread was runnable without a core."""
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[1]) / 1e9

    def rss_mib(self) -> float:
        """Its peak memory in MiB."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
        return 0.0

    def stop(self) -> None:
        """Stop it."""
        self._keeping.close()

    def stall_ms(self) -> float | None:
        """The longest stall of gangsched's event loop by its own metric; None for the others."""
        if not self._contender.is_ours:
            return None
        return self.samples()["gangsched_loop_stall_max_seconds"] * 1e3

    def samples(self) -> dict[str, float]:
        """What gangsched's metrics say, by name and labels."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5.0)
        try:
            connection.request("GET", "/metrics")
            lines = connection.getresponse().read().decode().splitlines()
        finally:
            connection.close()
        found = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in found}

    def _command_line(self) -> list[str]:
        plane = self._plane
        if self._contender.is_ours:
            token = plane.service_account_token(NAMESPACE, ACCOUNT)
            kubeconfig = plane.write_kubeconfig(plane.workdir / "gangsched.kubeconfig", token=token)
            return [
                # As in the image: bytecode is compiled once, not at every start.
                "env",
                "-u",
                "PYTHONDONTWRITEBYTECODE",
                "GANGSCHED_BIND_ADDRESS=127.0.0.1",
                "GANGSCHED_DEBUG_PORT=0",
                str(self._contender.bin / "gangsched"),
                "run",
                "--kubeconfig",
                str(kubeconfig),
                "--health-port",
                str(self._port),
                *self._contender.arguments,
                *(
                    ["--visibility-port", str(self._visibility_port)]
                    if self._contender.serves_gangs
                    else []
                ),
            ]
        config = plane.workdir / "contender.yaml"
        config.write_text(
            components.SCHEDULER_CONFIG.replace("@KUBECONFIG@", str(plane.kubeconfig))
        )
        gates = ",".join(f"{gate}={str(on).lower()}" for gate, on in plane.feature_gates.items())
        return [
            str(components.binary(components.SCHEDULER, plane.release)),
            f"--config={config}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--cert-dir={plane.workdir / 'contender'}",
            *([f"--feature-gates={gates}"] if gates else []),
        ]

    def _ready(self) -> bool:
        if self._contender.is_ours:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5.0)
        else:
            any_certificate = ssl._create_unverified_context()  # it signs its own
            connection = http.client.HTTPSConnection(
                "127.0.0.1", self._port, timeout=5.0, context=any_certificate
            )
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == http.client.OK
        except OSError:
            return False
        finally:
            connection.close()


def cpu_s(pid: int) -> float:
    """CPU seconds a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def cpus() -> int:
    """How many CPUs this process, and so everything that it starts, may use."""
    return len(os.sched_getaffinity(0))


def machine_cpu_s() -> float:
    """CPU seconds that all processes have used so far on the CPUs that are ours, and what their
    host took away.
    """
    ours = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    lines = (line.split() for line in Path("/proc/stat").read_text().splitlines())
    return (
        sum(sum(map(int, (*line[1:4], *line[6:9]))) for line in lines if line[0] in ours)
        / TICKS_PER_S
    )
