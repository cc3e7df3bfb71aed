"""From the entries of a table to API objects.

Invariant: the same entries make the same objects in both forms. Every namespaced name is in the
scenario's namespace (`other/x` in a second one, `SLUG-other`), every node carries a label and every
pod a node selector of its scenario, so that scenarios in one cluster are independent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from control_plane import objects as make
from control_plane.api import Object

from gangsched.api.keys import EXPECTED_RUNTIME
from gangsched.model.owners import OWNER_VERSIONS

SCENARIO: Final = "gangsched.dev/scenario"
K: Final = make.KOORDINATOR
MIRROR: Final = "kubernetes.io/config.mirror"
SIGS: Final = "pod-group.scheduling.sigs.k8s.io"
PRIORITIES: Final = {
    "lowest": 1,
    "low": 10,
    "middle": 100,
    "high": 1000,
    "high-never": 1000,
    "highest": 2000,
    "system-node-critical": 2_000_001_000,
}
#: The StorageClass of all claims.
CLASS: Final = "scenarios"
#: The access mode of claims that a table names.
SHARED: Final = "ReadWriteOncePod"
#: Priority classes with preemptionPolicy Never, and those that an API server brings along.
NEVER: Final = frozenset({"high-never"})
BUILT_IN: Final = frozenset({"system-node-critical"})
#: How a style names the gang and its minimum on pods: (kind, name key, min key); "" where a
#: PodGroup says it.
STYLES: Final = {
    "podgroup": ("labels", make.POD_GROUP_LABEL, ""),
    "sigs": ("labels", SIGS, ""),
    "legacy": ("labels", f"{SIGS}/name", f"{SIGS}/min-available"),
    "koordinator": ("annotations", f"{K}name", f"{K}min-available"),
    "kube-batch": (
        "annotations",
        "scheduling.k8s.io/group-name",
        "scheduling.k8s.io/group-min-member",
    ),
    "group-pod-num": (
        "annotations",
        "scheduling.k8s.io/group-name",
        "scheduling.k8s.io/group-pod-num",
    ),
    "kep": ("labels", "pod-group/name", "pod-group/min-available"),
}
VALUES: Final = {
    "total": "total-number",
    "mode": "mode",
    "wait": "waiting-time",
    "match_policy": "match-policy",
    "groups": "groups",
}
#: What other projects' objects and those of Kubernetes 1.37 are called here: (apiVersion, kind).
OBJECTS: Final = {
    "volcano": ("scheduling.volcano.sh/v1beta1", "PodGroup"),
    "podgang": ("scheduler.grove.io/v1alpha1", "PodGang"),
    "native": ("scheduling.k8s.io/v1alpha3", "PodGroup"),
    "composite": ("scheduling.k8s.io/v1alpha3", "CompositePodGroup"),
}
#: What owners of pods are called here: (apiVersion, kind).
OWNERS: Final = {
    "job": ("batch/v1", "Job"),
    "statefulset": ("apps/v1", "StatefulSet"),
    "jobset": ("jobset.x-k8s.io/v1alpha2", "JobSet"),
    "raycluster": ("ray.io/v1", "RayCluster"),
    "pytorchjob": ("kubeflow.org/v1", "PyTorchJob"),
    "mpijob": ("kubeflow.org/v2beta1", "MPIJob"),
}
_BUILT_IN: Final = frozenset({"Job", "StatefulSet"})
_OBJECT_WORDS: Final = frozenset({"spec", "annotations"})
_POD_WORDS: Final = frozenset(
    {
        "gpus",
        "cpu",
        "memory",
        "priority",
        "scheduler",
        "gates",
        "finalizer",
        "labels",
        "annotations",
        "on",
        "node_selector",
        "tolerate",
        "owner",
        "claim",
        "ports",
        "spread",
        "gang",
        "style",
        "native",
        "affinity",
        "runtime",
        "runs",
        "grace",
        "mirror",
        "owner_kind",
        "deadline",
    }
)
#: What a pod's owner states that it will run, and after how many seconds its kubelet ends it (kwok
#: reads that one).
_TIMES: Final = {"runtime": EXPECTED_RUNTIME, "runs": make.RUN_SECONDS}
_GROUP_WORDS: Final = frozenset({"min", "min_resources", "timeout", "group_annotations", "style"})
_BUDGET_WORDS: Final = frozenset({"of", "labels", "allowed"})
_SERVICE_WORDS: Final = frozenset({"selector"})
_NODE_WORDS: Final = frozenset(
    {"count", "cpu", "memory", "gpus", "pods", "labels", "taints", "unschedulable"}
)


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes the objects of one scenario; `slug` is its namespace."""

    slug: str

    def namespace(self, name: str) -> str:
        """The namespace of a name, which may be `other/x`."""
        prefix, _, _ = name.rpartition("/")
        return f"{self.slug}-{prefix}" if prefix else self.slug

    def key(self, name: str) -> str:
        """`namespace/name` in the cluster."""
        return f"{self.namespace(name)}/{bare(name)}"

    def node_name(self, name: str) -> str:
        """A node's name in the cluster: nodes have no namespace."""
        return f"{self.slug}.{name}"

    def nodes(self, name: str, words: Mapping[str, Any]) -> Iterator[Object]:
        """One node, or `count` of them as `name-0` …."""
        _check(words, _NODE_WORDS)
        options = {"gpus": 0, **words}
        count = options.pop("count", None)
        labels = {SCENARIO: self.slug, **options.pop("labels", {})}
        for each in [name] if count is None else [f"{name}-{index}" for index in range(count)]:
            yield make.node(self.node_name(each), labels=labels, **options)

    def entry(self, words: Mapping[str, Any]) -> list[Object]:
        """The objects of one `create` entry, PodGroup first."""
        kind, name = next(iter(words.items()))
        made = self._entry(kind, name, {key: value for key, value in words.items() if key != kind})
        mode = SHARED if isinstance(words.get("claim"), str) else "ReadWriteOnce"
        claims = {}
        for body in made:
            if "volumes" in body.get("spec", {}):
                claim = claim_of(body, mode)
                claims[claim["metadata"]["name"]] = claim

        return [*claims.values(), *made]

    def _entry(self, kind: str, name: str, rest: dict[str, Any]) -> list[Object]:
        match kind:
            case "gang":
                return self._gang(name, rest)
            case "podgroup":
                return [self._pod_group(name, rest)]
            case "pods":
                first, count = rest.pop("from", 0), rest.pop("count")
                return [self._pod(f"{name}-{index}", rest) for index in range(first, first + count)]
            case "pod":
                return [self._pod(name, rest)]
            case "node":
                return list(self.nodes(name, rest))
            case "pdb":
                return [self._budget(name, rest)]
            case "service":
                return [self._service(name, rest)]
            case "namespace":
                return [self._namespace(rest)]
            case _ if kind in OBJECTS:
                return [self._object(kind, name, rest)]
            case _ if kind in OWNERS:
                return [self._owner(kind, name, rest)]
            case _:
                raise ValueError(f"create what? {kind!r}")

    def _gang(self, name: str, words: dict[str, Any]) -> list[Object]:
        members, first, style = (
            words.pop("members"),
            words.pop("from", 0),
            words.get("style", "podgroup"),
        )
        words.setdefault("min", members)
        of_pod = {
            key: value
            for key, value in words.items()
            if key in _POD_WORDS | VALUES.keys() | {"min"}
        }
        of_group = {
            key: value for key, value in words.items() if key in _GROUP_WORDS | VALUES.keys()
        }
        _check(words, of_pod.keys() | of_group.keys())
        with_group = not STYLES[style][2]
        pods = [
            self._pod(f"{name}-{index}", {"gang": bare(name), **of_pod})
            for index in range(first, first + members)
        ]
        return [self._pod_group(name, of_group), *pods] if with_group else pods

    def _pod_group(self, name: str, words: dict[str, Any]) -> Object:
        _check(words, _GROUP_WORDS | VALUES.keys())
        api = "scheduling.sigs.k8s.io" if words.get("style") == "sigs" else "scheduling.x-k8s.io"
        annotations = {**self._values(words), **self._filled(words.get("group_annotations", {}))}
        return make.pod_group(
            bare(name),
            self.namespace(name),
            words.get("min"),
            api=api,
            min_resources=words.get("min_resources"),
            schedule_timeout_s=words.get("timeout"),
            annotations=annotations,
        )

    def _pod(self, name: str, words: Mapping[str, Any]) -> Object:
        """Values such as `mode` are written on the pod only if no PodGroup has them."""
        _check(words, _POD_WORDS | VALUES.keys() | {"min"})
        gang_metadata: dict[str, dict[str, str]] = {"labels": {}, "annotations": {}}
        if gang := words.get("gang"):
            place, name_key, min_key = STYLES[words.get("style", "podgroup")]
            gang_metadata[place][name_key] = gang
            if min_key and words.get("min") is not None:
                gang_metadata[place][min_key] = str(words["min"])
            if min_key:
                gang_metadata["annotations"] |= self._values(words)
        body = make.pod(
            bare(name),
            self.namespace(name),
            gpus=words.get("gpus", 0),
            cpu=words.get("cpu", "100m"),
            memory=words.get("memory", "64Mi"),
            labels={**gang_metadata["labels"], **words.get("labels", {})},
            annotations={
                **gang_metadata["annotations"],
                **{key: str(words[word]) for word, key in _TIMES.items() if word in words},
                **({make.STOPS_SLOWLY: "true"} if words.get("grace") else {}),
                **({MIRROR: "a kubelet's own"} if words.get("mirror") else {}),
                **self._filled(words.get("annotations", {})),
            },
            scheduler_name=words.get("scheduler", "gangsched"),
            node_selector={SCENARIO: self.slug, **words.get("node_selector", {})},
            spec=self._spec(name, words),
        )
        if words.get("ports"):
            ports = [{"containerPort": port, "hostPort": port} for port in words["ports"]]
            body["spec"]["containers"][0]["ports"] = ports
        if words.get("finalizer"):
            body["metadata"]["finalizers"] = ["example.com/hold"]
        if words.get("owner"):
            kind = words.get("owner_kind", "Job")
            reference = _reference(kind, words["owner"])
            if not words.get("labels"):
                reference["uid"] = "1"

            body["metadata"]["ownerReferences"] = [reference]
        return body

    def _spec(self, name: str, words: Mapping[str, Any]) -> Object:
        """What the words say beside containers, labels and annotations."""
        spec: Object = {"tolerations": [{"operator": "Exists"}]} if words.get("tolerate") else {}
        if words.get("gates"):
            spec["schedulingGates"] = [{"name": "example.com/wait"}]
        if words.get("on"):
            spec["nodeName"] = self.node_name(words["on"])
        if words.get("priority"):
            spec["priorityClassName"] = words["priority"]
        if words.get("claim"):
            claim = bare(name) if words["claim"] is True else words["claim"]
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
        if words.get("spread"):
            spec["topologySpreadConstraints"] = words["spread"]
        if words.get("native"):
            spec["schedulingGroup"] = {"podGroupName": words["native"]}
        if words.get("affinity"):
            spec["affinity"] = words["affinity"]
        if words.get("grace"):
            spec["terminationGracePeriodSeconds"] = words["grace"]
        if words.get("deadline"):
            spec["activeDeadlineSeconds"] = words["deadline"]

        return spec

    def _budget(self, name: str, words: dict[str, Any]) -> Object:
        """A PodDisruptionBudget of a gang's pods (`of`) or of `labels`; no controller ever changes
        what it allows.
        """
        _check(words, _BUDGET_WORDS)
        labels = {
            **({make.POD_GROUP_LABEL: words["of"]} if "of" in words else {}),
            **words.get("labels", {}),
        }
        return {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": bare(name), "namespace": self.namespace(name)},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
            "status": _budget_status(words.get("allowed", 0)),
        }

    def _service(self, name: str, words: dict[str, Any]) -> Object:
        _check(words, _SERVICE_WORDS)
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": bare(name), "namespace": self.namespace(name)},
            "spec": {"selector": words["selector"], "clusterIP": "None"},
        }

    def _object(self, kind: str, name: str, words: dict[str, Any]) -> Object:
        """An object that declares gangs in its own way, with the spec as it stands in the table."""
        _check(words, _OBJECT_WORDS)
        api_version, kind = OBJECTS[kind]
        annotations = self._filled(words.get("annotations", {}))
        metadata = {
            "name": bare(name),
            "namespace": self.namespace(name),
            "annotations": annotations,
        }
        return {
            "apiVersion": api_version,
            "kind": kind,
            "metadata": metadata,
            "spec": words.get("spec", {}),
        }

    def _namespace(self, words: dict[str, Any]) -> Object:
        """The scenario's own namespace, with labels; made before all else in it."""
        _check(words, {"labels"})
        metadata = {"name": self.slug, "labels": words["labels"]}
        return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}

    def _owner(self, kind: str, name: str, words: dict[str, Any]) -> Object:
        """A controller of pods, of which no controller-manager makes any: the table has them. Its
        `owner` is a controller as well.
        """
        _check(words, _OBJECT_WORDS | {"labels", "owner", "owner_kind"})
        api_version, kind = OWNERS[kind]
        spec = self._template(kind, name) if kind in _BUILT_IN else {}
        metadata: Object = {
            "name": bare(name),
            "namespace": self.namespace(name),
            "labels": words.get("labels", {}),
            "annotations": self._filled(words.get("annotations", {})),
        }
        if words.get("owner"):
            metadata["ownerReferences"] = [_reference(words["owner_kind"], words["owner"])]

        return {
            "apiVersion": api_version,
            "kind": kind,
            "metadata": metadata,
            "spec": {**spec, **words.get("spec", {})},
        }

    def _template(self, kind: str, name: str) -> Object:
        """What the API server asks of the spec of a Job or a StatefulSet."""
        labels = {"owner": bare(name)}
        template = make.pod("unused", labels=labels)
        spec: Object = {"template": {"metadata": {"labels": labels}, "spec": template["spec"]}}
        if kind == "Job":
            spec["template"]["spec"]["restartPolicy"] = "Never"
        else:
            spec["template"]["spec"]["restartPolicy"] = "Always"  # the API server takes no other
            spec |= {"selector": {"matchLabels": labels}, "serviceName": bare(name)}

        return spec

    def _values(self, words: Mapping[str, Any]) -> dict[str, str]:
        values = {K + key: words[word] for word, key in VALUES.items() if word in words}
        if isinstance(words.get("groups"), list):
            values[K + "groups"] = json.dumps([self.key(gang) for gang in words["groups"]])
        return {key: str(value) for key, value in values.items()}

    def _filled(self, annotations: Mapping[str, Any]) -> dict[str, str]:
        return {
            key.replace("K/", K): str(value).replace("$NS", self.slug)
            for key, value in annotations.items()
        }

    def edit(self, kind: str, words: Mapping[str, Any]) -> tuple[Object, Object]:
        """(merge patch of the object, merge patch of its status); an empty one is not sent."""
        metadata = {key: words[key] for key in ("labels", "finalizers") if key in words}
        if "annotations" in words:
            metadata["annotations"] = {
                key.replace("K/", K): (
                    value if value is None else str(value).replace("$NS", self.slug)
                )
                for key, value in words["annotations"].items()
            }
        body: Object = {"metadata": metadata} if metadata else {}
        status: Object = {}
        spec = {
            key: words[word] for word, key in _EDITS[kind].items() if word in words
        } or words.get("spec")
        if spec:
            body["spec"] = spec
        if kind == "Node" and "gpus" in words:
            status["allocatable"] = {make.GPU: str(words["gpus"])}
        if kind == "Pod" and "nominated" in words:
            status["nominatedNodeName"] = words["nominated"] and self.node_name(words["nominated"])
        if "succeeded" in words:
            status["succeeded"] = words["succeeded"]
        if kind == "PodDisruptionBudget" and "allowed" in words:
            status |= _budget_status(words["allowed"])
        _check(
            words,
            {
                "labels",
                "annotations",
                "finalizers",
                "gpus",
                "nominated",
                "allowed",
                "spec",
                "succeeded",
                *_EDITS[kind],
            },
        )
        return body, {"status": status} if status else {}


_EDITS: Final = {
    "Pod": {"gates": "schedulingGates"},
    "PodGroup": {
        "min": "minMember",
        "timeout": "scheduleTimeoutSeconds",
        "min_resources": "minResources",
    },
    "Node": {"unschedulable": "unschedulable", "taints": "taints"},
    **{
        kind: {}
        for kind in (
            "PodDisruptionBudget",
            "PodGang",
            "CompositePodGroup",
            "Job",
            "StatefulSet",
            "Namespace",
        )
    },
    "Service": {"selector": "selector"},
}


def _reference(kind: str, name: str) -> Object:
    """A reference to a controller, whose uid `own` fills in where it was made."""
    return {
        "apiVersion": OWNER_VERSIONS.get(kind, "batch/v1"),
        "kind": kind,
        "name": name,
        "uid": f"{kind}-{name}",
        "controller": True,
    }


def own(body: Object, uids: Mapping[tuple[str, str], str]) -> Object:
    """The pod with the uids of its owners, by kind and `namespace/name`, where they were made."""
    namespace = body["metadata"].get("namespace", "")
    for owner in body["metadata"].get("ownerReferences", ()):
        owner["uid"] = uids.get((owner["kind"], f"{namespace}/{owner['name']}"), owner["uid"])

    return body


def _budget_status(allowed: int) -> Object:
    """The status of a PodDisruptionBudget of generation 1."""
    return {
        "observedGeneration": 1,
        "disruptionsAllowed": allowed,
        "currentHealthy": 1 + allowed,
        "desiredHealthy": 1,
        "expectedPods": 1 + allowed,
    }


def storage_class() -> Object:
    """The class of all claims: a volume is made for the node of their first consumer."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": CLASS},
        "provisioner": "csi.test",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def claim_of(pod: Object, mode: str) -> Object:
    """The claim of a pod, with an access mode."""
    name = pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": pod["metadata"]["namespace"]},
        "spec": {
            "accessModes": [mode],
            "storageClassName": CLASS,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def volume_of(claim: str) -> tuple[Object, Object]:
    """(the volume that a provisioner makes for a claim, the patch by which the controller binds
    it).
    """
    namespace, _, name = claim.partition("/")
    volume = f"{namespace}.{name}"
    body = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": CLASS,
            "capacity": {"storage": "1Gi"},
            "csi": {"driver": "csi.test", "volumeHandle": volume},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": namespace,
                "name": name,
            },
        },
    }
    done = {"pv.kubernetes.io/bind-completed": "yes"}
    return body, {"metadata": {"annotations": done}, "spec": {"volumeName": volume}}


def bare(name: str) -> str:
    """A name without its namespace."""
    return name.rpartition("/")[2]


def _check(words: Mapping[str, Any], known: Any) -> None:
    if unknown := words.keys() - set(known):
        raise ValueError(f"unknown words: {', '.join(sorted(unknown))}")


def died(reason: str) -> Object:
    """The status of a container that has ended so."""
    code = {"OOMKilled": 137}.get(reason, 1)
    return {
        "name": "main",
        "image": "",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {"terminated": {"exitCode": code, "reason": reason}},
    }
