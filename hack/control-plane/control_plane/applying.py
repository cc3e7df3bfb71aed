"""Apply YAML files as `kubectl apply` does, and the project's own manifests in their order.

Invariant: when a function here returns, what it applied is usable; a CRD is served before anything
that needs it is sent, and one that was removed is gone. The Deployment is left out: the daemon runs
as a process.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Collection, Sequence
from pathlib import Path

import yaml

from control_plane.api import APPLY_PATCH, Api, ApiError, Object

ROOT = Path(__file__).resolve().parents[3]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
FIELD_MANAGER = "gangsched-tools"
SCHEDULER_NAMES = ("gangsched", "scheduler-plugins-scheduler")
"""What daemons serve beside a control plane if they are not told otherwise."""


def load_yaml(source: Path | str) -> list[Object]:
    """The documents of a file, or of a text, that are not empty."""
    text = source.read_text() if isinstance(source, Path) else source
    return [document for document in yaml.safe_load_all(text) if document]


def apply(api: Api, body: Object, *, namespace: str = "default") -> Object:
    """Create or update an object (server-side apply); returns it as stored.

    `namespace` is for namespaced objects that name none. Waits until the objects of a CRD can be
    listed.
    """
    path = f"{api.path_of(body, namespace=namespace)}/{body['metadata']['name']}"
    query = f"fieldManager={FIELD_MANAGER}&force=true"
    stored = api.patch(f"{path}?{query}", body, content_type=APPLY_PATCH)
    if body["kind"] == "CustomResourceDefinition":
        await_definition(api, stored)
    return stored


def apply_yaml(api: Api, source: Path | str, *, namespace: str = "default") -> list[Object]:
    """Apply every document of a file (a Path) or of a text, in its order."""
    return [apply(api, body, namespace=namespace) for body in load_yaml(source)]


def await_definition(api: Api, definition: Object, *, within_s: float = 30.0) -> None:
    """Wait until the objects of a CRD can be listed in every version it serves.

    "Established" is too early: a list is answered with 404, then 429, for a second or two after it.
    """
    spec = definition["spec"]
    deadline_s = time.monotonic() + within_s
    for version in spec["versions"]:
        path = f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}"
        while version["served"]:
            try:
                api.list(path)
                break
            except ApiError as error:
                if error.status != http.client.NOT_FOUND or time.monotonic() > deadline_s:
                    raise
            time.sleep(0.05)


def remove_definition(api: Api, name: str, *, within_s: float = 30.0) -> None:
    """Delete a CRD and all its objects, and wait until it is gone.

    Who applied it again before that would edit what is about to go, and wait in vain for an API.
    """
    path = f"{DEFINITIONS}/{name}"
    deadline_s = time.monotonic() + within_s
    while api.delete(path, grace_s=None):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"the definition {name} is still there after {within_s:.0f} s")
        time.sleep(0.05)


def apply_crds(api: Api) -> None:
    """Apply the PodGroup CRDs of both API groups."""
    for path in sorted((ROOT / "crds").glob("*_*.yaml")):
        apply_yaml(api, path)


def apply_manifests(
    api: Api,
    *,
    crds: bool = True,
    scheduler_names: Sequence[str] = SCHEDULER_NAMES,
    all_victims: bool = False,
    without: Collection[str] = (),
) -> None:
    """Apply the CRDs (unless `crds` is False), the namespace, the ServiceAccount, its roles and
    what limits them. `without`: names of files in manifests/ that are left out.

    The admission policies are in force a second later; what they allow works before, too. They
    allow the writes of daemons that serve `scheduler_names`, and with `all_victims` those of the
    setting `preemption: all`.
    """
    if crds:
        apply_crds(api)
    manifests = ROOT / "manifests"
    for path in [manifests / "namespace.yaml", *sorted(manifests.glob("rbac*.yaml"))]:
        if path.name not in without:
            apply_yaml(api, path)

    apply_yaml(api, admission_yaml(scheduler_names, all_victims=all_victims))


def admission_yaml(scheduler_names: Sequence[str], *, all_victims: bool = False) -> str:
    """The admission policies for these settings, edited as manifests/admission.yaml asks for."""
    text = (ROOT / "manifests" / "admission.yaml").read_text()
    edits = {"\"['gangsched']\"": f'"{list(scheduler_names)}"'} | (
        {"\"'own'\"": "\"'all'\""} if all_victims else {}
    )
    for before, after in edits.items():
        if before not in text:
            raise ValueError(f"manifests/admission.yaml has no {before}")
        text = text.replace(before, after)
    return text


def apply_visibility(api: Api, port: int) -> None:
    """Apply manifests/visibility for a daemon that serves on this port of 127.0.0.1.

    Its Service names that address, which the API server follows without any pod.
    """
    for path in sorted((ROOT / "manifests" / "visibility").glob("*.yaml")):
        for body in load_yaml(path):
            if body["kind"] == "Service":
                body["spec"] = {"type": "ExternalName", "externalName": "127.0.0.1"}
            elif body["kind"] == "APIService":
                body["spec"]["service"]["port"] = port
            if body["kind"] != "Kustomization":
                apply(api, body)
