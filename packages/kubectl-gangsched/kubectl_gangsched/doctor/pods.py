"""Checks of pods: schedulers that do not run, missing PodGroups, nodes shared by several
schedulers.

Invariant: pure functions. A scheduler counts as running if it bound a pod, or reported why it did
not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches

from gangsched.api.gang_identity import gang_id
from gangsched.api.problem import quoted
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.objects import Pod
from gangsched.model.reasons import Reason
from gangsched.model.text import counted, named
from kubectl_gangsched.doctor.finding import Finding

QUIET_S = 3.0
"""A pod that waits for so long without a word has no scheduler, or one that is in trouble."""
BUSY_S = 30.0
"""The same of a pod of gangsched, which may be busy with many others."""
USUAL = ("gangsched", "default-scheduler")
ALIKE = 0.8
"""How similar a misspelt name is; "kai-scheduler" is no misspelt "default-scheduler"."""


def silent(pods: Iterable[Pod]) -> Iterator[Pod]:
    """The pods that wait without a word of any scheduler."""
    for pod in pods:
        waits = pod.live and not pod.node_name and not pod.gated and not pod.deleting
        if waits and pod.condition is None:
            yield pod


def served(pods: Iterable[Pod], ours: Collection[str]) -> set[str]:
    """The schedulerNames that have bound or reported a pod, and `ours`."""
    known = {pod.scheduler_name for pod in pods if pod.node_name or pod.condition is not None}
    return known | set(ours)


def unserved(waiting_pods: Iterable[Pod], known: Collection[str]) -> Iterator[Finding]:
    """schedulerNames of silent pods that no scheduler serves, each with the most similar name that
    is `known`.
    """
    by_name: dict[str, list[Pod]] = defaultdict(list)
    for pod in waiting_pods:
        by_name[pod.scheduler_name].append(pod)

    for name, waiting in sorted(by_name.items()):
        near = get_close_matches(name, sorted({*known, *USUAL}), n=1, cutoff=ALIKE)
        todo = (
            f'A pod\'s schedulerName cannot be changed: set it to "{near[0]}" if it is misspelt,'
            " else start that scheduler, and create the pods again."
            if near
            else "Start that scheduler, or name another one in the pod template (the usual name is"
            f' "{USUAL[0]}") and create the pods again.'
        )
        pods_wait = "1 pod waits" if len(waiting) == 1 else f"{len(waiting)} pods wait"
        yield Finding(
            "schedulerName",
            f"{pods_wait} for the scheduler {quoted(name)}, which has neither bound nor reported"
            f" any pod: {named([pod.key for pod in waiting])}.",
            todo,
        )


def unreported(
    pods: Iterable[Pod],
    ours: Collection[str],
    leads: str,
    now_s: float,
) -> Iterator[Finding]:
    """Pods of gangsched about which it has said nothing, although somebody `leads`."""
    waiting_pods = []
    for pod in silent(pods):
        if pod.scheduler_name in ours and now_s - pod.creation_s >= BUSY_S:
            waiting_pods.append(pod)

    if not waiting_pods:
        return

    pods_wait = "1 pod waits" if len(waiting_pods) == 1 else f"{len(waiting_pods)} pods wait"
    although = f", although {leads} leads" if leads else ""
    yield Finding(
        "scheduler",
        f"{pods_wait} for gangsched, which has said nothing for {BUSY_S:.0f} s{although}:"
        f" {named([pod.key for pod in waiting_pods])}.",
        f"Read the log of {leads}, and delete its pod, so that another replica leads; if there is"
        " no such pod, end what renews the Lease."
        if leads
        else "Read its log.",
    )


def refused(pods: Iterable[Pod]) -> Iterator[Finding]:
    """Pods whose binds the API server refuses again and again, with its answer."""
    answers: dict[str, str] = {}
    for pod in pods:
        if pod.condition is not None and pod.condition.reason == Reason.BACK_OFF:
            answers[pod.key] = pod.condition.message.rstrip(".")

    if not answers:
        return

    names = list(answers)
    yield Finding(
        "binds",
        f"The API server refuses to bind {counted(len(names), 'pod')} ({named(names)}):"
        f" {answers[names[0]]}.",
        "Apply the manifests of the version that runs if a permission is missing or a policy of"
        " gangsched refuses; else mend the webhook or quota that the answer names.",
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
