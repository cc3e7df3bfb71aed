"""Single pods with claims under gangsched and under kube-scheduler, both on one control plane.

`python -m tests.parity.devices --number 400 --seed 1` takes the random pools and claims of
`tests.device_answers`; each case is there twice, with a node, slices, classes and allocated claims
of its own for each scheduler. Compared are whether the pod is bound, the devices of each of its
claims and the nodes that can use them, and otherwise the reason. Two of five pods request extended
resources that the classes serve, some of which the node offers by itself; then the claim that the
scheduler has made is compared as well. In half of the cases pools are for nodes with a label, or
each device states its nodes; in the others each pool is for one node. Cases that the API server
refuses are counted, and so are those in which gangsched refuses a field that it does not support.
Exit code 1 if any differ.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from math import ceil
from random import Random
from typing import Any

from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, ApiError, Object
from control_plane.applying import apply_manifests
from control_plane.daemon import Daemon
from control_plane.following import Following
from control_plane.pods import refusal

from gangsched.core.devices.pools import Pool, SliceIndex
from gangsched.kube.read.devices import decode_slice
from gangsched.model.devices import ResourceSlice
from gangsched.model.objects import Node
from kubernetes_cel.amounts import parse_nanos
from tests.device_answers.allocations import ZONE
from tests.device_answers.allocations import Case as Drawn
from tests.parity.device_figures import Figures

GROUP = "/apis/resource.k8s.io/v1"
NAMESPACE = "ns"
HERE = f"{GROUP}/namespaces/{NAMESPACE}/resourceclaims"
PODS = "/api/v1/pods"
PLACE, PART = "example.com/place", "example.com/part"
SCOPES = frozenset({"nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"})
SCHEDULERS = ("gangsched", "default-scheduler")
WITHIN_S = 60.0
QUIET_S = 1.0
AT_ONCE = 100
NANOS = 10**9
_NAMES = re.compile(r"\b(?:[gk]\d+-)")


@dataclass(frozen=True, slots=True)
class Answer:
    """The devices of each claim as `request: driver/pool/device`, or what was said."""

    devices: tuple[tuple[str, ...], ...] = ()
    said: str = ""
    bound: bool = False


class Twin:
    """The objects of one case for one scheduler."""

    def __init__(self, seed: int, scheduler: str) -> None:
        self.tag = f"{'k' if scheduler == SCHEDULERS[1] else 'g'}{seed}-"
        self._drawn, self._scheduler = Drawn(seed), scheduler
        self._is_joint = Random(f"joint {seed}").random() < 0.5
        classes: list[Any] = self._drawn.classes
        self._extended = Extended(seed, self.tag, [each["metadata"]["name"] for each in classes])
        drawn = [] if self._extended.is_alone else self._drawn.claims
        self.claims = [self._claim(each) for each in drawn]

    def objects(self) -> Iterator[Object]:
        """Everything but the pod; of the claims, the allocated ones come with a status."""
        node = make.node(f"{self.tag}n0", gpus=0, labels=self._labels)
        for amounts in node["status"].values():
            amounts.update(self._extended.offered)
        yield node
        classes: list[Any] = self._drawn.classes
        for each in classes:
            name = each["metadata"]["name"]
            yield _resource(
                "DeviceClass", self.tag + name, each["spec"] | self._extended.served(name)
            )
        for each in self._drawn.slices:
            yield _resource(
                "ResourceSlice", self.tag + each["metadata"]["name"], self._slice(each["spec"])
            )
        yield from self.claims
        held = self._held()
        if held is not None:
            yield held

    @property
    def _labels(self) -> dict[str, str]:
        """The labels of the pod's node: it is in part `a` of the nodes of this case."""
        return {ZONE: "a", "gpus": "8", PLACE: self.tag[:-1], PART: f"{self.tag}a"}

    @property
    def is_broken(self) -> bool:
        """Whether a pool is incomplete or invalid, which kube-scheduler 1.36 holds against pods on
        all nodes.
        """
        slices = [decode_slice(each) for each in self.objects() if each["kind"] == "ResourceSlice"]
        pools = [pool for name in ("n0", "n1") for pool in self._pools(slices, name)]
        return any(pool.incomplete or pool.invalid for pool in pools)

    @property
    def has_joint_pools(self) -> bool:
        """Whether a slice or device is for more than one node."""
        return any(
            "nodeName" not in each["spec"]
            for each in self.objects()
            if each["kind"] == "ResourceSlice"
        )

    @property
    def recharges(self) -> bool:
        """Whether a claim holds a share without capacity of a device with counters."""
        (held,) = self._drawn.allocated
        counted = {
            (each["spec"]["driver"], each["spec"]["pool"]["name"], device["name"])
            for each in self._drawn.slices
            for device in each["spec"].get("devices", ())
            if "consumesCounters" in device
        }
        return any(
            "shareID" in each
            and not each.get("consumedCapacity")
            and (each["driver"], each["pool"], each["device"]) in counted
            for each in held["status"]["allocation"]["devices"]["results"]
        )

    @property
    def pools(self) -> set[str]:
        """The names of the pools of the pod's node."""
        slices = [decode_slice(each) for each in self.objects() if each["kind"] == "ResourceSlice"]
        return {pool.id[1] for pool in self._pools(slices, "n0")}

    def _pools(self, slices: Iterable[ResourceSlice], name: str) -> Sequence[Pool]:
        labels = self._labels if name == "n0" else {PART: f"{self.tag}b"}
        return SliceIndex(slices).pools(Node(name=self.tag + name, labels=labels))

    def pod(self) -> Object:
        """The pod that has all claims."""
        claims = [
            {"name": f"c{n}", "resourceClaimName": each["metadata"]["name"]}
            for n, each in enumerate(self.claims)
        ]
        containers = [
            {
                "name": "main",
                "image": make.IMAGE,
                "resources": {"claims": [{"name": each["name"]} for each in claims]},
            }
        ]
        spec = {
            "resourceClaims": claims,
            "containers": containers,
            "nodeSelector": {PLACE: self.tag[:-1]},
        }
        containers += self._extended.containers
        spec |= {"initContainers": self._extended.inits} if self._extended.inits else {}
        return make.pod(f"{self.tag}p", NAMESPACE, scheduler_name=self._scheduler, spec=spec)

    def _slice(self, spec: Mapping[str, Any]) -> Object:
        """A slice for nodes of this case alone: the classes of others match its devices, too."""
        made = {key: value for key, value in spec.items() if key not in SCOPES}
        made["pool"] = {**spec["pool"], "name": self.tag + spec["pool"]["name"]}
        if self._is_joint:
            made |= self._scope(spec)
        else:
            pool = (
                each["spec"]
                for each in self._drawn.slices
                if each["spec"]["pool"]["name"] == spec["pool"]["name"]
            )
            made["nodeName"] = self.tag + next(pool).get("nodeName", "n0")
        if "devices" in spec:
            made["devices"] = [self._device(each) for each in spec["devices"]]
        return made

    def _device(self, device: Mapping[str, Any]) -> Object:
        made = {key: value for key, value in device.items() if key not in SCOPES}
        made |= self._scope(device) if self._is_joint else {}
        for taint in made.get("taints", ()):
            if taint["effect"] == "NoExecute":  # controller-manager evicts the pod at once
                taint["effect"] = "NoSchedule"
        return made

    def _scope(self, drawn: Mapping[str, Any]) -> Object:
        """The nodes that a slice or a device is for, none if it does not state any."""
        if "perDeviceNodeSelection" in drawn:
            return {"perDeviceNodeSelection": True}
        if "nodeName" in drawn:
            return {"nodeName": self.tag + drawn["nodeName"]}
        parts = list("ab") if "allNodes" in drawn else []
        for term in drawn.get("nodeSelector", {}).get("nodeSelectorTerms", ()):
            parts += term["matchExpressions"][0]["values"]
        expression = {"key": PART, "operator": "In", "values": [self.tag + part for part in parts]}
        return (
            {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
            if parts
            else {}
        )

    def _claim(self, claim: Mapping[str, Any]) -> Object:
        devices = json.loads(json.dumps(claim["spec"]["devices"]))
        for request in devices["requests"]:
            for each in (request.get("exactly"), *request.get("firstAvailable", ())):
                if each is not None:
                    each["deviceClassName"] = self.tag + each["deviceClassName"]
        return _resource(
            "ResourceClaim", self.tag + claim["metadata"]["name"], {"devices": devices}
        )

    def _held(self) -> Object | None:
        (held,) = self._drawn.allocated
        results = [
            {**each, "pool": self.tag + each["pool"]}
            for each in held["status"]["allocation"]["devices"]["results"]
        ]
        if not results:
            return None
        requests = [{"name": "r", "exactly": {"deviceClassName": "any", "allocationMode": "All"}}]
        made = _resource("ResourceClaim", f"{self.tag}held", {"devices": {"requests": requests}})
        return {**made, "status": {"allocation": {"devices": {"results": results}}}}


class Extended:
    """What a pod of this seed requests of extended resources; most request none."""

    def __init__(self, seed: int, tag: str, classes: Sequence[str]) -> None:
        rng = Random(f"extended {seed}")
        self.is_any = rng.random() < 0.4
        self.is_alone = self.is_any and rng.random() < 0.6
        self._explicit = {
            name: f"example.com/{tag}{name}" for name in classes if rng.random() < 0.5
        }
        names = [
            self._explicit.get(name, f"deviceclass.resource.kubernetes.io/{tag}{name}")
            for name in classes
        ]
        self.offered = {
            name: str(rng.choice([1, 2, 4]))
            for name in names
            if self.is_any and rng.random() < 0.25
        }
        numbers = [1, 1, 1, 2, 2, 3]
        self.containers, self.inits = (
            [
                self._container(
                    f"{kind}{number}",
                    {name: rng.choice(numbers) for name in names if rng.random() < 0.7},
                )
                for number in range(
                    rng.choice([1, 1, 2]) if self.is_any and rng.random() < chance else 0
                )
            ]
            for kind, chance in (("main", 1.0), ("init", 0.4))
        )
        for each in self.inits:
            each.update({"restartPolicy": "Always"} if rng.random() < 0.3 else {})

    def served(self, name: str) -> Object:
        """What the spec of a class has beyond its selectors."""
        return {"extendedResourceName": self._explicit[name]} if name in self._explicit else {}

    @staticmethod
    def _container(name: str, amounts: Mapping[str, int]) -> Object:
        texts = {resource: str(amount) for resource, amount in amounts.items()}
        return {
            "name": name,
            "image": make.IMAGE,
            "resources": {"requests": {"cpu": "1"} | texts, "limits": texts},
        }


def _resource(kind: str, name: str, spec: Mapping[str, Any]) -> Object:
    namespace = {"namespace": NAMESPACE} if kind == "ResourceClaim" else {}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, **namespace},
        "spec": dict(spec),
    }


def run(plane: ControlPlane, seeds: Sequence[int], *, progress: bool = False) -> Figures:
    """Compare the cases of these seeds, some at a time."""
    figures = Figures()
    with (
        closing(Api.of(plane)) as api,
        ThreadPoolExecutor(8) as pool,
        Daemon(plane, extra_args=("--devices", "all")),
    ):
        labels = {"resource.kubernetes.io/admin-access": "true"}
        namespace = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": NAMESPACE, "labels": labels},
        }
        api.post("/api/v1/namespaces", namespace)
        with Following(api, PODS) as pods:
            alone = [seed for seed in seeds if Twin(seed, SCHEDULERS[0]).is_broken]
            together = [seed for seed in seeds if seed not in alone]
            batches = [
                together[first : first + AT_ONCE] for first in range(0, len(together), AT_ONCE)
            ]
            done = 0
            for batch in (*batches, *([seed] for seed in alone)):
                _some(api, pool, pods, batch, figures)
                done += len(batch)
                if progress and (len(batch) > 1 or done % 20 == 0):
                    print(f"{done} of {len(seeds)}: {len(figures.differences)} differ", flush=True)
    return figures


def _some(
    api: Api, pool: ThreadPoolExecutor, pods: Following, seeds: Sequence[int], figures: Figures
) -> None:
    twins = {seed: [Twin(seed, scheduler) for scheduler in SCHEDULERS] for seed in seeds}
    accepted = pool.map(lambda pair: all(_created(api, each) for each in pair), twins.values())
    asked = [seed for seed, is_accepted in zip(seeds, accepted, strict=True) if is_accepted]
    figures.refused += len(seeds) - len(asked)
    _clear(api, pool, (twin for seed in seeds if seed not in asked for twin in twins[seed]))
    # until both have seen all slices: a refusal is not told anew at once when they change
    time.sleep(QUIET_S)
    list(
        pool.map(
            lambda each: api.post(api.path_of(each, namespace=NAMESPACE), each),
            (twin.pod() for seed in asked for twin in twins[seed]),
        )
    )
    names = {twin.pod()["metadata"]["name"] for seed in asked for twin in twins[seed]}
    try:
        pods.wait_for(lambda items: names <= _answered(items), within_s=WITHIN_S)
    except TimeoutError as error:
        silent = names - _answered(pods.objects())
        if any(name.startswith("g") for name in silent):
            raise AssertionError(f"nothing was said of {sorted(silent)}") from error
        asked = [seed for seed in asked if f"k{seed}-p" not in silent]
        figures.silent += len(silent)
    found = dict(_named(pods.objects()))
    for seed in asked:
        ours, theirs = (
            _answer(api, twin, found[twin.pod()["metadata"]["name"]]) for twin in twins[seed]
        )
        _count(seed, ours, theirs, figures, twins[seed][1])
    _clear(api, pool, (twin for seed in asked for twin in twins[seed]))


def _clear(api: Api, pool: ThreadPoolExecutor, twins: Iterable[Twin]) -> None:
    """Delete the slices of these cases, so that no other case meets them."""
    slices = [each for twin in twins for each in twin.objects() if each["kind"] == "ResourceSlice"]
    list(
        pool.map(
            lambda each: _deleted(api, f"{api.path_of(each)}/{each['metadata']['name']}"), slices
        )
    )


def _deleted(api: Api, path: str) -> None:
    try:
        api.delete(path)
    except ApiError as error:
        if error.status != 404:
            raise


def _answered(items: Mapping[str, Object]) -> set[str]:
    return {name for name, item in _named(items) if _decided(item)}


def _named(items: Mapping[str, Object]) -> Iterator[tuple[str, Object]]:
    return ((item["metadata"]["name"], item) for item in items.values())


def _decided(pod: Object) -> bool:
    return bool(pod["spec"].get("nodeName") or refusal(pod)[1])


def _created(api: Api, twin: Twin) -> bool:
    try:
        for each in twin.objects():
            path = api.path_of(each, namespace=each["metadata"].get("namespace", ""))
            api.post(path, each)
            if "status" in each and each["kind"] == "ResourceClaim":
                api.patch(f"{HERE}/{each['metadata']['name']}/status", {"status": each["status"]})
    except ApiError as error:
        if error.status in (400, 422):
            return False
        raise
    return True


def _answer(api: Api, twin: Twin, pod: Object) -> Answer:
    if not pod["spec"].get("nodeName"):
        return Answer(said=refusal(pod)[1])
    claims = [api.get(f"{HERE}/{each['metadata']['name']}") for each in twin.claims]
    made = pod["status"].get("extendedResourceClaimStatus")
    claims += [api.get(f"{HERE}/{made['resourceClaimName']}")] if made else []
    results = [each["status"]["allocation"]["devices"].get("results") or () for each in claims]
    told = (
        [_NAMES.sub("", json.dumps(each, sort_keys=True)) for each in made["requestMappings"]]
        if made
        else []
    )
    asked = [_NAMES.sub("", json.dumps(claims[-1]["spec"], sort_keys=True))] if made else []
    places = [
        json.dumps(each["status"]["allocation"].get("nodeSelector"), sort_keys=True)
        for each in claims
    ]
    told += [_NAMES.sub("", each) for each in places]
    return Answer((*(tuple(map(_device, each)) for each in results), (*told, *asked)), bound=True)


def _device(result: Mapping[str, Any]) -> str:
    told = {"admin": True} if result.get("adminAccess") else {}
    # 1.36 rounds what is consumed up to whole units, which 1.37 corrects.
    told |= {
        name: ceil(parse_nanos(amount) / NANOS)
        for name, amount in result.get("consumedCapacity", {}).items()
    }
    pool = _NAMES.sub("", result["pool"])
    return (
        f"{result['request']}: {result['driver']}/{pool}/{result['device']}"
        f" {json.dumps(told, sort_keys=True)}"
    )


def _count(seed: int, ours: Answer, theirs: Answer, figures: Figures, twin: Twin) -> None:
    if "which gangsched does not support" in ours.said:
        figures.unsupported += 1
        return
    named = re.search(r"resource pool \S+/(\S+) is currently", theirs.said)
    if named and not ours.bound and named.group(1) not in twin.pools:
        figures.elsewhere += 1
        return
    if "nil or empty request mappings" in theirs.said and ours.bound:
        figures.unmapped += 1
        return
    if twin.recharges and "cannot allocate all claims" in theirs.said and ours.bound:
        figures.recharged += 1
        return
    figures.compared += 1
    figures.joint += twin.has_joint_pools
    mine, other = (reason(each.said) for each in (ours, theirs))
    if ours.bound and theirs.bound:
        figures.bound += 1
    else:
        figures.said[other] += 1
    if (ours.bound, ours.devices, mine) != (theirs.bound, theirs.devices, other):
        told = [
            " ".join(map(str, each.devices)) if each.bound else each.said for each in (ours, theirs)
        ]
        figures.differences.append(
            f"case {seed}\n  ours           {told[0]}\n  kube-scheduler {told[1]}"
        )


def reason(said: str) -> str:
    """Why the pod's own node is refused, without names of the case; of other nodes nothing is said.

    Of an error in a claim, the error: gangsched names the device as well, and 1.36 says less than
    1.37 and gangsched.
    """
    text = _NAMES.sub("", said)
    if found := re.search(r"no such key: \w+|exceeds the claim limit of \d+", text):
        return found.group()
    if "because a claim constraint would not be satisfied" in text:
        return "cannot allocate all claims"  # what 1.37 says of it
    text = re.sub(r"^0/\d+ nodes are available: ", "", text).split(". ")[0].rstrip(".")
    parts = [each for each in re.split(r", (?=\d+ )", text) if "node affinity/selector" not in each]
    return ", ".join(re.sub(r"^\d+ ", "", each) for each in parts).removeprefix(
        'running "DynamicResources" filter plugin: '
    )


def main(arguments: Iterable[str] | None = None) -> int:
    """Compare and print."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.parity.devices", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--number", type=int, default=400, help="cases to compare (default 400)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int, help="only this case; its objects are printed")
    asked = parser.parse_args(None if arguments is None else list(arguments))
    seeds = (
        [asked.case]
        if asked.case is not None
        else list(range(asked.seed * 10_000, asked.seed * 10_000 + asked.number))
    )
    if asked.case is not None:
        for each in (
            *Twin(asked.case, SCHEDULERS[1]).objects(),
            Twin(asked.case, SCHEDULERS[1]).pod(),
        ):
            print(json.dumps(each))
    with ControlPlane(kcm=True, scheduler=True) as plane:
        with closing(Api.of(plane)) as api:
            apply_manifests(api)
        started_s = time.monotonic()
        figures = run(plane, seeds, progress=True)
        took_s = time.monotonic() - started_s
    print(*figures.differences, f"seed {asked.seed}, {took_s:.0f} s: {figures}", sep="\n")
    return int(bool(figures.differences))


if __name__ == "__main__":
    sys.exit(main())
