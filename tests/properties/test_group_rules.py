"""Rules about groups: groups with equal keys may use equal room, since they share what
was refused.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Hashable, Iterator, Sequence
from math import inf

import numpy as np
import pytest

from gangsched.core import group_rules
from gangsched.core.group_rules import ClosingRule, rules_key, rules_of
from gangsched.core.placement_attempt import PlacementAttempt
from gangsched.core.promises import FencedNodes, HeldBackNodes
from gangsched.core.reservations.passing import Backfill, Kept
from gangsched.core.reserve import Ledger
from gangsched.core.scope import EVERYWHERE, Scope
from gangsched.core.scopes import closed, usable
from gangsched.model.gang import Group
from gangsched.model.gpu_policy import (
    PRODUCT_LABEL,
    SHARED_RESOURCE,
    SHARING_LABEL,
    PlacementConstraints,
)
from gangsched.model.objects import Pod, Shape
from gangsched.model.snapshot import RefusedNodes
from tests import builders
from tests.sizes import of_size

NODES = 5
GROUPS = 12
CASES = of_size(60, 3_000)
#: A scope is one value of an attempt, whichever group is tried in it.
SAME_FOR_ALL = {"OutsideOfScope"}
SHAPES = (builders.shape(0, 100), builders.shape(2, 0), Shape(requests=((SHARED_RESOURCE, 1),)))


def situation_of(dice: random.Random) -> tuple[Ledger, Scope]:
    """A ledger and a scope about which each rule may have something to say."""
    labels = [{}, {SHARING_LABEL: "mps"}, {SHARING_LABEL: "none"}, {PRODUCT_LABEL: "A100-SHARED"}]
    nodes = [builders.node(f"n{number}", 8, labels=dice.choice(labels)) for number in range(NODES)]
    snapshot = builders.snapshot(nodes)
    ledger = Ledger(snapshot)

    if dice.random() < 0.5:
        ledger.promises.held_back = HeldBackNodes("ns/high", dice.randrange(4), mask(dice))
    if dice.random() < 0.5:
        ledger.promises.fenced = (FencedNodes("ns/g1", dice.randrange(4), mask(dice)),)
    scope = EVERYWHERE
    if dice.random() < 0.5:
        scope = Scope(mask(dice), mask(dice), "node(s) are outside a domain")
    if dice.random() < 0.5:
        change = snapshot.layout.sums(
            [(f"n{dice.randrange(NODES)}", ((builders.GPU, -dice.randint(1, 8)),))]
        )
        kept = Kept("ns/head", dice.randrange(4), -inf, np.arange(NODES), change)
        ledger.promises.reserved = Backfill([kept], ledger, wall_s=0.0)
    return ledger, scope


def mask(dice: random.Random) -> np.ndarray:
    """Some of the nodes."""
    return np.array([dice.random() < 0.5 for _ in range(NODES)])


def group_of(dice: random.Random, number: int) -> tuple[Group, Pod]:
    """A group of one pod, with few different values of all that a rule may read."""
    pod = builders.pod(f"p{number}", of=dice.choice(SHAPES), priority=dice.randrange(4))
    constraints = PlacementConstraints(allow_shared=dice.random() < 0.3)
    gang = builders.gang(
        f"ns/g{number}", [pod], constraints=constraints, run_time_s=dice.choice([60.0, inf])
    )
    avoid = frozenset(f"n{node}" for node in range(NODES) if dice.random() < 0.15)
    return builders.group(gang, priority=pod.priority, avoid=avoid), pod


def contradictions(seed: int) -> Iterator[str]:
    """Yield the pairs of groups that have one key and different nodes or room."""
    dice = random.Random(seed)
    ledger, scope = situation_of(dice)
    groups = [group_of(dice, number) for number in range(GROUPS)]

    judged: dict[tuple[int, Hashable], list[tuple[Group, object]]] = {}
    for group, pod in groups:
        attempt = PlacementAttempt(group, ledger, scope=scope)
        refused = sorted((why, nodes.tolist()) for why, nodes in closed(pod.shape, attempt))
        answer: object = (refused, usable(pod.shape, attempt).tolist())
        judged.setdefault((id(pod.shape), rules_key(pod.shape, attempt)), []).append(
            (group, answer)
        )

    for alike in judged.values():
        for (first, answer), (second, other) in itertools.pairwise(alike):
            if answer != other:
                yield (
                    f"seed {seed}: {first.id} and {second.id} have one key, but {answer} and"
                    f" {other}"
                )


@pytest.mark.long
def test_equal_keys_mean_equal_nodes_and_room() -> None:
    """Each rule gives its nodes and its part of the key together."""
    assert [text for seed in range(CASES) for text in contradictions(seed)] == []


@pytest.mark.long
def test_groups_with_different_answers_are_tried() -> None:
    """Else the property would hold for rules that do nothing."""
    answers: set[str] = set()
    for seed in range(60):
        dice = random.Random(seed)
        ledger, scope = situation_of(dice)
        for number in range(GROUPS):
            group, pod = group_of(dice, number)
            attempt = PlacementAttempt(group, ledger, scope=scope)
            answers |= {why for why, nodes in closed(pod.shape, attempt) if nodes.any()}
            if ledger.promises.keeps_from(group):
                answers.add("reserved")
    assert answers >= {group_rules.AVOIDED, group_rules.HELD_BACK, group_rules.SHARED, "reserved"}


def silent_rules() -> set[str]:
    """Rules that answer all groups of a shape alike in every case, so that their key is not
    tried.
    """
    heard = set()
    for seed in range(60):
        dice = random.Random(seed)
        ledger, scope = situation_of(dice)
        groups = [group_of(dice, number) for number in range(GROUPS)]

        attempts = [PlacementAttempt(group, ledger, scope=scope) for group, _ in groups]
        for rule in rules_of(attempts[0]):
            answers: dict[int, set[object]] = {}
            for attempt, (_, pod) in zip(attempts, groups, strict=True):
                room = rule.narrow(pod.shape, ledger.room(pod.shape), attempt)
                shut = [nodes.tolist() for _, nodes in rule.closed(pod.shape, attempt)]
                answers.setdefault(id(pod.shape), set()).add(str((shut, room.tolist())))

            if any(len(different) > 1 for different in answers.values()):
                heard.add(type(rule).__name__)

    return {type(rule).__name__ for rule in group_rules.GROUP_RULES} - heard - SAME_FOR_ALL


@pytest.mark.long
def test_every_rule_is_seen_at_work() -> None:
    """The property holds for any key of a rule that reads what no case has, such as a label of its
    own.
    """
    assert silent_rules() == set(), (
        "These rules tell no two groups apart here: let `situation_of` draw the labels that they"
        " read, and `group_of` the values of groups, so that a key that is too coarse is found."
    )


def test_a_rule_about_a_label_that_no_node_has_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The maintainer's trap: its key says nothing, and the property passed."""
    monkeypatch.setattr(group_rules, "GROUP_RULES", (*group_rules.GROUP_RULES, OfTeam()))
    assert silent_rules() == {"OfTeam"}


@pytest.mark.long
def test_a_rule_that_does_not_apply_does_nothing() -> None:
    """It is not asked, so no group may depend on it."""
    silent = set()
    for seed in range(CASES):
        dice = random.Random(seed)
        ledger, scope = situation_of(dice)
        groups = [group_of(dice, number) for number in range(GROUPS)]

        attempts = [PlacementAttempt(group, ledger, scope=scope) for group, _ in groups]
        for rule in set(group_rules.GROUP_RULES) - {*rules_of(attempts[0])}:
            silent.add(type(rule).__name__)
            for attempt, (group, pod) in zip(attempts, groups, strict=True):
                room = ledger.room(pod.shape)
                left = rule.narrow(pod.shape, room, attempt)
                shut = [nodes for _, nodes in rule.closed(pod.shape, attempt) if nodes.any()]
                assert not shut, f"seed {seed}: {rule} closes nodes to {group.id}"
                assert left.tolist() == room.tolist(), f"seed {seed}: {rule} narrows {group.id}"

    assert silent == {
        "SharedGpus",
        "HeldBackForOthers",
        "AddedForOthers",
        "OutsideOfScope",
        "LeftByReservations",
    }


def test_rules_apply_as_soon_as_there_is_what_they_are_about() -> None:
    """Which ones apply is remembered, and not longer than that is true."""
    ledger = builders.ledger([builders.node(f"n{number}", 8) for number in range(NODES)])
    nodes = np.arange(NODES) == 0
    group, _ = group_of(random.Random(0), 0)
    attempt = PlacementAttempt(group, ledger)
    plain = rules_of(attempt)
    change = np.zeros((len(ledger.resources), NODES), dtype=np.int64)
    kept = Kept("ns/head", 0, -inf, np.arange(NODES), change)

    def added(attempt: PlacementAttempt) -> list[str]:
        return [type(rule).__name__ for rule in rules_of(attempt) if rule not in plain]

    limited = attempt.within(Scope(nodes, nodes))
    assert added(limited) == ["OutsideOfScope"]
    ledger.promises.held_back = HeldBackNodes("ns/high", 1, nodes)
    assert added(limited) == ["HeldBackForOthers", "OutsideOfScope"]

    ledger.promises.reserved = Backfill([kept], ledger, wall_s=0.0)
    assert added(attempt) == ["HeldBackForOthers", "LeftByReservations"]
    with ledger.promises.none():
        assert rules_of(attempt) == plain


class OfTeam(ClosingRule):
    """Nodes with a label take only groups of that namespace."""

    def key(self, shape: Shape, attempt: PlacementAttempt) -> Hashable:
        return None

    def closed(self, shape: Shape, attempt: PlacementAttempt) -> Sequence[RefusedNodes]:
        column = attempt.ledger.table.label_column("example.com/team")
        namespaces = attempt.group.namespaces
        own = [code for code, team in enumerate(column.values) if team in namespaces]
        is_other = (column.codes >= 0) & ~np.isin(column.codes, own)
        return (RefusedNodes("node(s) are of another team", is_other),)


class OddGroupsOnly(ClosingRule):
    """A rule as somebody may add it who forgets the key: groups with an odd number get no first
    node.
    """

    def key(self, shape: Shape, attempt: PlacementAttempt) -> Hashable:
        return None

    def closed(self, shape: Shape, attempt: PlacementAttempt) -> Sequence[RefusedNodes]:
        if int(attempt.group.id[-1]) % 2 == 0:
            return ()
        return (RefusedNodes("node(s) are for even groups", np.arange(NODES) == 0),)


def test_a_rule_without_its_part_of_the_key_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trap of two functions that had to agree: one of them was changed, and a gang that fits
    was refused.
    """
    monkeypatch.setattr(group_rules, "GROUP_RULES", (*group_rules.GROUP_RULES, OddGroupsOnly()))
    assert any(text for seed in range(60) for text in contradictions(seed))
