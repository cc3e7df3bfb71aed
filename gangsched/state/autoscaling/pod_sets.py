"""From the waiting pods of a group to what is asked of an autoscaler (semantics E10).

Invariant: pure and deterministic: another process finds the same request by its name, also where
it has another id for the gang.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from gangsched.model.gang import Gang, namespace_of
from gangsched.model.objects import Pod, Shape
from gangsched.model.protocol import ObjectRef, RequestNodes
from gangsched.model.provisioning import RequestedPods

MOST_POD_SETS: Final = 32
"""The API server admits no more of them."""
NAME_LENGTH: Final = 200
PREFIX: Final = "gangsched-"
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9-]+")


class RequestOwner(NamedTuple):
    """The object that owns the request of a gang, and the name of the gang: that of an owner's gang
    (O2) another one may have, too.
    """

    gang_name: str
    ref: ObjectRef


def orders(
    gangs: Iterable[Gang],
    owners: Mapping[str, RequestOwner],
    class_name: str,
    requested_by: str,
) -> dict[str, RequestNodes] | None:
    """The requests of a group by key, one for each namespace of its `gangs`; each is owned by the
    first of the `owners` (by gang) there.

    None if one of them would have too many kinds of pods.
    """
    lacking: dict[str, list[Pod]] = defaultdict(list)
    first: dict[str, RequestOwner] = {}
    for gang in gangs:
        namespace = namespace_of(gang.id)
        lacking[namespace] += _lacking(gang)
        owner = owners.get(gang.id)
        if owner is not None:
            first[namespace] = min(owner, first.get(namespace, owner), key=_rank)

    requests: dict[str, RequestNodes] = {}
    for namespace, pods in lacking.items():
        by_shape: dict[Shape, list[Pod]] = defaultdict(list)
        for pod in pods:
            by_shape[pod.shape].append(pod)

        if len(by_shape) > MOST_POD_SETS:
            return None

        if by_shape and namespace in first:
            owner = first[namespace]
            name = _name(owner, class_name, by_shape)
            sets = tuple(_pod_set(alike) for alike in by_shape.values())
            order = RequestNodes(
                namespace=namespace,
                name=name,
                class_name=class_name,
                requested_by=requested_by,
                owner=owner.ref,
                pod_sets=sets,
            )
            requests[f"{namespace}/{name}"] = order

    return requests


def _lacking(gang: Gang) -> list[Pod]:
    """The pods that its minimum lacks; for members to come the one that they will be like."""
    lack = max(0, gang.least - gang.bound)
    pods = list(gang.pending[:lack])
    # Without them the first member would get a node, and not start there without the others' room.
    if pods and gang.to_come and gang.to_come[0].shape.requests == pods[0].shape.requests:
        number = min(lack - len(pods), len(gang.to_come))
        pods += number * [pods[0]]

    return pods


def _pod_set(alike: list[Pod]) -> RequestedPods:
    oldest = min(alike, key=_age)
    return RequestedPods(oldest.uid, oldest.name, len(alike))


def _name(owner: RequestOwner, class_name: str, by_shape: Mapping[Shape, list[Pod]]) -> str:
    """The name of a request: of the gang, and of what is asked for."""
    asked = sorted((_encoded(shape), len(pods)) for shape, pods in by_shape.items())
    # With the gang: what is readable of two names may be the same.
    content = f"{owner.gang_name} {owner.ref.uid} {class_name} {asked}".encode()
    gang = owner.gang_name.lower()
    readable = _NOT_IN_NAMES.sub("-", gang)[:NAME_LENGTH].strip("-")

    return f"{PREFIX}{readable}-{sha256(content).hexdigest()[:8]}"


def _encoded(shape: Shape) -> bytes:
    # Sets are sorted: their order differs from process to process.
    return msgspec.json.encode(shape, order="deterministic", enc_hook=repr)


def _age(pod: Pod) -> tuple[int, str]:
    return pod.creation_s, pod.name


def _rank(owner: RequestOwner) -> tuple[str, str]:
    return owner.gang_name, owner.ref.uid
