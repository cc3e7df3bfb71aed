"""The requests of the claim that a pod gets for extended resources which a DeviceClass serves.

They are formed as kube-scheduler forms them (1.36, dynamicresources/extendeddynamicresources.go): a request for each
container that lives as long as the pod, and one for all init containers that end before others start, which use the
devices of later containers first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gangsched.kube.read.inter_pod import ALWAYS
from gangsched.kube.read.wire import Container, PodSpec
from gangsched.model.devices import CLASS_PREFIX
from gangsched.model.objects import ExtendedResource
from gangsched.model.resources import parse_quantity


def extended_names(spec: PodSpec) -> tuple[str, ...]:
    """Names of the containers of a pod that requests extended resources, () for any other pod.

    Results of requests contain these names, so pods whose containers have different names have different shapes.
    """
    containers = [*(spec.init_containers or ()), *(spec.containers or ())]
    for each in containers:
        # Joined, since this is asked of every pod: a loop over the names took twice as long.
        if each.resources is not None and each.resources.requests and "/" in "".join(each.resources.requests):
            return tuple(each.name for each in containers)
    return ()


def extended_resources(spec: PodSpec) -> tuple[ExtendedResource, ...]:
    """By name, the extended resources that the containers request. Raises QuantityError for an invalid amount."""
    containers = [*(spec.init_containers or ()), *(spec.containers or ())]
    names = {name for each in containers for name in _requests(each) if _is_extended(name)}
    found = (_resource(name, containers, len(spec.init_containers or ())) for name in sorted(names))
    return tuple(each for each in found if each.requests)


def _is_extended(name: str) -> bool:
    """As in Kubernetes: neither a resource of Kubernetes itself nor a quota's, or named after a class."""
    is_native = "/" not in name or "kubernetes.io/" in name
    return name.startswith(CLASS_PREFIX) or not (is_native or name.startswith("requests."))


def _resource(name: str, containers: Sequence[Container], inits: int) -> ExtendedResource:
    lasting: dict[int, tuple[str, int]] = {}
    ending: dict[int, tuple[str, int]] = {}
    users: list[tuple[str, str]] = []
    later: list[tuple[int, str]] = []  # of containers that end, with a placeholder for the request that they share
    for number, each in enumerate(containers):
        if (number >= inits or each.restart_policy == ALWAYS) and (count := _count(each, name)):
            lasting[number] = (_request_name(number, each, name), count)
            users.append((each.name, lasting[number][0]))
    for number, each in enumerate(containers[:inits]):
        count = 0 if each.restart_policy == ALWAYS else _count(each, name)
        # An init container uses devices of containers that start later before it asks for devices of its own.
        for other, (request, amount) in lasting.items():
            if other >= number and count > 0:
                later.append((number, request))
                count -= amount
        if count > 0:
            ending[number] = (_request_name(number, each, name), count)
            later.append((number, ""))
    # Init containers run one after the other, so the largest request serves all of them.
    most = max(ending.values(), key=lambda each: each[1], default=None)
    users += [(containers[number].name, request or (most or ("", 0))[0]) for number, request in later]
    requests = [*lasting.values(), *([most] if most is not None else ())]
    return ExtendedResource(name, tuple(sorted(requests)), tuple(users))


def _count(container: Container, name: str) -> int:
    requests = container.resources.requests if container.resources is not None else None
    return max(0, parse_quantity((requests or {}).get(name, 0)))


def _request_name(number: int, container: Container, name: str) -> str:
    # The name that kube-scheduler gives the request.
    return f"container-{number}-request-{sorted(_requests(container)).index(name)}"


def _requests(container: Container) -> Iterable[str]:
    return container.resources.requests or () if container.resources is not None else ()
