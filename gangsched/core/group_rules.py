"""Rules about groups: which nodes one group may not use although its pods would fit there.

Each rule gives its nodes and its part of the key together. Groups with equal keys are judged alike,
and what one of them was refused is remembered for the others, so a rule that closed nodes without
saying so in its key would refuse gangs that fit.

Invariant: for one ledger, equal keys mean equal nodes and equal room
(`tests/properties/test_group_rules.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final, Protocol

import numpy as np

from gangsched.core.placement_attempt import PlacementAttempt
from gangsched.core.reserve import Ledger
from gangsched.model.gang import Group
from gangsched.model.gpu_policy import (
    NOT_SHARED,
    PRODUCT_LABEL,
    SHARED_RESOURCE,
    SHARED_SUFFIX,
    SHARING_LABEL,
)
from gangsched.model.objects import Shape
from gangsched.model.snapshot import Bools, Ints, NodeTable, RefusedNodes

STRUCK: Final = "node(s) are avoided by this gang"
AVOIDED: Final = "node(s) recently rejected a member of this gang"
HELD_BACK: Final = "node(s) are temporarily reserved for a higher-priority gang"
ADDED: Final = "node(s) are reserved for a gang that an autoscaler added them for"
SHARED: Final = "node(s) share GPUs between pods, which this gang does not allow"


class GroupRule(Protocol):
    """Closes nodes to a group, or leaves it only part of their room.

    `expires`: the rule stops applying without a change of the cluster, so its nodes are no reason
    to tell a group that it never fits. `narrows`: it leaves part of the room of nodes that it does
    not close.
    """

    expires: bool
    narrows: bool

    def applies(self, attempt: PlacementAttempt) -> bool:
        """Whether the rule may do anything to any group; it is not asked otherwise.

        Depends on the nodes, and on whether there are a limited scope, reservations, a hold-back
        and fences (`rules_of`), but on nothing else about them.
        """

    def key(self, shape: Shape, attempt: PlacementAttempt) -> Hashable:
        """A key of what the rule does to the group's pods of `shape`; None if nothing."""

    def closed(self, shape: Shape, attempt: PlacementAttempt) -> Sequence[RefusedNodes]:
        """The nodes that the rule closes to the group's pods of `shape`, with the reason."""

    def narrow(self, shape: Shape, room: Ints, attempt: PlacementAttempt) -> Ints:
        """`room[n]`, reduced to the pods of `shape` that the rule leaves to the group on
        node `n`.
        """


class ClosingRule:
    """A rule that closes whole nodes."""

    expires = False
    narrows = False

    def applies(self, attempt: PlacementAttempt) -> bool:
        """Always, unless a rule knows better."""
        return True

    def narrow(self, shape: Shape, room: Ints, attempt: PlacementAttempt) -> Ints:
        """All room of the other nodes."""
        return room


class Avoided(ClosingRule):
    """B6, L8: nodes whose kubelet recently rejected a member, and nodes on which members died."""

    expires = True

    def key(self, shape: Shape, attempt: PlacementAttempt) -> Hashable:
        """The nodes' names, by cause."""
        group = attempt.group
        if not group.avoid:
            return None

        return group.avoid, group.struck

    def closed(self, shape: Shape, attempt: PlacementAttempt) -> Sequence[RefusedNodes]:
        """The nodes that the group avoids."""
        group = attempt.group
        if not group.avoid:
            return ()

        struck = frozenset(group.struck)
        rejected = group.avoid - struck
        of_names = attempt.ledger.table.having

        if not struck:
            return (RefusedNodes(AVOIDED, of_names(rejected)),)

        return (
            RefusedNodes(AVOIDED, of_names(rejected)),
            RefusedNodes(STRUCK, of_names(struck)),
        )


class SharedGpus(ClosingRule):
    """Nodes where pods share GPUs, for groups that do not allow that."""

    def applies(self, attempt: PlacementAttempt) -> bool:
        """Where any node is shared."""
        return bool(_shared(attempt.ledger))

    def key(self, shape: Shape, attempt: PlacementAttempt) -> Hashable:
        """Whether the pod may share."""
        return None if _may_share(attempt.group, shape) else True

    def closed(self, shape: Shape, attempt: PlacementAttempt) -> Sequence[RefusedNodes]:
        """Nodes that state it, by the sharing label or by the name of their product."""
        ledger = attempt.ledger
        if not ledger.accelerated(shape) or _may_share(attempt.group, shape):
            return ()

        return _shared(ledger)


class HeldBackForOthers(ClosingRule):
    """V27: nodes where a group of higher priority may preempt soon."""

    expires = True

    def applies(self, attempt: PlacementAttempt) -> bool:
        """While any group holds others back."""
        return attempt.ledger.promises.held_back is not None

    def key(self, shape: Shape, attempt: PlacementAttempt) -> Hashable:
        """The group that holds this one back."""
        held_back = attempt.ledger.promises.held_back_for(attempt.group)
        if held_back is None:
            return None

        return held_back.group

    def closed(self, shape: Shape, attempt: PlacementAttempt) -> Sequence[RefusedNodes]:
        """The nodes on which it is held back."""
        held_back = attempt.ledger.promises.held_back_for(attempt.group)
        if held_back is None:
            return ()

        return (RefusedNodes(HELD_BACK, held_back.nodes),)


class AddedForOthers(ClosingRule):
    """E10: nodes that an autoscaler added for another group, which has not started yet."""

    expires = True

    def applies(self, attempt: PlacementAttempt) -> bool:
        """While nodes are reserved so."""
        return bool(attempt.ledger.promises.fenced)

    def key(self, shape: Shape, attempt: PlacementAttempt) -> Hashable:
        """The groups whose nodes are closed to this one."""
        names: list[str] = []
        for fence in attempt.ledger.promises.fenced_from(attempt.group):
            names.append(fence.group)

        return tuple(names) or None

    def closed(self, shape: Shape, attempt: PlacementAttempt) -> Sequence[RefusedNodes]:
        """The nodes of those groups."""
        refused: list[RefusedNodes] = []
        for fence in attempt.ledger.promises.fenced_from(attempt.group):
            closed = RefusedNodes(ADDED, fence.nodes)
            refused.append(closed)

        return refused


class OutsideOfScope(ClosingRule):
    """Nodes outside the part of the cluster to which this attempt is limited."""

    def applies(self, attempt: PlacementAttempt) -> bool:
        """In a scope that excludes nodes."""
        return attempt.scope.is_limited

    def key(self, shape: Shape, attempt: PlacementAttempt) -> Hashable:
        """The scope."""
        # Scopes compare by identity: two attempts with equal nodes are rare, and comparing masks is
        # not free.
        return attempt.scope

    def closed(self, shape: Shape, attempt: PlacementAttempt) -> Sequence[RefusedNodes]:
        """The nodes outside the scope."""
        scope = attempt.scope
        inside = scope.of(accelerated=attempt.ledger.accelerated(shape))
        if inside is None:
            return ()

        return (RefusedNodes(scope.text, ~inside),)


class LeftByReservations:
    """H8: room that reservations keep for groups which have waited longer."""

    expires = False
    narrows = True

    def applies(self, attempt: PlacementAttempt) -> bool:
        """While there are reservations."""
        return attempt.ledger.promises.reserved is not None

    def key(self, shape: Shape, attempt: PlacementAttempt) -> Hashable:
        """The restrictions on the group's backfill class."""
        reserved = attempt.ledger.promises.reserved
        return None if reserved is None else reserved.standing(attempt.group)

    def closed(self, shape: Shape, attempt: PlacementAttempt) -> Sequence[RefusedNodes]:
        """None: a reservation counts places, of which a node may have some left."""
        return ()

    def narrow(self, shape: Shape, room: Ints, attempt: PlacementAttempt) -> Ints:
        """The places that reservations leave to the group."""
        reserved = attempt.ledger.promises.reserved
        if reserved is None:
            return room

        return reserved.narrow(shape, room, attempt.group)


GROUP_RULES: tuple[GroupRule, ...] = (
    Avoided(),
    SharedGpus(),
    HeldBackForOthers(),
    AddedForOthers(),
    OutsideOfScope(),
    LeftByReservations(),
)
"""All rules about groups. Those that close nodes are asked first."""


def rules_of(attempt: PlacementAttempt) -> tuple[GroupRule, ...]:
    """The rules that apply to this attempt now; most plans have one or two."""
    ledger = attempt.ledger
    situation = (
        attempt.scope.is_limited,
        ledger.promises.reserved is None,
        ledger.promises.held_back is None,
        not ledger.promises.fenced,
    )
    rules: tuple[GroupRule, ...] | None = ledger.rules.get(situation)
    if rules is None:
        rules = tuple([rule for rule in GROUP_RULES if rule.applies(attempt)])
        ledger.rules[situation] = rules

    return rules


def rules_key(shape: Shape, attempt: PlacementAttempt) -> Hashable:
    """A key of all that the rules do to the group's pods of `shape`: equal keys mean equal room on
    the ledger.
    """
    rules = rules_of(attempt)
    # With the rules, because keys of two rules may be equal.
    return (rules, *[rule.key(shape, attempt) for rule in rules])


def _shared(ledger: Ledger) -> Sequence[RefusedNodes]:
    """Nodes that state that their GPUs are shared, by the sharing label or by the name of their
    product; read once a plan.
    """

    def read() -> Sequence[RefusedNodes]:
        table = ledger.table
        stated = _having(SHARING_LABEL, lambda value: value not in NOT_SHARED, table)
        named = _having(PRODUCT_LABEL, lambda value: value.endswith(SHARED_SUFFIX), table)
        shared = (stated, named)
        return [RefusedNodes(SHARED, nodes) for nodes in shared if nodes is not None]

    return ledger.recall(_shared, read, lasting=True)


def _having(key: str, holds: Callable[[str], bool], table: NodeTable) -> Bools | None:
    """`having[n]`: node `n` has the label `key` with a value for which it holds; None if no node
    does.
    """
    column = table.label_column(key)
    codes = [code for code, value in enumerate(column.values) if holds(value)]
    return np.isin(column.codes, codes) if codes else None


def _may_share(group: Group, shape: Shape) -> bool:
    """Whether the pod may use GPUs that pods share."""
    if group.shares_gpus:
        return True

    # A pod that requests the shared resource by name has agreed to share. A loop: `any` with a
    # generator took a tenth of the plan of a refused group.
    for name, _ in shape.requests:  # noqa: SIM110
        if name == SHARED_RESOURCE:
            return True
    return False
