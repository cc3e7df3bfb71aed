"""Holders: a plain pod with an idle node, while NonStrict gangs hold room and wait for more.

`python -m bench.holders [--gangs 55] [--members 108] [--held 8] [--young 10] [--rest 20] [--code
FOLDER] [--json]` runs the daemon beside a real API server. Each gang may use one node, of which
others leave `held` GPUs: it holds those and waits for the rest. Then young plain pods come one by
one; the clock runs from the answer to the creation until a watch of our own shows the pod bound.
The CPU of the daemon is measured over `rest` seconds while a small pod of another scheduler comes
and goes every second. `--code` runs the daemon of another checkout, to compare with.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass

from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.applying import apply_manifests
from control_plane.daemon import Daemon
from control_plane.following import Following
from control_plane.pods import nodes_of, refusal

from bench.gangs.contenders import cpu_s

PODS = "/api/v1/pods"
POD = "/api/v1/namespaces/default/pods"
HOSTNAME = "kubernetes.io/hostname"
HOLDING_WITHIN_S, YOUNG_WITHIN_S = 120.0, 30.0
GOAL_YOUNG_S, GOAL_CPU_SHARE = 1.0, 0.2


@dataclass(frozen=True, slots=True)
class Result:
    """`young_s`: seconds until each young pod was bound, the limit where it was not; `cpu_share` of
    one core.
    """

    gangs: int
    members: int
    held: int
    holding: int
    young_s: list[float]
    cpu_share: float

    @property
    def met(self) -> bool:
        """Whether both goals are met."""
        return max(self.young_s) < GOAL_YOUNG_S and self.cpu_share < GOAL_CPU_SHARE


def measure(*, gangs: int, members: int, held: int, young: int, rest_s: float, code: str) -> Result:
    """All of it on a control plane of its own."""
    with ControlPlane() as plane, closing(Api.of(plane)) as api, ExitStack() as stack:
        apply_manifests(api)
        make.create_all(
            api, [body for number in range(gangs) for body in _node(number, members, held)]
        )
        make.create_all(api, [make.node("idle", gpus=0)])
        daemon = Daemon(plane, environment={"PYTHONPATH": code} if code else {})
        # not asked for its state at the end: other code may not tell it
        stack.callback(daemon.kill)
        daemon.start()
        pods = stack.enter_context(Following(api, PODS))
        make.create_all(api, [body for number in range(gangs) for body in _gang(number, members)])
        holding = _wait_for_holds(pods, gangs * held)
        share = _cpu_share(api, daemon, rest_s)
        return Result(
            gangs,
            members,
            held,
            holding,
            [_young(api, pods, number) for number in range(young)],
            share,
        )


def _node(number: int, members: int, held: int) -> list[Object]:
    """A node that could hold the whole gang, and a pod of another scheduler that leaves `held` GPUs
    of it.
    """
    name = f"n{number:03}"
    filler = make.pod(
        f"filler-{name}", gpus=members - held, scheduler_name="other", spec={"nodeName": name}
    )
    return [make.node(name, gpus=members, pods=2 * members, labels={HOSTNAME: name}), filler]


def _gang(number: int, members: int) -> list[Object]:
    notes = make.gang_annotations(f"g{number:03}", members, mode="NonStrict")
    selector = {HOSTNAME: f"n{number:03}"}
    return [
        make.pod(
            f"g{number:03}-{index}",
            gpus=1,
            cpu="1m",
            memory="1Mi",
            annotations=notes,
            node_selector=selector,
        )
        for index in range(members)
    ]


def _wait_for_holds(pods: Following, wanted: int) -> int:
    """Wait until that many pods are told that they hold a node; how many are, if that takes too
    long.
    """

    def holding() -> int:
        return sum(refusal(pod)[0] == "Holding" for pod in pods.objects().values())

    with suppress(TimeoutError):
        pods.wait_for(
            lambda _: holding() >= wanted, within_s=HOLDING_WITHIN_S, what=f"{wanted} held pods"
        )
    return holding()


def _cpu_share(api: Api, daemon: Daemon, rest_s: float) -> float:
    began_s, before_s = time.monotonic(), cpu_s(daemon.pid)
    while time.monotonic() < began_s + rest_s:
        api.post(POD, make.pod("passer-by", scheduler_name="other", spec={"nodeName": "idle"}))
        time.sleep(0.5)
        api.delete(f"{POD}/passer-by")
        time.sleep(0.5)
    return round((cpu_s(daemon.pid) - before_s) / (time.monotonic() - began_s), 3)


def _young(api: Api, pods: Following, number: int) -> float:
    name = f"young-{number}"
    api.post(POD, make.pod(name))
    began_s = time.monotonic()
    with suppress(TimeoutError):
        pods.wait_for(
            lambda items: nodes_of(items, name), within_s=YOUNG_WITHIN_S, what=f"a node for {name}"
        )
    return round(time.monotonic() - began_s, 3)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; exit code 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gangs", type=int, default=55)
    parser.add_argument("--members", type=int, default=108)
    parser.add_argument("--held", type=int, default=8, help="GPUs that each gang gets")
    parser.add_argument("--young", type=int, default=10, help="plain pods")
    parser.add_argument(
        "--rest", type=float, default=20.0, help="seconds over which CPU is measured"
    )
    parser.add_argument("--code", default="", help="folder of another checkout")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(arguments)
    result = measure(
        gangs=given.gangs,
        members=given.members,
        held=given.held,
        young=given.young,
        rest_s=given.rest,
        code=given.code,
    )
    print(json.dumps(asdict(result)) if given.json else result)
    if not result.met:
        print(
            f"missed: a young pod within {GOAL_YOUNG_S:g} s, below {GOAL_CPU_SHARE:.0%} of a core",
            file=sys.stderr,
        )
    return 0 if result.met else 1


if __name__ == "__main__":
    sys.exit(main())
