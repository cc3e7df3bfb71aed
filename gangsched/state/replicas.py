"""Number of peers of a pod on each node (`model.peers`), updated as pods are placed and removed.

Invariant: the numbers are those of all counted pods, whether their nodes are known or not. The
result of `shown` never changes: if the numbers of a key change later, they are copied first. So
neither a snapshot nor a plan counts pods.

Services matter only in namespaces with a pod of gangsched whose peers depend on them; in other
namespaces no pod is compared with Services. The pods of such a namespace are collected once and
stored, so that a changed Service has a cost only in its own namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from gangsched.model.objects import Labels, Pod, Service
from gangsched.model.peers import Behind, PeerKey, PeerNumbers, Selectors

NOWHERE: Mapping[str, int] = {}


class Replicas:
    """The numbers by key and node; call `apply`, `drop` and `replace` for messages
    about Services.
    """

    def __init__(self) -> None:
        self._counts: dict[PeerKey, dict[str, int]] = {}
        self._unshown: set[PeerKey] = set()  # keys whose numbers may be changed in place
        self._behind: dict[str, tuple[Labels, ...]] = {}
        self._services: dict[str, dict[str, Labels]] = {}  # by namespace and name
        self._followed: set[str] = set()
        self._selectors: dict[str, Selectors] = {}  # of followed namespaces; never changed in place
        self._pods: dict[str, dict[str, tuple[Pod, str]]] = {}  # of the same namespaces, by uid

        # namespaces whose selectors are not those of their Services any more
        self._stale: set[str] = set()

    # --- pods ------------------------------------------------------------------------------------

    def count(
        self,
        pod: Pod,
        node: str,
        sign: int,
    ) -> None:
        """Count a pod onto a node (+1) or off it (-1); no effect if it is no peer of any pod."""
        if pod.replica_of:
            self._add(pod.replica_of, node, sign)

        pods = self._pods.get(pod.namespace)
        if pods is None:
            return

        if sign > 0:
            pods[pod.uid] = (pod, node)
        else:
            pods.pop(pod.uid, None)

        self._count_behind(pod, node, sign)

    def recount(self, residents: Mapping[str, Mapping[str, Pod]]) -> None:
        """Count again from zero, with these pods by node and uid."""
        self._counts = {}
        self._unshown = set()
        self._behind = {}
        self._pods = {namespace: {} for namespace in self._pods}

        for node, pods in residents.items():
            for pod in pods.values():
                self.count(pod, node, +1)

    def shown(self, residents: Mapping[str, Mapping[str, Pod]]) -> PeerNumbers:
        """The current numbers, for a snapshot; `residents` are all pods that are counted."""
        if self._stale:
            self._compare_again(residents)

        self._unshown.clear()
        return PeerNumbers(dict(self._counts), dict(self._behind), self._selectors)

    # --- Services --------------------------------------------------------------------------------

    @property
    def is_stale(self) -> bool:
        """Whether the Services that matter have changed since the last `shown`."""
        return bool(self._stale)

    def follow(self, namespace: str) -> None:
        """Record that the peers of a pod in this namespace depend on Services."""
        if namespace not in self._followed:
            self._followed.add(namespace)
            self._touch(namespace)

    def forget(self, namespaces: Set[str]) -> None:
        """Drop deleted namespaces."""
        for namespace in namespaces & self._followed:
            self._followed.discard(namespace)
            self._touch(namespace)

    def apply(self, service: Service) -> None:
        """Add or update a Service."""
        services = self._services.setdefault(service.namespace, {})
        if services.get(service.name) != service.selector:
            services[service.name] = service.selector
            self._touch(service.namespace)

    def drop(self, key: str) -> None:
        """Remove a deleted Service; `key` is `namespace/name`."""
        namespace, _, name = key.partition("/")
        services = self._services.get(namespace, {})
        if name not in services:
            return

        del services[name]
        self._touch(namespace)
        if not services:
            del self._services[namespace]

    def replace(self, services: Iterable[Service]) -> None:
        """Replace all Services; if they cannot be read, there are no Services."""
        listed = {service.key: service for service in services}
        known = []
        for namespace, names in self._services.items():
            for name in names:
                known.append(f"{namespace}/{name}")

        for key in known:
            if key not in listed:
                self.drop(key)

        for service in listed.values():
            self.apply(service)

    def _touch(self, namespace: str) -> None:
        """Note a change that matters: where Services count now, or will."""
        if namespace in self._pods or (namespace in self._followed and namespace in self._services):
            self._stale.add(namespace)

    def _compare_again(self, residents: Mapping[str, Mapping[str, Pod]]) -> None:
        """Count the pods of stale namespaces by the selectors that are there now."""
        stale = self._stale
        self._stale = set()
        self._selectors = dict(self._selectors)

        for namespace in stale:
            # Numbers of selectors that are there no more would never be counted down again.
            for labels in self._behind.pop(namespace, ()):
                key = Behind(namespace, labels)
                del self._counts[key]
                self._unshown.discard(key)

            if namespace in self._followed:
                services = self._services.get(namespace, {})
                self._selectors[namespace] = Selectors(services.values())
            else:
                self._selectors.pop(namespace, None)
                self._pods.pop(namespace, None)

        followed = stale & self._followed
        self._collect(followed - self._pods.keys(), residents)
        for namespace in followed:
            for pod, node in self._pods[namespace].values():
                self._count_behind(pod, node, +1)

    def _collect(
        self,
        namespaces: Set[str],
        residents: Mapping[str, Mapping[str, Pod]],
    ) -> None:
        """Read the pods of these namespaces; once for all, as it walks over the cluster."""
        if not namespaces:
            return

        for namespace in namespaces:
            self._pods[namespace] = {}

        for node, pods in residents.items():
            for uid, pod in pods.items():
                if pod.namespace in namespaces:
                    self._pods[pod.namespace][uid] = (pod, node)

    # --- numbers ---------------------------------------------------------------------------------

    def _count_behind(
        self,
        pod: Pod,
        node: str,
        sign: int,
    ) -> None:
        # As kube-scheduler counts: a pod that is being deleted is no reason to spread others.
        if pod.deleting:
            return

        labels = self._selectors[pod.namespace].merged(pod.labels)
        if labels:
            self._add(Behind(pod.namespace, labels), node, sign)

    def _add(
        self,
        key: PeerKey,
        node: str,
        sign: int,
    ) -> None:
        # A snapshot has this mapping: copied at the first change after it, then changed in place
        # until the next.
        if key not in self._unshown:
            before = self._counts.get(key)
            if before is None and isinstance(key, Behind):
                known = self._behind.get(key.namespace, ())
                self._behind[key.namespace] = (*known, key.labels)

            self._counts[key] = dict(before or NOWHERE)
            self._unshown.add(key)

        counts = self._counts[key]
        after = counts.get(node, 0) + sign
        if after:
            counts[node] = after
        else:
            counts.pop(node, None)

        if not counts:
            self._remove(key)

    def _remove(self, key: PeerKey) -> None:
        """Drop a key without any pod."""
        del self._counts[key]
        self._unshown.discard(key)
        if not isinstance(key, Behind):
            return

        known = self._behind[key.namespace]
        left = tuple(labels for labels in known if labels != key.labels)
        if left:
            self._behind[key.namespace] = left
        else:
            del self._behind[key.namespace]
