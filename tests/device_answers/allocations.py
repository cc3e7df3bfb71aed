"""Random pools, claims and allocated devices, and the devices that kube-scheduler's module chooses
on one node.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from gangsched.core.devices.device_faults import DeviceFault, DevicesUnsupported
from gangsched.core.devices.held import Held, Use
from gangsched.core.devices.pools import SliceIndex
from gangsched.core.devices.questions import Questions
from gangsched.core.devices.search import DeviceSearch, SearchEnded
from gangsched.core.devices.states import States
from gangsched.kube.read.devices import decode_device_claim, decode_device_class, decode_slice
from gangsched.model.objects import Node
from kubernetes_cel.amounts import parse_nanos
from kubernetes_cel.selectors import SelectorAnswers
from tests.device_answers.module import answers

Json = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
NODE: Json = {"metadata": {"name": "n0", "labels": {ZONE: "a", "gpus": "8"}}}
SELECTORS = [
    *['device.attributes["{d}"].model == "h100"'] * 2,
    *['device.attributes["{d}"].index < 3'] * 2,
    'device.driver == "{d}"',
    'has(device.attributes["{d}"].numa) && device.attributes["{d}"].numa == 0',
    'device.attributes["{d}"].?numa.orValue(0) == 0',
    'device.capacity["{d}"].memory.compareTo(quantity("20")) >= 0',
    "device.allowMultipleAllocations",
    'device.attributes["{d}"].missing == 1',
]
POLICIES: list[Json | None] = [
    None,
    None,
    {"default": "10", "validRange": {"min": "10", "step": "10"}},
    {"default": "1500m", "validRange": {"min": "500m", "max": "30", "step": "250m"}},
    {"default": "20", "validValues": ["5", "20", "40"]},
    {"default": "7", "validRange": {"min": "1", "max": "25"}},
]


class Case:
    """One random case. Names are short, so that devices, pools and drivers often have
    equal ones.
    """

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)
        self.drivers = ["gpu.x", "nic.y"][: self._rng.choice([1, 1, 2])]
        self.slices = [part for driver in self.drivers for part in self._driver(driver)]
        self._rng.shuffle(self.slices)
        self.classes = [
            {
                "metadata": {"name": driver.partition(".")[0]},
                "spec": {
                    "selectors": self._selectors([f'device.driver == "{driver}"'], driver, 0.15)
                },
            }
            for driver in self.drivers
        ]
        self.claims = [self._claim(number) for number in range(self._rng.choice([1, 1, 2, 3]))]
        self.allocated = self._allocated()

    def _sometimes(self, share: float) -> bool:
        return self._rng.random() < share

    def _selectors(self, first: list[str], driver: str, share: float) -> list[Json]:
        more = (
            [self._rng.choice(SELECTORS).replace("{d}", driver)] if self._sometimes(share) else []
        )
        return [{"cel": {"expression": each}} for each in (*first, *more)]

    def _driver(self, driver: str) -> list[Json]:
        return [
            part
            for name in self._rng.sample(["n0", "p1", "p2"], self._rng.choice([1, 1, 2]))
            for part in self._pool(driver, name)
        ]

    def _pool(self, driver: str, pool: str) -> list[Json]:
        partitions = self._sometimes(0.35)
        parts: list[Json] = [{"devices": []} for _ in range(self._rng.choice([1, 1, 2]))]
        for number in range(self._rng.randrange(1, 7)):
            self._rng.choice(parts)["devices"].append(self._device(number, partitions))
        if partitions:
            parts.append({"sharedCounters": [self._counters("c0"), self._counters("c1")]})
        if self._sometimes(0.04):
            parts[0]["devices"].append({"name": "d0", "attributes": {}})
        generation, count = self._rng.randrange(3), len(parts) + self._sometimes(0.06)
        if self._sometimes(0.1):
            parts.append({"devices": [self._device(9, False)], "old": True})
        found = []
        for number, part in enumerate(parts):
            old = part.pop("old", False)
            published = {
                "name": pool,
                "generation": generation + self._rng.choice([-1, 1]) * old,
                "resourceSliceCount": count,
            }
            spec: Json = {"driver": driver, "pool": published, **part, **self._where()}
            for each in part.get("devices", ()):
                if spec.get("perDeviceNodeSelection"):
                    each.update(self._scope())
            name = f"{self._rng.choice('abc')}-{driver}-{pool}-{number}"
            found.append({"metadata": {"name": name}, "spec": spec})
        return found

    def _where(self) -> Json:
        return {"perDeviceNodeSelection": True} if self._sometimes(0.12) else self._scope()

    def _scope(self) -> Json:
        terms = [
            {
                "matchExpressions": [
                    {"key": ZONE, "operator": "In", "values": [self._rng.choice("aaab")]}
                ]
            }
        ]
        selector = {"nodeSelectorTerms": terms}
        names = [{"nodeName": "n0"}] * 5 + [{"nodeName": "n1"}]
        return dict(self._rng.choice([*names, {"allNodes": True}, {"nodeSelector": selector}]))

    def _counters(self, name: str) -> Json:
        return {
            "name": name,
            "counters": {"mem": {"value": self._rng.choice(["40", "80"])}, "sm": {"value": "4"}},
        }

    def _device(self, number: int, partitions: bool) -> Json:
        found: Json = {
            "name": f"d{number}",
            "attributes": {"model": {"string": self._rng.choice(["h100", "h100", "a100"])}},
        }
        attributes = found["attributes"]
        attributes["index"] = {"int": number}
        if self._sometimes(0.6):
            attributes["gpu.x/numa" if self._sometimes(0.3) else "numa"] = {
                "int": self._rng.randrange(2)
            }
        if self._sometimes(0.7):
            attributes["example.com/link"] = self._rng.choice(
                [{"string": "l0"}, {"string": "l1"}, {"int": 1}, {"bool": True}]
            )
        if self._sometimes(0.4):
            policy = self._rng.choice(POLICIES)
            found["capacity"] = {"memory": {"value": self._rng.choice(["20", "40", "80"])}}
            if policy is not None:
                found["capacity"]["memory"]["requestPolicy"] = policy
                found["allowMultipleAllocations"] = True
        if self._sometimes(0.15):
            found["allowMultipleAllocations"] = True
        if partitions and self._sometimes(0.8):
            amounts = {
                "mem": {"value": self._rng.choice(["10", "20", "40"])},
                "sm": {"value": self._rng.choice("12")},
            }
            missing = "c9" if self._sometimes(0.02) else self._rng.choice(["c0", "c1"])
            found["consumesCounters"] = [{"counterSet": missing, "counters": amounts}]
        if self._sometimes(0.12):
            effect = self._rng.choice(["NoSchedule", "NoExecute", "None"])
            found["taints"] = [{"key": self._rng.choice("kl"), "value": "v", "effect": effect}]
        if self._sometimes(0.02):
            found["bindingConditions"], found["bindingFailureConditions"] = ["ready"], ["failed"]
        return found

    def _claim(self, number: int) -> Json:
        names = [f"r{each}" for each in range(self._rng.choice([1, 1, 1, 2, 3]))]
        requests = [self._request(name) for name in names]
        alternatives = [
            f"{each['name']}/{sub['name']}"
            for each in requests
            for sub in each.get("firstAvailable", ())
        ]
        constraints: list[Json] = []
        while self._sometimes(0.35) and len(constraints) < 3:
            kind = self._rng.choice(["matchAttribute", "matchAttribute", "distinctAttribute"])
            attribute = self._rng.choice(
                ["gpu.x/model", "gpu.x/numa", "example.com/link", "nic.y/index", "gpu.x/index"]
            )
            some = self._rng.sample([*names, *alternatives], 1) if self._sometimes(0.4) else []
            constraints.append({kind: attribute, "requests": some})
        devices = {"requests": requests, "constraints": constraints}
        return {
            "metadata": {"name": f"claim{number}", "namespace": "ns", "uid": f"u{number}"},
            "spec": {"devices": devices},
        }

    def _request(self, name: str) -> Json:
        if self._sometimes(0.25):
            return {
                "name": name,
                "firstAvailable": [
                    {"name": f"s{each}", **self._exactly()}
                    for each in range(self._rng.choice([1, 2, 3]))
                ],
            }
        exactly = self._exactly()
        if self._sometimes(0.08):
            exactly["adminAccess"] = True
        return {"name": name, "exactly": exactly}

    def _exactly(self) -> Json:
        driver = self._rng.choice(self.drivers)
        found: Json = {
            "deviceClassName": driver.partition(".")[0],
            "selectors": self._selectors([], driver, 0.45),
        }
        if self._sometimes(0.01):
            found["deviceClassName"] = "none"
        if self._sometimes(0.12):
            found["allocationMode"] = "All"
        else:
            found |= {
                "allocationMode": "ExactCount",
                "count": self._rng.choice([1, 1, 1, 2, 2, 3, 33 if self._sometimes(0.05) else 4]),
            }
        if self._sometimes(0.2):
            found["capacity"] = {
                "requests": {"memory": self._rng.choice(["1", "10", "12", "15500m", "30", "1001m"])}
            }
        if self._sometimes(0.2):
            found["tolerations"] = [
                self._rng.choice(
                    [
                        {"operator": "Exists"},
                        {"key": "k", "operator": "Equal", "value": "v"},
                        {"key": "l", "operator": "Exists", "effect": "NoSchedule"},
                    ]
                )
            ]
        return found

    def _allocated(self) -> list[Json]:
        results: list[Json] = []
        for part in self.slices:
            for device in part["spec"].get("devices", ()):
                if not self._sometimes(0.2):
                    continue
                result = {
                    "request": "r",
                    "driver": part["spec"]["driver"],
                    "pool": part["spec"]["pool"]["name"],
                    "device": device["name"],
                }
                if device.get("allowMultipleAllocations"):
                    amounts = dict.fromkeys(device.get("capacity", {}), "10")
                    result |= {
                        "shareID": f"{len(results):08d}-0000-0000-0000-000000000000",
                        "consumedCapacity": amounts,
                    }
                elif self._sometimes(0.1):
                    result["adminAccess"] = True
                results.append(result)
        return [
            {
                "metadata": {"name": "held"},
                "spec": {},
                "status": {"allocation": {"devices": {"results": results}}},
            }
        ]

    def question(self) -> Json:
        """The case as the module is asked."""
        return {
            "node": NODE,
            "claims": self.claims,
            "classes": self.classes,
            "slices": self.slices,
            "allocated": self.allocated,
        }

    def ours(self) -> list[Any] | str:
        """Our devices of each claim, [] for none, "error" or "unsupported"."""
        classes = {each.name: each for each in map(decode_device_class, self.classes)}
        node = Node(name="n0", labels=NODE["metadata"]["labels"])
        pools = SliceIndex(map(decode_slice, self.slices)).pools(node)
        held = Held(
            result
            for claim in map(decode_device_claim, self.allocated)
            for result in claim.results or ()
        )
        claims = [decode_device_claim(each) for each in self.claims]
        try:
            search = DeviceSearch(
                States(Questions(pools, classes, SelectorAnswers()), Use(pools, held), claims, {}),
                [claims],
                most_steps=1_000_000,
            )
            found = search.found()
        except DevicesUnsupported:
            return "unsupported"
        except DeviceFault:
            return "error"
        except SearchEnded:
            return "ended"
        if not found:
            return "error" if any(pool.invalid for pool in pools) else []
        return [
            [[each.request, *each.id, each.admin, dict(each.amounts)] for each in results]
            for results in search.results()
        ]


def theirs(answer: Json) -> list[Any] | str:
    """The module's answer in the same form."""
    if answer.get("error"):
        return "error"

    def of_device(result: Json) -> list[Any]:
        consumed = result.get("consumedCapacity", {})
        return [
            result["request"],
            result["driver"],
            result["pool"],
            result["device"],
            result.get("adminAccess", False),
            {name: parse_nanos(amount) for name, amount in consumed.items()},
        ]

    return [
        [of_device(result) for result in claim["devices"]["results"]]
        for claim in answer["results"] or ()
    ]


def compared(seed: int, number: int) -> tuple[Counter[str], list[list[Any]], list[str]]:
    """Counts of answers, the seed of each case with the module's devices, and the differences."""
    seeds = range(seed * 1_000_000, seed * 1_000_000 + number)
    cases = [Case(each) for each in seeds]
    counts: Counter[str] = Counter()
    rows: list[list[Any]] = []
    differences = []
    for each, case, answer in zip(
        seeds, cases, answers([case.question() for case in cases]), strict=True
    ):
        expected, got = theirs(answer), case.ours()
        if got == "unsupported":  # binding conditions where all devices are asked for
            counts[got] += 1
            continue
        counts[expected if isinstance(expected, str) else "devices" if expected else "none"] += 1
        rows.append([each, expected])
        if expected != got:
            differences.append(f"case {each}\n  module: {answer}\n  gangsched: {got}")
    return counts, rows, differences
