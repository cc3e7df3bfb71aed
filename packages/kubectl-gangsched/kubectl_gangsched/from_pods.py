"""A gang derived from its pods, PodGroup and Events, for clusters that do not serve the gangs API.

Invariant: the scheduler's messages are shown as written (docs/semantics.md, E1-E3); permission to
list pods in the namespace suffices. PodGroups and Events that may not be read are left out.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from gangsched.api import keys
from gangsched.api.dialects.volcano_sub_groups import read_sub_groups
from gangsched.api.gang_identity import gang_id
from gangsched.api.gang_spec import GangDefaults, gang_spec
from gangsched.api.sub_groups import SEPARATOR, sub_group_of
from gangsched.api.timestamps import format_timestamp
from gangsched.kube.http.answers import understood
from gangsched.kube.http.blocking import BlockingClient
from gangsched.kube.http.faults import NOT_FOUND, ApiFault, Fault
from gangsched.kube.read.decode import decode_pod
from gangsched.kube.read.shapes import ShapeTable
from gangsched.kube.read.wire import Page, WirePod
from gangsched.model.objects import TERMINAL, Phase, Pod, PodGroup, SubGroups
from kubectl_gangsched.outputs import PrintedWait
from kubectl_gangsched.story import BOUND, GATED, GangStory, PodStory, StoryLine

EVENTS_TOLD = 5
NO_PODS = "NoPods"
"""Reason of the default condition in the definition of PodGroups."""
SCHEDULED = ("Scheduled", "PodGroupScheduled", "PodGroupInitiallyScheduled")
"""Conditions of PodGroups that say whether the gang has its nodes."""

_pods = msgspec.json.Decoder(Page[WirePod])
_pod = msgspec.json.Decoder(WirePod)
_shapes = ShapeTable()


def pod_named(client: BlockingClient, namespace: str, name: str) -> PodStory | None:
    """The pod, or None if there is none. Raises Fault."""
    try:
        raw = client.request(
            "GET",
            f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}",
        )
    except ApiFault as fault:
        if fault.status == NOT_FOUND:
            return None

        raise

    wire = _pod.decode(raw)
    with understood(f"The answer of {client.access.server} about pod {name}"):
        body: Mapping[str, Any] = msgspec.json.decode(raw)
        gates = tuple(str(gate.get("name")) for gate in body["spec"].get("schedulingGates") or ())

    pod = decode_pod(wire, _shapes)
    if pod is None:  # ended, and of no gang
        spec = wire.spec
        phase = wire.status.phase
        return PodStory(
            namespace,
            name,
            phase.lower(),
            phase,
            spec.scheduler_name,
            node=spec.node_name,
        )

    story = pod_story(pod, time.time())
    story.gates = gates

    ref = gang_id(pod)
    if ref is not None and keys.VOLCANO in ref.api_groups:
        pod_group = _pod_group(client, namespace, ref.id.partition("/")[2], ref.api_groups)
        story.gang = (
            _sub_group(pod, _understood(pod_group)).id if pod_group is not None else story.gang
        )

    return story


def gang_named(client: BlockingClient, namespace: str, name: str) -> GangStory | None:
    """The gang with all its members, or None if nothing declares it. Raises Fault if pods may not
    be listed.
    """
    declaring = name.partition(SEPARATOR)[0]  # of a sub group, the PodGroup that declares it
    pods = _members(client, namespace, declaring)
    groups = [
        group for pod in pods if (ref := gang_id(pod)) is not None for group in ref.api_groups
    ]
    groups += [keys.NATIVE for pod in pods if pod.native_group == name]
    pod_group = _pod_group(
        client,
        namespace,
        declaring,
        dict.fromkeys(groups or (keys.X_K8S, keys.SIGS)),
    )

    if declaring != name:
        root = _understood(pod_group) if pod_group is not None else None
        wanted = f"{namespace}/{name}"
        pods = [pod for pod in pods if root is not None and _sub_group(pod, root).id == wanted]

    if not pods and (pod_group is None or declaring != name):
        return None

    return _gang(client, namespace, name, pods, pod_group)


def waiting(client: BlockingClient, namespace: str | None) -> list[PrintedWait]:
    """Gangs with a pod that waits for a node, those that wait longest first, by their pods and
    PodGroups.

    Raises Fault if the pods may not be listed.
    """
    scope = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    members: dict[str, list[Pod]] = defaultdict(list)

    for pod in pods_at(client, f"/api/v1{scope}/pods"):
        ref = gang_id(pod)
        if ref is not None:
            members[ref.id].append(pod)

    groups = declared_groups(client, scope)
    waits = [wait_of(gang, pods, groups.get(gang, {})) for gang, pods in members.items()]
    return in_order(wait for wait in waits if wait is not None)


def in_order(waits: Iterable[PrintedWait]) -> list[PrintedWait]:
    """Those that wait longest first."""
    return sorted(waits, key=lambda wait: (wait.waiting_since, wait.namespace, wait.name))


def wait_of(gang: str, pods: Sequence[Pod], body: Mapping[str, Any]) -> PrintedWait | None:
    """What its pods and its PodGroup say; None if no pod of it waits."""
    unplaced = [
        pod for pod in pods if pod.live and not pod.node_name and not pod.gated and not pod.deleting
    ]
    if not unplaced:
        return None

    oldest = min(unplaced, key=lambda pod: (pod.creation_s, pod.name))
    namespace, _, name = gang.partition("/")
    conditions = _conditions(body.get("status") or {})
    of_group = next(
        (
            story_line
            for story_line in conditions
            if story_line.type in SCHEDULED and story_line.status != "True"
        ),
        None,
    )
    of_pod = next((pod.condition for pod in unplaced if pod.condition is not None), None)
    reason = of_group or of_pod
    spec = gang_spec(
        gang,
        list({pod.gang_metadata: pod for pod in reversed(pods)}.values()),
        _understood(body) if body else None,
        needs_pod_group=False,
        defaults=GangDefaults(),
    )

    return PrintedWait(
        namespace=namespace,
        name=name,
        position=None,
        queue="",
        min_member=spec.min_member,
        bound=sum(bool(pod.node_name) for pod in pods),
        waiting_since=format_timestamp(oldest.creation_s),
        reason=reason.reason if reason is not None else "",
        message=reason.message if reason is not None else "",
    )


def declared_groups(client: BlockingClient, scope: str) -> dict[str, Mapping[str, Any]]:
    """PodGroups by gang id; without those that may not be read."""
    by_gang: dict[str, Mapping[str, Any]] = {}
    for api_group in (keys.X_K8S, keys.SIGS):
        version = f"{api_group}/v1alpha1"
        try:
            items = client.items(f"/apis/{version}{scope}/podgroups")
        except Fault:
            continue

        for item in items:
            metadata = item["metadata"]
            # Items of a list do not say what they are.
            by_gang.setdefault(
                f"{metadata.get('namespace')}/{metadata['name']}",
                {**item, "apiVersion": version},
            )

    return by_gang


def similar(client: BlockingClient, namespace: str, name: str) -> list[str]:
    """Names of gangs and pods in the namespace that are similar to this one, most similar first.
    Raises Fault.
    """
    from difflib import get_close_matches

    pods = list(listed(client, namespace))
    gangs = {ref.id.partition("/")[2] for pod in pods if (ref := gang_id(pod)) is not None}
    return get_close_matches(name, sorted(gangs | {pod.name for pod in pods}), n=3)


def _members(client: BlockingClient, namespace: str, name: str) -> list[Pod]:
    """Its pods; those that carry labels are asked for by them, which is cheap in a
    large namespace.
    """
    wanted = f"{namespace}/{name}"
    # One request per label: the API has no OR of label selectors.
    labels = []

    for identity in keys.IDENTITIES:
        if identity.label and not identity.opt_in:
            labels.append(identity.key)

    with ThreadPoolExecutor(len(labels)) as pool:
        own = list(pool.map(lambda key: list(listed(client, namespace, f"{key}={name}")), labels))

    pods = {pod.uid: pod for some in own for pod in some} or {
        pod.uid: pod for pod in listed(client, namespace)
    }
    return [pod for pod in pods.values() if (ref := gang_id(pod)) is not None and ref.id == wanted]


def pods_at(client: BlockingClient, path: str, **query: str) -> Iterator[Pod]:
    """The pods of a list, without ended pods that have no gang. Raises Fault."""
    for page in client.pages(path, **query):
        yield from (
            pod
            for wire in _pods.decode(page).items or ()
            if (pod := decode_pod(wire, _shapes)) is not None
        )


def listed(client: BlockingClient, namespace: str, label_selector: str = "") -> Iterator[Pod]:
    """The pods of a namespace, without ended pods that have no gang. Raises Fault."""
    selected = {"labelSelector": label_selector} if label_selector else {}
    try:
        yield from pods_at(
            client,
            f"/api/v1/namespaces/{quote(namespace, safe='')}/pods",
            **selected,
        )
    except ApiFault as fault:
        if fault.status != 400 or not label_selector:  # a name that no label can have
            raise


def _pod_group(
    client: BlockingClient,
    namespace: str,
    name: str,
    api_groups: Iterable[str],
) -> Mapping[str, Any] | None:
    versions = []
    for api_group in api_groups:
        if api_group in {keys.X_K8S, keys.SIGS}:
            versions.append(f"{api_group}/v1alpha1")
            continue

        (served,) = client.gets([f"/apis/{api_group}"])
        versions += (
            []
            if isinstance(served, Fault)
            else [each["groupVersion"] for each in served.get("versions", ())]
        )

    paths = []
    for version in versions:
        path = f"/apis/{version}/namespaces/{quote(namespace, safe='')}"
        paths.append(f"{path}/podgroups/{quote(name, safe='')}")

    if paths:
        return next((get for get in client.gets(paths) if not isinstance(get, Fault)), None)

    return None


def _gang(
    client: BlockingClient,
    namespace: str,
    name: str,
    pods: list[Pod],
    body: Mapping[str, Any] | None,
) -> GangStory:
    gang = gang_story(f"{namespace}/{name}", pods, body, time.time())
    gang.events = _events(client, namespace, _uid_of_events(body, pods))
    if body is None:
        gang.problems += _not_a_gang(client, namespace, name)

    return gang


def gang_story(
    whole: str,
    pods: list[Pod],
    body: Mapping[str, Any] | None,
    now_s: float,
) -> GangStory:
    """The facts that its pods and its PodGroup have; sorts `pods`, the oldest first."""
    namespace, _, name = whole.partition("/")
    pods.sort(key=lambda pod: (pod.creation_s, pod.name, pod.uid))
    is_part = SEPARATOR in name
    declared = _understood(body) if body is not None else None
    members = [pod_story(pod, now_s) for pod in pods]

    # Reversed, so that the oldest pod of equal metadata is the one that stays.
    oldest_each = list({pod.gang_metadata: pod for pod in reversed(pods)}.values())
    spec = gang_spec(
        whole,
        oldest_each,
        _sub_group(pods[0], declared) if is_part and declared is not None else declared,
        needs_pod_group=any(
            ref.needs_pod_group for pod in pods if (ref := gang_id(pod)) is not None
        ),
        defaults=GangDefaults(),
    )
    gang = GangStory(
        namespace,
        name,
        source="the conditions of its pods"
        + (", its PodGroup" if body is not None else "")
        + " and Events",
        min_member=spec.min_member,
        by_state=dict(Counter(member.state for member in members).most_common()),
        members=members,
        nodes=sorted({member.node for member in members if member.node}),
        owners=tuple(sorted({pod.owner for pod in pods if pod.owner})),
        problems=[problem.text for problem in spec.problems],
        declared=body is not None,
    )

    if body is not None:
        status = body.get("status") or {}
        gang.phase = str(status.get("phase") or "")
        gang.conditions = _conditions(status)

    _say_why(gang, is_part=is_part)
    return gang


def _say_why(gang: GangStory, *, is_part: bool) -> None:
    """Its reason and message: the PodGroup's condition, else its oldest waiting pod's (semantics
    E1); of a gang that is a part of what the PodGroup declares, the pod's first.
    """
    of_group = next(
        (
            story_line
            for story_line in gang.conditions
            if story_line.type in SCHEDULED and story_line.status != "True"
        ),
        None,
    )
    waiting = [member for member in gang.members if member.message and not member.node]

    of_pod = waiting[0] if waiting else None
    if of_group is not None and of_group.message and not (is_part and of_pod is not None):
        gang.reason = of_group.reason
        gang.message = of_group.message
    elif of_pod is not None:
        gang.reason = of_pod.reason
        gang.message = of_pod.message


def pod_story(pod: Pod, now: float) -> PodStory:
    """The facts that the pod has."""
    ref = gang_id(pod)
    condition = (
        pod.condition if pod.condition is not None and pod.condition.status == "False" else None
    )
    return PodStory(
        pod.namespace,
        pod.name,
        _state(pod),
        str(pod.phase),
        pod.scheduler_name,
        gang=ref.id if ref is not None else "",
        node=pod.node_name,
        reason=condition.reason if condition is not None else "",
        message=condition.message if condition is not None else "",
        age_s=round(now - pod.creation_s, 1),
        created_at=format_timestamp(pod.creation_s),
    )


def _state(pod: Pod) -> str:
    if pod.phase in TERMINAL:
        if pod.phase is Phase.SUCCEEDED:
            return "succeeded"

        return "failed"

    if pod.deleting:
        return "terminating"
    if pod.node_name:
        return BOUND

    return GATED if pod.gated else "pending"


def _understood(body: Mapping[str, Any]) -> PodGroup:
    """The fields of a PodGroup that count here, read without the library that checks all of it."""
    api_group, _, version = str(body["apiVersion"]).rpartition("/")
    metadata = body["metadata"]
    spec = body.get("spec") or {}
    policy = (spec.get("schedulingPolicy") or {}).get("gang") or {}
    minimum = policy.get("minCount") if api_group == keys.NATIVE else spec.get("minMember")

    return PodGroup(
        api_group=api_group,
        version=version,
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        creation_s=0,
        gang_metadata=keys.pod_group_metadata(metadata.get("annotations") or {}),
        min_member=minimum if isinstance(minimum, int) else None,
        sub_groups=_sub_groups(spec, metadata["name"]) if api_group == keys.VOLCANO else (),
    )


def _sub_groups(spec: Mapping[str, Any], name: str) -> tuple[SubGroups, ...]:
    policy = spec.get("subGroupPolicy")
    if isinstance(policy, list):
        return read_sub_groups(policy, name, 0).sub_groups

    return ()


def _sub_group(pod: Pod, root: PodGroup) -> PodGroup:
    """The declaration of the gang that a pod of this PodGroup is in: of its sub group, else of the
    PodGroup itself.
    """
    part = sub_group_of(pod, root) if root.sub_groups else root
    return part if isinstance(part, PodGroup) else root


def _conditions(status: Mapping[str, Any]) -> list[StoryLine]:
    """The conditions that somebody wrote: the one that the definition shows before that says
    nothing of the pods.
    """
    conditions: list[StoryLine] = []
    for condition in status.get("conditions") or ():
        if condition.get("reason") != NO_PODS:
            conditions.append(_condition(condition))

    return conditions


def _condition(entry: Mapping[str, Any]) -> StoryLine:
    return StoryLine(
        *(str(entry.get(key) or "") for key in ("type", "status", "reason", "message"))
    )


def _uid_of_events(body: Mapping[str, Any] | None, pods: list[Pod]) -> str:
    """The object that the gang's Events are on (semantics E2)."""
    if body is not None:
        return str(body["metadata"]["uid"])

    return pods[0].uid


def _events(client: BlockingClient, namespace: str, uid: str) -> list[StoryLine]:
    query = urlencode({"fieldSelector": f"involvedObject.uid={uid}", "limit": "500"})
    (listed,) = client.gets([f"/api/v1/namespaces/{quote(namespace, safe='')}/events?{query}"])
    if isinstance(listed, Fault):
        return []

    events = sorted(listed.get("items") or (), key=last_seen)
    result: list[StoryLine] = []

    for event in events[-EVENTS_TOLD:]:
        result.append(
            StoryLine(
                str(event.get("type") or ""),
                last_seen(event),
                str(event.get("reason") or ""),
                str(event.get("message") or ""),
            )
        )

    return result


def _not_a_gang(client: BlockingClient, namespace: str, name: str) -> list[str]:
    """Why the pods of an owner, whose gang is named `Kind.name`, are none (semantics O3)."""
    kind, dot, owner = name.partition(".")
    if not dot:
        return []

    selector = f"reason=NotAGang,involvedObject.kind={kind},involvedObject.name={owner}"
    try:
        events = client.items(
            f"/api/v1/namespaces/{quote(namespace, safe='')}/events",
            fieldSelector=selector,
        )
    except Fault:
        return []

    return [str(event.get("message")) for event in sorted(events, key=last_seen)[-1:]]


def events_of(client: BlockingClient, namespace: str, gang: GangStory) -> list[Mapping[str, Any]]:
    """Events on the gang's object and on its pods, oldest first; none if they may not be read."""
    declaring = gang.name.partition(SEPARATOR)[0]
    names = {declaring, *(member.name for member in gang.members)}
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/events"

    try:
        events = client.items(path, fieldSelector="reportingComponent=gangsched")
    except Fault:
        return []

    about = [event for event in events if (event.get("involvedObject") or {}).get("name") in names]
    return sorted(about, key=last_seen)


def last_seen(event: Mapping[str, Any]) -> str:
    """When an Event was seen last; "" if it does not say."""
    series = event.get("series") or {}
    stamps = (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event["metadata"].get("creationTimestamp"),
    )

    # Without fraction; events.k8s.io and core/v1 fill different fields.
    text = str(next((stamp for stamp in stamps if stamp), ""))
    return f"{text[:19]}Z" if text else ""
