"""Checks of pods: schedulers that do not run, missing PodGroups, nodes shared by several
schedulers.

Invariant: pure functions. A scheduler counts as running if it bound a pod, or reported why it did
not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches

from gangsched.api.gang_identity import gang_id
from gangsched.api.problem import quoted
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.objects import Pod
from gangsched.model.text import counted, named
from kubectl_gangsched.doctor.finding import Finding

QUIET_S = 30.0
"""A pod that waits for so long without a word has no scheduler, or one that is in trouble."""
USUAL = ("gangsched", "default-scheduler")


def unserved(pods: Sequence[Pod], ours: Collection[str], now_s: float) -> Iterator[Finding]:
    """schedulerNames of waiting pods that no scheduler serves, each with the most similar name that
    is served.

    `ours` are the names of the installed gangsched.
    """
    active = {
        pod.scheduler_name for pod in pods if pod.node_name or pod.condition is not None
    } | set(ours)
    silent: dict[str, list[Pod]] = defaultdict(list)

    for pod in pods:
        waits = pod.live and not pod.node_name and not pod.gated and not pod.deleting
        if (
            waits
            and pod.condition is None
            and now_s - pod.creation_s >= QUIET_S
            and pod.scheduler_name not in active
        ):
            silent[pod.scheduler_name].append(pod)

    for name, waiting in sorted(silent.items()):
        near = get_close_matches(name, sorted(active | set(USUAL)), n=1)
        todo = (
            f'set it to "{near[0]}" if it is misspelt, else start that scheduler'
            if near
            else "start that scheduler"
        )
        pods_wait = "1 pod waits" if len(waiting) == 1 else f"{len(waiting)} pods wait"
        yield Finding(
            "schedulerName",
            f"{pods_wait} for the scheduler {quoted(name)}, which has neither bound nor reported"
            f" any pod: {named([pod.key for pod in waiting])}.",
            f"A pod's schedulerName cannot be changed: {todo}, and create the pods again.",
        )


def missing_pod_groups(
    pods: Sequence[Pod],
    existing: Mapping[str, Collection[str]],
) -> Iterator[Finding]:
    """Gangs whose PodGroup is missing, each with the most similar PodGroup name in its namespace.

    `existing` are ids ("namespace/name") of PodGroups by API group; gangs of API groups that are
    not in `existing` are left out.
    """
    wanted: dict[tuple[str, tuple[str, ...]], list[Pod]] = defaultdict(list)
    for pod in pods:
        ref = gang_id(pod)
        if ref is not None and ref.needs_pod_group and pod.live and not pod.node_name:
            wanted[ref.id, ref.api_groups].append(pod)

    for (gang, api_groups), members in sorted(wanted.items()):
        known = {
            group_name for api_group in api_groups for group_name in existing.get(api_group, ())
        }
        if gang in known or existing.keys().isdisjoint(api_groups):
            continue

        namespace = gang.partition("/")[0]
        near = get_close_matches(
            gang,
            [other for other in sorted(known) if other.startswith(f"{namespace}/")],
            n=1,
        )
        name = near[0].partition("/")[2] if near else ""
        todo = (
            f'Name "{name}" in the label of the pods, or create the PodGroup.'
            if near
            else "Create the PodGroup."
        )

        elsewhere = [api_group for api_group, ids in existing.items() if gang in ids]
        if elsewhere:
            todo = (
                f"Create it in {api_groups[0]}, which the pods name: there is one in"
                f" {' and '.join(elsewhere)}."
            )

        yield Finding(
            "PodGroup",
            f"PodGroup {gang} does not exist, and {counted(len(members), 'pod')} of that gang "
            f"cannot start without it: {named([pod.key for pod in members])}.",
            todo,
        )


def shared_nodes(
    pods: Sequence[Pod],
    ours: Collection[str],
    policy: GpuPolicy,
) -> Iterator[Finding]:
    """Nodes on which several schedulers placed pods with accelerators; all names of `ours` count as
    one scheduler.
    """
    by_node: dict[str, set[str]] = defaultdict(set)
    for pod in pods:
        if (
            pod.node_name
            and pod.live
            and any(policy.is_accelerator(name) for name, _ in pod.shape.requests)
        ):
            by_node[pod.node_name].add(
                "gangsched" if pod.scheduler_name in ours else pod.scheduler_name
            )

    shared = {node: names for node, names in by_node.items() if len(names) > 1}
    if shared:
        names = " and ".join(
            sorted({quoted(name) for node_names in shared.values() for name in node_names})
        )
        one = len(shared) == 1
        yield Finding(
            "nodes",
            f"{counted(len(shared), 'node')} with accelerators {'has' if one else 'have'} pods of"
            f" several schedulers ({names}): {named(sorted(shared))}.",
            "Two schedulers may give away the same room at the same moment: give each its own"
            " nodes, by a taint that only its pods tolerate.",
        )
