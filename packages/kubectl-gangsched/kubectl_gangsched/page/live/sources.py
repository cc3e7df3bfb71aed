"""The resources that the live page reads: where, how an object is decoded, and where it goes.

Invariant: each object is decoded as the scheduler does, or pruned as in a snapshot, before it is
stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from gangsched.api import keys
from gangsched.kube.ports import silent
from gangsched.kube.read import resources
from gangsched.kube.read.shapes import ShapeTable
from gangsched.model.devices import ResourceSlice
from gangsched.model.objects import Node, Pod
from gangsched.model.storage import ResourceClaim
from kubectl_gangsched.gpu_map import unready_of
from kubectl_gangsched.page.cluster import Cluster
from kubectl_gangsched.page.live.places import is_of_standby, kept_nodes
from kubectl_gangsched.session import GANGS

Item: TypeAlias = tuple[str, Any]
"""The key of an object, and what is stored of it; None for what is not."""


class Source:
    """One resource. `paths` are where it is listed, the widest first; `hides` names what the page
    cannot show without it. `is_optional`: clusters may do without it.
    """

    name = ""
    hides = ""
    is_optional = False

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        """The objects go to `cluster`; `namespace` is the one that a user with few rights sees."""
        self.cluster = cluster
        self.namespace = namespace
        self._known: set[str] = set()

    @property
    def paths(self) -> tuple[str, ...]:
        """Where the resource is listed, the widest first."""
        raise NotImplementedError

    def item(self, raw: msgspec.Raw) -> Item:
        """Decode an object. Raises what decoding raises."""
        raise NotImplementedError

    def put(self, key: str, stored: Any) -> None:
        """Store an object, or forget it if it is None."""
        raise NotImplementedError

    def opened(self, path: str) -> None:
        """The resource can be read at this path."""

    def closed(self) -> None:
        """The resource cannot be read any more: nothing of it may be left."""
        self.replace([])

    def replace(self, items: Iterable[Item]) -> None:
        """Store these objects and forget all others."""
        known = set()
        for key, stored in items:
            if stored is not None:
                self.put(key, stored)
                known.add(key)

        for key in self._known - known:
            self.put(key, None)

        self._known = known

    def change(self, kind: str, raw: msgspec.Raw) -> None:
        """Apply an event of a watch. Raises what decoding raises."""
        key, stored = self.item(raw)
        if kind == "DELETED" or stored is None:
            self._known.discard(key)
            self.put(key, None)
        else:
            self._known.add(key)
            self.put(key, stored)


class Nodes(Source):
    """Nodes, with the word of their conditions."""

    name = "nodes"
    hides = "map"
    _resource = resources.nodes(silent)

    @property
    def paths(self) -> tuple[str, ...]:
        """Nodes have no namespace."""
        return ("/api/v1/nodes",)

    def item(self, raw: msgspec.Raw) -> Item:
        """The node and the word."""
        node = self._resource.convert(self._resource.item.decode(raw))
        assert isinstance(node, Node)
        return node.name, (node, unready_of(raw))

    def put(self, key: str, stored: tuple[Node, str] | None) -> None:
        """Store a node."""
        if stored is None:
            self.cluster.remove_node(key)
        else:
            self.cluster.put_node(*stored)

    def opened(self, path: str) -> None:
        """There may be nodes."""
        if self.cluster.nodes is None:
            self.cluster.nodes = {}

    def closed(self) -> None:
        """Forget all nodes."""
        super().closed()
        self.cluster.nodes = None


class Pods(Source):
    """Pods of all namespaces, or of one."""

    name = "pods"
    hides = "map"

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        """As other sources."""
        super().__init__(cluster, namespace)
        self._resource = resources.pods(ShapeTable())

    @property
    def paths(self) -> tuple[str, ...]:
        """All, or those of the namespace."""
        return "/api/v1/pods", f"/api/v1/namespaces/{self.namespace}/pods"

    def item(self, raw: msgspec.Raw) -> Item:
        """The pod by its uid."""
        wire = self._resource.item.decode(raw)
        return wire.metadata.uid, self._resource.convert(wire)

    def put(self, key: str, stored: Pod | None) -> None:
        """Store a pod."""
        if stored is None:
            self.cluster.remove_pod(key)
        else:
            self.cluster.put_pod(stored)

    def opened(self, path: str) -> None:
        """There may be pods."""
        if self.cluster.pods is None:
            self.cluster.pods = {}

        self.cluster.all_pods = path == self.paths[0]
        self.cluster.renew()

    def closed(self) -> None:
        """Forget all pods."""
        super().closed()
        self.cluster.pods = None
        self.cluster.all_pods = False
        self.cluster.renew()


class Slices(Source):
    """ResourceSlices, of clusters that allocate devices by claims."""

    name = "resourceslices"
    hides = "map"
    is_optional = True
    _resource = resources.RESOURCE_SLICES

    @property
    def paths(self) -> tuple[str, ...]:
        """Slices have no namespace."""
        return (self._resource.path,)

    def item(self, raw: msgspec.Raw) -> Item:
        """The slice by its name."""
        wire = self._resource.item.decode(raw)
        return wire.metadata.name, self._resource.convert(wire)

    def put(self, key: str, stored: ResourceSlice | None) -> None:
        """Store a slice."""
        self.cluster.put_slice(key, stored)

    def opened(self, path: str) -> None:
        """There may be devices."""
        self.cluster.has_slices = True
        self.cluster.renew()

    def closed(self) -> None:
        """Forget all slices."""
        super().closed()
        self.cluster.has_slices = False


class Claims(Source):
    """ResourceClaims of all namespaces: those of one would make devices look free."""

    name = "resourceclaims"
    hides = "map"
    is_optional = True
    _resource = resources.RESOURCE_CLAIMS

    @property
    def paths(self) -> tuple[str, ...]:
        """All."""
        return (self._resource.path,)

    def item(self, raw: msgspec.Raw) -> Item:
        """The claim by its namespace and name."""
        wire = self._resource.item.decode(raw)
        claim = self._resource.convert(wire)
        return f"{wire.metadata.namespace}/{wire.metadata.name}", claim

    def put(self, key: str, stored: ResourceClaim | None) -> None:
        """Store a claim."""
        self.cluster.put_claim(key, stored)

    def opened(self, path: str) -> None:
        """It is known who has which device."""
        self.cluster.has_claims = True
        self.cluster.renew()

    def closed(self) -> None:
        """Forget all claims."""
        super().closed()
        self.cluster.has_claims = False
        self.cluster.renew()


class PodGroups(Source):
    """PodGroups of one API group, which tell of gangs where the gangs API does not."""

    hides = "gang"
    is_optional = True

    def __init__(self, cluster: Cluster, namespace: str, api_group: str) -> None:
        """As other sources."""
        super().__init__(cluster, namespace)
        self.name = f"podgroups.{api_group}"
        self._version = f"{api_group}/v1alpha1"

    @property
    def paths(self) -> tuple[str, ...]:
        """All, or those of the namespace."""
        base = f"/apis/{self._version}"
        return f"{base}/podgroups", f"{base}/namespaces/{self.namespace}/podgroups"

    def item(self, raw: msgspec.Raw) -> Item:
        """What the page reads of it."""
        body = msgspec.json.decode(raw)
        metadata = body["metadata"]
        annotations = keys.pod_group_metadata(metadata.get("annotations") or {})
        stored = {
            "apiVersion": self._version,
            "metadata": {
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
                "annotations": dict(annotations),
            },
            "spec": body.get("spec") or {},
            "status": body.get("status") or {},
        }
        return _id(metadata), stored

    def put(self, key: str, stored: Mapping[str, Any] | None) -> None:
        """Store a PodGroup."""
        self.cluster.put_pod_group(key, stored)


class Gangs(Source):
    """Gangs of the gangs API. `of_standby` are those that a standby told of, which decides nothing:
    it knows no reservations.
    """

    name = "gangs"
    hides = "order"

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        """As other sources."""
        super().__init__(cluster, namespace)
        self.of_standby: set[str] = set()

    @property
    def paths(self) -> tuple[str, ...]:
        """All, or those of the namespace."""
        return f"{GANGS}/gangs", f"{GANGS}/namespaces/{self.namespace}/gangs"

    def item(self, raw: msgspec.Raw) -> Item:
        """The gang as it is."""
        body = msgspec.json.decode(raw)
        return _id(body["metadata"]), body

    def put(self, key: str, stored: Mapping[str, Any] | None) -> None:
        """Store a gang."""
        self.of_standby.discard(key)
        if stored is not None:
            if is_of_standby(stored.get("status") or {}):
                self.of_standby.add(key)

            known = self.cluster.gangs or {}
            stored = kept_nodes(known.get(key), stored)

        self.cluster.put_gang(key, stored)

    def opened(self, path: str) -> None:
        """Gangs are those of the gangs API from now on."""
        if self.cluster.gangs is None:
            self.cluster.gangs = {}
            self.cluster.renew()

    def closed(self) -> None:
        """Gangs are told by their pods from now on."""
        if self.cluster.gangs is not None:
            super().closed()

        self.cluster.gangs = None
        self.cluster.renew()


def sources(cluster: Cluster, namespace: str, gangs: Gangs) -> list[Source]:
    """All resources of the page."""
    groups = [PodGroups(cluster, namespace, group) for group in (keys.X_K8S, keys.SIGS)]
    return [
        Nodes(cluster, namespace),
        Pods(cluster, namespace),
        Slices(cluster, namespace),
        Claims(cluster, namespace),
        gangs,
        *groups,
    ]


def _id(metadata: Mapping[str, Any]) -> str:
    return f"{metadata.get('namespace') or ''}/{metadata['name']}"
