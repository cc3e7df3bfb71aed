"""How the tests of operators wait for a gang's members, and the one thing all operators have to
pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.following import Following
from control_plane.pods import nodes_of, refusal

PODS = "/api/v1/namespaces/default/pods"
GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
IN_THE_WAY = "in-the-way"
WITHIN_S = 60.0


def await_bound(pods: Following, prefix: str, number: int) -> dict[str, str]:
    """Pod name → node, once exactly so many pods of a prefix are bound. Raises TimeoutError."""

    def bound(items: Mapping[str, Object]) -> dict[str, str] | None:
        nodes = nodes_of(items, prefix)
        return nodes if len(nodes) == number else None

    return pods.wait_for(bound, within_s=WITHIN_S, what=f"{number} of {prefix}* to be bound")


def await_refused(pods: Following, number: int, reason: str = "Unschedulable") -> list[Object]:
    """The pods that wait for that reason, once there are exactly so many. Raises TimeoutError."""

    def told(items: Mapping[str, Object]) -> list[Object] | None:
        found = [pod for pod in items.values() if refusal(pod)[0] == reason]
        return found if len(found) == number else None

    return pods.wait_for(told, within_s=WITHIN_S, what=f"{reason} on {number} pods")


def await_none(pods: Following) -> None:
    """Wait until no pod is left. Raises TimeoutError."""
    pods.wait_for(lambda items: not items, within_s=WITHIN_S, what="the end of all pods")


def await_told(api: Api, group: str, message: str) -> None:
    """Wait until a PodGroup says why it has not started. Raises TimeoutError."""

    def told(items: Mapping[str, Object]) -> bool:
        for each in items.values():
            if each["metadata"]["name"] == group:
                conditions = each.get("status", {}).get("conditions", ())
                return any(
                    (one["type"], one["message"]) == ("Scheduled", message) for one in conditions
                )
        return False

    with Following(api, GROUPS) as groups:
        groups.wait_for(told, within_s=WITHIN_S, what=f"{group}: {message}")


def await_event(api: Api, reason: str, name: str) -> str:
    """The note of an Event about an object of that name. Raises TimeoutError."""

    def note(items: Mapping[str, Object]) -> str | None:
        for event in items.values():
            if (event["reason"], event["regarding"]["name"]) == (reason, name):
                return str(event["note"])
        return None

    with Following(api, EVENTS) as events:
        return events.wait_for(note, within_s=WITHIN_S, what=f"{reason} of {name}")


def take_gpus(api: Api, pods: Following, number: int = 1) -> None:
    """Bind a pod that takes GPUs, so that a gang of all four has no room."""
    api.post(PODS, make.pod(IN_THE_WAY, gpus=number))
    await_bound(pods, IN_THE_WAY, 1)


def give_them_back(api: Api) -> None:
    """Delete the pod that takes GPUs."""
    api.delete(f"{PODS}/{IN_THE_WAY}")


def starts_whole(
    api: Api,
    pods: Following,
    create: Callable[[], object],
    *,
    prefix: str,
    number: int = 3,
    lacks_gpus: int = 1,
) -> list[Object]:
    """Create a gang that lacks GPUs, see that none of it is bound, and give the GPUs back: all are
    bound.

    Returns the members as they waited. Raises TimeoutError.
    """
    take_gpus(api, pods, lacks_gpus)
    create()
    waiting = await_refused(pods, number)
    assert not nodes_of(pods.objects(), prefix)
    give_them_back(api)
    await_bound(pods, prefix, number)
    return waiting
