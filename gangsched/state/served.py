"""Extended resources that device classes serve: pods that need a claim for them, and the amounts
that nodes offer.

Invariant: a node offers such a resource either by itself, from a device plugin, or through its
devices. For devices the columns contain an upper bound, so a refusal by totals is always right;
`core.devices` decides which devices a pod gets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import numpy as np
from msgspec.structs import replace

from gangsched.model.objects import ClaimUse, Node, Pod
from gangsched.model.snapshot import Bools
from gangsched.state.storage_cache import StorageCache

_LONGEST_NAME: Final = 253
_SUFFIX: Final = "-extended-resources-"


class ServedResources:
    """Resources that pods request and classes serve; `names` has the resources that were seen since
    the classes changed.
    """

    def __init__(self, storage: StorageCache | None) -> None:
        """`storage` has the devices; None if they serve no extended resources."""
        self.names: set[str] = set()
        self._devices_of = storage.allocator if storage is not None else None
        self._classes: Mapping[str, str] = {}
        self._devices: dict[str, int] = {}  # by node
        self._anywhere = 0
        self._masks: Mapping[str, Bools] | None = {}

    @property
    def is_on(self) -> bool:
        """Whether a class lets devices serve extended resources."""
        return self._devices_of is not None

    def claimed(self, pod: Pod) -> tuple[Pod, bool]:
        """A waiting pod with the claim that serves its extended resources, if it needs one, and
        whether the name of a resource is new.

        A pod that had such a claim keeps it, so that it is deleted even if the class is gone.
        """
        # The watch shows the claim that an earlier process created as one of the pod's; it is
        # derived anew here.
        others = tuple(use for use in pod.claims if not use.extended)
        if self._devices_of is None:
            return replace(pod, claims=others), False

        asked = {resource.name for resource in pod.shape.extended}
        served = asked & self._classes.keys()
        if not served and len(others) == len(pod.claims):
            return pod, False

        is_new = not served <= self.names
        # Only what a pod has asked for: each name is a row of the columns of every snapshot.
        self.names |= served

        claims = (*others, extended_use(pod))
        return replace(pod, claims=claims), is_new

    def reclassified(self) -> bool:
        """Whether the served resources, or the classes that serve them, have changed since the last
        call.
        """
        classes: Mapping[str, str] = {}
        if self._devices_of is not None:
            classes = self._devices_of.extended

        if classes == self._classes:
            return False

        self._classes = classes
        self._devices.clear()
        self.names &= classes.keys()

        return True

    def recount_all(self) -> bool:
        """Whether the number of devices in slices that name no node has changed since the last
        call; if so, all nodes are recounted on their next use.
        """
        anywhere = 0
        devices_of = self._devices_of
        if devices_of is not None:
            anywhere = devices_of.slices.offered_anywhere

        if anywhere == self._anywhere:
            return False

        self._anywhere = anywhere
        self._devices.clear()
        return bool(self.names)

    def recount(self, node: str) -> None:
        """Recount the devices of a node on its next use."""
        self._devices.pop(node, None)

    def offered(self, node: Node) -> Mapping[str, int]:
        """Amounts that the node offers; its devices count as the extended resources that they
        serve.
        """
        offered = dict(node.allocatable)
        # Where a device plugin offers it, kube-scheduler takes that and no device, too.
        through = []
        for name in self.names:
            if not offered.get(name):
                through.append(name)

        if through and self._devices_of is not None:
            if node.name not in self._devices:
                self._devices[node.name] = self._devices_of.slices.offered(node.name)

            offered |= dict.fromkeys(through, self._devices[node.name])

        return offered

    def forget(self, node: str) -> None:
        """Drop a node that is gone."""
        self.recount(node)
        self.forget_masks()

    def forget_masks(self) -> None:
        """Record that nodes or what they offer by themselves changed."""
        self._masks = None

    def masks(self, nodes: Collection[Node]) -> Mapping[str, Bools]:
        """By resource: `mask[n]` is true if node `n` offers the resource only through devices, or
        not at all.
        """
        if self._masks is None:
            masks = {}
            for name in sorted(self.names):
                masks[name] = _without(name, nodes)

            self._masks = masks

        return self._masks


def extended_use(pod: Pod) -> ClaimUse:
    """The claim that gangsched creates for a pod's extended resources.

    Its name has the pod's uid, so that an attempt whose answer was lost is not repeated under
    another name.
    """
    suffix = f"{_SUFFIX}{pod.uid}"
    name = pod.name[: _LONGEST_NAME - len(suffix)].rstrip("-.") + suffix
    return ClaimUse(name, ephemeral=True, device=True, extended=True)


def _without(name: str, nodes: Iterable[Node]) -> Bools:
    lacks = [not dict(node.allocatable).get(name) for node in nodes]
    mask = np.array(lacks, dtype=np.bool_)
    mask.flags.writeable = False
    return mask
