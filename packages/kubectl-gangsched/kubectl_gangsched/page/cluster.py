"""What is known of a cluster, as it comes: nodes, pods, PodGroups and gangs, and which rows of the
page a change of them touches.

Invariant: only decoded objects are stored, which have no environment variables, arguments or
images. What may not be read stays None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from gangsched.api.gang_identity import gang_id
from gangsched.model.devices import ResourceSlice
from gangsched.model.gpu_policy import TOPOLOGY_KEYS, GpuPolicy
from gangsched.model.objects import Node, Pod
from gangsched.model.storage import ResourceClaim
from kubectl_gangsched.claimed_devices import ClaimedDevices
from kubectl_gangsched.gpu_map import UNREADY
from kubectl_gangsched.page.document import Health, Unknown

GangObject: TypeAlias = Mapping[str, Any]
"""A Gang of the gangs API."""


class PodIndex:
    """Pods by something that they have in common, "" for those that have it not.

    `stale` has the keys whose pods have changed.
    """

    def __init__(self, stale: set[str]) -> None:
        """No pods; changes are noted in `stale`."""
        self._pods: dict[str, dict[str, Pod]] = {}
        self._stale = stale

    def keys(self) -> Iterable[str]:
        """The keys that have pods."""
        return self._pods.keys()

    def of(self, key: str) -> list[Pod]:
        """The pods of a key."""
        by_uid = self._pods.get(key)
        return list(by_uid.values()) if by_uid else []

    def add(
        self,
        key: str,
        pod: Pod,
    ) -> None:
        """Add a pod to its key."""
        if key:
            by_uid = self._pods.setdefault(key, {})
            by_uid[pod.uid] = pod
            self._stale.add(key)

    def remove(
        self,
        key: str,
        pod: Pod,
    ) -> None:
        """Take a pod away from its key."""
        if key:
            by_uid = self._pods[key]
            del by_uid[pod.uid]
            self._stale.add(key)
            if not by_uid:
                del self._pods[key]


class Cluster:
    """Objects by their key, with the indexes that rows are made from.

    `stale_nodes`, `stale_gangs` and `stale_pods` are the keys whose rows have to be made again;
    whoever makes them clears these sets.
    """

    def __init__(self) -> None:
        """Everything is unread."""
        self.policy = GpuPolicy()
        #: Node labels of the levels, the largest first.
        self.levels: tuple[str, ...] = tuple(reversed(TOPOLOGY_KEYS))
        self.nodes: dict[str, Node] | None = None
        #: The word for nodes whose kubelet is not ready, by their conditions.
        self.unready: dict[str, str] = {}
        #: By uid; `all_pods` is true if they are those of all namespaces.
        self.pods: dict[str, Pod] | None = None
        self.all_pods = False
        self.stale_nodes: set[str] = set()
        self.stale_gangs: set[str] = set()
        self.stale_pods: set[str] = set()
        self.on_node = PodIndex(self.stale_nodes)
        self.members = PodIndex(self.stale_gangs)
        self.nominated = PodIndex(self.stale_nodes)
        #: Devices of slices by claims (DRA); on the map only if both can be read.
        self.devices = ClaimedDevices()
        self.has_slices = False
        self.has_claims = False
        self.pod_groups: dict[str, GangObject] = {}
        #: By id; None where the gangs API is not served or not readable.
        self.gangs: dict[str, GangObject] | None = None
        #: Positions in the queue, by the id of the gang, as far as they are newer than the gangs.
        self.positions: dict[str, int] = {}
        #: Something was known that may not be read any more: nor may what happened to it.
        self.is_past_lost = False
        self.unknown: list[Unknown] = []
        self.health = Health()

    def policy_of(
        self,
        settings: Mapping[str, Any],
        policy: GpuPolicy,
    ) -> None:
        """Use the scheduler's settings: what counts as an accelerator, and the levels."""
        self.policy = policy
        stated = settings.get("topology_keys") or TOPOLOGY_KEYS
        if isinstance(stated, str):
            stated = stated.split(",")

        keys = [str(key).strip() for key in stated]
        self.levels = tuple(reversed(keys))

    # --- nodes -----------------------------------------------------------------------------------

    def put_node(
        self,
        node: Node,
        unready: str,
    ) -> None:
        """Add or replace a node; `unready` is the word of its conditions, "" if it is ready."""
        assert self.nodes is not None
        self.nodes[node.name] = node
        self.unready.pop(node.name, None)
        if unready:
            self.unready[node.name] = unready

        self.stale_nodes.add(node.name)

    def remove_node(self, name: str) -> None:
        """Forget a node."""
        assert self.nodes is not None
        self.nodes.pop(name, None)
        self.unready.pop(name, None)
        self.stale_nodes.add(name)

    def closed(self, node: Node) -> str:
        """Why new pods get nothing on a node; "" if they do."""
        word = self.unready.get(node.name)
        if word:
            return word

        for taint in node.taints:
            if taint.key in UNREADY:
                return UNREADY[taint.key]

        return "cordoned" if node.unschedulable else ""

    # --- pods ------------------------------------------------------------------------------------

    def put_pod(self, pod: Pod) -> None:
        """Add or replace a pod."""
        assert self.pods is not None
        before = self.pods.get(pod.uid)
        if before is not None:
            self._unlink(before)

        self.pods[pod.uid] = pod
        self.stale_pods.add(pod.uid)
        self.stale_nodes.update(self.devices.nodes_of_pod(pod.uid))
        self.members.add(_gang(pod), pod)
        self.on_node.add(pod.node_name, pod)
        self.nominated.add(_nomination(pod), pod)

    def remove_pod(self, uid: str) -> None:
        """Forget a pod."""
        assert self.pods is not None
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self._unlink(pod)
            self.stale_pods.add(uid)
            self.stale_nodes.update(self.devices.nodes_of_pod(uid))

    def _unlink(self, pod: Pod) -> None:
        """Take a pod out of the indexes."""
        self.members.remove(_gang(pod), pod)
        self.on_node.remove(pod.node_name, pod)
        self.nominated.remove(_nomination(pod), pod)

    # --- devices ---------------------------------------------------------------------------------

    def put_slice(
        self,
        name: str,
        part: ResourceSlice | None,
    ) -> None:
        """Add or replace a ResourceSlice, or forget it."""
        self.stale_nodes.update(self.devices.put_slice(name, part))

    def put_claim(
        self,
        key: str,
        claim: ResourceClaim | None,
    ) -> None:
        """Add or replace a ResourceClaim, or forget it."""
        self.stale_nodes.update(self.devices.put_claim(key, claim))
        for uid in claim.reserved if claim is not None else ():
            self.stale_pods.add(uid)

    # --- PodGroups and gangs ---------------------------------------------------------------------

    def put_pod_group(
        self,
        key: str,
        body: GangObject | None,
    ) -> None:
        """Add or replace a PodGroup, or forget it."""
        self.pod_groups.pop(key, None)
        if body is not None:
            self.pod_groups[key] = body

        self.stale_gangs.add(key)

    def put_gang(
        self,
        key: str,
        body: GangObject | None,
    ) -> None:
        """Add or replace a Gang of the gangs API, or forget it."""
        assert self.gangs is not None
        before = self.gangs.pop(key, None)
        if body is not None:
            self.gangs[key] = body

        self.stale_gangs.add(key)
        self.stale_nodes.update(nodes_of(before))
        self.stale_nodes.update(nodes_of(body))

    def put_positions(self, positions: dict[str, int]) -> None:
        """Use these positions of gangs in the queue in place of those in the gangs."""
        self.positions = positions

    def renew(self) -> None:
        """Make every row again."""
        self.stale_nodes.update(self.nodes or ())
        self.stale_gangs.update(self.gangs or ())
        self.stale_gangs.update(self.members.keys())
        self.stale_gangs.update(self.pod_groups)
        self.stale_pods.update(self.pods or ())


def nodes_of(gang: GangObject | None) -> Iterable[str]:
    """The nodes on which it holds or reserves room."""
    if gang is None:
        return []

    status = gang.get("status") or {}
    reserved = status.get("reserved") or {}
    nodes = list(status.get("nodes") or ())
    nodes += reserved.get("nodes") or ()
    return map(str, nodes)


def _gang(pod: Pod) -> str:
    ref = gang_id(pod)
    return ref.id if ref is not None else ""


def _nomination(pod: Pod) -> str:
    return "" if pod.node_name else pod.nominated_node
