"""The web application: authentication, authorization, and the answer.

Invariant: every request passes the same checks, in this order: the front proxy's certificate (401),
the request rate (429), headers about the body (400, 413, 415), a SubjectAccessReview (403). A
refusal does not reveal whether an object exists. A request whose client has disconnected is
cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TypeAlias

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from gangsched.visibility import discovery, openapi
from gangsched.visibility.access.authorization import MASTERS, Attributes, Authorizer
from gangsched.visibility.access.front_proxy import FrontProxy, User
from gangsched.visibility.admission import Admission
from gangsched.visibility.bodies import judge_head, read_body, settle
from gangsched.visibility.complaints import Complaints
from gangsched.visibility.gangs.store import Entry, GangStore
from gangsched.visibility.gangs.tables import Form, form_of, metadata_of, row, table
from gangsched.visibility.gangs.watching import Watches
from gangsched.visibility.pace import Pace
from gangsched.visibility.ports import API_VERSION, GROUP, Clocks, Json
from gangsched.visibility.requests import (
    ListOptions,
    Target,
    check_one,
    list_options,
    target_of,
    token_of,
)
from gangsched.visibility.reviews.answering import answer
from gangsched.visibility.reviews.processes import Processes
from gangsched.visibility.reviews.request import KIND, Review, read_review
from gangsched.visibility.reviews.review import Reviewer
from gangsched.visibility.reviews.rights import check_namespaces
from gangsched.visibility.statuses import RequestRefused

JSON_TYPE = "application/json"
USER = web.RequestKey("user", str)
"""Key of a request: the name of who asks, once it is known."""
Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
DOCUMENTS: dict[str, Callable[[], Json]] = {
    "/apis": discovery.api_groups,
    f"/apis/{GROUP}": discovery.api_group,
    f"/apis/{API_VERSION}": discovery.resources,
    "/openapi/v2": openapi.v2,
    "/openapi/v3": openapi.v3_index,
    f"/openapi/v3/apis/{API_VERSION}": openapi.v3,
}
ANSWER_WITHIN_S = 50.0
"""The API server gives up after 60 s, and says less."""
LIST_NODES = Attributes("list", "nodes", group="", version="v1")
LIST_KINDS = {
    Form.WHOLE: ("GangList", API_VERSION),
    Form.METADATA: ("PartialObjectMetadataList", "meta.k8s.io/v1"),
}


@dataclass(slots=True, kw_only=True)
class Parts:
    """The parts that the application connects."""

    store: GangStore
    watches: Watches
    authorizer: Authorizer
    admission: Admission
    pace: Pace
    processes: Processes
    clocks: Clocks
    front_proxy: Callable[[], FrontProxy]
    reviewer: Reviewer
    complaints: Complaints = field(default_factory=Complaints)


def application(parts: Parts) -> web.Application:
    """The web application. One handler serves all paths, so that every path, known or not, passes
    the checks.
    """
    handler = _Handler(parts)
    app = web.Application(middlewares=[_refusals(parts.admission, parts.complaints)])

    # aiohttp's router would answer 404 and 405 by itself, before anybody was authenticated.
    app.router.add_route("*", "/{rest:.*}", handler.handle)
    return app


def _refusals(admission: Admission, complaints: Complaints) -> Middleware:
    """Answer refused requests and errors with a Status."""

    @web.middleware
    async def answered(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except RequestRefused as refused:
            found = refused
        # The client has gone, or aiohttp refuses what is no HTTP: there is nobody to answer in our
        # form.
        except (ConnectionError, web.HTTPException):
            raise
        except Exception as error:
            complaints.error("a request to the visibility API failed", error)
            found = RequestRefused(500, "Internal error occurred")

        headers = {"Retry-After": str(found.retry_after_s)} if found.retry_after_s else {}
        body = msgspec.json.encode(found.body())
        response = web.Response(
            status=found.code,
            body=body,
            content_type=JSON_TYPE,
            headers=headers,
        )
        await settle(request, response, partial(admission.draining.place, request.get(USER) or ""))

        return response

    return answered


@asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            yield
    except TimeoutError:
        raise RequestRefused(
            504,
            f"there is no answer within {ANSWER_WITHIN_S:g} s; ask again",
            retry_after_s=10,
        ) from None


@cache
def _encoded(path: str) -> bytes:
    return msgspec.json.encode(DOCUMENTS[path]())


class _Handler:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Handle one request."""
        user = self._user(request)
        request[USER] = user.name

        with self._parts.admission.connected.place(user.name):
            return await self._answered(request, user)

    async def _answered(self, request: web.Request, user: User) -> web.StreamResponse:
        path = request.rel_url.path
        if path in DOCUMENTS:
            async with _in_time():
                return await self._document(request, user, path)

        # The API server is in this group: its own discovery and probes must not be throttled.
        if MASTERS not in user.groups:
            self._parts.admission.admit(user.name)

        judge_head(request)
        target = target_of(request.rel_url.raw_path)
        if (
            target is not None
            and (target.resource, target.name) == ("placementreviews", "")
            and target.namespace
        ):
            return await self._reviews(request, user, target)

        if target is None or target.resource != "gangs":
            # Before the 404: unknown paths must not tell strangers what exists.
            await self._parts.authorizer.check(user, Attributes(_verb(request.method), path=path))
            raise RequestRefused(404, "the server could not find the requested resource")

        return await self._gangs(request, user, target)

    def _user(self, request: web.Request) -> User:
        certificate = (
            request.transport.get_extra_info("peercert") if request.transport is not None else None
        )
        user = self._parts.front_proxy().user(certificate, request.headers)
        if user is None:
            raise RequestRefused(401, "Unauthorized")

        return user

    async def _document(self, request: web.Request, user: User, path: str) -> web.Response:
        """Discovery and OpenAPI: of constant size, and let in whatever the number of other
        requests.
        """
        if MASTERS not in user.groups:
            self._parts.admission.admit_document(user.name)

        judge_head(request)
        if request.method not in {"GET", "HEAD"}:
            raise RequestRefused(405, f"{request.method} is not supported on {path}")

        await self._parts.authorizer.check(user, Attributes("get", path=path))
        aggregated = (
            discovery.aggregated(request.headers.get("Accept", "")) if path == "/apis" else None
        )
        kind, body = aggregated or (JSON_TYPE, _encoded(path))

        return web.Response(body=body, headers={"Content-Type": kind})

    async def _gangs(self, request: web.Request, user: User, target: Target) -> web.StreamResponse:
        if request.method != "GET":
            await self._parts.authorizer.check(
                user,
                Attributes(
                    _verb(request.method),
                    target.resource,
                    target.namespace,
                    target.name,
                    subresource=target.subresource,
                ),
            )
            raise RequestRefused(
                405,
                f"{request.method} is not supported on resources of kind gangs.{GROUP}",
            )

        if target.subresource:
            return await self._history(request, user, target)

        if target.name:
            await self._parts.authorizer.check(
                user,
                Attributes("get", "gangs", target.namespace, target.name),
            )
            check_one(request.query)
            async with _in_time():
                return await self._one(request, user, target)

        options = list_options(request.query)
        verb = "watch" if options.watch else "list"
        asked = Attributes(verb, "gangs", target.namespace, options.name)
        await self._parts.authorizer.check(user, asked)

        if target.namespace and options.namespace not in {"", target.namespace}:
            raise RequestRefused(
                400,
                "metadata.namespace of the fieldSelector is not the namespace of the request",
            )

        namespace = target.namespace or options.namespace
        options = replace(options, namespace=namespace)
        form = form_of(request.headers.get("Accept", ""))
        include = request.query.get("includeObject", "Metadata")

        if options.watch:
            # Asked again each minute: a watch lives for up to half an hour.
            still_may = partial(self._parts.authorizer.check, user, asked)
            with self._parts.admission.watching.place(user.name):
                return await self._parts.watches.serve(request, options, form, include, still_may)

        async with _in_time():
            with self._parts.admission.reading.place(user.name):
                if options.queue_from is not None:
                    return await self._queue(options, options.queue_from)

                return await self._list(options, form, include)

    async def _queue(self, options: ListOptions, offset: int) -> web.Response:
        """Places of gangs that wait: a tenth of the gangs, and in order."""
        store = self._parts.store
        # The lock, since gangs that are gone are noted: a list must not have them and the version
        # behind their end.
        async with store.reading, self._parts.pace.work() as step:
            rows = await store.queue(options.namespace, step)

        # The permission may be one for this name only.
        if options.name:
            rows = [row for row in rows if row["name"] == options.name]

        body = {
            "kind": "GangQueue",
            "apiVersion": API_VERSION,
            "total": len(rows),
            "offset": offset,
            "items": rows[offset : offset + options.limit],
            "servedBy": self._parts.store.served_by(),
        }
        return _json(msgspec.json.encode(body))

    async def _reviews(self, request: web.Request, user: User, target: Target) -> web.Response:
        """A PlacementReview, answered and forgotten."""
        asked = Attributes(_verb(request.method), "placementreviews", target.namespace)
        await self._parts.authorizer.check(user, asked)

        if request.method != "POST":
            raise RequestRefused(
                405,
                f"{request.method} is not supported on resources of kind placementreviews.{GROUP}",
            )
        if request.content_type != JSON_TYPE:
            raise RequestRefused(
                415,
                "the body of the request was in an unknown format - accepted media types:"
                f" {JSON_TYPE}",
            )

        # before a place is taken, so that slow senders keep no other user out
        body = await read_body(request)
        review = read_review(body)

        async with _in_time():
            sees_nodes = await self._parts.authorizer.allows(user, LIST_NODES)
            with self._parts.admission.reviewing.place(user.name):
                status = await self._answer(user, target.namespace, review, sees_nodes=sees_nodes)

        # as it came, whatever its numbers
        told: Json = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        told |= {"apiVersion": API_VERSION, "kind": "PlacementReview", "status": status}
        return web.Response(status=201, body=msgspec.json.encode(told), content_type=JSON_TYPE)

    async def _answer(
        self,
        user: User,
        namespace: str,
        review: Review,
        *,
        sees_nodes: bool,
    ) -> Json:
        reviewer = self._parts.reviewer
        try:
            wanted = await reviewer.wanted(namespace, review, is_master=MASTERS in user.groups)
        # Templates are arbitrary JSON; whatever reading them raises is the request's fault.
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            self._parts.complaints.error("a PlacementReview cannot be read", error)
            raise RequestRefused(
                422,
                f"the {KIND} cannot be read: {type(error).__name__}",
            ) from None

        if wanted.exists:
            asked = Attributes("get", "gangs", namespace, review.spec.gang.existing)
            await self._parts.authorizer.check(user, asked)

        await check_namespaces(self._parts.authorizer, user, namespace, wanted.pods)
        status = await answer(
            self._parts.processes,
            reviewer,
            wanted,
            review,
            sees_nodes=sees_nodes,
        )
        return status | {"servedBy": self._parts.store.served_by()}

    async def _history(self, request: web.Request, user: User, target: Target) -> web.Response:
        """What was decided about one gang, also if it is gone."""
        asked = Attributes(
            "get",
            "gangs",
            target.namespace,
            target.name,
            subresource=target.subresource,
        )
        await self._parts.authorizer.check(user, asked)
        check_one(request.query)

        async with _in_time():
            with self._parts.admission.reading.place(user.name):
                async with self._parts.pace.work():
                    found = self._parts.store.history((target.namespace, target.name))

        if found is None:
            raise _no_gang(target.name)

        return _json(msgspec.json.encode(found))

    async def _one(self, request: web.Request, user: User, target: Target) -> web.Response:
        form = form_of(request.headers.get("Accept", ""))
        include = request.query.get("includeObject", "Metadata")

        with self._parts.admission.reading.place(user.name):
            async with self._parts.pace.work() as step:
                entry = await self._parts.store.entry((target.namespace, target.name), step)
                gang = f"{target.namespace}/{target.name}"
                is_there = entry is not None
                domains = self._parts.reviewer.domains(gang) if is_there else []
                nodes = self._parts.store.reserved_nodes(gang) if is_there else []

        if entry is None:
            raise _no_gang(target.name)

        if form is Form.TABLE:
            rows = [row(entry, include, self._parts.clocks.wall_s())]
            return _json(table(rows, {"resourceVersion": str(entry.version)}))

        if form is Form.METADATA:
            return _json(metadata_of(entry))

        if (domains or nodes) and await self._parts.authorizer.allows(user, LIST_NODES):
            told: Json = msgspec.json.decode(entry.body)
            if domains:
                told["status"]["domains"] = domains

            # A gang that cannot be described has no reservation to show.
            if nodes and "reserved" in told["status"]:
                told["status"]["reserved"]["nodes"] = nodes

            return _json(msgspec.json.encode(told))

        return _json(entry.body)

    async def _list(self, options: ListOptions, form: Form, include: str) -> web.Response:
        """A page; all pages have the version of the first, so that a watch from there misses
        nothing.
        """
        store = self._parts.store
        wall_s = self._parts.clocks.wall_s()

        # The lock keeps versions consistent while the list is rendered in slices.
        async with store.reading, self._parts.pace.work() as step:
            keys = await store.keys(options.namespace, step)
            version = options.version if options.after is not None else store.version

            if options.name:
                keys = [key for key in keys if key[1] == options.name]

            if options.after is not None:
                after = options.after
                keys = [key for key in keys if key > after]

            rest = len(keys) - options.limit if options.limit else 0
            page = keys[: options.limit] if rest > 0 else keys
            parts = [
                _shown(entry, form, include, wall_s) async for entry in store.entries(page, step)
            ]

            if options.after is None:
                version = store.version

            meta: Json = {"resourceVersion": str(version)}
            if rest > 0:
                meta |= {"continue": token_of(page[-1], version), "remainingItemCount": rest}

            if form is Form.TABLE:
                return _json(table(parts, meta))

            kind, api_version = LIST_KINDS[form]
            # The items are encoded already; joining bytes avoids decoding thousands of gangs.
            head = msgspec.json.encode({"kind": kind, "apiVersion": api_version, "metadata": meta})
            return _json(b'%s,"items":[%s]}' % (head[:-1], b",".join(parts)))


def _shown(entry: Entry, form: Form, include: str, wall_s: float) -> bytes:
    if form is Form.TABLE:
        return row(entry, include, wall_s)
    if form is Form.METADATA:
        return metadata_of(entry)

    return entry.body


def _no_gang(name: str) -> RequestRefused:
    details: Json = {"name": name, "group": GROUP, "kind": "gangs"}
    return RequestRefused(404, f'gangs.{GROUP} "{name}" not found', details=details)


def _verb(method: str) -> str:
    return {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}.get(
        method,
        "get",
    )


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type=JSON_TYPE)
