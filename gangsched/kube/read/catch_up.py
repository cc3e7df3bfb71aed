"""Catching up: wait until every bind and nomination that was written before a given moment is
known.

Invariant: a list of unbound pods that is read after another instance's last write shows what that
instance wrote. A pod that is pending in the cache but not in the list has been bound or deleted; a
pod in the list has a resourceVersion. The watch has caught up once it has shown the binds and
deletions, and has reached either the resourceVersions of the listed pods or that of the list. The
list's own resourceVersion alone does not suffice, because a quiet watch may not reach it for a
while. Writes of other clients are *not* covered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import msgspec

from gangsched.kube.http.answers import decoded
from gangsched.kube.http.client import ApiClient
from gangsched.kube.ports import Sleep
from gangsched.kube.read.podgroup_store import revision
from gangsched.kube.read.store import Store
from gangsched.kube.read.wire import Identified, Page
from gangsched.model.objects import Pod

METADATA_ONLY = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
# Polling: the store is written by another task, and a leader without plans costs more than a few
# wake-ups.
LOOK_EVERY_S = 0.005
LIST_WITHIN_S = 5.0


_decoder = msgspec.json.Decoder(Page[Identified])


async def catch_up(
    client: ApiClient,
    pods: Store[Any, Pod],
    names: Iterable[str],
    *,
    sleep: Sleep = asyncio.sleep,
) -> None:
    """Return once `pods` shows everything that was written to pods with these scheduler names
    before the call.

    Raises Fault.
    """
    for name in names:
        page = await _waiting(client, name)
        items = page.items or ()
        listed = {identified.metadata.uid for identified in items}
        unseen = [
            uid
            for uid, pod in pods.items()
            if not pod.node_name and pod.scheduler_name == name and uid not in listed
        ]

        # Nominations are updates of pods that are still unbound, so the listed pods show them.
        newest = max(
            (revision(identified.metadata.resource_version) for identified in items), default=-1
        )
        as_of = revision(page.metadata.resource_version)

        while True:
            reached = revision(pods.resource_version)
            # -1 if the list's version is no number: then only the pods themselves can prove
            # anything.
            if reached >= as_of >= 0:
                break

            # The watch has shown the bind or the deletion.
            unseen = [
                uid for uid in unseen if (pod := pods.get(uid)) is not None and not pod.node_name
            ]
            if reached >= newest and not unseen:
                break

            await sleep(LOOK_EVERY_S)


async def _waiting(client: ApiClient, name: str) -> Page[Identified]:
    """The pods without a node that name this scheduler, as they are now, not as a cache
    has them.
    """
    # No resourceVersion in the request: the list is consistent, and shows every earlier write.
    selector = quote(f"spec.nodeName=,spec.schedulerName={name}", safe="")
    path = f"/api/v1/pods?fieldSelector={selector}"
    answer = await client.request("GET", path, accept=METADATA_ONLY, timeout_s=LIST_WITHIN_S)

    return decoded(_decoder, answer, "The list of waiting pods is none")
