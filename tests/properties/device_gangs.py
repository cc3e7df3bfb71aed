"""Random gangs with devices beside all choices of nodes and devices: they start if and only if some
choice lets them.

The seed decides of what kind a gang is (`KINDS`): claims of its pods, claims that several pods
share, pools that several nodes reach, both, and extended resources that device plugins or devices
serve, with and without such pools. Each has partitions, claims also have constraints. Run as
`python -m tests.properties.device_gangs`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations, product
from random import Random
from typing import NamedTuple

import numpy as np
from msgspec import structs

from gangsched.core.cycle import Limits, plan
from gangsched.core.devices.device_index import DeviceIndex
from gangsched.core.node_terms import any_term_met
from gangsched.model.devices import (
    Device,
    DeviceClaim,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceResult,
    NodeScope,
    ResourceSlice,
)
from gangsched.model.inter_pod import Requirement
from gangsched.model.objects import ClaimUse, ExtendedResource, Node, NodeSelectorTerm, Pod, Shape
from gangsched.model.plan import Verdict
from gangsched.model.snapshot import Snapshot
from gangsched.model.storage import ResourceClaim, Storage
from tests.builders import NAMESPACE, gang, group, node, pod, shape, snapshot, verdict_on

LIKE = DeviceConstraint("d/link")
ZONE = "zone"
MEMORY = ("g", "m")
KINDS = (
    "own claims",
    "shared claims",
    "joint pools",
    "joint pools and shared claims",
    "extended resources",
    "extended resources and joint pools",
)
SERVED = {"example.com/a": "gpu-a", "example.com/gpu": "gpu"}
"""Extended resources, and the classes whose devices serve them: those of model a, and all."""
DeviceName = tuple[str, str]
"""Pool and name."""


class JointPool(NamedTuple):
    """A pool of the nodes of a zone, or of all nodes."""

    name: str
    devices: Sequence[Device]
    zone: str = ""

    @property
    def scope(self) -> NodeScope:
        """The nodes as a slice states them."""
        if not self.zone:
            return NodeScope(everywhere=True)
        return NodeScope(terms=(NodeSelectorTerm(labels=(Requirement(ZONE, "In", (self.zone,)),)),))


def request(count: int = 1, model: str = "", *, name: str = "r", parent: str = "") -> DeviceRequest:
    """A request for devices, of one model if it is named."""
    selectors = (f'device.attributes["d"].model == "{model}"',) if model else ()
    return DeviceRequest(
        name=name, parent=parent, class_name="gpu", count=count, selectors=selectors
    )


def device(name: str, model: str, link: int = 0, *, takes: int = 0) -> Device:
    """A device with two attributes, which `takes` so much of the memory of its pool."""
    counters = ((MEMORY, takes),) if takes else ()
    return Device(
        name=name, attributes={"model": ("string", model), "link": ("int", link)}, counters=counters
    )


class Cluster:
    """Nodes with devices, pools of several nodes, the claims that hold some devices, and claims to
    be allocated.

    `memory` is what each pool has of the counter that its devices take; `most` pods have room on a
    node. `plugins` are the extended resources that each node offers by itself; without, no class
    serves any.
    """

    def __init__(
        self,
        nodes: Sequence[Sequence[Device]],
        held: Sequence[tuple[int, str]] = (),
        *,
        pools: Sequence[JointPool] = (),
        zones: Sequence[str] = (),
        memory: int = 0,
        most: int = 0,
        plugins: Sequence[Mapping[str, int]] = (),
    ) -> None:
        self.most = most
        self.plugins = {f"n{number}": each for number, each in enumerate(plugins)}
        self.names = [f"n{number}" for number in range(len(nodes))]
        self.nodes: list[Node] = [
            node(name, labels={ZONE: zone} if zone else {})
            for name, zone in zip(self.names, zones or [""] * len(nodes), strict=True)
        ]
        self.pools = [JointPool(name, own) for name, own in zip(self.names, nodes, strict=True)]
        self.joint = list(pools)
        self.devices = {
            (pool.name, each.name): each for pool in (*self.pools, *pools) for each in pool.devices
        }
        self.memory = memory
        self.held = set[DeviceName]()
        for number, name in held:  # what would overdraw a counter is not held
            self.held |= (
                {(f"n{number}", name)}
                if self.has_memory({*self.held, (f"n{number}", name)})
                else set()
            )
        self.claims: list[DeviceClaim] = []
        self.pods: list[list[int]] = []  # by number of the pod, those of its claims
        # by number of the claim, what its pod requests
        self.extended: dict[int, Mapping[str, int]] = {}
        self.index = DeviceIndex()
        serving = {class_name: name for name, class_name in SERVED.items()} if plugins else {}
        self.index.apply(DeviceClass("gpu", (), serving.get("gpu", "")))
        if plugins:
            self.index.apply(
                DeviceClass("gpu-a", ('device.attributes["d"].model == "a"',), serving["gpu-a"])
            )
        for pool, scope in [(each, NodeScope(each.name)) for each in self.pools] + [
            (each, each.scope) for each in pools
        ]:
            part = ResourceSlice(
                name=pool.name, driver="d", pool=pool.name, scope=scope, devices=tuple(pool.devices)
            )
            self.index.apply(structs.replace(part, slices=2) if memory else part)
            if memory:
                sets = ((MEMORY[0], ((MEMORY[1], memory),)),)
                self.index.apply(
                    structs.replace(
                        part, name=f"{pool.name}-m", slices=2, devices=(), counters=sets
                    )
                )
        for had in sorted(self.held):
            self.index.hold(f"held-{'-'.join(had)}", (DeviceResult("r", ("d", *had)),))

    def ask(self, *alternatives: DeviceRequest, like: bool = False) -> Pod:
        """A pod with a claim for the first of these that can be had."""
        return self.using(self.claim(*alternatives, like=like))

    def using(self, *claims: int) -> Pod:
        """A pod with these claims, which other pods may have, too."""
        self.pods.append([*claims])
        name = f"p{len(self.pods) - 1}"
        uses = tuple(ClaimUse(self.claims[each].name, device=True) for each in claims)
        made = pod(name, uid=name, claims=uses)
        return (
            structs.replace(made, shape=shape(cpu_milli=64_000 // self.most)) if self.most else made
        )

    def extend(self, amounts: Mapping[str, int]) -> Pod:
        """A pod that requests so much of extended resources."""
        number = len(self.claims)
        requests = tuple(
            (DeviceRequest(name=f"container-0-request-{at}", class_name=SERVED[name], count=count),)
            for at, (name, count) in enumerate(sorted(amounts.items()))
        )
        self.claims.append(DeviceClaim(namespace=NAMESPACE, name=f"c{number}", requests=requests))
        self.extended[number] = amounts
        made = self.using(number)
        use = ClaimUse(f"c{number}", ephemeral=True, device=True, extended=True)
        return structs.replace(
            made, claims=(use,), shape=_extended_shape(made.shape, tuple(sorted(amounts.items())))
        )

    def claim(self, *alternatives: DeviceRequest, like: bool = False) -> int:
        """The number of a new claim for the first of these that can be had."""
        name = f"c{len(self.claims)}"
        asks = DeviceClaim(
            namespace=NAMESPACE,
            name=name,
            uid=name,
            requests=(alternatives,),
            constraints=(LIKE,) if like else (),
        )
        self.claims.append(asks)
        return len(self.claims) - 1

    def snapshot(self) -> Snapshot:
        """What a plan sees."""
        made = [
            ResourceClaim(namespace=NAMESPACE, name=each.name, uid=each.uid, asks=each)
            for each in self.claims
        ]
        users = Counter(each for claims in self.pods for each in claims)
        shared = {made[each].key: number for each, number in users.items() if number > 1}
        known = {each.key: each for number, each in enumerate(made) if number not in self.extended}
        store = Storage(devices=known, allocator=self.index, shared=shared)
        if not self.plugins:
            return structs.replace(snapshot(self.nodes), storage=store)
        masks = {
            name: np.array([not self.plugins[each].get(name) for each in self.names])
            for name in SERVED
        }
        return structs.replace(
            snapshot(map(self._offering, self.nodes)), storage=store, served=masks
        )

    def _offering(self, node: Node) -> Node:
        amounts = {
            name: self.plugins[node.name].get(name) or self.index.slices.offered(node.name)
            for name in SERVED
        }
        return structs.replace(
            node, allocatable=tuple(sorted((*node.allocatable, *amounts.items())))
        )

    def decide(self, pods: Sequence[Pod], *, work: int = 30_000) -> Verdict:
        """The verdict on a Strict gang of these pods, however many plans it takes."""
        seen, unfinished = self.snapshot(), None
        for _ in range(100):
            made = plan(
                seen,
                [group(gang("ns/g", pods))],
                now_s=0.0,
                unfinished=unfinished,
                limits=Limits(work=work),
            )
            if made.verdicts:
                return verdict_on(made, "ns/g")
            unfinished = made.unfinished
        raise AssertionError("no verdict within 100 plans")

    def check(self, verdict: Verdict) -> None:
        """Each claim has devices, once, that match and that no other has, and all its pods are
        where it can be used.
        """
        had, followed, allocated = set(self.held), set[str](), set[str]()
        nodes = dict(zip(self.names, self.nodes, strict=True))
        for placed in verdict.binds:
            claims = self.pods[int(placed.pod.uid[1:])]
            assert {each.name for each in placed.claims} == {
                self.claims[each].name for each in claims if self._requests(each, placed.node)
            }
            for selection in placed.claims:
                assert selection.required is None or any_term_met(
                    selection.required, nodes[placed.node]
                )
                if selection.allocation is None:
                    assert selection.follows
                    followed.add(selection.name)
                    continue
                number = next(
                    at for at, each in enumerate(self.claims) if each.name == selection.name
                )
                own = [each.id[1:] for each in selection.allocation.results]
                where = {
                    each.node
                    for each in verdict.binds
                    if number in self.pods[int(each.pod.uid[1:])]
                }
                assert all(name in self._seen(at) for name in own for at in where)
                usable = {
                    at
                    for at in nodes
                    if selection.required is None or any_term_met(selection.required, nodes[at])
                }
                assert all(name in self._seen(at) for name in own for at in usable)
                asks = self.claims[number]
                chosen = [self.devices[each] for each in own]
                if number in self.extended:
                    assert selection.makes is not None
                    assert selection.makes.requests == tuple(
                        each for (each,) in self._requests(number, placed.node)
                    )
                for alternatives in self._requests(number, placed.node):
                    of_request = [
                        each
                        for each, result in zip(chosen, selection.allocation.results, strict=True)
                        if result.request.partition("/")[0]
                        == (alternatives[0].parent or alternatives[0].name)
                    ]
                    assert any(
                        _matches(alternative, asks, of_request) for alternative in alternatives
                    )
                assert had.isdisjoint(own)
                had |= {*own}
                assert selection.name not in allocated
                allocated.add(selection.name)
        assert followed <= allocated
        assert self.has_memory(had)

    # What follows knows nothing of the search.

    def fits(self) -> bool:
        """Whether any nodes and devices let all pods start."""
        return any(map(self._fits_on, product(self.names, repeat=len(self.pods))))

    def _fits_on(self, chosen: Sequence[str]) -> bool:
        """Whether devices can be had together if each pod runs on this node."""
        if self.most and max(Counter(chosen).values()) > self.most:
            return False
        where: dict[int, set[str]] = {}
        plugged = Counter[tuple[str, str]]()
        for at, claims in zip(chosen, self.pods, strict=True):
            for each in claims:
                where.setdefault(each, set()).add(at)
                for name, amount in self.extended.get(each, {}).items():
                    plugged[at, name] += amount if self.plugins[at].get(name) else 0
        if any(amount > self.plugins[at].get(name, 0) for (at, name), amount in plugged.items()):
            return False
        requests = [
            (claim, alternatives, set.intersection(*map(self._seen, where[claim])))
            for claim in sorted(where)
            for alternatives in self._requests(claim, min(where[claim]))
        ]
        return self._together(requests, frozenset(self.held))

    def _requests(self, claim: int, at: str) -> Sequence[tuple[DeviceRequest, ...]]:
        """What a claim requests on a node; for extended resources, what the node does not offer by
        itself.
        """
        asked = self.claims[claim].requests
        if claim not in self.extended:
            return asked
        names = sorted(self.extended[claim])
        return [
            each for name, each in zip(names, asked, strict=True) if not self.plugins[at].get(name)
        ]

    def _seen(self, name: str) -> set[DeviceName]:
        """The devices that a node can use."""
        zone = self.nodes[self.names.index(name)].labels.get(ZONE, "")
        pools = [each for each in self.joint if each.zone in {"", zone}] + [
            self.pools[self.names.index(name)]
        ]
        return {(pool.name, each.name) for pool in pools for each in pool.devices}

    def _together(
        self,
        requests: Sequence[tuple[int, tuple[DeviceRequest, ...], set[DeviceName]]],
        used: frozenset[DeviceName],
    ) -> bool:
        if not requests:
            return True
        claim, alternatives, seen = requests[0]
        return any(
            self.has_memory(now := used.union(chosen)) and self._together(requests[1:], now)
            for alternative in alternatives
            for chosen in combinations(sorted(seen - used), alternative.count)
            if _matches(alternative, self.claims[claim], [self.devices[each] for each in chosen])
        )

    def has_memory(self, used: frozenset[DeviceName] | set[DeviceName]) -> bool:
        """Whether the counters of all pools allow these devices together."""
        taken = Counter[str]()
        for name in used:
            taken[name[0]] += sum(amount for _, amount in self.devices[name].counters)
        return not self.memory or max(taken.values(), default=0) <= self.memory


def _matches(alternative: DeviceRequest, asks: DeviceClaim, chosen: Sequence[Device]) -> bool:
    models = {each.attributes["model"][1] for each in chosen}
    links = {each.attributes["link"] for each in chosen}
    wanted = {source.split('"')[3] for source in alternative.selectors}
    wanted |= {"a"} if alternative.class_name == "gpu-a" else set()
    return (
        len(chosen) == alternative.count
        and models <= (wanted or models)
        and (not asks.constraints or len(links) < 2)
    )


@cache
def _extended_shape(plain: Shape, amounts: tuple[tuple[str, int], ...]) -> Shape:
    extended = tuple(
        ExtendedResource(name, ((request, count),), (("main", request),))
        for at, (name, count) in enumerate(amounts)
        for request in (f"container-0-request-{at}",)
    )
    return Shape(requests=tuple(sorted((*plain.requests, *amounts))), extended=extended)


def random_cluster(
    seed: int, *, joint: bool = False, served: bool = False
) -> tuple[Cluster, list[Pod]]:
    """One to three nodes of at most four devices, perhaps with pools of several nodes, and two or
    three pods; if they are `served` extended resources, up to four.
    """
    rng = Random(seed)
    memory = rng.choice([0, 0, 2, 3])

    def some(most: int) -> list[Device]:
        return [
            device(
                f"g{number}",
                rng.choice("aab"),
                rng.randrange(2),
                takes=rng.choice([1, 1, 2]) if memory else 0,
            )
            for number in range(rng.randrange(most + 1))
        ]

    nodes = [some(2 if joint else 4) for _ in range(rng.randrange(2 if joint else 1, 4))]
    held = [
        (number, each.name)
        for number, own in enumerate(nodes)
        for each in own
        if rng.random() < 0.15
    ]
    zones = [rng.choice("yz") for _ in nodes] if joint else []
    scopes = rng.choice([[""], ["y"], ["y", "z"], ["", "y"]]) if joint else []
    pools = [JointPool(f"net{number}", some(3), zone) for number, zone in enumerate(scopes)]
    most = rng.choice([1, 2]) if joint else 0
    if served:
        plugins = [{name: rng.choice([0, 0, 0, 1, 2]) for name in SERVED} for _ in nodes]
        cluster = Cluster(
            nodes, held, pools=pools, zones=zones, memory=memory, most=most, plugins=plugins
        )
        drawn = [
            {
                name: rng.choice([1, 1, 2])
                for name in rng.sample(sorted(SERVED), rng.choice([1, 1, 2]))
            }
            for _ in "12"
        ]
        return cluster, [
            cluster.extend(each) for each in rng.choices(drawn, k=rng.choice([2, 3, 4]))
        ]
    cluster = Cluster(nodes, held, pools=pools, zones=zones, memory=memory, most=most)
    kinds = list(some_requests(rng))
    return cluster, [
        cluster.ask(*each, like=like) for each, like in rng.choices(kinds, k=rng.choice([2, 3]))
    ]


def some_requests(rng: Random) -> Iterator[tuple[tuple[DeviceRequest, ...], bool]]:
    """Two kinds of claims."""
    for _ in range(2):
        if rng.random() < 0.3:
            pair = (
                request(2, "b", name="s0", parent="r"),
                request(1, rng.choice(["", "a"]), name="s1", parent="r"),
            )
            yield pair, rng.random() < 0.3
        else:
            yield (request(rng.choice([1, 1, 2]), rng.choice(["", "a", "b"])),), rng.random() < 0.4


def sharing(seed: int, *, joint: bool = False) -> tuple[Cluster, list[Pod]]:
    """The same, with two to four pods that use some of the claims, each of which several
    may use.
    """
    rng = Random(seed)
    cluster, _ = random_cluster(seed, joint=joint)
    cluster.pods.clear()
    claims = range(len(cluster.claims))
    pods = [
        cluster.using(*sorted(rng.sample(claims, rng.choice([1, 1, 2]))))
        for _ in range(rng.choice([2, 3, 4]))
    ]
    return cluster, pods


def compared(seed: int, kind: str = "") -> bool:
    """Whether the gang of a seed starts. Raises AssertionError unless it does if and only if some
    choice lets it.
    """
    kind = kind or KINDS[seed % len(KINDS)]
    if "shared" in kind:
        cluster, pods = sharing(seed, joint="joint" in kind)
    else:
        cluster, pods = random_cluster(seed, joint="joint" in kind, served="extended" in kind)
    verdict = cluster.decide(pods)
    assert bool(verdict.binds) == cluster.fits(), f"{kind}: {len(verdict.binds)} pods are bound"
    cluster.check(verdict)
    return bool(verdict.binds)


def main() -> int:
    """Compare so many gangs; 1 if one differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gangs", type=int, default=8_000)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    began_s, differ = time.monotonic(), 0
    started = Counter[str]()
    for seed in range(options.first, options.first + options.gangs):
        try:
            started[KINDS[seed % len(KINDS)]] += compared(seed)
        except AssertionError as error:
            differ += 1
            print(f"seed {seed}: {error or 'the devices are wrong'}", flush=True)
    counts = ", ".join(f"{started[kind]} with {kind}" for kind in KINDS)
    print(
        f"seeds {options.first} to {seed}: {differ} differ; started: {counts};"
        f" {time.monotonic() - began_s:.0f} s"
    )
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
