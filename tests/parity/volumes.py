"""Claims and volumes of generated pods: bound ones that restrict a pod to nodes, and ones that
exclude all nodes.

Invariant: as `generate`. Claims that wait for their first consumer have no volume to wait for,
since kube-scheduler binds a pod with such a claim only when a controller has bound the claim.
"""

from __future__ import annotations

from random import Random

from tests.parity.pods import HOSTNAME, ZONE, Object

DRIVER = "csi.example.com"
CLASSES: tuple[Object, ...] = tuple(
    {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
    }
    for name, provisioner, mode in (
        ("p-now", DRIVER, "Immediate"),
        ("p-local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
    )
)


class Storage:
    """The claims, volumes and CSINodes of one case; `leaving` are names of claims to delete, `lost`
    of lost ones.
    """

    def __init__(self, prefix: str, node_names: list[str], rng: Random) -> None:
        self.objects: list[Object] = []
        self.leaving: set[str] = set()
        self.lost: set[str] = set()
        self._prefix, self._nodes, self._rng = prefix, node_names, rng
        self._claims: list[tuple[str, str]] = []
        for name in node_names:
            if rng.random() < 0.5:
                driver = {
                    "name": DRIVER,
                    "nodeID": name,
                    "allocatable": {"count": rng.randint(1, 2)},
                }
                body = {
                    "apiVersion": "storage.k8s.io/v1",
                    "kind": "CSINode",
                    "metadata": {"name": name},
                }
                self.objects.append({**body, "spec": {"drivers": [driver]}})

    def give(self, pod: Object) -> None:
        """Let the pod mount one or two claims of its namespace, which it may share with pods before
        it.
        """
        namespace = pod["metadata"]["namespace"]
        names = {self._claim(namespace) for _ in range(self._rng.choice((1, 1, 2)))}
        pod["spec"]["volumes"] = [
            {"name": f"v{index}", "persistentVolumeClaim": {"claimName": name}}
            for index, name in enumerate(sorted(names))
        ]

    def _claim(self, namespace: str) -> str:
        rng = self._rng
        shared = [name for where, name in self._claims if where == namespace]
        if shared and rng.random() < 0.4:
            return rng.choice(shared)
        name = f"{self._prefix}-c{len(self._claims)}"
        self._claims.append((namespace, name))
        kind = rng.choices(
            ("bound", "now", "local", "missing", "gone", "leaving", "lost"), (80, 4, 4, 3, 3, 3, 3)
        )[0]
        if kind == "missing":
            return name
        mode = "ReadWriteOncePod" if rng.random() < 0.2 else "ReadWriteOnce"
        spec: Object = {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}}
        metadata: Object = {"name": name, "namespace": namespace}
        if kind in {"now", "local"}:
            spec["storageClassName"] = f"p-{kind}"
        else:
            spec |= {"storageClassName": "", "volumeName": f"{name}-v"}
            metadata["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
        if kind == "leaving":
            self.leaving.add(name)
            metadata["finalizers"] = ["example.com/hold"]
        if kind == "lost":
            self.lost.add(name)
        if kind in {"bound", "leaving"}:
            self.objects.append(self._volume(f"{name}-v", metadata, mode))
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": metadata,
            "spec": spec,
        }
        self.objects.append(claim)
        return name

    def _volume(self, name: str, claim: Object, mode: str) -> Object:
        rng = self._rng
        labels = {ZONE: rng.choice(("x", "y", "x__z"))} if rng.random() < 0.25 else {}
        spec: Object = {
            "capacity": {"storage": "1Gi"},
            "accessModes": [mode],
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": claim["namespace"], "name": claim["name"]},
        }
        if rng.random() < 0.6:
            spec["csi"] = {"driver": DRIVER, "volumeHandle": f"{name}-h"}
        else:
            spec["hostPath"] = {"path": "/v"}
        if rng.random() < 0.5:
            near = rng.choice(
                ((ZONE, ["x"]), (ZONE, ["x", "y"]), (HOSTNAME, self._nodes[:2] or ["none"]))
            )
            requirement = {"key": near[0], "operator": "In", "values": near[1]}
            spec["nodeAffinity"] = {
                "required": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}
            }
        metadata = {"name": name, "labels": labels}
        return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}
