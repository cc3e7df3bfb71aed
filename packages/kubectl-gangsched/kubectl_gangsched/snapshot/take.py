"""`snapshot`: reads what the daemon reads, and writes it to one file.

Invariant: the resources are those of `kube.read.resources`. Nodes, pods and namespaces must be
readable. Other resources that the user may not read count as unread, as for a daemon without the
permission.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from gangsched import __version__
from gangsched.api import keys
from gangsched.api.dialects import DIALECTS, api_version
from gangsched.api.timestamps import format_timestamp
from gangsched.console import DONE
from gangsched.kube.http.blocking import AT_A_TIME, BlockingClient
from gangsched.kube.http.faults import FORBIDDEN, NOT_FOUND, ApiFault, Fault
from gangsched.kube.read import resources
from gangsched.kube.read.storage_wire import WireDeviceObject, WireResourceClaim
from gangsched.kube.read.wire import ContainerStatus, WireCondition, WirePod
from gangsched.snapshots import file
from gangsched.snapshots.kinds import all_resources
from gangsched.snapshots.redaction import Pseudonyms, selected, without_the_rest
from kubectl_gangsched.doctor.services import scheduler_settings
from kubectl_gangsched.session import GANGS, CannotAnswer, Session, lacking, told
from kubectl_gangsched.terminal import Cell, Line, facts, write

NULL = msgspec.Raw(b"null")

_conditions = msgspec.json.Decoder(list[WireCondition] | None)
_containers = msgspec.json.Decoder(list[ContainerStatus] | None)


def snapshot(session: Session, path: Path, *, redact_names: bool) -> int:
    """Take a snapshot and write it; return the exit code. Raises Fault and CannotAnswer."""
    taken = take(session.client, redact_names=redact_names)
    file.write(path, taken)
    write(written(path, taken))

    return DONE


def written(path: Path, taken: file.SnapshotFile) -> list[Line | str]:
    """What is in the file, and what could not be read."""
    numbers = {name: len(items) for name, items in taken.resources.items()}
    numbers["podgroups"] = sum(len(pod_groups.items) for pod_groups in taken.pod_groups.values())
    lines: list[Line | str] = [
        [Cell(f"{path} has everything that a plan is made from.", "bold"), ""]
    ]
    lines += facts({name: str(number) for name, number in sorted(numbers.items())})
    names_by_reason: dict[str, list[str]] = {}
    for name, why in taken.unread.items():
        names_by_reason.setdefault(why, []).append(name)

    for why, names in names_by_reason.items():
        lines.append(f"Not read: {', '.join(names)}: {why}.")

    return lines


def take(client: BlockingClient, *, redact_names: bool = False) -> file.SnapshotFile:
    """Read everything. Raises Fault and CannotAnswer."""
    settings = _settings(client)
    wanted = all_resources()

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        reading = {
            name: pool.submit(_read, client, answer_of_group, settings)
            for name, answer_of_group in wanted.items()
        }
        reading_groups = {
            api_group: pool.submit(_pod_groups, client, api_group) for api_group in DIALECTS
        }
        answers = {name: future.result() for name, future in reading.items()}
        groups = {api_group: future.result() for api_group, future in reading_groups.items()}

    bodies_by_name = {
        name: answer for name, answer in answers.items() if not isinstance(answer, str)
    }
    unread = {name: answer for name, answer in answers.items() if isinstance(answer, str)}
    pod_groups = {
        api_group: answer_of_group
        for api_group, answer_of_group in groups.items()
        if answer_of_group is not None
    }
    everything = [body for bodies in bodies_by_name.values() for body in bodies]
    named = selected(everything)

    for body in everything:
        without_the_rest(body, named)

    if redact_names:
        names = Pseudonyms(
            (
                *everything,
                *(
                    body
                    for answer_of_group in pod_groups.values()
                    for body in answer_of_group.items
                ),
            )
        )
        bodies_by_name = {
            name: [names.rename(body) for body in bodies] for name, bodies in bodies_by_name.items()
        }

        for answer_of_group in pod_groups.values():
            answer_of_group.items = [names.rename(body) for body in answer_of_group.items]

    # Their sentences name pods, nodes and gangs.
    gangs, why_no_gangs = (None, "") if redact_names else _gangs(client)
    if why_no_gangs:
        unread["gangs"] = why_no_gangs

    return file.SnapshotFile(
        kind=file.KIND,
        format=file.FORMAT,
        gangsched=__version__,
        api_server=str(client.get("/version").get("gitVersion")),
        taken_at=format_timestamp(int(time.time())),
        settings=settings,
        resources={
            name: [msgspec.Raw(msgspec.json.encode(body)) for body in bodies]
            for name, bodies in bodies_by_name.items()
        },
        unread=unread,
        pod_groups=pod_groups,
        gangs=gangs,
    )


def _gangs(client: BlockingClient) -> tuple[list[dict[str, Any]] | None, str]:
    """The gangs of the gangs API, with the nodes that are reserved for them, or why there are
    none; neither where the API is not served.
    """
    try:
        gangs = client.items(f"{GANGS}/gangs")
    except ApiFault as fault:
        is_served = fault.status != NOT_FOUND
        return None, told(fault).rstrip(".") if is_served else ""
    except Fault as fault:
        return None, str(fault).rstrip(".")

    reserved = {}
    for place, gang in enumerate(gangs):
        if (gang.get("status") or {}).get("reserved"):
            metadata = gang["metadata"]
            namespace = quote(str(metadata.get("namespace") or ""), safe="")
            name = quote(str(metadata["name"]), safe="")
            reserved[place] = f"{GANGS}/namespaces/{namespace}/gangs/{name}"

    # Only a GET of one gang has its nodes, for users who may list nodes.
    if reserved:
        answers = client.gets(list(reserved.values()))
        for place, answer in zip(reserved, answers, strict=True):
            if isinstance(answer, dict):
                gangs[place] = answer

    return gangs, ""


def _settings(client: BlockingClient) -> dict[str, Any]:
    try:
        return scheduler_settings(client)
    except ApiFault as fault:
        if fault.status in {FORBIDDEN, NOT_FOUND}:
            return {}

        raise


def _read(
    client: BlockingClient,
    resource: resources.Resource[Any, Any],
    settings: Mapping[str, Any],
) -> list[dict[str, Any]] | str:
    """The objects as far as they are read, or why there are none."""
    chosen = (
        {"labelSelector": str(settings["node_selector"])}
        if resource.name == "nodes" and settings.get("node_selector")
        else {}
    )
    bodies: list[dict[str, Any]] = []

    try:
        for page in client.pages(resource.path, **chosen):
            bodies += (
                # Through the wire structs, so that fields that are not read never reach the file.
                msgspec.json.decode(msgspec.json.encode(_pruned(wire)))
                for wire in resource.page.decode(page).items or ()
            )
    except ApiFault as fault:
        if fault.status == NOT_FOUND and resource.optional:
            return "not served in this cluster"
        if fault.status != FORBIDDEN:
            raise
        if resource.optional:
            return lacking(fault)

        raise CannotAnswer(f"{lacking(fault)}, and a snapshot is made of that.") from fault

    return bodies


def _pruned(wire: Any) -> Any:
    """Without what stays undecoded: images and messages of containers are in there, and parameters
    of drivers.
    """
    if isinstance(wire, WireDeviceObject):
        wire.spec.pop("config", None)

    if isinstance(wire, WireResourceClaim):
        shown = wire.status or {}
        shown.pop("devices", None)

        for part in (wire.spec, shown.get("allocation") or {}):
            (part.get("devices") or {}).pop("config", None)

    if isinstance(wire, WirePod):
        status = wire.status
        status.conditions = _again(status.conditions, _conditions)
        status.container_statuses = _again(status.container_statuses, _containers)
        status.init_container_statuses = _again(status.init_container_statuses, _containers)

    return wire


def _again(raw: msgspec.Raw, decoder: msgspec.json.Decoder[Any]) -> msgspec.Raw:
    if bytes(raw):
        return msgspec.Raw(msgspec.json.encode(decoder.decode(raw)))

    return NULL


def _pod_groups(client: BlockingClient, api_group: str) -> file.PodGroups | None:
    """Those of the API server's preferred version; None where they are not served or may not be
    read.
    """
    (served,) = client.gets([f"/apis/{DIALECTS[api_group].api_group}"])
    versions = (
        [served_version["version"] for served_version in served.get("versions", ())]
        if isinstance(served, dict)
        else []
    )
    for version in versions:
        try:
            bodies = client.items(
                f"/apis/{api_version(api_group, version)}/{DIALECTS[api_group].plural}"
            )
        except ApiFault as fault:
            if fault.status == NOT_FOUND:
                continue
            if fault.status == FORBIDDEN and DIALECTS[api_group].optional:
                return None  # as for the daemon
            if fault.status == FORBIDDEN:
                raise CannotAnswer(f"{lacking(fault)}, and a snapshot is made of that.") from fault

            raise

        return file.PodGroups(version, [_of_pod_group(body) for body in bodies])

    return None


KEPT = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "generation",
    "resourceVersion",
)


def _of_pod_group(body: dict[str, Any]) -> dict[str, Any]:
    metadata = body["metadata"]
    kept = {key: metadata[key] for key in KEPT if metadata.get(key) is not None}
    kept["annotations"] = dict(keys.pod_group_metadata(metadata.get("annotations") or {}))

    return {"metadata": kept, "spec": body.get("spec") or {}}
