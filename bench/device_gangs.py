"""Gangs with devices of their own under gangsched and kube-scheduler, on one control plane.

`python -m bench.device_gangs [--gangs 40] [--seed 35] [--pods 1000] [--nodes 500] [--json]` prints
two tables. First, how many gangs each scheduler starts, leaves in part, and does not start: the one
of Kubernetes #138765, ten whose three members share a claim, and random ones. Each gang has nodes
of its own, twice, one set for each scheduler, and brute force has found that all its claims can be
allocated there. Both schedulers read the same objects: PodGroups of scheduling.k8s.io, claims made
from templates by controller-manager. Then, one scheduler after the other, the rate at which pods
with a claim each are bound to nodes of eight devices; the claims exist before the scheduler starts.
Last, a raw client that decides nothing sends the three writes that each pod takes: the rate of the
API server. Exit code 1 if gangsched does not start all.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import combinations, product
from typing import Any

from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.applying import apply_manifests
from control_plane.following import Following
from control_plane.pods import nodes_of

from bench.gangs.contenders import NATIVE, OURS_NATIVE, RAW, Contender, Running
from bench.gangs.http import Pool
from bench.gangs.raw import binding

GROUP = "/apis/resource.k8s.io/v1"
SLICES, CLAIMS = f"{GROUP}/resourceslices", f"{GROUP}/resourceclaims"
PODS = "/api/v1/pods"
PODS_HERE = "/api/v1/namespaces/default/pods"
CLAIMS_HERE = f"{GROUP}/namespaces/default/resourceclaims"
CONNECTIONS = 96
NATIVE_API = "scheduling.k8s.io/v1alpha2"
DRIVER, COUNTER = "gpu.test", "mem"
PLACE = "example.com/place"
WHOLE = 80
DEVICES = 8
MODELS = ("a", "b")
KNOWN = "Kubernetes #138765"
SHARED = "three share a claim"
RANDOM = "random gangs"
SHARING = 10
QUIET_S, MOST_S = 30.0, 180.0
CONTENDERS = (replace(OURS_NATIVE, arguments=("--devices", "all")), NATIVE)


@dataclass(frozen=True, slots=True)
class Device:
    """One device: a whole one, or a part of one that takes `takes` of the node's memory."""

    name: str
    kind: str
    takes: int = 0


@dataclass(frozen=True, slots=True)
class Ask:
    """What a member claims: `count` devices of the first of these kinds that can be had; ""
    is any.
    """

    kinds: tuple[str, ...]
    count: int = 1


@dataclass(frozen=True, slots=True)
class Gang:
    """The devices of each node, and what each member asks for; `shares`: one claim for
    all members.
    """

    title: str
    nodes: tuple[tuple[Device, ...], ...]
    members: tuple[Ask, ...]
    shares: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How many gangs a scheduler started whole, left with some members bound, and did not start."""

    gangs: str
    scheduler: str
    whole: int
    part: int
    none: int


@dataclass(frozen=True, slots=True)
class Rate:
    """Pods with a claim each, the seconds until the last was bound, and the CPU seconds of the
    scheduler.
    """

    scheduler: str
    pods: int
    seconds: float
    cpu_s: float

    @property
    def pods_per_s(self) -> float:
        """Pods bound a second."""
        return self.pods / self.seconds


def main(arguments: Sequence[str] | None = None) -> int:
    """Play and print."""
    parser = argparse.ArgumentParser(
        prog="bench.device_gangs", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--gangs", type=int, default=40, help="random gangs (default 40)")
    parser.add_argument("--seed", type=int, default=35)
    parser.add_argument(
        "--pods", type=int, default=1_000, help="pods of the rate, 0 for none (default 1000)"
    )
    parser.add_argument("--nodes", type=int, default=500, help="nodes of the rate (default 500)")
    parser.add_argument("--json", action="store_true", help="print one JSON object per row")
    given = parser.parse_args(arguments)
    rng = random.Random(given.seed)
    gangs = [
        half_and_half(),
        *(sharing() for _ in range(SHARING)),
        *(drawn(rng) for _ in range(given.gangs)),
    ]
    if not given.json:
        print(f"seed {given.seed}\n{'':22}{'':18}{'started':>9}{'in part':>9}{'not':>9}")
    outcomes = started(gangs)
    for outcome in outcomes:
        row = "{gangs:22}{scheduler:18}{whole:9}{part:9}{none:9}"
        print(
            json.dumps(asdict(outcome)) if given.json else row.format_map(asdict(outcome)),
            flush=True,
        )
    if given.pods and not given.json:
        print(
            f"\n{given.pods} pods, {given.nodes}"
            f" nodes{'':4}{'seconds':>14}{'pods/s':>9}{'CPU s':>9}"
        )
    for contender in (*CONTENDERS, RAW) if given.pods else ():
        rate = (raw if contender is RAW else played)(contender, given.pods, given.nodes)
        told = {**asdict(rate), "pods_per_s": rate.pods_per_s}
        row = "{scheduler:26}{seconds:12.1f}{pods_per_s:9.0f}{cpu_s:9.1f}"
        print(json.dumps(told) if given.json else row.format_map(told), flush=True)
    return int(
        any(
            each.part or each.none for each in outcomes if each.scheduler == CONTENDERS[0].scheduler
        )
    )


# --- gangs that fit -----------------------------------------------------------------------------


def half_and_half() -> Gang:
    """One device that is whole or two halves, and two members that each take the whole
    one first.
    """
    return Gang(KNOWN, (parted(),), (Ask(("whole", "half")),) * 2)


def sharing() -> Gang:
    """Three members that use one claim, and three nodes with a device each."""
    return Gang(SHARED, ((Device("g0", MODELS[0]),),) * 3, (Ask(("",)),) * 3, shares=True)


def parted() -> tuple[Device, ...]:
    """A device as partitions: all of it, or two halves."""
    return (
        Device("whole", "whole", WHOLE),
        *(Device(f"half-{n}", "half", WHOLE // 2) for n in range(2)),
    )


def drawn(rng: random.Random) -> Gang:
    """A random gang whose claims can be allocated together."""
    while True:
        nodes = tuple(
            parted() if rng.random() < 0.4 else plain(rng) for _ in range(rng.randint(1, 3))
        )
        found = Gang(RANDOM, nodes, tuple(asked(rng, nodes) for _ in range(rng.randint(2, 4))))
        if fits(found):
            return found


def plain(rng: random.Random) -> tuple[Device, ...]:
    """Up to three devices of two models."""
    return tuple(Device(f"g{n}", rng.choice(MODELS)) for n in range(rng.randint(1, 3)))


def asked(rng: random.Random, nodes: Sequence[Sequence[Device]]) -> Ask:
    """A random claim for kinds that some node has."""
    there = sorted({device.kind for devices in nodes for device in devices})
    first = rng.choice(["", *there])
    kinds = (
        tuple(dict.fromkeys((first, rng.choice(there))))
        if first and rng.random() < 0.4
        else (first,)
    )
    return Ask(kinds, 2 if rng.random() < 0.2 else 1)


def fits(gang: Gang) -> bool:
    """Whether all claims can be allocated together, by trying all choices."""
    return any(
        all(
            _together(
                devices,
                WHOLE,
                [ask for ask, at in zip(gang.members, where, strict=True) if at == number],
            )
            for number, devices in enumerate(gang.nodes)
        )
        for where in product(range(len(gang.nodes)), repeat=len(gang.members))
    )


def _together(devices: Sequence[Device], memory: int, asks: Sequence[Ask]) -> bool:
    if not asks:
        return True
    first, *rest = asks
    for kind in first.kinds:
        for chosen in combinations(
            [each for each in devices if kind in ("", each.kind)], first.count
        ):
            left = memory - sum(each.takes for each in chosen)
            if left >= 0 and _together(
                [each for each in devices if each not in chosen], left, rest
            ):
                return True
    return False


# --- objects ------------------------------------------------------------------------------------


def resource(kind: str, name: str, spec: Mapping[str, Any]) -> Object:
    """An object of resource.k8s.io/v1."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": (
            {"name": name, "namespace": "default"}
            if kind.startswith("ResourceClaim")
            else {"name": name}
        ),
        "spec": dict(spec),
    }


def device_class() -> Object:
    """All devices of the driver."""
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    return resource("DeviceClass", "gpu", {"selectors": [selector]})


def node_bodies(name: str, place: str, devices: Sequence[Device]) -> Iterator[Object]:
    """A node and its slices; those of partitions name the memory that they share."""
    yield make.node(name, gpus=0, labels={PLACE: place})
    parts: list[Object] = [{"devices": [_device(each) for each in devices]}]
    if any(each.takes for each in devices):
        counters = {COUNTER: {"value": str(WHOLE)}}
        parts.append({"sharedCounters": [{"name": "memory", "counters": counters}]})
    for number, part in enumerate(parts):
        pool = {"name": name, "generation": 1, "resourceSliceCount": len(parts)}
        yield resource(
            "ResourceSlice",
            f"{name}-{number}",
            {"driver": DRIVER, "pool": pool, "nodeName": name, **part},
        )


def _device(device: Device) -> Object:
    made: Object = {"name": device.name, "attributes": {"kind": {"string": device.kind}}}
    if device.takes:
        counters = {COUNTER: {"value": str(device.takes)}}
        made["consumesCounters"] = [{"counterSet": "memory", "counters": counters}]
    return made


def template(name: str, ask: Ask) -> Object:
    """A template of the claims for this."""
    return resource("ResourceClaimTemplate", name, {"spec": _claim_spec(ask)})


def claim(name: str, ask: Ask) -> Object:
    """A claim for this."""
    return resource("ResourceClaim", name, _claim_spec(ask))


def _claim_spec(ask: Ask) -> Object:
    wants = [_request(kind, ask.count) for kind in ask.kinds]
    one: Object = {"exactly": wants[0]}
    if len(wants) > 1:
        one = {
            "firstAvailable": [{"name": f"r{number}", **each} for number, each in enumerate(wants)]
        }
    return {"devices": {"requests": [{"name": "gpu", **one}]}}


def _request(kind: str, count: int) -> Object:
    expression = f'device.attributes["{DRIVER}"].kind == "{kind}"'
    selectors = {"selectors": [{"cel": {"expression": expression}}]} if kind else {}
    return {"deviceClassName": "gpu", "count": count, **selectors}


def gang_bodies(name: str, gang: Gang, scheduler: str) -> Iterator[Object]:
    """A native PodGroup, and for each member a template and a pod that goes to the gang's own
    nodes.
    """
    spec = {"schedulingPolicy": {"gang": {"minCount": len(gang.members)}}}
    meta = {"name": name, "namespace": "default"}
    yield {"apiVersion": NATIVE_API, "kind": "PodGroup", "metadata": meta, "spec": spec}
    if gang.shares:
        yield claim(name, gang.members[0])
    for number, ask in enumerate(gang.members):
        member = f"{name}-{number}"
        if not gang.shares:
            yield template(member, ask)
        uses = {"resourceClaimName": name} if gang.shares else {"resourceClaimTemplateName": member}
        yield pod(
            member,
            uses,
            scheduler,
            {"schedulingGroup": {"podGroupName": name}, "nodeSelector": {PLACE: name}},
        )


def pod(name: str, uses: Mapping[str, str], scheduler: str, spec: Mapping[str, Any]) -> Object:
    """A pod with this claim."""
    claims = [{"name": "gpu", **uses}]
    return make.pod(name, scheduler_name=scheduler, spec={"resourceClaims": claims, **spec})


# --- play ---------------------------------------------------------------------------------------


def started(gangs: Sequence[Gang]) -> list[Outcome]:
    """What becomes of the gangs under both schedulers, which run side by side."""
    with ExitStack() as stack:
        api, plane = _plane(stack)
        for contender in CONTENDERS:
            _run(stack, contender, plane)
        names = {}
        for contender in CONTENDERS:
            for number, gang in enumerate(gangs):
                name = f"{contender.scheduler}-{number:03}"
                names[name] = (gang.title, contender.scheduler, len(gang.members))
                for n, devices in enumerate(gang.nodes):
                    make.create_all(api, list(node_bodies(f"{name}-n{n}", name, devices)))
        with Following(api, PODS) as pods:
            for number, gang in enumerate(gangs):
                for contender in CONTENDERS:
                    name = f"{contender.scheduler}-{number:03}"
                    make.create_all(api, list(gang_bodies(name, gang, contender.scheduler)))
            total = sum(members for _, _, members in names.values())
            _until_quiet(pods, total)
            bound = nodes_of(pods.objects(), "")
    found = []
    for title, contender in product(dict.fromkeys(gang.title for gang in gangs), CONTENDERS):
        counts = [
            (sum(pod.rpartition("-")[0] == name for pod in bound), members)
            for name, (of, scheduler, members) in names.items()
            if (of, scheduler) == (title, contender.scheduler)
        ]
        whole, none = (
            sum(got == members for got, members in counts),
            sum(not got for got, _ in counts),
        )
        found.append(Outcome(title, contender.scheduler, whole, len(counts) - whole - none, none))
    return found


def played(contender: Contender, number: int, nodes: int) -> Rate:
    """How fast pods are bound that all have a claim for one of eight devices of a node."""
    with ExitStack() as stack:
        api, plane = _plane(stack)
        _create_waiting(api, contender, number, nodes)
        with Following(api, PODS) as pods:
            running = _run(stack, contender, plane)
            began_s, before_s = time.monotonic(), running.cpu_s()
            already = len(nodes_of(pods.objects(), ""))
            pods.wait_for(
                lambda items: len(nodes_of(items, "")) == number,
                within_s=MOST_S,
                what="all pods bound",
            )
            seconds, cpu_s = time.monotonic() - began_s, running.cpu_s() - before_s
    return Rate(contender.scheduler, number - already, seconds, cpu_s)


def raw(contender: Contender, number: int, nodes: int) -> Rate:
    """How fast one client that only sends can allocate and reserve the claims of these pods, and
    bind the pods.
    """
    with ExitStack() as stack:
        api, plane = _plane(stack)
        _create_waiting(api, contender, number, nodes)
        claims = {
            each["metadata"]["ownerReferences"][0]["name"]: each for each in api.list(CLAIMS).items
        }
        with Following(api, PODS) as pods:
            began_s, before_s = time.monotonic(), time.process_time()
            asyncio.run(
                _write_all(
                    plane, [(claims[f"p{n}"], f"n{n // DEVICES:04}", n) for n in range(number)]
                )
            )
            pods.wait_for(
                lambda items: len(nodes_of(items, "")) == number,
                within_s=MOST_S,
                what="all pods bound",
            )
            seconds, cpu_s = time.monotonic() - began_s, time.process_time() - before_s
    return Rate(contender.name, number, seconds, cpu_s)


async def _write_all(plane: ControlPlane, allocations: Sequence[tuple[Object, str, int]]) -> None:
    """Write claims with the node and the number of their pod as gangsched does, and bind
    the pods.
    """
    async with Pool(plane.url, plane.ssl_context(), CONNECTIONS) as pool:
        paths = [f"{CLAIMS_HERE}/{claim['metadata']['name']}" for claim, _, _ in allocations]
        finalizer = [
            {
                "op": "add",
                "path": "/metadata/finalizers",
                "value": ["resource.kubernetes.io/delete-protection"],
            }
        ]
        patch = "application/json-patch+json"
        await pool.send_all(
            [pool.request("PATCH", path, json.dumps(finalizer).encode(), patch) for path in paths]
        )
        patch, now = (
            "application/merge-patch+json",
            datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        )
        statuses = (
            json.dumps({"status": _allocated(claim, node, number, now)}).encode()
            for claim, node, number in allocations
        )
        requests = zip(paths, statuses, strict=True)
        await pool.send_all(
            [pool.request("PATCH", f"{path}/status", status, patch) for path, status in requests]
        )
        binds = ((f"p{number}", node) for _, node, number in allocations)
        await pool.send_all(
            [
                pool.request("POST", f"{PODS_HERE}/{name}/binding", binding(name, node))
                for name, node in binds
            ]
        )


def _allocated(claim: Object, node: str, number: int, now: str) -> Object:
    """The status of a claim whose device is allocated."""
    result = {"request": "gpu", "driver": DRIVER, "pool": node, "device": f"g{number % DEVICES}"}
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    consumer = claim["metadata"]["ownerReferences"][0]
    return {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
            "allocationTimestamp": now,
        },
        "reservedFor": [{"resource": "pods", "name": consumer["name"], "uid": consumer["uid"]}],
    }


def _create_waiting(api: Api, contender: Contender, number: int, nodes: int) -> None:
    """Create nodes, and pods that have claims and wait for their scheduler."""
    devices = [Device(f"g{n}", MODELS[0]) for n in range(DEVICES)]
    for n in range(nodes):
        make.create_all(api, list(node_bodies(f"n{n:04}", "all", devices)))
    uses = {"resourceClaimTemplateName": "one"}
    scheduler = contender.name if contender is RAW else contender.scheduler
    bodies = [
        template("one", Ask(("",))),
        *(pod(f"p{n}", uses, scheduler, {}) for n in range(number)),
    ]
    make.create_all(api, bodies, connections=4)
    with Following(api, CLAIMS) as claims, Following(api, PODS) as pods:
        claims.wait_for(
            lambda items: len(items) == number, within_s=MOST_S, what="a claim for each pod"
        )
        pods.wait_for(
            lambda items: all(map(_has_claim, items.values())),
            within_s=MOST_S,
            what="pods with claims",
        )


def _plane(stack: ExitStack) -> tuple[Api, ControlPlane]:
    given = ControlPlane(
        kcm=True, for_load=True, feature_gates=NATIVE.gates, runtime_config=[f"{NATIVE_API}=true"]
    )
    plane = stack.enter_context(given)
    api = stack.enter_context(closing(Api.of(plane)))
    apply_manifests(api)
    api.post(f"{GROUP}/deviceclasses", device_class())
    return api, plane


def _run(stack: ExitStack, contender: Contender, plane: ControlPlane) -> Running:
    running = Running(contender, plane)
    stack.callback(running.stop)
    running.start()
    running.await_ready()
    return running


def _has_claim(pod: Object) -> bool:
    return bool(pod.get("status", {}).get("resourceClaimStatuses"))


def _until_quiet(pods: Following, total: int) -> None:
    """Until all pods are bound, or no other one was for a while."""
    began_s = changed_s = time.monotonic()
    bound = 0
    while bound < total and time.monotonic() < min(changed_s + QUIET_S, began_s + MOST_S):
        time.sleep(0.5)
        now = len(nodes_of(pods.objects(), ""))
        if now != bound:
            bound, changed_s = now, time.monotonic()


if __name__ == "__main__":
    raise SystemExit(main())
