"""Checks of the installation: versions, the scheduler, CRDs of PodGroups, APIServices."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import yaml

from gangsched import __version__
from gangsched.api.dialects import DIALECTS
from gangsched.api.keys import SIGS, X_K8S
from gangsched.kube.http.answers import understood
from gangsched.kube.http.blocking import BlockingClient
from gangsched.kube.http.faults import NOT_FOUND, ApiFault
from gangsched.model.gpu_policy import GpuPolicy
from kubectl_gangsched.doctor.finding import Finding

DEPLOYMENTS = "/apis/apps/v1/deployments?labelSelector=app.kubernetes.io%2Fname%3Dgangsched"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Scheduler(NamedTuple):
    """The installed gangsched: namespace, versions, and served scheduler names."""

    where: tuple[str, ...]
    versions: tuple[str, ...]
    names: tuple[str, ...]
    policy: GpuPolicy
    #: Name of the Lease, and whether the installation elects a leader by it.
    lease: tuple[str, bool]
    findings: tuple[Finding, ...]
    #: Of a Deployment whose ConfigMaps can be read; None without one.
    settings: Mapping[str, Any] | None


def scheduler(client: BlockingClient) -> Scheduler:
    """Find the scheduler in any namespace, by the label of its Deployment. Raises Fault."""
    with understood("The list of Deployments"):
        return _scheduler(client, client.get(DEPLOYMENTS).get("items") or ())


def _scheduler(client: BlockingClient, deployments: Sequence[Mapping[str, Any]]) -> Scheduler:
    names: list[str] = []
    accelerators: set[str] = set()
    lease = ("gangsched", False)
    findings: list[Finding] = []
    known: Mapping[str, Any] | None = None
    versions = set()

    for deployment in deployments:
        namespace, name = (str(deployment["metadata"][key]) for key in ("namespace", "name"))
        container = deployment["spec"]["template"]["spec"]["containers"][0]
        spec = deployment["spec"]["template"]["spec"]
        settings = _settings(client, namespace, spec)
        if all(
            isinstance(config_map, dict) for config_map in _config_maps(client, namespace, spec)
        ):
            known = settings

        accelerators |= gpu_policy(settings).accelerators
        lease = (str(settings.get("lease_name") or "gangsched"), bool(settings.get("leader_elect")))
        stated = settings.get("scheduler_names")
        names += [stated] if isinstance(stated, str) else map(str, stated or ["gangsched"])
        image = str(container.get("image") or "")

        # The registry may have a port, so only a colon behind the last slash is that of a tag.
        versions.add(image.rpartition(":")[2] if ":" in image.rpartition("/")[2] else "")
        status = deployment.get("status") or {}
        if not status.get("readyReplicas"):
            findings.append(
                Finding(
                    "scheduler",
                    f"No replica of Deployment {namespace}/{name} is ready: no gang is scheduled"
                    f" by it{_not_created(status)}.",
                    f"kubectl -n {namespace} describe deployment/{name}",
                )
            )

    if not deployments:
        findings.append(
            Finding(
                "scheduler",
                "There is no Deployment with the label app.kubernetes.io/name=gangsched.",
                "Apply manifests/, unless the scheduler runs in another way.",
            )
        )

    mixed = sorted(
        version
        for version in versions
        if version and version[0].isdigit() and version != __version__
    )
    if mixed:
        findings.append(
            Finding(
                "versions",
                f"The scheduler is {' and '.join(mixed)}, and this command is {__version__}.",
                "Use the command of the scheduler's version: what replay says may differ.",
            )
        )

    matching = tuple(
        f"{deployment['metadata']['namespace']}/{deployment['metadata']['name']}"
        for deployment in deployments
    )
    policy = GpuPolicy(accelerators=frozenset(accelerators))
    return Scheduler(
        matching,
        tuple(sorted(versions)),
        tuple(dict.fromkeys(names)),
        policy,
        lease,
        tuple(findings),
        known,
    )


def _not_created(status: Mapping[str, Any]) -> str:
    """Why the replicas of a Deployment cannot be created, in parentheses; "" if they can."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            return f" ({str(condition.get('message') or '').rstrip('.')})"

    return ""


def gpu_policy(settings: Mapping[str, Any]) -> GpuPolicy:
    """The accelerators that these settings name; a list may be given as a text with commas."""
    stated = settings.get("accelerators") or ()
    names = stated.split(",") if isinstance(stated, str) else map(str, stated)
    return GpuPolicy(accelerators=frozenset(name.strip() for name in names))


def scheduler_settings(client: BlockingClient) -> dict[str, Any]:
    """Settings in the scheduler's ConfigMap, and its scheduler names. Raises Fault."""
    with understood("The list of Deployments"):
        for deployment in client.get(DEPLOYMENTS).get("items") or ():
            return _settings(
                client,
                deployment["metadata"]["namespace"],
                deployment["spec"]["template"]["spec"],
            )

    return {}


def _settings(client: BlockingClient, namespace: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of mounted ConfigMaps; scheduler names of the environment and of flags win."""
    container = spec["containers"][0]
    settings: dict[str, Any] = {}

    for config_map in _config_maps(client, namespace, spec):
        data = config_map.get("data") if isinstance(config_map, dict) else None
        for text in (data or {}).values():
            stated = yaml.safe_load(text)
            settings |= stated if isinstance(stated, dict) else {}

    environment = {
        variable.get("name"): variable.get("value") for variable in container.get("env") or ()
    }
    if text := environment.get("GANGSCHED_SCHEDULER_NAMES"):
        settings["scheduler_names"] = [name.strip() for name in text.split(",")]
    if text := environment.get("GANGSCHED_PROVISIONING"):
        settings["provisioning"] = text

    args = [*(container.get("command") or ()), *(container.get("args") or ())]
    joined = [arg.partition("=")[2] for arg in args if arg.startswith("--scheduler-name=")]
    if flags := joined + [
        args[place + 1] for place, arg in enumerate(args[:-1]) if arg == "--scheduler-name"
    ]:
        settings["scheduler_names"] = flags

    for arg in args:
        flag, equals, value = arg.partition("=")
        if flag == "--leader-elect":
            settings["leader_elect"] = True
        elif flag == "--provisioning":
            settings["provisioning"] = value or True
        elif flag == "--lease-name" and equals:
            settings["lease_name"] = value

    settings.pop("kubeconfig", None)
    return settings


def _config_maps(
    client: BlockingClient,
    namespace: str,
    spec: Mapping[str, Any],
) -> Sequence[Any]:
    """The mounted ConfigMaps, or for each why it cannot be read."""
    paths: list[str] = []
    for volume in spec.get("volumes") or ():
        if name := (volume.get("configMap") or {}).get("name"):
            where = f"/api/v1/namespaces/{quote(namespace, safe='')}"
            paths.append(f"{where}/configmaps/{quote(name, safe='')}")

    return client.gets(paths) if paths else ()


def serving_gangs(client: BlockingClient) -> list[str]:
    """API groups that serve objects of gangs, in discovery order: kubectl uses the first. Raises
    Fault.
    """
    with understood("The list of API groups"):
        groups = client.get("/apis")["groups"]
        known = [group for group in groups if group["name"] in DIALECTS]
        paths = [f"/apis/{group['preferredVersion']['groupVersion']}" for group in known]

    answers = client.gets(paths) if known else []
    with understood("The list of resources"):
        return [
            group["name"]
            for group, answer in zip(known, answers, strict=True)
            if isinstance(answer, dict)
            and any(
                resource["name"] == DIALECTS[group["name"]].plural
                for resource in answer.get("resources") or ()
            )
        ]


def definitions(serving: Sequence[str]) -> Iterator[Finding]:
    """Findings about several API groups with PodGroups: which one kubectl shows, and whether
    gangsched reads any of them.
    """
    alike = [api_group for api_group in serving if DIALECTS[api_group].plural == "podgroups"]
    if len(alike) > 1:
        others = " and ".join(alike[1:])
        yield Finding(
            "definitions",
            f"{len(alike)} API groups have PodGroups: `kubectl get podgroup` shows those of"
            f" {alike[0]}, and not those of {others}.",
            "Name the group: " + ", ".join(f"kubectl get podgroups.{name}" for name in alike),
        )

    if not alike:
        yield Finding(
            "definitions",
            "No API group that gangsched reads serves PodGroups: gangs have to be declared by"
            " annotations.",
            "Apply crds/ if you want PodGroups.",
        )


def without_status(client: BlockingClient, serving: Collection[str]) -> Iterator[Finding]:
    """CRDs of other owners whose PodGroups have no status subresource. Raises Fault."""
    for api_group in sorted({X_K8S, SIGS} & set(serving)):
        try:
            body = client.get(f"{DEFINITIONS}/podgroups.{api_group}")
        except ApiFault as fault:
            if fault.status == NOT_FOUND:
                continue

            raise

        if not all(
            (version.get("subresources") or {}).get("status") is not None
            for version in body["spec"]["versions"]
        ):
            managers = sorted(
                {str(entry.get("manager")) for entry in body["metadata"].get("managedFields") or ()}
            )
            yield Finding(
                "definitions",
                f"The definition podgroups.{api_group} has no status subresource, and is not ours"
                + (f" (written by {', '.join(managers)})." if managers else "."),
                f"Apply crds/{api_group}_podgroups.yaml, or let the scheduler patch podgroups of"
                f" {api_group}.",
            )


def unavailable(services: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """APIServices whose server does not answer, which blocks discovery and the deletion of
    namespaces.
    """
    for service in services:
        conditions = (service.get("status") or {}).get("conditions") or ()
        for condition in conditions:
            if condition["type"] == "Available" and condition["status"] != "True":
                name = service["metadata"]["name"]
                yield Finding(
                    "APIService",
                    f"APIService {name} is not available ({condition.get('reason')}:"
                    f" {condition.get('message')}): discovery is incomplete, and namespaces cannot"
                    " be deleted.",
                    f"Start its server again, or kubectl delete apiservice {name}",
                )
