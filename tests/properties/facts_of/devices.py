"""Facts about devices: every claim has its own (E1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product

from gangsched.model.gang import Refusal
from gangsched.model.objects import Pod
from gangsched.model.verdict_facts import DevicesShort, MemberFails
from tests.properties.device_gangs import Cluster, random_cluster
from tests.properties.facts_of.told import Told

SITUATION = "devices"


def told(seed: int) -> Told | None:
    """Two or three pods with claims of two kinds, on nodes of at most four devices."""
    cluster, pods = random_cluster(seed)
    if seed % 2:
        # Pods of one kind, of which devices are counted.
        asked = cluster.claims[0].requests[0]
        cluster.claims.clear()
        number = len(pods)
        cluster.pods.clear()
        pods = [cluster.ask(*asked) for _ in range(number)]

    verdict = cluster.decide(pods)
    if verdict.binds:
        return None

    def lies(refusal: Refusal) -> Iterator[str]:
        fact = refusal.fact
        if not isinstance(fact, MemberFails):
            return

        if refusal.never:
            yield "devices that are held are free on the empty cluster"
        yield from _of_number(cluster, pods, fact)
        if fact.devices is not None:
            yield from _of_devices(cluster, fact.devices, len(pods))

    return Told(verdict.told, lies)


def _of_number(cluster: Cluster, pods: Sequence[Pod], fact: MemberFails) -> Iterator[str]:
    """At most so many of the pods get devices together."""
    most = 0
    claims = list(cluster.pods)
    for number in range(len(pods), 0, -1):
        for chosen in combinations(claims, number):
            cluster.pods = [*chosen]
            if cluster.fits():
                most = max(most, number)
                break
        if most:
            break

    cluster.pods = claims
    if fact.placed > most:
        yield f"{fact.placed} are placed, and at most {most} can be"
    if fact.most and fact.placed != most:
        yield f"{most} can be placed, not {fact.placed}"
    if fact.placed >= len(pods):
        yield "all are placed"


def _of_devices(cluster: Cluster, devices: DevicesShort, number: int) -> Iterator[str]:
    """The largest number of single devices that match and can be had together."""
    by_node = [_most(cluster, name) for name in cluster.names]
    request = cluster.claims[0].requests[0][0]
    truth = {
        "by_pod": request.count,
        "needed": request.count * number,
        "free": sum(by_node),
        "on_one": max(by_node),
    }
    for name, value in truth.items():
        if getattr(devices, name) != value:
            yield f"{name} is {value}, not {getattr(devices, name)}"


def _most(cluster: Cluster, node: str) -> int:
    request = cluster.claims[0].requests[0][0]
    model = {selector.split('"')[3] for selector in request.selectors}
    free = [
        name
        for name, device in cluster.devices.items()
        if name[0] == node
        and name not in cluster.held
        and (not model or device.attributes["model"][1] in model)
    ]
    most = 0
    for takes in product((False, True), repeat=len(free)):
        chosen = {name for name, is_taken in zip(free, takes, strict=True) if is_taken}
        if cluster.has_memory(cluster.held | chosen):
            most = max(most, len(chosen))

    return most
