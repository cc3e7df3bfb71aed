"""`make playground`: two fake GPU nodes, gangsched and its gangs API, on which the guides can be
typed, until ctrl-C.

Invariant: what it prints to be pasted is all that a shell needs. No process and no file is left
behind.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from control_plane import ControlPlane, ControlPlaneError
from control_plane.api import Api, Object
from control_plane.applying import ROOT, apply_yaml
from control_plane.components import KUBECTL
from control_plane.daemon import COMMAND, Daemon
from control_plane.objects import create_all, node

from demo import pod_logs
from demo.__main__ import interrupt
from demo.cluster import gangsched_on

NODES = ("gpu-1", "gpu-2")
GPUS = 8
#: kubectl finds its plugins, and what completes them, on the PATH; the last is for `simulate`.
COMMANDS = ("kubectl-gangsched", "kubectl_complete-gangsched", "gangsched")
SHELLS = ("bash", "zsh", "fish")


@contextmanager
def playground() -> Iterator[tuple[ControlPlane, Daemon]]:
    """A control plane with the controllers and the scheduler of Kubernetes, gangsched, and the
    nodes of the guides.
    """
    with (
        ControlPlane(kcm=True, kwok=pod_logs.STAGES, scheduler=True) as plane,
        gangsched_on(plane) as daemon,
    ):
        api = Api.of(plane)
        create_all(api, [with_kubelet(node(name, gpus=GPUS), plane.kwok_port) for name in NODES])
        # kwok plays its pods, and the process above works for them: `kubectl gangsched doctor`
        # looks for a Deployment.
        for name in ("priority-class", "config", "deployment"):
            apply_yaml(api, ROOT / "manifests" / f"{name}.yaml")
        api.close()
        link_commands(plane.workdir / "bin")
        yield plane, daemon


def with_kubelet(body: Object, port: int) -> Object:
    """The same node with the address at which kwok answers `kubectl logs`."""
    status = {
        **body["status"],
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    return {**body, "status": status}


def link_commands(folder: Path) -> None:
    """Make a folder for the PATH, with kubectl and its plugin."""
    folder.mkdir()
    for program in (KUBECTL, *(COMMAND.with_name(name) for name in COMMANDS)):
        (folder / program.name).symlink_to(program)


def lines_to_paste(plane: ControlPlane) -> tuple[str, str]:
    """What another terminal needs: the cluster and the commands, and their completion."""
    shell = Path(os.environ.get("SHELL", "")).name
    if shell not in SHELLS:
        shell = "bash"

    environment = f"export KUBECONFIG={plane.kubeconfig} PATH={plane.workdir / 'bin'}:$PATH"
    completion = (
        f"kubectl completion {shell} | source"
        if shell == "fish"
        else f"source <(kubectl completion {shell})"
    )
    return environment, completion


def describe(plane: ControlPlane, daemon: Daemon, *, after_s: float) -> str:
    """What is there, what to paste and what to try."""
    nodes = " and ".join(NODES)
    lines = [
        (
            f"Ready after {after_s:.0f} s: nodes {nodes} with {GPUS} GPUs each, gangsched and the"
            " gangs API."
        ),
        "Paste these two lines into another terminal, at the top of this checkout:",
        "",
        *(f"  {line}" for line in lines_to_paste(plane)),
        "",
        "Then type what docs/guides/first-gang.md shows, or:",
        "",
        "  kubectl apply -f examples/training-job.yaml",
        "  kubectl get pg,pods",
        "  kubectl gangsched why bert",
        "",
        f"gangsched's log is {daemon.log_path}. Ctrl-C here takes everything down.",
    ]
    return "\n".join(lines)


def main() -> int:
    """Start, print, wait; returns the exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    began_s = time.monotonic()
    print(
        "Starting etcd, kube-apiserver, its controllers, kube-scheduler, kwok and gangsched …",
        flush=True,
    )
    try:
        with playground() as (plane, daemon):
            print(describe(plane, daemon, after_s=time.monotonic() - began_s), flush=True)
            wait(plane, daemon)
    except KeyboardInterrupt:
        print("playground: everything has been taken down", file=sys.stderr)
        return 0
    except ControlPlaneError as error:
        print(f"playground: {error}", file=sys.stderr)
        return 1


def wait(plane: ControlPlane, daemon: Daemon) -> NoReturn:
    """Wait for ctrl-C. Raises ControlPlaneError if a process has died."""
    logs = pod_logs.PodLogs(plane.logs, daemon.log_path)
    while True:
        logs.update()
        time.sleep(0.5)
        plane.check()
        daemon.check()


if __name__ == "__main__":
    sys.exit(main())
