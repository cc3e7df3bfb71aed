"""Requests: paths and queries, parsed as in the API server.

Invariant: anything unknown is refused; names may contain every character that a path segment may
contain.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from gangsched.visibility.gangs.store import Key
from gangsched.visibility.ports import API_VERSION
from gangsched.visibility.statuses import RequestRefused

QUEUE = "queue"
"""The view of gangs that has their places only."""
QUEUE_PAGE = 5_000
"""The most places of one answer: 400 KB."""
PAGE = 500
"""The most objects of a page; a longer `limit` gets so many and a token for the rest."""
LONGEST_WATCH_S = 1_800


@dataclass(frozen=True, slots=True)
class Target:
    """A resource of this API. `namespace` is "" for all namespaces, `name` is "" for
    a collection.
    """

    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def target_of(raw_path: str) -> Target | None:
    """The target of a percent-encoded path below this group and version; None if it is not a
    resource of this API.
    """
    prefix = f"/apis/{API_VERSION}/"
    if not raw_path.startswith(prefix):
        return None

    # Split before decoding: an encoded slash belongs to a name.
    parts = [unquote(part) for part in raw_path[len(prefix) :].split("/")]
    namespace = ""

    if parts[0] == "namespaces" and len(parts) >= 3:
        namespace = parts[1]
        parts = parts[2:]

        if not namespace:
            return None

    if len(parts) > 3 or not all(parts) or (len(parts) >= 2 and not namespace):
        return None

    resource, name, subresource = (*parts, "", "")[:3]
    if subresource and (resource, subresource) != ("gangs", "history"):
        return None

    return Target(resource, namespace, name, subresource)


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The fields of metav1.ListOptions that apply here; `after` is the last key of the previous
    page.
    """

    limit: int = 0
    after: Key | None = None
    version: int = 0
    watch: bool = False
    timeout_s: float = LONGEST_WATCH_S
    bookmarks: bool = False
    initial_events: bool = False
    name: str = ""
    namespace: str = ""
    #: The compact queue is asked for, from this offset on; None if it is not.
    queue_from: int | None = None


def list_options(query: Mapping[str, str]) -> ListOptions:
    """Parse the query. Raises RequestRefused (400, 410)."""
    if query.get("labelSelector"):
        raise RequestRefused(400, "gangs have no labels: a labelSelector selects nothing here")

    fields = _fields(query.get("fieldSelector", ""))
    after = None
    version = _number(query, "resourceVersion")

    if token := query.get("continue", ""):
        after, version = _read_token(token)

    timeout_s = _number(query, "timeoutSeconds") or LONGEST_WATCH_S
    queue_from = _queue_from(query)
    limit = _number(query, "limit")
    if queue_from is not None:
        limit = min(limit or QUEUE_PAGE, QUEUE_PAGE)

    return ListOptions(
        # 0 means no limit, as in the API; one page of 500 is what kubectl asks for.
        limit=limit if queue_from is not None else min(limit, PAGE),
        after=after,
        version=version,
        watch=_flag(query, "watch"),
        timeout_s=min(timeout_s, LONGEST_WATCH_S),
        bookmarks=_flag(query, "allowWatchBookmarks"),
        initial_events=_flag(query, "sendInitialEvents"),
        name=fields.get("metadata.name", ""),
        namespace=fields.get("metadata.namespace", ""),
        queue_from=queue_from,
    )


def _queue_from(query: Mapping[str, str]) -> int | None:
    view = query.get("view", "")
    if view not in {"", QUEUE}:
        raise RequestRefused(400, f'view "{view[:40]}" is unknown: there is only {QUEUE}')
    if not view:
        if query.get("offset"):
            raise RequestRefused(400, f"offset is for view={QUEUE} only")

        return None

    if _flag(query, "watch") or query.get("continue"):
        raise RequestRefused(400, f"view={QUEUE} has limit and offset, and cannot be watched")

    return _number(query, "offset")


def check_one(query: Mapping[str, str]) -> None:
    """Refuse what only a list has, where one gang is asked for. Raises RequestRefused (400)."""
    for key in ("view", "offset"):
        if query.get(key):
            raise RequestRefused(400, f"{key} is for lists of gangs: this is the path of one gang")


def token_of(after: Key, version: int) -> str:
    """The `continue` token of a page whose last key is this one."""
    return base64.urlsafe_b64encode(json.dumps([*after, version]).encode()).decode().rstrip("=")


def _read_token(token: str) -> tuple[Key, int]:
    try:
        namespace, name, version = json.loads(
            base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        )
        return (str(namespace), str(name)), int(version)
    except (ValueError, TypeError, binascii.Error):
        raise RequestRefused(400, "continue key is not valid") from None


def _fields(selector: str) -> dict[str, str]:
    found = {}
    for part in filter(None, selector.split(",")):
        key, _, value = part.replace("==", "=").partition("=")
        if (
            key not in {"metadata.name", "metadata.namespace"}
            or key in found
            or not value
            or key.endswith("!")
        ):
            raise RequestRefused(400, f'field label not supported: "{key}"')

        found[key] = value

    return found


def _number(query: Mapping[str, str], key: str) -> int:
    value = query.get(key, "") or "0"
    # int() would accept other scripts' digits and underscores, and take quadratic time for long
    # texts.
    if not (value.isascii() and value.isdigit() and len(value) < 20):
        raise RequestRefused(400, f'Invalid value: "{value[:40]}": {key} must be a whole number')

    return int(value)


def _flag(query: Mapping[str, str], key: str) -> bool:
    return query.get(key, "").lower() in {"true", "1"}
