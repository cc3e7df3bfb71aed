"""The rows of the page, each from the objects that it is about.

Invariant: amounts are those of `kubectl gangsched map`, sentences those of `why`, and the queue is
that of `queue`. Pure functions; every text is clean.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gangsched.api.gang_identity import gang_id
from gangsched.api.run_time import run_time_s
from gangsched.api.timestamps import parse_timestamp
from gangsched.model.objects import Node, Pod
from gangsched.model.resources import format_quantity
from kubectl_gangsched import from_api, from_pods
from kubectl_gangsched.claimed_devices import UserOf
from kubectl_gangsched.page.cluster import Cluster, GangObject
from kubectl_gangsched.page.document import (
    PLAIN,
    Bar,
    Devices,
    Lack,
    Need,
    PageGang,
    PageMember,
    PageNode,
    Reservation,
)
from kubectl_gangsched.story import GangStory, PodStory, of_gang
from kubectl_gangsched.terminal import clean

SHAPES_SHOWN = 8
"""Kinds of pods of one gang that are shown."""
PRODUCT = "nvidia.com/gpu.product"


def user_of(pod: Pod) -> str:
    """The id under which the page counts what a pod uses."""
    ref = gang_id(pod)
    return ref.id if ref is not None else f"{PLAIN}{pod.key}"


def seconds(stamp: object) -> int | None:
    """Epoch seconds of a time of the API; None if there is none."""
    return parse_timestamp(str(stamp)) if stamp else None


def text(value: object) -> str:
    """A text of an answer, clean; "" if there is none."""
    return clean(str(value)) if value else ""


def nodes_of(pods: Iterable[Pod]) -> list[str]:
    """The nodes on which they run, or are to."""
    nodes = set()
    for pod in pods:
        if pod.node_name and pod.live:
            nodes.add(pod.node_name)

    return sorted(nodes)


# --- nodes ---------------------------------------------------------------------------------------


def node_row(
    cluster: Cluster,
    node: Node,
    waiting: Iterable[GangObject],
) -> PageNode:
    """One node; `waiting` are the gangs of the gangs API that hold or reserve room there."""
    pods = cluster.on_node.of(node.name)
    closed = cluster.closed(node)
    row = PageNode(
        path=[text(node.labels.get(level)) for level in cluster.levels],
        product=text(node.labels.get(PRODUCT)),
        closed=closed,
        taints=[clean(f"{taint.key}={taint.value}:{taint.effect}") for taint in node.taints],
    )

    for resource, total in node.allocatable:
        if total and cluster.policy.is_accelerator(resource):
            users = _users(pods, resource)
            free = 0 if closed else max(0, total - users.total())
            devices = Devices(resource, total, free, dict(users))
            row.devices.append(devices)

    if cluster.has_slices and cluster.has_claims:
        by_driver = cluster.devices.on_node(node.name, _user_of_uid(cluster))
        for driver, use in by_driver.items():
            free = 0 if closed else use.total - use.users.total()
            devices = Devices(clean(driver), use.total, free, dict(use.users))
            row.devices.append(devices)

    nominated_pods = cluster.nominated.of(node.name)
    row.nominated = sorted({user_of(pod) for pod in nominated_pods})

    bound = {user_of(pod) for pod in pods}
    for gang in waiting:
        key = key_of(gang)
        status = gang.get("status") or {}
        reserved = reservation(key, status)

        if reserved is not None and node.name in status["reserved"].get("nodes", ()):
            row.reserved.append(reserved)
        elif key not in bound and node.name in status.get("nodes", ()):
            row.held.append(key)

    return row


def _user_of_uid(cluster: Cluster) -> UserOf:
    pods = cluster.pods or {}

    def user(uid: str) -> str | None:
        pod = pods.get(uid)
        return user_of(pod) if pod is not None else None

    return user


def _users(pods: Iterable[Pod], resource: str) -> Counter[str]:
    users: Counter[str] = Counter()
    for pod in pods:
        amounts = dict(pod.shape.requests)
        if pod.live and amounts.get(resource):
            users[user_of(pod)] += amounts[resource]

    return users


# --- gangs ---------------------------------------------------------------------------------------


def key_of(gang: GangObject) -> str:
    """The id of a Gang of the gangs API."""
    metadata = gang["metadata"]
    return f"{metadata.get('namespace') or ''}/{metadata['name']}"


def reservation(key: str, status: Mapping[str, Any]) -> Reservation | None:
    """The reservation in the status of a Gang."""
    reserved = status.get("reserved")
    if not reserved:
        return None

    return Reservation(
        gang=key,
        start_s=seconds(reserved.get("startTime")),
        kind=text(reserved.get("kind")),
    )


def row_of_api(gang: GangObject, pods: Sequence[Pod]) -> PageGang:
    """A gang as the gangs API shows it; `pods` are its members, as far as they may be read."""
    key = key_of(gang)
    spec = gang.get("spec") or {}
    status = gang.get("status") or {}
    reserved = status.get("reserved") or {}
    row = _row(from_api.story(gang), pods)

    row.waits = bool(status.get("position"))
    row.created_s = seconds(gang["metadata"].get("creationTimestamp"))
    row.waiting_since_s = seconds(status.get("waitingSince")) if row.waits else None
    row.broken = bool(status.get("broken"))
    row.group = [text(other) for other in spec.get("group") or ()]
    row.parent = text(status.get("parent"))
    row.lacks = _lack(status.get("lacks"))
    row.reserved = reservation(key, status)
    row.promise = text(reserved.get("message"))

    # A scheduler that does not say whether it is a promise has only promises.
    if row.reserved is not None and reserved.get("promised", True):
        row.promised_s = row.reserved.start_s

    if "priority" in status:
        row.priority = int(status["priority"])
    if status.get("needs"):
        shown = status["needs"][:SHAPES_SHOWN]
        row.needs = [_need(need) for need in shown]
    if status.get("startedAt"):
        row.started_s = seconds(status["startedAt"])
    if status.get("runTimeSeconds"):
        row.run_time_s = int(status["runTimeSeconds"])

    _end(row, seconds(status.get("expectedEnd")))
    return row


def row_of_pods(
    key: str,
    pods: list[Pod],
    body: Mapping[str, Any] | None,
    now_s: float,
) -> PageGang:
    """A gang as its pods and its PodGroup show it."""
    row = _row(from_pods.gang_story(key, pods, body, now_s), pods)
    wait = from_pods.wait_of(key, pods, body or {})
    row.waits = wait is not None
    row.waiting_since_s = seconds(wait.waiting_since) if wait is not None else None
    row.created_s = min((pod.creation_s for pod in pods), default=None)
    _end(row, None)

    return row


def _row(story: GangStory, pods: Sequence[Pod]) -> PageGang:
    """What both sources have."""
    priorities = {pod.priority for pod in pods if pod.live}
    return PageGang(
        namespace=clean(story.namespace),
        name=clean(story.name),
        sentence=clean(of_gang(story)),
        phase=clean(story.phase),
        reason=clean(story.reason),
        pods=story.total,
        bound=story.bound,
        min_member=story.min_member,
        priority=priorities.pop() if len(priorities) == 1 else None,
        needs=_needs(pods),
        started_s=_started_s(pods),
        run_time_s=_run_time_s(pods),
        problems=[clean(problem) for problem in story.problems],
        broken=story.is_below_minimum,
    )


def _needs(pods: Iterable[Pod]) -> list[Need]:
    """Its pods by what they ask for, the most common first."""
    kinds = Counter(pod.shape.requests for pod in pods if pod.live)
    needs = []
    for requests, number in kinds.most_common(SHAPES_SHOWN):
        amounts = {name: format_quantity(name, amount) for name, amount in requests}
        amounts.pop("pods", None)
        needs.append(Need(number, amounts))

    return needs


def _need(need: Mapping[str, Any]) -> Need:
    requests = need.get("requests") or {}
    return Need(
        int(need.get("pods") or 0),
        {text(name): str(amount) for name, amount in requests.items()},
    )


def _lack(lacks: Mapping[str, Any] | None) -> Lack | None:
    if not lacks:
        return None

    # The API of 0.1 has the former name alone.
    free = lacks.get("freeOnOneNode", lacks.get("largestHole"))
    return Lack(
        resource=text(lacks.get("resource")),
        amount=text(lacks.get("amount")),
        free_on_one_node=text(free),
    )


def _started_s(pods: Iterable[Pod]) -> int | None:
    """When the kubelets took over the first of its pods that still run."""
    starts = []
    for pod in pods:
        if pod.node_name and pod.start_s:
            starts.append(pod.start_s)

    return min(starts, default=None)


def _run_time_s(pods: Sequence[Pod]) -> int | None:
    """The longest declared run time; None if a pod declares none."""
    run_times = []
    for pod in pods:
        if pod.live:
            run_times.append(run_time_s(pod.run_time_metadata, None, None))

    longest_s = max(run_times, default=math.inf)
    return int(longest_s) if longest_s < math.inf else None


def _end(row: PageGang, stated_s: int | None) -> None:
    """The expected end: as stated, else the start and the run time."""
    row.expected_end_s = stated_s
    if stated_s is None and row.started_s is not None and row.run_time_s is not None:
        row.expected_end_s = row.started_s + row.run_time_s


def members(pods: Iterable[Pod], now_s: float) -> list[PageMember]:
    """The pods of a gang, by name."""
    ordered = sorted(pods, key=lambda pod: pod.name)
    return [_member(from_pods.pod_story(pod, now_s)) for pod in ordered]


def _member(story: PodStory) -> PageMember:
    return PageMember(
        clean(story.name),
        story.state,
        clean(story.node),
        clean(story.reason),
        clean(story.message),
    )


# --- bars ----------------------------------------------------------------------------------------


def bars_of(
    row: PageGang,
    nodes: list[str],
) -> list[Bar]:
    """The bars of a gang: what happened since it started, or how long it waits."""
    bars = []
    if row.bound and row.started_s is not None:
        happened = Bar("happened", row.started_s, nodes=nodes)
        expected = Bar("expected", to_s=row.expected_end_s, nodes=nodes)
        bars += [happened, expected]

    if row.waits and row.waiting_since_s is not None:
        bars.append(Bar("waited", row.waiting_since_s))
        if row.promised_s is not None:
            end_s = None
            if row.run_time_s is not None:
                end_s = row.promised_s + row.run_time_s

            bars.append(Bar("promised", row.promised_s, end_s))

    return bars


def bars_of_pod(pod: Pod) -> list[Bar]:
    """The bars of a plain pod that runs."""
    started_s = pod.start_s or pod.creation_s
    run_s = run_time_s(pod.run_time_metadata, None, None)
    end_s = int(started_s + run_s) if run_s < math.inf else None

    return [
        Bar("happened", started_s, nodes=[pod.node_name]),
        Bar("expected", to_s=end_s, nodes=[pod.node_name]),
    ]
