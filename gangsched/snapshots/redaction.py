"""Redaction of snapshots: omitted fields and replaced names.

Invariant: only fields that affect decisions are kept (the wire structs of `kube.read` have no
others). Annotations that are not read and labels that no selector names are dropped. `redact_names`
replaces every name consistently by one that sorts at the same place: names break ties, and the plan
must stay the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

import msgspec

from gangsched.api import keys
from gangsched.api.values import BadValue, parse_groups
from gangsched.kube.read.decode import MIRROR
from gangsched.kube.read.storage import (
    BIND_COMPLETED,
    OLD_STORAGE_CLASS,
    SELECTED_NODE,
    ZONE_LABELS,
)
from gangsched.model.gpu_policy import PRODUCT_LABEL, SHARED_RESOURCE, SHARING_LABEL, TOPOLOGY_KEYS

ANNOTATIONS = (
    keys.GANG_ANNOTATIONS
    | keys.VALUE_KEYS
    | keys.RUN_TIME_KEYS
    | keys.OF_LWS
    | {keys.PERMITTED, keys.TIMEOUT, MIRROR, BIND_COMPLETED, SELECTED_NODE, OLD_STORAGE_CLASS}
)
LABELS = (
    keys.GANG_LABELS
    | {*keys.LWS_GROUP}
    | keys.RUN_TIME_KEYS
    | {PRODUCT_LABEL, SHARING_LABEL, SHARED_RESOURCE, *TOPOLOGY_KEYS, *ZONE_LABELS}
    | {"kubernetes.io/hostname", "kubernetes.io/metadata.name"}
)
SELECTING = frozenset(
    {
        "affinity",
        "nodeSelector",
        "nodeAffinity",
        "topologySpreadConstraints",
        "selector",
        "allowedTopologies",
        "labelSelector",
        "allocation",
    }
)
"""Fields below which labels are named, as keys or as values."""
WORDS = frozenset(
    {
        "apiVersion",
        "effect",
        "key",
        "kind",
        "operator",
        "phase",
        "policy",
        "provisioner",
        "reason",
        "resourceVersion",
        "schedulerName",
        "status",
        "topologyKey",
        "type",
        "uid",
        "driver",
        "scheduler_names",
    }
)
"""Fields whose values are no names."""
NAMES = frozenset(
    {
        "claimName",
        "namespaces",
        "nodeName",
        "nominatedNodeName",
        "podGroupName",
        "resourceClaimName",
        "resourceClaimTemplateName",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeName",
    }
)
"""Fields whose values are names of objects, which need not exist."""
# Names of objects, and values of labels, which gangs are named by: these may have capitals and
# underscores.
_token = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?")


def selected(objects: Iterable[Any]) -> set[str]:
    """All texts below selector fields, including every label that a selector names."""
    texts: set[str] = set()
    for body in objects:
        for field, value in _fields(body):
            if field in SELECTING:
                texts.update(_texts(value))

    return texts


def without_the_rest(body: dict[str, Any], named: Set[str]) -> None:
    """Drop metadata that is not read from an object; `named` are the labels that selectors name."""
    metadata = body["metadata"]
    for field, kept in (("annotations", ANNOTATIONS), ("labels", LABELS | named)):
        if metadata.get(field):
            metadata[field] = {key: value for key, value in metadata[field].items() if key in kept}


class Pseudonyms:
    """Replacement names of a cluster; `rename` applies them to any JSON value."""

    def __init__(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """Collect the names of objects, namespaces, gangs and owners in `objects`, even if no such
        object exists.
        """
        names: set[str] = set()
        for body in objects:
            metadata = body["metadata"]
            names.update((metadata.get("name") or "", metadata.get("namespace") or ""))
            names.update(
                str(owner.get("name") or "") for owner in metadata.get("ownerReferences") or ()
            )
            marks = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
            names.update(marks.get(identity.key) or "" for identity in keys.IDENTITIES)

            for key in keys.GROUPS:
                names.update(part for gang in _listed(marks.get(key)) for part in gang.split("/"))

            names.update(_named(body))

        # Numbers of one width sort as the names do, so that ties are broken the same way.
        self._other = {name: f"n{number:06}" for number, name in enumerate(sorted(names - {""}))}

    def rename(self, value: Any, field: str = "") -> Any:
        """`value` with every name in its texts replaced; keys of mappings stay."""
        if isinstance(value, dict):
            return {key: self.rename(inner, key) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.rename(inner, field) for inner in value]
        if isinstance(value, str) and field in keys.GROUPS:
            return self._groups(value)
        if isinstance(value, str) and field not in WORDS:
            # Messages are free text, and may quote anything.
            return "" if field == "message" else self._text(value)

        return value

    def _groups(self, text: str) -> str:
        """The gangs of a group by their other names; a text that lists none stays a bad value,
        without a word of it.
        """
        listed = _listed(text)
        if not listed:
            return "?" if text.strip() not in {"", "[]"} else text

        return msgspec.json.encode(
            ["/".join(map(self._text, gang.split("/"))) for gang in listed]
        ).decode()

    def _text(self, text: str) -> str:
        pseudonym = self._other.get(text)
        if pseudonym is not None:
            return pseudonym

        return _token.sub(lambda match: self._other.get(match[0], match[0]), text)


def _listed(text: str | None) -> tuple[str, ...]:
    """The gangs that the annotation of a group lists; none where it is no such list."""
    try:
        return (parse_groups(text) if text else None) or ()
    except BadValue:
        return ()


def _named(value: Any) -> Iterator[str]:
    """Every value of the fields `NAMES`, and of references to claims."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in NAMES:
                yield from _texts(inner)
            elif key == "claimRef" and isinstance(inner, dict):
                yield from (str(inner.get(part) or "") for part in ("namespace", "name"))
            else:
                yield from _named(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _named(inner)


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key, inner
            if key not in SELECTING:
                yield from _fields(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _fields(inner)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield str(key)
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, str):
        yield value
