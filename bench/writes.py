"""Writes: how often conditions and statuses are written while gangs wait, counted on the API
server's watch.

`python -m bench.writes [--pods 500] [--rate 10] [--gangs 500] [--seconds 300] [--code FOLDER]
[--json]` creates a gang pod by pod, and then gangs of four that do not fit, and counts the changes
of each pod and PodGroup until they have waited that long. `--code` runs the daemon from another
checkout, to compare with. Exit code 1 when the goals of semantics E1 are missed: at most 3 writes a
pod of the gang that is created, and of the refused ones 1 a pod and 2 a gang a minute. Nodes change
meanwhile, elsewhere: one pod comes and goes every second.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass

from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.applying import apply_manifests
from control_plane.daemon import Daemon
from control_plane.following import Following

PODS = "/api/v1/pods"
POD = "/api/v1/namespaces/default/pods"
GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"
MEMBERS = 4
GPUS = 8
SETTLE_S = 8.0
CREATED_MOST, REFUSED_MOST, STATUSES_A_MINUTE = 3, 1, 2


@dataclass(frozen=True, slots=True)
class Writes:
    """Of one case: all writes of conditions and of statuses, and the most of them on one object."""

    case: str
    seconds: float
    conditions: int
    most_a_pod: int
    statuses: int
    most_a_gang: int


class Counting:
    """Counts changes of objects after their creation, by kind and name."""

    def __init__(self) -> None:
        self._numbers: Counter[tuple[str, str]] = Counter()

    def heard(self, kind: str, item: Object, _seen_s: float) -> None:
        """A change came by the watch."""
        if kind == "MODIFIED":
            self._numbers[item["kind"], item["metadata"]["name"]] += 1

    def taken(self, case: str, prefix: str, seconds: float) -> Writes:
        """What was counted of objects whose names begin so."""
        numbers = {
            key: number for key, number in self._numbers.items() if key[1].startswith(prefix)
        }
        pods, groups = (
            [n for (kind, _), n in numbers.items() if kind == of] for of in ("Pod", "PodGroup")
        )
        return Writes(
            case,
            round(seconds),
            sum(pods),
            max(pods, default=0),
            sum(groups),
            max(groups, default=0),
        )


def measure(*, pods: int, rate: float, gangs: int, seconds: float, code: str) -> list[Writes]:
    """Both cases, one after the other, on a control plane of their own."""
    with ControlPlane() as plane, closing(Api.of(plane)) as api:
        apply_manifests(api)
        make.create_all(api, [make.node("full", gpus=GPUS), make.node("busy", gpus=0)])
        make.create_all(
            api,
            [make.pod("filler", gpus=GPUS // 2, scheduler_name="other", spec={"nodeName": "full"})],
        )
        counting = Counting()
        daemon = Daemon(plane, environment={"PYTHONPATH": code} if code else {})
        with ExitStack() as stack:
            # not asked for its state at the end: other code may not tell it
            stack.callback(daemon.kill)
            daemon.start()
            for path in (PODS, GROUPS):
                stack.enter_context(Following(api, path, on_change=counting.heard))
            took_s = create(api, pods, rate)
            created = counting.taken("created", "created", took_s)
            took_s = refuse(api, gangs, seconds)
            return [created, counting.taken("refused", "refused", took_s)]


def create(api: Api, pods: int, rate: float) -> float:
    """A gang comes pod by pod; the seconds until it was told that it does not fit."""
    group, *members = make.gang("created", members=pods, gpus=1)
    make.create_all(api, [group])
    began_s = time.monotonic()
    for number, body in enumerate(members):
        time.sleep(max(0.0, began_s + number / rate - time.monotonic()))
        api.post(POD, body)
    time.sleep(SETTLE_S)
    return time.monotonic() - began_s


def refuse(api: Api, gangs: int, seconds: float) -> float:
    """Gangs that do not fit wait, while a small pod of another scheduler comes and goes; the
    seconds that they did.
    """
    began_s = time.monotonic()
    bodies = [
        body
        for n in range(gangs)
        for body in make.gang(f"refused-{n:04}", members=MEMBERS, gpus=GPUS)
    ]
    make.create_all(api, bodies)
    while time.monotonic() < began_s + seconds:
        api.post(POD, make.pod("passer-by", scheduler_name="other", spec={"nodeName": "busy"}))
        time.sleep(0.5)
        api.delete(f"{POD}/passer-by")
        time.sleep(0.5)
    return time.monotonic() - began_s


def missed(created: Writes, refused: Writes) -> list[str]:
    """The goals that were missed."""
    most = {
        f"{CREATED_MOST} conditions a pod that is created": created.most_a_pod <= CREATED_MOST,
        f"{REFUSED_MOST} condition a refused pod": refused.most_a_pod <= REFUSED_MOST,
        f"{STATUSES_A_MINUTE} statuses a refused gang a minute": (
            refused.most_a_gang <= STATUSES_A_MINUTE * math.ceil(refused.seconds / 60)
        ),
    }
    return [goal for goal, is_met in most.items() if not is_met]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pods", type=int, default=500)
    parser.add_argument("--rate", type=float, default=10.0, help="pods a second")
    parser.add_argument("--gangs", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--code", default="", help="folder of another checkout")
    parser.add_argument("--json", action="store_true", help="print one JSON object a case")
    given = parser.parse_args(arguments)
    found = measure(
        pods=given.pods, rate=given.rate, gangs=given.gangs, seconds=given.seconds, code=given.code
    )
    for each in found:
        print(json.dumps(asdict(each)) if given.json else each)
    goals = missed(*found)
    for goal in goals:
        print(f"missed: at most {goal}", file=sys.stderr)
    return 1 if goals else 0


if __name__ == "__main__":
    sys.exit(main())
