"""Whether devices of one node satisfy the requests of claims, with their device classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gangsched.core.devices.capacities import has_left, taken_amounts
from gangsched.core.devices.device_faults import DeviceFault, DevicesUnsupported
from gangsched.core.devices.pools import Pool, PoolDevice
from gangsched.model.devices import (
    ALL,
    MOST_DEVICES_OF_A_CLAIM,
    DeviceClaim,
    DeviceClass,
    DeviceId,
    DeviceRequest,
)
from kubernetes_cel.selectors import SelectorAnswers


@dataclass(slots=True, eq=False)
class Asked:
    """One alternative of a request: for `count` devices or, in mode All, for the devices at the
    positions `every`.

    `verdicts` caches whether each device matches, None if not evaluated yet. `amounts` caches the
    capacity amounts that the request would use of a device.
    """

    request: DeviceRequest
    of_class: DeviceClass
    count: int
    verdicts: list[bool | None]
    every: tuple[int, ...] | None = None
    amounts: dict[int, dict[str, int] | None] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Questions:
    """Evaluates requests of claims on the devices of one node: the devices of `pools`, in order.

    If the claims belong to several nodes, `pools_of[id(claim)]` are the pools that a claim can use.
    """

    pools: Sequence[Pool]
    classes: Mapping[str, DeviceClass]
    answers: SelectorAnswers
    pools_of: Mapping[int, Sequence[Pool]] = field(default_factory=dict)
    devices: tuple[PoolDevice, ...] = field(init=False)
    _seen: dict[int, dict[DeviceId, PoolDevice]] = field(init=False)

    def __post_init__(self) -> None:
        self.devices = tuple(device for pool in self.pools for device in pool.devices)
        self._seen = {
            claim: {device.id: device for pool in pools for device in pool.devices}
            for claim, pools in self.pools_of.items()
        }

    def _as_seen(self, at: int, claim: DeviceClaim) -> PoolDevice | None:
        """The device at this place as the claim sees it; None if it does not."""
        seen = self._seen.get(id(claim))
        found = self.devices[at]
        return found if seen is None else seen.get(found.id)

    def asked(self, claim: DeviceClaim) -> list[list[Asked]]:
        """The requests of a claim, each with its alternatives. Raises DeviceFault."""
        who = f"claim {claim.namespace}/{claim.name}"
        if claim.unknown:
            raise DevicesUnsupported(
                f"{who} uses {claim.unknown}, which gangsched does not support"
            )

        found = []
        least = 0

        for alternatives in claim.requests:
            found.append([self._one(claim, request) for request in alternatives])
            # The claim is in error only if even its smallest alternatives exceed the limit.
            fewest = min(asked.count for asked in found[-1])
            if fewest > MOST_DEVICES_OF_A_CLAIM - least:
                raise DeviceFault(
                    f"{who}, request {alternatives[0].parent or alternatives[0].name}: adding"
                    f" {fewest} devices exceeds the claim limit of {MOST_DEVICES_OF_A_CLAIM}, with"
                    f" {least} already accounted for"
                )

            least += fewest

        return found

    def matches(
        self,
        asked: Asked,
        at: int,
        claim: DeviceClaim,
    ) -> bool:
        """Whether the device at position `at` satisfies the request. Raises DeviceFault for an
        error of a selector.
        """
        found = asked.verdicts[at]
        if found is None:
            each = self._as_seen(at, claim)
            # Cached per device: alternatives, pods and backtracking ask the same question thousands
            # of times.
            found = (
                each is not None
                and not each.device.unknown
                # first, since for kube-scheduler an error of it is the pod's
                and self._selected(asked, each, claim)
                and not each.device.conditional
            )
            asked.verdicts[at] = found

        return found

    def amounts(self, asked: Asked, at: int) -> dict[str, int] | None:
        """`taken_amounts` of the device at position `at`. Raises DeviceFault."""
        if at not in asked.amounts:
            asked.amounts[at] = taken_amounts(asked.request, self.devices[at].device)

        return asked.amounts[at]

    def _one(self, claim: DeviceClaim, request: DeviceRequest) -> Asked:
        who = f"claim {claim.namespace}/{claim.name}, request {request.name}"
        of_class = self.classes.get(request.class_name)
        if of_class is None:
            raise DeviceFault(f"{who}: device class {request.class_name} does not exist")

        for thing, what in (
            (request.unknown, f"request {request.name}"),
            (of_class.unknown, f"class {of_class.name}"),
        ):
            if thing:
                raise DevicesUnsupported(f"{what} uses {thing}, which gangsched does not support")

        for owner, sources in (
            (f"class {of_class.name}", of_class.selectors),
            (f"request {request.name}", request.selectors),
        ):
            for number, source in enumerate(sources):
                unknown = self.answers.unknown(source)
                if unknown:
                    raise DevicesUnsupported(
                        f"selector #{number} of {owner} uses {unknown}, which gangsched does not"
                        " support"
                    )

        # None: not evaluated yet. Most searches end before they have seen all devices.
        asked = Asked(request, of_class, request.count, [None] * len(self.devices))
        if request.mode == ALL:
            asked.every = tuple(self._all(asked, claim, who))
            # Zero is possible, and is no error: kube-scheduler then rejects the node (`_devices`).
            asked.count = len(asked.every)

        return asked

    def _all(
        self,
        asked: Asked,
        claim: DeviceClaim,
        who: str,
    ) -> list[int]:
        # "All" cannot be answered from a pool that is being rewritten, contradicts itself, or was
        # cut.
        for pool in self.pools_of.get(id(claim), self.pools):
            name = "/".join(pool.id)
            if pool.incomplete or pool.invalid:
                state = "being updated" if pool.incomplete else "invalid"
                raise DeviceFault(
                    f"{who}: asks for all devices, but resource pool {name} is currently {state}"
                )

            if pool.is_cut:
                raise DevicesUnsupported(
                    f"{who}: asks for all devices, but resource pool {name} has more of them than"
                    " gangsched compares"
                )

        every = []
        for at in range(len(self.devices)):
            each = self._as_seen(at, claim)
            if each is None:
                continue

            device = each.device
            if (device.unknown or device.conditional) and self._may_match(asked, each, claim):
                name = "/".join(each.id)
                what = device.unknown or "binding conditions"
                raise DevicesUnsupported(
                    f"{who}: asks for all devices, but device {name} uses {what}, which gangsched"
                    " does not support"
                )

            if self.matches(asked, at, claim):
                amounts = self.amounts(asked, at)
                # what others use of it refuses the request
                if amounts is not None and has_left(device, {}, amounts):
                    every.append(at)

        return every

    def _may_match(
        self,
        asked: Asked,
        found: PoolDevice,
        claim: DeviceClaim,
    ) -> bool:
        try:
            return self._selected(asked, found, claim)
        except DeviceFault:  # what is not known of the device may be what the selector lacks
            return True

    def _selected(
        self,
        asked: Asked,
        found: PoolDevice,
        claim: DeviceClaim,
    ) -> bool:
        request = asked.request
        of_class = asked.of_class

        claimed = f"claim {claim.namespace}/{claim.name}, request {request.name}"
        for owner, sources in (
            (f"class {of_class.name}", of_class.selectors),
            (claimed, request.selectors),
        ):
            for number, source in enumerate(sources):
                answer = (
                    found.seen
                    if isinstance(found.seen, str)
                    else self.answers.answer(source, found.seen)
                )
                if isinstance(answer, str):
                    name = "/".join(found.id)
                    raise DeviceFault(f"{owner}, selector #{number} on device {name}: {answer}")

                if not answer:
                    return False

        return found.here
