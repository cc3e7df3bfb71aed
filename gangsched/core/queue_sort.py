"""QueueSort: the order of groups and of members.

Invariant: the order is total and depends on the groups alone (semantics Q1, Q2, Q5, H9).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from typing import Final, TypeAlias

from gangsched.model.gang import Group, Rank, namespace_of
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.objects import Pod, Shape
from gangsched.model.resources import CPU, MEMORY

_InTurn: TypeAlias = tuple[int, int, int, str]
"""What groups have in common that take turns, and the namespace of one of them."""


def group_key(group: Group) -> Rank:
    """Sort key: rests of starts, priority, then broken groups first, those that are broken for
    longest before the others, then age, then id (Q1, Q2, L10); smaller first.
    """
    # The id makes the order total: plans must not depend on the order of their input.
    return (
        *group.order,
        group.creation_s,
        group.id,
    )


def in_turns(groups: Sequence[Group], looked_at: Set[str]) -> list[Group]:
    """Order groups for a plan: groups whose ids are not in `looked_at` come first; namespaces
    alternate among groups that differ only in age (Q1, Q2, Q4).

    Within a namespace the given order is kept. A group belongs to the namespace of its first gang.
    """
    ranks = []
    turns: Counter[_InTurn] = Counter()
    for group in groups:
        rank = (*group.order, namespace_of(group.gangs[0].id))
        ranks.append(rank)
        # Its turn was in an earlier plan. Else a namespace of which each group takes a whole plan
        # would have the first turn of each.
        if group.id in looked_at:
            turns[rank] += 1

    second_turns: Counter[_InTurn] = Counter()
    keyed = []
    for place, (group, rank) in enumerate(zip(groups, ranks, strict=True)):
        is_again = group.id in looked_at
        had = second_turns if is_again else turns

        # The n-th group of each namespace comes before the (n+1)-th of any, so that a flood of one
        # delays no other.
        keyed.append(((is_again, *rank[:3], had[rank], place), group))
        had[rank] += 1

    keyed.sort(key=lambda entry: entry[0])
    return [group for _, group in keyed]


CLASSES_S: Final = (
    600.0,
    3_600.0,
    4 * 3_600.0,
    86_400.0,
    3 * 86_400.0,
    7 * 86_400.0,
    30 * 86_400.0,
)
"""Run times in seconds up to which groups are of one class (H9)."""


def passing_key(group: Group) -> tuple[int, int, int, int, int, str]:
    """Sort key of groups that may be backfilled: as Q1 and Q2, but a shorter run-time class comes
    before age (H9).
    """
    # Classes, so that a minute less does not beat an hour of waiting.
    run_class = bisect_left(CLASSES_S, group.run_time_s)
    return (
        *group.order,
        run_class,
        group.creation_s,
        group.id,
    )


def in_member_order(pods: Iterable[Pod], policy: GpuPolicy) -> tuple[Pod, ...]:
    """Sort members by priority, then larger request first, then by name (Q5). The size is computed
    once per shape.
    """
    members = list(pods)
    sizes = {shape: size_key(shape, policy) for shape in {pod.shape for pod in members}}
    return tuple(
        sorted(members, key=lambda pod: (-pod.priority, sizes[pod.shape], pod.name, pod.uid))
    )


def size_key(shape: Shape, policy: GpuPolicy) -> tuple[int, int, int]:
    """Sort key of sizes, larger first: accelerators, then cpu, then memory."""
    amounts = dict(shape.requests)
    accelerators = sum(amount for name, amount in shape.requests if policy.is_accelerator(name))
    return (-accelerators, -amounts.get(CPU, 0), -amounts.get(MEMORY, 0))
