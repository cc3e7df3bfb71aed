"""`python -m control_plane`: one control plane in the foreground, until ctrl-C."""

import argparse
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from control_plane import ControlPlane, ControlPlaneError


def gate(text: str) -> tuple[str, bool]:
    """`Name=true` or `Name=false`."""
    name, _, value = text.partition("=")
    if not name or value not in {"true", "false"}:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=true or NAME=false")
    return name, value == "true"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m control_plane",
        description="Start a Kubernetes control plane on 127.0.0.1; ctrl-C ends it.",
    )
    parser.add_argument("--kcm", action="store_true", help="with kube-controller-manager")
    parser.add_argument(
        "--kwok", action="store_true", help="with kwok, which plays the kubelet of every node"
    )
    parser.add_argument("--scheduler", action="store_true", help="with kube-scheduler")
    parser.add_argument(
        "--scheduler-config",
        type=Path,
        metavar="FILE",
        help="its configuration; @KUBECONFIG@ stands for ours",
    )
    many: dict[str, Any] = {"action": "append", "default": []}
    parser.add_argument("--feature-gate", type=gate, metavar="NAME=true", help="repeatable", **many)
    parser.add_argument(
        "--runtime-config",
        metavar="GROUP/VERSION=true",
        help="switch on an API; repeatable",
        **many,
    )
    parser.add_argument(
        "--version",
        default="",
        metavar="RELEASE",
        help="of Kubernetes, such as 1.37 (default: 1.36)",
    )
    parser.add_argument("--for-load", action="store_true", help="no limit on requests in flight")
    parser.add_argument(
        "--workdir", type=Path, metavar="DIR", help="keep data and logs here (default: temporary)"
    )
    return parser.parse_args()


def interrupt(_signum: int, _frame: FrameType | None) -> None:
    """SIGTERM and SIGHUP end it as ctrl-C does."""
    raise KeyboardInterrupt


def main() -> int:
    """Start, print where it listens, wait; returns the exit code."""
    asked = arguments()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    plane = ControlPlane(
        asked.workdir,
        kcm=asked.kcm,
        kwok=asked.kwok,
        scheduler=asked.scheduler_config or asked.scheduler,
        feature_gates=dict(asked.feature_gate),
        runtime_config=asked.runtime_config,
        for_load=asked.for_load,
        release=asked.version,
    )
    try:
        with plane:
            print(f"export KUBECONFIG={plane.kubeconfig}", flush=True)
            print(f"# {plane.url} is ready, logs are in {plane.logs}; ctrl-C ends it", flush=True)
            while True:
                time.sleep(0.5)
                plane.check()
    except KeyboardInterrupt:
        return 0
    except ControlPlaneError as error:
        print(f"control-plane: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
