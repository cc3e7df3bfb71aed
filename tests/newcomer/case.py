"""What a newcomer may meet: the form of one case, and words to write one with.

Invariant: a case says what is done; what is said then stands in `docs/troubleshooting.md` and
nowhere else. Everything is in the namespace `default`; the gang is `training`, and its pods are
`training-0` ….
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from control_plane import objects as make
from control_plane.api import Api, ApiError, Object

Deed = Callable[[Api], None]
ROOT = Path(__file__).resolve().parents[2]
GANG = "training"
WITHIN_S = 60.0
"""The machine may be slow and shared; what is promised is a second."""
COLLECTIONS = {
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/default/pods",
    "PodGroup": "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups",
    "PersistentVolumeClaim": "/api/v1/namespaces/default/persistentvolumeclaims",
    "ResourceQuota": "/api/v1/namespaces/default/resourcequotas",
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One thing that a newcomer meets; `slug` names it in the page.

    `nodes` are there first, then the deeds `before` are done. Of `applied`, PodGroups are created
    last, once the pods are known, so that what is said first is what stays; or first, with
    `group_first`, so that Events are on them. `starts_first` pods are bound before the `deeds` are
    done. `mend` ends it: then `starts` pods are bound; nothing for what has not to be mended or
    cannot be.
    """

    slug: str
    nodes: Sequence[Object]
    before: Sequence[Deed] = ()
    applied: Sequence[Object]
    group_first: bool = False
    starts_first: int = 0
    deeds: Sequence[Deed] = ()
    mend: Sequence[Deed] = ()
    starts: int = 0


def until(holds: Callable[[], object], what: str) -> float:
    """Wait until it holds; returns how long that took, in seconds. Raises TimeoutError."""
    began_s = time.monotonic()
    while not holds():
        if time.monotonic() > began_s + WITHIN_S:
            raise TimeoutError(f"not within {WITHIN_S:g} s: {what}")
        time.sleep(0.02)
    return time.monotonic() - began_s


# --- what is applied ----------------------------------------------------------------------------


RACK = {"gangsched.dev/topology": "example.com/rack"}
"""What the pods of a gang say that needs one rack."""


def nodes(number: int, **options: Any) -> list[Object]:
    """Nodes `gpu-1` …, 8 GPUs each unless told otherwise."""
    return [make.node(f"gpu-{index + 1}", **options) for index in range(number)]


def in_racks(*racks: str) -> list[Object]:
    """Nodes `gpu-1` …, each in its rack."""
    return [
        make.node(f"gpu-{number}", labels={"example.com/rack": rack})
        for number, rack in enumerate(racks, 1)
    ]


def gang(members: int, *, needs: int | None = None, gpus: int = 8, **options: Any) -> list[Object]:
    """PodGroup `training` and its pods; `needs` is its minMember, all of them unless told
    otherwise.
    """
    return make.gang(GANG, members=members, min_member=needs, gpus=gpus, **options)


def pods(
    members: int, *, first: int = 0, group: str = GANG, gpus: int = 8, **options: Any
) -> list[Object]:
    """Pods `training-0` … that name a PodGroup, "" for none."""
    return [
        make.pod(f"{GANG}-{first + index}", gang=group, gpus=gpus, **options)
        for index in range(members)
    ]


def koordinator(**values: str) -> dict[str, str]:
    """Annotations `gang.scheduling.koordinator.sh/…`, with `_` for `-`."""
    return {make.KOORDINATOR + key.replace("_", "-"): value for key, value in values.items()}


def on(node: str, name: str, gpus: int) -> Object:
    """A pod of another scheduler that runs on a node."""
    return make.pod(name, gpus=gpus, scheduler_name="default-scheduler", spec={"nodeName": node})


# --- deeds --------------------------------------------------------------------------------------


def create(*bodies: Object) -> Deed:
    """Create these, one after the other."""

    def deed(api: Api) -> None:
        for body in bodies:
            api.post(api.path_of(body), body)

    return deed


def refused(body: Object, fragment: str) -> Deed:
    """Try to create this until the API server refuses it for a reason that has `fragment`."""
    return lambda api: _tried(
        api, body, lambda reason: fragment in reason, f"is refused: {fragment}"
    )


def accepted(body: Object) -> Deed:
    """Try to create this until the API server would take it: its admission reads quotas through a
    cache.
    """
    return lambda api: _tried(api, body, lambda reason: not reason, "is accepted")


def _tried(api: Api, body: Object, holds: Callable[[str], bool], what: str) -> None:
    """Create this as a dry run until what the API server says to it holds; "" is said where it
    takes it.
    """

    def said() -> str:
        try:
            api.post(f"{api.path_of(body)}?dryRun=All", body)
        except ApiError as error:
            return error.message
        return ""

    until(lambda: holds(said()), f"{body['metadata']['name']} {what}")


def patch(kind: str, name: str, body: Object, *, status: bool = False) -> Deed:
    """Merge this into an object, or into its status."""

    def deed(api: Api) -> None:
        path = f"{COLLECTIONS[kind]}/{name}"
        api.patch(*((f"{path}/status", {"status": body}) if status else (path, body)))

    return deed


def annotate(kind: str, *names: str, **values: str | None) -> Deed:
    """Set annotations `gang.scheduling.koordinator.sh/…`, with `_` for `-`; None takes one away."""
    keys = {make.KOORDINATOR + key.replace("_", "-"): value for key, value in values.items()}

    def deed(api: Api) -> None:
        for name in names:
            patch(kind, name, {"metadata": {"annotations": keys}})(api)

    return deed


def delete(kind: str, *names: str) -> Deed:
    """Delete these at once."""

    def deed(api: Api) -> None:
        for name in names:
            api.delete(f"{COLLECTIONS[kind]}/{name}")

    return deed


def replace_pods(*bodies: Object) -> Deed:
    """Delete the pods of these names and create these in their stead, as a job that is applied
    anew.
    """

    def deed(api: Api) -> None:
        # Nothing else is asked of the API server between: a longer gap would be told as a loss.
        paths = [api.path_of(body) for body in bodies]
        delete("Pod", *(body["metadata"]["name"] for body in bodies))(api)
        for path, body in zip(paths, bodies, strict=True):
            api.post(path, body)

    return deed
