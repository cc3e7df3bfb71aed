"""Output formats for kubectl: metav1.Table, and objects with metadata only (PartialObjectMetadata).

Invariant: as in the API server (k8s.io/apiserver, endpoints/handlers/response.go). Table cells are
computed here, so that `kubectl get gangs` needs no knowledge of gangs.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum

import msgspec

from gangsched.visibility.gangs.store import Entry
from gangsched.visibility.ports import Json
from gangsched.visibility.statuses import RequestRefused

TABLE_VERSION = "meta.k8s.io/v1"


class Form(StrEnum):
    """The representation in which objects are returned."""

    WHOLE = ""
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"


COLUMNS: tuple[tuple[str, str, int, str], ...] = (
    ("Name", "string", 0, "Name of the gang."),
    ("Min", "integer", 0, "Members that must have a node before any is started."),
    ("Bound", "integer", 0, "Members that are bound, or being bound."),
    ("Pending", "integer", 0, "Members that wait."),
    ("Position", "integer", 0, "Place among the groups that wait, in the order of the queue."),
    ("Reason", "string", 0, "Reason of the last decision."),
    ("Age", "string", 0, "Time since the PodGroup, or the oldest member, was created."),
    ("Message", "string", 1, "What was decided, and why."),
)
"""Name, type, priority (1: with -o wide), description."""
DEFINITIONS = [
    {
        "name": name,
        "type": kind,
        "format": "name" if name == "Name" else "",
        "description": text,
        "priority": priority,
    }
    for name, kind, priority, text in COLUMNS
]


def form_of(accept: str) -> Form:
    """The first supported representation in an Accept header. Raises RequestRefused (406) if there
    is none.
    """
    if not accept.strip():
        return Form.WHOLE

    for part in accept.split(","):
        media, *parameters = (each.strip() for each in part.split(";"))
        stated = dict(parameter.partition("=")[::2] for parameter in parameters)

        if media not in {"application/json", "*/*", "application/*"}:
            continue

        # Clients ask for PartialObjectMetadataList when they list.
        wanted = stated.get("as", "").removesuffix("List")
        if not wanted:
            return Form.WHOLE
        if (
            stated.get("g") == "meta.k8s.io"
            and stated.get("v") == "v1"
            and wanted in {Form.TABLE, Form.METADATA}
        ):
            return Form(wanted)

    raise RequestRefused(406, "only the following media types are accepted: application/json")


def row(entry: Entry, include: str, wall_s: float) -> bytes:
    """One table row; `include` says which part of the object it contains: Metadata, Object
    or None.
    """
    *cells, created, message = entry.cells
    shown = [*cells, age(str(created), wall_s) if created else "<unknown>", message]
    found: Json = {"cells": shown}

    if include == "Object":
        found["object"] = msgspec.Raw(entry.body)
    elif include != "None":
        found["object"] = msgspec.Raw(metadata_of(entry))

    return msgspec.json.encode(found)


def metadata_of(entry: Entry) -> bytes:
    """Metadata of the object."""
    return b'{"kind":"PartialObjectMetadata","apiVersion":"%s","metadata":%s}' % (
        TABLE_VERSION.encode(),
        entry.metadata,
    )


def table(rows: Iterable[bytes], list_meta: Json, *, with_columns: bool = True) -> bytes:
    """A whole Table."""
    return msgspec.json.encode(
        {
            "kind": "Table",
            "apiVersion": TABLE_VERSION,
            "metadata": list_meta,
            "columnDefinitions": DEFINITIONS if with_columns else None,
            "rows": [msgspec.Raw(row) for row in rows],
        }
    )


def age(created: str, wall_s: float) -> str:
    """Age in kubectl's format (k8s.io/apimachinery, util/duration.HumanDuration)."""
    try:
        seconds = int(wall_s - datetime.fromisoformat(created).replace(tzinfo=UTC).timestamp())
    except ValueError:
        return "<unknown>"

    if seconds < 0:
        return "0s"

    minutes = seconds // 60
    hours = seconds // 3_600
    days = seconds // 86_400

    # The steps of HumanDuration, so that ages look like kubectl's own.
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    if days < 2_920:
        return _two(days // 365, "y", days % 365, "d")

    return f"{days // 365}y"


def _two(large: int, unit: str, small: int, smaller: str) -> str:
    if small:
        return f"{large}{unit}{small}{smaller}"

    return f"{large}{unit}"
