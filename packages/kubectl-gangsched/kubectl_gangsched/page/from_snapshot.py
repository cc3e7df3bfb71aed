"""The cluster and the details of gangs in a snapshot.

Invariant: the page of a snapshot has nothing that the snapshot has not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from gangsched.api import keys
from gangsched.api.dialects import api_version
from gangsched.api.timestamps import parse_timestamp
from gangsched.kube.ports import silent
from gangsched.kube.read import resources
from gangsched.kube.read.shapes import ShapeTable
from gangsched.snapshots.file import SnapshotError, SnapshotFile
from kubectl_gangsched import from_api
from kubectl_gangsched.advice import next_of
from kubectl_gangsched.doctor.services import gpu_policy
from kubectl_gangsched.page import rows
from kubectl_gangsched.page.cluster import Cluster, GangObject
from kubectl_gangsched.page.document import Detail, Moment, PageDomain, Unknown
from kubectl_gangsched.page.moments import Moments
from kubectl_gangsched.story import DomainStory
from kubectl_gangsched.terminal import clean, sentence

GROUPS_READ = (
    keys.X_K8S,
    keys.SIGS,
    keys.VOLCANO,
    keys.NATIVE,
)
"""API groups of the PodGroups that the page reads without the gangs API."""
Gangs: TypeAlias = Mapping[str, GangObject]
UNREADABLE = (
    msgspec.MsgspecError,
    ArithmeticError,
    LookupError,
    TypeError,
    ValueError,
)
"""What the objects of a damaged file raise."""
NO_GANGS = (
    "The snapshot has no gangs of the gangs API{why}: the queue is shown by age, without positions,"
    " reservations and promised starts."
)
NO_HISTORY = Unknown("history", "A snapshot has no history of gangs.")


def moment_of(taken: SnapshotFile, gangs: Gangs | None = None) -> Moment:
    """The moment of a snapshot; `gangs` are those of the file if none are given. Raises
    SnapshotError.
    """
    at_s = parse_timestamp(taken.taken_at)
    if at_s is None:
        raise SnapshotError(f"The snapshot's time is none: {taken.taken_at}.")

    try:
        cluster = cluster_of(taken, gangs)
    except UNREADABLE as error:
        raise SnapshotError(f"The objects of the file are not understood: {error}.") from error

    moment = Moments(cluster).at(at_s)
    moment.details = details(cluster, at_s)
    return moment


def cluster_of(taken: SnapshotFile, gangs: Gangs | None) -> Cluster:
    """The objects of a snapshot. Raises what decoding raises."""
    cluster = Cluster()
    cluster.policy_of(taken.settings, gpu_policy(taken.settings))
    cluster.nodes = {}
    cluster.pods = {}
    cluster.all_pods = True
    cluster.unknown = [NO_HISTORY]

    for node in _objects(taken, resources.nodes(silent)):
        cluster.put_node(node, "")

    for pod in _objects(taken, resources.pods(ShapeTable())):
        cluster.put_pod(pod)

    for part in _objects(taken, resources.RESOURCE_SLICES):
        cluster.put_slice(part.name, part)

    for claim in _objects(taken, resources.RESOURCE_CLAIMS):
        cluster.put_claim(claim.key, claim)

    cluster.has_slices = "resourceslices" in taken.resources
    cluster.has_claims = "resourceclaims" in taken.resources
    for key, body in _pod_groups(taken):
        cluster.put_pod_group(key, body)

    if gangs is None and taken.gangs is not None:
        gangs = {rows.key_of(gang): gang for gang in taken.gangs}

    if gangs is None:
        unread = taken.unread.get("gangs")
        why = f" ({clean(unread)})" if unread else ""
        cluster.unknown.append(Unknown("order", NO_GANGS.format(why=why)))
    else:
        cluster.gangs = {}
        for key, gang in gangs.items():
            cluster.put_gang(key, gang)

    return cluster


def _objects(
    taken: SnapshotFile,
    resource: resources.Resource[Any, Any],
) -> Iterator[Any]:
    for raw in taken.resources.get(resource.name, ()):
        item = resource.convert(resource.item.decode(raw))
        if item is not None:
            yield item


def _pod_groups(taken: SnapshotFile) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for api_group in GROUPS_READ:
        pod_groups = taken.pod_groups.get(api_group)
        if pod_groups is None:
            continue

        version = api_version(api_group, pod_groups.version)
        for item in pod_groups.items:
            metadata = item["metadata"]
            key = f"{metadata.get('namespace')}/{metadata['name']}"
            yield key, {**item, "apiVersion": version}


def details(cluster: Cluster, at_s: float) -> dict[str, Detail]:
    """The details of all gangs, as far as the objects have them."""
    known = set(cluster.members.keys())
    known.update(cluster.gangs or ())

    by_key = {}
    for key in sorted(known):
        by_key[key] = detail(cluster, key, at_s)

    return by_key


def detail(cluster: Cluster, key: str, at_s: float) -> Detail:
    """The detail of a gang, as far as the objects have it."""
    pods = cluster.members.of(key)
    gang = (cluster.gangs or {}).get(key)
    shown = Detail(
        members=rows.members(pods, at_s),
        source="pods and PodGroups",
    )

    if gang is not None:
        story = from_api.story(gang)
        shown.source = from_api.SOURCE
        shown.next = clean(sentence(next_of(story)))
        for domain in story.domains:
            shown.domains.append(_domain(domain))

    return shown


def _domain(domain: DomainStory) -> PageDomain:
    return PageDomain(
        clean(domain.domain),
        domain.holds,
        domain.lacks,
        clean(domain.refuted_by),
    )
