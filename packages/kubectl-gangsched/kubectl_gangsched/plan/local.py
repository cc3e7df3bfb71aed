"""A local plan: a snapshot with the pods of the manifest added, for clusters without placement
reviews.

Invariant: it is the scheduler's own plan on readable objects (`snapshot.replay`); nothing is
written. The pods of the manifest are added to all waiting pods, as created now, and replace
existing pods of the same gang. Missing requests default to limits and the PriorityClass gives the
priority, as in the API server; LimitRanges and webhooks are ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from gangsched.api import keys
from gangsched.configuration import load
from gangsched.kube.http.blocking import BlockingClient
from gangsched.kube.http.faults import Fault
from gangsched.kube.read.templates import TemplateError, pod_body
from gangsched.kube.read.wire import WirePod
from gangsched.model.reasons import Reason
from gangsched.settings import Settings, SettingsError
from gangsched.snapshots.file import PodGroups, SnapshotFile
from gangsched.snapshots.playing import decide
from kubectl_gangsched.plan.answer import PlanAnswer
from kubectl_gangsched.plan.manifests import ManifestGang, gang_of
from kubectl_gangsched.session import CannotAnswer

UID = "planned-"


def plan_here(
    taken: SnapshotFile,
    wanted: ManifestGang,
    namespace: str,
    priorities: Mapping[str, int],
) -> PlanAnswer:
    """Check whether the gang would start on this snapshot; `priorities` are values of
    PriorityClasses.

    Raises CannotAnswer.
    """
    try:
        settings = load(None, taken.settings).settings
    except SettingsError as error:
        raise CannotAnswer(str(error)) from error

    gang, added = _added(taken, wanted, namespace, settings, priorities)
    verdicts = []

    for replayed_verdict in decide(added, settings):
        if replayed_verdict.gang == gang:
            verdicts.append(replayed_verdict)

    if not verdicts:
        return PlanAnswer(False, "", "its pods are gated, or none of them waits")

    (verdict,) = verdicts
    sets = {}

    for template_set in wanted.pod_sets:
        for index in range(template_set.count):
            sets[f"{UID}{template_set.name}-{index}"] = template_set.name

    placed = Counter((sets[pod], node) for pod, node in verdict.starts.items() if pod in sets)
    return PlanAnswer(
        fits=bool(verdict.starts) or verdict.reason == Reason.PREEMPTING,
        reason=verdict.reason,
        message=(
            "" if verdict.starts else verdict.message.replace(gang, f"{namespace}/{wanted.name}")
        ),
        assignments=[(name, node, number) for (name, node), number in sorted(placed.items())],
    )


def priorities(client: BlockingClient) -> dict[str, int]:
    """Values of PriorityClasses by name, "" for the default; empty if they may not be read."""
    try:
        classes = client.items("/apis/scheduling.k8s.io/v1/priorityclasses")
    except Fault:
        return {}

    values = {str(class_["metadata"]["name"]): int(class_.get("value") or 0) for class_ in classes}
    default = next(
        (int(class_.get("value") or 0) for class_ in classes if class_.get("globalDefault")), 0
    )
    return {**values, "": default}


def _added(
    taken: SnapshotFile,
    wanted: ManifestGang,
    namespace: str,
    settings: Settings,
    values: Mapping[str, int],
) -> tuple[str, SnapshotFile]:
    """The id of the gang, and the snapshot with its pods, without those of that gang that wait
    already.
    """
    gang = f"{namespace}/{wanted.name}" if wanted.declared else f"{namespace}/{UID}{wanted.name}"
    pods = []

    for pod_set in wanted.pod_sets:
        for index in range(pod_set.count):
            body = _pod(
                pod_set.template,
                f"{UID}{pod_set.name}-{index}",
                namespace,
                taken.taken_at,
                settings,
                values,
            )
            if not wanted.declared:
                named = {
                    keys.NAME: gang.partition("/")[2],
                    keys.MIN[0]: str(wanted.min_member or wanted.pods),
                }
                body["metadata"]["annotations"] = {
                    **body["metadata"].get("annotations", {}),
                    **named,
                }

            pods.append(msgspec.Raw(msgspec.json.encode(body)))

    # The manifest may be applied already: its pods must not be counted twice.
    there = [raw for raw in taken.resources.get("pods", ()) if not _waits_in(raw, gang)]
    resources = {**taken.resources, "pods": [*there, *pods]}
    groups = dict(taken.pod_groups)

    if wanted.declared and wanted.min_member is not None:
        declared_groups = groups.get(keys.X_K8S, PodGroups("v1alpha1", []))
        metadata = {
            "name": wanted.name,
            "namespace": namespace,
            "uid": UID,
            "creationTimestamp": taken.taken_at,
        }
        others = [
            body_of_group for body_of_group in declared_groups.items if _id(body_of_group) != gang
        ]
        group = {"metadata": metadata, "spec": {"minMember": wanted.min_member}}
        groups[keys.X_K8S] = PodGroups(declared_groups.version, [*others, group])

    return gang, msgspec.structs.replace(taken, resources=resources, pod_groups=groups)


def _pod(
    template: Mapping[str, Any],
    name: str,
    namespace: str,
    now: str,
    settings: Settings,
    values: Mapping[str, int],
) -> dict[str, Any]:
    """The pod as an API server would make it, of our scheduler name if the template's is not one of
    ours.
    """
    class_name = str(template["spec"].get("priorityClassName") or "")
    if class_name and class_name not in values:
        raise CannotAnswer(
            f"There is no PriorityClass {quote(class_name)}, or you may not read it."
        )

    priority = values.get(class_name, 0)
    try:
        body = pod_body(template, namespace=namespace, name=name, created=now, priority=priority)
        msgspec.json.decode(msgspec.json.encode(body), type=WirePod)
    except (TemplateError, msgspec.ValidationError) as error:
        raise CannotAnswer(f"A pod template is not understood: {error}.") from error

    if body["spec"].get("schedulerName") not in settings.scheduler_names:
        body["spec"]["schedulerName"] = settings.scheduler_names[0]

    return {**body, "status": {"phase": "Pending"}}


def _waits_in(raw: msgspec.Raw, gang: str) -> bool:
    """Whether a pod of the snapshot is a member of the gang without a node."""
    body = msgspec.json.decode(raw)
    if body["spec"].get("nodeName"):
        return False

    return f"{body['metadata'].get('namespace')}/{gang_of(body)}" == gang


def _id(body: Mapping[str, Any]) -> str:
    return f"{body['metadata']['namespace']}/{body['metadata']['name']}"
