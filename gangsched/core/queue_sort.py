"""QueueSort: the order of groups and members.

Invariant: the order is total and depends on nothing but the groups themselves (semantics Q1, Q2, Q5, H9).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Set
from typing import Final

from gangsched.model.gang import Group, Rank
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.objects import Pod, Shape
from gangsched.model.resources import CPU, MEMORY


def group_key(group: Group) -> Rank:
    """Priority, among equals the broken first, then age, then id (Q1, Q2); smaller sorts first."""
    return (-group.priority, not group.broken, group.creation_s, group.id)


def in_turns(groups: Iterable[Group], looked_at: Set[str]) -> list[Group]:
    """Those that were not `looked_at` first, by id; among equals of Q1 and Q2 but for age, namespaces take turns (Q4).

    Within a namespace the given order stays. The namespace of a group is that of its first gang.
    """
    turns: Counter[tuple[bool, int, bool, str]] = Counter()
    keyed = []
    for place, group in enumerate(groups):
        rank = (group.id in looked_at, -group.priority, not group.broken)
        of_namespace = (*rank, group.id.partition("/")[0].removeprefix("pod:"))
        keyed.append(((*rank, turns[of_namespace], place), group))
        turns[of_namespace] += 1
    return [group for _, group in sorted(keyed, key=lambda entry: entry[0])]


CLASSES_S: Final = (600.0, 3_600.0, 4 * 3_600.0, 86_400.0, 3 * 86_400.0, 7 * 86_400.0, 30 * 86_400.0)
"""Run times in seconds up to which groups are of one class (H9)."""


def passing_key(group: Group) -> tuple[int, bool, int, int, str]:
    """The order of groups that may pass a reservation: among equals the shorter class, then age (H9)."""
    run_class = bisect_left(CLASSES_S, group.run_time_s)
    return -group.priority, not group.broken, run_class, group.creation_s, group.id


def in_member_order(pods: Iterable[Pod], policy: GpuPolicy) -> tuple[Pod, ...]:
    """Members of a gang: priority, larger request first, name (Q5). Each shape is asked for its size once."""
    members = list(pods)
    sizes = {shape: size_key(shape, policy) for shape in {pod.shape for pod in members}}
    return tuple(sorted(members, key=lambda pod: (-pod.priority, sizes[pod.shape], pod.name, pod.uid)))


def size_key(shape: Shape, policy: GpuPolicy) -> tuple[int, int, int]:
    """Larger requests sort first: accelerators, then cpu, then memory."""
    amounts = dict(shape.requests)
    accelerators = sum(amount for name, amount in shape.requests if policy.is_accelerator(name))
    return (-accelerators, -amounts.get(CPU, 0), -amounts.get(MEMORY, 0))
