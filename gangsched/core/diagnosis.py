"""Diagnosis: the amounts that a refusal states in addition to kube-scheduler's node counts
(semantics E1).

Invariant: the ledger is only read. "Can never fit" is reported only if totals prove it: the
eligible nodes could not hold the pods even if they were empty. The totals count requests only, not
other pods, ports, volumes or domains.
"""

from __future__ import annotations

import numpy as np
from msgspec import structs

from gangsched.core.filter import static_fit
from gangsched.core.filter.taint_toleration import TaintToleration, untolerated
from gangsched.core.group_rules import rules_key
from gangsched.core.placement_attempt import PlacementAttempt
from gangsched.core.reserve import Ledger
from gangsched.core.scopes import eligible, usable
from gangsched.model.gang import Group
from gangsched.model.objects import Shape
from gangsched.model.snapshot import Bools
from gangsched.model.verdict_facts import Amounts, Shortage

TAINTS_NAMED = 2
RESOURCES_NAMED = 3


def shortage(
    shape: Shape,
    attempt: PlacementAttempt,
    totals: Ledger,
) -> Shortage:
    """Find out why pods of `shape` lack room; `totals` is the ledger of the empty cluster."""
    progress = attempt.progress
    known = progress.shortage(shape) if progress is not None else None
    if known is None:
        # Equal for groups that may use the same nodes: hundreds of equal gangs share one diagnosis.
        key = (shortage, shape, rules_key(shape, attempt))
        known = attempt.ledger.recall(key, lambda: _shortage(shape, attempt, totals))

        if progress is not None:
            progress.is_short(shape, known)

    return known


def room(shape: Shape, attempt: PlacementAttempt) -> int:
    """Number of pods of `shape` that fit on the eligible nodes now, summed over the nodes."""
    key = (room, shape, rules_key(shape, attempt))
    return attempt.ledger.recall(key, lambda: int(usable(shape, attempt).sum()))


def empty_room(shape: Shape, group: Group, totals: Ledger) -> int:
    """Number of pods of `shape` that would fit on the eligible nodes if these were empty. Nodes
    that the group avoids only temporarily count as eligible.
    """
    # Avoided nodes come back by themselves, so they are part of what the cluster could ever hold.
    unavoiding = structs.replace(group, avoid=frozenset()) if group.avoid else group
    return room(shape, PlacementAttempt(unavoiding, totals))


def _shortage(
    shape: Shape,
    attempt: PlacementAttempt,
    totals: Ledger,
) -> Shortage:
    ledger = attempt.ledger
    ledger.work.charge(
        150 + len(ledger.table) // 30 + len(ledger.table.tainted) * (4 + len(shape.tolerations))
    )
    nodes = eligible(shape, attempt)
    found = [_amounts(name, asked, nodes, ledger) for name, asked in shape.requests]
    # A request that no node could ever satisfy is the cause, whatever else is short.
    scarcest = min(found, key=lambda each: (not each.never, each.takes))
    usable_nodes = int(np.count_nonzero(nodes))
    instead = () if _offered(scarcest.resource, ledger) else _extended(ledger)

    return Shortage(
        scarcest,
        usable_nodes,
        empty_room(shape, attempt.group, totals),
        _closed(shape, ledger),
        instead,
    )


def _closed(shape: Shape, ledger: Ledger) -> tuple[str, ...]:
    """Reasons that exclude the shape from nodes with enough allocatable resources; few taints are
    named.
    """
    enough = ledger.table.everywhere()
    for name, asked in shape.requests:
        row = ledger.resources.get(name)
        enough &= ledger.table.having(()) if row is None else ledger.allocatable[row] >= asked

    closing = []
    for reason, refused in static_fit(shape, ledger.table).refused:
        shut = refused & enough
        if not shut.any():
            continue

        text = reason.removeprefix("node(s) ")
        if reason == TaintToleration.reason:
            tainted = ledger.table.tainted.items()
            keep_off = (listed for listed, there in tainted if shut[there].any())

            taints = {str(taint) for listed in keep_off for taint in untolerated(shape, listed)}
            # Taints of many tenants' pools would fill the message.
            if len(taints) <= TAINTS_NAMED:
                text = f"had untolerated taint {', '.join(sorted(taints))}"

        closing.append(text)

    return tuple(closing)


def _offered(name: str, ledger: Ledger) -> bool:
    row = ledger.resources.get(name)
    return row is not None and bool(ledger.allocatable[row].any())


def _extended(ledger: Ledger) -> tuple[str, ...]:
    """Names of the extended resources that nodes offer, the first few."""
    return tuple(
        sorted(name for name in ledger.resources if "/" in name and _offered(name, ledger))[
            :RESOURCES_NAMED
        ]
    )


def _amounts(
    name: str,
    asked: int,
    nodes: Bools,
    ledger: Ledger,
) -> Amounts:
    row = ledger.resources.get(name)
    if row is None or not nodes.any():
        return Amounts(resource=name, asked=asked)

    free = np.maximum(ledger.free[row][nodes], 0)
    offered = ledger.allocatable[row][nodes]
    return Amounts(
        resource=name,
        asked=asked,
        offered=int(offered.max()),
        offered_in_all=int(offered.sum()),
        free_on_one=int(free.max()),
        free_in_all=int(free.sum()),
        takes=int((free // asked).sum()),
    )
