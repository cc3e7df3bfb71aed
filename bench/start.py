"""After the start: how long a gang waits that is created soon after /readyz is green.

`python -m bench.start [--trials 5] [--members 8] [--json]` starts the daemon beside a real API
server, once for each trial and delay, waits until it is ready and then for the delay, and creates a
PodGroup and its pods. The clock runs from the answer to the last creation to the last bind, as a
watch of our own shows it. At first kopf does not listen yet; it is imported within the first
seconds. What it does *not* show: a start on a full cluster (`bench.ingest`).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence

from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api
from control_plane.applying import apply_manifests
from control_plane.daemon import Daemon
from control_plane.following import Following
from control_plane.pods import nodes_of

from gangsched.simulate.figures import percentile

PODS = "/api/v1/pods"
POD = "/api/v1/namespaces/default/pods"
GROUP = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
DELAYS_S = (0.0, 0.3, 0.5, 1.0, 3.0, 6.0)
WITHIN_S = 30.0
GOAL_MS = 100.0


class Trials:
    """Gangs of `members` pods on one node, one after the other."""

    def __init__(self, api: Api, pods: Following, *, members: int) -> None:
        self._api, self._pods, self._members = api, pods, members
        self._number = 0
        make.create_all(api, [make.node("n0")])

    def gang_ms(self) -> float:
        """Create a gang; milliseconds from its last creation to its last bind. It is gone
        afterwards.
        """
        self._number += 1
        name = f"gang-{self._number}"
        make.create_all(self._api, make.gang(name, members=self._members))
        began_s = time.monotonic()
        self._pods.wait_for(
            lambda items: len(nodes_of(items, f"{name}-")) == self._members,
            within_s=WITHIN_S,
            what=f"{name} bound",
        )
        took_ms = (time.monotonic() - began_s) * 1e3
        for index in range(self._members):
            self._api.delete(f"{POD}/{name}-{index}")
        self._api.delete(f"{GROUP}/{name}")
        return took_ms


def measure(*, trials: int, members: int) -> dict[float, list[float]]:
    """Milliseconds of each trial by delay in seconds, on a control plane of their own; delays take
    turns.
    """
    took_ms: dict[float, list[float]] = {delay_s: [] for delay_s in DELAYS_S}
    with ControlPlane() as plane:
        api = Api.of(plane)
        apply_manifests(api)
        with Following(api, PODS) as pods:
            gangs = Trials(api, pods, members=members)
            for _ in range(trials):
                for delay_s in DELAYS_S:
                    daemon = Daemon(plane)
                    daemon.start()
                    try:
                        time.sleep(delay_s)
                        took_ms[delay_s].append(gangs.gang_ms())
                    finally:
                        daemon.kill()  # it would first finish its imports
        api.close()
    return took_ms


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; exit code 1 when a median misses the goal."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    asked = parser.parse_args(arguments)
    took_ms = measure(trials=asked.trials, members=asked.members)
    if asked.json:
        print(
            json.dumps(
                {
                    f"{delay_s:g}": [round(each, 1) for each in each_ms]
                    for delay_s, each_ms in took_ms.items()
                }
            )
        )
    else:
        for delay_s, each_ms in took_ms.items():
            print(
                f"{asked.members}-pod gang {delay_s:g} s after ready, last creation → last bind:"
                f" p50 {percentile(each_ms, 0.5):.0f} ms, worst {max(each_ms):.0f} ms of"
                f" {len(each_ms)} trials"
            )
    return 0 if all(percentile(each_ms, 0.5) < GOAL_MS for each_ms in took_ms.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
