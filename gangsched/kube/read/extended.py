"""The requests of the claim that a pod gets for extended resources which a DeviceClass serves.

They are formed as kube-scheduler forms them (1.36, dynamicresources/extendeddynamicresources.go): a
request for each container that lives as long as the pod, and one for all init containers that end
before others start, which use the devices of later containers first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gangsched.kube.read.inter_pod import ALWAYS
from gangsched.kube.read.wire import Amounts, Container, PodSpec
from gangsched.model.bounds import MANY, at_most
from gangsched.model.devices import CLASS_PREFIX
from gangsched.model.objects import ExtendedResource
from kubernetes_cel.amounts import parse_quantity


def extended_names(spec: PodSpec) -> tuple[str, ...]:
    """Names of the containers of a pod that requests extended resources, () for any other pod.

    Results of requests contain these names, so pods whose containers have different names have
    different shapes.
    """
    containers = [*(spec.init_containers or ()), *(spec.containers or ())]
    for container_spec in containers:
        # Joined, since this is asked of every pod: a loop over the names took twice as long.
        if (
            container_spec.resources is not None
            and container_spec.resources.requests
            and "/" in "".join(container_spec.resources.requests)
        ):
            return tuple(container.name for container in containers)

    return ()


def extended_resources(spec: PodSpec) -> tuple[ExtendedResource, ...]:
    """By name, the extended resources that the containers request. Raises QuantityError for an
    invalid amount, and BoundError for more users of one resource than are read.
    """
    containers = [*(spec.init_containers or ()), *(spec.containers or ())]
    asks = _asks_by_name(containers)
    inits = len(spec.init_containers or ())
    resources = (_resource(name, asks[name], inits) for name in sorted(asks))

    return tuple(extended_resource for extended_resource in resources if extended_resource.requests)


class _ContainerRequest(NamedTuple):
    """What one container requests of one extended resource."""

    number: int
    container: Container
    #: The name that kube-scheduler gives the request.
    request: str
    devices: int


def _asks_by_name(containers: Sequence[Container]) -> dict[str, list[_ContainerRequest]]:
    """The requests of each extended resource, in the order of the containers."""
    # One pass over all containers: a pass for each resource made a pod of 3,000 containers take 13
    # seconds.
    asks: dict[str, list[_ContainerRequest]] = {}
    for number, container in enumerate(containers):
        amounts = _requests(container)

        for place, name in enumerate(sorted(amounts)):
            if _is_extended(name):
                devices = max(0, parse_quantity(amounts[name]))
                request = f"container-{number}-request-{place}"
                asks.setdefault(name, []).append(
                    _ContainerRequest(number, container, request, devices)
                )

    return asks


def _is_extended(name: str) -> bool:
    """As in Kubernetes: neither a resource of Kubernetes itself nor a quota's, or named after a
    class.
    """
    is_native = "/" not in name or "kubernetes.io/" in name
    return name.startswith(CLASS_PREFIX) or not (is_native or name.startswith("requests."))


def _resource(name: str, asks: Sequence[_ContainerRequest], inits: int) -> ExtendedResource:
    """One resource; the first `inits` containers of the pod are init containers."""
    asks = [container_request for container_request in asks if container_request.devices > 0]
    lasting = [
        container_request
        for container_request in asks
        if container_request.number >= inits or container_request.container.restart_policy == ALWAYS
    ]
    ending = [
        container_request
        for container_request in asks
        if container_request.number < inits and container_request.container.restart_policy != ALWAYS
    ]
    users = [
        (container_request.container.name, container_request.request)
        for container_request in lasting
    ]

    # Of containers that end, each with a placeholder for the request that they share.
    later: list[tuple[str, str]] = []
    largest: _ContainerRequest | None = None

    for ask in ending:
        left = ask.devices
        # An init container uses devices of containers that start later before it asks for devices
        # of its own.
        for other in lasting:
            if left <= 0:
                break

            if other.number >= ask.number:
                later.append((ask.container.name, other.request))
                left -= other.devices

        if left > 0:
            later.append((ask.container.name, ""))
            # Init containers run one after the other, so the largest request serves all of them.
            if largest is None or left > largest.devices:
                largest = ask._replace(devices=left)

        at_most(len(users) + len(later), MANY, f"users of {name}")

    shared = largest.request if largest is not None else ""
    users += [(container, request or shared) for container, request in later]
    requests = []

    for container_ask in (*lasting, *([largest] if largest is not None else ())):
        requests.append((container_ask.request, container_ask.devices))

    return ExtendedResource(name, tuple(sorted(requests)), tuple(users))


def _requests(container: Container) -> Amounts:
    requests = container.resources.requests if container.resources is not None else None
    return requests or {}
