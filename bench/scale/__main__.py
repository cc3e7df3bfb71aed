"""Ten times the size: the daemon before a cluster of 15,000 nodes and 150,000 pods.

`python -m bench.scale [--nodes 15000] [--pods 150000] [--seconds 20] [--json]` starts `gangsched
run` beside a server that only speaks lists and watches (`bench.scale.server`), because a real one
needs more memory than most machines have. It measures the time until the daemon is ready, its peak
memory and the longest stall of its loop; CPU shares of a core while 50 nodes and 500 pods change a
second, and while nothing happens but that each node reports every five minutes; and how long a plan
of a gang of 1,000 pods takes, as its log line says. What it does *not* show: TLS, and the CPU that
an API server needs for the same.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from control_plane.ports import free_ports

from bench.gangs.contenders import cpu_s

GANG = 1_000
HEARTBEATS_A_S, POD_EVENTS_A_S = 50.0, 500.0
REPORT_EVERY_S = 300.0
READY_WITHIN_S = 600.0
DRAINS_S = 2.0
LOOKS_S, REST_SHARE = 3.0, 0.02
GOALS = {
    "ready_s": 12.0,
    "rss_mib": 500.0,
    "longest_stall_ms": 100.0,
    "plan_ms": 15.0,
    "busy_core_percent": 15.0,
    "idle_core_percent": 2.0,
}


@dataclass(frozen=True, slots=True)
class Result:
    """Seconds, MiB, milliseconds, and percent of one core."""

    nodes: int
    pods: int
    ready_s: float
    start_cpu_s: float
    rss_mib: float
    longest_stall_ms: float
    plan_ms: float
    busy_core_percent: float
    idle_core_percent: float


@contextmanager
def running(argv: Sequence[str], log: Path, **environment: str) -> Iterator[int]:
    """A process, killed at the end; its pid."""
    without = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    with (
        log.open("wb") as file,
        subprocess.Popen(argv, stdout=file, stderr=file, env=without | environment) as process,
    ):
        try:
            yield process.pid
        finally:
            process.kill()


def ask(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    """Status and text of an answer. Raises OSError without one."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30.0)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def until_ok(port: int, path: str) -> None:
    """Wait until a page is there. Raises TimeoutError."""
    deadline_s = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline_s:
        try:
            if ask(port, path)[0] == http.client.OK:
                return
        except OSError:
            pass
        time.sleep(0.02)
    raise TimeoutError(f"{path} was not there within {READY_WITHIN_S:g} s")


def measure(*, nodes: int, pods: int, seconds: float, gang_size: int = 0) -> Result:
    """One start and what follows it. The running pods are gangs of `gang_size`; 0: of another
    scheduler.
    """
    api_port, health_port = free_ports(2)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gangsched-scale-")))
        log = folder / "gangsched.log"
        size = ("--nodes", str(nodes), "--pods", str(pods), "--gang-size", str(gang_size))
        server = (sys.executable, "-m", "bench.scale.server", "--port", str(api_port), *size)
        stack.enter_context(running(server, folder / "server.log"))
        until_ok(api_port, "/version")
        config = folder / "kubeconfig"
        config.write_text(_kubeconfig(api_port))
        argv = (
            str(Path(sys.executable).with_name("gangsched")),
            "run",
            "--kubeconfig",
            str(config),
        )
        health = ("--health-port", str(health_port), "--log-format", "json")
        began_s = time.monotonic()
        away = {"GANGSCHED_BIND_ADDRESS": "127.0.0.1", "GANGSCHED_DEBUG_PORT": "0"}
        pid = stack.enter_context(running((*argv, *health), log, **away))
        until_ok(health_port, "/readyz")
        ready_s, start_cpu_s = time.monotonic() - began_s, cpu_s(pid)
        time.sleep(5.0)  # the garbage is collected once after the first lists
        until_at_rest(pid)
        idle = _share(pid, api_port, seconds, heartbeats=nodes / REPORT_EVERY_S)
        busy = _share(pid, api_port, seconds, heartbeats=HEARTBEATS_A_S, pods=POD_EVENTS_A_S)
        ask(api_port, f"/bench/gang?size={GANG}", "POST")
        while json.loads(ask(api_port, "/bench/state")[1])["bound"] < GANG:
            time.sleep(0.1)
        planned = [json.loads(line) for line in log.read_text().splitlines() if '"planned"' in line]
        rss_mib = _peak_mib(pid)
        stalls = (
            line
            for line in ask(health_port, "/metrics")[1].splitlines()
            if line.startswith("gangsched_loop_stall_max")
        )
        return Result(
            nodes,
            pods,
            round(ready_s, 2),
            round(start_cpu_s, 2),
            round(rss_mib, 1),
            round(float(next(stalls).split()[1]) * 1e3, 1),
            max(each["ms"] for each in planned if each["binds_ordered"]),
            round(busy * 100, 2),
            round(idle * 100, 2),
        )


def until_at_rest(pid: int) -> None:
    """Wait until what a start leaves to do is done, which takes longer on a busy machine. Raises
    TimeoutError.
    """
    deadline_s = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline_s:
        before_s = cpu_s(pid)
        time.sleep(LOOKS_S)
        if cpu_s(pid) - before_s < REST_SHARE * LOOKS_S:
            return

    raise TimeoutError(f"it was not at rest within {READY_WITHIN_S:g} s")


def _share(
    pid: int, api_port: int, seconds: float, *, heartbeats: float, pods: float = 0.0
) -> float:
    """The share of a core that the daemon takes while so many nodes and pods change a second.

    A busy machine tells of fewer changes in that time: the CPU of one change counts, times how many
    there should be.
    """
    told, before_s = _told(api_port), cpu_s(pid)
    for what, rate in (("heartbeats", heartbeats), ("pods", pods)):
        ask(api_port, f"/bench/{what}?rate={rate}&seconds={seconds}", "POST")
    time.sleep(seconds + DRAINS_S)
    return (cpu_s(pid) - before_s) / max(_told(api_port) - told, 1) * (heartbeats + pods)


def _told(api_port: int) -> int:
    """The changes that watches were told of so far."""
    return int(json.loads(ask(api_port, "/bench/state")[1])["told"])


def _peak_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def _kubeconfig(port: int) -> str:
    """For a server without TLS or credentials; JSON is YAML."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "u", "user": {}}],
        }
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; exit code 1 when a goal is missed."""
    parser = argparse.ArgumentParser(
        prog="bench.scale", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--nodes", type=int, default=15_000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="over which CPU is measured, twice"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    asked = parser.parse_args(arguments)
    result = asdict(measure(nodes=asked.nodes, pods=asked.pods, seconds=asked.seconds))
    if asked.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            goal = f"  (goal: < {GOALS[name]:g})" if name in GOALS else ""
            print(f"{name:20} {value:10}{goal}")
    return 1 if any(result[name] >= goal for name, goal in GOALS.items()) else 0


if __name__ == "__main__":
    sys.exit(main())
