"""The demo from start to end: exit code 0 when every claim holds, 1 when one is false, 130 after
ctrl-C.

PACE in the environment: the pace of the narration; 1 for a person who reads (the default on a
terminal), 0 for no pauses.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from types import FrameType

from control_plane import ControlPlane, ControlPlaneError

from demo.scenes import SCENES
from demo.screen import Screen
from demo.stage import A100_NODES, GPUS_PER_NODE, NODES, FalseClaimError, Stage, staged

LAST_LINES = 5
MAX_PACE = 100.0


def interrupt(_signum: int, _frame: FrameType | None) -> None:
    """SIGTERM and SIGHUP end the demo as ctrl-C does."""
    raise KeyboardInterrupt


def play(stage: Stage) -> None:
    """All scenes. Raises FalseClaimError at the first false claim."""
    for number, (title, scene) in enumerate(SCENES, start=1):
        stage.screen.scene(number, len(SCENES), title)
        scene(stage)
        stage.check_promises()
    longest_ms = stage.checks.longest_partly_s * 1e3
    stage.screen.console.print()
    stage.claim("no node was over-committed at any moment", not stage.checks.violations)
    stage.claim(
        f"no gang was seen partly bound for longer than {longest_ms:.0f} ms", longest_ms < 2_000
    )


def pace() -> float | None:
    """The factor of $PACE; None if it is not set."""
    text = os.environ.get("PACE", "")
    try:
        asked = float(text) if text else None
    except ValueError:
        asked = -1.0
    if asked is not None and not 0 <= asked <= MAX_PACE:
        raise ControlPlaneError(
            f"PACE is a number from 0 to {MAX_PACE:g}, such as 0.5; it is {text!r}."
        )
    return asked


def run(screen: Screen) -> None:
    """Start everything, play the scenes, and stop everything."""
    begun_s = time.monotonic()
    screen.say(
        "Starting etcd, kube-apiserver, kube-scheduler and kwok, which plays the kubelets of the"
        " nodes …"
    )
    with ControlPlane(kwok=True, scheduler=True) as plane:
        screen.say("Installing gangsched's manifests, and starting it beside kube-scheduler …")
        with staged(plane, screen) as (stage, daemon):
            up_s = time.monotonic() - begun_s
            screen.say(
                f"Up after {up_s:.1f} s: {NODES} fake nodes of {GPUS_PER_NODE} GPUs, {A100_NODES}"
                " with A100s."
            )
            try:
                play(stage)
            except FalseClaimError:
                for line in daemon.log_lines()[-LAST_LINES:]:
                    print(f"gangsched: {line}", file=sys.stderr)
                raise
            daemon.check()
            taken_s = time.monotonic() - begun_s
            screen.console.print(
                f"\nAll {len(SCENES)} scenes played, {stage.proved} claims checked, none false, in"
                f" {taken_s:.1f} s."
            )


def main() -> int:
    """The exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    try:
        run(Screen(pace=pace()))
    except KeyboardInterrupt:
        print("demo: interrupted, everything has been taken down", file=sys.stderr)
        return 130
    except (FalseClaimError, ControlPlaneError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
