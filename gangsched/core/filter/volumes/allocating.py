"""Selections (decisions about one claim) for ResourceClaims whose devices were chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID, uuid5

from msgspec.structs import replace

from gangsched.model.devices import DeviceAllocation, DeviceClaim, DeviceClass, DeviceRequest, DeviceResult
from gangsched.model.objects import NodeSelectorTerm
from gangsched.model.storage import GroupConsumer, ResourceClaim, Selection

SHARES: Final = UUID("5b1c1a4c-3f0c-4f0e-9c5f-1d2f3a8e6b70")
"""Namespace of the ids of shares, which are made of the claim, the request and the number of the device."""


def allocating(
    claim: ResourceClaim,
    results: Sequence[DeviceResult],
    required: tuple[NodeSelectorTerm, ...] | None,
    classes: Mapping[str, DeviceClass],
    consumer: GroupConsumer | None = None,
) -> Selection:
    """The decision to allocate these devices to a claim; `required` selects the nodes that can use them, and `consumer`
    is the PodGroup that the claim is reserved for, if not for the pod.
    """
    assert claim.asks is not None
    # The search names shares by request and number; the API wants a UUID, which must be the same in each attempt.
    named = tuple(
        replace(each, share=str(uuid5(SHARES, f"{claim.uid or claim.name}/{each.request}/{number}")))
        if each.share
        else each
        for number, each in enumerate(results)
    )
    configs = tuple(_configs(claim.asks, named, classes))
    return Selection(
        namespace=claim.namespace,
        name=claim.name,
        uid=claim.uid,
        resource_version=claim.resource_version,
        reserve=True,
        required=required,
        allocation=DeviceAllocation(named, configs, claim.has_more),
        finalizers=claim.finalizers,
        consumer=consumer,
    )


def following(
    claim: ResourceClaim, required: tuple[NodeSelectorTerm, ...] | None, consumer: GroupConsumer | None = None
) -> Selection:
    """The decision to let a pod use, and wait for, a claim whose devices are allocated for another pod."""
    return Selection(
        namespace=claim.namespace,
        name=claim.name,
        uid=claim.uid,
        reserve=True,
        required=required,
        follows=True,
        consumer=consumer,
    )


def _configs(
    asks: DeviceClaim, results: Sequence[DeviceResult], classes: Mapping[str, DeviceClass]
) -> list[tuple[tuple[str, ...], str]]:
    """The configs of the classes of which devices were taken, each once, with the requests of its class."""
    requests: dict[str, list[str]] = {}
    for alternatives in asks.requests:
        taken = _taken(alternatives, results)
        # With alternatives, only the class that was used contributes its configs.
        if taken is not None:
            requests.setdefault(taken.class_name, []).append(taken.full_name)
    return [
        (tuple(named), config)
        for name, named in requests.items()
        for config in (classes[name].configs if name in classes else ())
    ]


def _taken(alternatives: Sequence[DeviceRequest], results: Sequence[DeviceResult]) -> DeviceRequest | None:
    """The alternative that has devices."""
    had = {each.request for each in results}
    return next((each for each in alternatives if each.full_name in had), None)
