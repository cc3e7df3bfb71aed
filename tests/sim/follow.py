"""In place of kopf: the events of PodGroups, as kopf hands them on.

Invariant: as kopf, it lists, then watches, lists again after a 410, and ends on any other error;
its requests are real ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

import msgspec

from gangsched.kube.http.backoff import RequestPace
from gangsched.kube.http.client import ApiClient
from gangsched.kube.http.faults import GONE, ApiFault, Unreachable
from gangsched.kube.read.podgroup_informer import Handler
from gangsched.kube.read.reflector import LineSplitter

SILENCE_S = 180.0
"""As kopf's, in `kopf_watch`."""


async def follow(
    client: ApiClient,
    api_group: str,
    version: str,
    on_event: Handler,
    /,
    *,
    pace: RequestPace,
    stop: asyncio.Event,
    restore_signals: Callable[[], None],
) -> None:
    """Hand on every event until `stop` is set. Raises Fault."""
    restore_signals()
    following = asyncio.create_task(
        _follow(client, f"/apis/{api_group}/{version}/podgroups", on_event, pace)
    )
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((following, stopping), return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            following.result()
            raise Unreachable(f"The operator for {api_group} ended.")
    finally:
        following.cancel()
        stopping.cancel()
        await asyncio.gather(following, stopping, return_exceptions=True)


async def _follow(client: ApiClient, path: str, on_event: Handler, pace: RequestPace) -> None:
    since = ""
    while True:
        if not since:
            await pace.turn(path)
            since = await _list(client, path, on_event)
        await pace.turn("watch")
        splitter = LineSplitter()
        query = f"watch=true&allowWatchBookmarks=true&resourceVersion={since}&timeoutSeconds=300"
        async with aclosing(client.chunks(f"{path}?{query}", silence_s=SILENCE_S)) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                for line in filter(None, splitter.feed(chunk)):
                    event = msgspec.json.decode(line)
                    if event["type"] == "ERROR":
                        if event["object"].get("code") != GONE:
                            raise ApiFault(
                                event["object"].get("code", 0), "", "the watch ended with an error"
                            )
                        since = ""
                        break
                    since = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        on_event(event["type"], event["object"])


async def _list(client: ApiClient, path: str, on_event: Handler) -> str:
    token = ""
    while True:
        page = await client.request_json(
            "GET", f"{path}?limit=500&continue={token}" if token else f"{path}?limit=500"
        )
        for body in page.get("items") or ():
            on_event(None, body)
        token = page["metadata"].get("continue", "")
        if not token:
            return str(page["metadata"]["resourceVersion"])
