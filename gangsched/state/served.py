"""Extended resources that device classes serve: pods that need a claim for them, and the amounts
that nodes offer.

Invariant: a node offers such a resource either by itself, from a device plugin, or through its
devices. For devices the columns contain an upper bound, so a refusal by totals is always right;
`core.devices` decides which devices a pod gets. Nodes offer nothing through devices that a waiting
pod would use without a claim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from gangsched.model.objects import ClaimUse, Node, Pod
from gangsched.model.snapshot import Bools
from gangsched.state.namespace_turns import NamespaceTurns
from gangsched.state.storage_cache import StorageCache

CLAIMED_AT_A_TIME: Final = 60
"""Pods that one turn looks at again: each may be a gang of its own, as in `state.divided_pods`."""
_LONGEST_NAME: Final = 253
_SUFFIX: Final = "-extended-resources-"


class ServedResources:
    """Resources that pods request and classes serve; `names` has the resources that were seen since
    the classes changed.
    """

    def __init__(self, storage: StorageCache | None) -> None:
        """`storage` has the devices; None if they serve no extended resources."""
        self.names: set[str] = set()
        self._asked: set[str] = set()  # with those that are no names yet

        # Waiting pods that were last looked at beside other classes: which of them is found out
        # once for all changes between two turns.
        self._is_outdated = False
        self._outdated = NamespaceTurns()
        self._devices_of = storage.allocator if storage is not None else None
        self._classes: Mapping[str, str] = {}
        self._devices: dict[str, int] = {}  # by node
        self._anywhere = 0
        self._masks: Mapping[str, Bools] = {}

    @property
    def is_on(self) -> bool:
        """Whether a class lets devices serve extended resources."""
        return self._devices_of is not None

    def claimed(self, pod: Pod) -> Pod:
        """A waiting pod with the claim that serves its extended resources, if it needs one.

        A pod that had such a claim keeps it, so that it is deleted even if the class is gone.
        """
        # The watch shows the claim that an earlier process created as one of the pod's; it is
        # derived anew here.
        others = tuple(use for use in pod.claims if not use.extended)
        self._outdated.discard(pod.namespace, pod.uid)
        if self._devices_of is None:
            return replace(pod, claims=others)

        asked = {resource.name for resource in pod.shape.extended}
        served = asked & self._classes.keys()
        if not served and len(others) == len(pod.claims):
            return pod

        # Only what a pod has asked for: each name is a row of the columns of every snapshot.
        self._asked |= served
        claims = (*others, extended_use(pod))
        return replace(pod, claims=claims)

    @property
    def is_behind(self) -> bool:
        """Whether waiting pods may lack a claim that they need now."""
        return self._is_outdated or bool(self._outdated)

    def take_outdated(self, waiting: Callable[[], Iterable[Pod]]) -> list[str]:
        """Uids of some pods, of those `waiting`, that are to be given their claims; all are by
        `claimed`.
        """
        if self._is_outdated:
            self._is_outdated = False
            for pod in waiting():
                self._outdated.add(pod.namespace, pod.uid)

        return self._outdated.take(CLAIMED_AT_A_TIME)

    def shows_more(self, *, at_once: bool = False) -> bool:
        """Whether nodes offer more resources than at the last call, because pods asked for them.

        They do not while pods may lack a claim, which would be placed without devices, unless
        `at_once`.
        """
        if self._asked <= self.names or (self.is_behind and not at_once):
            return False

        self.names |= self._asked
        return True

    def reclassified(self) -> bool:
        """Whether the served resources, or the classes that serve them, have changed since the last
        call; then pods may lack claims.
        """
        classes: Mapping[str, str] = {}
        if self._devices_of is not None:
            classes = self._devices_of.extended

        if classes == self._classes:
            return False

        self._classes = classes
        self.names &= classes.keys()
        self._asked &= classes.keys()
        self._is_outdated = True

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
        for name in self.names:
            # Where a device plugin offers it, kube-scheduler takes that and no device, too.
            if not offered.get(name):
                offered[name] = self._devices_on(node)

        return offered

    def offered_of(self, name: str, node: Node) -> int:
        """The amount of one resource that the node offers."""
        own = dict(node.allocatable).get(name, 0)
        if own or name not in self.names:
            return own

        return self._devices_on(node)

    def _devices_on(self, node: Node) -> int:
        if self._devices_of is None:
            return 0
        if node.name not in self._devices:
            self._devices[node.name] = self._devices_of.slices.offered(node.name)

        return self._devices[node.name]

    def forget(self, node: str) -> None:
        """Drop a node that is gone."""
        self.recount(node)
        self.forget_masks()

    def forget_masks(self) -> None:
        """Record that nodes or what they offer by themselves changed."""
        self._masks = {}

    def masks(self, nodes: Callable[[], Sequence[Node]]) -> Mapping[str, Bools]:
        """By resource: `mask[n]` is true if node `n` offers the resource only through devices, or
        not at all.
        """
        if self._masks.keys() != self.names:
            masks = {}
            for name in sorted(self.names):
                known = self._masks.get(name)
                masks[name] = known if known is not None else _without(name, nodes())

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
