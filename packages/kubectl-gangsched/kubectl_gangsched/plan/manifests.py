"""Manifests: the pod templates of workloads, their numbers of pods, and their gangs.

Invariant: the pods that a controller would create are derived from the manifest alone; if that is
impossible, an error says so. Pods whose metadata names a gang belong to it. Pods of one object that
name no gang are evaluated as one gang, which operators would create with gang scheduling enabled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gangsched.api import keys
from gangsched.api.pod_metadata import pod_gang_metadata
from kubectl_gangsched.plan import bounded_yaml
from kubectl_gangsched.session import CannotAnswer

REPLICA_SPECS = (
    "pytorchReplicaSpecs",
    "tfReplicaSpecs",
    "mpiReplicaSpecs",
    "xgbReplicaSpecs",
    "paddleReplicaSpecs",
    "jaxReplicaSpecs",
)
"""Fields of the jobs of training-operator and mpi-operator."""

Template = Mapping[str, Any]


@dataclass(slots=True)
class TemplateSet:
    """Pods of one template."""

    name: str
    count: int
    template: Template


@dataclass(slots=True)
class ManifestGang:
    """One gang of the file. `declared`: its pods or a PodGroup name it; otherwise it consists of
    one object's pods.
    """

    name: str
    declared: bool
    pod_sets: list[TemplateSet] = field(default_factory=list)
    min_member: int | None = None
    namespace: str = ""

    @property
    def pods(self) -> int:
        """Number of pods."""
        return sum(template_set.count for template_set in self.pod_sets)


def read(path: Path) -> list[Mapping[str, Any]]:
    """Objects of a YAML or JSON file, with Lists flattened; "-" is stdin. Raises CannotAnswer."""
    import sys

    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CannotAnswer(
            f"Cannot read {path}: {getattr(error, 'strerror', None) or 'it is no text'}."
        ) from error

    return parsed(text, str(path))


def parsed(
    text: str,
    path: str,
) -> list[Mapping[str, Any]]:
    """Objects of a text in YAML or JSON, which `path` names in messages. Raises CannotAnswer."""
    try:
        documents = bounded_yaml.documents(text)
    except bounded_yaml.Unbounded as error:
        raise CannotAnswer(f"{path} has {error}: that is no manifest.") from error
    # Dates that do not exist are a ValueError.
    except (yaml.YAMLError, ValueError) as error:
        raise CannotAnswer(f"{path} is no YAML: {' '.join(str(error).split())}.") from error

    objects = [body for document in documents for body in _objects(document)]
    if not all(isinstance(body, Mapping) and body.get("kind") for body in objects):
        raise CannotAnswer(
            f"{path} has something that is no Kubernetes object: each needs apiVersion and kind."
        )

    for body in objects:
        kind = body["kind"]
        metadata = body.get("metadata") or {}
        is_read = isinstance(metadata, Mapping)

        # Its pods refer to a PodGroup by its name.
        if kind == "PodGroup":
            is_read = is_read and "name" in metadata

        if not is_read:
            raise CannotAnswer(f"{kind} in {path} has no metadata that can be read.")

    return objects


def _objects(document: Any) -> Sequence[Any]:
    if isinstance(document, Mapping) and document.get("kind") == "List":
        items = document.get("items") or ()
        return items if isinstance(items, Sequence) else (items,)

    return (document,)


def gangs(objects: Sequence[Mapping[str, Any]]) -> list[ManifestGang]:
    """Gangs of these objects, in order. Raises CannotAnswer if there is no pod template."""
    groups = {}
    for body in objects:
        if body["kind"] == "PodGroup":
            name = str(body["metadata"]["name"])
            groups[name] = body

    by_gang: dict[tuple[str, str], ManifestGang] = {}

    for body in objects:
        metadata = body.get("metadata") or {}
        name = str(metadata.get("name") or metadata.get("generateName") or "unnamed").rstrip("-")

        try:
            pod_sets = [_labelled(pod_set) for pod_set in _pod_sets(body, objects)]
            declared_by_set = [gang_of(pod_set.template) for pod_set in pod_sets]
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise CannotAnswer(
                f"{body['kind']} {name} is not understood: {type(error).__name__} {error}."
            ) from error

        for pod_set, declared in zip(pod_sets, declared_by_set, strict=True):
            key = (str(metadata.get("namespace") or ""), declared or f"{body['kind']}/{name}")
            gang = by_gang.setdefault(
                key,
                ManifestGang(declared or name, bool(declared), namespace=key[0]),
            )

            if declared in groups:
                pod_set.template = _with_settings(pod_set.template, groups[declared])

            gang.pod_sets.append(pod_set)
            stated = _of_group(groups.get(declared, {})) if declared else _minimum(body)
            gang.min_member = stated if isinstance(stated, int) else gang.min_member

    if not by_gang:
        kinds = ", ".join(sorted({str(body["kind"]) for body in objects})) or "nothing"
        raise CannotAnswer(f"There is no pod template in the file ({kinds}).")

    return [gang for gang in by_gang.values() if gang.pods]


def gang_of(template: Template) -> str:
    """The gang that a template's metadata names; "" if none."""
    metadata = template.get("metadata") or {}
    labels = metadata.get("labels") or {}
    annotations = metadata.get("annotations") or {}
    named = dict(pod_gang_metadata(labels, annotations))

    for identity in keys.IDENTITIES:
        if name := named.get(identity.key):
            return name

    return ""


def _labelled(pod_set: TemplateSet) -> TemplateSet:
    """With the label of custom PodGroups in place of a native group, which pods of a template
    cannot be in.
    """
    template = pod_set.template
    stated = template.get("spec") or {}
    native = stated.get("schedulingGroup") or {}
    name = native.get("podGroupName")
    if not name:
        return pod_set

    metadata = template.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), keys.IDENTITIES[0].key: str(name)}
    spec = {key: value for key, value in template["spec"].items() if key != "schedulingGroup"}

    return TemplateSet(
        pod_set.name,
        pod_set.count,
        {"metadata": {**metadata, "labels": labels}, "spec": spec},
    )


def _with_settings(template: Template, group: Mapping[str, Any]) -> Template:
    """The template, with the PodGroup's settings in its annotations where it says
    nothing itself.
    """
    metadata = template.get("metadata") or {}
    settings = dict(keys.pod_group_metadata(group["metadata"].get("annotations") or {}))
    annotations = {**settings, **(metadata.get("annotations") or {})}

    return {**template, "metadata": {**metadata, "annotations": annotations}}


def _of_group(group: Mapping[str, Any]) -> Any:
    """The minimum of a PodGroup of any API group."""
    spec = group.get("spec") or {}
    return spec.get(
        "minMember",
        ((spec.get("schedulingPolicy") or {}).get("gang") or {}).get("minCount"),
    )


def _minimum(body: Mapping[str, Any]) -> Any:
    """The minimum that an operator gives to the PodGroup that it makes (kubeflow's
    SchedulingPolicy).
    """
    spec = body.get("spec") or {}
    run_policy = spec.get("runPolicy") or {}
    policy = run_policy.get("schedulingPolicy") or {}
    return policy.get("minAvailable")


def _pod_sets(
    body: Mapping[str, Any],
    objects: Sequence[Mapping[str, Any]],
) -> Iterator[TemplateSet]:
    kind = body["kind"]
    spec = body.get("spec") or {}
    name = str((body.get("metadata") or {}).get("name") or kind.lower())

    if kind == "Pod":
        metadata = body.get("metadata") or {}
        kept = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
        yield TemplateSet(name, 1, {"metadata": kept, "spec": spec})
    elif kind == "DaemonSet":
        raise CannotAnswer(f"DaemonSet {name} has a pod for each node: there is nothing to plan.")
    elif kind == "CronJob":
        yield TemplateSet(name, *_of_job(spec["jobTemplate"]["spec"]))
    elif kind == "Job":
        yield TemplateSet(name, *_of_job(spec))
    elif kind == "JobSet":
        yield from _of_job_set(spec)
    elif kind == "TrainJob":
        yield from _of_train_job(name, spec, objects)
    elif kind in {"RayCluster", "RayJob", "RayService"}:
        yield from _of_ray(
            spec if kind == "RayCluster" else spec.get("rayClusterSpec") or spec["rayClusterConfig"]
        )
    elif specs := next((spec[field] for field in REPLICA_SPECS if spec.get(field)), None):
        for role, role_spec in specs.items():
            yield TemplateSet(
                str(role).lower(), _count(role_spec.get("replicas")), role_spec["template"]
            )
    elif kind not in {"TrainingRuntime", "ClusterTrainingRuntime"} and (
        (spec.get("template") or {}).get("spec") or {}
    ).get("containers"):
        yield TemplateSet(name, _count(spec.get("replicas")), spec["template"])


def _count(stated: Any) -> int:
    """A number of replicas, 1 unless stated."""
    return 1 if stated is None else max(0, int(stated))


def _of_job(spec: Mapping[str, Any]) -> tuple[int, Template]:
    """How many pods run at a time, and their template (batch/v1)."""
    at_a_time = _count(spec.get("parallelism"))
    completions = spec.get("completions")
    # A Job never runs more pods at a time than it has completions.
    return (at_a_time if completions is None else min(at_a_time, int(completions))), spec[
        "template"
    ]


def _of_job_set(spec: Mapping[str, Any]) -> Iterator[TemplateSet]:
    for replicated_job in spec.get("replicatedJobs") or ():
        count, template = _of_job(replicated_job["template"]["spec"])
        yield TemplateSet(
            str(replicated_job["name"]), _count(replicated_job.get("replicas")) * count, template
        )


def _of_ray(spec: Mapping[str, Any]) -> Iterator[TemplateSet]:
    yield TemplateSet("head", 1, spec["headGroupSpec"]["template"])
    for group in spec.get("workerGroupSpecs") or ():
        count = _count(group.get("replicas")) * _count(group.get("numOfHosts"))
        yield TemplateSet(str(group.get("groupName") or "workers"), count, group["template"])


def _of_train_job(
    name: str,
    spec: Mapping[str, Any],
    objects: Sequence[Mapping[str, Any]],
) -> Iterator[TemplateSet]:
    """The runtime has the templates; `trainer` says how many nodes, and what each asks for."""
    ref = spec["runtimeRef"]
    kind = str(ref.get("kind") or "ClusterTrainingRuntime")

    runtime = next(
        (
            body
            for body in objects
            if body["kind"] == kind and body["metadata"].get("name") == ref["name"]
        ),
        None,
    )
    if runtime is None:
        raise CannotAnswer(
            f"TrainJob {name} has its pod templates in {kind} {ref['name']}: "
            f"put that into the file (kubectl get {kind.lower()} {ref['name']} -o yaml)."
        )

    trainer = spec.get("trainer") or {}
    nodes = trainer.get("numNodes", (runtime["spec"].get("mlPolicy") or {}).get("numNodes"))

    for pod_set in _of_job_set(runtime["spec"]["template"]["spec"]):
        if pod_set.name == "node":
            pod_set.count = _count(nodes) if nodes is not None else pod_set.count
            if trainer.get("resourcesPerNode"):
                pod_set.template = _asking(pod_set.template, trainer["resourcesPerNode"])

        yield pod_set


def _asking(template: Template, resources: Mapping[str, Any]) -> Template:
    """The template, its container `node` (or first) with these resources."""
    containers = [dict(container_body) for container_body in template["spec"]["containers"]]
    chosen = next(
        (container for container in containers if container.get("name") == "node"), containers[0]
    )
    chosen["resources"] = resources

    return {**template, "spec": {**template["spec"], "containers": containers}}
