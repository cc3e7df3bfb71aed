"""Authorization: a SubjectAccessReview per request, cached for ten seconds.

Invariant: if the review fails, the request is refused. No review is made for members of
system:masters, as in every extension API server (k8s.io/apiserver,
options.NewDelegatingAuthorizationOptions), because the API server itself is a member.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

from gangsched.visibility.access.front_proxy import User
from gangsched.visibility.ports import GROUP, VERSION, Calls, Json
from gangsched.visibility.statuses import RequestRefused

REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
MASTERS = "system:masters"
# As in k8s.io/apiserver's DelegatingAuthorizationOptions; a revoked permission ends within that
# time.
REMEMBERED_S = 10.0
MOST = 4_096
AT_ONCE = 32
"""Questions under way; each has a connection to the API server of its own."""


class Attributes(NamedTuple):
    """The requested access: to a resource or, if `resource` is empty, to the document at `path`."""

    verb: str
    resource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    group: str = GROUP
    version: str = VERSION
    subresource: str = ""


Key: TypeAlias = tuple[User, Attributes]


class Authorizer:
    """`check` raises RequestRefused, `allows` returns a boolean."""

    def __init__(self, calls: Calls, now_s: Callable[[], float]) -> None:
        self._calls = calls
        self._now_s = now_s
        self._known: OrderedDict[Key, tuple[float, bool]] = OrderedDict()
        self._asking: dict[Key, asyncio.Task[bool]] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def check(self, user: User, asked: Attributes) -> None:
        """Raise RequestRefused: 403 unless the user is allowed, 500 if that cannot
        be determined.
        """
        if not await self.allows(user, asked):
            raise RequestRefused(403, _forbidden(user, asked), details=_details(asked))

    async def allows(self, user: User, asked: Attributes) -> bool:
        """Whether the user is allowed. Raises RequestRefused (500) if that cannot be determined."""
        if MASTERS in user.groups:
            return True

        key = (user, asked)
        known = self._known.get(key)
        if known is not None and self._now_s() < known[0] + REMEMBERED_S:
            return known[1]

        # Requests that ask the same while the answer is under way share one review.
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = asyncio.create_task(
                self._ask(key),
                name="subject access review",
            )
            asking.add_done_callback(partial(self._asked, key))

        # whoever gives up breaks off no request to the API server
        return await asyncio.shield(asking)

    async def _ask(self, key: Key) -> bool:
        async with self._slots:
            answer = await self._calls("POST", REVIEWS, _review(*key))

        status = (
            answer.body.get("status") if answer.is_ok and isinstance(answer.body, dict) else None
        )
        if not isinstance(status, dict):
            raise RequestRefused(
                500,
                "Internal error occurred: the authorizer of the cluster did not answer.",
            )

        # `denied` wins, as in k8s.io/apiserver.
        allowed = status.get("allowed") is True and status.get("denied") is not True
        self._known.pop(key, None)

        self._known[key] = (self._now_s(), allowed)
        if len(self._known) > MOST:
            self._known.popitem(last=False)

        return allowed

    def _asked(self, key: Key, asking: asyncio.Task[bool]) -> None:
        del self._asking[key]
        if not asking.cancelled():
            asking.exception()  # mark it as retrieved: no request may be waiting for it any more


def _review(user: User, asked: Attributes) -> Json:
    spec: Json = {"user": user.name, "groups": list(user.groups)}
    if user.uid:
        spec["uid"] = user.uid

    if user.extra:
        spec["extra"] = {key: list(values) for key, values in user.extra}

    if asked.path:
        spec["nonResourceAttributes"] = {"path": asked.path, "verb": asked.verb}
    else:
        attributes = asked._asdict()
        del attributes["path"]
        spec["resourceAttributes"] = {key: value for key, value in attributes.items() if value}

    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}


def _forbidden(user: User, asked: Attributes) -> str:
    """As k8s.io/apiserver words it (handlers/responsewriters/errors.go)."""
    if asked.path:
        return f'forbidden: User "{user.name}" cannot {asked.verb} path "{asked.path}"'

    named = f' "{asked.name}"' if asked.name else ""
    where = f' in the namespace "{asked.namespace}"' if asked.namespace else " at the cluster scope"
    resource = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
    what = (
        f'User "{user.name}" cannot {asked.verb} resource "{resource}" in API group'
        f' "{asked.group}"{where}'
    )

    return f"{asked.resource}.{asked.group}{named} is forbidden: {what}"


def _details(asked: Attributes) -> Json:
    if asked.path:
        return {}

    return {
        "group": asked.group,
        "kind": asked.resource,
        **({"name": asked.name} if asked.name else {}),
    }
