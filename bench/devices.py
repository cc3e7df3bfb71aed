"""Devices by claim: what plans cost that choose them, on a cluster whose nodes have eight each.

`python -m bench.devices [--nodes 5000] [--members 1000] [--json]` plans gangs whose members have a
claim each for one device: of any kind, of a kind that a selector names, for two that a constraint
makes alike, and of a kind that too few nodes have. Each is planned twice, in as many plans as it
takes: `cold` is the first time in this process, `warm` the second, after a claim of another pod was
allocated. Times are milliseconds of the process, which collects garbage as the daemon does. Exit
code 1 if a plan took more than `--goal-ms`.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import structs

from bench.timing import timed_ms
from gangsched.core.cycle import plan
from gangsched.core.devices.device_index import DeviceIndex
from gangsched.daemon import GC_THRESHOLDS
from gangsched.model.devices import (
    Attribute,
    Device,
    DeviceClaim,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceResult,
    NodeScope,
    ResourceSlice,
)
from gangsched.model.objects import ClaimUse, Pod
from gangsched.model.plan import Plan
from gangsched.model.snapshot import Snapshot
from gangsched.model.storage import ResourceClaim, Storage
from tests import builders

DEVICES = 8
MOST_PLANS = 2_000
ROW = "{:>14}{:>9}{:>9}{:>11}{:>12}{:>12}{:>12}{:>12}"


@dataclass(frozen=True, slots=True)
class Case:
    """What each member asks for: `count` devices that match a selector, if there is one; all the
    same if `shared`.

    `network`: number of devices of a pool that all nodes reach.
    """

    name: str
    selector: str = ""
    count: int = 1
    alike: str = ""
    network: int = 0
    shared: bool = False


CASES = (
    Case("any"),
    Case("selected", 'device.attributes["d"].model == "b"'),
    Case("linked", count=2, alike="d/link"),
    Case("scarce", 'device.attributes["d"].rare'),
    Case("beside network", 'device.attributes["d"].model == "b"', network=400),
    Case("network", 'device.attributes["d"].model == "n"', network=400),
    Case("either", network=400),
    Case("shared", 'device.attributes["d"].model == "n"', network=400, shared=True),
)


def index_of(nodes: int, network: int = 0) -> DeviceIndex:
    """Nodes of eight devices: two models, links of four, a uuid each, and a rare kind on one node
    in a hundred.

    And so many devices that all nodes reach.
    """
    index = DeviceIndex()
    index.apply(DeviceClass("gpu"))
    if network:
        given: dict[str, Attribute] = {
            "model": ("string", "n"),
            "link": ("int", 0),
            "rare": ("bool", False),
        }
        reached = tuple(
            Device(name=f"n{n}", attributes={**given, "uuid": ("string", f"net-{n}")})
            for n in range(network)
        )
        index.apply(
            ResourceSlice(
                name="net",
                driver="d",
                pool="net",
                scope=NodeScope(everywhere=True),
                devices=reached,
            )
        )
    for n in range(nodes):
        devices = tuple(
            Device(
                name=f"g{g}",
                attributes={
                    "model": ("string", "ab"[g % 2]),
                    "link": ("int", g // 4),
                    "uuid": ("string", f"{n}-{g}"),
                    "rare": ("bool", n % 100 == 0),
                },
            )
            for g in range(DEVICES)
        )
        index.apply(
            ResourceSlice(
                name=f"n{n}", driver="d", pool=f"n{n}", scope=NodeScope(f"n{n}"), devices=devices
            )
        )
    return index


def asked(case: Case, members: int, nodes: int, index: DeviceIndex) -> tuple[Snapshot, list[Pod]]:
    """The pods of a gang, and what a plan sees."""
    request = DeviceRequest(
        name="r",
        parent="",
        class_name="gpu",
        count=case.count,
        selectors=(case.selector,) if case.selector else (),
    )
    constraints = (DeviceConstraint(case.alike),) if case.alike else ()
    claims, pods = {}, []
    for n in range(members):
        name = "c" if case.shared else f"c{n}"
        asks = DeviceClaim(
            namespace=builders.NAMESPACE,
            name=name,
            uid=name,
            requests=((request,),),
            constraints=constraints,
        )
        claim = ResourceClaim(namespace=builders.NAMESPACE, name=name, uid=name, asks=asks)
        claims[claim.key] = claim
        pods.append(builders.pod(f"p{n}", gpus=0, claims=(ClaimUse(name, device=True),)))
    seen = builders.snapshot([builders.node(f"n{n}", 0) for n in range(nodes)])
    shared = dict.fromkeys(claims, members) if case.shared else {}
    return (
        structs.replace(seen, storage=Storage(devices=claims, shared=shared, allocator=index)),
        pods,
    )


def decided(seen: Snapshot, pods: Sequence[Pod]) -> tuple[int, list[float]]:
    """How many members start, and what each plan until then took."""
    group, unfinished, took = builders.group(builders.gang("ns/g", pods)), None, list[float]()
    while len(took) < MOST_PLANS:
        made: list[Plan] = []
        before = unfinished
        took.append(
            timed_ms(lambda: made.append(plan(seen, [group], now_s=0.0, unfinished=before)))[1]  # noqa: B023
        )
        if made[0].verdicts:
            return len(made[0].verdicts[0].binds), took
        unfinished = made[0].unfinished
    raise SystemExit(f"not decided in {MOST_PLANS} plans")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What does it cost to choose devices?")
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--members", type=int, default=1_000)
    parser.add_argument(
        "--goal-ms",
        type=float,
        default=50.0,
        help="the most that a single plan may take (default 50)",
    )
    parser.add_argument("--case", default="", help="only this case")
    parser.add_argument("--json", action="store_true", help="print one JSON object per case")
    given = parser.parse_args(argv)
    gc.set_threshold(*GC_THRESHOLDS)
    longest = 0.0
    if not given.json:
        print(
            ROW.format(
                "case",
                "started",
                "plans",
                "cold ms",
                "longest ms",
                "warm plans",
                "warm ms",
                "longest ms",
            )
        )
    for case in CASES:
        if given.case not in {"", case.name}:
            continue
        index = index_of(given.nodes, case.network)
        seen, pods = asked(case, given.members, given.nodes, index)
        gc.collect()
        gc.freeze()
        started, cold = decided(seen, pods)
        index.hold("another", (DeviceResult("r", ("d", "n1", "g0")),))
        _, warm = decided(seen, pods)
        longest = max(longest, *cold, *warm)
        row = (case.name, started, len(cold), sum(cold), max(cold), len(warm), sum(warm), max(warm))
        if given.json:
            names = (
                "case",
                "started",
                "plans",
                "cold_ms",
                "longest_ms",
                "warm_plans",
                "warm_ms",
                "warm_longest_ms",
            )
            print(json.dumps(dict(zip(names, row, strict=True))), flush=True)
        else:
            print(
                ROW.format(*(f"{each:.1f}" if isinstance(each, float) else each for each in row)),
                flush=True,
            )
    return int(longest > given.goal_ms)


if __name__ == "__main__":
    sys.exit(main())
